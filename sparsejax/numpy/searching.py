"""NumPy's functions that sort and search. Entries that are not stored count with the fill.

What has a shape that depends on values (`nonzero`, `argwhere`, `unique`) runs outside `jit`, or with `size=`, as in JAX.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn, overload

import numpy as np

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import span
from sparsejax.core.trace import Tracer
from sparsejax.errors import ConcretizationTypeError
from sparsejax.formats import Format
from sparsejax.formats.parts import lines
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import operators
from sparsejax.lax import sorting
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.elementwise import where as _where
from sparsejax.lax.extents import along, coordinates, is_known, is_long
from sparsejax.lax.library.searching import searchsorted as _searchsorted
from sparsejax.lax.linear import sample
from sparsejax.lax.reduce import MOST, OPERATORS, mean, reduce
from sparsejax.lax.sorting import argsort as _argsort
from sparsejax.lax.structural import convert_format, integer, normal_axes, normal_axis, refill, reshape
from sparsejax.numpy.indexing import flip, getitem, stack

_DENSE = Format.parse("dense", 1)

# ----------------------------------------------------------------------------------------------------------- extremes


@again(1, whole=True)
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """`numpy.argmax`: where the maximum is first, dense int64; a NaN is the maximum. O(stored entries and size of the result).

    >>> import sparsejax as sj
    >>> argmax(sj.array(np.array([[-1, 0, 3], [-2, 0, -1]]), format="csr"), axis=1)
    Array([2, 1], dtype=int64)
    """
    return _extreme("max", x, axis, keepdims)


@again(1, whole=True)
def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Array:
    """`numpy.argmin`: where the minimum is first, dense int64; a NaN is the minimum. O(stored entries and size of the result).

    >>> import sparsejax as sj
    >>> argmin(sj.array(np.array([[-1, 0, 3], [2, 0, 1]]), format="csr"), axis=1)
    Array([0, 1], dtype=int64)
    """
    return _extreme("min", x, axis, keepdims)


def _extreme(kind: str, x: Any, axis: int | None, keepdims: bool) -> Any:
    x = asarray(x)
    flat = axis is None
    if flat and (x.format.is_dense or x.ndim < 2):
        x, shape = reshape(x, (x.size,)), x.shape
    else:
        shape = x.shape
    axes = tuple(range(x.ndim)) if flat else (normal_axis(axis, x.ndim),)
    for place in axes:
        if not x.shape[place]:
            raise ValueError(
                f"attempt to get arg{kind} of an empty sequence: axis {place} of shape {x.shape} has extent 0"
            )
    if flat and all(type(n) is int for n in shape) and math.prod(shape) > MOST:
        raise ValueError(
            f"arg{kind} of an array of shape {shape} counts more places than int64 has numbers; give the axis, "
            f"or look at nonzero(x == x.{kind}())"
        )
    made = sorting.first_extreme(x, kind) if len(axes) > 1 else _first(kind, x, axes[0])
    if keepdims:
        return reshape(made, [1 if flat or d == axes[0] else n for d, n in enumerate(shape)])
    return made


def _first(kind: str, x: Any, axis: int) -> Any:
    """The first coordinate of every line that holds its maximum, or minimum: the smaller of the first one stored and the first one that is
    not, where that holds it too.

    Of the stored ones the last that is found counting down is the first, and what is not stored counts as zero: all is computed where it is reduced.
    """
    extent = x.shape[axis]
    is_float = x.dtype.kind in "fc"
    line = [1 if d == axis else n for d, n in enumerate(x.shape)]
    if x.format.is_dense:
        most = reshape(convert_format(reduce(kind, x, axis), "dense"), line)
        numbers = asarray(along(extent, axis, x.ndim))
        return reduce("min", _where(_holds(x, most, is_float), numbers, extent), axis)
    absent, fill = sorting.first_absent(x, axis), x.fill_value.item()
    name, stored = OPERATORS[kind], refill(x, 0)
    most = convert_format(reduce(kind, refill(x, operators.get(name).identity(x.dtype)), axis), "dense")
    lacks = elementwise("less", absent, extent)
    undefined = is_float and np.isnan(x.fill_value)  # of lines that lack something, what is not a number is the extreme
    bar = _where(lacks, fill, most) if undefined else most
    found = _where(_holds(stored, sample(reshape(bar, line), stored), is_float), _left(x, stored, axis), 0)
    first = elementwise("subtract", extent, convert_element_type(reduce("max", found, axis), np.int64))
    first = convert_format(first, "dense")
    if undefined:
        return elementwise("minimum", first, absent)
    least = elementwise("equal", elementwise(name, most, fill), fill)  # so that what is not stored is the extreme, too
    beaten = elementwise("logical_and", elementwise("logical_and", lacks, least), elementwise("not_equal", most, fill))
    return elementwise("minimum", _where(beaten, extent, first), _where(least, absent, extent))


def _holds(x: Any, most: Any, is_float: bool) -> Any:
    """Where `x` is its line's extreme."""
    holds = elementwise("equal", x, most)
    return elementwise("logical_or", holds, elementwise("isnan", x)) if is_float else holds


