"""Ordering of entries by counting: stable passes over their coordinates, last key first.

Passes whose order is there already are skipped. A pass costs O(entries + extent); extents much larger than the number of entries
are split into 16-bit digits, so that the cost never depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats.segments import Array

SMALL = 2**15  # entries below which NumPy's radix sort of 16-bit digits beats the overhead of a SciPy call
HEAD = 4096  # entries looked at first, since unsorted entries mostly show early


def sort_order(keys: Sequence[Array], extents: Sequence[int]) -> Array | None:
    """The stable permutation that sorts entries by `keys` (most significant first); None when they are sorted already.

    >>> sort_order([np.array([2, 0, 2]), np.array([1, 5, 0])], (3, 6))
    array([1, 2, 0])
    """
    if not keys or is_sorted(keys):
        return None
    order: Array | None = None
    for place in reversed(range(len(keys))):
        if order is None and is_sorted(keys[place:]):
            continue  # the entries come in the order of these keys already
        order = _pass(order, keys[place], extents[place])
    return None if order is None else order.astype(np.intp, copy=False)


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


def _pass(order: Array | None, key: Array, extent: int) -> Array:
    """`order` (None: as they come) rearranged, stably, such that `key` increases."""
    size = len(key)
    key = key if order is None else np.take(key, order)
    if size >= SMALL and extent <= 4 * size:
        return _count(order, key, extent)
    for shift in range(0, max(1, (extent - 1).bit_length()), 16):
        digit = ((key >> shift) & 0xFFFF).astype(np.int32 if size >= SMALL else np.uint16)
        if size >= SMALL:
            step = _count(None, digit, 2**16)
        else:
            step = np.argsort(digit, kind="stable")  # a radix sort for 16-bit integers
        order = step if order is None else np.take(order, step)
        if shift + 16 < (extent - 1).bit_length():
            key = np.take(key, step)
    assert order is not None
    return order


def _count(order: Array | None, key: Array, extent: int) -> Array:
    """One counting pass: SciPy's transposition of a one-row matrix whose columns are `key` and whose values ride along."""
    import scipy.sparse as sp

    size = len(key)
    narrow = np.dtype(np.int32 if max(size, extent) < 2**31 else np.int64)
    values = np.arange(size, dtype=narrow) if order is None else order
    row = sp.csr_array((values, key.astype(narrow, copy=False), np.array([0, size], narrow)), shape=(1, extent))
    moved: Array = row.tocsc().data
    return moved
