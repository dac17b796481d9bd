"""The probes as rows for people and programs, without running or importing anything that could."""

from collections.abc import Iterable

from roofmon.calibration.probe import Probe
from roofmon.model.roofline import bandwidth_label, operation_of, pipe_label


def probe_rows(probes: Iterable[Probe]) -> list[dict[str, object]]:
    """One row a probe: what it measures, what counts, where the definition comes from."""
    return [
        {
            "name": probe.name,
            "title": probe.title,
            "kind": probe.kind,
            "roof": roof_name(probe),
            "is_roof": probe.roof,
            "counts": work_per_element(probe),
            "backend": probe.backend,
            "quick": probe.quick,
            "source": probe.source,
        }
        for probe in probes
    ]


def roof_name(probe: Probe) -> str:
    """The roof that the probe measures: `DRAM`, `L2 sampled`, `fp32`."""
    if probe.pipe:
        return pipe_label(probe.pipe)
    return bandwidth_label(probe.level or "", probe.counts)


def work_per_element(probe: Probe) -> str:
    """What one unit of work counts as: `24 byte/element`, `2*m*n*k FLOP`, `2*8 FLOP/iteration`."""
    each = "/iteration of a thread" if probe.operation == "loop" else ""
    if probe.counter:
        return f"bytes of {probe.counter}"
    if probe.kind == "bandwidth":
        return f"{probe.bytes_per_element} byte{each or '/element'}"
    return f"{probe.flops} {operation_of(probe.pipe)}{each}"
