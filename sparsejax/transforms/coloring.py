"""Colours for the columns of a pattern: columns of one colour share no row, so that their sum tells their entries apart.

Source: Curtis, Powell and Reid 1974; Gebremedhin, Manne and Pothen, "What color is your Jacobian?" (2005), algorithm 3.1: partial
distance-2 colouring, greedy. Of two orders (natural, most entries first) the one that needs fewer colours.

Symmetric matrices can do with fewer: an arrow needs two. Every entry stands twice, and has to be alone with its colour in one of its two
rows only: neighbours differ, and no path over four vertices has two colours (star colouring; the same source, algorithm 4.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Colors = NDArray[np.int64]


def color_columns(pattern: Any) -> Colors:
    """A colour, from 0, for every column of a SciPy sparse matrix; columns without entries have colour 0.

    Time: entries times colours / 64.

    >>> import scipy.sparse as sp
    >>> color_columns(sp.diags_array([1.0, 1.0, 1.0], offsets=[-1, 0, 1], shape=(7, 7)))
    array([0, 1, 2, 0, 1, 2, 0])
    """
    columns = pattern.tocsc()
    sizes = np.diff(columns.indptr)
    least = int(np.diff(pattern.tocsr().indptr).max(initial=0))
    best = _greedy(columns, range(len(sizes)))
    if best.max(initial=-1) + 1 > max(least, 1):
        other = _greedy(columns, np.argsort(-sizes, kind="stable").tolist())
        best = min(best, other, key=lambda c: c.max(initial=-1))
    return best


def _greedy(columns: Any, order: Sequence[int]) -> Colors:
    """The first colour that no row of the column has seen; the colours of a row are bits of a Python integer."""
    ends, rows = columns.indptr.tolist(), columns.indices.tolist()
    seen = [0] * columns.shape[0]
    made = np.zeros(columns.shape[1], np.int64)
    for j in order:
        own = rows[ends[j] : ends[j + 1]]
        taken = 0
        for i in own:
            taken |= seen[i]
        bit = ~taken & (taken + 1)
        for i in own:
            seen[i] |= bit
        made[j] = bit.bit_length() - 1
    return made


MOST = 2e7
"""Steps of a star colouring, in Python, that are worth it."""


def color_symmetric(pattern: Any) -> Colors | None:
    """A star colouring of a symmetric pattern, most entries first; None where that would take too long.

    Time: the sum of the squared degrees of all vertices, and of their neighbours where colours meet.

    >>> import scipy.sparse as sp
    >>> arrow = sp.csr_array(np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]))
    >>> color_symmetric(arrow)
    array([0, 1, 1, 1])
    """
    rows = pattern.tocsr()
    degrees = np.diff(rows.indptr).astype(float)
    if float(degrees @ degrees) > MOST:
        return None
    neighbours = [
        [x for x in rows.indices[lo:hi].tolist() if x != v]
        for v, (lo, hi) in enumerate(zip(rows.indptr[:-1], rows.indptr[1:], strict=True))
    ]
    made = [-1] * rows.shape[0]
    for v in np.argsort(-degrees, kind="stable").tolist():
        taken = set()
        for w in neighbours[v]:
            if made[w] >= 0:
                taken.add(made[w])
            for x in neighbours[w]:
                if x == v or made[x] < 0 or made[x] in taken:
                    continue
                if made[w] < 0 or any(y != w and made[y] == made[w] for y in neighbours[x]):
                    taken.add(made[x])
        made[v] = next(c for c in range(len(taken) + 1) if c not in taken)
    return np.array(made, np.int64)


def alone(pattern: Any, colors: Colors) -> NDArray[np.bool_]:
    """Of every entry of a pattern in csr, whether no other entry of its row has the colour of its column."""
    rows = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    _, place, count = np.unique(
        rows * (int(colors.max(initial=0)) + 1) + colors[pattern.indices], return_inverse=True, return_counts=True
    )
    found: NDArray[np.bool_] = count[place] == 1
    return found
