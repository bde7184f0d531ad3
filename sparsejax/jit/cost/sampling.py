"""How many entries a product of sparse operands has: its pattern, computed for a sample of the output's outermost coordinates.

    weight of i  = sum over the entries (i, k) of A of the number of entries of B at k         linear in the entries
    size of i    = root of weight and the largest of these numbers, between which the entries of row i lie
    estimate     = mean over draws i ~ size / sum of  |{j : some k in A[i,:], B[k,:] at j}| * sum / size[i]

One row is drawn from each of equal shares of the sizes.

Operands are relations over index variables; the pattern of the sample is their natural join, projected on the output's
variables. It sees what degrees alone cannot: rows that meet in the same columns. Source: importance-weighted row samples
in the manner of Cohen, "Structure prediction and computing sparse matrix products"; reference section 4.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.ir.nest import Nest

DRAWS, LARGEST = 64, 1 << 22

Ints = NDArray[np.int64]
Relation = dict[cin.IndexVar, Ints]


def entries(nest: Nest, inputs: Sequence[Storage], draws: int = DRAWS, seed: int = 0) -> float | None:
    """The expected number of entries of the output of `nest` on `inputs` (one per tensor of `nest.inputs`).

    None where patterns do not decide it: the expression is no product of its sparse operands (a sum, say), the output's
    outermost variable is in none of them, a single row of the output is too large, or runs cover too many coordinates. Fewer rows
    are drawn where these are long. Linear in the entries of the operands.
    """
    relations = _relations(nest, inputs)
    outer = nest.storage_indices[0] if nest.indices else None
    if relations is None or outer is None or not all(any(v in r for r in relations) for v in nest.indices):
        return None
    first = min((r for r in relations if outer in r), key=lambda r: len(r[outer]))
    others = [r for r in relations if r is not first]
    weight = np.ones(len(first[outer]))
    for other in others:
        weight *= _matches(first, other)
    total = float(weight.sum())
    if total == 0.0:
        return 0.0
    values, place = np.unique(first[outer], return_inverse=True)
    most = np.zeros(len(values))
    np.maximum.at(most, place, weight)
    mass = np.sqrt(np.bincount(place, weight) * most)
    ends = np.cumsum(mass)
    connected = _connected(first, others)
    while draws:
        points = (np.arange(draws) + np.random.default_rng(seed).random(draws)) * (ends[-1] / draws)
        drawn = np.minimum(np.searchsorted(ends, points, "right"), np.flatnonzero(mass)[-1])
        picked, times = np.unique(drawn, return_counts=True)
        joined = _sample(first, connected, np.isin(place, picked))
        if joined is not None:
            rows = np.searchsorted(values[picked], _rows(joined, outer, nest))
            counts = np.bincount(rows, minlength=len(picked))
            return float((times * counts / mass[picked]).sum() / draws * ends[-1])
        draws //= 4
    return None


def _sample(first: Relation, others: Sequence[Relation], kept: NDArray[np.bool_]) -> Relation | None:
    """The join of the rows of `first` that are `kept` with `others`; None when it would be too large."""
    joined: Relation | None = {v: c[kept] for v, c in first.items()}
    for other in others:
        if joined is None:
            return None
        joined = natural_join(joined, other)
    return joined


def _rows(joined: Relation, outer: cin.IndexVar, nest: Nest) -> Ints:
    """The coordinate of `outer` in every distinct entry of the output's pattern."""
    columns = [joined[outer], *(joined[v] for v in cin.followed(nest.indices) if v != outer)]
    sizes = [1 + int(c.max(initial=0)) for c in columns]
    if math.prod(sizes) >= 2**63:
        rows: Ints = np.unique(np.stack(columns), axis=1)[0]
        return rows
    keys = columns[0].copy()
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        keys *= size
        keys += column
    found: Ints = np.unique(keys) // math.prod(sizes[1:])
    return found


def _relations(nest: Nest, inputs: Sequence[Storage]) -> list[Relation] | None:
    """The sparse operands as relations; None where the absence of one leaves something to compute."""
    if len(nest.wholes) > 1:
        return None
    expr = simplify.simplify(nest.composite)
    storages = {t.name: s for t, s in zip(nest.inputs, inputs, strict=True)}
    made = []
    for access in dict.fromkeys(cin.accesses(expr)):
        if access.tensor.format.is_dense:
            continue
        if not isinstance(simplify.exhaust(expr, {access}), cin.Literal):
            return None
        stored = storages[access.tensor.name]
        if any(level.in_runs for level in stored.format.levels) and stored.nnz > LARGEST:
            return None
        coords, _ = convert.to_coords(stored)
        kept = np.ones(coords.shape[1], bool)
        relation: Relation = {}
        for column, index in zip(coords, access.indices, strict=True):
            at, var = cin.fixed(index), cin.follows(index)
            if at is not None:
                kept &= column == at
            elif var is None:
                continue
            elif var in relation:
                kept &= column == relation[var]
            else:
                relation[var] = column
        if relation:  # index arrays alone say where it is read: it restricts no variable
            made.append({v: c[kept] for v, c in relation.items()})
    return made or None


def _matches(left: Relation, right: Relation) -> NDArray[np.float64]:
    """For every row of `left`, how many rows of `right` agree with it on their shared variables (1 if they share none)."""
    shared = [v for v in left if v in right]
    if not shared:
        return np.ones(len(next(iter(left.values()))))
    a, b = _keys(left, right, shared)
    b = np.sort(b)
    return (np.searchsorted(b, a, "right") - np.searchsorted(b, a, "left")).astype(float)


def _keys(left: Relation, right: Relation, shared: Sequence[cin.IndexVar]) -> tuple[Ints, Ints]:
    """The shared columns of both sides as one number per row."""
    a, b = left[shared[0]], right[shared[0]]
    for v in shared[1:]:
        size = 1 + int(max(left[v].max(initial=0), right[v].max(initial=0)))
        _, both = np.unique(np.concatenate([a, b]), return_inverse=True)
        a, b = both[: len(a)] * size + left[v], both[len(a) :] * size + right[v]
    return a, b


def _connected(first: Relation, others: Sequence[Relation]) -> list[Relation]:
    """`others` such that each shares a variable with what comes before, where that is possible."""
    known, waiting, made = set(first), list(others), []
    while waiting:
        following = next((r for r in waiting if known & set(r)), waiting[0])
        waiting = [r for r in waiting if r is not following]
        made.append(following)
        known |= set(following)
    return made


def natural_join(left: Relation, right: Relation, largest: int = LARGEST) -> Relation | None:
    """The rows of both sides that agree on shared variables; None when they would be more than `largest`."""
    shared = [v for v in left if v in right]
    rows, width = len(next(iter(left.values()))), len(next(iter(right.values())))
    if shared:
        a, b = _keys(left, right, shared)
        order = np.argsort(b, kind="stable")
        ordered = b[order]
        lo, hi = np.searchsorted(ordered, a, "left"), np.searchsorted(ordered, a, "right")
    else:
        order, lo, hi = np.arange(width), np.zeros(rows, np.int64), np.full(rows, width)
    lengths = hi - lo
    if math.fsum(lengths) > largest:
        return None
    from_left = np.repeat(np.arange(rows), lengths)
    starts = np.repeat(lo - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) if rows else lo
    from_right = order[starts + np.arange(len(starts))]
    made = {v: c[from_left] for v, c in left.items()}
    return made | {v: c[from_right] for v, c in right.items() if v not in left}
