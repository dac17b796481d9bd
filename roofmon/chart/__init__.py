"""The roofline chart: a `Scene` becomes a `Canvas` of characters and roles.

Pure functions for the terminal screen, the text report and the picture export; no colour, no
terminal, no toolkit. Importing this package imports neither plotext nor numpy.

The roles in a canvas are those of the scene's roofs, points, trails, arrows and regions (a label has
the role of its line) and the chart's own: axis, tick, unit, ridge, message and point.selected.
"""

from roofmon.chart.canvas import Canvas, Run, Undrawn
from roofmon.chart.glyphs import mark
from roofmon.chart.render import cell_key, render
from roofmon.chart.scene import Arrow, Place, Point, Region, Roof, Scene, Trail, Window
from roofmon.chart.window import auto_window, zoom

__all__ = [
    "Arrow",
    "Canvas",
    "Place",
    "Point",
    "Region",
    "Roof",
    "Run",
    "Scene",
    "Trail",
    "Undrawn",
    "Window",
    "auto_window",
    "cell_key",
    "mark",
    "render",
    "zoom",
]
