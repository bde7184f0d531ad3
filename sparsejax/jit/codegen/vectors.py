"""Vector loops: the innermost loop over SIMD lanes, in vectors of 64 bytes, then of 16, then single values.

    for j in lo .. hi by 8:   C[i, j .. j + 7] += a * B[k, j .. j + 7]          results lane by lane
    for j in lo .. hi by 8:   t0 .. t7 += x[j .. j + 7] * y[j .. j + 7]         a reduction: the lanes are added up at the end
    (the same by 2, then one by one)

Inside blocks the number of coordinates is known: 7 of them are one vector each of 4, 2 and 1, without any loop.

A loop may run over several ranges (the gaps between stored coordinates, runs of equal values, bands), with one set of
lanes for all. In a range, an access is contiguous in the loop's variable, or invariant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext

import numpy as np

from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.backend.types import lanes_of
from sparsejax.jit.codegen import emit, kernel_memory, register_tiles, sums
from sparsejax.jit.codegen.context import Context
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.ir import cin, lanewise, operators
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.rewrite.vectorize import maskable

SHORT = 4
"""Vectors from which on lanes are worth their loops, where ranges are short."""
COPIES = 4
"""Sets of lanes of a reduction over a whole extent: an addition takes four times as long as starting the next one."""
AHEAD = 4
"""Vectors of terms that are added up before they come to an exact sum, where they were rounded as they were computed."""
FETCHED = 4096
"""Bytes ahead at which a reduction fetches what it reads in two streams (1 and 2 KiB are slower by up to a sixth)."""
UNROLL = 4  # vectors of a block that are written one after the other instead of in a loop

Follow = Callable[[Val], Mapping[cin.Access, Cursor]]
"""The cursors of contiguous sparse accesses at a coordinate."""
Beside = Callable[[Val, int], None]
"""What else is to be done for some lanes from a coordinate on."""
Prepared = tuple[Env, dict[cin.Expr, emit.Num]]
"""What does not change in a range: resolved cursors and the values of invariants."""


def vector_loop(context: Context, stmt: cin.Forall, env: Env) -> None:
    """Emit a loop of the kind "vector": over the whole extent of its variable."""
    var, body = stmt.var, stmt.body
    assert isinstance(body, cin.Assign)

    def loop(count: int = 0) -> None:
        lanes = 0 if count else whole_lanes(env, var, body)
        made = VectorLoop(context, env, var, body, count=count, copies=1 if count else COPIES, lanes=lanes)
        prepared = made.prepared(env)
        if count:
            made.run_block(prepared)
        else:
            made.run(prepared, context.b.i64(0), context.bound(var, env))
        made.finish(env)

    if isinstance(var.rest, Bounded):
        loop()
    elif var.outer is None:
        writes = maskable(body) and var in cin.bound_by(body.lhs)
        loop(register_tiles.part_of_vector(context, var, VectorLoop.widest(body)) if writes else 0)
    elif not var.rest:
        loop(var.size)
    else:
        context.b.if_else(context.in_last_block(var, env), lambda: loop(var.rest), lambda: loop(var.size))


def whole_lanes(env: Env, var: cin.IndexVar, body: cin.Assign) -> int:
    """The lanes of a loop over everything that computes elementary functions, of two vectors; 0 for others, of one. Each operation of a formula waits for the
    one before, and the processor looks at few vectors at once: written side by side, two take 0.86 (sinh) to 1.0 (arcsin) of the time (Granite Rapids)."""
    several = not env.bound and var in cin.bound_by(body.lhs) and lanewise.elementary(body.rhs)
    return 2 * VectorLoop.widest(body) if several else 0


class VectorLoop:
    """`body` over ranges of `var`; accesses in `fixed` have one position in a range, whatever their indices say.

    Vectors have `lanes` lanes, or as many as fit 64 bytes of all that is computed; the last one has `masked` lanes where the processor can.
    With a `count`, there is one range of as many coordinates (`run_block`). A reduction has `copies` sets of lanes, of which none
    waits for the other; with `halves`, some of these take the first half of a range and the others the second: what comes from memory in two
    streams comes sooner (the largest of a million numbers in 0.84 of the time, of eight million in 0.88, an EPYC of the third generation). Both are fetched
    `FETCHED` bytes ahead: the sum of eight million numbers takes 0.56 to 0.68 of the time, that of their squares 0.77 to 0.88, the largest 0.87 to
    0.93, of a million all the same (Granite Rapids).

    An exact sum has one set of lanes for either half: its additions do not wait for memory, but take seven instructions each. Terms that were
    rounded before, as products are, are added up four by four first: two more roundings each, however many there are (a sum of squares out of
    the second cache takes half of the time).
    """

    def __init__(
        self,
        context: Context,
        env: Env,
        var: cin.IndexVar,
        body: cin.Assign,
        fixed: Collection[cin.Access] = (),
        count: int = 0,
        beside: Beside | None = None,
        copies: int = 1,
        lanes: int = 0,
        masked: bool = True,
        halves: bool = False,
    ) -> None:
        self.beside, self.halves = beside, halves
        self.context, self.var, self.body, self.fixed, self.count = context, var, body, fixed, count
        whole = None if var in cin.bound_by(body.lhs) else env.scalar(body.lhs.tensor).total
        widest = lanes or self.widest(body)
        if whole is not None and not lanes:
            widest = min(widest, register_tiles.VECTOR_BYTES // whole.wide.itemsize)
        self.masks = masked and not count and beside is None and maskable(body)
        if self.masks:
            self.widths: tuple[int, ...] = (widest,)
        elif count:
            powers = [1 << k for k in reversed(range(widest.bit_length()))]
            self.widths = tuple(w for w in powers if w == widest <= count or w & (count % widest))
        else:
            self.widths = tuple(dict.fromkeys((widest, max(1, widest // 4), 1)))
        self.totals: dict[tuple[int, int], Lanes] = {}
        self.copies = self.ahead = 1
        if var not in cin.bound_by(body.lhs):
            exact = whole is not None and whole.exact
            self.copies = (2 if halves and copies > 1 else 1) if exact else copies
            self.ahead = AHEAD if exact and copies > 1 and _rounds(body.rhs) else 1
            for lanes, copy in self.sets(widest):
                self.totals[lanes, copy] = Lanes(context.b, body, lanes, whole, self.first_of(lanes), copy)

    def sets(self, widest: int) -> list[tuple[int, int]]:
        """The sets of lanes of a reduction: how many lanes, and the number of the copy."""
        return [(n, c) for n in self.widths if n > 1 for c in range(self.copies if n == widest else 1)]

    def first_of(self, lanes: int) -> Lanes | None:
        """The set of so many lanes that those made now are a copy of, if there is one yet."""
        return self.totals.get((lanes, 0))

    @staticmethod
    def widest(body: cin.Assign) -> int:
        """The lanes of a whole vector."""
        return register_tiles.VECTOR_BYTES // max(a.dtype.itemsize for a in (body.lhs, *cin.accesses(body.rhs)))

    def prepared(self, env: Env) -> Prepared:
        env = self.context.resolve(env, self.body)
        same = cin.largest(self.body.rhs, lambda a: self.var not in cin.bound_by(a) or a in self.fixed)
        return env, {e: self.context.value(e, env) for e in same}

    def run(
        self,
        prepared: Prepared,
        lo: Val,
        hi: Val,
        follow: Follow | None = None,
        short: bool = False,
    ) -> None:
        """The coordinates lo to hi (lo <= hi); `short` when ranges of few vectors are common: these run one by one."""
        b = self.context.b
        if self.masks:
            self._run_masked(prepared, lo, hi, follow)
            return
        done = b.var("done", lo)
        wide = [lanes for lanes in self.widths if lanes > 1]
        with nullcontext() if not short or not wide else b.if_(b.lt(b.i64(SHORT * wide[0]), b.sub(hi, lo))):
            for lanes in wide:
                b.set(done, self._vectors(prepared, b.get(done), hi, lanes, follow))
        self._lanes(prepared, b.get(done), hi, 1, follow)

    def _run_masked(self, prepared: Prepared, lo: Val, hi: Val, follow: Follow | None) -> None:
        """The coordinates lo to hi, those behind the last whole vector in some of its lanes."""
        b, (lanes,) = self.context.b, self.widths
        end = self._vectors(prepared, lo, hi, lanes, follow)
        with b.if_(b.lt(end, hi)), b.masked(lanes, b.sub(hi, end)):
            self.at(prepared, end, lanes, follow)

    def run_few(self, prepared: Prepared, lo: Val, hi: Val, follow: Follow | None, vectors: int = 1) -> None:
        """The coordinates lo to hi (lo <= hi) of a reduction, mostly no more than some lanes of so many vectors: these are not asked for."""
        b, (lanes,) = self.context.b, self.widths
        for first in range(0, vectors * lanes, lanes):
            at = b.add(lo, first)
            with b.masked(lanes, b.sub(hi, at)):
                self.at(prepared, at, lanes, follow)
        with b.for_(b.add(lo, vectors * lanes), hi, self.var.name, lanes) as index, b.masked(lanes, b.sub(hi, index)):
            self.at(prepared, index, lanes, follow)

    def once(
        self,
        prepared: Prepared,
        lo: Val,
        hi: Val,
        follow: Follow | None,
        kept: dict[str, emit.Num],
    ) -> None:
        """The coordinates lo to hi, which are some lanes of one vector; `kept` has what was written there before, by tensor."""
        b, (lanes,) = self.context.b, self.widths
        own: dict[cin.Expr, emit.Num] = {
            a: kept[a.tensor.name] for a in cin.accesses(self.body.rhs) if a.tensor.name in kept
        }
        with b.masked(lanes, b.sub(hi, lo)):
            value = self.at(prepared, lo, lanes, follow, 0, own)
        if not self.totals:
            kept[self.body.lhs.tensor.name] = value

    def _vectors(self, prepared: Prepared, lo: Val, hi: Val, lanes: int, follow: Follow | None) -> Val:
        """As many vectors as fit between `lo` and `hi`; where the last one ends."""
        b = self.context.b
        for copies, ahead in dict.fromkeys(((self.copies, self.ahead) if lanes == self.widths[0] else (1, 1), (1, 1))):
            step = lanes * ahead
            end = b.named("end", b.add(lo, b.and_(b.sub(hi, lo), b.i64(-step * copies))))
            if self.halves and copies > 1:
                self._both_halves(prepared, lo, end, lanes, follow)
            else:
                with b.for_(lo, end, self.var.name, step * copies) as index:
                    for copy in range(copies):
                        self._some(prepared, b.add(index, copy * step), lanes, follow, copy, ahead)
            lo = end
        return lo

    def _both_halves(self, prepared: Prepared, lo: Val, end: Val, lanes: int, follow: Follow | None) -> None:
        """The coordinates lo to end, which all sets of lanes fit a number of times: one half of the sets each."""
        b, sets, step = self.context.b, self.copies // 2, lanes * self.ahead
        half = b.named("half", b.binary("ashr", b.sub(end, lo), b.i64(1)))
        with b.for_(lo, b.add(lo, half), self.var.name, step * sets) as index:
            for copy in range(self.copies):
                first = b.add(index, half) if copy >= sets else index
                self._fetch(prepared, b.add(first, copy % sets * step), step, follow)
                self._some(prepared, b.add(first, copy % sets * step), lanes, follow, copy, self.ahead)

    def _fetch(self, prepared: Prepared, first: Val, count: int, follow: Follow | None) -> None:
        """Ask for what as many coordinates read that come later than `count` from `first` on."""
        here = self._here(prepared[0], first, follow)
        for access in dict.fromkeys(cin.accesses(self.body.rhs)):
            operand, size = self.context.operands[access.tensor.name], access.tensor.dtype.itemsize
            if access in self.fixed or access.indices[-1:] != (self.var,) or not isinstance(operand, Input):
                continue
            for at in range(0, count * size, register_tiles.VECTOR_BYTES):
                later = self.context.b.add(here.cursors[access].pos, (at + FETCHED) // size)
                kernel_memory.prefetch(self.context.b, operand.vals, later, size)

    def _some(self, prepared: Prepared, first: Val, lanes: int, follow: Follow | None, copy: int, ahead: int) -> None:
        """The coordinates of `ahead` vectors from `first` on: what they compute is added up, by halves, before it is accumulated."""
        b, total = self.context.b, self.totals.get((lanes, copy))
        if ahead == 1 or total is None:
            self.at(prepared, first, lanes, follow, copy)
            return
        made = [self._computed(prepared, b.add(first, k * lanes), lanes, follow, {})[1] for k in range(ahead)]
        while len(made) > 1:
            made = [emit.apply(b, "add", [x, y], x.dtype) for x, y in zip(made[::2], made[1::2], strict=True)]
        total.add(made[0])

    def run_block(self, prepared: Prepared) -> None:
        """All coordinates of a block."""
        b, done = self.context.b, 0
        for lanes in self.widths:
            end = done + (self.count - done) // lanes * lanes
            if end - done > UNROLL * lanes:
                self._lanes(prepared, b.i64(done), b.i64(end), lanes, None)
            else:
                for lo in range(done, end, lanes):
                    self.at(prepared, b.i64(lo), lanes, None)
            done = end

    def _lanes(self, prepared: Prepared, lo: Val, hi: Val, lanes: int, follow: Follow | None) -> None:
        """`lanes` coordinates at a time."""
        with self.context.b.for_(lo, hi, self.var.name, lanes) as index:
            self.at(prepared, index, lanes, follow)

    def at(
        self,
        prepared: Prepared,
        index: Val,
        lanes: int,
        follow: Follow | None,
        copy: int = 0,
        known: Mapping[cin.Expr, emit.Num] | None = None,
    ) -> emit.Num:
        """The `lanes` coordinates from `index`, and what was computed of them; `known` has values that are."""
        context, body, total = self.context, self.body, self.totals.get((lanes, copy))
        here, value = self._computed(prepared, index, lanes, follow, known or {})
        if total is not None:
            value = kept(context.b, body, value, lanes)
        if lanes == 1:
            context.write(body, here, value)
        elif total is None:
            context.write_lanes(body, here, here.cursors[body.lhs].pos, value, lanes)
        else:
            total.add(value)
        return value

    def _computed(
        self, prepared: Prepared, index: Val, lanes: int, follow: Follow | None, known: Mapping[cin.Expr, emit.Num]
    ) -> tuple[Env, emit.Num]:
        """Where everything is at the `lanes` coordinates from `index`, and what the body computes there."""
        env, scalars = prepared
        splats = {e: emit.splat(self.context.b, n, lanes) for e, n in scalars.items()}
        here = self._here(env, index, follow)
        if self.beside is not None:
            self.beside(index, lanes)
        return here, self.value(here, lanes, {**splats, **known})

    def _here(self, env: Env, index: Val, follow: Follow | None) -> Env:
        here = env.bind(self.var, index).with_cursors({} if follow is None else follow(index))
        return self.context.resolve(here, self.body)

    def value(self, env: Env, lanes: int, known: dict[cin.Expr, emit.Num]) -> emit.Num:
        """What the body computes in some lanes; `known` has values that are known, and gets those that are computed."""
        return self.context.value(self.body.rhs, env, lanes, known)

    def finish(self, env: Env) -> None:
        """Add up the lanes of a reduction."""
        add_up(self.context, self.body, env, tuple(self.totals.values()))


def _rounds(value: cin.Expr) -> bool:
    """Whether a floating-point term is rounded while it is computed: it is more than chosen, negated or converted."""
    if not isinstance(value, cin.Call):
        return False
    return value.op not in _EXACT or any(map(_rounds, value.args))


_EXACT = frozenset({"cast", "negative", "absolute", "where", "maximum", "minimum", "conjugate", "real", "imag", "sign"})


class Lanes:
    """What some lanes of a reduction accumulate, until they are added up (`add_up`); `whole` is the sum that they are added to, if it is one.
    Sets of an extreme note what is not a number in one place, that of the `first` set. Truth values are counted, which leaves no lanes to add up."""

    def __init__(
        self,
        b: Builder,
        body: cin.Assign,
        lanes: int,
        whole: sums.Sum | None,
        first: Lanes | None = None,
        copy: int = 0,
    ) -> None:
        self._b, self._op, self._dtype = b, body.op or "", body.lhs.dtype
        self.count = lanes
        self.sum: sums.Sum | None = None
        if whole is not None:
            self.sum = whole.in_lanes(self._b, lanes, copy)
            return
        self._counted: Var | None = None
        if counts(body):
            self.count, self._counted = 1, self._b.var("counted", self._b.i64(0))
            return
        start = emit.constant(self._b, operators.get(self._op).identity(self._dtype), self._dtype)
        self._first = first is None
        self._undefined: Var | None = None if first is None else first._undefined
        if first is None and self._op in _WINS and self._dtype.kind == "f" and self._dtype.itemsize >= 4:
            self._undefined = self._b.var("undefined", emit.splat(self._b, start, lanes).val)
        self._parts = tuple(self._b.var("lanes", part) for part in emit.splat(self._b, start, lanes).parts)

    def add(self, value: emit.Num) -> None:
        """Accumulate a value for every lane."""
        if self.sum is not None:
            self.sum.add(self._b, value)
            return
        if self._counted is not None:
            self._b.increment(self._counted, _true(self._b, value))
            return
        if self._undefined is not None:
            self._add_extreme(self._undefined, value.val)
            return
        made = emit.apply(self._b, self._op, [self.get(), value], value.dtype)
        for var, part in zip(self._parts, made.parts, strict=True):
            self._b.set(var, part)

    def _add_extreme(self, undefined: Var, value: Val) -> None:
        """One instruction for the extreme, and two to note what is not a number: choosing between these for every value takes longer."""
        b, (part,) = self._b, self._parts
        b.set(undefined, b.select(b.compare("uno", value, value), value, b.get(undefined)))
        b.set(part, b.select(b.compare(_WINS[self._op], value, b.get(part)), value, b.get(part)))

    def get(self) -> emit.Num:
        """What was accumulated, but for digits that a sum lost; and but for what is not a number, which the first set has of all."""
        b = self._b
        if self.sum is not None:
            return self.sum.plain(b)
        if self._counted is not None:
            return emit.cast(b, emit.Num(np.dtype(np.int64), (b.get(self._counted),)), self._dtype)
        made = emit.Num(self._dtype, tuple(map(b.get, self._parts)))
        if self._undefined is None or not self._first:
            return made
        noted = b.get(self._undefined)
        return emit.choose(b, b.compare("uno", noted, noted), emit.Num(self._dtype, (noted,)), made)


def counts(body: cin.Assign) -> bool:
    """Whether truth values are added up as integers."""
    value = body.rhs
    if body.op != "add" or body.lhs.dtype.kind not in "iu" or not isinstance(value, cin.Call) or value.op != "cast":
        return False
    return value.dtype.kind in "iu" and value.args[0].dtype.kind == "b"


def _true(b: Builder, value: emit.Num) -> Val:
    """In how many lanes a truth value that was cast is true: one instruction makes a mask of bits of the lanes, another counts these."""
    bits = f"i{lanes_of(value.val.type)}"
    nothing = emit.splat(b, emit.constant(b, 0, value.dtype), lanes_of(value.val.type)).val
    mask = b.convert("bitcast", b.compare("ne", value.val, nothing), bits)
    found = b.call(f"llvm.ctpop.{bits}", bits, [mask])
    return found if bits == "i64" else b.convert("zext", found, "i64")


def add_up(context: Context, body: cin.Assign, env: Env, totals: Sequence[Lanes]) -> None:
    """Add all lanes to what `body` accumulates, by halves: adding one by one takes as long as a short row. Widest first."""
    b, made = context.b, gathered(context, body, env, totals)
    if made is not None:
        context.write(body, env, _folded(b, body, made, 1))


def gathered(context: Context, body: cin.Assign, env: Env, totals: Sequence[Lanes]) -> emit.Num | None:
    """All lanes in as many as the narrowest of `totals` has, widest first; None where they are added to an exact sum at once."""
    b, made = context.b, None
    for lanes in totals:
        if lanes.sum is not None and lanes.sum.exact:
            env.scalar(body.lhs.tensor).absorb(b, lanes.sum)  # its own are added up when it is read
            continue
        own = lanes.get()
        made = (
            own if made is None else emit.apply(b, body.op or "", [_folded(b, body, made, lanes.count), own], own.dtype)
        )
    return made


def _folded(b: Builder, body: cin.Assign, value: emit.Num, lanes: int) -> emit.Num:
    """`value` in so many lanes, those beyond being added to them."""
    if lanes == 1 and body.op in _WINS and value.dtype.kind == "f" and lanes_of(value.val.type) in (8, 16, 32, 64):
        return _extreme(b, body.op, value)
    while (count := lanes_of(value.val.type)) > lanes:
        halves = zip(*(_halves(b, p, count) for p in value.parts), strict=True)
        value = emit.apply(b, body.op or "", [emit.Num(value.dtype, parts) for parts in halves], value.dtype)
    return value


def _halves(b: Builder, vector: Val, count: int) -> tuple[Val, Val]:
    """The lower and the upper half of so many lanes."""
    half = count // 2
    if half == 1:
        return b.extract(vector, 0), b.extract(vector, 1)
    return b.shuffle(vector, vector, range(half)), b.shuffle(vector, vector, range(half, count))


_WINS = {"maximum": "ogt", "minimum": "olt"}


def _extreme(b: Builder, op: str, value: emit.Num) -> emit.Num:
    """The largest or smallest of all lanes. What is not a number is looked for once: one instruction is left for every half."""
    found = value.val
    count = lanes_of(found.type)
    mask = b.convert("bitcast", b.compare("uno", found, found), f"i{count}")
    undefined = b.ne(mask, b.const(f"i{count}", 0))
    while count > 1:
        left, right = _halves(b, found, count)
        found = b.named("extreme", b.select(b.compare(_WINS[op], right, left), right, left))
        count //= 2
    return emit.Num(value.dtype, (b.select(undefined, emit.constant(b, math.nan, value.dtype).val, found),))


def kept(b: Builder, body: cin.Assign, value: emit.Num, lanes: int) -> emit.Num:
    """`value`, which `body` accumulates, in the lanes that the mask selects; in the others nothing."""
    if b.mask is None:
        return value
    nothing = emit.constant(b, operators.get(body.op or "").identity(value.dtype), value.dtype)
    return emit.choose(b, b.mask, value, emit.splat(b, nothing, lanes))


def transposed(b: Builder, body: cin.Assign, values: Sequence[emit.Num], rounds: int) -> list[emit.Num]:
    """Every one of `values` with its lanes added up: at most 2**rounds of them, all but one round for all at once.

        x0 x1 x2 x3   y0 y1 y2 y3     ->   x0+x1 y0+y1 x2+x3 y2+y3     ->   x0+x1+x2+x3 y0+y1+y2+y3

    The order in which the lanes of one are added up depends on `rounds` alone, not on how many there are.
    """

    def picked(p: Val, q: Val, lanes: Sequence[int]) -> Val:
        return b.shuffle(p, q, lanes) if len(lanes) > 1 else b.extract(p, *lanes)

    def added(x: emit.Num, y: emit.Num, even: Sequence[int], odd: Sequence[int]) -> emit.Num:
        pairs = list(zip(x.parts, y.parts, strict=True))
        both = [emit.Num(x.dtype, tuple(picked(p, q, lanes) for p, q in pairs)) for lanes in (even, odd)]
        made = emit.apply(b, body.op or "", both, x.dtype)
        return emit.Num(made.dtype, tuple(b.named("added", part) for part in made.parts))

    group, made, count = 1, list(values), len(values)
    for _ in range(rounds):
        lanes = lanes_of(made[0].val.type)
        if lanes == group:
            break
        starts = range(0, lanes, 2 * group)
        even = [k + g for k in starts for g in range(group)]
        if len(made) == 1:
            made = [added(made[0], made[0], even, [k + group for k in even])]
            continue
        pairs = [
            [k + side * lanes + g for k in starts for side in range(2) for g in range(shift, shift + group)]
            for shift in (0, group)
        ]
        made = [added(x, y, *pairs) for x, y in zip(made[::2], made[1::2], strict=True)]
        group *= 2
    made = [_folded(b, body, value, group) for value in made]
    if group == 1:
        return made
    return [emit.Num(value.dtype, tuple(b.extract(p, k) for p in value.parts)) for value in made for k in range(group)][
        :count
    ]
