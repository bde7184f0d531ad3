"""Indexing by NumPy's rules: `x[key]`, and NumPy's functions that put arrays together.

A key is parsed once (`Index`); reading goes through a window (integers, slices) and a gather (integer arrays), writing (`updates`) through
the transpose of both: a contraction of the values with one selection per dimension.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsejax.cached import cached_property
from sparsejax.core.array import Array
from sparsejax.core.methods import ArrayBase
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import SymbolicDim, length, sliced, span
from sparsejax.core.trace import Tracer, current
from sparsejax.errors import NonConcreteBooleanIndexError
from sparsejax.formats import Format, convert, passes, selection
from sparsejax.lax import indexing
from sparsejax.lax.extents import is_known
from sparsejax.lax.structural import (
    broadcast_to,
    convert_format,
    expand_dims,
    integer,
    normal_axis,
    reshape,
    signed_integers,
    transpose,
)
from sparsejax.lax.typing_rules import broadcast_shapes
from sparsejax.numpy import at_once

_KINDS = "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"


@dataclass
class Index:
    """A key for an array of `shape`: a range per dimension, the dimensions indexed by one integer, the arrays of integers of others.

    `advanced` is the shape that the integer arrays broadcast to, `first` the number of axes of the result before it, and `new` the
    places in the result of axes of extent one. `crossed` holds the arrays as vectors, in the order of their axes,
    where several arrays vary along axes of their own (`numpy.ix_`).
    """

    shape: tuple[int, ...]
    ranges: list[range] = field(default_factory=list)
    single: list[int] = field(default_factory=list)
    given: dict[int, Any] = field(default_factory=dict)
    advanced: tuple[int, ...] = ()
    first: int = 0
    new: list[int] = field(default_factory=list)
    crossed: dict[int, Any] = field(default_factory=dict)

    @cached_property
    def arrays(self) -> dict[int, Any]:
        """The arrays of integers, broadcast, as vectors of one length."""
        return {d: _vector(a, self.advanced) for d, a in self.given.items()}

    @property
    def sliced(self) -> list[int]:
        """The dimensions that remain."""
        return [d for d in range(len(self.shape)) if d not in self.single and d not in self.given]

    @property
    def plain(self) -> tuple[int, ...]:
        """The shape of the result without new axes."""
        rest = [length(self.ranges[d]) for d in self.sliced]
        return (*rest[: self.first], *self.advanced, *rest[self.first :])

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the result."""
        made = list(self.plain)
        for place in self.new:
            made.insert(place, 1)
        return tuple(made)


def parse(key: Any, shape: tuple[int, ...]) -> Index:
    """The index that `key` is for an array of `shape`; IndexError as NumPy raises it."""
    return _usual(key if type(key) is tuple else (key,), shape) or _parsed(key, shape)


def _usual(parts: tuple[Any, ...], shape: tuple[int, ...]) -> Index | None:
    """The same at once, of a key that `at_once.simple` reads; None of others."""
    ends = (n for part in parts if type(part) is slice for n in (part.start, part.stop, part.step))
    if any(isinstance(n, SymbolicDim) for n in (*shape, *ends)):
        return None
    found = at_once.simple(parts, shape)
    if found is None:
        return None
    keys, axes, vector = found
    made = Index(shape, [k if type(k) is range else range(n) for k, n in zip(keys, shape, strict=True)], list(axes))
    if vector >= 0:
        made.given, made.advanced = {vector: keys[vector]}, keys[vector].shape
        places = sorted((*axes, vector))
        made.first = places[0] if places[-1] - places[0] < len(places) else 0
    return made


