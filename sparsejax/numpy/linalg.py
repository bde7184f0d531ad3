"""`numpy.linalg`, and the linear algebra extension of the standard: norms and products of arrays in any format, decompositions of dense
ones by LAPACK, all differentiable. Sparse solvers are in `sparsejax.scipy.sparse.linalg`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import is_python_scalar
from sparsejax.lax import structural
from sparsejax.lax.contract import contract, matmul, tensordot
from sparsejax.lax.elementwise import elementwise, where
from sparsejax.lax.library import decompositions, solves
from sparsejax.lax.linalg import spsolve
from sparsejax.lax.structural import (
    convert_format,
    dense_in_any_order,
    expand_dims,
    integer,
    normal_axes,
    normal_axis,
    reshape,
)
from sparsejax.numpy import reductions
from sparsejax.numpy.indexing import getitem, stack
from sparsejax.numpy.making import eye
from sparsejax.numpy.manipulation import matrix_transpose

__all__ = [
    "LinAlgError",
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]


def __dir__() -> list[str]:
    return __all__


# ------------------------------------------------------------------------------------------------------------ results


class EighResult(NamedTuple):
    """What `eigh` gives: eigenvalues, increasing, and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """What `eig` gives: eigenvalues, and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """What `qr` gives: orthonormal columns, and an upper triangle."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """What `slogdet` gives: the sign of the determinant, and the logarithm of its absolute value."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """What `svd` gives: `U * S @ Vh` is the matrix."""

    U: Any
    S: Any
    Vh: Any


# -------------------------------------------------------------------------------------------------------------- norms


@again(1, whole=True)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """`numpy.linalg.norm` of vectors (any `ord`) and matrices ("fro", 1, -1, inf, -inf). O(stored entries).

    The norms 2, -2 and "nuc" of matrices take all singular values, by LAPACK. ValueError for unknown ones.

    >>> import sparsejax as sj
    >>> norm(sj.array(np.eye(4), format="csr"))
    Array(2., dtype=float64)
    """
    x = _floating(asarray(x))
    if axis is None and ord is None:
        return elementwise("sqrt", reductions.sum(_squares(x), keepdims=keepdims))
    axes = tuple(range(x.ndim)) if axis is None else tuple(normal_axes(axis, x.ndim))
    if len(axes) == 1:
        return _vector(x, 2 if ord is None else ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ValueError(f"a norm is taken over one axis or two, not over axis={axis} of an array of shape {x.shape}")
    if ord in (None, "fro", "f"):
        return elementwise("sqrt", reductions.sum(_squares(x), axes, keepdims=keepdims))
    if ord in (2, -2, "nuc"):
        return _spectral(x, ord, axes, keepdims)
    along = {1: axes[0], -1: axes[0], np.inf: axes[1], -np.inf: axes[1]}
    if isinstance(ord, str) or ord not in along:
        raise ValueError(f"ord={ord!r} is no norm of matrices; take 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    first = along[ord]
    sums = reductions.sum(elementwise("absolute", x), first)
    second = next(a for a in axes if a != first)
    found = (_largest if ord > 0 else reductions.min)(sums, second - (first < second))
    return reshape(found, [1 if k in axes else n for k, n in enumerate(x.shape)]) if keepdims else found


def _largest(sizes: Any, axis: int, keepdims: bool = False) -> Any:
    """The largest of sizes, 0 where there is none."""
    axis = normal_axis(axis, sizes.ndim)
    return (reductions.max if sizes.shape[axis] else reductions.sum)(sizes, axis, keepdims=keepdims)


def _spectral(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    rest = [k for k in range(x.ndim) if k not in axes]
    values = svdvals(x.transpose([*rest, *axes]))
    found = reductions.sum(values, -1) if ord == "nuc" else (_largest if ord == 2 else reductions.min)(values, -1)
    return reshape(found, [1 if k in axes else n for k, n in enumerate(x.shape)]) if keepdims else found


def _vector(x: Any, ord: Any, axis: int, keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ValueError(f"ord={ord!r} is a norm of matrices; a vector takes numbers")
    if ord == 2:
        return elementwise("sqrt", reductions.sum(_squares(x), axis, keepdims=keepdims))
    size = elementwise("absolute", x)
    if ord == np.inf:
        return _largest(size, axis, keepdims)
    if ord == -np.inf:
        return reductions.min(size, axis, keepdims)
    if ord == 0:
        return reductions.count_nonzero(x, axis, keepdims).astype(size.dtype)
    total = reductions.sum(elementwise("power", size, float(ord)), axis, keepdims=keepdims)
    return elementwise("power", total, 1 / ord)


def _squares(x: Any) -> Any:
    size = elementwise("absolute", x) if x.dtype.kind == "c" else x
    return elementwise("multiply", size, size)


@again(1, whole=True)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """The standard's norm of vectors along one axis or several, or of all entries.

    >>> float(vector_norm(np.array([[3.0], [4.0]])))
    5.0
    """
    x = _floating(asarray(x))
    axes = tuple(range(x.ndim)) if axis is None else normal_axes(axis, x.ndim)
    rest = [k for k in range(x.ndim) if k not in axes]
    flat = x
    if len(axes) != 1:
        flat = reshape(x.transpose([*rest, *axes]), [*(x.shape[k] for k in rest), -1 if x.size else 0])
    found = _vector(flat, ord, axes[0] if len(axes) == 1 else len(rest), False)
    return reshape(found, [1 if k in axes else n for k, n in enumerate(x.shape)]) if keepdims else found


@again(1, whole=True)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The standard's norm of matrices in the last two axes.

    >>> float(matrix_norm(np.eye(4)))
    2.0
    """
    return norm(x, ord, (-2, -1), keepdims)


