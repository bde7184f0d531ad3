"""What arrays and tracers share: a type, NumPy's operators, methods and protocols, and the names that SciPy's sparse arrays have.

The implementations live on higher floors; they are registered by name in `surface` when `sparsejax.numpy` is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.symbolic import SymbolicDim
from sparsejax.formats import Format, scipy_io

if TYPE_CHECKING:
    from sparsejax.core.array import Array  # what users see: a tracer stands for an array
    from sparsejax.core.updates import Updates

DEVICE = "cpu"
"""The device of all arrays."""

surface: dict[str, Callable[..., Any]] = {}
numpy_names: dict[str, Callable[..., Any]] = {}


def register_surface(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Provide the functions behind operators and methods, by NumPy name."""
    surface.update(functions)


def register_numpy(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Provide the functions that NumPy's own functions are redirected to when given our arrays."""
    numpy_names.update(functions)


def _binary(name: str) -> Callable[[Any, Any], Array]:
    multiplies = name == "multiply"

    def method(self: Any, other: Any) -> Any:
        if multiplies and isinstance(other, np.matrix):
            _ambiguous("NumPy's matrices", "an array")
        return surface[name](self, other) if type(other) in _operands or _operand(other) else _foreign(other)

    return method


def _reflected(name: str) -> Callable[[Any, Any], Array]:
    def method(self: Any, other: Any) -> Any:
        if type(other) is float or type(other) is int:
            return surface[name](other, self)
        if name == "multiply" and scipy_io.is_matrix(other):
            _ambiguous("SciPy's sparse matrices", "a SciPy sparse array")
        if name == "multiply" and isinstance(other, np.matrix):
            _ambiguous("NumPy's matrices", "an array")
        return surface[name](other, self) if _operand(other) else _foreign(other)

    return method


def _ambiguous(matrices: str, mend: str) -> NoReturn:
    raise TypeError(f"{matrices} take * for the matrix product: write @, or use {mend}")


def _divmod(first: Any, second: Any) -> Any:
    return surface["floor_divide"](first, second), surface["remainder"](first, second)


def _unary(name: str) -> Callable[[Any], Array]:
    def method(self: Any) -> Any:
        return surface[name](self)

    return method


def _operand(value: Any) -> bool:
    kind = type(value)
    return kind in _operands or _is_operand(value, kind)


_operands: set[type] = {bool, int, float, complex, np.ndarray}
"""Types of operands, as they are met."""


def _is_operand(value: Any, kind: type) -> bool:
    known = isinstance(value, ArrayBase | int | float | complex | np.ndarray | np.generic | SymbolicDim)
    if known or scipy_io.is_scipy(value):
        _operands.add(kind)
        return True
    return False


def _foreign(value: Any) -> Any:
    """What an operator makes of an operand that is no array: its own type may know better, but a sequence does not."""
    if isinstance(value, list | tuple):
        raise TypeError(
            f"operators take arrays and numbers, not a {type(value).__name__}; convert it with sparsejax.array first"
        )
    return NotImplemented


def _like_operand(made: Any, x: Any) -> Any:
    """A dense result in writable memory of NumPy's, if the operand is NumPy's: SciPy's solvers work in the memory of what they are given."""
    if not isinstance(x, np.ndarray) or not hasattr(made, "_storage") or not made.format.is_dense:
        return made
    return np.array(made.todense())


class ArrayBase:
    """What concrete arrays and tracers share: a type, and NumPy's operators and methods."""

    __slots__ = ()
    __array_priority__ = 100.0

    @property
    def aval(self) -> Aval:
        """The type: shape, dtype, format and fill."""
        raise TypeError("this array has no type")

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents per dimension."""
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of values."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.aval.ndim

    @property
    def size(self) -> int:
        """The number of entries, stored or not."""
        return self.aval.size

    @property
    def format(self) -> Format:
        """How entries are stored."""
        return self.aval.format

    @property
    def fill_value(self) -> Any:
        """The value of entries that are not stored."""
        return self.aval.fill_value

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return self.dtype.itemsize

    @property
    def device(self) -> str:
        """Where the array is: "cpu"."""
        return DEVICE

    def to_device(self, device: Any, /, *, stream: Any = None) -> Self:
        """The array itself: there is one device, "cpu". ValueError for another."""
        if device != DEVICE:
            raise ValueError(f"device={device!r} is not known here; arrays are on the device {DEVICE!r}")
        return self

    def block_until_ready(self) -> Self:
        """The array itself: values are there when an operation returns (in JAX they may not be)."""
        return self

    @property
    def mT(self) -> Array:
        """The array with its last two dimensions exchanged, over the same buffers."""
        return surface["matrix_transpose"](self)

    @property
    def H(self) -> Array:
        """The conjugate transpose."""
        return surface["matrix_transpose"](self.conj())

    @property
    def T(self) -> Array:
        """The transpose, over the same buffers."""
        return surface["transpose"](self)

    def transpose(self, *axes: Any) -> Array:
        """Permute the dimensions, over the same buffers."""
        if not axes:
            return surface["transpose"](self)
        single = len(axes) == 1 and (axes[0] is None or np.iterable(axes[0]))
        return surface["transpose"](self, axes[0] if single else axes)

    def reshape(self, *shape: Any, order: str = "C") -> Array:
        """The same entries under another shape; see `sparsejax.numpy.reshape`."""
        return surface["reshape"](self, shape[0] if len(shape) == 1 else shape, order=order)

    def ravel(self, order: str = "C") -> Array:
        """The array flattened in row-major order; see `sparsejax.numpy.ravel`."""
        return surface["ravel"](self, order)

    def flatten(self, order: str = "C") -> Array:
        """The array flattened in row-major order; see `sparsejax.numpy.ravel`."""
        return surface["ravel"](self, order)

    def squeeze(self, axis: Any = None) -> Array:
        """The array without axes of extent one."""
        return surface["squeeze"](self, axis)

    def swapaxes(self, axis1: int, axis2: int) -> Array:
        """The array with two axes exchanged, over the same buffers."""
        return surface["swapaxes"](self, axis1, axis2)

    def take(self, indices: Any, axis: int | None = None) -> Array:
        """Entries at integer indices along an axis, or of the array flattened."""
        return surface["take"](self, indices, axis)

    def repeat(self, repeats: Any, axis: int | None = None) -> Array:
        """Every entry some times."""
        return surface["repeat"](self, repeats, axis)

    def copy(self) -> Array:
        """The array in memory of its own."""
        return surface["copy"](self)

    def astype(self, dtype: Any) -> Array:
        """The array converted to `dtype`."""
        return surface["astype"](self, dtype)

    def asformat(self, format: str | Format) -> Array:
        """The array stored as `format`."""
        return surface["asformat"](self, format)

    def tocsr(self) -> Array:
        """The array stored as csr."""
        return self.asformat("csr")

    def tocsc(self) -> Array:
        """The array stored as csc."""
        return self.asformat("csc")

    def tocoo(self) -> Array:
        """The array stored as coo."""
        return self.asformat("coo")

    def tolil(self) -> Array:
        """The array stored as lil: rows with room to grow."""
        return self.asformat("lil")

    def todia(self) -> Array:
        """The array stored as dia: by diagonals."""
        return self.asformat("dia")

    def tobsr(self, blocksize: tuple[int, int]) -> Array:
        """The array stored as bsr, in dense blocks of `blocksize`."""
        return self.asformat("bsr:" + "x".join(map(str, blocksize)))

    def matvec(self, x: Any) -> Any:
        """The product of the matrix with a vector, or one column; with this name every matrix is a `scipy.sparse.linalg.LinearOperator`
        for SciPy's solvers. Of an array of NumPy's it is one of NumPy's, which may be written to."""
        return _like_operand(surface["matmul"](self, x), x)

    def rmatvec(self, x: Any) -> Any:
        """The product of the conjugate transpose with a vector, or one column; see `matvec`."""
        return _like_operand(surface["matmul"](self.H, x), x)

    def matmat(self, X: Any) -> Any:
        """The product of the matrix with another; see `matvec`."""
        return _like_operand(surface["matmul"](self, X), X)

    def rmatmat(self, X: Any) -> Any:
        """The product of the conjugate transpose with a matrix; see `matvec`."""
        return _like_operand(surface["matmul"](self.H, X), X)

    def getrow(self, i: int) -> Array:
        """Row `i` of a matrix, as a matrix of one row."""
        return self[i : i + 1 if i != -1 else None]

    def getcol(self, j: int) -> Array:
        """Column `j` of a matrix, as a matrix of one column."""
        return self[:, j : j + 1 if j != -1 else None]

    def setdiag(self, values: Any, k: int = 0) -> Array:
        """The array with `values` on its k-th diagonal: a new array, where SciPy's method changes its own."""
        return surface["setdiag"](self, values, k)

    def eliminate_zeros(self) -> Array:
        """The array without stored entries that equal the fill: a new array, where SciPy's method changes its own; a dense array stays as
        it is. See `sparsejax.prune`. O(stored entries)."""
        return surface["eliminate_zeros"](self)

    def sum_duplicates(self) -> Self | Array:
        """The array with each coordinate once at most: itself, but in formats with repeated entries (`n`), as duplicates are summed when arrays are made."""
        form = self.format.distinct
        return self if form is self.format else self.asformat(form)

    def sort_indices(self) -> Self:
        """The array itself: entries are always sorted."""
        return self

    def sum(self, axis: Any = None, dtype: Any = None, keepdims: bool = False, **more: Any) -> Array:
        """The sum along axes, or of all entries; `initial=` and `where=` as those of `sparsejax.numpy.sum`."""
        return (
            surface["sum"](self, axis, dtype, keepdims, **more) if more else surface["sum"](self, axis, dtype, keepdims)
        )

    def prod(self, axis: Any = None, dtype: Any = None, keepdims: bool = False, **more: Any) -> Array:
        """The product along axes, or of all entries; `initial=` and `where=` as those of `sparsejax.numpy.prod`."""
        return (
            surface["prod"](self, axis, dtype, keepdims, **more)
            if more
            else surface["prod"](self, axis, dtype, keepdims)
        )

    def max(self, axis: Any = None, keepdims: bool = False, **more: Any) -> Array:
        """The maximum along axes, or of all entries; those that are not stored count with the fill. `initial=` and `where=` as those of
        `sparsejax.numpy.max`."""
        return surface["max"](self, axis, keepdims, **more) if more else surface["max"](self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False, **more: Any) -> Array:
        """The minimum along axes, or of all entries; those that are not stored count with the fill. `initial=` and `where=` as those of
        `sparsejax.numpy.min`."""
        return surface["min"](self, axis, keepdims, **more) if more else surface["min"](self, axis, keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Array:
        """Whether any entry along axes is not zero."""
        return surface["any"](self, axis, keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> Array:
        """Whether all entries along axes are not zero."""
        return surface["all"](self, axis, keepdims)

    def mean(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
        """The mean along axes, or of all entries."""
        return surface["mean"](self, axis, dtype, keepdims)

    def std(self, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Array:
        """The standard deviation along axes, or of all entries."""
        return surface["std"](self, axis, dtype, ddof, keepdims)

    def var(self, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Array:
        """The variance along axes, or of all entries."""
        return surface["var"](self, axis, dtype, ddof, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Array:
        """Where the maximum is first, along an axis or in the array flattened."""
        return surface["argmax"](self, axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Array:
        """Where the minimum is first, along an axis or in the array flattened."""
        return surface["argmin"](self, axis, keepdims)

    def argsort(self, axis: int | None = -1) -> Array:
        """The coordinates that sort every line along an axis; stable."""
        return surface["argsort"](self, axis)

    def cumsum(self, axis: int | None = None, dtype: Any = None) -> Array:
        """Running sums along an axis, or of the array flattened; dense."""
        return surface["cumsum"](self, axis, dtype)

    def count_nonzero(self, axis: Any = None) -> Array:
        """How many values are not zero, stored or not."""
        return surface["count_nonzero"](self, axis)

    def nonzero(self) -> Any:
        """The coordinates where values are not zero; outside `jit` only."""
        return surface["nonzero"](self)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Array:
        """The sum of a diagonal."""
        return surface["trace"](self, offset, axis1, axis2, dtype)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
        """A diagonal of two axes, as the last axis."""
        return surface["diagonal"](self, offset, axis1, axis2)

    def clip(self, min: Any = None, max: Any = None) -> Array:
        """The array limited to [min, max]; None leaves a side open."""
        return surface["clip"](self, min, max)

    def round(self, decimals: int = 0) -> Array:
        """The array rounded to `decimals` places, halves to even."""
        return surface["round"](self, decimals)

    def __round__(self, ndigits: int | None = None) -> Array:
        return surface["round"](self, 0 if ndigits is None else ndigits)

    def multiply(self, other: Any) -> Array:
        """The product with `other`, entry by entry, as `*` and as SciPy's method of that name."""
        return surface["multiply"](self, other)

    def power(self, n: Any) -> Array:
        """Every entry to the power of `n`, as `**`."""
        return surface["power"](self, n)

    def maximum(self, other: Any) -> Array:
        """The maximum with `other`, entry by entry."""
        return surface["maximum"](self, other)

    def minimum(self, other: Any) -> Array:
        """The minimum with `other`, entry by entry."""
        return surface["minimum"](self, other)

    def dot(self, other: Any) -> Array:
        """`numpy.dot`: the product of vectors and matrices."""
        return surface["dot"](self, other)

    def __getitem__(self, key: Any) -> Array:
        """A part of the array by NumPy's rules for keys; see `sparsejax.numpy.indexing.getitem`."""
        return surface["getitem"](self, key)

    @property
    def at(self) -> Updates:
        """Updates of parts: `x.at[key].set(values)`, also add, min, max, get; a new array each."""
        return surface["at"](self)

    @property
    def real(self) -> Array:
        """The real part."""
        return surface["real"](self)

    @property
    def imag(self) -> Array:
        """The imaginary part."""
        return surface["imag"](self)

    def conj(self) -> Array:
        """The complex conjugate."""
        return surface["conjugate"](self)

    conjugate = conj

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    __hash__ = None  # type: ignore[assignment]

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("subtract"), _reflected("subtract")
    __mul__, __rmul__ = _binary("multiply"), _reflected("multiply")
    __truediv__, __rtruediv__ = _binary("divide"), _reflected("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _reflected("floor_divide")
    __mod__, __rmod__ = _binary("remainder"), _reflected("remainder")

    def __divmod__(self, other: Any) -> Any:
        return _divmod(self, other) if _operand(other) else _foreign(other)

    def __rdivmod__(self, other: Any) -> Any:
        return _divmod(other, self) if _operand(other) else _foreign(other)

    def __contains__(self, value: Any) -> bool:
        """Whether an entry, stored or not, equals `value`."""
        return bool(surface["any"](surface["equal"](self, value)))

    __pow__, __rpow__ = _binary("power"), _reflected("power")
    __matmul__, __rmatmul__ = _binary("matmul"), _reflected("matmul")
    __and__, __rand__ = _binary("bitwise_and"), _reflected("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or"), _reflected("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor"), _reflected("bitwise_xor")
    __lshift__, __rlshift__ = _binary("left_shift"), _reflected("left_shift")
    __rshift__, __rrshift__ = _binary("right_shift"), _reflected("right_shift")
    if TYPE_CHECKING:

        def __eq__(self, other: Any) -> Array: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Array: ...  # type: ignore[override]
    else:
        __eq__, __ne__ = _binary("equal"), _binary("not_equal")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __neg__, __pos__ = _unary("negative"), _unary("positive")
    __abs__, __invert__ = _unary("absolute"), _unary("invert")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return surface["ufunc"](ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return surface["array_function"](func, args, kwargs)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """`sparsejax.numpy`, which conforms to the array API standard."""
        return surface["namespace"](api_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """(1, 0): the memory of the host."""
        return 1, 0
