"""The answer in one line: what limits the selected kernel, and how far it is from that limit."""

import numpy as np

from roofmon.model.position import Positions
from roofmon.model.roofline import level_label, operation_of
from roofmon.model.table import Column, KernelTable
from roofmon.units import duration, percent, si
from roofmon.view.facts import (
    called,
    headroom,
    is_over_roof,
    main_pipe,
    missing_work,
    of_roof,
    unknown_time,
)
from roofmon.view.state import View


def headline(view: View) -> str:
    """One line on the selected kernel; "" when none is."""
    row = view.selected_row
    if row is None:
        return ""
    name = view.table.descriptions[row].name
    roof = view.positions.roof_of(row)
    fraction = float(view.positions.fraction[row])
    if roof is None or not np.isfinite(fraction):
        return f"{name}: {_unplaced(view.table, view.positions, row)}"
    answer = f"{name}: {percent(fraction)} of the {called(roof)}, {of_roof(fraction, roof)}"
    if is_over_roof(view.positions, row):
        return f"{answer}: over its {called(roof).rpartition(' ')[2]}, see the checklist"
    answer += f", headroom {headroom(fraction)}"
    missing = missing_work(view.table, row)
    return f"{answer}; its {' and '.join(missing)} are not known" if missing else answer


def _unplaced(table: KernelTable, positions: Positions, row: int) -> str:
    """What is known of a kernel that no roof is known for."""
    if reason := unknown_time(table, row):
        return f"its time is not known: {reason}"
    rates = [
        f"{si(float(rate), 'B/s')} {level_label(level)}"
        for level, position in positions.levels.items()
        if np.isfinite(rate := position.achieved[row])
    ]
    if np.isfinite(positions.flops[row]):
        operation = operation_of(main_pipe(table, row))
        rates.append(si(float(positions.flops[row]), f"{operation}/s"))
    if rates:
        return f"{', '.join(rates)}; no roof is measured for it yet"
    median = duration(float(table.column(Column.MEDIAN_NS)[row]))
    return f"{median} a launch; its FLOPs and bytes are not known"
