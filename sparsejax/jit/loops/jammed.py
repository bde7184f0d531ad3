"""Several reductions side by side: a walk with a vector loop inside that sums up something for every place.

    for p in lo .. hi by 4:                                 one by one where fewer are left
      for k in 0 .. n by 8:
        u = U[i, k .. k + 7]                                what is the same at all places is read once
        t0 += vals[p] * u * V[crd[p], k .. k + 7]
        ...
        t3 += vals[p + 3] * u * V[crd[p + 3], k .. k + 7]
      s0 .. s3 = t0 .. t3 transposed and added up           fewer steps than one after the other
      out[p] = s0; ...; out[p + 3] = s3                     the consumer, place by place

No addition waits for the one before, and rows come from memory several at a time. Every place is summed in the same order wherever it
stands in the walk.

Source: "unroll-and-jam" (Callahan, Carr and Kennedy, "Improving Register Allocation for Subscripted Variables", 1990), here of a sparse
loop around a dense one; reference section "SDDMM".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparsejax.formats import Dense
from sparsejax.jit import cin, emit, scatter, simplify, sums, vectors
from sparsejax.jit.builder import Val
from sparsejax.jit.cursor import Env
from sparsejax.jit.loops import ahead
from sparsejax.jit.loops.walker import Leaders, Loop, Walker
from sparsejax.jit.operands import Scalar

if TYPE_CHECKING:
    from sparsejax.jit.lower import Lowering

ROUNDS = 2
PLACES = 2**ROUNDS


def applies(loop: Loop, key: Leaders, walker: Walker) -> bool:
    """Whether the walk of `walker` alone sums up, in lanes, what is dense at each of its places."""
    stmt, lowering = loop.cases[key], loop.lowering
    found = _reduction(stmt)
    if found is None or lowering.strip is not None:
        return False
    first, _ = found
    inner = first.producer
    if cin.workspace(first).policy != "scalar" or not isinstance(inner, cin.Forall) or inner.kind != "vector":
        return False
    if loop.span is not None:
        return False  # cut for threads, anywhere: products may be fused with sums for four places, and not for one
    if not walker.side_by_side or inner.var.outer is not None or simplify.conditions(stmt):
        return False
    if (walker.access.tensor.name, walker.level) in lowering.program.short or lowering.visits_nothing(inner):
        return False
    if sums.is_sum(inner, cin.workspace(first)) and sums.wants_exact(inner, inside=True):
        return False
    return all(a.tensor.policy == "scalar" or _located(loop, key, a) for a in cin.accesses(inner.body))


def _reduction(stmt: cin.Stmt) -> tuple[cin.Where, cin.Stmt] | None:
    """What is reduced first in `stmt`, and all that is left to do then, where that has no loops."""
    match stmt:
        case cin.Where(cin.Assign(), cin.Where()):
            found = _reduction(stmt.producer)
            return None if found is None else (found[0], replace(stmt, producer=found[1]))
        case cin.Where(cin.Assign()):
            return stmt, stmt.consumer
        case _:
            return None


def _located(loop: Loop, key: Leaders, access: cin.Access) -> bool:
    """Whether an access has a position at every place, without a search."""
    cursor = loop.env.cursors[access]
    below = access.tensor.format.levels[cursor.level + (access in key) :]
    searched = cursor.found is not None or access.tensor.policy == scatter.POLICY
    return not searched and all(isinstance(level, Dense) for level in below)


def walk(loop: Loop, key: Leaders, walker: Walker) -> None:
    """The places of `walker`, `PLACES` at a time while there are as many."""
    b, segment = loop.b, walker.segment
    count = b.named("count", b.sub(segment.hi, segment.lo))
    with loop.room(count):
        end = b.named("end", b.add(segment.lo, b.and_(count, b.i64(-PLACES))))
        with b.for_(segment.lo, end, "p", PLACES) as first:
            later = [b.named("q", b.add(first, number)) for number in range(1, PLACES)]
            _side_by_side(loop, key, walker, [first, *later])
        with b.for_(end, segment.hi, "p") as place:
            _side_by_side(loop, key, walker, [place])


def _side_by_side(loop: Loop, key: Leaders, walker: Walker, places: Sequence[Val]) -> None:
    """The reductions at some places at once, then what is done with each."""
    lowering, found = loop.lowering, _reduction(loop.cases[key])
    assert found is not None
    stmt, left = found
    assert isinstance(stmt.producer, cin.Forall)
    coordinates = [walker.segment.coordinate(place) for place in places]
    cursors = [{walker.access: walker.cursor(p, None, c)} for p, c in zip(places, coordinates, strict=True)]
    envs = [loop.env.with_cursors(k).bind(loop.var, c) for k, c in zip(cursors, coordinates, strict=True)]
    if len(places) > 1:
        assert isinstance(stmt.producer.body, cin.Assign)
        var, extent = stmt.producer.var, lowering.program.extent(stmt.producer.var)
        for place, env in zip(places, envs, strict=True):
            ahead.rows(loop, walker, place, stmt.producer.body, env.bind(var, loop.b.i64(0)), var, extent)
    reductions = _Reductions(lowering, stmt, loop.var, [_register(loop, stmt) for _ in places], envs)
    reductions.run(reductions.places[0], loop.b.i64(0), lowering.bound(stmt.producer.var, loop.env))
    reductions.finish(loop.env)
    for coordinate, here, scalar in zip(coordinates, cursors, reductions.scalars, strict=True):
        lowering.scalars[cin.workspace(stmt).name] = scalar
        loop.visit(left, coordinate, here)


def _register(loop: Loop, stmt: cin.Where) -> Scalar:
    """A register of the kind that `stmt` reduces into."""
    tensor = cin.workspace(stmt)
    summed = sums.is_sum(stmt.producer, tensor)
    total = sums.Sum(loop.b, tensor.name, tensor.dtype, exact=False) if summed else None
    return Scalar(loop.b, tensor, tracked=False, total=total)


class _Reductions(vectors.VectorLoop):
    """The vector loop in `stmt` at several coordinates of `around` (`envs`), each reduced into one of `scalars`."""

    def __init__(
        self,
        lowering: Lowering,
        stmt: cin.Where,
        around: cin.IndexVar,
        scalars: Sequence[Scalar],
        envs: Sequence[Env],
    ) -> None:
        assert isinstance(stmt.producer, cin.Forall) and isinstance(stmt.producer.body, cin.Assign)
        self.scalars, self._around, self._name = scalars, around, cin.workspace(stmt).name
        lowering.scalars[self._name] = scalars[0]
        super().__init__(lowering, stmt.producer.var, stmt.producer.body)
        self.places = [self.prepared(env) for env in envs]
        self._same: dict[cin.Expr, emit.Num] = {}

    def sets(self, widest: int) -> list[tuple[int, int]]:
        return [(n, k) for n in self.widths if n > 1 for k in range(len(self.scalars))]

    def at(
        self,
        prepared: vectors.Prepared,
        index: Val,
        lanes: int,
        follow: vectors.Follow | None,
        copy: int = 0,
        known: Mapping[cin.Expr, emit.Num] | None = None,
    ) -> emit.Num:
        self._same = {}
        for number, scalar in enumerate(self.scalars):
            self.lowering.scalars[self._name] = scalar
            made = super().at(self.places[number], index, lanes, follow, number, known)
        return made

    def value(self, env: Env, lanes: int, known: dict[cin.Expr, emit.Num]) -> emit.Num:
        """What the body computes at one place; what is the same at all of them is computed at the first."""
        known |= self._same
        made = super().value(env, lanes, known)
        self._same = {
            e: n for e, n in known.items() if all(self._around not in cin.bound_by(a) for a in cin.accesses(e))
        }
        return made

    def finish(self, env: Env) -> None:
        """Add up the lanes of every place."""
        made = []
        for number, scalar in enumerate(self.scalars):
            self.lowering.scalars[self._name] = scalar
            lanes = vectors.gathered(self.lowering, self.body, [t for (_, k), t in self.totals.items() if k == number])
            assert lanes is not None
            made.append(lanes)
        added = vectors.transposed(self.lowering.b, self.body, made, ROUNDS)
        for scalar, value in zip(self.scalars, added, strict=True):
            self.lowering.scalars[self._name] = scalar
            self.lowering.write(self.body, env, value)
