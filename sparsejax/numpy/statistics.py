"""NumPy's statistics by order, bins and pairs. Entries that are not stored count with the fill."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer, eagerly
from sparsejax.lax import sorting
from sparsejax.lax.contract import matmul
from sparsejax.lax.elementwise import convert_element_type, elementwise, where
from sparsejax.lax.extents import filled, is_known, number
from sparsejax.lax.indexing import scatter
from sparsejax.lax.library.searching import histogram_counts, look_up
from sparsejax.lax.library.searching import searchsorted as _searchsorted
from sparsejax.lax.library.spacing import spaced
from sparsejax.lax.reduce import mean, reduce
from sparsejax.lax.structural import convert_format, densely, integer, normal_axes, reshape
from sparsejax.numpy.arranging import take_along_axis
from sparsejax.numpy.indexing import getitem, take
from sparsejax.numpy.making import own, zeros
from sparsejax.numpy.manipulation import atleast_2d, concatenate_all
from sparsejax.numpy.nans import ordered_lines

METHODS = ("linear", "lower", "higher", "nearest", "midpoint")
ENTRIES = ("lower", "higher", "nearest")
"""Methods whose quantiles are entries: of integers, integers."""


def quantile(x: Any, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear") -> Array:
    """`numpy.quantile`: the values below which fractions `q` (in [0, 1]) of the entries along `axis` lie, one more leading dimension for
    each of `q`; dense; NaN where there is a NaN. O(n log n) for n stored entries.

    >>> import sparsejax as sj
    >>> quantile(sj.array([0, 0, 4, 2], format="coo"), [0.5, 1.0])
    Array([1., 4.], dtype=float64)

    Raises ValueError for fractions outside [0, 1] and methods other than "linear", "lower", "higher", "nearest" and "midpoint".
    """
    _check(q, method)
    x = _measured(x, method)
    axes = tuple(range(x.ndim)) if axis is None else tuple(sorted(normal_axes(axis, x.ndim)))
    kept = [d for d in range(x.ndim) if d not in axes]
    rest = tuple(x.shape[d] for d in kept)
    n = math.prod(x.shape[d] for d in axes)
    if not n:
        raise ValueError(f"quantile of an array of shape {x.shape} along axes of no entries")
    line = reshape(x.transpose([*axes, *kept]) if axes != tuple(range(len(axes))) else x, (n, *rest))
    ordered = sorting.sort(line, 0)
    fractions = q if isinstance(q, Tracer) else np.asarray(q, np.float64)
    if isinstance(fractions, np.ndarray):
        found = [_at(ordered, float(f), n - 1, method) for f in fractions.ravel()]
        made = reshape(concatenate_all([reshape(f, (1, *rest)) for f in found]), (*fractions.shape, *rest))
    else:
        dense = convert_format(ordered, "dense")
        made = _picked(lambda k: take(dense, k, 0), fractions * (n - 1.0), method, len(rest))
    if x.dtype.kind == "f":
        broken = elementwise("isnan", convert_format(getitem(ordered, n - 1), "dense"))  # NaN is sorted last
        made = where(broken, np.nan, made)
    outer = made.shape[: made.ndim - len(rest)]
    return reshape(made, (*outer, *(1 if d in axes else m for d, m in enumerate(x.shape)))) if keepdims else made


def _measured(x: Any, method: str) -> Any:
    """`x` as floats, or as it is where quantiles are some of its entries."""
    x = asarray(x)
    if x.dtype.kind == "c":
        raise TypeError(
            f"quantiles need an order, which complex numbers ({x.dtype}) do not have: take x.real or abs(x)"
        )
    return x if x.dtype.kind == "f" or method in ENTRIES else convert_element_type(x, float)


def _check(q: Any, method: str) -> None:
    if method not in METHODS:
        raise ValueError(f"method={method!r} must be one of {', '.join(METHODS)}")
    if isinstance(q, Tracer):
        return
    fractions = np.asarray(q, np.float64)
    if not np.all((fractions >= 0) & (fractions <= 1)):
        raise ValueError("quantiles must be in the range [0, 1]")


def _at(ordered: Any, fraction: float, last: Any, method: str) -> Any:
    """What lies at a fraction of the way from the first to the last of ordered entries."""
    if is_known((last,)):
        return _interpolated(ordered, fraction * last, method)
    place = elementwise("multiply", number(last), fraction)
    return _picked(lambda k: convert_format(take(ordered, k, 0), "dense"), place, method)


def _interpolated(ordered: Any, place: float, method: str) -> Any:
    low, high = math.floor(place), math.ceil(place)
    part = {"lower": 0.0, "higher": 1.0, "midpoint": 0.5 if low != high else 0.0, "linear": place - low}
    weight = part[method] if method in part else float(round(place) - low)
    first = convert_format(getitem(ordered, low), "dense")
    if weight == 0 or low == high:
        return first
    second = convert_format(getitem(ordered, high), "dense")
    return second if weight == 1 else _between(first, second, weight)


def _between(first: Any, second: Any, weight: Any) -> Any:
    """From `first` to `second`; equal infinities have no distance."""
    gap = where(elementwise("equal", first, second), 0.0, elementwise("subtract", second, first))
    return elementwise("add", first, elementwise("multiply", gap, weight))


def _picked(entry: Callable[[Any], Any], places: Any, method: str, rest: int = 0) -> Any:
    """The quantiles at `places` between entries, of which `entry` gives those at integers, with so many more dimensions."""
    if method in ENTRIES:
        rounded = elementwise({"lower": "floor", "higher": "ceil", "nearest": "rint"}[method], places)
        return entry(convert_element_type(rounded, np.int64))
    low, high = elementwise("floor", places), elementwise("ceil", places)
    first, second = (entry(convert_element_type(k, np.int64)) for k in (low, high))
    weight = places - low if method == "linear" else low * 0 + 0.5
    return _between(first, second, reshape(weight, (*weight.shape, *[1] * rest)) if rest else weight)


def percentile(x: Any, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear") -> Array:
    """`numpy.percentile`: `quantile` of fractions in per cent."""
    return quantile(x, q / 100.0 if isinstance(q, Tracer) else np.true_divide(q, 100.0), axis, keepdims, method=method)


def nanquantile(x: Any, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear") -> Array:
    """`numpy.nanquantile`: `quantile` of the entries that are no NaN; NaN where there are none. O(n log n) for n stored entries.

    >>> nanquantile(np.array([np.nan, 1.0, 3.0]), 0.25)
    Array(1.5, dtype=float64)

    Raises ValueError for fractions outside [0, 1] and for other methods than those of `quantile`.
    """
    _check(q, method)
    x = _measured(x, method)
    if x.dtype.kind != "f" and x.size:
        return quantile(x, q, axis, keepdims, method=method)
    ordered, count, shape = ordered_lines(x, axis, keepdims)
    last = elementwise("maximum", elementwise("subtract", count, 1), 0)
    fractions = asarray(q)
    if not ordered.size:
        return asarray(filled((*fractions.shape, *shape), np.nan, ordered.dtype))
    flat = reshape(fractions, (-1,))
    parts = [_at_fraction(ordered, last, flat[k], method) for k in range(flat.shape[0])]
    return reshape(concatenate_all(parts), (*fractions.shape, *shape))


def _at_fraction(ordered: Any, last: Any, fraction: Any, method: str) -> Any:
    """The entries at a fraction of the way from the first to the last of every column, each of which has its own last."""
    return _picked(lambda k: take_along_axis(ordered, k, 0), elementwise("multiply", last, fraction), method)


def nanpercentile(x: Any, q: Any, axis: Any = None, keepdims: bool = False, *, method: str = "linear") -> Array:
    """`numpy.nanpercentile`: `nanquantile` of fractions in per cent."""
    return nanquantile(
        x, q / 100.0 if isinstance(q, Tracer) else np.true_divide(q, 100.0), axis, keepdims, method=method
    )


def histogram_bin_edges(x: Any, bins: Any = 10, range: Any = None) -> Array:
    """`numpy.histogram_bin_edges`, for a number of bins of one width, or the edges themselves."""
    if np.ndim(bins) == 1:
        return asarray(bins)
    count = integer(bins, "bins")
    if count < 1:
        raise ValueError(f"bins={count} must be at least 1")
    x = asarray(x)
    wanted = x.dtype if x.dtype.kind == "f" else np.dtype(float)
    if range is not None or not x.size:
        return own(np.histogram_bin_edges(np.zeros(0, wanted), count, range))
    low, high = (convert_element_type(reduce(kind, x), wanted) for kind in ("min", "max"))
    if type(low) is Array:
        ends = np.asarray(low)[()], np.asarray(high)[()]
        if not np.isfinite(ends).all():
            raise ValueError(
                f"x lies between {ends[0]} and {ends[1]}: bins need a finite range; pass range=(low, high), or the edges as bins"
            )
        return own(np.histogram_bin_edges(np.array(ends), count))
    same = elementwise("equal", low, high)
    return spaced(where(same, low - 0.5, low), where(same, high + 0.5, high), count + 1)


def histogram(x: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None) -> tuple[Any, Any]:
    """`numpy.histogram`: how many entries lie in bins, or the sum of their `weights`, and the edges of the bins. O(n log m) for n stored
    entries and m bins; dense `weights` make it O(size).

    >>> import sparsejax as sj
    >>> histogram(sj.array([0, 0, 3, 0], format="coo"), bins=3)[0]
    Array([3, 0, 1], dtype=int64)
    """
    x = asarray(x)
    edges = histogram_bin_edges(x, bins, range)
    if weights is None:
        counts = histogram_counts(x, edges)
    else:
        count = edges.shape[0] - 1
        flat = convert_format(reshape(x, (x.size,)), "dense")
        given = reshape(convert_format(asarray(weights), "dense"), (x.size,))
        place = _searchsorted(edges, flat, "right") - 1
        place = where(
            elementwise("equal", flat, edges[count]), count - 1, place
        )  # the last edge belongs to the last bin
        inside = (place >= 0) & (place < count)
        counts = scatter(where(inside, given, 0), {0: where(inside, place, 0)}, (count,))
        counts = convert_format(counts, "dense")
    if not density:
        return counts, edges
    widths = edges[1:] - edges[:-1]
    return counts / widths / reduce("sum", counts), edges


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Array:
    """`numpy.bincount`: how often each of the numbers 0, 1, … occurs among integers that are not negative, or the sum of their `weights`.

    The result has `length` entries, and larger numbers do not count (as in JAX); without it as many as the largest number needs, at least
    `minlength`, which only arrays that are not traced tell.

    >>> bincount(np.array([0, 2, 2]))
    Array([1, 0, 2], dtype=int64)
    """
    x = asarray(x)
    if x.shape == (0,) and x.dtype == float:  # an empty list
        x = convert_element_type(x, int)
    if x.ndim != 1 or x.dtype.kind not in "iub":
        raise TypeError(f"bincount takes a vector of integers, not {x.dtype} of shape {x.shape}")
    index = convert_element_type(convert_format(x, "dense"), np.int64)
    if length is None:
        length = max(minlength, _largest(index) + 1) if x.size else minlength
    if not length or not x.size:
        return own(np.zeros(length, np.int64 if weights is None else np.float64))
    inside = (index >= 0) & (index < length)
    given = convert_element_type(inside, np.int64) if weights is None else asarray(weights)
    given = given if weights is None or given.dtype.kind in "fc" else convert_element_type(given, float)
    return convert_format(scatter(where(inside, given, 0), {0: where(inside, index, 0)}, (length,)), "dense")


def _largest(index: Any) -> int:
    if isinstance(index, Tracer):
        return integer(reduce("max", index), "the largest number of bincount, which length= replaces,")
    values = np.asarray(index)
    if values.min() < 0:
        raise ValueError("bincount takes integers that are not negative")
    return int(values.max())


def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """`numpy.digitize`: the bin that each entry lies in. `bins` increase or decrease; where they are known and do neither, ValueError.

    >>> digitize(np.array([0.5, 2.0]), np.array([0.0, 1.0, 2.0]))
    Array([1, 3], dtype=int64)
    >>> digitize(np.array([0.5, 2.0]), np.array([2.0, 1.0, 0.0]))
    Array([2, 0], dtype=int64)
    """
    bins, side = convert_format(asarray(bins), "dense"), "left" if right else "right"
    if bins.ndim != 1:
        raise ValueError(f"bins must be a vector, not an array of shape {bins.shape}")
    if isinstance(bins, Tracer):
        falls = elementwise("less", getitem(bins, -1), getitem(bins, 0)) if bins.size else False
        place = _searchsorted(where(falls, getitem(bins, slice(None, None, -1)), bins), x, side)
        return where(falls, elementwise("subtract", bins.size, place), place)
    edges = bins.todense()
    falls = bool(np.any(edges[1:] < edges[:-1]))
    if falls and np.any(edges[1:] > edges[:-1]):
        raise ValueError("bins must increase or decrease")
    place = _searchsorted(edges[::-1] if falls else bins, x, side)
    return elementwise("subtract", bins.size, place) if falls else place


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None) -> Array:
    """`numpy.interp`: the piecewise linear function through points (xp, fp), `xp` increasing, at `x`; differentiable by x and fp.

    Of a sparse `x`, and points that are known, sparse over the value at its fill; else dense.

    >>> interp(np.array([0.5, 3.0]), np.array([0.0, 1.0]), np.array([10.0, 20.0]))
    Array([15., 20.], dtype=float64)
    """
    x, (xp, fp) = asarray(x), (convert_format(asarray(v), "dense") for v in (xp, fp))
    sparse = not x.format.is_dense and not any(isinstance(v, Tracer) for v in (xp, fp, left, right, period))
    x = (
        convert_element_type(x, dtypes.result_type((x.dtype, False), (xp.dtype, False)))
        if sparse
        else densely(x, "interp")
    )
    if xp.ndim != 1 or xp.shape != fp.shape or not xp.size:
        raise ValueError(f"xp and fp must be vectors of one length, not of shapes {xp.shape} and {fp.shape}")
    if period is not None:
        if not period:
            raise ValueError("period must not be zero")
        size = abs(period)
        x = elementwise("remainder", x, size)
        with eagerly() if sparse else contextlib.nullcontext():
            xp = elementwise("remainder", xp, size)
            order = sorting.argsort(xp, 0)
            xp, fp = xp[order], fp[order]
            xp = concatenate_all([xp[-1:] - size, xp, xp[:1] + size])
            fp = concatenate_all([fp[-1:], fp, fp[:1]])
        left = right = None
    n = xp.shape[0]
    place = elementwise("maximum", elementwise("minimum", _searchsorted(xp, x, "right"), n - 1), min(1, n - 1))
    before, at = elementwise("maximum", place - 1, 0), look_up if sparse else take
    x0, x1, f0, f1 = at(xp, before), at(xp, place), at(fp, before), at(fp, place)
    width = where(elementwise("equal", x0, x1), 1.0, x1 - x0)
    made = f0 + (x - x0) / width * (f1 - f0)
    (least, most), (first, last) = ((v.todense()[[0, -1]].tolist() if sparse else (v[0], v[n - 1])) for v in (xp, fp))
    made = where(x < least, first if left is None else left, made)
    return where(x > most, last if right is None else right, where(elementwise("equal", x, most), last, made))


def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None) -> Array:
    """`numpy.cov`: the covariances of variables, the rows of `m` (columns with `rowvar=False`). Dense.

    Of a sparse matrix without a dense copy: the product of the matrix with itself, less that of its means. O(products of entries).

    >>> cov(np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float64)
    """
    x = _variables(m, rowvar)
    if not x.shape[0]:
        return zeros((0, 0))  # float64 whatever is given, as in NumPy
    x = x if y is None else concatenate_all([x, _variables(y, rowvar)], 0)
    n = x.shape[1]
    less = (0 if bias else 1) if ddof is None else ddof
    average = convert_format(mean(x, 1, keepdims=True), "dense")
    other = elementwise("conjugate", x) if x.dtype.kind == "c" else x
    if x.format.is_dense or x.fill_value != 0 or n <= less:
        moved = convert_format(x, "dense") - average
        other = elementwise("conjugate", moved) if x.dtype.kind == "c" else moved
        total = matmul(moved, other.T)
    else:
        conj = elementwise("conjugate", average) if x.dtype.kind == "c" else average
        total = convert_format(matmul(x, other.T), "dense") - average * conj.T * number(n)
    made = total / number(n - less) if n > less else total * np.inf
    return reshape(made, ()) if made.shape == (1, 1) else made


def _variables(m: Any, rowvar: bool) -> Any:
    x = asarray(m)
    if x.ndim > 2:
        raise ValueError(f"cov takes a vector or a matrix, not an array of shape {x.shape}")
    x = x if x.dtype.kind in "fc" else convert_element_type(x, float)
    return atleast_2d(x) if x.ndim < 2 or rowvar else x.T


def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Array:
    """`numpy.corrcoef`: covariances over the product of standard deviations."""
    c = cov(x, y, rowvar)
    if not c.ndim:
        return c / c
    size = elementwise("sqrt", c.diagonal().real)
    made = c / reshape(size, (-1, 1)) / reshape(size, (1, -1))
    return _bounded(made.real) + 1j * _bounded(made.imag) if made.dtype.kind == "c" else _bounded(made)


def _bounded(x: Any) -> Any:
    """Between -1 and 1, as correlations are but for rounding."""
    return elementwise("minimum", elementwise("maximum", x, -1.0), 1.0)


def partition(x: Any, kth: Any, axis: int | None = -1) -> Array:
    """`numpy.partition`: here every line is sorted, which puts the `kth` entry where it belongs, smaller ones before it."""
    x = _checked(x, kth, axis)
    return sorting.sort(reshape(x, (x.size,)), 0) if axis is None else sorting.sort(x, axis)


def argpartition(x: Any, kth: Any, axis: int | None = -1) -> Array:
    """`numpy.argpartition`: here the order that sorts every line; see `partition`."""
    x = _checked(x, kth, axis)
    return sorting.argsort(reshape(x, (x.size,)), 0) if axis is None else sorting.argsort(x, axis)


def _checked(x: Any, kth: Any, axis: int | None) -> Any:
    x = asarray(x)
    extent = x.size if axis is None else x.shape[axis]
    for k in np.atleast_1d(kth):
        if x.size and not -extent <= int(k) < extent:
            raise ValueError(f"kth={int(k)} is out of bounds for extent {extent}")
    return x
