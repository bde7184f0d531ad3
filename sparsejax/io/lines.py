"""Text files of numbers, a block of lines at a time: plain or compressed (gzip, bzip2, xz), whatever their names say."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats.levels.segments import Array
from sparsejax.io.reading import Budget
from sparsejax.optional import optional

BLOCK = 1 << 24
"""Bytes that are parsed at a time, and the length that no line may exceed."""

MANY_LINES = 10**6
"""From here on, progress is shown."""

_MAGIC = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


@contextlib.contextmanager
def opened(source: Any) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """(bytes of the text, the file as it is stored) of a path, or of a binary file that is open and can seek.

    The first is unpacked where the file begins as gzip, bzip2 or xz files do. A file that was open stays open.
    """
    with contextlib.ExitStack() as stack:
        given = isinstance(source, str | os.PathLike)
        raw = stack.enter_context(open(source, "rb")) if given else source
        start = raw.tell()
        head = raw.read(6)
        if not isinstance(head, bytes):
            raise TypeError("the file is open as text; open it in binary mode, 'rb'")
        raw.seek(start)
        for magic, unpack in _MAGIC.items():
            if head.startswith(magic):
                yield stack.enter_context(unpack(raw, "rb")), raw  # type: ignore[operator]
                return
        yield raw, raw


@contextlib.contextmanager
def created(target: Any) -> Iterator[BinaryIO]:
    """A binary file to write text to; packed where the path ends in .gz, .bz2 or .xz. Packed files hold no date: equal arrays make
    equal files."""
    if not isinstance(target, str | os.PathLike):
        if not hasattr(target, "write"):
            raise TypeError(f"target is of type {type(target).__name__}; it must be a path or an open binary file")
        yield target
        return
    name = os.fspath(target)
    with contextlib.ExitStack() as stack:
        raw: Any = stack.enter_context(open(name, "wb"))
        if name.endswith(".gz"):
            raw = stack.enter_context(gzip.GzipFile("", "wb", fileobj=raw, mtime=0))
        elif name.endswith((".bz2", ".xz")):
            raw = stack.enter_context((bz2.open if name.endswith(".bz2") else lzma.open)(raw, "wb"))
        yield raw


def blocks(source: Any, comments: str, budget: Budget, progress: bool | None) -> Iterator[tuple[list[str], list[str]]]:
    """(lines with data, lines that are comments) of a text file, a block at a time. A comment begins with one of `comments`.

    The text is charged to `budget` while its block is held, and in all to 64 times as much. `progress` shows a bar of tqdm: always, never, or
    (None) from a million lines on, where tqdm is installed.
    """
    total = 0
    with opened(source) as (text, stored), _Bar(stored, progress) as bar:
        rest = b""
        while True:
            block = text.read(BLOCK)
            total += len(block)
            if total > 64 * budget.limit:
                raise FormatError(
                    f"the text has more than {64 * budget.limit} bytes; raise max_bytes if you trust the file"
                )
            if len(rest) + len(block) > 2 * BLOCK:
                raise FormatError(f"a line of the text has more than {BLOCK} bytes")
            whole, newline, rest = (rest + block).rpartition(b"\n") if block else (rest, b"", b"")
            data, notes = _sorted_out(whole, comments)
            if data or notes:
                yield data, notes
            bar.update(len(data))
            if not block:
                return
            if not newline:
                whole, rest = b"", whole + rest


def _sorted_out(text: bytes, comments: str) -> tuple[list[str], list[str]]:
    lines = text.decode("utf-8", "replace").split("\n")
    data = [line for line in lines if line and not line.isspace()]
    if not any(mark in text for mark in comments.encode()):
        return data, []
    marks = tuple(comments)
    notes = [line for line in data if line.lstrip().startswith(marks)]
    return [line for line in data if not line.lstrip().startswith(marks)], notes


class _Bar:
    """How much of a file has been read."""

    def __init__(self, stored: Any, progress: bool | None) -> None:
        self.stored, self.progress = stored, progress
        self.lines, self.bar = 0, None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def update(self, lines: int) -> None:
        self.lines += lines
        if self.progress is False or (self.progress is None and self.lines < MANY_LINES):
            return
        if self.bar is None:
            self.bar = self._made()
        if self.bar is not None:
            self.bar.update(self.stored.tell() - self.bar.n)

    def _made(self) -> Any:
        try:
            tqdm = optional("tqdm", "files").tqdm
        except ImportError:
            if self.progress:
                raise
            self.progress = False
            return None
        here = self.stored.tell()
        size = self.stored.seek(0, os.SEEK_END)
        self.stored.seek(here)
        return tqdm(total=size, unit="B", unit_scale=True, desc="reading")


def table(lines: Sequence[str], columns: int, dtype: np.dtype[Any] | None, delimiter: str | None, before: int) -> Array:
    """Rows of `columns` integers, field "index", and, unless `dtype` is None, of a number of that dtype, field "value", which lines of
    text hold.

    FormatError for a line with other columns, or other things than numbers; by NumPy's parser. `before` lines were read before these.
    """
    fields: list[Any] = [("index", np.int64, (columns,))]
    if dtype is not None:
        fields.append(("value", dtype))
    try:
        return np.loadtxt(lines, np.dtype(fields), comments=None, delimiter=delimiter, ndmin=1)
    except ValueError as error:
        where = f" (rows are counted from entry {before} of the file)" if before else ""
        raise FormatError(f"{error}{where}") from None
