"""Indexing outside `jit`: parts of sparse arrays are taken by `formats.parts`, without a program in between.

Keys of integers, slices and one vector, which are most, are read here; others by `indexing.parse`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval
from sparsejax.core.trace import current
from sparsejax.formats import Format, passes, selection, structural
from sparsejax.formats.parts import lines, located, taken, written
from sparsejax.formats.storage import Storage, dense_template
from sparsejax.jit.runtime.system import result_memory
from sparsejax.lax.elementwise import primitives, where_p
from sparsejax.lax.library import thinning
from sparsejax.lax.typing_rules import alike

_SCALAR = Format(())
_COUNT = Aval((), np.dtype(np.int64), _SCALAR, 0)
COUNTED = 2048
"""Values that NumPy counts in less time than a call of a kernel takes."""
PICKED = 1 << 20
"""Bytes that NumPy takes by an index array in less time than a call of a kernel."""


def simple(key: Any, shape: tuple[int, ...]) -> tuple[list[Any], tuple[int, ...], int] | None:
    """What a key of integers, slices and at most one vector keeps of every dimension, the dimensions that integers remove, and that of the vector
    (-1: there is none); None for other keys, and those that are wrong.

    >>> simple((1, slice(None)), (2, 3))
    ([range(1, 2), None], (0,), -1)
    """
    parts = key if type(key) is tuple else (key,)
    if len(parts) > len(shape):
        return None
    keys: list[Any] = [None] * len(shape)
    axes: tuple[int, ...] = ()
    vector = -1
    for d, part in enumerate(parts):
        kind, n = type(part), shape[d]
        if kind is slice:
            chosen = range(*part.indices(n))
            if len(chosen) != n or chosen.step < 0:
                keys[d] = chosen
        elif kind is int:
            if not -n <= part < n:
                return None
            part = part + n if part < 0 else part
            keys[d] = range(part, part + 1)
            axes = (*axes, d)
        elif kind is np.ndarray and part.ndim == 1 and vector < 0:
            if part.dtype.kind == "b":
                if len(part) != n:
                    return None
                keys[d] = part.nonzero()[0]
            elif part.dtype.kind in "iu":
                keys[d] = selection.numbers(part, n, d)
            else:
                return None
            vector = d
        else:
            return None
    return keys, axes, vector


_WHOLE = slice(None)


def widened(key: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that a key of new axes and slices of everything gives; None for other keys.

    >>> widened((slice(None), None), (5, 2)), widened((1, None), (5,))
    ((5, 1, 2), None)
    """
    made: list[int] = []
    d = 0
    for part in key if type(key) is tuple else (key,):
        if part is None:
            made.append(1)
        elif type(part) is slice and part == _WHOLE and d < len(shape):
            made.append(shape[d])
            d += 1
        else:
            return None
    return (*made, *shape[d:])


def reshaped(x: Array, shape: tuple[int, ...]) -> Array | None:
    """A dense array in the order of NumPy under another shape, over the same memory; None for other arrays."""
    return None if _elements(x) is None else _over(x, _dense(x._aval, shape), x._storage.vals)


def strided(x: Array, key: Any) -> Array | None:
    """What a key of integers, slices and ... takes of a dense array in the order of NumPy, copied; None for other keys and arrays.

    >>> import sparsejax as sj
    >>> strided(sj.array(np.arange(6)), slice(1, None, 2))
    Array([1, 3, 5], dtype=int64)
    """
    parts = key if type(key) is tuple else (key,)
    for part in parts:
        if type(part) is not slice and type(part) is not int and part is not Ellipsis:
            return None
    elements = _elements(x)
    if elements is None:
        return None
    found = np.array(elements[key])
    found.flags.writeable = False
    return _over(x, _dense(x._aval, found.shape), found.reshape(-1))


def replaced(x: Array, key: Any, values: NDArray[Any], add: bool = False) -> Array | None:
    """A dense array in the order of NumPy with other values at a key of integers, slices and ..., or with these added to what is there; None for other
    keys and arrays. `values` have its dtype and broadcast to the part. Linear in the array, which is copied.

    >>> import sparsejax as sj
    >>> replaced(sj.array(np.arange(4)), slice(1, 3), np.array(7))
    Array([0, 7, 7, 3], dtype=int64)
    """
    parts = key if type(key) is tuple else (key,)
    for part in parts:
        if type(part) is not slice and type(part) is not int and part is not Ellipsis:
            return None
    elements = _elements(x)
    if elements is None:
        return None
    vals, found = result_memory.written(elements.shape, elements.dtype)
    np.copyto(found, elements)
    part = found[parts if any(p is Ellipsis for p in parts) else (*parts, Ellipsis)]
    if add:
        with np.errstate(all="ignore"):
            np.add(part, values, out=part)
    else:
        part[...] = values
    return _over(x, x._aval, vals)


