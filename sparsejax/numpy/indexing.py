"""Indexing by NumPy's rules: `x[key]`, `x.at[key]`, and NumPy's functions that put arrays together.

A key is parsed once (`Index`); reading goes through a window (integers, slices) and a gather (integer arrays), writing through the
transpose of both: a contraction of the values with one selection per dimension.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.methods import ArrayBase
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import SymbolicDim, length, sliced, span
from sparsejax.core.trace import Tracer, current
from sparsejax.errors import NonConcreteBooleanIndexError, SparseEfficiencyWarning
from sparsejax.formats import Format, convert, passes, selection
from sparsejax.lax import indexing
from sparsejax.lax.elementwise import convert_element_type, elementwise, where
from sparsejax.lax.extents import coordinates, filled, is_known
from sparsejax.lax.indirect import rows
from sparsejax.lax.structural import broadcast_to, convert_format, expand_dims, normal_axis, reshape, squeeze, transpose
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


def _without_bools(x: Any, key: Any) -> tuple[Any, Any, list[int]]:
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
    """The index arrays as vectors, in the order of the axes along which they vary, if several do and none shares or parts another's."""
    ndim = max(a.ndim for a in arrays.values())
    axes = {d: [ndim - a.ndim + k for k, n in enumerate(a.shape) if n != 1] for d, a in arrays.items()}
    order = sorted(arrays, key=axes.__getitem__)
    varying = [k for d in order for k in axes[d]]
    if sum(bool(own) for own in axes.values()) < 2 or varying != sorted(set(varying)):
        return {}
    return {d: _vector(arrays[d], arrays[d].shape) for d in order}


def _vector(array: Any, shape: tuple[int, ...]) -> Any:
    """An index array, broadcast, as a vector."""
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
        columns = at_once.vectors(key, shape)
        if columns is not None:
            made = at_once.places(x, columns)
            if made is not None:
                return made
        found = at_once.simple(key, shape)
        if found is not None and (
            len(shape) > 1 or type(found[0][0]) is not np.ndarray or len(found[0][0]) < passes.MANY
        ):
            return at_once.part(x, *found)
    elif type(x) is Array and current() is None:
        wide = at_once.widened(key, x._aval.shape)
        if wide is not None:
            return reshape(x, wide)
    x, key, _ = _without_bools(asarray(x), key)
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
    vectors = {d: _concrete(a) for d, a in (index.crossed or index.arrays).items()}
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


def _concrete(array: Any) -> Any:
    """An index array as one of NumPy's; None where it is traced."""
    return None if isinstance(array, Tracer) else array.todense() if isinstance(array, Array) else array


def _numbers(values: Any, dtype: np.dtype[Any]) -> Any:
    """Python's numbers, and numbers and arrays of NumPy's with the dtype, as an array of it; None for others."""
    if isinstance(values, bool | int | float):
        _check_fits(values, dtype)
        return np.asarray(values).astype(dtype) if dtype.kind in "fc" or not isinstance(values, float) else None
    return np.asarray(values) if isinstance(values, np.generic | np.ndarray) and values.dtype == dtype else None


def _check_fits(value: Any, dtype: np.dtype[Any]) -> None:
    """OverflowError for a Python integer that `dtype` cannot hold."""
    if type(value) is int and dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise OverflowError(f"Python integer {value} out of bounds for {dtype}")


def _fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Whether an array of `shape` is repeated to `into` by NumPy's rules."""
    pairs = zip(reversed(shape), reversed(into), strict=False)
    return len(shape) <= len(into) and all(n in (1, m) for n, m in pairs)


FEW = 64
"""Entries that may be added though they equal the fill, before `set` warns."""


@dataclass(frozen=True)
class At:
    """`x.at`: functional updates of parts, `x.at[key].set(values)`; see `Ref`.

    >>> import sparsejax as sj
    >>> sj.array([1, 2, 3]).at[1].set(0)
    Array([1, 0, 3], dtype=int64)
    """

    x: Any

    def __getitem__(self, key: Any) -> Ref:
        x, key, added = _without_bools(self.x, key)
        return Ref(x, parse(key, x.shape), key, self.x.format, tuple(added))


