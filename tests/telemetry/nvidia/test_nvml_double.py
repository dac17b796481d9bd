"""The real nvidia-ml-py against the double: what other tests take for granted."""

import time
from collections.abc import Iterator

import pytest
from nvml_double import NvmlDouble
from nvml_scenarios import (
    DRIVER_NOT_LOADED,
    H200_BYTES,
    NOT_SUPPORTED,
    UNKNOWN,
    a100,
    bare,
    gpu_uuid,
    h200,
    h200_mig,
    mig_uuid,
)
from nvml_shell import Shell

UNINITIALIZED, INVALID_ARGUMENT, NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST = 1, 2, 6, 13, 15


@pytest.fixture
def shell(nvml: NvmlDouble) -> Iterator[Shell]:
    made = Shell(nvml)
    yield made
    made.close()


def test_gpus_are_found_by_index_uuid_and_place_on_the_bus(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(h200(2))
    shell.open(2)
    assert shell("nvmlDeviceGetCount()") == 2
    assert shell("nvmlSystemGetDriverVersion()") == "580.159.03"
    assert shell("nvmlSystemGetCudaDriverVersion_v2()") == 13000
    for handle in (
        "gpu1",
        f"nvmlDeviceGetHandleByUUID(b'{gpu_uuid(1)}')",
        "nvmlDeviceGetHandleByPciBusId(b'00000000:29:00.0')",
    ):
        assert shell(f"nvmlDeviceGetUUID({handle})") == gpu_uuid(1)
        assert shell(f"nvmlDeviceGetIndex({handle})") == 1
    assert shell("nvmlDeviceGetPciInfo(gpu1).busId") == "00000000:29:00.0"
    assert shell("nvmlDeviceGetPciInfo(gpu1).bus") == 0x29
    assert shell.code("nvmlDeviceGetHandleByIndex(2)") == INVALID_ARGUMENT
    assert shell.code("nvmlDeviceGetHandleByUUID(b'GPU-nobody')") == NOT_FOUND


EXPECTED = {
    "nvmlDeviceGetName(gpu0)": "NVIDIA H200",
    "nvmlDeviceGetCudaComputeCapability(gpu0)": [9, 0],
    "nvmlDeviceGetNumGpuCores(gpu0)": 16896,
    "nvmlDeviceGetMemoryBusWidth(gpu0)": 6016,
    "nvmlDeviceGetClockInfo(gpu0, NVML_CLOCK_SM)": 1500,
    "nvmlDeviceGetClockInfo(gpu0, NVML_CLOCK_MEM)": 3201,
    "nvmlDeviceGetMaxClockInfo(gpu0, NVML_CLOCK_SM)": 1980,
    "nvmlDeviceGetPowerUsage(gpu0)": 612345,
    "nvmlDeviceGetEnforcedPowerLimit(gpu0)": 700000,
    "nvmlDeviceGetTemperature(gpu0, NVML_TEMPERATURE_GPU)": 48,
    "nvmlDeviceGetTemperatureV(gpu0, NVML_TEMPERATURE_GPU)": 48,
    "nvmlDeviceGetUtilizationRates(gpu0)": {"gpu": 100, "memory": 25},
    "nvmlDeviceGetMemoryInfo(gpu0)": {
        "total": H200_BYTES,
        "free": H200_BYTES - 40 * 2**30 - 600 * 2**20,
        "used": 40 * 2**30 + 600 * 2**20,  # the first version counts what the driver holds as used
    },
    "nvmlDeviceGetMemoryInfo(gpu0, nvmlMemory_v2)": {
        "version": 0x02000028,
        "total": H200_BYTES,
        "reserved": 600 * 2**20,
        "free": H200_BYTES - 40 * 2**30 - 600 * 2**20,
        "used": 40 * 2**30,
    },
    "nvmlDeviceGetPcieThroughput(gpu0, NVML_PCIE_UTIL_TX_BYTES)": 11800,
    "nvmlDeviceGetPcieThroughput(gpu0, NVML_PCIE_UTIL_RX_BYTES)": 11500,
    "nvmlDeviceGetCurrentClocksEventReasons(gpu0)": 4,
    "nvmlDeviceGetCurrentClocksThrottleReasons(gpu0)": 4,
    "nvmlDeviceGetEccMode(gpu0)": [1, 1],
    "nvmlDeviceGetMigMode(gpu0)": [0, 0],
    "nvmlDeviceGetNvLinkState(gpu0, 2)": 1,
    "nvmlDeviceGetNvLinkState(gpu0, 3)": 0,
    "nvmlDeviceGetTotalEnergyConsumption(gpu0)": 123456789,
    "nvmlDeviceGetFieldValues(gpu0, [138])[0].value.ullVal": 2**40,
    "nvmlDeviceGetFieldValues(gpu0, [139])[0].nvmlReturn": NOT_SUPPORTED,
    "[(p.pid, p.usedGpuMemory) for p in nvmlDeviceGetComputeRunningProcesses(gpu0)]": [
        [10, 1024],
        [20, None],
    ],
    "nvmlDeviceGetGraphicsRunningProcesses(gpu0)": [],
}


def test_every_value_arrives_in_its_field(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(h200())
    nvml.set({"gpu0.sm_clock": 1500, "gpu0.event_reasons": "0x4", "gpu0.field.138": 2**40})
    nvml.set({"gpu0.processes": "10:1024,20:n/a", "gpu0.nvlinks": 3})
    shell.open()
    assert {call: shell(call) for call in EXPECTED} == EXPECTED


def test_a_change_of_the_scenario_is_seen_by_the_next_call(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(h200())
    shell.open()
    for clock in (345, 1755, 1980):
        nvml.set({"gpu0.sm_clock": clock})
        assert shell("nvmlDeviceGetClockInfo(gpu0, NVML_CLOCK_SM)") == clock


def test_what_the_scenario_does_not_give_is_not_supported(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(bare())
    shell.open()
    assert shell("nvmlDeviceGetName(gpu0)") == "NVIDIA H200"
    for call in EXPECTED:
        if call.startswith("nvmlDevice") and "Name" not in call and "Field" not in call:
            assert shell.code(call) == NOT_SUPPORTED, call


def test_one_function_fails_on_one_gpu(nvml: NvmlDouble, shell: Shell) -> None:
    power, memory = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo"
    nvml.write(h200(2) | {f"gpu1.fail.{power}": UNKNOWN, f"fail.{memory}": NOT_SUPPORTED})
    shell.open(2)
    assert shell.code(f"{power}(gpu0)") == 0
    assert shell.code(f"{power}(gpu1)") == UNKNOWN
    # A fault without a version is one of all versions.
    assert shell.code(f"{memory}(gpu0)") == NOT_SUPPORTED
    assert shell.code(f"{memory}(gpu0, nvmlMemory_v2)") == NOT_SUPPORTED
    nvml.unset(f"gpu1.fail.{power}")
    assert shell.code(f"{power}(gpu1)") == 0


def test_a_lost_gpu_leaves_the_other_alone_and_comes_back(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(h200(2))
    shell.open(2)
    nvml.set({"gpu1.lost": 1})
    assert shell("nvmlDeviceGetCount()") == 2
    assert shell.code("nvmlDeviceGetHandleByIndex(1)") == GPU_IS_LOST
    assert shell.code("nvmlDeviceGetPowerUsage(gpu1)") == GPU_IS_LOST
    assert shell.code("nvmlDeviceGetPowerUsage(gpu0)") == 0
    nvml.unset("gpu1.lost")
    assert shell.code("nvmlDeviceGetPowerUsage(gpu1)") == 0


def test_a_reloaded_driver_wants_a_new_start_and_new_handles(
    nvml: NvmlDouble, shell: Shell
) -> None:
    nvml.write(h200())
    assert shell.code("nvmlDeviceGetCount()") == UNINITIALIZED
    shell.open()
    nvml.set({"driver_generation": 2, "fail.nvmlInit": DRIVER_NOT_LOADED})
    assert shell.code("nvmlDeviceGetPowerUsage(gpu0)") == UNINITIALIZED
    assert shell.code("nvmlShutdown()") == 0
    assert shell.code("nvmlInit()") == DRIVER_NOT_LOADED
    nvml.unset("fail.nvmlInit")
    assert shell.code("nvmlInit()") == 0
    assert shell.code("nvmlDeviceGetPowerUsage(gpu0)") == INVALID_ARGUMENT
    assert shell.code("nvmlDeviceGetPowerUsage(nvmlDeviceGetHandleByIndex(0))") == 0


def test_a_hung_call_holds_no_other_and_ends_with_its_time_or_its_cause(
    nvml: NvmlDouble, shell: Shell
) -> None:
    nvml.write(h200(2) | {"gpu0.hang.nvmlDeviceGetPowerUsage": 0.2})
    shell.open(2)
    began = time.monotonic()
    assert shell("nvmlDeviceGetPowerUsage(gpu0)") == 612345
    assert time.monotonic() - began >= 0.2
    nvml.set({"gpu0.hang.nvmlDeviceGetPowerUsage": -1})
    shell("hung := threading.Thread(target=nvmlDeviceGetPowerUsage, args=(gpu0,), daemon=True)")
    shell("hung.start()")
    assert shell("nvmlDeviceGetPowerUsage(gpu1)") == 612345
    assert shell("nvmlDeviceGetName(gpu0)") == "NVIDIA H200"
    assert shell("[hung.join(0.1), hung.is_alive()][1]") is True
    nvml.unset("gpu0.hang.nvmlDeviceGetPowerUsage")
    assert shell("[hung.join(5), hung.is_alive()][1]") is False


def test_gpm_metrics_come_from_two_samples_in_order(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(h200(2) | {"gpu0.gpm.dram_bw_util": 89.9})
    nvml.unset("gpu0.gpm.fp16_util")
    shell.open(2)
    assert shell("nvmlGpmQueryDeviceSupport(gpu0).isSupportedDevice") == 1
    for name, gpu in (("first", 0), ("second", 0), ("other", 1)):
        shell(f"{name} := nvmlGpmSampleAlloc()")
        shell(f"nvmlGpmSampleGet(gpu{gpu}, {name})")
    answer = shell("metrics(first, second, 10, 12, 13, 20, 200)")
    assert answer == [[0, 89.9], [0, 76.3], [NOT_SUPPORTED, 0], [0, 11.8], [NOT_SUPPORTED, 0]]
    for pair in ("second, first", "first, first", "first, other", "first, nvmlGpmSampleAlloc()"):
        assert shell.code(f"metrics({pair}, 10)") == INVALID_ARGUMENT
    assert shell.code("nvmlGpmSampleFree(first)") == 0


def test_an_a100_has_no_gpm(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(a100())
    shell.open()
    assert shell("nvmlDeviceGetCudaComputeCapability(gpu0)") == [8, 0]
    assert shell("nvmlGpmQueryDeviceSupport(gpu0).isSupportedDevice") == 0
    assert shell.code("nvmlGpmSampleGet(gpu0, nvmlGpmSampleAlloc())") == NOT_SUPPORTED


def test_instances_are_devices_of_their_own(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(h200_mig())
    shell.open()
    assert shell("nvmlDeviceGetMigMode(gpu0)") == [1, 1]
    shell("mig := nvmlDeviceGetMigDeviceHandleByIndex(gpu0, 1)")
    assert shell.code("nvmlDeviceGetMigDeviceHandleByIndex(gpu0, 2)") == NOT_FOUND
    assert shell("nvmlDeviceGetUUID(mig)") == mig_uuid(1)
    assert shell(f"nvmlDeviceGetUUID(nvmlDeviceGetHandleByUUID(b'{mig_uuid(0)}'))") == mig_uuid(0)
    assert shell("nvmlDeviceGetName(mig)") == "NVIDIA H200 MIG 1g.18gb"
    assert shell("nvmlDeviceIsMigDeviceHandle(mig).value") == 1
    assert shell("nvmlDeviceGetGpuInstanceId(mig)") == 2
    assert shell("nvmlDeviceGetAttributes(mig).multiprocessorCount") == 16
    assert shell.code("nvmlDeviceGetAttributes(gpu0)") == NOT_SUPPORTED
    assert shell("nvmlDeviceGetMemoryInfo(mig).total") == H200_BYTES // 8
    assert shell.code("nvmlDeviceGetUtilizationRates(mig)") == NOT_SUPPORTED
    parent = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)"
    assert shell(f"nvmlDeviceGetUUID({parent})") == gpu_uuid(0)
    for name in ("first", "second"):
        shell(f"nvmlGpmMigSampleGet(gpu0, 2, {name} := nvmlGpmSampleAlloc())")
    assert shell("metrics(first, second, 10)") == [[0, 40.0]]
    nvml.unset("gpu0.mig1.uuid")
    assert shell.code("nvmlDeviceGetUUID(mig)") == INVALID_ARGUMENT


def test_a_name_can_hold_any_byte(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(h200() | {"gpu0.name": "a\x1b[31m\n\\ µ = # b"})
    shell.open()
    assert shell("nvmlDeviceGetName(gpu0)") == "a\x1b[31m\n\\ µ = # b"
    nvml.set({"gpu0.name": b"\xff\xfe"})
    assert shell.code("nvmlDeviceGetName(gpu0)") == "UnicodeDecodeError"


def test_an_old_library_lacks_newer_functions(nvml: NvmlDouble) -> None:
    nvml.use_library(old=True)
    nvml.write(h200())
    shell = Shell(nvml)
    try:
        shell.open()
        for call in (
            "nvmlDeviceGetMemoryInfo(gpu0, nvmlMemory_v2)",
            "nvmlDeviceGetCurrentClocksEventReasons(gpu0)",
            "nvmlDeviceGetNumGpuCores(gpu0)",
            "nvmlDeviceGetComputeRunningProcesses_v3(gpu0)",
            "nvmlGpmQueryDeviceSupport(gpu0)",
        ):
            assert shell.code(call) == FUNCTION_NOT_FOUND
        # Not an NVMLError: who catches only those is caught by this one.
        processes = "nvmlDeviceGetComputeRunningProcesses"
        assert shell.code(f"{processes}(gpu0)") == "NVMLLibraryMismatchError"
        assert shell(f"{processes}_v2(gpu0)") == []
        assert shell.code("nvmlDeviceGetMemoryInfo(gpu0)") == 0
        assert shell("nvmlDeviceGetCurrentClocksThrottleReasons(gpu0)") == 0
    finally:
        shell.close()


def test_without_a_scenario_there_is_no_driver(shell: Shell) -> None:
    assert shell.code("nvmlInit()") == DRIVER_NOT_LOADED


def test_calls_are_on_record(nvml: NvmlDouble, shell: Shell) -> None:
    nvml.write(h200())
    before = time.monotonic()
    shell.open()
    shell("nvmlDeviceGetName(gpu0)")
    calls = nvml.calls()
    assert [(c.function, c.device) for c in calls][-1] == ("nvmlDeviceGetName", "gpu0")
    assert before < calls[0].at_s < calls[-1].at_s < time.monotonic()
