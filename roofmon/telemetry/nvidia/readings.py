"""Asking the driver for one value after another, without asking in vain or more often than it changes."""

import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pynvml as nvml  # type: ignore[import-untyped, unused-ignore]

from roofmon.telemetry.nvidia.library import PERMANENT, raise_if_gone, reason

T = TypeVar("T")


def newest(*calls: Callable[..., Any]) -> Callable[..., Any]:
    """The first of several versions of a call, newest first, that the driver's library has."""

    def call(*arguments: Any) -> Any:
        for one in calls[:-1]:
            try:
                return one(*arguments)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                    raise
        return calls[-1](*arguments)

    return call


class Readings:
    """The values of one device. `missing` says, by field, why the last reading gave none.

    What the driver does not support is found out once. Errors that end the device or the driver are
    raised as NVMLError; all others leave the field without a value.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._refused: dict[str, str] = {}
        self._kept: dict[str, tuple[float, Any, str | None]] = {}
        self._told: set[str] = set()
        self.missing: dict[str, str] = {}

    def read(
        self,
        field: str,
        call: Callable[[], T],
        check: Callable[[T], str | None] | None = None,
        every_s: float = 0.0,
    ) -> T | None:
        """The value of `call`, kept for `every_s` seconds; None where it fails or `check` objects."""
        if field in self._refused:
            self.missing[field] = self._refused[field]
            return None
        now = time.monotonic()
        kept = self._kept.get(field)
        if kept is None or now - kept[0] >= every_s:
            kept = self._kept[field] = now, *self._ask(field, call, check)
        value: T | None = kept[1]
        if kept[2] is None:
            self.missing.pop(field, None)
        else:
            self.missing[field] = kept[2]
        return value

    def accept(self, field: str, value: T, check: Callable[[T], str | None]) -> T | None:
        """`value`, which another reading gave, as that of `field`; None where `check` objects."""
        return self.read(field, lambda: value, check)

    def refuse(self, field: str, why: str) -> None:
        """Never ask for this field again."""
        self._refused[field] = self.missing[field] = why

    def _ask(
        self, field: str, call: Callable[[], T], check: Callable[[T], str | None] | None
    ) -> tuple[T | None, str | None]:
        try:
            value = call()
        except nvml.NVMLError as error:
            raise_if_gone(error)
            problem: str | None = reason(error)
            if error.value in PERMANENT:
                self._refused[field] = reason(error)
        except UnicodeDecodeError:
            problem = "the driver's text cannot be read"
        else:
            problem = check(value) if check else None
            if problem is None:
                return value, None
            self._tell_once(field, problem)
        return None, problem

    def _tell_once(self, field: str, problem: str) -> None:
        if field not in self._told:
            self._told.add(field)
            print(f"roofmon: {self._device}: {field}: {problem}", file=sys.stderr, flush=True)
