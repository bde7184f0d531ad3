"""Factors of sparse matrices that are used again: `splu`, `factorized`, `spilu` (SuperLU, by SciPy), triangular solves, preconditioners.

x = triangular[lower, unit] A b        A x = b by substitution;  dx = A^-1 (db - tri(dA) x),  db = A^-T dx
x = ilu A b                            (an incomplete factor)^-1 b: linear in b, constant in A
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.formats import convert
from sparsejax.formats.storage import Storage
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import matmul
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.linalg import spsolve, spsolve_p
from sparsejax.lax.rules.batching import moved
from sparsejax.lax.structural import convert_format, diagonal, transpose
from sparsejax.numpy.functions import tril, triu
from sparsejax.numpy.indexing import stack
from sparsejax.scipy.sparse.operators import LinearOperator


def _matrix(name: str, A: Any) -> Any:
    a = asarray(A, f"the matrix A of {name}")
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"{name}: the matrix A must be square, but has shape {a.shape}")
    if not a.format.is_dense and a.fill_value != 0:
        raise ValueError(f'{name}: the matrix A has fill {a.fill_value} instead of 0; pass A.asformat("dense")')
    return a if a.dtype.kind in "fc" else convert_element_type(a, np.float64)


def _side(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    side = convert_format(asarray(b, f"the right side b of {name}"), "dense")
    if side.ndim not in (1, 2) or side.shape[0] != a.shape[0]:
        raise ValueError(f"{name}: the right side b must have {a.shape[0]} rows, like A, but has shape {side.shape}")
    dtype = dtypes.result_type((a.dtype, False), (side.dtype, side.aval.weak_type))
    return convert_element_type(a, dtype), convert_element_type(side, dtype)


# --------------------------------------------------------------------------------------------------------- triangles


def _scipy(a: Storage, format: str, part: str = "") -> Any:
    """`a`, or its "lower" or "upper" triangle, in a format of SciPy's."""
    import scipy.sparse as sp

    coords, vals = convert.to_coords(a)
    if part:
        kept = coords[0] >= coords[1] if part == "lower" else coords[0] <= coords[1]
        coords, vals = coords[:, kept], vals[kept]
    kind = sp.csr_array if format == "csr" else sp.csc_array
    made = kind((vals, (coords[0], coords[1])), shape=a.shape)
    made.sort_indices()
    return made


def _triangular(a: Storage, b: Storage, out_aval: Aval, lower: bool, unit: bool) -> Storage:
    from scipy.sparse.linalg import spsolve_triangular

    part = "lower" if lower else "upper"
    matrix = a.cache.get(part)
    if matrix is None:
        matrix = a.cache[part] = _scipy(a, "csr", part)
    side = np.array(convert.to_dense(b))
    made = spsolve_triangular(matrix, side, lower=lower, unit_diagonal=unit) if side.size else side
    return convert.from_dense(np.ascontiguousarray(made, out_aval.dtype), out_aval.format, 0)


def _triangle_reference(a: Any, b: Any, lower: bool, unit: bool) -> Any:
    part = np.tril(a) if lower else np.triu(a)
    if unit:
        part = part - np.diag(np.diag(part)) + np.eye(len(part))
    return np.linalg.solve(part, b)


def _part(x: Any, lower: bool, unit: bool) -> Any:
    return (tril(x, -1) if lower else triu(x, 1)) if unit else (tril(x) if lower else triu(x))


def _triangle_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, lower: bool, unit: bool) -> Any:
    moving, side = tangents
    if moving is not None:
        product = convert_format(matmul(_part(moving, lower, unit), out), "dense")
        side = -product if side is None else elementwise("subtract", side, product)
    return triangular_p.bind(primals[0], convert_format(side, "dense"), lower=lower, unit=unit)


def _columns_batch(primitive: Callable[[], Primitive]) -> Callable[..., Any]:
    """Of right sides: more columns. Of matrices: one after the other."""

    def batch(size: int, a: Any, b: Any, **params: Any) -> Any:
        if not isinstance(a, Batched) and b.aval.ndim == 1:
            return primitive().bind(a, convert_format(b.value, "dense"), **params)
        matrices = [a.value[..., k] if isinstance(a, Batched) else a for k in range(size)]
        sides = [b.value[..., k] if isinstance(b, Batched) else b for k in range(size)]
        made = [primitive().bind(m, convert_format(s, "dense"), **params) for m, s in zip(matrices, sides, strict=True)]
        whole = stack(made)
        return moved(whole, 0, whole.ndim - 1)

    return batch


triangular_p: Primitive = Primitive(
    "spsolve_triangular",
    typing=lambda a, b, lower, unit: rules.dense(b.shape, b.dtype),
    reference=_triangle_reference,
    call=_triangular,
    jvp=_triangle_jvp,
    transpose=lambda ct, a, b, lower, unit: [
        None,
        triangular_p.bind(transpose(a), convert_format(ct, "dense"), lower=not lower, unit=unit),
    ],
    batch=_columns_batch(lambda: triangular_p),
)


def spsolve_triangular(A: Any, b: Any, lower: bool = True, *, unit_diagonal: bool = False) -> Any:
    """The solution of `A @ x = b` for a triangular matrix in any format, by substitution: dense. Entries beyond the triangle are
    not read. O(stored entries per column of b). Differentiable, and batched.

    >>> import sparsejax as sj
    >>> spsolve_triangular(sj.array([[2.0, 0.0], [1.0, 4.0]], format="csr"), np.array([2.0, 9.0]))
    Array([1., 2.], dtype=float64)
    """
    a, side = _side("spsolve_triangular", _matrix("spsolve_triangular", A), b)
    return triangular_p.bind(a, side, lower=lower, unit=unit_diagonal)


