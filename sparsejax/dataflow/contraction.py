"""What a traced function contracts: its operands as patterns, its loop variables by the names that `explain` prints.

Contraction   inputs: the variables of every operand, output: those of the result; extents; patterns
of(f, args)   reads the jaxpr of `f`: transposes, conversions and casts of operands, then one contraction (or several, each of
              which reads the one before, as `einsum` plans them), then the same of its result
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsejax.core.jaxpr import Eqn, Jaxpr, Literal, Var
from sparsejax.dataflow.pattern import Pattern, pattern_of
from sparsejax.errors import ScheduleError
from sparsejax.formats.storage import Storage
from sparsejax.jit import api
from sparsejax.jit.function import JitFunction

Labels = tuple[int, ...]
LETTERS = "ijklmnopqrstuvwxyz"
NAMES = "ABCDEFGHKLMNPQRSTUVXYZ"
SAME_PATTERN = ("convert_format", "cast")
"""Operations on one operand that keep where its entries are."""


@dataclass(frozen=True)
class Contraction:
    """`out[output] = sum of products of operands`, as the contraction sees them: `inputs` holds the variables of every operand, transposed as
    the function transposes it, and `stored` those of the array that is given."""

    inputs: tuple[tuple[str, ...], ...]
    output: tuple[str, ...]
    extents: dict[str, int]
    storages: tuple[Storage, ...] = field(repr=False)
    stored: tuple[tuple[str, ...], ...]
    _patterns: dict[tuple[int, tuple[str, ...]], Pattern] = field(default_factory=dict, init=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operands, as `explain` gives them, then of the output."""
        return (*NAMES[: len(self.inputs)], "out")

    @property
    def reduced(self) -> tuple[str, ...]:
        """The variables that are summed over."""
        return tuple(v for v in self.extents if v not in self.output)

    @property
    def default_order(self) -> tuple[str, ...]:
        """The variables of the first operand, then the others: i,k,j for a product of matrices."""
        return tuple(dict.fromkeys(v for vs in (*self.inputs, self.output) for v in vs))

    def pattern(self, operand: int, variables: tuple[str, ...]) -> Pattern:
        """Where an operand has entries, sorted by `variables`."""
        key = operand, variables
        if key not in self._patterns:
            self._patterns[key] = pattern_of(self.storages[operand], self.stored[operand], variables)
        return self._patterns[key]

    def __str__(self) -> str:
        terms = [f"{n}[{','.join(vs)}]" for n, vs in zip(self.names, (*self.inputs, self.output), strict=True)]
        return f"{terms[-1]} = {' * '.join(terms[:-1])}"


@dataclass
class _Value:
    """A value of the jaxpr: a product of leaves, each with its labels, and these in the order in which a contraction reads them, summed over
    all labels that are not in `output`."""

    terms: list[tuple[Var, Labels, Labels]]
    output: Labels


def traceable(function: Callable[..., Any]) -> JitFunction[Any]:
    """`function`, which is traced once per type of its arguments."""
    return function if isinstance(function, JitFunction) else api.jit(function)


