"""The device: what it was doing at the last tick, its roofs, and how far the access ladder carries."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from roofmon.tui.arrangement import PanelName
from roofmon.tui.frame import Frame
from roofmon.tui.names import device_label
from roofmon.tui.strips import Line, wrapped
from roofmon.tui.widgets.device_lines import device_lines
from roofmon.tui.widgets.panel import Panel
from roofmon.tui.widgets.sources import RUNG_MARKS, roofs_age
from roofmon.units import si

if TYPE_CHECKING:
    from roofmon.model.snapshot import Device, Snapshot
    from roofmon.view import View


class DevicePanel(Panel):
    """The most telling lines first: the small panel shows only them, full screen all, to scroll."""

    panel: ClassVar[PanelName] = "device"
    _from = 0
    _room = 1

    def title(self, frame: Frame) -> str:
        """The device's name."""
        device = frame.view.device if frame.view else None
        if device is None:
            return "device"
        return f"{device_label(device.description)} ─ {device.description.name}"

    def content(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """Use, clock, memory; programs; sources; roofs."""
        if frame.view is None or frame.view.device is None:
            return [[(" no device yet", "muted")]]
        snapshot, device = frame.view.snapshot, frame.view.device
        full = frame.choices.full
        found = [
            *device_lines(device, width, full=full),
            # Framed, the strip above the kernels tells it.
            *(_activity(frame.view, width) if full or not self.framed else ()),
            *_traffic(frame.view, width),
            *_programs(snapshot, width),
            *_sources(snapshot, width),
            *_roofs(snapshot, device),
            *(_identity(device, width) if full else ()),
        ]
        if not full or len(found) <= height:
            self._from = 0
            return found
        self._room = max(1, height - 1)
        self._from = max(0, min(self._from, len(found) - self._room))
        below = len(found) - self._from - self._room
        more = f" {below} lines below, j scrolls" if below > 0 else " the end, k scrolls back"
        return [*found[self._from : self._from + self._room], [(more, "muted")]]

    def scroll_by(self, action: str) -> bool:
        """Scroll for one of the actions that move; False for others."""
        steps = {
            "down": 1,
            "up": -1,
            "page-down": self._room,
            "page-up": -self._room,
            "first": -(10**9),
            "last": 10**9,
        }
        if action not in steps:
            return False
        self._from += steps[action]
        self.show(self.shown)
        return True


def _activity(view: "View", width: int) -> Iterator[Line]:
    """What traced kernels did at the last tick."""
    from roofmon.view import activity_facts

    if view.activity is not None:
        facts = " · ".join(activity_facts(view.activity))
        yield from wrapped(facts, width, "", " " * 9, " kernels ")


def _traffic(view: "View", width: int) -> Iterator[Line]:
    """How much of the DRAM traffic traced kernels explain."""
    from roofmon.view import traffic_facts

    if view.traffic is not None:
        facts = " · ".join(traffic_facts(view.traffic))
        yield from wrapped(facts, width, "", " " * 8, " counts ")


def _programs(snapshot: "Snapshot", width: int) -> Iterator[Line]:
    from roofmon.view import program_facts

    traced = {program.pid: program for program in snapshot.traced}
    annotated = {pid: name for pid, name in snapshot.programs.items() if pid not in traced}
    named = " · ".join(f"{name} {pid}" for pid, name in annotated.items())
    if named:
        yield from wrapped(named, width, "", " " * 8, " runs   ")
    for program in traced.values():
        text = f"{program.name} {program.pid}: {', '.join(program_facts(program))}"
        yield from wrapped(text, width, "", " " * 8, " runs   ")


def _sources(snapshot: "Snapshot", width: int) -> Iterator[Line]:
    for rung in snapshot.rungs:
        mark, role = RUNG_MARKS[rung.state]
        yield [(f" {mark} ", role), (f"{rung.rung} {rung.state}", "")]
        if rung.reason:
            yield from wrapped(rung.reason, width, "muted", "   ")
        if rung.fix:
            yield from wrapped(rung.fix, width, "accent", "     ", "   → ")


def _roofs(snapshot: "Snapshot", device: "Device") -> Iterator[Line]:
    age = roofs_age(snapshot, device)
    if age:
        yield [(f" {age}", "")]
    for ceiling in device.roofline.ceilings:
        value = f"{si(ceiling.value, ceiling.unit):>13}"
        name = (f"   {ceiling.name:<12}", "muted")
        if ceiling.regime == "bound":
            yield [name, (f"{value} {'':9}", ""), ("bound, not measured", "muted")]
            continue
        spread = (ceiling.ci_high - ceiling.ci_low) / 2 / ceiling.value * 100
        flags = f" {', '.join(ceiling.flags)}" if ceiling.flags else ""
        yield [
            name,
            (f"{value} ± {spread:.1f} %  ", ""),
            (f"{ceiling.regime} {ceiling.probe} n={ceiling.n}", "muted"),
            (flags, "warning"),
        ]


def _identity(device: "Device", width: int) -> list[Line]:
    description = device.description
    facts = [
        f"compute capability {description.compute_capability}"
        if description.compute_capability
        else "",
        f"{description.cores} {'cores' if description.kind == 'cpu' else 'SMs'}"
        if description.cores
        else "",
        f"driver {description.driver}" if description.driver else "",
        f"PCI {description.pci_bus_id}" if description.pci_bus_id else "",
        f"MIG {description.mig_profile} of {description.parent}" if description.parent else "",
        description.uuid,
    ]
    return wrapped(" · ".join(fact for fact in facts if fact), width, "muted", " ")
