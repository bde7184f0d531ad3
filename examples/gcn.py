"""Node classification with a graph neural network, trained and run by sparsejax.

    python examples/gcn.py                                  digits: the nearest-neighbour graph of handwritten digits
    python examples/gcn.py --data PATH/cora.npz             a planetoid data set (adjacency, features, labels, splits)
    python examples/gcn.py --data PATH/cora.npz --seeds 10  mean accuracy over ten seeds
    python examples/gcn.py --model gat                      graph attention instead of graph convolution

A training step (dropout, forward pass, gradients, Adam) is one jitted function. The forward pass of the trained network is then checked
against SciPy with the same weights and timed beside it. Exit code 1 if the two differ by more than 1e-10.

Models: Kipf and Welling, "Semi-Supervised Classification with Graph Convolutional Networks", 2017; Veličković et al., "Graph Attention
Networks", 2018.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import nn


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


# --------------------------------------------------------------------------------------------------------- training

Params = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """A network: `init(key, features, classes)` gives parameters, `logits(params, key, A, X)` a row per node, with dropout unless
    `key` is None."""

    init: Callable[[Any, int, int], Params]
    logits: Callable[[Params, Any, Any, Any], Any]
    optimizer: nn.Optimizer


def glorot(key: Any, *shape: int) -> Any:
    """Uniform weights (Glorot and Bengio, 2010) of shape (inputs, ..., outputs)."""
    limit = np.sqrt(6 / (shape[0] + np.prod(shape[1:])))
    return sj.random.uniform(key, shape, minval=-limit, maxval=limit)


def dropped(key: Any, x: Any, rate: float) -> Any:
    return x if key is None else nn.dropout(key, x, rate)


def graph_convolution(hidden: int, rate: float = 0.5) -> Model:
    """Two layers A @ (H @ W) + b."""

    def init(key: Any, features: int, classes: int) -> Params:
        first, second = sj.random.split(key)
        return {
            "W1": glorot(first, features, hidden),
            "b1": np.zeros(hidden),
            "W2": glorot(second, hidden, classes),
            "b2": np.zeros(classes),
        }

    def logits(params: Params, key: Any, A: Any, X: Any) -> Any:
        first, second = (None, None) if key is None else sj.random.split(key)
        H = nn.relu(A @ (dropped(first, X, rate) @ params["W1"]) + params["b1"])
        return A @ (dropped(second, H, rate) @ params["W2"]) + params["b2"]

    return Model(init, logits, nn.adam(0.01, weight_decay=5e-4))


def attention_layer(params: Params, key: Any, A: Any, X: Any, rate: float) -> Any:
    """For every head h: softmax over edges of leaky_relu(a.H_n + b.H_m), times H, where H = X W: (nodes, heads, outputs).

    The scores are an array (nodes, nodes, heads) over the edges of A: one walk over the pattern serves all heads.
    """
    first, second = (None, None) if key is None else sj.random.split(key)
    H = sj.einsum("nf,fho->nho", dropped(first, X, rate), params["W"])
    source, target = (sj.einsum("nho,ho->nh", H, params[name]) for name in ("a", "b"))
    edges = sj.lax.pattern(A)
    scores = sj.einsum("nm,nh->nmh", edges, source) + sj.einsum("nm,mh->nmh", edges, target)
    weights = nn.softmax(nn.leaky_relu(scores, 0.2), axis=1)
    return sj.einsum("nmh,mho->nho", dropped(second, weights, rate), H) + params["bias"]


def graph_attention(hidden: int = 8, heads: int = 8, rate: float = 0.6) -> Model:
    """Two layers of attention over edges, the first with `heads` heads of `hidden` features."""

    def layer(key: Any, inputs: int, heads: int, outputs: int) -> Params:
        w, a, b = sj.random.split(key, 3)
        return {
            "W": glorot(w, inputs, heads, outputs),
            "a": glorot(a, heads, outputs),
            "b": glorot(b, heads, outputs),
            "bias": np.zeros((heads, outputs)),
        }

    def init(key: Any, features: int, classes: int) -> Params:
        first, second = sj.random.split(key)
        return {"first": layer(first, features, heads, hidden), "second": layer(second, hidden * heads, 1, classes)}

    def logits(params: Params, key: Any, A: Any, X: Any) -> Any:
        first, second = (None, None) if key is None else sj.random.split(key)
        H = nn.elu(attention_layer(params["first"], first, A, X, rate))
        H = attention_layer(params["second"], second, A, H.reshape(H.shape[0], -1), rate)
        return H.reshape(H.shape[0], -1)

    return Model(init, logits, nn.adam(0.005, weight_decay=5e-4))


def training_step(model: Model) -> Callable[..., Any]:
    """(params, state, key, A, X, nodes, labels) -> (params, state, key, loss), as one jitted function."""

    def loss(params: Params, key: Any, A: Any, X: Any, nodes: Any, labels: Any) -> Any:
        rows = model.logits(params, key, A, X)[nodes]
        return nn.softmax_cross_entropy_with_integer_labels(rows, labels).mean()

    @sj.jit
    def step(params: Params, state: Any, key: Any, A: Any, X: Any, nodes: Any, labels: Any) -> Any:
        key, use = sj.random.split(key)
        value, grads = sj.value_and_grad(loss)(params, use, A, X, nodes, labels)
        updates, state = model.optimizer.update(grads, state, params)
        return nn.apply_updates(params, updates), state, key, value

    return step


def train(model: Model, step: Any, graph: Graph, A: Any, X: Any, epochs: int, seed: int) -> tuple[Params, list[float]]:
    """Parameters after full-batch training on the training nodes, and the processor time of every epoch."""
    key, start = sj.random.split(sj.random.key(seed))
    params = model.init(start, X.shape[1], int(graph.labels.max()) + 1)
    state = model.optimizer.init(params)
    labels, times = graph.labels[graph.train], []
    for _ in range(epochs):
        before = time.process_time()
        params, state, key, _ = step(params, state, key, A, X, graph.train, labels)
        times.append(time.process_time() - before)
    return params, times


def accuracy(logits: Any, graph: Graph) -> float:
    return float((logits.argmax(axis=1) == graph.labels)[graph.test].mean())


def medians(runs: list[Any], rounds: int) -> list[float]:
    """Median seconds of each function, run in turn so that drift of the machine hits all alike."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, collected in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            collected.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


