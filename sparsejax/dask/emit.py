"""From plans to one graph of Dask's: a task per stage and point of its grid, parts of blocks before they are sent, partial results put together.

Loops of known length are unrolled, their bodies planned once per layout of the carry. What depends on data (`while_loop`, `cond`) is run as far as its
predicate, which the client reads. Names of tasks are made of what they compute, so that a value has one name however often it is asked for.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax import config
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.digest import digest
from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from sparsejax.core.primitive import asarray, weak_scalar
from sparsejax.dask import places, tasks
from sparsejax.dask.axes import CONTROL
from sparsejax.dask.commons import Whole
from sparsejax.dask.cuts import whole
from sparsejax.dask.gangs import Recipe
from sparsejax.dask.plan import FAN, Choice, Plan, Stage
from sparsejax.dask.prices import Known, bytes_per_entry
from sparsejax.dask.sharded import SMALL, Sharded, placed
from sparsejax.dask.together import Pricer, Together, decided
from sparsejax.export import layout
from sparsejax.lax.control import Loop, cond_p, scan_p
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.linear import empty
from sparsejax.lax.structural import convert_format, expand_dims
from sparsejax.optional import optional
from sparsejax.transforms import staging

MOST_BLOCKS = 64
"""Of how many blocks a task puts its operand together itself. Of more, other tasks put neighbours together first, once for all, so that edges stay few and
no worker sends the whole operand to all others."""


@dataclass
class Placed(Known):
    """A value whose block (i, j, ..) has the key (name, i, j, ..)."""

    name: str


class Emitter:
    """A graph under construction."""

    def __init__(self) -> None:
        spec = optional("dask.task_spec", "dask")
        self._task, self._ref = spec.Task, spec.TaskRef
        self._tokenize = optional("dask.base", "dask").tokenize
        self.graph: dict[Any, Any] = {}
        self.plans: list[Plan | Together] = []
        self.sizes: dict[Any, float] = {}
        self.works: dict[Any, float] = {}
        """Bytes that a task is expected to return, and its operations, for simulations."""
        self.homes: dict[Any, str] = {}
        """The workers that tasks should run on, beside the largest of their blocks that stays (`places`)."""
        self._small: dict[str, Array] = {}
        """Small operands by name, and the bytes of their copies in tasks."""
        self._copies: Counter[str] = Counter()
        self._operands: dict[Any, tuple[tuple[int, ...] | None, list[Any]]] = {}
        self.wholes: dict[Any, Whole] = {}
        """Dense arrays whose blocks of rows are read together (`commons`)."""
        self.given_bytes = 0.0
        self._foreign: set[Any] = set()
        """Bytes of arguments in shards, and the keys of their graphs."""
        self.sent = 0.0
        """Bytes that are expected to be moved."""

    # ---------------------------------------------------------------------------------------------------- values

    def given(self, value: Any) -> Placed:
        """An argument or a constant: in shards, or whole."""
        if isinstance(value, Sharded):
            self.graph.update(value._graph)
            self.homes.update(value.homes)
            self._foreign.update(value._graph)
            entries = float(value.counts.sum()) if value.counts is not None else _guess(value.aval)
            made = Placed(value.aval, value.cuts, entries, value.name)
            self.given_bytes += made.bytes
            return made
        x: Array = value if isinstance(value, Array) else weak_scalar(value) if np.isscalar(value) else asarray(value)
        name = f"const-{digest(x._storage)}"
        if x.nbytes <= SMALL:
            self._small[name] = x
        else:
            name, nodes, _ = placed(name, {(0,) * x.ndim: x}, everywhere=True)
            self.graph.update(nodes)
        return Placed(x.aval, tuple(whole(n) for n in x.shape), float(x.nnz), name)

    def _within(self, source: Placed, readers: int) -> bool:
        """Whether a small operand travels in the tasks of its readers: a task of its own is waited for, and its result asked for from another worker,
        before the first of them begins. At most `SMALL` bytes of copies do."""
        if source.name not in self._small:
            return False
        copies = self._copies[source.name] + self._small[source.name].nbytes * readers
        if copies > SMALL:
            return False
        self._copies[source.name] = copies
        return True

    def _node(self, source: Placed) -> None:
        """A small operand as a task of its own."""
        if source.name in self._small:
            self.graph.update(placed(source.name, {(0,) * source.aval.ndim: self._small[source.name]}, True)[1])

    def sharded(self, value: Placed, alone: bool = False) -> Sharded:
        """A value as a collection; `alone` where it is the only result, which a gang may make (`gangs`)."""
        self._node(value)
        made = Sharded(value.aval, value.cuts, value.name, self.graph, homes=self.homes)
        if alone:
            own = [
                k
                for k, node in self.graph.items()
                if k not in self._foreign and not hasattr(node, "status") and bool(getattr(node, "dependencies", None))
            ]
            made.recipe = Recipe(own, self.sizes, self.given_bytes, list(self.wholes.values()))
        return made

    # -------------------------------------------------------------------------------------------------- programs

    def jaxpr(self, jaxpr: Jaxpr, values: Sequence[Placed]) -> list[Placed]:
        """The results of a jaxpr on constants and inputs."""
        env: dict[Var, Placed] = dict(zip((*jaxpr.consts, *jaxpr.inputs), values, strict=True))
        for piece in _pieces(jaxpr):
            if isinstance(piece, Eqn):
                made = self._control(piece, [self._read(env, a) for a in piece.inputs])
                env.update(zip(piece.outputs, made, strict=True))
            else:
                known = [env[v] for v in piece.inputs]
                env.update(
                    zip((o for o in piece.outputs if isinstance(o, Var)), self._straight(piece, known), strict=True)
                )
        return [self._read(env, a) for a in jaxpr.outputs]

    def _read(self, env: dict[Var, Placed], atom: Atom) -> Placed:
        if isinstance(atom, Literal):
            return self.given(np.asarray(atom.value, atom.aval.dtype))
        return env[atom]

    def _straight(self, jaxpr: Jaxpr, values: Sequence[Placed]) -> list[Placed]:
        env: dict[Var, Placed] = dict(zip((*jaxpr.consts, *jaxpr.inputs), values, strict=True))
        self._planned(plan_of(jaxpr, values), env)
        return [env[a] for a in jaxpr.outputs if isinstance(a, Var)]

    def _planned(self, plan: Plan | Together, env: dict[Var, Placed]) -> None:
        self.plans.append(plan)
        self.sent += sum(bytes for s in plan.stages for c in s.choices for _, _, bytes in c.moves)
        for stage in plan.order:
            if stage.outputs:
                self._stage(plan, stage, env)

    # ----------------------------------------------------------------------------------------------------- stages

    def _stage(self, plan: Plan | Together, stage: Stage, env: dict[Var, Placed]) -> None:
        text, lines = _text(stage)
        sources = [env[v] for v, _ in stage.inputs]
        label = "-".join(dict.fromkeys(c.eqn.primitive.name.replace("_", "-") for c in stage.choices))[:40]
        token = self._tokenize(text, lines, stage.grid, [(s.name, s.cuts) for s in sources])
        seen = {k for _, axes in stage.inputs for k in axes if k is not None}
        hidden = [k for k in range(len(stage.grid)) if k not in seen]
        lost = stage.partial
        single = len(stage.outputs) == 1 and not lost
        names = {v: f"{label}-{k}-{token}" for k, v in enumerate(stage.outputs)}
        stays = _stays(stage, sources)
        seats = sorted(set(self.homes.values()))
        within = {
            k
            for k, (s, (_, axes)) in enumerate(zip(sources, stage.inputs, strict=True))
            if all(d is None for d in axes) and self._within(s, stage.points)
        }
        for k, source in enumerate(sources):
            if k not in within:
                self._node(source)
        for number, point in enumerate(itertools.product(*(range(len(c) - 1) for c in stage.grid))):
            layouts: list[tuple[int, ...] | None] = []
            refs: list[Any] = []
            for number_of, (source, (_, axes)) in enumerate(zip(sources, stage.inputs, strict=True)):
                if number_of in within:
                    layouts.append(None)
                    refs.append(self._small[source.name])
                    continue
                ranges = [
                    (0, n) if k is None else (stage.grid[k][point[k]], stage.grid[k][point[k] + 1])
                    for k, n in zip(axes, source.aval.shape, strict=True)
                ]
                grid, parts = self._operand(source, ranges)
                layouts.append(grid)
                refs += parts
            extents = tuple((k, stage.grid[k][point[k] + 1] - stage.grid[k][point[k]]) for k in hidden)
            if single:
                key = (names[stage.outputs[0]], *_place(plan, stage.outputs[0], point))
            else:
                key = (f"{label}-stage-{token}", *point)
            self.graph[key] = self._task(key, tasks.run, text, lines, layouts, extents, *refs)
            if stays is not None:
                source, axes = stays
                block = (source.name, *(0 if k is None else point[k] for k in axes))
                if block in self.homes:
                    self.homes[key] = self.homes[block]
            elif stage.points > 1:  # what it reads is sent to each; Dask may send it to one
                home = places.home(number, stage.points, seats)
                if home is not None:
                    self.homes[key] = home
            self.works[key] = sum(c.work for c in stage.choices) / stage.points
            self.sizes[key] = sum(plan.values[v].block_bytes for v in stage.outputs)
            if len(stage.outputs) > 1:
                for n, var in enumerate(stage.outputs):
                    own = (f"{names[var]}-part", *point) if var in lost else (names[var], *_place(plan, var, point))
                    self.graph[own] = self._task(own, tasks.pick, self._ref(key), n)
                    self.sizes[own] = plan.values[var].block_bytes
                    if key in self.homes:
                        self.homes[own] = self.homes[key]
        for var in stage.outputs:
            if var in lost:
                source_name = f"{names[var]}-part" if len(stage.outputs) > 1 else f"{label}-stage-{token}"
                self._combine(plan, stage, var, source_name, names[var], lost[var])
            value = plan.values[var]
            env[var] = Placed(value.aval, value.cuts, value.entries, names[var])

    def _combine(self, plan: Plan | Together, stage: Stage, var: Var, source: str, name: str, choice: Choice) -> None:
        """Partial results of every block put together, by a tree whose shape depends on the grid alone: where they are scattered, each part of the block by
        one of its own."""
        assert choice.rule is not None and choice.rule.op is not None
        own = choice.rule.outputs[0]
        axis = None if choice.scatter is None else own.index(choice.scatter[0])
        blocks: dict[Any, list[Any]] = {}
        for point in itertools.product(*(range(len(c) - 1) for c in stage.grid)):
            blocks.setdefault(_place(plan, var, point), []).append((source, *point))
        for place, keys in blocks.items():
            if axis is None:
                self._tree(keys, name, place, choice.rule.op)
                continue
            k = plan.values[var].dims[axis]
            coarse = whole(var.aval.shape[axis]) if k is None else stage.grid[k]
            fine = plan.values[var].cuts[axis]
            low, high = coarse[place[axis]], coarse[place[axis] + 1]
            for n in range(fine.index(low), fine.index(high)) if high > low else ():
                inner = [
                    (0, (stage.grid[d][p + 1] - stage.grid[d][p]) if d is not None else extent)
                    for d, p, extent in zip(plan.values[var].dims, place, var.aval.shape, strict=True)
                ]
                inner[axis] = fine[n] - low, fine[n + 1] - low
                parts = []
                for key in keys:
                    parts.append((f"{source}-scatter", *key[1:], n))
                    self.graph[parts[-1]] = self._task(parts[-1], tasks.cut, self._ref(key), tuple(inner))
                self._tree(parts, name, (*place[:axis], n, *place[axis + 1 :]), choice.rule.op)

    def _tree(self, keys: list[Any], name: str, place: tuple[int, ...], op: str) -> None:
        level = 0
        while len(keys) > 1:
            groups = [keys[k : k + FAN] for k in range(0, len(keys), FAN)]
            last = len(groups) == 1
            keys = [(name, *place) if last else (f"{name}-sum{level}", *place, k) for k in range(len(groups))]
            for key, group in zip(keys, groups, strict=True):
                self.graph[key] = self._task(key, tasks.combine, json.dumps(layout.encode(op)), *map(self._ref, group))
            level += 1
        if keys[0] != (name, *place):
            self.graph[name, *place] = self._task((name, *place), tasks.pick, [self._ref(keys[0])], 0)

    def _operand(self, source: Placed, ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...] | None, list[Any]]:
        """The blocks of a value in these ranges: whole ones as they are, parts of others by tasks where these are. Asked for once."""
        known = source.name, tuple(ranges)
        if known not in self._operands:
            self._operands[known] = self._blocks(source, ranges)
        return self._operands[known]

    def _blocks(self, source: Placed, ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...] | None, list[Any]]:
        parts: list[list[tuple[int, int, int, bool]]] = []
        for cut, (low, high) in zip(source.cuts, ranges, strict=True):
            own = []
            first = max(bisect.bisect_right(cut, low) - 1, 0)
            for k, (a, b) in enumerate(itertools.pairwise(cut[first : bisect.bisect_left(cut, high) + 1]), first):
                if max(a, low) < min(b, high) or (a == b == low == high):
                    own.append((k, max(a, low) - a, min(b, high) - a, (max(a, low), min(b, high)) == (a, b)))
            parts.append(own or [(0, 0, 0, cut[0] == cut[1])])
        refs: dict[tuple[int, ...], Any] = {}
        for at in itertools.product(*(range(len(p)) for p in parts)):
            chosen = [p[k] for p, k in zip(parts, at, strict=True)]
            block = (source.name, *(k for k, *_ in chosen))
            if all(full for *_, full in chosen):
                refs[at] = self._ref(block)
                continue
            inner = tuple((a, b) for _, a, b, _ in chosen)
            flat = tuple(itertools.chain.from_iterable(inner))
            key = (f"{source.name}-slice", *block[1:], *flat)
            if key not in self.graph:
                self.graph[key] = self._task(key, tasks.cut, self._ref(block), inner)
                of = math.prod(max(c[k + 1] - c[k], 1) for c, (k, *_) in zip(source.cuts, chosen, strict=True))
                self.sizes[key] = source.block_bytes * math.prod(b - a for a, b in inner) / of
            refs[at] = self._ref(key)
        grid = tuple(len(p) for p in parts)
        if len(refs) > 1 and source.aval.is_dense and grid[0] == len(source.cuts[0]) - 1 == math.prod(grid):
            keys = tuple((source.name, *(k, *(0,) * (len(grid) - 1))) for k in range(grid[0]))
            if list(refs) == [k[1:] for k in keys] and all(
                a == 0 and b == c[-1] for (a, b), c in zip(ranges, source.cuts, strict=True)
            ):
                self.wholes[keys] = Whole(keys, grid, source.aval.shape, source.aval.dtype.str, source.cuts[0])
        if len(refs) > MOST_BLOCKS:
            grid, refs = self._gathered(source, ranges, grid, refs)
        return (None if len(refs) == 1 else grid), list(refs.values())

    def _gathered(
        self, source: Placed, ranges: Any, grid: tuple[int, ...], refs: dict[tuple[int, ...], Any]
    ) -> tuple[tuple[int, ...], dict[tuple[int, ...], Any]]:
        """Blocks in a grid put together to at most `MOST_BLOCKS` groups of neighbours, by a task for each; the grid of groups."""
        sides = list(grid)
        while math.prod(sides) > MOST_BLOCKS:
            d = sides.index(max(sides))
            sides[d] = -(-sides[d] // 2)
        groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for at in refs:  # in order, so that blocks of a group are in the order of its own grid
            groups.setdefault(tuple(k * s // n for k, s, n in zip(at, sides, grid, strict=True)), []).append(at)
        made = {}
        for place, members in groups.items():
            own = tuple(len({m[d] for m in members}) for d in range(len(grid)))
            key = (f"{source.name}-gather", *itertools.chain.from_iterable(ranges), *place)
            if key not in self.graph:
                self.graph[key] = self._task(key, tasks.gather, own, *(refs[m] for m in members))
                self.sizes[key] = (
                    source.entries
                    * bytes_per_entry(source.aval)
                    * len(members)
                    / math.prod(len(c) - 1 for c in source.cuts)
                )
            made[place] = self._ref(key)
        return tuple(sides), made

    # ---------------------------------------------------------------------------------------------------- control

    def _control(self, eqn: Eqn, values: list[Placed]) -> list[Placed]:
        way = together_of(eqn, values)
        if way is not None:
            env = {a: v for a, v in zip(eqn.inputs, values, strict=True) if isinstance(a, Var)}
            self._planned(way, env)
            return [env[v] for v in eqn.outputs]
        if eqn.primitive is scan_p:
            return self._scan(eqn, values)
        params = eqn.param_dict
        if eqn.primitive is cond_p:
            number = int(self._known(values[0]))
            branch = params["branches"][min(max(number, 0), len(params["branches"]) - 1)]
            return self.jaxpr(cleaned(branch.jaxpr), values[1:])
        first, second = params["counts"]
        asked, own, carry = values[:first], values[first : first + second], values[first + second :]
        going, body = cleaned(params["cond"].jaxpr), cleaned(params["body"].jaxpr)
        while True:
            (answer,) = self.jaxpr(going, [*asked, *carry])
            carry = self._kept(carry)
            if not bool(self._known(answer)):
                return carry
            carry = self._kept(self.jaxpr(body, [*own, *carry]))

    def _known(self, value: Placed) -> Any:
        return self.sharded(value).compute().item()

    def _kept(self, values: Sequence[Placed]) -> list[Placed]:
        """Values that are computed now and stay on the workers."""
        dask = optional("dask", "dask")
        kept = dask.persist(*map(self.sharded, values))
        for made in kept:
            self.graph.update(made._graph)
        return list(values)

    def _scan(self, eqn: Eqn, values: list[Placed]) -> list[Placed]:
        loop = Loop(**eqn.param_dict)
        body = cleaned(loop.body.jaxpr)
        consts, carry, xs = loop.divided(values)
        rows: list[list[Placed]] = [[] for _ in loop.body.out_avals[loop.carry :]]
        for k in loop.order():
            slices = (
                [
                    self.jaxpr(_slice_of(x.aval, k, a), [x])[0]
                    for x, a in zip(xs, loop.body.in_avals[-len(xs) :], strict=True)
                ]
                if xs
                else []
            )
            carry, made = loop.results(self.jaxpr(body, [*consts, *carry, *slices]))
            for row, y in zip(rows, made, strict=True):
                row.append(y)
        stacks = []
        if not len(loop.order()):
            return [*carry, *(self.given(empty(v.aval)) for v in eqn.outputs[loop.carry :])]
        for row, out in zip(rows, eqn.outputs[loop.carry :], strict=True):
            row = row[::-1] if loop.reverse else row
            stacks += self.jaxpr(_stack_of(tuple(y.aval for y in row), out.aval), row)
        return [*carry, *stacks]


def _guess(aval: Aval) -> float:
    return float(aval.size) if aval.is_dense else float(max(aval.shape, default=1)) * 16


def _stays(stage: Stage, sources: Sequence[Placed]) -> tuple[Placed, tuple[int | None, ...]] | None:
    """The operand with the largest blocks that are read as they are, each by the tasks of its part of the grid; None where all are cut anew."""
    fit = []
    for source, (_, axes) in zip(sources, stage.inputs, strict=True):
        cuts = [whole(n) if k is None else stage.grid[k] for k, n in zip(axes, source.aval.shape, strict=True)]
        parts = math.prod(len(c) - 1 for c in cuts)
        if parts > 1 and cuts == list(source.cuts):
            fit.append((source.entries * bytes_per_entry(source.aval) / parts, source, axes))
    return max(fit, key=lambda f: f[0])[1:] if fit else None


def _place(plan: Plan | Together, var: Var, point: tuple[int, ...]) -> tuple[int, ...]:
    """The block of a result that is made at a point of the grid."""
    return tuple(0 if k is None else point[k] for k in plan.values[var].dims)


_texts: weakref.WeakKeyDictionary[Stage, tuple[str, str]] = weakref.WeakKeyDictionary()


def _text(stage: Stage) -> tuple[str, str]:
    """A stage as text (`tasks.Program`), and beside it the user's lines: programs that compute the same have one text, which is compiled once. Written
    once for a planned stage."""
    if stage not in _texts:
        _texts[stage] = _written(stage)
    return _texts[stage]


def _written(stage: Stage) -> tuple[str, str]:
    jaxpr = Jaxpr(tuple(stage.inputs.values()), (), tuple(stage.eqns), tuple(stage.outputs))
    dims = [[-1 if k is None else k for k in axes] for _, axes in stage.inputs]
    sized = {str(n): [-1 if k is None else k for k in axes] for n, axes in stage.sized.items()}
    lines = ", ".join(dict.fromkeys(_lines(c.eqn for c in stage.choices)))
    return json.dumps({"jaxpr": layout.dumps(jaxpr, lines=False), "dims": dims, "sized": sized}), lines


def _lines(eqns: Iterable[Eqn]) -> Iterator[str]:
    """The user's lines of equations and of the bodies that they run."""
    for eqn in eqns:
        if eqn.source:
            yield eqn.source
        for body in eqn.bodies:
            yield from _lines(body.jaxpr.eqns)


