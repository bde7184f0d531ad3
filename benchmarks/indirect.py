"""Indirect einsums and what they stand for, beside NumPy, SciPy and torch: `python -m benchmarks.run --table indirect`.

    blocks    products of block-sparse matrices: bsr, groups of blocks, and `insum` of their arrays
    graphs    products of unstructured matrices with 128 columns: csr, groupcoo, and `insum` of its arrays
    points    convolutions of point clouds over 27 offsets: an index array with a sparse pattern, flat pairs, and one einsum with selections

float32, on one thread, processor time. Results are compared with NumPy's or SciPy's first; everybody runs once a round, in a random order. A cell is
the median, over rounds, of the best peer's time over ours: above one is faster than the best peer.
"""

from __future__ import annotations

import importlib.util
import math
import statistics
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import datasets

Runs = dict[str, Callable[[], Any]]
PARTS = ("blocks", "graphs", "points")
SIZE, COLUMNS = 4096, 128
ROWS = "C[R[p],i,n] += V[p,i,j] * B[K[p],j,n]"
GROUPS = "C[R[p],i,n] += V[p,q,i,j] * B[K[p,q],j,n]"
UNSTRUCTURED = "C[R[p],n] += V[p,q] * B[K[p,q],n]"
CONVOLUTION = "Out[x,m] += In[N[x,z],c] * W[z,c,m]"
PAIRS = "Out[X[p],m] += In[Y[p],c] * W[Z[p],c,m]"
PANELS = "(d,d,c)@(0,1,0)/(1024,1)"
"""An index array in blocks of 1,024 rows, inside of these by offset: the pairs of an offset lie side by side."""
CLOUDS = {
    "room_scan1": 0.05,
    "room_scan2": 0.05,
    "kinect_pair_0001": 0.02,
    "region_growing_rgb": 0.02,
    "milk_scene": 0.01,
    "mOSD_learn13": 0.005,
    "isprs_FSite8": 2.0,
}
"""Clouds with the edges of their voxels."""


@dataclass(frozen=True)
class Case:
    """A row: what ours and the peers run, and what all of them must give."""

    part: str
    name: str
    ours: Runs
    peers: Runs
    expected: Any
    given: Any = ()
    """The operands as SciPy and NumPy have them, where other programs read them too."""


def torch_or_none() -> Any:
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    warnings.filterwarnings("ignore", message="Sparse (CSR|BSR|invariant)", category=UserWarning)
    return torch


def statement(text: str, name: str, shape: tuple[int, ...]) -> Callable[..., Any]:
    """A jitted statement over arrays by name, whose target starts from zeros."""
    return sj.jit(lambda **arrays: sj.insum(text, **{name: snp.zeros(shape, np.float32)}, **arrays))