# ----------------------------------------------------------------------------------------------------------- factors


class SuperLU:
    """The LU factors of a sparse matrix: `solve(b)`, and again, without another factorisation, inside `jit` too.

    They are kept with the array that they are of. Derivatives are those of `spsolve`.
    """

    def __init__(self, A: Any) -> None:
        self.matrix = _matrix("splu", A)
        self.shape = self.matrix.shape
        self.dtype = self.matrix.dtype

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """The solution of `A @ x = rhs`, of the transposed ("T") or the adjoint equation ("H")."""
        if trans not in ("N", "T", "H"):
            raise ValueError(f"trans={trans!r} must be 'N', 'T' or 'H'")
        if trans == "N":
            return spsolve(self.matrix, rhs)
        a, side = _side("splu", self.matrix, rhs)
        is_complex = trans == "H" and a.dtype.kind == "c"
        side = elementwise("conjugate", side) if is_complex else side
        made = spsolve_p.bind(a, side, transpose=True)
        return elementwise("conjugate", made) if is_complex else made


def splu(A: Any) -> SuperLU:
    """The LU factors of a sparse matrix, as `scipy.sparse.linalg.splu`: computed at the first solve, and kept with the array.

    >>> import sparsejax as sj
    >>> splu(sj.array([[2.0, 1.0], [0.0, 4.0]], format="csc")).solve(np.array([4.0, 8.0]))
    Array([1., 2.], dtype=float64)
    """
    return SuperLU(A)


def factorized(A: Any) -> Callable[[Any], Any]:
    """A function that solves `A @ x = b` for `b`; see `splu`."""
    return splu(A).solve


def _ilu(a: Storage, b: Storage, out_aval: Aval, drop_tol: float, fill_factor: float, transpose: bool) -> Storage:
    from scipy.sparse.linalg import spilu

    key = "ilu", drop_tol, fill_factor
    known = a.cache.get(key)
    if known is None:
        try:
            known = a.cache[key] = spilu(_scipy(a, "csc"), drop_tol=drop_tol, fill_factor=fill_factor)
        except RuntimeError as error:
            raise np.linalg.LinAlgError(f"spilu: the matrix A of shape {a.shape} is singular ({error})") from None
    made = known.solve(np.asfortranarray(convert.to_dense(b)), "T" if transpose else "N")
    return convert.from_dense(np.ascontiguousarray(made, out_aval.dtype), out_aval.format, 0)


ilu_p: Primitive = Primitive(
    "spilu",
    typing=lambda a, b, **params: rules.dense(b.shape, b.dtype),
    reference=lambda a, b, **params: np.linalg.solve(a, b),
    call=_ilu,
    jvp=lambda primals, tangents, out, **params: (
        None if tangents[1] is None else ilu_p.bind(primals[0], convert_format(tangents[1], "dense"), **params)
    ),
    transpose=lambda ct, a, b, transpose, **params: [
        None,
        ilu_p.bind(a, convert_format(ct, "dense"), transpose=not transpose, **params),
    ],
    batch=_columns_batch(lambda: ilu_p),
)


def spilu(A: Any, drop_tol: float = 1e-4, fill_factor: float = 10.0) -> LinearOperator:
    """An incomplete LU factor (SuperLU, by SciPy) as a preconditioner: the `LinearOperator` of an approximate inverse, `M` of `cg`,
    `gmres`, `bicgstab`. Computed at its first use, kept with the array. Linear in what it is applied to, constant in `A`.

    >>> import sparsejax as sj
    >>> M = spilu(sj.array([[2.0, 1.0], [0.0, 4.0]], format="csr"))
    >>> M @ np.array([4.0, 8.0])
    Array([1., 2.], dtype=float64)
    """
    matrix = _matrix("spilu", A)

    def apply(x: Any, transpose: bool = False) -> Any:
        a, side = _side("spilu", matrix, x)
        return ilu_p.bind(a, side, drop_tol=float(drop_tol), fill_factor=float(fill_factor), transpose=transpose)

    def back(x: Any) -> Any:
        if matrix.dtype.kind != "c":
            return apply(x, True)
        return elementwise("conjugate", apply(elementwise("conjugate", x), True))

    made = LinearOperator(matrix.shape, apply, back, apply, back, matrix.dtype)
    made.solve = made.matvec  # type: ignore[attr-defined]
    return made


def jacobi(A: Any) -> LinearOperator:
    """The inverse of the diagonal, as a preconditioner: a `LinearOperator`; differentiable.

    >>> import sparsejax as sj
    >>> jacobi(sj.array([[2.0, 1.0], [0.0, 4.0]], format="csr")) @ np.array([4.0, 8.0])
    Array([2., 2.], dtype=float64)
    """
    matrix = _matrix("jacobi", A)
    d = convert_format(diagonal(matrix), "dense")
    conj = elementwise("conjugate", d) if d.dtype.kind == "c" else d
    return LinearOperator(
        matrix.shape,
        lambda x: x / d,
        lambda x: x / conj,
        lambda X: X / d.reshape((-1, 1)),
        lambda X: X / conj.reshape((-1, 1)),
        matrix.dtype,
    )
