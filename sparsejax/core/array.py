"""Array: an immutable array over a Storage; what it shares with tracers is in `methods`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core import source
from sparsejax.core.avals import Aval
from sparsejax.core.methods import ArrayBase, surface
from sparsejax.formats import Format, ingest, peek, scipy_io
from sparsejax.formats import convert as conversion
from sparsejax.formats.storage import Storage, sealed
from sparsejax.pictures import card

SHOWN = 3
"""Entries of a sparse array that are printed from either end."""


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
            aval = Aval.of(storage.shape, storage.vals.dtype, storage.format, storage.fill_value)
        object.__setattr__(self, "_aval", aval)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"sparsejax arrays are immutable; cannot set attribute {name!r}")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("sparsejax arrays are immutable; x.at[key].set(values) gives a new array")

    @property
    def aval(self) -> Aval:
        """The type: shape, dtype, format and fill."""
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

    @property
    def data(self) -> NDArray[Any]:
        """The stored values, read-only, one for every position of the last level; of bsr (blocks, rows, columns), as in SciPy."""
        vals = self.storage.vals
        tiles = [b for b in self.format.blocks if b > 1]
        return vals.reshape(-1, *self.format.blocks) if tiles and str(self.format).startswith("bsr:") else vals

    @property
    def indptr(self) -> NDArray[Any]:
        """Where the entries of every row (csr, bsr) or column (csc) begin, read-only. AttributeError in other formats."""
        return self._index("indptr", 0)

    @property
    def indices(self) -> NDArray[Any]:
        """The column (csr, bsr) or row (csc) of every entry, read-only. AttributeError in other formats."""
        return self._index("indices", 1)

    def _index(self, name: str, place: int) -> NDArray[Any]:
        form = str(self.format)
        if form not in ("csr", "csc") and not form.startswith("bsr:"):
            raise AttributeError(
                f'an array in format {form} has no {name}: take .asformat("csr").{name}, .coords, or the buffers in .storage'
            )
        return sealed(self._storage.buffers[1][place])

    @property
    def coords(self) -> tuple[NDArray[Any], ...]:
        """The coordinates of stored entries, in the order of storage, a vector per dimension. O(stored entries)."""
        columns, _ = conversion.to_coords(self.storage)
        return tuple(columns)

    def getnnz(self, axis: int | None = None) -> Any:
        """The number of stored entries, or of those in every column (axis 0) or row (axis 1)."""
        if axis is None:
            return self.nnz
        columns, _ = conversion.to_coords(self.storage)
        if self.ndim != 2 or not -2 <= axis < 2:
            raise ValueError(
                f"getnnz counts along axis 0 or 1 of a matrix, not along axis={axis} of shape {self.shape}"
            )
        return np.bincount(columns[1 - axis % 2], minlength=self.shape[1 - axis % 2])

    def prune(self) -> Any:
        """The array itself, as SciPy's method of that name drops no entry: no buffer is longer than its entries need, but for slack that
        its format has. `sparsejax.prune` drops entries."""
        return self

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """The values of a dense array for other libraries: read-only, or a copy where `max_version` is older than 1.0, which cannot
        say so. TypeError for sparse arrays, BufferError where `copy=False` cannot be."""
        values = np.asarray(self)
        if copy is None and (max_version is None or max_version[0] < 1):
            values = values.copy()
        return values.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._storage.nbytes

    def is_deleted(self) -> bool:
        """Whether the array was donated (`donate_argnums` of `jit`) and cannot be used any more."""
        return self._storage is _DELETED

    def todense(self) -> NDArray[Any]:
        """The array as a NumPy array: a view of a dense one, which cannot be written to."""
        storage = self._storage
        return conversion.to_dense(self.storage if storage.format.is_dense else storage)

    toarray = todense

    def to_scipy(self, copy: bool = False) -> Any:
        """The array as a SciPy sparse array, sharing buffers (read-only) where SciPy has the format; in memory of its own, which
        may be written to, with `copy`."""
        made = scipy_io.to_scipy(self.storage)
        return made.copy() if copy else made

    @property
    def flags(self) -> Any:
        """The flags of the memory of a dense array, which is never writable; AttributeError for sparse ones."""
        if not self.format.is_dense:
            raise AttributeError(
                f"an array in format {self.format} has no flags; those of its buffers are at x.data.flags"
            )
        return self.todense().flags

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if source.in_scipy_operator():
            return source.as_object(self)
        if not self.format.is_dense:
            raise TypeError(
                f"an array in format {self.format} is not turned into a dense NumPy array silently; call .todense() for that, "
                ".to_scipy() for a SciPy sparse array, or sparsejax.numpy functions to stay sparse"
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
        storage = self._storage
        if len(storage.vals) == 1 and storage.format.is_dense:
            return storage.vals.item()
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return conversion.to_dense(self._storage).item()

    def __iter__(self) -> Iterator[Array]:
        """The subarrays along the first dimension; rows of a sparse matrix are sparse."""
        if not self.shape:
            raise TypeError("iteration over an array of no dimensions")
        if self.format.is_dense:
            return (Array(ingest.as_storage(np.array(part))) for part in self.todense())
        return (self[k] for k in range(self.shape[0]))

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        if self.size != 1:
            raise TypeError(f"the format {spec!r} is for one number, but this array has shape {self.shape}")
        return format(self.item(), spec)

    def __bool__(self) -> bool:
        storage = self._storage
        if len(storage.vals) == 1 and storage.format.is_dense:
            return bool(storage.vals.item())
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

    def __dask_tokenize__(self) -> Any:
        """What Dask names the array by: equal for equal content. See `interop.dask_adapter`."""
        return surface["dask_token"](self)

    def __reduce__(self) -> Any:
        """The buffers, which leave out of band by pickle's protocol 5: nothing is copied."""
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


def maker(step: Any, aval: Aval) -> Callable[[list[Storage]], Array]:
    """`made(step.call(storages), aval)` as a function of storages, without a call in between; what `step.call` is may change."""

    def run(storages: list[Storage]) -> Array:
        array: Any = _Open()
        array._storage = step.call(storages)
        array._aval = aval
        array.__class__ = Array
        return array  # type: ignore[no-any-return]

    return run


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
    """An array over buffers as they come: of a message, they may begin anywhere, and kernels read whole words."""
    if not all(b.flags.aligned for level in (*buffers, (vals,)) for b in level):
        buffers, vals = (
            tuple(tuple(np.require(b, None, "A") for b in level) for level in buffers),
            np.require(vals, None, "A"),
        )
    return Array(Storage(Format.parse(form, len(shape)), shape, fill, buffers, vals))
