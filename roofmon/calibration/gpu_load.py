"""Who else works on the GPU while it is measured, and the clocks that it holds meanwhile, by NVML."""

import os
import time

from roofmon.telemetry.nvidia.calibration_readings import CalibrationReadings, process_name
from roofmon.telemetry.nvidia.events import event_words
from roofmon.telemetry.nvidia.processes import Use

BUSY = 0.05
"""Share of the SMs' time above which another process lowers a result by more than its interval."""

_PERIOD_US = 1_000_000  # the driver's samples are at most this far apart
_LOOK_S = 0.05
_POWER_BITS = 0x4 | 0x80  # software power cap, power brake
_THERMAL_BITS = 0x20 | 0x40
_IDLE_BIT = 0x1


class GpuLoad:
    """Tells what other processes do on a GPU. To be made before our context is.

    Where we do not find ourselves among the processes (containers hide them, or give all of them one
    number), only the load before our own can be told from theirs, and stands for all of it.
    """

    resource = "GPU"
    prompt = False

    def __init__(self, readings: CalibrationReadings) -> None:
        self._readings = readings
        self._since_us = _now_us() - _PERIOD_US
        self._began_us = _now_us()
        self._before = self._seen = self._running()
        self._busy_before = self._is_busy()
        self._own = frozenset([os.getpid()])
        self._blind = False  # we cannot tell our own number
        self._hidden_load = False
        self._worst: Use | None = None

    def look(self) -> None:
        """Take in what went on so far: to be called when our context is made and has done nothing."""
        running = self._running()
        if os.getpid() not in running:
            # In a container with numbers of its own ours is another one.
            self._own |= running - self._before
            self._blind = running <= self._before
        # What has ended disturbs nobody; it may have been a calibration of ours.
        self._own |= self._before - running
        use = self._use()
        self._note(use)
        self._hidden_load = not use and self._busy_before and self._stays_busy()

    def _stays_busy(self) -> bool:
        """Whether the GPU is busy beyond what the driver may still tell of work that has ended."""
        end = time.monotonic() + _PERIOD_US / 1e6
        while self._is_busy():
            if time.monotonic() > end:
                return True
            time.sleep(_LOOK_S)
        return False

    def begin(self) -> None:
        """A probe begins."""
        self._began_us = _now_us()

    def contended(self) -> bool:
        """Whether others worked since `begin`, as far as the driver tells already."""
        return self.contended_late(self._began_us, _now_us())

    def contended_late(self, began_us: int, ended_us: int) -> bool:
        """The same for some time before. A sample stands for up to `_PERIOD_US` around it."""
        first, last = began_us - _PERIOD_US, ended_us + _PERIOD_US
        during = [one for one in self._use() if first <= one.time_us <= last]
        self._note(during)
        return self._hidden_load or bool(during)

    def culprit(self) -> str | None:
        """The process that used the GPU most; None where none was seen."""
        if self._worst is None:
            return None
        name = process_name(self._worst.pid) or "a process"
        return f"{name} (process {self._worst.pid}, {100 * self._worst.share:.0f} % of the SMs)"

    def _use(self) -> list[Use]:
        """What others did so far, as far as it counts.

        Samples come late. One of a process that we never saw running is of one that ended before.
        """
        if self._blind:
            return []
        self._seen |= self._running()
        use = self._readings.use_by_others(self._since_us, self._own) or []
        return [one for one in use if one.pid in self._seen and one.share > BUSY]

    def _running(self) -> frozenset[int]:
        return frozenset(process.pid for process in self._readings.processes())

    def _is_busy(self) -> bool:
        return (self._readings.busy() or 0.0) > BUSY

    def _note(self, use: list[Use]) -> None:
        for one in use:
            if self._worst is None or one.share > self._worst.share:
                self._worst = one


class HeldClocks:
    """Clocks and clock-event reasons from `reset` on."""

    def __init__(self, readings: CalibrationReadings) -> None:
        self._readings = readings
        self._bits = 0

    def reset(self) -> None:
        """Forget the reasons of before."""
        self._bits = 0

    def read(self) -> float | None:
        """The SM clock in Hz now; the reasons now are noted. For `time_launches`."""
        self._bits |= self._readings.event_bits()
        return self._readings.clock_hz()

    def memory_clock_hz(self) -> float | None:
        """The memory clock now."""
        return self._readings.memory_clock_hz()

    def reasons(self) -> tuple[str, ...]:
        """Why the SM clock was not higher, in words; an idle moment between launches is none."""
        return event_words(self._bits & ~_IDLE_BIT)

    def flags(self) -> tuple[str, ...]:
        """`power-capped`, `thermal`."""
        capped = ("power-capped",) if self._bits & _POWER_BITS else ()
        return (*capped, *(("thermal",) if self._bits & _THERMAL_BITS else ()))


def _now_us() -> int:
    return time.time_ns() // 1000
