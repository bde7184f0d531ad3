"""How each library writes the operations: one adapter per library, from operands to a function that runs the operation once.

An adapter returns None for what its library lacks. Operands are converted to the library's own types beforehand, so that only
the operation is timed. `comparable` turns any library's result into a NumPy or SciPy array, outside the timed region.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.native_libraries import graphblas_runs, mkl_runs
from benchmarks.operations import Data, Run, baseline, batch, fibers, flattened


def program(stem: str, d: Data) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """An operation as a function of sparsejax arrays, and these."""
    import sparsejax as sj
    import sparsejax.numpy as snp

    if stem in ("mttkrp", "ttm", "nd_mul", "nd_sum"):
        T = sj.array((d["values"], d["coords"]), shape=d["shape"], format="csf")
        if stem == "nd_mul":
            other = sj.array((d["values"], d["others"]), shape=d["shape"], format="csf")
            return lambda T, S: T * S, (T, other)
        if stem == "nd_sum":
            return lambda T: T.sum(axis=1), (T,)
        B, C = sj.array(d["B"], copy=True), sj.array(d["C"], copy=True)
        if stem == "mttkrp":
            return lambda T, B, C: sj.einsum("ijk,jr,kr->ir", T, B, C), (T, B, C)
        return lambda T, C: sj.einsum("ijk,kr->ijr", T, C), (T, C)
    # copies: arrays borrow where they can and mark the source read-only, and the other libraries use the same source
    A = sj.array(d["A"], copy=True)
    rest = {key: sj.array(value, copy=True) for key, value in d.items() if key != "A"}
    if stem == "bspmm":
        V = snp.stack([sj.array(M, copy=True) for M in batch(d)]).asformat("(d,c,d)@(1,2,0)")
        return sj.vmap(lambda A, H: A @ H), (V, rest["H"])
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "spmv": (lambda A, x: A @ x, (A, rest.get("x"))),
        "spmm": (lambda A, H: A @ H, (A, rest.get("H"))),
        "spgemm": (lambda A, B: A @ B, (A, A)),
        "spgemm_sorted": (lambda A, B: A @ B, (A, A)),
        "sddmm": (lambda A, U, V: sj.einsum("ij,ik,jk->ij", A, U, V), (A, rest.get("U"), rest.get("V"))),
        "sddmm_sum": (lambda A, U, V: (A * (U @ V.T)).sum(), (A, rest.get("U"), rest.get("V"))),
        "spmm_csc": (lambda A, H: A @ H, (A.asformat("csc"), rest.get("H"))),
        "softmax": (sj.nn.softmax, (A,)),
        "add": (lambda A, B: A + B, (A, rest.get("B"))),
        "mul": (lambda A, B: A * B, (A, rest.get("B"))),
        "rowsum": (lambda A: A.sum(axis=1), (A,)),
        "triangles": (lambda A: (A * (A @ A)).sum() / 6, (A,)),
        "gcn": (lambda A, H, W: snp.maximum(A @ (H @ W), 0), (A, rest.get("H"), rest.get("W"))),
        "tocsc": (lambda A: A.asformat("csc"), (A,)),
        "coo2csr": (lambda A: A.asformat("csr"), (A.asformat("coo"),)),
    }
    return functions[stem]


def sparsejax_runs(stem: str, d: Data) -> Run | None:
    import sparsejax as sj

    function, arguments = program(stem, d)
    compiled = sj.jit(function)
    return lambda: compiled(*arguments)


def cost(stem: str, d: Data) -> dict[str, float]:
    """Operations and bytes of an operation, as `cost_analysis` tells them."""
    import sparsejax as sj

    function, arguments = program(stem, d)
    told: dict[str, float] = sj.jit(function).lower(*arguments).cost_analysis()
    return {"flops": told["flops"], "bytes": told["bytes accessed"]}


def torch_runs(stem: str, d: Data) -> Run | None:
    import torch

    # torch announces that its csr layout is in beta, once per process
    warnings.filterwarnings("ignore", message="Sparse (CSR|CSC|invariant)", category=UserWarning)
    if stem == "mttkrp":
        i, j, k = (torch.tensor(c) for c in d["coords"])
        values, B, C = torch.tensor(d["values"])[:, None], torch.tensor(d["B"]), torch.tensor(d["C"])
        rows, rank = d["shape"][0], B.shape[1]
        return lambda: torch.zeros(rows, rank, dtype=B.dtype).index_add_(0, i, values * B[j] * C[k])
    if stem in ("nd_mul", "nd_sum"):
        T, S = (
            torch.sparse_coo_tensor(torch.tensor(d[key].copy()), torch.tensor(d["values"]), d["shape"]).coalesce()
            for key in ("coords", "others")
        )
        return (lambda: (T * S).coalesce()) if stem == "nd_mul" else (lambda: torch.sparse.sum(T, dim=1).to_dense())
    if "A" not in d:
        return None

    def csr(M: Any, values: Any = None) -> Any:
        parts = torch.tensor(M.indptr), torch.tensor(M.indices), torch.tensor(M.data if values is None else values)
        return torch.sparse_csr_tensor(*parts, size=M.shape)

    A = csr(d["A"])
    tensors = {key: torch.tensor(d[key]) for key in "xHWUV" if key in d}
    if stem == "bspmm":
        # torch has no product of batches in csr
        matrices = [csr(d["A"], v) for v in d["V"]]
        return lambda: torch.stack([M @ H for M, H in zip(matrices, tensors["H"], strict=True)])
    if stem == "softmax":
        entries = A.to_sparse_coo().coalesce()
        return lambda: torch.sparse.softmax(entries, dim=1)
    if stem in ("sddmm", "sddmm_sum"):
        zero, across = csr(d["A"], np.zeros_like(d["A"].data)), tensors["V"].T.contiguous()
        values = A.values()
        if stem == "sddmm_sum":
            return lambda: torch.dot(torch.sparse.sampled_addmm(zero, tensors["U"], across).values(), values)
        return lambda: torch.sparse.sampled_addmm(zero, tensors["U"], across).values() * values
    if stem in ("add", "mul"):
        B = csr(d["B"])
        return (lambda: A + B) if stem == "add" else (lambda: A * B)
    if stem == "coo2csr":
        coo = d["A"].tocoo()
        places = torch.tensor(np.stack([coo.row, coo.col]).astype(np.int64))
        entries = torch.sparse_coo_tensor(places, torch.tensor(coo.data), size=coo.shape, is_coalesced=True)
        return lambda: entries.to_sparse_csr()
    columns = A.to_sparse_csc()
    runs: dict[str, Run] = {
        "spmv": lambda: A @ tensors["x"],
        "spmm": lambda: A @ tensors["H"],
        "spmm_csc": lambda: columns @ tensors["H"],
        "spgemm": lambda: A @ A,
        "gcn": lambda: torch.relu(A @ (tensors["H"] @ tensors["W"])),
        "rowsum": lambda: torch.sum(A, dim=1, keepdim=True).to_dense()[:, 0],
        "tocsc": lambda: A.to_sparse_csc(),
    }
    return runs.get(stem)


def jax_runs(stem: str, d: Data) -> Run | None:
    import jax
    import jax.numpy as jnp
    from jax.experimental import sparse as jsparse

    jax.config.update("jax_enable_x64", True)

    def ready(function: Callable[..., Any], *arguments: Any) -> Run:
        compiled = jax.jit(function)
        return lambda: compiled(*arguments).block_until_ready()

    def gathered(rows: int, function: Callable[..., Any], segments: Any, *arguments: Any) -> Run:
        """A sum by row of what `function` computes per entry; entries are sorted by row."""

        def run(segments: Any, *arguments: Any) -> Any:
            return jax.ops.segment_sum(function(*arguments), segments, num_segments=rows, indices_are_sorted=True)

        return ready(run, segments, *arguments)

    if stem == "mttkrp":
        i, j, k = (jnp.asarray(c) for c in d["coords"])
        values, B, C = jnp.asarray(d["values"]), jnp.asarray(d["B"]), jnp.asarray(d["C"])
        return gathered(d["shape"][0], lambda v, j, k, B, C: v[:, None] * B[j] * C[k], i, values, j, k, B, C)
    if stem == "nd_sum":
        rows, _, cols = d["shape"]
        places = jnp.asarray(d["coords"][0] * cols + d["coords"][2])
        total = jax.jit(lambda v: jax.ops.segment_sum(v, places, num_segments=rows * cols).reshape(rows, cols))
        values = jnp.asarray(d["values"])
        return lambda: total(values).block_until_ready()
    if stem not in ("spmv", "spmm", "gcn", "sddmm", "sddmm_sum", "rowsum", "softmax", "spmm_csc", "bspmm"):
        return None
    A = jsparse.BCSR.from_scipy_sparse(d["A"])
    arrays = {key: jnp.asarray(d[key]) for key in "xHWUV" if key in d}
    if stem == "gcn":
        return ready(lambda A, H, W: jnp.maximum(A @ (H @ W), 0), A, arrays["H"], arrays["W"])
    if stem in ("spmv", "spmm"):
        return ready(lambda A, x: A @ x, A, arrays["x" if stem == "spmv" else "H"])
    if stem == "bspmm":
        one = jax.vmap(lambda v, H: jsparse.BCSR((v, A.indices, A.indptr), shape=A.shape) @ H)
        return ready(one, arrays["V"], arrays["H"])
    if stem == "spmm_csc":
        columns = d["A"].tocsc().tocoo()
        places = jnp.asarray(np.stack([columns.row, columns.col], axis=1))
        entries = jsparse.BCOO((jnp.asarray(columns.data), places), shape=columns.shape, unique_indices=True)
        return ready(lambda A, H: A @ H, entries, arrays["H"])
    coo = d["A"].tocoo()
    row, col, data = jnp.asarray(coo.row), jnp.asarray(coo.col), jnp.asarray(coo.data)
    if stem == "rowsum":
        return gathered(coo.shape[0], lambda data: data, row, data)
    if stem == "softmax":

        def softmax(data: Any, row: Any) -> Any:
            known = {"num_segments": coo.shape[0], "indices_are_sorted": True}
            grown = jnp.exp(data - jax.ops.segment_max(data, row, **known)[row])
            return grown / jax.ops.segment_sum(grown, row, **known)[row]

        return ready(softmax, data, row)

    def sampled(data: Any, row: Any, col: Any, U: Any, V: Any) -> Any:
        made = data * (U[row] * V[col]).sum(1)
        return made.sum() if stem == "sddmm_sum" else made

    return ready(sampled, data, row, col, arrays["U"], arrays["V"])


def pydata_runs(stem: str, d: Data) -> Run | None:
    import sparse

    if stem in ("nd_mul", "nd_sum"):
        T, S = (sparse.COO(d[key], d["values"], shape=d["shape"]) for key in ("coords", "others"))
        return (lambda: T * S) if stem == "nd_mul" else (lambda: T.sum(axis=1))
    if "A" not in d:
        return None
    A = sparse.GCXS.from_scipy_sparse(d["A"])
    if stem in ("add", "mul"):
        B = sparse.GCXS.from_scipy_sparse(d["B"])
        return (lambda: A + B) if stem == "add" else (lambda: A * B)
    if stem == "coo2csr":
        coo = sparse.COO.from_scipy_sparse(d["A"].tocoo())
        return lambda: sparse.GCXS.from_coo(coo, compressed_axes=[0])
    columns = A.change_compressed_axes([1])
    runs: dict[str, Run] = {
        "spmv": lambda: A @ d["x"],
        "spmm": lambda: A @ d["H"],
        "spmm_csc": lambda: columns @ d["H"],
        "spgemm": lambda: A @ A,
        "rowsum": lambda: A.sum(axis=1),
        "tocsc": lambda: A.change_compressed_axes([1]),
    }
    return runs.get(stem)


def numba_runs(stem: str, d: Data) -> Run | None:
    """Loops written by hand for one format each: a yardstick for compiled code rather than a library."""
    from benchmarks import loops

    if stem == "mttkrp":
        order = np.lexsort(d["coords"][::-1])
        i, j, k = (np.ascontiguousarray(c[order]) for c in d["coords"])
        starts, values = np.searchsorted(i, np.arange(d["shape"][0] + 1)), d["values"][order]
        return lambda: loops.mttkrp(starts, j, k, values, d["B"], d["C"])
    if stem == "ttm":
        packed, _ = fibers(d)
        return lambda: loops.spmm(packed.indptr, packed.indices, packed.data, d["C"])
    if stem == "nd_mul":
        one, other = flattened(d, d["coords"]), flattened(d, d["others"])
        both = one.indptr, one.indices, one.data, other.indptr, other.indices, other.data
        return lambda: sp.csr_array(loops.mul(*both)[::-1], shape=one.shape)
    if stem == "nd_sum":
        order = np.lexsort(d["coords"][::-1])
        starts = np.searchsorted(d["coords"][0][order], np.arange(d["shape"][0] + 1))
        columns, values = np.ascontiguousarray(d["coords"][2][order]), d["values"][order]
        return lambda: loops.middle_sum(starts, columns, values, d["shape"][2])
    if "A" not in d:
        return None
    A, B = d["A"], d.get("B")
    csr, csc = (A.indptr, A.indices, A.data), A.tocsc()
    other = () if B is None else (B.indptr, B.indices, B.data)

    def matrix(kind: Any, parts: Any) -> Any:
        return kind((parts[2], parts[1], parts[0]), shape=A.shape)

    runs: dict[str, Run] = {
        "spmv": lambda: loops.spmv(*csr, d["x"]),
        "spmm": lambda: loops.spmm(*csr, d["H"]),
        "spmm_csc": lambda: loops.spmm_csc(csc.indptr, csc.indices, csc.data, d["H"], A.shape[0]),
        "bspmm": lambda: loops.bspmm(A.indptr, A.indices, d["V"], d["H"]),
        "spgemm": lambda: matrix(sp.csr_array, loops.spgemm(*csr, A.shape[1])),
        "spgemm_sorted": lambda: matrix(sp.csr_array, loops.spgemm(*csr, A.shape[1])),
        "sddmm": lambda: loops.sddmm(*csr, d["U"], d["V"]),
        "sddmm_sum": lambda: loops.sddmm_sum(*csr, d["U"], d["V"]),
        "softmax": lambda: loops.softmax(A.indptr, A.data),
        "add": lambda: matrix(sp.csr_array, loops.add(*csr, *other)),
        "mul": lambda: matrix(sp.csr_array, loops.mul(*csr, *other)),
        "gcn": lambda: loops.gcn(*csr, d["H"], d["W"]),
        "rowsum": lambda: loops.rowsum(A.indptr, A.data),
        "tocsc": lambda: matrix(sp.csc_array, loops.tocsc(*csr, A.shape[1])),
    }
    return runs.get(stem)


def comparable(result: Any) -> Any:
    """A result of any library as a NumPy array or a SciPy sparse array."""
    home = type(result).__module__.split(".")[0]
    if home == "sparsejax":
        if result.format.is_dense:
            return result.todense()
        if result.ndim == 1:
            return result.todense()
        return result.to_scipy() if result.ndim == 2 else _flattened(result)
    if home == "torch":
        if "sparse" not in str(result.layout):
            return result.numpy()
        if result.ndim == 3:
            return flattened({"values": result.values().numpy(), "shape": result.shape}, result.indices().numpy())
        made = result.to_sparse_csr()
        parts = made.values().numpy(), made.col_indices().numpy(), made.crow_indices().numpy()
        return sp.csr_array(parts, shape=tuple(made.shape))
    if home == "graphblas":
        import graphblas as gb

        return gb.io.to_scipy_sparse(result, "csr") if result.ndim == 2 else result.to_dense(fill_value=0)
    if home == "sparse":
        if result.ndim == 3:
            return flattened({"values": result.data, "shape": result.shape}, result.coords)
        return result.to_scipy_sparse() if result.ndim == 2 else result.todense()
    return result if sp.issparse(result) else np.asarray(result)


def _flattened(result: Any) -> Any:
    """A sparse 3-way Array as a matrix whose rows are its first two dimensions."""
    from sparsejax.formats import convert

    coords, values = convert.to_coords(result.storage)
    return flattened({"values": values, "shape": result.shape}, coords)


LIBRARIES: dict[str, Callable[[str, Data], Run | None]] = {
    "scipy": baseline,
    "sparsejax": sparsejax_runs,
    "torch": torch_runs,
    "jax": jax_runs,
    "sparse": pydata_runs,
    "sparse_dot_mkl": mkl_runs,
    "graphblas": graphblas_runs,
    "numba": numba_runs,
}
REFERENCES = ("numba",)
"""Not libraries, but loops written for one case each."""
