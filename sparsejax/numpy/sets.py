"""Sets: the different values of arrays. Shapes depend on values, so these run outside `jit`, or with `size=` where they take it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer
from sparsejax.formats.parts import lines
from sparsejax.lax import sorting
from sparsejax.lax.library import searching as rules
from sparsejax.lax.library.searching import different
from sparsejax.lax.structural import convert_format, integer
from sparsejax.numpy.making import own
from sparsejax.numpy.searching import needs_size


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Any
    inverse_indices: Any


def unique(
    x: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """`numpy.unique`: the different values of the array in increasing order; where each is first (`return_index`, in the array
    flattened), which of them each entry is (`return_inverse`, of the shape of the array), how often each occurs (`return_counts`).

    With `size`, the first ones, and `fill_value` (the least value) where there are fewer; without, ConcretizationTypeError inside `jit`.
    O(n log n) for n stored entries; places need the whole array, O(size log size).

    >>> import sparsejax as sj
    >>> unique(sj.array(np.array([[0, 2], [2, 0]]), format="csr"), return_counts=True)
    (Array([0, 2], dtype=int64), Array([2, 2], dtype=int64))
    """
    if axis is not None:
        raise ValueError("unique of rows (axis=) is not provided; call numpy.unique(np.asarray(x), axis=...)")
    x = asarray(x)
    if size is not None and fill_value is None and not (return_index or return_inverse):
        values, counts = sorting.unique(x, integer(size, "size"))
        found = [values, None, None, counts]
    elif size is not None:
        found = rules.different_sized(x, integer(size, "size"), fill_value)
    elif isinstance(x, Tracer):
        needs_size("unique", x)
    else:
        found = list(_found(x, return_index or return_inverse, equal_nan))
    chosen = [f for f, wanted in zip(found[1:], (return_index, return_inverse, return_counts), strict=True) if wanted]
    return (found[0], *chosen) if chosen else found[0]


def _found(x: Any, places: bool, equal_nan: bool) -> tuple[Any, ...]:
    """(values, first places, inverse, counts); without `places` only values and counts, in O(stored entries)."""
    if places or x.format.is_dense:
        return tuple(own(np.array(f)) for f in different(convert_format(x, "dense").todense(), equal_nan))
    values, counts = lines.unique(x.storage)
    if not equal_nan and values.dtype.kind in "fc":
        repeats = np.where(np.isnan(values), counts, 1)
        values, counts = np.repeat(values, repeats), np.repeat(np.where(np.isnan(values), 1, counts), repeats)
    return own(values), None, None, own(counts)


def _concrete(name: str, x: Any) -> Any:
    x = asarray(x)
    if isinstance(x, Tracer):
        needs_size(name, x)
    return x


def unique_all(x: Any, /) -> UniqueAll:
    """The standard's `unique` with places, inverse and counts; every NaN is a value of its own.

    >>> unique_all(np.array([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int64)
    """
    return UniqueAll(*_found(_concrete("unique_all", x), True, False))


def unique_counts(x: Any, /) -> UniqueCounts:
    """The standard's `unique` with counts; every NaN is a value of its own. O(n log n) for n stored entries."""
    found = _found(_concrete("unique_counts", x), False, False)
    return UniqueCounts(found[0], found[3])


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The standard's `unique` with the place of every entry among the values; every NaN is a value of its own."""
    found = _found(_concrete("unique_inverse", x), True, False)
    return UniqueInverse(found[0], found[2])


def unique_values(x: Any, /) -> Array:
    """The standard's `unique`; every NaN is a value of its own. O(n log n) for n stored entries."""
    return _found(_concrete("unique_values", x), False, False)[0]


def isin(x: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Array:
    """`numpy.isin`: whether every entry of `x` is among `test_elements`. Sparse, over what that is of the fill, where `x` is sparse.

    >>> isin(np.array([0, 1, 2]), [2, 0])
    Array([ True, False,  True], dtype=bool)
    """
    return rules.isin(x, test_elements, invert)


def union1d(x: Any, y: Any) -> Array:
    """`numpy.union1d`: the different values of both arrays."""
    return own(np.union1d(*(_values(name, v) for name, v in (("union1d", x), ("union1d", y)))))


def intersect1d(x: Any, y: Any) -> Array:
    """`numpy.intersect1d`: the values that are in both arrays."""
    return own(np.intersect1d(_values("intersect1d", x), _values("intersect1d", y)))


def setdiff1d(x: Any, y: Any) -> Array:
    """`numpy.setdiff1d`: the values of `x` that are not in `y`."""
    return own(np.setdiff1d(_values("setdiff1d", x), _values("setdiff1d", y)))


def setxor1d(x: Any, y: Any) -> Array:
    """`numpy.setxor1d`: the values that are in one of both arrays."""
    return own(np.setxor1d(_values("setxor1d", x), _values("setxor1d", y)))


def _values(name: str, x: Any) -> Any:
    return np.asarray(_found(_concrete(name, x), False, True)[0])
