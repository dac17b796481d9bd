"""What each action does, and how a pressed key finds its action."""

from dataclasses import replace
from typing import TYPE_CHECKING

from textual.events import Key

from roofmon.actions import RESERVED
from roofmon.model.tracing_cost import EAGER, IN_GRAPH, about
from roofmon.tui.arrangement import PANELS, PanelName
from roofmon.tui.names import clock_time, device_label
from roofmon.tui.screens.base import RoofScreen
from roofmon.tui.screens.drilldown import DrillDown
from roofmon.tui.screens.finder import FinderScreen
from roofmon.tui.screens.help import HelpScreen
from roofmon.tui.screens.main import MainScreen
from roofmon.tui.screens.programs import ProgramsScreen

if TYPE_CHECKING:
    from roofmon.tui.app import RoofmonApp

_FIND = "ctrl+p"
_PANEL_ACTIONS: dict[str, PanelName] = {f"panel-{name}": name for name in PANELS}
_DEAF = "the collector cannot be reached now"


def press(app: "RoofmonApp", event: Key) -> None:
    """Do what a key means on the present screen."""
    if event.key == RESERVED:
        if app.program is not None and app.program.interrupt():
            app.say("Ctrl-C went to the program; again soon, or q, closes the screen")
        else:
            app.leave()
        return
    # A character is known by what it types, whatever the layout; textual's name is `full_stop` for `.`.
    typed = event.is_printable and event.character != " "
    key = (event.character if typed else None) or event.key
    if app.choices.said:
        app.choose(replace(app.choices, said=""))
    screen = app.screen
    if isinstance(screen, RoofScreen) and screen.typed(event.key, event.character):
        return
    if app.choices.question:
        _answer(app, key)
    elif app.choices.typing is not None:
        _type(app, event)
    elif (action := app.action_of(key)) is not None:
        act(app, action)
    elif key == _FIND:
        _find(app)


def act(app: "RoofmonApp", action: str) -> None:
    """Do an action by its id."""
    screen = app.screen
    if isinstance(screen, RoofScreen) and screen.act(action):
        return
    match action:
        case "quit":
            app.leave()
        case "help":
            app.push_screen(HelpScreen(app.palette, app.frame, app.keymap), app.rebuild)
        case "theme":
            _next_theme(app)
        case "pause":
            _pause(app)
        case "precision" if isinstance(screen, MainScreen | DrillDown):
            _next_precision(app)
        case _ if isinstance(screen, MainScreen):
            _act_on_main(app, screen, action)


def _act_on_main(app: "RoofmonApp", screen: MainScreen, action: str) -> None:
    choices = app.choices
    match action:
        case "back":
            _back(app)
        case "full-screen":
            app.choose(replace(choices, full=not choices.full))
        case "next-panel" | "previous-panel":
            step = 1 if action == "next-panel" else -1
            panels = PANELS if app.frame.program else PANELS[:-1]
            at = (
                (panels.index(choices.focus) + step) % len(panels) if choices.focus in panels else 0
            )
            app.choose(replace(choices, focus=panels[at]))
        case _ if action in _PANEL_ACTIONS:
            app.choose(replace(choices, focus=_PANEL_ACTIONS[action]))
        case "programs":
            screen_of = ProgramsScreen(app.palette, app.frame, app.send)
            app.push_screen(screen_of, app.rebuild)
        case "detach":
            left = f"{about(EAGER.left_s)} a launch stay ({about(IN_GRAPH.left_s)} in a graph)"
            app.say(f"detached: about {left}" if app.send("detach") else _DEAF)
        case _ if app.frame.view is None:
            app.say("nothing to show yet: the collector is starting")
        case _:
            _act_on_view(app, screen, action)


