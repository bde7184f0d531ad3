"""A graph neural network trained on mini-batches of sampled neighbours: sizes change from batch to batch, and nothing is traced or compiled for them.

    python examples/minibatches.py                                   a random graph with a power law of degrees, 100,000 nodes
    python examples/minibatches.py --data PATH/NotreDame_www.mtx     a graph in a file of the Matrix Market
    python examples/minibatches.py --new 1                           no size comes twice
    python examples/minibatches.py --quick                           a small graph, few batches

A batch is a number of nodes, up to `--neighbours` sampled neighbours of each, and the same of those: two sparse matrices and the rows of the
features that they reach. The step (forward, loss, gradients) is one jitted function. One batch in five has sizes that never came before, the
others have those of an earlier one, with other nodes (some that nobody asked for fill them up). The step is timed per row, in turns with batches
that are all of one size, of other nodes each time too. Losses are checked against the same step in NumPy and SciPy. Exit code 1 if these differ
by more than 1e-9.

Model: Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", 2017, with means of sampled neighbours.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

CLASSES, FEATURES, HIDDEN, RATE = 8, 32, 16, 0.05


@dataclass
class Batch:
    """Means over sampled neighbours, first of the nodes of the batch (b, m), then of those (m, k); features of the latter (k, f); labels (b,)."""

    inner: sp.csr_array
    outer: sp.csr_array
    features: np.ndarray
    labels: np.ndarray


def power_law(nodes: int, rng: np.random.Generator) -> sp.csr_array:
    """A random graph with a few nodes of many neighbours."""
    ends = (nodes * rng.random((2, 6 * nodes)) ** 3).astype(np.int64)
    graph = sp.coo_array((np.ones(6 * nodes), tuple(ends)), shape=(nodes, nodes)).tocsr()
    return sp.csr_array((graph + graph.T + sp.eye_array(nodes)).astype(bool).astype(np.float64))


def sampled(
    graph: sp.csr_array, nodes: np.ndarray, most: int, rng: np.random.Generator, room: int | None = None
) -> tuple[sp.csr_array, np.ndarray] | None:
    """Means over at most so many neighbours of every node, drawn with replacement, and who these are; filled up with other nodes to as many as
    there is room for (if not given, a few more than were reached), None where more were reached."""
    first, count = graph.indptr[nodes], np.diff(graph.indptr)[nodes]
    drawn = first[:, None] + (rng.random((len(nodes), most)) * count[:, None]).astype(np.int64)
    reached, column = np.unique(graph.indices[drawn], return_inverse=True)
    room = len(reached) * 33 // 32 if room is None else room
    if room < len(reached):
        return None
    rows = np.repeat(np.arange(len(nodes)), most)
    means = sp.coo_array((np.full(rows.size, 1 / most), (rows, column.ravel())), shape=(len(nodes), room))
    return means.tocsr(), np.append(reached, rng.integers(0, graph.shape[0], room - len(reached)))


Sizes = tuple[int, int | None, int | None]
"""How many nodes a batch has, how many these may reach, and how many those; None for as many as they do."""


def batch_of(graph: sp.csr_array, features: np.ndarray, labels: np.ndarray, sizes: Sizes, most: int, rng: Any) -> Batch:
    while True:
        nodes = rng.choice(graph.shape[0], sizes[0], replace=False)
        one = sampled(graph, nodes, most, rng, sizes[1])
        two = None if one is None else sampled(graph, one[1], most, rng, sizes[2])
        if one is not None and two is not None:
            return Batch(one[0], two[0], features[two[1]], labels[nodes])


def sizes_of(batch: Batch) -> Sizes:
    return (*batch.inner.shape, batch.outer.shape[1])


def loss(weights: tuple[Any, Any], inner: Any, outer: Any, features: Any, labels: Any) -> Any:
    """The cross entropy of the batch."""
    first, second = weights
    hidden = snp.maximum(outer @ (features @ first), 0)
    scores = inner @ (hidden @ second)
    scores = scores - scores.max(axis=1, keepdims=True)
    chosen = snp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
    return snp.mean(snp.log(snp.exp(scores).sum(axis=1)) - chosen)


def expected(weights: tuple[Any, Any], batch: Batch) -> float:
    """The same in NumPy and SciPy."""
    first, second = weights
    scores = batch.inner @ (np.maximum(batch.outer @ (batch.features @ first), 0) @ second)
    scores = scores - scores.max(axis=1, keepdims=True)
    chosen = scores[np.arange(len(scores)), batch.labels]
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - chosen))


def timed(step: Any, weights: Any, batch: Batch, clock: Any) -> tuple[float, Any]:
    """Seconds that a step takes, and what it gives."""
    operands = [sj.array(batch.inner), sj.array(batch.outer), batch.features, batch.labels]
    started = clock()
    made = step(weights, *operands)
    return clock() - started, made


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a graph in Matrix Market's format")
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--neighbours", type=int, default=5)
    parser.add_argument(
        "--new", type=float, default=0.2, help="how many of the batches have sizes that never came before"
    )
    parser.add_argument("--processor", action="store_true", help="processor time in place of wall-clock time")
    parser.add_argument("--quick", action="store_true", help="a small graph, 30 batches")
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    if options.data:
        graph = sp.csr_array(scipy.io.mmread(options.data))
        graph = sp.csr_array(((graph + graph.T + sp.eye_array(graph.shape[0])) != 0).astype(np.float64))
    else:
        graph = power_law(2_000 if options.quick else 100_000, rng)
    count = 30 if options.quick else options.batches
    nodes = graph.shape[0]
    labels = rng.integers(0, CLASSES, nodes)
    features = rng.standard_normal((nodes, FEATURES)) + np.eye(CLASSES, FEATURES)[labels] * 2
    weights = tuple(rng.standard_normal(s) / 6 for s in ((FEATURES, HIDDEN), (HIDDEN, CLASSES)))
    traces = 0

    def traced(*arguments: Any) -> Any:
        nonlocal traces
        traces += 1
        return loss(*arguments)

    step = sj.jit(sj.value_and_grad(traced))
    alone = sj.jit(sj.value_and_grad(loss))  # sees one shape alone
    clock = time.process_time if options.processor else time.perf_counter
    low, high = (40, 90) if options.quick else (400, 900)
    worst, spent, rows, fresh = 0.0, np.zeros((count, 2)), np.zeros((count, 2)), np.zeros(count, bool)

    def drawn(sizes: Sizes) -> Batch:
        return batch_of(graph, features, labels, sizes, options.neighbours, rng)

    same = sizes_of(drawn(((low + high) // 2, None, None)))
    met: dict[Sizes, None] = {}
    for number in range(count):
        is_new = not met or int((number + 1) * options.new) > int(number * options.new)
        batch = drawn((int(rng.integers(low, high)), None, None) if is_new else list(met)[rng.integers(len(met))])
        fresh[number] = sizes_of(batch) not in met
        met[sizes_of(batch)] = None
        other = drawn(same)
        rows[number] = len(batch.features), len(other.features)
        for k in (0, 1) if number % 2 else (1, 0):
            if k:
                spent[number, k] = timed(alone, weights, other, clock)[0]
            else:
                spent[number, k], (value, gradients) = timed(step, weights, batch, clock)
        if number % 10 == 0:
            worst = max(worst, abs(float(value) - expected(weights, batch)))
        weights = tuple(w - RATE * g.todense() for w, g in zip(weights, gradients, strict=True))
    late = np.arange(count) >= count // 10
    one, same_one = np.median((spent / rows)[late], axis=0)
    parts = [
        f"{np.median((spent / rows)[late & w, 0]) / same_one:.2f} {n}"
        for w, n in ((fresh, "new"), (~fresh, "met before"))
        if (late & w).any()
    ]
    total, same_total = spent[late].sum(axis=0) / rows[late].sum(axis=0)
    print(f"{nodes:,} nodes, {graph.nnz:,} edges; {count} batches of {low} to {high} nodes, {fresh.sum()} of new sizes")
    print(f"loss {float(value):.3f}; largest difference to NumPy and SciPy {worst:.1e}")
    print(
        f"traced {traces} times; {1e9 * one:.0f} ns per row, {one / same_one:.2f} of one size ({', '.join(parts)}); all together {total / same_total:.2f}"
    )
    return 0 if worst < 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
