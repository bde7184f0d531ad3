"""Programs that serve many shapes: traced once with symbols in place of the extents that change, planned once per bucket of sizes.

    first call      f(5000 x 40, 40)       traced and planned as it is
    second call     f(6100 x 40, 40)       one extent differs: it becomes a symbol n, and f(n x 40, 40) is traced, with guards
                                           a plan for n <= 65535; the extents of values between kernels and of results are expressions of n
    other calls     f(7300 x 40, 40)       guards hold: the plan with other numbers in it (`Plan.resized`); nothing is traced, scheduled or compiled

Extents that were equal in all calls are one symbol; what else is equal, the program asks, and the answer is a guard. Where the program needs
an extent itself (a Python loop over it), that extent is no symbol from then on; nor are those in blocks, of operands and of every value between. A
program that cannot be traced with symbols is traced for every shape, as are those whose operations run other programs.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sparsejax import config, forks
from sparsejax.cached import cached_property
from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr, Jaxpr
from sparsejax.core.polynomials import Terms
from sparsejax.core.roads import DEAR
from sparsejax.core.symbolic import LEAST, MOST, Scope, Span, SymbolicDim
from sparsejax.formats import Format
from sparsejax.formats.levels.level import Level
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.graph import resize
from sparsejax.jit.ir import choices
from sparsejax.jit.ir.bounded import Bounded, bound, middle
from sparsejax.jit.runtime import plans
from sparsejax.jit.runtime.alone import Alone
from sparsejax.jit.runtime.domain import Domain, numbers_of
from sparsejax.jit.runtime.kernels import KernelRunner, turn
from sparsejax.jit.runtime.plan import Plan

MEMBERS = 16
"""Traces with symbols that a family has at most: those that a program's guards tell apart."""

Numbers = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The values of a trace's `codes` for some operands, the bits of each, and the shape of the first result."""
Make = Callable[[Sequence[Aval]], tuple[ClosedJaxpr, Any]]
"""Traces a program for operands of these types: the jaxpr, and what else is to be known of it."""


class Record(Protocol):
    """Where traces of a program with symbols are kept for other processes."""

    def recall(
        self, avals: Sequence[Aval], stands: Sequence[int | str], trace: Callable[[], ClosedJaxpr]
    ) -> Member | None:
        """The trace for operands of such types, with these numbers and symbols at their extents, which `trace` makes again."""

    def content(self, storages: Sequence[Storage]) -> str | None:
        """What operands hold, where that decides what steps there are; None where it is too much to be told."""

    def keep(self, member: Member, avals: Sequence[Aval]) -> None:
        """Keep a trace that served operands of such types, if more is known of it than what is kept."""


_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    np.dtype,
    np.generic,
    Format,
    Level,
    frozenset,
    range,
    type,
)


class Resized:
    """A jaxpr for one of the shapes that it serves, as a `ClosedJaxpr`: it is spelled out only for who reads it."""

    def __init__(self, member: Member, values: tuple[int, ...], plan: Plan) -> None:
        self.member, self._values = member, values
        self.consts, self.shared = member.consts, member.shared
        self.cache: dict[Any, Any] = {"plan": plan, "planned": lambda storages: member.plan(values, storages)}
        self._jaxpr: Jaxpr | None = None

    @property
    def jaxpr(self) -> Jaxpr:
        if self._jaxpr is None:
            numbers = dict(zip(self.member.codes, self._values, strict=True))
            self._jaxpr = resize.resized(self.member.closed.jaxpr, _in_place(numbers))
        return self._jaxpr

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        return tuple(v.aval for v in self.jaxpr.inputs)

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        return tuple(a.aval for a in self.jaxpr.outputs)

    def __str__(self) -> str:
        return str(self.jaxpr)

    __repr__ = __str__


class Refused(Exception):
    """A program cannot serve many shapes, for this reason."""