def _floating(x: Any) -> Any:
    return x if x.dtype.kind in "fc" else x.astype(float)


def cond(x: Any, p: Any = None) -> Array:
    """`numpy.linalg.cond`: the condition number, in the norm `p` (2)."""
    if p in (None, 2, -2):
        s = svdvals(x)
        first, last = getitem(s, (..., 0)), getitem(s, (..., s.shape[-1] - 1))
        return elementwise("divide", last, first) if p == -2 else elementwise("divide", first, last)
    return elementwise("multiply", matrix_norm(x, ord=p), matrix_norm(inv(x), ord=p))


# ----------------------------------------------------------------------------------------------------------- products


def diagonal(x: Any, *, offset: int = 0) -> Array:
    """`numpy.linalg.diagonal`: of the last two axes.

    >>> diagonal(np.arange(8.0).reshape(2, 2, 2))
    Array([[0., 3.],
           [4., 7.]], dtype=float64)
    """
    return structural.diagonal(x, offset, -2, -1)


@again(1, whole=True)
def trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Array:
    """`numpy.linalg.trace`: the sum of a diagonal of the last two axes."""
    return reductions.sum(diagonal(x, offset=offset), -1, dtype)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The standard's inner product along `axis`, of which the first operand is conjugated.

    >>> float(vecdot(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    11.0
    """
    x1, x2 = asarray(x1), asarray(x2)
    if not x1.ndim or not x2.ndim:
        raise ValueError("vecdot takes arrays of at least one dimension")
    if axis >= 0:
        axis -= max(x1.ndim, x2.ndim)
    first, second = normal_axis(axis, x1.ndim), normal_axis(axis, x2.ndim)
    if x1.shape[first] != x2.shape[second]:
        raise ValueError(f"vecdot: axis {axis} has extents {x1.shape[first]} and {x2.shape[second]}, which must agree")
    left = elementwise("conjugate", x1) if x1.dtype.kind == "c" else x1
    product = elementwise("multiply", left, x2)
    return reductions.sum(product, normal_axis(axis, product.ndim), product.dtype)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The vector product of vectors of three along `axis`, broadcast.

    >>> cross(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    Array([0., 0., 1.], dtype=float64)
    """
    x1, x2 = asarray(x1), asarray(x2)
    ends = [normal_axis(axis, x.ndim) for x in (x1, x2)]
    if any(x.shape[k] != 3 for x, k in zip((x1, x2), ends, strict=True)):
        raise ValueError(f"cross: axis {axis} of shapes {x1.shape} and {x2.shape} must have extent 3")

    def part(x: Any, place: int, k: int) -> Any:
        return getitem(x, (*[slice(None)] * place, k))

    a, b = ([part(x, place, k) for k in range(3)] for x, place in zip((x1, x2), ends, strict=True))
    parts = [
        elementwise("subtract", elementwise("multiply", a[i], b[j]), elementwise("multiply", a[j], b[i]))
        for i, j in ((1, 2), (2, 0), (0, 1))
    ]
    ndim = max(x1.ndim, x2.ndim)
    return stack(parts, normal_axis(axis, ndim) if axis < 0 else axis)


def outer(x1: Any, x2: Any, /) -> Array:
    """The products of all pairs of entries of two vectors."""
    x1, x2 = asarray(x1), asarray(x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer takes vectors, not arrays of shapes {x1.shape} and {x2.shape}")
    return tensordot(x1, x2, 0)


def multi_dot(arrays: Any) -> Array:
    """`numpy.linalg.multi_dot`: the product of matrices in the cheapest order, that of `einsum`'s path; sparse ones too."""
    parts = [asarray(x) for x in arrays]
    if len(parts) < 2:
        raise ValueError("multi_dot takes at least two arrays")
    first, last = parts[0].ndim == 1, parts[-1].ndim == 1
    inputs: list[tuple[int, ...]] = [(k, k + 1) for k in range(len(parts))]
    inputs[0] = (1,) if first else inputs[0]
    inputs[-1] = (len(parts) - 1,) if last else inputs[-1]
    output = [*([] if first else [0]), *([] if last else [len(parts)])]
    return contract(parts, inputs, output)


def matrix_power(x: Any, n: int, /) -> Array:
    """`numpy.linalg.matrix_power`: `x @ x @ …`, by repeated squares; of the inverse for negative `n`. Sparse matrices stay sparse.

    >>> matrix_power(np.array([[1, 1], [0, 1]]), 5)
    Array([[1, 5],
           [0, 1]], dtype=int64)
    """
    x, count = asarray(x), integer(n, "n")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise LinAlgError(f"matrix_power takes square matrices, not an array of shape {x.shape}")
    if count < 0:
        x, count = inv(x), -count
    if not count:
        unit = eye(x.shape[-1], dtype=x.dtype, format="dense" if x.format.is_dense else "csr")
        return structural.broadcast_to(unit, x.shape) if x.ndim > 2 else unit
    made: Any = None
    while count:
        if count & 1:
            made = x if made is None else matmul(made, x)
        count >>= 1
        x = matmul(x, x) if count else x
    return made


# ----------------------------------------------------------------------------------------------- equations and factors


def solve(x1: Any, x2: Any, /) -> Array:
    """`numpy.linalg.solve`: the solution of `x1 @ x = x2`; a vector `x2` is one column. By LU factors: of a
    sparse matrix `x1` by those of `sparsejax.scipy.sparse.linalg.spsolve`. O(n^3) where dense.

    >>> solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 4.0]))
    Array([1., 1.], dtype=float64)
    """
    x1, x2 = asarray(x1), asarray(x2)
    if not x1.format.is_dense and x1.ndim == 2 and x2.ndim <= 2 and x1.shape[0]:
        return spsolve(x1, convert_format(x2, "dense"))
    x1, x2 = _dense("solve", x1), _dense("solve", x2)
    if x2.ndim == 1:
        made = solves.solve(x1, expand_dims(x2, 1))
        return reshape(made, made.shape[:-1])
    return solves.solve(x1, x2)


SMALL = 2**24
"""How many entries a sparse array may have, stored or not, to be stored densely for LAPACK (128 MiB in double precision)."""


def _dense(name: str, x: Any) -> Any:
    """`x` for LAPACK, whose work and results are those of a dense array: small sparse ones are stored densely, larger ones refused."""
    x = asarray(x)
    if not x.format.is_dense and x.size > SMALL:
        raise TypeError(
            f"{name} works on dense arrays, and this one, in format {x.format}, has {x.size} entries: pass "
            '.asformat("dense") if its memory suffices, or see sparsejax.scipy.sparse.linalg for methods that keep it sparse'
        )
    return dense_in_any_order(x)


def inv(x: Any, /) -> Array:
    """`numpy.linalg.inv`."""
    return solves.inv(_dense("inv", x))


def det(x: Any, /) -> Array:
    """`numpy.linalg.det`; differentiable, also where it is 0."""
    return solves.det(_dense("det", x))


def slogdet(x: Any, /) -> SlogdetResult:
    """`numpy.linalg.slogdet`."""
    return SlogdetResult(*solves.slogdet(_dense("slogdet", x)))


def cholesky(x: Any, /, *, upper: bool = False) -> Array:
    """`numpy.linalg.cholesky`: the lower (upper) triangular factor, of the mean of `x` and its adjoint.

    >>> cholesky(np.array([[4.0, 2.0], [2.0, 2.0]]))
    Array([[2., 0.],
           [1., 1.]], dtype=float64)
    """
    return solves.cholesky(_dense("cholesky", x), upper)


def qr(x: Any, /, mode: str = "reduced") -> Any:
    """`numpy.linalg.qr` in the modes "reduced", "complete" and "r" (the triangle alone)."""
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"mode={mode!r} must be 'reduced', 'complete' or 'r'")
    q, r = decompositions.qr(_dense("qr", x), mode == "complete")
    return r if mode == "r" else QRResult(q, r)


def svd(x: Any, /, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """`numpy.linalg.svd`; the singular values alone with `compute_uv=False`.

    >>> svd(np.array([[3.0, 0.0], [0.0, 4.0]])).S
    Array([4., 3.], dtype=float64)
    """
    u, s, vh = decompositions.svd(_dense("svd", x), full_matrices and compute_uv)
    return SVDResult(u, s, vh) if compute_uv else s


def svdvals(x: Any, /) -> Array:
    """The singular values, decreasing."""
    return svd(x, compute_uv=False)


def eigh(x: Any, /, UPLO: str | None = None) -> EighResult:
    """`numpy.linalg.eigh`, of the mean of `x` and its adjoint, or with `UPLO` of what that triangle stands for."""
    return EighResult(*decompositions.eigh(_dense("eigh", x), UPLO))


def eigvalsh(x: Any, /, UPLO: str | None = None) -> Array:
    """`numpy.linalg.eigvalsh`: the eigenvalues of `eigh`."""
    return eigh(x, UPLO).eigenvalues


def eig(x: Any, /) -> EigResult:
    """`numpy.linalg.eig`; the results are always complex."""
    return EigResult(*decompositions.eig(_dense("eig", x)))


def eigvals(x: Any, /) -> Array:
    """`numpy.linalg.eigvals`; always complex."""
    return eig(x).eigenvalues


def _cutoff(s: Any, rtol: Any, shape: tuple[int, ...]) -> Any:
    """The singular values that do not count, as booleans."""
    least = np.finfo(s.dtype).eps * max(1, *shape[-2:]) if rtol is None else rtol
    largest = reductions.max(s, -1, True, initial=0)
    limit = elementwise(
        "multiply",
        largest,
        least if is_python_scalar(least) or not np.ndim(least) else expand_dims(asarray(least), np.ndim(least)),
    )
    return elementwise("less_equal", s, limit)


def matrix_rank(x: Any, /, tol: Any = None, *, rtol: Any = None) -> Array:
    """`numpy.linalg.matrix_rank`: how many singular values are above `tol`, or `rtol` times the largest."""
    x = _dense("matrix_rank", x)
    if x.ndim < 2:
        return reductions.any(x).astype(np.int64)
    s = svdvals(x)
    small = _cutoff(s, rtol, x.shape) if tol is None else elementwise("less_equal", s, tol)
    return reductions.sum(elementwise("logical_not", small), -1, np.int64)


def pinv(x: Any, /, *, rtol: Any = None) -> Array:
    """`numpy.linalg.pinv`: the pseudoinverse, without singular values below `rtol` times the largest."""
    x = _dense("pinv", x)
    if rtol is None or is_python_scalar(rtol):
        return decompositions.pinv(x, rtol)
    u, s, vh = decompositions.svd(x, False)
    small = _cutoff(s, rtol, x.shape)
    inverse = where(small, 0, elementwise("divide", 1, where(small, 1, s)))
    return matmul(
        elementwise("multiply", solves.adjoint(vh), expand_dims(inverse, inverse.ndim - 1)), solves.adjoint(u)
    )


def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    """`numpy.linalg.lstsq`: (the solution of least squares and least norm, the sums of squared residuals, the rank, singular values).
    The residuals have a number per column, whatever the rank."""
    a, b = _dense("lstsq", a), _dense("lstsq", b)
    if a.ndim != 2 or b.ndim not in (1, 2):
        raise LinAlgError(f"lstsq takes a matrix and one or more columns, not shapes {a.shape} and {b.shape}")
    least = None if rcond is None else float(rcond)
    x = matmul(decompositions.pinv(a, least), b)
    rest = elementwise("absolute", elementwise("subtract", b, matmul(a, x)))
    squares = reductions.sum(elementwise("multiply", rest, rest), 0)
    return x, reshape(squares, (squares.size,)), matrix_rank(a, rtol=least), svdvals(a)


def tensorinv(x: Any, ind: int = 2) -> Array:
    """`numpy.linalg.tensorinv`: the inverse of the matrix of the first `ind` axes by the others."""
    x = _dense("tensorinv", x)
    rows, columns = x.shape[:ind], x.shape[ind:]
    made = inv(reshape(x, (int(np.prod(rows)), -1)))
    return reshape(made, (*columns, *rows))


def tensorsolve(a: Any, b: Any) -> Array:
    """`numpy.linalg.tensorsolve`: `x` with `tensordot(a, x, x.ndim) == b`."""
    a, b = _dense("tensorsolve", a), _dense("tensorsolve", b)
    rest = a.shape[b.ndim :]
    made = solve(reshape(a, (b.size, -1)), reshape(b, (b.size,)))
    return reshape(convert_format(made, "dense"), rest)
