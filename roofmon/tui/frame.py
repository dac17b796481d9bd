"""What one frame of the screen shows: the view, the findings, and the choices that are the screen's own.

Light on purpose: the first frame is painted from an empty one, before numpy is imported.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofmon.tui.arrangement import PanelName

if TYPE_CHECKING:
    from roofmon.diagnosis import Finding
    from roofmon.model.session import Notice
    from roofmon.model.snapshot import Snapshot
    from roofmon.tui.program import ProgramView
    from roofmon.view import View, ViewState


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the user has set that is no part of the view.

    `typing` is the filter while it is being typed, `question` what waits for y or n and `on_yes` the
    command that y sends, `said` the answer to the last key.
    """

    focus: PanelName = "kernels"
    full: bool = False
    paused: bool = False
    typing: str | None = None
    question: str = ""
    on_yes: str = ""
    said: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """All that widgets draw from; immutable. `view` is None until the first snapshot came.

    `program` is what `roofmon run` started; `state` is the consumer's line ("" while live); `findings` are
    the selected kernel's, `session` those on the session that did not pass; `notice` is the newest one not
    yet dismissed, of `notices` in all.
    """

    title: str = ""
    state: str = "starting"
    view: "View | None" = None
    findings: "tuple[Finding, ...]" = ()
    session: "tuple[Finding, ...]" = ()
    program: "ProgramView | None" = None
    notice: "Notice | None" = None
    notices: int = 0
    choices: Choices = Choices()

    @property
    def checks(self) -> "list[Finding]":
        """What failed on the kernel and on the session, then the rest on the kernel."""
        failed = [f for f in self.findings if f.status == "fail"]
        return [*failed, *self.session, *(f for f in self.findings if f.status != "fail")]

    @property
    def snapshot(self) -> "Snapshot | None":
        """What is shown."""
        return self.view.snapshot if self.view else None


def build_frame(empty: Frame, snapshot: "Snapshot", state: "ViewState") -> Frame:
    """`empty` filled with the view of `snapshot`. The first call imports numpy and what builds on it."""
    from roofmon.diagnosis import about, diagnose_kernel, diagnose_session
    from roofmon.view import build_view

    view = build_view(snapshot, state)
    # So that the next state, made from this one, keeps the numbers of the kernels and the trails.
    view = replace(view, state=replace(state, marks=view.marks, history=view.history))
    row = view.selected_row
    return replace(
        empty,
        view=view,
        findings=() if row is None else diagnose_kernel(view, row),
        session=tuple(
            f for f in about(view.device, diagnose_session(snapshot)) if f.status == "fail"
        ),
    )
