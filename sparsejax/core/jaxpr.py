"""IR 1: what the user's function computes.

    Jaxpr(inputs, consts, eqns, outputs)        inputs, consts: variables; outputs: atoms
    Eqn(primitive, inputs, params, outputs, source)
    atom = Var(aval) | Literal(value, aval)

    { lambda A:f64[5:d,7:c] ; a:f64[7:d]. let
        b:f64[5:d] = contract[ij,j->i] A a
      in (b,) }

Constants (arrays the function closed over) stand before the semicolon; they are run-time arguments like the inputs. An operation
that runs other jaxprs (a loop, a branch) has these below it. A ClosedJaxpr holds a jaxpr with its constants.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.errors import JaxprTypeError
from sparsejax.pictures import programs

if TYPE_CHECKING:
    from sparsejax.core.primitive import Primitive

_numbers = itertools.count()


@dataclass(frozen=True, eq=False)
class Var:
    """A variable; two variables are never equal."""

    aval: Aval
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass(frozen=True, eq=False)
class Literal:
    """A static scalar."""

    value: Any
    aval: Aval


Atom = Var | Literal


@dataclass(frozen=True)
class Eqn:
    """`outputs = primitive[params] inputs`; `source` is the user's line."""

    primitive: Primitive
    inputs: tuple[Atom, ...]
    params: tuple[tuple[str, Any], ...]
    outputs: tuple[Var, ...]
    source: str = ""

    @property
    def param_dict(self) -> dict[str, Any]:
        return dict(self.params)

    @property
    def bodies(self) -> tuple[ClosedJaxpr, ...]:
        """The jaxprs that the operation runs."""
        rule = self.primitive.bodies
        return () if rule is None else tuple(rule(**self.param_dict))

    @property
    def effect(self) -> bool:
        """Whether it, or what it runs, does something beside computing a result (`Primitive.effect`)."""
        return self.primitive.effect or any(e.effect for e in self._inner)

    @property
    def asks(self) -> bool:
        """Whether it, or what it runs, calls functions of the user (`Primitive.asks`)."""
        return self.primitive.asks or any(e.asks for e in self._inner)

    @property
    def _inner(self) -> Iterator[Eqn]:
        """The equations of the jaxprs that it runs, or stands for."""
        if self.primitive.bodies is None and self.primitive.inline is not None:
            yield from self.primitive.inline(**self.param_dict).eqns
        for body in self.bodies:
            yield from body.jaxpr.eqns


@dataclass(frozen=True, eq=False)
class Jaxpr:
    inputs: tuple[Var, ...]
    consts: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outputs: tuple[Atom, ...]

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        """For notebooks: a row per equation."""
        return programs.jaxpr(self)


