"""FROSTT's .tns: sparse tensors as text, one entry a line: its coordinates, counted from 1, and its value.

    # shape: 3 4 5
    # dtype: float64
    1 1 2 0.5
    3 4 5 -1.0

The two comments are ours (others skip them): without, the shape is the smallest that holds all coordinates and values are float64.
The format is that of "FROSTT: The Formidable Repository of Open Sparse Tensors and Tools" (Smith et al., 2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, scipy_io
from sparsejax.io.lines import blocks, created, table
from sparsejax.io.reading import MAX_RANK, Budget, finished, reading, shape_of, written

ROWS = 1 << 18
"""Entries that are turned into text at a time."""


def read_tns(
    source: Any,
    *,
    shape: tuple[int, ...] | None = None,
    format: str | Format | None = None,
    dtype: Any = None,
    max_bytes: int | None = None,
    progress: bool | None = None,
) -> Array:
    """The tensor of any number of dimensions that a .tns file holds, as coo or in `format`. Files may be packed (gzip, bzip2, xz).

    `shape` and `dtype` go before what the file says. Duplicates are summed. `max_bytes` bounds the memory that is taken (the
    machine's, unless given); `progress` shows a bar: always, never, or (None) from a million lines on.

    FormatError for anything that is no such file, naming the line where NumPy's parser stops.
    O(entries) for files that are sorted.

    >>> import io
    >>> read_tns(io.BytesIO(b"1 1 2.5\\n2 3 -1\\n")).todense()
    array([[ 2.5,  0. ,  0. ],
           [ 0. ,  0. , -1. ]])
    """
    budget = Budget(max_bytes)
    found: list[np.ndarray[Any, Any]] = []
    said: dict[str, list[str]] = {}
    kind = None if dtype is None else dtypes.canonical(dtype)
    with reading(source):
        rank = 0
        for lines, notes in blocks(source, "#", budget, progress):
            if not found:
                said.update(_said(notes))
            if not lines:
                continue
            rank = rank or _rank(lines[0])
            kind = kind or _kind(said)
            if kind.kind == "c":
                raise FormatError("values of .tns files are real; complex ones have no place there")
            budget.take(len(lines) * 3 * 8 * (rank + 1), f"{len(lines)} entries")
            read = np.dtype(np.int8) if kind == np.bool_ else kind
            found.append(table(lines, rank, read, None, sum(map(len, found))))
        extents = shape_of(shape) if shape is not None else _extents(said, found)
        if rank and len(extents) != rank:
            raise FormatError(f"lines have {rank} coordinates, but the shape {extents} has {len(extents)} dimensions")
        columns = [
            np.concatenate([_places(part, k) for part in found] or [np.empty(0, np.int64)]) for k in range(len(extents))
        ]
        values = np.concatenate([part["value"] for part in found] or [np.empty(0)]).astype(
            kind or _kind(said), copy=False
        )
        del found
        if not extents:
            raise FormatError("a .tns file holds tensors of one dimension or more; a shape of none is given")
        return finished(scipy_io.from_coordinates(columns, values, extents, None), format, None, budget)


def write_tns(target: Any, x: Any) -> None:
    """Write the stored entries of an array of one dimension or more, in the order of its storage, with its shape and dtype as comments.

    Values are written so that the same ones are read back. A path that ends in .gz, .bz2 or .xz is packed. FormatError for what the
    file cannot hold: a fill that is not zero, complex values, no dimensions.

    >>> import io, sparsejax as sj
    >>> file = io.BytesIO()
    >>> write_tns(file, sj.array([[0, 2], [3, 0]], format="csr"))
    >>> print(file.getvalue().decode(), end="")
    # shape: 2 2
    # dtype: int64
    1 2 2
    2 1 3
    """
    storage = written(x, "a .tns file")
    if storage.dtype.kind == "c":
        raise FormatError("values of .tns files are real; write the real and the imaginary part, or use save_npz")
    if not storage.ndim:
        raise FormatError("a .tns file holds tensors of one dimension or more; use save_npz")
    if storage.format.is_dense:
        storage = convert.convert(storage, Format.parse("coo", storage.ndim))
    columns, vals = storage.expand()
    with created(target) as file:
        file.write(f"# shape: {' '.join(map(str, storage.shape))}\n# dtype: {storage.dtype}\n".encode())
        for start in range(0, len(vals), ROWS):
            part = slice(start, start + ROWS)
            numbers = vals[part].astype(np.int8) if vals.dtype == np.bool_ else vals[part]
            texts = [(c[part].astype(np.int64) + 1).tolist() for c in columns]
            values = [str(v) for v in numbers] if numbers.dtype == np.float32 else map(repr, numbers.tolist())
            rows = zip(*(map(str, column) for column in texts), values, strict=True)
            file.write(("\n".join(map(" ".join, rows)) + "\n").encode())


def _rank(line: str) -> int:
    rank = len(line.split()) - 1
    if not 1 <= rank <= MAX_RANK:
        raise FormatError(
            f"the first line has {rank + 1} numbers; it must have coordinates (1 to {MAX_RANK}) and a value"
        )
    return rank


def _said(notes: list[str]) -> dict[str, list[str]]:
    """What comments say of shape and dtype."""
    made = {}
    for note in notes[:100]:
        key, colon, rest = note.strip("# \t\r").partition(":")
        if colon and key in ("shape", "dtype"):
            made[key] = rest.split()
    return made


def _kind(said: dict[str, list[str]]) -> np.dtype[Any]:
    names = said.get("dtype", ["float64"])
    if len(names) != 1 or names[0] not in dtypes.SHORT_NAMES:
        raise FormatError(
            f"the file gives its dtype as {' '.join(names)!r}, which is none of {', '.join(dtypes.SHORT_NAMES)}"
        )
    return np.dtype(names[0])


def _places(part: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
    """Coordinates of an axis, counted from 0. The smallest number there is would wrap around; it stays what it is, out of bounds."""
    column = part["index"][:, axis]
    made: np.ndarray[Any, Any] = np.subtract(column, 1, where=column > np.iinfo(np.int64).min, out=column.copy())
    return made


def _extents(said: dict[str, list[str]], found: list[np.ndarray[Any, Any]]) -> tuple[int, ...]:
    if "shape" in said:
        return shape_of(int(n) for n in said["shape"])
    if not found:
        raise FormatError("the file has no entries, and does not say its shape; pass shape=")
    return shape_of(np.max([part["index"].max(axis=0) for part in found], axis=0).clip(0).tolist())
