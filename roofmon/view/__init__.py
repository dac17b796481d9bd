"""Snapshot and view state → what is shown: pure functions shared by the screen, `--once` and `--json`."""

from roofmon.view.build import build_view
from roofmon.view.columns import COLUMN_GAP, TableColumn, columns_for, row_cells, sortable_columns
from roofmon.view.device_now import OVERVIEW, device_now, overview_cells
from roofmon.view.device_point import DevicePoint, History, device_point, point_text
from roofmon.view.scene import scene
from roofmon.view.state import View, ViewState, first_state
from roofmon.view.tracing import activity_facts, program_facts, strip, tracing_cost
from roofmon.view.traffic import explained_text, traffic_facts, untraced, untraced_cells

__all__ = [
    "COLUMN_GAP",
    "OVERVIEW",
    "DevicePoint",
    "History",
    "TableColumn",
    "View",
    "ViewState",
    "activity_facts",
    "build_view",
    "columns_for",
    "device_now",
    "device_point",
    "explained_text",
    "first_state",
    "overview_cells",
    "point_text",
    "program_facts",
    "row_cells",
    "scene",
    "sortable_columns",
    "strip",
    "tracing_cost",
    "traffic_facts",
    "untraced",
    "untraced_cells",
]
