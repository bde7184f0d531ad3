"""Plans that measure: where another legal alternative may be faster than what was found cheapest, both are run, and the faster one stays.

    listed     every choice that planning met, with its legal alternatives            tile: plain, tiled        rows: whole, blocks
    priced     plans with one other alternative each; those above `NEAR` times the price of the chosen plan, and those whose
               machine code is the same, are left out
    timed      in turns with the chosen plan, on the operands of the first call; the fastest that gains more than `LEAST` is taken,
               and the others that gained are tried on top of it
    recorded   with what was planned, the facts that it depends on, the host and the number of threads

Alternatives compete if their results have equal bits: those of the choices in `alternatives.EXACT`, which tests hold to that, as long as
they have equal bits on these operands too; with "any", all of them. From the record on, a program is planned in the same way in every process.
"""

from __future__ import annotations

import json
import statistics as numbers
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparsejax import config
from sparsejax.alternatives import EXACT
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.errors import FormatError, ScheduleError
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.backend import object_cache, records
from sparsejax.jit.cost import machine, statistics
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime import plans
from sparsejax.jit.runtime.kernels import KernelRunner, turn
from sparsejax.jit.runtime.plan import Plan
from sparsejax.jit.runtime.system import threads

NEAR, LEAST = 3.0, 1.05
"""How many times the price of the chosen plan an alternative may have; and how many times as fast it must be to take its place."""
ROUNDS, HOPELESS, BUDGET = 9, 1.5, 10.0
"""Runs of each of two plans; how many times as long as the chosen one a plan may take in its first runs; seconds that tuning may take."""


@dataclass(frozen=True)
class Tuned:
    """What was measured: how the plan is chosen, how many times as fast it is as the cheapest, and how many plans were timed."""

    choose: str
    gain: float
    timed: int

    def __str__(self) -> str:
        return f"{self.choose}: {self.gain:.2f} times as fast, of {self.timed} plans that were timed"


@dataclass
class Candidate:
    """A plan, with the texts of its kernels and what it is expected to cost."""

    choose: str
    plan: Plan
    price: float
    texts: tuple[str, ...]
    times: list[float] = field(default_factory=list)


def settle(closed: ClosedJaxpr, storages: Sequence[Storage], any_bits: bool) -> Tuned:
    """Give a traced program the plan that is fastest on these operands (constants first): as recorded, or measured now."""
    with turn:
        known: Tuned | None = closed.cache.get("tuned")
        if known is None:
            key = _key(closed, storages, any_bits)
            known = _load(key) or _store(key, _measured(closed, storages, any_bits))
            closed.cache["plan"] = _plan(closed, storages, known.choose)
            closed.cache["tuned"] = known
    return known


def _plan(closed: ClosedJaxpr, storages: Sequence[Storage], choose: str) -> Plan:
    """The plan with these alternatives, now and whenever a kernel of it is planned for other facts."""
    with config.using(choose=choose):
        plan = plans.planned(closed, storages)
    plan.chosen(choose)
    return plan


def _measured(closed: ClosedJaxpr, storages: Sequence[Storage], any_bits: bool) -> Tuned:
    deadline = time.perf_counter() + BUDGET
    ways: dict[tuple[str, str], None] = {}
    with choices.listening(ways):
        cheapest = _candidate(closed, storages, "auto")
    assert cheapest is not None
    wanted, tried, timed = _results(cheapest, storages), {cheapest.texts}, 1
    gains: list[tuple[float, str]] = []

    def gain(choose: str) -> float:
        """How many times as fast the plan is; 0 where it takes no part."""
        nonlocal timed
        made = _candidate(closed, storages, choose)
        if made is None or made.texts in tried or made.price > NEAR * cheapest.price:
            return 0.0
        tried.add(made.texts)
        results = _results(made, storages)
        if not any_bits and not all(map(_same_bits, results, wanted)):
            return 0.0
        timed += 1
        first = _ratio(cheapest, made, storages)
        return (
            first if first <= LEAST else min(first, _ratio(cheapest, made, storages))
        )  # one lucky round decides nothing

    for choice, way in ways:
        if (any_bits or choice in EXACT) and time.perf_counter() < deadline:
            found = gain(f"{choice}={way}")
            if found > LEAST:
                gains.append((found, f"{choice}={way}"))
    gains.sort(reverse=True)
    best, choose = gains[0] if gains else (1.0, "auto")
    for _, other in gains[1:]:
        if other.partition("=")[0] not in choose and time.perf_counter() < deadline:
            found = gain(f"{choose},{other}")
            if found > LEAST * best:
                best, choose = found, f"{choose},{other}"
    return Tuned(choose, best, timed)


