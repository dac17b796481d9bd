"""Traced programs and the activity of devices in words, for the screen and for `--once` alike."""

from collections.abc import Mapping, Sequence

from roofmon.model.activity import Activity, TracedProgram
from roofmon.model.snapshot import Snapshot
from roofmon.units import percent, significant

STRIP_NS = 60 * 10**9
"""How far back the strip of a device's activity reaches."""

STATES: Mapping[str, str] = {
    "dormant": "can be traced",
    "starting": "waits for its first CUDA call",
    "attached": "attached",
    "yielded": "let go of",
    "failed": "failed",
}


def program_facts(program: TracedProgram) -> list[str]:
    """How a program is doing, the most telling first."""
    facts = [STATES[program.state]]
    if program.state == "attached":
        facts.append(f"{significant(program.records_per_s)} records/s")
        facts.append(f"costs ≈{percent(program.cost)}")
    if program.records:
        facts.append(f"{program.records:,} records")
    if program.records or program.dropped:
        facts.append(f"{program.dropped:,} dropped")
    if program.reason:
        facts.append(program.reason)
    return facts


def tracing_cost(snapshot: Snapshot) -> str:
    """What tracing takes of the time of the program that it costs most; "" while nothing is attached."""
    costs = [p.cost for p in snapshot.traced if p.state == "attached"]
    return f"tracing ≈{percent(max(costs))}" if costs else ""


def activity_facts(activity: Activity) -> list[str]:
    """What a device did, the most telling first."""
    if activity.length_ns <= 0:
        return []
    facts = [f"busy {percent(activity.busy)}", f"gaps {percent(activity.idle)}"]
    if activity.launch_bound_ns:
        facts.append(f"launch-bound {percent(activity.launch_bound)}")
    if activity.tiny:
        facts.append(f"{percent(activity.tiny / activity.launches)} under 10 µs")
    if activity.copies_ns:
        share = percent(activity.copies_ns / activity.length_ns)
        facts.append(f"copies {share}, {percent(activity.hidden_ns / activity.copies_ns)} hidden")
    if activity.streams > 1:
        overlap = activity.overlap_ns / max(activity.busy_ns, 1)
        facts.append(f"{activity.streams} streams, {percent(overlap)} overlap")
    return facts


def strip(history: Sequence[Activity], cells: int) -> list[float]:
    """The busy share in each of `cells` equal parts of the last minute, the newest last.

    NaN where nothing is known. A stretch that reaches over several parts counts in each.
    """
    if not history or cells < 1:
        return []
    end = history[-1].end_unix_ns
    step = STRIP_NS / cells
    busy, known = [0.0] * cells, [0.0] * cells
    for activity in history:
        first = cells - (end - activity.start_unix_ns) / step
        last = cells - (end - activity.end_unix_ns) / step
        for cell in range(max(0, int(first)), min(cells, int(last - 1e-9) + 1)):
            share = min(last, cell + 1) - max(first, cell)
            busy[cell] += share * activity.busy
            known[cell] += share
    return [b / k if k > 0 else float("nan") for b, k in zip(busy, known, strict=True)]


def extended_activity(
    history: Mapping[str, tuple[Activity, ...]], snapshot: Snapshot
) -> dict[str, tuple[Activity, ...]]:
    """The last minute of each device after `snapshot`; the same snapshot again changes nothing."""
    longer = {}
    for uuid, activity in snapshot.activity.items():
        known = history.get(uuid, ())
        if known and activity.end_unix_ns < known[-1].end_unix_ns:
            known = ()  # another recording, or another session
        if not known or activity.end_unix_ns > known[-1].end_unix_ns:
            known = (*known, activity)
        since = activity.end_unix_ns - STRIP_NS
        longer[uuid] = tuple(a for a in known if a.end_unix_ns > since)
    return longer