def blocks(quick: bool, shares: tuple[float, ...] = (0.5, 0.2, 0.05)) -> Iterator[Case]:
    """Every size of block, share of blocks, and number of columns."""
    torch, rng, size = torch_or_none(), np.random.default_rng(0), 512 if quick else SIZE
    for block, stored in [(b, s) for b in (32, 8) for s in shares]:
        kept = rng.random((size // block, size // block)) < stored
        dense = rng.standard_normal((size, size), np.float32) * np.kron(kept, np.ones((block, block), np.float32))
        theirs = sp.bsr_array(dense, blocksize=(block, block))
        A = sj.array(dense, format=f"bsr:{block}x{block}")
        G = A.asformat(f"blockgroupcoo:{block}x{block}:4")
        K, V = sj.array(theirs.indices), sj.array(theirs.data)
        R = sj.array(np.repeat(np.arange(size // block), np.diff(theirs.indptr)))
        grouped = [sj.array(x) for x in sj.formats.to_groupcoo(G)]
        for columns in (128, 512):
            made = rng.standard_normal((size, columns), np.float32)
            B, parts = sj.array(made), sj.array(made.reshape(-1, block, columns))
            product = sj.jit(lambda A, B: A @ B)
            by_rows, by_groups = (statement(t, "C", (size // block, block, columns)) for t in (ROWS, GROUPS))
            ours: Runs = {
                "A @ B": lambda A=A, B=B, f=product: f(A, B),
                "insum": lambda f=by_rows, R=R, K=K, V=V, B=parts: f(R=R, K=K, V=V, B=B),
                "groups": lambda A=G, B=B, f=product: f(A, B),
                "insum, groups": lambda f=by_groups, g=grouped, B=parts: f(R=g[0], K=g[1], V=g[2], B=B),
            }
            peers: Runs = {"numpy": lambda A=dense, B=made: A @ B, "scipy bsr": lambda A=theirs, B=made: A @ B}
            if torch is not None:
                left, right = torch.tensor(dense), torch.tensor(made)
                peers["torch"] = lambda A=left, B=right: A @ B
                in_blocks = left.to_sparse_bsr((block, block))
                peers["torch bsr"] = lambda A=in_blocks, B=right: A @ B
            share = f"{100 * (1 - stored):.0f} %"
            yield Case(
                "blocks",
                f"{block} x {block}, {columns} columns, {share} sparse",
                ours,
                peers,
                dense @ made,
                (theirs, made),
            )


def graphs(quick: bool) -> Iterator[Case]:
    """Every real matrix of 50,000 entries and more."""
    torch, rng = torch_or_none(), np.random.default_rng(0)
    names = ["cora", "astro-ph-cc1"] if quick else datasets.matrix_names()
    for name in names if datasets.folder() is not None else ():
        matrix = datasets.matrix(name)
        if matrix.dtype.kind == "c" or (matrix.nnz < 50_000 and name != "cora"):
            continue
        theirs = sp.csr_array(matrix.astype(np.float32))
        made = rng.standard_normal((theirs.shape[1], COLUMNS), np.float32)
        A, B = sj.array(theirs), sj.array(made)
        G = A.asformat("groupcoo")
        R, K, V = (sj.array(x) for x in sj.formats.to_groupcoo(G))
        product, by_groups = sj.jit(lambda A, B: A @ B), statement(UNSTRUCTURED, "C", (theirs.shape[0], COLUMNS))
        ours: Runs = {
            "A @ B": lambda A=A, B=B, f=product: f(A, B),
            "groupcoo": lambda A=G, B=B, f=product: f(A, B),
            "insum, groups": lambda f=by_groups, R=R, K=K, V=V, B=B: f(R=R, K=K, V=V, B=B),
        }
        peers: Runs = {"scipy": lambda A=theirs, B=made: A @ B}
        if torch is not None:
            left = torch.sparse_csr_tensor(
                *(torch.tensor(x) for x in (theirs.indptr, theirs.indices, theirs.data)), size=theirs.shape
            )
            right = torch.tensor(made)
            peers["torch csr"] = lambda A=left, B=right: A @ B
        yield Case("graphs", name, ours, peers, theirs @ made)


def neighbours(points: np.ndarray, edge: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """For every pair of neighbouring voxels: number, offset, number of the neighbour; and how many voxels there are."""
    voxels = np.unique(np.floor((points - points.min(0)) / edge).astype(np.int64), axis=0) + 1
    offsets = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(27, 3)
    extent = tuple(voxels.max(0) + 2)
    key = np.ravel_multi_index(tuple(voxels.T), extent)
    wanted = np.ravel_multi_index(tuple(np.moveaxis(voxels[:, None] + offsets, -1, 0)), extent)
    found = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    x, z = np.nonzero(key[found] == wanted)
    return x, z, found[x, z], len(voxels)


def points(quick: bool) -> Iterator[Case]:
    """Every cloud, with 32 and 128 channels."""
    torch, rng = torch_or_none(), np.random.default_rng(0)
    folder = datasets.folder()
    for name, edge in dict(list(CLOUDS.items())[:1] if quick else CLOUDS).items() if folder is not None else ():
        cloud = np.load(folder / "pointclouds" / f"{name}.npz", allow_pickle=False)["xyz"]
        x, z, y, count = neighbours(cloud, edge)
        N = sj.array((y, (x, z)), shape=(count, 27))
        S = sj.array((np.ones(len(x), np.float32), (x, z, y)), shape=(count, 27, count), format="csf")
        flat = [sj.array(a) for a in (x, y, z)]
        lists = [(x[z == k], y[z == k]) for k in range(27)]
        for channels in (32, 128):
            In = rng.standard_normal((count, channels), np.float32)
            W = rng.standard_normal((27, channels, channels), np.float32)
            ours_in, in_panels = (sj.array(In), sj.array(W)), N.asformat(PANELS)
            mapped, pairs = (statement(t, "Out", (count, channels)) for t in (CONVOLUTION, PAIRS))
            selected = sj.jit(lambda S, In, W: sj.einsum("xzy,yc,zcm->xm", S, In, W))
            ours: Runs = {
                "insum": lambda f=mapped, N=in_panels, a=ours_in: f(N=N, In=a[0], W=a[1]),
                "insum, coo": lambda f=mapped, N=N, a=ours_in: f(N=N, In=a[0], W=a[1]),
                "flat pairs": lambda f=pairs, p=flat, a=ours_in: f(X=p[0], Y=p[1], Z=p[2], In=a[0], W=a[1]),
                "einsum": lambda f=selected, S=S, a=ours_in: f(S, *a),
            }
            peers: Runs = {"numpy": lambda ls=lists, In=In, W=W: by_offsets(ls, In, W)}
            if torch is not None:
                theirs = [tuple(map(torch.tensor, pair)) for pair in lists]
                given = torch.tensor(In), torch.tensor(W)
                peers["torch"] = lambda t=torch, ls=theirs, given=given: added(t, ls, *given)
            yield Case("points", f"{name}, {channels} channels", ours, peers, by_offsets(lists, In, W))


def by_offsets(lists: list[Any], In: np.ndarray, W: np.ndarray) -> np.ndarray:
    """A gather, a product and a sum for each offset."""
    out = np.zeros((len(In), W.shape[2]), In.dtype)
    for (rows, names), weights in zip(lists, W, strict=True):
        out[rows] += In[names] @ weights
    return out


def added(torch: Any, lists: list[Any], In: Any, W: Any) -> Any:
    """The same in torch."""
    out = torch.zeros(len(In), W.shape[2])
    for (rows, names), weights in zip(lists, W, strict=True):
        out.index_add_(0, rows, In[names] @ weights)
    return out


def compared(case: Case) -> list[str]:
    """Whose result is another one: by more than 1e-4 of the largest value."""
    wrong = []
    for name, run in (case.peers | case.ours).items():
        made = run()
        array = made.todense() if isinstance(made, sj.Array) else np.asarray(made)
        if not abs(array.reshape(case.expected.shape) - case.expected).max() <= 1e-4 * abs(case.expected).max():
            wrong.append(name)
    return wrong


def measured(case: Case, seconds: float) -> dict[str, list[float]]:
    """Processor seconds of all, in rounds of a random order; those of a peer that takes ten times what ours take once."""
    runs, rng = case.ours | case.peers, np.random.default_rng(0)
    first = {name: _taken(run) for name, run in runs.items()}
    slow = {n for n in case.peers if first[n] > 10 * min(first[p] for p in case.peers)}
    left = [name for name in runs if name not in slow]
    rounds = max(5, min(60, int(seconds / sum(first[n] for n in left))))
    times: dict[str, list[float]] = {name: [] for name in left}
    for _ in range(rounds):
        for k in rng.permutation(len(left)):
            times[left[k]].append(_taken(runs[left[k]]))
    return times


def _taken(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def run(options: Namespace) -> int:
    """Print every row, and the least and the geometric mean of each column; 1 where a result of ours was wrong."""
    wanted = [name for name in options.ops.split(",") if name] or list(PARTS)
    cases = {"blocks": blocks, "graphs": graphs, "points": points}
    failed = False
    for part in wanted:
        cells: dict[str, list[float]] = {}
        for case in cases[part](options.quick):
            wrong = compared(case)
            failed |= any(name in wrong for name in case.ours)
            times = measured(case, options.seconds * len(case.ours))
            peers = {
                name: statistics.median(t) for name, t in times.items() if name in case.peers and name not in wrong
            }
            best = min(peers, key=lambda name: peers[name])
            if not cells:
                print(
                    f"\n| {part} | best peer | ms | {' | '.join(case.ours)} |\n|---|---|---{'|---' * len(case.ours)}|"
                )
            found = []
            for name in case.ours:
                ratio = statistics.median(t / o for t, o in zip(times[best], times[name], strict=True))
                cells.setdefault(name, []).append(ratio)
                found.append("wrong" if name in wrong else f"{ratio:.2f}")
            print(f"| {case.name} | {best} | {1e3 * peers[best]:.2f} | {' | '.join(found)} |", flush=True)
        for title, of in (("least", min), ("geometric mean", lambda c: math.exp(statistics.mean(map(math.log, c))))):
            if cells:
                print(f"| **{title}** | | | {' | '.join(f'{of(column):.2f}' for column in cells.values())} |")
    return int(failed)
