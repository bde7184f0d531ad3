"""A sparse convolution of a point cloud: the map of neighbours from a sparse array of numbers of voxels, and one indirect einsum over it.

    python examples/insum_pointcloud.py --quick                                        a small surface
    OMP_NUM_THREADS=1 python examples/insum_pointcloud.py                              a wavy surface
    OMP_NUM_THREADS=1 python examples/insum_pointcloud.py --data PATH/room_scan1.npz   points of an npz file (`xyz`), in voxels of 5 cm (--voxel)

V holds the number of every occupied voxel at its place, and stores nothing else. N = V[X, Y, Z] reads it at the 27 places around every voxel: a sparse array of
numbers, which as an index array visits only what it stores. Map and convolution are compared with the same in NumPy (a sorted search; then for each
of the 27 places a gather, a product and a sum), by processor time of all threads, medians of runs in turn. Exit code 1 if the maps differ, or results by more
than 1e-5 of the largest value.

Layers: Choy, Gwak and Savarese, "4D Spatio-Temporal ConvNets: Minkowski Convolutional Neural Networks", 2019.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp

CONVOLUTION = "Out[x,m] += In[N[x,z],c] * W[z,c,m]"
OFFSETS = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(27, 3)
VOXELS = {
    "kinect_pair_0001": 0.02,
    "region_growing_rgb": 0.02,
    "milk_scene": 0.01,
    "mOSD": 0.005,
    "isprs": 2.0,
}  # edges of voxels for clouds whose names begin so, in their units; 0.05 for others


def surface(count: int, rng: np.random.Generator) -> np.ndarray:
    """Points on a wavy surface over a square, (count, 3), with voxels of edge 0.05 in mind."""
    x, y = rng.random((2, count)) * np.sqrt(count) / 30
    return np.stack([x, y, 0.3 * np.sin(3 * x) * np.cos(2 * y) + 1], 1)


def occupied(points: np.ndarray, edge: float) -> np.ndarray:
    """The voxels in which points lie, (voxels, 3), sorted; all places begin at 1, so that each has 26 neighbours."""
    return np.unique(np.floor((points - points.min(0)) / edge).astype(np.int64), axis=0) + 1


def around(voxels: np.ndarray) -> tuple[np.ndarray, ...]:
    """The 27 places around every voxel: X, Y and Z of shape (voxels, 27)."""
    return tuple(np.ascontiguousarray(voxels[:, axis, None] + OFFSETS[:, axis]) for axis in range(3))


def numbers(voxels: np.ndarray) -> Any:
    """A sparse array that holds the number of every occupied voxel at its place."""
    shape = tuple(int(n) + 2 for n in voxels.max(0))
    return sj.array((np.arange(len(voxels)), voxels.T), shape=shape, format="csf")


@sj.jit
def neighbours(V: Any, X: Any, Y: Any, Z: Any) -> Any:
    """The numbers of the occupied voxels around every voxel, (voxels, 27), sparse."""
    return V[X, Y, Z]


@sj.jit
def convolution(N: Any, In: Any, W: Any) -> Any:
    """In (voxels, c) with weights W (27, c, m)."""
    return sj.insum(CONVOLUTION, Out=snp.zeros((In.shape[0], W.shape[2]), In.dtype), N=N, In=In, W=W)


def searched(voxels: np.ndarray) -> np.ndarray:
    """The map in NumPy: numbers of voxels, (voxels, 27), -1 where none is occupied."""
    extent = voxels.max(0) + 2
    key = np.ravel_multi_index(tuple(voxels.T), tuple(extent))
    wanted = np.ravel_multi_index(around(voxels), tuple(extent))
    found = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    return np.where(key[found] == wanted, found, -1)


def by_places(found: np.ndarray, In: np.ndarray, W: np.ndarray) -> np.ndarray:
    """The convolution in NumPy, one place after the other."""
    out = np.zeros((len(In), W.shape[2]), In.dtype)
    for place in range(27):
        rows = np.flatnonzero(found[:, place] >= 0)
        out[rows] += In[found[rows, place]] @ W[place]
    return out


def medians(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Processor seconds of each, medians of runs in turn."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            started = time.process_time()
            run()
            taken[name].append(time.process_time() - started)
    return {name: statistics.median(times) for name, times in taken.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="an npz file with points, `xyz`")
    parser.add_argument("--voxel", type=float, help="the edge of a voxel")
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--quick", action="store_true", help="500 points, 8 channels")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    if options.data:
        points, name = np.load(options.data, allow_pickle=False)["xyz"], Path(options.data).stem
    else:
        points, name = surface(500 if options.quick else 100_000, rng), ""
    edge = options.voxel or next((edge for start, edge in VOXELS.items() if name.startswith(start)), 0.05)
    voxels, channels = occupied(points, edge), 8 if options.quick else options.channels
    In = rng.standard_normal((len(voxels), channels), np.float32)
    W = rng.standard_normal((27, channels, channels), np.float32)
    V, places = numbers(voxels), tuple(sj.array(x) for x in around(voxels))
    N, found = neighbours(V, *places), searched(voxels)
    rows, columns = N.coords
    same = np.array_equal(np.stack([rows, columns]), np.stack(np.nonzero(found >= 0)))
    same = same and np.array_equal(N.data, found[found >= 0])
    expected = by_places(found, In, W)
    worst = float(np.abs(convolution(N, In, W).todense() - expected).max() / np.abs(expected).max())
    runs = {
        "map": lambda: neighbours(numbers(voxels), *around(voxels)),
        "map, NumPy": lambda: searched(voxels),
        "convolution": lambda: convolution(N, In, W),
        "convolution, NumPy": lambda: by_places(found, In, W),
    }
    print(
        f"{len(points):,} points in {len(voxels):,} voxels of {edge}, {N.nnz:,} pairs of neighbours; {channels} channels"
    )
    for label, seconds in medians(runs, 3 if options.quick else 11).items():
        print(f"{label:20} {1e3 * seconds:8.2f} ms")
    print(
        f"In[N] is not made: {N.nnz * channels * 4 / 1e6:.1f} MB, {N.size * channels * 4 / 1e6:.1f} MB with places that are empty"
    )
    if os.environ.get("OMP_NUM_THREADS") != "1":
        print(
            "processor time of all threads: those of NumPy's BLAS that wait count too; OMP_NUM_THREADS=1 for one thread"
        )
    print(f"maps are {'equal' if same else 'NOT EQUAL'}; largest difference to NumPy {worst:.1e} of the largest value")
    return 0 if same and worst < 1e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
