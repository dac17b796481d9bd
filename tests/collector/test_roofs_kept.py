"""Roofs of before stand while a calibration measures them again; bounds always do."""

from builders import bandwidth, compute, roofline

from roofmon.collector.host_state import HostState
from roofmon.model.roofline import Roofline
from roofmon.stream.messages import Message, Roofs

DRAM, NEW_DRAM = bandwidth(4.3e12), bandwidth(4.4e12)
L2, FP32 = bandwidth(9e12, "l2"), compute(60e12)
BOUND = bandwidth(4.8e12, regime="bound")


def shown_after(*steps: Roofline | str) -> tuple[list[Message], Roofline]:
    """A host to which roofs come, and a calibration that begins or ends."""
    sent: list[Message] = []
    host = HostState(sent.append)
    for step in steps:
        if step == "begins":
            host.keep_roofs("gpu")
        elif step == "is complete":
            host.forget_kept_roofs("gpu")
        else:
            assert isinstance(step, Roofline)
            host.take(Roofs(device="gpu", roofline=step))
    return sent, host.rooflines["gpu"]


def test_a_roof_stands_until_another_takes_its_place() -> None:
    _, shown = shown_after(roofline(BOUND), roofline(DRAM, L2), "begins", roofline(NEW_DRAM))
    assert shown.ceilings == (NEW_DRAM, L2, BOUND)


def test_what_a_whole_calibration_gave_no_roof_for_has_none() -> None:
    steps = (roofline(DRAM, L2), "begins", roofline(NEW_DRAM), roofline(NEW_DRAM, FP32))
    sent, shown = shown_after(*steps, "is complete")
    assert shown.ceilings == (NEW_DRAM, FP32)
    assert sent[-1] == Roofs(device="gpu", roofline=shown)


def test_one_that_was_broken_off_adds_to_what_was_there_also_the_next_time() -> None:
    steps = (roofline(DRAM, L2), "begins", roofline(NEW_DRAM), "begins", roofline(FP32))
    assert shown_after(*steps)[1].ceilings == (FP32, NEW_DRAM, L2)


def test_without_roofs_there_is_nothing_to_keep() -> None:
    assert shown_after(roofline(BOUND), "begins", "is complete")[1].ceilings == (BOUND,)
