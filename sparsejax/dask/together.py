"""Loops and branches over shards: a round of tasks for every round, or all rounds in one task for each part of an axis that is free (`axes`).

    ten rounds of y = A @ y              tasks: ten times a task per shard, each waiting for all of the last round
                                         together: one task, which reads all shards of A
    the same of 64 columns               together: two tasks, with all of A and half of the columns each

A task that waits for another worker costs `WAIT`, whatever it does, and a predicate that the client reads costs `READ`; small loops are together for less. The
price of both is compared wherever a loop or a branch stands, also in the body of another that is not together. What comes together must fit: at most
`TOGETHER` bytes, or four times the largest block, as a worker has room for ten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from sparsejax.dask.axes import Classes, Place
from sparsejax.dask.cuts import Cut, even, whole
from sparsejax.dask.plan import Choice, Plan, Stage, Value
from sparsejax.dask.prices import BYTE, TASK, Known
from sparsejax.jit.ir import choices
from sparsejax.lax.control import Loop, cond_p, plain, scan_p, stacked_aval
from sparsejax.transforms import staging

WAIT, READ = 3e6, 1e7
"""Nanoseconds: of a task that waits for the results of others on another worker, through both workers' loops and the scheduler's; and until the client has
a predicate and its next tasks have begun (`benchmarks/dask_strong.py`)."""
ROUNDS = 10
"""How many rounds a `while_loop` is expected to take."""
TOGETHER = 32 << 20
"""Bytes that may come together in any case."""


@dataclass
class Price:
    """Nanoseconds of a program in rounds of tasks, the operations that it does, those of its kernels alone, and its results."""

    spent: float
    work: float
    kernels: float
    results: list[Known]


Planner = Callable[[Jaxpr, Sequence[Any]], Plan]


class Pricer:
    """Prices of programs whose straight pieces are planned by `plan`."""

    def __init__(
        self, plan: Planner, pieces: Callable[[Jaxpr], list[Jaxpr | Eqn]], cleaned: Callable[[Jaxpr], Jaxpr]
    ) -> None:
        self._plan, self._pieces, self._cleaned = plan, pieces, cleaned

    def of(self, jaxpr: Jaxpr, values: Sequence[Any]) -> Price:
        """What a jaxpr costs in rounds of tasks, but for loops in it that are cheaper together."""
        env: dict[Any, Any] = dict(zip((*jaxpr.consts, *jaxpr.inputs), values, strict=True))
        spent = work = kernels = 0.0
        for piece in self._pieces(jaxpr):
            given = [env[a] if isinstance(a, Var) else _literal(a) for a in piece.inputs]
            if isinstance(piece, Eqn):
                made = self.control(piece, given)
                spent += min(made.spent, min((t.price for t in self.together(piece, given, made)), default=math.inf))
                results: Sequence[Any] = piece.outputs
            else:
                plan = self._plan(piece, given)
                chosen = [c for s in plan.order if s.outputs for c in s.choices]
                own = [plan.values[v] for v in piece.outputs if isinstance(v, Var)]
                made = Price(
                    sum(c.price for c in chosen) + WAIT * _depth(plan),
                    sum(c.work for c in chosen),
                    sum(c.spent for c in chosen),
                    [Known(v.aval, v.cuts, v.entries) for v in own],
                )
                spent += made.spent
                results = [v for v in piece.outputs if isinstance(v, Var)]
            work += made.work
            kernels += made.kernels
            env.update(zip(results, made.results, strict=True))
        return Price(spent, work, kernels, [env[a] if isinstance(a, Var) else _literal(a) for a in jaxpr.outputs])

    def control(self, eqn: Eqn, values: Sequence[Any]) -> Price:
        """What a loop or a branch costs round by round."""
        params = eqn.param_dict
        if eqn.primitive is cond_p:
            made = [self.of(self._cleaned(b.jaxpr), values[1:]) for b in params["branches"]]
            dearest = max(made, key=lambda p: p.spent)
            work, kernels = max(p.work for p in made), max(p.kernels for p in made)
            return Price(READ + dearest.spent, work, kernels, dearest.results)
        if eqn.primitive is scan_p:
            return self._scan(Loop(**params), values)
        first, second = params["counts"]
        asked, own, carry = values[:first], values[first : first + second], list(values[first + second :])
        going, body = (self._cleaned(params[name].jaxpr) for name in ("cond", "body"))
        once = self.of(body, [*own, *carry])
        again = self.of(body, [*own, *once.results])
        asks = self.of(going, [*asked, *again.results])
        spent = once.spent + (ROUNDS - 1) * again.spent + ROUNDS * (asks.spent + READ)
        work, kernels = again.work + asks.work, again.kernels + asks.kernels
        return Price(spent, ROUNDS * work, ROUNDS * kernels, again.results)

    def _scan(self, loop: Loop, values: Sequence[Any]) -> Price:
        consts, carry, xs = loop.divided(values)
        slices = [
            Known(inner, x.cuts[1:], x.entries / max(loop.length, 1))
            for x, inner in zip(xs, loop.body.in_avals[loop.consts + loop.carry :], strict=True)
        ]
        body = self._cleaned(loop.body.jaxpr)
        once = self.of(body, [*consts, *carry, *slices])
        last, made = loop.results(once.results)
        again = self.of(body, [*consts, *last, *slices]) if loop.length > 1 else once
        spent = once.spent + max(loop.length - 1, 0) * again.spent if loop.length else 0.0
        last, made = loop.results(again.results)
        stacks = [
            Known(v.aval, ((0, loop.length), *y.cuts), y.entries * loop.length)
            for v, y in zip(_stacked(loop, made), made, strict=True)
        ]
        return Price(spent, loop.length * again.work, loop.length * again.kernels, [*last, *stacks])

    def together(self, eqn: Eqn, values: Sequence[Any], rounds: Price) -> Iterator[Together]:
        """The ways to run an equation together that fit, whole and in parts."""
        if any(v.aval.shape != tuple(c[-1] for c in v.cuts) for v in values):  # a symbol
            return
        largest = max((v.bytes / v.count for v in values), default=0.0)
        for way in _ways(eqn, values):
            made = Together(eqn, values, rounds, way, self._cleaned)
            if made.held <= max(TOGETHER, 4 * largest):
                yield made


class Together:
    """A plan of one stage: a loop or a branch, on whole operands, or on a part of those on a free axis each."""

    def __init__(
        self,
        eqn: Eqn,
        values: Sequence[Any],
        rounds: Price,
        way: tuple[Classes, Place | None, Cut | None],
        cleaned: Callable[[Jaxpr], Jaxpr],
    ) -> None:
        classes, chosen, cut = way
        grid: tuple[Cut, ...] = () if cut is None else (cut,)
        self.stage = stage = Stage(0, grid)
        points = stage.points
        at_once = min(points, max([1, *(v.count for v in values)]))

        def dims(var: Var) -> tuple[int | None, ...]:
            own = range(var.aval.ndim)
            return tuple(0 if chosen is not None and classes.of(var, d) == chosen else None for d in own)

        def cuts(var: Var) -> tuple[Cut, ...]:
            return tuple(whole(n) if k is None else grid[0] for n, k in zip(var.aval.shape, dims(var), strict=True))

        self.values: dict[Var, Value] = {}
        inputs: dict[Var, Var] = {}
        moved = self.held = 0.0
        for atom, known in zip(eqn.inputs, values, strict=True):
            if isinstance(atom, Literal) or atom in inputs:
                continue
            self.values[atom] = Value(atom.aval, known.cuts, known.entries)
            inputs[atom] = stage.inputs[atom, dims(atom)] = Var(atom.aval)
            parts = points if 0 in dims(atom) else 1
            self.held += known.bytes / parts
            if cuts(atom) != known.cuts or (parts == 1 and points > 1):
                moved += known.bytes * points / parts
        for var, known in zip(eqn.outputs, rounds.results, strict=True):
            self.values[var] = Value(var.aval, cuts(var), known.entries, stage, dims(var))
            self.held += known.bytes / (points if 0 in dims(var) else 1)
        params = tuple((name, None if name == "adjoint" else _cleaned(v, cleaned)) for name, v in eqn.params)
        inner = tuple(inputs[a] if isinstance(a, Var) else a for a in eqn.inputs)
        stage.eqns.append(Eqn(eqn.primitive, inner, params, eqn.outputs, eqn.source))
        stage.outputs = list(eqn.outputs)
        self.price = (rounds.kernels + moved * BYTE) / at_once + TASK * points / at_once + WAIT
        moves = [("operands", "broadcast" if points == 1 else "all-to-all", moved)] if moved else []
        told = "together" if cut is None else f"together, {len(cut) - 1} parts"
        others = [("in rounds of tasks", rounds.spent)]
        stage.add([Choice(eqn, None, {}, self.price, moves, rounds.work, rounds.kernels, others, told=told)])

    @property
    def stages(self) -> list[Stage]:
        """The only one."""
        return [self.stage]

    order = stages


def decided(pricer: Pricer, eqn: Eqn, values: Sequence[Any]) -> Together | None:
    """How a loop or a branch runs on these values: None in rounds of tasks."""
    values = [Known(v.aval, v.cuts, v.entries) for v in values]
    rounds = pricer.control(eqn, values)
    found = sorted(pricer.together(eqn, values, rounds), key=lambda t: t.price)
    if not found:
        return None
    cheapest = "together" if found[0].price < rounds.spent else "rounds"
    return pick(found) if choices.pick("sharded_loops", ("together", "rounds"), cheapest) == "together" else None


def pick(ways: Sequence[Together]) -> Together:
    """Of ways to run a loop together, cheapest first, the one that is taken. Tests take others."""
    return ways[0]


def _ways(eqn: Eqn, values: Sequence[Any]) -> Iterator[tuple[Classes, Place | None, Cut | None]]:
    """Whole, and every free class of axes with the cuts that values have there, else an even one."""
    named = dict.fromkeys(a for a in eqn.inputs if isinstance(a, Var))
    classes = Classes(Jaxpr(tuple(named), (), (eqn,), eqn.outputs))
    yield classes, None, None
    found: dict[Place, set[Cut]] = {}
    parts = max([1, *(v.count for v in values)])
    for atom, known in zip(eqn.inputs, values, strict=True):
        for d, cut in enumerate(known.cuts):
            if isinstance(atom, Var) and classes.free(atom, d):
                own = found.setdefault(classes.of(atom, d), set())
                if len(cut) > 2:
                    own.add(cut)
    for root, own in found.items():
        extent = root[0].aval.shape[root[1]]
        for cut in sorted(own or {even(extent, parts)}):
            if len(cut) > 2:
                yield classes, root, cut


def _cleaned(value: Any, cleaned: Callable[[Jaxpr], Jaxpr]) -> Any:
    """Bodies without equations that stand for other jaxprs, in a parameter."""
    if isinstance(value, ClosedJaxpr):
        jaxpr = cleaned(value.jaxpr)
        eqns = tuple(
            Eqn(e.primitive, e.inputs, tuple((k, _cleaned(v, cleaned)) for k, v in e.params), e.outputs, e.source)
            if e.bodies
            else e
            for e in jaxpr.eqns
        )
        return staging.interned(Jaxpr(jaxpr.inputs, (), eqns, jaxpr.outputs))
    return tuple(_cleaned(v, cleaned) for v in value) if isinstance(value, tuple) else value


def _depth(plan: Plan) -> int:
    """How many stages wait for one another, partial results that are put together among them."""
    depth: dict[Stage, int] = {}
    for stage in plan.order:
        before = max((depth[s] for s in plan.sources(stage) if s in depth), default=0)
        depth[stage] = before + bool(stage.outputs) + bool(stage.partial)
    return max(depth.values(), default=0)


def _literal(atom: Any) -> Known:
    return Known(atom.aval, tuple(whole(n) for n in atom.aval.shape), float(atom.aval.size))


def _stacked(loop: Loop, made: Sequence[Known]) -> list[Any]:
    return [Var(stacked_aval(plain(y.aval), loop.length)) for y in made]
