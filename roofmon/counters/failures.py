"""What keeps the counters from us, in words, and who may have them."""

from typing import Any

from roofmon.counters.rivals import running_profilers
from roofmon.errors import ExitCode, RoofmonError

PERMISSION = "this user may not read performance counters (ERR_NVGPUCTRPERM)"
PERMISSION_FIX = (
    "an administrator allows it with the line «options nvidia NVreg_RestrictProfilingToAdminUsers=0» in "
    "/etc/modprobe.d/nvidia-counters.conf and a restart (or by loading the driver anew); in a container, "
    "by --cap-add=SYS_ADMIN"
)
BUSY_FIX = (
    "they are tried again every few seconds; dcgmi profile --pause frees those that DCGM holds"
)

# What to do about a result of CUPTI, by its name there.
_RESULTS = {
    "ERROR_INSUFFICIENT_PRIVILEGES": (PERMISSION, PERMISSION_FIX),
    "ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES": (
        "this virtual machine may not read performance counters",
        "its administrator allows it in the vGPU profile (enable_profiling=1)",
    ),
    "ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED": ("virtual GPUs of this kind have no counters", ""),
    "ERROR_MIG_DEVICE_NOT_SUPPORTED": ("counters of a MIG instance cannot be sampled", ""),
    "ERROR_WSL_DEVICE_NOT_SUPPORTED": ("counters cannot be sampled under WSL", ""),
    "ERROR_CMP_DEVICE_NOT_SUPPORTED": ("this GPU (CMP) has no counters", ""),
    "ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED": (
        "the GPU is in confidential computing mode, which has no counters",
        "nvidia-smi conf-compute shows the mode; an administrator can set it to devtools",
    ),
    "ERROR_INVALID_PARAMETER": (
        "this CUPTI does not fit cupti-python 13.4",
        "install both of one version: pip install 'roofmon[counters]'",
    ),
    "ERROR_NOT_COMPATIBLE": (
        "the driver is too old for CUPTI 13.4",
        "update it to version 580 or newer",
    ),
    "ERROR_NOT_INITIALIZED": (
        "CUPTI did not find its libraries libnvperf_host.so and libnvperf_target.so",
        "install them with it: pip install 'roofmon[counters]'",
    ),
    "ERROR_INVALID_CHIP_NAME": (
        "this CUPTI does not know the GPU",
        "a newer roofmon may bring one that does",
    ),
    "ERROR_INVALID_DEVICE": ("the GPU is lost", "restart the machine, or reset the GPU as root"),
    "ERROR_HARDWARE": ("the GPU is lost", "restart the machine, or reset the GPU as root"),
}
# PM sampling is enabled on this GPU by another object, or process.
_BUSY = ("ERROR_HARDWARE_BUSY", "ERROR_INVALID_OPERATION")


class CountersLostError(RoofmonError):
    """Counters are not to be had now. `busy`: because somebody else has them."""

    def __init__(self, what: str, fix: str = "", *, busy: bool = False) -> None:
        self.busy = busy
        super().__init__(what, fix, ExitCode.NO_DEVICE)


def explain(error: Exception, cupti: Any) -> CountersLostError:
    """An error of CUPTI, in words. `cupti` is the module `cupti.cupti`."""
    status = getattr(error, "status", None)
    if not isinstance(status, int):
        return CountersLostError(f"sampling failed: {error}", "see the log")
    try:
        name = str(cupti.Result(status).name)
    except ValueError:
        name = f"result {status}"
    if name in _BUSY:
        holders = running_profilers()
        who = ", ".join(f"{tool} ({pid})" for pid, tool in sorted(holders.items()))
        return CountersLostError(
            f"the counters are held by {who}" if who else "the counters are held by another tool",
            BUSY_FIX,
            busy=True,
        )
    unknown = (f"CUPTI says {name}", "see the log")
    return CountersLostError(*_RESULTS.get(name, unknown))
