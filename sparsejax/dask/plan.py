"""How a jaxpr runs on shards: which variables of every equation are cut, what that moves, and which equations share a task.

    plan = Plan(jaxpr, cuts and entries of its inputs)
      Choice       an equation with the cut of every variable of its rule, and its price
      Stage        equations that run in one task per point of a grid; operands from elsewhere are moved to it

Candidate cuts spread from axes to axes over the rules, forwards and backwards. Every equation then takes the cuts with the lowest price, in order: bytes
moved, at `BYTE` nanoseconds each, and work at what an operation of its kind costs (`rate`), both on as many workers as the finest input has shards,
each with a link of its own; and `TASK` nanoseconds per task. Prices depend on the shards and not on workers, and so do the graph and the bits of results.

Partial results are put together in one place each (a reduce, by a tree), or a part of the result in every place (a reduce-scatter), whose result is cut anew.
What only lays out given values in another way (`layouts.RELAYOUTS`), or changes each entry of a dense one that a single equation reads (`0.15 * x`), is
made again in the stage that reads it: no block of it is ever kept or moved.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from sparsejax.dask.cuts import Cut, aligned, divided, whole
from sparsejax.dask.layouts import ENTRYWISE, RELAYOUTS, Rule, rule_of
from sparsejax.dask.prices import BYTE, TASK, Known, bytes_per_entry, rate

MOST_TASKS = 4096
"""How many points a grid may have."""
CANDIDATES = 3
"""How many cuts of an axis are compared."""
FAN = 8
"""How many partial results a task puts together."""


@dataclass
class Value(Known):
    """A variable of a plan."""

    stage: Stage | None = None
    dims: tuple[int | None, ...] = ()
    """The dimension of the grid of its stage that each axis is cut along."""


@dataclass
class Choice:
    """An equation with the cut of every variable that is cut, in order."""

    eqn: Eqn
    rule: Rule | None
    split: dict[int, Cut]
    price: float
    moves: list[tuple[str, str, float]]
    """What is moved: the operand, how, and how many bytes."""
    work: float = 0.0
    """Operations of all blocks together."""
    spent: float = 0.0
    """Nanoseconds that they take."""
    others: list[tuple[str, float]] = field(default_factory=list)
    """Other splits with their prices."""
    scatter: tuple[int, Cut] | None = None
    """Of a reduce-scatter: the variable along which the result is cut, and how."""
    told: str = ""
    """How it runs, in words, where that is no split."""

    @property
    def text(self) -> str:
        """The split in words: "i/4 k/2", and "to i/8" where partial results are scattered."""
        return split_text(self.split) + ("" if self.scatter is None else f" to {split_text(dict([self.scatter]))}")

    @property
    def scheme(self) -> str:
        """The name of a distributed product of two matrices by the variables that it cuts: of its rows or its columns "1-D"; of both "2-D" (every block of the
        result in one place, as SUMMA); of one and the one that is summed "1.5-D" (blocks of an operand stay, partial results are sent), of all "3-D"."""
        if self.rule is None or self.rule.op is None or sorted(map(len, self.rule.operands)) != [2, 2]:
            return ""
        kept = sum(v in self.rule.kept for v in self.split)
        summed = len(self.split) - kept
        return {(1, 0): "1-D", (2, 0): "2-D", (1, 1): "1.5-D", (2, 1): "3-D", (0, 1): "1-D, summed"}.get(
            (kept, summed), ""
        )

    @property
    def parts(self) -> int:
        """How many partial results a block of the result is put together of."""
        return math.prod(len(c) - 1 for v, c in self.split.items() if self.rule is not None and v not in self.rule.kept)

    @property
    def partial(self) -> bool:
        """Whether blocks are partial results."""
        return self.rule is not None and any(v not in self.rule.kept for v in self.split)


@dataclass(eq=False)
class Stage:
    """Equations in one task per point of `grid`."""

    number: int
    grid: tuple[Cut, ...]
    choices: list[Choice] = field(default_factory=list)
    eqns: list[Eqn] = field(default_factory=list)
    """The equations of the choices, on operands of the stage's own."""
    inputs: dict[tuple[Var, tuple[int | None, ...]], Var] = field(default_factory=dict)
    """Operands from elsewhere, with the dimension of the grid that each axis is cut along, and their names inside."""
    sized: dict[int, tuple[int | None, ...]] = field(default_factory=dict)
    """For the k-th equation, if its parameters hold the shape of the result: the dimensions of the grid of its axes."""
    remade: dict[tuple[Var, tuple[int | None, ...]], Var] = field(default_factory=dict)
    """Given values in another layout, made in the stage."""
    outputs: list[Var] = field(default_factory=list)
    before: int = 0
    """Stages that it waits for, directly or not: a bit for each, by number."""
    partial: dict[Var, Choice] = field(default_factory=dict)
    """Results of which every task makes a part, which are put together afterwards, and their equations. No equation of the stage reads them."""
    ruled: bool = True
    """Whether all of its equations have rules, so that others can join them."""

    @property
    def points(self) -> int:
        return math.prod(len(c) - 1 for c in self.grid)

    @property
    def bit(self) -> int:
        """It in a set of stages."""
        return 1 << self.number

    def add(self, choices: Sequence[Choice]) -> None:
        """Take equations with their cuts after its own."""
        self.choices += choices
        self.ruled &= all(c.rule is not None for c in choices)
        self.partial |= {v: c for c in choices if c.partial for v in c.eqn.outputs}


