"""Matrices of the D2T2 paper's tables: at hand, or rebuilt from what they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from benchmarks import datasets


def mc2depi(size: int = 1024) -> sp.csr_array:
    """A Markov model of an epidemic: states (s, i) with s + i <= size, in this order; from each an infection (s-1, i+1), a
    recovery (s, i-1), an arrival (s+1, i). 525,825 rows and 2,100,225 entries, as the matrix of this name has."""
    s, i = (x.ravel() for x in np.meshgrid(np.arange(size + 1), np.arange(size + 1), indexing="ij"))
    inside = s + i <= size
    s, i = s[inside], i[inside]
    number = np.full((size + 1, size + 1), -1)
    number[s, i] = np.arange(len(s))
    rows, columns = [np.arange(len(s))], [np.arange(len(s))]
    for to, where in (((s - 1, i + 1), s > 0), ((s, i - 1), i > 0), ((s + 1, i), s + i < size)):
        rows.append(np.flatnonzero(where))
        columns.append(number[to[0][where], to[1][where]])
    where = np.concatenate(rows), np.concatenate(columns)
    return sp.csr_array((np.ones(len(where[0])), where), shape=(len(s), len(s)))


def bwm2000(size: int = 1000) -> sp.csr_array:
    """The Brusselator wave model of a reactor: two substances along a line, diffusion of each and a reaction of both: 7,996 entries."""
    line = sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(size, size))
    one = sp.eye_array(size)
    return sp.csr_array(sp.block_array([[line, one], [one, line]]))


def g33(rows: int = 100, columns: int = 20) -> sp.csr_array:
    """A graph of the Gset: a grid of 100 x 20 on a torus, 8,000 entries."""

    def ring(n: int) -> sp.csr_array:
        k = np.arange(n)
        return sp.csr_array(
            (np.ones(2 * n), (np.concatenate([k, k]), np.concatenate([(k + 1) % n, (k - 1) % n]))), shape=(n, n)
        )

    return sp.csr_array(sp.kron(ring(rows), sp.eye_array(columns)) + sp.kron(sp.eye_array(rows), ring(columns)))


MATRICES: dict[str, tuple[Callable[[], sp.csr_array], int, str]] = {
    "p2p-Gnutella31": (
        lambda: datasets.matrix("p2p-Gnutella31"),
        128,
        "up to 48.94 (Conservative; no number for this one alone)",
    ),
    "mc2depi": (mc2depi, 128, "no number in the text"),
    "bwm2000": (bwm2000, 32, "3.08 (speedup over Prescient on Opal)"),
    "G33": (g33, 32, "1.70 (speedup over Prescient on Opal)"),
}
"""How to build each, the edge of the dense tile that its buffer holds, and what the paper says of it."""
