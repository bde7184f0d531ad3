"""Eigenvalues and singular values of large matrices and operators, by ARPACK and LOBPCG (SciPy), differentiated by perturbation theory.

    w, V = eigen[A, k] c… x0             A(c…) V = V diag(w), k of them
    dw = diag(V^H dA V)
    dV = V (F * V^H dA V) + Z            F[i,j] = 1 / (w[j] - w[i]);  (A - w[j]) Z[:,j] = -(1 - V V^H) dA V[:,j], by MINRES

Where two eigenvalues agree, no derivative of their vectors exists: their part is 0 here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.jaxpr import ClosedJaxpr, evaluate
from sparsejax.core.methods import ArrayBase
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.formats import Format, convert, scipy_io
from sparsejax.formats.storage import Storage
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import matmul
from sparsejax.lax.control import plain
from sparsejax.lax.elementwise import convert_element_type, elementwise, real, where
from sparsejax.lax.library.solves import adjoint
from sparsejax.lax.linalg import spsolve
from sparsejax.lax.loops import Traced, together
from sparsejax.lax.reduce import reduce
from sparsejax.lax.rules.batching import moved
from sparsejax.lax.structural import convert_format, expand_dims, integer
from sparsejax.numpy.indexing import getitem, stack
from sparsejax.numpy.making import eye
from sparsejax.scipy.sparse.krylov import minres
from sparsejax.scipy.sparse.operators import LinearOperator, aslinearoperator
from sparsejax.transforms import ad, staging
from sparsejax.transforms.custom import stop_gradient
from sparsejax.transforms.linear_solve import linear_solve, typed

Operator = Any
"""A Hermitian matrix in any format, a LinearOperator, or a function that multiplies by it."""

# --------------------------------------------------------------------------------------------------------- primitive


def _typing(*avals: Aval, matvec: ClosedJaxpr, k: int, **params: Any) -> tuple[Aval, Aval]:
    n, dtype = matvec.in_avals[-1].shape[0], matvec.in_avals[-1].dtype
    small = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    return rules.dense((k,), small), rules.dense((n, k), dtype)


def _call(*xs: Storage, out_aval: Any, bodies: Sequence[Any], matvec: ClosedJaxpr, **params: Any) -> list[Storage]:
    aval = matvec.in_avals[-1]
    consts, start = xs[:-1], convert.to_dense(xs[-1])

    def apply(x: Any) -> Any:
        given = convert.from_dense(np.ascontiguousarray(np.reshape(x, -1), aval.dtype), aval.format, 0)
        return np.array(convert.to_dense(bodies[0].run((*consts, given))[0]))

    made = _solved(apply, start, aval, **params)
    return [
        convert.from_dense(np.ascontiguousarray(x, a.dtype), a.format, 0) for x, a in zip(made, out_aval, strict=True)
    ]


def _solved(
    apply: Callable[[Any], Any],
    start: Any,
    aval: Aval,
    k: int,
    which: str,
    method: str,
    tol: float,
    maxiter: int | None,
    ncv: int | None,
) -> tuple[Any, Any]:
    """Eigenvalues in increasing order (decreasing for LOBPCG's largest), and vectors."""
    import scipy.sparse.linalg as theirs

    n = aval.shape[0]
    if k >= n - 1 or (method == "lobpcg" and 5 * k >= n):  # ARPACK takes less than n, LOBPCG less than a fifth
        whole = np.stack([apply(e) for e in np.eye(n, dtype=aval.dtype)], axis=1)
        values, vectors = np.linalg.eigh((whole + whole.conj().T) / 2)
        chosen = _chosen(values, k, which)
        return values[chosen], vectors[:, chosen]
    operator = theirs.LinearOperator((n, n), matvec=apply, dtype=aval.dtype)
    if method == "lobpcg":
        values, vectors = theirs.lobpcg(
            operator, np.array(start), tol=tol or None, maxiter=maxiter or 100, largest=which == "LA"
        )
        order = np.argsort(values)[:: -1 if which == "LA" else 1]
        return values[order], vectors[:, order]
    values, vectors = theirs.eigsh(operator, k, which=which, v0=np.array(start), ncv=ncv, maxiter=maxiter, tol=tol)
    order = np.argsort(values)
    return values[order], vectors[:, order]


def _chosen(values: Any, k: int, which: str) -> Any:
    keys = {"LM": -abs(values), "SM": abs(values), "LA": -values, "SA": values}
    if which == "BE":
        order = [*range(k // 2), *range(len(values) - (k - k // 2), len(values))]
        return np.asarray(order)
    return np.sort(np.argsort(keys[which], kind="stable")[:k])


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any, matvec: ClosedJaxpr, **params: Any) -> list[Any]:
    w, v = outs
    consts, moving = primals[:-1], tangents[:-1]
    if all(t is None for t in moving):
        return [None, None]
    count = v.shape[1]
    lin = ad.linearized(matvec, [*(t is not None for t in moving), False])
    columns = []
    for j in range(count):
        env, _ = ad.known_values(lin, [*consts, getitem(v, (slice(None), j))])
        (product,) = ad.forward(lin, env, [t for t in moving if t is not None])
        columns.append(getitem(v, (slice(None), j)) * 0 if product is None else convert_format(product, "dense"))
    moved_ = stack(columns, 1)
    inner = matmul(adjoint(v), moved_)
    dw = real(reduce("sum", elementwise("multiply", inner, np.eye(count)), 0))
    gap = elementwise("subtract", expand_dims(w, 0), expand_dims(w, 1))
    same = elementwise("less_equal", elementwise("absolute", gap), 1e-10 * reduce("max", elementwise("absolute", w)))
    among = where(same, 0, elementwise("divide", 1, where(same, 1, gap)))
    rest = elementwise("subtract", moved_, matmul(v, inner))
    outside = [_rest(matvec, consts, v, getitem(w, j), getitem(rest, (slice(None), j))) for j in range(count)]
    return [dw, elementwise("add", matmul(v, elementwise("multiply", among, inner)), stack(outside, 1))]


def _rest(matvec: ClosedJaxpr, consts: Sequence[Any], v: Any, w: Any, side: Any) -> Any:
    """z, orthogonal to v, with (A - w) z = -side; as an equation of all vectors, on which v v^H stands for 1."""
    back = adjoint(v)

    def without(x: Any) -> Any:
        return elementwise("subtract", x, matmul(v, matmul(back, x)))

    def operator(x: Any) -> Any:
        inside = without(x)
        moved_ = convert_format(
            staging.bind_jaxpr(matvec.jaxpr, (), [*consts, typed(inside, matvec.in_avals[-1])])[0], "dense"
        )
        shifted = elementwise("subtract", moved_, elementwise("multiply", inside, w))
        return elementwise("add", without(shifted), matmul(v, matmul(back, x)))

    precision = float(np.finfo(v.dtype).eps)
    numbers = [
        convert_element_type(asarray(n), t)
        for n, t in ((precision * 100, "f8"), (0.0, "f8"), (4 * v.shape[0] + 100, "i8"))
    ]
    b = elementwise("negative", without(side))
    x, _ = linear_solve(
        operator, lambda x: x, minres, convert_format(b, "dense"), elementwise("multiply", stop_gradient(b), 0), numbers
    )
    return without(x)


def _batch(size: int, *operands: Any, **params: Any) -> list[Any]:
    made = []
    for j in range(size):
        own = [getitem(x.value, (..., j)) if isinstance(x, Batched) else x for x in operands]
        avals = [x.aval for x in operands]
        made.append(eigen_p.bind(*(convert_format(x, a.format) for x, a in zip(own, avals, strict=True)), **params))
    wholes = [stack([m[n] for m in made]) for n in range(2)]
    return [moved(x, 0, x.ndim - 1) for x in wholes]


def _reference(*xs: Any, matvec: ClosedJaxpr, **params: Any) -> list[Any]:
    consts = [Array(convert.from_dense(np.asarray(x), Format.parse("dense", np.ndim(x)), 0)) for x in xs[:-1]]
    return list(_solved(lambda x: np.asarray(evaluate(matvec, *consts, x)[0]), xs[-1], matvec.in_avals[-1], **params))


eigen_p: Primitive = Primitive(
    "eigen",
    typing=_typing,
    reference=_reference,
    call=_call,
    bodies=lambda matvec, **params: (matvec,),
    jvp=_jvp,
    batch=_batch,
    describe=lambda matvec, k, which, method, **params: f"{method} {which} {k}",
    multiple=True,
)


# --------------------------------------------------------------------------------------------------------- functions


def _operator(name: str, A: Operator, n: int | None, dtype: Any) -> tuple[Callable[[Any], Any], int, Any]:
    """What multiplies by `A`, its order, and the dtype of vectors."""
    if isinstance(A, LinearOperator | ArrayBase | np.ndarray) or scipy_io.is_scipy(A) or hasattr(A, "matvec"):
        operator = aslinearoperator(A)
        if operator.shape[0] != operator.shape[1]:
            raise ValueError(f"{name}: the matrix A must be square, but has shape {operator.shape}")
        kind = operator.dtype if operator.dtype.kind in "fc" else np.dtype(np.float64)
        return operator.matvec, operator.shape[0], kind
    if not callable(A):
        raise TypeError(f"{name}: A must be a matrix, a LinearOperator or a function, not {type(A).__name__}")
    if n is None:
        raise ValueError(f"{name}: of a function A, v0 (or X) must be given, for the length of vectors")
    return A, n, np.dtype(float if dtype is None else dtype)


def _bound(name: str, A: Operator, start: Any, k: int, length: int | None, **params: Any) -> tuple[Any, Any]:
    given = None if start is None else convert_format(asarray(start, f"the start of {name}"), "dense")
    apply, n, dtype = _operator(name, A, length, None if given is None else given.dtype)
    if given is None:
        given = asarray(np.random.default_rng(0).standard_normal(n).astype(dtype))
    given = convert_element_type(given, dtype)
    if given.shape[0] != n:
        raise ValueError(f"{name}: the start has {given.shape[0]} rows, but A has order {n}")
    if not 0 < k <= n:
        raise ValueError(f"{name}: k={k} must be at least 1 and at most {n}")
    aval = rules.dense((n,), dtype)
    first = Traced(lambda x: [typed(asarray(apply(x), f"the result of A in {name}"), aval)], [aval])
    consts, (closed,) = together([first])
    over = [*(plain(c.aval) for c in consts), aval]
    extras, (matvec,) = together([Traced(lambda *xs, j=closed.jaxpr: staging.bind_jaxpr(j, (), xs), over)])
    values, vectors = eigen_p.bind(*extras, *consts, stop_gradient(given), matvec=matvec, k=k, **params)
    return values, vectors


def eigsh(
    A: Operator,
    k: int = 6,
    M: None = None,
    sigma: float | None = None,
    which: str = "LM",
    v0: Any = None,
    ncv: int | None = None,
    maxiter: int | None = None,
    tol: float = 0.0,
    return_eigenvectors: bool = True,
) -> Any:
    """`(w, V)`, `k` eigenvalues in increasing order and eigenvectors as columns of a Hermitian matrix in any format, LinearOperator or
    function (with `v0`): those of largest ("LM") or smallest ("SM") size, algebraically largest ("LA"), smallest ("SA"), or half of
    both ("BE"); next to `sigma`, by sparse LU factors of `A - sigma`, where that is given, which takes an array.

    By ARPACK (implicitly restarted Lanczos, Lehoucq, Sorensen and Yang 1998). The start `v0` is the same in every call unless given.
    Differentiable by what `A` is made of; vectors where eigenvalues have a gap.

    >>> import sparsejax as sj
    >>> eigsh(sj.diags([[1.0, 2.0, 3.0, 4.0, 5.0]], [0]), k=2)[0].todense().round(6)
    array([4., 5.])

    Raises ValueError for shapes and names that do not fit; scipy.sparse.linalg.ArpackNoConvergence where it does not converge.
    """
    if M is not None:
        raise ValueError("eigsh: M, a matrix on the right side, is not provided; pass the operator M^-1/2 A M^-1/2")
    if which not in ("LM", "SM", "LA", "SA", "BE"):
        raise ValueError(f"eigsh: which={which!r} must be 'LM', 'SM', 'LA', 'SA' or 'BE'")
    count = integer(k, "k")
    length = None if v0 is None else asarray(v0).shape[0]
    params = {"which": which, "method": "arpack", "tol": float(tol), "maxiter": maxiter, "ncv": ncv}
    if sigma is None:
        values, vectors = _bound("eigsh", A, v0, count, length, **params)
        return (values, vectors) if return_eigenvectors else values
    matrix = asarray(A, "the matrix A of eigsh with sigma")
    matrix = matrix if matrix.dtype.kind in "fc" else convert_element_type(matrix, np.float64)
    shifted = elementwise("subtract", matrix, elementwise("multiply", eye(matrix.shape[0], dtype=matrix.dtype), sigma))
    n = matrix.shape[0]
    inverse = LinearOperator((n, n), lambda x: spsolve(shifted, x), dtype=matrix.dtype)
    values, vectors = _bound("eigsh", inverse, v0, count, length, **params)
    values = elementwise("add", elementwise("divide", 1, values), sigma)
    order = _order(values)
    values, vectors = getitem(values, order), getitem(vectors, (slice(None), order))
    return (values, vectors) if return_eigenvectors else values


def _order(values: Any) -> Any:
    return stop_gradient(values).argsort()


def lobpcg(
    A: Operator, X: Any, tol: float | None = None, maxiter: int | None = None, largest: bool = True
) -> tuple[Any, Any]:
    """`(w, V)`, as many extreme eigenvalues as `X` has columns, the largest first (or the smallest), and eigenvectors, from the start
    `X`; `A` as in `eigsh`. By LOBPCG (Knyazev 2001), of SciPy. Differentiable as `eigsh`.

    >>> import sparsejax as sj
    >>> A = sj.diags([np.arange(1.0, 31.0)], [0])
    >>> lobpcg(A, np.random.default_rng(0).random((30, 2)), maxiter=60, tol=1e-8)[0].todense().round(4)
    array([30., 29.])
    """
    start = asarray(X, "the start X of lobpcg")
    if start.ndim != 2:
        raise ValueError(f"lobpcg: the start X must have a column for every eigenvalue, but has shape {start.shape}")
    which = "LA" if largest else "SA"
    params = {"which": which, "method": "lobpcg", "tol": float(tol or 0), "maxiter": maxiter, "ncv": None}
    return _bound("lobpcg", A, start, start.shape[1], start.shape[0], **params)


def svds(
    A: Operator,
    k: int = 6,
    ncv: int | None = None,
    tol: float = 0.0,
    which: str = "LM",
    v0: Any = None,
    maxiter: int | None = None,
    return_singular_vectors: bool = True,
) -> Any:
    """`(u, s, vh)`, the `k` largest singular values in increasing order, as SciPy, and their vectors, of a matrix in any format or a
    LinearOperator with an adjoint: `aslinearoperator(A) - mu` is the centred matrix, without a dense copy of it.

    From the eigenvalues of `A^H A` or `A A^H`, whichever is smaller (`eigsh`), so that singular values below 1e-8 of the largest are
    lost, as in SciPy. Differentiable where singular values have gaps and none is 0.

    >>> import sparsejax as sj
    >>> svds(sj.array(np.diag([3.0, 1.0, 2.0]), format="csr"), k=1)[1].todense().round(6)
    array([3.])
    """
    if which != "LM":
        raise ValueError(
            "svds: which must be 'LM': the smallest singular values are lost in the squares; take eigsh with sigma"
        )
    operator = aslinearoperator(A)
    m, n = operator.shape
    tall = m >= n
    square = operator.H @ operator if tall else operator @ operator.H
    values, vectors = eigsh(square, k, which="LA", v0=v0, ncv=ncv, maxiter=maxiter, tol=tol)
    s = elementwise("sqrt", elementwise("maximum", values, 0))
    if not return_singular_vectors:
        return s
    zero = elementwise("equal", s, 0)
    inverse = where(zero, 0, elementwise("divide", 1, where(zero, 1, s)))
    if tall:
        u = elementwise("multiply", operator.matmat(vectors), inverse)
        return u, s, adjoint(vectors)
    v = elementwise("multiply", operator.rmatmat(vectors), inverse)
    return vectors, s, adjoint(v)
