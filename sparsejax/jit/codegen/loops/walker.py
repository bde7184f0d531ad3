"""A leader being walked, and what all loop shapes share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from sparsejax.formats.levels.walk import Segment, end_of_range, gallop
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen.context import Context
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.operands import Input
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Cases, Leaders, LoopPlan

Visit = Callable[[cin.Stmt, Val, Env], None]
END = 2**62  # larger than any coordinate


@dataclass
class Walker:
    """A leader being walked: its segment, the present place and coordinate; in ranges (coordinate runs) a coordinate may
    fill several places. `long` tells at run time whether it is worth to jump."""

    access: cin.Access
    level: int
    segment: Segment
    ranged: bool
    at: Var | None = None
    here: Var | None = None
    long: Val | None = None
    last: Val | None = None
    """The last place of all segments, where that was asked outside of the loop (`prefetch.last_place`)."""

    @property
    def side_by_side(self) -> bool:
        """Whether the places of a walk are consecutive and each has its own coordinate."""
        return not self.ranged and self.segment.after is None

    def cursor(self, place: Val, end: Val | None, coordinate: Val) -> Cursor:
        """The cursor of the access once `coordinate` at `place` is bound; a range goes on to `end`."""
        return Cursor(self.level + 1, self.segment.child(place, coordinate), end)

    def after(self, b: Builder, place: Val, coordinate: Val) -> Val:
        """The next place."""
        step = self.segment.after
        made: Val = b.add(place, 1) if step is None else step(place, coordinate)
        return made

    def seek(self, b: Builder, place: Val, coordinate: Val) -> Val:
        """The first place after `place` whose coordinate is not below `coordinate`; that of `place` is below it."""
        segment = self.segment
        made: Val
        if segment.seek is not None:
            made = segment.seek(place, coordinate)
        elif segment.after is None:
            made = gallop(b, lambda at: b.lt(segment.coordinate(at), coordinate), b.add(place, 1), segment.hi)
        else:
            at = b.var("at", place)
            going = b.var("going", b.const("i1", 1))
            with b.while_(lambda: b.get(going)):
                b.set(at, segment.after(b.get(at), segment.coordinate(b.get(at))))
                b.set(going, b.const("i1", 0))
                with b.if_(b.lt(b.get(at), segment.hi)):
                    b.set(going, b.lt(segment.coordinate(b.get(at)), coordinate))
            made = b.get(at)
        return made

    def end_of(self, b: Builder, place: Val, coordinate: Val) -> Val:
        """The first place after `place` with another coordinate (never reads past the end)."""
        segment = self.segment
        end: Val = end_of_range(b, lambda at: b.eq(segment.coordinate(at), coordinate), b.add(place, 1), segment.hi)
        return end

    # a walker with variables: its present place, and the coordinate there (END behind the last)
    def start(self, b: Builder) -> None:
        self.at = b.var("p", self.segment.lo)
        self.here = b.var("c", b.i64(END))
        self.look(b)

    def place(self, b: Builder) -> Val:
        assert self.at is not None
        return b.get(self.at)

    def coordinate(self, b: Builder) -> Val:
        assert self.here is not None
        return b.get(self.here)

    def look(self, b: Builder) -> None:
        """Read the coordinate at the present place."""
        here, place = self.here, self.place(b)
        assert here is not None

        def read() -> None:
            b.set(here, self.segment.coordinate(place))

        b.if_else(b.lt(place, self.segment.hi), read, lambda: b.set(here, b.i64(END)))

    def move(self, b: Builder, place: Val) -> None:
        assert self.at is not None
        b.set(self.at, place)
        self.look(b)

    def catch_up(self, b: Builder, coordinate: Val) -> None:
        """Move to the first coordinate that is not below `coordinate`: in jumps, or in steps where the segment is not `long`."""

        def jump() -> None:
            with b.if_(b.lt(self.coordinate(b), coordinate)):
                self.move(b, self.seek(b, self.place(b), coordinate))

        def step() -> None:
            with b.while_(lambda: b.lt(self.coordinate(b), coordinate)):
                self.move(b, b.add(self.place(b), 1))

        if self.long is None:
            jump()
        else:
            b.if_else(self.long, jump, step)

    @property
    def ends(self) -> tuple[Val, Val] | None:
        """The end and the start of the places, where they are consecutive and there is no faster way to seek one."""
        if self.segment.after is not None or self.segment.seek is not None:
            return None
        return self.segment.hi, self.segment.lo


@dataclass
class Loop:
    """The loop over `var` under construction: its cases, a walker for every leader, and how one coordinate is visited.

    `plan` says how it runs; `body` is the whole body; `enters` tells whether the loop appends to the output at its own variable; `enter` emits a
    statement at a coordinate, where the cursors of the accesses that are there are known.
    """

    context: Context
    var: cin.IndexVar
    body: cin.Stmt
    env: Env
    plan: LoopPlan
    cases: Cases
    walkers: dict[cin.Access, Walker]
    enters: bool
    enter: Visit
    span: tuple[Val, Val] | None = None
    """The coordinates that are visited, where these are not all."""

    @property
    def b(self) -> Builder:
        return self.context.b

    @property
    def begin(self) -> Val:
        """Where a loop over all coordinates starts."""
        return self.b.i64(0) if self.span is None else self.span[0]

    @property
    def extent(self) -> Val:
        """Where a loop over all coordinates ends."""
        return self.context.bound(self.var, self.env) if self.span is None else self.span[1]

    @property
    def grows(self) -> bool:
        """Whether the loop appends entries to the last sparse level of the output."""
        output = self.context.output
        own = [w.lhs for w in cin.writes(self.body) if w.lhs.tensor.name == output.tensor.name]
        return self.enters and self.env.cursors[own[0]].level == output.sparse[-1]

    def room(self, count: Val) -> AbstractContextManager[None]:
        """Inside, at most `count` coordinates are visited: where the loop appends entries, room for them is made at once."""
        return self.context.output.room(self.b, count) if self.grows else nullcontext()

    def at(self, coordinate: Val, key: Leaders, cursors: Mapping[cin.Access, Cursor]) -> None:
        """One coordinate in the case `key`."""
        self.visit(self.cases[key], coordinate, cursors)

    def visit(self, stmt: cin.Stmt, coordinate: Val, cursors: Mapping[cin.Access, Cursor]) -> None:
        """`stmt` at one coordinate, with the cursors of the accesses that are there."""
        self.enter(stmt, coordinate, self.env.with_cursors(cursors))

    def at_place(self, key: Leaders, walker: Walker, place: Val) -> None:
        """The coordinate at one place of a walker that leads alone, its places side by side."""
        coordinate = walker.segment.coordinate(place)
        self.at(coordinate, key, {walker.access: walker.cursor(place, None, coordinate)})

    def stored(self, walker: Walker) -> Val | None:
        """The number of places of all segments of the level that `walker` walks, which lie one behind the other; None where they do not,
        or that is not known."""
        operand = self.context.operands.get(walker.access.tensor.name)
        if not isinstance(operand, Input) or not operand.listed(walker.level):
            return None
        return operand.stored(self.b, walker.level)

    def walkers_of(self, key: Leaders) -> list[Walker]:
        return [w for a, w in self.walkers.items() if a in key]