@dataclass(frozen=True)
class Ref:
    """A part of `x`. Every method gives a new array of the shape, dtype, fill and format of `x`.

    Values broadcast to the shape of `x[key]` and are cast to the dtype of `x`; OverflowError for Python integers that do not fit.
    A sparse `x` gains the entries that are written, even where their values are zero.
    """

    x: Any
    index: Index
    key: Any
    format: Format
    added: tuple[int, ...] = ()
    """The axes of `x` that the array does not have (single bools in the key)."""

    def get(self) -> Any:
        """`x[key]`."""
        return getitem(self.x, self.key)

    def set(self, values: Any) -> Any:
        """`x` with `values` there; of values for one coordinate, the last."""
        found = self._set_at_once(values)
        if found is not None:
            self._warn_of_fills(values, found)
            return self._whole(found)
        made = self._values(values)
        if self.index.given and self.x.format.is_dense and made.format.is_dense:
            key = self._vectors(), self._chosen(), self.index.single
            return self._whole(rows.replaced(self.x, made, *key) if made.size else self.x)
        mask, spread = self._placed(made) if self.index.given else (self._mask(), self._spread(made))
        return self._whole(where(mask, spread, self.x))

    def _warn_of_fills(self, values: Any, made: Array) -> None:
        """Warn where as many entries as there were have been added that equal the fill."""
        added = made.nnz - self.x.nnz
        if added > max(self.x.nnz, FEW) and np.ndim(values) == 0 and np.asarray(values) == made.fill_value:
            warnings.warn(
                f"set stored {added} more entries that equal the fill {made.fill_value}, in an array of {self.x.nnz}; "
                "sparsejax.numpy.where(mask, fill, x) changes what is stored and adds nothing, and sparsejax.prune(x) drops such entries",
                SparseEfficiencyWarning,
                stacklevel=3,
            )

    def _set_at_once(self, values: Any) -> Any:
        """`set` on a sparse array that is there, outside `jit`; else None."""
        x, index = self.x, self.index
        if type(x) is not Array or x.format.is_dense or not x.ndim or current() is not None:
            return None
        vectors = {d: _concrete(a) for d, a in index.arrays.items()}
        if isinstance(values, Tracer) or any(v is None for v in vectors.values()):
            return None
        given = _numbers(values, x.dtype)
        if given is None:
            given = convert_element_type(asarray(values), x.dtype).todense()
        if given.shape != index.result:
            given = (
                np.broadcast_to(given, index.result)
                if _fits(given.shape, index.result)
                else broadcast_to(given, index.result)
            )
        vectors = {d: selection.numbers(v, x.shape[d], d) for d, v in vectors.items()}
        rest = [length(index.ranges[d]) for d in index.sliced]
        flat = [math.prod(index.advanced)] if index.given else []
        given = given.reshape([*rest[: index.first], *flat, *rest[index.first :]])
        return at_once.updated(x, index.ranges, vectors, index.first, index.single, given)

    def add(self, values: Any) -> Any:
        """`x` with `values` added there; all of those for one coordinate."""
        made = self._values(values)
        spread = self._accumulated("add", made) if self._has_rows(made) else self._spread(made)
        return self._whole(elementwise("add", self.x, spread))

    def min(self, values: Any) -> Any:
        """`x` with the minimum of entries and `values` there."""
        return self._extreme("minimum", values)

    def max(self, values: Any) -> Any:
        """`x` with the maximum of entries and `values` there."""
        return self._extreme("maximum", values)

    def _extreme(self, name: str, values: Any) -> Any:
        made = self._values(values)
        if self._has_rows(made):
            return self._whole(elementwise(name, self.x, self._accumulated(name, made)))
        made = self._spread(made, name)
        return self._whole(where(self._mask(), elementwise(name, self.x, made), self.x))

    def _whole(self, made: Any) -> Any:
        for axis in reversed(self.added):
            made = squeeze(made, axis)
        return convert_format(made, self.format)

    def _values(self, values: Any) -> Any:
        """`values` of the dtype of `x`, one axis for the index arrays in front."""
        index = self.index
        _check_fits(values, self.x.dtype)
        made = convert_element_type(asarray(values), self.x.dtype)
        made = reshape(broadcast_to(made, index.result), index.plain)
        if not index.given:
            return made
        count = len(index.advanced)
        between = range(index.first, index.first + count)
        order = [*between, *(k for k in range(made.ndim) if k not in between)]
        rest = [length(index.ranges[d]) for d in index.sliced]
        return reshape(transpose(made, order), (math.prod(index.advanced), *rest))

    def _has_rows(self, values: Any) -> bool:
        """Whether dense values go to whole rows of a dense array that integers name."""
        index = self.index
        whole = all(index.ranges[d] == range(index.shape[d]) for d in index.sliced)
        dense = self.x.format.is_dense and values.format.is_dense
        return bool(index.given) and not index.single and whole and dense

    def _accumulated(self, op: str, values: Any) -> Any:
        return rows.accumulated(op, values, self._vectors(), self.index.shape)

    def _chosen(self) -> dict[int, Any]:
        """The coordinates that keys of integers and slices choose of a dimension."""
        made = dict[int, Any]()
        index = self.index
        for d, n in enumerate(index.shape):
            whole = length(index.ranges[d]) == n and index.ranges[d].step > 0 and d not in index.single
            if d not in index.given and not whole:
                made[d] = asarray(coordinates(index.ranges[d]))
        return made

    def _vectors(self) -> dict[int, Any]:
        return {d: asarray(i) for d, i in self.index.arrays.items()}

    def _spread(self, values: Any, op: str = "add") -> Any:
        """`values` at the coordinates of the key, nothing elsewhere."""
        index = self.index
        form = None if self.x.format.is_dense else Format.parse("coo", len(index.shape))
        return rows.accumulated(
            op, values, self._vectors(), index.shape, chosen=self._chosen(), without=index.single, format=form
        )

    def _mask(self) -> Any:
        shape = [length(self.index.ranges[d]) for d in self.index.sliced]
        if self.index.given:
            shape.insert(0, math.prod(self.index.advanced))
        return self._spread(asarray(filled(shape, True, bool)))

    def _placed(self, values: Any) -> tuple[Any, Any]:
        """Where the key is, and the values there, of those for one place the last."""
        index = self.index
        places = asarray(coordinates(span(0, math.prod(index.advanced))))
        vectors = dict(enumerate(self._vectors().values()))
        last = indexing.scatter(places, vectors, [index.shape[d] for d in index.given], "maximum")
        rest = list(index.given), index.shape, self._chosen(), index.single
        mask, made = rows.placed(None, last, *rest), rows.placed(values, last, *rest)
        return (
            (convert_format(mask, "dense"), convert_format(made, "dense")) if self.x.format.is_dense else (mask, made)
        )


