"""What filling and draining a workspace costs under each policy: a sum of terms, each a count times a constant.

`terms` counts, `NANOSECONDS` holds the constants. Both have the same keys, so that the constants can be fitted to measured times by
linear least squares: `python -m benchmarks.workspaces --fit` measures and prints the table below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparsejax.jit.workspaces.keys import bits_of, words_of

CACHE = 1 << 20  # bytes of a second-level cache
LARGEST = 36  # bits of the largest bitmap workspace

Terms = dict[str, dict[str, float]]

# Fitted by `python -m benchmarks.workspaces --fit` on an AMD EPYC, one thread, to the points that are there for it; `block` and
# `whole` (blocks of a bitmap, written by vectors) are set by hand. A nanosecond is about an iteration of a scalar loop. What
# assembling the result costs is part of the price.
NANOSECONDS: Terms = {
    "bitmap": {
        "insert": 2.6,
        "insert_far": 8.48,
        "entry": 0.0,
        "lone": 4.16,
        "entry_far": 9.9,
        "position": 0.274,
        "top": 30.6,
        "use": 147.0,
        "block": 0.2,
        "whole": 0.3,
    },
    "hash": {"insert": 6.6, "far": 22.2, "entry": 0.0, "pass": 6.99, "pass_far": 13.8, "short": 0.0, "use": 267.0},
    "coordinate": {
        "insert": 1.03,
        "pass": 2.15,
        "pass_far": 2.7,
        "short": 0.0,
        "merge": 7.49,
        "entry": 5.9,
        "use": 260.0,
    },
    "bucket": {
        "insert": 6.24,
        "pass": 3.81,
        "pass_far": 1.5,
        "short": 3.33,
        "growth": 506.0,
        "entry": 13.9,
        "use": 178.0,
    },
    "tree": {"insert": 0.0, "level": 5.49, "level_far": 33.6, "entry": 5.44, "use": 428.0},
}


def missed(size: float) -> float:
    """The fraction of accesses to random places among `size` bytes that miss the cache."""
    return min(1.0, max(0.0, math.log2(max(1.0, size / CACHE)) / 4))


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
    `uses` times that it is filled and drained. The last `below` variables are dense in the output.

    >>> terms((1000,), 8, 1e6, 1e5, 100)["bitmap"]["insert"]
    1000000.0
    >>> "bitmap" in terms((2**40,), 8, 10.0, 10.0, 1)
    False
    """
    uses = max(1.0, uses)
    bits = sum(map(bits_of, shape))
    each_in, each_out = inserts / uses, entries / uses
    entry = 8 * (1 + words_of(shape)[-1]) + itemsize
    found: Terms = {}
    bitmap = _bitmap(shape, itemsize, inserts, entries, uses, below)
    if bitmap is not None:
        found["bitmap"] = bitmap
    far = missed(4 * each_out * entry)
    found["hash"] = {
        "insert": inserts,
        "far": inserts * far,
        "entry": entries,
        **_sorting(entries, uses, bits, entry),
        "use": uses,
    }
    part = min(each_in, max(4096.0, each_out))
    flushes = uses * math.ceil(each_in / max(1.0, part))
    found["coordinate"] = {
        "insert": inserts,
        **_sorting(inserts, flushes, bits, entry),
        "merge": (flushes - uses) * each_out,
        "entry": entries,
        "use": uses,
    }
    found["bucket"] = {
        "insert": inserts,
        **_sorting(inserts, 256 * uses, max(1, bits - 8), entry),
        "growth": uses * min(256.0, each_out) * math.log2(max(1.0, each_in / 256 / 16)),
        "entry": entries,
        "use": uses,
    }
    depth = math.log2(max(2.0, each_out))
    found["tree"] = {
        "insert": inserts,
        "level": inserts * depth,
        "level_far": inserts * depth * missed(each_out * (entry + 32)),
        "entry": entries,
        "use": uses,
    }
    return found


def _bitmap(
    shape: Sequence[int], itemsize: int, inserts: float, entries: float, uses: float, below: int
) -> dict[str, float] | None:
    """The counts of a bitmap; None where keys take too many bits, or words."""
    block = math.prod(float(n) for n in shape[len(shape) - below :])
    keys = shape[: len(shape) - below]
    bits = sum(map(bits_of, keys))
    if not keys or words_of(keys)[-1] or bits + math.log2(max(1.0, block)) > LARGEST:
        return None
    padded = float(keys[0]) * 2.0 ** (bits - bits_of(keys[0]))
    count = entries / max(1.0, block)
    far = missed(padded * block * (itemsize + 1))
    filled = min(1.0, count / uses / max(1.0, math.prod(float(n) for n in keys)))
    found = {
        "entry": count,
        "lone": count * (1.0 - filled),
        "entry_far": count * far,
        "position": min(padded * block, 512 * count),  # pages are touched once
        "top": uses * padded / 2**18,
        "use": uses,
    }
    if below:
        return {**found, "block": inserts * (1.0 + far), "whole": entries}
    return {**found, "insert": inserts, "insert_far": inserts * far}


def costs(counts: Terms, constants: Terms = NANOSECONDS) -> dict[str, float]:
    """The cost of every policy in nanoseconds, from its terms.

    >>> found = costs(terms((1000,), 8, 1e6, 1e5, 100))
    >>> min(found, key=found.get)
    'bitmap'
    """
    return {
        policy: sum(constants[policy][name] * count for name, count in own.items()) for policy, own in counts.items()
    }
