"""Which launch parameters and which variants of the code are fastest on this GPU.

    python tests/gpu/bench_calibration.py --only tune

measures the bundled CUDA probes with other blocks, grids, working sets and constants, through the same
launchers as a calibration, and prints the best beside what the manifest says.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from roofmon.calibration import gpu_sizes
from roofmon.calibration.ceilings import share_of_bound
from roofmon.calibration.gpu_bench import GpuBench
from roofmon.calibration.gpu_device import Gpu
from roofmon.calibration.gpu_load import HeldClocks
from roofmon.calibration.manifest import load_probes
from roofmon.calibration.probe import Probe
from roofmon.model.roofline import Ceiling
from roofmon.resources import probes_dir
from roofmon.telemetry.nvidia.calibration_readings import CalibrationReadings

SHOWN = 5

TILED = (
    (
        "    const u64 stride = (u64)gridDim.x * blockDim.x;\n"
        "    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;\n"
    ),
    (
        "    const u64 stride = blockDim.x;\n"
        "    const u64 tile = (n - 1) / ((u64)gridDim.x * blockDim.x) * blockDim.x + blockDim.x;\n"
        "    u64 i = blockIdx.x * tile + threadIdx.x;\n"
        "    n = min(n, (blockIdx.x + 1) * tile);\n"
    ),
)
STREAMING_LOADS = ("{ return *p; }", "{ return __ldcs(p); }")
STREAMING_STORES = ("{ *p = value; }", "{ __stcs(p, value); }")
NO_ALLOCATE = (
    "value[j] = __ldcg(data + i);",
    'asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"'
    ' : "=r"(value[j].x), "=r"(value[j].y), "=r"(value[j].z), "=r"(value[j].w) : "l"(data + i));',
)
ONE_BLOCK = ("__launch_bounds__(1024, 2)", "__launch_bounds__(1024)")

FULL_SM = [(256, 8), (512, 4), (1024, 2)]
HALF_SM = [(256, 4), (512, 2), (1024, 1)]


@dataclass(frozen=True)
class Variant:
    """A probe with other keys, other text in its source, or another share of L2."""

    label: str
    keys: Mapping[str, object] = field(default_factory=dict)
    edits: tuple[tuple[str, str], ...] = ()
    l2_share: float | None = None

    def of(self, probe: Probe) -> Probe:
        text = probe.source_text
        for old, new in self.edits:
            assert old in text, f"{probe.code} has no {old!r}"
            text = text.replace(old, new)
        return msgspec.structs.replace(probe, source_text=text, **self.keys)


def constant(name: str, now: int, other: int) -> tuple[str, str]:
    return f"const u32 {name} = {now};", f"const u32 {name} = {other};"


def stream_variants(probe: Probe) -> Iterator[Variant]:
    for block in (128, 256, 512, 1024):
        for each in (1, 2, 4, 8):
            keys = {"block": block, "elements_per_thread": each}
            yield Variant(f"block {block}, {each} a thread", keys)
    for block, blocks in FULL_SM:
        grid = {"block": block, "elements_per_thread": None, "blocks_per_sm": blocks}
        yield Variant(f"block {block}, {blocks} an SM", grid)
    for block, each in ((256, 4), (512, 4), (1024, 1)):
        keys = {"block": block, "elements_per_thread": each}
        label = f"block {block}, {each} a thread"
        yield Variant(f"{label}, tiled", keys, (TILED,))
        yield Variant(f"{label}, streaming stores", keys, (STREAMING_STORES,))
        yield Variant(f"{label}, streaming", keys, (STREAMING_LOADS, STREAMING_STORES))


def reread_variants(probe: Probe) -> Iterator[Variant]:
    for block, blocks in [*FULL_SM, *HALF_SM, (512, 3)]:
        keys = {"block": block, "blocks_per_sm": blocks}
        yield Variant(f"block {block}, {blocks} an SM", keys)
    for loads in (2, 8):
        for block, blocks in ((1024, 1), (512, 2), (256, 4)):
            keys = {"block": block, "blocks_per_sm": blocks}
            edits = (constant("LOADS", 4, loads), ONE_BLOCK)
            yield Variant(f"block {block}, {blocks} an SM, {loads} loads", keys, edits)
    yield Variant("ld.global.L1::no_allocate", edits=(NO_ALLOCATE,))
    for share in (1 / 8, 1 / 6, 1 / 4, 0.4, 1 / 2, 2 / 3):
        yield Variant(f"{share:.3f} of L2", l2_share=share)


def l1_variants(probe: Probe) -> Iterator[Variant]:
    for block, blocks in [*FULL_SM, *HALF_SM]:
        yield Variant(f"block {block}, {blocks} an SM", {"block": block, "blocks_per_sm": blocks})
    for loads in (8, 32):
        edits = (constant("LOADS", 16, loads), constant("APART", 64, 32))
        for block, blocks in ((1024, 2), (1024, 1)):
            keys = {"block": block, "blocks_per_sm": blocks, "bytes_per_element": 16 * loads}
            bounds = (ONE_BLOCK,) if blocks == 1 else ()
            label = f"block {block}, {blocks} an SM, {loads} loads"
            yield Variant(label, keys, (*edits, *bounds))


def fma_variants(probe: Probe) -> Iterator[Variant]:
    pair = 2 if probe.precision == "fp16" else 1
    for block, blocks in [*FULL_SM, *HALF_SM]:
        yield Variant(f"block {block}, {blocks} an SM", {"block": block, "blocks_per_sm": blocks})
    for chains, steps in ((8, 16), (8, 32), (8, 128), (4, 64), (6, 64), (10, 64)):
        keys = {"flops": f"{2 * pair}*{chains}*{steps}"}
        edits = (constant("CHAINS", 8, chains), constant("STEPS", 64, steps))
        yield Variant(f"{chains} chains of {steps} steps", keys, edits)


VARIANTS = {
    "dram.cu": stream_variants,
    "l2.cu": reread_variants,
    "l1.cu": l1_variants,
    "fma.cu": fma_variants,
}


@contextmanager
def l2_share(share: float | None) -> Iterator[None]:
    """Reread sets of another size, for as long as it lasts."""
    before = gpu_sizes.L2_SHARE
    gpu_sizes.L2_SHARE = before if share is None else share
    yield
    gpu_sizes.L2_SHARE = before


def tune(bench: GpuBench, bounds: tuple[Ceiling, ...], probe: Probe) -> None:
    """Measure all variants of a probe and print the best."""
    measured: list[tuple[float, str]] = []
    variants = [Variant("as in the manifest"), *VARIANTS[probe.code or ""](probe)]
    for variant in variants:
        try:
            with l2_share(variant.l2_share):
                ceiling = bench.measure(variant.of(probe))
        except Exception as error:
            print(f"  {variant.label}: {error}")
            if bench.broken():
                raise
            continue
        share = share_of_bound(ceiling, bounds)
        bound = "" if share is None else f", {share:.4f} of the bound at its clock"
        half = (ceiling.ci_high - ceiling.ci_low) / 2 / ceiling.value
        clock = f"{(ceiling.clock_hz or 0) / 1e6:.0f} MHz"
        text = f"{ceiling.value / 1e12:8.4f} T/s{bound} ±{half:.2%} {clock}  {variant.label}"
        measured.append((ceiling.value, text))
    print(f"{probe.name}, the best of {len(measured)}:")
    for _, text in sorted(measured, reverse=True)[:SHOWN]:
        print(f"  {text}")
    print(f"  {measured[0][1]}", flush=True)


def main(uuid: str, names: list[str]) -> int:
    """Tune the bundled probes whose names hold one of `names`; all without any."""
    readings = CalibrationReadings(uuid)
    limits = readings.limits()
    bench = GpuBench(Gpu(uuid), "quick", HeldClocks(readings), limits)
    bench.warm_up()
    for probe in load_probes([probes_dir()])[0]:
        if probe.code in VARIANTS and any(name in probe.name for name in names or [""]):
            tune(bench, limits.ceilings, probe)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
