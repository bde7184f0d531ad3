"""From functions to jaxprs, and clean-up of jaxprs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparsejax import config
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var, check_jaxpr, substitute
from sparsejax.core.trace import tracing


def trace_to_jaxpr(function: Callable[..., Sequence[Any]], avals: Sequence[Aval]) -> ClosedJaxpr:
    """Run `function` (flat: arrays in, list of arrays out) on tracers of the given types and write down what it does."""
    with tracing(captures=True) as trace:
        inputs = [trace.input(a) for a in avals]
        outputs = list(function(*inputs))
        jaxpr, consts = trace.finish(inputs, outputs)
    if config.check_jaxprs():
        check_jaxpr(jaxpr)
    return ClosedJaxpr(jaxpr, consts)


def dead_code(jaxpr: Jaxpr) -> Jaxpr:
    """Drop equations whose results nobody reads.

    before:  b = sin a; c = exp a; in (c,)       after:  c = exp a; in (c,)
    """
    needed: set[Var] = {a for a in jaxpr.outputs if isinstance(a, Var)}
    kept: list[Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        if any(v in needed for v in eqn.outputs):
            kept.append(eqn)
            needed.update(a for a in eqn.inputs if isinstance(a, Var))
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(reversed(kept)), jaxpr.outputs)


def common_subexpressions(jaxpr: Jaxpr) -> Jaxpr:
    """Compute equal equations once.

    before:  b = exp a; c = exp a; d = add b c      after:  b = exp a; d = add b b
    """
    env: dict[Var, Atom] = {}
    seen: dict[Any, Var] = {}
    kept: list[Eqn] = []
    for eqn in jaxpr.eqns:
        inputs = substitute(eqn.inputs, env)
        key = (eqn.primitive, eqn.params, tuple(_key(a) for a in inputs))
        if key in seen:
            env[eqn.outputs[0]] = seen[key]
            continue
        seen[key] = eqn.outputs[0]
        kept.append(Eqn(eqn.primitive, inputs, eqn.params, eqn.outputs, eqn.source))
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(kept), substitute(jaxpr.outputs, env))


def _key(atom: Atom) -> Any:
    return (type(atom.value), repr(atom.value)) if isinstance(atom, Literal) else atom


def clean(jaxpr: Jaxpr) -> Jaxpr:
    """Both clean-ups, in order."""
    return dead_code(common_subexpressions(jaxpr))