def compare_forward(graph: Graph, A: sp.csr_array, X: Any, params: Params, rounds: int) -> float:
    """Prints the forward pass beside SciPy's with the same weights; returns the largest difference."""
    weights = [np.asarray(params[name]) for name in ("W1", "b1", "W2", "b2")]
    arrays = [sj.array(A, copy=True), sj.array(X, copy=True), *(sj.array(w) for w in weights)]
    print("\nWhat sparsejax made of the forward pass, formats included (d dense, c compressed):\n")
    print(sj.make_jaxpr(forward)(*arrays))
    print("\nThe loops it compiled:\n")
    print(forward.lower(*arrays).as_text("cin"))
    ours, theirs = forward(*arrays).todense(), forward_scipy(A, X, *weights)
    gap = float(np.abs(ours - theirs).max())
    print(f"\ntest accuracy, sparsejax: {100 * accuracy(ours, graph):.2f} %", end="")
    print(f"\ntest accuracy, SciPy: {100 * accuracy(theirs, graph):.2f} %")
    print(f"largest difference between the two: {gap:.1e}")
    fast, slow = medians([lambda: forward(*arrays), lambda: forward_scipy(A, X, *weights)], rounds)
    print(f"forward pass: sparsejax {1e3 * fast:.3f} ms, SciPy {1e3 * slow:.3f} ms ({slow / fast:.2f} x SciPy's speed)")
    return gap


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a planetoid npz file (default: scikit-learn's digits)")
    parser.add_argument("--model", choices=("gcn", "gat"), default="gcn", help="convolution or attention (default gcn)")
    parser.add_argument("--hidden", type=int, help="hidden features (default 16; of gat 8 per head)")
    parser.add_argument("--epochs", type=int, default=200, help="training epochs (default 200)")
    parser.add_argument("--seeds", type=int, default=1, help="networks to train, from seeds 0, 1, ... (default 1)")
    parser.add_argument("--rounds", type=int, default=50, help="timed forward passes (default 50)")
    parser.add_argument("--quick", action="store_true", help="20 epochs, 5 timed forward passes")
    options = parser.parse_args(arguments)
    epochs, rounds = (20, 5) if options.quick else (options.epochs, options.rounds)
    if epochs < 1 or rounds < 1 or options.seeds < 1:
        parser.error("--epochs, --rounds and --seeds must be at least 1")
    try:
        graph = planetoid(options.data) if options.data else digits()
    except (OSError, KeyError) as error:  # no such file; or no labels in it, as in data sets for regression
        parser.error(f"--data {options.data} is not a node classification data set: {error}")
    n, edges = graph.adjacency.shape[0], graph.adjacency.nnz
    print(
        f"Graph {graph.name}: {n} nodes, {edges} edges, {graph.features.shape[1]} features, {int(graph.labels.max()) + 1} classes"
    )

    A, X = normalised(graph.adjacency), graph.features
    arrays = sj.array(A, copy=True), sj.array(X, copy=True)
    model = graph_attention(options.hidden or 8) if options.model == "gat" else graph_convolution(options.hidden or 16)
    step, logits = training_step(model), sj.jit(lambda params, A, X: model.logits(params, None, A, X))
    print(f"Training on {len(graph.train)} nodes for {epochs} epochs ...")
    found = []
    for seed in range(options.seeds):
        params, times = train(model, step, graph, *arrays, epochs, seed)
        found.append(accuracy(logits(params, *arrays).todense(), graph))
        print(f"seed {seed}: test accuracy {100 * found[-1]:.2f} %, {1e3 * statistics.median(times):.2f} ms per epoch")
    if options.seeds > 1:
        print(
            f"mean test accuracy {100 * statistics.mean(found):.2f} %, standard deviation {100 * statistics.stdev(found):.2f} %"
        )
    if options.model == "gcn" and compare_forward(graph, A, X, params, rounds) > 1e-10:
        print("the two differ by more than 1e-10")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
