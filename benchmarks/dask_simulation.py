"""Functions over shards on 4 to 1,024 workers, simulated: the tasks and messages of the real graphs, kernel times measured here, a stated network.

    python -m benchmarks.dask_simulation                                   # --plot docs/_static/dask_efficiency.svg draws it

    strong      the same matrix on all workers: 40 million nodes, 1.5 billion links (for SpGEMM 10 million, 100 million)
    weak        a matrix per worker: 2 million nodes, 75 million links, that is all links grow with the workers (SpGEMM: 500,000 and 5 million)
    rows        one shard of rows per worker (1-D); blocks: as many shards in a square grid (2-D)

`sparsejax.dask.jit` plans and emits the graphs for arrays of these sizes without data. A task takes its operations times the nanoseconds that one block takes
here, on one thread. The one scheduler takes 0.2 ms per task (`dask_scaling` measures it). Workers send and receive one block at a time, at 10 Gbit/s and 50
microseconds; a block goes from the worker that made it to each that needs it, once. What is not modelled:
memory, disks, garbage collection, workers of unlike speed.
"""

from __future__ import annotations

import argparse
import heapq
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import sparsejax as sj
from benchmarks.dask_scaling import WIDTH, gcn, pagerank, power_law

WORKERS = (1, 4, 16, 64, 256, 1024)
LATENCY, BYTE, OVERHEAD = 50e-6, 8 / 10e9, 2e-4
"""Seconds of a message, of a byte, of the scheduler per task."""
SIZES = {
    "pagerank": ((40_000_000, 1.5e9), (2_000_000, 7.5e7)),
    "gcn": ((40_000_000, 1.5e9), (2_000_000, 7.5e7)),
    "spgemm": ((10_000_000, 1e8), (500_000, 5e6)),
}


def product(A: Any) -> Any:
    return A @ A


def nanoseconds() -> dict[str, float]:
    """Of one operation (an entry; an entry and column; a multiplication) in a block, on one thread: processor time."""
    block = sj.array(power_law(200_000, 20))
    small = sj.array(power_law(20_000, 10))
    x, X = np.ones(block.shape[1]), np.ones((block.shape[1], WIDTH))
    squares = float((small.to_scipy().astype(bool).astype(np.int64) @ np.diff(small.to_scipy().indptr)).sum())
    runs = {
        "pagerank": (sj.jit(lambda A, x: 0.85 * (A @ x) + 0.15), (block, x), float(block.nnz)),
        "gcn": (sj.jit(lambda A, X: A @ X), (block, X), float(block.nnz) * WIDTH),
        "spgemm": (sj.jit(product), (small,), squares),
    }
    made = {}
    for name, (run, args, work) in runs.items():
        with sj.config.using(num_threads=1):
            run(*args)
            spent = []
            for _ in range(5):
                start = time.process_time()
                run(*args)
                spent.append(time.process_time() - start)
        made[name] = statistics.median(spent) * 1e9 / work
    return made


def outlined(name: str, shape: tuple[int, ...], form: str, entries: float, cuts: tuple[Any, ...]) -> Any:
    """An array in shards, without data."""
    from sparsejax.core.avals import Aval
    from sparsejax.dask.sharded import Sharded

    aval = Aval(shape, np.dtype("f8"), sj.formats.Format.parse(form, len(shape)))
    grid = [len(c) - 1 for c in cuts]
    counts = np.full(grid, max(1, int(entries / np.prod(grid))))
    made = Sharded(aval, cuts, name, {}, counts)
    return Sharded(aval, cuts, name, dict.fromkeys(made.__dask_keys__()), counts)


