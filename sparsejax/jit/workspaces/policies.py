"""The policies by name, and which one to use: the cheapest for the expected numbers of insertions and entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sparsejax.formats import Dense, Format
from sparsejax.jit import cin
from sparsejax.jit.builder import Builder, Val
from sparsejax.jit.workspaces.bitmap import Bitmap
from sparsejax.jit.workspaces.bucket import Bucket
from sparsejax.jit.workspaces.coordinate import Coordinate
from sparsejax.jit.workspaces.hashed import Hash
from sparsejax.jit.workspaces.keys import bits_of, words_of
from sparsejax.jit.workspaces.protocol import Workspace
from sparsejax.jit.workspaces.tree import Tree

POLICIES: dict[str, type[Workspace]] = {
    "bitmap": Bitmap,
    "hash": Hash,
    "coordinate": Coordinate,
    "bucket": Bucket,
    "tree": Tree,
}
LARGEST = 40  # bits of the largest bitmap workspace
SMALL = 16  # bits of the largest bitmap workspace where nothing is known about the operands
CACHE = 1 << 20  # bytes of a second-level cache

# Nanoseconds, as a loop iteration is about one; fitted by hand to the processor times of benchmarks/workspaces.py.
BITMAP_INSERT, BITMAP_ENTRY, BITMAP_LONE, BITMAP_POSITION = 2.0, 4.0, 8.0, 0.8
BLOCK_INSERT, BLOCK_ENTRY = 0.2, 0.3  # in blocks, by vectors
HASH_INSERT, HASH_ENTRY, HASH_MISS, HASH_USE = 7.0, 10.0, 60.0, 80.0
COORDINATE_INSERT, MERGE, COORDINATE_USE = 5.0, 8.0, 100.0
BUCKET_INSERT, BUCKET_ENTRY, BUCKET_USE, BUCKET_GROWTH = 8.0, 2.0, 600.0, 1000.0
TREE_INSERT, TREE_LEVEL = 15.0, 12.0
PASS, MISS = 1.5, 6.0
TRUST = 2.0  # how much cheaper than a bitmap another policy must seem: see `choose`
COMPILE = 5e5  # sorting, growing and merging double the code: 25 ms of compilation (measured), spread over fifty calls


@dataclass(frozen=True)
class Choice:
    """A policy, its expected cost in loop iterations, and why it was chosen."""

    policy: str
    cost: float
    reason: str


def make(b: Builder, tensor: cin.Tensor, extents: Sequence[Val], op: str | None) -> Workspace:
    """The workspace for `tensor`, by its policy."""
    return POLICIES[tensor.policy or ""](b, tensor, extents, op)


def default(shape: Sequence[int]) -> str:
    """The policy for a workspace of `shape` when nothing is known about the operands.

    >>> default((100,)), default((2**40, 2**40))
    ('bitmap', 'hash')
    """
    return "bitmap" if sum(map(bits_of, shape)) <= SMALL else "hash"


def dense_below(form: Format) -> int:
    """How many dense levels an output of format `form` has below its last sparse one.

    >>> dense_below(Format.parse("(d,c,d,d)", 4))
    2
    """
    dense = [isinstance(level, Dense) for level in form.levels]
    return next((k for k, full in enumerate(reversed(dense)) if not full), len(dense))


def costs(
    shape: Sequence[int], itemsize: int, inserts: float, entries: float, uses: float, below: int = 0
) -> dict[str, float]:
    """The cost of every policy, in loop iterations: `inserts` insertions that make `entries` entries, in all of `uses`
    times that the workspace is filled and drained. The last `below` variables are dense in the output.

    >>> found = costs((1000,), 8, 1e6, 1e5, 100)
    >>> min(found, key=found.get)
    'bitmap'
    """
    bits = sum(map(bits_of, shape))
    each_in, each_out = inserts / max(1.0, uses), entries / max(1.0, uses)
    entry = 8 * (1 + words_of(shape)[-1]) + itemsize

    def missed(size: float) -> float:
        return MISS * min(1.0, max(0.0, math.log2(max(1.0, size / CACHE)) / 4))

    def sorting(count: float, spread: int = bits) -> float:
        """Per entry: radix passes over no more bits than the keys have."""
        wide = 11.0 if count > 4096 else 8.0
        if count <= 32:
            return 1.0 + count / 4
        return PASS * math.ceil(max(1, spread) / wide) + 256 / count

    found: dict[str, float] = {}
    size = math.prod(float(n) for n in shape)
    padded = float(shape[0]) * 2.0 ** (bits - bits_of(shape[0])) if shape else 1.0
    if below:
        keys, block = shape[:-below], math.prod(float(n) for n in shape[-below:])
        spread, count = sum(map(bits_of, keys)), entries / max(1.0, block)
        padded = float(keys[0]) * 2.0 ** (spread - bits_of(keys[0]))
        if words_of(keys)[-1] == 0 and spread + math.log2(max(1.0, block)) <= LARGEST:
            lone = 1.0 - min(1.0, count / max(1.0, uses) / max(1.0, math.prod(float(n) for n in keys)))
            found["bitmap"] = (
                BITMAP_POSITION * min(padded * block, 512 * entries)
                + uses * padded / 2**18
                + inserts * (BLOCK_INSERT + missed(padded * block * itemsize) / 16)
                + count * (BITMAP_ENTRY + BITMAP_LONE * lone)
                + entries * BLOCK_ENTRY
            )
    elif words_of(shape)[-1] == 0 and bits <= LARGEST:
        found["bitmap"] = (
            BITMAP_POSITION * min(padded, 512 * entries)  # pages are touched once
            + uses * padded / 2**18
            + inserts * (BITMAP_INSERT + missed(padded * itemsize) / 2)
            + entries * (BITMAP_ENTRY + BITMAP_LONE * (1.0 - min(1.0, each_out / max(1.0, size))))
        )
    far = HASH_MISS / MISS * missed(4 * each_out * entry)
    found["hash"] = inserts * HASH_INSERT + entries * (HASH_ENTRY + far + sorting(each_out)) + HASH_USE * uses
    merges = MERGE * entries if each_in > 4096 else 0.0
    part = min(each_in, max(4096.0, each_out))
    found["coordinate"] = inserts * (COORDINATE_INSERT + sorting(part)) + merges + COORDINATE_USE * uses
    part = each_in / 256
    within = sorting(part, max(1, bits - 8))
    growth = 256 * BUCKET_GROWTH * math.log2(max(1.0, part / 16))  # a list is sorted whenever it is full
    found["bucket"] = inserts * (BUCKET_INSERT + within) + BUCKET_ENTRY * entries + (BUCKET_USE + growth) * uses
    depth = math.log2(max(2.0, each_out))
    found["tree"] = inserts * (TREE_INSERT + depth * (TREE_LEVEL + missed(each_out * (entry + 32)))) + 4 * entries
    return {name: cost + (0.0 if name == "bitmap" else COMPILE) for name, cost in found.items()}


def choose(
    shape: Sequence[int],
    itemsize: int,
    inserts: float,
    entries: float,
    uses: float,
    wanted: str = "auto",
    below: int = 0,
) -> Choice:
    """The policy for a workspace, the cheapest unless one is `wanted`; infinitely expensive where that one cannot be.

    Numbers of entries are expected for coordinates that are spread evenly. Where coordinates cluster, as those of real matrices
    do, far more insertions meet an entry that is there already: then sorting policies cost what is expected, bitmaps
    a fraction. So another policy must promise to be `TRUST` times cheaper than a bitmap.

    The last `below` variables are dense in the output.

    >>> choose((2**40, 2**40), 8, 1e4, 1e4, 1.0).policy
    'coordinate'
    >>> choose((2**40, 2**40), 8, 1e4, 1e4, 1.0, "tree").reason
    'as configured'
    """
    found = costs(shape, itemsize, inserts, entries, uses, below)
    if wanted != "auto":
        return Choice(wanted, found.get(wanted, math.inf), "as configured")
    policy = min(found, key=lambda name: found[name] / (TRUST if name == "bitmap" else 1.0))
    listed = ", ".join(f"{name} {cost:.3g}" for name, cost in sorted(found.items(), key=lambda item: item[1]))
    total = f"{inserts:.3g} insertions, {entries:.3g} entries, filled {uses:.3g} times"
    return Choice(policy, found[policy], f"{total}; costs {listed}")
