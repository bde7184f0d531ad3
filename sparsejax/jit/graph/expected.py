"""What is expected of the values of a program before any of them exists: positions per level, couplings, and what kernels cost.

    inputs                      as observed
    the result of a kernel      the positions that the scheduler expects (`search.level_counts`), from those of its operands
    a transposed array          as before
    other library calls         as many entries as the largest operand, spread evenly; of dense operands, a few per row, and no more than they have

A dimension of a kernel's result has the degrees of the operand that it comes from, where that is the only sparse one: exactly so for
`exp(A)`, and about so for the rows of `A @ B`, which are as uneven as those of `A`. So couplings (`skew`) are known of values that do not
exist, as those of the inputs that they come from.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sparsejax import config
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import decision_cache
from sparsejax.jit.cost import machine, price_table, skew, statistics
from sparsejax.jit.graph import fuse, partition, resize
from sparsejax.jit.ir import blocks, choices, cin, units
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import schedules, search, statements

Found = TypeVar("Found")

Degrees = tuple[tuple[Storage, int] | None, ...]
"""For every dimension, an array and its dimension that has the same degrees, or about the same."""


@dataclass
class Known:
    """What is expected of values: positions per level, and arrays whose degrees are theirs."""

    counts: dict[Var, statistics.Counts] = field(default_factory=dict)
    degrees: dict[Var, Degrees] = field(default_factory=dict)
    made: frozenset[Var] = frozenset()
    """Those that every call makes anew."""

    def entries(self, var: Var) -> float:
        """How many entries a value has."""
        return self.counts[var][-1]

    def observe(self, var: Var, storage: Storage) -> None:
        """A value that exists."""
        self.counts[var] = statistics.positions(storage)
        if not storage.format.is_dense:
            self.degrees[var] = tuple((storage, d) for d in range(storage.ndim))

    def guess(self, var: Var, entries: float | None = None) -> None:
        """A value of which nothing but, at best, the number of entries is known: a few per row."""
        aval: Aval = var.aval
        some = _few(var) if entries is None else entries
        self.counts[var] = statistics.expected(aval.format, aval.shape, min(float(aval.size), some))

    def only(self, values: Sequence[Var]) -> Known:
        """What is known of some values."""
        return Known(
            {v: self.counts[v] for v in values}, {v: self.degrees[v] for v in values if v in self.degrees}, self.made
        )

    def renamed(self, names: Mapping[Var, Var]) -> Known:
        """The same of those values that have other names."""
        counts = {names[v]: found for v, found in self.counts.items() if v in names}
        degrees = {names[v]: own for v, own in self.degrees.items() if v in names}
        return Known(counts, degrees, frozenset([names[v] for v in self.made if v in names]))

    def copy(self) -> Known:
        """The same, to be extended."""
        return Known(dict(self.counts), dict(self.degrees), self.made)

    def add(self, step: partition.Step) -> None:
        """The results of a step whose operands are known."""
        self.made |= set(partition.made_anew(step, self.made))
        if isinstance(step, partition.KernelStep):
            self._add_kernel(step)
            return
        read = inputs(step)
        given = [a for a in read if not a.aval.format.is_dense]
        axes = step.eqn.param_dict.get("axes")
        for var in step.outputs:
            most = max([a.aval.size for a in read], default=var.aval.size)
            self.guess(var, max(map(self.entries, given), default=min(_few(var), most)))
            if step.eqn.primitive.name == "transpose" and given and axes is not None:
                self.counts[var] = self.counts[given[0]]
                own = self.degrees.get(given[0])
                if own is not None:
                    self.degrees[var] = tuple(own[d] for d in axes)

    def _add_kernel(self, step: partition.KernelStep) -> None:
        var = step.output
        if blocks.has_blocks(step.nest):
            given = [self.entries(a) for a in step.arguments if not a.aval.format.is_dense]
            self.guess(var, max(given, default=None))
            return
        nest, found = self.facts(step)
        if nest.output.units is not None:  # all of a dense array, which has more axes than its kernel
            self.guess(var, float(var.aval.size))
        else:
            self.counts[var] = search.level_counts(nest, found) or (1.0,)
        if not var.aval.format.is_dense:
            self.degrees[var] = tuple(self._degrees(step, index) for index in step.nest.indices)

    def _degrees(self, step: partition.KernelStep, index: cin.Index) -> tuple[Storage, int] | None:
        named = dict(zip((t.name for t in step.nest.inputs), step.arguments, strict=True))
        sparse = [a for a in step.nest.reads if a.tensor.lacks and index in a.indices]
        if len(sparse) != 1:
            return None
        own = self.degrees.get(named[sparse[0].tensor.name])
        return None if own is None else own[sparse[0].indices.index(index)]

    def facts(self, step: partition.KernelStep) -> tuple[Nest, statistics.Facts]:
        """A kernel as the scheduler sees it, and what is known of its operands."""
        counts = [self.counts[v] for v in step.arguments]
        fresh = statistics.named(step.nest, step.arguments, self.made)
        if blocks.has_blocks(step.nest):
            read = blocks.adapted(step.nest)
            return blocks.split(read), statistics.Facts(split(step.nest, read, counts), fresh=fresh)
        names = [t.name for t in step.nest.inputs]
        named = dict(zip(names, step.arguments, strict=True))
        pairs: dict[tuple[str, int, str, int], float] = {}
        if sum(v in self.degrees for v in step.arguments) > 1:
            for a, d, b, e in (j.key for j in statistics.meetings(step.nest)):
                left, right = self.degrees.get(named[a]), self.degrees.get(named[b])
                one, other = left and left[d], right and right[e]
                if one and other:
                    pairs[a, d, b, e] = statistics.rounded(skew.coupling(*one, *other))
        same = statistics.same(step.nest, step.arguments)
        seen, found = units.dropped(step.nest), dict(zip(names, counts, strict=True))
        if seen is not step.nest:
            found |= {t.name: tuple(units.counts(t, found[t.name])) for t in seen.inputs if t.units is not None}
        return seen, statistics.Facts(found, pairs, same=same, fresh=fresh)

    def cost(self, step: partition.KernelStep) -> float | None:
        """What the cheapest schedule of a kernel costs; None where it has none, or shares no loop. Of one with several statements, which takes
        milliseconds to find, other processes know it too."""
        nest, *known = self._told(step)
        if not nest.nested:
            return _cost(nest, *known)
        told = f"cost {config.planning()} {nest} {known[:-2]} {sorted(known[-2])} {known[-1]}"
        found: float | None = json.loads(decision_cache.remembered(told, lambda: json.dumps(_cost(nest, *known))))
        return found

    def schedule(self, step: partition.KernelStep) -> schedules.Schedule | None:
        """The cheapest schedule of a kernel; None where it has none, or shares no loop."""
        return _scheduled(*self._told(step))

    def _told(self, step: partition.KernelStep) -> Any:
        """A kernel as the scheduler sees it, and all that its schedule depends on."""
        nest, found = self.facts(step)
        types = tuple((t.shape, t.format) for t in (*nest.inputs, nest.output))
        counts, pairs = tuple(sorted(found.counts.items())), tuple(sorted(found.couplings.items()))
        return nest, types, counts, pairs, found.same, found.fresh, machine.current()


def of_program(steps: Sequence[partition.Step], jaxpr: Jaxpr, observed: Known | Mapping[Var, Storage]) -> Known:
    """What is known of every value of a program; of inputs that were not observed, a few entries per row are expected."""
    known = observed.copy() if isinstance(observed, Known) else Known()
    if not isinstance(observed, Known):
        for var, storage in observed.items():
            known.observe(var, storage)
    for var in (*jaxpr.consts, *jaxpr.inputs):
        if var not in known.counts:
            known.guess(var)
    for step in steps:
        known.add(step)
    return known


def apart(
    steps: Sequence[partition.Step],
    jaxpr: Jaxpr,
    observed: Mapping[Var, Storage],
    find: Callable[[partition.KernelStep], Found | None],
    parts: Callable[[partition.KernelStep, Found, Known], Sequence[partition.Step] | None],
) -> list[partition.Step]:
    """`steps` with what stands for the kernels in which something is found: their `parts`, given that and what is known of the program, or (None)
    themselves."""
    found = [find(s) if isinstance(s, partition.KernelStep) else None for s in steps]
    if not any(found):
        return list(steps)
    known = of_program(steps, jaxpr, observed)
    made: list[partition.Step] = []
    for step, has in zip(steps, found, strict=True):
        left = parts(step, has, known) if has and isinstance(step, partition.KernelStep) else None
        made += [step] if left is None else left
    return made


def of_values(jaxpr: Jaxpr, observed: Mapping[Var, Storage]) -> Known:
    """What is known of every value of a jaxpr, those that no kernel will store included; of bounds, as if they were the usual extents."""
    outputs = tuple(v for eqn in jaxpr.eqns for v in eqn.outputs)
    alone = replace(jaxpr, outputs=outputs)
    with choices.pricing():
        alone, names = resize.at_usual(alone)
        if not names:
            return of_program(fuse.fuse(alone), alone, observed)
        known = of_program(fuse.fuse(alone), alone, {names[v]: s for v, s in observed.items()})
        return known.renamed({own: v for v, own in names.items()})


@functools.lru_cache(maxsize=1024)
def _scheduled(
    nest: Nest,
    types: Any,
    counts: tuple[tuple[str, statistics.Counts], ...],
    pairs: tuple[tuple[Any, float], ...],
    same: tuple[tuple[str, str], ...],
    fresh: frozenset[str],
    here: price_table.Machine,
) -> schedules.Schedule | None:
    """The cheapest schedule here of a nest; `types` are what its hash leaves out."""
    found = statistics.Facts(dict(counts), dict(pairs), same=same, fresh=fresh)
    with choices.pricing():
        return _cheapest(nest, found)


def _cost(*told: Any) -> float | None:
    made = _scheduled(*told)
    return None if made is None else made.cost.total


def _cheapest(nest: Nest, found: statistics.Facts) -> schedules.Schedule | None:
    if not nest.nested:
        return search.choose(nest, found)
    made = statements.choose(nest, found)
    return None if made is None or statements.keeps_whole(nest, made) else made


def _few(var: Var) -> float:
    """The entries of a value of which nothing is known."""
    return 8.0 * max(var.aval.shape, default=1)


def inputs(step: partition.Step) -> list[Var]:
    """The values that a step reads."""
    if isinstance(step, partition.KernelStep):
        return list(step.arguments)
    return [a for a in step.eqn.inputs if isinstance(a, Var)]


def split(given: Nest, read: Nest, counts: Sequence[statistics.Counts]) -> dict[str, statistics.Counts]:
    """Positions of the tensors that the scheduler sees, where `given` has `counts` and its kernel reads the formats of `read`: without
    blocks and axes of extent one (`blocks.split`)."""
    found = dict(zip((t.name for t in given.inputs), counts, strict=True))
    accesses = {a.tensor.name: a for a in given.reads}
    left = units.dropped(read)
    parts = blocks.parts_of_nest(left)
    for access in read.reads:
        name = access.tensor.name
        if access != accesses[name]:
            found[name] = statistics.expected(access.tensor.format, access.tensor.shape, found[name][-1])
    for access in left.reads:
        name = access.tensor.name
        apart = blocks.split_counts(access, parts, tuple(units.counts(access.tensor, found[name])))
        if apart != tuple(found[name]):  # else what is known of their spread stays
            found[name] = apart
    return found
