"""Sums of neighbouring positions with equal coordinates, in lanes: a segmented scan.

    for p in lo .. hi by 8:                          i = crd0[p .. p + 7]
      t0 .. t7 = vals[p .. p + 7] * x[crd1[p .. p + 7]]
      t += t one lane below, where i is the same there             three times: 1, 2, 4 lanes below
      t += the last t of the positions before, where i is the same
      y[i] = t, where i is another one at the next position

    i   0   0   1   1   1   2   3   3
    t   a   b   c   d   e   f   g   h
        a   a+b c   c+d c+d+e   f   g   g+h          scattered: lanes 1, 4, 5, and 7 unless row 3 goes on

No branch depends on where a row ends, and what a row sums up never leaves registers: per entry it takes as long for rows of one entry as of fifty
(1.1 to 0.8 ns from the second cache, Granite Rapids). Lanes are those of places that are a multiple of their number, wherever a walk begins: the
order in which a row is summed up does not depend on chunks, which end where rows do. Lanes outside of a walk have the identity.

Of many positions, what is read in order is fetched ahead, as in walks of segments (`prefetch`): three to four streams and the operands that are gathered
leave the processor too little of it in time (`A @ x`, five entries per row: 0.95 of the time with 200,000 entries, 0.75 to 0.85 with a million).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsejax.jit.backend.builder import SIZES, Builder, Val
from sparsejax.jit.backend.types import vector_of
from sparsejax.jit.codegen import emit, kernel_memory, register_tiles
from sparsejax.jit.codegen.loops import positions, prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import DenseArea, Input
from sparsejax.jit.ir import cin, operators
from sparsejax.jit.rewrite import summation

Place = Callable[[Sequence[Val]], Val]
"""Where something is at some coordinates of a walk, in lanes."""


def walk(loop: Loop, walker: Walker) -> None:
    """The places of `walker` in lanes: those of the first vector and of the last ones under masks, of all between without."""
    b, segment, scan = loop.b, walker.segment, _Scan(loop, walker)
    present = b.var("p", b.and_(segment.lo, b.i64(-scan.count)))
    end = b.named("end", b.sub(segment.hi, scan.count))
    with b.while_(lambda: b.lt(b.get(present), segment.hi)):
        scan.some(b.get(present))
        b.increment(present, scan.count)
        with b.while_(lambda: b.lt(b.get(present), end)):
            scan.whole(b.get(present))
            b.increment(present, scan.count)


class _Scan:
    """Sums of segments in lanes, and the last of them, which goes on in the next vector."""

    def __init__(self, loop: Loop, walker: Walker) -> None:
        b, context, found = loop.b, loop.context, loop.plan.walk
        assert found is not None and found.where is not None
        stmt, used, operand = found.stmt, found.where.consumer, context.operands[found.leader.tensor.name]
        assert isinstance(stmt, cin.Assign) and isinstance(used, cin.Assign) and isinstance(operand, Input)
        self.loop, self.found, self.segment, self.operand = loop, found, walker.segment, operand
        self.stmt, self.used, self.op, tensor = stmt, used, stmt.op or "", stmt.lhs.tensor
        self.dtype = summation.wide(tensor.dtype) if summation.is_sum(stmt, tensor) else tensor.dtype
        sizes = (self.dtype.itemsize, *(a.dtype.itemsize for a in (stmt.lhs, used.lhs, *cin.accesses(stmt.rhs))))
        self.count = register_tiles.VECTOR_BYTES // max(sizes)
        self.around = context.resolve(loop.env, stmt)
        self.once, self.outside = self._once(stmt), self._once(used)
        self.read = [a for a in dict.fromkeys(cin.accesses(stmt.rhs)) if self._changes(a)]
        self.gathered = {a: self._placed(a, stmt) for a in self.read if a != found.leader and not a.computed}
        self.target = self._placed(used.lhs, used)
        self.nothing = emit.constant(b, operators.get(self.op).identity(self.dtype), self.dtype)
        self.total = [b.var("total", part) for part in emit.splat(b, self.nothing, self.count).parts]
        """The last sum of the vector before, in every lane."""

    def some(self, place: Val) -> None:
        """The lanes of a vector that are inside of the walk."""
        b, lo, hi = self.loop.b, self.segment.lo, self.segment.hi
        left, first = b.named("left", b.sub(hi, place)), b.named("first", b.max(b.sub(lo, place), b.i64(0)))
        inside = b.named("inside", b.and_(b.below(self.count, left), self._from(first)))

        def above(step: int) -> Val:
            return b.named("above", b.and_(inside, self._from(b.add(first, step))))

        more = b.named("more", b.and_(inside, b.below(self.count, b.sub(left, 1))))
        # before a walk of no places at the end of all is the last place there is
        before = b.max(b.sub(place, 1), b.min(lo, b.sub(hi, 1)))
        self._visit(place, before, inside, more, above)

    def whole(self, place: Val) -> None:
        """A vector of places, with others before and behind."""
        b = self.loop.b
        if self.loop.plan.prefetch:
            self._fetch(b.add(place, prefetch.STREAM))
        self._visit(place, b.sub(place, 1), None, None, lambda step: self._from(b.i64(step)))

    def _visit(
        self, place: Val, before: Val, inside: Val | None, more: Val | None, above: Callable[[int], Val]
    ) -> None:
        """The lanes of a vector that are `inside`, of which those have `more` behind them; `above` tells which have so many before them in the
        vector, and `before` is a place with the coordinates before it, if there are any."""
        b, tensor = self.loop.b, self.stmt.lhs.tensor
        with b.under(inside):
            own = [self._loaded(k, place) for k in range(len(self.found.vars))]
            at = [b.convert("sext", c, f"<{self.count} x i64>") for c in own]
            value = _named(b, "term", self._term(place, at))
        rows = own[: self.found.rows]
        step = 1
        while step < self.count:
            there = above(step)
            with b.under(None if inside is None else there):
                others = [self._loaded(k, b.sub(place, step)) for k in range(self.found.rows)]
            lanes = [max(lane - step, 0) for lane in range(self.count)]
            earlier = emit.Num(value.dtype, tuple(b.shuffle(part, part, lanes) for part in value.parts))
            value = self._onto(earlier, value, b.and_(there, _equal(b, rows, others)))
            step *= 2
        last = [self._loaded(k, before, 1) for k in range(self.found.rows)]
        on = _equal(b, rows, [b.splat(row, self.count) for row in last])
        value = self._onto(emit.Num(value.dtype, tuple(map(b.get, self.total))), value, on)
        for var, part in zip(self.total, value.parts, strict=True):
            b.set(var, b.shuffle(part, part, [self.count - 1] * self.count))
        with b.under(more):
            later = [self._loaded(k, b.add(place, 1)) for k in range(self.found.rows)]
        goes_on = _equal(b, rows, later)
        if inside is not None and more is not None:
            goes_on = b.and_(goes_on, more)
        ends = b.binary("xor", goes_on, b.splat(b.const("i1", 1), self.count))
        with b.under(b.named("ends", ends if inside is None else b.and_(inside, ends))):
            self._write(emit.cast(b, value, tensor.dtype), self.target(at))

    def _fetch(self, later: Val) -> None:
        """Ask for what is read in order at a later place."""
        b, levels = self.loop.b, self.operand.buffers[self.found.level :][: len(self.found.vars)]
        for level in levels:
            kernel_memory.prefetch(b, level["crd"].pointer, later, SIZES[level["crd"].type])
        for access in self.read:
            beside = self.loop.context.operands[access.tensor.name]
            if access not in self.gathered and isinstance(beside, Input):
                kernel_memory.prefetch(b, beside.vals, later, access.dtype.itemsize)

    def _term(self, place: Val, at: Sequence[Val]) -> emit.Num:
        """What is summed up, at coordinates; the identity in lanes that the mask leaves out."""
        b, context, known = self.loop.b, self.loop.context, dict(self.once)
        for access in self.read:
            operand = context.operands[access.tensor.name]
            if access in self.gathered:
                assert isinstance(operand, Input | DenseArea)
                places, name = self.gathered[access](at), access.tensor.name.lower()
                known[access] = emit.gather(b, operand.vals, places, access.dtype, name)
            else:
                known[access] = operand.leaf(b, place, self.count)
        value = emit.cast(b, context.value(self.stmt.rhs, self.around, self.count, known), self.dtype)
        if self.dtype.kind == "f" and self.op == "add":  # a sum of negative zeros is a positive one
            value = emit.apply(b, self.op, [value, emit.splat(b, self.nothing, self.count)], self.dtype)
        if b.mask is None:
            return value
        return emit.choose(b, b.mask, value, emit.splat(b, self.nothing, self.count))

    def _onto(self, earlier: emit.Num, value: emit.Num, where: Val) -> emit.Num:
        """`value`, in some lanes with what is `earlier` before it."""
        b = self.loop.b
        both = emit.apply(b, self.op, [earlier, value], value.dtype)
        return _named(b, "sum", emit.choose(b, where, both, value))

    def _write(self, value: emit.Num, places: Val) -> None:
        """Write what becomes of sums at places that differ, in the lanes that end a segment."""
        b, context, stmt, tensor = self.loop.b, self.loop.context, self.used, self.used.lhs.tensor
        known = {**self.outside, self.stmt.lhs: value}
        value = emit.cast(b, context.value(stmt.rhs, self.loop.env, self.count, known), tensor.dtype)
        area = context.operands.get(tensor.name)
        pointer = area.vals if isinstance(area, DenseArea) else context.output.vals(b)
        if stmt.op is not None:
            old = emit.gather(b, pointer, places, tensor.dtype, tensor.name)
            value = emit.apply(b, stmt.op, [old, value], tensor.dtype)
        emit.scatter(b, pointer, places, value)

    def _from(self, first: Val) -> Val:
        """The lanes from number `first` on."""
        b = self.loop.b
        return b.binary("xor", b.below(self.count, first), b.splat(b.const("i1", 1), self.count))

    def _loaded(self, number: int, place: Val, lanes: int = 0) -> Val:
        """The coordinates of one of the levels at a vector of places, or at one."""
        crd, name = self.operand.buffers[self.found.level + number]["crd"], self.found.vars[number].name
        return self.loop.b.load(crd.pointer, place, vector_of(crd.type, lanes or self.count), name)

    def _changes(self, access: cin.Access) -> bool:
        """Whether an access reads something else from one position to another: with other coordinates, or the sum of a segment."""
        varies = set(self.found.vars) & set(cin.bound_by(access))
        return bool(varies) or access == self.stmt.lhs

    def _once(self, stmt: cin.Assign) -> dict[cin.Expr, emit.Num]:
        """What `stmt` reads that is the same at all positions, in every lane."""
        env = self.loop.context.resolve(self.loop.env, stmt)
        same = dict.fromkeys(cin.largest(stmt.rhs, lambda a: not self._changes(a)))
        return {e: emit.splat(self.loop.b, self.loop.context.value(e, env), self.count) for e in same}

    def _placed(self, access: cin.Access, stmt: cin.Stmt) -> Place:
        """Where a dense array has what is at some coordinates: its positions grow evenly with each of them."""
        b, loop, found, count = self.loop.b, self.loop, self.found, self.count

        def at(number: int) -> Val:
            """The position where all coordinates are zero but one, which is one."""
            coordinates = [b.i64(int(k == number)) for k in range(len(found.vars))]
            env = positions.at(loop.env, found, b.i64(0), coordinates)
            return loop.context.resolve(env, stmt).cursors[access].pos

        first = at(-1)
        changing = [k for k, v in enumerate(found.vars) if v in cin.bound_by(access)]
        second = [at(k) for k in changing]
        if first.ref == "0" and [p.ref for p in second] == ["1"]:
            return lambda coordinates: coordinates[changing[0]]
        start, steps = b.splat(first, count), [b.splat(b.sub(p, first), count) for p in second]

        def place(coordinates: Sequence[Val]) -> Val:
            made = start
            for k, step in zip(changing, steps, strict=True):
                made = b.binary("add", made, b.binary("mul", step, coordinates[k]))
            return made

        return place


def _equal(b: Builder, rows: Sequence[Val], others: Sequence[Val]) -> Val:
    """Where all coordinates are the same."""
    made = b.eq(rows[0], others[0])
    for row, other in zip(rows[1:], others[1:], strict=True):
        made = b.and_(made, b.eq(row, other))
    return made


def _named(b: Builder, name: str, value: emit.Num) -> emit.Num:
    return emit.Num(value.dtype, tuple(b.named(name, part) for part in value.parts))
