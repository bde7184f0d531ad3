"""Small programs as somebody writes them who comes from SciPy, each in both libraries, in turns.

    python -m benchmarks.programs                    all of them
    python -m benchmarks.programs sampling folds     some
    python -m benchmarks.programs --rounds 21        medians over more rounds
    python -m benchmarks.programs --profile folds    where ours spends its time

sampling    400 nodes of a graph, five neighbours of each, two layers that average over them and multiply by weights
streaming   batches of triplets in a matrix that grows by `pad`, means of its columns after each
mesh        elements that are halved where the solution bends: triplets, slices and conjugate gradients, another size every time
folds       cross-validation of a sparse logistic regression by gradient descent, ours with `sj.grad` in `jit`, SciPy's by hand
ranks       PageRank of a graph of 2,000 nodes: one product and two sums per step; at once, with the step in `jit`, and with the whole loop
similar     documents most like each of a batch: normalised rows, `X[q] @ X.T`, the ten largest of each row

A round runs a program once on new data (the same for both), SciPy first in every other round; results are compared first. Ratios are SciPy's time over
ours (more is better), medians over rounds.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

import sparsejax as sj
import sparsejax.numpy as snp
from examples.refinement import refined

Data = dict[str, Any]
Run = Callable[[Data], Any]


def power_law(nodes: int, edges: int, rng: np.random.Generator) -> sp.csr_array:
    """A random graph with a few nodes of many neighbours, each its own neighbour too."""
    ends = (nodes * rng.random((2, edges)) ** 3).astype(np.int64)
    graph = sp.coo_array((np.ones(edges), tuple(ends)), shape=(nodes, nodes)).tocsr()
    return sp.csr_array((graph + graph.T + sp.eye_array(nodes)).astype(bool).astype(np.float64))


# ----------------------------------------------------------------------------------------------------------------------- sampling

GRAPH = power_law(20_000, 120_000, np.random.default_rng(0))
FEATURES = np.random.default_rng(1).standard_normal((20_000, 32))
W1, W2 = np.random.default_rng(2).standard_normal((32, 16)), np.random.default_rng(3).standard_normal((16, 8))
OUR_GRAPH, OUR_FEATURES, OUR_W1, OUR_W2 = sj.array(GRAPH), sj.array(FEATURES), sj.array(W1), sj.array(W2)


def sampling_data(rng: np.random.Generator) -> Data:
    return {"nodes": rng.choice(20_000, int(rng.integers(300, 500)), replace=False), "seed": int(rng.integers(1 << 30))}


def neighbours(pointers: np.ndarray, columns: np.ndarray, rng: np.random.Generator) -> tuple[Any, ...]:
    """Five neighbours of each row, drawn with replacement: rows, places among those that were reached, and these."""
    first, count = pointers[:-1], np.diff(pointers)
    drawn = first[:, None] + (rng.random((len(count), 5)) * count[:, None]).astype(np.int64)
    reached, place = np.unique(columns[drawn], return_inverse=True)
    return np.repeat(np.arange(len(count)), 5), place.ravel(), reached


def sampling_scipy(d: Data) -> Any:
    rng, nodes, layers = np.random.default_rng(d["seed"]), d["nodes"], []
    for _ in range(2):
        near = GRAPH[nodes]
        rows, places, reached = neighbours(near.indptr, near.indices, rng)
        layers.append(sp.csr_array((np.full(len(rows), 0.2), (rows, places)), shape=(len(nodes), len(reached))))
        nodes = reached
    hidden = np.maximum(layers[1] @ (FEATURES[nodes] @ W1), 0)
    return layers[0] @ (hidden @ W2)


def sampled(d: Data) -> tuple[Any, Any, Any]:
    rng, nodes, layers = np.random.default_rng(d["seed"]), d["nodes"], []
    for _ in range(2):
        near = OUR_GRAPH[nodes]
        rows, places, reached = neighbours(near.indptr, near.indices, rng)
        layers.append(
            sj.array((np.full(len(rows), 0.2), (rows, places)), shape=(len(nodes), len(reached)), format="csr")
        )
        nodes = reached
    return layers[0], layers[1], OUR_FEATURES[nodes]


def model(inner: Any, outer: Any, features: Any, first: Any, second: Any) -> Any:
    return inner @ (snp.maximum(outer @ (features @ first), 0) @ second)


compiled_model = sj.jit(model)


def sampling_at_once(d: Data) -> Any:
    return model(*sampled(d), OUR_W1, OUR_W2).todense()


def sampling_jit(d: Data) -> Any:
    return compiled_model(*sampled(d), OUR_W1, OUR_W2).todense()


# ---------------------------------------------------------------------------------------------------------------------- streaming


def streaming_data(rng: np.random.Generator) -> Data:
    batches = []
    for number in range(1, 21):
        found = int(rng.integers(500, 1500))
        users, items = (rng.random((2, found)) ** 2 * [[40 * number], [15 * number]]).astype(np.int64)
        batches.append((rng.integers(1, 6, found).astype(float), users, items))
    return {"batches": batches}


def streaming_scipy(d: Data) -> Any:
    total, means = sp.csr_array((1, 1)), []
    for values, users, items in d["batches"]:
        shape = max(total.shape[0], int(users.max()) + 1), max(total.shape[1], int(items.max()) + 1)
        total.resize(shape)
        total = total + sp.csr_array((values, (users, items)), shape=shape)
        means.append(total.sum(axis=0) / np.maximum(total.count_nonzero(axis=0), 1))
    return np.concatenate(means)


def streaming_ours(d: Data) -> Any:
    total, means = snp.zeros((1, 1), format="csr"), []
    for values, users, items in d["batches"]:
        shape = max(total.shape[0], int(users.max()) + 1), max(total.shape[1], int(items.max()) + 1)
        batch = sj.array((values, (users, items)), shape=shape, format="csr")
        total = snp.pad(total, [(0, n - m) for n, m in zip(shape, total.shape, strict=True)]) + batch
        means.append(total.sum(axis=0) / snp.maximum(snp.count_nonzero(total, axis=0), 1))
    return np.concatenate([m.todense() for m in means])


# --------------------------------------------------------------------------------------------------------------------------- mesh


def mesh_data(rng: np.random.Generator) -> Data:
    return {"place": float(rng.uniform(0.3, 0.7)), "nodes": int(rng.integers(9, 20))}


def bump(x: np.ndarray, place: float) -> np.ndarray:
    return x * (1 - x) * np.arctan((x - place) / 0.01)


def elements(nodes: np.ndarray, place: float) -> tuple[Any, ...]:
    """Triplets of the stiffness matrix, the elements' ends, and half of what each adds to the right side."""
    length, h = np.diff(nodes), 1e-5
    left, right = np.arange(len(length)), np.arange(1, len(nodes))
    middle = (nodes[:-1] + nodes[1:]) / 2
    load = -(bump(middle + h, place) - 2 * bump(middle, place) + bump(middle - h, place)) / h**2
    rows, columns = np.concatenate([left, right, left, right]), np.concatenate([left, right, right, left])
    values = np.concatenate([1 / length, 1 / length, -1 / length, -1 / length])
    return values, rows, columns, left, right, load * length / 2


