"""What devices say in `roofmon.snapshot/1`: sample, point, activity, traffic, roofs."""

from collections.abc import Iterable
from typing import Any

import msgspec

from roofmon.model.activity import Activity
from roofmon.model.device import DeviceSample
from roofmon.model.roofline import Ceiling
from roofmon.model.snapshot import Device
from roofmon.model.traffic import Traffic
from roofmon.report.json_numbers import in_percent, known
from roofmon.view import device_point


def device_document(
    device: Device, activity: Activity | None, traffic: Traffic | None
) -> dict[str, Any]:
    """One device, with what traced kernels did on it and where its traffic went."""
    roofline = device.roofline
    return {
        **msgspec.structs.asdict(device.description),
        "sample": None if device.sample is None else _sample(device.sample),
        "point": _point(device),
        "activity": _activity(activity),
        "traffic": _traffic(traffic),
        "progress": None if device.progress is None else msgspec.structs.asdict(device.progress),
        "roofline": {
            "ceilings": [ceiling_document(c) for c in roofline.ceilings],
            "conditions": None
            if roofline.conditions is None
            else msgspec.structs.asdict(roofline.conditions),
            "latency": {
                "launch_s": roofline.latency.launch_s,
                "load_s": dict(roofline.latency.load_s),
            },
        },
    }


def _activity(activity: Activity | None) -> dict[str, Any] | None:
    """What traced kernels did on a device; null where none is traced."""
    if activity is None:
        return None
    fields = msgspec.structs.asdict(activity)
    del fields["device"]
    return {
        **fields,
        "busy_percent": in_percent(activity.busy),
        "gaps_percent": in_percent(activity.idle),
        "launch_bound_percent": in_percent(activity.launch_bound),
    }


def _traffic(traffic: Traffic | None) -> dict[str, Any] | None:
    """Where the DRAM traffic of a device goes; null where no kernel on it is traced."""
    if traffic is None:
        return None
    fields = msgspec.structs.asdict(traffic)
    del fields["device"]
    return {
        **fields,
        "contended": traffic.contended or None,
        "missing": dict(traffic.missing),
        "explained_percent": in_percent(traffic.explained),
        "explained_of_gpm_percent": in_percent(traffic.explained_of_gpm),
        "untraced_percent": in_percent(traffic.untraced_share),
    }


def ceiling_document(ceiling: Ceiling) -> dict[str, Any]:
    """One ceiling: byte/s or FLOP/s, Hz, and `level` or `pipe` by its kind."""
    rest = msgspec.structs.asdict(ceiling)
    for name in ("kind", "level", "pipe"):
        del rest[name]
    return {"kind": ceiling.kind, **place_document(ceiling), **rest}


def place_document(ceiling: Ceiling) -> dict[str, Any]:
    """What a ceiling is of: `level` or `pipe`."""
    if ceiling.pipe is None:
        return {"level": ceiling.level}
    return {"pipe": msgspec.structs.asdict(ceiling.pipe)}


def _sample(sample: DeviceSample) -> dict[str, Any]:
    fields = msgspec.structs.asdict(sample)
    del fields["device"]
    processes = sample.processes
    return {
        **{k: known(v) if isinstance(v, float) else v for k, v in fields.items()},
        "lost": sample.lost or None,
        "rates": None if sample.rates is None else _rates(sample.rates.items()),
        "processes": None if processes is None else [msgspec.structs.asdict(p) for p in processes],
        "missing": dict(sample.missing),
    }


def _point(device: Device) -> dict[str, Any] | None:
    """The device's own place on its roofline; null where no device of its kind has one."""
    point = device_point(device)
    if point is None:
        return None
    return {
        "intensity": known(point.intensity),
        "flops_per_s": known(point.flops),
        "bytes_per_s": known(point.bytes_per_s),
        "rates": _rates((pipe.key, rate) for pipe, rate in point.rates.items()),
        "upper_bound": point.upper_bound,
        "reason": point.why or None,
    }


def _rates(rates: Iterable[tuple[str, float]]) -> dict[str, float | None]:
    return {key: known(rate) for key, rate in rates}
