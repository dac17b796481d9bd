"""Attention twice: with the scores written to memory, and in blocks of heads whose scores stay in cache."""

import numpy as np

from roofmon.demo.device import Array, Device
from roofmon.demo.kernel import Kernel, expect_close, sample
from roofmon.demo.sizes import Sizes
from roofmon.model import operators


def attention(device: Device, sizes: Sizes, source: Array, scratch: Array) -> list[Kernel]:
    """Both versions, over the same Q, K, V and output; FP32, no mask.

    K is held transposed, as a key cache may be, and the scale 1/√d is taken as folded into Q.
    """
    xp = device.xp
    heads, seq, dim, block = sizes.heads, sizes.seq, sizes.head_dim, sizes.block_heads
    size = heads * seq * dim
    q = source[:size].reshape(heads, seq, dim)
    k_t = source[size : 2 * size].reshape(heads, dim, seq)
    v = source[2 * size : 3 * size].reshape(heads, seq, dim)
    output = xp.empty((heads, seq, dim), xp.float32)
    scores = scratch[: heads * seq * seq].reshape(heads, seq, seq)

    def score(i: int, j: int) -> None:
        xp.matmul(q[i:j], k_t[i:j], out=scores[i:j])

    def normalise(i: int, j: int) -> None:
        device.softmax_rows(scores[i:j])

    def weigh(i: int, j: int) -> None:
        xp.matmul(scores[i:j], v[i:j], out=output[i:j])

    def unfused() -> None:
        for step in (score, normalise, weigh):
            device.parallel(heads, step)

    def some_heads(i: int, j: int) -> None:
        kept = xp.empty((min(block, j - i), seq, seq), xp.float32)
        for first in range(i, j, block):
            last = min(first + block, j)
            of_block = kept[: last - first]
            xp.matmul(q[first:last], k_t[first:last], out=of_block)
            device.softmax_rows(of_block)
            xp.matmul(of_block, v[first:last], out=output[first:last])

    def blocked() -> None:
        device.parallel(heads, some_heads)

    def check(name: str) -> None:
        rows = sample(seq)
        for head in range(heads)[sample(heads, 16)]:
            powers = np.exp(device.to_host(q[head][rows]) @ device.to_host(k_t[head]))
            expected = powers / powers.sum(axis=1, keepdims=True) @ device.to_host(v[head])
            expect_close(name, device.to_host(output[head][rows]), expected, 1e-4)
        output.fill(xp.nan)  # or the other version's check could pass on what this one wrote

    written = operators.attention(1, heads, seq, dim, fused=False)
    fused = operators.attention(1, heads, seq, dim, fused=True)
    return [
        Kernel(
            "attention_unfused",
            written,
            sizes.level(4 * scores.size),
            unfused,
            lambda: check("attention_unfused"),
        ),
        Kernel(
            "attention_blocked",
            fused,
            sizes.level(fused.bytes),
            blocked,
            lambda: check("attention_blocked"),
        ),
    ]
