"""Cuts data/h200_excerpt.npz out of the recording of an H200 that lies beside the repository.

    python tests/counters/make_excerpt.py

The recording (`h200/pm_200us.npz`, `trace.csv.gz`, `names.tsv`, `truth.jsonl`, one run on one clock) is
samples of seven counters every 0.2 ms, every kernel launch, and what each workload must move and compute.
Of each workload the excerpt keeps 100 ms from its middle, of the one with 220,000 launches/s 60 ms.
"""

from pathlib import Path

import numpy as np
from recording import BESIDE_NS, RECORDING, load_whole, packed

LENGTH_NS = 100_000_000
SHORT_NS = 60_000_000


def main() -> None:
    """Write the excerpt."""
    samples, launches, phases, kernels = load_whole()
    keep_samples = np.zeros(len(samples), dtype=bool)
    keep_launches = np.zeros(len(launches), dtype=bool)
    for phase in phases:
        short = phase["phase"] == "decode_graph_bf16"
        middle = (phase["t0"] + phase["t1"]) // 2
        half = (SHORT_NS if short else LENGTH_NS) // 2
        inside = (samples.start_ns >= middle - half) & (samples.end_ns <= middle + half)
        keep_samples |= inside
        phase["t0"], phase["t1"] = (
            int(samples.start_ns[inside][0]),
            int(samples.end_ns[inside][-1]),
        )
        keep_launches |= (launches.end_ns > phase["t0"] - BESIDE_NS) & (
            launches.start_ns < phase["t1"] + BESIDE_NS
        )
    samples, launches = samples.take(keep_samples), launches.take(keep_launches)
    path = Path(__file__).with_name("data") / "h200_excerpt.npz"
    named = [f"{name}\t{grid}\t{block}" for name, grid, block in kernels]
    np.savez_compressed(path, **packed(samples, launches, phases, named))
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB from {RECORDING}")


if __name__ == "__main__":
    main()
