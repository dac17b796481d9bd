"""Matrix products: GEMM, and the chain of matrix-vector products of a decoder at batch one."""

from roofmon.model.operators.work import OperatorWork, check_sizes, item_bytes, pipe


def gemm(m: int, n: int, k: int, precision: str = "fp32", unit: str = "vector") -> OperatorWork:
    """C = A·B with A m×k, B k×n and C m×n overwritten: 2mnk FLOP, (mk + kn + mn) elements moved.

    One multiply and one add for each of m·n·k products (LAPACK Working Note 41, appendix C, without
    the terms of α and β). Raises ValueError for sizes or names that make no sense.
    """
    name = "gemm"
    check_sizes(name, m=m, n=n, k=k)
    item = item_bytes(name, precision)
    return OperatorWork(
        name,
        {pipe(name, unit, precision): float(2 * m * n * k)},
        float((m * k + k * n + m * n) * item),
        f"C = A·B: 2mnk = 2·{m}·{n}·{k} FLOP;"
        f" read A, B, write C = ({m}·{k} + {k}·{n} + {m}·{n})·{item} B",
    )


def gemv(
    rows: int, cols: int, layers: int = 1, precision: str = "fp32", unit: str = "vector"
) -> OperatorWork:
    """y = W·x, or `layers` of them in a row, each x the y before: one token through a decoder.

    W is rows×cols. Every weight is read once and used for one FMA, so the intensity is 2 FLOP per
    element whatever the size. 2·rows·cols·layers FLOP; the weights, the first x and the last y are
    moved: what passes between layers can stay in a cache. Raises ValueError for sizes or names that
    make no sense, among them a chain of matrices that are not square.
    """
    name = "gemv"
    check_sizes(name, rows=rows, cols=cols, layers=layers)
    if layers > 1 and rows != cols:
        raise ValueError(f"{name}: a chain needs square matrices, not {rows} rows × {cols} columns")
    item = item_bytes(name, precision)
    return OperatorWork(
        name,
        {pipe(name, unit, precision): float(2 * rows * cols * layers)},
        float((rows * cols * layers + cols + rows) * item),
        f"y = W·x: 2·{rows}·{cols}·{layers} FLOP;"
        f" read W, x, write y = ({rows}·{cols}·{layers} + {cols} + {rows})·{item} B",
    )
