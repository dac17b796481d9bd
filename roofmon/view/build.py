"""Builds the view: the device, its rows filtered and sorted, the selection, the numbers of the points."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from roofmon.compare import compare
from roofmon.device_choice import choose, default_device
from roofmon.errors import RoofmonError
from roofmon.model.activity import TracedProgram
from roofmon.model.position import locate
from roofmon.model.roofline import NO_ROOFS
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.table import KernelTable
from roofmon.view.columns import sort_rows
from roofmon.view.device_point import extended
from roofmon.view.headline import headline
from roofmon.view.state import View, ViewState

_STICKINESS = 3
"""Places by which a numbered kernel may fall behind one without a number, and keep it: two kernels with
nearly equal shares of time would swap a number at every tick."""


def build_view(snapshot: Snapshot, state: ViewState) -> View:
    """What `state` shows of `snapshot`; never raises for what a user chose or typed."""
    device, unknown_device = _device(snapshot, state.device)
    table = _kernels_of(snapshot, device)
    by_time = np.argsort(-np.nan_to_num(table.time_share, nan=-1.0), kind="stable")
    differing = state.difference and state.baseline is not None
    everything = View(
        snapshot=snapshot,
        state=state,
        device=device,
        table=table,
        positions=locate(table, device.roofline if device else NO_ROOFS),
        order=by_time,
        selected=None,
        marks=_number(table, by_time, state.marks, state.points),
        message="",
        history=extended(state.history, snapshot),
        comparison=compare(state.baseline, snapshot) if differing and state.baseline else None,
    )
    passed, problem = _passing(table, state.filter)
    order = sort_rows(everything)
    order = order[passed[order]]
    view = replace(
        everything,
        order=order,
        selected=_selected(table, by_time[passed[by_time]], passed, state.selected),
        message=unknown_device or problem or _message(everything, bool(len(order))),
    )
    return replace(view, headline=headline(view))


def _device(snapshot: Snapshot, wanted: str | None) -> tuple[Device | None, str]:
    """The device wanted, else the default; and what is wrong with the one wanted."""
    descriptions = [device.description for device in snapshot.devices]
    problem = ""
    if wanted is not None and descriptions:
        try:
            return snapshot.device(choose(descriptions, wanted)), ""
        except RoofmonError as error:
            problem = str(error)
    uuid = default_device(descriptions, {d.device for d in snapshot.kernels.descriptions})
    return (snapshot.device(uuid) if uuid else None), problem


def _kernels_of(snapshot: Snapshot, device: Device | None) -> KernelTable:
    if device is None:
        return snapshot.kernels
    uuid = device.description.uuid
    descriptions = snapshot.kernels.descriptions
    mine = np.fromiter((d.device == uuid for d in descriptions), np.bool_, len(descriptions))
    return snapshot.kernels if mine.all() else snapshot.kernels.take(mine)


def _number(
    table: KernelTable, by_time: NDArray[np.int64], previous: Mapping[int, int], points: int
) -> dict[int, int]:
    """Point numbers 1 … `points` of the kernels with most time; as far as possible those they had."""
    stickiness = min(_STICKINESS, points // 4)
    ids = [table.descriptions[row].id for row in by_time[: points + stickiness]]
    # Of two that come out equal the one with a number keeps it.
    ranked = sorted(range(len(ids)), key=lambda at: (at - stickiness * (ids[at] in previous), -at))
    chosen = [ids[at] for at in ranked[:points]]
    marks = {id_: previous[id_] for id_ in chosen if 1 <= previous.get(id_, 0) <= len(chosen)}
    taken = set(marks.values())
    free = iter(number for number in range(1, len(chosen) + 1) if number not in taken)
    return marks | {id_: next(free) for id_ in chosen if id_ not in marks}


def _passing(table: KernelTable, text: str) -> tuple[NDArray[np.bool_], str]:
    """Which kernels pass the filter, and what is wrong with it; a faulty one passes all."""
    n = len(table)
    if text in ("", "!"):
        return np.ones(n, dtype=np.bool_), ""
    names = (d.name for d in table.descriptions)
    if not text.startswith("!"):
        wanted = text.casefold()
        return np.fromiter((wanted in name.casefold() for name in names), np.bool_, n), ""
    try:
        pattern = re.compile(text[1:], re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        return np.ones(n, dtype=np.bool_), f"not a regular expression: {error}"
    return np.fromiter((bool(pattern.search(name)) for name in names), np.bool_, n), ""


def _selected(
    table: KernelTable,
    shown_by_time: NDArray[np.int64],
    passed: NDArray[np.bool_],
    wanted: int | None,
) -> int | None:
    """The kernel wanted where it is shown, else the shown one with most time."""
    row = table.row_by_id.get(wanted) if wanted is not None else None
    if row is not None and passed[row]:
        return wanted
    return table.descriptions[shown_by_time[0]].id if len(shown_by_time) else None


def _message(view: View, any_shown: bool) -> str:
    if any_shown:
        return ""
    if view.device is None:
        return "no device yet: the collector is starting"
    if len(view.table):
        return f"no kernel matches {view.state.filter!r}: / changes the filter, Esc clears it"
    if len(view.snapshot.kernels):
        return f"no kernels on {view.device.description.name}: [ and ] go to other devices"
    return _nothing_yet(view.snapshot.traced, on_gpu=view.device.description.kind == "cuda")


def _nothing_yet(programs: Sequence[TracedProgram], *, on_gpu: bool) -> str:
    """What to do about a device on which no kernel is known."""
    if any(program.state == "attached" for program in programs):
        return "no kernel has run yet in the programs that are traced"
    if dormant := next((p for p in programs if p.state == "dormant"), None):
        return f"no kernels yet: {dormant.name} {dormant.pid} can be traced: a attaches"
    trace = "trace a program with roofmon run -- COMMAND, " if on_gpu else ""
    region = "wrap code in `with region(name, flops=…, bytes=…):`, or try roofmon demo"
    return f"no kernels yet: {trace}{region}"
