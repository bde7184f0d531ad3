"""From functions to jaxprs, and clean-up of jaxprs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Container, Sequence
from typing import Any

from sparsejax import config, forks
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var, check_jaxpr, substitute
from sparsejax.core.primitive import Primitive, execute, forget
from sparsejax.core.trace import current, tracing


def trace_to_jaxpr(function: Callable[..., Sequence[Any]], avals: Sequence[Aval]) -> ClosedJaxpr:
    """Run `function` (flat: arrays in, list of arrays out) on tracers of the given types and write down what it does."""
    with tracing(captures=True) as trace:
        inputs = [trace.input(a) for a in avals]
        outputs = list(function(*inputs))
        jaxpr, consts = trace.finish(inputs, outputs)
    if config.check_jaxprs():
        check_jaxpr(jaxpr)
    return ClosedJaxpr(jaxpr, consts)


def bind_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """Run `jaxpr` equation by equation: recorded in the current trace."""
    env: dict[Atom, Any] = dict(zip((*jaxpr.consts, *jaxpr.inputs), (*consts, *args), strict=True))
    bind_eqns(jaxpr.eqns, env)
    return [read(env, a) for a in jaxpr.outputs]


def bind_eqns(eqns: Sequence[Eqn], env: dict[Atom, Any]) -> None:
    """Bind equations in order, on the values in `env`, which takes their results."""
    for eqn in eqns:
        made = eqn.primitive.bind(*(read(env, a) for a in eqn.inputs), **eqn.param_dict)
        env.update(zip(eqn.outputs, made if eqn.primitive.multiple else [made], strict=True))


def read(env: dict[Atom, Any], atom: Atom) -> Any:
    """The value of an atom."""
    return atom.value if isinstance(atom, Literal) else env[atom]


def apply(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr: run at once as one program, or recorded when a function is being traced."""
    if current() is None:
        return list(execute(closed, args))
    return bind_jaxpr(closed.jaxpr, closed.consts, args)


def at_once(program: Callable[..., list[Any]], arrays: Sequence[Any]) -> list[Any]:
    """Run `program` on arrays as one compiled program; inside a traced function, record it there."""
    if current() is not None:
        return program(*arrays)
    return list(execute(trace_to_jaxpr(program, [x.aval for x in arrays]), arrays))


def inline(jaxpr: Jaxpr, keep: Container[Primitive] = ()) -> Jaxpr:
    """Replace every equation that stands for a jaxpr, but for those of the primitives in `keep`, by the equations of that jaxpr.

    before:  b = custom_jvp[f] a        after:  c = sin a; b = mul c c

    Equations without a line of their own (`without_lines`) take that of the one they replace.
    """
    if not any(eqn.primitive.inline for eqn in jaxpr.eqns):
        return jaxpr
    env: dict[Var, Atom] = {}
    kept: list[Eqn] = []
    for eqn in jaxpr.eqns:
        inputs = substitute(eqn.inputs, env)
        if eqn.primitive.inline is None or eqn.primitive in keep:
            kept.append(Eqn(eqn.primitive, inputs, eqn.params, eqn.outputs, eqn.source))
            continue
        body = inline(eqn.primitive.inline(**eqn.param_dict), keep)
        local: dict[Var, Atom] = dict(zip((*body.consts, *body.inputs), inputs, strict=True))
        for inner in body.eqns:
            outputs = tuple(Var(v.aval) for v in inner.outputs)
            local.update(zip(inner.outputs, outputs, strict=True))
            line = inner.source or eqn.source
            kept.append(Eqn(inner.primitive, substitute(inner.inputs, local), inner.params, outputs, line))
        env.update(zip(eqn.outputs, substitute(body.outputs, local), strict=True))
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(kept), substitute(jaxpr.outputs, env))


def without_lines(jaxpr: Jaxpr) -> Jaxpr:
    """A jaxpr that is kept for other programs too, so that it does not name lines of the first."""
    eqns = tuple(Eqn(e.primitive, e.inputs, e.params, e.outputs) for e in jaxpr.eqns)
    return Jaxpr(jaxpr.inputs, jaxpr.consts, eqns, jaxpr.outputs)


def dead_code(jaxpr: Jaxpr) -> Jaxpr:
    """Drop equations whose results nobody reads.

    before:  b = sin a; c = exp a; in (c,)       after:  c = exp a; in (c,)

    Operations that run jaxprs keep what is read of them (`Primitive.prune`).
    """
    needed: set[Var] = {a for a in jaxpr.outputs if isinstance(a, Var)}
    kept: list[Eqn] = []
    for eqn in reversed(jaxpr.eqns):
        used = [v in needed for v in eqn.outputs]
        if any(used) or eqn.effect:
            eqn = _pruned(eqn, used) if any(used) else eqn
            kept.append(eqn)
            needed.update(a for a in eqn.inputs if isinstance(a, Var))
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(reversed(kept)), jaxpr.outputs)


def _pruned(eqn: Eqn, used: Sequence[bool]) -> Eqn:
    if eqn.primitive.prune is None:
        return eqn
    read, made, params = eqn.primitive.prune(used, **eqn.param_dict)
    inputs = tuple(itertools.compress(eqn.inputs, read))
    outputs = tuple(itertools.compress(eqn.outputs, made))
    return Eqn(eqn.primitive, inputs, tuple(params.items()), outputs, eqn.source)