@dataclass(frozen=True, eq=False)
class ClosedJaxpr:
    """A jaxpr and the values of its constants."""

    jaxpr: Jaxpr
    consts: tuple[Any, ...]
    shared: bool = False
    """Whether its kernels should serve other numbers too: an operation that runs at once, with numbers that may change."""
    cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)
    """What was derived from the jaxpr once: its plan."""

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        return tuple(v.aval for v in self.jaxpr.inputs)

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        return tuple(a.aval for a in self.jaxpr.outputs)

    def __str__(self) -> str:
        return to_text(self.jaxpr)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks: a row per equation."""
        return programs.jaxpr(self.jaxpr)


def _names() -> Iterator[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    for length in itertools.count(1):
        for combo in itertools.product(letters, repeat=length):
            yield "".join(combo)


def to_text(jaxpr: Jaxpr) -> str:
    """The jaxpr as text, one equation per line, types with formats."""
    fresh = _names()
    names: dict[Var, str] = {}

    def define(var: Var) -> str:
        names[var] = next(fresh)
        return f"{names[var]}:{var.aval}"

    def use(atom: Atom) -> str:
        return names[atom] if isinstance(atom, Var) else str(atom.value)

    consts = " ".join(define(v) for v in jaxpr.consts)
    inputs = " ".join(define(v) for v in jaxpr.inputs)
    lines = [f"{{ lambda {consts}; {inputs}. let"]
    for eqn in jaxpr.eqns:
        args = " ".join(use(a) for a in eqn.inputs)
        describe = eqn.primitive.describe
        params = " ".join(f"{k}={v}" for k, v in eqn.params) if describe is None else describe(**eqn.param_dict)
        outs = " ".join(define(v) for v in eqn.outputs)
        lines.append(f"    {outs} = {eqn.primitive.name}{f'[{params}]' if params else ''} {args}")
        lines += [f"      {line}" for body in eqn.bodies for line in to_text(body.jaxpr).splitlines()]
    outputs = ", ".join(use(a) for a in jaxpr.outputs)
    return "\n".join([*lines, f"  in ({outputs}{',' if len(jaxpr.outputs) == 1 else ''}) }}"])


def check_jaxpr(jaxpr: Jaxpr) -> None:
    """Raise JaxprTypeError unless every variable is defined once, before its use, with the type its rule gives."""
    known: set[Var] = set()
    for var in (*jaxpr.consts, *jaxpr.inputs):
        if var in known:
            raise JaxprTypeError(f"variable {var} is bound twice among the inputs")
        known.add(var)
    for number, eqn in enumerate(jaxpr.eqns):
        where = f"equation {number} ({eqn.primitive.name}, {eqn.source or 'unknown line'})"
        for atom in eqn.inputs:
            if isinstance(atom, Var) and atom not in known:
                raise JaxprTypeError(f"{where} reads a variable of type {atom.aval} that is not defined before it")
        made = eqn.primitive.out_avals([a.aval for a in eqn.inputs], eqn.param_dict)
        declared = tuple(v.aval for v in eqn.outputs)
        if made != declared:
            first, second = (x if eqn.primitive.multiple else x[0] for x in (declared, made))
            raise JaxprTypeError(f"{where} declares {first}, but its rule gives {second}")
        for body in eqn.bodies:
            check_jaxpr(body.jaxpr)
        for var in eqn.outputs:
            if var in known:
                raise JaxprTypeError(f"{where} defines a variable that is defined already")
            known.add(var)
    for atom in jaxpr.outputs:
        if isinstance(atom, Var) and atom not in known:
            raise JaxprTypeError(f"the jaxpr returns a variable of type {atom.aval} that is never defined")


def evaluate(closed: ClosedJaxpr, *args: Any) -> list[NDArray[Any]]:
    """Run every primitive's NumPy reference on dense arrays: the oracle of the compiler."""
    env: dict[Var, NDArray[Any]] = {}

    def dense(value: Any) -> NDArray[Any]:
        return value.todense() if hasattr(value, "todense") else np.asarray(value)

    def read(atom: Atom) -> Any:
        return env[atom] if isinstance(atom, Var) else atom.value

    for var, value in zip((*closed.jaxpr.consts, *closed.jaxpr.inputs), (*closed.consts, *args), strict=True):
        env[var] = dense(value).astype(var.aval.dtype, copy=False)
    for eqn in closed.jaxpr.eqns:
        with np.errstate(all="ignore"):
            result = eqn.primitive.reference(*(read(a) for a in eqn.inputs), **eqn.param_dict)
        for out, value in zip(eqn.outputs, result if eqn.primitive.multiple else (result,), strict=True):
            env[out] = np.asarray(value).astype(out.aval.dtype, copy=False)
    return [np.asarray(read(a)) for a in closed.jaxpr.outputs]


def substitute(atoms: Sequence[Atom], env: dict[Var, Atom]) -> tuple[Atom, ...]:
    """`atoms` with variables replaced by what `env` says."""
    return tuple(env.get(a, a) if isinstance(a, Var) else a for a in atoms)
