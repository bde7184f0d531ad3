"""Reading in a process of its own: for files of strangers in kinds whose libraries are written in C.

HDF5's library believes the structure of a file (not what is stored in it, which is checked here): where bytes of that are changed, it can loop
without end. A process can be ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.io.anndata import CellMatrix, read_10x_h5, read_anndata
from sparsejax.io.binsparse import read_binsparse
from sparsejax.io.edgelist import read_edgelist
from sparsejax.io.frostt import read_tns
from sparsejax.io.matrix_market import mmread
from sparsejax.io.npz import load_npz, save_npz

_READERS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (load_npz, mmread, read_10x_h5, read_anndata, read_binsparse, read_edgelist, read_tns)
}


def isolated(reader: Callable[..., Any], path: str | os.PathLike[str], *, seconds: float = 60, **options: Any) -> Any:
    """What `reader(path, **options)` gives, read by a child process: a file that makes a library crash, or takes more than `seconds`,
    is a FormatError.

    `reader` is one of the readers of `sparsejax.io`; `options` are its own, as numbers, texts and tuples of these. Starting a process takes about
    as long as importing this package, and the array is written and read once more on its way here.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "a.tns")
    ...     with open(path, "w") as file:
    ...         _ = file.write("1 2 0.5")
    ...     isolated(read_tns, path).todense()
    array([[0. , 0.5]])
    """
    name = getattr(reader, "__name__", "")
    if _READERS.get(name) is not reader:
        raise TypeError(f"reader must be one of {', '.join(_READERS)} of sparsejax.io")
    with tempfile.TemporaryDirectory() as folder:
        request = {"reader": name, "path": os.fspath(path), "options": options, "folder": folder}
        roots = os.pathsep.join([str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")])
        try:
            done = subprocess.run(
                [sys.executable, "-m", __name__],
                input=json.dumps(request),
                env={**os.environ, "PYTHONPATH": roots.rstrip(os.pathsep)},
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise FormatError(f"{request['path']}: reading took more than {seconds} seconds and was ended") from None
        answer = Path(folder, "answer.json")
        if done.returncode or not answer.exists():
            raise FormatError(
                f"{request['path']}: the reader crashed (exit status {done.returncode}): {done.stderr[-500:]}"
            )
        told = json.loads(answer.read_text())
        if "error" in told:
            raise (FileNotFoundError if told["missing"] else FormatError)(told["error"])
        made = load_npz(Path(folder, "array.npz"))
        return CellMatrix(made, told["cells"], told["features"]) if "cells" in told else made


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Read as asked for, and put the array into the folder."""
    options = {key: tuple(v) if isinstance(v, list) else v for key, v in request["options"].items()}
    try:
        made = _READERS[request["reader"]](request["path"], **options)
    except (FormatError, OSError) as error:
        return {"error": str(error), "missing": isinstance(error, FileNotFoundError)}
    told = {}
    if isinstance(made, CellMatrix):
        told = {"cells": made.cells, "features": made.features}
        made = made.counts
    array: Array = made
    save_npz(Path(request["folder"], "array.npz"), array, compressed=False)
    return told


if __name__ == "__main__":
    asked = json.loads(sys.stdin.read())
    Path(asked["folder"], "answer.json").write_text(json.dumps(_answer(asked)))
