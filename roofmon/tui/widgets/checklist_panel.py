"""The checklist of the selected kernel: the answer, then what failed with its evidence, then the rest."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from roofmon.tui.arrangement import PanelName
from roofmon.tui.frame import Frame
from roofmon.tui.names import kernel_mark
from roofmon.tui.strips import Line, cells, fitted, wrapped
from roofmon.tui.widgets.lines import Lines
from roofmon.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from roofmon.diagnosis import Finding

MARKS = {"fail": ("✗", "fail"), "unknown": ("?", "unknown"), "pass": ("✓", "pass")}


class ChecklistPanel(Panel):
    """Findings in their order; what does not fit is counted, and seen in full screen."""

    panel: ClassVar[PanelName] = "checklist"

    def title(self, frame: Frame) -> str:
        """The kernel that is checked."""
        view = frame.view
        if view is None or view.selected_row is None:
            return "checklist"
        row = view.selected_row
        mark = kernel_mark(view, row, self.palette.unicode)
        return f"checklist: {mark + ' ' if mark else ''}{view.table.descriptions[row].name}"

    def content(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """The answer and the findings, without their evidence where that does not fit."""
        view = frame.view
        if view is None:
            return []
        lines: list[Line] = []
        findings = frame.checks
        if view.headline and not (findings and findings[0].status == "fail"):
            # The title names the kernel already; a first check that failed gives the answer itself.
            answer = view.headline.partition(": ")[2] or view.headline
            lines = wrapped(answer, width, "title", " ")
        for index, finding in enumerate(findings):
            block = list(finding_lines(finding, width))
            left = len(findings) - index
            room = height - len(lines) - (1 if left > 1 else 0)
            if lines and len(block) > room:
                block = block[:1]
                if room < 1:
                    return [*lines[: height - 1], [(f" … {left} more", "muted")]]
            lines += block
        return lines


class CheckLine(Lines):
    """The first failed check of the selected kernel in one line, where the panel has no room."""

    def lines(self, frame: Frame, width: int, height: int) -> Sequence[Line]:
        """What failed with evidence and advice, else the answer."""
        if frame.view is None:
            return []
        failed = next(iter(frame.checks), None)
        if failed is None or failed.status != "fail":
            return [[(" ", ""), (fitted(frame.view.headline, width - 1), "")]]
        advice = f" → {failed.advice}" if failed.advice else ""
        rest = fitted(f": {failed.evidence}{advice}", width - 3 - cells(failed.title))
        return [[(" ✗ ", "fail"), (failed.title, "title"), (rest, "")]]


def finding_lines(finding: "Finding", width: int) -> Iterator[Line]:
    """One finding: its mark and title; unless it passed, its evidence and advice below."""
    mark, role = MARKS[finding.status]
    if finding.status == "pass":
        text = f"{finding.title} · {finding.evidence}"
        yield [(f" {mark} ", role), (text if len(text) <= width - 4 else finding.title, "")]
        return
    yield [(f" {mark} ", role), (finding.title, "")]
    if finding.evidence:
        yield from wrapped(finding.evidence, width - 1, "muted", "   ")
    if finding.advice:
        yield from wrapped(finding.advice, width - 1, "", "     ", "   → ")
