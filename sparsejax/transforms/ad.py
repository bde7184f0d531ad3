"""Forward and reverse mode on IR 1: the rules of the primitives applied to whole jaxprs.

    jvp          f(x)            ->  f(x), df(x) t               every equation followed by those of its tangent
    linearize    f(x), df(x) t   ->  f(x), residuals | df t      split by what depends on t
    transpose    df t            ->  ct df                       the linear equations, backwards

    { lambda ; a t. let b = sin a; c = cos a; s = mul t c in (b, s) }        jvp of sin
    { lambda ; a. let b = sin a; c = cos a in (b, c) }                       known: c is a residual
    { lambda ; c t. let s = mul t c in (s,) }                                linear
    { lambda ; c ct. let r = mul ct c in (r,) }                              transposed

A sparse linear value has an owner: an array that stores whatever it stores, its primal value where the rule gave it one, else
what its equation makes of the owners of its operands. Cotangents are computed at the owner's pattern only.

Source: Radul et al., "You Only Linearize Once".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax import config
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var, check_jaxpr
from sparsejax.core.tangents import Linear, tangent_aval
from sparsejax.core.trace import Trace, Tracer, tracing
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.linear import as_dtype, full, refilled, sample, settle, share, zeros, zeros_like
from sparsejax.lax.structural import broadcast_to, convert_format
from sparsejax.transforms import alike, staging

Owners = dict[Var, Atom]


def jvp_eqns(trace: Trace, jaxpr: Jaxpr, env: dict[Atom, Any], tangents: dict[Atom, Any], owners: Owners) -> None:
    """Bind the equations of `jaxpr` and of their tangents in `trace`, the current one. `env` and `tangents` hold the inputs and take the results; a tangent
    that is zero is left out. `owners` takes the owners of sparse tangents."""
    for eqn in jaxpr.eqns:
        primals = [staging.read(env, a) for a in eqn.inputs]
        known = [tangents.get(a) for a in eqn.inputs]
        moves = any(t is not None for t in known) and any(v.aval.dtype.kind in "fc" for v in eqn.outputs)
        steps = _factored(eqn, known) if moves else None
        if steps is not None:
            inner = steps.jaxpr
            values: dict[Atom, Any] = dict(zip((*inner.consts, *inner.inputs), (*steps.consts, *primals), strict=True))
            moving: dict[Atom, Any] = {v: t for v, t in zip(inner.inputs, known, strict=True) if t is not None}
            jvp_eqns(trace, inner, values, moving, owners)
            _check_types(eqn, [staging.read(values, a) for a in inner.outputs])
            env.update((v, values[a]) for v, a in zip(eqn.outputs, inner.outputs, strict=True))
            tangents.update((v, moving[a]) for v, a in zip(eqn.outputs, inner.outputs, strict=True) if a in moving)
            continue
        if moves and eqn.primitive.linearize is not None:
            made, found = eqn.primitive.linearize(primals, known, **eqn.param_dict)
        else:
            made = eqn.primitive.bind(*primals, **eqn.param_dict)
        outs = made if eqn.primitive.multiple else [made]
        _check_types(eqn, outs)
        env.update(zip(eqn.outputs, outs, strict=True))
        if not moves:
            continue
        start = len(trace.eqns)
        if eqn.primitive.linearize is None:
            if eqn.primitive.jvp is None:
                raise NotImplementedError(
                    f"Differentiation rule for '{eqn.primitive.name}' not implemented ({eqn.source or 'unknown line'})"
                )
            found = eqn.primitive.jvp(primals, known, made, **eqn.param_dict)
        for var, out, t in zip(eqn.outputs, outs, found if eqn.primitive.multiple else [found], strict=True):
            if t is not None and out.dtype.kind in "fc":
                tangents[var] = _fitted(t, out, owners)
        if len(outs) == 1 and not outs[0].format.is_dense:
            _own([e for e in trace.eqns[start:] if e.primitive is eqn.primitive or not _scales(e)], outs[0], owners)


def _check_types(eqn: Eqn, outs: Sequence[Any]) -> None:
    """That a rule gives results of the types of the equation's, by which programs that read them were made."""
    for var, out in zip(eqn.outputs, outs, strict=True):
        if (out.dtype, out.format) != (var.aval.dtype, var.aval.format):
            raise TypeError(f"the differentiation rule of {eqn.primitive.name} gives {out.aval} in place of {var.aval}")