def moved(x: Any, function: Callable[..., NDArray[Any]], *args: Any) -> Array | None:
    """What a function of NumPy's, which moves or repeats elements, makes of a dense array in the order of NumPy and `args`; None for other arrays, under
    `jit`, and where NumPy refuses them.

    >>> import sparsejax as sj
    >>> moved(sj.array(np.arange(3)), np.roll, 1)
    Array([2, 0, 1], dtype=int64)
    """
    if type(x) is not Array or current() is not None:
        return None
    elements = _elements(x)
    if elements is None:
        return None
    try:
        found = np.asarray(function(elements, *args), order="C")
    except (ValueError, OverflowError):  # too large, or of no dimension: the longer road says what is wrong
        return None
    if found.base is not None:
        found = found.copy()
    found.flags.writeable = False
    return _over(x, _dense(x._aval, found.shape), found.reshape(-1))


def picked(x: Array, key: Any) -> Array | None:
    """What an array of integers, or a vector of bools, beside slices of everything takes of a dense array in the order of NumPy, by NumPy's `take`; None
    for other keys and arrays, and results of more than `PICKED` bytes.

    >>> import sparsejax as sj
    >>> picked(sj.array(np.arange(6)), np.array([5, -1, 0]))
    Array([5, 5, 0], dtype=int64)
    """
    parts = key if type(key) is tuple else (key,)
    axis = -1
    for d, part in enumerate(parts):
        if type(part) is np.ndarray and axis < 0:
            axis = d
        elif type(part) is not slice or part != _WHOLE:
            return None
    elements = _elements(x) if axis >= 0 else None
    if elements is None or len(parts) > elements.ndim:
        return None
    shape, index = elements.shape, parts[axis]
    extent = shape[axis]
    if index.dtype.kind == "b" and index.shape == (extent,):
        index = index.nonzero()[0]
    elif index.dtype.kind in "iu" and index.ndim:
        index = selection.numbers(index.reshape(-1), extent, axis).reshape(index.shape)
    else:
        return None
    result = *shape[:axis], *index.shape, *shape[axis + 1 :]
    if math.prod(result) * elements.itemsize > PICKED:
        return None
    vals, found = result_memory.written(result, elements.dtype)
    elements.take(index, axis, found, "clip")  # in bounds: any other mode would copy once more
    return _over(x, _dense(x._aval, result), vals)


def _elements(x: Array) -> NDArray[Any] | None:
    """The elements of a dense array in the order of NumPy; None for other arrays, and those of a weak type."""
    aval = x._aval
    if aval.weak_type or aval.format != Format.parse("dense", len(aval.shape)):
        return None
    return x._storage.vals.reshape(aval.shape)


def _over(x: Array, aval: Aval, vals: NDArray[Any]) -> Array:
    """A dense array of a type over these values, which are made of those of `x`."""
    return made(Storage.dense(dense_template(aval.format, aval.shape, x._storage.fill_value), vals, {}), aval)


@functools.lru_cache(maxsize=4096)
def _dense(x: Aval, shape: tuple[int, ...]) -> Aval:
    return Aval(shape, x.dtype, Format.parse("dense", len(shape)), 0)


def vectors(key: Any, shape: tuple[int, ...]) -> list[Any] | None:
    """Vectors of integers of one length, one for every dimension of a matrix or larger array, as coordinates; None for other keys."""
    if type(key) is not tuple or len(key) != len(shape) or len(shape) < 2:
        return None
    first = key[0]
    if type(first) is not np.ndarray or first.ndim != 1:
        return None
    for part in key:
        if type(part) is not np.ndarray or part.shape != first.shape or part.dtype.kind not in "iu":
            return None
    return [selection.numbers(part, n, d) for d, (part, n) in enumerate(zip(key, shape, strict=True))]


