"""A training step of the networks of examples/gcn.py: convolution beside torch's sparse csr tensors and JAX's BCOO, attention beside
lists of edges in both, which is how it is written there (gather, softmax by segments, scatter).

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python -m benchmarks.training PATH/cora.npz [--model gat] [--rounds 50]

Processor time per step on one thread, interleaved; every step has dropout of features and of the hidden layer, cross entropy, gradients and
Adam with decay, in float64. Libraries that are not installed are left out. torch and JAX drop features where BCOO and csr store them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsejax as sj
from examples import gcn

HIDDEN, RATE, DECAY = 16, 0.01, 5e-4
Step = Callable[[], Any]


def ours(graph: gcn.Graph, A: Any, model: gcn.Model) -> Step:
    step, key = gcn.training_step(model), sj.random.key(0)
    params = model.init(key, graph.features.shape[1], int(graph.labels.max()) + 1)
    data = (
        sj.array(A, copy=True),
        sj.array(graph.features, copy=True),
        sj.array(graph.train),
        sj.array(graph.labels[graph.train]),
    )
    held = [params, model.optimizer.init(params), key]

    def run() -> None:
        held[0], held[1], held[2], _ = step(*held, *data)

    return run


def torch_step(graph: gcn.Graph, A: Any) -> Step:
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)

    def csr(m: Any) -> Any:
        return torch.sparse_csr_tensor(torch.tensor(m.indptr), torch.tensor(m.indices), torch.tensor(m.data), m.shape)

    A, X = csr(A), csr(graph.features)
    shapes = (X.shape[1], HIDDEN), (HIDDEN,), (HIDDEN, int(graph.labels.max()) + 1), (int(graph.labels.max()) + 1,)
    weights = [torch.nn.Parameter(torch.randn(s, dtype=torch.float64) * 0.1) for s in shapes]
    optimizer = torch.optim.Adam(weights, RATE, weight_decay=DECAY)
    nodes, labels = torch.tensor(graph.train).long(), torch.tensor(graph.labels[graph.train]).long()

    def run() -> None:
        W1, b1, W2, b2 = weights
        dropped = torch.sparse_csr_tensor(
            X.crow_indices(), X.col_indices(), functional.dropout(X.values(), 0.5), X.shape
        )
        hidden = torch.relu(A @ (dropped @ W1) + b1)
        logits = A @ (functional.dropout(hidden, 0.5) @ W2) + b2
        optimizer.zero_grad()
        functional.cross_entropy(logits[nodes], labels).backward()
        optimizer.step()

    return run


def jax_step(graph: gcn.Graph, A: Any) -> Step:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    import jax
    import jax.numpy as jnp
    from jax.experimental import sparse

    jax.config.update("jax_enable_x64", True)
    A, X = sparse.BCOO.from_scipy_sparse(A), sparse.BCOO.from_scipy_sparse(graph.features)
    classes = int(graph.labels.max()) + 1
    shapes = (X.shape[1], HIDDEN), (HIDDEN,), (HIDDEN, classes), (classes,)
    weights = [jax.random.normal(jax.random.key(k), s) * 0.1 for k, s in enumerate(shapes)]
    nodes, labels = jnp.asarray(graph.train), jnp.asarray(graph.labels[graph.train])

    def kept(key: Any, x: Any) -> Any:
        return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x * 2, 0.0)

    def loss(weights: Any, key: Any, A: Any, X: Any) -> Any:
        first, second = jax.random.split(key)
        W1, b1, W2, b2 = weights
        dropped = sparse.BCOO((kept(first, X.data), X.indices), shape=X.shape)
        hidden = jax.nn.relu(A @ (dropped @ W1) + b1)
        logits = jax.nn.log_softmax((A @ (kept(second, hidden) @ W2) + b2)[nodes])
        return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

    return jax_adam(loss, weights, RATE, A, X)


def jax_adam(loss: Callable[..., Any], weights: list[Any], rate: float, *data: Any) -> Step:
    """Steps of Adam with decay on `loss(weights, key, *data)`, jitted as a whole."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(weights: Any, mean: Any, square: Any, count: Any, key: Any, *data: Any) -> Any:
        key, use = jax.random.split(key)
        grads = [g + DECAY * w for g, w in zip(jax.grad(loss)(weights, use, *data), weights, strict=True)]
        mean = [0.9 * m + 0.1 * g for m, g in zip(mean, grads, strict=True)]
        square = [0.999 * v + 0.001 * g * g for v, g in zip(square, grads, strict=True)]
        count = count + 1
        weights = [
            w - rate * m / (1 - 0.9**count) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)
            for w, m, v in zip(weights, mean, square, strict=True)
        ]
        return weights, mean, square, count, key

    zeros = [jnp.zeros(w.shape) for w in weights]
    held = [weights, zeros, zeros, jnp.zeros(()), jax.random.key(0)]

    def run() -> None:
        held[:] = jax.block_until_ready(step(*held, *data))

    return run


# -------------------------------------------------------------------------------------------- attention over edges