# ------------------------------------------------------------------------------------------------- pieces and plans

_cleaned: dict[Jaxpr, Jaxpr] = {}
_split: dict[Jaxpr, list[Jaxpr | Eqn]] = {}
_plans: dict[Any, Plan] = {}


def cleaned(jaxpr: Jaxpr) -> Jaxpr:
    """A jaxpr without dead code, custom calls inlined; once."""
    if jaxpr not in _cleaned:
        _forget(_cleaned)
        _cleaned[jaxpr] = staging.clean(jaxpr)
    return _cleaned[jaxpr]


def plan_of(jaxpr: Jaxpr, values: Sequence[Any]) -> Plan:
    """The plan for values in these layouts, which store about so many entries; once."""
    key = (jaxpr, tuple(v.cuts for v in values), tuple(round(math.log2(v.entries + 1)) for v in values))
    if key not in _plans:
        _forget(_plans)
        _plans[key] = Plan(jaxpr, [(v.cuts, v.entries) for v in values])
    return _plans[key]


_decided: dict[Any, tuple[Eqn, Together | None]] = {}


def together_of(eqn: Eqn, values: Sequence[Any]) -> Together | None:
    """How a loop or a branch on values in these layouts runs, None in rounds of tasks; once."""
    key = (
        id(eqn),
        tuple(v.cuts for v in values),
        tuple(round(math.log2(v.entries + 1)) for v in values),
        config.choose(),
    )
    if key not in _decided:
        _forget(_decided)
        _decided[key] = eqn, decided(Pricer(plan_of, _pieces, cleaned), eqn, values)
    return _decided[key][1]


