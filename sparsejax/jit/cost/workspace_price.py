"""What filling and draining a workspace costs under each policy: a sum of terms, each a count times a constant.

`terms` counts, `NANOSECONDS` holds the constants. Both have the same keys, so that the constants can be fitted to measured times by
linear least squares: `python -m benchmarks.workspaces --fit` measures and prints the table below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparsejax.jit.cost import skew
from sparsejax.jit.cost.machine import missed

LARGEST = 36  # bits of the largest bitmap workspace
LANES, MANY, FEW, RANKED = 64, 128, 16, 96
"""Of a bitmap: marks that are looked at at once; a drain walks all of them when one in `MANY` is set, and else, or up to `FEW` keys,
compares up to `RANKED` keys with each other."""
FLUSH = 4096.0  # entries of the first list of `coordinate`

Terms = dict[str, dict[str, float]]

# Fitted by `python -m benchmarks.workspaces --fit` on an idle AMD EPYC, one thread, to the points that are there for it. `start` (a use
# that nothing is inserted in), `block` and `whole` (blocks of a bitmap, written by vectors) are set by hand, and where the fit says
# nothing or next to nothing of a bitmap, a little is taken. By hand are also `hash.insert`, all of `marks`, and `position` with
# `position_far`, the price of pages that are touched for the first time: fitted to next to nothing, and 0.3 (in the caches) to 5 where it is
# measured alone; bitmaps far larger than what they hold must not win by default. And `grouped`: products of rows of 120 to 1,000 entries among 131,072
# columns took 9.8 to 11.0 ns an entry with a bitmap, rows of 96 12.1 (1.0 foretold 5.6 and 16); a little less, since rows of a stencil take less. A
# nanosecond is about an iteration of a scalar loop. What assembling the result costs is part of the price; what all policies have in
# common is little of it.
NANOSECONDS: Terms = {
    "bitmap": {
        "insert": 0.614,
        "insert_far": 0.5,
        "entry": 0.5,
        "entry_far": 11.5,
        "position": 0.3,
        "position_far": 2.0,
        "ranked": 2.8,
        "compared": 0.7,
        "walked": 4.71,
        "grouped": 3.0,
        "top": 5.0,
        "use": 1.5,
        "start": 3.0,
        "block": 0.2,
        "whole": 0.3,
    },
    "marks": {
        "insert": 0.4,
        "insert_far": 0.5,
        "entry": 0.5,
        "entry_far": 11.5,
        "position": 0.3,
        "position_far": 2.0,
        "walked": 4.71,
        "use": 1.5,
        "start": 3.0,
        "block": 0.2,
        "whole": 0.3,
    },
    "hash": {
        "insert": 1.2,
        "far": 14.8,
        "grow": 9.98,
        "entry": 2.83,
        "pass": 2.99,
        "pass_far": 16.4,
        "short": 1.51,
        "use": 3.86,
        "start": 5.0,
    },
    "coordinate": {
        "insert": 2.07,
        "pass": 1.23,
        "pass_far": 2.14,
        "short": 0.088,
        "merge": 1.0,
        "merge_far": 4.79,
        "entry": 4.28,
        "use": 8.13,
        "start": 1.5,
    },
    "bucket": {
        "insert": 1.38,
        "pass": 3.12,
        "pass_far": 1.5,
        "short": 3.48,
        "growth": 397.0,
        "entry": 14.3,
        "use": 26.4,
        "start": 8.0,
    },
}


def _sorting(total: float, lists: float, bits: int, entry: int) -> dict[str, float]:
    """Terms of sorting `total` entries of `entry` bytes in `lists` lists by keys of `bits` bits (`lists.Entries.sort`)."""
    each = total / max(1.0, lists)
    if each <= 32:
        return {"short": total * each / 4}
    passes = math.ceil(max(1, bits) / (11 if each > 4096 else 8))
    far = missed(2 * each * entry)
    return {"pass": total * passes, "pass_far": total * passes * far}


def terms(shape: Sequence[int], itemsize: int, inserts: float, entries: float, uses: float, below: int = 0) -> Terms:
    """The counts of every policy that can hold a workspace of `shape`: `inserts` insertions that make `entries` entries, in all of
    `uses` times that it is started and drained. The last `below` variables are dense in the output. Uses that nothing is inserted
    in are counted apart ("start"), insertions being spread evenly.

    >>> terms((1000,), 8, 1e6, 1e5, 100)["bitmap"]["insert"]
    1000000.0
    >>> "bitmap" in terms((2**40,), 8, 10.0, 10.0, 1)
    False
    """
    started = max(1.0, uses)
    uses = max(1.0, skew.distinct(inserts, started))
    use = {"use": uses, "start": started - uses}
    bits = sum(map(bits_of, shape))
    each_in, each_out = inserts / uses, entries / uses
    entry = 8 * (1 + words_of(shape)[-1]) + itemsize
    found: Terms = {}
    bitmap = _bitmap(shape, itemsize, inserts, entries, uses, below)
    if bitmap is not None:
        found["bitmap"] = bitmap | use
        shared = {name: count for name, count in bitmap.items() if name in NANOSECONDS["marks"]}
        found["marks"] = {**shared, "walked": started * padded_size(shape[: len(shape) - below]) / LANES, **use}
    far = missed(4 * each_out * entry)
    found["hash"] = {
        "insert": inserts,
        "far": inserts * far,
        "grow": each_out,  # the table keeps its size between uses
        "entry": entries,
        **_sorting(entries, uses, bits, entry),
        **use,
    }
    part = min(each_in, max(FLUSH, each_out))
    flushes = uses * math.ceil(each_in / max(1.0, part))
    merged = uses * _merged(each_in, each_out)
    found["coordinate"] = {
        "insert": inserts,
        **_sorting(inserts, flushes, bits, entry),
        "merge": merged,
        "merge_far": merged * missed(2 * each_out * entry),
        "entry": entries,
        **use,
    }
    found["bucket"] = {
        "insert": inserts,
        **_sorting(inserts, 256 * uses, max(1, bits - 8), entry),
        "growth": uses * min(256.0, each_out) * math.log2(max(1.0, each_in / 256 / 16)),
        "entry": entries,
        **use,
    }
    return found


def _merged(inserts: float, entries: float) -> float:
    """The entries that merges write, the list of all doubling up to its size, when each list that is full is as long as it."""
    if inserts <= FLUSH:
        return 0.0
    return entries * inserts / FLUSH if entries <= FLUSH else max(2.0 * entries, inserts)


def _bitmap(
    shape: Sequence[int], itemsize: int, inserts: float, entries: float, uses: float, below: int
) -> dict[str, float] | None:
    """The counts of a bitmap; None where keys take too many bits, or words."""
    block = math.prod(float(n) for n in shape[len(shape) - below :])
    keys = shape[: len(shape) - below]
    bits = sum(map(bits_of, keys))
    if not keys or words_of(keys)[-1] or bits + math.log2(max(1.0, block)) > LARGEST:
        return None
    padded = padded_size(keys)
    count = entries / max(1.0, block)
    far = missed(padded * block * (itemsize + 1))
    each, touched = count / uses, min(padded * block, 512 * count)  # pages are touched once
    found = {
        "entry": count,
        "entry_far": count * far,
        "position": touched,
        "position_far": touched * far,
        **_drain(count, each, uses, padded),
    }
    if below:
        return {**found, "block": inserts * (1.0 + far), "whole": entries}
    return {**found, "insert": inserts, "insert_far": inserts * far}


def padded_size(shape: Sequence[int]) -> float:
    """The positions of a bitmap: inner extents are rounded up to powers of two."""
    return float(shape[0]) * 2.0 ** sum(map(bits_of, shape[1:]))


def _drain(count: float, each: float, uses: float, padded: float) -> dict[str, float]:
    """Terms of sorting the keys of a bitmap, `each` of them at a time (`bitmap.Bitmap.drain`)."""
    many = padded <= MANY * each
    if each <= (FEW if many else RANKED):
        return {"ranked": count, "compared": count * max(1.0, each / FEW)}
    return {"walked": uses * padded / LANES} if many else {"grouped": count, "top": uses * padded / 2**18}


def costs(counts: Terms, constants: Terms = NANOSECONDS) -> dict[str, float]:
    """The cost of every policy in nanoseconds, from its terms.

    >>> found = costs(terms((1000,), 8, 1e6, 1e5, 100))
    >>> min(found, key=found.get)
    'marks'
    """
    return {
        policy: sum(constants[policy][name] * count for name, count in own.items()) for policy, own in counts.items()
    }


BITS = 63


def bits_of(extent: int) -> int:
    """How many bits a coordinate below `extent` takes.

    >>> bits_of(1), bits_of(2), bits_of(5), bits_of(2**40)
    (0, 1, 3, 40)
    """
    return (max(extent, 1) - 1).bit_length()


def words_of(shape: Sequence[int]) -> tuple[int, ...]:
    """The word that holds each variable.

    >>> words_of((100, 100)), words_of((2**40, 2**40)), words_of((2**40, 2**20, 2**20))
    ((0, 0), (0, 1), (0, 0, 1))
    """
    placed: list[int] = []
    word, used = 0, 0
    for extent in shape:
        used += bits_of(extent)
        if placed and used > BITS:
            word, used = word + 1, bits_of(extent)
        placed.append(word)
    return tuple(placed)
