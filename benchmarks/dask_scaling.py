"""Functions over shards: one worker against two, beside `dask.array` over SciPy's and pydata/sparse's chunks. More workers: `dask_simulation`.

    python -m benchmarks.dask_scaling                  # a drawn power law; --data NotreDame_www for a public graph, --nodes 200000 --links 20
    python -m benchmarks.dask_scaling --cuts           # A @ A.T of real matrices, cut by entries, by multiplications, by `tile_sizes`

Clusters of one and of two processes, one thread each, are both alive, and runs alternate; medians of `--rounds`. Every result is compared with SciPy's.

Two workers on a machine that does other work show little by the clock. So each run is measured by processor time too: that of each worker's process.
"work / busier" is the time of one worker over that of the busier one of two: what the clock would show on two idle cores, but for waits for blocks and for the
scheduler. Against the peers, the processor time of one worker counts.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import operator
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import datasets

ROUNDS = 10
WIDTH = 32
WARM = 5
"""Calls of `--alone` that are not counted: memory of results is used again from about the fifth on, where the last result is kept until the next is there."""


def pagerank(A: Any, x: Any) -> Any:
    return sj.lax.fori_loop(0, ROUNDS, lambda k, x: 0.85 * (A @ x) + 0.15 / x.shape[0], x)


def gcn(A: Any, X: Any, W: Any, V: Any) -> Any:
    return A @ (snp.maximum(A @ (X @ W), 0) @ V)


def spgemm(A: Any) -> Any:
    return A @ A


def rowsums(A: Any) -> Any:
    return (A @ A).sum(axis=1)


def power_law(nodes: int, links: int) -> sp.csr_array:
    rng = np.random.default_rng(0)
    weights = np.cumsum((np.arange(nodes) + 10.0) ** -0.8)
    ends = [np.minimum(np.searchsorted(weights / weights[-1], rng.random(nodes * links)), nodes - 1) for _ in range(2)]
    made = sp.coo_array((np.ones(nodes * links), (ends[0], ends[1])), shape=(nodes, nodes)).tocsr()
    return sp.csr_array(made @ sp.diags_array(1 / np.maximum(made.sum(axis=0), 1)))


def _sums(a: Any, b: Any) -> Any:
    made = (a @ b).sum(axis=1)
    return np.asarray(made.todense() if hasattr(made, "todense") else made).reshape(-1, 1)


def chunk_programs(
    graph: sp.csr_array, x: Any, X: Any, W: Any, V: Any, cut: tuple[int, ...], kind: str
) -> dict[str, Any]:
    """The programs on `dask.array`, with chunks of SciPy's or pydata/sparse's."""
    import dask.array as da

    if kind == "scipy":
        blocks = [sp.csr_matrix(graph[a:b]) for a, b in itertools.pairwise(cut)]
    else:
        import sparse

        blocks = [sparse.GCXS.from_scipy_sparse(graph[a:b]) for a, b in itertools.pairwise(cut)]
    n = graph.shape[0]
    parts = [da.from_array(b, chunks=b.shape, asarray=False) for b in blocks]
    A = da.concatenate(parts, axis=0)
    rows = A.chunks[0]

    def times(B: Any) -> Any:
        if B.ndim == 1:
            return times(B[:, None])[:, 0]
        dense = da.map_blocks(
            lambda a, b: np.asarray(a @ b),
            A,
            B.rechunk((n, -1)),
            chunks=(rows, (B.shape[1],)),
            dtype="f8",
            meta=np.empty((0, 0)),
        )
        return dense

    def ranks() -> Any:
        y = da.from_array(x, chunks=n)
        for _ in range(ROUNDS):
            y = 0.85 * times(y) + 0.15 / n
        return y

    def layers() -> Any:
        H = da.from_array(X, chunks=(rows, -1)) @ W
        return times(da.maximum(times(H), 0) @ V)

    def product(summed: bool) -> Any:
        whole = A.rechunk((n, n))
        if not summed:
            return da.map_blocks(operator.matmul, A, whole, chunks=(rows, (n,)), dtype="f8", meta=A._meta)
        return da.map_blocks(
            _sums,
            A,
            whole,
            chunks=(rows, (1,)),
            dtype="f8",
            meta=np.empty((0, 0)),
        )

    product_of, sums_of = (functools.partial(product, summed) for summed in (False, True))
    return {"pagerank": ranks, "gcn": layers, "spgemm": product_of, "rowsums": sums_of}


SQUARES = ("spgemm", "rowsums")
"""Programs of the smaller matrix."""


def plain(made: Any) -> Any:
    """A result as SciPy's or NumPy's."""
    made = made.to_scipy() if isinstance(made, sj.Array) and not made.format.is_dense else made
    if hasattr(made, "to_scipy_sparse"):
        made = made.to_scipy_sparse()
    if sp.issparse(made):
        return sp.csr_array(made)
    return np.asarray(made.todense() if hasattr(made, "todense") else made)


def compare(found: Any, expected: Any) -> None:
    """Close everywhere, AssertionError where not."""
    found, expected = plain(found), plain(expected)
    if sp.issparse(expected):
        difference = abs(sp.csr_array(found) - expected)
        assert difference.max() <= 1e-8 * abs(expected).max()
    else:
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-8, atol=1e-12)


def measure(graph: sp.csr_array, small: sp.csr_array, shards: int, rounds: int, peers: list[str]) -> None:
    import distributed

    import sparsejax.dask as sd

    rng = np.random.default_rng(1)

    def inputs(g: sp.csr_array) -> tuple[Any, ...]:
        n = g.shape[0]
        return (
            np.full(n, 1 / n),
            rng.normal(size=(n, WIDTH)),
            rng.normal(size=(WIDTH, WIDTH)),
            rng.normal(size=(WIDTH, WIDTH // 2)),
        )

    x, X, W, V = inputs(graph)
    y = x
    for _ in range(ROUNDS):
        y = 0.85 * (graph @ y) + 0.15 / len(x)
    expected = {
        "pagerank": y,
        "gcn": graph @ (np.maximum(graph @ (X @ W), 0) @ V),
        "spgemm": small @ small,
    }
    times: dict[tuple[str, str, int], list[float]] = {}
    clusters = {
        w: distributed.LocalCluster(n_workers=w, threads_per_worker=1, dashboard_address=":0", memory_limit=0)
        for w in (1, 2)
    }
    clients = {w: distributed.Client(c, set_as_default=False) for w, c in clusters.items()}
    programs: dict[tuple[str, str, int], Callable[[], Any]] = {}
    for w, client in clients.items():
        with client.as_current():
            A, B = sd.shard(graph, rows=shards), sd.shard(small, rows=shards)
            H = sd.shard(X, rows=A.cuts[0])
            programs["ours", "pagerank", w] = lambda A=A: sd.jit(pagerank)(A, x)
            programs["ours", "gcn", w] = lambda A=A, H=H: sd.jit(gcn)(A, H, W, V)
            programs["ours", "spgemm", w] = lambda B=B: sd.jit(spgemm)(B)
            for peer in peers:
                made = chunk_programs(graph, x, X, W, V, A.cuts[0], peer)
                made["spgemm"] = chunk_programs(small, *inputs(small), B.cuts[0], peer)["spgemm"]
                for name in expected:
                    program = made[name]
                    programs[peer, name, w] = program
    for turn in range(rounds + 1):
        for (who, name, w), program in programs.items():
            client = clients[w]
            with client.as_current():
                before = client.run(time.process_time)
                start = time.perf_counter()
                lazy = program()
                kept = lazy.persist()
                distributed.wait(client.futures_of(kept))
                spent = time.perf_counter() - start
                after = client.run(time.process_time)
                if turn == 0:
                    compare(kept.compute(), expected[name])
                else:
                    times.setdefault((who, name, w), []).append((spent, max(after[a] - before[a] for a in before)))
                del lazy, kept
    for client in clients.values():
        client.close()
    for cluster in clusters.values():
        cluster.close()
    print(
        "| program | chunks | one worker: s | processor | two workers: s | processor, busier | work / busier | ours is faster (processor, one) |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in expected:
        for who in ("ours", *peers):
            one, two = (np.median(times[who, name, w], axis=0) for w in (1, 2))
            ratio = one[1] / np.median(times["ours", name, 1], axis=0)[1]
            numbers = f"{one[0]:.3f} | {one[1]:.3f} | {two[0]:.3f} | {two[1]:.3f} | {one[1] / two[1]:.2f} | {ratio:.2f}"
            print(f"| {name} | {who} | {numbers} |")


def alone(
    graph: sp.csr_array, small: sp.csr_array, shards: int, rounds: int, peers: list[str], names: list[str], warm: int
) -> None:
    """Seconds of processor time of the same programs on Dask's synchronous scheduler, one thread: graph, tasks and all, but no messages."""
    import sparsejax.dask as sd

    rng = np.random.default_rng(1)
    n = graph.shape[0]
    x, X = np.full(n, 1 / n), rng.normal(size=(n, WIDTH))
    W, V = rng.normal(size=(WIDTH, WIDTH)), rng.normal(size=(WIDTH, WIDTH // 2))
    A, B = sd.shard(graph, rows=shards), sd.shard(small, rows=shards)
    H = sd.shard(X, rows=A.cuts[0])
    functions = {f.__name__: sd.jit(f) for f in (pagerank, gcn, spgemm, rowsums)}
    programs: dict[str, dict[str, Callable[[], Any]]] = {
        "ours": {
            "pagerank": lambda: functions["pagerank"](A, x),
            "gcn": lambda: functions["gcn"](A, H, W, V),
            "spgemm": lambda: functions["spgemm"](B),
            "rowsums": lambda: functions["rowsums"](B),
        }
    }
    for peer in peers:
        programs[peer] = chunk_programs(graph, x, X, W, V, A.cuts[0], peer)
        m = small.shape[0]
        other = chunk_programs(small, np.ones(m), np.ones((m, WIDTH)), W, V, B.cuts[0], peer)
        programs[peer].update({name: other[name] for name in SQUARES})
    print(
        "| program | "
        + " | ".join(f"{p}, s" for p in programs)
        + " | "
        + " | ".join(f"{p} / ours" for p in peers)
        + " |"
    )
    print("|---" * (1 + len(programs) + len(peers)) + "|")
    for name in names or ("pagerank", "gcn", *SQUARES):
        spent: dict[str, list[float]] = {who: [] for who in programs}
        results = {}
        for turn in range(warm + rounds):
            for who, own in programs.items():
                start = time.process_time()
                made = own[name]().persist(scheduler="sync")
                if turn >= warm:
                    spent[who].append(time.process_time() - start)
                elif turn == 0:
                    results[who] = made.compute(scheduler="sync")
        for who in peers:
            compare(results["ours"], results[who])
        medians = {who: statistics.median(times) for who, times in spent.items()}
        numbers = [f"{medians[w]:.3f}" for w in programs] + [f"{medians[p] / medians['ours']:.2f}" for p in peers]
        print(f"| {name} | {' | '.join(numbers)} |", flush=True)


def overhead() -> None:
    """Microseconds per task of building graphs and of scheduling them, beside graphs of as many tasks and edges that do nothing, built by nobody, and beside an
    array of Dask's over NumPy chunks: processor time of this process, in which the scheduler and the client are."""
    import dask.array as da
    import distributed

    import sparsejax.dask as sd
    from benchmarks.dask_strong import emptied

    n, shards = 32_000, 32  # small blocks: what is measured is tasks, not bytes
    rng = np.random.default_rng(0)
    drawn = sp.random_array((n, n), density=4 / n, format="csr", rng=rng)
    W, V = rng.normal(size=(WIDTH, WIDTH)), rng.normal(size=(WIDTH, WIDTH // 2))
    dense = da.ones(n, chunks=n // shards)

    def theirs(by: float) -> Any:
        made = dense
        for _ in range(ROUNDS):
            made = made.map_blocks(np.multiply, by)
        return made

    def spent(run: Callable[[], Any], client: Any) -> tuple[float, float, int, Any]:
        start = time.process_time()
        lazy = run()
        built = time.process_time() - start
        kept = lazy.persist(optimize_graph=False)
        distributed.wait(client.futures_of(kept))
        return built, time.process_time() - start, len(lazy.__dask_graph__()), lazy

    scaled = {f.__name__: sd.jit(functools.partial(_scaled, f)) for f in (pagerank, gcn, spgemm)}
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as c,
        distributed.Client(c) as client,
        sj.config.using(choose="sharded_loops=rounds,sharded_tasks=apart"),
    ):
        A, X = sd.shard(drawn, rows=shards), sd.shard(np.ones((n, WIDTH)), rows=shards)
        given = {"pagerank": (A, np.full(n, 1 / n)), "gcn": (A, X, W, V), "spgemm": (A,)}
        ways: dict[str, Callable[[float], Any]] = {
            name: functools.partial(lambda name, by: scaled[name](by, *given[name]), name) for name in scaled
        }
        print("| program | tasks | graph | with scheduling and sending | the same graph of tasks that do nothing |")
        print("|---|---|---|---|---|")
        for name, program in (*ways.items(), ("dask.array over NumPy", theirs)):
            # with another number in every turn: what has the name of a result that is there is not computed again
            found: list[tuple[float, float, float]] = []
            for turn in range(6):
                built, whole, count, lazy = spent(functools.partial(program, 1.5 + turn), client)
                hollow = 0.0
                if name in ways:
                    made = emptied(lazy, {}, f"{name}-{turn}")
                    _, hollow, _, made = spent(functools.partial(_same, made), client)
                found.append((built / count * 1e6, whole / count * 1e6, hollow / count * 1e6))
                del lazy
            told = " | ".join(f"{statistics.median(own):.0f}" for own in zip(*found[2:], strict=True))
            print(f"| {name} | {count} | {told} |", flush=True)


def _scaled(function: Callable[..., Any], by: Any, *operands: Any) -> Any:
    return function(*operands) * by


def _same(made: Any) -> Any:
    return made


def returned(a: Any, b: Any) -> Any:
    """A task that does nothing."""
    return a


def floor(graph: sp.csr_array, rounds: int) -> None:
    """PageRank in two shards beside a graph of as many tasks that do nothing, on one worker and on two: milliseconds in the median, and the least."""
    import distributed
    from dask.task_spec import DataNode, Task, TaskRef

    import sparsejax.dask as sd

    n = graph.shape[0]
    ranks = sd.jit(pagerank)
    for workers in (1, 2):
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=":0", memory_limit=0
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            A = sd.shard(graph, rows=2)

            def ours(turn: int, A: Any = A, client: Any = client) -> Any:
                return client.futures_of(ranks(A, np.full(n, (1 + turn) / n)).persist())

            def nothing(turn: int, client: Any = client) -> Any:
                last: list[Any] = [(f"x{turn}", k) for k in range(2)]
                tasks: dict[Any, Any] = {key: DataNode(key, np.full(n // 2, float(turn))) for key in last}
                for turned in range(ROUNDS):
                    keys = [(f"nothing{turn}", turned, k) for k in range(2)]
                    for k, key in enumerate(keys):
                        tasks[key] = Task(key, returned, TaskRef(last[k]), TaskRef(last[1 - k]))
                    last = keys
                return client.get(tasks, last, sync=False)

            spent: dict[str, list[float]] = {"ours": [], "nothing": []}
            for turn in range(rounds + 2):
                for name, program in (("ours", ours), ("nothing", nothing)):
                    start = time.perf_counter()
                    futures = program(turn)
                    distributed.wait(futures)
                    if turn > 1:
                        spent[name].append((time.perf_counter() - start) * 1e3)
                    del futures
            told = ", ".join(f"{k} {statistics.median(v):.0f} ({min(v):.0f})" for k, v in spent.items())
            print(f"{workers} workers: {told}", flush=True)


CUT = ("email-Enron", "as-caida20071105", "arxiv-cit-hep-ph", "musae_facebook", "pgp-strong-2009", "copter2")


def _even(extent: int, tile: int) -> tuple[int, ...]:
    """Tiles of one extent as a cut."""
    return (*range(0, extent, tile), extent)


def multiplications(A: sp.csr_array) -> Any:
    """Those of A @ A.T for every row of A: the counts of its columns, summed."""
    return sp.csr_array(A.astype(bool), dtype=np.int64) @ np.bincount(A.indices, minlength=A.shape[1])


def cut_ways(A: sp.csr_array, shards: int) -> dict[str, Any]:
    """Ways to cut A for A @ A.T: by stored entries as `shard` does; by the multiplications of its rows, or these and the entries; and into tiles of
    `tile_sizes`, for a buffer of half a second-level cache and for one of 8 MiB, where results stream and where they stay."""
    import sparsejax.dask as sd
    from sparsejax.dask.cuts import balanced

    B = sj.array(A)
    made = {"entries": sd.shard(B, rows=shards)}
    made["multiplications"] = sd.shard(B, rows=balanced(multiplications(A), shards))
    for buffer in ("512 KiB", "8 MiB"):
        for order in ("ikj", "ijk"):
            tiles = sj.tile_sizes(lambda A: A @ A.T, buffer=buffer, order=order)(B).tiles
            rows, cols = (_even(n, tiles[v]) for n, v in zip(A.shape, "ik", strict=True))
            if all((rows, cols) != x.cuts for x in made.values()):
                made[f"tiles, {buffer}, {order}"] = sd.shard(B, rows=rows, cols=cols)
    return made


def heaviest(work: Any, cut: tuple[int, ...]) -> float:
    """The multiplications of the heaviest part over the mean."""
    sums = np.add.reduceat(work, cut[:-1])
    return float(sums.max() / sums.mean())


def compare_cuts(rounds: int, only: list[str]) -> None:
    """Seconds of A @ A.T on two workers for every way to cut A, against cuts by stored entries: medians of ratios of runs that alternate."""
    import distributed

    import sparsejax.dask as sd

    product = sd.jit(lambda A: A @ A.T)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        distributed.Client(cluster) as client,
    ):
        for name in only or CUT:
            A = datasets.matrix(name)
            work = multiplications(A)
            print(
                f"\n{name}: {A.shape[0]} x {A.shape[1]}, {A.nnz:,} entries, {work.sum():,} multiplications", flush=True
            )
            for shards in (2, 4, 8):
                ways = cut_ways(A, shards)
                if shards != 4 or work.sum() > 1e8:  # tiles do not depend on it, and their partial results take memory
                    ways = {k: v for k, v in ways.items() if "tiles" not in k}
                times: dict[str, list[float]] = {k: [] for k in ways}
                for turn in range(rounds + 1):
                    for way, x in list(ways.items())[:: (-1) ** turn]:
                        start = time.perf_counter()
                        kept = product(x).persist()
                        distributed.wait(client.futures_of(kept))
                        if turn:
                            times[way].append(time.perf_counter() - start)
                        del kept
                        time.sleep(
                            0.05
                        )  # until workers have let go of the result, whose name is that of the next round's
                for way, x in ways.items():
                    ratio = statistics.median(a / b for a, b in zip(times["entries"], times[way], strict=True))
                    grid, load = " x ".join(map(str, x.grid)), heaviest(work, x.cuts[0])
                    print(
                        f"  {way:22} {grid:>8} blocks, work of the heaviest rows {load:.2f}, "
                        f"{statistics.median(times[way]):.3f} s, {ratio:.2f} times as fast",
                        flush=True,
                    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--links", type=int, default=20)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="scipy,sparse")
    parser.add_argument(
        "--alone", action="store_true", help="without clusters: processor time on the synchronous scheduler"
    )
    parser.add_argument("--warm", type=int, default=WARM, help="calls of --alone that are not counted")
    parser.add_argument("--overhead", action="store_true", help="what tasks cost the client and the scheduler, alone")
    parser.add_argument("--floor", action="store_true", help="PageRank beside tasks that do nothing")
    parser.add_argument("--data", help="a public graph or matrix, in place of a drawn one")
    parser.add_argument("--cuts", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], help="names of matrices, of --cuts; of programs, of --alone")
    args = parser.parse_args()
    if args.cuts:
        return compare_cuts(args.rounds, args.only)
    if args.overhead:
        return overhead()
    if args.data:
        graph = sp.csr_array(datasets.matrix(args.data), dtype=np.float64)
        graph = small = sp.csr_array(graph @ sp.diags_array(1 / np.maximum(graph.sum(axis=0), 1)))
    else:
        graph = power_law(args.nodes, args.links)
        small = sp.random_array((40_000, 40_000), density=12 / 40_000, format="csr", rng=np.random.default_rng(2))
    if args.floor:
        return floor(graph, args.rounds)
    if args.alone:
        return alone(
            graph, small, args.shards, args.rounds, [p for p in args.peers.split(",") if p], args.only, args.warm
        )
    overhead()
    measure(graph, small, args.shards, args.rounds, [p for p in args.peers.split(",") if p])


if __name__ == "__main__":
    main()