def take(x: Any, indices: Any, axis: int | None = None) -> Array:
    """Entries of `x` at integer indices along `axis`, or of `x` flattened; `numpy.take`."""
    x = asarray(x)
    if axis is None:
        return getitem(reshape(x, (-1,)), _indices(indices))
    return getitem(x, (*[slice(None)] * normal_axis(axis, x.ndim), _indices(indices)))


def _indices(indices: Any) -> Any:
    return indices if isinstance(indices, ArrayBase) else np.asarray(indices)


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
    x = asarray(x)
    place = normal_axis(axis, x.ndim)
    n = x.shape[place]
    if np.iterable(indices_or_sections):
        cuts = [operator.index(k) for k in indices_or_sections]
    else:
        count = operator.index(indices_or_sections)
        if n % count:
            raise ValueError(
                f"array split does not result in an equal division: indices_or_sections={count} does not divide extent {n} of axis "
                f"{place}; give the places to cut at"
            )
        cuts = [k * (n // count) for k in range(1, count)]
    ends = zip([None, *cuts], [*cuts, None], strict=True)
    return [getitem(x, (*[slice(None)] * place, slice(a, b))) for a, b in ends]


def flip(x: Any, axis: Any = None) -> Array:
    """`x` with the order along some axes (all by default) reversed."""
    x = asarray(x)
    listed = range(x.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    turned = {normal_axis(a, x.ndim) for a in listed}
    return getitem(x, tuple(slice(None, None, -1) if d in turned else slice(None) for d in range(x.ndim)))