def _forget(cache: dict[Any, Any]) -> None:
    while len(cache) >= 512:
        del cache[next(iter(cache))]


def _pieces(jaxpr: Jaxpr) -> list[Jaxpr | Eqn]:
    """Equations between loops and branches as jaxprs of their own, and these."""
    known = _split.get(jaxpr)
    if known is not None:
        return known
    made: list[Jaxpr | Eqn] = []
    runs: list[list[Eqn]] = [[]]
    for eqn in jaxpr.eqns:
        if eqn.primitive in CONTROL:
            runs += [[eqn], []]
        else:
            runs[-1].append(eqn)
    for number, run in enumerate(runs):
        if run and run[0].primitive in CONTROL:
            made.append(run[0])
        elif run:
            own = {v for e in run for v in e.outputs}
            later = {a for r in runs[number + 1 :] for e in r for a in e.inputs} | set(jaxpr.outputs)
            needed = dict.fromkeys(a for e in run for a in e.inputs if isinstance(a, Var) and a not in own)
            results = tuple(v for e in run for v in e.outputs if v in later)
            made.append(Jaxpr(tuple(needed), (), tuple(run), results))
    _forget(_split)
    _split[jaxpr] = made
    return made


_slices: dict[Any, Jaxpr] = {}


def _slice_of(aval: Aval, k: int, out: Aval) -> Jaxpr:
    if (aval, k) not in _slices:
        closed = staging.trace_to_jaxpr(lambda x: [convert_format(x[k], out.format)], [aval])
        _forget(_slices)
        _slices[aval, k] = cleaned(closed.jaxpr)
    return _slices[aval, k]


def _stack_of(avals: tuple[Aval, ...], out: Aval) -> Jaxpr:
    if (avals, out) not in _slices:

        def stacked(*rows: Any) -> list[Any]:
            return [convert_format(concatenate([expand_dims(r, 0) for r in rows], 0), out.format)]

        _forget(_slices)
        _slices[avals, out] = cleaned(staging.trace_to_jaxpr(stacked, avals).jaxpr)
    return _slices[avals, out]
