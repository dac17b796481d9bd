"""Where a device's DRAM traffic goes, in words, and the row of what nothing traced moved."""

from collections.abc import Sequence

from roofmon.model.traffic import Traffic
from roofmon.units import NOT_AVAILABLE, percent, si, significant
from roofmon.view.columns import TableColumn
from roofmon.view.state import View

UNTRACED = "(untraced)"
_NOT_OF_LAUNCHES = frozenset({"flops", "intensity", "fraction", "roof"})
"""Columns of what could be known of it but is not; the others are of launches, which it has none of."""


def explained_text(traffic: Traffic | None) -> str:
    """How much of the traffic traced kernels explain, for a title; "" where none is traced."""
    if traffic is None:
        return ""
    return f"explains {percent(traffic.explained)} of DRAM"


def traffic_facts(traffic: Traffic) -> list[str]:
    """The accounting, the most telling first; the reason where there is none."""
    if traffic.explained is None:
        return [f"DRAM traffic explained {NOT_AVAILABLE}: {traffic.missing.get('explained', '')}"]
    facts = [f"{percent(traffic.explained)} of DRAM traffic explained"]
    if traffic.explained_of_gpm is not None:
        facts.append(f"{percent(traffic.explained_of_gpm)} of what GPM counts")
    else:
        facts.append(f"of GPM's {NOT_AVAILABLE}: {traffic.missing.get('gpm_bytes_per_s', '')}")
    facts.append(f"untraced {si(traffic.untraced_bytes_per_s, 'B/s')}")
    if traffic.others:
        facts.append(f"not traced: {', '.join(traffic.others)}")
    return facts


def untraced(view: View) -> Traffic | None:
    """The traffic whose untraced part has a row below the kernels; None where there is no such row."""
    traffic = view.traffic
    if traffic is None or traffic.untraced_bytes_per_s is None or view.comparison is not None:
        return None
    return traffic if not view.state.filter else None


def untraced_cells(traffic: Traffic, columns: Sequence[TableColumn]) -> list[str]:
    """The texts of that row, neither padded nor cut."""
    rate, share = traffic.untraced_bytes_per_s, percent(traffic.untraced_share)
    shown = any(column.id == "bandwidth" for column in columns)
    name = f"{UNTRACED} {'' if shown else si(rate, 'B/s') + ', '}{share} of DRAM"
    others = f": {', '.join(traffic.others)}" if traffic.others else ""
    room = next((column.width for column in columns if column.id == "kernel"), 0)
    if len(name + others) <= room:
        name += others
    known = {
        "kernel": name,
        "bandwidth": significant(None if rate is None else rate / 1e9),
        "bound": "others",
        "level": "DRAM",
        "source": "sampled",
        "flag": "",
    }
    return [known.get(c.id, NOT_AVAILABLE if c.id in _NOT_OF_LAUNCHES else "–") for c in columns]
