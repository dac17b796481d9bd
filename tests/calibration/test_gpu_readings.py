"""What a calibration asks NVML, on the double: devices, conditions, clocks, and who else uses a GPU."""

import json
import os
import subprocess
import sys
import time

import pytest
from nvml_double import NvmlDouble
from nvml_scenarios import a100, gpu_uuid, h200, h200_mig, mig_uuid

from roofmon.errors import ExitCode

OTHERS = 4_000_000  # numbers of processes that no system gives


def ask(code: str) -> object:
    """What a fresh process prints as JSON, or the RoofmonError that it ends with."""
    program = (
        "import json, os, sys, time\n"
        "from roofmon.errors import RoofmonError\n"
        "from roofmon.telemetry.nvidia.calibration_readings import *\n"
        "from roofmon.calibration.gpu_load import GpuLoad, HeldClocks\n"
        f"GPU, MIG = {gpu_uuid(0)!r}, {mig_uuid(1)!r}\n"
        "try:\n"
        + "".join(f"    {line}\n" for line in code.splitlines())
        + "except RoofmonError as error: print(json.dumps([error.what, error.exit_code]))\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, done.stderr
    answer: object = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_gpus_and_their_instances_are_listed(gpus: NvmlDouble) -> None:
    gpus.write(h200_mig())
    code = "print(json.dumps([[d.uuid, d.compute_capability] for d in list_gpus()]))"
    assert ask(code) == [[uuid, "9.0"] for uuid in (gpu_uuid(0), mig_uuid(0), mig_uuid(1))]


def test_conditions_and_bounds_are_those_of_the_device(gpus: NvmlDouble) -> None:
    gpus.write(h200())
    code = (
        "limits = CalibrationReadings(GPU).limits()\n"
        "c = limits.conditions\n"
        "dram = limits.bandwidth('dram').value\n"
        "print(json.dumps([c.device, c.driver, c.power_limit_w, c.ecc, c.mig_profile, dram]))"
    )
    conditions = [gpu_uuid(0), "580.159.03", 700.0, True, None]
    assert ask(code) == [*conditions, 2 * 3201e6 * 6016 / 8]
    gpus.write(h200_mig())
    mig = "r = CalibrationReadings(MIG)\nprint(json.dumps([r.limits().conditions.mig_profile, r.busy()]))"
    assert ask(mig) == ["1g.18gb", None]


def test_a_device_that_is_not_there_is_said_to_be_missing(gpus: NvmlDouble) -> None:
    gpus.write(h200())
    what, code = ask("CalibrationReadings('GPU-nothing')")  # type: ignore[misc]
    assert what == "the NVIDIA driver shows no device GPU-nothing"
    assert code == ExitCode.NO_DEVICE


def test_clocks_and_reasons_are_gathered_from_reset_on(gpus: NvmlDouble) -> None:
    gpus.write(h200() | {"gpu0.event_reasons": 0x4 | 0x1, "gpu0.sm_clock": 1755})
    code = (
        "clocks = HeldClocks(CalibrationReadings(GPU))\n"
        "seen = [clocks.read(), clocks.memory_clock_hz(), clocks.reasons(), clocks.flags()]\n"
        "clocks.reset()\n"
        "print(json.dumps([*seen, clocks.reasons(), clocks.flags()]))"
    )
    assert ask(code) == [1755e6, 3201e6, ["power cap"], ["power-capped"], [], []]
    gpus.set({"gpu0.event_reasons": 0x20})
    assert ask(code)[2:4] == [["thermal limit (driver)"], ["thermal"]]  # type: ignore[index]


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("nvmlDeviceGetUUID", "CalibrationReadings(GPU)"),
        ("nvmlDeviceGetMaxClockInfo", "CalibrationReadings(GPU).limits()"),
        ("nvmlDeviceGetClockInfo", "HeldClocks(CalibrationReadings(GPU)).read()"),
    ],
)
@pytest.mark.parametrize("lost", [15, 16])
def test_a_gpu_that_is_lost_is_told(gpus: NvmlDouble, function: str, code: str, lost: int) -> None:
    gpus.write(h200() | {f"gpu0.fail.{function}": lost})
    what, exit_code = ask(code)  # type: ignore[misc]
    assert what.startswith("GPU is lost")
    assert exit_code == ExitCode.NO_DEVICE


