"""Chunks: of a loop that is marked parallel, the range of coordinates that one call of the kernel visits.

    work(v)    what lies before coordinate v: places of the operands that lead the loop, positions below places, and
               coordinates where all of them are visited
    cut(k)     the first v with work(v) >= work(end) * k / chunks
    chunk k    cut(k) <= v < cut(k + 1)

Every operand that leads the loop is cut at these coordinates too; what is inside the loop knows of nothing. Cuts depend on the
data and on the number of chunks. Cost: two binary searches over the extent; each step looks up every leader in the same way.
Source: nonzeros plus rows, as in merge-based SpMV (Merrill and Garland 2016), with rows kept whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sparsejax.formats.levels.walk import Segment, lower_bound
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.ir import cin

Work = Callable[[Val], Val]
LANES = 64  # of the widest vector


def cut(loop: Loop) -> Loop:
    """`loop`, the outermost one, over the coordinates of this call's chunk, which are the span of the output."""
    b, output, (chunk, chunks) = loop.b, loop.context.output, loop.context.chunk
    terms = [_places(loop, w) for w in loop.walkers.values()]
    terms += [t for a in dict.fromkeys(cin.accesses(loop.body)) if (t := _below_dense(loop, a)) is not None]
    counted = not loop.walkers or frozenset() in loop.cases
    if counted:
        terms.append(lambda v: v)

    def work(v: Val) -> Val:
        total = b.i64(0)
        for term in terms:
            total = term(v) if total.ref == "0" else b.add(total, term(v))
        return b.named("work", total)

    before = work(b.i64(0))
    whole = b.named("whole", b.sub(work(loop.extent), before))

    def cut_at(k: Val) -> Val:
        target = b.named("target", b.add(before, b.binary("sdiv", b.mul(whole, k), chunks)))
        found = lower_bound(b, lambda v: b.lt(work(v), target), b.i64(0), loop.extent)
        if counted and isinstance(loop.body, cin.Assign):
            found = b.and_(found, b.i64(-LANES))  # what runs in lanes and what is left over is the same for any chunks
        elif loop.plan.rows:
            found = b.and_(found, b.i64(-loop.plan.rows))
        return b.named("cut", b.select(b.lt(k, chunks), found, loop.extent))

    cuts = [b.var("cut", b.i64(0)) for _ in range(2)]
    with b.for_(chunk, b.add(chunk, 2), "k") as k:  # both in the same code
        b.set(cuts[0], b.get(cuts[1]))
        b.set(cuts[1], cut_at(k))
    begin, end = map(b.get, cuts)
    walkers = {a: replace(w, segment=_part(b, w.segment, begin, end)) for a, w in loop.walkers.items()}
    assert output.span is not None
    b.set(output.span.first, begin)
    b.set(output.span.end, end)
    return replace(loop, walkers=walkers, span=(begin, end))


def _part(b: Builder, segment: Segment, begin: Val, end: Val) -> Segment:
    """The places whose coordinates lie in begin .. end."""
    return replace(segment, lo=_seek(b, segment, begin), hi=_seek(b, segment, end))


def _seek(b: Builder, segment: Segment, coordinate: Val) -> Val:
    found: Val = lower_bound(b, lambda at: b.lt(segment.coordinate(at), coordinate), segment.lo, segment.hi)
    return found


def _places(loop: Loop, walker: Walker) -> Work:
    """The places of a leader before a coordinate, and the positions below them."""
    below = _edges(loop, walker.access, walker.level + 1)

    def term(v: Val) -> Val:
        place = _seek(loop.b, walker.segment, v)
        return place if below is None or walker.ranged else loop.b.add(place, below(place))

    return term


def _below_dense(loop: Loop, access: cin.Access) -> Work | None:
    """The positions below a dense level of the loop's variable, outermost in memory."""
    level = loop.env.cursors[access].level if access in loop.env.cursors else 0
    if level or not access.indices or access.level_index(0) != loop.var:
        return None
    return _edges(loop, access, 1) if access.tensor.format.levels[0].full else None


def _edges(loop: Loop, access: cin.Access, level: int) -> Work | None:
    """The positions of the next sparse level below the first positions of the level before `level`, if it has them in memory."""
    operand = loop.context.operands.get(access.tensor.name)
    if not isinstance(operand, Input):
        return None
    form, b, between = access.tensor.format, loop.b, loop.b.i64(1)
    if access.tensor.paired:
        return _edges_of_pair(loop, access, operand) if level == 1 else None
    if access.tensor.inner:
        return None
    while level < len(form.levels) and form.levels[level].full:
        between = b.mul(operand.axes[form.order[level]].span, between)
        level += 1
    if level == len(form.levels) or "pos" not in operand.buffers[level]:
        return None
    edges = operand.buffers[level]["pos"].pointer
    return lambda position: b.load(edges, b.mul(position, between), "i64", "edge")


def _edges_of_pair(loop: Loop, access: cin.Access, operand: Input) -> Work | None:
    """The positions of a sparse level below two outermost ones that are one in memory, before a coordinate of the first of these."""
    form, b = access.tensor.format, loop.b
    first, second, *rest = form.order
    if access.tensor.inner != (second,) or access.tensor.paired != (second,) or second != first + 1 or not rest:
        return None
    if "pos" not in operand.buffers[2]:
        return None
    edges, axis = operand.buffers[2]["pos"].pointer, operand.axes[first]
    return lambda place: b.load(edges, b.min(b.mul(place, axis.step), axis.span), "i64", "edge")
