"""Arrays of integers as indices: checked before a kernel reads them, and turned round where a kernel walks the rows that they name.

checked     X with every coordinate that is read in [0, extent): kernels read it as it is
in_order    V with its rows in the order of what X names
pairs       true at (X[p], Z[p], p): the entries of two index arrays of one axis, sorted by what they name
positions   true at (p, X[p]), or with `drop` where that is within bounds: with its last axis stored first, the entries of X sorted by what they name
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive
from sparsejax.formats import Compressed, Coordinate, Dense, Format, Level
from sparsejax.formats.storage import Storage
from sparsejax.lax.indirect.statements import Ref
from sparsejax.lax.library import index_arrays

# --------------------------------------------------------------------------------------------------------- checked


def _checked_call(
    x: Storage,
    *others: Storage,
    out_aval: Aval,
    ref: Ref,
    stored: tuple[Ref, ...],
    extents: tuple[tuple[str, int], ...],
    extent: int,
    fault: tuple[str, str, str],
    drop: bool,
) -> Storage:
    if drop:
        return index_arrays.clipped(x, extent)
    found = index_arrays.within(x, extent)
    if found is not None:
        return found
    wrong = index_arrays.read_out_of_bounds(ref, stored, dict(extents), (x, *others), extent)
    if wrong is not None:
        place, value = wrong
        at = f"[{','.join(map(str, place))}]" if place else ""
        name, what, text = fault
        if not name:
            number = np.ravel_multi_index(place, x.shape) if place else 0
            raise IndexError(
                f"index {value} is out of bounds for {what} with size {extent} (at position {number} of the indices)"
            )
        raise IndexError(f"index {value} at {name}{at} is out of bounds for {what} with size {extent}{text}")
    return index_arrays.without_others(x, extent)


checked_p = Primitive(
    "checked",
    typing=lambda x, *others, **params: x.strong(),
    reference=lambda x, *others, extent, **params: np.where(np.asarray(x) < 0, x + extent, x),
    call=_checked_call,
    jvp=lambda primals, tangents, out, **params: None,
    remembered=True,
    refuses=lambda drop, **params: not drop,
    describe=lambda ref, stored, extents, extent, fault, drop: f"{fault[0]} < {extent}",
)


def checked(
    x: Any,
    others: list[Any],
    ref: Ref,
    stored: tuple[Ref, ...],
    extents: tuple[tuple[str, int], ...],
    extent: int,
    fault: tuple[str, str, str],
    drop: bool = False,
) -> Any:
    """`x` with every coordinate that a statement reads in [0, extent), negative ones counted from the end.

    The statement reads `ref`, of operand 0, at all combinations of variables at which `stored` are entries; operands are `x` and `others`.
    IndexError says which coordinate of `x` is out of bounds; `fault` has its name, what is indexed, and the text. With `drop`, what is
    not in [0, extent) is 0 instead. O(entries), once per array where all of it is within bounds; else O(combinations).
    """
    return checked_p.bind(x, *others, ref=ref, stored=stored, extents=extents, extent=extent, fault=fault, drop=drop)


# ------------------------------------------------------------------------------------------------------- positions


def _positions_format(x: Aval, by_target: bool, sparse_rows: bool) -> Format:
    ndim = x.ndim
    if by_target:
        first = Compressed() if sparse_rows or not ndim else Dense()
        below: tuple[Level, ...] = (Coordinate(),) * ndim
        if all(type(n) is int and n == 1 for n in x.shape[1:]):  # every entry is named by its first coordinate alone
            below = (Compressed(), *[Dense()] * (ndim - 1))[:ndim]
        return Format((first, *below), (ndim, *range(ndim)))
    if x.format.is_dense:
        return Format((Dense(),) * ndim + (Compressed(),))
    return Format((Coordinate(),) * (ndim + 1))


positions_p = Primitive(
    "positions",
    typing=lambda x, extent, by_target, sparse_rows, drop: Aval(
        (*x.shape, extent), bool, _positions_format(x, by_target, sparse_rows), False
    ),
    reference=lambda x, extent, **params: np.asarray(x)[..., None] == np.arange(extent),
    call=lambda x, out_aval, drop, **params: index_arrays.positions(x, out_aval.shape, out_aval.format, drop),
    jvp=lambda primals, tangents, out, **params: None,
    remembered=True,
    describe=lambda extent, by_target, sparse_rows, drop: f"{extent}{' sorted' if by_target else ''}",
)


def positions(x: Any, extent: int, by_target: bool = True, sparse_rows: bool = False, drop: bool = False) -> Any:
    """The array of shape (*x.shape, extent) that is true at (p, x[p]) for every entry of `x`, whose values are in [0, extent); with `drop`, for
    every one whose value is.

    `by_target`: sorted by the last coordinate, so that a row holds where `x` names it; `sparse_rows`: without rows that nothing names.
    Else in the order of `x`. O(entries + extent), remembered with the array.

    >>> positions(np.array([2, 0, 2]), 3).todense().T.astype(int)
    array([[0, 1, 0],
           [0, 0, 0],
           [1, 0, 1]])
    """
    return positions_p.bind(x, extent=extent, by_target=by_target, sparse_rows=sparse_rows, drop=drop)


# ----------------------------------------------------------------------------------------------------------- pairs


def _pairs_reference(x: Any, z: Any, extents: tuple[int, int]) -> Any:
    made = np.zeros((*extents, len(x)), bool)
    made[np.asarray(x), np.asarray(z), np.arange(len(x))] = True
    return made


pairs_p = Primitive(
    "pairs",
    typing=lambda x, z, extents: Aval((*extents, *x.shape), bool, Format((Dense(), Coordinate(), Coordinate())), False),
    reference=_pairs_reference,
    call=lambda x, z, out_aval, extents: index_arrays.pairs(x, z, out_aval.shape, out_aval.format),
    jvp=lambda primals, tangents, out, **params: None,
    remembered=True,
    describe=lambda extents: f"{extents[0]}, {extents[1]}",
)


def pairs(x: Any, z: Any, extents: tuple[int, int]) -> Any:
    """The array of shape (*extents, *x.shape) that is true at (x[p], z[p], p) for every entry of two dense arrays of one axis, whose values are in
    [0, extents[0]) and [0, extents[1]). O(entries + extents), remembered with the first array.

    >>> pairs(np.array([2, 0, 2]), np.array([1, 1, 0]), (3, 2)).todense()[2].astype(int)
    array([[0, 0, 1],
           [1, 0, 0]])
    """
    return pairs_p.bind(x, z, extents=extents)


# -------------------------------------------------------------------------------------------------------- in order

in_order_p = Primitive(
    "in_order",
    typing=lambda x, by, extent: x.strong(),
    reference=lambda x, by, extent: np.asarray(x)[np.argsort(np.asarray(by).reshape(-1), kind="stable")],
    call=lambda x, by, out_aval, extent: index_arrays.in_order(x, by, extent),
    jvp=lambda primals, tangents, out, **params: None,
    remembered=True,
    describe=lambda extent: f"{extent}",
)


def in_order(x: Any, by: Any, extent: int) -> Any:
    """The rows of a dense array in the order of what a dense vector with values in [0, extent) names, which may have further axes of extent 1: where it names
    the same, as they were. O(entries), remembered with `x` for the last such vector.

    >>> in_order(np.array([5, 6, 7]), np.array([2, 0, 2]), 3)
    Array([6, 5, 7], dtype=int64)
    """
    return in_order_p.bind(x, by, extent=extent)
