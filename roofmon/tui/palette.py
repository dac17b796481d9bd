"""How each role looks: the colours of a theme, and the attributes that say the same without colour."""

from rich.color import Color
from rich.style import Style

from roofmon.themes import Theme

_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "title": ("bold",),
    "key": ("bold",),
    "fail": ("bold",),
    "error": ("bold",),
    "warning": ("bold",),
    "point.selected": ("bold", "reverse"),
    "alert": ("bold", "reverse"),
    "focus": ("bold", "underline"),
}
_ALIASES = {
    "": "foreground",
    "title": "foreground",
    "key": "accent",
    "focus": "accent",
    "alert": "error",
    "tick": "axis",
    "unit": "axis",
}
_COLOURLESS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("muted", "axis", "tick", "border", "ridge"), ("dim",)
)


class Palette:
    """Styles by role for one theme, and whether only ASCII may be sent.

    Without colour (NO_COLOR) the attributes are left. Equal roles give the same `Style` object.
    """

    def __init__(self, theme: Theme, *, colour: bool = True, unicode: bool = True) -> None:
        self.theme = theme
        self.colour = colour
        self.unicode = unicode
        self._styles: dict[str, Style] = {}
        self.plain = self.style("")

    def style(self, role: str) -> Style:
        """The style of a role; `role@selection` is the role on the background `selection`.

        A role that the theme does not have looks like plain text.
        """
        found = self._styles.get(role)
        if found is None:
            found = self._styles[role] = self._make(role)
        return found

    def _make(self, role: str) -> Style:
        name, _, place = role.partition("@")
        attributes = _ATTRIBUTES.get(name, ())
        roles = self.theme.roles
        colour = roles.get(_ALIASES.get(name, name), roles.get("foreground"))
        background = roles.get(place or "background")
        if place == "selection" and (not self.colour or background in (None, "default")):
            attributes = (*attributes, "reverse")
        if not self.colour:
            return Style.parse(" ".join(_COLOURLESS.get(name, ()) + attributes))
        style = Style(color=_colour(colour), bgcolor=_colour(background))
        return style + Style.parse(" ".join(attributes))


def _colour(text: str | None) -> Color | None:
    """A theme's colour; None leaves the terminal's own, which costs no bytes."""
    if text is None or text == "default":
        return None
    return Color.parse(text)
