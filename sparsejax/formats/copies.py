"""Copies in other formats, kept with the array; what is the same for all arrays over one pattern is kept with the pattern.

before:  A csr with values a, B over the same buffers with values b
after:   A csc with values a[q], B csc with values b[q]:   q, and the buffers of the copies, are found once

A copy pays when what it would have saved so far has reached its price: so all uses of an array cost at most twice what they would have
cost, had one known how many there will be. Those of other arrays over the same pattern count too.

Arrays that were made over the pattern of another (`Storage.with_values`) share its memory of copies. Entry p of a copy is entry q[p] of
the array; positions of a copy that hold none hold the fill.

Source: the rule for renting or buying (Karlin, Manasse, Rudolph and Sleator, "Competitive Snoopy Caching", 1988).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import convert, passes
from sparsejax.formats.format import Format
from sparsejax.formats.storage import Storage


def converted(storage: Storage, form: Format) -> Storage:
    """`storage` in another format. O(1) the second time, a gather of the values where the pattern has been copied before."""
    if storage.format == form:
        return storage
    copies = storage.cache.setdefault("converted", {})
    if form not in copies:
        copies[form] = _gathered(storage, form) if _is_shared(storage, form) else convert.convert(storage, form)
    made: Storage = copies[form]
    return made


def _is_shared(storage: Storage, form: Format) -> bool:
    """Whether there may be others over the same pattern, whose entries go where those of `storage` do: each to one position, whatever its
    value. A dense array has no pattern."""
    if "pattern" not in storage.cache or not storage.packed or not form.packed or not len(storage.vals):
        return False
    dense = storage.format.is_dense or form.is_dense
    return not dense and all(level.unique for level in storage.format.levels)


def _gathered(storage: Storage, form: Format) -> Storage:
    places = places_of(storage, form)
    if places.format != form or not places.packed:
        return convert.convert(storage, form)
    width = _side_by_side(storage.format, form, storage.shape)
    sources, gaps = _sources(places, width)
    if width == 1 and gaps is None:
        vals = passes.over(sources.size).take(storage.vals, sources)
    else:
        vals = np.take(storage.vals.reshape(-1, width), sources, axis=0)
    if gaps is not None:
        vals[gaps] = storage.fill_value
    return places.with_values(vals.reshape(-1), storage.fill_value)


def _sources(places: Storage, width: int) -> tuple[NDArray[np.int64], NDArray[np.intp] | None]:
    """Where every `width` values of a copy come from; and where the copy has positions without an entry, if it has any: in dense blocks."""
    known: tuple[NDArray[np.int64], NDArray[np.intp] | None] | None = places.cache.get("sources")
    if known is None:
        rows = places.vals[::width] // width
        gaps = np.flatnonzero(rows < 0)
        known = places.cache["sources"] = (np.maximum(rows, 0), gaps) if len(gaps) else (rows, None)
    return known


def _side_by_side(before: Format, after: Format, shape: tuple[int, ...]) -> int:
    """How many values of one format stay together in the other: those of the innermost dense levels that both have.

    >>> _side_by_side(Format.parse("(d,c,d)@(0,1,2)", 3), Format.parse("(d,c,d)@(1,0,2)", 3), (30, 20, 16))
    16
    """
    width = 1
    inner, other = (list(zip(f.levels, f.order, f.level_extents(shape), strict=True))[::-1] for f in (before, after))
    for level, same in zip(inner, other, strict=False):
        if level != same or not level[0].full:
            break
        width *= max(1, level[2])
    return width


def places_of(storage: Storage, form: Format) -> Storage:
    """The pattern of `storage` in another format; its values are the places of the entries in `storage`, -1 where there is none."""
    known: dict[Format, Storage] = storage.cache.setdefault("pattern", {})
    if form not in known:
        numbers = np.arange(len(storage.vals))
        numbered = Storage(storage.format, storage.shape, np.int64(-1), storage.buffers, numbers)
        known[form] = convert.convert(numbered, form)
    return known[form]


def pays(storage: Storage, form: Format, gain: float, price: float, gather: float) -> bool:
    """Whether to make a copy, for a use that would gain so much by it: it is there, or earlier uses would have gained its price too.
    `gather` is the price where the pattern has been copied, for the values alone. O(1); remembers the use."""
    if form in storage.cache.get("converted", ()):
        return True
    own = storage.cache.setdefault("gains", {})
    own[form] = own.get(form, 0.0) + gain
    pattern = storage.cache.get("pattern")
    if pattern is None:
        return bool(own[form] >= price)
    if form in pattern:
        return bool(own[form] >= gather)
    shared = pattern.setdefault("gains", {})
    shared[form] = shared.get(form, 0.0) + gain - gather
    return bool(max(own[form], shared[form]) >= price)
