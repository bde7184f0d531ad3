"""What makes a kernel: the step that it computes, scheduled, lowered and compiled for facts of its operands.

What running it takes is told apart (`runnable`), so that a process that reads that from disk makes none of this.
"""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from sparsejax import config
from sparsejax.cached import Recent
from sparsejax.core.jaxpr import Var
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.codegen.constants import Numbers
from sparsejax.jit.cost import collisions, lookups, machine, statistics
from sparsejax.jit.graph import expected, partition, shared_patterns
from sparsejax.jit.ir import blocks, choices
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program
from sparsejax.jit.rewrite import assigned_once
from sparsejax.jit.runtime import chunked, donation, plan_cache
from sparsejax.jit.runtime.runnable import Observed, Planned, Runnable, bound
from sparsejax.jit.schedule import counted, line_starts, models, replan, row_panels, schedules

Made = tuple[schedules.Schedule, Program]
Asked = tuple[object, ...]

_latest: Recent[Asked, tuple[weakref.ref[KernelPlanner], Made]] = Recent(32)
"""What kernels were last planned as, with what planned them: who asks for a text after a call asks for this."""


def _is_alike(nest: Nest) -> bool:
    """Whether all that a kernel reads and writes is sparse, at the same coordinates and stored in the same order, position by position: how close
    entries lie changes nothing then."""
    features = nest.features
    if features.rank or features.reduced or features.placed or not (features.plain and features.sparse_result):
        return False
    order = nest.output.format.order
    reads = [a for a in nest.reads if a.indices]
    if any(level.shared for a in reads for level in a.tensor.format.levels):
        return False  # how many positions there are is told beside the entries (`statistics.Positions.runs`)
    return all(a.indices == nest.indices and a.tensor.format.order == order for a in reads)


