"""Fetching ahead: segments of other operands that a walk will come to are brought into the cache before.

    for p in lo .. hi:                       k = crd[p]
      prefetch pos[crd[p + 2 D]]
      q = pos[crd[p + D]]
      prefetch crd_b[q], vals_b[q]
      for q in pos[k] .. pos[k + 1]: ...     the rows of B, in the order of A's columns: anywhere in memory

How long a row is, is known only once `pos` has come, and the loop over it mostly ends unforeseen: the processor cannot run far
ahead by itself. Places behind the end of a segment are those of the next one, which comes next as a rule.

    for p in lo .. hi:                       wide strips, and reductions of several places at once (`unroll_and_jam`)
      prefetch B[crd[p + D], k0 .. k1]       a row of a dense operand, line by line
      t0 .. t15 += a * B[crd[p], k0 .. k1]

    for p in lo .. hi by 8:                  a walk in vectors, or over few of many entries: what it reads itself
      prefetch crd[p + 512], vals[p + 512]

The processor fetches what is read in order, but segment by segment a walk is no such thing to it: products with vectors whose matrices are not in the
caches take 0.63 to 0.8 of the time, others the same (a Xeon; `dense10`, `uniform`, `rmat16`, `stencil`).

    prefetch crd[lo + 512], vals[lo + 512]   sums at any place of a dense result that is larger than caches that are near, segment by segment
    for p in lo .. hi:
      out[crd[p]] += x * vals[p]

    for o in 0 .. n:                         register tiles whose operand is read once, and is large
      prefetch W[i, o + D, k0 .. k1]
      t0 .. t3 += z[o] * W[i, o, k0 .. k1]

A quarter of the time of products with 128 columns in double precision whose rows come from the third-level cache, in strips of sixteen lines (32
registers, of which half accumulate); a tenth to a fifth of those with 64 and 128 columns in single precision, in strips of four lines. Narrower
strips lose up to a third, since every prefetch takes the place of a load, and strips whose rows lie in the second cache a twentieth
(`fetches.prefetches`).
"""

from __future__ import annotations

from collections.abc import Iterable

from sparsejax.jit.backend.builder import SIZES, Val
from sparsejax.jit.codegen import kernel_memory
from sparsejax.jit.codegen.environment import Env
from sparsejax.jit.codegen.kernel_memory import LINE
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.ir import cin, scalar_functions
from sparsejax.jit.ir.loop_plans import Leaders

DISTANCE = 8
"""Places ahead of the walk at which segments are fetched; where they begin is fetched twice as far ahead."""
ROWS = 16
"""The same of strips: each reads a few lines at a place, so that more places are on their way (1.02 to 1.13 times as fast as eight on five graphs, 32 no
faster: float32, 128 columns, an EPYC of the third generation)."""
MOST = 4
"""Lines of a dense row that are fetched, at most: what follows, the processor fetches by itself."""
FAR = 6144
"""Bytes ahead at which rows are fetched that follow each other in memory, into the second cache; of long rows, `DISTANCE` rows."""
STREAM = 512
"""Places ahead of the walk at which what it reads itself is fetched; of values two lines."""


