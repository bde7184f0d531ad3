"""A kernel of a plan, with what it runs as: planned and compiled when facts of its operands are first seen, once per bucket of facts."""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from sparsejax import config
from sparsejax.cached import Recent, copied
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Var
from sparsejax.errors import FormatError, ScheduleError
from sparsejax.formats import Format, copies
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.codegen.constants import Numbers
from sparsejax.jit.cost import collisions, machine, skew, statistics
from sparsejax.jit.graph import expected, partition, shared_patterns
from sparsejax.jit.ir import blocks, choices, cin
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program
from sparsejax.jit.rewrite import assigned_once, legalize
from sparsejax.jit.runtime import binding, chunked, donation, pattern_variants, plan_cache
from sparsejax.jit.runtime.direct import AS_IT_IS, Direct, Rates, called, how
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.schedule import counted, line_starts, models, replan, row_panels, schedules

Observed = tuple[tuple[Any, ...], ...]
"""Positions per level of every input; the couplings of all joins of the kernel, if it has any; its points and collisions, if these can
be known."""

Made = tuple[schedules.Schedule, Program]

Into = Callable[[Sequence[int]], tuple[NDArray[Any], bool] | None]
"""Memory for the result of a kernel, and whether it may be cleared, given the inputs, by position, that the result may overwrite."""

_latest: Recent[Any, tuple[weakref.ref[Any], Made]] = Recent(32)
"""What kernels were last planned as, with those kernels: who asks for a text after a call asks for this."""

