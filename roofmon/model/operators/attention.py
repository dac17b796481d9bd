"""Attention, written out (the score matrix goes to memory) or fused (it does not)."""

from roofmon.model.operators.streaming import SOFTMAX_FLOPS_PER_ELEMENT
from roofmon.model.operators.work import OperatorWork, check_sizes, item_bytes, pipe


def attention(
    batch: int,
    heads: int,
    seq: int,
    head_dim: int,
    *,
    fused: bool,
    precision: str = "fp32",
    unit: str = "vector",
) -> OperatorWork:
    """O = softmax(Q·Kᵀ)·V for each of `batch`·`heads` heads, S = `seq`, d = `head_dim`, no mask.

    FLOP per head: 4·S²·d on `unit` for the two products, and 5·S² for the softmax, which the vector
    pipe does (in FP32 when the products are on the tensor pipe). The scale 1/√d is taken as folded
    into Q.

    Elements moved per head: fused, Q, K, V in and O out = 4·S·d, as no score leaves the chip (Dao et
    al., "FlashAttention", 2022). Written out, it is three operators and the sum of what they must move:
    Q·Kᵀ writes the S² scores, the softmax reads and writes them, the product with V reads them:
    4·S² + 4·S·d. Raises ValueError for sizes or names that make no sense.
    """
    name = "attention"
    check_sizes(name, batch=batch, heads=heads, seq=seq, head_dim=head_dim)
    item = item_bytes(name, precision)
    products = pipe(name, unit, precision)
    softmax = ("vector", precision if unit == "vector" else "fp32")
    instances = batch * heads
    flops = {products: float(4 * instances * seq * seq * head_dim)}
    flops[softmax] = flops.get(softmax, 0.0) + SOFTMAX_FLOPS_PER_ELEMENT * instances * seq * seq
    scores = 0 if fused else 4 * seq * seq
    moved = "Q, K, V, O" if fused else "Q, K, V, O and the scores 4 times"
    each = f"4·{seq}·{head_dim}" if fused else f"(4·{seq}·{head_dim} + 4·{seq}²)"
    return OperatorWork(
        name,
        flops,
        float(instances * (4 * seq * head_dim + scores) * item),
        f"softmax(Q·Kᵀ)·V: {batch}·{heads}·(4·{seq}²·{head_dim}"
        f" + {SOFTMAX_FLOPS_PER_ELEMENT}·{seq}²) FLOP;"
        f" {moved} = {batch}·{heads}·{each}·{item} B (FlashAttention, 2022)",
    )