def fetch(loop: Loop, key: Leaders, walker: Walker, place: Val) -> None:
    """Fetch what the walk of `walker`, now at `place`, will read of other operands."""
    others = [a for a in dict.fromkeys(cin.accesses(loop.cases[key])) if a not in key and _scattered(loop, a)]
    if not others:
        return
    asked = scalar_functions.read_by(loop.cases[key])
    b, last = loop.b, last_place(loop, walker)
    near, far = (
        b.named("soon", walker.segment.coordinate(b.min(b.add(place, distance), last)))
        for distance in (DISTANCE, 2 * DISTANCE)
    )
    for access in others:
        operand, level = loop.context.operands[access.tensor.name], loop.env.cursors[access].level + 1
        assert isinstance(operand, Input)
        pos, crd, size = operand.buffers[level]["pos"], operand.buffers[level]["crd"], access.tensor.dtype.itemsize
        kernel_memory.prefetch(b, pos.pointer, _parent(loop, access, far), 8)
        step = access.tensor.format.levels[level].group
        start = b.mul(b.load(pos.pointer, _parent(loop, access, near), "i64", "start"), step)
        kernel_memory.prefetch(b, crd.pointer, start, SIZES[crd.type])
        if level + 1 == len(access.indices) and access in asked:
            kernel_memory.prefetch(b, operand.vals, start, size)
            if size > 4:
                kernel_memory.prefetch(b, operand.vals, b.add(start, LINE // size), size)


def stream(loop: Loop, walker: Walker, place: Val, coordinates: bool, values_of: Iterable[cin.Access]) -> None:
    """Fetch what the walk of `walker` itself will read: its coordinates, if it does, and values that lie beside them."""
    b, operand = loop.b, loop.context.operands[walker.access.tensor.name]
    assert isinstance(operand, Input)
    later, crd = b.add(place, STREAM), operand.buffers[walker.level].get("crd")
    if coordinates and crd is not None:
        kernel_memory.prefetch(b, crd.pointer, later, SIZES[crd.type])
    for access in values_of:
        values = loop.context.operands[access.tensor.name]
        if isinstance(values, Input):  # what is kept for a row is in the cache
            kernel_memory.prefetch(b, values.vals, later, access.tensor.dtype.itemsize)


def coordinates(loop: Loop, walker: Walker, places: Iterable[Val]) -> None:
    """Fetch the coordinates at some places of what is walked."""
    operand = loop.context.operands[walker.access.tensor.name]
    assert isinstance(operand, Input)
    crd = operand.buffers[walker.level]["crd"]
    for place in places:
        kernel_memory.prefetch(loop.b, crd.pointer, place, SIZES[crd.type])


def ends(loop: Loop, walker: Walker) -> None:
    """Fetch the first and the last coordinate of the segment after the next one; behind the last, where all segments end."""
    operand, level = loop.context.operands[walker.access.tensor.name], walker.level
    assert isinstance(operand, Input)
    pos, parents = operand.buffers[level].get("pos"), operand.stored(loop.b, level - 1) if level else None
    if pos is None or parents is None:
        return
    b, parent = loop.b, loop.env.cursors[walker.access].pos
    lo, hi = (b.load(pos.pointer, b.min(b.add(parent, n), parents), "i64", "later") for n in (2, 3))
    coordinates(loop, walker, (lo, b.sub(hi, 1)))


def rows(
    loop: Loop,
    walker: Walker,
    place: Val,
    stmt: cin.Assign,
    env: Env,
    var: cin.IndexVar,
    width: int,
    distance: int = DISTANCE,
) -> None:
    """Fetch what `stmt` will read of dense operands so many places later: `width` coordinates of `var`, whose first one `env` binds."""
    if any(_is_row(a, loop.var, var) for a in cin.accesses(stmt.rhs)):
        there = loop.context.resolve(env.bind(loop.var, soon(loop, walker, place, distance)), stmt)
        lines(loop, there, stmt, var, width)


def lines(loop: Loop, there: Env, stmt: cin.Assign, var: cin.IndexVar, width: int) -> None:
    """Fetch what `stmt` reads of dense operands in the state `there`, `width` coordinates of `var`."""
    b = loop.b
    for access in dict.fromkeys(a for a in cin.accesses(stmt.rhs) if _is_row(a, loop.var, var)):
        operand, size = loop.context.operands[access.tensor.name], access.tensor.dtype.itemsize
        assert isinstance(operand, Input)
        for line in range(min(MOST, -(-width * size // LINE))):
            position = b.add(there.cursors[access].pos, line * LINE // size)
            kernel_memory.prefetch(b, operand.vals, position, size)


def soon(loop: Loop, walker: Walker, place: Val, distance: int) -> Val:
    """The coordinate that a walk, now at `place`, comes to so many places later."""
    b = loop.b
    return b.named("soon", walker.segment.coordinate(b.min(b.add(place, distance), last_place(loop, walker))))


def streams(loop: Loop, index: Val) -> None:
    """Fetch later rows of what a counted loop, now at `index`, reads once, in the strip around it."""
    b, context, strip = loop.b, loop.context, loop.env.mode.strip
    if not loop.plan.streams or strip is None:
        return
    here = context.resolve(loop.env.bind(loop.var, index), loop.body)
    for access in loop.plan.streams:
        operand, size = context.operands[access.tensor.name], access.tensor.dtype.itemsize
        assert isinstance(operand, Input)
        last = len(access.indices) - 1
        row = int(context.program.extent(strip.var)) * size
        rows = max(DISTANCE, FAR // max(1, row))
        later = b.add(here.cursors[access].pos, b.mul(context.axis_of_level(access, last).span, rows))
        for line in range(-(-strip.lanes * strip.vectors * size // LINE)):
            kernel_memory.prefetch(b, operand.vals, b.add(later, line * LINE // size), size, near=False)


def named_rows(loop: Loop, index: Val, end: Val, body: cin.Stmt) -> None:
    """Fetch the beginnings of the rows of dense operands that index arrays name further on, in a counted loop that is now at `index`."""
    found = [a for a in dict.fromkeys(cin.accesses(body)) if cin.jumps(a, loop.var) and _names_rows(loop, a)]
    if isinstance(body, cin.Assign) or not found:
        return
    b, context = loop.b, loop.context
    later = b.named("soon", b.min(b.add(index, DISTANCE), b.sub(end, 1)))
    there = context.resolve(loop.env.bind(loop.var, later), body)
    for access in found:
        cursor, size = there.cursors[access], access.tensor.dtype.itemsize
        if cursor.found is not None or cursor.level + 1 != len(access.indices):
            continue
        operand, span = context.operands[access.tensor.name], context.axis_of_level(access, cursor.level).span
        assert isinstance(operand, Input)
        start, last = b.mul(cursor.pos, span), b.sub(span, 1)
        for line in range(MOST):
            kernel_memory.prefetch(b, operand.vals, b.add(start, b.min(b.i64(line * LINE // size), last)), size)


def _names_rows(loop: Loop, access: cin.Access) -> bool:
    """Whether a dense array holds which row of a dense operand is read."""
    dense = all(a.tensor.policy is None and _is_dense(a) for a in cin.accesses(access))
    return dense and bool(access.entries) and isinstance(loop.context.operands.get(access.tensor.name), Input)


def _is_row(access: cin.Access, picked: cin.IndexVar, along: cin.IndexVar) -> bool:
    """Whether an access reads, along a variable, a row of a dense operand that another one picks, itself or by what a dense array holds."""
    dense = all(a.tensor.policy is None and _is_dense(a) for a in cin.accesses(access))
    return dense and along in access.indices and picked in cin.bound_by(access)


def _is_dense(access: cin.Access) -> bool:
    return access.tensor.format.full


def _parent(loop: Loop, access: cin.Access, coordinate: Val) -> Val:
    """The position that a coordinate of the loop has in the dense level of `access`."""
    b, cursor = loop.b, loop.env.cursors[access]
    axis = loop.context.axis_of_level(access, cursor.level)
    return b.add(b.mul(cursor.pos, axis.span), b.mul(coordinate, axis.step))


def _scattered(loop: Loop, access: cin.Access) -> bool:
    """Whether the loop's variable picks segments of `access`: a dense level of it, with a compressed one below."""
    operand, levels = loop.context.operands.get(access.tensor.name), access.tensor.format.levels
    if not isinstance(operand, Input) or loop.env.cursors[access].found is not None:
        return False
    level = loop.env.cursors[access].level
    if level + 1 >= len(levels) or access.level_index(level) != loop.var:
        return False
    return levels[level].full and operand.listed(level + 1)


def last_place(loop: Loop, walker: Walker) -> Val:
    """The last place of all segments of the level that is walked, or of this one where that is not known."""
    if walker.last is not None:
        return walker.last
    b, stored = loop.b, loop.stored(walker)
    return b.named("last", b.sub(walker.segment.hi if stored is None else stored, 1))