def gat_weights(graph: gcn.Graph) -> list[np.ndarray]:
    """W, a, b and bias of both layers: heads of 8 features, 8 in the first layer and 1 in the second."""
    rng, classes, made = np.random.default_rng(0), int(graph.labels.max()) + 1, []
    for inputs, heads, outputs in ((graph.features.shape[1], 8, 8), (64, 1, classes)):
        shapes = (inputs, heads, outputs), (heads, outputs), (heads, outputs), (heads, outputs)
        made += [0.1 * rng.standard_normal(shape) for shape in shapes]
    return made


def torch_gat(graph: gcn.Graph, A: Any) -> Step:
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    A, X = A.tocoo(), torch.tensor(graph.features.toarray())
    rows, columns, n = torch.tensor(A.row).long(), torch.tensor(A.col).long(), A.shape[0]
    weights = [torch.nn.Parameter(torch.tensor(w)) for w in gat_weights(graph)]
    optimizer = torch.optim.Adam(weights, 0.005, weight_decay=DECAY)
    nodes, labels = torch.tensor(graph.train).long(), torch.tensor(graph.labels[graph.train]).long()

    def layer(x: Any, W: Any, a: Any, b: Any, bias: Any) -> Any:
        H = torch.einsum("nf,fho->nho", functional.dropout(x, 0.6), W)
        scores = functional.leaky_relu((H * a).sum(-1)[rows] + (H * b).sum(-1)[columns], 0.2)
        index = rows[:, None].expand_as(scores)
        top = torch.full((n, scores.shape[1]), -torch.inf, dtype=scores.dtype)
        top = top.scatter_reduce(0, index, scores.detach(), "amax")
        parts = torch.exp(scores - top[rows])
        total = torch.zeros_like(top).index_add(0, rows, parts)
        parts = functional.dropout(parts / total[rows], 0.6)
        return torch.zeros_like(H).index_add(0, rows, parts[:, :, None] * H[columns]) + bias

    def run() -> None:
        hidden = functional.elu(layer(X, *weights[:4])).reshape(n, -1)
        logits = layer(hidden, *weights[4:]).reshape(n, -1)
        optimizer.zero_grad()
        functional.cross_entropy(logits[nodes], labels).backward()
        optimizer.step()

    return run


def jax_gat(graph: gcn.Graph, A: Any) -> Step:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    A, X = A.tocoo(), jnp.asarray(graph.features.toarray())
    rows, columns, n = jnp.asarray(A.row), jnp.asarray(A.col), A.shape[0]
    nodes, labels = jnp.asarray(graph.train), jnp.asarray(graph.labels[graph.train])

    def kept(key: Any, x: Any) -> Any:
        return jnp.where(jax.random.bernoulli(key, 0.4, x.shape), x / 0.4, 0.0)

    def layer(key: Any, x: Any, W: Any, a: Any, b: Any, bias: Any) -> Any:
        first, second = jax.random.split(key)
        H = jnp.einsum("nf,fho->nho", kept(first, x), W)
        scores = jax.nn.leaky_relu((H * a).sum(-1)[rows] + (H * b).sum(-1)[columns], 0.2)
        top = jax.lax.stop_gradient(jax.ops.segment_max(scores, rows, n, indices_are_sorted=True))
        parts = jnp.exp(scores - top[rows])
        parts = kept(second, parts / jax.ops.segment_sum(parts, rows, n, indices_are_sorted=True)[rows])
        return jax.ops.segment_sum(parts[:, :, None] * H[columns], rows, n, indices_are_sorted=True) + bias

    def loss(weights: Any, key: Any, X: Any) -> Any:
        first, second = jax.random.split(key)
        hidden = jax.nn.elu(layer(first, X, *weights[:4])).reshape(n, -1)
        logits = jax.nn.log_softmax(layer(second, hidden, *weights[4:]).reshape(n, -1)[nodes])
        return -jnp.take_along_axis(logits, labels[:, None], 1).mean()

    return jax_adam(loss, [jnp.asarray(w) for w in gat_weights(graph)], 0.005, X)


def in_turn(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """Median seconds of processor time of each, run in turn; each has run once before."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for run in steps.values():
        run()
    for _ in range(rounds):
        for name, run in steps.items():
            before = time.process_time()
            run()
            times[name].append(time.process_time() - before)
    return {name: statistics.median(spent) for name, spent in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a planetoid npz file")
    parser.add_argument("--model", choices=("gcn", "gat"), default="gcn")
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    graph = gcn.planetoid(options.data)
    A = gcn.normalised(graph.adjacency)
    model, others = gcn.graph_convolution(HIDDEN), (("torch", torch_step), ("jax", jax_step))
    if options.model == "gat":
        model, others = gcn.graph_attention(), (("torch", torch_gat), ("jax", jax_gat))
    steps = {"sparsejax": ours(graph, A, model)}
    for name, make in others:
        if importlib.util.find_spec(name):
            steps[name] = make(graph, A)
    medians = in_turn(steps, options.rounds)
    for name, median in medians.items():
        base = medians["sparsejax"]
        print(f"{name}: {1e3 * median:.2f} ms per step ({median / base:.2f} x the time of sparsejax)")


if __name__ == "__main__":
    main()
