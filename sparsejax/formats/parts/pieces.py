"""What is done to each row of matrices, done to some rows at a time: these are read as rows that list their columns, and what is made of them becomes
what they were; the pieces then stand one behind the other (`padded`). Beside the result there is little more than a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsejax import config
from sparsejax.formats import convert
from sparsejax.formats.format import Format
from sparsejax.formats.parts import padded
from sparsejax.formats.storage import Storage

LEAST = 1 << 21
"""Stored values from which the memory of a second array counts: of 5,000,000 pieces take 0.6 to 1.3 of the time, of 1,000,000 1.1 to 1.9."""
SOME, MOST = 1 << 17, 24
"""Stored values of a piece, at least; and how many pieces there are at most."""
FORCED = 3
"""The same of both where plans are forced, so that small arrays have pieces."""

Span = tuple[int, int]
Work = Callable[..., Storage | None]


def spans(count: int, stored: int, step: int) -> list[Span]:
    """The pieces of `count` rows with so many stored values, each a multiple of `step` rows; none where one is enough.

    >>> spans(10, LEAST, 4)
    [(0, 4), (4, 8), (8, 10)]
    """
    least, some = (FORCED, FORCED) if config.forcing else (LEAST, SOME)
    pieces = min(MOST, stored // some, -(-count // step)) if stored >= least else 0
    if pieces < 2:
        return []
    each = -(-count // pieces)
    each += -each % step
    return [(k, min(count, k + each)) for k in range(0, count, each)]


def in_pieces(storages: Sequence[Storage], read: Sequence[Span], work: Work, format: Format) -> Storage | None:
    """What `work` makes of the number of a piece and the rows of all matrices, of one format, that are `read` for it, in `format` again. None where their
    rows cannot be cut, or `work` gives None.

    >>> import numpy as np
    >>> A = convert.from_dense(np.eye(4), Format.parse("ell", 2), 0.0)
    >>> twice = in_pieces([A], [(0, 2), (2, 4)], lambda k, rows: rows.with_values(2 * rows.vals, 0.0), A.format)
    >>> twice.vals, twice.format
    (array([2., 2., 2., 2.]), Format('ell'))
    """
    forms = convert.plain_formats(format)
    if forms is None or padded.rows_of(format) is None or not read:
        return None
    parts = []
    for number, (first, stop) in enumerate(read):
        known: dict[int, Storage] = {}
        for storage in storages:
            if id(storage) not in known:
                rows = padded.cut(storage, first, stop)
                if rows is None:
                    return None
                known[id(storage)] = convert.convert(rows, forms[0])
        made = work(number, *[known[id(storage)] for storage in storages])
        if made is None:
            return None
        parts.append(convert.convert(made, format))
        del known, made
    return padded.behind(parts)
