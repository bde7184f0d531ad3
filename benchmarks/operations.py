"""The operations that are timed, their operands, and the baseline: how SciPy and NumPy write them.

The baseline is what a user of SciPy would call, with nothing added: ratios against it mean what they say. Where SciPy has no such
operation (SDDMM, MTTKRP, TTM, softmax) it is the fastest short composition that was found, with everything that depends only on the
pattern of the sparse operand prepared beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

Run = Callable[[], Any]
Data = dict[str, Any]


@dataclass(frozen=True)
class Operation:
    """`kind`: which operands it takes; `k`: the extent of its dense dimension; `matrices`: where the peer table has it."""

    stem: str
    kind: str
    k: int
    matrices: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.stem}{self.k or ''}"


ALL = ("uniform", "rmat16", "stencil", "hyper", "cora", "dense10")
FOUR = ("uniform", "rmat16", "hyper", "cora")
BATCH = 8
"""Matrices of a batch: values of their own under one pattern."""
PRODUCTS = ("uniform", "rmat13", "stencil", "cora", "dense1k", "hyper")
OPERATIONS = (
    Operation("spmv", "vector", 0, (*ALL, "pyamg_bar", "tiny")),
    Operation("spmm", "dense", 32, ALL),
    Operation("spmm", "dense", 128, ("uniform", "rmat16", "stencil", "cora", "dense10")),
    Operation("spmm", "dense", 512, ("rmat16", "cora", "dense10")),
    Operation("spgemm", "square", 0, PRODUCTS),
    # SciPy leaves the columns of a product unsorted and sparsejax sorts them: this row adds SciPy's sort, the one above does not.
    Operation("spgemm_sorted", "square", 0, PRODUCTS),
    Operation("sddmm", "factors", 32, ("uniform", "rmat16", "stencil", "cora")),
    Operation("sddmm", "factors", 128, ("uniform", "rmat16", "cora")),
    Operation("sddmm_sum", "factors", 32, ("uniform", "rmat16")),
    Operation("sddmm_sum", "factors", 128, ("rmat16", "cora")),
    Operation("spmm_csc", "dense", 32, ("uniform", "rmat16", "cora")),
    Operation("spmm_csc", "dense", 128, ("rmat16", "cora")),
    Operation("bspmm", "batch", 32, ("cora", "rmat13")),
    Operation("add", "pair", 0, FOUR),
    Operation("mul", "pair", 0, FOUR),
    Operation("rowsum", "alone", 0, FOUR),
    Operation("softmax", "alone", 0, FOUR),
    Operation("triangles", "pattern", 0, ("rmat13", "cora", "dense1k")),
    Operation("gcn", "layer", 32, ("uniform", "rmat16", "stencil", "cora")),
    Operation("tocsc", "alone", 0, FOUR),
    Operation("coo2csr", "alone", 0, FOUR),
    Operation("mttkrp", "tensor", 16, ("t3u", "t3s")),
    Operation("mttkrp", "tensor", 64, ("t3u",)),
    Operation("ttm", "tensor", 16, ("t3u", "t3s")),
    Operation("ttm", "tensor", 64, ("t3u", "t3s")),
    Operation("nd_mul", "tensor", 0, ("t3d",)),
    Operation("nd_sum", "tensor", 0, ("t3d",)),
)


def operands(operation: Operation, matrix: Any, dtype: str = "f8") -> Data:
    """NumPy and SciPy operands of an operation, of a dtype."""
    return {key: _of_dtype(value, dtype) for key, value in _operands(operation, matrix).items()}


def _of_dtype(value: Any, dtype: str) -> Any:
    """Values of any matrix, real ones as `dtype`; coordinates of tensors stay integers."""
    if not sp.issparse(value) and not (isinstance(value, np.ndarray) and value.dtype.kind in "fc"):
        return value
    return value.astype(np.result_type(np.dtype(dtype), np.complex64) if value.dtype.kind == "c" else np.dtype(dtype))


def _operands(operation: Operation, matrix: Any) -> Data:
    rng = np.random.default_rng(1)
    if operation.kind == "tensor":
        coords, values, shape = matrix
        if not operation.k:
            # the other one: the same entries with the dimensions in reverse, which fit where extents are equal
            return {
                "coords": coords,
                "values": values,
                "shape": shape,
                "others": coords[::-1] % np.array(shape)[:, None],
            }
        factors = [rng.standard_normal((n, operation.k)) for n in shape]
        return {"coords": coords, "values": values, "shape": shape, "B": factors[1], "C": factors[2]}
    rows, cols = matrix.shape
    made: Data = {"A": matrix}
    if operation.kind == "vector":
        made["x"] = rng.standard_normal(cols)
    if operation.kind in ("dense", "layer"):
        made["H"] = rng.standard_normal((cols, operation.k))
    if operation.kind == "batch":
        made["V"] = rng.standard_normal((BATCH, matrix.nnz))
        made["H"] = rng.standard_normal((BATCH, cols, operation.k))
    if operation.kind == "layer":
        made["W"] = rng.standard_normal((operation.k, operation.k))
    if operation.kind == "factors":
        made["U"], made["V"] = rng.standard_normal((rows, operation.k)), rng.standard_normal((cols, operation.k))
    if operation.kind == "pair":
        made["B"] = sp.csr_array(matrix.T) if rows == cols else matrix
    if operation.kind == "pattern":
        P = sp.csr_array((np.ones(len(matrix.data)), matrix.indices, matrix.indptr), shape=matrix.shape)
        made["A"] = sp.csr_array(((P + P.T) > 0).astype(np.float64))
    return made


def fibers(d: Data) -> tuple[sp.csr_array, np.ndarray]:
    """A 3-way tensor as one csr row per (i, j) fiber that holds entries, and the numbers i * J + j of these fibers."""
    flat = flattened(d, d["coords"])
    used = np.flatnonzero(np.diff(flat.indptr))
    return flat[used], used


def flattened(d: Data, coords: Any) -> sp.csr_array:
    """A 3-way tensor as one csr row per (i, j)."""
    rows, cols = d["shape"][0] * d["shape"][1], d["shape"][2]
    return sp.csr_array((d["values"], (coords[0] * d["shape"][1] + coords[1], coords[2])), shape=(rows, cols))


def batch(d: Data) -> list[sp.csr_array]:
    """The matrices of a batch: rows of values under one pattern."""
    A = d["A"]
    return [sp.csr_array((v, A.indices, A.indptr), shape=A.shape) for v in d["V"]]


def baseline(stem: str, d: Data) -> Run:
    """SciPy, or the composition that stands for it."""
    if stem == "mttkrp":
        i, j, k = d["coords"]
        entries = len(i)
        weights = sp.csr_array((d["values"], (i, np.arange(entries))), shape=(d["shape"][0], entries))
        return lambda: weights @ (d["B"][j] * d["C"][k])
    if stem == "ttm":
        packed, _ = fibers(d)
        return lambda: packed @ d["C"]
    if stem == "nd_mul":
        one, other = flattened(d, d["coords"]), flattened(d, d["others"])
        return lambda: one.multiply(other)
    if stem == "nd_sum":
        (i, _, k), (rows, _, cols) = d["coords"], d["shape"]
        places = i * cols + k
        return lambda: (
            np.bincount(places, d["values"], rows * cols).reshape(rows, cols).astype(d["values"].dtype, copy=False)
        )
    A = d["A"]
    coo, csc = A.tocoo(), A.tocsc()
    counts = np.diff(A.indptr)
    used, owners = A.indptr[:-1][counts > 0], np.repeat(np.arange(np.count_nonzero(counts)), counts[counts > 0])
    if stem == "bspmm":
        blocks = sp.block_diag(batch(d), format="csr")
        stacked = d["H"].reshape(-1, d["H"].shape[-1])
        return lambda: (blocks @ stacked).reshape(BATCH, A.shape[0], -1)

    def softmax() -> np.ndarray:
        grown = np.exp(A.data - np.maximum.reduceat(A.data, used)[owners])
        return grown / np.add.reduceat(grown, used)[owners]

    runs: dict[str, Run] = {
        "spmv": lambda: A @ d["x"],
        "spmm": lambda: A @ d["H"],
        "spgemm": lambda: A @ A,
        "spgemm_sorted": lambda: _sorted(A @ A),
        "sddmm": lambda: np.einsum("ek,ek->e", d["U"][coo.row], d["V"][coo.col]) * coo.data,
        "add": lambda: A + d["B"],
        "mul": lambda: A.multiply(d["B"]),
        "sddmm_sum": lambda: np.dot(np.einsum("ek,ek->e", d["U"][coo.row], d["V"][coo.col]), coo.data),
        "spmm_csc": lambda: csc @ d["H"],
        "rowsum": lambda: A.sum(axis=1),
        "softmax": softmax,
        "triangles": lambda: A.multiply(A @ A).sum() / 6,
        "gcn": lambda: np.maximum(A @ (d["H"] @ d["W"]), 0),
        "tocsc": lambda: A.tocsc(),
        "coo2csr": lambda: coo.tocsr(),
    }
    return runs[stem]


def _sorted(made: Any) -> Any:
    made.sort_indices()
    return made


def agree(operation: Operation, d: Data, ours: Any, theirs: Any) -> bool:
    """Whether a result equals the baseline's: same shape, every entry within 1e-10 of the largest (1e-4 in single precision), nothing
    missing or extra.

    Both are NumPy arrays or SciPy sparse arrays; results that are only the values on a known pattern are put on it first.
    """
    ours, theirs = _placed(operation, d, ours), _placed(operation, d, theirs)
    if ours.shape != theirs.shape or sp.issparse(ours) != sp.issparse(theirs):
        return False
    if not np.prod(theirs.shape) or (sp.issparse(theirs) and not theirs.nnz):
        return not (sp.issparse(ours) and ours.count_nonzero())
    # a NaN anywhere makes this comparison false, and so counts as a difference
    tolerance = 1e-10 if np.finfo(theirs.dtype).eps < 1e-10 else 1e-4
    return bool(abs(ours - theirs).max() <= tolerance * abs(theirs).max())


def _placed(operation: Operation, d: Data, result: Any) -> Any:
    if sp.issparse(result):
        return result.toarray() if operation.stem == "nd_sum" else sp.csr_array(result)
    result = np.asarray(result)
    if operation.stem in ("sddmm", "softmax") and result.ndim == 1:
        A = d["A"]
        return sp.csr_array((result, A.indices, A.indptr), shape=A.shape) if len(result) == A.nnz else result
    if operation.stem == "ttm":
        _, used = fibers(d)
        shape, k = (d["shape"][0] * d["shape"][1], operation.k), operation.k
        rows, cols = np.repeat(used, k), np.tile(np.arange(k), len(used))
        return sp.csr_array((result.ravel(), (rows, cols)), shape=shape) if result.size == len(rows) else result
    return result
