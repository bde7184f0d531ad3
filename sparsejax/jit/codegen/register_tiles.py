"""Strips: the code of tiled loops (`tile`), one register per vector of the strip.

    for k0 in 0 .. n by 32:             16 or four vectors of 64 bytes, then two, then one, of which some lanes are masked at the end where the
                                        processor can; else 16 bytes, then single values
      t0 .. t3 = 0
      for p in pos[i] .. pos[i + 1]:    any loops: co-iteration knows nothing of strips
        a = vals[p]
        t0 .. t3 += a * B[crd[p], k0 .. k0 + 31]
      C[i, k0 .. k0 + 31] += t0 .. t3

While a strip is being emitted, every assignment is made for all its lanes. Where two loops are tiled, a strip has several rows, coordinates
of the outer one, with registers for each: what has no row is read once for all of them.

    for b0 in 0 .. m by 4:              six rows, then four, then one
      for k0 in 0 .. n by 16:           one vector or two to a row
        for p in pos[i] .. pos[i + 1]:
          x = B[crd[p], k0 .. k0 + 15]
          t00 .. t01 += vals[p, b0] * x
          ...
          t30 .. t31 += vals[p, b0 + 3] * x

Where the loop over rows is inside (kind "rows"), all rows are computed of a strip before the next one begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import emit, kernel_memory, tile_fetches
from sparsejax.jit.codegen.context import Context
from sparsejax.jit.codegen.environment import Env, Rows, Strip
from sparsejax.jit.codegen.operands import Registers
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.rewrite import vectorize
from sparsejax.jit.schedule import regions

VECTOR_BYTES = 64
VECTORS, WIDE = regions.NARROW // VECTOR_BYTES, regions.WIDE // VECTOR_BYTES
"""Vectors of a strip; and of one where registers are plenty: longer pieces of rows at a time, and fewer walks over sparse loops.
Where rows are shorter, such strips are left out: a kernel would take 26 ms to compile instead of 15."""
ROWS, FEW = regions.ROWS, regions.STRIP // VECTOR_BYTES
"""Rows of a strip that has several, and the vectors of narrower strips. Several rows have so many where registers are 32 and hold a vector each;
else one: four rows of two halves of a vector are half of 16 registers, and what rows share and a splat of what they do not need others."""
MOST_ROWS = 6
"""Rows of a strip of one vector, where there are 16 registers of half its size: twelve sums, of which none waits for the one before."""
THREE = regions.THREE
"""Registers to a row in panels of columns: of half a vector where four rows have 16 of these, twelve sums too, for which seven values are read in place of
nine; else of a vector in eight rows, 24 sums, for which eleven are read in place of ten for 16."""


def tile_loop(context: Context, stmt: cin.Forall, env: Env) -> None:
    """Emit a tiled loop, or two: strips of decreasing width until all coordinates are done, for some rows after the other; or all rows in a strip
    after the other."""
    inner = stmt.body
    if isinstance(inner, cin.Forall) and inner.kind == "rows":
        strips(context, replace(stmt, body=inner.body), env, inner.var)
        return
    if not isinstance(inner, cin.Forall) or inner.kind != "tile":
        strips(context, stmt, env, None)
        return
    b, extent, done = context.b, context.bound(stmt.var, env), context.b.i64(0)
    for count, step in _counts(context, stmt.var):
        end = extent if step == 1 else b.mul(b.binary("sdiv", extent, b.i64(step)), step)
        with b.for_(done, end, stmt.var.name, count) as first:
            strips(context, inner, env, Rows(stmt.var, first, count))
        done = end


def strips(context: Context, stmt: cin.Forall, env: Env, rows: Rows | cin.IndexVar | None) -> None:
    """A tiled loop: for some rows, or for all coordinates of another variable, some at a time."""
    b, var, extent = context.b, stmt.var, context.bound(stmt.var, env)
    used = [a for a in cin.accesses(stmt.body) if a.tensor.policy != "scalar"]
    used += [w.lhs for w in cin.writes(stmt.body) if w.lhs.tensor.policy != "scalar"]
    named = {entry for a in used for entry in a.entries}  # coordinates: no lanes hold them
    used = [a for a in used if a not in named]
    widest = VECTOR_BYTES // max(a.dtype.itemsize for a in used)
    done = b.i64(0)
    counts = [] if rows is None or isinstance(rows, Rows) else _counts(context, rows)
    count = max(n for n, _ in counts) if counts else rows.count if isinstance(rows, Rows) else 1
    most = VECTORS if count == 1 else FEW if b.has_masks() else 1
    if context.program.literal:
        most = min(most, _room(b, stmt.body, count))
    along = (a for a in used if var in cin.bound_by(a))  # others are read once for all lanes
    masks = b.has_masks() and widest > 1 and all(a.dtype.kind in "iuf" for a in along)
    if masks and (lanes := part_of_vector(context, var, widest)):
        widest = lanes
    narrow = () if masks else ((widest, 1), (max(1, widest // 4), 1))
    long = context.program.extent(var) >= WIDE * widest
    wide = ((widest, WIDE),) if rows is None and long and _fits(b, stmt.body) else ()
    three = _three(context, stmt, count, widest, masks)
    halves = () if masks else three
    narrow = ((widest, 1), (widest // 2, 1), *narrow[1:]) if halves else narrow
    every = dict.fromkeys(
        (
            *wide,
            *(three if masks else ()),
            (widest, most),
            (widest, min(most, FEW)),
            *narrow,
            (widest if masks else 1, 1),
        )
    )
    widths = _needed(context, var, list(every), halves)
    partial = any(n % widest for n in _extents(context, var))
    for number, (lanes, vectors) in enumerate(widths):
        width, last = lanes * vectors, number + 1 == len(widths)
        left = b.sub(extent, done) if three and number and not last else extent
        end = extent if last else b.mul(b.binary("sdiv", left, b.i64(width)), width)
        if left != extent:  # three are no multiple of what follows
            end = b.add(done, end)
        if (lanes, vectors) in halves and not last:
            end = _even(b, extent, end, width)
        with b.for_(done, end, var.name, width) as index:
            mask = b.below(lanes, b.sub(extent, index)) if last and masks and partial else None
            strip = Strip(var, lanes, vectors, rows if isinstance(rows, Rows) else None, mask)
            _all_rows(context, stmt.body, env.bind(var, index), strip, rows, counts)
        done = end


def _three(context: Context, stmt: cin.Forall, count: int, widest: int, masks: bool) -> tuple[tuple[int, int], ...]:
    """The width of strips of several rows that have three registers each, and each row one sum: in panels of columns (`schedule/column_panels`), whose width is
    a multiple of it. Elsewhere they would leave one over, or begin inside of lines where they are of half a vector."""
    lanes = widest if masks else widest // 2
    size = stmt.var.size if stmt.var.outer is not None else 1
    if count not in ((ROWS, regions.MANY_ROWS) if masks else (ROWS,)) or lanes < 1 or size % (THREE * lanes):
        return ()
    if context.program.literal or _live(stmt.body) != 1:
        return ()
    used = (*cin.accesses(stmt.body), *(w.lhs for w in cin.writes(stmt.body)))
    plain = all(a.dtype.kind == "f" for a in used if stmt.var in a.indices)
    return ((lanes, THREE),) if plain else ()


def _even(b: Builder, extent: Val, end: Val, width: int) -> Val:
    """Where strips of three halves end, so that no half is left over: one strip earlier than they might, where two halves and two more follow then.
    O(1)."""
    half = width // THREE
    left = b.sub(extent, end)
    odd = b.and_(b.eq(b.binary("sdiv", left, b.i64(half)), 1), b.lt(b.i64(0), end))
    return b.select(odd, b.sub(end, width), end)


def _all_rows(
    context: Context,
    body: cin.Stmt,
    env: Env,
    strip: Strip,
    rows: Rows | cin.IndexVar | None,
    counts: list[tuple[int, int]],
) -> None:
    """What a strip computes, in all of its rows."""
    b = context.b
    if rows is None or isinstance(rows, Rows):
        inside = env.in_mode(strip=strip)
        tile_fetches.of_strip(context, body, inside)
        context.emit(body, context.resolve(inside, body))
        return
    extent, done = context.bound(rows, env), b.i64(0)
    for count, step in counts:
        end = extent if step == 1 else b.mul(b.binary("sdiv", extent, b.i64(step)), step)
        with b.for_(done, end, rows.name, count) as first:
            inside = env.in_mode(strip=replace(strip, rows=Rows(rows, first, count)))
            tile_fetches.of_strip(context, body, inside)
            context.emit(body, context.resolve(inside, body))
        done = end


def _counts(context: Context, var: cin.IndexVar) -> list[tuple[int, int]]:
    """How many rows a strip has at a time, and a number of coordinates of which as many are taken as are whole: six, of twelve coordinates, where there
    are 16 registers, so that four are left or eight of 16, 32 or 64; then four; then one."""
    if context.program.literal:
        rows = _rows(context, var)
        return [(width, width) for (width,) in _needed(context, var, [(rows,), (1,)])]
    six = () if context.b.has_masks() else ((2 * MOST_ROWS,),)
    eight = ((regions.MANY_ROWS,),) if context.b.has_masks() else ()
    found = [step for (step,) in _needed(context, var, [*six, *eight, (ROWS,), (1,)])]
    return [(MOST_ROWS if step == 2 * MOST_ROWS else step, step) for step in found]


def _rows(context: Context, var: cin.IndexVar) -> int:
    """How many rows a strip has in code that is written out: as many as leave none over, where that is known."""
    extents = _extents(context, var)
    return next((n for n in range(MOST_ROWS, ROWS, -1) if all(extent % n == 0 for extent in extents)), ROWS)


def _room(b: Builder, stmt: cin.Stmt, rows: int) -> int:
    """How many vectors of a strip fit into half of the registers, of which there are 32 where there are masks, of the size of a vector; else
        16, of half the size. One where code is written out that accumulates in none. Sums of other loops wait in memory while a loop runs: what counts is
        what one loop adds to, since wide strips read long pieces of what is read once (products with 330 MB of weights, 32 columns at a time in place of
        16, take 0.71 of the time: float32, an EPYC of the third generation). Where there are no rows, what is read is read for the sums alone, and all but four
    registers may hold these: rows of 64 columns are read whole for seven sums."""
    live = (_added_to(stmt) or _live(stmt)) * rows
    most = (16 if rows > 1 else 28) if b.has_masks() else MOST_ROWS
    return max(1, most // live) if live else 1


def _added_to(stmt: cin.Stmt) -> int:
    """How many scalar workspaces one innermost loop adds to, at most; 0 without loops."""
    match stmt:
        case cin.Where(consumer, producer):
            return max(_added_to(consumer), _added_to(producer))
        case cin.Seq(stmts):
            return max(map(_added_to, stmts), default=0)
        case cin.Forall(_, body):
            own = {w.lhs for w in cin.writes(body) if w.lhs.tensor.policy == "scalar" and w.op is not None}
            return _added_to(body) or len(own)
    return 0


def _live(stmt: cin.Stmt) -> int:
    """How many scalar workspaces accumulate at once."""
    match stmt:
        case cin.Where(consumer, producer):
            own = cin.workspace(stmt).policy == "scalar"
            return max(_live(producer), own + _live(consumer))
        case cin.Seq(stmts):
            return max(map(_live, stmts), default=0)
        case cin.Forall(_, body):
            return _live(body)
    return 0


def _needed(
    context: Context, var: cin.IndexVar, widths: list[tuple[int, ...]], halves: tuple[tuple[int, int], ...] = ()
) -> list[tuple[int, ...]]:
    """Those of decreasing widths (products) that the extent of `var` needs: code is compiled for no others. The last takes what is left. Strips of
    three `halves` come first and leave no half alone (`_even`)."""
    extents, made = _extents(context, var), list[tuple[int, ...]]()
    if halves and any(n >= math.prod(halves[0]) for n in extents):
        half = halves[0][0]
        made = [*halves]
        extents = {
            n % (THREE * half) + (THREE * half if n >= THREE * half and n % (THREE * half) // half == 1 else 0)
            for n in extents
        }
    for width in widths[:-1]:
        size = math.prod(width)
        if any(n >= size for n in extents):
            made.append(width)
            extents = {n % size for n in extents}
    return [*made, widths[-1]] if any(extents) or not made else made


def _extents(context: Context, var: cin.IndexVar) -> set[int]:
    """How many coordinates the loop over `var` may have."""
    if var.outer is None:
        return {context.program.extent(var)}
    return set(range(1, var.size + 1)) if isinstance(var.rest, Bounded) else {var.size, var.rest or var.size}


def part_of_vector(context: Context, var: cin.IndexVar, widest: int) -> int:
    """The lanes of all coordinates of a loop, where these are a power of two and fewer than a vector has: no mask is needed then, under which what
    is stored would not be there for the next load; else 0. Two lanes are a vector of eight bytes each alone. How many positions values
    have that are a first dimension is not known but expected."""
    if var.outer is not None or context.program.extents[var][1] == 0:
        return 0
    extent = context.program.extent(var)
    if isinstance(extent, Bounded) or not (2 if widest == 8 else 4) <= extent < widest:
        return 0
    return extent if extent & (extent - 1) == 0 else 0


def _fits(b: Builder, stmt: cin.Stmt) -> bool:
    """Whether `WIDE` vectors of what a strip accumulates are half of the registers: there are 32 where there are masks."""
    written = dict.fromkeys(w.lhs for w in cin.writes(stmt) if w.lhs.tensor.policy == "scalar")
    return b.has_masks() and len(written) == 1 and all(a.dtype.kind != "c" for a in written)


def assign(context: Context, stmt: cin.Assign, env: Env) -> None:
    """`stmt` for every lane of the strip."""
    b, strip = context.b, env.mode.strip
    assert strip is not None
    if strip.rows is None:
        _assign_row(context, stmt, env, 0, {})
        return
    shared: dict[tuple[cin.Expr, int], emit.Num] = {}
    for row in range(strip.rows.count):
        here = strip.rows.bound(b, env, row)
        _assign_row(context, stmt, context.resolve(here, stmt), row, shared)


def _assign_row(
    context: Context, stmt: cin.Assign, env: Env, row: int, shared: dict[tuple[cin.Expr, int], emit.Num]
) -> None:
    """`stmt` for every lane of a row; `shared` holds what all rows read: by expression and vector, -1 for all vectors."""
    b, strip, target = context.b, env.mode.strip, stmt.lhs.tensor
    assert strip is not None

    def vectors_of(tensor: cin.Tensor) -> Registers:
        found = env.registers[tensor.name]
        assert isinstance(found, Registers)
        return found

    def own(access: cin.Access) -> bool:
        return access.tensor.policy == "scalar" and isinstance(env.registers[access.tensor.name], Registers)

    def same(access: cin.Access) -> bool:
        return strip.var not in access.indices and not own(access)

    def once(expr: cin.Expr, vector: int, make: Callable[[], emit.Num]) -> emit.Num:
        """A value that all rows have, or one for this row."""
        read = list(cin.accesses(expr))
        if strip.rows is None or any(own(a) or strip.rows.tell(a) for a in read):
            return make()
        if (expr, vector) not in shared:
            shared[expr, vector] = make()
        return shared[expr, vector]

    invariants = dict.fromkeys(cin.largest(stmt.rhs, same))
    fixed = {e: once(e, -1, lambda e=e: emit.splat(b, context.value(e, env), strip.lanes)) for e in invariants}  # type: ignore[misc]
    lanes = [a for a in dict.fromkeys(cin.accesses(stmt.rhs)) if not same(a)]
    past, made = _goes_past(context, target, strip), []
    for vector in range(strip.vectors):
        number = row * strip.vectors + vector
        known: dict[cin.Expr, emit.Num] = {**fixed}
        for a in lanes:
            if own(a):
                known[a] = vectors_of(a.tensor).get(b, number)
            else:
                known[a] = once(a, vector, lambda a=a, v=vector: _leaf(context, a, env, v))  # type: ignore[misc]
        value = context.value(stmt.rhs, env, strip.lanes, known)
        if target.policy == "scalar":
            registers = vectors_of(target)
            if stmt.op is not None:
                value = emit.apply(b, stmt.op, [registers.get(b, number), value], target.dtype)
            registers.set(b, number, value)
        else:
            if not vectorize.contiguous(stmt.lhs, strip.var):
                _apart(context, stmt, env, vector, value)
                continue
            position = _shifted(b, env.cursors[stmt.lhs].pos, vector * strip.lanes)
            if past:
                made.append((position, value))
                continue
            with b.under(strip.mask):
                context.write_lanes(stmt, env, position, value, strip.lanes)
    if made:
        _stored(context, stmt, env, made, strip.lanes)


def _apart(context: Context, stmt: cin.Assign, env: Env, vector: int, value: emit.Num) -> None:
    """`stmt` for the lanes of a vector, one by one, in a result whose elements along the strip lie apart."""
    b, strip, lhs = context.b, env.mode.strip, stmt.lhs
    assert strip is not None
    level = next(k for k in range(len(lhs.indices)) if lhs.level_index(k) == strip.var)
    apart = b.i64(1)
    for below in range(level + 1, len(lhs.indices)):
        apart = b.mul(apart, context.axis_of_level(lhs, below).span)
    left = b.sub(context.bound(strip.var, env), env.bound[strip.var])
    for lane in range(strip.lanes):
        at = vector * strip.lanes + lane
        own = value if strip.lanes == 1 else value._replace(parts=tuple([b.extract(p, lane) for p in value.parts]))
        with nullcontext() if strip.mask is None else b.if_(b.lt(b.i64(at), left)):
            context.write_lanes(stmt, env, _shifted(b, env.cursors[lhs].pos, b.mul(apart, at)), own, 1)


def _goes_past(context: Context, target: cin.Tensor, strip: Strip) -> bool:
    """Whether a strip writes whole lines of a result that is stored past the caches."""
    whole = strip.mask is None and strip.lanes * target.dtype.itemsize == kernel_memory.LINE
    return context.program.past and target.name == context.output.tensor.name and whole


def _stored(context: Context, stmt: cin.Assign, env: Env, made: Sequence[tuple[Val, emit.Num]], lanes: int) -> None:
    """Write the vectors of a row, past the caches if a line begins there."""
    b, pointer = context.b, context.output.vals(context.b)
    address = b.add(b.convert("ptrtoint", pointer, "i64"), b.mul(made[0][0], stmt.lhs.dtype.itemsize))

    def past() -> None:
        for position, value in made:
            b.store_past(pointer, position, value.val)

    def usual() -> None:
        for position, value in made:
            context.write_lanes(stmt, env, position, value, lanes)

    b.if_else(b.eq(b.and_(address, b.i64(kernel_memory.LINE - 1)), 0), past, usual)


def _leaf(context: Context, access: cin.Access, env: Env, vector: int) -> emit.Num:
    """What an access reads in the lanes of one vector."""
    b, strip = context.b, env.mode.strip
    assert strip is not None
    position = _shifted(b, env.cursors[access].pos, vector * strip.lanes)
    tile_fetches.of_shared(context, access, position, strip)
    with b.under(strip.mask):
        return context.operands[access.tensor.name].leaf(b, position, strip.lanes)


def _shifted(b: Builder, position: Val, by: int | Val) -> Val:
    return b.add(position, by) if by else position
