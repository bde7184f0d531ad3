"""Programs that were made before, found again by what a trace says.

Outside `jit`, a function that is differentiated or batched is traced in every call: what it closes over, and how Python runs through it, may have changed.
What is made of the trace depends on the trace alone, so that it is kept with it:

    f traced:   c = mul a a; d = mul c 0.3; e = reduce d      spelled with numbers in place of variables, with types
    lifted      c = mul a a; d = mul c b; e = reduce d        other numbers are operands, so that they make no other program
    known       its gradient as one program, with its plan; else it is made, and kept

Traces that differ in their extents alone are spelled alike (`core/numbered`), and what is made of them serves any extents (`jit/runtime/shapes`): after
two shapes, a third one plans nothing.

Captured arrays are operands of what is kept, never part of it. Operations that run or stand for other jaxprs are not spelled: those are compared by
identity, and every trace makes new ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np

from sparsejax import forks
from sparsejax.core import numbered
from sparsejax.core.avals import Aval, scalar_aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from sparsejax.core.numbered import Numbered
from sparsejax.core.primitive import execute, forget, new_family, weak_scalar
from sparsejax.core.symbolic import SymbolicDim, span
from sparsejax.core.trace import current
from sparsejax.formats import Format
from sparsejax.transforms import staging

REMEMBERED = 512
"""Programs that are kept."""
_programs: dict[Hashable, Any] = {}
_families: dict[Hashable, Any] = {}
_met: dict[Hashable, bool] = {}
"""Programs for some extents that ran once: should they come back, they get a plan of their own."""
KNOWN = (0, 1, -1)
"""Numbers that stay in a program, which is simpler with them."""
_lock = threading.Lock()
forks.anew(__name__, _lock=threading.Lock)
Made = TypeVar("Made")
Program = Callable[..., list[Any]]
Types = Callable[[Sequence[Aval]], Sequence[Aval]]


def clear_caches() -> None:
    """Forget all programs."""
    for cache in (_programs, _families, _met):
        cache.clear()


def spelled(jaxpr: Jaxpr, place: Numbered) -> Hashable | None:
    """What a jaxpr says, equal for jaxprs that compute the same in the same way, of inputs of any extents; extents that are parameters by their `place`.
    None where that cannot be told. O(equations)."""
    numbers: dict[Atom, int] = {}
    made: list[Hashable] = [len(jaxpr.consts)]
    for var in (*jaxpr.consts, *jaxpr.inputs):
        numbers[var] = len(numbers)
        made.append(var.aval.kind)
        if any(isinstance(n, SymbolicDim) for n in var.aval.shape):
            return None

    def read(atom: Atom) -> Hashable:
        return (atom.aval, _exact(atom.value, place)) if isinstance(atom, Literal) else numbers[atom]

    for eqn in jaxpr.eqns:
        primitive = eqn.primitive
        if primitive.bodies is not None or primitive.inline is not None:
            return None
        params = eqn.params if primitive.extents is None else (*primitive.extents(place, **eqn.param_dict).items(),)
        made += primitive, tuple(map(read, eqn.inputs)), _exact(params, place)
        for out in eqn.outputs:
            numbers[out] = len(numbers)
            made.append(out.aval.kind)
    made.append(tuple(map(read, jaxpr.outputs)))
    key = tuple(made)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def lifted(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr whose numbers are constants of it, where types of results do not depend on their values."""
    made: dict[Literal, Var] = {}
    eqns = [_lifted(eqn, made) if any(map(_may_change, eqn.inputs)) else eqn for eqn in closed.jaxpr.eqns]
    if not made:
        return closed
    jaxpr = closed.jaxpr
    whole = Jaxpr(jaxpr.inputs, (*jaxpr.consts, *made.values()), tuple(eqns), jaxpr.outputs)
    return ClosedJaxpr(whole, (*closed.consts, *(weak_scalar(a.value) for a in made)))


def _may_change(atom: Atom) -> TypeGuard[Literal]:
    return isinstance(atom, Literal) and type(atom.value) in (int, float) and atom.value not in KNOWN


def _lifted(eqn: Eqn, made: dict[Literal, Var]) -> Eqn:
    primitive, params = eqn.primitive, eqn.param_dict
    if primitive.notation is None or len(eqn.outputs) != 1:
        return eqn
    own: dict[Literal, Var] = {}
    for k, atom in enumerate(eqn.inputs):
        if _may_change(atom) and not (primitive.static and primitive.static(k, atom.value)):
            own[atom] = made.get(atom) or own.get(atom) or Var(scalar_aval(atom.value, is_literal=False))
    inputs = [own.get(a, a) if isinstance(a, Literal) else a for a in eqn.inputs]
    if primitive.typing(*(a.aval for a in inputs), **params) != eqn.outputs[0].aval:
        return eqn
    made |= own
    return Eqn(primitive, tuple(inputs), eqn.params, eqn.outputs, eqn.source)


def _exact(value: Any, place: Numbered) -> Hashable:
    """A value with its type, so that 0.0, -0.0, 0 and False differ, and NaN does not; ranges by the places of their ends."""
    if type(value) is tuple:
        return tuple([_exact(v, place) for v in value])
    if type(value) is range:
        return range, *[("n", n) if n < 2 else place(n) for n in (value.start, value.stop)], value.step
    if isinstance(value, bool | int | float | complex | np.generic):
        return type(value), repr(value)
    return value  # type: ignore[no-any-return]


