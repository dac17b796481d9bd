"""Which device is meant: by index, UUID, PCI id, or as CUDA_VISIBLE_DEVICES says. Pure.

Indices are NVML's, in PCI order; CUDA counts in that order only with CUDA_DEVICE_ORDER=PCI_BUS_ID, and
otherwise begins with the fastest GPU. UUIDs are never ambiguous.
"""

import re
from collections.abc import Collection, Sequence

import msgspec

from roofmon.errors import ExitCode, RoofmonError
from roofmon.model.device import DeviceDescription
from roofmon.units import clean

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)


def choose(devices: Sequence[DeviceDescription], wanted: str) -> str:
    """The UUID of the device that a user names.

    Args:
        devices: all of this machine.
        wanted: an index, a UUID of a GPU or MIG instance or the unique beginning of one, a PCI id, or
            `cpu`.

    Raises RoofmonError where nothing, or more than one device, fits.
    """
    found = _named(devices, wanted.strip())
    if len(found) == 1:
        return found[0].uuid
    shown = clean(wanted, 80)
    if found:
        raise RoofmonError(
            f"more than one device begins with {shown!r}",
            "name more of it: " + ", ".join(d.uuid for d in found),
            ExitCode.USAGE,
        )
    raise RoofmonError(
        f"there is no device {shown!r}",
        "there are: " + (", ".join(_label(d) for d in devices) or "none"),
        ExitCode.NO_DEVICE,
    )


def default_device(devices: Sequence[DeviceDescription], used: Collection[str] = ()) -> str | None:
    """The UUID of the device that is meant where none is named; None where there is none.

    One of `used`, else a GPU that CUDA_VISIBLE_DEVICES leaves visible, else any GPU; of those alike the
    first, but a MIG instance before the GPU that it is a part of, since programs run on instances.
    """
    split = {d.parent for d in devices}

    def rank(device: DeviceDescription) -> tuple[bool, bool, bool, bool]:
        gpu = device.kind == "cuda"
        return (
            device.uuid not in used,
            not (gpu and device.selected),
            not gpu,
            device.uuid in split,
        )

    return min(devices, key=rank).uuid if devices else None


def mark_visible(
    devices: Sequence[DeviceDescription], visible: str | None
) -> list[DeviceDescription]:
    """`devices` with `selected` set as CUDA would see them; a CPU is always selected.

    As in CUDA: not set is all, the list ends at the first entry that is no device, so that an empty one is
    none; a UUID may be cut short as long as it stays unique. A GPU in MIG mode stands for its first
    instance.
    """
    chosen = {d.uuid for d in devices}
    if visible is not None:
        chosen = {d.uuid for d in devices if d.kind == "cpu"}
        for entry in visible.split(","):
            found = _visible_entry(devices, entry.strip())
            if found is None or found.uuid in chosen:
                break
            chosen.add(found.uuid)
            instances = [d for d in devices if d.parent == found.uuid]
            chosen.update(d.uuid for d in instances[:1])
    return [msgspec.structs.replace(d, selected=d.uuid in chosen) for d in devices]


def _visible_entry(devices: Sequence[DeviceDescription], entry: str) -> DeviceDescription | None:
    if entry.isdecimal():
        found = _with_index(devices, int(entry))
    elif entry.startswith(("GPU-", "MIG-")):
        found = _with_uuid(devices, entry)
    else:
        return None
    return found[0] if len(found) == 1 else None


def _named(devices: Sequence[DeviceDescription], wanted: str) -> list[DeviceDescription]:
    if wanted.lower() == "cpu":
        return [d for d in devices if d.kind == "cpu"][:1]
    if wanted.isdecimal() and (found := _with_index(devices, int(wanted))):
        return found
    if _PCI.fullmatch(wanted):
        pci = _pci(wanted)
        return [d for d in devices if d.parent is None and pci == _pci(d.pci_bus_id or "")]
    return _with_uuid(devices, wanted) or _with_uuid(devices, f"GPU-{wanted}")


def _with_index(devices: Sequence[DeviceDescription], index: int) -> list[DeviceDescription]:
    return [d for d in devices if d.kind == "cuda" and d.parent is None and d.index == index]


def _with_uuid(devices: Sequence[DeviceDescription], start: str) -> list[DeviceDescription]:
    if exact := [d for d in devices if d.uuid == start]:
        return exact
    # A bare "GPU-" would mean every GPU, or the only one: too little to be meant.
    if start in ("", "GPU-", "MIG-"):
        return []
    return [d for d in devices if d.uuid.lower().startswith(start.lower())]


def _pci(text: str) -> tuple[int, ...] | None:
    """(domain, bus, device, function) as numbers: nvidia-smi writes eight digits of domain, lspci four."""
    match = _PCI.fullmatch(text)
    return tuple(int(part or "0", 16) for part in match.groups()) if match else None


def _label(device: DeviceDescription) -> str:
    if device.kind == "cpu":
        return "cpu"
    return device.uuid if device.parent else f"{device.index} ({device.uuid})"
