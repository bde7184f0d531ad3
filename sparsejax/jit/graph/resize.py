"""Extents of jaxprs changed, in types and parameters: symbols to bounds of a bucket of sizes, and bounds to the extents of one call.

before:  { lambda ; a:f64[n<=255:d]. let b:f64[n<=255:d] = add a 1.0 in (b,) }         after:  n = 17: { lambda ; a:f64[17:d]. ... }
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Var
from sparsejax.core.symbolic import Span, SymbolicDim, span
from sparsejax.formats import Format
from sparsejax.formats.levels.level import Level
from sparsejax.jit.ir.bounded import Bounded

Change = Callable[[Any], Any]
"""A new extent for an old one; what is no extent, and what does not change, as it is."""


def resized(jaxpr: Jaxpr, change: Change) -> Jaxpr:
    """A jaxpr with all extents changed."""
    return renamed(jaxpr, change)[0]


def usual(extent: Any) -> Any:
    """In place of a bound the extent that something was planned for first."""
    return extent.usual if type(extent) is Bounded else extent


def at_usual(jaxpr: Jaxpr) -> tuple[Jaxpr, dict[Var, Var]]:
    """A jaxpr with usual extents in place of bounds, and its variables by those that they stand for; itself, where it has no bounds."""
    defined = (*jaxpr.consts, *jaxpr.inputs)
    if any(changes(v.aval.shape) for v in defined):
        return renamed(jaxpr, usual)
    return jaxpr, {}


def renamed(jaxpr: Jaxpr, change: Change) -> tuple[Jaxpr, dict[Var, Var]]:
    """A jaxpr with all extents changed, and its variables by those that they stand for."""
    env: dict[Var, Var] = {}

    def defined(var: Var) -> Var:
        env[var] = made = Var(var.aval.resized(change))
        return made

    def read(atom: Atom) -> Any:
        return env.get(atom, atom) if isinstance(atom, Var) else atom

    consts, inputs = tuple(map(defined, jaxpr.consts)), tuple(map(defined, jaxpr.inputs))
    eqns = []
    for e in jaxpr.eqns:
        own, params = tuple(map(read, e.inputs)), _changed(e.params, change)
        eqns.append(replace(e, inputs=own, params=params, outputs=tuple(map(defined, e.outputs))))
    return Jaxpr(inputs, consts, tuple(eqns), tuple(map(read, jaxpr.outputs))), env


def resized_alone(eqn: Eqn, change: Change) -> Eqn:
    """An equation by itself with all extents changed; its variables are new where their types are."""
    inputs, outputs = _moved(eqn.inputs, change), _moved(eqn.outputs, change)
    return Eqn(eqn.primitive, inputs, _changed(eqn.params, change), outputs, eqn.source)


def _moved(atoms: tuple[Any, ...], change: Change) -> tuple[Any, ...]:
    made = []
    for atom in atoms:
        aval = atom.aval.resized(change)
        made.append(atom if aval is atom.aval else Var(aval) if type(atom) is Var else replace(atom, aval=aval))
    return tuple(made)


def _changed(value: Any, change: Change) -> Any:
    made = mapping(value)
    return value if made is None else made(change)


EXTENTS = frozenset({Bounded, SymbolicDim})
"""What an extent is that may change."""
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


def changes(shape: Sequence[Any]) -> bool:
    """Whether a shape has extents that may change: symbols, or bounds.

    >>> changes((3, Bounded.named("n", 300))), changes((3, 300))
    (True, False)
    """
    return any(type(n) in EXTENTS for n in shape)


def extents_of(value: Any) -> frozenset[Any]:
    """The extents in a parameter that may change.

    >>> n = Bounded.named("n", 300)
    >>> extents_of(((n, 2), ("rows", (n, 3))))
    frozenset({n<=4095})
    """
    found: list[Any] = []

    def seen(extent: Any) -> Any:
        found.append(extent)
        return extent

    made = mapping(value)
    if made is not None:
        made(seen)
    return frozenset([n for n in found if type(n) in EXTENTS])


def parameters(
    params: Mapping[str, Any], shape: tuple[Any, ...]
) -> Callable[[tuple[Any, ...], Change], dict[str, Any]]:
    """Parameters with all extents changed as a function of the new `shape` of a result, and of the change: written out, one frame in place of one for
    every tuple.

    >>> n = Bounded.named("n", 300)
    >>> parameters({"shape": (n, 2), "axes": (0, 1), "ends": (("p", n),)}, (n, 2))((17, 2), lambda extent: 17)
    {'shape': (17, 2), 'axes': (0, 1), 'ends': (('p', 17),)}
    """
    known: list[Any] = []

    def put(value: Any) -> str:
        known.append(value)
        return f"k[{len(known) - 1}]"

    def end(value: Any) -> str:
        return f"change({put(value)})" if type(value) in EXTENTS else put(value)

    def spelled(value: Any) -> str:
        made = mapping(value)
        if made is None:
            return put(value)
        if type(value) is tuple:
            return "shape" if value == shape else "(" + "".join(f"{spelled(v)}, " for v in value) + ")"
        if type(value) is Span:
            return f"{put(span)}({end(value.start)}, {end(value.stop)}, {end(value.step)})"
        return end(value) if type(value) in EXTENTS else f"{put(made)}(change)"

    fields = ", ".join(f"{name!r}: {spelled(value)}" for name, value in params.items())
    function: Any = eval(f"lambda shape, change: {{{fields}}}", {"k": known})
    return function  # type: ignore[no-any-return]


def mapping(value: Any) -> Callable[[Change], Any] | None:
    """A parameter with all extents changed (of tuples, records, ranges, and jaxprs that an operation runs) as a function of the change: what is the
    same for all extents is found out once. None where it has no extents that may change, but integers of Python's.

    >>> n = Bounded.named("n", 300)
    >>> mapping(((n, 2), ("rows", (3,))))(lambda extent: 17 if extent is n else extent)
    ((17, 2), ('rows', (3,)))
    """
    kind = type(value)
    if kind is tuple:
        parts = [(k, part) for k, v in enumerate(value) if (part := mapping(v)) is not None]
        return _of_tuple(value, parts) if parts else None
    if kind in EXTENTS:
        return lambda change: change(value)
    if kind is Span:
        return lambda change: value.resized(change)
    if kind is Aval:
        return (lambda change: value.resized(change)) if changes(value.shape) else None
    if kind is ClosedJaxpr:
        return lambda change: ClosedJaxpr(resized(value.jaxpr, change), value.consts, value.shared)
    named = [(n, part) for n in fields_of(kind) if (part := mapping(getattr(value, n))) is not None]
    return (lambda change: replace(value, **{n: part(change) for n, part in named})) if named else None


def _of_tuple(value: tuple[Any, ...], parts: Sequence[tuple[int, Callable[[Change], Any]]]) -> Callable[[Change], Any]:
    def made(change: Change) -> tuple[Any, ...]:
        changed = list(value)
        for k, part in parts:
            changed[k] = part(change)
        return tuple(changed)

    return made


def numbers_in(value: Any, found: set[int]) -> None:
    """Add the integers that shapes and parameters have to those that are `found`."""
    if type(value) is int:
        found.add(value)
    elif isinstance(value, tuple | list):
        for v in value:
            numbers_in(v, found)
    elif fields_of(type(value)):
        numbers_in([getattr(value, name) for name in fields_of(type(value))], found)
    elif isinstance(value, range | Span):
        numbers_in((value.start, value.stop), found)
    elif isinstance(value, ClosedJaxpr):
        for e in value.jaxpr.eqns:
            numbers_in((tuple(v.aval.shape for v in (*e.inputs, *e.outputs)), e.params), found)
