"""Plans of jaxprs: which steps there are, in which registers, made once; and what runs a jaxpr."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sparsejax import config
from sparsejax.core.array import Array, delete, made
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from sparsejax.core.primitive import Primitive
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.graph import guards, partition, reassociate, static_constants
from sparsejax.jit.runtime import donation, library_call, sequence
from sparsejax.jit.runtime.kernels import KernelRunner, turn
from sparsejax.jit.runtime.plan import Plan, made_once


class Seen(Mapping[Var, Storage]):
    """What the operands of a first call hold, and whether somebody has looked."""

    def __init__(self, known: Mapping[Var, Storage]) -> None:
        self._known, self.seen = known, False

    def __getitem__(self, var: Var) -> Storage:
        self.seen = True
        return self._known[var]

    def __iter__(self) -> Iterator[Var]:
        self.seen = True
        return iter(self._known)

    def __len__(self) -> int:
        self.seen = True
        return len(self._known)


class Program:
    """The program that a plan is of."""

    def __init__(self, jaxpr: Jaxpr, shared: bool) -> None:
        self._jaxpr, self._shared = jaxpr, shared
        self._written: Plan | None = None

    @property
    def jaxpr(self) -> Jaxpr:
        return self._jaxpr

    def written(self, storages: Sequence[Storage]) -> Plan:
        """The plan of the program as it is written."""
        with turn:
            if self._written is None:
                self._written = planned(ClosedJaxpr(self._jaxpr, (), self._shared), storages, None)
        return self._written


def planned(
    closed: ClosedJaxpr,
    storages: Sequence[Storage] = (),
    refused: frozenset[Var] | None = frozenset(),
    constants: Mapping[int, Storage] | None = None,
) -> Plan:
    """The plan of a jaxpr. `storages` are those of a first call: what they hold decides which kernels are merged (`fuse_reductions`). Products that
    are `refused` are associated as the program says, or all of them (None). `constants` are inputs, by number, that never change."""
    jaxpr = closed.jaxpr if "clean" in closed.cache else pipeline.cleaned(closed.jaxpr)
    operands = (*jaxpr.consts, *jaxpr.inputs)
    fixed = {} if closed.shared else dict(zip(jaxpr.consts, [c._storage for c in closed.consts]))
    fixed |= {jaxpr.inputs[k]: s for k, s in (constants or {}).items()}
    notes: list[reassociate.Chosen] = []
    observed = Seen(dict(zip(operands, storages, strict=False)))
    steps = closed.cache.get("steps")
    if not steps:
        steps, notes = pipeline.steps_of(jaxpr, observed, refused, fixed)
    numbers = {var: k for k, var in enumerate(operands)}
    atoms: list[Sequence[Atom]] = [s.arguments if isinstance(s, partition.KernelStep) else s.eqn.inputs for s in steps]
    first = len(operands) + sum(isinstance(a, Literal) for given in (*atoms, jaxpr.outputs) for a in given)
    registers: list[range] = []
    for step in steps:
        numbers.update(zip(step.outputs, itertools.count(first)))
        registers.append(range(first, first + len(step.outputs)))
        first += len(step.outputs)
    lost = {n.output for n in notes if any(c.var not in numbers for c in n.checks)}
    if refused is not None and lost:
        return planned(closed, storages, refused | lost, constants)
    checks = [c for n in notes for c in n.checks]
    placed = guards.placed(checks, numbers, registers) if checks else guards.NOTHING
    literals: list[Storage] = []

    def number(atom: Atom) -> int:
        if isinstance(atom, Var):
            return numbers[atom]
        literals.append(_literal(atom))
        return len(operands) + len(literals) - 1

    *reads, results = [tuple([number(a) for a in given]) for given in (*atoms, jaxpr.outputs)]
    last = {k: n for n, given in enumerate(reads) for k in given}
    passing = {k for own in registers for k in own} - set(results)
    fresh: set[int] = set()
    for step, given, own in zip(steps, reads, registers, strict=True):
        anew = isinstance(step, partition.KernelStep) or library_call.writes(step.eqn) is not None
        if anew or (given and fresh.issuperset(given)):
            fresh.update(own)
    layout = sequence.Layout(
        len(operands),
        len(literals),
        tuple(reads),
        tuple(map(tuple, registers)),
        tuple([isinstance(s, partition.CallStep) and library_call.is_several(s.eqn) for s in steps]),
        tuple([tuple([k for k in dict.fromkeys(r) if k in passing and last[k] == n]) for n, r in enumerate(reads)]),
        results,
        tuple([tuple(placed.before.get(n, ())) for n in range(len(steps))]),
    )
    program = Program(jaxpr, closed.shared)
    calls = ((k, s.eqn) for k, s in enumerate(steps) if isinstance(s, partition.CallStep))
    return Plan(
        layout,
        _runners(steps, closed.shared),
        literals,
        [a.aval.strong() for a in jaxpr.outputs],
        fresh.issuperset(results) and not placed.before,
        observed.seen,
        {k: made_once(_plans_of, eqn, fixed) for k, eqn in calls if eqn.primitive.bodies is not None},
        lambda: program,
    )


def _runners(steps: Sequence[partition.Step], shared: bool) -> list[KernelRunner | partition.CallStep]:
    """The steps, ready to run."""
    computed: set[Var] = set()
    for s in steps:
        computed.update(partition.made_anew(s, computed))
    anew = frozenset(computed)
    return [KernelRunner.of(s, shared, anew) if isinstance(s, partition.KernelStep) else s for s in steps]


def _literal(literal: Literal) -> Storage:
    value = np.asarray(literal.value, literal.aval.dtype).reshape(1)
    return Storage(Format(()), (), literal.aval.dtype.type(0), (), value)


def _plans_of(eqn: Eqn, constants: Mapping[Var, Storage]) -> list[Plan]:
    """The plans of the jaxprs that an operation runs; those that read constants of few entries are its own (`static_constants`)."""
    kept = [()] * len(eqn.bodies) if eqn.primitive.kept is None else eqn.primitive.kept(**eqn.param_dict)
    made = []
    for body, numbers in zip(eqn.bodies, kept, strict=True):
        read = [(k, constants.get(v)) for k, v in enumerate(eqn.inputs[n] for n in numbers) if isinstance(v, Var)]
        few = {k: s for k, s in read if s is not None and static_constants.is_constant(s)}
        with turn:
            made.append(planned(body, constants=few) if few and "planned" not in body.cache else plan_of(body))
    return made


def plan_of(closed: ClosedJaxpr, storages: Sequence[Storage] = ()) -> Plan:
    """The plan of a jaxpr, made once."""
    name = "plan" if not config.forcing or (forced := config.forced()) is None else ("plan", forced)
    known: Plan | None = closed.cache.get(name)
    if known is not None:
        return known
    with turn:
        known = closed.cache.get(name)
        if known is None:
            given = closed.cache.get("planned")  # a jaxpr for one of many shapes (`shapes`)
            known = closed.cache[name] = planned(closed, storages) if given is None else given(storages)
    return known


def directly(primitive: Primitive, arrays: Sequence[Array], aval: Aval, params: dict[str, Any]) -> Array:
    """The result of one library call, of this type, without a plan."""
    assert primitive.call is not None
    storages = [a._storage for a in arrays]
    (result,) = library_call.all_owned([primitive.call(*storages, out_aval=aval, **params)], storages)
    return made(result, aval.strong())


def execute(closed: ClosedJaxpr, arrays: Sequence[Array], donated: Collection[int] = ()) -> list[Array]:
    """Run `closed` on its inputs (constants are its own). Those that are `donated`, by number, are deleted."""
    spare = {k for k in donated if donation.is_sole(arrays[k])} if donated else ()
    storages = [a._storage for a in ((*closed.consts, *arrays) if closed.consts else arrays)]
    plan: Plan | None = None if config.forcing else closed.cache.get("plan")
    plan = plan or plan_of(closed, storages)
    for k in donated:
        delete(arrays[k])
    first = len(closed.consts)
    results = plan.outcome(storages, {first + k: storages[first + k] for k in spare} if spare else None)
    return list(map(made, results, plan.out_avals))
