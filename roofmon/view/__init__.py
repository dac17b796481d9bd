"""Snapshot and view state → what is shown: pure functions shared by the screen, `--once` and `--json`."""

from roofmon.view.build import build_view
from roofmon.view.columns import COLUMN_GAP, TableColumn, columns_for, row_cells, sortable_columns
from roofmon.view.scene import scene
from roofmon.view.state import View, ViewState, find_device

__all__ = [
    "COLUMN_GAP",
    "TableColumn",
    "View",
    "ViewState",
    "build_view",
    "columns_for",
    "find_device",
    "row_cells",
    "scene",
    "sortable_columns",
]
