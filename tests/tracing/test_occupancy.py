"""Theoretical occupancy against launches worked out by hand, and against CUDA's own calculator."""

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from roofmon.tracing.occupancy import LIMITS, Limits, limits_of, occupancy
from roofmon.tracing.trace_protocol import Device

KIB = 1024


@pytest.mark.parametrize(
    ("capability", "launch", "fraction", "limiter"),
    [
        # 40 registers × 32 = 1280 a warp; 16384 of a partition hold 12 warps, 48 of 64: 12 blocks of 4.
        ("9.0", (128, 40, 0), 48 / 64, "registers"),
        # 32 × 32 = 1024: 16 warps a partition, all 64 of them.
        ("9.0", (128, 32, 0), 1.0, ""),
        # 33 rounds to 1280, since registers come in units of 256 a warp.
        ("9.0", (128, 33, 0), 48 / 64, "registers"),
        # One warp a block: 32 blocks, of 64 warps.
        ("9.0", (32, 16, 0), 32 / 64, "blocks per SM"),
        # 48 KiB and the reserved 1 KiB: 228 / 49 = 4 blocks of 8 warps.
        ("9.0", (256, 32, 48 * KIB), 32 / 64, "shared memory"),
        # nvjet of cuBLAS: 384 threads, 168 registers: 5376 a warp, 3 warps a partition, one block of 12.
        # Its 201 KiB fit once into 228 as well.
        ("9.0", (384, 168, 200 * KIB), 12 / 64, "registers and shared memory"),
        # 1024 threads do not go twice into 1536.
        ("8.6", (1024, 32, 0), 32 / 48, "block size"),
        ("8.9", (96, 32, 0), 48 / 48, ""),
        # 33 threads are two warps.
        ("8.0", (33, 32, 0), 64 / 64, ""),
        # Volta reserves nothing: 48 KiB twice in 96 KiB.
        ("7.0", (512, 32, 48 * KIB), 32 / 64, "shared memory"),
        ("7.5", (256, 64, 0), 32 / 32, ""),
        # 100 KiB hold 3 blocks of 24.5 → 24.5 + 1 KiB: 25.5 KiB.
        ("12.0", (128, 32, 24 * KIB + 512), 12 / 48, "shared memory"),
    ],
)
def test_occupancy_worked_out_by_hand(capability, launch, fraction, limiter):
    found = occupancy(LIMITS[capability], *launch)
    assert (found.fraction, found.limiter) == (fraction, limiter)


def test_what_the_driver_set_aside_for_shared_memory_counts():
    # 100 KiB of 228 were set aside: two blocks of 49 KiB and not four.
    found = occupancy(LIMITS["9.0"], 256, 32, 48 * KIB, 100 * KIB)
    assert (found.fraction, found.limiter) == (16 / 64, "shared memory")
    assert occupancy(LIMITS["9.0"], 256, 32, 48 * KIB, 8 * KIB).fraction == 32 / 64


@pytest.mark.parametrize(
    ("launch", "word"),
    [
        ((1024, 128, 0), "registers"),
        ((32, 300, 0), "registers"),
        ((0, 32, 0), "0 threads"),
        ((128, 32, 300 * KIB), "shared memory"),
        ((4096, 16, 0), "block size"),
    ],
)
def test_an_impossible_launch_has_no_occupancy_but_a_reason(launch, word):
    found = occupancy(LIMITS["9.0"], *launch)
    assert found.fraction is None
    assert word in found.reason


def test_limits_told_by_the_driver_win_over_the_table():
    device = Device(index=0, uuid="", name="", compute_capability=(9, 0), sm_count=132)
    assert limits_of(device) == LIMITS["9.0"]
    small = Device(
        index=0,
        uuid="",
        name="",
        compute_capability=(9, 0),
        sm_count=16,
        max_threads_per_sm=1024,
        max_blocks_per_sm=8,
        registers_per_sm=32768,
        shared_per_sm=64 * KIB,
        shared_reserved_per_block=2 * KIB,
    )
    assert limits_of(small) == Limits(
        warps=32, blocks=8, registers=32768, shared_bytes=64 * KIB, shared_reserved=2 * KIB
    )
    unknown = Device(index=0, uuid="", name="", compute_capability=(99, 0), sm_count=1)
    assert limits_of(unknown) is None


CALCULATOR = Path("/usr/local/cuda/include/cuda_occupancy.h")
PROGRAM = r"""
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
    int major, minor, threads, registers; size_t shared, per_sm, reserved; int warps;
    while (scanf("%d %d %d %zu %zu %d %d %zu", &major, &minor, &warps, &per_sm, &reserved,
                 &threads, &registers, &shared) == 8) {
        cudaOccDeviceProp p; p.computeMajor = major; p.computeMinor = minor;
        p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = warps * 32;
        p.regsPerBlock = p.regsPerMultiprocessor = 65536; p.warpSize = 32;
        p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = per_sm; p.numSms = 100;
        p.sharedMemPerBlockOptin = per_sm; p.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes a; a.maxThreadsPerBlock = 1024; a.numRegs = registers;
        a.sharedSizeBytes = 0; a.partitionedGCConfig = PARTITIONED_GC_OFF;
        a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; a.maxDynamicSharedSizeBytes = per_sm;
        cudaOccDeviceState s; cudaOccResult r;
        int status = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, shared);
        printf("%d\n", status ? -1 : r.activeBlocksPerMultiprocessor);
    }
}
"""


@pytest.mark.skipif(
    not CALCULATOR.exists() or shutil.which("g++") is None, reason="needs a CUDA toolkit and g++"
)
def test_occupancy_agrees_with_cudas_calculator(tmp_path):
    source, program = tmp_path / "occupancy.cpp", tmp_path / "occupancy"
    source.write_text(PROGRAM)
    command = ["g++", "-I", str(CALCULATOR.parent), str(source), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    sizes = (1, 32, 33, 64, 96, 128, 192, 256, 384, 512, 640, 1024)
    cases = list(
        itertools.product(
            set(LIMITS) - {"7.2"}, sizes, (16, 32, 40, 96, 168, 255), (0, 1, 5000, 33333, 60_000)
        )
    )
    lines = []
    for capability, threads, registers, shared in cases:
        limits = LIMITS[capability]
        numbers = (limits.warps, limits.shared_bytes, limits.shared_reserved)
        lines.append(
            " ".join(map(str, (*capability.split("."), *numbers, threads, registers, shared)))
        )
    result = subprocess.run(
        [program], input="\n".join(lines), check=True, capture_output=True, text=True, timeout=60
    )
    expected = [int(line) for line in result.stdout.split()]
    assert len(expected) == len(cases)
    for (capability, threads, registers, shared), blocks in zip(cases, expected, strict=True):
        limits = LIMITS[capability]
        found = occupancy(limits, threads, registers, shared).fraction
        warps = -(-threads // 32)
        what = (capability, threads, registers, shared)
        assert round((found or 0) * limits.warps / warps) == blocks, what
