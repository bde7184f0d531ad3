"""Programs over operands larger than the memory of all workers: time, and the most memory that a worker took, beside its limit.

    python -m benchmarks.dask_memory                              # two workers of 400 MB, operands of three times both
    python -m benchmarks.dask_memory --only als --store zarr --limit 600

    product     A @ X, with X of 8 columns
    spgemm      A @ B with a sparse B of 2,000 columns, kept on the workers, which spill what does not fit
    gcn         the loss of a layer and the derivatives of its weights, which read A twice
    pagerank    five rounds
    als         a round of alternating least squares for the CP model of a tensor of three dimensions, by MTTKRP

Operands are in files of 20 MB, which tasks read (`sparsejax.dask.open_files`). Four of them are drawn, and the others are links to these, so that results
can be compared with sums over four blocks. The most memory is the peak of each worker's process (VmHWM), reset before a program runs.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import io

DRAWN, BLOCK, WIDTH, ROUNDS, RANK = 4, 20_000_000, 8, 5, 4
ENTRIES = 20
"""Entries of a row."""


def drawn_rows(number: int) -> Any:
    """Some rows of a matrix with BLOCK bytes; it has as many columns as rows in all blocks of one number."""
    rows = BLOCK // (12 * ENTRIES)
    rng = np.random.default_rng(number)
    gaps = rng.integers(1, 2 * rows // ENTRIES, (rows, ENTRIES), dtype=np.int32)
    indices = np.minimum(np.cumsum(gaps, axis=1) - 1, rows - ENTRIES + np.arange(ENTRIES, dtype=np.int32)).astype(
        np.int32
    )
    values = rng.random(rows * ENTRIES) / ENTRIES
    return sj.array(
        sp.csr_array((values, indices.ravel(), np.arange(0, rows * ENTRIES + 1, ENTRIES)), shape=(rows, rows))
    )


def drawn_fibres(number: int) -> Any:
    """A block of a tensor, BLOCK bytes as csf."""
    extents = (200, 1000, 1000)
    rng = np.random.default_rng(number)
    flat = np.unique(rng.integers(0, int(np.prod(extents)), BLOCK // 13))
    return sj.array((rng.random(len(flat)), np.unravel_index(flat, extents)), shape=extents, format="csf")


def stored(folder: Path, make: Callable[[int], Any], blocks: int, store: str) -> list[Path]:
    """Files of blocks, of which DRAWN are drawn."""
    made = []
    for k in range(blocks):
        path = folder / f"{make.__name__}-{k}.{store}"
        if k < DRAWN:
            io.save_npz(path, make(k), compressed=False) if store == "npz" else io.write_binsparse(path, make(k))
        else:
            path.symlink_to(folder / f"{make.__name__}-{k % DRAWN}.{store}")
        made.append(path)
    return made


def gcn(A: Any, X: Any, W: Any) -> Any:
    return sj.value_and_grad(lambda W: (snp.maximum(A @ (X @ W), 0) ** 2).sum())(W)


def ranks(A: Any, x: Any, blocks: int) -> Any:
    """Rounds of a walk from the nodes of all blocks back to those of one: the ranks of a bipartite graph."""
    return sj.lax.fori_loop(0, ROUNDS, lambda k, x: 0.85 * (A.T @ (A @ x)) / blocks + 0.15 / x.shape[0], x)


def als(X: Any, factors: Any) -> Any:
    """A round of alternating least squares."""
    A, B, C = factors
    A = snp.linalg.solve((B.T @ B) * (C.T @ C), sj.einsum("ijk,jr,kr->ir", X, B, C).T).T
    B = snp.linalg.solve((A.T @ A) * (C.T @ C), sj.einsum("ijk,ir,kr->jr", X, A, C).T).T
    C = snp.linalg.solve((A.T @ A) * (B.T @ B), sj.einsum("ijk,ir,jr->kr", X, A, B).T).T
    return A, B, C


def memory(field: str) -> int:
    """Megabytes of this process, as the system counts."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1000 for line in file if line.startswith(field))


