"""Rules on what sampled counters tell: do they account for the traffic, and is a kernel's share its own."""

from collections.abc import Iterator

from roofmon.diagnosis.finding import Case, Finding
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.traffic import LEAST_BYTES_PER_S
from roofmon.model.work import Provenance
from roofmon.units import percent, si
from roofmon.view.facts import device_called

EXPLAINED = 0.90
"""From this part on traced kernels account for the traffic; up to its inverse, where the fit is over."""


def contended(case: Case) -> Finding | None:
    """May its sampled bytes hold traffic of other programs?"""
    reason = case.description.reasons.get("contended")
    if reason is None or not _bytes_are_sampled(case):
        return None
    return Finding(
        rule="contended",
        status="fail",
        severity="error",
        title="its bytes are contended",
        evidence=reason,
        advice="stop the others, or trace them as well",
    )


def _bytes_are_sampled(case: Case) -> bool:
    return any(
        chosen.source[case.row] >= 0
        and chosen.columns[chosen.source[case.row]].provenance is Provenance.SAMPLED
        for chosen in case.table.bytes.values()
    )


def traffic_rules(snapshot: Snapshot, device: Device) -> Iterator[Finding]:
    """Do traced kernels explain the traffic of the device?"""
    traffic = snapshot.traffic.get(device.description.uuid)
    if traffic is None or traffic.explained is None:
        return
    if (traffic.dram_bytes_per_s or 0.0) < LEAST_BYTES_PER_S:
        return
    explained = traffic.explained
    fine = EXPLAINED <= explained <= 1 / EXPLAINED and not traffic.much_untraced
    mine, whole, rest, gpm = (
        si(rate, "B/s")
        for rate in (
            traffic.attributed_bytes_per_s,
            traffic.dram_bytes_per_s,
            traffic.untraced_bytes_per_s,
            traffic.gpm_bytes_per_s,
        )
    )
    others = f" ({', '.join(traffic.others)})" if traffic.others else ""
    beside = f"; GPM counts {gpm}" if traffic.gpm_bytes_per_s is not None else ""
    yield Finding(
        rule="traffic",
        status="pass" if fine else "fail",
        severity="info" if fine else "warning",
        title=f"{percent(explained)} of DRAM explained",
        evidence=f"{device_called(device)}: kernels {mine} of {whole}, untraced {rest}{others}{beside}",
        advice="" if fine else "trace the other programs as well, or stop them",
        device=device.description.uuid,
    )
