"""Segments of equal numbers in a list that increases, found by a search: among all entries, or among those of some numbers side by side, of which a table
holds where they begin.

    tabled     listed 0 0 2 3 3, shift 1    table 0 2 5         numbers 0 and 1 from 0 on, 2 and 3 from 2 on
    begun      wanted 3                     table[3 >> 1] = 2, and between 2 and 5 the first entry that is not below 3

The table is no longer than what is found is expected to be, so that it takes less memory than a result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsejax.formats.levels.walk import end_of_range, lower_bound
from sparsejax.formats.passes import Array, Passes, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes import lengths, segment_loops
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, empty, pairs_of, run_parts, vectors

SELDOM = 1024
"""Of so many entries one is wanted at most where the table takes longer than a search among all."""
LEAST = 1 << 17
"""Elements that a table may always have."""
Shares = Sequence[tuple[int, int]]


def _tabled(many: Passes, listed: Array, extent: int, wanted: int, found: int) -> tuple[Array, int]:
    """Where numbers begin that are equal but for as many bits at their end, in a table of about as many elements as are `found`, and how many bits
    these are."""
    entries, bits = len(listed), max(0, extent - 1).bit_length()
    shift = max(0, bits - max(LEAST, found).bit_length())
    if SELDOM * wanted < entries or shift == bits:
        return np.array([0, entries]), bits
    kind = crd_dtype(entries + 1)
    return many.offsets(listed, ((extent - 1) >> shift) + 1, shift, kind), shift


def begun(many: Passes, listed: Array, extent: int, wanted: Array, shares: Shares) -> tuple[Array, Array]:
    """Where the segments of the numbers `wanted` begin, and where they begin and end when they stand side by side."""
    found = max(len(wanted), 2 * len(wanted) * len(listed) // extent)
    table, shift = _tabled(many, listed, extent, len(wanted), found)
    start, made = empty(len(wanted), INT64), empty(len(wanted) + 1, INT64)
    sizes = listed.itemsize, table.itemsize, wanted.itemsize, shift > 0
    lengths.lengths(_begun, sizes, made, shares, listed, table, wanted, start, shift)
    return start, made


def spotted(
    many: Passes, entries: tuple[Array, Array, Array], extent: int, places: tuple[Array, Array], shares: Shares
) -> tuple[Array, Array, Array]:
    """(numbers, values, counts): the places, a row and a coordinate each, that are among the entries (row, coordinate, value), and the values there; of each
    share from where it begins, so many."""
    (listed, crd, vals), (row, wanted) = entries, places
    table, shift = _tabled(many, listed, extent, len(wanted), len(wanted))
    number, made, count = (
        empty(len(wanted), crd_dtype(len(wanted))),
        empty(len(wanted), vals.dtype),
        np.empty(len(shares), INT64),
    )
    given = listed, crd, table, row, wanted, number
    kernel = _spotted(tuple([a.itemsize for a in given]), vals.itemsize, shift > 0)
    behind, counts = [*map(address, (*given, vals, made)), shift], address(count)
    run_parts(kernel, [(*pair, counts + 8 * k, *behind) for k, pair in enumerate(shares)])
    return number, made, count


def _among(b: Builder, table: Vector, number: Val, shift: Val | None) -> tuple[Val, Val]:
    """Between which entries a number is."""
    bucket = number if shift is None else b.named("bucket", b.binary("lshr", number, shift))
    return b.named("lo", table.number(b, bucket)), b.named("hi", table.number(b, b.add(bucket, 1)))


@as_kernel
def _begun(b: Builder, size: int, table_size: int, wanted_size: int, shifted: bool, alone: bool) -> None:
    counting = lengths.counting(b, alone)
    names = "listed", "table", "wanted", "start"
    listed, table, wanted, start = vectors(b, 4, (size, table_size, wanted_size, 8), names)
    shift = b.slot(8, "i64", "shift") if shifted else None

    def length(r: Val) -> Val:
        number = b.named("number", wanted.number(b, r))
        begin, end = _among(b, table, number, shift)
        if shift is not None:
            begin = b.named("begin", lower_bound(b, lambda p: b.lt(listed.number(b, p), number), begin, end))
            end = b.named("end", end_of_range(b, lambda p: b.eq(listed.number(b, p), number), begin, end))
        start.put(b, r, begin)
        return b.sub(end, begin)

    counting.put(b, length)


@as_kernel
def _spotted(b: Builder, sizes: tuple[int, ...], vals_size: int, shifted: bool) -> None:
    (first, end), (count,) = lengths.share(b), vectors(b, 2, (8,), ("count",))
    names = "listed", "crd", "table", "row", "wanted", "number"
    listed, crd, table, row, wanted, number = vectors(b, 3, sizes, names)
    shift = b.slot(11, "i64", "shift") if shifted else None

    def here(q: Val) -> Val:
        r, c = b.named("r", row.number(b, q)), b.named("c", wanted.number(b, q))
        lo, hi = _among(b, table, r, shift)
        if shift is None:
            return segment_loops.found_in(b, crd, lo, hi, c)

        def before(p: Val) -> Val:
            own = b.named("own", listed.number(b, p))
            return b.binary("or", b.lt(own, r), b.and_(b.eq(own, r), b.lt(crd.number(b, p), c)))

        place, found = b.named("place", lower_bound(b, before, lo, hi)), b.var("found", b.i64(-1))
        with b.if_(b.lt(place, hi)):
            same = b.and_(b.eq(listed.number(b, place), r), b.eq(crd.number(b, place), c))
            b.set(found, b.select(same, place, b.i64(-1)))
        return b.get(found)

    segment_loops.met(b, first, end, here, number, count, pairs_of(b, 9, (vals_size,)))