class KernelPlanner:
    """A kernel step, and what it is planned as."""

    def __init__(
        self,
        step: partition.KernelStep,
        shared: bool = False,
        made: frozenset[Var] = frozenset(),
        positional: bool = True,
    ) -> None:
        """With `shared`, numbers are read at run time; the values `made` are those of the program that every call makes anew; kernels by position may
        run in its place if it is `positional`."""
        self.step, self.shared, self.made, self._positional = step, shared, made, positional
        self.nest = step.nest if step.nest.features.plain else blocks.adapted(step.nest)
        """What the kernel computes: with other formats where blocks do not fit together."""
        self.plain = blocks.split(self.nest)
        """The same without blocks: what is scheduled."""
        self._fresh = statistics.named(step.nest, step.arguments, made)
        self._same = statistics.same(step.nest, step.arguments)
        self.runnable = self._runnable()
        """What running it takes."""

    def _runnable(self) -> Runnable:
        step, nest, features = self.step, self.nest, self.step.nest.features
        given, joins = step.nest.inputs, self._joins()
        meets = choices.applies(features.sparse_result and features.reduced)
        meeting = collisions.plan(step.nest) if meets and not nest.bounded else None
        joined = {k for a, _, b, _ in joins.values() for k in (a, b)}
        named = lookups.of_nest(step.nest) if features.placed and not nest.bounded else {}
        joined |= {k for how in named.values() for k in (how.array, how.leader) if k >= 0}
        if meeting is not None:
            met = {a.tensor.name for a in meeting.accesses}
            joined |= {k for k, t in enumerate(given) if t.name in met}
        sparse = [k for k, t in enumerate(given) if not t.format.is_dense]
        alike = _is_alike(step.nest)
        if nest.bounded:
            watched = [(k, "rates") for k in sparse]
        else:
            plain = "rounded_counts" if alike else "positions"
            watched = [(k, "mark" if k in joined else plain) for k in sorted(joined.union(sparse))]
        output, aval = nest.output, step.output.aval
        mixed = output.format.is_dense and any(not t.format.is_dense for t in nest.inputs)
        known = features.sparse > 1 or (features.sparse == 1 and not (aval.format.is_dense and features.met))
        asked = self._positional and choices.does("shared_patterns") and choices.applies(known)
        patterns = shared_patterns.patterns(step) if asked else None
        beside = shared_patterns.beside(step.nest) if features.placed else ()
        names = tuple([t.name for t in given])
        return Runnable(
            output,
            aval,
            nest.op,
            names,
            self.shared,
            nest.bounded,
            mixed,
            tuple(watched),
            alike,
            joins,
            named,
            meeting,
            beside,
            patterns,
        )

    def _joins(self) -> dict[tuple[str, int, str, int], tuple[int, int, int, int]]:
        """Where inputs meet, by name; and by their numbers. Tensors in blocks are taken to have even degrees."""
        given = self.step.nest.inputs
        numbers = {t.name: k for k, t in enumerate(given)}
        ranks = {t.name: len(t.shape) for t in given}
        split = {t.name for t in self.plain.inputs if len(t.shape) != ranks[t.name]}
        found = {j.key for j in statistics.meetings(self.plain, split)}
        return {(a, d, b, e): (numbers[a], d, numbers[b], e) for a, d, b, e in sorted(found)}

    def planned(self, observed: Observed, order: replan.Order = (), choose: str = "") -> Planned:
        """The kernel for these facts, scheduled and compiled, with these alternatives where nothing else is asked for."""
        with choosing(choose), choices.drawing("kernel", self.step.nest), models.remembering():
            seen = observed, sorted(self._fresh), self._same
            key = plan_cache.key(self.step.nest, self.shared, config.planning(), machine.current(), seen, order)
            constants = Numbers() if self.shared else None
            recipe = plan_cache.load(key)
            if recipe is None:
                recipe = self._recipe(observed, constants, order)
                if not constants:
                    plan_cache.store(key, recipe)
            compiled = compiler.compile_text(recipe.text)
            numbers = None if constants is None else constants.area()
            return bound(compiled, replace(recipe, text=""), self.runnable, numbers, observed)

    def _recipe(self, observed: Observed, constants: Numbers | None, order: replan.Order = ()) -> plan_cache.Recipe:
        """The kernel scheduled and lowered; the numbers that it reads when it runs are added to `constants`."""
        schedule, program = self._noted(observed, order, self.schedule(observed, order))
        bounded = self.nest.bounded
        text = pipeline.text_of(program, constants)
        asked = [t.name for t in self.step.nest.inputs]
        assert [t.name for t in program.inputs] == asked, f"a kernel is passed {asked}, and takes {program.inputs}"
        pairs = enumerate(zip(self.step.nest.inputs, program.inputs, strict=True))
        moves = tuple((k, read.stored) for k, (given, read) in pairs if read.stored != given.format)
        expected = counted.output_sizes(self.plain, self.known(observed))
        cut = chunked.Cut.of(program, self.shared) if program.chunking.count else None
        later = None
        if schedule.remembered is not None and not bounded:
            later = replan.later(schedule, self.step.nest, self.plain, self.known(observed))
        over = donation.overwritable(program) if choices.applies(self.nest.features.overwrites) else ()
        if over and choices.pick("donation", ("overwritten", "kept"), "overwritten") == "kept":
            over = ()
        whole = program.whole or assigned_once.visited(program)
        copied = line_starts.copied(*self.looped(schedule, self.known(observed)), schedule)
        starts = tuple(k for k, t in enumerate(self.step.nest.inputs) if t.name in copied)
        return plan_cache.Recipe(text, moves, expected, cut, program.shared, whole, later, over, starts)

    def looped(self, schedule: schedules.Schedule, known: statistics.Facts) -> tuple[Nest, statistics.Facts]:
        """The kernel that the loops of a schedule are over, and what is known of its tensors."""
        return (self.plain, known) if schedule.panels is None else row_panels.read(self.plain, known, schedule.panels)

    def known(self, observed: Observed) -> statistics.Facts:
        """What is known of the tensors that the scheduler sees: in the formats of `nest`, and split."""
        given = self.step.nest
        if given.bounded:
            counts = [statistics.at_most(t.format, t.shape, r) for t, r in zip(given.inputs, observed, strict=True)]
            return statistics.Facts(expected.split(given, self.nest, counts), fresh=self._fresh)
        count, joins, named = len(given.inputs), self.runnable.joins, self.runnable.lookups
        couplings = dict(zip(joins, observed[count], strict=True)) if joins else {}
        if self.plain is given:
            found = dict(zip((t.name for t in given.inputs), observed[:count], strict=True))
        else:
            found = expected.split(given, self.nest, observed[:count])
        points, met = observed[-1] if self.runnable.meeting else (None, None)
        near = dict(zip(named, observed[count + bool(joins)], strict=True)) if named else {}
        return statistics.Facts(found, couplings, points, met, self._fresh, self._same, near)

    def scheduled(self, observed: Observed) -> Made:
        """`schedule`, or what it made of the same a short while ago."""
        known = _latest.get(self._asked(observed, ()))
        return (
            self._noted(observed, (), self.schedule(observed)) if known is None or known[0]() is not self else known[1]
        )

    def _noted(self, observed: Observed, order: replan.Order, made: Made) -> Made:
        _latest.put(self._asked(observed, order), (weakref.ref(self), made))
        return made

    def _asked(self, observed: Observed, order: replan.Order) -> Asked:
        return id(self), config.planning(), machine.current(), observed, order

    def schedule(self, observed: Observed, order: replan.Order = ()) -> Made:
        """The loop order, and the program with operands in the formats that it wants, marked where it runs in chunks."""
        known = self.known(observed)
        schedule = pipeline.static_schedule(self.nest) or pipeline.schedule_of(self.plain, known, order)
        return schedule, pipeline.program_of(self.nest, schedule, known)


def choosing(choose: str) -> AbstractContextManager[None]:
    """Plan with these alternatives, if any, where nothing else is asked for."""
    return config.using(choose=choose) if choose and config.choose() == "auto" else nullcontext()
