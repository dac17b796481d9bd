"""Rules on the session: is the data live and complete, are there roofs, where is most to gain, and of how
much of the time that cannot be told."""

from collections.abc import Iterator

import numpy as np

from roofmon.diagnosis.finding import WORTH_SHARE, Finding, gains_ns, most_worth
from roofmon.diagnosis.roofs import OLD_S, clock_moved, disturbances, oldest_s
from roofmon.model.position import locate
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.table import Column, KernelTable
from roofmon.units import age, duration, percent
from roofmon.view.facts import device_called, how_to_measure


def live(snapshot: Snapshot) -> Finding:
    """Is the data still coming?"""
    return Finding(
        rule="live",
        status="fail" if snapshot.stale else "pass",
        severity="error" if snapshot.stale else "info",
        title="the data is not live" if snapshot.stale else "the data is live",
        evidence=snapshot.stale or f"{len(snapshot.kernels)} kernels on {snapshot.host}",
    )


def complete(snapshot: Snapshot) -> Finding:
    """Were records lost on the way from the programs?"""
    dropped = snapshot.dropped
    launches = float(np.nansum(snapshot.kernels.column(Column.LAUNCHES)))
    return Finding(
        rule="dropped",
        status="fail" if dropped else "pass",
        severity="warning" if dropped else "info",
        title=f"{dropped:,} records dropped" if dropped else "no records dropped",
        evidence=f"{dropped:,} lost, {launches:,.0f} launches seen",
        advice=f"counts and totals are too low; {_fewer(snapshot)}" if dropped else "",
    )


def _fewer(snapshot: Snapshot) -> str:
    if any(program.dropped for program in snapshot.traced):
        return "records came faster than they could be taken: free a CPU core"
    return "annotate fewer, longer regions"


def roofs(snapshot: Snapshot, device: Device) -> Iterator[Finding]:
    """Are a device's roofs there, recent, undisturbed, and at the present clock?"""
    name, uuid = device.description.name, device.description.uuid
    ceilings = [c for c in device.roofline.ceilings if c.regime != "bound"]
    if not ceilings:
        measuring = device.progress
        bounds = len(device.roofline.ceilings)
        title = "roofs are bounds, not measured" if bounds else "no roofs are measured"
        evidence = f"{name}: {bounds} bounds from widths and clocks" if bounds else name
        if measuring:
            title = "roofs are being measured"
            evidence = f"{name}: {measuring.done} of {measuring.total} probes"
        yield Finding(
            rule="roofs",
            status="unknown",
            title=title,
            evidence=evidence,
            advice="" if measuring else how_to_measure(device),
            device=uuid,
        )
        return
    old = oldest_s(device, snapshot)
    stale = old is not None and old > OLD_S
    yield Finding(
        rule="roofs-age",
        status="unknown" if old is None else "fail" if stale else "pass",
        title="age of the roofs unknown" if old is None else f"roofs are {age(old)} old",
        evidence=f"{name}: {len(ceilings)} ceilings",
        advice="roofmon calibrate measures them again" if stale else "",
        device=uuid,
    )
    doubtful = [f"{c.name} ({', '.join(flags)})" for c in ceilings if (flags := disturbances(c))]
    yield Finding(
        rule="roofs-sound",
        status="fail" if doubtful else "pass",
        severity="error" if doubtful else "info",
        title=f"doubtful roofs: {len(doubtful)}" if doubtful else "roofs measured undisturbed",
        evidence=f"{name}: {', '.join(doubtful) or f'{len(ceilings)} ceilings'}",
        advice="roofmon calibrate measures again; stop other programs first" if doubtful else "",
        device=uuid,
    )
    following = [c for c in ceilings if c.clock_hz]
    clock = next((f for c in following if (f := clock_moved(device, c))), None)
    if clock is not None:
        yield clock


def most_to_gain(snapshot: Snapshot, device: Device) -> Finding | None:
    """Which kernel of a device would save most at its roof? None where that is not worth a word."""
    table = _kernels_of(snapshot, device)
    positions = locate(table, device.roofline)
    best = most_worth(table, positions)
    if best is None:
        return None
    description = table.descriptions[best]
    saved = float(gains_ns(table, positions)[best])
    return Finding(
        rule="most-to-gain",
        status="fail",
        severity="warning",
        title=f"up to {duration(saved)} to gain",
        evidence=f"{description.name}: {duration(saved)} of "
        f"{duration(float(table.column(Column.TOTAL_NS)[best]))} is above its roof's time",
        advice="begin with it",
        gain_ns=saved,
        kernel=description.id,
        device=device.description.uuid,
    )


def work_unknown(snapshot: Snapshot, device: Device) -> Finding | None:
    """Of how much of a device's time is the work unknown, so that no roof can say what is to gain there?"""
    table = _kernels_of(snapshot, device)
    kernels = [d.kind == "kernel" for d in table.descriptions]
    outer = np.nan_to_num(table.column(Column.OUTER_NS))
    # As in `KernelTable.time_share`: where kernels are traced, their time is the whole.
    counted = outer * kernels if np.any(outer * kernels) else outer
    works = [w.source >= 0 for w in (*table.flops.values(), *table.bytes.values())]
    unknown = counted * ~np.any([np.zeros(len(table), dtype=np.bool_), *works], axis=0)
    whole, lost = float(counted.sum()), float(unknown.sum())
    if not lost > WORTH_SHARE * whole:
        return None
    most = table.descriptions[int(unknown.argmax())]
    return Finding(
        rule="work-unknown",
        status="unknown",
        title=f"{percent(lost / whole)} of time has unknown work",
        evidence=f"{device_called(device)}: {duration(lost)} of {duration(whole)} in "
        f"{np.count_nonzero(unknown):,} of {np.count_nonzero(counted):,} kernels, most in {most.name}",
        advice="what is to gain there cannot be told: region(…, flops=…, bytes=…) declares work, "
        "counters tell it where they may be read",
        device=device.description.uuid,
    )


def _kernels_of(snapshot: Snapshot, device: Device) -> KernelTable:
    """The rows of one device."""
    uuid = device.description.uuid
    rows = np.array([d.device == uuid for d in snapshot.kernels.descriptions], dtype=np.bool_)
    return snapshot.kernels.take(rows)