def reads(jaxpr: Jaxpr) -> list[bool]:
    """Which inputs a jaxpr without dead code reads."""
    read = {a for eqn in jaxpr.eqns for a in eqn.inputs} | set(jaxpr.outputs)
    return [v in read for v in jaxpr.inputs]


_interned: dict[Any, ClosedJaxpr] = {}
_lock = threading.Lock()
forks.anew(__name__, _lock=threading.Lock)


def interned(jaxpr: Jaxpr) -> ClosedJaxpr:
    """A jaxpr without constants, closed: the same object for the same equations, so that what runs it is planned once."""
    assert not jaxpr.consts
    numbers: dict[Any, Any] = {v: k for k, v in enumerate(jaxpr.inputs)}

    def key(atom: Atom) -> Any:
        return (atom.aval, repr(atom.value)) if isinstance(atom, Literal) else numbers[atom]

    eqns = []
    for eqn in jaxpr.eqns:
        inputs = tuple(map(key, eqn.inputs))
        numbers.update(zip(eqn.outputs, itertools.count(len(numbers))))
        eqns.append((eqn.primitive, eqn.params, inputs, tuple(v.aval for v in eqn.outputs)))
    whole = tuple(v.aval for v in jaxpr.inputs), tuple(eqns), tuple(map(key, jaxpr.outputs))
    with _lock:
        made = _interned.setdefault(whole, ClosedJaxpr(jaxpr, ()))
        forget(_interned)
    return made


def clear_caches() -> None:
    """Forget the jaxprs of functions inside others, with their plans."""
    with _lock:
        _interned.clear()


def common_subexpressions(jaxpr: Jaxpr) -> Jaxpr:
    """Compute equal equations once.

    before:  b = exp a; c = exp a; d = add b c      after:  b = exp a; d = add b b
    """
    env: dict[Var, Atom] = {}
    seen: dict[Any, tuple[Var, ...]] = {}
    kept: list[Eqn] = []
    for eqn in jaxpr.eqns:
        inputs = substitute(eqn.inputs, env)
        key = (eqn.primitive, eqn.params, tuple(_key(a) for a in inputs))
        if key in seen and not eqn.effect:
            env.update(zip(eqn.outputs, seen[key], strict=True))
            continue
        seen[key] = eqn.outputs
        kept.append(Eqn(eqn.primitive, inputs, eqn.params, eqn.outputs, eqn.source))
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(kept), substitute(jaxpr.outputs, env))


def _key(atom: Atom) -> Any:
    return (type(atom.value), repr(atom.value)) if isinstance(atom, Literal) else atom


def pushdown(jaxpr: Jaxpr) -> Jaxpr:
    """Read parts from the operands of what makes them, where nobody reads the rest (`Primitive.pushdown`).

    before:  c = contract[ik,kj->ij] a b; d = diagonal c; in (d,)        after:  d = contract[ik,ki->i] a b; in (d,)
    """
    if all(eqn.primitive.pushdown is None for eqn in jaxpr.eqns):
        return jaxpr
    eqns = list(jaxpr.eqns)
    place = 0
    while place < len(eqns):
        maker = _maker(eqns, place, jaxpr.outputs)
        made = None if maker is None else _pushed(eqns[place], maker)
        if maker is None or made is None:
            place += 1
            continue
        eqns[place : place + 1] = made
        eqns.remove(maker)
        place -= 1  # what was put there may be moved on
    return Jaxpr(jaxpr.inputs, jaxpr.consts, tuple(eqns), jaxpr.outputs)


def _maker(eqns: Sequence[Eqn], place: int, outputs: Sequence[Atom]) -> Eqn | None:
    """The equation that makes the operand of one that may be moved before it, for that one alone."""
    if eqns[place].primitive.pushdown is None:
        return None
    (read,) = eqns[place].inputs
    if read in outputs or sum(a is read for e in eqns for a in e.inputs) > 1:
        return None
    return next((e for e in eqns[:place] if read in e.outputs), None)


def _pushed(eqn: Eqn, maker: Eqn) -> list[Eqn] | None:
    """Equations in place of `eqn`, on the operands of `maker`; None where there are none, or not of the same type."""
    (out,) = eqn.outputs
    assert eqn.primitive.pushdown is not None
    function = eqn.primitive.pushdown(maker, **eqn.param_dict)
    if function is None:
        return None
    given = [a for a in maker.inputs if isinstance(a, Var)]

    def program(*values: Any) -> list[Any]:
        known = iter(values)
        return [function(*(a.value if isinstance(a, Literal) else next(known) for a in maker.inputs))]

    closed = trace_to_jaxpr(program, [a.aval for a in given])
    if closed.consts or closed.jaxpr.outputs[0].aval != out.aval or not closed.jaxpr.eqns:
        return None
    env: dict[Var, Atom] = dict(zip(closed.jaxpr.inputs, given, strict=True))
    made = []
    for inner in closed.jaxpr.eqns:
        results = tuple(out if v is closed.jaxpr.outputs[0] else Var(v.aval) for v in inner.outputs)
        env.update(zip(inner.outputs, results, strict=True))
        made.append(Eqn(inner.primitive, substitute(inner.inputs, env), inner.params, results, eqn.source))
    return made


def clean(jaxpr: Jaxpr, keep: Container[Primitive] = ()) -> Jaxpr:
    """All clean-ups, in order; equations of the primitives in `keep` stand for no other jaxpr."""
    cleaned = dead_code(common_subexpressions(inline(jaxpr, keep)))
    pushed = pushdown(cleaned)
    return cleaned if pushed is cleaned else common_subexpressions(pushed)