def _act_on_view(app: "RoofmonApp", screen: MainScreen, action: str) -> None:
    from roofmon.tui.moves import next_state

    view = app.frame.view
    assert view is not None
    state = view.state
    match action:
        case "drill" if view.selected is not None:
            # The page stays with its kernel, also where the selection follows the top of the table.
            app.look(replace(state, selected=view.selected))
            app.push_screen(DrillDown(app.palette, app.frame, app.keymap), app.rebuild)
        case "filter":
            app.choose(replace(app.choices, typing=state.filter))
        case "baseline":
            app.look(replace(state, baseline=view.snapshot))
            moment = clock_time(view.snapshot.time_unix_ns)
            app.say(f"baseline kept at {moment}: d shows what changed")
        case "difference" if state.baseline is None:
            app.say("no baseline yet: b keeps the present state as one")
        case "difference":
            # Both tables have these columns; a sort by another one ends with its table.
            sort = state.sort if state.sort in ("kernel", "time", "fraction") else "time"
            app.look(replace(state, difference=not state.difference, sort=sort))
        case "reset":
            app.say("statistics begin anew" if app.send("reset") else _DEAF)
        case "calibrate" if view.device is not None:
            name = device_label(view.device.description)
            question, command = f"measure the roofs of {name} again? It will be busy", "calibrate"
            if view.device.progress is not None:
                question, command = f"stop measuring the roofs of {name}?", "stop-calibration"
            app.choose(replace(app.choices, question=question, on_yes=command))
        case "current-clock":
            shown = not state.show_current_clock
            app.look(replace(state, show_current_clock=shown))
            sample = view.device.sample if view.device else None
            if shown and not (sample and sample.clock_hz):
                app.say("its clock is not known now: the line comes when it is")
        case _:
            devices = app.choices.focus == "devices"
            page = screen.devices.page if devices else screen.table.page
            moved = next_state(action, view, screen.table.columns(), page, among_devices=devices)
            if moved is not None:
                app.look(moved)


def _next_theme(app: "RoofmonApp") -> None:
    names = sorted(app.themes)
    following = names[(names.index(app.palette.theme.name) + 1) % len(names)]
    app.recolour(app.themes[following])
    app.say(f"theme {following}")


def _pause(app: "RoofmonApp") -> None:
    paused = not app.choices.paused
    app.choose(replace(app.choices, paused=paused))
    app.send("pause" if paused else "resume")
    app.take()


def _next_precision(app: "RoofmonApp") -> None:
    view = app.frame.view
    row = view.selected_row if view is not None else None
    if view is None or row is None:
        return
    from roofmon.model.roofline import Pipe, pipe_label

    kernel = view.table.descriptions[row]
    if not kernel.candidates:
        app.say("nothing to tell: its name tells its precision, or no tensor work was seen")
        return
    names = ", ".join(pipe_label(Pipe.parse(key)) for key in kernel.candidates)
    done = app.send("next-precision", kernel=kernel.id)
    app.say(f"its tensor work: the next of {names}, unknown" if done else _DEAF)


def _back(app: "RoofmonApp") -> None:
    """Undo the last thing that stands in the way; never ends the program."""
    view = app.frame.view
    if app.notices.dismiss():
        app.rebuild()
    elif app.choices.full:
        app.choose(replace(app.choices, full=False))
    elif view is not None and view.state.filter:
        app.look(replace(view.state, filter=""))


def _answer(app: "RoofmonApp", key: str) -> None:
    app.choose(replace(app.choices, question=""))
    if key in ("y", "Y"):
        command = app.choices.on_yes
        done = "measuring again" if command == "calibrate" else "stopped"
        app.say(done if app.send(command) else _DEAF)
    elif key in ("n", "N", "escape"):
        app.say("left as it is")
    elif app.action_of(key) == "quit":
        app.leave()


def _type(app: "RoofmonApp", event: Key) -> None:
    """One key of the filter being typed; it works from the first character on."""
    text = app.choices.typing or ""
    typing: str | None
    match event.key:
        case "enter":
            typing = None
        case "escape":
            text, typing = "", None
        case "backspace":
            text = typing = text[:-1]
        case "ctrl+u":
            text = typing = ""
        case _ if event.character and event.is_printable:
            text = typing = text + event.character
        case _:
            return
    app.choices = replace(app.choices, typing=typing)
    if app.view_state is not None:
        app.view_state = replace(app.view_state, filter=text)
    app.rebuild()


def _find(app: "RoofmonApp") -> None:
    def chosen(action: str) -> None:
        app.call_later(act, app, action)

    app.push_screen(FinderScreen(app.palette, app.frame, app.keymap, chosen), app.rebuild)
