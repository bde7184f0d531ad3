"""Adapters of libraries in C that are called directly: MKL through sparse-dot-mkl, SuiteSparse:GraphBLAS. See `libraries`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.operations import Data, Run, batch


def mkl_runs(stem: str, d: Data) -> Run | None:
    found = sorted((Path(sys.prefix) / "lib").glob("libmkl_rt.so*"))  # where pip puts it, and nobody looks
    if found:
        os.environ.setdefault("MKL_RT", str(found[0]))
    import sparse_dot_mkl

    if stem not in ("spmv", "spmm", "spmm_csc", "bspmm", "spgemm", "spgemm_sorted", "gcn"):
        return None
    dot, A = sparse_dot_mkl.dot_product_mkl, d["A"]
    columns = A.tocsc()
    matrices = batch(d) if stem == "bspmm" else []
    runs: dict[str, Run] = {
        "spmv": lambda: dot(A, d["x"]),
        "spmm": lambda: dot(A, d["H"]),
        "spmm_csc": lambda: dot(columns, d["H"]),
        "bspmm": lambda: np.stack([dot(M, H) for M, H in zip(matrices, d["H"], strict=True)]),
        "spgemm": lambda: dot(A, A),
        "spgemm_sorted": lambda: dot(A, A, reorder_output=True),
        "gcn": lambda: np.maximum(dot(A, d["H"] @ d["W"]), 0),
    }
    return runs[stem]


def graphblas_runs(stem: str, d: Data) -> Run | None:
    import graphblas as gb

    gb.ss.config["nthreads"] = int(os.environ.get("OMP_NUM_THREADS", "1"))
    if "A" not in d:
        return None
    A = gb.io.from_scipy_sparse(sp.csr_matrix(d["A"]))
    B = gb.io.from_scipy_sparse(sp.csr_matrix(d["B"])) if "B" in d else None
    x = gb.Vector.from_dense(d["x"]) if "x" in d else None
    dense = {key: gb.Matrix.from_dense(d[key]) for key in "HWUV" if np.ndim(d.get(key)) == 2}
    plus_times, times, plus = gb.semiring.plus_times, gb.binary.times, gb.monoid.plus

    def masked(left: Any, right: Any) -> Any:
        """left @ right where A is stored."""
        made = gb.Matrix(A.dtype, *A.shape)
        made(A.S) << plus_times(left @ right)
        return made

    def softmax() -> Any:
        """Rows are shifted and scaled by products with diagonal matrices."""
        most = A.reduce_rowwise(gb.monoid.max).new().diag()
        grown = gb.unary.exp(gb.semiring.plus_rminus(most @ A).new()).new()
        return gb.semiring.plus_rdiv(grown.reduce_rowwise(plus).new().diag() @ grown).new()

    def layer() -> Any:
        product = plus_times(A @ plus_times(dense["H"] @ dense["W"]).new()).new()
        return gb.binary.max(product, 0).new().to_dense(fill_value=0)

    runs: dict[str, Run] = {
        "spmv": lambda: plus_times(A @ x).new().to_dense(fill_value=0),
        "spmm": lambda: plus_times(A @ dense["H"]).new().to_dense(fill_value=0),
        "spgemm": lambda: plus_times(A @ A).new(),
        "sddmm_sum": lambda: times(A & masked(dense["U"], dense["V"].T)).new().reduce_scalar(plus).new().value,
        "softmax": softmax,
        "sddmm": lambda: times(A & masked(dense["U"], dense["V"].T)).new(),
        "add": lambda: gb.binary.plus(A | B).new(),
        "mul": lambda: times(A & B).new(),
        "rowsum": lambda: A.reduce_rowwise(plus).new().to_dense(fill_value=0),
        "triangles": lambda: times(A & masked(A, A)).new().reduce_scalar(plus).new().value / 6,
        "gcn": layer,
    }
    return runs.get(stem)
