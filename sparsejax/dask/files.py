"""Shards as files: a folder with a file per block, or files that are there, read by the tasks that need them.

    shards.json     {"layout": 2, "store", "aval", "cuts", "counts", "name"}
    0-1.npz         block (0, 1), as `sparsejax.save_npz` writes it; 0-1.zarr or 0-1.h5 as `sparsejax.io.write_binsparse` does

What is read from files can be read again, so that workers may be lost, and no block is held before it is needed, or written where Dask makes room (`backed`).
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.digest import digest
from sparsejax.dask import backed
from sparsejax.dask.cuts import aligned, cuts_for
from sparsejax.dask.sharded import Sharded, part
from sparsejax.export import layout
from sparsejax.formats import Format
from sparsejax.io.binsparse import write_binsparse
from sparsejax.io.npz import outline_npz, save_npz
from sparsejax.numpy.making import asarray
from sparsejax.optional import optional

LAYOUT = 2
STORES = ("npz", "zarr", "h5")
"""What blocks are written as: NumPy's archives, or binsparse in zarr or HDF5."""


def save_shards(
    folder: Any, A: Any, rows: Any = None, cols: Any = None, *, store: str = "npz", compressed: bool = False
) -> Sharded:
    """Write an array into a folder, cut as `shard` cuts it, and open it there. FileExistsError where the folder holds shards already.

    A `Sharded` is written as it is cut, each block by a task. `store` is "npz", or binsparse in "zarr" or "h5" (`sparsejax[files]`), which other
    programs read. `compressed` packs npz and h5.
    """
    if store not in STORES:
        raise ValueError(f"store={store!r} is not one of {', '.join(STORES)}")
    if isinstance(A, Sharded) and (rows is not None or cols is not None):
        raise ValueError("a Sharded is written as it is cut; leave out rows and cols")
    path = Path(folder).absolute()
    path.mkdir(parents=True, exist_ok=True)
    if (path / "shards.json").exists():
        raise FileExistsError(f"{path} holds shards already; remove them or take another folder")
    if isinstance(A, Sharded):
        spec, dask = optional("dask.task_spec", "dask"), optional("dask", "dask")
        graph, keys = dict(A._graph), []
        for place in A.blocks():
            key = (f"write-{A.name}", *place)
            graph[key] = spec.Task(key, _write, str(path), place, spec.TaskRef((A.name, *place)), store, compressed)
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
            counts[place] = _write(str(path), place, block, store, compressed)
    about = {
        "layout": LAYOUT,
        "store": store,
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
    graph = {
        (name, *place): spec.Task(
            (name, *place), backed.read, str(_file(str(path), place, about["store"])), str(aval.format)
        )
        for place in made.blocks()
    }
    return Sharded(aval, cuts, name, graph, made.counts)


def open_files(files: Iterable[Any], *, format: Any = None) -> Sharded:
    """One array of which every file holds some rows (coordinates of the first dimension), in order: .npz of ours or SciPy's, binsparse in .zarr or .h5.

    A task asks each file for its type (most .npz files tell it by their headers), and the tasks that need it read it. ValueError for files whose dtypes, fills
    or other dimensions differ. `format` is that of all blocks: the first file's, unless given.
    """
    paths = [Path(f).absolute() for f in files]
    if not paths:
        raise ValueError("files is empty; one array of one file or more is opened")
    spec, base = optional("dask.task_spec", "dask"), optional("dask.base", "dask")
    stats = [(str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in paths]
    token = base.tokenize(stats, str(format))
    keys = [(f"type-{token}", k) for k in range(len(paths))]
    tasks = {key: spec.Task(key, _type, str(p)) for key, p in zip(keys, paths, strict=True)}
    found = base.compute_as_if_collection(Sharded, tasks, keys)
    avals = [layout.decode_aval(told) for told, _ in found]
    first = avals[0]
    if not first.ndim:
        raise ValueError(f"{paths[0]} holds a number, not rows of an array")
    for path, aval in zip(paths, avals, strict=True):
        told, wanted = ((a.dtype, a.fill_value, a.shape[1:]) for a in (aval, first))
        if repr(told) != repr(wanted):
            raise ValueError(
                f"{path} has dtype, fill and columns {told}, but {paths[0]} has {wanted}; they must be equal"
            )
    form = first.format if format is None else Format.parse(format, first.ndim)
    rows = [a.shape[0] for a in avals]
    kept = [k for k, n in enumerate(rows) if n] or [0]
    cut = (0, *itertools.accumulate(rows[k] for k in kept))
    if not aligned(cut, form.blocks[0]):
        raise ValueError(
            f"files have {rows} rows, but format {form} has blocks of {form.blocks[0]} rows, which two files would share; pass another format"
        )
    whole = Aval((cut[-1], *first.shape[1:]), first.dtype, form, first.fill_value)
    name = f"files-{token}"
    rest = (0,) * (first.ndim - 1)
    graph = {
        (name, n, *rest): spec.Task((name, n, *rest), backed.read, str(paths[k]), str(form)) for n, k in enumerate(kept)
    }
    counts = np.array([found[k][1] for k in kept], np.int64).reshape(len(kept), *(1 for _ in rest))
    return Sharded(whole, (cut, *((0, n) for n in first.shape[1:])), name, graph, counts)


def _file(folder: str, place: tuple[int, ...], store: str) -> Path:
    return Path(folder) / ("-".join(map(str, place)) + f".{store}")


def _write(folder: str, place: tuple[int, ...], block: Any, store: str, compressed: bool) -> int:
    """Written under another name first, so that a file is whole or is not there."""
    target = _file(folder, place, store)
    unfinished = target.with_suffix(f".part.{store}")
    if store == "npz":
        save_npz(unfinished, block, compressed=compressed)
    else:
        if unfinished.exists():  # of a worker that was lost
            shutil.rmtree(unfinished) if unfinished.is_dir() else unfinished.unlink()
        write_binsparse(unfinished, block, compressed=compressed)
    if target.is_dir():
        shutil.rmtree(target)
    unfinished.replace(target)
    return int(block.nnz)


def _type(path: str) -> tuple[Any, int]:
    """The type of the array in a file, as JSON, and how many entries it stores: of most .npz files by their headers."""
    found = outline_npz(path) if path.endswith(".npz") else None
    if found is None:
        made = backed.load(path)
        found = made.aval, int(made.nnz)
    return layout.encode_aval(found[0].strong()), found[1]
