"""Builder: sparse arrays out of entries that come one by one, row by row or in batches.

Records are written one behind the other into NumPy buffers that double when they are full; single entries wait in lists first, since
Python's lists take them faster. `finish` sorts and combines them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.trace import Tracer
from sparsejax.errors import TracerArrayConversionError
from sparsejax.formats import Format, convert, ordering
from sparsejax.formats.levels import segments
from sparsejax.lax.structural import extents, integer

Vector = NDArray[Any]

FIRST = 1024
"""Records that the first buffers have room for."""
WAITING = 1 << 14
"""Single entries that wait in lists before they are written to the buffers."""
SHORT = 32
"""Coordinates of a row whose bounds Python finds sooner than NumPy."""
_INT = frozenset({int})


class Builder:
    """A growing list of entries that becomes a sparse array: `Builder(shape, dtype, format)`, csr for matrices and coo for others.

    - `append(values, coords)`, `append_row(i, columns, values)` and `b[i, j] += v` **add** to what was written at these coordinates before;
    - `b[i, j] = v` **replaces** it.

    That holds in the order of the calls, also between them: after `b[0, 0] = 1`, `b[0, 0] += 2`, entry (0, 0) is 3. For bools, adding is
    "or". Entries that are written stay stored, even where their value is 0 (`prune` drops these). Nothing can be read before `finish`.

    Values are cast as by NumPy's in-place operators: to the dtype of the builder if that is of the same kind, else TypeError;
    OverflowError for Python integers that do not fit. A builder of bools takes any numbers: those that are
    not zero are True. Coordinates outside the shape are an IndexError that names argument and axis; as
    keys of `b[i, j]`, negative ones count from the end.

    A record takes constant time (amortised) and the bytes of its value and coordinates, or twice that while buffers grow. The builder can
    be written to after `finish`, which copies. Not for use inside `jit`, nor by several threads at once.

    >>> b = Builder((2, 3))
    >>> b[0, 1] = 5.0
    >>> b[0, 1] += 1.0
    >>> b.append([1.0, 2.0], ([1, 1], [0, 2]))
    >>> b.append_row(1, [2], [10.0])
    >>> b.finish().todense()
    array([[ 0.,  6.,  0.],
           [ 1.,  0., 12.]])
    """

    def __init__(self, shape: Any, dtype: Any = float, format: str | Format | None = None) -> None:
        self._shape = tuple(map(int, extents(shape)))
        self._dtype = dtypes.canonical(dtype)
        if not self._shape:
            raise ValueError("shape=() has no coordinates: a Builder makes arrays of at least one dimension")
        usual = "csr" if len(self._shape) == 2 else "coo"
        self._format = Format.parse(usual if format is None else format, len(self._shape))
        self._columns = [np.empty(FIRST, segments.crd_dtype(n)) for n in self._shape]
        self._vals = np.empty(FIRST, self._dtype)
        self._replaces: NDArray[np.bool_] | None = None
        """Whether each record replaces what is there; None: none does."""
        self._count = 0
        self._waiting: list[Any] = []
        self._kind: bool | None = None
        """Whether what waits replaces; None: nothing waits."""
        self._plain, self._least, self._most = _plain_types(self._dtype)
        self._floats = self._dtype.kind in "fc"

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents per dimension."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of values."""
        return self._dtype

    @property
    def format(self) -> Format:
        """The format that `finish` gives by default."""
        return self._format

    @property
    def records(self) -> int:
        """How many entries were written, those for the same coordinates counted apart."""
        return self._count + len(self._waiting) // (len(self._shape) + 1)

    def __repr__(self) -> str:
        return f"Builder(shape={self._shape}, dtype={self._dtype}, format={self._format}, records={self.records})"

    # ------------------------------------------------------------------------------------------------------- writing

    def append(self, values: Any, coords: Any) -> None:
        """Add `values`, a vector or one number for all, at `coords`: a vector of integers per axis, or an array of shape (ndim, n).

        NumPy's arrays, lists and dense arrays of ours. IndexError for coordinates outside the shape, TypeError for other dtypes,
        ValueError for lengths that do not fit; the builder is then as before. O(n), amortised.
        """
        vectors = coords if isinstance(coords, list | tuple) else np.atleast_1d(_concrete(coords, "coords"))
        if len(vectors) != len(self._shape):
            raise ValueError(
                f"coords has {len(vectors)} vectors, but shape={self._shape} has {len(self._shape)} axes; give one vector per axis"
            )
        columns = [_integers(c, "coords", axis) for axis, c in enumerate(vectors)]
        count = len(columns[0])
        for axis, column in enumerate(columns):
            if len(column) != count:
                raise ValueError(f"coords has {count} entries for axis 0, but {len(column)} for axis {axis}")
            _check_bounds(column, self._shape[axis], "coords", axis)
        self._write(columns, self._cast(values, count), False)

    def append_row(self, i: Any, columns: Any, values: Any) -> None:
        """Add `values`, a vector or one number for all, to row `i` of a matrix, at `columns`; see `append`."""
        if len(self._shape) != 2:
            raise ValueError(f"append_row is for matrices, but the shape is {self._shape}; use append(values, coords)")
        if type(i) is int and 0 <= i < self._shape[0] and self._write_row(i, columns, values, False):
            return
        row = integer(i, "i")
        if not 0 <= row < self._shape[0]:
            raise IndexError(f"i={row} is out of bounds for axis 0 with size {self._shape[0]}")
        found = _integers(columns, "columns", 1)
        _check_bounds(found, self._shape[1], "columns", 1)
        self._write([row, found], self._cast(values, len(found)), False)

    def __getitem__(self, key: Any) -> Place:
        """For `b[key] += v` alone: values cannot be read before `finish`."""
        return Place(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        replaces = True
        if type(value) is _Sum:
            value.check(self, key)
            replaces, value = False, value.value
        shape = self._shape
        if type(key) is tuple and len(key) == len(shape) and type(value) in self._plain:
            if self._least is not None and not self._least <= value <= self._most:
                raise OverflowError(f"Python integer {value} out of bounds for {self._dtype}")
            if self._floats and type(value) is int:
                value = float(value)  # OverflowError now, rather than when it is written
            if replaces is not self._kind:
                self._flush()
                self._kind = replaces
            waiting, before = self._waiting, len(self._waiting)
            for k, n in zip(key, shape, strict=True):
                if type(k) is not int or not 0 <= k < n:
                    break
                waiting.append(k)
            else:
                waiting.append(value)
                if before > WAITING:
                    self._flush()
                return
            del waiting[before:]
        of_row = type(key) is tuple and len(key) == len(shape) == 2 and type(key[0]) is int and 0 <= key[0] < shape[0]
        if of_row and self._write_row(key[0], key[1], value, replaces):
            return
        self._set(key, value, replaces)

    def _write_row(self, row: int, columns: Any, values: Any, replaces: bool) -> bool:
        """Write a part of a row of a matrix whose vectors are NumPy's, or lists of Python's numbers; False, and nothing is written, for all else
        and for what is wrong. Most rows are short: what NumPy does before it begins takes longer than all that is to be done."""
        if type(columns) is list and type(values) is list:
            if not _INT.issuperset(map(type, columns)) or not self._plain.issuperset(map(type, values)):
                return False
            count = len(columns)
            if not count or len(values) != count or min(columns) < 0 or max(columns) >= self._shape[1]:
                return False
            if self._least is not None and not (self._least <= min(values) and max(values) <= self._most):
                return False
        elif type(columns) is np.ndarray and type(values) is np.ndarray:
            count = len(columns) if columns.ndim == 1 and columns.dtype.kind in "iu" else 0
            if not count or values.shape != columns.shape or values.dtype != self._dtype:
                return False
            if count > SHORT:
                least, most = columns[columns.argmin()], columns[columns.argmax()]
            else:
                listed = columns.tolist()
                least, most = min(listed), max(listed)
            if least < 0 or most >= self._shape[1]:
                return False
        else:
            return False
        if self._waiting:
            self._flush()
        first, stop = self._count, self._count + count
        if stop > len(self._vals):
            self._reserve(stop)
        rows, across = self._columns
        try:
            self._vals[first:stop] = values
        except OverflowError:  # an integer of Python's that no float of the dtype holds: told by the long way
            return False
        rows[first:stop] = row
        across[first:stop] = columns
        if replaces or self._replaces is not None:
            self._mark(first, stop, replaces)
        self._count = stop
        return True

    def _mark(self, first: int, stop: int, replaces: bool) -> None:
        """Note whether records replace what is there."""
        if replaces and self._replaces is None:
            self._replaces = np.zeros(len(self._vals), bool)
        if self._replaces is not None:
            self._replaces[first:stop] = replaces

    def _set(self, key: Any, value: Any, replaces: bool) -> None:
        """Values at a key of integers and integer arrays."""
        listed = key if isinstance(key, tuple) else (key,)
        if len(listed) != len(self._shape):
            raise IndexError(
                f"a key of {len(listed)} coordinates is given, but shape={self._shape} has {len(self._shape)} axes; give one "
                "integer, or an array of them, per axis"
            )
        columns = []
        for axis, (given, n) in enumerate(zip(listed, self._shape, strict=True)):
            column = np.asarray(_concrete(given, "key"))
            if isinstance(given, list) and not column.size:
                column = column.astype(np.int64)  # an empty list holds no integer that says of which type it is
            if isinstance(given, slice) or given is None or given is Ellipsis or column.dtype.kind not in "iu":
                raise TypeError(f"key holds {given!r} for axis {axis}; it must be an integer, or an array of integers")
            column = column.astype(np.int64)
            wrong = (column < -n) | (column >= n)
            if wrong.any():
                raise IndexError(f"key {column[wrong].flat[0]} is out of bounds for axis {axis} with size {n}")
            columns.append(np.where(column < 0, column + n, column))
        try:
            places = np.broadcast_arrays(*columns)
        except ValueError:
            told = ", ".join(str(c.shape) for c in columns)
            raise IndexError(f"arrays of the key have shapes {told}, which do not broadcast") from None
        shape = places[0].shape
        values = self._converted(value)
        try:
            values = np.broadcast_to(values, shape)
        except ValueError:
            raise ValueError(f"values of shape {values.shape} do not fit the {shape} coordinates of the key") from None
        self._write([p.ravel() for p in places], values.ravel(), replaces)

    def _converted(self, values: Any) -> Vector:
        """Values as an array of the dtype of the builder, by NumPy's rule for in-place operators."""
        values = _concrete(values, "values")
        if isinstance(values, bool | int | float | complex) and not isinstance(values, np.generic):
            if type(values) in self._plain:
                return np.asarray(values, self._dtype)  # OverflowError where it does not fit
            given = np.dtype(type(values))
        else:
            listed, values = values, np.asarray(values)
            given = values.dtype
            if not values.size:
                return np.empty(values.shape, self._dtype)
            if isinstance(listed, list | tuple) and self._holds_integers(listed, given):
                return np.asarray(listed, self._dtype)  # OverflowError where one does not fit: casts wrap around
        numbers = self._dtype.kind == "b" and given.kind in "biufc"
        if not numbers and (given.kind not in "biufc" or not np.can_cast(given, self._dtype, "same_kind")):
            raise TypeError(
                f"values of dtype {given} cannot be cast to {self._dtype}, the dtype of the builder, by the rule 'same_kind'; "
                "convert them with .astype first"
            )
        made: Vector = np.asarray(values).astype(self._dtype)
        return made

    def _holds_integers(self, values: Sequence[Any], given: np.dtype[Any]) -> bool:
        """Whether a list, which NumPy takes for an array of the dtype `given`, holds integers that may be too large for the builder. NumPy takes
        those that no dtype of integers holds for objects, or for floats."""
        if self._dtype.kind in "iu":
            return given.kind in "iu" or (given.kind in "Of" and _are_integers(values))
        return given.kind == "O" and _are_integers(values)

    def _cast(self, values: Any, count: int) -> Vector:
        made = self._converted(values)
        if made.ndim and made.shape != (count,):
            raise ValueError(f"values has shape {made.shape}, but there are {count} coordinates")
        return made

    def _write(self, columns: Sequence[Any], vals: Vector, replaces: bool) -> None:
        """Write records whose coordinates are inside the shape behind the others."""
        self._flush()
        count = next(len(c) for c in columns if isinstance(c, np.ndarray))
        first, stop = self._count, self._count + count
        self._reserve(stop)
        for buffer, column in zip(self._columns, columns, strict=True):
            buffer[first:stop] = column
        self._vals[first:stop] = vals
        self._mark(first, stop, replaces)
        self._count = stop

    def _reserve(self, needed: int) -> None:
        """Room for `needed` records: twice as many as before, at least."""
        if needed <= len(self._vals):
            return
        room = max(needed, 2 * len(self._vals))

        def grown(buffer: Vector) -> Vector:
            made = np.empty(room, buffer.dtype)
            made[: self._count] = buffer[: self._count]
            return made

        self._columns = [grown(column) for column in self._columns]
        self._vals = grown(self._vals)
        self._replaces = None if self._replaces is None else grown(self._replaces)

    def _flush(self) -> None:
        """Write what waits to the buffers."""
        replaces, self._kind = self._kind, None
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        width = len(self._shape) + 1
        count = len(waiting) // width
        columns = [np.fromiter(waiting[k::width], c.dtype, count) for k, c in enumerate(self._columns)]
        self._write(columns, np.fromiter(waiting[width - 1 :: width], self._dtype, count), bool(replaces))

    # ------------------------------------------------------------------------------------------------------ finishing

    def finish(self, format: str | Format | None = None, duplicates: str = "sum") -> Array:
        """The array of all entries that were written so far, in `format` (by default the one of the builder), over fill 0.

        `duplicates`: "sum" adds up entries of the same coordinates, from the last one on that was written by `b[key] = v`;
        "last" takes the last one alone. Sums are of the dtype of the builder, in the order of the calls.

        FormatError for a format that does not fit the shape, ValueError for other `duplicates`. O(records), but for the sizes of dense
        levels of the format.
        """
        if duplicates not in ("sum", "last"):
            raise ValueError(f'duplicates={duplicates!r} is not known; it is "sum" or "last"')
        form = self._format if format is None else Format.parse(format, len(self._shape))
        self._flush()
        columns = [c[: self._count] for c in self._columns]
        vals, replaces = self._vals[: self._count], self._replaces
        if duplicates == "last" or replaces is not None:
            starts_anew = np.ones(self._count, bool) if duplicates == "last" else replaces
            assert starts_anew is not None
            columns, vals = self._valid(columns, vals, starts_anew[: self._count])
        if form.is_dense:  # sums in a sparse format, which is then spread out
            flat = Format.parse("coo", len(self._shape))
            return Array(convert.convert(convert.from_coords(columns, vals, self._shape, flat, 0), form))
        return Array(convert.from_coords(columns, vals, self._shape, form, 0))

    def _valid(self, columns: list[Vector], vals: Vector, replaces: NDArray[np.bool_]) -> tuple[list[Vector], Vector]:
        """Records, sorted by coordinates, without those that a later one replaces."""
        if not len(vals):
            return columns, vals
        order = ordering.sort_order(columns, self._shape)
        if order is not None:
            columns, vals, replaces = [np.take(c, order) for c in columns], np.take(vals, order), replaces[order]
        fresh = segments.changes(columns)
        if fresh.all():
            return columns, vals
        starts, number = np.flatnonzero(fresh), np.arange(len(vals))
        since = np.maximum.reduceat(np.where(replaces, number, 0), starts)
        kept = number >= since[np.cumsum(fresh) - 1]
        return [c[kept] for c in columns], vals[kept]


class Place:
    """What `b[key]` is: it can be added to."""

    __slots__ = ("_builder", "_key")

    def __init__(self, builder: Builder, key: Any) -> None:
        self._builder, self._key = builder, key

    def __iadd__(self, value: Any) -> _Sum:
        return _Sum(self._builder, self._key, value)

    def __repr__(self) -> str:
        return f"a place of {self._builder!r}: b[key] += v and b[key] = v write to it, finish() reads"


class _Sum:
    """What `b[key] += value` assigns to `b[key]`."""

    __slots__ = ("builder", "key", "value")

    def __init__(self, builder: Builder, key: Any, value: Any) -> None:
        self.builder, self.key, self.value = builder, key, value

    def check(self, builder: Builder, key: Any) -> None:
        if self.builder is not builder or self.key is not key:
            raise TypeError("values cannot be read from a Builder: write b[key] += v, or finish() it first")


def _plain_types(dtype: np.dtype[Any]) -> tuple[frozenset[type], int | None, int]:
    """Python's types of numbers that are values of a dtype, and the range of integers."""
    if dtype.kind == "b":
        return frozenset({bool, int, float}), None, 0
    if dtype.kind in "iu":
        return frozenset({bool, int}), int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if dtype.kind == "f":
        return frozenset({bool, int, float}), None, 0
    return frozenset({bool, int, float, complex}), None, 0


def _are_integers(values: Any) -> bool:
    """Whether lists, one in another, hold Python's integers alone."""
    if isinstance(values, list | tuple):
        return all(map(_are_integers, values))
    return isinstance(values, int)


def _concrete(value: Any, what: str) -> Any:
    if isinstance(value, Tracer):
        raise TracerArrayConversionError(
            f"{what} is a traced value of type {value.aval}: a Builder takes data outside jit; inside, "
            "sparsejax.array((values, coords), shape=...) makes sparse arrays of traced values"
        )
    return value


def _integers(given: Any, what: str, axis: int) -> Vector:
    made = np.asarray(_concrete(given, what))
    if made.ndim != 1:
        raise ValueError(f"{what} of axis {axis} has shape {made.shape}; it must be a vector")
    if made.size and made.dtype.kind not in "iu":
        raise TypeError(f"{what} of axis {axis} has dtype {made.dtype}; it must hold integers")
    return made if made.size else made.astype(np.int64)


def _check_bounds(column: Vector, extent: int, what: str, axis: int) -> None:
    if len(column) and (column.min() < 0 or column.max() >= extent):
        place = int(np.flatnonzero((column < 0) | (column >= extent))[0])
        raise IndexError(
            f"{what} {column[place]} at position {place} is out of bounds for axis {axis} with size {extent}"
        )