def mesh_scipy(d: Data) -> Any:
    nodes = np.linspace(0, 1, d["nodes"])
    while True:
        values, rows, columns, left, right, half = elements(nodes, d["place"])
        A = sp.csr_array((values, (rows, columns)), shape=(len(nodes), len(nodes)))[1:-1, 1:-1]
        b = np.zeros(len(nodes))
        np.add.at(b, left, half)
        np.add.at(b, right, half)
        inverse = sp.diags_array(1 / A.diagonal(), format="csr")
        x, info = scipy.sparse.linalg.cg(A, b[1:-1], M=inverse, rtol=1e-12, maxiter=20 * len(nodes))
        assert info == 0
        u = np.concatenate([[0], x, [0]])
        if len(nodes) > 500:
            return bump(nodes, d["place"]).max() + u.max()
        nodes = refined(nodes, u)


def mesh_ours(d: Data) -> Any:
    nodes = np.linspace(0, 1, d["nodes"])
    while True:
        values, rows, columns, left, right, half = elements(nodes, d["place"])
        A = sj.array((values, (rows, columns)), shape=(len(nodes), len(nodes)), format="csr")[1:-1, 1:-1]
        b = sj.array(np.zeros(len(nodes))).at[left].add(half).at[right].add(half)
        inverse = snp.diag(1 / A.diagonal().todense())
        x, info = sj.scipy.sparse.linalg.cg(A, b[1:-1], M=inverse, rtol=1e-12, maxiter=20 * len(nodes))
        assert info == 0
        u = np.concatenate([[0], x.todense(), [0]])
        if len(nodes) > 500:
            return bump(nodes, d["place"]).max() + u.max()
        nodes = refined(nodes, u)