def _factored(eqn: Eqn, tangents: Sequence[Any]) -> ClosedJaxpr | None:
    """The simpler operations that are differentiated in the place of `eqn`, if any."""
    if eqn.primitive.factored is None or any(isinstance(a, Literal) for a in eqn.inputs):
        return None
    moving = tuple(t is not None for t in tangents)
    made: ClosedJaxpr | None = eqn.primitive.factored(moving, *(a.aval for a in eqn.inputs), **eqn.param_dict)
    return made


def _scales(eqn: Eqn) -> bool:
    """Whether the result has the entries of an operand and no more, which rules of transposition rely on (`linear.keep`)."""
    return eqn.primitive.name in ("multiply", "divide")


def _own(eqns: Sequence[Eqn], out: Any, owners: Owners) -> None:
    """Summands of a sparse tangent, which have its type, are needed at its pattern only."""
    wanted = tangent_aval(out.aval)
    for var in (v for eqn in eqns for v in eqn.outputs):
        if var.aval == wanted:
            owners.setdefault(var, out.variable)


def _fitted(t: Any, out: Any, owners: Owners) -> Any:
    """A tangent with the shape, the dtype, and where it is sparse the format of its primal value."""
    t = as_dtype(t, out.dtype) if t.dtype != out.dtype else t
    t = refilled(t)
    t = t if t.shape == out.shape else broadcast_to(t, out.shape)
    if not out.format.is_dense:
        t = t if t.format == out.format else sample(t, out)
        if isinstance(t, Tracer) and isinstance(out, Tracer):
            owners.setdefault(t.variable, out.variable)
    return t


@dataclass(frozen=True)
class Linearized:
    """A function split at its inputs' values: `known` gives results and residuals, `linear` the tangents from these."""

    jaxpr: Jaxpr
    """Inputs: primals, then tangents. Outputs: results, then tangents (a literal 0 where the tangent is zero)."""
    consts: tuple[Any, ...]
    primals: tuple[Var, ...]
    tangents: tuple[Var, ...]
    known: tuple[Eqn, ...]
    linear: tuple[Eqn, ...]
    outs: tuple[Atom, ...]
    out_tangents: tuple[Atom | None, ...]
    owners: Owners

    def residuals(self) -> list[Var]:
        """The known variables that the linear equations or the owners read."""
        inside = {v for eqn in self.linear for v in eqn.outputs} | set(self.tangents)
        read = [a for eqn in self.linear for a in eqn.inputs] + list(self.owners.values())
        read += [a for a in self.out_tangents if a is not None]
        return list(dict.fromkeys(a for a in read if isinstance(a, Var) and a not in inside))


def linearized(closed: ClosedJaxpr, wanted: Sequence[bool]) -> Linearized:
    """Split `closed` into what depends on the tangents of the wanted inputs, and what does not."""
    owners: Owners = {}
    with tracing(captures=True) as trace:
        primals = [trace.input(a) for a in closed.in_avals]
        tangents = []
        inner = closed.jaxpr
        env: dict[Atom, Any] = dict(zip((*inner.consts, *inner.inputs), (*closed.consts, *primals), strict=True))
        moving: dict[Atom, Any] = {}
        for var, x, want in zip(inner.inputs, primals, wanted, strict=True):
            aval = tangent_aval(x.aval) if want else None
            if aval is not None:
                tangents.append(trace.input(aval))
                moving[var] = tangents[-1]
                if not aval.is_dense:
                    owners[tangents[-1].variable] = x.variable
        jvp_eqns(trace, inner, env, moving, owners)
        outs = [staging.read(env, a) for a in inner.outputs]
        found = [moving.get(a) for a in inner.outputs]
        jaxpr, consts = trace.finish([*primals, *tangents], [*outs, *(t for t in found if t is not None)])
    if config.check_jaxprs():
        check_jaxpr(jaxpr)
    inputs = tuple(t.variable for t in tangents)
    moved: set[Atom] = set(inputs)
    known, linear = [], []
    for eqn in jaxpr.eqns:
        if any(a in moved for a in eqn.inputs):
            linear.append(eqn)
            moved.update(eqn.outputs)
        else:
            known.append(eqn)
    results, rest = jaxpr.outputs[: len(outs)], iter(jaxpr.outputs[len(outs) :])
    out_tangents = tuple(None if t is None else next(rest) for t in found)
    owners = {v: a for v, a in owners.items() if v in moved}
    return Linearized(
        jaxpr, consts, jaxpr.inputs[: len(primals)], inputs, tuple(known), tuple(linear), results, out_tangents, owners
    )


