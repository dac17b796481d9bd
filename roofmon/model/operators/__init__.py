"""Formulas of the least work of an operator, one launch at a time. Standard library only."""

from roofmon.model.operators.attention import attention
from roofmon.model.operators.matrix import gemm, gemv
from roofmon.model.operators.streaming import reduce_sum, softmax, triad, vector_add
from roofmon.model.operators.work import ITEM_BYTES, OperatorWork

__all__ = [
    "ITEM_BYTES",
    "OperatorWork",
    "attention",
    "gemm",
    "gemv",
    "reduce_sum",
    "softmax",
    "triad",
    "vector_add",
]