# -------------------------------------------------------------------------------------------------------------------------- folds


def folds_data(rng: np.random.Generator) -> Data:
    count = int(rng.integers(900, 1100))
    X = sp.random_array((count, 800), density=0.03, format="csr", rng=rng)
    cuts = np.sort(rng.choice(np.arange(1, count), 4, replace=False))
    return {
        "X": X,
        "ours": sj.array(X),
        "y": (rng.random(count) < 0.5) * 1.0,
        "folds": np.split(rng.permutation(count), cuts),
    }


def folds_scipy(d: Data) -> Any:
    X, y, found = d["X"], d["y"], []
    for held in d["folds"]:
        train = np.setdiff1d(np.arange(len(y)), held)
        rows, target, weights = X[train], y[train], np.zeros(X.shape[1])
        for _ in range(30):
            residual = 1 / (1 + np.exp(-(rows @ weights))) - target
            weights = weights - 4.0 * (rows.T @ residual / len(target) + 2e-3 * weights)
        found.append(np.mean((X[held] @ weights > 0) == (y[held] > 0.5)))
    return np.append(weights, found)


def loss(weights: Any, X: Any, y: Any) -> Any:
    scores = X @ weights
    return snp.mean(snp.logaddexp(0.0, scores) - y * scores) + 1e-3 * snp.sum(weights * weights)


gradient = sj.jit(sj.grad(loss))


def folds_ours(d: Data) -> Any:
    X, y, found = d["ours"], d["y"], []
    for held in d["folds"]:
        train = np.setdiff1d(np.arange(len(y)), held)
        rows, target, weights = X[train], y[train], snp.zeros(X.shape[1])
        for _ in range(30):
            weights = weights - 4.0 * gradient(weights, rows, target)
        found.append(float(snp.mean((X[held] @ weights > 0) == (y[held] > 0.5))))
    return np.append(weights.todense(), found)


# -------------------------------------------------------------------------------------------------------------------------- ranks


def ranks_data(rng: np.random.Generator) -> Data:
    graph = power_law(int(rng.integers(1_500, 2_500)), 12_000, rng)
    return {"graph": graph, "ours": sj.array(graph)}


def ranks_scipy(d: Data) -> Any:
    A = d["graph"]
    P = A.multiply(1 / A.sum(axis=1)[:, None]).tocsr().T.tocsr()
    r = np.full(P.shape[0], 1 / P.shape[0])
    for _ in range(50):
        new = 0.85 * (P @ r)
        new = new + (1 - new.sum()) / len(new)
        if np.abs(new - r).sum() < 1e-10:
            break
        r = new
    return new


def ranks_ours(d: Data) -> Any:
    A = d["ours"]
    P = (A * (1 / A.sum(axis=1))[:, None]).T.tocsr()
    r = snp.full(P.shape[0], 1 / P.shape[0])
    for _ in range(50):
        new = 0.85 * (P @ r)
        new = new + (1 - new.sum()) / len(new)
        if snp.abs(new - r).sum() < 1e-10:
            break
        r = new
    return new.todense()


@sj.jit
def ranked(P: Any, r: Any) -> tuple[Any, Any]:
    new = 0.85 * (P @ r)
    new = new + (1 - new.sum()) / new.shape[0]
    return new, snp.abs(new - r).sum()


def ranks_jit(d: Data) -> Any:
    A = d["ours"]
    P = (A * (1 / A.sum(axis=1))[:, None]).T.tocsr()
    r = snp.full(P.shape[0], 1 / P.shape[0])
    for _ in range(50):
        new, change = ranked(P, r)
        if change < 1e-10:
            break
        r = new
    return new.todense()


