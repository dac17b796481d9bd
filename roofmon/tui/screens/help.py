"""The help: every key, from the registry of actions, and what the signs on the screen mean."""

from collections.abc import Mapping, Sequence

from roofmon.actions import ACTIONS, key_label
from roofmon.tui.frame import Frame
from roofmon.tui.palette import Palette
from roofmon.tui.screens.pages import PageScreen
from roofmon.tui.strips import Line, wrapped

_MEANINGS = (
    ("①", "point.memory", "a kernel on the chart, numbered as in the table; up is faster, right is more "
     "FLOPs for each byte"),
    ("◉", "accent", "the GPU as a whole, and dots where it was in the last minute: FLOP/s over all pipes "
     "and bytes of DRAM, from its own counters, of all programs on it. An upper bound (≤): its counter of "
     "fp32, fp64 and fp16 takes every instruction for an FMA; tensor work counts at the width of bf16, of "
     "which tf32 does half and fp8 twice as much"),
    ("╱", "roof.memory", "the slanted roofs are memory bandwidths, the flat ones pipes, measured on "
     "this device; a kernel can be below its roof, not above"),
    ("bound", "roof.bound", "dashed: a limit computed from widths and clocks, not measured; nothing can "
     "pass it"),
    ("at … MHz", "roof.compute", "dotted, with c: the most a pipe can issue at the clock of this moment"),
    ("of roof", "", "what a kernel achieves of the roof that binds it; 50 % means that it could run in "
     "half the time"),
    ("memory", "point.memory", "limited by bytes: move fewer, or reuse them"),
    ("compute", "point.compute", "limited by FLOPs: use a faster pipe, or do fewer"),
    ("latency", "point.latency", "under half of every roof: launches, waiting or too little parallel "
     "work"),
    ("unknown", "point.unknown", "its FLOPs or its bytes are not known, so it has no place on the chart"),
    ("✗ ? ✓", "", "a check failed, cannot be told, or passed"),
    ("GPU ▁▇", "bar", "the strip above the kernels: how busy traced kernels kept the GPU in the last "
     "minute, two seconds a cell; gaps are the time without one"),
    ("tracing ≈", "", "the share of a program's time that tracing takes: its launches × what one was "
     "measured to cost"),
    ("≤", "", "an upper bound: a counter of instructions that can only overstate the FLOPs"),
    (">", "error", "over its roof by more than both intervals explain: one of the numbers is wrong"),
    ("!", "warning", "contended: other programs moved data beside it, and some of its sampled bytes may be "
     "theirs"),
    ("(untraced)", "muted", "DRAM traffic while no traced kernel ran, or beyond what those move: "
     "other programs, or what cannot be traced"),
    ("explains", "", "how much of the DRAM traffic that the counters saw is of traced kernels"),
    ("n/a", "", "not available; the drill-down says why"),
    ("↳", "", "runs inside another row's region, whose time contains it"),
    ("▲ ▼ = ~", "", "against the baseline: faster, slower, the same, cannot be told"),
)  # fmt: skip


class HelpScreen(PageScreen):
    """Keys and meanings."""

    def __init__(
        self, palette: Palette, frame: Frame, keymap: Mapping[str, tuple[str, ...]]
    ) -> None:
        super().__init__(palette, frame)
        self._keymap = keymap

    def page(self, frame: Frame, width: int) -> Sequence[Line]:
        """All lines."""
        lines: list[Line] = [[(" KEYS", "title")]]
        for action in ACTIONS:
            keys = " ".join(key_label(key) for key in self._keymap.get(action.id, ()))
            lines.append([(f"   {keys or '–':<14}", "key"), (action.description, "")])
        lines += [
            [("   Ctrl-P        ", "key"), ("Find an action by its name", "")],
            [("   Ctrl-C        ", "key"), ("End roofmon, whatever it is doing", "")],
            (),
            [(" WHAT THE SCREEN MEANS", "title")],
        ]
        for sign, role, meaning in _MEANINGS:
            first, *more = wrapped(meaning, width - 18, "")
            lines += [[(f"   {sign:<14}", role), *first], *([(" " * 17, ""), *m] for m in more)]
        return lines

    def act(self, action: str) -> bool:
        """`?` closes what it opened."""
        return super().act("back" if action == "help" else action)