def _candidate(closed: ClosedJaxpr, storages: Sequence[Storage], choose: str) -> Candidate | None:
    """The plan with these alternatives; None where there is none."""
    try:
        plan = _plan(closed, storages, choose)
        price, texts = 0.0, []
        with config.using(choose=choose):
            for step in _kernels(plan, storages):
                schedule, text = step
                price += schedule + machine.current().call
                texts.append(text)
    except (FormatError, ScheduleError):
        return None
    return Candidate(choose, plan, price, (*texts, *(_spelled(s) for s in plan.steps)))


def _spelled(step: Any) -> str:
    """What tells one step of a plan from another; of programs that it runs and that were made as steps, these."""
    eqn = None if isinstance(step, KernelRunner) else getattr(step, "eqn", None)
    if eqn is None:
        return "kernel" if isinstance(step, KernelRunner) else str(step)
    made = [str(getattr(s, "nest", s)) for body in eqn.bodies for s in body.cache.get("steps", ())]
    return f"{eqn.primitive.name} {made}" if made else str(eqn)


def _kernels(plan: Plan, storages: Sequence[Storage]) -> Iterator[tuple[float, str]]:
    """The price and the text of every kernel, as planned for the operands that it gets."""
    registers = plan.registers(storages)
    for number, step in enumerate(plan.steps):
        inputs = plan.step(number, registers)
        if isinstance(step, KernelRunner):
            runner, given = step.actual(inputs)
            with choices.drawing("kernel", runner.planner.step.nest):
                schedule, program = runner.planner.schedule(runner.observe(given))
                yield schedule.cost.running, pipeline.text_of(program)


def _results(made: Candidate, storages: Sequence[Storage]) -> list[Storage]:
    return list(made.plan.run(storages))


def _same_bits(one: Storage, other: Storage) -> bool:
    """Whether two arrays of one type hold the same bytes."""
    arrays = [[*(b for level in s.buffers for b in level), s.vals] for s in (one, other)]
    return one.format == other.format and all(a.tobytes() == b.tobytes() for a, b in zip(*arrays, strict=True))


def _ratio(cheapest: Candidate, other: Candidate, storages: Sequence[Storage]) -> float:
    """How many times as fast the other one runs: the median of the ratios of runs in turns, short ones several at a time."""

    def seconds(run: Callable[[Sequence[Storage]], object], repeats: int = 1) -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            run(storages)
        return (time.perf_counter() - started) / repeats

    mine, others = cheapest.plan.run, other.plan.run
    first = min(seconds(mine) for _ in range(3)), min(seconds(others) for _ in range(3))
    if first[1] > HOPELESS * first[0]:
        return 0.0
    repeats = max(1, int(2e-4 / max(first[0], 1e-7)))
    return numbers.median(seconds(mine, repeats) / seconds(others, repeats) for _ in range(ROUNDS))


def _key(closed: ClosedJaxpr, storages: Sequence[Storage], any_bits: bool) -> str:
    facts = [(s.format, s.shape, statistics.positions(s)) for s in storages]
    settings = any_bits, threads.count(), config.planning(), machine.current()
    return object_cache.named(f"tuned {settings!r} {facts!r}\n{closed.jaxpr}")


def _load(key: str) -> Tuned | None:
    cache = records.active()
    record = None if cache is None else cache.load(key)
    try:
        return None if record is None else Tuned(**json.loads(record))
    except (ValueError, TypeError):  # not written by these sources, whatever its key says
        return None


def _store(key: str, found: Tuned) -> Tuned:
    cache = records.active()
    if cache is not None:
        cache.store(key, json.dumps(vars(found)).encode())
    return found
