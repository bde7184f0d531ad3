"""Shards as files: a folder with a file per block, read by the tasks that need them.

    shards.json     {"layout": 1, "shape", "cuts", "dtype", "format", "fill", "counts", "name"}
    0-1.npz         block (0, 1), as `sparsejax.save_npz` writes it

What is read from files can be read again, so that workers may be lost, and no block is held before it is needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.digest import digest
from sparsejax.dask.cuts import cuts_for
from sparsejax.dask.sharded import Sharded, part
from sparsejax.export import layout
from sparsejax.io.npz import load_npz, save_npz
from sparsejax.lax.structural import convert_format
from sparsejax.numpy.functions import asarray
from sparsejax.optional import optional

LAYOUT = 1


def save_shards(folder: Any, A: Any, rows: Any = None, cols: Any = None, *, compressed: bool = False) -> Sharded:
    """Write an array into a folder, cut as `shard` cuts it, and open it there. FileExistsError where the folder holds shards already.

    A `Sharded` is written as it is cut, each block by a task.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if (path / "shards.json").exists():
        raise FileExistsError(f"{path} holds shards already; remove them or take another folder")
    if isinstance(A, Sharded):
        spec, dask = optional("dask.task_spec", "dask"), optional("dask", "dask")
        graph, keys = dict(A.__dask_graph__()), []
        for place in A.blocks():
            key = (f"write-{A.name}", *place)
            graph[key] = spec.Task(key, _write, str(path), place, spec.TaskRef((A.name, *place)), compressed)
            keys.append(key)
        found = dask.base.compute_as_if_collection(Sharded, graph, keys)
        counts = np.array(found, np.int64).reshape(A.grid)
        aval, made, name = A.aval, A.cuts, A.name
    else:
        x = asarray(A)
        aval, made, name = (
            x.aval,
            cuts_for(x._storage, (rows, cols)[: x.ndim] + (None,) * max(0, x.ndim - 2)),
            digest(x._storage),
        )
        counts = np.zeros([len(c) - 1 for c in made], np.int64)
        for place in np.ndindex(*counts.shape):
            block = part(x, [(c[k], c[k + 1]) for c, k in zip(made, place, strict=True)])
            counts[place] = _write(str(path), place, block, compressed)
    about = {
        "layout": LAYOUT,
        "aval": layout.encode_aval(aval.strong()),
        "cuts": [list(c) for c in made],
        "counts": counts.tolist(),
        "name": name,
    }
    (path / "shards.json").write_text(json.dumps(about))
    return open_shards(path)


def open_shards(folder: Any) -> Sharded:
    """The array in a folder of shards: nothing but its description is read before a task asks for a block. ValueError for other layouts."""
    path = Path(folder).absolute()
    about = json.loads((path / "shards.json").read_text())
    if about.get("layout") != LAYOUT:
        raise ValueError(
            f"{path} has shards in layout {about.get('layout')!r}; this version of sparsejax reads layout {LAYOUT}"
        )
    aval = layout.decode_aval(about["aval"])
    cuts = tuple(tuple(int(b) for b in c) for c in about["cuts"])
    spec = optional("dask.task_spec", "dask")
    name = f"read-{optional('dask.base', 'dask').tokenize(str(path), about)}"
    made = Sharded(aval, cuts, name, {}, np.array(about["counts"], np.int64))
    graph = {(name, *place): spec.Task((name, *place), _read, str(path), place, aval) for place in made.blocks()}
    return Sharded(aval, cuts, name, graph, made.counts)


def _file(folder: str, place: tuple[int, ...]) -> Path:
    return Path(folder) / ("-".join(map(str, place)) + ".npz")


def _write(folder: str, place: tuple[int, ...], block: Any, compressed: bool) -> int:
    """Written under another name first, so that a file is whole or is not there."""
    target = _file(folder, place)
    unfinished = target.with_suffix(".part.npz")
    save_npz(unfinished, block, compressed=compressed)
    unfinished.replace(target)
    return int(block.nnz)


def _read(folder: str, place: tuple[int, ...], aval: Aval) -> Any:
    made = load_npz(_file(folder, place))
    return made if made.format == aval.format else convert_format(made, aval.format)
