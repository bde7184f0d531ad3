"""Arrays in formats that list their coordinates in another way than rows do (ELL, diagonals, bands, bitmaps, tables, runs, blocks, hypersparse rows), read
as rows, and back: two conversions, of which nothing stands beside what they make.

ell   width 2, len 1 2, crd 3 0 1 4     as rows   pos 0 1 3, crd 3 1 4
"""

from __future__ import annotations

from collections.abc import Callable

from sparsejax.formats import convert
from sparsejax.formats.format import Format
from sparsejax.formats.storage import Storage


def plain(storage: Storage) -> Storage | None:
    """The array in the format that it is read in (`convert.read_as`); None where it is not read in another one."""
    form = convert.read_as(storage)
    return None if form is None else convert.convert(storage, form)


def by_plain(work: Callable[..., Storage | None], format: Format, *storages: Storage) -> Storage | None:
    """What `work` makes of arrays that are read so, in `format`: the first array where it gives back what that was read as. None where one cannot be read so
    or not all are alike then, or `work` gives None.

    >>> import numpy as np
    >>> from sparsejax import config
    >>> A = convert.from_dense(np.eye(2), Format.parse("ell", 2), 0.0)
    >>> with config.using(choose="passes=numpy"):
    ...     by_plain(lambda rows: rows.with_values(2 * rows.vals, 0.0), A.format, A).vals
    array([2., 2.])
    """
    known: dict[int, Storage | None] = {}
    for storage in storages:
        if id(storage) not in known:
            known[id(storage)] = plain(storage)
            if known[id(storage)] is None:
                return None
    read = [known[id(storage)] for storage in storages]
    if len({rows.format for rows in read if rows is not None}) > 1:
        return None
    made, same = work(*read), read[0]
    if made is None or (made is same and format == storages[0].format):
        return None if made is None else storages[0]
    del known, read, same  # what was read goes before the result is there
    return convert.convert(made, format)
