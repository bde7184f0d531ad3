"""Segments of two arrays in one order: what one kernel for each runs.

    one 0 3 | 1    other 3 4 | 1
    united         0 3 4 | 1      before 0 1 2 2 3 and 0 0 1 2 3
    merged         0 3 3 4 | 1 1
    spliced        0 3 3 4 | 1 1, as they come, a number added to each segment of each

Which of two entries comes first is not to be foreseen: both are read, one is written, and the places of both move on or do not, without a branch. The single
segment of a list of all coordinates is cut where its first coordinate changes, so that every thread has a part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes import lengths
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import (
    INT64,
    address,
    as_kernel,
    closed_up,
    empty,
    moved_up,
    run_parts,
    vectors,
)
from sparsejax.jit.runtime.system import threads

Parts = Callable[[Array], list[tuple[int, int]]]
"""Segments in parts, one for every thread, by their `pos`."""


def _kept(part: Sequence[Array]) -> list[Array]:
    return [np.ascontiguousarray(a) for a in part]


def _cut(one: list[Array], other: list[Array]) -> None:
    """Cut the only segment of both where the first column has the same values, for several threads."""
    count = threads.count()
    if len(one[0]) != 2 or count < 2:
        return
    longest = max(one[1], other[1], key=len)
    values = longest[len(longest) // count :: max(1, len(longest) // count)]
    for part in (one, other):
        part[0] = np.concatenate((part[0][:1], part[1].searchsorted(values), part[0][1:]))


def united(given: Sequence[Array], beside: Sequence[Array], parts_of: Parts) -> tuple[Array, list[Array], Array, Array]:
    """See `formats.joining_passes`."""
    one, other, segments = _kept(given), _kept(beside), len(given[0]) - 1
    _cut(one, other)
    ends = one[0] + other[0]
    total, parts = int(ends[-1]), parts_of(ends)
    made, counts = np.empty(len(ends), INT64), np.zeros(len(parts), INT64)
    crds = [np.empty(total, crd.dtype) for crd in one[1:]]
    numbers = [np.empty(total + 1, crd_dtype(len(part[1]) + 1)) for part in (one, other)]
    kernel = _united(tuple([c.itemsize for c in crds]), tuple([n.itemsize for n in numbers]))
    columns = [a for three in zip(one[1:], other[1:], crds, strict=True) for a in three]
    behind = [address(a) for a in (one[0], other[0], made, *numbers, *columns)]
    run_parts(kernel, [(*pair, int(ends[pair[0]]), address(counts) + 8 * k, *behind) for k, pair in enumerate(parts)])
    pieces = [slice(int(ends[first]), int(ends[first]) + int(n)) for (first, _), n in zip(parts, counts, strict=True)]
    made[0] = found = 0
    for (first, end), piece in zip(parts, pieces, strict=True):
        if found != piece.start:
            made[first + 1 : end + 1] -= piece.start - found
        found += piece.stop - piece.start
    crds = [closed_up(crd, pieces) for crd in crds]
    for number, part in zip(numbers, (one, other), strict=True):
        moved_up(number, pieces)
        number.resize(found + 1, refcheck=False)
        number[-1] = len(part[1])
    left, right = numbers
    return made if len(made) == segments + 1 else made[[0, -1]], crds, left, right


def merged(given: Sequence[Array], beside: Sequence[Array], by: int, shift: int, parts_of: Parts) -> list[Array]:
    """See `formats.joining_passes`."""
    one, other = _kept(given), _kept(beside)
    _cut(one, other)
    ends = one[0] + other[0]
    made = [empty(int(ends[-1]), column.dtype) for column in one[1:]]
    columns = [a for three in zip(one[1:], other[1:], made, strict=True) for a in three]
    behind = shift, *(address(a) for a in (one[0], other[0], *columns))
    kernel = _merged(tuple([column.itemsize for column in made]), by)
    run_parts(kernel, [(*pair, *behind) for pair in parts_of(ends)])
    return made


def spliced(parts: Sequence[tuple[Array, Array, Array]], end: int, parts_of: Parts) -> Array:
    """See `formats.joining_passes`."""
    kept = [_kept(part) for part in parts]
    pos = kept[0][0].copy()
    for other in kept[1:]:
        pos += other[0]
    made = np.empty(int(pos[-1]) + 1, INT64)
    made[-1] = end
    table = np.array([[*map(address, part)] for part in kept], INT64)
    behind = len(kept), *map(address, (table, pos, made))
    run_parts(_spliced(kept[0][1].itemsize), [(*pair, *behind) for pair in parts_of(pos)])
    return made


def _comes_before(b: Builder, left: Sequence[Val], right: Sequence[Val]) -> Val:
    """Whether numbers come before others, by the first in which they differ."""
    *outer, last = zip(left, right, strict=True)
    made = b.lt(*last)
    for x, y in reversed(outer):
        made = b.binary("or", b.lt(x, y), b.and_(b.eq(x, y), made))
    return made


def _steps(b: Builder, condition: Val) -> Val:
    return b.convert("zext", condition, "i64")


def _in_turns(
    b: Builder,
    first: Val,
    end: Val,
    pos: Sequence[Vector],
    both: Callable[[Val, Val], tuple[Val, Val]],
    alone: Callable[[int, Val, Val], None],
    closed: Callable[[Val], None],
) -> None:
    """Of every segment `both` next entries of two parts, which tells how far each part moves on; then what is left `alone` of one part, with where the
    other ends; then the segment is `closed`."""
    left, right = b.var("left", b.i64(0)), b.var("right", b.i64(0))
    with b.for_(first, end, "r") as r:
        after = b.add(r, 1)
        (lo, hi), (lo2, hi2) = ((own.get(b, r), own.get(b, after)) for own in pos)
        b.set(left, lo)
        b.set(right, lo2)
        with b.while_(lambda hi=hi, hi2=hi2: b.and_(b.lt(b.get(left), hi), b.lt(b.get(right), hi2))):  # type: ignore[misc]
            step, step2 = both(b.get(left), b.get(right))
            b.increment(left, step)
            b.increment(right, step2)
        with b.for_(b.get(left), hi, "p") as p:
            alone(0, p, hi2)
        with b.for_(b.get(right), hi2, "q") as q:
            alone(1, q, hi)
        closed(r)


@as_kernel
def _united(b: Builder, sizes: tuple[int, ...], number_sizes: tuple[int, ...]) -> None:
    (first, end), begin, (count,) = lengths.share(b), b.slot(2, "i64", "begin"), vectors(b, 3, (8,), ("count",))
    *pos, made, left, right = vectors(b, 4, (8, 8, 8, *number_sizes), ("pos", "pos", "made", "left", "right"))
    lists = [vectors(b, 9 + 3 * k, (size, size, size), ("crd", "crd", "out")) for k, size in enumerate(sizes)]
    at = b.var("at", begin)

    def put(p: Val, q: Val) -> None:
        left.put(b, b.get(at), left.element(b, p))
        right.put(b, b.get(at), right.element(b, q))
        b.increment(at)

    def both(p: Val, q: Val) -> tuple[Val, Val]:
        xs = [b.named("x", crd.number(b, p)) for crd, _, _ in lists]
        ys = [b.named("y", crd.number(b, q)) for _, crd, _ in lists]
        ahead, behind = _comes_before(b, xs, ys), _comes_before(b, ys, xs)
        for (_, _, out), x, y in zip(lists, xs, ys, strict=True):
            out.put(b, b.get(at), out.element(b, b.select(behind, y, x)))
        put(p, q)
        return _steps(b, b.eq(_steps(b, behind), 0)), _steps(b, b.eq(_steps(b, ahead), 0))

    def alone(part: int, p: Val, stop: Val) -> None:
        for *given, out in lists:
            out.put(b, b.get(at), given[part].get(b, p))
        put(*((stop, p) if part else (p, stop)))

    _in_turns(b, first, end, pos, both, alone, lambda r: made.put(b, b.add(r, 1), b.get(at)))
    count.put(b, b.i64(0), b.sub(b.get(at), begin))


@as_kernel
def _merged(b: Builder, sizes: tuple[int, ...], by: int) -> None:
    (first, end), shift, pos = lengths.share(b), b.slot(2, "i64", "shift"), vectors(b, 3, (8, 8), ("pos", "pos"))
    lists = [vectors(b, 5 + 3 * k, (size, size, size), ("one", "other", "out")) for k, size in enumerate(sizes)]
    at = b.var("at", b.i64(0))

    def shifted(k: int, q: Val) -> Val:
        _, other, out = lists[k]
        return out.element(b, b.add(other.number(b, q), shift)) if k == by else other.get(b, q)

    def both(p: Val, q: Val) -> tuple[Val, Val]:
        ys, xs = ([b.named("c", own[k].number(b, place)) for own in lists[:by]] for k, place in ((1, q), (0, p)))
        behind, to = _comes_before(b, ys, xs), b.get(at)
        for k, (one, _, out) in enumerate(lists):
            out.put(b, to, b.select(behind, shifted(k, q), one.get(b, p)))
        b.increment(at)
        step = b.named("step", _steps(b, behind))
        return b.sub(b.i64(1), step), step

    def alone(part: int, p: Val, stop: Val) -> None:
        for k, (one, _, out) in enumerate(lists):
            out.put(b, b.get(at), shifted(k, p) if part else one.get(b, p))
        b.increment(at)

    b.set(at, b.add(pos[0].get(b, first), pos[1].get(b, first)))
    _in_turns(b, first, end, pos, both, alone, lambda r: None)


@as_kernel
def _spliced(b: Builder, size: int) -> None:
    (first, end), parts = lengths.share(b), b.slot(2, "i64", "parts")
    table, pos, made = vectors(b, 3, (8, 8, 8), ("table", "pos", "made"))
    at = b.var("at", b.i64(0))
    with b.for_(first, end, "r") as r:
        b.set(at, pos.get(b, r))
        with b.for_(b.i64(0), parts, "k") as k:
            own, column, shift = (
                Vector(b.convert("inttoptr", table.get(b, b.add(b.mul(k, 3), n)), "ptr"), width)
                for n, width in enumerate((8, size, 8))
            )
            more, lo, hi = b.named("more", shift.get(b, r)), own.get(b, r), own.get(b, b.add(r, 1))
            to = b.named("to", b.sub(b.get(at), lo))
            with b.for_(lo, hi, "p") as p:
                made.put(b, b.add(p, to), b.add(column.number(b, p), more))
            b.increment(at, b.sub(hi, lo))