def load_after(begin: str, then: str) -> object:
    """What a GpuLoad says of a probe between two moments."""
    return ask(
        "load = GpuLoad(CalibrationReadings(GPU))\n"
        f"{begin}\n"
        "load.begin()\n"
        f"{then}\n"
        "print(json.dumps([load.contended(), load.culprit()]))"
    )


def use(pid: int, percent: int, ago_s: float = 0.0) -> str:
    return f"{pid}:{int((time.time() - ago_s) * 1e6)}:{percent}"


def change(old: str, new: str) -> str:
    """Code that changes the scenario while it runs; `new` may use f-string fields."""
    return (
        "path = os.environ['ROOFMON_NVML_SCENARIO']\n"
        f"text = open(path).read().replace({old!r}, f{new!r})\n"
        "open(path, 'w').write(text)"
    )


# Our context is made, and the driver lists us.
LOOK = change("gpu0.processes = ", "gpu0.processes = {os.getpid()}:1000000,") + "\nload.look()"


def test_an_idle_gpu_is_not_contended(gpus: NvmlDouble) -> None:
    gpus.write(h200() | {"gpu0.use": "", "gpu0.gpu_busy": 0})
    assert load_after("load.look()", "") == [False, None]


def test_another_process_that_works_is_named(gpus: NvmlDouble) -> None:
    me = os.getpid()  # it is another one's for the process that asks
    both = f"{use(me, 80)},{use(OTHERS, 3)}"
    gpus.write(h200() | {"gpu0.use": both, "gpu0.processes": f"{me}:1000000,{OTHERS}:1000000"})
    contended, culprit = load_after(LOOK, "")  # type: ignore[misc]
    assert contended is True
    assert f"(process {me}, 80 % of the SMs)" in culprit


def test_a_process_that_only_holds_memory_or_has_ended_is_no_contention(gpus: NvmlDouble) -> None:
    gpus.write(
        h200()
        | {
            "gpu0.use": f"{use(OTHERS, 2)},{use(OTHERS + 1, 90)}",
            "gpu0.processes": f"{OTHERS}:1000000",
            "gpu0.gpu_busy": 0,
        }
    )
    assert load_after(LOOK, "") == [False, None]


@pytest.mark.parametrize("runs", [False, True])
def test_a_late_sample_counts_where_its_process_was_seen_running(
    gpus: NvmlDouble, runs: bool
) -> None:
    """One that ended before us, such as a calibration, may come into the samples a second after."""
    gpus.write(h200() | {"gpu0.use": "", "gpu0.gpu_busy": 0, "gpu0.processes": ""})
    sample = change("gpu0.use = ", f"gpu0.use = {OTHERS}:{{time.time_ns() // 1000}}:99")
    starts = change("gpu0.processes = ", f"gpu0.processes = {OTHERS}:1000000,")
    found = load_after(LOOK, f"{starts}\n{sample}" if runs else sample)
    assert found == [runs, f"a process (process {OTHERS}, 99 % of the SMs)" if runs else None]


@pytest.mark.parametrize(("before", "then"), [(90, 0), (0, 90)])
def test_a_load_that_has_ended_or_began_with_our_context_is_not_hidden(
    gpus: NvmlDouble, before: int, then: int
) -> None:
    gpus.write(h200() | {"gpu0.use": "", "gpu0.gpu_busy": before, "gpu0.processes": ""})
    later = change(f"gpu0.gpu_busy = {before}", f"gpu0.gpu_busy = {then}")
    assert load_after(f"{later}\nload.look()", "") == [False, None]


