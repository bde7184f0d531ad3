"""Linear algebra by libraries: the direct sparse solver (SuperLU, by SciPy).

    x = spsolve A b        A x = b;   tangent  dx = A^-1 (db - dA x);   cotangents  db = A^-T dx,  dA = -pattern(A) * (db x^T)

The cotangent of `A` is no rule here: it is that of the product `dA x`, a contraction under the mask of the pattern.
Factors are kept with the storage of `A`, so that the solve of the backward pass, and the next one, take triangular solves alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.formats import Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.lax.contract import contract
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.rules.batching import moved, spread
from sparsejax.lax.structural import convert_format

# --------------------------------------------------------------------------------------------------------- spsolve
#
# A: (n, n, batch…), b: (n, columns…, batch…). A batch of matrices is one block-diagonal matrix.


def _spsolve_typing(a: Aval, b: Aval, transpose: bool) -> Aval:
    return Aval(b.shape, b.dtype, Format.parse("dense", b.ndim), 0)


def _spsolve_reference(a: Any, b: Any, transpose: bool) -> Any:
    batch = np.ndim(a) - 2
    last = range(-batch, 0)
    matrices = np.moveaxis(a, last, range(batch))
    sides = np.moveaxis(b, last, range(batch))
    matrices = matrices.swapaxes(-1, -2) if transpose else matrices
    made = np.linalg.solve(matrices, sides.reshape(*matrices.shape[:-1], -1)).reshape(sides.shape)
    return np.moveaxis(made, range(batch), last)


def _block_diagonal(a: Storage) -> Any:
    """`a` as SciPy's csc, with 32-bit indices; the matrices of a batch as blocks."""
    import scipy.sparse as sp

    coords, vals = convert.to_coords(a)
    n = a.shape[0]
    block = np.ravel_multi_index(tuple(coords[2:]), a.shape[2:]) if len(a.shape) > 2 else 0
    size = n * int(np.prod(a.shape[2:]))
    made = sp.csc_array((vals, (block * n + coords[0], block * n + coords[1])), shape=(size, size))
    made.indices, made.indptr = made.indices.astype(np.intc), made.indptr.astype(np.intc)
    return made


def _factors(a: Storage) -> Any:
    """The triangular factors of `a`, computed once."""
    from scipy.sparse.linalg import splu

    known = a.cache.get("factors")
    if known is None:
        try:
            known = splu(_block_diagonal(a))
        except RuntimeError as error:
            raise np.linalg.LinAlgError(
                f"spsolve: the matrix A of shape {a.shape} is singular ({error}); sparsejax.scipy.sparse.linalg.gmres finds "
                "a solution where there is one"
            ) from None
        a.cache["factors"] = known
    return known


def _spsolve_call(a: Storage, b: Storage, out_aval: Aval, transpose: bool) -> Storage:
    sides = convert.to_dense(b)
    batch = sides.ndim - (len(a.shape) - 2)
    order = [*range(batch, sides.ndim), *range(batch)]
    columns = np.transpose(sides, order)  # batch…, n, columns…
    rows = int(np.prod(columns.shape[: len(a.shape) - 1]))
    flat = columns.reshape(rows, -1) if sides.size else columns
    made = _factors(a).solve(np.asfortranarray(flat), "T" if transpose else "N") if sides.size else flat
    made = np.transpose(np.reshape(made, columns.shape), np.argsort(order))
    return convert.from_dense(np.ascontiguousarray(made), out_aval.format, out_aval.fill_value)


def _labels(a: Any, b: Any, transpose: bool) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Labels of the matrix, of what it is multiplied with, and of the product."""
    batch = tuple(range(2, a.ndim))
    columns = tuple(range(a.ndim, b.ndim + 1))
    left = (1, 0) if transpose else (0, 1)
    return (*left, *batch), (1, *columns, *batch), (0, *columns, *batch)


def _spsolve_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, transpose: bool) -> Any:
    a, b = primals
    moving, side = tangents
    if moving is not None:
        left, right, result = _labels(a, b, transpose)
        product = contract([moving, out], [left, right], result, dtype=out.dtype)
        side = -product if side is None else elementwise("subtract", side, product)
    return _bound(a, side, transpose)


def _bound(a: Any, b: Any, transpose: bool) -> Any:
    return spsolve_p.bind(a, convert_format(b, "dense"), transpose=transpose)


def _spsolve_batch(size: int, a: Any, b: Any, transpose: bool) -> Any:
    if isinstance(a, Batched):
        return _bound(a.value, spread(b, size), transpose)
    place = b.aval.ndim - (a.ndim - 2)
    made = _bound(a, moved(b.value, b.value.ndim - 1, place), transpose)
    return moved(made, place, made.ndim - 1)


spsolve_p = Primitive(
    "spsolve",
    typing=_spsolve_typing,
    reference=_spsolve_reference,
    call=_spsolve_call,
    jvp=_spsolve_jvp,
    transpose=lambda ct, a, b, transpose: [None, _bound(a, ct, not transpose)],
    batch=_spsolve_batch,
    describe=lambda transpose: "transpose" if transpose else "",
)


def spsolve(A: Any, b: Any) -> Any:
    """The solution of `A @ x = b` for a square matrix `A` in any format and a vector or matrix `b`: dense, of the shape of `b`.

    By sparse LU factors (SuperLU, Li 2005), which are computed once per array `A`. Differentiable with respect to both, and batched.
    float32, float64 and complex; other dtypes become float64.

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[2.0, 1.0], [0.0, 4.0]]), format="csr")
    >>> spsolve(A, np.array([4.0, 8.0]))
    Array([1., 2.], dtype=float64)

    Raises ValueError for shapes that do not fit and for fills other than 0, numpy.linalg.LinAlgError where `A` is singular.
    """
    a, side = asarray(A, "the matrix A of spsolve"), asarray(b, "the right side b of spsolve")
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"spsolve: the matrix A must be square, but has shape {a.shape}")
    if side.ndim not in (1, 2) or side.shape[0] != a.shape[0]:
        raise ValueError(
            f"spsolve: the right side b must be a vector or matrix of {a.shape[0]} rows, like A, but has shape {side.shape}"
        )
    if not a.format.is_dense and a.fill_value != 0:
        raise ValueError(f'spsolve: the matrix A has fill {a.fill_value} instead of 0; pass A.asformat("dense")')
    dtype = dtypes.result_type((a.dtype, False), (side.dtype, side.aval.weak_type))
    dtype = dtype if dtype.kind in "fc" else np.dtype(np.float64)
    return _bound(convert_element_type(a, dtype), convert_element_type(side, dtype), False)
