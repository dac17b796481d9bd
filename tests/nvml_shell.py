"""A process with the real nvidia-ml-py: expressions go in, values or what they raised come back."""

import json
import os
import subprocess
import sys

from nvml_double import NvmlDouble

# Evaluates a line of Python with nvidia-ml-py in scope; prints its value, or what it raised:
# the code of an NVMLError, the name of anything else.
SHELL = """
import json, sys, threading, time
from pynvml import *

def shown(value):
    return {n: getattr(value, n) for n, *_ in value._fields_} if hasattr(value, "_fields_") else (
        vars(value) if hasattr(value, "__dict__") else repr(value))

def metrics(first, second, *ids):
    request = c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = NVML_GPM_METRICS_GET_VERSION, len(ids)
    request.sample1, request.sample2 = first, second
    for n, id in enumerate(ids):
        request.metrics[n].metricId = id
    nvmlGpmMetricsGet(request)
    return [(m.nvmlReturn, m.value) for m in request.metrics[: len(ids)]]

for line in sys.stdin:
    try:
        answer = {"value": eval(line)}
    except Exception as error:
        answer = {"raised": getattr(error, "value", type(error).__name__)}
    print(json.dumps(answer, default=shown), flush=True)
"""


class Shell:
    """One such process. `gpu0 := …` keeps a value there."""

    def __init__(self, nvml: NvmlDouble) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SHELL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **nvml.env},
            text=True,
        )

    def __call__(self, expression: str) -> object:
        answer = self._ask(expression)
        assert "raised" not in answer, f"{expression}: {answer['raised']}"
        return answer["value"]

    def _ask(self, expression: str) -> dict[str, object]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"({expression})\n")
        self._process.stdin.flush()
        answer: dict[str, object] = json.loads(self._process.stdout.readline())
        return answer

    def code(self, expression: str) -> object:
        """The return code of a call: 0 for success, a name for what is no error of NVML's."""
        return self._ask(expression).get("raised", 0)

    def open(self, gpus: int = 1) -> None:
        self("nvmlInit()")
        for index in range(gpus):
            self(f"gpu{index} := nvmlDeviceGetHandleByIndex({index})")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