class Solved(Exception):
    """What a program asked says that some symbols are polynomials of others, some of which are new."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(", ".join(scope.solved))
        self.found, self.born = scope.solved, scope.born


class Member:
    """One trace with symbols, and its plans by bucket of sizes."""

    def __init__(
        self, domain: Domain, consts: tuple[Array, ...], shared: bool, extra: Any, trace: Callable[[], ClosedJaxpr]
    ) -> None:
        """What serving operands takes: the domain and the constants of a trace, what else was made with it, and what makes it when it is asked for."""
        self.domain, self.codes, self.consts, self.shared, self.extra = domain, domain.codes, consts, shared, extra
        self._trace = trace
        self.numbers, self.lengths = numbers_of(domain)
        self.alone: dict[Any, Alone] = {}
        """Plans of one kernel, by the bits of the numbers."""
        self.bounds: dict[Any, Plan] = {}
        """Plans, by the bounds of the numbers, and the alternatives that are forced."""
        self._plans: dict[Any, Plan] = {}
        """Those of `bounds`, by the bits of the numbers: the largest that serves these."""
        self.by_facts: dict[Any, tuple[str, Callable[[Sequence[Storage]], Plan | None]]] = {}
        """Of plans of an earlier process that what operands hold decided, what that was, and the plan for such operands."""
        self.held: dict[Any, str] = {}
        """What operands held that decided a plan of `bounds`."""
        self.settled = False
        """Whether plans are for a bucket alone, not for the first of its shapes that comes: bits of results do not depend on which that is."""
        self.kept = 0
        """How many plans of kernels its record has."""
        self._keep: Callable[[], None] | None = None
        self._content: Callable[[Sequence[Storage]], str | None] = lambda storages: None
        self._grown = False
        """Whether something was planned that has not run yet."""

    @staticmethod
    def of(closed: ClosedJaxpr, scope: Scope, stands: Sequence[Any], extra: Any) -> Member:
        """A trace in this scope."""
        clean = ClosedJaxpr(pipeline.cleaned(closed.jaxpr), closed.consts, closed.shared)
        codes = tuple(sorted(_dims(clean.jaxpr, scope)))
        scope.settle(codes)
        outputs = clean.jaxpr.outputs
        first = outputs[0].aval.shape if outputs else ()
        guards = tuple(scope.guards)
        domain = Domain(scope.symbols, _spelled(stands), guards, codes, _spelled(first))
        return Member(domain, clean.consts, clean.shared, extra, lambda: clean)

    @cached_property
    def closed(self) -> ClosedJaxpr:
        """The trace."""
        return self._trace()

    def find(self, extents: Sequence[int]) -> tuple[int, ...] | None:
        """The values of `codes` for operands with these extents; None where the trace does not hold."""
        found = self.numbers(extents)
        return None if found is None else found[0]

    def at(self, values: tuple[int, ...], arrays: Sequence[Any]) -> Resized:
        """The jaxpr, and its plan, for these values of `codes`."""
        storages = [a._storage for a in (*self.consts, *arrays)]
        return Resized(self, values, self.plan(values, storages))

    def plan(self, values: Sequence[int], storages: Sequence[Storage]) -> Plan:
        """The plan for these values of `codes`."""
        plan, change = self._bucket(values, tuple([n.bit_length() for n in values]), storages)
        return plan.resized(change)

    def once(self, numbers: Numbers, given: Sequence[Storage]) -> tuple[list[Array], int]:
        """The results for operands of which nothing is kept, and as how many calls they count."""
        values, lengths, shape = numbers
        consts = self.consts
        storages = [*(c._storage for c in consts), *given] if consts else given
        alone = self.alone.get(lengths)
        if alone is not None:
            result = alone.once(storages, shape)
            if result is not None:
                return result
        try:
            plan, change = self._bucket(values, lengths, storages)
        except Exception as reason:
            raise Refused(f"{type(reason).__name__}: {reason}") from reason
        if alone is None and plan.sizes_alone and not config.forcing:
            self.alone[lengths] = Alone(plan)
        results = plan.once(storages, change)
        if self._grown:
            self.keep()
        # a plan of several steps takes some fifty calls to pay for (28 steps: 4.7 ms against 0.1)
        return results, 1 if plan.count > 1 else DEAR

    def ready(self, numbers: Numbers) -> Callable[[Sequence[Storage]], list[Array] | None] | None:
        """`once` for one shape that comes again and whose plan has several steps, as a function of operands, for as long as there are no other plans: it gives
        None then. None where there is none."""
        (values, lengths, _), plans = numbers, self._plans
        plan = plans.get((lengths, None))
        if plan is None or plan.count < 2 or config.forcing:
            return None
        run = plan.ready(self._bucket(values, lengths, ())[1])
        consts = [c._storage for c in self.consts]
        if run is None:
            return None
        return lambda given: run([*consts, *given] if consts else given) if self._plans is plans else None

    def kept_in(self, record: Record | None, avals: Sequence[Aval]) -> None:
        """From now on, it is kept there, as one that serves operands of such types."""
        if record is not None:
            self._keep, self._content = functools.partial(record.keep, self, avals), record.content

    def keep(self) -> None:
        """Keep its plans for other processes, when they have run."""
        self._grown = False
        if self._keep is not None:
            self._keep()

    def _bucket(
        self, values: Sequence[int], bits: tuple[int, ...], storages: Sequence[Storage]
    ) -> tuple[Plan, resize.Change]:
        """The plan for all shapes like these, which have so many bits, and what gives the extents of this one."""
        lengths = bits, config.forced() if config.forcing else None
        plan = self._plans.get(lengths)
        if plan is None:  # a bound depends on the bits of a number alone
            key = tuple(map(bound, values)), lengths[1]
            plan = self._plans[lengths] = self._serving(key, bits) or self._planned(key, values, storages)
        numbers = dict(zip(self.codes, values, strict=True))
        # what has no number is how many positions a pattern has: read from the operand itself
        return plan, lambda n: numbers.get(n.name, 0) if type(n) is Bounded else n

    def _serving(self, key: Any, bits: Sequence[int]) -> Plan | None:
        """The largest plan there is that serves numbers with these bits and bounds: theirs, or one for buckets that begin with twice as much at most,
        so that sizes on both sides of a bound run the same code."""
        found, most = self.bounds.get(key), key[0]
        for (bounds, forced), plan in list(self.bounds.items()):
            if forced == key[1] and bounds > most and all(map(_is_near, key[0], bounds, bits)):
                found, most = plan, bounds
        return found

    def _planned(self, key: Any, values: Sequence[int], storages: Sequence[Storage]) -> Plan:
        with turn:
            if key not in self.bounds:
                self._plans = {}
                self.bounds[key] = self._by_facts(key, storages) or self.planned(values, storages)
                if self.bounds[key].by_facts and (held := self._content(storages)) is not None:
                    self.held[key] = held
            return self.bounds[key]

    def _by_facts(self, key: Any, storages: Sequence[Storage]) -> Plan | None:
        """The plan of an earlier process that such operands decided, if any."""
        held, plan = self.by_facts.pop(key, ("", None))
        return plan(storages) if plan is not None and self._content(storages) == held else None

    def planned(self, values: Sequence[int], storages: Sequence[Storage] = ()) -> Plan:
        """The plan for all shapes in the bucket of these values, as it is made without a record."""
        self._grown = True
        usual = map(middle, values) if self.settled else values
        bounds = {c: Bounded.named(c, n) for c, n in zip(self.codes, usual, strict=True)}
        jaxpr = resize.resized(self.closed.jaxpr, _in_place(bounds))
        closed = ClosedJaxpr(jaxpr, (), self.shared)
        closed.cache["clean"] = True
        made = plans.planned(closed, storages)
        _check(made, jaxpr, bounds)
        return made


class Family:
    """The traces of one program for operands that differ in their extents alone."""

    def __init__(self, names: Sequence[str | int | None] = ()) -> None:
        """`names` are symbols for some extents from the first call on, and numbers for those that never change."""
        self._names = names
        self._samples: list[tuple[int, ...]] = []
        self._fixed: dict[int, str] = {}
        """Extents that the program needs themselves, by number, with the lines that asked."""
        self._members: list[Member] = []
        self._lock = threading.Lock()
        forks.anew(self, _lock=threading.Lock)
        self.refused = ""
        """Why every shape is traced by itself, if it is."""

    def told(self, paths: Sequence[str]) -> str:
        """What became of the last new shape, in words; `paths` name the extents."""
        if self.refused:
            return f"every shape is traced by itself: {self.refused}"
        fixed = [f"{paths[k]} is needed itself at {line}" for k, line in self._fixed.items()]
        if not self._members:
            return "; ".join(fixed)
        stands = self._members[-1].domain.stands
        free = [f"{paths[k]} = {n}" for k, n in enumerate(stands) if isinstance(n, str)]
        return "; ".join([f"the trace serves all shapes with {', '.join(free)}", *fixed])

    def find(
        self, avals: Sequence[Aval], arrays: Sequence[Any], make: Make, record: Record | None = None
    ) -> tuple[Any, Any] | None:
        """The jaxpr for operands of these types, and what else was made with it; None where this shape is to be traced by itself. A trace that an
        earlier process made is in the `record`."""
        found = self.known(avals, arrays)
        if found is not None or self.refused or not choices.does("symbolic_shapes"):
            return found
        with self._lock:
            return self._grown(_extents(avals), avals, arrays, make, record)

    def once(
        self, extents: tuple[int, ...], storages: Sequence[Storage], serves: Callable[[Any], bool] | None = None
    ) -> tuple[list[Array], Any, int] | None:
        """The results for operands of these extents, what was made with the trace, and as how many calls they count (`roads.FEW`), where one
        `serves` them that is there already: for a shape that is met for the first times, and may be for the last, nothing is kept."""
        if not self._members or config.forcing:
            return None
        for member, numbers in self._holding(extents, serves):
            try:
                results, counted = member.once(numbers, storages)
            except Refused as reason:
                self._refuse(reason.__cause__ or reason)
                return None
            return results, member.extra, counted
        return None

    def ready(
        self, extents: tuple[int, ...], serves: Callable[[Any], bool]
    ) -> tuple[Callable[[Sequence[Storage]], list[Array] | None], Any] | None:
        """`once` for a shape that comes again as a function of operands (`Member.ready`), and what was made with the trace."""
        for member, numbers in self._holding(extents, serves):
            run = member.ready(numbers)
            return None if run is None else (run, member.extra)
        return None

    def alone(
        self,
        extents: tuple[int, ...],
        storages: Sequence[Storage],
        serves: Callable[[Any], bool] | None = None,
    ) -> Array | None:
        """The first result of `once`, which counts as one call, where one kernel is all there is to do and a road to it is known; else None."""
        for member in self._members:
            if not member.alone or (serves is not None and not serves(member.extra)):
                continue
            found = member.lengths(extents)
            if found is None:
                continue
            alone = member.alone.get(found[0])
            if alone is None:
                return None
            settings, roads = alone.roads
            if config.planning() is not settings:
                return None
            if member.consts:
                storages = [*[c._storage for c in member.consts], *storages]
            shape = found[1]
            for direct in roads.known:
                result = direct(storages, shape)
                if result is not None:
                    return made(result, alone.aval.at(shape))
            return None
        return None

    def alone_ready(self, extents: tuple[int, ...]) -> Callable[[list[Storage]], Array | None] | None:
        """`alone` for these extents, of operands like those of its last call, as a function of operands: None where it would ask for another road. None
        where no road is known."""
        for member, (_, lengths, shape) in self._holding(extents):
            alone = member.alone.get(lengths)
            if alone is not None and alone.roads[1].known:
                return alone.at(shape, [c._storage for c in member.consts])
        return None

    def _holding(
        self, extents: tuple[int, ...], serves: Callable[[Any], bool] | None = None
    ) -> Iterator[tuple[Member, Numbers]]:
        """The traces that hold for these extents and serve, with the numbers."""
        for member in self._members:
            if serves is None or serves(member.extra):
                found = member.numbers(extents)
                if found is not None:
                    yield member, found

    def known(self, avals: Sequence[Aval], arrays: Sequence[Any]) -> tuple[Any, Any] | None:
        """As `find`, where a trace serves these types that is there already."""
        if not self._members or not choices.does("symbolic_shapes"):
            return None
        for member, (values, *_) in self._holding(_extents(avals)):
            return self._at(member, values, arrays)
        return None

    def _at(self, member: Member, values: tuple[int, ...], arrays: Sequence[Any]) -> tuple[Any, Any] | None:
        try:
            return member.at(values, arrays), member.extra
        except Exception as reason:
            self._refuse(reason)
            return None

    def _refuse(self, reason: BaseException) -> None:
        """Trace every shape by itself from now on; what is wrong with the program itself, its own trace will say."""
        self.refused, self._members = f"{type(reason).__name__}: {reason}", []

    def _grown(
        self, extents: tuple[int, ...], avals: Sequence[Aval], arrays: Sequence[Any], make: Make, record: Record | None
    ) -> tuple[Any, Any] | None:
        """As `find`, with a new trace, if there is to be one."""
        first = not self._samples
        self._samples = [*self._samples, extents][-8:]
        if first and not any(type(n) is str for n in self._names):
            with choices.drawing("shapes", extents):
                if choices.pick("shapes", ("fixed", "symbolic"), "fixed") == "fixed":
                    return None
            self._samples.insert(0, tuple(-n for n in extents))  # as if all of them had been others before
        solved: dict[str, Terms] = {}
        born: dict[str, tuple[int, str]] = {}
        now = set[int]()  # equal to an extent that was the same in all calls so far: no symbols in this one
        while True:
            places = self._places(extents, avals, now)
            free = {*born, *(p for p in places if isinstance(p, str))} - set(solved)
            if not free or len(self._members) >= MEMBERS:
                return None
            again = functools.partial(self._traced, places, solved, born, extents, avals, make)
            known = (
                None if record is None or solved else record.recall(avals, places, functools.partial(_closed, again))
            )
            try:
                member = again() if known is None or known.find(extents) is None else known
            except Solved as more:
                if any(n < LEAST for n, _ in more.born.values()):
                    return None
                solved |= {name: terms for name, (terms, _) in more.found.items()}
                born |= more.born
                fixed = {name: line for name, (terms, line) in more.found.items() if not any(a for a, _ in terms)}
                for name, line in fixed.items():
                    while name in born:
                        name = born[name][1]
                    asked = [k for k, place in enumerate(places) if place == name]
                    if asked and extents[asked[0]] in places:
                        now |= {*asked}
                    else:
                        self._fixed |= dict.fromkeys(asked, line)
                if fixed:  # what is left has other names
                    solved, born = {}, {}
                continue
            except Refused as reason:
                self.refused = str(reason)
                return None
            break
        values = member.find(extents)
        if values is None:
            return None
        member.settled = any(type(n) is str for n in self._names)
        member.kept_in(None if solved else record, avals)
        self._members.append(member)
        return self._at(member, values, arrays)

    def _places(self, extents: tuple[int, ...], avals: Sequence[Aval], now: Collection[int]) -> list[int | str]:
        """What stands at every extent: a number, as for those that are fixed or are `now`, or the name of a symbol."""
        names: dict[Any, str] = {}
        blocked = [n > 1 for a in avals for n in (a.format.blocks or (1,) * a.ndim)]
        made: list[int | str] = []
        for k, n in enumerate(extents):
            seen = tuple(s[k] for s in self._samples)
            name = self._names[k] if k < len(self._names) else None
            if type(name) is str and LEAST <= n <= MOST and k not in self._fixed and k not in now:
                made.append(name)
            elif (
                type(name) is int
                or k in self._fixed
                or k in now
                or blocked[k]
                or len(set(seen)) == 1
                or not LEAST <= n <= MOST
            ):
                made.append(n)
            else:
                made.append(names.setdefault(seen, f"n{len(names)}"))
        return made

    def _traced(
        self,
        places: Sequence[int | str],
        solved: dict[str, Terms],
        born: Mapping[str, tuple[int, str]],
        extents: Sequence[int],
        avals: Sequence[Aval],
        make: Make,
    ) -> Member:
        values = {p: n for p, n in zip(places, extents, strict=True) if isinstance(p, str)}
        numbers = values | {name: n for name, (n, _) in born.items()}
        scope = Scope({name: n for name, n in numbers.items() if name not in solved})
        known = {name: scope.put(((((name,), 1),)), solved) for name in values}
        stands = [SymbolicDim(scope, known[p]) if isinstance(p, str) else p for p in places]
        given = iter(stands)
        symbolic = [a.resized(lambda _: next(given)) for a in avals]
        refused: Exception | None = None
        try:
            closed, extra = make(symbolic)
            member = Member.of(closed, scope, stands, extra)
        except Exception as error:
            refused = error
        if scope.solved:
            raise Solved(scope) from refused
        if refused is not None:
            raise Refused(f"{type(refused).__name__}: {refused}") from refused
        return member


def _is_near(own: int, other: int, bits: int) -> bool:
    """Whether a number with so many bits, and a bound of its own, may be told by another bound: the next one, where half of the number's bucket lies below
    it. Coordinates are of one type up to both."""
    return own == other or (bits == own.bit_length() < 31 and bound(own + 1) == other)


def _closed(traced: Callable[[], Member]) -> ClosedJaxpr:
    return traced().closed


def _extents(avals: Sequence[Aval]) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable([a.shape for a in avals]))


def _check(plan: Plan, jaxpr: Jaxpr, bounds: Mapping[str, int]) -> None:
    """Refused where a pass of the compiler made a number of a bound: the plan would be for one shape."""
    written: set[int] = set()
    resize.numbers_in(
        (tuple(v.aval.shape for e in jaxpr.eqns for v in (*e.inputs, *e.outputs)), [e.params for e in jaxpr.eqns]),
        written,
    )
    made: set[int] = set()
    for step in plan.steps:
        if isinstance(step, KernelRunner):
            resize.numbers_in(step.output.shape, made)
        else:
            resize.numbers_in((tuple(v.aval.shape for v in step.outputs), step.eqn.params), made)
    lost = (made - written) & {int(n) for n in bounds.values()}
    if lost:
        raise Refused(f"a pass of the compiler needs the extents that are at most {lost}")


def _in_place(numbers: Mapping[str, int]) -> resize.Change:
    """Numbers in the place of symbols and their expressions."""
    return lambda n: numbers[n.code] if type(n) is SymbolicDim else n


def _dims(jaxpr: Jaxpr, scope: Scope) -> set[str]:
    """All extents that are expressions, as Python spells them; Refused where some might be overlooked. Those in blocks are to stay: how many blocks
    there are, and how much of the last one counts, are written into kernels."""
    found: set[str] = set()

    def look(value: Any, what: str) -> None:
        if isinstance(value, SymbolicDim):
            found.add(value.code)
        elif type(value) is tuple:
            for v in value:
                look(v, what)
        elif type(value) is Span:
            look((value.start, value.stop, value.step), what)
        elif type(value) is Aval:
            look(value.shape, what)
        elif type(value) is ClosedJaxpr:
            found.update(_dims(value.jaxpr, scope))
        elif resize.fields_of(type(value)):
            for name in resize.fields_of(type(value)):
                look(getattr(value, name), what)
        elif not isinstance(value, _PLAIN):
            raise Refused(f"{what} runs other programs or has parameters of type {type(value).__name__}")

    made = [(v, e.source) for e in jaxpr.eqns for v in e.outputs]
    for var, line in (*((v, "an argument in blocks") for v in jaxpr.inputs), *made):
        look(var.aval.shape, "")
        for extent, size in zip(var.aval.shape, var.aval.format.blocks, strict=True):
            if size > 1 and isinstance(extent, SymbolicDim):
                scope.pin(extent.terms, line)
    for eqn in jaxpr.eqns:
        look(eqn.params, f"{eqn.primitive.name} ({eqn.source})")
    return found


def _spelled(extents: Sequence[Any]) -> tuple[int | str, ...]:
    return tuple([n.code if isinstance(n, SymbolicDim) else n for n in extents])