@sj.jit
def ranking(P: Any) -> Any:
    def step(state: Any) -> Any:
        r, _, k = state
        new = 0.85 * (P @ r)
        new = new + (1 - new.sum()) / new.shape[0]
        return new, snp.abs(new - r).sum(), k + 1

    r = snp.full(P.shape[0], 1 / P.shape[0])
    return sj.lax.while_loop(lambda state: (state[1] >= 1e-10) & (state[2] < 50), step, (r, snp.sum(r), 0))[0]


def ranks_loop(d: Data) -> Any:
    A = d["ours"]
    return ranking((A * (1 / A.sum(axis=1))[:, None]).T.tocsr()).todense()


# ------------------------------------------------------------------------------------------------------------------------ similar

DOCUMENTS = sp.random_array((5_000, 2_000), density=0.01, format="csr", rng=np.random.default_rng(4))
OUR_DOCUMENTS = sj.array(DOCUMENTS)


def similar_data(rng: np.random.Generator) -> Data:
    return {"q": rng.choice(5_000, int(rng.integers(30, 60)), replace=False)}


def similar_scipy(d: Data) -> Any:
    norms = scipy.sparse.linalg.norm(DOCUMENTS, axis=1)
    X = DOCUMENTS.multiply(1 / norms[:, None]).tocsr()
    scores = (X[d["q"]] @ X.T).toarray()
    near = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    return np.take_along_axis(scores, near, axis=1)


def similar_ours(d: Data) -> Any:
    norms = snp.linalg.norm(OUR_DOCUMENTS, axis=1)
    X = OUR_DOCUMENTS * (1 / norms)[:, None]
    scores = (X[d["q"]] @ X.T).todense()
    near = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    return np.take_along_axis(scores, near, axis=1)


PROGRAMS: dict[str, tuple[Callable[[np.random.Generator], Data], Run, dict[str, Run]]] = {
    "sampling": (sampling_data, sampling_scipy, {"at once": sampling_at_once, "jit": sampling_jit}),
    "streaming": (streaming_data, streaming_scipy, {"at once": streaming_ours}),
    "mesh": (mesh_data, mesh_scipy, {"at once": mesh_ours}),
    "folds": (folds_data, folds_scipy, {"jit": folds_ours}),
    "ranks": (ranks_data, ranks_scipy, {"at once": ranks_ours, "jit step": ranks_jit, "jit loop": ranks_loop}),
    "similar": (similar_data, similar_scipy, {"at once": similar_ours}),
}


def timed(run: Run, data: Data, clock: Callable[[], float]) -> float:
    started = clock()
    run(data)
    return clock() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=[], help=", ".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--processor", action="store_true", help="time of this thread's processor, on a busy machine")
    parser.add_argument("--profile", action="store_true", help="instead: where ours spends its time")
    options = parser.parse_args()
    clock = time.thread_time if options.processor else time.perf_counter
    if not options.profile:
        print("| program | ours | ms | SciPy, ms | ratio |\n|---|---|---|---|---|")
    for name in options.programs or PROGRAMS:
        make, scipys, ours = PROGRAMS[name]
        rng = np.random.default_rng(7)
        for _ in range(3):  # a program is known, its sizes are not
            data = make(rng)
            expected = scipys(data)
            for way, run in ours.items():
                assert np.allclose(run(data), expected, rtol=1e-7, atol=1e-9), f"{name}, {way}: differs from SciPy"
        if options.profile:
            for run in ours.values():
                profile = cProfile.Profile()
                for data in [make(rng) for _ in range(options.rounds)]:
                    profile.runcall(run, data)
                pstats.Stats(profile).sort_stats("tottime").print_stats(30)
            continue
        times: dict[str, list[tuple[float, float]]] = {way: [] for way in ours}
        for number in range(options.rounds):
            data = make(rng)
            for way, run in ours.items():
                sides = [run, scipys] if number % 2 else [scipys, run]
                spent = [timed(side, data, clock) for side in sides]
                times[way].append((spent[0], spent[1]) if number % 2 else (spent[1], spent[0]))
        for way, found in times.items():
            mine, theirs = (1e3 * statistics.median(t) for t in zip(*found, strict=True))
            ratio = statistics.median(b / a for a, b in found)
            print(f"| {name} | {way} | {mine:.2f} | {theirs:.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