def even(n: int, parts: int) -> tuple[int, ...]:
    return tuple(n * k // parts for k in range(parts + 1))


def emitted(program: str, n: int, links: float, workers: int, square: bool) -> Any:
    """The graph of a program for so many shards."""
    import sparsejax.dask as sd

    side = round(workers**0.5)
    cuts = (even(n, side), even(n, side)) if square else (even(n, workers), (0, n))
    A = outlined("A", (n, n), "csr", links, cuts)
    rows = cuts[0]
    arguments: dict[str, Callable[[], tuple[Any, ...]]] = {
        "pagerank": lambda: (pagerank, A, outlined("x", (n,), "dense", n, (rows,))),
        "gcn": lambda: (
            gcn, A, outlined("X", (n, WIDTH), "dense", n * WIDTH, (rows, (0, WIDTH))),
            np.ones((WIDTH, WIDTH)), np.ones((WIDTH, WIDTH // 2)),
        ),
        "spgemm": lambda: (product, A),
    }  # fmt: skip
    function, *args = arguments[program]()
    emitter, _, _ = sd.jit(function)._emit(tuple(args), {})
    for x in args:
        if hasattr(x, "counts"):
            for key in x.__dask_keys__():
                size = 12 if x.name == "A" else 8
                emitter.sizes[key] = float(x.counts.flat[0]) * size
    return emitter


def simulated(emitter: Any, workers: int, ns: float) -> tuple[float, float, int, int]:
    """Seconds, bytes, messages and tasks of a graph on so many workers."""
    finished: dict[Any, float] = {}
    holders: dict[Any, int] = {}
    free, receiving, sending = ([0.0] * workers for _ in range(3))
    idle = [(0.0, w) for w in range(workers)]
    arrived: list[dict[Any, float]] = [{} for _ in range(workers)]
    scheduler = moved = 0.0
    messages = turn = tasks = 0
    for key, node in emitter.graph.items():  # in the order of emission, which is one of dependencies
        needs = list(getattr(node, "dependencies", ()))
        if not needs:
            holders[key], finished[key] = turn % workers, 0.0
            arrived[turn % workers][key] = 0.0
            turn += 1
            continue
        tasks += 1
        large = heapq.nlargest(8, needs, key=lambda k: emitter.sizes.get(k, 0.0))
        candidates = {holders[k] for k in large}
        while idle and free[idle[0][1]] != idle[0][0]:  # out of date
            heapq.heapreplace(idle, (free[idle[0][1]], idle[0][1]))
        candidates.add(idle[0][1])

        def start_of(worker: int, needs: list[Any] = needs) -> tuple[float, int]:
            """When a task could start there, as Dask estimates it."""
            return free[worker] + BYTE * sum(
                emitter.sizes.get(k, 0.0) for k in needs if k not in arrived[worker]
            ), worker

        _, w = min(map(start_of, candidates))
        scheduler += OVERHEAD
        ready = max(free[w], scheduler)
        for k in sorted(needs, key=lambda k: sending[holders[k]]):
            if k not in arrived[w]:
                sender = holders[k]
                start = max(receiving[w], sending[sender], arrived[sender][k])
                receiving[w] = sending[sender] = start + emitter.sizes.get(k, 0.0) * BYTE
                arrived[w][k] = receiving[w] + LATENCY
                moved += emitter.sizes.get(k, 0.0)
                messages += 1
            ready = max(ready, arrived[w][k])
        finished[key] = free[w] = ready + emitter.works.get(key, 0.0) * ns * 1e-9
        holders[key], arrived[w][key] = w, finished[key]
    return max(finished.values()), moved, messages, tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot")
    parser.add_argument("--only", nargs="*", default=list(SIZES))
    parser.add_argument("--workers", nargs="*", type=int, default=WORKERS)
    parser.add_argument("--kernels", nargs=3, type=float, metavar=tuple(SIZES), help="nanoseconds that were measured")
    args = parser.parse_args()
    prices = dict(zip(SIZES, args.kernels, strict=True)) if args.kernels else nanoseconds()
    print(", ".join(f"{k} {v:.2f} ns" for k, v in prices.items()), "per operation of a block")
    print(
        "| program | shards | workers | strong: s | efficiency | weak: s | efficiency | GB moved | messages | tasks |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    drawn: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for program in args.only:
        for layout in ("rows", "blocks"):
            base: list[float] = []
            for workers in args.workers:
                row: list[Any] = []
                for number, (kind, (n, links)) in enumerate(zip(("strong", "weak"), SIZES[program], strict=True)):
                    grown = workers if kind == "weak" else 1
                    emitter = emitted(program, n * grown, links * grown, workers, layout == "blocks")
                    seconds, moved, messages, tasks = simulated(emitter, workers, prices[program])
                    if len(base) == number:
                        base.append(seconds)
                    efficiency = base[number] / seconds / (workers if kind == "strong" else 1)
                    drawn.setdefault((program, layout, kind), []).append((workers, efficiency))
                    row += [f"{seconds:.3g}", f"{efficiency:.2f}"]
                    if kind == "strong":
                        told = f"{moved / 1e9:.3g} | {messages} | {tasks}"
                print(f"| {program} | {layout} | {workers} | {' | '.join(row)} | {told} |", flush=True)
    if args.plot:
        draw(drawn, args.plot)


def draw(drawn: dict[tuple[str, str, str], list[tuple[int, float]]], path: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "sparsejax"}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    colours = dict(zip(SIZES, ("tab:blue", "tab:orange", "tab:green"), strict=True))
    for (program, layout, kind), points in drawn.items():
        style = {
            "color": colours[program],
            "linestyle": "-" if layout == "blocks" else ":",
            "marker": "o",
            "markersize": 3,
        }
        axes[int(kind == "weak")].plot(*zip(*points, strict=True), label=f"{program}, {layout}", **style)
    for ax, kind in zip(axes, ("strong", "weak"), strict=True):
        ax.set(
            xscale="log", xlabel="workers", title=f"{kind} scaling", ylim=(0, 1.05), xticks=WORKERS, xticklabels=WORKERS
        )
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("efficiency")
    axes[1].legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
