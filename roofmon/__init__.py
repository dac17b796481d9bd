"""roofmon: a live roofline monitor for kernels, in the terminal.

Importing this package stays free of side effects and of other imports: `roofmon.region` is used inside
other people's programs and must cost them nothing.
"""

__version__ = "0.1.0"