def _parsed(key: Any, shape: tuple[int, ...]) -> Index:
    """`parse` of any key."""
    parts = _expanded(key if isinstance(key, tuple) else (key,), shape)
    made = Index(shape)
    advanced: list[tuple[int, int]] = []  # (place in the key, axes of the result before it) of integers and arrays
    has_arrays = any(_is_array(p) for p in parts)
    axes = 0
    for place, part in enumerate(parts):
        if part is None:
            made.new.append(axes)
            axes += 1
            continue
        d = len(made.ranges)
        if isinstance(part, slice):
            made.ranges.append(sliced(part, shape[d]))
            axes += 1
            continue
        if has_arrays:
            advanced.append((place, axes))
        if _is_array(part):
            made.ranges.append(span(0, shape[d]))
            made.given[d] = part
        else:
            made.ranges.append(_one(part, shape[d], d))
            made.single.append(d)
    if made.given:
        made.crossed = _crossed(made.given)
        made.advanced = _broadcast(made.given)
        places = [p for p, _ in advanced]
        together = places == list(range(places[0], places[0] + len(places)))
        before = advanced[0][1] if together else 0
        made.first = before - sum(n < before for n in made.new)
        made.new = [n if n < before else n + len(made.advanced) for n in made.new]
    return made


def _expanded(parts: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """The key with masks as integer arrays, lists and tuples as arrays, and one slice per dimension that it does not name."""
    found: list[Any] = []
    for k, part in enumerate(parts):
        if isinstance(part, list | tuple | np.ndarray | ArrayBase):
            made = part if isinstance(part, ArrayBase) else np.asarray(part)
            if isinstance(part, list | tuple) and not part:
                made = np.asarray(part, np.int64)
            if made.dtype == np.bool_:
                start = _taken(found)
                if any(p is Ellipsis for p in found):
                    start = max(start, len(shape) - _taken(parts[k:]))
                found += _true(made, shape, start)
            elif made.dtype.kind in "iu":
                found.append(made)
            else:
                raise IndexError(_KINDS)
        else:
            found.append(part)
    named = _taken(found)
    if named > len(shape):
        raise IndexError(f"too many indices for array: array is {len(shape)}-dimensional, but {named} were indexed")
    dots = [k for k, p in enumerate(found) if p is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = dots[0] if dots else len(found)
    return [*found[:at], *[slice(None)] * (len(shape) - named), *found[at + 1 :]]


def _is_bool(part: Any) -> bool:
    """Whether a part of a key is one bool, which takes no dimension."""
    if isinstance(part, np.ndarray | ArrayBase):
        return part.dtype == np.bool_ and part.ndim == 0
    return isinstance(part, bool | np.bool_)


def without_bools(x: Any, key: Any) -> tuple[Any, Any, list[int]]:
    """`x` with an axis of extent one for each single bool of `key`, of which that takes all or nothing; the key; these axes."""
    parts = list(key) if isinstance(key, tuple) else [key]
    if not any(map(_is_bool, parts)):
        return x, key, []
    taken = [0 if p is None or p is Ellipsis or _is_bool(p) else _dimensions(p) for p in parts]
    rest, d, axes = max(0, x.ndim - sum(taken)), 0, []
    for k, part in enumerate(parts):
        if _is_bool(part):
            if isinstance(part, Tracer):
                _true(part, (), None)
            axes.append(d)
            x = expand_dims(x, d)
            parts[k] = np.zeros(int(bool(part)), np.int64)
            d += 1
        d += rest if part is Ellipsis else taken[k]
    return x, tuple(parts), axes


def _taken(parts: Sequence[Any]) -> int:
    """How many dimensions these parts of a key take, but for what an ellipsis stands for."""
    return sum(_dimensions(p) for p in parts if p is not None and p is not Ellipsis)


def _dimensions(part: Any) -> int:
    """How many dimensions a part of a key takes: masks as many as they have."""
    found = np.asarray(part) if isinstance(part, list | tuple) else part
    return found.ndim if isinstance(found, np.ndarray | ArrayBase) and found.dtype == np.bool_ else 1


def _true(mask: Any, shape: tuple[int, ...], start: int | None) -> list[Any]:
    """The coordinates at which a mask holds, in row-major order."""
    if isinstance(mask, Tracer):
        raise NonConcreteBooleanIndexError(
            f"a traced mask of shape {mask.shape} selects a number of entries that is only known at run time: use "
            "sparsejax.numpy.where(mask, x, 0) for a result of the shape of x, or index outside jit"
        )
    if start is not None:
        for k, n in enumerate(mask.shape):
            if start + k < len(shape) and n != shape[start + k]:
                raise IndexError(
                    f"boolean index did not match indexed array along axis {start + k}; size of axis is {shape[start + k]} but "
                    f"size of corresponding boolean axis is {n}"
                )
    if isinstance(mask, Array) and not mask.format.is_dense and not mask.fill_value:
        ordered = convert.convert(mask.storage, Format.parse("coo", mask.ndim))
        coords, vals = convert.to_coords(ordered)
        return list(coords[:, vals])
    return list(np.nonzero(mask.todense() if isinstance(mask, Array) else mask))


def _is_array(part: Any) -> bool:
    return isinstance(part, np.ndarray | ArrayBase)


def _one(part: Any, extent: int, d: int) -> Any:
    try:
        k = part if isinstance(part, SymbolicDim) else operator.index(part)
    except TypeError:
        raise IndexError(_KINDS) from None
    if not -extent <= k < extent:
        raise IndexError(f"index {k} is out of bounds for axis {d} with size {extent}")
    k = k + extent if k < 0 else k
    return span(k, k + 1)


def _crossed(arrays: dict[int, Any]) -> dict[int, Any]:
    """The index arrays as vectors, in the order of the axes along which they vary, if several do and none shares or parts another's; those of
    `numpy.ix_` also where some have one number."""
    ndim = max(a.ndim for a in arrays.values())
    if ndim == len(arrays) > 1 and all(
        a.ndim == ndim and all(n == 1 for axis, n in enumerate(a.shape) if axis != k)
        for k, a in enumerate(arrays.values())
    ):
        return {d: _vector(a, a.shape) for d, a in arrays.items()}
    axes = {d: [ndim - a.ndim + k for k, n in enumerate(a.shape) if n != 1] for d, a in arrays.items()}
    order = sorted(arrays, key=axes.__getitem__)
    varying = [k for d in order for k in axes[d]]
    if sum(bool(own) for own in axes.values()) < 2 or varying != sorted(set(varying)):
        return {}
    return {d: _vector(arrays[d], arrays[d].shape) for d in order}


def _vector(array: Any, shape: tuple[int, ...]) -> Any:
    """An index array, broadcast, as a vector."""
    if isinstance(array, np.ndarray) and array.ndim == 1 and array.shape == shape:
        return array.astype(np.int64)
    if isinstance(array, np.ndarray) and is_known(shape):
        return np.broadcast_to(array, shape).reshape(-1).astype(np.int64)
    return reshape(broadcast_to(convert_format(asarray(array), "dense"), shape), (math.prod(shape),))


def _broadcast(arrays: dict[int, Any]) -> tuple[int, ...]:
    """The shape that the index arrays have together."""
    shapes = [a.shape for a in arrays.values()]
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        listed = " ".join(map(str, shapes))
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {listed}"
        ) from None


def getitem(x: Any, key: Any) -> Any:
    """`x[key]` by NumPy's rules: integers, slices, None, ..., arrays of integers, and (outside `jit`) of bool, and single bools.

    Always a new array. A sparse `x` gives a sparse result: in its format where dimensions are sliced, without the levels of those
    that an integer removes (csr gives a sparse row for `x[i]`) or that one index vector, or several of `numpy.ix_`, select from; in coo
    where index arrays vary together or have several dimensions, and where new axes stand. O(entries found) for slices and for index
    arrays, and a search for every place of those that name single entries; buffers are shared where most of them stays. Under `jit`,
    index arrays are indirect einsums (`sparsejax.insum`): one for those that vary together, one each for others.

    >>> import sparsejax as sj
    >>> A = sj.array([[0, 2, 0], [3, 0, 4]], format="csr")
    >>> A[1].todense(), A[:, [2, 0]].todense()
    (array([3, 0, 4]), array([[0, 0],
           [4, 3]]))
    """
    if type(x) is Array and not x.format.is_dense and current() is None:
        shape = x._aval.shape
        if type(key) is list:
            key = _listed(key)
        elif type(key) is Array and (chosen := at_once.masked(x, key)) is not None:
            return chosen
        columns = at_once.vectors(key, shape)
        if columns is not None:
            made = at_once.places(x, columns)
            if made is not None:
                return made
        found = at_once.simple(key, shape)
        if found is not None:
            keys, axes, vector = found
            if vector < 0 or (not axes and (len(shape) > 1 or len(keys[0]) < passes.MANY)):
                return at_once.part(x, keys, axes)
        else:
            crossed = at_once.grid(key, shape)
            if crossed is not None:
                return at_once.part(x, crossed, ())
    elif type(x) is Array and current() is None:
        for take in (at_once.strided, at_once.picked):
            part = take(x, key)
            if part is not None:
                return part
        wide = at_once.widened(key, x._aval.shape)
        if wide is not None:
            view = at_once.reshaped(x, wide)
            return reshape(x, wide) if view is None else view
    x, key, _ = without_bools(asarray(x), key)
    index = parse(key, x.shape)
    if type(x) is Array and not x.format.is_dense and current() is None:
        found = _at_once(x, index)
        if found is not None:
            return found if found.shape == index.result else reshape(found, index.result)
    made = indexing.window(x, index.ranges, index.single)
    left = [d for d in range(x.ndim) if d not in index.single]
    if index.crossed and not made.format.is_dense:
        for d, vector in index.crossed.items():
            made = indexing.gather(made, {left.index(d): vector}, left)
        names = [*index.sliced[: index.first], *index.crossed, *index.sliced[index.first :]]
        made = transpose(made, [left.index(d) for d in names])
    elif index.given:
        made = indexing.gather(made, {left.index(d): a for d, a in index.given.items()}, left, index.first)
    return made if made.shape == index.result else reshape(made, index.result)


def _listed(key: list[Any]) -> Any:
    """A list of integers as a vector; any other key as it is."""
    if not key or any(type(k) is not int for k in key):
        return key
    return np.array(key)


def _at_once(x: Any, index: Index) -> Any:
    """What an index takes of a sparse array that is there, but for new axes; None where several vectors that vary together leave dimensions."""
    vectors = {d: concrete(a) for d, a in (index.crossed or index.arrays).items()}
    if any(v is None for v in vectors.values()):
        return None
    vectors = {d: selection.numbers(v, x.shape[d], d) for d, v in vectors.items()}
    keys: list[Any] = [None if r == range(n) else r for r, n in zip(index.ranges, x.shape, strict=True)]
    if index.given and not index.crossed and len(index.given) > 1:
        if index.sliced:
            return None
        count = math.prod(index.advanced)
        return at_once.places(
            x, [vectors[d] if d in vectors else np.full(count, r.start) for d, r in enumerate(index.ranges)]
        )
    for d, vector in vectors.items():
        keys[d] = vector
    for d in index.single:
        keys[d] = index.ranges[d]
    made = at_once.part(x, keys, tuple(index.single))
    if not index.given:
        return made
    left = [d for d in range(x.ndim) if d not in index.single]
    names = [*index.sliced[: index.first], *(index.crossed or index.given), *index.sliced[index.first :]]
    return transpose(made, [left.index(d) for d in names])


def concrete(array: Any) -> Any:
    """An index array as one of NumPy's; None where it is traced."""
    return None if isinstance(array, Tracer) else array.todense() if isinstance(array, Array) else array


def take(x: Any, indices: Any, axis: int | None = None) -> Array:
    """Entries of `x` at integer indices along `axis`, or of `x` flattened; `numpy.take`."""
    x = asarray(x)
    if axis is None:
        return getitem(reshape(x, (-1,)), _indices(indices))
    return getitem(x, (*[slice(None)] * normal_axis(axis, x.ndim), _indices(indices)))


def _indices(indices: Any) -> Any:
    if isinstance(indices, ArrayBase):
        return indices
    found = np.asarray(indices)
    return found if found.size or isinstance(indices, np.ndarray) else found.astype(np.int64)


def stack(arrays: Sequence[Any], axis: int = 0) -> Array:
    """Arrays of one shape along a new axis. Sparse arrays give coo; see `concatenate`."""
    parts = [asarray(x) for x in arrays]
    if not parts:
        raise ValueError("need at least one array to stack")
    if len({x.shape for x in parts}) > 1:
        raise ValueError(f"all input arrays must have the same shape, not {', '.join(str(x.shape) for x in parts)}")
    place = normal_axis(axis, parts[0].ndim + 1)
    shape = list(parts[0].shape)
    shape.insert(place, 1)
    return indexing.concatenate([reshape(x, shape) for x in parts], place)


def vstack(arrays: Sequence[Any]) -> Array:
    """Arrays below each other; vectors are rows."""
    parts = [asarray(x) for x in arrays]
    return indexing.concatenate([reshape(x, (1, -1)) if x.ndim < 2 else x for x in parts], 0)


def hstack(arrays: Sequence[Any]) -> Array:
    """Arrays beside each other."""
    parts = [asarray(x) for x in arrays]
    parts = [reshape(x, (1,)) if not x.ndim else x for x in parts]
    return indexing.concatenate(parts, min(1, parts[0].ndim - 1) if parts else 0)


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """`numpy.split`: equal sections, or at the given places."""
    return _sections(x, indices_or_sections, axis, equal=True)


def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """`numpy.array_split`: sections of nearly one length, or at the given places.

    >>> [len(part) for part in array_split(np.arange(5), 2)]
    [3, 2]
    """
    return _sections(x, indices_or_sections, axis, equal=False)


def hsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    """`numpy.hsplit`: `split` along the second axis (the first of a vector)."""
    return split(x, indices_or_sections, 1 if asarray(x).ndim > 1 else 0)


def vsplit(x: Any, indices_or_sections: Any) -> list[Any]:
    """`numpy.vsplit`: `split` along the first axis."""
    if asarray(x).ndim < 2:
        raise ValueError(
            f"vsplit takes arrays of at least two dimensions, not of shape {np.shape(x)}; split cuts vectors"
        )
    return split(x, indices_or_sections, 0)


SECTIONS = 1 << 24
"""Arrays in a list, which alone would take 10 GB and more."""


def _sections(x: Any, indices_or_sections: Any, axis: int, equal: bool) -> list[Any]:
    """The parts of `x` between places along an axis, or of so many equal, or nearly equal, lengths."""
    x = asarray(x)
    place = normal_axis(axis, x.ndim)
    n = x.shape[place]
    if np.iterable(indices_or_sections):
        cuts = signed_integers(indices_or_sections, "indices_or_sections")
    else:
        count = integer(indices_or_sections, "indices_or_sections")
        if count < 1:
            raise ValueError(f"indices_or_sections={count} must be at least one section")
        if count > SECTIONS:
            raise ValueError(
                f"indices_or_sections={count} asks for more arrays than there is memory for: a list holds at most {SECTIONS} of them"
            )
        if equal and n % count > 0:
            raise ValueError(
                f"array split does not result in an equal division: indices_or_sections={count} does not divide extent {n} of axis "
                f"{place}; give the places to cut at, or use array_split"
            )
        least, more = n // count, 0 if equal else n % count
        if not is_known((more,)):  # a guard for every remainder
            more = next(k for k in range(count) if more <= k)
        cuts = tuple(k * least + (k if more >= k else more) for k in range(1, count))
    ends = zip([None, *cuts], [*cuts, None], strict=True)
    return [getitem(x, (*[slice(None)] * place, slice(a, b))) for a, b in ends]


def flip(x: Any, axis: Any = None) -> Array:
    """`x` with the order along some axes (all by default) reversed."""
    x = asarray(x)
    listed = range(x.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    turned = {normal_axis(a, x.ndim) for a in listed}
    return getitem(x, tuple(slice(None, None, -1) if d in turned else slice(None) for d in range(x.ndim)))
