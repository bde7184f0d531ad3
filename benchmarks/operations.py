"""The operations that are timed: how SciPy/NumPy, sparsejax and the other libraries each write them.

An operation is `Operation(name, kind, prepare)`; `prepare(matrix, k)` returns the operands; `LIBRARIES[library][name]` makes from them a
function without arguments that runs the operation once and returns its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

Run = Callable[[], Any]


@dataclass(frozen=True)
class Operation:
    """`kind`: which operands it takes; `k`: the extent of its dense dimension; `matrices`: where the peer table has it."""

    name: str
    kind: str
    k: int
    matrices: tuple[str, ...]


ALL = ("uniform", "rmat16", "stencil", "hyper", "cora", "dense10")
OPERATIONS = (
    Operation("spmv", "vector", 0, ALL),
    Operation("spmm32", "dense", 32, ALL),
    Operation("spmm128", "dense", 128, ("uniform", "rmat16", "stencil", "cora", "dense10")),
    Operation("spgemm", "square", 0, ("uniform", "rmat13", "stencil", "cora", "dense1k", "hyper")),
    Operation("sddmm32", "factors", 32, ("uniform", "rmat16", "stencil", "cora")),
    Operation("sddmm128", "factors", 128, ("uniform", "rmat16", "cora")),
    Operation("add", "pair", 0, ("uniform", "rmat16", "hyper", "cora")),
    Operation("mul", "pair", 0, ("uniform", "rmat16", "hyper", "cora")),
    Operation("rowsum", "alone", 0, ("uniform", "rmat16", "hyper", "cora")),
    Operation("triangles", "pattern", 0, ("rmat13", "cora")),
    Operation("gcn", "layer", 32, ("uniform", "rmat16", "stencil", "cora")),
    Operation("tocsc", "alone", 0, ("uniform", "rmat16", "hyper", "cora")),
    Operation("coo2csr", "alone", 0, ("uniform", "rmat16", "hyper", "cora")),
    Operation("mttkrp16", "tensor", 16, ("t3u", "t3s")),
    Operation("mttkrp64", "tensor", 64, ("t3u",)),
    Operation("ttm16", "tensor", 16, ("t3u", "t3s")),
)


def operands(operation: Operation, matrix: Any) -> dict[str, Any]:
    """NumPy and SciPy operands of an operation."""
    rng = np.random.default_rng(1)
    if operation.kind == "tensor":
        coords, values, shape = matrix
        factors = [rng.standard_normal((n, operation.k)) for n in shape]
        return {"coords": coords, "values": values, "shape": shape, "B": factors[1], "C": factors[2]}
    rows, cols = matrix.shape
    made: dict[str, Any] = {"A": matrix}
    if operation.kind == "vector":
        made["x"] = rng.standard_normal(cols)
    if operation.kind in ("dense", "layer"):
        made["H"] = rng.standard_normal((cols, operation.k))
    if operation.kind == "layer":
        made["W"] = rng.standard_normal((operation.k, operation.k))
    if operation.kind == "factors":
        made["U"], made["V"] = rng.standard_normal((rows, operation.k)), rng.standard_normal((cols, operation.k))
    if operation.kind == "pair":
        shift = sp.csr_array(matrix.T) if rows == cols else matrix
        made["B"] = shift
    if operation.kind == "pattern":
        P = sp.csr_array((np.ones(len(matrix.data)), matrix.indices, matrix.indptr), shape=matrix.shape)
        made["A"] = sp.csr_array(((P + P.T) > 0).astype(np.float64))
    return made


def scipy_runs(name: str, d: dict[str, Any]) -> Run | None:
    """The baseline: SciPy, or a NumPy composition where SciPy has no such operation."""
    stem = name.rstrip("0123456789")
    if stem in ("mttkrp", "ttm"):
        coords, values, shape = d["coords"], d["values"], d["shape"]
        i, j, k = coords
        if stem == "mttkrp":
            n = shape[0]

            def mttkrp() -> Any:
                rows = values[:, None] * d["B"][j] * d["C"][k]
                return sp.csr_array((np.ones(len(i)), (i, np.arange(len(i)))), shape=(n, len(i))) @ rows

            return mttkrp
        flat = sp.csr_array((values, (i * shape[1] + j, k)), shape=(shape[0] * shape[1], shape[2]))
        used = np.flatnonzero(np.diff(flat.indptr))
        packed = flat[used]
        return lambda: packed @ d["C"]
    A = d["A"]
    coo = A.tocoo()
    runs: dict[str, Run] = {
        "spmv": lambda: A @ d["x"],
        "spmm": lambda: A @ d["H"],
        "spgemm": lambda: _sorted(A @ A),
        "sddmm": lambda: np.einsum("ek,ek->e", d["U"][coo.row], d["V"][coo.col]) * coo.data,
        "add": lambda: A + d["B"],
        "mul": lambda: A.multiply(d["B"]),
        "rowsum": lambda: A.sum(axis=1),
        "triangles": lambda: A.multiply(A @ A).sum() / 6,
        "gcn": lambda: np.maximum(A @ (d["H"] @ d["W"]), 0),
        "tocsc": lambda: A.tocsc(),
        "coo2csr": lambda: coo.tocsr(),
    }
    return runs.get(name if name == "coo2csr" else stem)


def _sorted(made: Any) -> Any:
    made.sort_indices()  # ours is sorted: compare like with like
    return made


def sparsejax_runs(name: str, d: dict[str, Any]) -> Run | None:
    import sparsejax as sj
    import sparsejax.numpy as snp

    stem = name.rstrip("0123456789")
    if stem in ("mttkrp", "ttm"):
        T = sj.array((d["values"], d["coords"]), shape=d["shape"], format="csf")
        B, C = sj.array(d["B"]), sj.array(d["C"])
        if stem == "mttkrp":
            run = sj.jit(lambda T, B, C: sj.einsum("ijk,jr,kr->ir", T, B, C))
            return lambda: run(T, B, C)
        run = sj.jit(lambda T, C: sj.einsum("ijk,kr->ijr", T, C))
        return lambda: run(T, C)
    A = sj.array(d["A"], copy=True)
    other = {key: sj.array(value, copy=True) for key, value in d.items() if key != "A"}
    product = sj.jit(lambda A, x: A @ x)
    if stem == "spmv":
        return lambda: product(A, other["x"])
    if stem == "spmm":
        return lambda: product(A, other["H"])
    if stem == "spgemm":
        return lambda: product(A, A)
    if stem == "sddmm":
        run = sj.jit(lambda A, U, V: sj.einsum("ij,ik,jk->ij", A, U, V))
        return lambda: run(A, other["U"], other["V"])
    if stem in ("add", "mul"):
        run = sj.jit((lambda A, B: A + B) if stem == "add" else (lambda A, B: A * B))
        return lambda: run(A, other["B"])
    if stem == "rowsum":
        run = sj.jit(lambda A: A.sum(axis=1))
        return lambda: run(A)
    if stem == "triangles":
        run = sj.jit(lambda A: (A * (A @ A)).sum() / 6)
        return lambda: run(A)
    if stem == "gcn":
        run = sj.jit(lambda A, H, W: snp.maximum(A @ (H @ W), 0))
        return lambda: run(A, other["H"], other["W"])
    if stem == "tocsc":
        run = sj.jit(lambda A: A.asformat("csc"))
        return lambda: run(A)
    if name == "coo2csr":
        coo = A.asformat("coo")
        run = sj.jit(lambda A: A.asformat("csr"))
        return lambda: run(coo)
    return None


def torch_runs(name: str, d: dict[str, Any]) -> Run | None:
    import torch

    if "A" not in d:
        return None
    A = d["A"]
    stem = name.rstrip("0123456789")

    def csr(M: Any) -> Any:
        return torch.sparse_csr_tensor(
            torch.tensor(M.indptr), torch.tensor(M.indices), torch.tensor(M.data), size=M.shape
        )

    T = csr(A)
    if stem == "spmv":
        x = torch.tensor(d["x"])
        return lambda: T @ x
    if stem == "spmm":
        H = torch.tensor(d["H"])
        return lambda: T @ H
    if stem == "spgemm":
        return lambda: T @ T
    if stem == "sddmm":
        U, V = torch.tensor(d["U"]), torch.tensor(d["V"]).T.contiguous()
        zero = torch.sparse_csr_tensor(
            T.crow_indices(), T.col_indices(), torch.zeros(len(A.data), dtype=torch.float64), size=A.shape
        )
        weights = T.values()
        return lambda: torch.sparse.sampled_addmm(zero, U, V).values() * weights
    if stem == "gcn":
        H, W = torch.tensor(d["H"]), torch.tensor(d["W"])
        return lambda: torch.relu(T @ (H @ W))
    return None


def jax_runs(name: str, d: dict[str, Any]) -> Run | None:
    import jax
    from jax.experimental import sparse as jsparse

    jax.config.update("jax_enable_x64", True)
    stem = name.rstrip("0123456789")
    if stem not in ("spmv", "spmm", "gcn"):
        return None
    A = jsparse.BCSR.from_scipy_sparse(d["A"])
    product = jax.jit(lambda A, x: A @ x)
    if stem == "gcn":
        layer = jax.jit(lambda A, H, W: jax.numpy.maximum(A @ (H @ W), 0))
        H, W = jax.numpy.asarray(d["H"]), jax.numpy.asarray(d["W"])
        return lambda: layer(A, H, W).block_until_ready()
    x = jax.numpy.asarray(d["x"] if stem == "spmv" else d["H"])
    return lambda: product(A, x).block_until_ready()


def pydata_runs(name: str, d: dict[str, Any]) -> Run | None:
    import sparse

    if "A" not in d:
        return None
    A = sparse.GCXS.from_scipy_sparse(d["A"])
    stem = name.rstrip("0123456789")
    if stem == "spmv":
        return lambda: A @ d["x"]
    if stem == "spmm":
        return lambda: A @ d["H"]
    if stem == "spgemm":
        return lambda: A @ A
    if stem in ("add", "mul"):
        B = sparse.GCXS.from_scipy_sparse(d["B"])
        return (lambda: A + B) if stem == "add" else (lambda: A * B)
    return None


LIBRARIES: dict[str, Callable[[str, dict[str, Any]], Run | None]] = {
    "scipy": scipy_runs,
    "sparsejax": sparsejax_runs,
    "torch": torch_runs,
    "jax": jax_runs,
    "sparse": pydata_runs,
}