turn = threading.RLock()
"""Held while something is planned, so that threads do not plan the same thing at the same time; and while the process forks, so
that a child does not wait for a thread that it does not have."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=turn.acquire, after_in_parent=turn.release, after_in_child=turn.release)


@dataclass(frozen=True)
class Planned:
    """A scheduled and compiled kernel."""

    binding: binding.Binding
    moves: tuple[tuple[int, Format], ...]
    """Inputs, by position, that are converted first, with their formats."""
    observed: Observed = ()
    account: replan.Account | None = None
    """Of a plan with remembered copies, where there is one."""
    over: tuple[int, ...] = ()
    """Inputs, by position, that the result may overwrite (`donation`)."""
    starts: tuple[int, ...] = ()
    """Inputs, by position, that are copied where they do not begin with a line (`line_starts`)."""
    recipe: plan_cache.Recipe | None = None
    """What it was made by, but for the text; None of a kernel that reads numbers at run time, or is for one of many shapes."""

    @property
    def as_given(self) -> bool:
        """Whether the kernel reads the inputs themselves."""
        return not self.moves and not self.starts


def bound(
    compiled: compiler.Kernel,
    recipe: plan_cache.Recipe,
    output: cin.Tensor,
    op: str | None,
    constants: Numbers | None,
    observed: Observed,
) -> Planned:
    """A compiled kernel, ready to run: `output` is what it makes, accumulated with `op`, reading `constants`."""
    area = None if constants is None else constants.area()
    made = binding.Binding(compiled, output, op, recipe.cut, recipe.expected, area, recipe.shared, recipe.whole)
    account = None if recipe.later is None else replan.Account(recipe.later)
    return Planned(made, recipe.moves, observed, account, recipe.over, recipe.starts)


@dataclass
class KernelRunner:
    """A kernel step with its plans, one per scheduler and bucket of observed facts."""

    step: partition.KernelStep
    shared: bool = False
    """Whether numbers are read at run time, so that the kernel serves other numbers too."""
    plans: dict[Any, Planned] = field(default_factory=dict)
    positional: bool = True
    """Whether kernels by position may run in its place."""
    choose: str = ""
    """The alternatives that it is planned with where nothing else is asked for (`tuning`); "": the cheapest."""
    made: frozenset[Var] = frozenset()
    """The values of the program that every call makes anew."""

    def __post_init__(self) -> None:
        features = self.step.nest.features
        self.nest = self.step.nest if features.plain else blocks.adapted(self.step.nest)
        """What the kernel computes: with other formats where blocks do not fit together."""
        self.plain = blocks.split(self.nest)
        """The same without blocks: what is scheduled."""
        nest = self.nest
        self.exact = self.step.output.aval.format == nest.output.format
        self.origin: KernelRunner | None = None
        """The kernel whose plans it takes, where that serves many shapes and it is for one of them."""
        self._sized(nest.output, self.step.output.aval)
        self._fresh = statistics.named(self.step.nest, self.step.arguments, self.made)
        self._same = statistics.same(self.step.nest, self.step.arguments)
        self.joins, self.bounded = self._joins(), nest.bounded
        counted = features.sparse_result and features.reduced
        self.meeting = collisions.plan(self.step.nest) if choices.applies(counted) else None
        joined = {k for a, _, b, _ in self.joins.values() for k in (a, b)}
        if self.meeting is not None:
            met = {a.tensor.name for a in self.meeting.accesses}
            joined |= {k for k, t in enumerate(self.step.nest.inputs) if t.name in met}
        sparse = (k for k, t in enumerate(self.step.nest.inputs) if k in joined or not t.format.is_dense)
        self._watched = [(k, "mark" if k in joined else "positions") for k in sparse]
        if nest.bounded:
            self._watched = [(k, "rates") for k, t in enumerate(self.step.nest.inputs) if not t.format.is_dense]
        """Where storages of these inputs keep what the plan depends on."""
        self._start()
        known = features.sparse > 1 or (features.sparse == 1 and not (self.aval.format.is_dense and features.met))
        asked = self.positional and choices.does("shared_patterns") and choices.applies(known)
        found = shared_patterns.patterns(self.step) if asked else None
        self.variants = None if found is None else pattern_variants.Variants(self.step, found, self._positional)
        self.beside = shared_patterns.beside(self.step.nest) if features.placed else ()

    def _sized(self, output: cin.Tensor, aval: Aval) -> None:
        """Take what the kernel makes, with its shape: the tensor, and the type of the result."""
        self.output, self.aval = output, aval
        self.bytes = math.prod(output.shape) * output.dtype.itemsize
        self.mixed = output.format.is_dense and any(not t.format.is_dense for t in self.nest.inputs)
        """Whether a dense result is made of sparse operands, so that it may be out of proportion."""
        known = not any(type(n) is Bounded for n in output.shape)
        self.large = known and self.mixed and self.bytes > config.GIBIBYTE
        self._by_rates: dict[Any, Planned] = {}

    def _start(self) -> None:
        """Begin without a last call."""
        self._last: tuple[object, list[tuple[int, str, object]], Planned | None] = None, [], None
        """Settings at the last call; where in the cache of which input was what else it depended on; and its plan."""
        own = weakref.ref(self)  # what refers to itself would be freed late
        self._plainly: Callable[[Sequence[Storage]], Storage] = lambda inputs: own().run(inputs)  # type: ignore[union-attr]
        self.call: Callable[[Sequence[Storage]], Storage] = self._plainly
        """`run` on inputs alone: on the shortest road where the kernel is all there is to do, as long as the last plan serves."""

    def resized(self, change: Callable[[Any], Any]) -> KernelRunner:
        """The kernel for one of the shapes that it serves; `change` gives the extents in place of bounds. Plans are shared. O(1)."""
        made = copied(self)
        made.origin, made.plans = self, {}
        made._sized(self.output._replace(shape=tuple(map(change, self.output.shape))), self.aval.resized(change))
        made._start()
        if self.variants is not None:
            made.variants = self.variants.resized(lambda runner: runner.resized(change))
        return made

    def once(self, inputs: Sequence[Storage], change: Callable[[Any], Any]) -> Storage:
        """`resized(change).run(inputs)`, of which nothing is kept: what a shape costs that may not come back."""
        variant = None if self.variants is None else self.variants.of(inputs)
        if variant is not None:
            made, runner = variant
            given = made.inputs(inputs)
            planned = runner._bounded(given)
            if made.like is None or planned.account is not None or not planned.binding.single:
                return runner.resized(change).run_by_position(made, inputs)
            if not planned.as_given:
                given = runner._moved(planned, given, made.origins(inputs))
            like = inputs[made.like]
            below = tuple(map(change, runner.output.shape[1:]))
            over = planned.binding.once(given, (len(like.vals) // max(1, math.prod(below)), *below))
            return like.with_values(over.vals, made.fill_value)
        found = self._sized_once(inputs, tuple(map(change, self.output.shape)))
        return self.resized(change).run(inputs) if found is None else found

    def sized_once(self, inputs: Sequence[Storage], shape: tuple[int, ...]) -> Storage | None:
        """The result of this shape, of which nothing is kept; None where there is more to do than to call the kernel."""
        variant = None if self.variants is None else self.variants.of(inputs)
        if variant is None:
            return self._sized_once(inputs, shape)
        made, runner = variant
        given = made.inputs(inputs)
        if made.like is None:
            return runner._sized_once(given, shape)
        planned = runner._bounded(given)
        if (
            not planned.as_given
            or planned.account is not None
            or not planned.binding.single
            or len(runner.output.shape) != 1
        ):
            return None
        like = inputs[made.like]
        over = planned.binding.once(given, (len(like.vals),))
        return like.with_values(over.vals, made.fill_value)

    def _sized_once(self, inputs: Sequence[Storage], shape: tuple[int, ...]) -> Storage | None:
        if not self.exact or self.large:
            return None
        planned = self._bounded(inputs)
        if not planned.binding.sizes or planned.account is not None:
            return None
        if self.mixed and math.prod(shape) * self.output.dtype.itemsize > config.GIBIBYTE:
            return None
        return planned.binding.once(inputs if planned.as_given else self._moved(planned, inputs), shape)

    def direct(self, inputs: Sequence[Storage]) -> Direct | None:
        """`sized_once` as one function for operands like these; None where there is more to do, or it depends on which operands share buffers."""
        if self.variants is None:
            return self._direct([(k, AS_IT_IS) for k in range(len(inputs))], inputs)
        variant = self.variants.of(inputs) if self.variants.single else None
        if variant is None:
            return None
        made, runner = variant
        reads, given = [(k, how(inputs[k], flat)) for k, flat in made.reads], made.inputs(inputs)
        if made.like is None:
            return runner._direct(reads, given)
        return runner._direct(reads, given, (made.like, made.fill_value)) if len(runner.output.shape) == 1 else None

    def _direct(
        self, reads: Sequence[tuple[int, int]], inputs: Sequence[Storage], like: tuple[int, Any] | None = None
    ) -> Direct | None:
        planned = self._bounded(inputs)
        if not planned.as_given or planned.account is not None or not planned.binding.single:
            return None
        if not self.exact or self.large:
            return None
        if any(reads[k][1] != AS_IT_IS for k, _ in self._watched):
            return None
        watched = [Rates.of(reads[k][0], inputs[k]) for k, _ in self._watched]
        return called(planned.binding, reads, watched, config.GIBIBYTE if self.mixed else 1 << 62, like)

    def _bounded(self, inputs: Sequence[Storage]) -> Planned:
        """The plan for these inputs of a kernel that serves many shapes."""
        key = (
            config.planning(),
            *[inputs[k].cache.get("rates") or statistics.rates(inputs[k]) for k, _ in self._watched],
        )
        planned = self._by_rates.get(key)
        if planned is None:
            planned = self.plan(self.observe(inputs))
            if len(self._by_rates) > 256:
                self._by_rates.clear()
            self._by_rates[key] = planned
        return planned

    def run(self, inputs: Sequence[Storage], into: Into | None = None, origins: Sequence[Storage] = ()) -> Storage:
        """The result for these inputs; `into` gives memory for a dense one. `origins` are the arrays that inputs hold the values of,
        where they are by position."""
        if self.large:
            self._check_size(inputs)
        planned = None if into is None else self._current(inputs)
        memory = None if into is None or planned is None else into(planned.over)
        if self.variants is not None and memory is None:
            variant = self.variants.of(inputs)
            if variant is not None:
                made, runner = variant
                result = runner.run_by_position(made, inputs)
                if into is None and self.variants.single and not self.large:
                    self.call = runner.quick_by_position(made, self._plainly)
                return result
        if planned is None:
            planned = self._current(inputs)
        if not planned.as_given:
            inputs = self._moved(planned, inputs, origins)
        if memory is not None:
            return planned.binding.run_into(inputs, *memory)
        result = planned.binding.run(inputs)
        if planned.account is not None:
            planned.account.made(result)
        return result if self.exact else legalize.finished(result, self.aval)

    def _current(self, inputs: Sequence[Storage]) -> Planned:
        """The plan for these inputs."""
        settings, kept, planned = self._last
        now = config.planning()
        for k, name, value in kept:
            if inputs[k].cache.get(name) != value:
                break
        else:
            if settings == now:
                assert planned is not None
                return planned if planned.account is None else self._paying(planned, inputs)
        observed = self.observe(inputs)
        if planned is None or settings != now or observed != planned.observed:
            planned = self.plan(observed)
        found = [(k, name, inputs[k].cache[name]) for k, name in self._watched]
        if planned is not self._last[2] or settings != now or found != kept:
            self._last = now, found, planned
            self.call, bound = self._plainly, planned.binding
            alone = planned.as_given and planned.account is None
            if alone and self.exact and not self.large and self.variants is None:
                self.call = bound.quick(found, now, self._plainly)
        return planned if planned.account is None else self._paying(planned, inputs)

    def _paying(self, planned: Planned, inputs: Sequence[Storage]) -> Planned:
        """The plan, or the one that has paid to wait for."""
        if planned.account is not None and planned.account.pays(inputs):
            return self.plan(planned.observed, planned.account.later.order)
        return planned

    def actual(self, inputs: Sequence[Storage]) -> tuple[KernelRunner, list[Storage]]:
        """What runs on these inputs: this kernel, or one by position, and on what."""
        variant = None if self.variants is None else self.variants.of(inputs)
        return (self, list(inputs)) if variant is None else (variant[1], variant[0].inputs(inputs))

    def _positional(self, made: shared_patterns.Positional, inputs: Sequence[Storage]) -> KernelRunner | None:
        """The runner of a kernel by position; None where no loop order can run it."""
        runner = KernelRunner(made.step, self.shared, positional=False, choose=self.choose, made=self.made)
        try:
            runner.plan(runner.observe(made.inputs(inputs)))
        except ScheduleError:
            return None
        return runner

    def run_by_position(self, made: shared_patterns.Positional, inputs: Sequence[Storage]) -> Storage:
        """The result for the operands of the kernel that this one is made of."""
        given, origins = made.inputs(inputs), made.origins(inputs)
        if made.like is None:
            return self.run(given, origins=origins)
        planned, like = self._current(given), inputs[made.like]
        if not planned.as_given:
            given = self._moved(planned, given, origins)
        result = like.with_values(planned.binding.run_over(given, like), made.fill_value)
        if planned.account is not None:
            planned.account.made(result)
        return result

    def quick_by_position(
        self, made: shared_patterns.Positional, otherwise: Callable[[Sequence[Storage]], Storage]
    ) -> Callable[[Sequence[Storage]], Storage]:
        """`run_by_position` as one function, as long as settings are as they are; else `otherwise`."""
        planning, settings, values_of, reads = config.planning, config.planning(), shared_patterns.values_of, made.reads
        if made.like is not None or self.beside:
            run_by_position = self.run_by_position

            def over(inputs: Sequence[Storage]) -> Storage:
                return run_by_position(made, inputs) if planning() == settings else otherwise(inputs)

            return over
        known, kept, planned = self._last
        if self.call is not self._plainly and planned is not None and known == settings and planned.binding.dense:
            return planned.binding.quick(kept, settings, otherwise, made.reads)

        def run(inputs: Sequence[Storage]) -> Storage:
            now = planning()
            if now is not settings and now != settings:
                return otherwise(inputs)
            given = [
                (inputs[k].cache.get("values") or values_of(inputs[k])) if flat else inputs[k] for k, flat in reads
            ]
            return self.call(given)

        return run

    def _moved(self, planned: Planned, inputs: Sequence[Storage], origins: Sequence[Storage] = ()) -> list[Storage]:
        """The inputs in the formats that the kernel reads, where it reads them."""
        made = list(inputs)
        for position, form in planned.moves:
            for number, head in self.beside:
                if head == position:
                    made[number] = shared_patterns.values_of(copies.converted(origins[number], form))
            made[position] = copies.converted(inputs[position], form)
        for position in planned.starts:
            given = made[position]
            vals = result_memory.from_line(given.vals)
            if vals is not given.vals:
                made[position] = Storage.of_frozen(given.format, given.shape, given.fill_value, given.buffers, vals)
        return made

    @property
    def bindable(self) -> bool:
        """Whether it can be bound to buffers once: its result is dense."""
        return self.exact and self.nest.output.format.is_dense and not self.large

    def observe(self, inputs: Sequence[Storage]) -> Observed:
        """The facts that a plan depends on, rounded."""
        for position, name in self._watched:
            if name == "mark":
                skew.mark(inputs[position])
        return self._observed(inputs, exact=False)

    def observe_exactly(self, inputs: Sequence[Storage]) -> Observed:
        """The same, not rounded: for reports and forecasts."""
        return self._observed(inputs, exact=True)

    def _observed(self, inputs: Sequence[Storage], exact: bool) -> Observed:
        if self.bounded:
            return tuple(map(statistics.rates, inputs))
        found: list[tuple[Any, ...]] = list(map(statistics.exact_positions if exact else statistics.positions, inputs))
        pairs = [skew.coupling(inputs[a], d, inputs[b], e) for a, d, b, e in self.joins.values()]
        if pairs:
            found.append(tuple(pairs if exact else map(statistics.rounded, pairs)))
        if self.meeting is not None:
            named = {t.name: s for t, s in zip(self.step.nest.inputs, inputs, strict=True)}
            found.append(statistics.product(self.meeting, named, dict(zip(self.joins, pairs, strict=True)), exact))
        return tuple(found)

    def _joins(self) -> dict[tuple[str, int, str, int], tuple[int, int, int, int]]:
        """Where inputs meet, by name; and by their numbers. Tensors in blocks are taken to have even degrees."""
        given = self.step.nest.inputs
        numbers = {t.name: k for k, t in enumerate(given)}
        ranks = {t.name: len(t.shape) for t in given}
        split = {t.name for t in self.plain.inputs if len(t.shape) != ranks[t.name]}
        found = {j.key for j in statistics.meetings(self.plain, split)}
        return {(a, d, b, e): (numbers[a], d, numbers[b], e) for a, d, b, e in sorted(found)}

    def _check_size(self, inputs: Sequence[Storage]) -> None:
        given = sum(a.nbytes for s in inputs for a in (s.vals, *itertools.chain(*s.buffers)))
        limit = config.dense_limit()
        if limit and self.bytes > limit * given:
            raise FormatError(
                f"a dense result of shape {self.output.shape} would take {self.bytes} bytes, more than {limit} times its "
                "operands; ask for a sparse one with einsum(..., out_format=...), choose operands whose fills make it sparse, or "
                'raise the limit with sparsejax.config.update("dense_limit", ...)'
            )

    def plan(self, observed: Observed, order: replan.Order = ()) -> Planned:
        key = (*config.planning(), order, observed)
        with turn:
            known = self.plans.get(key)
            if known is not None:
                return known
            with self._choosing(), choices.drawing("kernel", self.step.nest), models.remembering():
                known = self.plans[key] = self._planned(observed, order)
        return known

    def _choosing(self) -> AbstractContextManager[None]:
        """The alternatives that it is planned with."""
        return config.using(choose=self.choose) if self.choose and config.choose() == "auto" else nullcontext()

    def _planned(self, observed: Observed, order: replan.Order) -> Planned:
        if self.origin is not None:
            known = self.origin.plan(observed, order)
            made = known.binding.resized(self.output)
            return Planned(made, known.moves, observed, known.account, known.over, known.starts)
        seen = observed, sorted(self._fresh), self._same
        key = plan_cache.key(self.step.nest, self.shared, config.planning(), machine.current(), seen, order)
        constants = Numbers() if self.shared else None
        recipe = plan_cache.load(key)
        if recipe is None:
            recipe = self._recipe(observed, constants, order)
            if not constants:
                plan_cache.store(key, recipe)
        compiled = compiler.compile_text(recipe.text)
        planned = bound(compiled, recipe, self.nest.output, self.nest.op, constants, observed)
        return planned if constants else replace(planned, recipe=replace(recipe, text=""))

    def _recipe(self, observed: Observed, constants: Numbers | None, order: replan.Order = ()) -> plan_cache.Recipe:
        """The kernel scheduled and lowered; the numbers that it reads when it runs are added to `constants`."""
        schedule, program = self._noted(observed, order, self.schedule(observed, order))
        bounded = self.nest.bounded
        text = pipeline.text_of(program, constants)
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
        count = len(given.inputs)
        couplings = dict(zip(self.joins, observed[count], strict=True)) if self.joins else {}
        if self.plain is given:
            found = dict(zip((t.name for t in given.inputs), observed[:count], strict=True))
        else:
            found = expected.split(given, self.nest, observed[:count])
        points, met = observed[-1] if self.meeting else (None, None)
        return statistics.Facts(found, couplings, points, met, self._fresh, self._same)

    def scheduled(self, observed: Observed) -> Made:
        """`schedule`, or what it made of the same a short while ago."""
        known = _latest.get(self._asked(observed, ()))
        return (
            self._noted(observed, (), self.schedule(observed)) if known is None or known[0]() is not self else known[1]
        )

    def _noted(self, observed: Observed, order: replan.Order, made: Made) -> Made:
        _latest.put(self._asked(observed, order), (weakref.ref(self), made))
        return made

    def _asked(self, observed: Observed, order: replan.Order) -> tuple[Any, ...]:
        return id(self), config.planning(), machine.current(), observed, order

    def schedule(self, observed: Observed, order: replan.Order = ()) -> Made:
        """The loop order, and the program with operands in the formats that it wants, marked where it runs in chunks."""
        known = self.known(observed)
        schedule = pipeline.static_schedule(self.nest) or pipeline.schedule_of(self.plain, known, order)
        return schedule, pipeline.program_of(self.nest, schedule, known)