# ---------------------------------------------------------------------------------------------------- transposition


class _Backward:
    """The linear equations of `lin`, run backwards on the known values in `env`."""

    def __init__(self, lin: Linearized, env: dict[Atom, Any]) -> None:
        self.lin, self.env = lin, env
        self.moved: set[Atom] = {*lin.tangents, *(v for eqn in lin.linear for v in eqn.outputs)}
        self.maker = {v: eqn for eqn in lin.linear for v in eqn.outputs}
        self.patterns: dict[Atom, Any] = {}
        self.cts: dict[Atom, Any] = {}

    def pattern(self, var: Atom) -> Any:
        """The owner of a linear variable, over fill 0: an array of its type that stores whatever it stores."""
        if var not in self.patterns:
            self.patterns[var] = self._pattern(var)
        return self.patterns[var]

    def _pattern(self, var: Atom) -> Any:
        assert isinstance(var, Var)
        if var in self.lin.owners:
            return refilled(staging.read(self.env, self.lin.owners[var]))
        eqn = self.maker.get(var)
        if eqn is None or var.aval.is_dense or eqn.primitive.multiple:
            return full(var.aval, 1)  # not zero, which would annihilate what it meets and store nothing
        args = [self.pattern(a) if a in self.moved else staging.read(self.env, a) for a in eqn.inputs]
        return eqn.primitive.bind(*args, **eqn.param_dict)

    def primal(self, var: Var) -> Any:
        """The value whose pattern a tangent input has."""
        return self.env[self.lin.owners[var]]

    def operand(self, atom: Atom, result: Var | None = None) -> Any:
        if atom not in self.moved:
            return staging.read(self.env, atom)
        owner = self.lin.owners.get(atom) if isinstance(atom, Var) else None
        same = owner is not None and result is not None and owner is self.lin.owners.get(result)
        return Linear(atom.aval, lambda: self.pattern(atom), same)

    def add(self, atom: Atom | None, ct: Any) -> None:
        """Add a cotangent of a variable to those it has."""
        if ct is None or atom not in self.moved:
            return
        aval = atom.aval
        assert ct.shape == aval.shape, f"a cotangent has shape {ct.shape} instead of {aval.shape}"
        ct = refilled(as_dtype(ct, aval.dtype))  # a negated one has fill -0.0
        if not aval.is_dense and ct.format != aval.format:
            ct = settle(ct, self.operand(atom))
        known = self.cts.get(atom)
        if known is not None:
            ct = elementwise("add", known, ct)
            if not aval.is_dense and ct.format != aval.format:
                ct = convert_format(ct, aval.format)
        self.cts[atom] = ct

    def run(self, cts: Sequence[Any]) -> list[Any]:
        for atom, ct in zip(self.lin.out_tangents, cts, strict=True):
            self.add(atom, ct)
        for eqn in reversed(self.lin.linear):
            found = [self.cts.pop(v, None) for v in eqn.outputs]
            if all(ct is None for ct in found):
                continue
            if eqn.primitive.transpose is None:
                raise NotImplementedError(
                    f"Transpose rule (for reverse-mode differentiation) for '{eqn.primitive.name}' not implemented"
                )
            operands = [self.operand(a, eqn.outputs[0]) for a in eqn.inputs]
            made = eqn.primitive.transpose(found if eqn.primitive.multiple else found[0], *operands, **eqn.param_dict)
            for atom, ct in zip(eqn.inputs, made, strict=True):
                self.add(atom, ct)
        return [self.cts.get(v) for v in self.lin.tangents]