def masked(x: Array, mask: Array) -> Array | None:
    """The elements, in row-major order, where a sparse array of bools of the same shape holds, as a sparse vector (coo); None for other masks and where
    it takes another road. Linear in the entries of both, or a search in `x` for each place.

    >>> import sparsejax as sj
    >>> A = sj.array([[0, 2], [3, 0]], format="csr")
    >>> masked(A, A > 2)
    Array({0: 3}, shape=(1,), dtype=int64, format=coo, nnz=1, density=1, bytes=28)
    """
    if mask._aval.shape != x._aval.shape or mask._aval.dtype != np.bool_ or mask._aval.format.is_dense:
        return None
    storage, flags = x._storage, mask._storage
    if flags.fill_value:
        return None
    if lines.row_major(storage) and storage.packed and thinning.same_positions(storage, flags):
        vals = storage.vals
        if not flags.vals.all():
            ends = np.array([0, len(vals)])
            _, (vals,) = passes.over(len(vals)).chosen(ends, flags.vals, [vals])
        return made(located.all_of(vals, storage.fill_value), _vector(x.aval, len(vals)))
    if storage.packed and thinning.same_positions(storage, flags):
        ordered = lines.in_row_major_order(storage, flags.vals)
        if ordered is not None:
            return made(located.all_of(ordered, storage.fill_value), _vector(x.aval, len(ordered)))
    columns, holds = lines.distinct(thinning.apart(flags)).expand()
    if not holds.all():  # blocks and diagonals keep entries that do not hold
        columns = [c[holds] for c in columns]
    return places(x, columns)


def grid(key: Any, shape: tuple[int, ...]) -> list[Any] | None:
    """The coordinates that a key of `numpy.ix_` names, a vector for every dimension; None for other keys.

    >>> grid(np.ix_([1, 0], [2]), (2, 3))
    [array([1, 0]), array([2])]
    """
    if type(key) is not tuple or len(key) != len(shape) or len(shape) < 2:
        return None
    keys = []
    for d, given in enumerate(key):
        if type(given) is not np.ndarray or given.ndim != len(key) or given.size != given.shape[d]:
            return None
        if given.dtype.kind not in "iu" or (not given.size and given.shape.count(1) < len(key) - 1):
            return None
        keys.append(selection.numbers(given.reshape(-1), shape[d], d))
    return keys


def part(x: Array, keys: Sequence[Any], axes: tuple[int, ...]) -> Array:
    """What `keys` keep of every dimension (see `formats.parts.taken`), without `axes`."""
    storage = x._storage
    if len(axes) == len(keys) and located.searched(storage.format) and all(type(key) is range for key in keys):
        return _one(x, storage, keys)
    aval, same = x._aval, not axes
    shape = list(aval.shape)
    for d, key in enumerate(keys):
        if key is not None:
            shape[d], same = len(key), False
    if same:
        return x
    kind = aval._kind if aval._kind >= 0 else aval.kind
    left = _left.get((kind, axes)) or _typed(aval, kind, axes)
    aval = left.at(tuple([n for d, n in enumerate(shape) if d not in axes] if axes else shape))
    result = taken.taken(storage, keys, axes, aval.format)
    if aval.format.is_dense:
        result = structural.refill(result, 0)
    return made(result, aval)


def along(x: Any, axis: int, move: Callable[[Storage, int, int], Storage | None], number: int) -> Array | None:
    """What `move` (of `formats.parts.moved`) makes of a sparse array, an axis and a number; None for dense arrays, under `jit`, and where it gives None."""
    if type(x) is not Array or x.format.is_dense or current() is not None:
        return None
    result = move(x._storage, axis, number)
    if result is None:
        return None
    aval = x.aval
    return made(result, Aval(result.shape, aval.dtype, aval.format, aval.fill_value))


_left: dict[tuple[int, tuple[int, ...]], Aval] = {}
"""A type of what is left of arrays, by the number of their structure and the axes that are gone."""


def _typed(x: Aval, kind: int, axes: tuple[int, ...]) -> Aval:
    """The type of what is left of arrays of a structure, whose number is `kind`, of one shape."""
    form = selection.without(x.format, axes)
    made = Aval((0,) * form.ndim, x.dtype, form, 0 if form.is_dense else x.fill_value)
    if made.kind >= 0:  # found once for all shapes
        if len(_left) > 1024:
            _left.clear()
        _left[kind, axes] = made
    return made


@functools.lru_cache(maxsize=64)
def _scalar(dtype: np.dtype[Any]) -> tuple[Aval, Any]:
    return Aval((), dtype, _SCALAR, 0), dtype.type(0)


