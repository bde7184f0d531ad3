"""What all readers share: a file is not trusted. Sizes are checked before memory is taken, and every fault is a FormatError.

A file says how large its arrays are, and lies for free. So nothing is allocated that the file could not fill: a claim is compared with the
bytes that are there (times what its compression can make of them) and with a budget in bytes, the machine's memory unless the caller
gives less.
"""

from __future__ import annotations

import contextlib
import lzma
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest, structural
from sparsejax.formats.levels.bitmap import Bitmap
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.levels.grouped import Grouped
from sparsejax.formats.storage import Storage
from sparsejax.formats.validate import checked_shape

MAX_RANK = 64
"""Files with arrays of more dimensions are refused; NumPy has no more either."""

DEFLATE_RATIO = 1032
"""Bytes that one byte of a deflated stream can become at most."""

SLACK = 4096
"""Bytes that may be claimed whatever there is."""


class Budget:
    """How many bytes reading a file may still take."""

    def __init__(self, max_bytes: int | None) -> None:
        self.limit = physical_memory() if max_bytes is None else int(max_bytes)
        self.taken = 0

    def take(self, nbytes: int, what: str) -> None:
        """FormatError where `nbytes` more are too many; `what` would take them."""
        self.taken += nbytes
        if self.taken > self.limit:
            raise FormatError(
                f"{what} would take {nbytes} bytes, and all of the file {self.taken}, more than max_bytes={self.limit}; "
                "raise max_bytes if you trust the file"
            )

    def claim(self, nbytes: int, stored: int, ratio: int, what: str) -> None:
        """As `take`, of what `stored` bytes of the file hold, each of which stands for at most `ratio` bytes."""
        if nbytes > stored * ratio + SLACK:
            raise FormatError(f"{what} claims {nbytes} bytes, which the {stored} bytes stored of it cannot hold")
        self.take(nbytes, what)


def physical_memory() -> int:
    """Bytes of memory of this machine; 16 GiB where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 16 << 30


def name_of(source: Any) -> str:
    """What to call a file in errors: its path, or the name that an open file has."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else type(source).__name__


_FAULTS = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError, ValueError,
    lzma.LZMAError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


@contextlib.contextmanager
def reading(source: Any) -> Iterator[None]:
    """FormatError, naming the file, for whatever libraries raise on its content. Errors of the file system (no such file, no
    permission) stay OSErrors; what is no file at all is a TypeError."""
    if not isinstance(source, str | os.PathLike) and not hasattr(source, "read") and not hasattr(source, "attrs"):
        raise TypeError(f"source is of type {type(source).__name__}; it must be a path or an open binary file")
    try:
        yield
    except FormatError as error:
        raise FormatError(f"{name_of(source)}: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise FormatError(f"{name_of(source)}: {error}") from error
    except _FAULTS as error:
        what = str(error) or type(error).__name__
        raise FormatError(f"{name_of(source)}: {what}") from error


def shape_of(numbers: Any, ndim: int | None = None) -> tuple[int, ...]:
    """A shape as a file gives it; FormatError unless it has `ndim` extents, and not too many."""
    numbers = list(numbers)
    if len(numbers) > MAX_RANK:
        raise FormatError(f"the file claims {len(numbers)} dimensions; at most {MAX_RANK} are read")
    shape = checked_shape(numbers)
    if ndim is not None and len(shape) != ndim:
        raise FormatError(f"the file has a shape of {len(shape)} dimensions, {shape}, where {ndim} are needed")
    return shape


def format_bytes(form: Format, shape: Sequence[int], entries: int, itemsize: int) -> int:
    """Bytes that `entries` entries may take at most in format `form`, from the extents of its levels alone.

    >>> format_bytes(Format.parse("csr", 2), (10**9, 5), 3, 8)  # a row pointer of 8 bytes for each row
    8000000120
    """
    positions, total = 1, 0
    for level, extent in zip(form.levels, form.level_extents(shape), strict=True):
        if isinstance(level, Dense):
            positions *= extent
        elif isinstance(level, Bitmap):
            total += positions * -(-extent // 64) * 8
            positions *= extent
        elif isinstance(level, Grouped):  # groups are padded
            slots = min(level.g * entries, entries + (level.g - 1) * positions)
            total += 16 * (positions + 1) + 8 * slots
            positions = slots
        else:  # ends of a segment of every position above; a coordinate of every entry
            total += 16 * (positions + 1) + 8 * entries if not level.compact else 8 * (positions + 1) + 8 * entries
            positions = min(positions * extent, entries)
    return total + itemsize * max(positions, entries) + 64


def finished(storage: Storage, format: str | Format | None, dtype: Any, budget: Budget) -> Array:
    """The array of what was read, in the format and dtype that the caller wants."""
    if dtype is not None:
        storage = ingest.astype(storage, dtypes.canonical(dtype))
    if format is not None:
        form = Format.parse(format, storage.ndim)
        if form != storage.format:
            check_fits(form, storage.shape, storage.nnz, storage.dtype.itemsize, budget)
            storage = convert.convert(storage, form)
            storage = structural.refill(storage, 0) if form.is_dense else storage
    return Array(storage)


def check_fits(form: Format, shape: tuple[int, ...], entries: int, itemsize: int, budget: Budget) -> None:
    """FormatError where an array of `shape` would take more than the budget in format `form`."""
    budget.take(format_bytes(form, shape, entries, itemsize), f"an array of shape {shape} in format {form}")


def written(x: Any, what: str, zero_fill: bool = True, ndim: int | None = None) -> Storage:
    """The storage of an array that is to be written; FormatError where the file kind called `what` cannot hold it.

    Anything that `sparsejax.array` takes will do.
    """
    storage = x._storage if isinstance(x, Array) else ingest.as_storage(x)
    storage = storage.exposed()
    if ndim is not None and storage.ndim != ndim:
        raise FormatError(f"{what} holds arrays of {ndim} dimensions, and this one has {storage.ndim}; use save_npz")
    if zero_fill and not structural.same_bits(storage.fill_value, storage.dtype.type(0)):
        raise FormatError(
            f"{what} has no place for the fill {storage.fill_value}: what it does not store is zero; use save_npz"
        )
    return storage


def size_of(shape: Sequence[int]) -> int:
    """The number of elements of an array, in Python's integers."""
    return math.prod(int(n) for n in shape)
