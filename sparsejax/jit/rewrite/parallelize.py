"""Parallel loops: the outermost loop of a kernel is cut into chunks that any thread may run.

before:  forall i                              after:  forall i (parallel)
           forall j (vector)                             forall j (vector)
             C[i,j] += A[i,k] * B[k,j]                     C[i,j] += A[i,k] * B[k,j]

A marked kernel runs one chunk per call: two more slots tell which one, and of how many. A chunk is a range of coordinates of the
marked variable (`loops/chunks` cuts it), so that a row never lies in two of them, and every kind of loop is cut in the same way.

Legal where different coordinates write different parts of the output: the variable indexes it, at its outermost level if it is appended
to. Chunks then write memory of their own, or append to segments of their own, which are placed one behind the other at the end
(`chunked`). A reduction into a dense output, or into a scalar, is legal too: every chunk has a partial result of its own, and more
calls combine these in the order of chunks.

before:  where s: scalar                       after:  where s: scalar
           forall i (vector)                             forall i (parallel)
             s += x[i] * y[i]                              s += x[i] * y[i]
         then                                          then
           out = s                                       out = s

Of a few panels of columns (`rewrite/pack`), the rows inside are cut, and each chunk packs for itself; of more, the loop over panels is.

before:  forall jo                             after:  forall jo
           where P: dense                                where P: dense
             P[k,ji] = B[k,jo,ji]                          P[k,ji] = B[k,jo,ji]
           then                                          then
             forall i                                      forall i (parallel)

Every operand that leads the loop must have ordered coordinates in memory to be cut.

How many chunks there are depends on the expected work alone, never on the number of threads: see `_chunks`. A plan for many shapes expects that of
the largest; calls for smaller ones have fewer chunks, by their own extents (`runtime/chunked`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparsejax import config
from sparsejax.formats import Level
from sparsejax.jit.ir import choices, cin, operators
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.ir.program import Chunking, Program
from sparsejax.jit.rewrite import pack
from sparsejax.jit.schedule.schedules import Cost

SMALL, LARGE = 1 << 14, 1 << 24
"""Iterations that a chunk has at least, and at most."""
USUAL, MOST = 64, 1024
"""Chunks: as many for kernels of any usual size, more only so that none takes long."""
GROWING, PLACED = 4.0, 36_000
"""How much more work a growing output asks for: its pieces are made, placed and freed in some 60 microseconds, and as much again for so many entries,
which are moved once more, mostly by the other processor (measured on two cores of a Xeon: sums of matrices of 60,000 to 150,000 entries, 400 to
750 microseconds on one thread, take up to 1.4 times as long on two; of 190,000 0.8 times; products of 0.2 to 1 million terms 0.9 to 1.1)."""
WORKSPACE = 8
"""Nanoseconds for every element of a workspace, which each chunk clears for itself."""
PACKED, PANELS = 2, 4
"""Nanoseconds of work for every element that each chunk packs for itself: packing takes 0.3 to 0.4 (a million doubles, Granite Rapids), a sixth. Panels
from which on these are the chunks."""
PARTIAL = 16
"""Nanoseconds of work for every element of an output that each chunk but the first has for itself. Clearing and adding it takes 0.7 (200,000 doubles that
stay in the caches, Zen 3) to 2.5 (a Granite Rapids with 2 MB of second-level cache): chunks cost one thread about an eighth at most. With half of that, sums
of two to five entries for each of 20,000 to 200,000 elements took 1.2 to 1.5 times as long in two chunks on one thread, and 1.1 to 1.4 times on two.
"""
SCALARS = 4
"""How much larger chunks are that reduce into a scalar: to begin one, to add up its lanes and to combine them takes 2 to 4 microseconds (the norm of a million
numbers, 400 microseconds, in 16 chunks takes 1.15 times as long as in one; a Xeon)."""
PARTS = 1 << 27
"""Bytes of all of these."""


def parallelize(program: Program, cost: Cost, entries: Callable[[], float] = lambda: 0.0) -> Program:
    """`program` with its outermost loop marked where that is legal and its work is worth it; and in any case why. The result is expected to
    have so many `entries`."""
    work = cost.running

    def serial(reason: str) -> Program:
        return replace(program, chunking=Chunking(work=work, reason=reason))

    grows = program.given is None and not program.output.format.full
    least = config.parallel_work() * (GROWING if grows else 1)
    if grows and work >= least:
        least += config.parallel_work() * entries() / PLACED
    little = f"about {work:.3g} ns, fewer than {least:.3g}" if work < least else ""
    if little and not choices.free():
        return serial(little)
    inside = _in_panels(program)
    loop, partial = (_outermost(program), _partial(program)) if inside is None else (inside, "")
    if loop is None:
        return serial("there is no single loop around everything")
    obstacle = _obstacle(loop, program.output.format.levels)
    if obstacle is not None:
        return serial(obstacle)
    if partial is None:
        return serial(f"{loop.var} is a reduction that cannot be taken apart")
    extent = program.extent(loop.var)
    if extent < 2:
        return serial(f"{loop.var} has one coordinate at most")
    usual = min(extent, _chunks(program, work, partial, inside is not None))

    def legal() -> list[str]:
        most = min(MOST, PARTS // max(1, math.prod(program.output.shape) * program.output.dtype.itemsize))
        counts = {"whole": 1, "two": 2, "usual": usual, "each": extent}
        return [how for how, n in counts.items() if how == "whole" or 1 < n <= max(most, usual)]

    how = choices.pick("chunks", legal, "whole" if little or usual < 2 else "usual")
    if how == "whole":
        return serial(little or "memory that each chunk clears would cost as much as the work")
    chunks = {"two": 2, "usual": usual, "each": extent}[how]
    marked: cin.Stmt = cin.Forall(loop.var, loop.body, "parallel")
    if isinstance(program.stmt, cin.Where):
        marked = cin.Where(program.stmt.consumer, marked)
    elif program.stmt is not None and inside is not None:
        marked = _replaced(program.stmt, inside, marked)
    reason = f"about {work:.3g} ns, cut along {loop.var}"
    if partial:
        reason += f", each with a partial {partial}"
    whole = program.whole and not partial
    chunking = Chunking(chunks, partial, work, reason)
    if how == "usual" and config.parallel_work() and type(extent) is Bounded:
        chunking = replace(chunking, along=program.extents[loop.var], each=work / extent, least=least)
    return replace(program, stmt=marked, whole=whole, chunking=chunking)


def _outermost(program: Program) -> cin.Forall | None:
    """The loop that is around everything, or around the sum of everything."""
    match program.stmt:
        case cin.Forall() as loop:
            return loop
        case cin.Where(_, cin.Forall() as loop) as where if cin.workspace(where).policy == "scalar":
            return loop
        case _:
            return None


def _in_panels(program: Program) -> cin.Forall | None:
    """The loop over rows inside of a few panels of columns for which operands are packed, whose iterations write different parts of the output."""
    stmt = program.stmt
    if not isinstance(stmt, cin.Forall) or not pack.copies(stmt) or program.extent(stmt.var) >= PANELS:
        return None
    body = stmt.body
    while isinstance(body, cin.Where):
        body = body.consumer
    if not isinstance(body, cin.Forall):
        return None
    own = [w for w in cin.writes(body) if w.lhs.tensor.name == program.output.name]
    cuts = _obstacle(body, program.output.format.levels) is None and all(_disjoint(w.lhs, body.var) for w in own)
    return body if cuts else None


def _replaced(stmt: cin.Stmt, loop: cin.Forall, other: cin.Stmt) -> cin.Stmt:
    """A statement with another one in place of a loop that it consumes things in."""
    match stmt:
        case cin.Forall() if stmt is loop:
            return other
        case cin.Forall():
            return replace(stmt, body=_replaced(stmt.body, loop, other))
        case cin.Where(consumer, producer):
            return cin.Where(_replaced(consumer, loop, other), producer)
        case _:
            return stmt


def _partial(program: Program) -> str | None:
    """What chunks compute apart: nothing (""), a partial "scalar" or a partial "output"; None where they cannot."""
    stmt, output = program.stmt, program.output
    dense = output.format.full
    if isinstance(stmt, cin.Where):
        own = [w for w in cin.writes(stmt.producer) if w.lhs.tensor == cin.workspace(stmt)]
        return "scalar" if dense and len({w.op for w in own}) == 1 and _reduces(own) else None
    if not isinstance(stmt, cin.Forall):
        return None
    own = [w for w in cin.writes(stmt) if w.lhs.tensor.name == output.name]
    if all(_disjoint(w.lhs, stmt.var) for w in own):
        return ""
    if not output.format.is_dense or any(stmt.var in w.lhs.indices or _beside(w.lhs) for w in own):
        return None
    return "output" if len({w.op for w in own}) == 1 and _reduces(own) else None


def _beside(lhs: cin.Access) -> bool:
    """Whether a result is at the position of another array."""
    return len(lhs.others) > len(lhs.entries)


def _reduces(writes: list[cin.Assign]) -> bool:
    """Whether all of these accumulate, in any grouping."""
    return all(w.op is not None and operators.get(w.op).associative for w in writes)


def _obstacle(stmt: cin.Forall, written: Sequence[Level]) -> str | None:
    """Why a loop that writes these levels cannot be cut."""
    var = stmt.var
    if written and not written[0].settled:
        return f"the coordinates of {var} in the result are one segment, which has to be complete"
    if stmt.kind == "tile":
        return f"{var} runs in tiles"
    for access in cin.accesses(stmt.body):
        level = _first_level(access)
        if level < len(access.indices) and access.level_index(level) == var:
            kind = access.tensor.format.levels[level]
            if not kind.full and not (kind.ordered and "crd" in kind.buffer_types()):
                return f"{var} is led by {access.tensor}, which cannot be cut"
    return None


def _disjoint(lhs: cin.Access, var: cin.IndexVar) -> bool:
    if lhs.tensor.format.full:
        return any(cin.distinct(ix, var) for ix in lhs.indices)
    return lhs.level_index(0) == var


def _first_level(access: cin.Access) -> int:
    """The first level of an access that no fixed coordinate resolves."""
    level = 0
    while level < len(access.indices) and not cin.variables_of(access.level_index(level)):
        level += 1
    return level


def _chunks(program: Program, work: float, partial: str, packs: bool = False) -> int:
    """How many chunks are worth it: as many as are of a usual size, and fewer where each has memory of its own, or packs all panels."""
    if not config.parallel_work():
        return USUAL
    cleared = sum(math.prod(t.shape) for t in _areas(program))
    chunks = max(min(work / SMALL, USUAL), min(work / LARGE, MOST))
    chunks = min(chunks, work / max(1, WORKSPACE * cleared))
    if packs:
        assert isinstance(program.stmt, cin.Forall)
        each = sum(math.prod(t.shape) for t in pack.copies(program.stmt))
        chunks = min(chunks, work / max(1, PACKED * each * program.extent(program.stmt.var)))
    if partial == "scalar":
        chunks = min(chunks, max(2, work / (SCALARS * SMALL)))
    if partial == "output":
        size = max(1, math.prod(program.output.shape))
        chunks = min(chunks, 1 + work / (PARTIAL * size), PARTS / (size * program.output.dtype.itemsize))
    return int(chunks)


def _areas(program: Program) -> set[cin.Tensor]:
    """The workspaces that cost their extent: not those that are packed in every iteration, whichever chunk has it."""
    assert program.stmt is not None
    return {
        w.lhs.tensor
        for w in cin.writes(program.stmt)
        if w.lhs.tensor.policy in ("dense", "bitmap", "marks", "scattered")
    } - pack.copies(program.stmt)
