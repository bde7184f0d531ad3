"""Several reductions side by side: a walk, or a counted loop, with a vector loop inside that sums up something for every place.

    for p in lo .. hi by 4:                                 one by one where fewer are left; p is the coordinate of a counted loop
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

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import emit, sums, vectors
from sparsejax.jit.codegen.context import Context
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.loops import prefetch
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Scalar
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders
from sparsejax.jit.rewrite import summation
from sparsejax.jit.rewrite.loop_shapes import reductions

ROUNDS = 2
PLACES = 2**ROUNDS


def walk(loop: Loop, key: Leaders, walker: Walker | None) -> None:
    """The places of `walker`, or all coordinates, `PLACES` at a time while there are as many."""
    b = loop.b
    lo, hi = (loop.begin, loop.extent) if walker is None else (walker.segment.lo, walker.segment.hi)
    count = b.named("count", b.sub(hi, lo))
    with loop.room(count):
        end = b.named("end", b.add(lo, b.and_(count, b.i64(-PLACES))))
        with b.for_(lo, end, "p", PLACES) as first:
            later = [b.named("q", b.add(first, number)) for number in range(1, PLACES)]
            _side_by_side(loop, key, walker, [first, *later])
        with b.for_(end, hi, "p") as place:
            _side_by_side(loop, key, walker, [place])


def _side_by_side(loop: Loop, key: Leaders, walker: Walker | None, places: Sequence[Val]) -> None:
    """The reductions at some places at once, then what is done with each."""
    context = loop.context
    found, left = reductions(loop.cases[key])
    coordinates, cursors = list(places), [dict[cin.Access, Cursor]() for _ in places]
    if walker is not None:
        coordinates = [walker.segment.coordinate(place) for place in places]
        cursors = [{walker.access: walker.cursor(p, None, c)} for p, c in zip(places, coordinates, strict=True)]
    envs = [loop.env.with_cursors(k).bind(loop.var, c) for k, c in zip(cursors, coordinates, strict=True)]
    made: dict[str, list[Scalar]] = {}
    for stmt in found:
        assert isinstance(stmt.producer, cin.Forall) and isinstance(stmt.producer.body, cin.Assign)
        var, body = stmt.producer.var, stmt.producer.body
        if len(places) > 1 and walker is not None and loop.plan.prefetch:
            for place, env in zip(places, envs, strict=True):
                prefetch.rows(loop, walker, place, body, env.bind(var, loop.b.i64(0)), var, context.program.extent(var))
        scalars = made[cin.workspace(stmt).name] = [_register(loop, stmt) for _ in places]
        jammed = _Reductions(context, stmt, loop.var, scalars, envs)
        jammed.run(jammed.places[0], loop.b.i64(0), context.bound(var, loop.env))
        jammed.finish(loop.env)
    for number, (coordinate, here) in enumerate(zip(coordinates, cursors, strict=True)):
        env = loop.env
        for name, scalars in made.items():
            env = env.with_register(name, scalars[number])
        replace(loop, env=env).visit(left, coordinate, here)


def _register(loop: Loop, stmt: cin.Where) -> Scalar:
    """A register of the kind that `stmt` reduces into."""
    tensor = cin.workspace(stmt)
    summed = summation.is_sum(stmt.producer, tensor)
    total = sums.Sum(loop.b, tensor.name, tensor.dtype, exact=False, narrow=True) if summed else None
    return Scalar(loop.b, tensor, tracked=False, total=total)


class _Reductions(vectors.VectorLoop):
    """The vector loop in `stmt` at several coordinates of `around` (`envs`), each reduced into one of `scalars`."""

    def __init__(
        self,
        context: Context,
        stmt: cin.Where,
        around: cin.IndexVar,
        scalars: Sequence[Scalar],
        envs: Sequence[Env],
    ) -> None:
        assert isinstance(stmt.producer, cin.Forall) and isinstance(stmt.producer.body, cin.Assign)
        self.scalars, self._around, self._name = scalars, around, cin.workspace(stmt).name
        envs = [env.with_register(self._name, scalar) for env, scalar in zip(envs, scalars, strict=True)]
        super().__init__(context, envs[0], stmt.producer.var, stmt.producer.body)
        self.places = [self.prepared(env) for env in envs]
        self._same: dict[cin.Expr, emit.Num] = {}

    def sets(self, widest: int) -> list[tuple[int, int]]:
        return [(n, k) for n in self.widths if n > 1 for k in range(len(self.scalars))]

    def first_of(self, lanes: int) -> vectors.Lanes | None:
        return None  # every place has a set of its own

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
        for number in range(len(self.scalars)):
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
        for number, (here, _) in enumerate(self.places):
            lanes = vectors.gathered(
                self.context, self.body, here, [t for (_, k), t in self.totals.items() if k == number]
            )
            assert lanes is not None
            made.append(lanes)
        added = vectors.transposed(self.context.b, self.body, made, ROUNDS)
        for scalar, value in zip(self.scalars, added, strict=True):
            self.context.write(self.body, env.with_register(self._name, scalar), value)
