"""Rows that reach the choices that no row of the peer table reaches: sums inside of sums, targets, panels, packed columns, results that are turned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

Program = tuple[str, Callable[..., Any], tuple[Any, ...]]
N, WIDTH, OFFSETS = 8192, 32, 27


def _matrix(rows: int, columns: int, each: float, form: str = "csr") -> Any:
    """So many entries in each row, anywhere."""
    made = sp.random_array((rows, columns), density=each / columns, rng=np.random.default_rng(0), format="csr")
    return sj.array(made).asformat(form)


def programs() -> Iterator[Program]:
    """Name, function and operands of every row."""
    rng = np.random.default_rng(1)
    A, B = _matrix(N, N, 8), _matrix(N, N, 8)
    H, W = rng.standard_normal((N, WIDTH)), rng.standard_normal((OFFSETS, WIDTH, WIDTH))
    yield "sum of a product", lambda A, B: snp.sum(A @ B, axis=1), (A, B)
    yield (
        "product under a mask",
        lambda A, B, M: sj.einsum("ik,kj->ij", A, B, mask=M, out_format="csr"),
        (_matrix(1024, 1024, 20), _matrix(1024, 1024, 20), rng.random((1024, 1024)) < 0.5),
    )
    yield "columns beside rows", lambda A, H: H.T @ A, (A, H)
    for each in (2, 8):
        yield (
            f"matrices by column, {each}",
            lambda A, H, W: sj.einsum("xz,xc,zcm->xm", A, H, W),
            (_matrix(N, OFFSETS, each), H, W),
        )
    for pairs in (N, 8 * N):
        yield (
            f"pairs of rows and matrices, {pairs}",
            lambda X, Y, Z, H, W: sj.insum(
                "O[X[p],m] += H[Y[p],c] * W[Z[p],c,m]", X=X, Y=Y, Z=Z, H=H, W=W, O=snp.zeros((N, WIDTH))
            ),
            (rng.integers(0, N, pairs), rng.integers(0, N, pairs), rng.integers(0, OFFSETS, pairs), H, W),
        )
        places = rng.integers(0, N, pairs), rng.integers(0, OFFSETS, pairs), rng.integers(0, N, pairs)
        S = sj.array((np.ones(pairs), places), shape=(N, OFFSETS, N), format="csf")
        yield f"selections, {pairs}", lambda S, H, W: sj.einsum("xzy,yc,zcm->xm", S, H, W), (S, H, W)
    yield "blocks, 512 columns", lambda A, X: A @ X, (_matrix(1024, 1024, 50, "bsr:8x8"), rng.random((1024, 512)))
