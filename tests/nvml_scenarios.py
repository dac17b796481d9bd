"""Worlds for the NVML double: GPUs with all that they tell, in NVML's units (MHz, mW, KiB/s, percent)."""

from collections.abc import Mapping

Scenario = dict[str, object]

NOT_SUPPORTED, DRIVER_NOT_LOADED, UNKNOWN = 3, 9, 999  # return codes of NVML, for `fail.FUNCTION`
H200_BYTES = 150754820096


def host(gpus: int) -> Scenario:
    """A driver that shows so many GPUs."""
    return {"driver": "580.159.03", "nvml": "13.580.159.03", "cuda": 13000, "gpus": gpus}


def h200(gpus: int = 1) -> Scenario:
    """H200s that run an FP32 GEMM: 76.3 % of the FP32 pipe at 1980 MHz, 17 % of the DRAM bandwidth."""
    scenario = host(gpus)
    for index in range(gpus):
        scenario |= gpu(index, H200)
    return scenario


def a100() -> Scenario:
    """One A100, which has no GPM."""
    return host(1) | gpu(0, A100)


def h200_mig() -> Scenario:
    """One H200 cut into a half and an eighth of its memory; the whole GPU tells no utilisation then."""
    scenario = h200()
    for key in ("gpu_busy", "memory_busy", "processes"):
        del scenario[f"gpu0.{key}"]
    scenario["gpu0.mig"] = 1
    for index, (profile, slices, memory_slices, multiprocessors) in enumerate(_PROFILES):
        scenario |= {
            f"gpu0.mig{index}.{key}": value
            for key, value in {
                "uuid": mig_uuid(index),
                "name": f"NVIDIA H200 MIG {profile}",
                "gpu_instance": index + 1,
                "compute_instance": 0,
                "multiprocessors": multiprocessors,
                "gpu_slices": slices,
                "compute_slices": slices,
                "memory_total": H200_BYTES * memory_slices // 8,
                "memory_used": 2**30 * (index + 1),
                "processes": "",
                "gpm.sm_util": 50.0,
                "gpm.dram_bw_util": 40.0,
            }.items()
        }
    return scenario


def bare(gpus: int = 1) -> Scenario:
    """GPUs that have a name, a UUID and a place on the bus: all else is Not Supported."""
    scenario = host(gpus)
    for index in range(gpus):
        scenario |= gpu(index, BARE)
    return scenario


def gpu_uuid(index: int) -> str:
    """The UUID of a GPU in the scenarios here."""
    return f"GPU-{index:08x}-5a5a-4b4b-3c3c-2d2d2d2d2d2d"


def mig_uuid(index: int) -> str:
    """The UUID of an instance of the first GPU."""
    return f"MIG-{index:08x}-1111-5222-8333-444444444444"


def gpu(index: int, values: Mapping[str, object]) -> Scenario:
    """The keys of one GPU with these values."""
    own = {
        "uuid": gpu_uuid(index),
        "pci": f"00000000:{0x1B + 0x0E * index:02X}:00.0",
        "minor": index,
    }
    return {f"gpu{index}.{key}": value for key, value in (own | dict(values)).items()}


_SXM: Scenario = {
    "persistence": 1,
    "nvlinks": 0,
    "compute_mode": 0,
    "pstate": 0,
    "ecc": 1,
    "mig": 0,
    "processes": "",
    "graphics_processes": "",
    "mps_processes": "",
    "pcie_width": 16,
    "pcie_tx_kib_s": 11800,
    "pcie_rx_kib_s": 11500,
    "gpu_busy": 100,
    "memory_busy": 25,
    "temperature": 48,
    "event_reasons": 0,
    "energy_mj": 123456789,
}
H200: Scenario = {
    **_SXM,
    "name": "NVIDIA H200",
    "compute_capability": "9.0",
    "architecture": 9,
    "cores": 16896,
    "bus_width": 6016,
    "memory_total": H200_BYTES,
    "memory_reserved": 600 * 2**20,
    "memory_used": 40 * 2**30,
    "graphics_clock": 1980,
    "sm_clock": 1980,
    "mem_clock": 3201,
    "video_clock": 1545,
    "max_graphics_clock": 1980,
    "max_sm_clock": 1980,
    "max_mem_clock": 3201,
    "max_video_clock": 1545,
    "power_mw": 612345,
    "power_limit_mw": 700000,
    "pcie_generation": 5,
    "gpm": 1,
    "gpm.graphics_util": 100.0,
    "gpm.sm_util": 98.5,
    "gpm.sm_occupancy": 12.4,
    "gpm.integer_util": 3.1,
    "gpm.any_tensor_util": 0.0,
    "gpm.dfma_tensor_util": 0.0,
    "gpm.hmma_tensor_util": 0.0,
    "gpm.imma_tensor_util": 0.0,
    "gpm.dmma_tensor_util": 0.0,
    "gpm.dram_bw_util": 17.0,
    "gpm.fp64_util": 0.0,
    "gpm.fp32_util": 76.3,
    "gpm.fp16_util": 0.0,
    "gpm.pcie_tx_mib_s": 11.8,
    "gpm.pcie_rx_mib_s": 11.5,
    "gpm.nvlink_rx_mib_s": 0.0,
    "gpm.nvlink_tx_mib_s": 0.0,
}
A100: Scenario = {
    **_SXM,
    "name": "NVIDIA A100-SXM4-80GB",
    "compute_capability": "8.0",
    "architecture": 7,
    "cores": 6912,
    "bus_width": 5120,
    "memory_total": 81920 * 2**20,
    "memory_reserved": 500 * 2**20,
    "memory_used": 10 * 2**30,
    "graphics_clock": 1410,
    "sm_clock": 1410,
    "mem_clock": 1593,
    "video_clock": 1275,
    "max_graphics_clock": 1410,
    "max_sm_clock": 1410,
    "max_mem_clock": 1593,
    "max_video_clock": 1290,
    "power_mw": 301000,
    "power_limit_mw": 400000,
    "pcie_generation": 4,
    "gpm": 0,
}
BARE: Scenario = {"name": "NVIDIA H200"}
# name, compute slices of 7, memory slices of 8, multiprocessors
_PROFILES = (("3g.71gb", 3, 4, 60), ("1g.18gb", 1, 1, 16))
