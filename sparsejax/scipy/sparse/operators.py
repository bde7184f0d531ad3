"""`LinearOperator`: matrices as functions that multiply by them: sums, products, adjoints, and rank-one parts that stay implicit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.methods import ArrayBase
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import is_python_scalar
from sparsejax.formats import scipy_io
from sparsejax.lax.contract import matmul
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.reduce import reduce
from sparsejax.lax.structural import reshape, transpose

Function = Callable[[Any], Any]


class LinearOperator:
    """A matrix of `shape` by what it does: `matvec(x)` of a vector, `rmatvec(x)` of its adjoint, `matmat(X)` and `rmatmat(X)` of matrices
    (column by column unless given). The functions may be traced, and close over arrays of any format.

    Operators add, subtract, multiply by numbers, compose (`@`), and have adjoints (`.H`) and transposes (`.T`). A dense vector that is
    added or subtracted is that row, repeated: `aslinearoperator(A) - mu` multiplies by the centred matrix without a dense copy.

    >>> op = LinearOperator((2, 3), lambda x: x[:2], lambda y: concatenate([y, np.zeros(1)]), dtype=float)
    >>> (op @ np.array([1.0, 2.0, 3.0])).todense(), (op.H @ np.array([1.0, 2.0])).todense()
    (array([1., 2.]), array([1., 2., 0.]))
    """

    __array_ufunc__ = None

    def __init__(
        self,
        shape: tuple[int, int],
        matvec: Function,
        rmatvec: Function | None = None,
        matmat: Function | None = None,
        rmatmat: Function | None = None,
        dtype: Any = None,
    ) -> None:
        self.shape = (int(shape[0]), int(shape[1]))
        self.ndim = 2
        self.dtype = np.dtype(float if dtype is None else dtype)
        self._matvec, self._rmatvec, self._matmat, self._rmatmat = matvec, rmatvec, matmat, rmatmat

    def __repr__(self) -> str:
        return f"LinearOperator(shape={self.shape}, dtype={self.dtype})"

    def matvec(self, x: Any) -> Any:
        """The product with a vector, or one column."""
        x = self._checked(x, 1)
        return reshape(self._matvec(reshape(x, (-1,))), (-1, 1)) if x.ndim == 2 else asarray(self._matvec(x))

    def rmatvec(self, x: Any) -> Any:
        """The product of the adjoint with a vector, or one column."""
        if self._rmatvec is None:
            raise NotImplementedError("this LinearOperator has no rmatvec: give one for its adjoint")
        x = self._checked(x, 0)
        return reshape(self._rmatvec(reshape(x, (-1,))), (-1, 1)) if x.ndim == 2 else asarray(self._rmatvec(x))

    def matmat(self, X: Any) -> Any:
        """The product with a matrix."""
        X = self._checked(X, 1)
        return asarray(self._matmat(X)) if self._matmat is not None else _columns(self._matvec, X)

    def rmatmat(self, X: Any) -> Any:
        """The product of the adjoint with a matrix."""
        X = self._checked(X, 0)
        if self._rmatmat is not None:
            return asarray(self._rmatmat(X))
        return _columns(self.rmatvec, X)

    def _checked(self, x: Any, axis: int) -> Any:
        x = asarray(x, "what a LinearOperator is multiplied with")
        if x.ndim not in (1, 2) or x.shape[0] != self.shape[axis]:
            raise ValueError(
                f"a LinearOperator of shape {self.shape} is not multiplied with an array of shape {x.shape}"
            )
        return x

    def __call__(self, x: Any) -> Any:
        return self @ x

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, LinearOperator):
            return _product(self, other)
        x = asarray(other, "what a LinearOperator is multiplied with")
        return self.matvec(x) if x.ndim == 1 else self.matmat(x)

    def dot(self, other: Any) -> Any:
        """`self @ other`, or a multiple by a number."""
        return self * other if is_python_scalar(other) else self @ other

    def __mul__(self, other: Any) -> Any:
        if not is_python_scalar(other) and getattr(other, "ndim", None) != 0:
            return self @ other
        conj = elementwise("conjugate", other)
        return LinearOperator(
            self.shape,
            lambda x: self.matvec(x) * other,
            lambda x: self.rmatvec(x) * conj,
            lambda x: self.matmat(x) * other,
            lambda x: self.rmatmat(x) * conj,
            np.result_type(self.dtype, getattr(other, "dtype", type(other))),
        )

    __rmul__ = __mul__

    def __neg__(self) -> LinearOperator:
        made: LinearOperator = self * -1
        return made

    def __add__(self, other: Any) -> LinearOperator:
        return _sum(self, _added(other, self.shape))

    __radd__ = __add__

    def __sub__(self, other: Any) -> LinearOperator:
        return _sum(self, -_added(other, self.shape))

    def __rsub__(self, other: Any) -> LinearOperator:
        return _sum(_added(other, self.shape), -self)

    @property
    def H(self) -> LinearOperator:
        """The adjoint."""
        return LinearOperator(self.shape[::-1], self.rmatvec, self.matvec, self.rmatmat, self.matmat, self.dtype)

    adjoint = property(lambda self: self.H)

    @property
    def T(self) -> LinearOperator:
        """The transpose."""
        if self.dtype.kind != "c":
            return self.H

        def conjugated(function: Function) -> Function:
            return lambda x: elementwise("conjugate", function(elementwise("conjugate", x)))

        first, second, third, fourth = map(conjugated, (self.rmatvec, self.matvec, self.rmatmat, self.matmat))
        return LinearOperator(self.shape[::-1], first, second, third, fourth, self.dtype)


def _columns(function: Function, X: Any) -> Any:
    parts = [reshape(function(X[:, k]), (-1, 1)) for k in range(X.shape[1])]
    return concatenate(parts, 1)


def _sum(a: LinearOperator, b: LinearOperator) -> LinearOperator:
    if a.shape != b.shape:
        raise ValueError(f"operators of shapes {a.shape} and {b.shape} cannot be added")
    return LinearOperator(
        a.shape,
        lambda x: elementwise("add", a.matvec(x), b.matvec(x)),
        lambda x: elementwise("add", a.rmatvec(x), b.rmatvec(x)),
        lambda x: elementwise("add", a.matmat(x), b.matmat(x)),
        lambda x: elementwise("add", a.rmatmat(x), b.rmatmat(x)),
        np.result_type(a.dtype, b.dtype),
    )


def _product(a: LinearOperator, b: LinearOperator) -> LinearOperator:
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"operators of shapes {a.shape} and {b.shape} cannot be multiplied")
    return LinearOperator(
        (a.shape[0], b.shape[1]),
        lambda x: a.matvec(b.matvec(x)),
        lambda x: b.rmatvec(a.rmatvec(x)),
        lambda x: a.matmat(b.matmat(x)),
        lambda x: b.rmatmat(a.rmatmat(x)),
        np.result_type(a.dtype, b.dtype),
    )


def _added(other: Any, shape: tuple[int, int]) -> LinearOperator:
    """What is added to an operator of `shape`: another one, a matrix, or one row that is repeated."""
    if isinstance(other, LinearOperator):
        return other
    value = asarray(other, "what is added to a LinearOperator")
    if value.ndim == 1 or (value.ndim == 2 and value.shape[0] == 1 < shape[0]):
        row = reshape(value, (-1,))
        if row.shape[0] != shape[1]:
            raise ValueError(f"a row of {row.shape[0]} numbers is not added to an operator of shape {shape}")
        return _repeated(row, shape)
    return aslinearoperator(value)


def _repeated(row: Any, shape: tuple[int, int]) -> LinearOperator:
    """The matrix of `shape` whose rows are all `row`."""
    ones = np.ones(shape[0])
    conj = elementwise("conjugate", row) if row.dtype.kind == "c" else row
    return LinearOperator(
        shape,
        lambda x: matmul(row, x) * ones,
        lambda y: conj * reduce("sum", y),
        lambda X: reshape(matmul(row, X), (1, -1)) * ones[:, None],
        lambda Y: reshape(conj, (-1, 1)) * reduce("sum", Y, 0),
        row.dtype,
    )


def aslinearoperator(A: Any) -> LinearOperator:
    """A matrix in any format, or what has `shape` and `matvec`, as a LinearOperator.

    >>> import sparsejax as sj
    >>> A = sj.array(np.eye(3), format="csr")
    >>> ((aslinearoperator(A) - np.ones(3)) @ np.ones(3)).todense()
    array([-2., -2., -2.])
    """
    if isinstance(A, LinearOperator):
        return A
    if isinstance(A, ArrayBase | np.ndarray) or scipy_io.is_scipy(A):
        matrix = A if isinstance(A, ArrayBase) else Array(_stored(A))
        if matrix.ndim != 2:
            raise ValueError(f"aslinearoperator takes a matrix, not an array of shape {matrix.shape}")
        back = transpose(matrix)
        back = elementwise("conjugate", back) if matrix.dtype.kind == "c" else back
        rows, columns = matrix.shape
        return LinearOperator(
            (rows, columns),
            lambda x: matmul(matrix, x),
            lambda x: matmul(back, x),
            lambda x: matmul(matrix, x),
            lambda x: matmul(back, x),
            matrix.dtype,
        )
    if hasattr(A, "shape") and hasattr(A, "matvec"):
        return LinearOperator(
            A.shape, A.matvec, getattr(A, "rmatvec", None), getattr(A, "matmat", None), None, getattr(A, "dtype", None)
        )
    raise TypeError(f"aslinearoperator takes a matrix or an operator, not {type(A).__name__}")


def _stored(A: Any) -> Any:
    return asarray(A, "the matrix")._storage
