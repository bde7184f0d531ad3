"""A graph neural network trained on mini-batches of sampled neighbours: every batch has another size, and nothing is traced or compiled for it.

    python examples/minibatches.py                                   a random graph with a power law of degrees, 100,000 nodes
    python examples/minibatches.py --data PATH/NotreDame_www.mtx     a graph in a file of the Matrix Market
    python examples/minibatches.py --quick                           a small graph, few batches

A batch is a number of nodes, up to `--neighbours` sampled neighbours of each, and the same of those: two sparse matrices and the rows of the
features that they reach. The step (forward, loss, gradients) is one jitted function. It is timed per row on batches that differ, in turns with
batches of one size, whose features were gathered just before as theirs were; losses are checked against the same step in NumPy and SciPy. Exit
code 1 if these differ by more than 1e-9.

Model: Hamilton, Ying and Leskovec, "Inductive Representation Learning on Large Graphs", 2017, with means of sampled neighbours.
"""

from __future__ import annotations

import argparse
import statistics
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
    graph: sp.csr_array, nodes: np.ndarray, most: int, rng: np.random.Generator
) -> tuple[sp.csr_array, np.ndarray]:
    """Means over at most so many neighbours of every node, drawn with replacement, and who these are."""
    first, count = graph.indptr[nodes], np.diff(graph.indptr)[nodes]
    drawn = first[:, None] + (rng.random((len(nodes), most)) * count[:, None]).astype(np.int64)
    reached, column = np.unique(graph.indices[drawn], return_inverse=True)
    rows = np.repeat(np.arange(len(nodes)), most)
    means = sp.coo_array((np.full(rows.size, 1 / most), (rows, column.ravel())), shape=(len(nodes), len(reached)))
    return means.tocsr(), reached


def batch_of(graph: sp.csr_array, features: np.ndarray, labels: np.ndarray, size: int, most: int, rng: Any) -> Batch:
    nodes = rng.choice(graph.shape[0], size, replace=False)
    inner, middle = sampled(graph, nodes, most, rng)
    outer, reached = sampled(graph, middle, most, rng)
    return Batch(inner, outer, features[reached], labels[nodes])


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


def timed(step: Any, weights: Any, batch: Batch) -> tuple[float, Any]:
    """Seconds per row of the features that a step takes, and what it gives."""
    operands = [sj.array(batch.inner), sj.array(batch.outer), batch.features, batch.labels]
    started = time.perf_counter()
    made = step(weights, *operands)
    return (time.perf_counter() - started) / len(batch.features), made


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a graph in Matrix Market's format")
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--neighbours", type=int, default=5)
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
    low, high = (40, 90) if options.quick else (400, 900)
    sizes = rng.integers(low, high, count)
    worst, times, again = 0.0, [], []
    fixed = batch_of(graph, features, labels, (low + high) // 2, options.neighbours, rng)
    for number, size in enumerate(sizes):
        batch = batch_of(graph, features, labels, int(size), options.neighbours, rng)
        spent, (value, gradients) = timed(step, weights, batch)
        times.append(spent)
        if number % 10 == 0:
            worst = max(worst, abs(float(value) - expected(weights, batch)))
        # the same shapes, and features that were gathered just now too
        fixed.features = features[rng.choice(nodes, len(fixed.features))]
        again.append(timed(alone, weights, fixed)[0])
        weights = tuple(w - RATE * g.todense() for w, g in zip(weights, gradients, strict=True))
    late = statistics.median(times[len(times) // 5 :])
    print(f"{nodes:,} nodes, {graph.nnz:,} edges; {count} batches of {low} to {high} nodes, all of another size")
    print(f"loss {float(value):.3f}; largest difference to NumPy and SciPy {worst:.1e}")
    print(
        f"traced {traces} times; {1e9 * late:.0f} ns per row, {late / statistics.median(again[len(again) // 5 :]):.2f} of a fixed size"
    )
    return 0 if worst < 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
