import io
import json
import time

import msgspec
import pytest
from rich.console import Console

from roofmon.calibration.manifest import load_probes
from roofmon.calibration.results import CalibrationResult
from roofmon.model.roofline import Ceiling, Conditions, Pipe, Roofline
from roofmon.report.calibration import (
    calibration_json,
    calibration_notes,
    calibration_table,
    probe_lines,
)
from roofmon.telemetry.nvidia.bounds import physical_ceilings

DRAM = Ceiling(
    kind="bandwidth",
    value=40e9,
    ci_low=39e9,
    ci_high=41e9,
    regime="sustained",
    n=25,
    probe="axpy",
    level="dram",
    clock_hz=3.5e9,
)
COPY = Ceiling(
    kind="bandwidth",
    value=30e9,
    ci_low=29e9,
    ci_high=31e9,
    regime="sustained",
    n=25,
    probe="copy",
    level="dram",
    flags=("not-converged", "contended"),
)
FP64 = Ceiling(
    kind="compute",
    value=80e9,
    ci_low=79e9,
    ci_high=81e9,
    regime="gemm",
    n=11,
    probe="gemm-fp64",
    pipe=Pipe("vector", "fp64"),
)
RESULT = CalibrationResult(
    device="cpu-0",
    mode="full",
    roofline=Roofline(ceilings=(DRAM, FP64), conditions=Conditions(device="cpu-0", threads=2)),
    measurements=(COPY, DRAM, FP64),
    failures={"llc-axpy": "the system does not tell the size of the last-level cache"},
    time_unix_s=time.time() - 7200,
    seconds=6.5,
)


