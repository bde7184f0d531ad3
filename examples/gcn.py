"""Node classification with a two-layer graph convolutional network, compiled by sparsejax.

    python examples/gcn.py                                  digits: the nearest-neighbour graph of handwritten digits
    python examples/gcn.py --data PATH/cora.npz             a planetoid data set (adjacency, features, labels, splits)

The weights come from a short training loop in plain NumPy and SciPy; the forward pass is then one jitted sparsejax function,
checked against SciPy with the same weights and timed beside it. Exit code 1 if the two differ by more than 1e-10.

Model: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", 2017.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp


@dataclass
class Graph:
    """Adjacency (n, n), features (n, f; sparse or dense), labels (n,), and the indices to train and test on."""

    name: str
    adjacency: sp.csr_array
    features: Any
    labels: np.ndarray
    train: np.ndarray
    test: np.ndarray


def digits() -> Graph:
    """1,797 handwritten digits; two are joined when one is among the 8 nearest neighbours of the other."""
    try:
        from sklearn.datasets import load_digits
        from sklearn.neighbors import kneighbors_graph
    except ImportError:
        sys.exit("this data set needs scikit-learn: pip install 'sparsejax[examples]', or pass --data PATH")
    images, labels = load_digits(return_X_y=True)
    near = sp.csr_array(kneighbors_graph(images, 8))
    adjacency = sp.csr_array(((near + near.T) > 0).astype(np.float64))
    shuffled = np.random.default_rng(0).permutation(len(labels))
    return Graph("digits", adjacency, images / 16.0, labels, shuffled[:200], shuffled[200:])


def planetoid(path: str) -> Graph:
    """A planetoid data set from an npz file with csr parts `adj_` and `feat_`, labels and splits."""
    with np.load(path, allow_pickle=False) as data:

        def csr(prefix: str) -> sp.csr_array:
            indices = data[f"{prefix}indices"]
            values = data[f"{prefix}data"] if f"{prefix}data" in data else np.ones(len(indices))
            parts = (values.astype(np.float64), indices, data[f"{prefix}indptr"])
            return sp.csr_array(parts, shape=tuple(int(n) for n in data[f"{prefix}shape"]))

        features = csr("feat_")
        sums = np.maximum(features.sum(axis=1), 1e-12)
        features = sp.csr_array(sp.diags_array(1 / sums) @ features)
        return Graph(path, csr("adj_"), features, data["labels"], data["train_idx"], data["test_idx"])


def normalised(adjacency: sp.csr_array) -> sp.csr_array:
    """D^-1/2 (A + I) D^-1/2, where D holds the degrees of A + I."""
    looped = sp.csr_array(adjacency + sp.eye_array(adjacency.shape[0]))
    scale = sp.diags_array(1 / np.sqrt(looped.sum(axis=1)))
    return sp.csr_array(scale @ looped @ scale)


def forward_scipy(A: Any, X: Any, W1: Any, b1: Any, W2: Any, b2: Any) -> np.ndarray:
    """The network in SciPy and NumPy."""
    hidden = np.maximum(A @ (X @ W1) + b1, 0)
    return np.asarray(A @ (hidden @ W2) + b2)


@sj.jit
def forward(A: Any, X: Any, W1: Any, b1: Any, W2: Any, b2: Any) -> Any:
    """The same network in sparsejax: traced once, fused, compiled."""
    hidden = snp.maximum(A @ (X @ W1) + b1, 0)
    return A @ (hidden @ W2) + b2


def train(graph: Graph, A: sp.csr_array, hidden: int, epochs: int, seed: int) -> list[np.ndarray]:
    """Weights by full-batch Adam on the cross entropy of the training nodes, gradients written out by hand."""
    rng = np.random.default_rng(seed)
    X, classes = graph.features, int(graph.labels.max()) + 1
    shapes = [(X.shape[1], hidden), (hidden,), (hidden, classes), (classes,)]
    weights = [rng.uniform(-1, 1, s) * np.sqrt(6 / sum(s)) if len(s) == 2 else np.zeros(s) for s in shapes]
    moments = [(np.zeros(s), np.zeros(s)) for s in shapes]
    target = np.eye(classes)[graph.labels[graph.train]]
    for epoch in range(1, epochs + 1):
        W1, b1, W2, b2 = weights
        pre = A @ (X @ W1) + b1
        act = np.maximum(pre, 0)
        logits = A @ (act @ W2) + b2
        d_logits = np.zeros_like(logits)
        shifted = np.exp(logits[graph.train] - logits[graph.train].max(axis=1, keepdims=True))
        d_logits[graph.train] = (shifted / shifted.sum(axis=1, keepdims=True) - target) / len(graph.train)
        back = A.T @ d_logits
        d_pre = (back @ W2.T) * (pre > 0)
        gradients = [X.T @ (A.T @ d_pre) + 5e-4 * W1, d_pre.sum(axis=0), act.T @ back, d_logits.sum(axis=0)]
        for k, g in enumerate(gradients):
            first, second = moments[k]
            moments[k] = (0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g * g)
            step = moments[k][0] / (1 - 0.9**epoch) / (np.sqrt(moments[k][1] / (1 - 0.999**epoch)) + 1e-8)
            weights[k] = weights[k] - 0.01 * step
    return weights


def medians(runs: list[Any], rounds: int) -> list[float]:
    """Median seconds of each function, run in turn so that drift of the machine hits all alike."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, collected in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            collected.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a planetoid npz file (default: scikit-learn's digits)")
    parser.add_argument("--hidden", type=int, default=16, help="hidden features (default 16)")
    parser.add_argument("--epochs", type=int, default=200, help="training epochs (default 200)")
    parser.add_argument("--rounds", type=int, default=50, help="timed forward passes (default 50)")
    options = parser.parse_args()

    try:
        graph = planetoid(options.data) if options.data else digits()
    except (OSError, KeyError) as error:  # no such file; or no labels in it, as in data sets for regression
        parser.error(f"--data {options.data} is not a node classification data set: {error}")
    n, edges = graph.adjacency.shape[0], graph.adjacency.nnz
    A, X = normalised(graph.adjacency), graph.features
    print(f"Graph {graph.name}: {n} nodes, {edges} edges, {X.shape[1]} features, {int(graph.labels.max()) + 1} classes")
    print(f"Training on {len(graph.train)} nodes for {options.epochs} epochs in NumPy ...")
    weights = train(graph, A, options.hidden, options.epochs, seed=0)

    arrays = [sj.array(A, copy=True), sj.array(X, copy=True), *(sj.array(w) for w in weights)]
    print("\nWhat sparsejax made of the forward pass, formats included (d dense, c compressed):\n")
    print(sj.make_jaxpr(forward)(*arrays))
    print("\nThe loops it compiled:\n")
    print(forward.lower(*arrays).as_text("cin"))

    ours, theirs = forward(*arrays).todense(), forward_scipy(A, X, *weights)
    gap = float(np.abs(ours - theirs).max())
    for name, logits in (("sparsejax", ours), ("SciPy", theirs)):
        accuracy = (logits.argmax(axis=1) == graph.labels)[graph.test].mean()
        print(f"\ntest accuracy, {name}: {100 * accuracy:.2f} %", end="")
    print(f"\nlargest difference between the two: {gap:.1e}")
    fast, slow = medians([lambda: forward(*arrays), lambda: forward_scipy(A, X, *weights)], options.rounds)
    print(f"forward pass: sparsejax {1e3 * fast:.3f} ms, SciPy {1e3 * slow:.3f} ms ({slow / fast:.2f} x SciPy's speed)")
    if gap > 1e-10:
        print("the two differ by more than 1e-10")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