def _one(x: Array, storage: Storage, keys: Sequence[range]) -> Array:
    """The value at one place, as an array of no dimensions."""
    at = located.position(storage, [key.start for key in keys])
    vals = storage.vals[at : at + 1].copy() if at >= 0 else np.array([storage.fill_value])
    vals.flags.writeable = False
    aval, zero = _scalar(storage.dtype)
    return made(Storage.of_frozen(_SCALAR, (), zero, (), vals), aval)


@functools.lru_cache(maxsize=4096)
def _vector(x: Aval, count: int) -> Aval:
    return Aval((count,), x.dtype, Format.parse("coo", 1), x.fill_value)


def counted(x: Array) -> Array | None:
    """How many elements differ from zero, counted by one call of NumPy's and remembered; None where there are many values, or not all of these are
    elements or zero.

    >>> import sparsejax as sj
    >>> counted(sj.array([[0, 2], [3, 0]], format="csr"))
    Array(2, dtype=int64)
    """
    cache = x._storage.cache
    number: Any = cache.get("nonzero")
    if number is None:
        number = cache["nonzero"] = _counted(x._storage)
    return made(number, _COUNT) if number else None


def _counted(storage: Storage) -> Storage | bool:
    """The number of elements that differ from zero as an array of no dimensions, or False."""
    levels = storage.format.levels
    if len(storage.vals) > COUNTED or storage.fill_value or not all(x.unique and not x.shared for x in levels):
        return False
    return Storage(_SCALAR, (), np.int64(0), (), np.array((np.count_nonzero(storage.vals),), np.int64))


def places(x: Array, columns: Sequence[Any]) -> Array | None:
    """The values at places, one vector of coordinates for every dimension, as a sparse vector (coo); None where it takes another road."""
    result = located.gathered(x._storage, columns)
    return None if result is None else made(result, _vector(x.aval, result.shape[0]))


def updated(
    x: Array,
    ranges: Sequence[range],
    vectors: dict[int, Any],
    first: int,
    single: Sequence[int],
    values: Any,
    add: bool = False,
) -> Array | None:
    """`x` with `values`, of its dtype and of the shape of the places, at these, or added there: coordinates of vectors of one length, all others
    in ranges. The vectors' axis is the one before which there are `first` others in `values`. None where adding takes another road."""
    shape = x.aval.shape
    if vectors or len(single) < len(shape):
        rest = [d for d in range(len(shape)) if d not in vectors and d not in single]
        axes = [*rest[:first], None, *rest[first:]] if vectors else list(rest)
        columns = []
        for d, chosen in enumerate(ranges):
            along = vectors[d] if d in vectors else np.arange(chosen.start, chosen.stop, chosen.step)
            own = None if d in vectors else d
            place = [len(along) if a == own else 1 for a in axes] if d not in single else [1] * len(axes)
            spread = along.reshape(place)
            columns.append(
                (spread if spread.shape == values.shape else np.broadcast_to(spread, values.shape)).reshape(-1)
            )
    else:
        columns = [np.array([chosen.start]) for chosen in ranges]
    if add:
        aval = _added(alike(x.aval)).at(shape)
        result = written.added(x._storage, columns, values.reshape(-1), aval.format)
        return None if result is None else made(result, aval)
    aval = _written(alike(x.aval)).at(shape)
    box = not vectors and all(chosen.step > 0 for chosen in ranges)
    along = [d for d, chosen in enumerate(ranges) if len(chosen) > 1] if box else None
    return made(written.written(x._storage, columns, values.reshape(-1), aval.format, along), aval)


@functools.lru_cache(maxsize=1024)
def _added(x: Aval) -> Aval:
    """As `_written`, of an array to which entries were added."""
    spread = Aval(x.shape, x.dtype, Format.parse("coo", len(x.shape)), 0)
    found: Aval = primitives["add"].typing(x, spread, loops=((x.dtype, x.dtype), x.dtype))
    return found.strong()


@functools.lru_cache(maxsize=1024)
def _written(x: Aval) -> Aval:
    """The type of an array with entries written to it: that of the program that does so under `jit`."""
    coo = Format.parse("coo", len(x.shape))
    mask, spread = Aval(x.shape, np.bool_, coo, False), Aval(x.shape, x.dtype, coo, 0)
    found: Aval = where_p.typing(mask, spread, x, dtype=x.dtype)
    if located.searched(x.format) and found.format != x.format:  # what is written is in the format of `x` in the end
        found = Aval(found.shape, found.dtype, x.format, found.fill_value)
    return found.strong()
