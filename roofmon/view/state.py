"""What the user has chosen to see, and what there is to see of a snapshot because of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roofmon.chart.scene import Place
from roofmon.compare import Comparison
from roofmon.config import Config
from roofmon.model.activity import Activity
from roofmon.model.position import LevelPosition, Positions
from roofmon.model.snapshot import Device, Snapshot
from roofmon.model.table import KernelTable
from roofmon.model.traffic import Traffic
from roofmon.view.device_point import History


@dataclass(frozen=True, eq=False)
class ViewState:
    """The user's choices; the defaults show the kernels that take most time.

    `device` is named as users name one (see `device_choice`), None for the default; `sort` is a column's
    id; `filter` a text within the name, or after `!` a regular expression; `selected` a kernel's id, None
    for the top one; `level` the memory level of the chart, None for each kernel's own; `points` how many
    kernels are numbered on the chart; `marks` the numbering of the view before, so that numbers stay with
    their kernels, and `history` where the devices' points were until then; `zoom` over 1 looks closer
    around `centre`.
    """

    device: str | None = None
    sort: str = "time"
    reverse: bool = False
    filter: str = ""
    selected: int | None = None
    level: str | None = None
    points: int = 20
    marks: Mapping[int, int] = field(default_factory=dict)
    history: History = field(default_factory=History)
    zoom: float = 1.0
    centre: Place | None = None
    show_current_clock: bool = False
    baseline: Snapshot | None = None
    difference: bool = False


def first_state(config: Config) -> ViewState:
    """What the configuration asks to see at first."""
    return ViewState(
        device=None if config.device == "auto" else config.device,
        level=None if config.level == "auto" else config.level,
    )


@dataclass(frozen=True, eq=False)
class View:
    """What there is to show of one device at one moment.

    `table` and `positions` hold all its kernels; `order` the rows that passed the filter, in the order
    of the sort. `selected` is a kernel's id, `marks` kernel id → point number from 1. `message` says
    what to do when there is nothing to show, or what is wrong with the filter; `headline` is the answer
    for the selected kernel. `history` has the places of the devices' points up to now; `comparison` is
    there in difference mode.
    """

    snapshot: Snapshot
    state: ViewState
    device: Device | None
    table: KernelTable
    positions: Positions
    order: NDArray[np.int64]
    selected: int | None
    marks: Mapping[int, int]
    message: str
    headline: str = ""
    history: History = field(default_factory=History)
    comparison: Comparison | None = None

    @property
    def activity(self) -> Activity | None:
        """What traced kernels did on the device lately; None where none is traced."""
        return self.snapshot.activity.get(self.device.description.uuid) if self.device else None

    @property
    def traffic(self) -> Traffic | None:
        """Where the device's DRAM traffic goes; None where no kernel on it is traced."""
        return self.snapshot.traffic.get(self.device.description.uuid) if self.device else None

    @property
    def selected_row(self) -> int | None:
        """The selected kernel's row in `table`."""
        return None if self.selected is None else self.table.row_by_id[self.selected]

    @cached_property
    def at_level(self) -> LevelPosition:
        """All kernels against the level that the chart shows."""
        return self.positions.at(self.state.level)

    @cached_property
    def gone(self) -> tuple[int, ...]:
        """In difference mode, rows of the baseline's table that ended the listing: kernels now gone."""
        if self.comparison is None or self.device is None:
            return ()
        kernels = self.comparison.before.kernels
        uuid = self.device.description.uuid
        return tuple(
            row for row in self.comparison.gone.tolist() if kernels.descriptions[row].device == uuid
        )

    @property
    def row_count(self) -> int:
        """How many rows the table shows: the kernels in order, then those that are gone."""
        return len(self.order) + len(self.gone)

    def id_at(self, position: int) -> int | None:
        """The id of the kernel shown at a position; None for one that is gone."""
        if position >= len(self.order):
            return None
        return self.table.descriptions[int(self.order[position])].id

    @cached_property
    def selected_position(self) -> int | None:
        """Where the selected kernel is shown."""
        row = self.selected_row
        return None if row is None else self.order.tolist().index(row)

    @cached_property
    def comparison_rows(self) -> NDArray[np.int64]:
        """The rows in `comparison` of the rows of `table`, which may be a part of all kernels."""
        kernels = self.snapshot.kernels
        if self.table is kernels:
            return np.arange(len(kernels))
        rows = [kernels.row_by_id[d.id] for d in self.table.descriptions]
        return np.array(rows, dtype=np.int64)
