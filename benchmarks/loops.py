"""Hand-written serial loops for Numba, imported only when it is asked for."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

# contraction to fused multiply-add and reassociation of sums, as C compilers do under -ffast-math, but NaN and infinity kept
_jit = numba.njit(fastmath={"contract", "reassoc"})


@_jit
def spmv(indptr: Any, indices: Any, data: Any, x: Any) -> Any:
    out = np.empty(len(indptr) - 1, data.dtype)
    for i in range(len(out)):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += data[p] * x[indices[p]]
        out[i] = total
    return out


@_jit
def spmm(indptr: Any, indices: Any, data: Any, H: Any) -> Any:
    out = np.zeros((len(indptr) - 1, H.shape[1]), data.dtype)
    for i in range(out.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            value, j = data[p], indices[p]
            for k in range(H.shape[1]):
                out[i, k] += value * H[j, k]
    return out


@_jit
def sddmm(indptr: Any, indices: Any, data: Any, U: Any, V: Any) -> Any:
    out = np.empty(len(data), data.dtype)
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            total, j = 0.0, indices[p]
            for k in range(U.shape[1]):
                total += U[i, k] * V[j, k]
            out[p] = total * data[p]
    return out


@_jit
def rowsum(indptr: Any, data: Any) -> Any:
    out = np.empty(len(indptr) - 1, data.dtype)
    for i in range(len(out)):
        total = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            total += data[p]
        out[i] = total
    return out


@_jit
def mttkrp(rows: int, i: Any, j: Any, k: Any, values: Any, B: Any, C: Any) -> Any:
    out = np.zeros((rows, B.shape[1]), values.dtype)
    for e in range(len(values)):
        for r in range(B.shape[1]):
            out[i[e], r] += values[e] * B[j[e], r] * C[k[e], r]
    return out