def _left(x: Any, stored: Any, axis: int) -> Any:
    """How many places there are from every stored one to the end of its line."""
    extent = x.shape[axis]
    if is_long(extent):
        whole = sample(asarray(np.int64(extent)), stored)
        return convert_element_type(elementwise("subtract", whole, sorting.places(x, axis)), np.uint64)
    left = coordinates(span(extent, 0, -1), np.uint32 if extent < 2**32 else np.uint64)
    line = left.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    return convert_element_type(sample(asarray(line), stored), np.uint64)


# --------------------------------------------------------------------------------------------- places that hold values


def needs_size(name: str, x: Tracer) -> NoReturn:
    """Raise for a function whose result has a shape that depends on values."""
    raise ConcretizationTypeError(
        f"{name} of a traced value of type {x.aval} has a shape that depends on values, which are only known at run time: pass "
        f"size= for a result of that length (as in JAX), or call {name} outside jit"
    )


def nonzero(x: Any, *, size: int | None = None, fill_value: int | None = None) -> tuple[Array, ...]:
    """`numpy.nonzero`: the coordinates where values are not zero, in row-major order, one vector of int64 for every dimension.

    With `size`, the first ones, and `fill_value` (0) where there are fewer; without, ConcretizationTypeError inside `jit`.
    O(stored entries) where the fill is 0.

    >>> import sparsejax as sj
    >>> nonzero(sj.array(np.array([[0, 2], [3, 0]]), format="csr"))
    (Array([0, 1], dtype=int64), Array([1, 0], dtype=int64))
    """
    x = asarray(x)
    if not x.ndim:
        raise ValueError("nonzero of an array of no dimensions is ambiguous; use x != 0")
    if size is not None:
        fill = 0 if fill_value is None else integer(fill_value, "fill_value")
        found = sorting.nonzero(x, integer(size, "size"), fill)
        return tuple(getitem(found, d) for d in range(x.ndim))
    if isinstance(x, Tracer):
        needs_size("nonzero", x)
    found = lines.nonzero(x._storage)
    found.flags.writeable = False
    return tuple(Array(Storage.of_frozen(_DENSE, column.shape, np.int64(0), ((),), column)) for column in found)


def flatnonzero(x: Any, *, size: int | None = None, fill_value: int | None = None) -> Array:
    """`numpy.flatnonzero`: `nonzero` of the array flattened.

    >>> flatnonzero(np.array([[0, 2], [3, 0]]))
    Array([1, 2], dtype=int64)
    """
    x = asarray(x)
    return nonzero(reshape(x, (x.size,)), size=size, fill_value=fill_value)[0]


def argwhere(x: Any, *, size: int | None = None, fill_value: int | None = None) -> Array:
    """`numpy.argwhere`: the coordinates where values are not zero, a row each; see `nonzero`.

    >>> argwhere(np.array([[0, 2], [3, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int64)
    """
    return stack(nonzero(x, size=size, fill_value=fill_value), 1)


@overload
def where(condition: Any) -> tuple[Array, ...]: ...


