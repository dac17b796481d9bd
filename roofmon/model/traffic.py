"""Where the DRAM traffic of a device went, as far as its sampled counters tell."""

from collections.abc import Mapping

import msgspec

UNTRACED_SHARE = 0.05
"""More of a device's DRAM traffic than this from nothing that is traced: other programs are at work on it,
and may be beside the traced kernels as well."""

LEAST_BYTES_PER_S = 1e9
"""Less DRAM traffic than this is not worth a word, whosever it is."""


class Traffic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One window of counter samples of a device on which kernels are traced; rates in byte/s of DRAM.

    `device` is the UUID. `dram_bytes_per_s` is all that the samples counted, `attributed_bytes_per_s` what
    of it traced kernels (and copies) moved, `untraced_bytes_per_s` what was counted where none of them ran
    or in bursts beyond theirs; what is left over the fit could not explain. `gpm_bytes_per_s` is what GPM
    told of the same time, `clock_hz` the mean SM clock by counted cycles. `others` are the processes that
    used the device and are not traced, as `NAME PID`; `contended` says why some kernels' bytes may hold
    traffic of others, "" where none may. None is not known, with the reason in `missing` by field (or
    `explained`).
    """

    device: str
    start_unix_ns: int = 0
    end_unix_ns: int = 0
    dram_bytes_per_s: float | None = None
    attributed_bytes_per_s: float | None = None
    untraced_bytes_per_s: float | None = None
    gpm_bytes_per_s: float | None = None
    clock_hz: float | None = None
    others: tuple[str, ...] = ()
    contended: str = ""
    missing: Mapping[str, str] = {}

    @property
    def explained(self) -> float | None:
        """The part of the counted traffic (0 … 1) that traced kernels moved."""
        return _ratio(self.attributed_bytes_per_s, self.dram_bytes_per_s)

    @property
    def explained_of_gpm(self) -> float | None:
        """The same against what GPM counted meanwhile."""
        return _ratio(self.attributed_bytes_per_s, self.gpm_bytes_per_s)

    @property
    def untraced_share(self) -> float | None:
        """The part of the counted traffic (0 … 1) that nothing traced moved."""
        return _ratio(self.untraced_bytes_per_s, self.dram_bytes_per_s)

    @property
    def much_untraced(self) -> bool:
        """Whether more is untraced than can be overlooked."""
        untraced, whole = self.untraced_bytes_per_s, self.dram_bytes_per_s
        return untraced is not None and whole is not None and is_much_untraced(untraced, whole)


def is_much_untraced(untraced_bytes_per_s: float, bytes_per_s: float) -> bool:
    """Whether so much of a device's traffic is untraced that it cannot be overlooked."""
    return untraced_bytes_per_s > max(UNTRACED_SHARE * bytes_per_s, LEAST_BYTES_PER_S)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
