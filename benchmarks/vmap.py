"""Batches of values under one pattern: vmap against a Python loop and against SciPy on a block diagonal matrix.

    python -m benchmarks.vmap                        16 elements, 2000 rows of 8 entries on average
    python -m benchmarks.vmap --rows 20000 --degree 16 --batch 16 --columns 32

Processor time in ms of a call: medians over turns of ten calls, all jitted, on one thread.
loop      the jitted function, once for every element; block: the product with scipy.sparse.block_diag, made before (SDDMM: NumPy at
          the stored entries of every element)
grad      gradients of half the sum of squares of the result by both operands (SDDMM: by all three), of every element
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj

Row = tuple[str, Callable[[], Any], Callable[[], Any], Callable[[], Any]]


def product(A: Any, x: Any) -> Any:
    return A @ x


def sddmm(A: Any, U: Any, W: Any) -> Any:
    return sj.einsum("ij,ik,jk->ij", A, U, W)


def gradients(f: Callable[..., Any], count: int) -> Callable[..., Any]:
    return sj.grad(lambda *args: (f(*args) ** 2).sum() / 2, tuple(range(count)))


def cases(rows: int, degree: int, batch: int, columns: int) -> list[Row]:
    """(name, vmap, loop, block) for every operation."""
    rng = np.random.default_rng(0)
    coords = np.repeat(np.arange(rows), degree), rng.integers(0, rows, rows * degree)
    S = sp.csr_array((np.ones(rows * degree), coords), shape=(rows, rows))
    S.sum_duplicates()
    values = rng.random((batch, S.nnz))
    each = np.repeat(np.arange(rows), np.diff(S.indptr))
    matrices = [sp.csr_array((v, S.indices, S.indptr), shape=S.shape) for v in values]
    elements = [sj.array(m) for m in matrices]
    V = sj.numpy.stack(elements).asformat("(d,c,d)@(1,2,0)")
    A, blocks = elements[0], sp.block_diag(matrices, format="csr")
    same = sp.block_diag([matrices[0]] * batch, format="csr")
    x, X = rng.random(rows), rng.random((batch, rows))
    H, Hs = rng.random((rows, columns)), rng.random((batch, rows, columns))
    W, Ws = rng.random((rows, columns)), rng.random((batch, rows, columns))
    one, dots = sj.jit(product), sj.jit(sddmm)
    one_grad, dots_grad = gradients(product, 2), gradients(sddmm, 3)
    one_pull, dots_pull = sj.jit(one_grad), sj.jit(dots_grad)
    places = [(each + b * rows, S.indices + b * rows) for b in range(batch)]

    def mapped(f: Any, axes: Any, *args: Any) -> Callable[[], Any]:
        jitted = sj.jit(sj.vmap(f, in_axes=axes))
        return lambda: jitted(*args)

    def at_entries(us: Any, ws: Any) -> Any:
        return [v * np.einsum("ek,ek->e", u[each], w[S.indices]) for v, u, w in zip(values, us, ws, strict=True)]

    def pulled(dense: Any) -> Any:
        """The gradients of a product by the stored values and by the dense operand."""
        y = blocks @ dense
        at = "e,e->e" if y.ndim == 1 else "ek,ek->e"
        return blocks.T @ y, [np.einsum(at, y[i], dense[j]) for i, j in places]

    def pulled_dots(u: Any, w: Any) -> Any:
        made = []
        for v in values:
            d = np.einsum("ek,ek->e", u[each], w[S.indices])
            weights = sp.csr_array((v * v * d, S.indices, S.indptr), shape=S.shape)
            made.append((v * d * d, weights @ w, weights.T @ u))
        return made

    return [
        ("SpMV  A[b] x", mapped(product, (0, None), V, x), lambda: [one(e, x) for e in elements],
         lambda: blocks @ np.tile(x, batch)),
        ("SpMV  A[b] x[b]", mapped(product, (0, 0), V, X), lambda: [one(e, y) for e, y in zip(elements, X, strict=True)],
         lambda: blocks @ X.reshape(-1)),
        ("SpMV  A x[b]", mapped(product, (None, 0), A, X), lambda: [one(A, y) for y in X], lambda: same @ X.reshape(-1)),
        ("SpMM  A[b] H", mapped(product, (0, None), V, H), lambda: [one(e, H) for e in elements],
         lambda: blocks @ np.tile(H, (batch, 1))),
        ("SpMM  A[b] H[b]", mapped(product, (0, 0), V, Hs),
         lambda: [one(e, h) for e, h in zip(elements, Hs, strict=True)], lambda: blocks @ Hs.reshape(-1, columns)),
        ("SpMM  A H[b]", mapped(product, (None, 0), A, Hs), lambda: [one(A, h) for h in Hs],
         lambda: same @ Hs.reshape(-1, columns)),
        ("SDDMM A[b] U W", mapped(sddmm, (0, None, None), V, H, W), lambda: [dots(e, H, W) for e in elements],
         lambda: at_entries([H] * batch, [W] * batch)),
        ("SDDMM A[b] U[b] W[b]", mapped(sddmm, 0, V, Hs, Ws),
         lambda: [dots(e, h, w) for e, h, w in zip(elements, Hs, Ws, strict=True)], lambda: at_entries(Hs, Ws)),
        ("grad SpMV  A[b] x", mapped(one_grad, (0, None), V, x), lambda: [one_pull(e, x) for e in elements],
         lambda: pulled(np.tile(x, batch))),
        ("grad SpMM  A[b] H", mapped(one_grad, (0, None), V, H), lambda: [one_pull(e, H) for e in elements],
         lambda: pulled(np.tile(H, (batch, 1)))),
        ("grad SDDMM A[b] U W", mapped(dots_grad, (0, None, None), V, H, W),
         lambda: [dots_pull(e, H, W) for e in elements], lambda: pulled_dots(H, W)),
    ]  # fmt: skip


def medians(functions: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Processor time in ms of a call; functions take turns of ten calls."""
    times: list[list[float]] = [[] for _ in functions]
    for number in range(repeats + 1):
        for function, found in zip(functions, times, strict=True):
            started = time.process_time()
            for _ in range(10):
                function()
            if number:
                found.append((time.process_time() - started) / 10)
    return [1e3 * statistics.median(found) for found in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 2000), ("degree", 8), ("batch", 16), ("columns", 16), ("repeats", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    sj.config.update("num_threads", 1)
    print(f"{'':22} {'vmap':>9} {'loop':>9} {'block':>9} {'loop/vmap':>10} {'block/vmap':>10}")
    for name, *functions in cases(options.rows, options.degree, options.batch, options.columns):
        ours, loop, block = medians(functions, options.repeats)
        print(f"{name:22} {ours:9.3f} {loop:9.3f} {block:9.3f} {loop / ours:10.2f} {block / ours:10.2f}", flush=True)


if __name__ == "__main__":
    main()
