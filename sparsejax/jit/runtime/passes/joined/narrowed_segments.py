"""Entries of segments whose coordinate is chosen, and the entries above that still have some: what one kernel runs.

    above 0 2 | 5    segments 0 4 | 1 | 2    chosen 1 to 2    above 2 | 5    segments 1 | 2

Every entry is written at the next place, which moves on where it is inside, without a branch; so is what is above, where a segment has got any. Room is
there for all: what is not written takes no memory, and is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sparsejax.formats.in_numpy.merging import Chosen
from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.runtime.passes import lengths, segment_loops
from sparsejax.jit.runtime.passes.pass_kernels import (
    INT64,
    address,
    as_kernel,
    closed_up,
    moved_up,
    pairs_of,
    run_parts,
    vectors,
)


def narrowed(
    above: Sequence[Array],
    pos: Array,
    crd: Array,
    chosen: Chosen,
    columns: Sequence[Array] | None,
    parts_of: Callable[[Array], list[tuple[int, int]]],
) -> tuple[list[Array], Array, Array, list[Array]]:
    """See `formats.joining_passes`."""
    own, *lists = map(np.ascontiguousarray, above)
    pos, crd = np.ascontiguousarray(pos), np.ascontiguousarray(crd)
    base, rows, entries = int(pos[0]), len(pos) - 1, int(pos[-1]) - int(pos[0])
    parts = parts_of(own)
    if isinstance(chosen, range):
        bounds, kind = (chosen.start, len(chosen) * chosen.step, chosen.step), crd_dtype(len(chosen))
        table, test = pos, "steps" if chosen.step > 1 else "range"
    elif isinstance(chosen, tuple):
        bounds, kind, table, test = (chosen[0], 0, 1), crd.dtype, pos, "up to" if chosen[1] else "from"
    else:
        bounds, kind, table, test = (0, 0, 1), chosen.dtype, np.ascontiguousarray(chosen), "table"
    made, ends = np.empty(len(own), INT64), np.empty(rows + 1, INT64)
    out, kept = np.empty(entries, kind), [np.empty(rows, a.dtype) for a in lists]
    sources = [] if columns is None else [*map(np.ascontiguousarray, columns)]
    moved = [np.empty(entries, a.dtype) for a in sources]
    numbers = np.empty(entries if columns is None else 0, crd_dtype(int(pos[-1])))
    counts = np.zeros((len(parts), 2), INT64)
    pairs = [address(a) for pair in (*zip(lists, kept, strict=True), *zip(sources, moved, strict=True)) for a in pair]
    sizes = tuple([a.itemsize for a in lists]), tuple([a.itemsize for a in sources])
    kernel = _narrowed(crd.itemsize, kind.itemsize, test, None if columns is not None else numbers.itemsize, *sizes)
    behind = *bounds, *map(address, (own, made, pos, ends, crd, out, table, numbers)), *pairs
    begins = [(int(own[first]), int(pos[own[first]]) - base) for first, _ in parts]
    run_parts(
        kernel,
        [
            (*pair, *begin, address(counts) + 16 * k, *behind)
            for k, (pair, begin) in enumerate(zip(parts, begins, strict=True))
        ],
    )
    up, down = (
        [slice(begin[k], begin[k] + int(n)) for begin, n in zip(begins, counts[:, k], strict=True)] for k in (0, 1)
    )
    made[0] = ends[0] = rose = fell = 0
    for (first, end), segments, inner in zip(parts, up, down, strict=True):
        if rose != segments.start:
            made[first + 1 : end + 1] -= segments.start - rose
        if fell != inner.start:
            ends[segments.start + 1 : segments.stop + 1] -= inner.start - fell
        rose, fell = rose + segments.stop - segments.start, fell + inner.stop - inner.start
    moved_up(ends[1:], up)
    ends.resize(rose + 1, refcheck=False)
    kept = [closed_up(a, up) for a in kept]
    moved = [closed_up(a, down) for a in ([numbers] if columns is None else moved)]
    return [made, *kept], ends, closed_up(out, down), moved


@as_kernel
def _narrowed(
    b: Builder,
    size: int,
    out_size: int,
    test: str,
    number_size: int | None,
    sizes: tuple[int, ...],
    column_sizes: tuple[int, ...],
) -> None:
    """Entries by a test; their numbers, or columns."""
    first, end = lengths.share(b)
    up, down = b.var("up", b.slot(2, "i64", "above")), b.var("down", b.slot(3, "i64", "below"))
    begin, span, step = (b.slot(k, "i64", name) for k, name in ((5, "start"), (6, "span"), (7, "step")))
    names = "own", "made", "pos", "ends", "crd", "out", "table", "numbers"
    own, made, pos, ends, crd, out, table, numbers = vectors(
        b, 8, (8, 8, 8, 8, size, out_size, out_size, number_size or 8), names
    )
    lists, moves = pairs_of(b, 16, sizes), pairs_of(b, 16 + 2 * len(sizes), column_sizes)
    (counts,) = vectors(b, 4, (8,), ("counts",))
    start_up, start_down = b.get(up), b.get(down)
    with b.for_(first, end, "s") as s:
        with b.for_(own.get(b, s), own.get(b, b.add(s, 1)), "r") as r:
            before = b.named("before", b.get(down))
            with b.for_(pos.get(b, r), pos.get(b, b.add(r, 1)), "p") as p:
                to, c = b.get(down), b.named("c", crd.number(b, p))
                if test in ("up to", "from"):
                    apart = b.sub(c, lists[-1][0].number(b, r))
                    here = b.convert("zext", b.compare("sle" if test == "up to" else "sge", apart, begin), "i64")
                    out.put(b, to, out.element(b, c))
                elif test == "table":
                    place = b.named("place", table.get(b, c))
                    here = b.convert("zext", b.compare("sge", place, b.const(table.type, 0)), "i64")
                    out.put(b, to, place)
                else:
                    distance = b.sub(c, begin)
                    here = segment_loops.inside(b, c, begin, span, step if test == "steps" else None)
                    out.put(b, to, out.element(b, b.binary("udiv", distance, step) if test == "steps" else distance))
                if number_size is not None:
                    numbers.put(b, to, numbers.element(b, p))
                for source, target in moves:
                    target.put(b, to, source.get(b, p))
                b.increment(down, here)
            for source, target in lists:
                target.put(b, b.get(up), source.get(b, r))
            ends.put(b, b.add(b.get(up), 1), b.get(down))
            b.increment(up, b.convert("zext", b.ne(b.get(down), before), "i64"))
        made.put(b, b.add(s, 1), b.get(up))
    counts.put(b, b.i64(0), b.sub(b.get(up), start_up))
    counts.put(b, b.i64(1), b.sub(b.get(down), start_down))
