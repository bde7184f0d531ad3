"""Entries of a window go back to their places in the array that it was taken of: the transpose of a window of a sparse array.

like    pos 0 2 3, crd 0 4 3     the window [1:] of numbered entries     pos 0 1, crd 3, numbers 2
values  pos 0 1, crd 3, a                                               0 0 a at the entries of like
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive
from sparsejax.formats import Format, selection
from sparsejax.formats.parts import located, taken
from sparsejax.formats.passes import crd_dtype
from sparsejax.formats.storage import Storage
from sparsejax.lax.linear import shared
from sparsejax.lax.structural import convert_format


def serves(form: Format, axes: Sequence[int]) -> bool:
    """Whether every position of the format is an entry, and a window without `axes` is sparse.

    >>> serves(Format.parse("csr", 2), ()), serves(Format.parse("csr", 2), (0, 1)), serves(Format.parse("ell", 2), ())
    (True, False, False)
    """
    return not form.is_dense and located.searched(form) and not selection.without(form, axes).is_dense


def windowed(x: Storage, ranges: Sequence[range], axes: tuple[int, ...], format: Format) -> Storage:
    """The window of a sparse array, in `format`. Linear in the entries of the outermost level and those found."""
    keys = [None if r == range(n) else r for r, n in zip(ranges, x.shape, strict=True)]
    made = taken.by_levels(x, keys, axes, format)
    return selection.window(x, ranges, axes, format) if made is None else made


def _call(like: Storage, values: Storage, out_aval: Aval, ranges: tuple[range, ...], axes: tuple[int, ...]) -> Storage:
    count, dtype = len(like.vals), values.dtype
    numbers = np.arange(count, dtype=crd_dtype(count))
    there = windowed(like.with_values(numbers, numbers.dtype.type(0)), ranges, axes, values.format)
    places, own = there.vals, shared(values, there).vals
    vals = np.zeros(count, dtype)
    if len(places) and all(r.step > 0 for r in ranges) and int(places[-1]) - int(places[0]) == len(places) - 1:
        vals[int(places[0]) : int(places[-1]) + 1] = own  # they rise
    else:
        vals[places] = own
    return like.with_values(vals, dtype.type(0))


def _reference(like: Any, values: Any, ranges: tuple[range, ...], axes: tuple[int, ...]) -> Any:
    made = np.zeros(np.shape(like), np.asarray(values).dtype)
    made[np.ix_(*ranges)] = np.reshape(values, [len(r) for r in ranges])
    return made


window_places_p = Primitive(
    "window_places",
    typing=lambda like, values, ranges, axes: Aval(like.shape, values.dtype, like.format, 0),
    reference=_reference,
    call=_call,
    jvp=lambda primals, tangents, out, ranges, axes: (
        None if tangents[1] is None else window_places(primals[0], tangents[1], ranges, axes)
    ),
)


def window_places(like: Any, values: Any, ranges: Sequence[range], axes: Sequence[int] = ()) -> Any:
    """The array with the pattern of a sparse `like` whose window at `ranges` is `values`: entries of these that `like` has not are left out, and
    its entries outside of the window, or that `values` lacks, are zero. For formats that are served. Linear in the entries.

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[1.0, 0.0], [2.0, 3.0]]), format="csr")
    >>> window_places(A, sj.array(np.array([[5.0, 6.0]]), format="csr"), (range(1, 2), range(2))).data
    array([0., 5., 6.])
    """
    values = convert_format(values, selection.without(like.format, tuple(axes)))
    return window_places_p.bind(like, values, ranges=tuple(ranges), axes=tuple(axes))
