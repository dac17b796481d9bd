"""Operators that pass over their data once: vector add, triad, sum, softmax."""

from roofmon.model.operators.work import OperatorWork, check_sizes, item_bytes, pipe

SOFTMAX_FLOPS_PER_ELEMENT = 5
"""max, subtract, exp, sum, divide: one each. An exp counts as one FLOP although it takes ten or more
instructions, so that the number does not depend on how a library approximates it."""


def vector_add(n: int, precision: str = "fp32") -> OperatorWork:
    """c[i] = a[i] + b[i] over `n` elements: n FLOP, 3n elements moved.

    Counted as in STREAM's Add (McCalpin, 1995): the read that a CPU makes of a line before it
    overwrites it is not part of the algorithm. Raises ValueError for sizes or names that make no sense.
    """
    name = "vector_add"
    check_sizes(name, n=n)
    item = item_bytes(name, precision)
    return OperatorWork(
        name,
        {pipe(name, "vector", precision): float(n)},
        float(3 * n * item),
        f"c = a + b: n = {n} FLOP; read a, b, write c = 3·{n}·{item} B (STREAM Add)",
    )


def triad(n: int, precision: str = "fp32") -> OperatorWork:
    """a[i] = b[i] + s·c[i] over `n` elements: 2n FLOP (one FMA each), 3n elements moved.

    Counted as in STREAM's Triad (McCalpin, 1995). Raises ValueError for sizes or names that make no
    sense.
    """
    name = "triad"
    check_sizes(name, n=n)
    item = item_bytes(name, precision)
    return OperatorWork(
        name,
        {pipe(name, "vector", precision): float(2 * n)},
        float(3 * n * item),
        f"a = b + s·c: 2·{n} FLOP; read b, c, write a = 3·{n}·{item} B (STREAM Triad)",
    )


def reduce_sum(n: int, precision: str = "fp32") -> OperatorWork:
    """Σ a[i] over `n` elements into one: n FLOP (the first is added to zero), n + 1 elements moved.

    Raises ValueError for sizes or names that make no sense.
    """
    name = "reduce_sum"
    check_sizes(name, n=n)
    item = item_bytes(name, precision)
    return OperatorWork(
        name,
        {pipe(name, "vector", precision): float(n)},
        float((n + 1) * item),
        f"s = Σ a: n = {n} FLOP; read a, write s = ({n} + 1)·{item} B",
    )


def softmax(rows: int, cols: int, precision: str = "fp32") -> OperatorWork:
    """Softmax along each of `rows` rows of `cols` elements, into another array.

    5 FLOP per element (`SOFTMAX_FLOPS_PER_ELEMENT` says which); each element read once and written
    once, as an implementation that keeps a row on chip can. Raises ValueError for sizes or names that
    make no sense.
    """
    name = "softmax"
    check_sizes(name, rows=rows, cols=cols)
    item = item_bytes(name, precision)
    return OperatorWork(
        name,
        {pipe(name, "vector", precision): float(SOFTMAX_FLOPS_PER_ELEMENT * rows * cols)},
        float(2 * rows * cols * item),
        f"max, subtract, exp (as one), sum, divide = {SOFTMAX_FLOPS_PER_ELEMENT}·{rows}·{cols} FLOP;"
        f" read x, write y = 2·{rows}·{cols}·{item} B",
    )
