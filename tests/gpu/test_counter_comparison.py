"""What the benchmark of the counters makes of snapshots, recordings and ncu's tables; needs no GPU."""

import math
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "counters"))
import numpy as np
import pytest
from counter_accuracy import (
    Line,
    Mixed,
    Part,
    Sampled,
    parts_of,
    text_of,
    total_bytes,
    total_flops,
    verdict_of_mix,
)
from counter_ncu import base_name, ncu_bytes, ncu_kernels
from counter_recording import Recorded, read, replay, write
from made_up_device import EIGHT, run_device, shuffled

from roofmon.model.kernel import KernelDescription
from roofmon.model.snapshot import Snapshot
from roofmon.model.table import Column, KernelTable, WorkColumn
from roofmon.model.work import Provenance

HARD_MIX = Path(__file__).parents[1] / "counters" / "data" / "h200_hard_mix.npz"
HEAD = '"ID","Kernel Name","Block Size","Grid Size"'
GEMM = "void x::(anonymous namespace)::gemm<float, (int)4>(float *)"
LONG = f"""==PROF== Connected to process 1
{HEAD},"Section Name","Metric Name","Metric Unit","Metric Value"
"0","{GEMM}","(128, 1, 1)","(64, 2, 1)","C","dram__bytes_read.sum","byte","1,000,000"
"0","{GEMM}","(128, 1, 1)","(64, 2, 1)","C","dram__bytes_write.sum","Kbyte","500"
"1","{GEMM}","(128, 1, 1)","(64, 2, 1)","C","dram__bytes_read.sum","byte","n/a"
"""
WIDE = f"""{HEAD},"dram__bytes_read.sum","dram__bytes_write.sum"
"","","","","Mbyte","byte"
"0","nvjet_sm90_NNT","(384, 1, 1)","(132, 1, 1)","1.5","7"
"""


def kernel(number, name="gemm", grid=(64, 2, 1), **more):
    return KernelDescription(
        id=number, name=name, device="GPU-0", grid=grid, block=(128, 1, 1), **more
    )


def snapshot(values, flops, reasons=({}, {}, {})):
    """Three kernels; NaN where counters do not tell."""
    described = tuple(kernel(n, reasons=r) for n, r in zip((4, 7, 9), reasons, strict=True))
    errors = np.full(3, 0.01)
    work = (
        WorkColumn("bytes", "dram", Provenance.SAMPLED, np.array(values), errors),
        WorkColumn("bytes", "dram", Provenance.DECLARED, np.full(3, 1e12), errors),
        WorkColumn("flops", "tensor/bf16", Provenance.SAMPLED, np.array(flops), errors),
    )
    table = KernelTable(described, np.ones((len(Column), 3)), work)
    return Snapshot(host="", time_unix_ns=0, kernels=table)


def test_a_workload_is_the_kernels_that_it_launches_each_time() -> None:
    seen = snapshot([3e8, 5e6, math.nan], [math.nan, 2e9, math.nan])
    # 4 is launched twice an iteration, 7 once, 9 only at the start.
    parts = parts_of(seen, {4: 200, 7: 100, 9: 3}, 100)
    assert [(p.description.id, p.per_iteration) for p in parts] == [(4, 2.0), (7, 1.0)]
    total = total_bytes(parts)
    assert total.value == 605e6
    assert total.error == pytest.approx(0.01)
    assert total_flops(parts, "tensor/bf16").value == 2e9
    assert math.isnan(total_flops(parts, "tensor/fp8").value)
    with_ninth = total_bytes(parts_of(seen, {4: 200, 9: 100}, 100))
    assert (with_ninth.value, with_ninth.missing) == (600e6, 1)


def test_lines_say_what_was_missed() -> None:
    line = Line("add, MB", 100e6, 102e6, 0.004, 0.03)
    assert text_of(line).split() == [
        "add,",
        "MB",
        "100.0",
        "102.0",
        "1.0200",
        "0.4",
        "%",
        "3",
        "%",
        "ok",
    ]
    assert replace(line, found=96e6).verdict == "MISSED"
    assert replace(line, found=math.nan).verdict == "MISSED (n/a)"
    assert replace(line, goal=None).verdict == ""


