"""The work of one kernel in the drill-down: its quantities with their sources, and what is doubtful."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from roofmon.tui.strips import Line, wrapped
from roofmon.units import NOT_AVAILABLE, percent, si

if TYPE_CHECKING:
    from roofmon.model.kernel import KernelDescription
    from roofmon.model.work import Quantity, WorkKind
    from roofmon.view import View

INDENT = " " * 15
"""What stands under a heading begins here."""


def heading(name: str, rest: str) -> Line:
    """The first line of a section of the page."""
    return [(f" {name:<14}", "title"), (rest, "muted")]


def work_lines(view: "View", row: int, width: int) -> Iterator[Line]:
    """Bytes by level and FLOPs by pipe with all their sources, or why they are not known."""
    yield heading("WORK", f"{'per launch':<36}source")
    from roofmon.model.roofline import Pipe, level_label, pipe_label

    table = view.table
    known = False
    for level in table.bytes:
        quantities = table.quantities("bytes", level, row)
        if quantities:
            known = True
            yield _quantity(f"bytes {level_label(level)}", quantities, "B", width)
    if known and (reason := table.descriptions[row].reasons.get("contended")):
        yield from wrapped(f"contended: {reason}", width - 2, "warning", INDENT, f"{INDENT}! ")
    for key in table.flops:
        quantities = table.quantities("flops", key, row)
        if quantities:
            known = True
            pipe = Pipe.parse(key)
            name = f"{pipe.operation}s {pipe_label(pipe)}"
            yield _quantity(name, quantities, pipe.operation, width)
    kinds: tuple[WorkKind, ...] = ("flops", "bytes")
    for kind in kinds:
        chosen = table.flops if kind == "flops" else table.bytes
        if not any(c.source[row] >= 0 for c in chosen.values()):
            reason = table.descriptions[row].reasons.get(kind, "no source knows them")
            name = "FLOPs" if kind == "flops" else "bytes"
            yield [(f"   {name:<12}", ""), (f"{NOT_AVAILABLE}: {reason}", "unknown")]
    if not known and table.descriptions[row].kind == "region":
        yield [(INDENT, ""), ("declare them: region(name, flops=…, bytes=…)", "accent")]


def precision_lines(kernel: "KernelDescription", width: int) -> Iterator[Line]:
    """What the user told of its precision."""
    if not kernel.told:
        return
    from roofmon.model.roofline import Pipe, pipe_label

    text = (
        f"as {pipe_label(Pipe.parse(kernel.told))} by your word: nothing else tells its precision"
    )
    yield from wrapped(text, width - 2, "accent", INDENT)


def _quantity(name: str, quantities: "list[Quantity]", unit: str, width: int) -> Line:
    best, *others = quantities
    text = _amount(best, unit)
    also = ", ".join(f"{q.provenance.value} {_amount(q, unit)}" for q in others)
    return [
        (f"   {name:<20}", ""),
        (f"{text:<28}", ""),
        (best.provenance.value, "accent"),
        (f"   ({also})" if also else "", "muted"),
    ]


def _amount(quantity: "Quantity", unit: str) -> str:
    bound = "≤ " if quantity.upper_bound else ""
    error = f" ± {percent(quantity.rel_error)}" if quantity.rel_error is not None else ""
    return f"{bound}{si(quantity.value, unit, 4)}{error}"
