"""Adaptive mesh refinement: a boundary layer found by halving elements where the solution bends, a new matrix of another size every time.

    python examples/refinement.py            until 2,000 nodes
    python examples/refinement.py --quick    until 100 nodes

-u'' = f on (0, 1) with u(0) = u(1) = 0 and a solution with a sharp bump; linear finite elements. Matrices are assembled from triplets of the
elements (duplicates add up), equations are solved by conjugate gradients with the inverse of the diagonal. Exit code 1 if a solution differs from
SciPy's direct one, or the error does not fall as one over the number of nodes.

Source: the equidistribution of a residual indicator, Babuska and Rheinboldt, "Error estimates for adaptive finite element computations", 1978.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

import sparsejax as sj
import sparsejax.numpy as snp

WIDTH = 0.01


def bump(x: np.ndarray) -> np.ndarray:
    """The solution: zero at both ends, and steep in the middle."""
    return x * (1 - x) * np.arctan((x - 0.5) / WIDTH)


def load(x: np.ndarray) -> np.ndarray:
    """-u'' of `bump`, by central differences that are exact to the eye."""
    h = 1e-5
    return -(bump(x + h) - 2 * bump(x) + bump(x - h)) / h**2


def assembled(nodes: np.ndarray) -> tuple[Any, Any]:
    """The stiffness matrix and the right side of the inner nodes, element by element."""
    length = np.diff(nodes)
    left, right = np.arange(len(length)), np.arange(1, len(nodes))
    rows = np.concatenate([left, right, left, right])
    columns = np.concatenate([left, right, right, left])
    values = np.concatenate([1 / length, 1 / length, -1 / length, -1 / length])
    whole = sj.array((values, (rows, columns)), shape=(len(nodes), len(nodes)), format="csr")
    half = load((nodes[:-1] + nodes[1:]) / 2) * length / 2
    side = sj.array(np.zeros(len(nodes))).at[left].add(half).at[right].add(half)
    return whole[1:-1, 1:-1], side[1:-1]


def solved(A: Any, b: Any) -> Any:
    """Conjugate gradients, preconditioned by the diagonal."""
    inverse = snp.diag(1 / A.diagonal().todense())
    x, info = sj.scipy.sparse.linalg.cg(A, b, M=inverse, rtol=1e-12, maxiter=20 * b.shape[0])
    assert info == 0
    return x


def refined(nodes: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The nodes with the elements halved whose indicator, length times jump of the slopes, is above half of the largest."""
    slopes = np.diff(u) / np.diff(nodes)
    jump = np.abs(np.diff(slopes, prepend=slopes[0])) + np.abs(np.diff(slopes, append=slopes[-1]))
    indicator = jump * np.diff(nodes)
    halved = np.flatnonzero(indicator > indicator.max() / 4)
    return np.sort(np.concatenate([nodes, (nodes[halved] + nodes[halved + 1]) / 2]))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="until 100 nodes")
    options = parser.parse_args(arguments)
    nodes, worst, errors = np.linspace(0, 1, 9), 0.0, []
    while len(nodes) < (100 if options.quick else 2_000):
        A, b = assembled(nodes)
        u = np.concatenate([[0], solved(A, b).todense(), [0]])
        direct = scipy.sparse.linalg.spsolve(sp.csc_array(A.to_scipy()), b.todense())
        worst = max(worst, float(np.abs(u[1:-1] - direct).max() / np.abs(direct).max()))
        errors.append((len(nodes), float(np.abs(u - bump(nodes)).max())))
        nodes = refined(nodes, u)
    for count, error in errors[:: max(1, len(errors) // 8)]:
        print(f"{count:6} nodes   largest error {error:.2e}")
    (first, before), (last, after) = errors[0], errors[-1]
    print(
        f"{len(errors)} meshes; error times nodes fell from {before * first:.2e} to {after * last:.2e}; largest difference to a direct solution {worst:.1e}"
    )
    return 0 if worst < 1e-7 and after * last < before * first else 1


if __name__ == "__main__":
    sys.exit(main())