@pytest.mark.parametrize(
    ("first", "good"),
    [
        (Sampled(102e6), True),
        (Sampled(104e6), False),
        (Sampled(), False),  # no value, and nobody says why
        (Sampled(note="known only together with 1 other kernel"), True),
        (Sampled(150e6, contended="python 12 used the GPU beside it"), True),
        (Sampled(150e6, note="known only together with 1 other kernel: at l2"), False),
    ],
)
def test_every_large_kernel_of_a_mix_is_right_or_marked(first, good) -> None:
    mixed = [Mixed("a", 100e6, 10, first), Mixed("tiny", 1e6, 10, Sampled(9e6))]
    words, found = verdict_of_mix(mixed, 0.05, 0.03)
    assert found is good
    assert words.startswith("1 kernels")
    assert not verdict_of_mix([], 0.05, 0.03)[1]


def test_both_forms_of_ncu_are_read() -> None:
    (gemm,) = ncu_kernels(LONG)
    assert (gemm.name, gemm.grid, gemm.block) == ("gemm", (64, 2, 1), (128, 1, 1))
    assert gemm.bytes == 1.5e6
    (wide,) = ncu_kernels(WIDE)
    assert (wide.name, wide.bytes) == ("nvjet_sm90_NNT", 1_500_007)
    assert ncu_kernels("==ERROR== no kernels were profiled") == []
    mine = Part(kernel(1, full_name="void x::gemm<float>(float*)"), 2.0, Sampled())
    assert ncu_bytes([gemm], [mine]) == 3e6
    other = Part(kernel(2, full_name="void x::gemm<float>(float*)", grid=(1, 1, 1)), 1.0, Sampled())
    assert math.isnan(ncu_bytes([gemm], [mine, other]))
    assert base_name("void at::<unnamed>::softmax<float, 11>(T2 *)") == "softmax"
    assert base_name("splitKreduce_kernel") == "splitKreduce_kernel"


def test_a_recording_is_read_back_and_attributed(tmp_path) -> None:
    run = run_device(0.4, EIGHT, shuffled(8), seed=41)
    made = run.samples(2e5, noise=0.005)
    write_too = np.concatenate([made.values[:, :1] / 2] * 2, axis=1)
    samples = replace(
        made, metrics=("dram__bytes_read.sum", "dram__bytes_write.sum"), values=write_too
    )
    launches = run.launches()
    launches = launches.take(np.argsort(launches.start_ns))
    begin, end = int(samples.start_ns[0]), int(samples.end_ns[-1]) - 1_000_000
    span = {"start_ns": begin, "end_ns": end}
    names = [f"k{number}" for number in range(8)]
    phases = [
        {"name": name, **span, "iterations": 1, "kernel": number, "solo": EIGHT[number].bytes}
        for number, name in enumerate(names)
    ]
    counts = np.bincount(launches.kernel, minlength=8).tolist()
    of_mix = {"launches": dict(zip(names, counts, strict=True)), "foreign": False}
    phases.append({"name": "mix of 1", **span, **of_mix})
    path = tmp_path / "recording"
    size = write(path, Recorded(samples, launches, names, phases))
    assert 0 < size == path.stat().st_size
    back = read(path)
    np.testing.assert_array_equal(back.samples.start_ns, samples.start_ns)
    np.testing.assert_array_equal(back.launches.end_ns, launches.end_ns)
    np.testing.assert_allclose(back.samples.values, samples.values, rtol=1e-6)
    words, good = verdict_of_mix(replay(back)["mix of 1"], 0.05, 0.03)
    assert good, words


@pytest.mark.parametrize("factor", [1, 2], ids=["0.5 ms", "1 ms"])
def test_a_recorded_mix_of_an_h200_is_right_or_marked(factor) -> None:
    """Eight kernels of 5 to 250 µs (`bench_counters.py --record`); another recording was tuned on."""
    mixes = replay(read(HARD_MIX), factor)
    assert list(mixes) == ["mix of 1", "mix of 2", "mix of 1, beside"]
    for name, mixed in mixes.items():
        words, good = verdict_of_mix(mixed, 0.05, 0.03)
        assert good, f"{name}: {words}"
        if "beside" not in name:  # nothing is called contended that is not
            assert not any(m.sampled.contended or m.sampled.note for m in mixed[:7])
