"""Choosing a device by what users and CUDA_VISIBLE_DEVICES write."""

import pytest

from roofmon.device_choice import choose, default_device, mark_visible
from roofmon.errors import RoofmonError
from roofmon.model.device import DeviceDescription


def gpu(uuid: str, index: int, bus: str, parent: str | None = None) -> DeviceDescription:
    return DeviceDescription(
        uuid=uuid, index=index, name="GPU", kind="cuda", pci_bus_id=bus, parent=parent
    )


FIRST, SECOND, THIRD = "GPU-aaaa1111-0", "GPU-aaaa2222-0", "GPU-bbbb3333-0"
SLICE, OTHER_SLICE = "MIG-cccc4444-0", "MIG-dddd5555-0"
DEVICES = [
    gpu(FIRST, 0, "00000000:1B:00.0"),
    gpu(SECOND, 1, "00000000:43:00.0"),
    gpu(SLICE, 1, "00000000:43:00.0", parent=SECOND),
    gpu(OTHER_SLICE, 1, "00000000:43:00.0", parent=SECOND),
    gpu(THIRD, 2, "0000000A:1B:00.0"),
    DeviceDescription(uuid="cpu-1", index=3, name="CPU", kind="cpu"),
]


@pytest.mark.parametrize(
    ("wanted", "uuid"),
    [
        ("0", FIRST),
        ("2", THIRD),
        (FIRST, FIRST),
        ("GPU-b", THIRD),
        ("gpu-aaaa1", FIRST),
        ("bbbb", THIRD),
        ("MIG-c", SLICE),
        ("00000000:1B:00.0", FIRST),
        ("1b:00.0", FIRST),
        ("0000:43:00", SECOND),
        ("000a:1b:00.0", THIRD),
        ("cpu", "cpu-1"),
        (" CPU ", "cpu-1"),
    ],
)
def test_a_device_is_named_in_many_ways(wanted: str, uuid: str) -> None:
    assert choose(DEVICES, wanted) == uuid


@pytest.mark.parametrize("wanted", ["3", "-1", "GPU-", "GPU-zz", "", "ff:00.0", "\x1b[31m"])
def test_a_name_that_fits_nothing_says_what_there_is(wanted: str) -> None:
    with pytest.raises(RoofmonError) as caught:
        choose(DEVICES, wanted)
    assert f"0 ({FIRST})" in caught.value.fix
    assert caught.value.exit_code == 3
    assert "\x1b" not in str(caught.value)


def test_a_short_name_that_fits_two_says_so() -> None:
    with pytest.raises(RoofmonError, match="more than one device") as caught:
        choose(DEVICES, "GPU-aaaa")
    assert FIRST in caught.value.fix
    assert SECOND in caught.value.fix


@pytest.mark.parametrize(
    ("visible", "used", "uuid"),
    [
        (None, (), FIRST),
        ("2,0", (), FIRST),
        ("2", (), THIRD),
        ("1", (), SLICE),  # programs run on the instances of a GPU in MIG mode, not on the GPU
        (OTHER_SLICE, (), OTHER_SLICE),
        ("2", (SECOND,), SECOND),
        ("2", ("cpu-1",), "cpu-1"),
        ("", (), FIRST),  # hidden from CUDA, but there
    ],
)
def test_the_default_is_one_in_use_or_the_first_that_cuda_sees(
    visible: str | None, used: tuple[str, ...], uuid: str
) -> None:
    assert default_device(mark_visible(DEVICES, visible), used) == uuid


def test_without_a_gpu_the_default_is_the_cpu() -> None:
    assert default_device(DEVICES[-1:]) == "cpu-1"
    assert default_device([]) is None


@pytest.mark.parametrize(
    ("visible", "selected"),
    [
        (None, {FIRST, SECOND, SLICE, OTHER_SLICE, THIRD}),
        ("", set()),
        ("0", {FIRST}),
        ("0,2", {FIRST, THIRD}),
        (" 0 , 2 ", {FIRST, THIRD}),
        ("0,7,2", {FIRST}),  # the list ends at what is no device
        ("-1,0", set()),
        ("NoDevFiles", set()),
        ("GPU-b,0", {THIRD, FIRST}),
        ("GPU-aaaa,0", set()),  # fits two
        ("2,2,0", {THIRD}),
        ("1", {SECOND, SLICE}),
        (OTHER_SLICE, {OTHER_SLICE}),
        ("1b:00.0", set()),  # CUDA takes no PCI ids
    ],
)
def test_visible_devices_are_read_as_cuda_does(visible: str | None, selected: set[str]) -> None:
    marked = mark_visible(DEVICES, visible)
    assert {d.uuid for d in marked if d.selected} == {*selected, "cpu-1"}
    assert [d.uuid for d in marked] == [d.uuid for d in DEVICES]
