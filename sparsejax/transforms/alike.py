"""Programs that were made before, found again by what a trace says.

Outside `jit`, a function that is differentiated is traced in every call: what it closes over, and how Python runs through it, may have changed. What is
made of the trace depends on the trace alone, so that it is kept with it:

    f traced:   c = mul a a; d = reduce c          spelled with numbers in place of variables, and with all types
    known       its gradient as one program, with its plan; else it is made, and kept

Captured arrays are operands of what is kept, never part of it. Operations that run or stand for other jaxprs are not spelled: those are compared by
identity, and every trace makes new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Jaxpr, Literal, Var
from sparsejax.core.primitive import execute, forget
from sparsejax.core.symbolic import SymbolicDim
from sparsejax.core.trace import current
from sparsejax.transforms import staging

REMEMBERED = 512
"""Programs that are kept."""
_programs: dict[Hashable, Any] = {}
Made = TypeVar("Made")
Program = Callable[..., list[Any]]


def clear_caches() -> None:
    """Forget all programs."""
    _programs.clear()


def spelled(jaxpr: Jaxpr) -> Hashable | None:
    """What a jaxpr says, equal for jaxprs that compute the same in the same way; None where that cannot be told. O(equations)."""
    numbers: dict[Atom, int] = {}
    for var in (*jaxpr.consts, *jaxpr.inputs):
        numbers[var] = len(numbers)

    def read(atom: Atom) -> Hashable:
        return (atom.aval, _exact(atom.value)) if isinstance(atom, Literal) else numbers[atom]

    made: list[Hashable] = [len(jaxpr.consts), *(v.aval for v in numbers if isinstance(v, Var))]
    for eqn in jaxpr.eqns:
        if eqn.primitive.bodies is not None or eqn.primitive.inline is not None:
            return None
        made += eqn.primitive, tuple(map(read, eqn.inputs)), _exact(eqn.params)
        for out in eqn.outputs:
            numbers[out] = len(numbers)
            made.append(out.aval)
    made.append(tuple(map(read, jaxpr.outputs)))
    if any(isinstance(n, SymbolicDim) for v in numbers for n in v.aval.shape):
        return None
    key = tuple(made)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _exact(value: Any) -> Hashable:
    """A value with its type, so that 0.0, -0.0, 0 and False differ, and NaN does not."""
    if type(value) is tuple:
        return tuple(map(_exact, value))
    if isinstance(value, bool | int | float | complex | np.generic):
        return type(value), repr(value)
    return value  # type: ignore[no-any-return]


def derived(about: Hashable, flat: ClosedJaxpr, arrays: Sequence[Any], program: Program) -> list[Any]:
    """The results of `program(flat, *arrays)`, which is made of the jaxpr `flat` and of what `about` says: as one compiled program, which is
    found again where another jaxpr says the same; inside a traced function, recorded there."""
    if current() is not None:
        return program(flat, *arrays)
    key = spelled(flat.jaxpr)
    if key is None:
        return staging.at_once(lambda *xs: program(flat, *xs), arrays)
    avals, count = [x.aval for x in (*flat.consts, *arrays)], len(flat.consts)
    key = about, key, tuple(avals)

    def of_operands(*operands: Any) -> list[Any]:
        return program(ClosedJaxpr(flat.jaxpr, operands[:count]), *operands[count:])

    known = _kept(key, lambda: staging.trace_to_jaxpr(of_operands, avals))
    return list(execute(known, [*flat.consts, *arrays]))


def kept(about: Hashable, flat: ClosedJaxpr, make: Callable[[ClosedJaxpr], Made]) -> Made:
    """`make` of the jaxpr `flat` with its constants as its first inputs; outside of traced functions found again where `about` and the jaxpr
    say the same."""
    opened = ClosedJaxpr(Jaxpr((*flat.jaxpr.consts, *flat.jaxpr.inputs), (), flat.jaxpr.eqns, flat.jaxpr.outputs), ())
    key = spelled(flat.jaxpr) if current() is None else None
    return make(opened) if key is None else _kept((about, key), lambda: make(opened))


def _kept(key: Hashable, make: Callable[[], Made]) -> Made:
    """What was made under a key; made if it was not, or is forgotten."""
    made: Made | None = _programs.get(key)
    if made is None:
        made = _programs[key] = make()
        forget(_programs, REMEMBERED)
    return made