def backward(lin: Linearized, env: dict[Atom, Any], cts: Sequence[Any]) -> list[Any]:
    """The cotangents of the tangent inputs, given those of the results (None: zero) and the values of known variables.

    They have the type of their primal value: sparse ones share its index buffers.
    """
    run = _Backward(lin, env)
    made = []
    for var, ct in zip(lin.tangents, run.run(cts), strict=True):
        made.append(finished(var.aval, ct, functools.partial(run.primal, var)))
    return made


def finished(aval: Aval, ct: Any, primal: Callable[[], Any]) -> Any:
    """A cotangent (None: zero) as a value of type `aval`; where that is sparse, with the pattern of the primal value."""
    if not aval.is_dense:
        return zeros_like(primal(), aval.dtype) if ct is None else share(ct, primal())
    return convert_format(zeros(aval) if ct is None else as_dtype(ct, aval.dtype), aval.format)


def forward(lin: Linearized, env: dict[Atom, Any], tangents: Sequence[Any]) -> list[Any]:
    """The tangents of the results (None: zero), given those of the inputs and the values of known variables."""
    env = {**env, **dict(zip(lin.tangents, tangents, strict=True))}
    staging.bind_eqns(lin.linear, env)
    return [None if a is None else staging.read(env, a) for a in lin.out_tangents]


def finished_tangent(out: Any, t: Any) -> Any:
    """The tangent (None: zero) of a result as a value of its type over fill 0; where that is sparse, with its pattern."""
    if not out.format.is_dense:
        return zeros_like(out) if t is None else share(t, out)
    return convert_format(zeros(out.aval) if t is None else t, out.format)


def typed(value: Any, primal: Any) -> Any:
    """A tangent or cotangent of `primal`, in any format, with its dtype and format over fill 0, at its pattern where sparse."""
    made = convert_element_type(value, primal.dtype)
    if primal.format.is_dense:
        return convert_format(made, primal.format)
    return sample(refilled(made), primal)


def known_values(lin: Linearized, primals: Sequence[Any]) -> tuple[dict[Atom, Any], list[Any]]:
    """Bind the known equations: the values of their variables, and the results."""
    env: dict[Atom, Any] = dict(zip(lin.jaxpr.consts, lin.consts, strict=True))
    env.update(zip(lin.primals, primals, strict=True))
    staging.bind_eqns(lin.known, env)
    return env, [staging.read(env, a) for a in lin.outs]


@dataclass(frozen=True)
class Split:
    """Results and residuals, computed; and the program that remains: its last inputs are tangents, or cotangents."""

    outs: list[Any]
    residuals: list[Any]
    rest: ClosedJaxpr

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        return alike.applied(self.rest, [*self.residuals, *args])


@dataclass(frozen=True)
class Prepared:
    """What gives `outs` results and the residuals of primals, and the program that remains."""

    first: ClosedJaxpr
    outs: int
    rest: ClosedJaxpr

    def run(self, primals: Sequence[Any]) -> Split:
        """Run the first part."""
        made = alike.applied(self.first, primals)
        return Split(made[: self.outs], made[self.outs :], self.rest)


def prepared(
    lin: Linearized, avals: Sequence[Aval], rest: Callable[[dict[Atom, Any], list[Any]], list[Any]]
) -> Prepared:
    """The known equations, for the results and those residuals that `rest(values, arguments)` reads; and what that does."""
    candidates = list(dict.fromkeys([*lin.residuals(), *(a for a in lin.outs if isinstance(a, Var))]))
    count = len(candidates)

    def function(*args: Any) -> list[Any]:
        return rest(dict(zip(candidates, args[:count], strict=True)), list(args[count:]))

    closed = staging.trace_to_jaxpr(function, [*(v.aval for v in candidates), *avals])
    program = staging.dead_code(staging.common_subexpressions(closed.jaxpr))
    read = {a for eqn in program.eqns for a in eqn.inputs} | set(program.outputs)
    used = [k for k, v in enumerate(program.inputs[:count]) if v in read]
    inputs = (*(program.inputs[k] for k in used), *program.inputs[count:])
    program = Jaxpr(inputs, program.consts, program.eqns, program.outputs)
    outputs = (*lin.outs, *(candidates[k] for k in used))
    first = Jaxpr(lin.primals, lin.jaxpr.consts, lin.known, outputs)
    return Prepared(ClosedJaxpr(first, lin.consts), len(lin.outs), ClosedJaxpr(program, closed.consts))
