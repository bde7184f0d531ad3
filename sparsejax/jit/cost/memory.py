"""How many cache lines the loops of a kernel touch, and among how many bytes: what waiting for memory is priced by.

An array is touched as often as the innermost loop of its indices runs. Loops over other variables touch it again: what it has inside the
innermost of these is found in the cache if it fits, and else comes from where the whole of it fits.

    for i: for k in A[i]: for j:  out[i,j] += A[i,k] * H[k,j]     rows of H, in any order, for every i: nnz(A) rows among the bytes of H
    for i: for j: for k:          out[i,j] += A[i,k] * H[k,j]     A[i,:] once for every j, among the bytes of a row; then A, once, in order
    for p: for j:                 out[p,j] = H[A[p],j]            rows of H, in any order, for every p; then what of it they touch, once

    level    lines that come from beyond what the loop inside it touches, how many of them begin anywhere, and the bytes among which they lie
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sparsejax.jit.cost.price_table import Machine

LINE = 64.0
"""Bytes of a cache line."""
WAY = 1 << 16
"""Bytes after which the sets of a second cache begin again, or a power of two as many."""


class Lines(NamedTuple):
    """So many cache lines among so many bytes: some of them anywhere, the others one after the other."""

    number: float
    among: float
    anywhere: float


class Walked(NamedTuple):
    """An array as loops see it: the depths of the loops over its storage levels, outermost level first, bytes of an entry with its
    coordinate, and per level how many positions one of its parent has on average."""

    depths: tuple[int, ...]
    each: float
    fanout: tuple[float, ...]
    leads: bool
    """Whether it is walked in its own order: it leads the loops over its indices, or these count."""
    new: float = 1.0
    """The share of what loops visit in some runs that they did not visit shortly before."""
    among: tuple[float, ...] = ()
    """Per level, among which share of its positions these lie; none: among all of them."""
    drawn: tuple[int, ...] = ()
    """The depths of the loops over variables of its indices that are looked up: what these name may be anywhere."""
    in_runs: bool = True
    """Whether a loop runs along its last level, which is looked up else."""
    walks: float | None = None
    """How many entries each run of its innermost loop walks over, where this is led by others too; none: as many as the body runs for."""
    between: Callable[[int], float] | None = None
    """How many bytes of other arrays one iteration of the loop at a depth touches; none: they are left out."""
    together: int = 1
    """How many of the last levels are walked in one piece."""
    crowds: bool = False
    """Whether parts that lie apart crowd into a few sets of the second cache; else they are taken to lie anywhere."""


class Beside(NamedTuple):
    """What other statements touch in the outermost `shared` loops, in all of them, and in each run of their body; and the nanoseconds that their own
    loops take in such a run."""

    shared: int
    bytes: float
    each: float
    busy: float = 0.0


ALONE = Beside(0, 0.0, 0.0)


def lines(walked: Walked, survivors: Sequence[float], rest: float, beside: Beside = ALONE) -> list[Lines]:
    """The lines that loops touch of an array, from the innermost reuse outwards; the body of the k outermost loops runs `survivors[k]` times,
    and `rest` are the bytes of all arrays, among which it lies when the kernel begins. What other statements touch `beside` it, between two
    touches of the same line, lies in the caches too.

    >>> found = lines(Walked((1, 2), 8.0, (1000.0, 32.0), False), (1.0, 1e3, 1e4, 3.2e5), 1e6)
    >>> [(x.number, x.among, x.anywhere) for x in found]
    [(40000.0, 256000.0, 10000.0), (4000.0, 1000000.0, 0.0)]
    """
    inner = max(walked.depths)
    runs = survivors[inner + 1 - walked.together]
    touches = survivors[inner + 1] if walked.walks is None else runs * walked.walks
    count = anywhere = touches
    if walked.depths[-1] == inner and walked.in_runs:
        count *= walked.each / LINE
        if not walked.leads:  # every run begins with a line of its own
            count = max(count, min(runs, touches))
        anywhere = min(runs, count)
    found: list[Lines] = []
    if walked.leads and _stride(walked, inner) <= LINE:
        anywhere = 0.0
    share, meanwhile = anywhere / max(1e-9, count), 0.0
    again = [depth for depth in range(inner - 1, -1, -1) if depth not in walked.depths]
    if walked.drawn:
        again = sorted({*again}.difference(walked.drawn).union(walked.drawn[:1]), reverse=True)
    among = walked.among or (1.0,) * len(walked.depths)
    for depth in again:
        part, close, inside = walked.each, 1.0, list[bool]()
        for own, many, near in zip(walked.depths, walked.fanout, among, strict=True):
            inside.append(own > depth or (depth in walked.drawn and own == depth))
            if inside[-1]:
                part, close = part * many, close * near
        close *= crowded(walked, inside) if walked.crowds else 1.0
        if (
            walked.between and depth + 1 not in again
        ):  # what a loop inside visits again is visited by its last iteration
            meanwhile = walked.between(depth)
        size = close * part + _between(close * part, count, depth, survivors, beside) + meanwhile
        found.append(Lines(count * walked.new, size, count * walked.new * share))
        count = min(count, max(1.0, survivors[depth]) * part / LINE)
    in_order = not walked.drawn and list(walked.depths) == sorted(walked.depths)
    return [*found, Lines(count, rest + beside.bytes, 0.0 if in_order else count * share)]


def _stride(walked: Walked, inner: int) -> float:
    """How many bytes lie between what the innermost loop of an array visits one after the other in its order of storage."""
    return walked.each * math.prod(walked.fanout[walked.depths.index(inner) + 1 :])


def crowded(walked: Walked, inside: Sequence[bool]) -> float:
    """As how many times its bytes a part counts of whose levels these are `inside`: of runs that lie apart by powers of two, few sets of a cache hold all.

    >>> crowded(Walked((0, 1, 2), 4.0, (512.0, 8.0, 512.0), False), (True, False, True))
    8.0
    """
    level, run = len(inside) - 1, walked.each
    while level >= 0 and inside[level]:
        run, level = run * walked.fanout[level], level - 1
    apart = run
    while level >= 0 and not inside[level]:
        apart, level = apart * walked.fanout[level], level - 1
    return max(1.0, math.gcd(int(apart), WAY) / max(run, LINE)) if level >= 0 else 1.0


def _between(part: float, count: float, depth: int, survivors: Sequence[float], beside: Beside) -> float:
    """The bytes that other statements touch until a loop has touched all of a part again, `count` lines of it in all."""
    if depth >= beside.shared:
        return 0.0
    runs = survivors[depth + 1]
    until = max(1.0, part * runs / max(1.0, LINE * count))
    shared = survivors[min(beside.shared, len(survivors) - 1)]
    return min(beside.bytes, until * beside.each * shared / max(1e-9, runs))


def price(found: Sequence[Lines], machine: Machine, written: bool) -> float:
    """The nanoseconds that lines take, those of a level beyond what the levels inside it cost already.

    >>> from sparsejax.jit.cost.machines import ZEN4
    >>> near, far = (price([Lines(1e6, size, 1e6)], ZEN4, False) for size in (1e4, 64e6))
    >>> near, far > 1e6
    (0.0, True)
    """
    anywhere, following = (machine.write, machine.fill) if written else (machine.line, machine.stream)
    total, before, near_by = 0.0, (0.0, 0.0, 0.0), min(machine.caches)
    for number, among, begun in found:
        if among <= near_by:
            continue
        now = machine.beyond(among)
        for (near, far), n, b in zip(zip(following, anywhere, strict=True), now, before, strict=True):
            if n > b:
                total += (near * (number - begun) + far * begun) * (n - b)
        before = (max(now[0], before[0]), max(now[1], before[1]), max(now[2], before[2]))
    return total
