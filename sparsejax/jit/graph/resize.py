"""Extents of jaxprs changed, in types and parameters: symbols to bounds of a bucket of sizes, and bounds to the extents of one call.

before:  { lambda ; a:f64[n<=255:d]. let b:f64[n<=255:d] = add a 1.0 in (b,) }         after:  n = 17: { lambda ; a:f64[17:d]. ... }
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Var
from sparsejax.core.symbolic import Span, SymbolicDim
from sparsejax.formats import Format
from sparsejax.formats.levels.level import Level
from sparsejax.jit.ir.bounded import Bounded

Change = Callable[[Any], Any]
"""A new extent for an old one; what is no extent, and what does not change, as it is."""


def resized(jaxpr: Jaxpr, change: Change) -> Jaxpr:
    """A jaxpr with all extents changed."""
    env: dict[Atom, Any] = {}

    def defined(var: Var) -> Var:
        env[var] = made = Var(var.aval.resized(change))
        return made

    def read(atom: Atom) -> Any:
        return env.get(atom, atom)

    consts, inputs = tuple(map(defined, jaxpr.consts)), tuple(map(defined, jaxpr.inputs))
    eqns = []
    for e in jaxpr.eqns:
        own, params = tuple(map(read, e.inputs)), mapped(e.params, change)
        eqns.append(replace(e, inputs=own, params=params, outputs=tuple(map(defined, e.outputs))))
    return Jaxpr(inputs, consts, tuple(eqns), tuple(map(read, jaxpr.outputs)))


def resized_alone(eqn: Eqn, change: Change) -> Eqn:
    """An equation by itself with all extents changed; its variables are new where their types are."""
    params = mapped(eqn.params, change) if depends(eqn.params) else eqn.params
    return Eqn(eqn.primitive, _moved(eqn.inputs, change), params, _moved(eqn.outputs, change), eqn.source)


def _moved(atoms: tuple[Any, ...], change: Change) -> tuple[Any, ...]:
    made = []
    for atom in atoms:
        aval = atom.aval.resized(change)
        made.append(atom if aval is atom.aval else Var(aval) if type(atom) is Var else replace(atom, aval=aval))
    return tuple(made)


def depends(value: Any) -> bool:
    """Whether a parameter has extents that may change: anything but integers of Python's."""
    kind = type(value)
    if kind is tuple:
        return any(map(depends, value))
    if fields_of(kind):
        return any(depends(getattr(value, name)) for name in fields_of(kind))
    return kind is Bounded or kind is SymbolicDim or kind is Span or kind is ClosedJaxpr


_fields: dict[Any, tuple[str, ...]] = {}


def fields_of(kind: Any) -> tuple[str, ...]:
    """The fields of a parameter that is a record: a frozen dataclass, but formats and jaxprs."""
    known = _fields.get(kind)
    if known is None:
        known = _fields[kind] = _fields_of(kind)
    return known


def _fields_of(kind: Any) -> tuple[str, ...]:
    frozen = is_dataclass(kind) and getattr(kind, "__dataclass_params__").frozen  # noqa: B009 - of every dataclass, but not in its type
    if not frozen or issubclass(kind, Format | Level | ClosedJaxpr | Jaxpr):
        return ()
    return tuple(f.name for f in fields(kind) if f.init)


def mapped(value: Any, change: Change) -> Any:
    """A parameter with all extents changed: of tuples, ranges, and jaxprs that an operation runs."""
    kind = type(value)
    if kind is tuple:
        return tuple([mapped(v, change) for v in value])
    if kind is Span:
        return value.resized(change)
    if kind is ClosedJaxpr:
        return ClosedJaxpr(resized(value.jaxpr, change), value.consts, value.shared)
    if fields_of(kind) and depends(value):
        return replace(value, **{name: mapped(getattr(value, name), change) for name in fields_of(kind)})
    return change(value)


def mapping(value: Any) -> Callable[[Change], Any]:
    """`mapped` of a parameter as a function of the change: what is the same for all extents is found out once.

    >>> n = Bounded.named("n", 300)
    >>> mapping(((n, 2), ("rows", (3,))))(lambda extent: 17 if extent is n else extent)
    ((17, 2), ('rows', (3,)))
    """
    kind = type(value)
    if not depends(value):
        return lambda change: value
    if kind is tuple:
        fixed, parts = list(value), [(k, mapping(v)) for k, v in enumerate(value) if depends(v)]

        def of_tuple(change: Change) -> tuple[Any, ...]:
            made = fixed.copy()
            for k, part in parts:
                made[k] = part(change)
            return tuple(made)

        return of_tuple
    if fields_of(kind):
        named = [(n, mapping(v)) for n in fields_of(kind) if depends(v := getattr(value, n))]
        return lambda change: replace(value, **{n: part(change) for n, part in named})
    if kind is Span or kind is ClosedJaxpr:
        return lambda change: mapped(value, change)
    return lambda change: change(value)