@pytest.mark.slow
def test_work_that_cannot_be_seen_is_told_from_ours_by_coming_before_it(gpus: NvmlDouble) -> None:
    gpus.write(h200() | {"gpu0.use": "", "gpu0.gpu_busy": 90, "gpu0.processes": ""})
    assert load_after("load.look()", "") == [True, None]
    assert load_after("", "") == [False, None]  # nobody looked before our own work began


def test_what_was_long_before_does_not_count(gpus: NvmlDouble) -> None:
    gpus.write(
        h200()
        | {
            "gpu0.use": use(OTHERS, 90, ago_s=30.0),
            "gpu0.processes": f"{OTHERS}:1000000",
            "gpu0.gpu_busy": 0,
        }
    )
    assert load_after(LOOK, "") == [False, None]


def test_our_own_work_is_not_another_ones(gpus: NvmlDouble) -> None:
    gpus.write(h200() | {"gpu0.gpu_busy": 0})
    code = (
        "readings = CalibrationReadings(GPU)\n"
        "at = time.time_ns() // 1000\n"
        "path = os.environ['ROOFMON_NVML_SCENARIO']\n"
        "text = open(path).read()\n"
        "open(path, 'w').write(text.replace('gpu0.processes = ', f'gpu0.processes = {os.getpid()}:1') "
        "+ f'gpu0.use = {os.getpid()}:{at}:99\\n')\n"
        "use = [readings.use_by_others(0, ()), readings.use_by_others(0, [os.getpid()])]\n"
        "print(json.dumps([len(found) for found in use]))"
    )
    assert ask(code) == [1, 0]


def test_a_number_that_may_be_our_own_is_not_another_ones(gpus: NvmlDouble) -> None:
    # In a container processes may not be listed, or all under one number, before our context and after.
    later = change("gpu0.use = ", f"gpu0.use = {OTHERS}:{{time.time_ns() // 1000}}:99")
    for listed in ("", f"{OTHERS}:1000000"):
        gpus.write(h200() | {"gpu0.use": "", "gpu0.gpu_busy": 0, "gpu0.processes": listed})
        assert load_after("load.look()", later) == [False, None]


def test_a_driver_that_does_not_tell_who_works_is_taken_as_it_is(gpus: NvmlDouble) -> None:
    gpus.write(a100())
    assert ask("print(json.dumps(CalibrationReadings(GPU).use_by_others(0, ())))") is None
    gpus.set({"gpu0.gpu_busy": 0})
    assert load_after("load.look()", "") == [False, None]


@pytest.mark.parametrize(
    ("links", "visible", "peer", "why"),
    [
        ({"gpu0.nvlink_to": "2"}, None, gpu_uuid(2), ""),
        ({}, None, None, "no NVLink connects this GPU"),
        ({"gpu0.nvlink_to": "1"}, "0", None, "no second GPU is visible"),
        ({"gpu0.nvlink_to": "1,2"}, f"0,{gpu_uuid(2)}", gpu_uuid(2), ""),
        ({"gpu0.fail.nvmlDeviceGetP2PStatus": 3}, None, None, "does not tell of NVLink"),
    ],
)
def test_a_peer_is_a_visible_gpu_at_the_other_end_of_nvlink(
    gpus: NvmlDouble, links: dict[str, object], visible: str | None, peer: str | None, why: str
) -> None:
    gpus.write(h200(3) | links)
    found, reason = ask(f"print(json.dumps(nvlink_peer(GPU, {visible!r})))")  # type: ignore[misc]
    assert found == peer
    assert why in reason


def test_a_mig_instance_has_no_peer(gpus: NvmlDouble) -> None:
    gpus.write(h200_mig())
    assert ask("print(json.dumps(nvlink_peer(MIG, None)))") == [
        None,
        "a MIG instance has no NVLink",
    ]
