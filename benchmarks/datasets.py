"""Real matrices, graphs and tensors, read from `$SPARSEJAX_DATA` or `../shared/data` beside the project.

Nothing is copied or downloaded; `folder()` is None when the data is absent, and callers skip.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import scipy.io
import scipy.sparse as sp


def folder() -> Path | None:
    """The data folder, or None."""
    root = Path(os.environ.get("SPARSEJAX_DATA", Path(__file__).resolve().parents[1] / ".." / "shared" / "data"))
    return root.resolve() if root.is_dir() else None


def matrix_names() -> list[str]:
    """Every real matrix and graph, by name, smallest file first."""
    root = folder()
    if root is None:
        return []
    files = [*root.glob("matrices/*.mtx.gz"), *root.glob("graphs/*.npz"), *root.glob("graphs/*.txt.gz")]
    files += root.glob("planetoid/*.npz")
    return [f.name.split(".")[0] for f in sorted(files, key=lambda f: (f.stat().st_size, f.name))]


def matrix(name: str) -> sp.csr_array:
    """A real matrix by name, as canonical csr."""
    root = folder()
    if root is None:
        raise FileNotFoundError("the data folder is absent; set SPARSEJAX_DATA")
    for path in sorted(root.glob(f"*/{name}.*")):
        if path.name.endswith(".mtx.gz"):
            made = sp.csr_array(scipy.io.mmread(path))
        elif path.suffix == ".npz":
            made = _from_npz(path)
        elif path.name.endswith(".txt.gz"):
            edges = np.loadtxt(path, dtype=np.int64, comments="#")
            n = int(edges.max()) + 1
            made = sp.csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
        else:
            continue
        made.sum_duplicates()
        return made
    raise FileNotFoundError(f"no matrix called {name!r} in the data folder")


def _from_npz(path: Path, prefix: str | None = None) -> sp.csr_array:
    with np.load(path, allow_pickle=False) as data:
        head = prefix if prefix is not None else ("adj_" if "adj_indptr" in data else "")
        indices, indptr = data[head + "indices"], data[head + "indptr"]
        values = data[head + "data"] if head + "data" in data else np.ones(len(indices))
        return sp.csr_array((values, indices, indptr), shape=tuple(int(n) for n in data[head + "shape"]))


def planetoid(path: str | os.PathLike[str]) -> dict[str, object]:
    """A node classification data set: adjacency, features, labels, and the indices of the splits."""
    with np.load(path, allow_pickle=False) as data:
        splits = {k: data[k] for k in ("labels", "train_idx", "val_idx", "test_idx")}
    return {"adjacency": _from_npz(Path(path), "adj_"), "features": _from_npz(Path(path), "feat_"), **splits}


def tensor_names() -> list[str]:
    """Every real tensor, by name."""
    root = folder()
    return [] if root is None else sorted(f.name.split(".")[0] for f in root.glob("tensors/*.tns.gz"))


def tensor(name: str) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """A real tensor: coordinates (ndim, n), values and shape."""
    root = folder()
    if root is None:
        raise FileNotFoundError("the data folder is absent; set SPARSEJAX_DATA")
    with gzip.open(root / "tensors" / f"{name}.tns.gz", "rt") as file:
        rows = np.loadtxt(file, comments="#", ndmin=2)
    coords = rows[:, :-1].astype(np.int64).T - 1
    return coords, rows[:, -1], tuple(int(c.max()) + 1 for c in coords)
