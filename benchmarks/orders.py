"""Loop orders, predicted beside measured: every order that is not hopeless by its price is compiled and timed.

    python -m benchmarks.orders [--quick] [--programs groups,csc] [--most 8] [--within 8]

A line is an order of one kernel: what the scheduler expects of it and what it takes, in nanoseconds of one thread (processor time, medians of runs in
turns, after copies have been made), and both over those of the order that is expected to be the cheapest. Behind each kernel: how much longer the
chosen order takes than the fastest of those that were timed, and how many pairs of orders, whose times differ by a tenth, are in the right order.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import datasets, indirect, prices
from sparsejax.errors import ScheduleError
from sparsejax.jit.cost import machine
from sparsejax.jit.inspect import forecast
from sparsejax.jit.ir.nest import orders
from sparsejax.jit.schedule import search

SECONDS, RUNS = 0.04, 5
APART = 1.1
"""Times that differ by less are taken to be the same."""

Program = tuple[str, Callable[..., Any], tuple[Any, ...]]


def blocks(quick: bool) -> Iterator[Program]:
    """Products of matrices in blocks of 8 x 8 and 32 x 32: as groups of four, by their rows, and as `A @ B`."""
    rng, size = np.random.default_rng(0), 512 if quick else 4096
    for block, stored, columns in ((8, 0.2, 128), (8, 0.2, 512), (32, 0.05, 128), (32, 0.05, 512), (8, 0.5, 512)):
        kept = rng.random((size // block, size // block)) < stored
        dense = rng.standard_normal((size, size), np.float32) * np.kron(kept, np.ones((block, block), np.float32))
        theirs = sp.bsr_array(dense, blocksize=(block, block))
        A = sj.array(theirs)
        R, K, V = (sj.array(x) for x in sj.formats.to_groupcoo(A.asformat(f"blockgroupcoo:{block}x{block}:4")))
        made = rng.standard_normal((size, columns), np.float32)
        B, parts, shape = sj.array(made), sj.array(made.reshape(-1, block, columns)), (size // block, block, columns)
        rows = sj.array(np.repeat(np.arange(size // block), np.diff(theirs.indptr)))
        title = f"{block} x {block}, {stored:.0%} stored, {columns} columns"
        yield f"groups {title}", _statement(indirect.GROUPS, shape, "RKVB"), (R, K, V, parts)
        own = sj.array(theirs.indices), sj.array(theirs.data)
        yield f"rows {title}", _statement(indirect.ROWS, shape, "RKVB"), (rows, *own, parts)
        yield f"bsr {title}", lambda A, B: A @ B, (A, B)


def _statement(text: str, shape: tuple[int, ...], names: str) -> Callable[..., Any]:
    """A statement over arrays in the order of their `names`, whose target starts from zeros."""
    target = "Out" if text.startswith("Out") else "C"
    made = indirect.statement(text, target, shape)
    return lambda *arrays: made(**dict(zip(names, arrays, strict=True)))


def graphs(quick: bool) -> Iterator[Program]:
    """Products of real matrices with 32 and 128 columns: by rows, by columns, and in groups."""
    rng = np.random.default_rng(0)
    for name in ("cora",) if quick else ("cora", "astro-ph-cc1", "4elt"):
        A = sj.asarray(datasets.matrix(name).astype("f4"))
        for columns in (32, 128):
            B = sj.array(rng.standard_normal((A.shape[1], columns), np.float32))
            R, K, V = (sj.array(x) for x in sj.formats.to_groupcoo(A.asformat("groupcoo")))
            title = f"{name}, {columns} columns"
            yield f"csr {title}", lambda A, B: A @ B, (A, B)
            yield f"csc {title}", lambda A, B: A @ B, (A.asformat("csc"), B)
            shape = (A.shape[0], columns)
            yield f"groupcoo {title}", _statement(indirect.UNSTRUCTURED, shape, "RKVB"), (R, K, V, B)


def points(quick: bool) -> Iterator[Program]:
    """Convolutions of a point cloud."""
    rng = np.random.default_rng(0)
    count, entries = (1000, 9000) if quick else (15_000, 140_000)
    key = np.unique(rng.integers(0, count * 27, entries))
    x, z = np.divmod(key, 27)
    near = np.clip(x + rng.integers(-200, 200, len(x)), 0, count - 1)
    N = sj.array((near, (x, z)), shape=(count, 27), format="csr")
    for channels in (32, 128):
        In, W = (rng.standard_normal(s, np.float32) for s in ((count, channels), (27, channels, channels)))
        arrays = tuple(map(sj.array, (In, W)))
        yield f"cloud {channels} channels", _convolution((count, channels)), (N, *arrays)
        yield (
            f"cloud in panels {channels} channels",
            _convolution((count, channels)),
            (N.asformat(indirect.PANELS), *arrays),
        )


def _convolution(shape: tuple[int, ...]) -> Callable[..., Any]:
    made = indirect.statement(indirect.CONVOLUTION, "Out", shape)
    return lambda N, In, W: made(N=N, In=In, W=W)


def tensors(quick: bool) -> Iterator[Program]:
    """MTTKRP, products of dense arrays, and products of three factors."""
    rng = np.random.default_rng(0)
    shape, entries, rank = ((60, 50, 40), 2000, 16) if quick else ((3000, 2000, 1000), 300_000, 32)
    where = np.unique(rng.integers(0, math.prod(shape), entries))
    X = sj.array((rng.standard_normal(len(where)), np.unravel_index(where, shape)), shape=shape, format="csf")
    B, C = (sj.array(rng.standard_normal((n, rank))) for n in shape[1:])
    yield "mttkrp csf", lambda X, B, C: sj.einsum("ijk,jr,kr->ir", X, B, C), (X, B, C)
    n = 100 if quick else 600
    D, E = (sj.array(rng.standard_normal((n, n), np.float32)) for _ in range(2))
    mask = sj.array(sp.random_array((n, n), density=0.05, format="csr", dtype=np.float32, rng=1))
    yield "sddmm", lambda S, D, E: S * (D @ E), (mask, D, E)
    T = sj.array(rng.standard_normal((n // 10, n // 10, n), np.float32))
    yield "dense contraction", lambda T, S: sj.einsum("abk,kc->abc", T, S), (T, mask)
    yield "chain", lambda S, D: (S @ S) @ D, (mask, D)
    yield "spgemm", lambda S: S @ S, (mask,)
    yield "transposed", lambda S, D: S.T @ D, (mask, D)


def kernel(step: Any, inputs: Sequence[Any], most: int, within: float) -> list[tuple[str, float, float]]:
    """The orders of a kernel, by name, cheapest first: expected and measured nanoseconds."""
    variant = None if step.variants is None else step.variants.of(inputs)
    runner, given = step.actual(inputs)
    like = None if variant is None or variant[0].like is None else inputs[variant[0].like]
    observed = runner.observe(given)
    known, nest = runner.planner.known(observed), runner.planner.plain
    if nest.nested or nest.has_constant:
        return []
    exact = forecast.not_rounded(known, runner.planner.known(runner.observe_exactly(given)))
    model = search.model(nest, exact)
    priced = [(model.total(model.walk(order)).running, order) for order in itertools.islice(orders(nest), 50_000)]
    priced = sorted((x for x in priced if math.isfinite(x[0])), key=lambda x: x[0])
    priced = [x for x in priced if x[0] <= within * priced[0][0]]
    runs: list[tuple[str, float, Callable[[], Any]]] = []
    for cost, order in priced:
        if len(runs) == most:
            break
        try:
            planned = runner.plan(observed, tuple(map(str, order)))
        except ScheduleError:
            continue
        moved = runner._moved(planned, given) if planned.moves else given
        call = planned.binding.run if like is None else functools.partial(planned.binding.run_over, like=like)
        runs.append((",".join(map(str, order)), cost, functools.partial(call, moved)))
    times = _times([run for _, _, run in runs])
    fixed = machine.current().call
    return [(name, cost + fixed, took) for (name, cost, _), took in zip(runs, times, strict=True)]


def _times(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """The median nanoseconds of each, in turns; those that take ten times as long as the fastest are run twice only."""

    def once(run: Callable[[], Any]) -> int:
        started = time.thread_time_ns()
        run()
        return time.thread_time_ns() - started

    first = [min(once(run), once(run)) for run in runs]
    took: list[list[float]] = [[t] for t in first]
    kept = [k for k, t in enumerate(first) if t < 10 * min(first)]
    until = time.perf_counter() + SECONDS * len(kept)
    number = 0
    while number < RUNS or time.perf_counter() < until:
        for k in kept:
            took[k] = [*(took[k] if number else []), once(runs[k])]
        number += 1
    return [statistics.median(t) for t in took]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="", help="beginnings of names, comma-separated")
    parser.add_argument("--most", type=int, default=8, help="orders of a kernel that are timed")
    parser.add_argument("--within", type=float, default=8.0, help="how many times the price of the cheapest")
    parser.add_argument("--quick", action="store_true", help="small operands")
    options = parser.parse_args()
    wanted = tuple(options.programs.split(","))
    right = pairs = 0
    lost: list[float] = []
    with sj.config.using(num_threads=1, cache_dir="off"):
        for make in (blocks, graphs, points, tensors):
            for title, function, arguments in make(options.quick):
                if not title.startswith(wanted):
                    continue
                for number, step, inputs in prices.kernels_of(function, arguments):
                    found = kernel(step, inputs, options.most, options.within)
                    if len(found) < 2:
                        continue
                    print(f"{title} {number}")
                    _, cost, took = found[0]
                    for name, expected, measured in found:
                        print(
                            f"    {name:24} {expected:12,.0f} {measured:12,.0f}   {expected / cost:6.2f} {measured / took:6.2f}"
                        )
                    agree, all_of = agreeing(found)
                    right, pairs = right + agree, pairs + all_of
                    lost.append(took / min(m for _, _, m in found))
                    print(
                        f"    the cheapest takes {lost[-1]:.2f} of the fastest; {agree} of {all_of} pairs", flush=True
                    )
    print(
        f"{len(lost)} kernels: at most {max(lost):.2f}, {math.exp(statistics.mean(map(math.log, lost))):.3f} in the mean; {right} of {pairs} pairs"
    )


def agreeing(found: Sequence[tuple[str, float, float]]) -> tuple[int, int]:
    """How many pairs of orders are in the right order, of those whose times differ."""
    apart = [(a, b) for a, b in itertools.combinations(found, 2) if max(a[2], b[2]) > APART * min(a[2], b[2])]
    return sum((a[1] - b[1]) * (a[2] - b[2]) > 0 for a, b in apart), len(apart)


if __name__ == "__main__":
    main()
