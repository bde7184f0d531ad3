"""Array: an immutable array over a Storage, and the operators it shares with tracers.

The operators' implementations live on higher floors; they are registered by name in `surface` when `sparsejax.numpy` is
imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core import source
from sparsejax.core.avals import Aval
from sparsejax.formats import Format, ingest, peek, scipy_io
from sparsejax.formats import convert as conversion
from sparsejax.formats.storage import Storage
from sparsejax.pictures import card

SHOWN = 3
"""Entries of a sparse array that are printed from either end."""

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


def _binary(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return surface[name](self, other) if _operand(other) else _foreign(other)

    return method


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if name == "multiply" and scipy_io.is_matrix(other):
            raise TypeError(
                "SciPy's sparse matrices take * for the matrix product: write @, or use a SciPy sparse array"
            )
        return surface[name](other, self) if _operand(other) else _foreign(other)

    return method


def _unary(name: str) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        return surface[name](self)

    return method


def _operand(value: Any) -> bool:
    return isinstance(value, ArrayBase | bool | int | float | complex | np.ndarray | np.generic) or scipy_io.is_scipy(
        value
    )


def _foreign(value: Any) -> Any:
    """What an operator makes of an operand that is no array: its own type may know better, but a sequence does not."""
    if isinstance(value, list | tuple):
        raise TypeError(
            f"operators take arrays and numbers, not a {type(value).__name__}; convert it with sparsejax.array first"
        )
    return NotImplemented


class ArrayBase:
    """What concrete arrays and tracers share: a type, and NumPy's operators and methods."""

    __slots__ = ()
    __array_priority__ = 100.0

    @property
    def aval(self) -> Aval:
        raise TypeError("this array has no type")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        return self.aval.ndim

    @property
    def size(self) -> int:
        return self.aval.size

    @property
    def format(self) -> Format:
        return self.aval.format

    @property
    def fill_value(self) -> Any:
        return self.aval.fill_value

    @property
    def T(self) -> Any:
        """The transpose, over the same buffers."""
        return surface["transpose"](self)

    def transpose(self, *axes: Any) -> Any:
        """Permute the dimensions, over the same buffers."""
        if not axes:
            return surface["transpose"](self)
        single = len(axes) == 1 and (axes[0] is None or np.iterable(axes[0]))
        return surface["transpose"](self, axes[0] if single else axes)

    def reshape(self, *shape: Any) -> Any:
        """The same entries under another shape; see `sparsejax.numpy.reshape`."""
        return surface["reshape"](self, shape[0] if len(shape) == 1 else shape)

    def ravel(self) -> Any:
        """The array flattened in row-major order."""
        return surface["ravel"](self)

    def flatten(self) -> Any:
        """The array flattened in row-major order."""
        return surface["ravel"](self)

    def squeeze(self, axis: Any = None) -> Any:
        """The array without axes of extent one."""
        return surface["squeeze"](self, axis)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """The array with two axes exchanged, over the same buffers."""
        return surface["swapaxes"](self, axis1, axis2)

    def take(self, indices: Any, axis: int | None = None) -> Any:
        """Entries at integer indices along an axis, or of the array flattened."""
        return surface["take"](self, indices, axis)

    def repeat(self, repeats: Any, axis: int | None = None) -> Any:
        """Every entry some times."""
        return surface["repeat"](self, repeats, axis)

    def copy(self) -> Any:
        """The array in memory of its own."""
        return surface["copy"](self)

    def astype(self, dtype: Any) -> Any:
        """The array converted to `dtype`."""
        return surface["astype"](self, dtype)

    def asformat(self, format: str | Format) -> Any:
        """The array stored as `format`."""
        return surface["asformat"](self, format)

    def tocsr(self) -> Any:
        return self.asformat("csr")

    def tocsc(self) -> Any:
        return self.asformat("csc")

    def tocoo(self) -> Any:
        return self.asformat("coo")

    def sum(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return surface["sum"](self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return surface["prod"](self, axis=axis, dtype=dtype, keepdims=keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> Any:
        return surface["max"](self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Any:
        return surface["min"](self, axis=axis, keepdims=keepdims)

    def any(self, axis: Any = None, keepdims: bool = False) -> Any:
        return surface["any"](self, axis=axis, keepdims=keepdims)

    def all(self, axis: Any = None, keepdims: bool = False) -> Any:
        return surface["all"](self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return surface["mean"](self, axis=axis, dtype=dtype, keepdims=keepdims)

    def std(self, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
        return surface["std"](self, axis, dtype, ddof, keepdims)

    def var(self, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
        return surface["var"](self, axis, dtype, ddof, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Any:
        return surface["argmax"](self, axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Any:
        return surface["argmin"](self, axis, keepdims)

    def argsort(self, axis: int | None = -1) -> Any:
        return surface["argsort"](self, axis)

    def cumsum(self, axis: int | None = None, dtype: Any = None) -> Any:
        return surface["cumsum"](self, axis, dtype)

    def count_nonzero(self, axis: Any = None) -> Any:
        """How many values are not zero, stored or not."""
        return surface["count_nonzero"](self, axis)

    def nonzero(self) -> Any:
        """The coordinates where values are not zero; outside `jit` only."""
        return surface["nonzero"](self)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
        """The sum of a diagonal."""
        return surface["trace"](self, offset, axis1, axis2, dtype)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """A diagonal of two axes, as the last axis."""
        return surface["diagonal"](self, offset, axis1, axis2)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """The array limited to [min, max]; None leaves a side open."""
        return surface["clip"](self, min, max)

    def round(self, decimals: int = 0) -> Any:
        """The array rounded to `decimals` places, halves to even."""
        return surface["round"](self, decimals)

    def __round__(self, ndigits: int | None = None) -> Any:
        return surface["round"](self, 0 if ndigits is None else ndigits)

    def multiply(self, other: Any) -> Any:
        """The product with `other`, entry by entry, as `*` and as SciPy's method of that name."""
        return surface["multiply"](self, other)

    def power(self, n: Any) -> Any:
        """Every entry to the power of `n`, as `**`."""
        return surface["power"](self, n)

    def maximum(self, other: Any) -> Any:
        return surface["maximum"](self, other)

    def minimum(self, other: Any) -> Any:
        return surface["minimum"](self, other)

    def dot(self, other: Any) -> Any:
        return surface["dot"](self, other)

    def __getitem__(self, key: Any) -> Any:
        """A part of the array by NumPy's rules for keys; see `sparsejax.numpy.indexing.getitem`."""
        return surface["getitem"](self, key)

    @property
    def at(self) -> Any:
        """Updates of parts: `x.at[key].set(values)`, also add, min, max, get; a new array each."""
        return surface["at"](self)

    @property
    def real(self) -> Any:
        return surface["real"](self)

    @property
    def imag(self) -> Any:
        return surface["imag"](self)

    def conj(self) -> Any:
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
    __pow__, __rpow__ = _binary("power"), _reflected("power")
    __matmul__, __rmatmul__ = _binary("matmul"), _reflected("matmul")
    __and__, __rand__ = _binary("bitwise_and"), _reflected("bitwise_and")
    __or__, __ror__ = _binary("bitwise_or"), _reflected("bitwise_or")
    __xor__, __rxor__ = _binary("bitwise_xor"), _reflected("bitwise_xor")
    __lshift__, __rlshift__ = _binary("left_shift"), _reflected("left_shift")
    __rshift__, __rrshift__ = _binary("right_shift"), _reflected("right_shift")
    __eq__, __ne__ = _binary("equal"), _binary("not_equal")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __neg__, __pos__ = _unary("negative"), _unary("positive")
    __abs__, __invert__ = _unary("absolute"), _unary("invert")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = {"true_divide": "divide", "conj": "conjugate", "mod": "remainder", "abs": "absolute"}.get(
            ufunc.__name__, ufunc.__name__
        )
        if method != "__call__" or kwargs or name not in numpy_names:
            extra = f" with {', '.join(kwargs)}" if kwargs else ""
            raise TypeError(
                f"np.{ufunc.__name__}.{method}{extra} does not take sparsejax arrays; see sparsejax.numpy for what does"
            )
        return numpy_names[name](*inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        module = getattr(func, "__module__", "numpy").removeprefix("numpy").removeprefix(".")
        name = f"{module}.{func.__name__}" if module else func.__name__
        ours = numpy_names.get(name)
        if ours is None:
            raise TypeError(f"np.{name} does not take sparsejax arrays; see sparsejax.numpy for what does")
        return ours(*args, **kwargs)


class _Fields(ArrayBase):
    """The fields of an `Array`."""

    __slots__ = ("__weakref__", "_aval", "_storage")
    _storage: Storage
    _aval: Aval


class _Open(_Fields):
    """An array while it is made, to which attributes can be assigned."""

    __slots__ = ()


class Array(_Fields):
    """An immutable array: a `Storage` and its type. Make one with `sparsejax.array`."""

    __slots__ = ()

    def __init__(self, storage: Storage, aval: Aval | None = None) -> None:
        object.__setattr__(self, "_storage", storage)
        if aval is None:
            aval = Aval(storage.shape, storage.dtype, storage.format, storage.fill_value)
        object.__setattr__(self, "_aval", aval)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"sparsejax arrays are immutable; cannot set attribute {name!r}")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("sparsejax arrays are immutable; x.at[key].set(values) gives a new array")

    @property
    def aval(self) -> Aval:
        return self._aval

    @property
    def storage(self) -> Storage:
        """The buffers, as views that nobody can write to."""
        return self._storage.exposed()

    @property
    def nnz(self) -> int:
        """The number of stored entries (every entry, for a dense array)."""
        return self._storage.nnz

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return self._storage.nbytes

    def is_deleted(self) -> bool:
        """Whether the array was donated (`donate_argnums` of `jit`) and cannot be used any more."""
        return self._storage is _DELETED

    def todense(self) -> NDArray[Any]:
        """The array as a NumPy array."""
        return conversion.to_dense(self.storage)

    toarray = todense

    def to_scipy(self, copy: bool = False) -> Any:
        """The array as a SciPy sparse array, sharing buffers (read-only) where SciPy has the format; in memory of its own, which
        may be written to, with `copy`."""
        made = scipy_io.to_scipy(self.storage)
        return made.copy() if copy else made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if source.in_scipy_operator():
            return source.as_object(self)
        if not self.format.is_dense:
            raise TypeError(
                f"an array in format {self.format} is not turned into a dense NumPy array silently; call .todense() to do it, "
                "or sparsejax.numpy functions to stay sparse"
            )
        dense = self.todense()
        if dtype is not None and np.dtype(dtype) != dense.dtype:
            return dense.astype(dtype)
        return dense.copy() if copy else dense

    def tolist(self) -> Any:
        """The values of a dense array, as nested lists."""
        return np.asarray(self).tolist()

    def item(self) -> Any:
        """The value of an array with one element, as a Python scalar."""
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return conversion.to_dense(self._storage).item()

    def __iter__(self) -> Iterator[Array]:
        """The subarrays of a dense array along its first dimension."""
        if not self.shape:
            raise TypeError("iteration over an array of no dimensions")
        if not self.format.is_dense:
            raise TypeError(
                f'an array in format {self.format} is not iterated over; use array operations, or .asformat("dense") first'
            )
        return (Array(ingest.as_storage(np.array(part))) for part in self.todense())

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        if self.size != 1:
            raise TypeError(f"the format {spec!r} is for one number, but this array has shape {self.shape}")
        return format(self.item(), spec)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()"
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError(f"only integer scalar arrays can be converted to a scalar index, not {self.dtype}")
        return int(self.item())

    def __reduce__(self) -> Any:
        s = self._storage
        return _rebuild, (str(s.format), s.shape, s.fill_value, tuple(s.buffers), s.vals)

    def __repr__(self) -> str:
        """The type, and a few entries: of a dense array as NumPy shows it, of others the first and the last three that are stored.

        In constant time but for formats with unused positions, whose entries are counted once.
        """
        s, form = self._storage, self.format
        if form.is_dense:
            shown = np.array2string(self.todense(), separator=", ", prefix="Array(", threshold=1000)
            shape = "" if self.size <= 1000 else f"shape={self.shape}, "
            return f"Array({shown}, {shape}dtype={self.dtype})"
        density = s.nnz / self.size if self.size else 0.0
        fill = "" if self.fill_value == 0 else f", fill_value={self.fill_value}"
        told = (
            f"shape={self.shape}, dtype={self.dtype}, format={form}, nnz={s.nnz}, density={density:.3g}, "
            f"bytes={s.nbytes}{fill})"
        )
        entries = _shown(*peek.ends(s, SHOWN))
        return f"Array({entries}, {told}" if len(entries) + len(told) < 90 else f"Array({entries},\n      {told}"

    def _repr_html_(self) -> str:
        """For notebooks: what the array is, and a spy plot of where it stores entries."""
        return card.array(self._storage.exposed())


def _shown(first: peek.Entries, last: peek.Entries | None) -> str:
    """Entries as a dictionary from coordinates to values, numbers as NumPy prints them."""
    parts = [first] if last is None else [first, last]
    vals = np.concatenate([part.vals for part in parts])
    texts = iter(np.array2string(vals, separator="\n", threshold=len(vals) + 1).strip("[]").split("\n"))
    shown = []
    for part in parts:
        places = zip(*(column.tolist() for column in part.columns), strict=True)
        keys = (place if len(place) > 1 else place[0] for place in places)
        shown.append(", ".join(f"{key}: {next(texts).strip()}" for key in keys))
    if last is None:
        return "{" + shown[0] + "}"
    gap = ", ..., " if sum(map(len, shown)) < 100 else ", ...,\n       "
    return "{" + gap.join(text or "..." for text in shown) + "}"


_put_storage = vars(_Fields)["_storage"].__set__


def made(storage: Storage, aval: Aval) -> Array:
    """`Array(storage, aval)` in a third of the time, for results of small calls: attributes are assigned before it becomes immutable."""
    array: Any = _Open()
    array._storage = storage
    array._aval = aval
    array.__class__ = Array
    return array  # type: ignore[no-any-return]


class _Deleted:
    """In place of the storage of an array that was donated."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # for what looks at any object
        raise RuntimeError(
            "this array has been deleted: it was donated to a jitted function (donate_argnums), which may have used its memory "
            "for a result; use that result, or do not donate the array"
        )


_DELETED: Any = _Deleted()


def delete(array: Array) -> None:
    """Give up the memory of an array, which cannot be used any more."""
    _put_storage(array, _DELETED)


def _rebuild(form: str, shape: tuple[int, ...], fill: Any, buffers: Any, vals: NDArray[Any]) -> Array:
    return Array(Storage(Format.parse(form, len(shape)), shape, fill, buffers, vals))
