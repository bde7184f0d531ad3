"""A kernel of a plan, with what it runs as: planned and compiled when facts of its operands are first seen, once per bucket of facts."""

from __future__ import annotations

import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from numpy.typing import NDArray

from sparsejax import config
from sparsejax.cached import cached_property, copied
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Var
from sparsejax.errors import FormatError, ScheduleError
from sparsejax.formats import copies
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import lookups, skew, statistics
from sparsejax.jit.graph import partition, shared_patterns
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.rewrite import legalize
from sparsejax.jit.runtime import kernel_planner, pattern_variants, written
from sparsejax.jit.runtime.binding import Kept
from sparsejax.jit.runtime.direct import called, how
from sparsejax.jit.runtime.kernel_planner import KernelPlanner
from sparsejax.jit.runtime.runnable import Observed, Planned, Runnable
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.runtime.written import Direct
from sparsejax.jit.schedule import replan

Into = Callable[[Sequence[int]], tuple[NDArray[Any], bool] | None]
"""Memory for the result of a kernel, and whether it may be cleared, given the inputs, by position, that the result may overwrite."""

turn = threading.RLock()
"""Held while something is planned, so that threads do not plan the same thing at the same time; and while the process forks, so
that a child does not wait for a thread that it does not have."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=turn.acquire, after_in_parent=turn.release, after_in_child=turn.release)


class KernelRunner:
    """A kernel with its plans, one per scheduler and bucket of observed facts."""

    def __init__(self, runnable: Runnable, planner: Callable[[], KernelPlanner], choose: str = "") -> None:
        """`planner` makes what plans it, when that is first asked for; it is planned with these alternatives where nothing else is asked for
        (`tuning`); "": the cheapest."""
        self.runnable, self._make_planner, self.choose = runnable, planner, choose
        self.plans: dict[Any, Planned] = {}
        self.origin: KernelRunner | None = None
        """The kernel whose plans it takes, where that serves many shapes and it is for one of them."""
        self.exact = runnable.aval.format == runnable.output.format
        self.beside, self._watched = runnable.beside, runnable.watched
        self._sized(runnable.output, runnable.aval)
        self._start()
        self.variants = (
            None
            if runnable.patterns is None
            else pattern_variants.Variants(lambda: self.planner.step, runnable.patterns, self._positional)
        )

    @staticmethod
    def of(
        step: partition.KernelStep,
        shared: bool = False,
        made: frozenset[Var] = frozenset(),
        positional: bool = True,
        choose: str = "",
    ) -> KernelRunner:
        """The kernel of a step (`KernelPlanner`)."""
        planner = KernelPlanner(step, shared, made, positional)
        return KernelRunner(planner.runnable, lambda: planner, choose)

    @cached_property
    def planner(self) -> KernelPlanner:
        """What plans it."""
        return self._make_planner()

    def _sized(self, output: cin.Tensor, aval: Aval) -> None:
        """Take what the kernel makes, with its shape: the tensor, and the type of the result."""
        self.output, self.aval = output, aval
        self.bytes = math.prod(output.shape) * output.dtype.itemsize
        known = not any(type(n) is Bounded for n in output.shape)
        self.mixed = self.runnable.mixed
        self.large = known and self.mixed and self.bytes > config.GIBIBYTE
        self._by_rates: dict[Any, Planned] = {}

    def _start(self) -> None:
        """Begin without a last call."""
        self._last: tuple[object, list[Kept], Planned | None] = None, [], None
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

    def direct(self, inputs: Sequence[Storage], memory: result_memory.Passing | None = None) -> Direct | None:
        """`sized_once` as one function for operands like these, with results in this `memory` if it is given; None where there is more to do, or it
        depends on which operands share buffers."""
        if self.variants is None:
            return self._direct([(k, written.AS_IT_IS) for k in range(len(inputs))], inputs, None, len(inputs), memory)
        variant = self.variants.of(inputs) if self.variants.single else None
        if variant is None:
            return None
        made, runner = variant
        reads, given = [(k, how(inputs[k], flat)) for k, flat in made.reads], made.inputs(inputs)
        if made.like is None:
            return runner._direct(reads, given, None, len(inputs), memory)
        return (
            runner._direct(reads, given, (made.like, made.fill_value), len(inputs), memory)
            if len(runner.output.shape) == 1
            else None
        )

    def _direct(
        self,
        reads: Sequence[tuple[int, int]],
        inputs: Sequence[Storage],
        like: tuple[int, Any] | None,
        operands: int,
        memory: result_memory.Passing | None,
    ) -> Direct | None:
        planned = self._bounded(inputs)
        if planned.account is not None or not self.exact or self.large:
            return None
        if any(reads[k][1] != written.AS_IT_IS for k, _ in self._watched):
            return None
        if not planned.as_given or not planned.binding.single:
            plain = like is None and reads == [(k, written.AS_IT_IS) for k in range(operands)] and not self.beside
            return self._looked_up(planned, inputs) if plain and planned.binding.sizes else None
        given = [
            written.Input(number, read, s.format if read == written.AS_IT_IS else None)
            for (number, read), s in zip(reads, inputs, strict=True)
        ]
        watched = [(reads[k][0], inputs[k]) for k, _ in self._watched]
        most = config.GIBIBYTE if self.mixed else None
        return called(planned.binding, given, watched, most, like, operands, memory)

    def _looked_up(self, planned: Planned, inputs: Sequence[Storage]) -> Direct:
        """`_sized_once` for inputs that are converted first, or results that grow, and for facts like those of these inputs."""
        rates = [(k, statistics.rates(inputs[k])) for k, _ in self._watched]
        once, moved, as_given, size = planned.binding.once, self._moved, planned.as_given, self.output.dtype.itemsize
        most = config.GIBIBYTE if self.mixed else math.inf

        def found(operands: Sequence[Storage], shape: tuple[int, ...]) -> Storage | None:
            for k, known in rates:
                if (operands[k].cache.get("rates") or statistics.rates(operands[k])) != known:
                    return None
            if most < math.inf and math.prod(shape) * size > most:
                return None
            return once(operands if as_given else moved(planned, operands), shape)

        return found

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
        for k, name, value, _ in kept:
            if inputs[k].cache.get(name) != value:
                break
        else:
            if settings == now:
                assert planned is not None
                return planned if planned.account is None else self._paying(planned, inputs)
        observed = self.observe(inputs)
        if planned is None or settings != now or observed != planned.observed:
            planned = self.plan(observed)
        found = [
            (k, name, inputs[k].cache[name], None if name == "mark" else statistics.few(inputs[k]))
            for k, name in self._watched
        ]
        if planned is not self._last[2] or settings != now or found != kept:
            self._last = now, found, planned
            self.call, bound = self._plainly, planned.binding
            alone = planned.as_given and planned.account is None
            if alone and self.exact and not self.large and self.variants is None:
                given = [written.Input(k, written.AS_IT_IS, s.format) for k, s in enumerate(inputs)]
                self.call = bound.quick(found, now, self._plainly, given)
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

    def _positional(
        self, step: partition.KernelStep, made: shared_patterns.Positional, inputs: Sequence[Storage]
    ) -> KernelRunner | None:
        """The runner of a kernel by position; None where no loop order can run it."""
        runner = KernelRunner.of(step, self.runnable.shared, self.planner.made, positional=False, choose=self.choose)
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
            read = [written.Input(k, written.VALUES if flat else written.AS_IT_IS) for k, flat in reads]
            return planned.binding.quick(kept, settings, otherwise, read)

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
        return self.exact and self.output.format.is_dense and not self.large

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
        kernel = self.runnable
        if kernel.bounded:
            return tuple(map(statistics.rates, inputs))
        told = statistics.rounded_counts if kernel.alike else statistics.positions
        found: list[tuple[Any, ...]] = list(map(statistics.exact_positions if exact else told, inputs))
        pairs = [skew.coupling(inputs[a], d, inputs[b], e) for a, d, b, e in kernel.joins.values()]
        if pairs:
            found.append(tuple(pairs if exact else map(statistics.rounded, pairs)))
        if kernel.lookups:
            found.append(tuple([lookups.spread(how, inputs) for how in kernel.lookups.values()]))
        if kernel.meeting is not None:
            named = dict(zip(kernel.inputs, inputs, strict=True))
            found.append(statistics.product(kernel.meeting, named, dict(zip(kernel.joins, pairs, strict=True)), exact))
        return tuple(found)

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
        """What it runs as where operands have these facts."""
        key = (*config.planning(), order, observed)
        with turn:
            known = self.plans.get(key)
            if known is None:
                known = self.plans[key] = self._planned(observed, order)
        return known

    def _planned(self, observed: Observed, order: replan.Order) -> Planned:
        if self.origin is None:
            return self.planner.planned(observed, order, self.choose)
        known = self.origin.plan(observed, order)
        made = known.binding.resized(self.output)
        return Planned(made, known.moves, observed, known.account, known.over, known.starts)

    def choosing(self) -> AbstractContextManager[None]:
        """The alternatives that it is planned with."""
        return kernel_planner.choosing(self.choose)
