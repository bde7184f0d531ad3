"""Matrix Market files (.mtx), through SciPy's reader and writer.

SciPy's reader allocates what the header claims, looks for the end of a line past its memory where there is none or a zero byte before, and
divides by the extents of a dense matrix. So the header is read first, and its number of entries compared with the bytes that follow: no
entry takes less than "1 1" and the end of a line; zero bytes are refused, and a last line is ended.

The format is that of "The Matrix Market Exchange Formats" (Boisvert, Pozo and Remington, 1996).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest, scipy_io
from sparsejax.io.lines import created, opened
from sparsejax.io.reading import Budget, finished, reading, written

_LEAST = {"pattern": 4, "integer": 6, "unsigned-integer": 6, "real": 6, "complex": 8}
"""Bytes of the shortest line of an entry with two coordinates."""


def mmread(
    source: Any, *, format: str | Format | None = None, dtype: Any = None, max_bytes: int | None = None
) -> Array:
    """The matrix that a Matrix Market file holds: coo for "coordinate" files, dense for "array" files, or in `format`.

    Symmetric, skew-symmetric and Hermitian files give all entries; "pattern" files ones; duplicates are summed. Numbers are int64,
    uint64, float64 or complex128, as the header says, unless `dtype` is given. Files may be packed (gzip, bzip2, xz); these are
    unpacked in memory. `max_bytes` bounds the memory that is taken (the machine's, unless given).

    FormatError for anything that is no such file. O(entries).

    >>> import io
    >>> mmread(io.BytesIO(b"%%MatrixMarket matrix coordinate real general\\n2 3 1\\n2 3 0.5\\n")).todense()
    array([[0. , 0. , 0. ],
           [0. , 0. , 0.5]])
    """
    import scipy.io

    budget = Budget(max_bytes)
    if dtype is not None:
        dtype = dtypes.canonical(dtype)
    with reading(source):
        with opened(source) as (text, stored):
            if text is stored:
                start = text.tell()
                size = text.seek(0, os.SEEK_END) - start
                text.seek(start)
            else:
                text, size = _unpacked(text, budget)
            start = text.tell()
            _check_bytes(text)
            text.seek(start)
            entries, empty = _check_header(text, size)
            text.seek(start)
            budget.take(48 * entries, f"{entries} entries")
            made = np.zeros(empty) if empty else scipy.io.mmread(_Ended(text))
        if isinstance(made, np.ndarray):
            storage = ingest.as_storage(made)
        else:
            storage = scipy_io.from_scipy(made)
        return finished(storage, format, dtype, budget)


def mmwrite(target: Any, x: Any, *, comment: str = "", precision: int | None = None) -> None:
    """Write a matrix as a Matrix Market file: "array" where it is dense, else "coordinate", with its stored zeros; "general" always.

    `precision` is the number of digits of a value; as many as it takes to read the same one again, unless given. The file does not
    say how many bits numbers have: float32 is read again as float64. Bools are a pattern where all that are stored are true, and
    integers otherwise. A path that ends in .gz, .bz2 or .xz is packed. FormatError for other dimensions than two, and for a fill
    that is not zero.

    >>> import io, sparsejax as sj
    >>> file = io.BytesIO()
    >>> mmwrite(file, sj.array([[0, 2], [3, 0]], format="csr"))
    >>> print(file.getvalue().decode().replace("%\\n", ""), end="")
    %%MatrixMarket matrix coordinate integer general
    2 2 2
    1 2 2
    2 1 3
    """
    import scipy.io

    storage = written(x, "a Matrix Market file", ndim=2)
    pattern = storage.dtype == np.bool_ and not storage.format.is_dense and bool(storage.expand()[1].all())
    if storage.dtype == np.bool_:
        storage = ingest.astype(storage, np.dtype(np.int8))
    if storage.format.is_dense:
        made: Any = convert.to_dense(storage)
    else:
        made = scipy_io.to_scipy(storage).tocoo()
    field = "pattern" if pattern else None
    with created(target) as file:
        scipy.io.mmwrite(_Pipe(file.write), made, comment=comment, field=field, precision=precision, symmetry="general")


class _Ended:
    """A text whose last line has an end."""

    def __init__(self, text: Any) -> None:
        self.text, self.last = text, b"\n"

    def read(self, size: int) -> bytes:
        part: bytes = self.text.read(size)
        if not part and self.last != b"\n":
            part = b"\n"
        self.last = part[-1:] or self.last
        return part


@dataclass(frozen=True)
class _Pipe:
    """A file that can only be written to: SciPy's writer seeks where it sees that it could, and packed files cannot."""

    write: Callable[[bytes], int]

    def flush(self) -> None:
        """Nothing is held back here."""


def _check_bytes(text: Any) -> None:
    """FormatError for a zero byte."""
    while part := text.read(1 << 22):
        if b"\0" in part:
            raise FormatError("the file has bytes that are zero, which no text has")


def _check_header(text: Any, size: int) -> tuple[int, tuple[int, int] | None]:
    """The number of entries, and the shape of a dense matrix that has none; FormatError unless `size` bytes can hold them."""
    import scipy.io

    rows, columns, entries, kind, field, symmetry = scipy.io.mminfo(_Ended(text))
    if kind == "array":
        if symmetry == "general":
            needed = 2 * rows * columns
        else:  # one triangle, without the diagonal where it is skew-symmetric
            needed = 2 * (rows * (rows - 1) // 2)
        entries = rows * columns
    else:
        needed = _LEAST.get(field, 4) * entries
    if min(rows, columns, entries) < 0 or needed > size + 1:
        raise FormatError(
            f"the header claims {entries} entries of a matrix of {rows} x {columns}, which {size} bytes cannot hold"
        )
    return int(entries), (rows, columns) if kind == "array" and not entries else None


def _unpacked(text: Any, budget: Budget) -> tuple[io.BytesIO, int]:
    """The text of a packed file in memory, and its size."""
    made = io.BytesIO()
    while part := text.read(1 << 20):
        budget.take(len(part), "the unpacked text")
        made.write(part)
    size = made.tell()
    made.seek(0)
    return made, size