def reset() -> None:
    """Forget the peak."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def spilled(dask_worker: Any) -> float:
    """Megabytes that a worker has written to its disk so far."""
    written = getattr(dask_worker.data, "cumulative_metrics", {})
    return sum(v for k, v in written.items() if k[0] == "disk-write" and k[-1] == "bytes") / 1e6


def measured(client: Any, run: Callable[[], Any], check: Callable[[Any], None]) -> tuple[float, int, int, float]:
    import dask
    import distributed

    client.run(reset)
    before = max(client.run(memory, "VmRSS").values())
    start = time.perf_counter()
    lazy = run()
    kept = dask.persist(*sj.tree_util.tree_leaves(lazy, is_leaf=lambda x: hasattr(x, "__dask_graph__")))
    distributed.wait(kept)
    spent = time.perf_counter() - start
    peak, slow = max(client.run(memory, "VmHWM").values()), sum(client.run(spilled).values())
    check(kept)
    return spent, before, peak, slow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=400, help="megabytes of each worker")
    parser.add_argument("--times", type=float, default=3.0, help="operands, in times the limit of both workers")
    parser.add_argument("--store", default="npz", choices=("npz", "zarr", "h5"))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    import distributed

    import sparsejax.dask as sd

    folder = Path(args.folder or tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    blocks = -(-int(args.times * 2 * args.limit * 1_000_000) // BLOCK)
    rng = np.random.default_rng(9)
    names = args.only or ["product", "spgemm", "gcn", "pagerank", "als"]
    matrix = [n for n in names if n != "als"]
    rows = stored(folder, drawn_rows, blocks, args.store) if matrix else []
    fibres = stored(folder, drawn_fibres, blocks, args.store) if "als" in names else []
    parts = [drawn_rows(k).to_scipy() for k in range(DRAWN)] if matrix else []
    n = parts[0].shape[0] if parts else 0
    print(f"{blocks} blocks of {BLOCK // 1_000_000} MB in .{args.store}, two workers of {args.limit} MB")
    print(
        "| program | operand, MB | limit, MB | peak of a worker, MB | before, MB | spilled, MB | s |\n|---|---|---|---|---|---|---|"
    )
    for name in names:
        with (
            distributed.LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                memory_limit=f"{args.limit}MB",
                dashboard_address=":0",
                local_directory=str(folder),
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            check: Callable[[Any], None]
            if name == "als":
                X = sd.open_files(fibres)
                factors = tuple(rng.random((m, RANK)) for m in X.shape)
                run = functools.partial(sd.jit(als), X, factors)
                check = functools.partial(check_als, factors)
            else:
                A = sd.open_files(rows)
                V, x, W = rng.random((n, WIDTH)), np.full(n, 1 / n), rng.normal(size=(WIDTH, WIDTH))
                B = drawn_rows(7)[:, :2000]
                run = {
                    "product": functools.partial(sd.jit(lambda A, X: A @ X), A, V),
                    "spgemm": functools.partial(sd.jit(lambda A, B: A @ B), A, B),
                    "gcn": functools.partial(sd.jit(gcn), A, V, W),
                    "pagerank": functools.partial(sd.jit(ranks, static_argnums=2), A, x, blocks),
                }[name]
                check = functools.partial(check_rows, name, parts, blocks, V, x, W, B.to_scipy())
            spent, before, peak, slow = measured(client, run, check)
            size = blocks * BLOCK // 1_000_000
            print(f"| {name} | {size} | {args.limit} | {peak} | {before} | {slow:.0f} | {spent:.1f} |", flush=True)
    if args.folder is None:
        shutil.rmtree(folder)


def check_rows(name: str, parts: Any, blocks: int, V: Any, x: Any, W: Any, B: Any, kept: Any) -> None:
    """Against SciPy, block by block."""
    counts = [len(range(k, blocks, DRAWN)) for k in range(DRAWN)]
    if name == "product":
        found = kept[0].compute().todense()
        n = len(V)
        for k in range(blocks):
            np.testing.assert_allclose(found[k * n : (k + 1) * n], parts[k % DRAWN] @ V, rtol=1e-9)
    elif name == "spgemm":
        import sparsejax.dask as sd

        found = sd.jit(lambda C: C.sum(axis=0))(kept[0]).compute().todense()
        sums = sum(c * (p.sum(axis=0) @ B) for c, p in zip(counts, parts, strict=True))
        np.testing.assert_allclose(found, sums, rtol=1e-9)
    elif name == "gcn":
        loss, slope = (k.compute().todense() for k in kept)
        H = [np.maximum(p @ (V @ W), 0) for p in parts]
        np.testing.assert_allclose(loss, sum(c * (h**2).sum() for c, h in zip(counts, H, strict=True)), rtol=1e-9)
        np.testing.assert_allclose(
            slope, sum(c * (V.T @ (p.T @ (2 * h))) for c, h, p in zip(counts, H, parts, strict=True)), rtol=1e-8
        )
    else:
        y = x
        for _ in range(ROUNDS):
            y = 0.85 * sum(c * (p.T @ (p @ y)) for c, p in zip(counts, parts, strict=True)) / blocks + 0.15 / len(x)
        np.testing.assert_allclose(kept[0].compute().todense(), y, rtol=1e-9)


def check_als(factors: Any, kept: Any) -> None:
    """The first factor against NumPy: blocks with equal entries have equal rows. The others against the equations that they solve."""
    A, B, C = (k.compute().todense() for k in kept)
    _, B0, C0 = factors
    gram = (B0.T @ B0) * (C0.T @ C0)
    for k in range(DRAWN):
        block = drawn_fibres(k)
        m = block.shape[0]
        rows = sj.einsum("ijk,jr,kr->ir", block, B0, C0).todense()
        np.testing.assert_allclose(A[k * m : (k + 1) * m] @ gram, rows, rtol=1e-7)
        for other in range(k + DRAWN, len(A) // m, DRAWN):
            np.testing.assert_array_equal(A[other * m : (other + 1) * m], A[k * m : (k + 1) * m])
    assert np.isfinite(B).all() and np.isfinite(C).all()


if __name__ == "__main__":
    main()