@overload
def where(condition: Any, x: Any, y: Any) -> Array: ...


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """`x` where `condition` holds, else `y`, all three broadcast; `nonzero(condition)` where both are left out.

    >>> where(np.array([True, False]), 1.0, np.zeros(2))
    Array([1., 0.], dtype=float64)
    """
    if x is None and y is None:
        return nonzero(condition)
    if x is None or y is None:
        raise ValueError("where takes a condition and both x and y, or a condition alone")
    return _chosen(condition, x, y)


_chosen = again(3)(_where)


def searchsorted(x1: Any, x2: Any, /, side: str = "left", sorter: Any = None) -> Array:
    """`numpy.searchsorted`: where the entries of `x2` belong in the sorted vector `x1` (sorted by the order `sorter`); int64.

    Of a sparse `x2`, and an `x1` that is known, sparse over the place of its fill; else dense.

    >>> searchsorted(np.array([1.0, 2.0, 4.0]), np.array([2.0, 3.0]))
    Array([1, 2], dtype=int64)
    """
    x1 = asarray(x1)
    return _searchsorted(x1 if sorter is None else getitem(x1, asarray(sorter)), x2, side)


# --------------------------------------------------------------------------------------------------------------- order


def sort(x: Any, axis: int | None = -1, kind: Any = None, *, descending: bool = False, stable: bool = True) -> Array:
    """`numpy.sort`: every line along `axis` (or the array flattened) in increasing order, NaN last, or in decreasing order. Format and
    fill stay. Always stable, whatever `kind` and `stable` say.

    O(n log n) for n stored entries.

    >>> import sparsejax as sj
    >>> sort(sj.array(np.array([3, 0, -1, 0]), format="coo")).todense()
    array([-1,  0,  0,  3])
    """
    x = asarray(x)
    line, place = (reshape(x, (x.size,)), 0) if axis is None else (x, normal_axis(axis, x.ndim))
    made = sorting.sort(line, place)
    return flip(made, place) if descending else made


def argsort(x: Any, axis: int | None = -1, kind: Any = None, *, descending: bool = False, stable: bool = True) -> Array:
    """`numpy.argsort`, stable: dense int64.

    >>> argsort(np.array([3.0, 1.0, 2.0]))
    Array([1, 2, 0], dtype=int64)
    """
    x = asarray(x)
    line, place = (reshape(x, (x.size,)), 0) if axis is None else (x, normal_axis(axis, x.ndim))
    if not descending:
        return _argsort(line, place)
    backwards = flip(_argsort(flip(line, place), place), place)  # equal entries stay in their order
    return elementwise("subtract", max(0, line.shape[place] - 1), backwards)


def median(x: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """`numpy.median`: the middle entry of the sorted ones, or the mean of both; dense; NaN where there is a NaN, or no entry.

    >>> import sparsejax as sj
    >>> median(sj.array(np.array([[0, 2, 4], [0, 0, 2]]), format="csr"), axis=1)
    Array([2., 0.], dtype=float64)
    """
    x = asarray(x)
    x = x if x.dtype.kind in "fc" else x.astype(float)
    axes = tuple(range(x.ndim)) if axis is None else tuple(sorted(normal_axes(axis, x.ndim)))
    if any(x.shape[d] == 0 for d in axes):
        return convert_format(mean(x, axes, keepdims=keepdims), "dense")  # of nothing: not a number
    kept = [d for d in range(x.ndim) if d not in axes]
    long = math.prod(x.shape[d] for d in axes)
    line = reshape(x.transpose([*kept, *axes]), (*(x.shape[d] for d in kept), long)) if len(axes) != 1 else x
    place = axes[0] if len(axes) == 1 else len(kept)
    ordered, count = sorting.sort(line, place), line.shape[place]

    def at(k: int) -> Any:
        return convert_format(getitem(ordered, (*[slice(None)] * place, k)), "dense")

    low, high = at((count - 1) // 2), at(count // 2)
    odd = is_known((count,)) and count % 2
    middle = low if odd else elementwise("multiply", elementwise("add", low, high), 0.5)
    middle = _where(elementwise("isnan", at(count - 1)), np.nan, middle)
    return reshape(middle, [1 if d in axes else n for d, n in enumerate(x.shape)]) if keepdims else middle
