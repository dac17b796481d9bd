"""Runs the rules and puts what they say in the order in which it matters."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from roofmon.diagnosis import counters, devices, position, roofs, session, timing, tracing, work
from roofmon.diagnosis.finding import Case, Finding
from roofmon.model.snapshot import Device, Snapshot
from roofmon.view.state import View

Rule = Callable[[Case], Finding | None]

KERNEL_RULES: tuple[Rule, ...] = (
    position.over_roof,
    position.distance,
    position.position_known,
    position.latency,
    position.low_intensity,
    position.faster_pipe,
    timing.worth_it,
    timing.long_enough,
    timing.gaps,
    timing.variation,
    tracing.occupancy,
    tracing.fills_device,
    work.work_known,
    work.sources_agree,
    counters.contended,
    work.counted_once,
    roofs.roof_trusted,
    roofs.clock_held,
)

_STATUS_ORDER = {"fail": 0, "unknown": 1, "pass": 2}
_SEVERITY_ORDER = {"error": 0, "warning": 1, "info": 2}


def diagnose_kernel(view: View, row: int) -> tuple[Finding, ...]:
    """The checklist of one kernel, a row of `view.table`; rules that do not apply say nothing."""
    case = Case(view.snapshot, view.device, view.table, view.positions, row)
    kernel, device = case.description.id, case.description.device
    found = (rule(case) for rule in KERNEL_RULES)
    return _ordered(replace(f, kernel=kernel, device=device) for f in found if f is not None)


def diagnose_session(snapshot: Snapshot) -> tuple[Finding, ...]:
    """The checklist of the session and its devices."""
    found = [session.live(snapshot), session.complete(snapshot), *tracing.program_rules(snapshot)]
    used = {kernel.device for kernel in snapshot.kernels.descriptions}
    for device in snapshot.devices:
        rules = devices.device_rules(device)
        found.extend(finding for finding in rules if finding is not None)
        if not (device.sample and device.sample.lost):
            has_rows = device.description.uuid in used
            found.extend(tracing.tracing_rules(snapshot, device, has_rows))
            found.extend(counters.traffic_rules(snapshot, device))
        found.extend(session.roofs(snapshot, device))
        told = (session.most_to_gain(snapshot, device), session.work_unknown(snapshot, device))
        found.extend(finding for finding in told if finding is not None)
    return _ordered(found)


def about(device: Device | None, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those on the session as a whole, on one device, and whatever is an error: with sixteen devices the
    good-to-know of the others would hide it."""
    shown = ("", device.description.uuid if device else "")
    return tuple(f for f in findings if f.device in shown or f.severity == "error")


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """What failed first, by severity and then by what can be gained; then the unknown, then the rest."""
    return tuple(
        sorted(
            findings,
            key=lambda f: (_STATUS_ORDER[f.status], _SEVERITY_ORDER[f.severity], -f.gain_ns),
        )
    )