def of(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Contraction:
    """The contraction that `function` computes for these arguments. ScheduleError where it is none, with the reason."""
    if not callable(function):
        raise TypeError(
            f"a function is analysed, but this is of type {type(function).__name__}; write lambda A, B: A @ B"
        )
    traced = traceable(function).trace(*args, **kwargs)
    closed = traced.jaxpr
    given = dict(zip((*closed.jaxpr.consts, *closed.jaxpr.inputs), (*closed.consts, *traced._leaves), strict=True))
    value = _value_of(closed.jaxpr)
    storages = []
    for var, *_ in value.terms:
        if not hasattr(given[var], "storage"):
            raise TypeError("traffic depends on where the entries are: pass arrays, not ShapeDtypeStruct")
        storages.append(given[var].storage)
    return _named(value, storages)


def _value_of(jaxpr: Jaxpr) -> _Value:
    """The one result of a jaxpr as a sum of products of its inputs."""
    if len(jaxpr.outputs) != 1:
        raise ScheduleError(
            f"traffic is analysed of one contraction, but the function has {len(jaxpr.outputs)} results"
        )
    (out,) = jaxpr.outputs
    fresh = _Fresh()
    known: dict[Var, _Value] = {}
    for var in (*jaxpr.consts, *jaxpr.inputs):
        labels = fresh.take(len(var.aval.shape))
        known[var] = _Value([(var, labels, labels)], labels)
    for eqn in jaxpr.eqns:
        known[eqn.outputs[0]] = _step(eqn, known, fresh)
    if isinstance(out, Literal) or len(known[out].terms) < 2:
        raise ScheduleError(
            "traffic is analysed of a contraction of two or three operands; the function contracts nothing"
        )
    return known[out]


class _Fresh:
    """Labels that nobody has."""

    def __init__(self) -> None:
        self.next = 0

    def take(self, count: int) -> Labels:
        self.next += count
        return tuple(range(self.next - count, self.next))


def _step(eqn: Eqn, known: dict[Var, _Value], fresh: _Fresh) -> _Value:
    name, params = eqn.primitive.name, eqn.param_dict
    operands = [None if isinstance(a, Literal) else known[a] for a in eqn.inputs]
    if name == "transpose" and operands[0] is not None:
        turned = tuple(operands[0].output[a] for a in params["axes"])
        terms = operands[0].terms
        return _Value([(*terms[0][:2], turned)] if len(terms) == 1 else terms, turned)
    if name in SAME_PATTERN and operands[0] is not None:
        return operands[0]
    if name != "contract" or None in operands:
        at = f" ({eqn.source})" if eqn.source else ""
        raise ScheduleError(
            f"traffic is analysed of one contraction (matmul, einsum) of the arguments, but the function also runs {name!r}{at}; "
            "take that out of the function"
        )
    if params.get("mask") is not None:
        raise ScheduleError(
            "traffic is not analysed of masked contractions: a mask is an operand that nobody multiplies with"
        )
    return _contracted([o for o in operands if o is not None], params["inputs"], params["output"], eqn, fresh)


def _contracted(operands: list[_Value], inputs: Sequence[Labels], output: Labels, eqn: Eqn, fresh: _Fresh) -> _Value:
    """A contraction of values that may be contractions: one sum of products."""
    whole: dict[int, int] = {}
    for atom, labels in zip(eqn.inputs, inputs, strict=True):
        for extent, label in zip(atom.aval.shape, labels, strict=True):
            whole[label] = max(extent, whole.get(label, extent)) if whole.get(label) != 0 else 0
    names = dict(zip(whole, fresh.take(len(whole)), strict=True))
    terms: list[tuple[Var, Labels, Labels]] = []
    for k, (value, labels, atom) in enumerate(zip(operands, inputs, eqn.inputs, strict=True)):
        if len(set(labels)) < len(labels):
            raise ScheduleError(f"operand {k} is read along a diagonal, which tiles do not follow; extract it first")
        if any(n != whole[x] for n, x in zip(atom.aval.shape, labels, strict=True)):
            raise ScheduleError(
                f"operand {k} is broadcast over a variable of the contraction; give it its full shape first"
            )
        inner = {x for _, ls, _ in value.terms for x in ls} - set(value.output)
        moved = dict(zip(value.output, (names[x] for x in labels), strict=True))
        moved |= dict(zip(sorted(inner), fresh.take(len(inner)), strict=True))
        terms += [(var, tuple(moved[x] for x in ls), tuple(moved[x] for x in seen)) for var, ls, seen in value.terms]
    return _Value(terms, tuple(names[x] for x in output))


def _named(value: _Value, storages: Sequence[Storage]) -> Contraction:
    """Output variables i, j, ..., then the others in the order of the operands; checked."""
    labels = list(dict.fromkeys((*value.output, *(x for _, _, ls in value.terms for x in ls))))
    names = {label: LETTERS[k] if k < len(LETTERS) else f"i{k}" for k, label in enumerate(labels)}
    stored = tuple(tuple(names[x] for x in ls) for _, ls, _ in value.terms)
    inputs = tuple(tuple(names[x] for x in ls) for _, _, ls in value.terms)
    output = tuple(names[x] for x in value.output)
    extents = {names[x]: 0 for x in labels}
    for vs, storage in zip(stored, storages, strict=True):
        extents.update(zip(vs, storage.shape, strict=True))
    made = Contraction(inputs, output, extents, tuple(storages), stored)
    _check(made)
    return made


def _check(made: Contraction) -> None:
    for name, variables, storage in zip(made.names, made.inputs, made.storages, strict=False):
        if not variables:
            raise ScheduleError(f"operand {name} of {made} is a scalar, which has no tiles; multiply with it outside")
        if storage.fill_value != 0 or np.isnan(storage.fill_value):
            raise ScheduleError(
                f"operand {name} of {made} reads {storage.fill_value} where nothing is stored, so that every tile takes part; "
                "give it the fill 0"
            )
    if len(made.inputs) > 3:
        raise ScheduleError(
            f"{made} has {len(made.inputs)} operands; traffic is analysed of two, or of the three of MTTKRP"
        )
    if len(made.inputs) == 3 and not _is_mttkrp(made):
        raise ScheduleError(
            f"{made} is not the product that traffic is analysed of with three operands, MTTKRP: "
            "out[i,j] = A[i,k,l] * B[j,k] * C[j,l]"
        )
    alone = [v for v in made.reduced if sum(v in vs for vs in made.inputs) < 2]
    if alone:
        raise ScheduleError(f"{alone[0]} of {made} is summed over in one operand alone; sum that first")


def _is_mttkrp(made: Contraction) -> bool:
    """Whether the first operand has a variable of its own and one with each of the others, which share one."""
    first, *others = (set(vs) for vs in made.inputs)
    shared = others[0] & others[1]
    return (
        len(shared) == 1
        and not shared & first
        and all(len(o) == 2 and len(o & first) == 1 for o in others)
        and set(made.output) == (first - others[0] - others[1]) | shared
    )
