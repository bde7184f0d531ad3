"""Copies in other formats, kept with the array; what is the same for all arrays over one pattern is kept with the pattern.

before:  A csr with values a, B over the same buffers with values b
after:   A csc with values a[q], B csc with values b[q]:   q, and the buffers of the copies, are found once

Arrays that were made over the pattern of another (`Storage.with_values`) share its memory of copies. Entry p of a copy is entry q[p] of
the array.
"""

from __future__ import annotations

import numpy as np

from sparsejax.formats import convert, passes
from sparsejax.formats.format import Format
from sparsejax.formats.storage import Storage


def converted(storage: Storage, form: Format) -> Storage:
    """`storage` in another format. O(1) the second time, a gather of the values where the pattern has been copied before."""
    if storage.format == form:
        return storage
    copies = storage.cache.setdefault("converted", {})
    if form not in copies:
        shared = "pattern" in storage.cache and storage.packed and form.packed
        copies[form] = _gathered(storage, form) if shared else convert.convert(storage, form)
    made: Storage = copies[form]
    return made


def _gathered(storage: Storage, form: Format) -> Storage:
    places = places_of(storage, form)
    if places.format != form or not places.packed:
        return convert.convert(storage, form)
    return places.with_values(passes.over(places.vals.size).take(storage.vals, places.vals), storage.fill_value)


def places_of(storage: Storage, form: Format) -> Storage:
    """The pattern of `storage` in another format; its values are the places of the entries in `storage`."""
    known: dict[Format, Storage] = storage.cache.setdefault("pattern", {})
    if form not in known:
        numbers = np.arange(len(storage.vals))
        numbered = Storage(storage.format, storage.shape, np.int64(0), storage.buffers, numbers)
        known[form] = convert.convert(numbered, form)
    return known[form]
