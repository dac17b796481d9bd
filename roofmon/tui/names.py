"""How devices, levels and moments are called on the screen, in one place."""

import time
from typing import TYPE_CHECKING

from roofmon.chart.glyphs import mark
from roofmon.model.roofline import level_label

if TYPE_CHECKING:
    from roofmon.model.device import DeviceDescription
    from roofmon.view import View


def device_label(description: "DeviceDescription") -> str:
    """`GPU0`, `CPU`, or for a slice of a GPU `GPU0 1g.18gb`."""
    if description.kind == "cpu":
        return "CPU"
    return f"GPU{description.index} {description.mig_profile or ''}".rstrip()


def clock_time(time_unix_ns: int) -> str:
    """A moment as local time, `14:02:11`."""
    return time.strftime("%H:%M:%S", time.localtime(time_unix_ns / 1e9))


def level_shown(view: "View") -> str:
    """The memory level that the chart is drawn against."""
    if view.state.level:
        return level_label(view.state.level)
    # Copies over PCIe have no place on the chart; the device's own point is of DRAM.
    levels = [name for name in view.positions.levels if not name.startswith("pcie")] or ["dram"]
    return level_label(levels[0]) if len(levels) == 1 else "each kernel's own level"


def kernel_mark(view: "View", row: int, unicode: bool) -> str:
    """The sign of a kernel's point on the chart; "" where it has no number."""
    number = view.marks.get(view.table.descriptions[row].id)
    return "" if number is None else mark(str(number), unicode)
