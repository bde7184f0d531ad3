"""Running products, maxima and minima: library calls along an axis.

p = cumulative[prod] x      tangent  dp[k] = dp[k-1] x[k] + p[k-1] dx[k]         a linear recurrence, by an associative scan
m = cumulative[max] x       tangent  dx at the entry that is the maximum so far
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.symbolic import span
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import elementwise, where
from sparsejax.lax.extents import along, extent, filled
from sparsejax.lax.indexing import concatenate, window
from sparsejax.lax.library.calls import on_arrays
from sparsejax.lax.library.scans import associative_scan
from sparsejax.lax.rules.batching import faithful
from sparsejax.lax.structural import convert_format, normal_axis

_UFUNCS = {"prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _accumulated(x: NDArray[Any], kind: str, axis: int, reverse: bool) -> NDArray[Any]:
    x = np.flip(x, axis) if reverse else x
    made = _UFUNCS[kind].accumulate(x, axis=axis, dtype=x.dtype)
    return np.flip(made, axis) if reverse else made


def _before(x: Any, first: Any, axis: int, reverse: bool) -> Any:
    """`x` moved by one place along `axis`, `first` in front."""
    n = x.shape[axis]
    kept = span(1, n) if reverse else span(0, n - 1)
    rest = window(x, [kept if d == axis else span(0, m) for d, m in enumerate(x.shape)])
    edge = asarray(filled(tuple([1 if d == axis else m for d, m in enumerate(x.shape)]), first, x.dtype))
    return concatenate([rest, edge] if reverse else [edge, rest], axis)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, kind: str, axis: int, reverse: bool) -> Any:
    x, t = primals[0], tangents[0]
    if not x.shape[axis]:
        return t
    if kind == "prod":
        steps = elementwise("multiply", t, _before(out, 1, axis, reverse))

        def joined(first: Any, second: Any) -> Any:
            (a, b), (c, d) = first, second
            return a * c, b * c + d

        return associative_scan(joined, (x, steps), reverse, axis)[1]
    # the place of the last entry that is an extreme so far
    n = x.shape[axis]
    last = extent(n - 1)
    numbers = along(n, axis, x.ndim)
    numbers = last - numbers if reverse else numbers
    new = elementwise("not_equal", out, _before(out, np.nan if x.dtype.kind == "f" else 0, axis, reverse))
    places = cumulative("max", where(new, numbers, 0), axis, reverse)
    places = elementwise("subtract", last, places) if reverse else places
    return t[tuple(places if d == axis else along(m, d, x.ndim) for d, m in enumerate(x.shape))]


cumulative_p: Primitive = Primitive(
    "cumulative",
    typing=lambda x, kind, axis, reverse: rules.dense(x.shape, x.dtype),
    reference=_accumulated,
    call=on_arrays(_accumulated),
    jvp=_jvp,
    batch=lambda size, x, kind, axis, reverse: cumulative(kind, faithful(x).value, axis, reverse),
)


def cumulative(kind: str, x: Any, axis: int = 0, reverse: bool = False) -> Any:
    """The product, "prod", maximum, "max", or minimum, "min", of all entries of a line up to and including each (or, with `reverse`,
    from each on): dense, of the dtype of `x`. Linear in the size.

    >>> cumulative("prod", np.array([1, 2, 3]))
    Array([1, 2, 6], dtype=int64)
    """
    x = convert_format(asarray(x), "dense")
    return cumulative_p.bind(x, kind=kind, axis=normal_axis(axis, x.ndim), reverse=reverse)
