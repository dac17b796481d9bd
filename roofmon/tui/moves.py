"""What actions do to the view: pure functions from a view and an action to the next state."""

from collections.abc import Sequence
from dataclasses import replace

from roofmon.view import TableColumn, View, ViewState, sortable_columns

_ZOOM_STEP = 1.5
_ZOOM_LIMIT = 50.0


def next_state(
    action: str,
    view: View,
    columns: Sequence[TableColumn],
    page: int,
    *,
    among_devices: bool = False,
) -> ViewState | None:
    """The state after `action`; None where the action is not about the view.

    `columns` are those in sight and `page` the number of rows in sight; `among_devices` says that up,
    down and the like go through devices, not kernels.
    """
    state = view.state
    devices = view.snapshot.devices
    last, at = len(view.order) - 1, view.selected_position or 0
    if among_devices:
        last, at = len(devices) - 1, devices.index(view.device) if view.device else 0
    steps = {
        "down": at + 1,
        "up": at - 1,
        "page-down": at + page,
        "page-up": at - page,
        "first": 0,
        "last": last,
    }
    if action in steps:
        if last < 0:
            return state
        to = max(0, min(last, steps[action]))
        return _at_device(view, to) if among_devices else replace(state, selected=view.id_at(to))
    moved: ViewState | None = None
    match action:
        case "sort-left" | "sort-right":
            moved = _sorted_by_neighbour(state, columns, -1 if action == "sort-left" else 1)
        case "reverse":
            moved = replace(state, reverse=not state.reverse)
        case "previous-device" | "next-device":
            step = -1 if action == "previous-device" else 1
            at = devices.index(view.device) if view.device else 0
            moved = _at_device(view, (at + step) % len(devices)) if devices else state
        case "zoom-in" | "zoom-out":
            moved = _zoomed(view, _ZOOM_STEP if action == "zoom-in" else 1 / _ZOOM_STEP)
        case "zoom-reset":
            moved = replace(state, zoom=1.0, centre=None)
    return moved


def _sorted_by_neighbour(state: ViewState, columns: Sequence[TableColumn], step: int) -> ViewState:
    ids = sortable_columns(columns)
    if state.sort not in ids:
        return replace(state, sort="time", reverse=False)
    at = (ids.index(state.sort) + step) % len(ids)
    return replace(state, sort=ids[at], reverse=False)


def _at_device(view: View, at: int) -> ViewState:
    uuid = view.snapshot.devices[at].description.uuid
    if view.device is not None and view.device.description.uuid == uuid:
        return view.state
    return replace(view.state, device=uuid, selected=None, zoom=1.0, centre=None, marks={})


def _zoomed(view: View, factor: float) -> ViewState:
    """Around the selected kernel, where it has a place."""
    zoom = max(1 / _ZOOM_LIMIT, min(_ZOOM_LIMIT, view.state.zoom * factor))
    if abs(zoom - 1) < 0.01:
        return replace(view.state, zoom=1.0, centre=None)
    row, centre = view.selected_row, view.state.centre
    if row is not None:
        place = (float(view.at_level.intensity[row]), float(view.positions.flops[row]))
        centre = place if all(0 < v < float("inf") for v in place) else centre
    return replace(view.state, zoom=zoom, centre=centre)