def _with_ends(value: Any, change: Callable[[int], Any]) -> Any:
    """A parameter with the ends of ranges changed."""
    if type(value) is tuple:
        return tuple([_with_ends(v, change) for v in value])
    if type(value) is range:
        start, stop = (n if n < 2 else change(n) for n in (value.start, value.stop))
        return span(start, stop, value.step)
    return value


def derived(
    about: Hashable, flat: ClosedJaxpr, arrays: Sequence[Any], program: Program, types: Types | None = None
) -> list[Any]:
    """The results of `program(flat, *arrays)`, which is made of the jaxpr `flat` and of what `about` says: as one compiled program, which is
    found again where another jaxpr says the same; inside a traced function, recorded there. `types` of the inputs of `flat` for types of `arrays` (default:
    those of the first ones)."""
    if current() is not None:
        return program(flat, *arrays)
    written, flat = flat, lifted(flat)
    operands, count = [*flat.consts, *arrays], len(flat.consts)
    avals = [x.aval for x in operands]
    place = Numbered([n for a in avals for n in a.shape])
    text = spelled(flat.jaxpr, place)
    if text is None:
        return staging.at_once(lambda *xs: program(written, *xs), arrays)
    if place.others:
        avals.append(Aval(place.others, np.bool_, Format.parse("dense", len(place.others))))
    kinds = about, text, tuple([a.kind for a in avals])
    extents = place.own + place.others
    key = kinds, extents
    known = _programs.get(key)
    if known is None:
        with _lock:
            family = _families.get(kinds)
            if family is None:
                family = _families[kinds] = new_family()
                forget(_families, REMEMBERED)
            again = key in _met
            _met[key] = True
            forget(_met, REMEMBERED)
        if not again:
            found = family.once(extents, [x._storage for x in operands])
            if found is not None:
                return list(found[0])

        def make(given: Sequence[Aval]) -> tuple[ClosedJaxpr, None]:
            own = given[: len(operands)]
            of = flat.jaxpr if given is avals else _resized(flat.jaxpr, place, given, own[:count], own[count:], types)

            def of_operands(*xs: Any) -> list[Any]:
                return program(ClosedJaxpr(of, xs[:count]), *xs[count:])

            return staging.trace_to_jaxpr(of_operands, own), None

        known = _kept(key, lambda: (family.find(avals, operands, make) or make(avals))[0])
    return list(execute(known, operands))


def _resized(
    jaxpr: Jaxpr,
    place: Numbered,
    given: Sequence[Aval],
    consts: Sequence[Aval],
    arrays: Sequence[Aval],
    types: Types | None,
) -> Jaxpr:
    """What a jaxpr is that says the same for constants and arrays of these types, of all extents that are `given`."""
    change = numbered.at([n for a in given for n in a.shape])
    inputs = arrays[: len(jaxpr.inputs)] if types is None else types(arrays)

    def run(*xs: Any) -> list[Any]:
        env: dict[Atom, Any] = dict(zip((*jaxpr.consts, *jaxpr.inputs), xs, strict=True))
        for eqn in jaxpr.eqns:
            params = {name: _with_ends(value, lambda n: change(place(n))) for name, value in eqn.params}
            if eqn.primitive.extents is not None:
                params = eqn.primitive.extents(change, **eqn.primitive.extents(place, **params))
            made = eqn.primitive.bind(*(staging.read(env, a) for a in eqn.inputs), **params)
            env.update(zip(eqn.outputs, made if eqn.primitive.multiple else [made], strict=True))
        return [staging.read(env, a) for a in jaxpr.outputs]

    made, count = staging.trace_to_jaxpr(run, [*consts, *inputs]).jaxpr, len(consts)
    return Jaxpr(made.inputs[count:], made.inputs[:count], made.eqns, made.outputs)


def applied(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr, as `derived` finds what runs it."""
    return derived("applied", closed, args, lambda flat, *xs: staging.bind_jaxpr(flat.jaxpr, flat.consts, xs))


def kept(about: Hashable, flat: ClosedJaxpr, make: Callable[[ClosedJaxpr], Made]) -> Made:
    """`make` of the jaxpr `flat` with its constants as its first inputs; outside of traced functions found again where `about` and the jaxpr
    say the same."""
    opened = ClosedJaxpr(Jaxpr((*flat.jaxpr.consts, *flat.jaxpr.inputs), (), flat.jaxpr.eqns, flat.jaxpr.outputs), ())
    if current() is not None:
        return make(opened)
    place = Numbered([n for a in opened.in_avals for n in a.shape])
    key = spelled(flat.jaxpr, place)
    return make(opened) if key is None else _kept((about, key, place.own, place.others), lambda: make(opened))


def _kept(key: Hashable, make: Callable[[], Made]) -> Made:
    """What was made under a key; made if it was not, or is forgotten."""
    made: Made | None = _programs.get(key)
    if made is None:
        made = make()
        with _lock:
            made = _programs.setdefault(key, made)
            forget(_programs, REMEMBERED)
    return made
