"""What is said when the GPU, its driver or CuPy is not there, by the real worker on doubles of NVML and of
the driver. Without CuPy installed nothing more of a GPU can be had here."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from nvml_double import NvmlDouble
from nvml_scenarios import gpu_uuid, h200, h200_mig, mig_uuid

from roofmon.calibration.cache import gpu_conditions, store
from roofmon.calibration.client import run_worker
from roofmon.calibration.gpu_library import extra_for, import_cupy, prepare_environment
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import MODES
from roofmon.calibration.results import CalibrationResult, roofline_of
from roofmon.errors import ExitCode, RoofmonError
from roofmon.model.roofline import Ceiling, Conditions, Roofline
from roofmon.stream.messages import Message, NoticeMessage, ProgressMessage, Roofs

pytestmark = pytest.mark.usefixtures("own_directories")

without_cupy = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is not None, reason="CuPy is installed"
)


def refused(*arguments: str) -> RoofmonError:
    with pytest.raises(RoofmonError) as caught:
        run_worker(arguments)
    return caught.value


@without_cupy
def test_without_cupy_it_says_what_to_install(gpus: NvmlDouble) -> None:
    gpus.write(h200())
    problem = refused("--device", "auto")
    assert problem.what == "the roofs of a GPU are measured with CuPy, which is not installed"
    assert "pip install 'roofmon[cuda13]'" in problem.fix
    assert "the driver supports CUDA 13.0" in problem.fix
    assert problem.exit_code == ExitCode.NO_DEVICE


@without_cupy
def test_the_extra_follows_the_cuda_of_the_driver() -> None:
    with pytest.raises(RoofmonError, match=r"roofmon\[cuda12\].*supports CUDA 12\.4"):
        import_cupy(12040)
    assert [extra_for(major) for major in (11, 12, 13, 14)] == [
        "cuda12",
        "cuda12",
        "cuda13",
        "cuda13",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("100", "the CUDA driver shows no GPU"),
        ("803", "the CUDA library and the loaded driver are of different versions"),
        ("802", "the fabric manager of this NVSwitch machine is not running"),
        ("999", "the CUDA driver does not start (unknown error)"),
        ("7", "the driver says 7"),
    ],
)
def test_a_driver_that_does_not_start_is_told_in_words(
    gpus: NvmlDouble, monkeypatch: pytest.MonkeyPatch, code: str, what: str
) -> None:
    gpus.write(h200())
    monkeypatch.setenv("ROOFMON_CUDA_INIT", code)
    problem = refused("--device", "0")
    assert what in problem.what
    assert problem.fix
    assert problem.exit_code == ExitCode.NO_DEVICE


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("2", "no memory left for a CUDA context"),
        ("46", "in an exclusive or prohibited compute mode"),
        ("214", "no CUDA context can be made (the driver says 214)"),
    ],
)
def test_a_context_that_cannot_be_made_is_told_in_words(
    gpus: NvmlDouble, monkeypatch: pytest.MonkeyPatch, code: str, what: str
) -> None:
    monkeypatch.setenv("ROOFMON_CUDA_CONTEXT", code)
    program = (
        "from roofmon.calibration.gpu_driver import Driver\n"
        "from roofmon.errors import RoofmonError\n"
        "finish = Driver().create_context(0)\n"
        "try: finish()\n"
        "except RoofmonError as error: print(error)"
    )
    command = [sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    assert what in told


def test_another_device_than_the_one_meant_is_not_measured(
    gpus: NvmlDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.write(h200(2))
    monkeypatch.setenv("ROOFMON_CUDA_UUID", gpu_uuid(1))
    problem = refused("--device", "0")
    assert f"{gpu_uuid(0)} was to be measured, but CUDA shows" in problem.what


@pytest.mark.slow
def test_without_a_driver_a_gpu_cannot_be_chosen_and_auto_is_the_cpu(gpus: NvmlDouble) -> None:
    # No scenario is written: the driver is not loaded.
    assert "not loaded" in refused("--device", "0").what
    received: list[Message] = []
    run_worker(["--device=auto", "--no-cache", "--scale=0.02", "--probe=copy"], received.append)
    told = [m.notice.what for m in received if isinstance(m, NoticeMessage)]
    assert any("measuring the CPU" in what for what in told)
    progress = [m.progress for m in received if isinstance(m, ProgressMessage)]
    assert {p.device.split("-")[0] for p in progress} == {"cpu"}


def test_a_device_that_is_not_there_is_told_with_those_that_are(gpus: NvmlDouble) -> None:
    gpus.write(h200())
    problem = refused("--device", "7")
    assert problem.what == "there is no device '7'"
    assert gpu_uuid(0) in problem.fix
    assert problem.exit_code == ExitCode.NO_DEVICE


def test_a_gpu_that_is_lost_is_told_so(gpus: NvmlDouble) -> None:
    gpus.write(h200(2) | {"gpu1.fail.nvmlDeviceGetUUID": 15})
    problem = refused("--device", gpu_uuid(1))
    assert "GPU is lost" in problem.what
    assert problem.exit_code == ExitCode.NO_DEVICE
    missing = gpu_uuid(7)
    assert f"the NVIDIA driver shows no device {missing}" in refused("--device", missing).what


@pytest.mark.parametrize("device", [gpu_uuid(0), mig_uuid(1)])
def test_kept_roofs_of_a_gpu_need_neither_cupy_nor_cuda(gpus: NvmlDouble, device: str) -> None:
    mig = device.startswith("MIG")
    gpus.write(h200_mig() if mig else h200())
    probes = load_probes()[0]
    conditions = gpu_conditions(
        Conditions(
            device=device,
            driver="580.159.03",
            power_limit_w=700.0,
            ecc=True,
            mig_profile="1g.18gb" if mig else None,
        ),
        probes,
        "full",
    )
    ceiling = Ceiling(
        kind="bandwidth",
        value=4.39e12,
        ci_low=4.38e12,
        ci_high=4.4e12,
        regime="sustained",
        n=20,
        probe="gpu-dram-triad",
        level="dram",
    )
    result = CalibrationResult(
        device=device,
        mode="full",
        roofline=roofline_of([ceiling], probes, conditions),
        measurements=(ceiling,),
        time_unix_s=1e9,
        seconds=5.0,
    )
    store(conditions, result)
    for mode in MODES[:2]:
        received: list[Message] = []
        assert run_worker([f"--device={device}", f"--{mode}"], received.append) == result
        assert [m.roofline for m in received if isinstance(m, Roofs)] == [result.roofline]
    # Another power limit is another roof.
    gpus.set({"gpu0.power_limit_mw": 500000})
    if not mig:
        assert run_cached_only(device) == []


def run_cached_only(device: str) -> list[Roofline]:
    with pytest.raises(RoofmonError, match="gave no roof"):
        run_worker([f"--device={device}", "--cached-only"])
    return []


def ask(expression: str) -> object:
    """What a fresh process, which loads the double, says of `target(device)`."""
    program = (
        "import json\n"
        "from roofmon.calibration.manifest import load_probes\n"
        "from roofmon.calibration.targets import find_target\n"
        "target = lambda device: find_target(device, load_probes()[0], 1.0, lambda notice: None)\n"
        "def batches(target, peer):\n"
        "    made = target.batches(target.probes, peer, 'full', 1.0)\n"
        "    return [[[p.name for p in b.probes], b.arguments[1],\n"
        "             (b.environment or {}).get('CUDA_VISIBLE_DEVICES')] for b in made]\n"
        f"print(json.dumps({expression}))"
    )
    command = [sys.executable, "-c", program]
    answer: object = json.loads(
        subprocess.run(command, capture_output=True, check=True, timeout=20).stdout
    )
    return answer


@pytest.mark.slow
def test_a_second_gpu_is_seen_only_by_the_process_that_copies_to_it(gpus: NvmlDouble) -> None:
    gpus.write(h200(2) | {"gpu0.nvlink_to": "1"})
    here, peer = gpu_uuid(0), gpu_uuid(1)
    assert ask(f"target({here!r}).find_peer()") == [peer, ""]
    alone, linked = ask(f"batches(target({here!r}), {peer!r})")  # type: ignore[misc]
    assert linked == [["gpu-nvlink-copy"], here, f"{here},{peer}"]
    assert alone[1:] == [here, here]
    assert "gpu-dram-triad" in alone[0]
    assert "gpu-nvlink-copy" not in alone[0]
    (cpu,) = ask("batches(target('cpu'), None)")  # type: ignore[misc]
    assert cpu[1:] == ["cpu", None]


def test_tensor_cores_that_a_gpu_does_not_have_are_not_asked_for(gpus: NvmlDouble) -> None:
    gpus.write(h200() | {"gpu0.compute_capability": "8.6"})
    not_applicable: dict[str, str] = ask("target('0').not_applicable")  # type: ignore[assignment]
    assert {name: why for name, why in not_applicable.items() if "gemm" in name} == {
        "gpu-gemm-fp64": "compute capability 8.6 has no fp64 tensor cores"
    }
    # Nor is a counter, where nothing is installed that could sample it.
    installed = importlib.util.find_spec("cupti") is not None
    assert ("gpu-l2-sampled" not in not_applicable) is installed
    assert installed or "roofmon[counters]" in not_applicable["gpu-l2-sampled"]


def test_the_process_that_measures_sees_the_device_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "a library that slows down launches")
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    environment = prepare_environment("GPU-1")
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-1"
    assert not {"CUDA_INJECTION64_PATH", "CUDA_LAUNCH_BLOCKING"} & set(environment)
    assert environment["PATH"] == os.environ["PATH"]


def test_the_command_names_the_fault_and_the_way_out(gpus: NvmlDouble) -> None:
    gpus.write(h200())
    command = [sys.executable, "-m", "roofmon", "calibrate", "--device", "GPU-nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == ExitCode.NO_DEVICE
    assert "there is no device 'GPU-nothing'" in done.stderr
    assert "Traceback" not in done.stderr