class Plan:
    """See above. `inputs`: cuts and expected entries of constants and inputs, in order."""

    def __init__(self, jaxpr: Jaxpr, inputs: Sequence[tuple[tuple[Cut, ...], float]]) -> None:
        self.jaxpr = jaxpr
        self.values: dict[Var, Value] = {}
        for var, (cuts, entries) in zip((*jaxpr.consts, *jaxpr.inputs), inputs, strict=True):
            self.values[var] = Value(var.aval, cuts, entries)
        self.rules = [rule_of(eqn) for eqn in jaxpr.eqns]
        self.reads = Counter(a for eqn in jaxpr.eqns for a in eqn.inputs if isinstance(a, Var))
        self.reads.update(a for a in jaxpr.outputs if isinstance(a, Var))
        self.workers = max([1, *(v.count for v in self.values.values())])
        self.candidates = self._candidates()
        self.remade: dict[Var, Choice] = {}
        """Values that every stage makes for itself."""
        self.stages: list[Stage] = []
        for eqn, rule in zip(jaxpr.eqns, self.rules, strict=True):
            self._place(self._choose(eqn, rule))
        self._merge()
        read = {a for a in jaxpr.outputs if isinstance(a, Var)}
        read |= {v for stage in self.stages for v, _ in stage.inputs}
        for stage in self.stages:
            stage.outputs = [v for c in stage.choices for v in c.eqn.outputs if v in read]
        self.order = self._sorted()

    @staticmethod
    def pick(choices: Sequence[Choice]) -> Choice:
        """Of ways to cut an equation, cheapest first, the one that is taken. Tests take others."""
        return choices[0]

    # ------------------------------------------------------------------------------------------------- candidates

    def _candidates(self) -> dict[tuple[Var, int], set[Cut]]:
        """Cuts that each axis of each variable may have, spread over the rules until nothing changes."""
        found: dict[tuple[Var, int], set[Cut]] = {}
        for var, value in self.values.items():
            for d, cut in enumerate(value.cuts):
                found[var, d] = {cut} if len(cut) > 2 else set()
        groups: list[list[tuple[Var, int]]] = []
        for eqn, rule in zip(self.jaxpr.eqns, self.rules, strict=True):
            if rule is None:
                continue
            axes = [*zip(eqn.inputs, rule.operands, strict=True), *zip(eqn.outputs, rule.outputs, strict=True)]
            for variable in rule.variables:
                places = [(a, d) for a, own in axes for d, v in enumerate(own) if v == variable and isinstance(a, Var)]
                groups.append(places)
        changed = True
        while changed:
            changed = False
            for places in groups:
                everything = set().union(*(found.setdefault(p, set()) for p in places))
                for p in places:
                    fit = {c for c in everything if _fit(c, p[0].aval, p[1])}
                    if not fit <= found[p]:
                        found[p] |= fit
                        changed = True
        return found

    # ----------------------------------------------------------------------------------------------------- choices

    def _choose(self, eqn: Eqn, rule: Rule | None) -> Choice:
        if rule is None:
            moves = [m for m in (self._moved(a, None, {}, {}, None) for a in eqn.inputs) if m]
            return Choice(eqn, None, {}, sum(m[2] for m in moves) * BYTE + TASK, moves)
        options: list[list[tuple[int, Cut | None]]] = []
        for variable in rule.variables:
            axes = zip((*eqn.inputs, *eqn.outputs), (*rule.operands, *rule.outputs), strict=True)
            found: set[Cut] = set()
            places = [(a, d) for a, own in axes for d, v in enumerate(own) if v == variable]
            for atom, d in places:
                if isinstance(atom, Var):
                    found |= self.candidates.get((atom, d), set())
                    found |= {c for c in self._cuts_of(atom)[d : d + 1] if len(c) > 2}
            found = {c for c in found if all(_fit(c, a.aval, d) for a, d in places)}
            finest = sorted(found, key=lambda c: (-len(c), c))[:CANDIDATES]
            options.append([(variable, None), *((variable, c) for c in finest)])
        work = self._work(eqn, rule)
        priced: list[tuple[float, Choice]] = []
        for chosen in itertools.product(*options):
            split = {v: c for v, c in chosen if c is not None}
            points = math.prod(len(c) - 1 for c in split.values())
            if points > MOST_TASKS or (rule.op is None and any(v not in rule.kept for v in split)):
                continue
            for scatter in (None, *self._scatters(eqn, rule, split, options)):
                choice = Choice(eqn, rule, split, 0.0, [], work, work * rate(eqn, rule), scatter=scatter)
                choice.moves = self._moves(choice)
                choice.price = self._price(choice, points)
                if scatter is None and not any(v in rule.kept for v in split) and any(o[1:] for o in options):
                    choice.price += BYTE * self._result_bytes(choice)
                priced.append((choice.price, choice))
        priced.sort(key=lambda p: p[0])
        best = self.pick([c for _, c in priced])
        best.others = [(c.text, price) for price, c in priced[:4] if c is not best]
        return best

    def _price(self, choice: Choice, points: int) -> float:
        """Nanoseconds of work, moves and tasks."""
        at_once = min(points, self.workers)
        price = choice.spent / at_once
        for _, how, moved in choice.moves:
            if how == "reduce":
                price += BYTE * self._reduce_bytes(choice)
            else:
                price += BYTE * moved / at_once
        if choice.scatter is not None:  # a task for every part of every partial result, all of one scheduler
            price += (
                TASK
                * points
                * (len(choice.scatter[1]) - 1)
                / max(len(choice.split.get(choice.scatter[0], (0, 0))) - 1, 1)
            )
        if self._stage_for(choice) is None:
            price += TASK * points / self.workers
        return price

    def _result_bytes(self, choice: Choice) -> float:
        return sum(self._expected(choice.eqn, choice.rule, v) * bytes_per_entry(v.aval) for v in choice.eqn.outputs)

    def _reduce_bytes(self, choice: Choice) -> float:
        """Bytes that arrive one after the other where a block of the result is put together: of `FAN` partial results in every level of the tree."""
        kept = math.prod(
            len(c) - 1 for v, c in choice.split.items() if choice.rule is not None and v in choice.rule.kept
        )
        lost = choice.parts
        levels = math.ceil(math.log(lost, FAN) - 1e-9)
        return levels * (min(FAN, lost) - 1) * self._result_bytes(choice) / min(kept, self.workers)

    def _scatters(
        self, eqn: Eqn, rule: Rule, split: dict[int, Cut], options: Sequence[Sequence[tuple[int, Cut | None]]]
    ) -> list[tuple[int, Cut]]:
        """Ways to cut the sum of partial results: an axis as others cut it, or every part of it evenly, into as many as there are partial results or FAN."""
        lost = math.prod(len(c) - 1 for v, c in split.items() if v not in rule.kept)
        if lost == 1 or len(eqn.outputs) != 1 or not rule.outputs[0]:
            return []
        shape = eqn.outputs[0].aval.shape
        axis = max(range(len(shape)), key=lambda d: shape[d])
        variable = rule.outputs[0][axis]
        if variable is None:
            return []
        known = [c for v, c in itertools.chain.from_iterable(options) if v == variable and c is not None]
        own = split.get(variable)
        made = [divided(own or whole(shape[axis]), n) for n in {lost, min(lost, FAN)}]
        if own is None:
            made = known or made
        fit = [c for c in dict.fromkeys(made) if _fit(c, eqn.outputs[0].aval, axis) and len(c) > len(own or whole(0))]
        return [(variable, c) for c in fit]

    def _cuts_of(self, atom: Var) -> tuple[Cut, ...]:
        return self.values[atom].cuts if atom in self.values else ()

    def _work(self, eqn: Eqn, rule: Rule) -> float:
        """Multiplications, or visits, if entries are spread evenly."""
        extents: dict[int, int] = {}
        share = 1.0
        for atom, own in zip(eqn.inputs, rule.operands, strict=True):
            for d, v in enumerate(own):
                if v is not None:
                    extents[v] = atom.aval.shape[d]
            if isinstance(atom, Var) and not atom.aval.is_dense and atom.aval.size:
                share *= min(1.0, self.values[atom].entries / atom.aval.size)
        for out, own in zip(eqn.outputs, rule.outputs, strict=True):
            for d, v in enumerate(own):
                if v is not None:
                    extents.setdefault(v, out.aval.shape[d])
        return math.prod(extents.values()) * share

    def _moves(self, choice: Choice) -> list[tuple[str, str, float]]:
        eqn, rule, split = choice.eqn, choice.rule, choice.split
        assert rule is not None
        home = self._home(eqn, rule, split)
        moves = []
        for number, (atom, own) in enumerate(zip(eqn.inputs, rule.operands, strict=True)):
            moved = self._moved(atom, own, split, {}, number)
            if moved is not None and not (number == home and moved[1] == "broadcast" and not moved[2]):
                moves.append(moved)
        if choice.parts > 1:
            how = "reduce" if choice.scatter is None else "reduce-scatter"
            moves.append(("the result", how, (choice.parts - 1) * self._result_bytes(choice)))
        return moves

    def _home(self, eqn: Eqn, rule: Rule, split: dict[int, Cut]) -> int | None:
        """The largest operand, whose blocks tasks run beside."""
        sizes = [self.values[a].bytes if isinstance(a, Var) else 0.0 for a in eqn.inputs]
        return sizes.index(max(sizes)) if sizes else None

    def _moved(
        self, atom: Atom, own: Sequence[int | None] | None, split: dict[int, Cut], _: dict[str, int], number: int | None
    ) -> tuple[str, str, float] | None:
        """How an operand comes to the points of a grid, and how many bytes of it leave the place where they are."""
        if isinstance(atom, Literal):
            return None
        axes = (None,) * atom.aval.ndim if own is None else tuple(own)
        while atom in self.remade:
            eqn, rule = self.remade[atom].eqn, self.remade[atom].rule
            assert rule is not None
            number_of, (result,) = _only(eqn), rule.outputs
            atom = eqn.inputs[number_of]
            if isinstance(atom, Literal):
                return None
            axes = _followed(rule.operands[number_of], dict(zip(result, axes, strict=True)))
        value = self.values[atom]
        wanted = [
            split.get(v, whole(c[-1])) if v is not None else whole(c[-1]) for v, c in zip(axes, value.cuts, strict=True)
        ]
        copies = math.prod(len(c) - 1 for v, c in split.items() if v not in axes)
        same = all(w == c for w, c in zip(wanted, value.cuts, strict=True))
        name = f"operand {number}" if number is not None else "an operand"
        if same:
            moved = value.bytes * (copies - 1)
            return (name, "broadcast", moved) if moved else None
        finer = all(w == c or len(c) == 2 for w, c in zip(wanted, value.cuts, strict=True))
        parts = math.prod(len(w) - 1 for w in wanted)
        if finer:
            return name, "slices", value.bytes * copies * (1 - 1 / max(parts * copies, 1))
        gathered = all(len(w) == 2 or w == c for w, c in zip(wanted, value.cuts, strict=True))
        kind = "gather" if gathered and copies == 1 and parts == 1 else "broadcast" if gathered else "all-to-all"
        return name, kind, value.bytes * copies * (1 - 1 / value.count)

    def _expected(self, eqn: Eqn, rule: Rule | None, out: Var) -> float:
        """The entries of a result, if those of operands are spread evenly."""
        size = float(out.aval.size)
        if out.aval.is_dense:
            return size
        sparse = [self.values[a].entries for a in eqn.inputs if isinstance(a, Var) and not a.aval.is_dense]
        if rule is not None and rule.op is not None:
            masks = [
                self.values[a].entries
                for a, own in zip(eqn.inputs, rule.operands, strict=True)
                if isinstance(a, Var) and not a.aval.is_dense and own == rule.outputs[0]
            ]
            visits = self._work(eqn, rule)
            return min([size * -math.expm1(-visits / size) if size else 0.0, *masks])
        return min(size, sum(sparse) if sparse else size)

    # ------------------------------------------------------------------------------------------------------ stages

    def _place(self, choice: Choice) -> None:
        """Put an equation into the stage of its operands, if its grid is theirs, else into a new one."""
        eqn, rule = choice.eqn, choice.rule
        given = all(isinstance(a, Literal) or a in self.remade or self.values[a].stage is None for a in eqn.inputs)
        stage: Stage | None
        dims: dict[int, int]
        stage, dims = self._stage_for(choice) or (None, {})
        if stage is None:
            dims = {v: k for k, v in enumerate(choice.split)}
            stage = Stage(len(self.stages), tuple(choice.split.values()))
            self.stages.append(stage)

        def along(own: Iterable[int | None]) -> tuple[int | None, ...]:
            return tuple(None if v is None else dims.get(v) for v in own)

        operands = rule.operands if rule is not None else tuple((None,) * a.aval.ndim for a in eqn.inputs)
        results = rule.outputs if rule is not None else tuple((None,) * v.aval.ndim for v in eqn.outputs)
        waited = stage.before
        inside = [self._inside(stage, atom, along(own)) for atom, own in zip(eqn.inputs, operands, strict=True)]
        if rule is not None and rule.sized:
            stage.sized[len(stage.choices)] = along(rule.resized)
        stage.add([choice])
        stage.eqns.append(Eqn(eqn.primitive, tuple(inside), eqn.params, eqn.outputs, eqn.source))
        for later in self.stages if stage.before != waited else ():
            if stage.bit & later.before:
                later.before |= stage.before
        for out, own in zip(eqn.outputs, results, strict=True):
            axes = along(own)
            cuts = tuple(whole(n) if k is None else stage.grid[k] for k, n in zip(axes, out.aval.shape, strict=True))
            if choice.scatter is not None:
                cuts = tuple(choice.scatter[1] if v == choice.scatter[0] else c for v, c in zip(own, cuts, strict=True))
            self.values[out] = Value(out.aval, cuts, self._expected(eqn, rule, out), stage, axes)

        if given and rule is not None and self._remakes(eqn):
            self.remade[eqn.outputs[0]] = choice

    def _remakes(self, eqn: Eqn) -> bool:
        """Whether what reads the result of this equation on given values makes it itself."""
        if eqn.primitive in RELAYOUTS:
            return True
        (out, *others), read = eqn.outputs, [a for a in eqn.inputs if isinstance(a, Var)]
        once = eqn.primitive in ENTRYWISE and len(read) == 1 and not others and self.reads[out] == 1
        return once and out not in self.jaxpr.outputs and out.aval.is_dense and read[0].aval.shape == out.aval.shape

    def _inside(self, stage: Stage, atom: Atom, axes: tuple[int | None, ...]) -> Atom:
        """An operand as the equations of a stage read it, its axes cut along these dimensions of the grid."""
        if not isinstance(atom, Var) or self.values[atom].stage is stage:
            return atom
        if atom in self.remade:
            if (atom, axes) not in stage.remade:
                choice = self.remade[atom]
                assert choice.rule is not None
                number, (result,) = _only(choice.eqn), choice.rule.outputs
                dims = dict(zip(result, axes, strict=True))
                inputs = list(choice.eqn.inputs)
                inputs[number] = self._inside(stage, inputs[number], _followed(choice.rule.operands[number], dims))
                made = stage.remade[atom, axes] = Var(atom.aval)
                if choice.rule.sized:
                    stage.sized[len(stage.choices)] = _followed(choice.rule.resized, dims)
                again = Eqn(choice.eqn.primitive, tuple(inputs), choice.eqn.params, (made,), choice.eqn.source)
                stage.add([replace(choice, eqn=again)])
                stage.eqns.append(again)
            return stage.remade[atom, axes]
        source_stage = self.values[atom].stage
        if source_stage is not None:
            stage.before |= source_stage.bit | source_stage.before
        return stage.inputs.setdefault((atom, axes), Var(atom.aval))

    def _stage_for(self, choice: Choice) -> tuple[Stage, dict[int, int]] | None:
        """The last stage that makes an operand, if the equation can run in its tasks, with the dimensions of its grid; else another of them."""
        read = [a for a in choice.eqn.inputs if isinstance(a, Var) and a not in self.remade]
        makers = {self.values[a].stage for a in read}
        for known in sorted(makers, key=lambda s: -s.number if s else 0):
            dims = None if known is None else self._fits(choice, known)
            if known is not None and dims is not None:
                return known, dims
        return None

    def _fits(self, choice: Choice, stage: Stage) -> dict[int, int] | None:
        """The dimensions of the grid of a stage for the variables that an equation cuts, if it can run there: None where it cannot."""
        rule = choice.rule
        if rule is None or len(choice.split) != len(stage.grid):
            return None
        if not stage.ruled:
            return None
        dims: dict[int, int] = {}
        inside = False
        for atom, own in zip(choice.eqn.inputs, rule.operands, strict=True):
            if not isinstance(atom, Var):
                continue
            value = self.values[atom]
            if value.stage is not stage:
                if value.stage is not None and stage.bit & value.stage.before:
                    return None
                continue
            inside = True
            if atom in stage.partial:
                return None
            for v, k, cut in zip(own, value.dims, value.cuts, strict=True):
                wanted = choice.split.get(v) if v is not None else None
                if k is None:
                    if wanted is not None:
                        return None
                elif wanted != cut or v is None or dims.setdefault(v, k) != k:
                    return None
            if {k for k in value.dims if k is not None} != set(range(len(stage.grid))):
                return None
        if not inside:
            return None
        rest = [k for k in range(len(stage.grid)) if k not in dims.values()]
        for v, cut in choice.split.items():
            if v not in dims:
                match = next((k for k in rest if stage.grid[k] == cut), None)
                if match is None:
                    return None
                dims[v] = match
                rest.remove(match)
        return dims if len(set(dims.values())) == len(dims) else None

    def _merge(self) -> None:
        """Put stages together of which one reads the blocks of the other as they are and waits for nothing else: a task in place of two.

            a: t = A @ x        b: u = x * 0.15; y = t + u        ->        a: t = A @ x; u = x * 0.15; y = t + u

        Equations on given values come into a stage of their own first, as nothing tells where their results are read.
        """
        joined, changed = 0, True
        while changed:
            changed = False
            for b in self.stages:
                free = (a for a in self.sources(b) if not b.before & ~(a.before | a.bit | joined))
                found = next(((a, dims) for a in free if (dims := self._aligned(a, b)) is not None), None)
                if found is not None:
                    self._join(found[0], b, found[1])
                    joined, changed = joined | b.bit, True
            self.stages = [s for s in self.stages if not s.bit & joined]

    def sources(self, stage: Stage) -> list[Stage]:
        """The stages whose results a stage reads."""
        return list(dict.fromkeys(s for var, _ in stage.inputs if (s := self.values[var].stage) is not None))

    def _aligned(self, a: Stage, b: Stage) -> dict[int, int] | None:
        """The dimension of the grid of `a` for each of `b`, where every point of `b` reads what the same point of `a` makes; else None."""
        if len(a.grid) != len(b.grid) or not (a.ruled and b.ruled):
            return None
        dims: dict[int, int] = {}
        for var, axes in b.inputs:
            value = self.values[var]
            if value.stage is not a:
                continue
            if var in a.partial or {k for k in value.dims if k is not None} != set(range(len(a.grid))):
                return None
            for own, other in zip(value.dims, axes, strict=True):
                if own is None and other is None:
                    continue
                if own is None or other is None or a.grid[own] != b.grid[other] or dims.setdefault(other, own) != own:
                    return None
        return dims if len(set(dims.values())) == len(b.grid) else None

    def _join(self, a: Stage, b: Stage, dims: dict[int, int]) -> None:
        """The equations of `b` after those of `a`, in its tasks."""
        inner: dict[Atom, Var] = {}
        for (var, axes), own in b.inputs.items():
            inner[own] = var if self.values[var].stage is a else a.inputs.setdefault((var, _followed(axes, dims)), own)
        for number, axes in b.sized.items():
            a.sized[len(a.choices) + number] = _followed(axes, dims)
        for var in (v for c in b.choices for v in c.eqn.outputs if v in self.values):
            value = self.values[var]
            value.stage, value.dims = a, _followed(value.dims, dims)
        a.add(b.choices)
        for eqn in b.eqns:
            inputs = tuple(inner.get(atom, atom) for atom in eqn.inputs)
            a.eqns.append(Eqn(eqn.primitive, inputs, eqn.params, eqn.outputs, eqn.source))

    def _sorted(self) -> list[Stage]:
        """The stages, each after those whose results it reads; of those that could be next, the first."""
        place = {s: k for k, s in enumerate(self.stages)}
        left = {s: len(self.sources(s)) for s in self.stages}
        readers: dict[Stage, list[Stage]] = {s: [] for s in self.stages}
        for stage in self.stages:
            for source in self.sources(stage):
                readers[source].append(stage)
        ready, done = [place[s] for s, n in left.items() if n == 0], []
        while ready:
            stage = self.stages[heapq.heappop(ready)]
            done.append(stage)
            for reader in readers[stage]:
                left[reader] -= 1
                if left[reader] == 0:
                    heapq.heappush(ready, place[reader])
        return done


def _only(eqn: Eqn) -> int:
    """The number of the operand that is no literal; of others, the first."""
    return next((k for k, a in enumerate(eqn.inputs) if isinstance(a, Var)), 0)


def _fit(cut: Cut, aval: Aval, axis: int) -> bool:
    """Whether an axis can be cut so."""
    return cut[-1] == aval.shape[axis] and aligned(cut, aval.format.blocks[axis])


def _followed(axes: Sequence[int | None], values: dict[Any, Any]) -> tuple[Any, ...]:
    """What is known of the variable of every axis."""
    return tuple(None if v is None else values.get(v) for v in axes)


def split_text(split: dict[int, Cut]) -> str:
    """Which variables are cut into how many parts: "i/4 k/2"."""
    return " ".join(f"{'ijklmnop'[v] if v < 8 else v}/{len(c) - 1}" for v, c in split.items()) or "whole"
