"""Samples from a file in place of a GPU, as fast as they were taken: to look into attribution anywhere."""

import time
from pathlib import Path

import numpy as np

from roofmon.counters.samples import Samples
from roofmon.errors import ExitCode, RoofmonError

_MOST = 2_000  # samples at a time


class RecordedSampler:
    """Plays samples of one file; gaps in it take no time.

    The file is an .npz with `metrics` (c,), `start_ns` and `end_ns` (s,) and `values` (s, c). Raises
    RoofmonError where it is not.
    """

    read_s = 0.25

    def __init__(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as file:
                metrics = tuple(str(name) for name in file["metrics"])
                start, end = (file[name].astype(np.int64) for name in ("start_ns", "end_ns"))
                values = file["values"].astype(np.float64)
            if not (len(start) == len(end) and values.shape == (len(start), len(metrics))):
                raise ValueError("its arrays do not fit each other")
        except (OSError, ValueError, KeyError, EOFError) as error:
            what = f"{path} is no recording of samples: {error}"
            fix = "it needs the arrays metrics, start_ns, end_ns and values"
            raise RoofmonError(what, fix, ExitCode.USAGE) from None
        self._samples = Samples(metrics, start, end, values)
        self._played = np.cumsum(end - start) / 1e9
        self._given, self._begun = 0, time.monotonic()
        self.metrics = metrics
        self.interval_us = round(float(np.median(end - start)) / 1e3) if len(start) else 0
        self.overflows = self.gaps = 0

    @property
    def ended(self) -> bool:
        """Whether all of it was played."""
        return self._given == len(self._samples)

    def read(self) -> Samples:
        """What came since the last call."""
        due = int(np.searchsorted(self._played, time.monotonic() - self._begun, side="right"))
        first, self._given = self._given, min(max(due, self._given), self._given + _MOST)
        return self._samples.take(slice(first, self._given))

    def close(self) -> None:
        """Nothing is held."""
