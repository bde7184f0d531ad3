"""Blocks that files hold: where memory is short, Dask lets go of them and reads them again; it does not write them to its disk.

    task reads a file        read(path, format)       remembers which file its array is of
    Dask spills the array    the path and the file's time and size, in place of the buffers
    Dask needs it again      read(path, format); an error where the file is another by now

Between processes arrays travel as ever: another may not see the file.
"""

from __future__ import annotations

import os
import sys
import weakref
from pathlib import Path
from typing import Any

from sparsejax.core.array import Array
from sparsejax.formats import Format
from sparsejax.io.binsparse import read_binsparse
from sparsejax.io.npz import load_npz
from sparsejax.lax.structural import convert_format
from sparsejax.optional import optional

Mark = tuple[int, int]
"""The time and the size of a file."""
_files: dict[int, tuple[str, Mark]] = {}
"""The files of arrays that are there, by their identity."""
_registered = False


def load(path: str) -> Any:
    """The array in a file."""
    return load_npz(path) if path.endswith(".npz") else read_binsparse(path)


def read(path: str, format: str) -> Any:
    """The array in a file, in a format, remembered as the file's."""
    mark = _mark(path)
    made = load(path)
    if str(made.format) != format:
        made = convert_format(made, Format.parse(format, made.ndim))
    if _registers():
        _files[id(made)] = path, mark
        weakref.finalize(made, _files.pop, id(made), None).atexit = False
    return made


def _mark(path: str) -> Mark:
    found = os.stat(path)
    newest = found.st_mtime_ns
    if Path(path).is_dir():  # zarr: a folder of files
        newest = max((p.stat().st_mtime_ns for p in Path(path).rglob("*")), default=newest)
    return newest, found.st_size


def _registers() -> bool:
    """Whether Dask's workers are imported here; they know of files from then on."""
    global _registered
    if not _registered and "distributed" in sys.modules:
        protocol = optional("distributed.protocol", "dask")
        protocol.register_serialization(Array, _spilled, _unspilled)
        _registered = True
    return _registered


def _spilled(x: Array, context: Any = None) -> tuple[Any, list[Any]]:
    """Where the array is read again. NotImplementedError, so that it is pickled, for what travels (Dask says to whom) and what no file holds."""
    found = _files.get(id(x)) if context is None else None
    if found is None:
        raise NotImplementedError
    return {"path": found[0], "mark": list(found[1]), "format": str(x.format)}, []


def _unspilled(header: Any, frames: list[Any]) -> Any:
    path = header["path"]
    if _mark(path) != tuple(header["mark"]):
        raise RuntimeError(f"{path} was changed while a program read it; run the program again")
    return read(path, header["format"])
