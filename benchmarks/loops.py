"""Hand-written loops for Numba, imported only when it is asked for: parallel over rows where there is more than one thread."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import prange

THREADS = numba.config.NUMBA_NUM_THREADS
CHUNKS = 1 if THREADS == 1 else 16 * THREADS
"""Parts of the rows that have a workspace each."""

# contraction to fused multiply-add and reassociation of sums, as C compilers do under -ffast-math, but NaN and infinity kept
_jit = numba.njit(fastmath={"contract", "reassoc"}, parallel=THREADS > 1)


@_jit
def spmv(indptr: Any, indices: Any, data: Any, x: Any) -> Any:
    out = np.empty(len(indptr) - 1, data.dtype)
    for i in prange(len(out)):
        total = data.dtype.type(0)
        for p in range(indptr[i], indptr[i + 1]):
            total += data[p] * x[indices[p]]
        out[i] = total
    return out


@_jit
def spmm(indptr: Any, indices: Any, data: Any, H: Any) -> Any:
    out = np.zeros((len(indptr) - 1, H.shape[1]), data.dtype)
    for i in prange(out.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            value, j = data[p], indices[p]
            for k in range(H.shape[1]):
                out[i, k] += value * H[j, k]
    return out


@_jit
def gcn(indptr: Any, indices: Any, data: Any, H: Any, W: Any) -> Any:
    HW = np.dot(H, W)
    out = np.zeros((len(indptr) - 1, HW.shape[1]), data.dtype)
    for i in prange(out.shape[0]):
        for p in range(indptr[i], indptr[i + 1]):
            value, j = data[p], indices[p]
            for k in range(HW.shape[1]):
                out[i, k] += value * HW[j, k]
        for k in range(HW.shape[1]):
            out[i, k] = max(out[i, k], data.dtype.type(0))
    return out


@_jit
def sddmm(indptr: Any, indices: Any, data: Any, U: Any, V: Any) -> Any:
    out = np.empty(len(data), data.dtype)
    for i in prange(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            total, j = data.dtype.type(0), indices[p]
            for k in range(U.shape[1]):
                total += U[i, k] * V[j, k]
            out[p] = total * data[p]
    return out


@_jit
def sddmm_sum(indptr: Any, indices: Any, data: Any, U: Any, V: Any) -> Any:
    rows = np.zeros(len(indptr) - 1, data.dtype)
    for i in prange(len(rows)):
        for p in range(indptr[i], indptr[i + 1]):
            total, j = data.dtype.type(0), indices[p]
            for k in range(U.shape[1]):
                total += U[i, k] * V[j, k]
            rows[i] += total * data[p]
    return rows.sum()


@_jit
def spmm_csc(indptr: Any, indices: Any, data: Any, H: Any, rows: int) -> Any:
    """The columns of A scattered into the result, by one thread for each part of the columns of H."""
    out = np.zeros((rows, H.shape[1]), data.dtype)
    step = (H.shape[1] + THREADS - 1) // THREADS
    for t in prange(THREADS):
        lo, hi = t * step, min(H.shape[1], (t + 1) * step)
        for j in range(len(indptr) - 1):
            for p in range(indptr[j], indptr[j + 1]):
                value, i = data[p], indices[p]
                for k in range(lo, hi):
                    out[i, k] += value * H[j, k]
    return out


@_jit
def bspmm(indptr: Any, indices: Any, values: Any, H: Any) -> Any:
    """A batch of values under one pattern, each times a dense matrix of its own."""
    rows = len(indptr) - 1
    out = np.zeros((len(values), rows, H.shape[2]), values.dtype)
    for r in prange(len(values) * rows):
        n, i = r // rows, r % rows
        for p in range(indptr[i], indptr[i + 1]):
            value, j = values[n, p], indices[p]
            for k in range(H.shape[2]):
                out[n, i, k] += value * H[n, j, k]
    return out


@_jit
def softmax(indptr: Any, data: Any) -> Any:
    out = np.empty(len(data), data.dtype)
    for i in prange(len(indptr) - 1):
        most, total = data.dtype.type(-np.inf), data.dtype.type(0)
        for p in range(indptr[i], indptr[i + 1]):
            most = max(most, data[p])
        for p in range(indptr[i], indptr[i + 1]):
            out[p] = np.exp(data[p] - most)
            total += out[p]
        for p in range(indptr[i], indptr[i + 1]):
            out[p] /= total
    return out


@_jit
def middle_sum(starts: Any, columns: Any, values: Any, extent: int) -> Any:
    """The sum of a 3-way tensor over its second dimension; entries of slice i at starts[i] to starts[i + 1]."""
    out = np.zeros((len(starts) - 1, extent), values.dtype)
    for i in prange(len(starts) - 1):
        for e in range(starts[i], starts[i + 1]):
            out[i, columns[e]] += values[e]
    return out


@_jit
def rowsum(indptr: Any, data: Any) -> Any:
    out = np.empty(len(indptr) - 1, data.dtype)
    for i in prange(len(out)):
        total = data.dtype.type(0)
        for p in range(indptr[i], indptr[i + 1]):
            total += data[p]
        out[i] = total
    return out


@_jit
def mttkrp(starts: Any, j: Any, k: Any, values: Any, B: Any, C: Any) -> Any:
    """Entries sorted by their first coordinate, those of row i at starts[i] to starts[i + 1]."""
    out = np.zeros((len(starts) - 1, B.shape[1]), values.dtype)
    for i in prange(out.shape[0]):
        for e in range(starts[i], starts[i + 1]):
            for r in range(B.shape[1]):
                out[i, r] += values[e] * B[j[e], r] * C[k[e], r]
    return out


@_jit
def spgemm(indptr: Any, indices: Any, data: Any, columns: int) -> Any:
    """The sorted rows of A @ A: counted, then filled through one dense row per chunk."""
    rows = len(indptr) - 1
    out = np.zeros(rows + 1, np.int64)
    step = (rows + CHUNKS - 1) // CHUNKS
    for c in prange(CHUNKS):
        last = np.full(columns, -1, np.int64)
        for i in range(c * step, min(rows, (c + 1) * step)):
            for p in range(indptr[i], indptr[i + 1]):
                for q in range(indptr[indices[p]], indptr[indices[p] + 1]):
                    if last[indices[q]] != i:
                        last[indices[q]] = i
                        out[i + 1] += 1
    for i in range(rows):
        out[i + 1] += out[i]
    made, values = np.empty(out[rows], np.int32), np.empty(out[rows], data.dtype)
    for c in prange(CHUNKS):
        last = np.full(columns, -1, np.int64)
        row = np.zeros(columns, data.dtype)
        for i in range(c * step, min(rows, (c + 1) * step)):
            end = out[i]
            for p in range(indptr[i], indptr[i + 1]):
                for q in range(indptr[indices[p]], indptr[indices[p] + 1]):
                    j = indices[q]
                    if last[j] != i:
                        last[j] = i
                        row[j] = 0
                        made[end] = j
                        end += 1
                    row[j] += data[p] * data[q]
            made[out[i] : end].sort()
            for p in range(out[i], end):
                values[p] = row[made[p]]
    return out, made, values


@_jit
def mul(indptr: Any, indices: Any, data: Any, indptr2: Any, indices2: Any, data2: Any) -> Any:
    """The rows of A * B, counted and then filled by merging sorted rows."""
    rows = len(indptr) - 1
    out = np.zeros(rows + 1, np.int64)
    for i in prange(rows):
        p, q = indptr[i], indptr2[i]
        while p < indptr[i + 1] and q < indptr2[i + 1]:
            a, b = indices[p], indices2[q]
            out[i + 1] += a == b
            p += a <= b
            q += b <= a
    for i in range(rows):
        out[i + 1] += out[i]
    made, values = np.empty(out[rows], np.int32), np.empty(out[rows], data.dtype)
    for i in prange(rows):
        p, q, end = indptr[i], indptr2[i], out[i]
        while p < indptr[i + 1] and q < indptr2[i + 1]:
            a, b = indices[p], indices2[q]
            if a == b:
                made[end], values[end] = a, data[p] * data2[q]
                end += 1
            p += a <= b
            q += b <= a
    return out, made, values


@_jit
def add(indptr: Any, indices: Any, data: Any, indptr2: Any, indices2: Any, data2: Any) -> Any:
    """The rows of A + B, counted and then filled by merging sorted rows."""
    rows = len(indptr) - 1
    out = np.zeros(rows + 1, np.int64)
    for i in prange(rows):
        p, q = indptr[i], indptr2[i]
        while p < indptr[i + 1] or q < indptr2[i + 1]:
            a = indices[p] if p < indptr[i + 1] else 2**31 - 1
            b = indices2[q] if q < indptr2[i + 1] else 2**31 - 1
            out[i + 1] += 1
            p += a <= b
            q += b <= a
    for i in range(rows):
        out[i + 1] += out[i]
    made, values = np.empty(out[rows], np.int32), np.empty(out[rows], data.dtype)
    for i in prange(rows):
        p, q, end = indptr[i], indptr2[i], out[i]
        while p < indptr[i + 1] or q < indptr2[i + 1]:
            a = indices[p] if p < indptr[i + 1] else 2**31 - 1
            b = indices2[q] if q < indptr2[i + 1] else 2**31 - 1
            total = data.dtype.type(0)
            if a <= b:
                total += data[p]
                p += 1
            if b <= a:
                total += data2[q]
                q += 1
            made[end], values[end] = min(a, b), total
            end += 1
    return out, made, values


@_jit
def tocsc(indptr: Any, indices: Any, data: Any, columns: int) -> Any:
    """The columns of A, by counting."""
    out = np.zeros(columns + 1, np.int64)
    for p in range(len(indices)):
        out[indices[p] + 1] += 1
    for j in range(columns):
        out[j + 1] += out[j]
    place = out[:-1].copy()
    made, values = np.empty(len(indices), np.int32), np.empty(len(indices), data.dtype)
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            q = place[indices[p]]
            place[indices[p]] = q + 1
            made[q], values[q] = i, data[p]
    return out, made, values
