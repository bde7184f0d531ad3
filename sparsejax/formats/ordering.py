"""Ordering of entries by counting: stable passes over their coordinates, last key first (`passes`).

Passes whose order is there already are skipped. A pass costs O(entries + extent); extents much larger than the number of entries
are split into digits, so that the cost never depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

import numpy as np

from sparsejax.formats import passes
from sparsejax.formats.passes import Array

CROWDED = 4
"""Lines that there may be for each entry where entries are put into lines, and ordered in each."""
SHORT = 32
"""Entries of a row up to which rows are short."""
HEAD = 4096  # entries looked at first, since unsorted entries mostly show early


def sort_order(keys: Sequence[Array], extents: Sequence[int]) -> Array | None:
    """The stable permutation that sorts entries by `keys` (most significant first); None when they are sorted already.

    >>> sort_order([np.array([2, 0, 2]), np.array([1, 5, 0])], (3, 6))
    array([1, 2, 0])
    """
    places = unsorted(keys)
    if not places:
        return None
    left, order = list(keys[:places]), np.arange(len(keys[0]), dtype=passes.crd_dtype(len(keys[0])))
    while left:
        key = left.pop()
        _, (*left, order) = passes.over(len(key)).ordered(key, [*left, order], extents[len(left)])
    return order.astype(np.intp, copy=False)


def arranged(keys: Sequence[Array], vals: Array, extents: Sequence[int], places: int) -> tuple[list[Array], Array]:
    """Keys and values of entries sorted by the first `places` keys, stably.

    >>> arranged([np.array([2, 0]), np.array([0, 5])], np.array([1.0, 2.0]), (3, 6), 1)
    ([array([0, 2]), array([5, 0])], array([2., 1.]))
    """
    held = [*keys, vals]
    arrange(held, extents, places)
    return held[:-1], held[-1]


def arrange(held: list[Array], extents: Sequence[int], places: int) -> None:
    """`arranged`, of keys and, last, values that only a list holds: each vector is let go as soon as it was moved."""
    if places > 1 and _in_rows(len(held[-1]), extents[: len(held) - 1]):
        _by_rows(held, extents)
        return
    for place in reversed(range(places)):
        key, extent = held.pop(place), extents[place]
        many = passes.over(len(key))
        if len(key) < passes.MANY or extent > CROWDED * len(key):
            key, held[:] = many.ordered(key, held, extent)
        else:
            pos, held[:] = many.bucketed(key, held, extent)
            key = many.owners(pos)
            del pos
        held.insert(place, key)
        del key


def _in_rows(entries: int, extents: Sequence[int]) -> bool:
    """Whether to put entries into the rows of the first key, and in order in each: of two keys a pass less; of more if rows are short."""
    rows, *inner = extents
    if not inner or rows > max(passes.MANY, CROWDED * entries):
        return False
    return len(inner) == 1 or (SHORT * rows >= entries >= passes.MANY and math.prod(inner) < 2**63)


def _by_rows(held: list[Array], extents: Sequence[int]) -> None:
    """`arrange` by all keys, the inner ones as one number."""
    rows, *inner = extents
    lead, vals = held.pop(0), held.pop()
    many, size = passes.over(len(vals)), math.prod(inner)
    if len(inner) > 1:
        held[:] = many.regrouped(held, inner, [size])
    (key,) = held
    held.clear()
    there = len(inner) > 1 and is_sorted([lead])
    if there:
        pos, vals = many.offsets(lead, rows), vals.copy()
    else:
        pos, (key, vals) = many.bucketed(lead, [key, vals], rows)
        del lead
    key, vals, _ = many.tidied(pos, key, vals)
    if not there:
        lead = many.owners(pos)
    del pos
    held += [lead, *(many.regrouped([key], [size], inner) if len(inner) > 1 else [key]), vals]


def unsorted(keys: Sequence[Array]) -> int:
    """How many of the first keys entries must be sorted by: they come sorted by the others. O(entries) for each of these."""
    places = len(keys) if keys and not is_sorted(keys) else 0
    while places and is_sorted(keys[places - 1 :]):
        places -= 1
    return places


def passes_between(source: Sequence[Hashable], target: Sequence[Sequence[Hashable]]) -> int:
    """By how many of the first keys entries that are sorted by `source` must be sorted, stably, to be sorted by the keys of `target`.

    Keys are named by what they hold, a key of `target` by one or several of `source` that follow each other.

    >>> passes_between("ijk", ["k", "i", "j"]), passes_between("ijk", ["k", "j", "i"]), passes_between("ijk", ["i", "jk"])
    (1, 2, 0)
    """
    for places in range(len(target)):
        done = {name for key in target[:places] for name in key}
        if [name for name in source if name not in done] == [name for key in target[places:] for name in key]:
            return places
    return len(target)


def is_sorted(keys: Sequence[Array]) -> bool:
    """Whether entries increase lexicographically by `keys` (equal neighbours are fine)."""
    if len(keys[0]) > 2 * HEAD and not is_sorted([key[:HEAD] for key in keys]):
        return False
    if len(keys) == 1:
        return not bool(np.any(keys[0][1:] < keys[0][:-1]))
    tied: Array | None = None
    for key in keys:
        falls, equal = key[1:] < key[:-1], key[1:] == key[:-1]
        if np.any(falls if tied is None else tied & falls):
            return False
        tied = equal if tied is None else tied & equal
    return True
