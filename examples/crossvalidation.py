"""k-fold cross-validation of a sparse logistic regression: every fold has other rows, and another number of them.

    python examples/crossvalidation.py            2,000 documents of 800 words, 10 folds
    python examples/crossvalidation.py --quick    300 documents, 4 folds

Rows are taken by index arrays (`X[train]`), the loss is differentiated and compiled once for all sizes, and its minimum is found by gradient descent. The
accuracies on held-out rows are printed with those of the same descent in NumPy and SciPy. Exit code 1 if weights differ by more than 1e-8.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

RIDGE, RATE = 1e-3, 4.0


def documents(count: int, words: int, rng: np.random.Generator) -> tuple[sp.csr_array, np.ndarray]:
    """Counts of words in documents of two topics, scaled to rows of length one, and the topics as 0 and 1."""
    topic = rng.integers(0, 2, count)
    likely = rng.dirichlet(np.full(words, 0.05), 2)
    counts = np.array([rng.multinomial(30, likely[t] * 0.6 + likely.mean(0) * 0.4) for t in topic])
    return sp.csr_array(counts / np.linalg.norm(counts, axis=1, keepdims=True)), topic.astype(float)


def folds(count: int, parts: int, rng: np.random.Generator) -> list[np.ndarray]:
    """A random partition of the rows into parts of different sizes."""
    cuts = np.sort(rng.choice(np.arange(1, count), parts - 1, replace=False))
    return np.split(rng.permutation(count), cuts)


def loss(weights: Any, X: Any, y: Any) -> Any:
    """The mean negative log likelihood, and a ridge."""
    scores = X @ weights
    return snp.mean(snp.logaddexp(0.0, scores) - y * scores) + RIDGE * snp.sum(weights * weights)


def expected(X: sp.csr_array, y: np.ndarray, steps: int) -> np.ndarray:
    """The weights after so many steps, by NumPy and SciPy."""
    weights = np.zeros(X.shape[1])
    for _ in range(steps):
        residual = 1 / (1 + np.exp(-(X @ weights))) - y
        weights = weights - RATE * (X.T @ residual / len(y) + 2 * RIDGE * weights)
    return weights


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="300 documents, 4 folds, 20 steps")
    options = parser.parse_args(arguments)
    count, words, parts, steps = (300, 120, 4, 20) if options.quick else (2_000, 800, 10, 100)
    rng = np.random.default_rng(0)
    matrix, y = documents(count, words, rng)
    X = sj.array(matrix)
    traces = 0

    def traced(*operands: Any) -> Any:
        nonlocal traces
        traces += 1
        return loss(*operands)

    gradient = sj.jit(sj.grad(traced))
    worst, accuracies, started = 0.0, [], time.perf_counter()
    for held in folds(count, parts, rng):
        train = np.setdiff1d(np.arange(count), held)
        rows, weights = X[train], snp.zeros(words)
        for _ in range(steps):
            weights = weights - RATE * gradient(weights, rows, y[train])
        accuracies.append(float(snp.mean((X[held] @ weights > 0) == (y[held] > 0.5))))
        worst = max(worst, float(np.abs(weights.todense() - expected(matrix[train], y[train], steps)).max()))
    print(
        f"{count} documents of {words} words, {parts} folds of {steps} steps in {time.perf_counter() - started:.2f} s; traced {traces} times"
    )
    print(
        f"accuracy {np.mean(accuracies):.3f} (folds from {min(accuracies):.3f} to {max(accuracies):.3f}); largest difference to NumPy {worst:.1e}"
    )
    return 0 if worst < 1e-8 else 1


if __name__ == "__main__":
    sys.exit(main())