def rendered(result: CalibrationResult, width: int = 120) -> list[str]:
    """The lines of the table, and those below it."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(calibration_table(result))
    assert isinstance(console.file, io.StringIO)
    return [*console.file.getvalue().splitlines(), *calibration_notes(result, width)]


def test_the_table_shows_every_measurement_and_marks_the_roofs() -> None:
    lines = rendered(RESULT)
    copy, *flags = [line for line in lines if "copy" in line]
    (axpy,) = [line for line in lines if " axpy" in line]
    assert "30.0 GB/s" in copy
    assert "3.33 %" in copy  # 29 … 31
    assert [flag.split(" (")[0] for flag in flags] == ["not converged", "contended"]
    assert all(flag.endswith("): copy") for flag in flags)
    assert "n/a" in copy  # its clock
    assert "●" not in copy
    assert axpy.startswith("●")
    assert "3.50 GHz" in axpy
    assert "● roof   measured 2 h ago in 6.5 s" in lines
    assert lines[-2:] == ["ridge points over DRAM:", "  fp64    2.00 FLOP/byte"]  # 80 over 40 G/s
    assert "llc-axpy: the system does not tell the size of the last-level cache" in lines


def test_the_roof_of_sampled_bytes_stands_beside_that_of_requested_ones() -> None:
    requested = msgspec.structs.replace(DRAM, value=9.6e12, probe="gpu-l2-read", level="l2")
    sampled = msgspec.structs.replace(
        requested, value=14.4e12, probe="gpu-l2-sampled", counts="lts__t_bytes"
    )
    roofs = (requested, sampled, FP64)
    result = msgspec.structs.replace(
        RESULT, roofline=Roofline(ceilings=roofs), measurements=roofs, failures={}
    )
    lines = [" ".join(line.split()) for line in rendered(result)]
    assert any(line.startswith("● gpu-l2-read L2 9.60 TB/s") for line in lines)
    assert any(line.startswith("● gpu-l2-sampled L2 sampled 14.4 TB/s") for line in lines)
    document = calibration_json(result)
    assert [m["counts"] for m in document["measurements"][:2]] == ["requested", "lts__t_bytes"]
    ridges = {r["counts"]: r["flop_per_byte"] for r in document["ridge_points"]}
    assert ridges == {
        "requested": pytest.approx(80e9 / 9.6e12),
        "lts__t_bytes": pytest.approx(80e9 / 14.4e12),
    }
    without = msgspec.structs.replace(result, not_applicable={"gpu-l2-sampled": "ncu (7) runs"})
    assert "gpu-l2-sampled: n/a, ncu (7) runs" in rendered(without)


def test_the_json_has_the_same_values_and_null_for_the_unknown() -> None:
    value = json.loads(json.dumps(calibration_json(RESULT)))
    assert value["schema"] == "roofmon.calibration/1"
    copy, axpy, fp64 = value["measurements"]
    assert (copy["value"], copy["ci_low"], copy["ci_high"], copy["n"]) == (30e9, 29e9, 31e9, 25)
    assert copy["clock_hz"] is None
    assert [m["roof"] for m in (copy, axpy, fp64)] == [False, True, True]
    assert (axpy["level"], fp64["pipe"]) == ("dram", {"unit": "vector", "precision": "fp64"})
    assert value["ridge_points"] == [
        {
            "level": "dram",
            "counts": "requested",
            "pipe": {"unit": "vector", "precision": "fp64"},
            "flop_per_byte": 2.0,
        }
    ]
    assert value["conditions"]["threads"] == 2
    assert value["conditions"]["ecc"] is None
    assert list(value["failures"]) == ["llc-axpy"]


def test_the_list_names_every_probe() -> None:
    probes, _ = load_probes()
    lines = list(probe_lines(probes))
    assert [line.split()[0] for line in lines[::3]] == [probe.name for probe in probes]
    triad = next(n for n, line in enumerate(lines) if line.startswith("gpu-dram-triad "))
    assert lines[triad].split(maxsplit=2)[1:] == ["DRAM", "48 byte/element, quick"]
    assert lines[triad + 1] == "    DRAM triad: a ← b + s·c"
    assert lines[triad + 2].startswith("    STREAM triad, McCalpin 1995, https://")
    copy = next(line for line in lines if line.startswith("gpu-dram-copy "))
    assert copy.endswith("32 byte/element, not a roof")


H200 = CalibrationResult(
    device="GPU-1",
    mode="full",
    roofline=Roofline(
        ceilings=(
            msgspec.structs.replace(DRAM, value=4.393e12, memory_clock_hz=3.201e9, probe="triad"),
            Ceiling(
                kind="bandwidth",
                value=9.6e12,
                ci_low=9.5e12,
                ci_high=9.7e12,
                regime="sustained",
                n=20,
                probe="l2",
                level="l2",
            ),
            Ceiling(
                kind="compute",
                value=753e12,
                ci_low=750e12,
                ci_high=756e12,
                regime="gemm",
                n=20,
                probe="bf16",
                pipe=Pipe("tensor", "bf16"),
                clock_hz=1.6e9,
                event_reasons=("power cap",),
                flags=("power-capped",),
            ),
        )
    ),
    measurements=(),
    not_applicable={"gpu-nvlink-copy": "no second GPU is visible"},
    bounds=physical_ceilings(
        compute_capability="9.0",
        sms=132,
        sm_clock_hz=1.98e9,
        dram_bytes_per_s=4.814e12,
        memory_clock_hz=3.201e9,
    ),
    phases={"import of CuPy": 0.7},
    time_unix_s=time.time() - 30,
    seconds=5.2,
)
H200 = msgspec.structs.replace(H200, measurements=H200.roofline.ceilings)


def test_a_gpus_table_has_shares_of_the_bound_and_what_limits_the_clock() -> None:
    lines = rendered(H200)
    (triad,) = [line for line in lines if " triad " in line]
    (l2,) = [line for line in lines if " l2 " in line]
    (bf16,) = [line for line in lines if "753 TFLOP" in line]
    assert "91 %" in triad  # 4.393 of 4.814 TB/s
    assert "n/a" in l2  # no bound is known
    assert "87 %" in bf16  # of 132 × 4096 × 1.6 GHz = 865 TFLOP/s; of 1070 at the boost clock 70 %
    assert "power cap: bf16" in lines
    assert not any("capped" in line for line in lines), "the flag says what the reason does"
    assert lines[-2:] == ["ridge points over DRAM:", "  bf16     171 FLOP/byte"]  # 753 / 4.393
    assert "gpu-nvlink-copy: n/a, no second GPU is visible" in lines


CAPPED = [f"gpu-gemm-{precision}" for precision in ("fp64", "tf32", "fp16", "bf16")]
FULL = msgspec.structs.replace(
    H200,
    measurements=(
        msgspec.structs.replace(H200.measurements[0], probe="gpu-dram-triad"),
        msgspec.structs.replace(COPY, probe="gpu-pcie-h2d", level="pcie_h2d"),
        msgspec.structs.replace(
            FP64, probe="gpu-imad-int32", value=33.3e12, pipe=Pipe("vector", "int32")
        ),
        *(
            msgspec.structs.replace(
                H200.measurements[2], probe=name, pipe=Pipe("tensor", name.rpartition("-")[2])
            )
            for name in CAPPED
        ),
    ),
)
FULL = msgspec.structs.replace(FULL, roofline=Roofline(ceilings=FULL.measurements))


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_cut_or_broken_within_a_word(width: int) -> None:
    lines = rendered(FULL, width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    for ceiling in FULL.measurements:
        [row] = [line for line in lines if f" {ceiling.probe} " in line and "/s" in line]
        assert ceiling.name in row
    # Most probes share the power cap: it comes first, and its names are whole.
    below = lines[lines.index(next(line for line in lines if "measured" in line)) + 1 :]
    end = next(n for n, line in enumerate(below) if line.startswith("not converged"))
    assert " ".join(" ".join(below[:end]).split()) == f"power cap: {', '.join(CAPPED)}"
    assert below[end].endswith("): gpu-pcie-h2d")


def test_integer_operations_are_no_flops() -> None:
    lines = rendered(FULL)
    [row] = [line for line in lines if " gpu-imad-int32 " in line]
    assert " 33.3 TOP/s " in row
    # 33.3 / 4.393; that of fp64 is in FLOP/byte.
    assert "  int32          7.58 OP/byte" in lines
    assert "  fp64 tensor     171 FLOP/byte" in lines
    probes, _ = load_probes()
    [listed] = [line for line in probe_lines(probes) if line.startswith("gpu-imad-int32")]
    assert "OP/iteration" in listed
    assert "FLOP" not in listed


def test_the_json_of_a_gpu_says_what_the_table_does() -> None:
    value = json.loads(json.dumps(calibration_json(H200)))
    shares = [m["share_of_bound"] for m in value["measurements"]]
    assert shares[0] == pytest.approx(4.393 / 4.814)
    assert shares[1] is None
    assert shares[2] == pytest.approx(753e12 / (132 * 4096 * 1.6e9))
    assert value["not_applicable"] == {"gpu-nvlink-copy": "no second GPU is visible"}
    assert value["phases_s"] == {"import of CuPy": 0.7}
    assert len(value["ridge_points"]) == 2
