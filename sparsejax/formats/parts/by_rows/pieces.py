"""What is done to each row of matrices, done to some rows at a time: these are read as rows that list their columns, and what is made of them becomes
what they were; the pieces then stand one behind the other (`padded`). Beside the result there is little more than a piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsejax import config
from sparsejax.formats import convert
from sparsejax.formats.format import Format
from sparsejax.formats.parts.by_rows import collected, padded
from sparsejax.formats.storage import Storage

LEAST = 1 << 17
"""Stored values from which the memory of a second array counts."""
SOME, MOST = 1 << 18, 24
"""Stored values of a piece, at least, and how many pieces there are at most."""
FEWEST = 4
"""Pieces of fewer values: each is then a quarter of the array, which is read, changed and written beside it."""
FEW = 3
"""The same of pieces that cost much by themselves."""
FORCED = 3
"""The same of both where plans are forced, so that small arrays have pieces."""

Span = tuple[int, int]
Work = Callable[..., Storage | None]


def spans(count: int, stored: int, step: int, each: int = 0) -> list[Span]:
    """The pieces of `count` rows with so many stored values, each a multiple of `step` rows; none where one is enough. Where every piece costs as much as
    `each` values more, there are few.

    >>> spans(10, LEAST, 4)
    [(0, 4), (4, 8), (8, 10)]
    """
    least, some = (FORCED, FORCED) if config.forcing else (LEAST, SOME)
    pieces = min(MOST, max(FEWEST, stored // some), -(-count // step)) if stored >= least else 0
    if each and pieces > FEW:
        pieces = max(FEW, min(pieces, stored // each))
    if pieces < 2:
        return []
    rows = -(-count // pieces)
    rows += -rows % step
    return [(k, min(count, k + rows)) for k in range(0, count, rows)]


def spans_of(storage: Storage, each: int = 0) -> list[Span]:
    """The pieces of a matrix in `padded.rows_of`, as `spans`; one where it is read as rows without a copy.

    >>> import numpy as np
    >>> A = convert.from_dense(np.eye(4), Format.parse("lil", 2), 0.0)
    >>> spans_of(A)
    [(0, 4)]
    """
    rows = padded.rows_of(storage.format)
    if rows is None:
        return []
    if padded.shares(storage):
        return [(0, storage.shape[rows.axis])]
    return spans(storage.shape[rows.axis], len(storage.vals), rows.step, each)


def in_pieces(
    storages: Sequence[Storage], read: Sequence[Span], work: Work, format: Format, count: int
) -> Storage | None:
    """What `work` makes of the number of a piece and the rows of all matrices, of one format, that are `read` for it, in `format` again, which
    has `count` rows, or rows of blocks. None where their rows cannot be cut, or `work`
    gives None.

    >>> import numpy as np
    >>> A = convert.from_dense(np.eye(4), Format.parse("ell", 2), 0.0)
    >>> twice = in_pieces([A], [(0, 2), (2, 4)], lambda k, rows: rows.with_values(2 * rows.vals, 0.0), A.format, 4)
    >>> twice.vals, twice.format
    (array([2., 2., 2., 2.]), Format('ell'))
    """
    forms = convert.plain_formats(format)
    if forms is None or padded.rows_of(format) is None or not read:
        return None

    def part(number: int, span: Span) -> Storage | None:
        known: dict[int, Storage] = {}
        for storage in storages:
            if id(storage) not in known:
                rows = padded.cut(storage, *span)
                if rows is None:
                    return None
                known[id(storage)] = convert.convert(rows, forms[0])
        made = work(number, *[known[id(storage)] for storage in storages])
        return made

    return collected.of_rows((part(number, span) for number, span in enumerate(read)), count, format)
