"""One worker against two, each a process of one thread: PageRank, a GCN and SpGEMM on a public graph, in two shards.

    python -m benchmarks.dask_strong                              # soc-slashdot0902, the largest public graph here
    python -m benchmarks.dask_strong --only gcn --inputs 64 --rounds 9
    python -m benchmarks.dask_strong --only pagerank --scale 20 --links 2e7     # a drawn power law
    python -m benchmarks.dask_strong --prices                     # what gangs pay for meetings and hops, and tasks for waits

    pagerank      `--iterations` rounds (ten) of one vector, which is in shards
    personalised  five rounds of 64 vectors, the ranks as seen from 64 nodes
    gcn           two layers of a graph convolution: features of `--inputs` columns to 64 to 32, float32
    spgemm        A @ A, kept on the workers

Each line has medians by the clock of runs in turns, on clusters of one and of two workers that are both alive.

    apart    what two processes that share no work gain here: twice the time of the whole program in one process over that of two such processes at once
             (memory and caches are shared, and the scheduler takes a core)
    empty    the same graphs of tasks that compute nothing and return as many bytes, on one worker and on two
    bound    the gain where all that the empty graph does not take is divided as "apart" says: t1 / (e2 + (t1 - e1) / apart), with the times t of the real graph
             and e of the empty one on one and two workers; the parts are taken to be equal

Every result is compared with SciPy's. Processes keep up to 4 GiB of free memory, so that one worker, which makes all of a result, does not wait for pages of
the system where two do not.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("SPARSEJAX_FREE_MEMORY", "4096")

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import datasets
from benchmarks.dask_scaling import compare

SEEDS, HIDDEN, OUT = 64, 64, 32
ITERATIONS = [int(os.environ.get("SPARSEJAX_BENCHMARK_ITERATIONS", "10"))]
"""Of PageRank; in the environment, where workers find it."""
PROGRAMS = ("pagerank", "personalised", "gcn", "spgemm")


def ranks(A: Any, x: Any, rounds: int) -> Any:
    return sj.lax.fori_loop(0, rounds, lambda k, y: 0.85 * (A @ y) + 0.15 * x, x)


def pagerank(A: Any, x: Any) -> Any:
    return ranks(A, x, ITERATIONS[0])


def personalised(A: Any, x: Any) -> Any:
    return ranks(A, x, 5)


def gcn(A: Any, X: Any, W: Any, V: Any) -> Any:
    return A @ (snp.maximum(A @ (X @ W), 0) @ V)


def spgemm(A: Any) -> Any:
    return A @ A


FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (pagerank, personalised, gcn, spgemm)}


def operands(name: str, graph: sp.csr_array, inputs: int) -> tuple[Any, ...]:
    """Those of a program, the graph first."""
    rng, n = np.random.default_rng(0), graph.shape[0]
    if name == "pagerank":
        return graph, np.full(n, 1 / n)
    if name == "personalised":
        x = np.zeros((n, SEEDS))
        x[rng.choice(n, SEEDS, replace=False), np.arange(SEEDS)] = 1
        return graph, x
    if name == "gcn":
        shapes = (n, inputs), (inputs, HIDDEN), (HIDDEN, OUT)
        return graph.astype(np.float32), *(rng.normal(size=s).astype(np.float32) / s[0] ** 0.5 for s in shapes)
    return (graph,)


def expected(name: str, own: tuple[Any, ...]) -> Any:
    """The result by SciPy, in double precision."""
    A, *rest = (x.astype(np.float64) for x in own)
    if name == "gcn":
        X, W, V = rest
        return A @ (np.maximum(A @ (X @ W), 0) @ V)
    if name == "spgemm":
        return A @ A
    (x,) = rest
    y = x
    for _ in range(ITERATIONS[0] if name == "pagerank" else 5):
        y = 0.85 * (A @ y) + 0.15 * x
    return y


_whole: dict[str, Any] = {}


def whole(name: str, own: tuple[Any, ...] | None, rounds: int) -> float:
    """Seconds of the whole program in this process, the median of some runs; where `own` is None, on the operands of the last time."""
    if own is not None:
        _whole[name] = sj.jit(FUNCTIONS[name]), [sj.array(x) for x in own]
    program, given = _whole[name]
    spent = []
    with sj.config.using(num_threads=1):
        for _ in range(rounds):
            start = time.perf_counter()
            program(*given)
            spent.append(time.perf_counter() - start)
    return statistics.median(spent)


def bound(client: Any, name: str, own: tuple[Any, ...], rounds: int) -> tuple[float, float]:
    """Seconds of the whole program in one process, and what two processes at once gain."""
    workers = list(client.scheduler_info()["workers"])
    client.run(whole, name, own, 1)
    alone = client.run(whole, name, None, rounds, workers=workers[:1])[workers[0]]
    both = client.run(whole, name, None, rounds)
    client.run(_whole.clear)
    return alone, 2 * alone / max(both.values())


def sharded(name: str, own: tuple[Any, ...], shards: int) -> tuple[Any, ...]:
    """Operands in shards, so that every stage of the program takes its parts about as long: rows of a graph as they are multiplied, and those of features
    evenly, as all of them are multiplied with dense weights before the graph is read."""
    import sparsejax.dask as sd

    graph, *others = own
    how: dict[str, Any] = {}
    if name == "spgemm":
        how["times"] = graph
    elif (
        name == "gcn"
    ):  # HIDDEN times OUT dense multiplications for a row, of which ten take as long as one of an entry of the graph and a column
        how["row_cost"] = OUT / 10
    A = sd.shard(graph, rows=shards, **how)
    rows = A.cuts[0] if name == "pagerank" else shards
    return (A, *(sd.shard(x, rows=rows) if x.shape[0] == A.shape[0] else x for x in others))


def emptied(lazy: Any, sizes: dict[Any, float], token: str) -> Any:
    """The graph of an array in shards with tasks that compute nothing, and return as many bytes, under other names."""
    from dask.task_spec import Task, TaskRef

    from sparsejax.dask.sharded import Sharded

    graph, homes = {}, {}
    renamed = {
        key: (f"{key[0]}-empty-{token}", *key[1:])
        for key, node in lazy._graph.items()
        if getattr(node, "dependencies", ())
    }
    for key, node in lazy._graph.items():
        if key not in renamed:
            graph[key] = node
            continue
        needs = [TaskRef(renamed.get(k, k)) for k in node.dependencies]
        graph[renamed[key]] = Task(renamed[key], empty, int(sizes.get(key, 64)), *needs)
        if key in lazy.homes:
            homes[renamed[key]] = lazy.homes[key]
    homes |= {key: worker for key, worker in lazy.homes.items() if key in graph}
    return Sharded(lazy.aval, lazy.cuts, f"{lazy.name}-empty-{token}", graph, homes=homes)


def hollow(program: Any, given: tuple[Any, ...], token: str) -> Any:
    """The empty graph of a call."""
    emitter, results, _ = program._emit(given, {})
    return emptied(emitter.sharded(results[0]), emitter.sizes, token)


def empty(size: int, *operands: Any) -> Any:
    """So many bytes, which nobody has written."""
    return np.empty(size, np.uint8)


def power_law(scale: int, links: int) -> sp.csr_array:
    """A graph of 2^scale nodes by R-MAT (Chakrabarti, Zhan and Faloutsos 2004), with the probabilities of Graph500: so many links, less those drawn twice."""
    rng = np.random.default_rng(0)
    ends = np.zeros((2, links), np.int32)
    for _ in range(scale):
        drawn = rng.random(links, np.float32)
        lower = drawn >= 0.76
        ends += ends
        ends[0] += lower
        ends[1] += ((drawn >= 0.57) & ~lower) | (drawn >= 0.95)
    ends = rng.permutation(1 << scale).astype(np.int32)[ends]
    made = sp.coo_array((np.ones(links), (ends[0], ends[1])), shape=(1 << scale, 1 << scale)).tocsr()
    made.data[:] = 1
    return made


def timed(client: Any, run: Callable[[], Any]) -> tuple[float, Any]:
    import distributed

    with client.as_current():
        start = time.perf_counter()
        kept = run().persist()
        distributed.wait(client.futures_of(kept))
        return time.perf_counter() - start, kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="soc-slashdot0902-directed")
    parser.add_argument("--inputs", type=int, default=500, help="columns of the features of gcn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--scale", type=int, help="in place of data, a drawn power law of 2^SCALE nodes")
    parser.add_argument("--links", type=float, default=1e7, help="of --scale")
    parser.add_argument("--only", nargs="*", default=list(PROGRAMS), choices=PROGRAMS)
    parser.add_argument("--iterations", type=int, default=10, help="of pagerank")
    parser.add_argument(
        "--warm", type=int, help="calls that are not counted (2; of spgemm 6, when memory of results is used again)"
    )
    parser.add_argument("--prices", action="store_true")
    parser.add_argument("--explain", action="store_true")
    parser.add_argument("--choose", default="auto", help="what config.choose says, as sharded_tasks=apart")
    args = parser.parse_args()
    import distributed

    import sparsejax.dask as sd

    os.environ["SPARSEJAX_BENCHMARK_ITERATIONS"] = str(args.iterations)
    ITERATIONS[0] = args.iterations
    sj.config.update("choose", args.choose)
    if args.prices:
        prices(args.rounds)
        return
    if args.scale is not None:
        args.data = f"R-MAT of scale {args.scale}"
    graph = (
        power_law(args.scale, int(args.links))
        if args.scale is not None
        else sp.csr_array(datasets.matrix(args.data), dtype=np.float64)
    )
    graph = sp.csr_array(graph @ sp.diags_array(1 / np.maximum(graph.sum(axis=0), 1)))
    print(f"{args.data}: {graph.shape[0]:,} nodes, {graph.nnz:,} links")
    print(
        "| program | whole, one process, ms | one worker, ms | two workers, ms | gain | apart | empty, one, ms | empty, two, ms | bound |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    how = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}
    with (
        distributed.LocalCluster(n_workers=1, **how) as first,
        distributed.LocalCluster(n_workers=2, **how) as second,
        distributed.Client(first, set_as_default=False) as one,
        distributed.Client(second, set_as_default=False) as two,
    ):
        for name in args.only:
            own = operands(name, graph, args.inputs)
            large = name == "spgemm" and graph.nnz > 500_000
            rounds, warm = (
                min(args.rounds, 5) if large else args.rounds,
                (6 if large else 2) if args.warm is None else args.warm,
            )
            alone, gain = bound(two, name, own, rounds)
            spent: dict[int, list[float]] = {1: [], 2: []}
            unspent: dict[int, list[float]] = {1: [], 2: []}
            given = {}
            for count, client in ((1, one), (2, two)):
                with client.as_current():
                    given[count] = sharded(name, own, args.shards)
            program = sd.jit(FUNCTIONS[name])
            for turn in range(rounds + warm):
                for count, client in ((1, one), (2, two)):
                    seconds, kept = timed(client, functools.partial(program, *given[count]))
                    if turn >= warm:
                        spent[count].append(seconds)
                        del kept
                        seconds, kept = timed(
                            client, functools.partial(hollow, program, given[count], f"{count}-{turn}")
                        )
                        unspent[count].append(seconds)
                    elif turn == 0 and count == 2:
                        with client.as_current():
                            close(kept.compute(), expected(name, own), name)
                    del kept
            one_, two_ = (statistics.median(spent[k]) for k in (1, 2))
            first_, second_ = (statistics.median(unspent[k]) for k in (1, 2))
            most = one_ / (second_ + max(one_ - first_, 0.0) / gain)
            real, hollowed = (
                " | ".join(f"{t * 1e3:.0f}" for t in own) for own in ((alone, one_, two_), (first_, second_))
            )
            print(f"| {name} | {real} | {one_ / two_:.2f} | {gain:.2f} | {hollowed} | {most:.2f} |", flush=True)
            if args.explain:
                with two.as_current():
                    print(program.explain(*given[2]))


def prices(turns: int) -> None:
    """Milliseconds by the clock of a loop over a small graph in two shards on two workers, as tasks apart and as a gang: of a round, and of all else."""
    import distributed

    import sparsejax.dask as sd

    graph = power_law(13, 40_000)
    graph = sp.csr_array(graph @ sp.diags_array(1 / np.maximum(graph.sum(axis=0), 1)))
    few, many = 10, 60
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        distributed.Client(cluster) as client,
    ):
        A = sd.shard(graph, rows=2)
        x = sd.shard(np.full(graph.shape[0], 1 / graph.shape[0]), rows=A.cuts[0])
        for how in ("apart", "gang"):
            spent: dict[int, list[float]] = {few: [], many: []}
            with sj.config.using(choose=f"sharded_loops=rounds,sharded_tasks={how}"):
                programs = {n: sd.jit(functools.partial(ranks, rounds=n)) for n in spent}
                for turn in range(turns + 2):
                    for n, program in programs.items():
                        seconds, kept = timed(client, functools.partial(program, A, x))
                        if turn > 1:
                            spent[n].append(seconds * 1e3)
                        del kept
            first, second = (statistics.median(spent[n]) for n in (few, many))
            slope = (second - first) / (many - few)
            print(f"{how}: {slope:.2f} ms for a round, {first - few * slope:.1f} for all else", flush=True)


def close(found: Any, wanted: Any, name: str) -> None:
    if name == "gcn":
        np.testing.assert_allclose(found.todense(), wanted, rtol=1e-3, atol=1e-4)
    else:
        compare(found, wanted)


if __name__ == "__main__":
    import benchmarks.dask_strong

    benchmarks.dask_strong.main()  # whose functions workers import, and keep what they know between calls
