"""Functions that are called at once, again and again with operands of the same types: the second such call goes straight to its plan.

    A @ x        first call: typing, a jaxpr of one operation, its plan; noted: one plan, which reads (A, x) as they are given
    B @ y        types as before: the plan runs, and nothing else is looked at
    norm(A)      several operations: compiled as one program, as under `jit`, when types come back, or structures did in several shapes

Python's floats beside arrays are operands (`A * 0.5`, unless the type of the result depends on their values); integers and all other
arguments are part of what is remembered, floats by their bits. While functions are traced, and where plans are forced, the function itself runs.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from sparsejax import cached, config, forks
from sparsejax.core import primitive, roads
from sparsejax.core.array import Array, maker
from sparsejax.core.avals import Aval
from sparsejax.core.entrywise import Mapped
from sparsejax.core.roads import Road, Run, Served
from sparsejax.core.trace import is_python_scalar, stack
from sparsejax.formats.storage import Storage

Function = TypeVar("Function", bound=Callable[..., Any])
SHAPES, TRACES = 8, 8
"""Shapes after which a function of several operations is compiled for any that is new, as compiling it takes as long as these calls lose; unless it was
traced as often since, as its program looks at extents."""
BACK, OFTEN, NUMBERED = 8, 16, 32
"""Calls after which a function is compiled for the numbers among its arguments, which may be new in every call, and for other arguments once it was for
`OFTEN` others; and for how many numbers at most."""
_ARRAYS, _FLOATING = frozenset([Array, np.ndarray]), frozenset([float, complex])
_NUMBERS, _INTEGER = _FLOATING | {int, bool}, {int}
_FIXED = frozenset([type(None), bool, int, str, type, np.dtype, *map(type, map(np.dtype, "?bBhHiIlLefdFD"))])
"""Types of arguments that are remembered by value: equal ones of one of these types are alike."""
_OBJECTS = frozenset([type(None), bool, str, type, *map(type, map(np.dtype, "?bBhHiIlLefdFD"))])
"""Those of which equal ones are mostly one object."""
_compiler: list[Callable[[Callable[..., Any], Any], Callable[..., Any]]] = []
_lock = threading.Lock()
_learning: list[None] = []
"""As many as calls are learnt from, in all threads: what they call runs as it is written, so that its operations are noted."""
forks.anew(__name__, _lock=threading.Lock, _learning=list)


def set_compiler(compiled: Callable[[Callable[..., Any], Any], Callable[..., Any]]) -> None:
    """Install what compiles a function of arrays as one program (`jit`, a higher floor), given what it is known by in all processes, or None."""
    _compiler[:] = [compiled]


class Calls:
    """What is known of the calls of one function."""

    def __init__(self, function: Callable[..., Any], operands: int, whole: bool) -> None:
        self.function, self.operands, self.whole = function, operands, whole
        self.call: Callable[..., Any] = function
        """The function, decorated."""
        self.name = _name(function)
        """What it is known by in all processes that run these sources, or ""."""
        self.runs: dict[Any, Run] = {}
        """What a call comes to, by the structures of its operands and its other arguments, and by all extents."""
        self.families: dict[Any, Any] = {}
        """What serves operands of any extents, by all but these."""
        self.programs: dict[Any, Any] = {}
        """The function compiled, by its other arguments."""
        self.several: dict[Any, int] = {}
        """Calls that took several operations, and how often each came."""
        self.numbered = 0
        """For how many numbers the function was compiled."""
        self.shapes: dict[Any, int] = {}
        """In how many shapes they did, by all but these."""
        self.traces: dict[Any, int] = {}
        """How often the program was traced for a new one then."""
        self.traced = 0
        """How often programs of it were traced at all."""
        self.roads: dict[Any, Road] = {}
        """The shortest roads to these, by the structures of operands, and by which objects other arguments are."""
        self.recent: dict[Any, tuple[Run, Any, tuple[Any, ...]]] = {}
        """Some of `runs`, by which objects the types of their operands are; with these, and with the objects that their other arguments are."""
        cached.register(self)

    def clear_cache(self) -> None:
        """Forget all."""
        for cache in (
            self.runs,
            self.families,
            self.programs,
            self.several,
            self.shapes,
            self.traces,
            self.roads,
            self.recent,
        ):
            cache.clear()
        self.numbered = 0


def _name(function: Any) -> str:
    code = getattr(function, "__code__", None)
    if code is None or function.__closure__ or "<" in code.co_qualname:
        return ""
    module = str(function.__globals__["__name__"])
    return f"{module}.{code.co_qualname}" if module.partition(".")[0] == _PACKAGE else ""


_PACKAGE = __name__.partition(".")[0]


def again(
    operands: int,
    whole: bool = False,
    shorter: Callable[[Array], Array | None] | None = None,
    rounds: bool = False,
) -> Callable[[Function], Function]:
    """Decorate a function whose first `operands` arguments are arrays, and which looks at types and other arguments alone, never at
    values; at extents only to find them equal, 0 or 1. Calls at once with the types of an earlier call go straight to its plan. With
    `whole`, it is compiled as one program from the first call on, without numbers among its operands, nor floats among its options; else when a type comes
    back, with the same numbers often (`BACK`), if it is more than one operation. A call with one
    array and nothing else is what `shorter` gives for it, unless that is None. Where it `rounds` integers beside floating-point arrays to their
    type, larger ones than the commonest are floats: `x / len(x)` has another one for every length.

    >>> import sparsejax as sj
    >>> twice = again(1)(lambda x: x + x)
    >>> [twice(sj.array(np.array([n]))).item() for n in range(3)]
    [0, 2, 4]
    """

    def decorate(function: Function) -> Function:
        calls = Calls(function, operands, whole)
        known, recent, ways, single, pair = calls.runs, calls.recent, calls.roads, operands == 1, operands == 2

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if stack.traces or config.forcing or _learning:
                return function(*args, **kwargs)
            mark: Any = None
            short: Any
            given: list[Storage]
            extents: tuple[int, ...]
            if kwargs:
                pass
            elif pair and len(args) == 2:
                a, b = args
                if type(a) is Array:
                    if type(b) is Array:
                        mark, given = (id(a._aval), id(b._aval)), [a._storage, b._storage]
                    elif (kind := type(b)) is float:
                        mark, given = (id(a._aval), kind), [a._storage, primitive.weak_scalar(b)._storage]
                    elif kind is int:
                        if rounds and not -5 <= b <= 256 and _is_exact(b, a._aval):
                            return call(a, float(b))
                        mark, given = (id(a._aval), kind, b), [a._storage]
                elif type(b) is Array:
                    if (kind := type(a)) is float:
                        mark, given = (kind, id(b._aval)), [primitive.weak_scalar(a)._storage, b._storage]
                    elif kind is int:
                        if rounds and not -5 <= a <= 256 and _is_exact(a, b._aval):
                            return call(float(a), b)
                        mark, given = (kind, a, id(b._aval)), [b._storage]
            elif single and args and type(a := args[0]) is Array:
                n = len(args)
                if n == 1:
                    if shorter is not None and (found := shorter(a)) is not None:
                        return found
                    mark = id(a._aval)
                else:
                    mark = (id(a._aval), id(args[1])) if n == 2 else (id(a._aval), *map(id, args[1:]))
                given = [a._storage]
            if mark is not None:
                same = recent.get(mark)
                if same is not None and (found := same[0](given)) is not None:
                    return found
                if pair and type(a) is type(b):  # most of them, without a frame
                    short, extents = (a._aval._kind, b._aval._kind), a._aval.shape + b._aval.shape
                else:
                    short = _short(args, operands)
                    extents = given[0].shape if len(given) == 1 else given[0].shape + given[1].shape
                road = ways.get(short)
                if road is not None and (found := road.run(given, extents, mark, args)) is not None:
                    return found
            key: list[Any] = []
            storages: list[Storage] = []
            extents, fixed = (), False
            for a in args:
                kind = type(a)
                if kind is Array:
                    aval = a._aval
                    key.append(aval._kind if aval._kind >= 0 else aval.kind)
                    extents += aval.shape
                    storages.append(a._storage)
                elif kind in _FIXED or (kind is tuple and set(map(type, a)) <= _INTEGER):
                    key += kind, a
                elif kind is np.ndarray and len(key) < operands:
                    try:
                        storage, aval = primitive.viewed(a)
                    except TypeError:  # a dtype that is not supported: the function calls the argument by its name
                        return function(*args, **kwargs)
                    key.append(aval._kind if aval._kind >= 0 else aval.kind)
                    extents += aval.shape
                    storages.append(storage)
                elif kind in _FLOATING and len(args) == operands:
                    key.append(kind)
                    storages.append(primitive.weak_scalar(a)._storage)
                elif kind in _FLOATING and len(storages) == operands:
                    key += kind, repr(a)
                    fixed = True
                else:
                    return function(*args, **kwargs)
            if kwargs:
                for name, value in kwargs.items():
                    if type(value) in _FIXED or (type(value) is tuple and set(map(type, value)) <= _INTEGER):
                        key += name, type(value), value
                    elif type(value) in _FLOATING:
                        key += name, type(value), repr(value)
                        fixed = True
                    else:
                        return function(*args, **kwargs)
            noted: Any = tuple(key), extents
            run = known.get(noted)
            valued = run is _by_value
            if valued:
                noted, _, storages = _told_apart(args, noted, None, storages)
                run = known.get(noted)
            if mark is not None and (len(storages) != len(given) or not all(map(_comes_back, args[operands:]))):
                mark = None
            if run is None:
                return _first(calls, args, kwargs, noted, None if valued else storages, mark is not None, fixed)
            if mark is not None:
                if len(recent) > roads.REMEMBERED:
                    recent.clear()
                recent.setdefault(mark, (run, [a._aval for a in args if type(a) is Array], args[operands:]))
            return run(storages)

        calls.call = call
        return call  # type: ignore[return-value]

    return decorate


def _is_exact(value: int, aval: Aval) -> bool:
    """Whether a number is rounded to the type of an array as the float is that it equals."""
    kind, size = aval.dtype.kind, aval.dtype.itemsize
    return -(2**53) <= value <= 2**53 and (kind == "c" or (kind == "f" and size >= 4))


def _comes_back(value: Any) -> bool:
    """Whether an argument is likely the same object in later calls."""
    return type(value) in _OBJECTS or (type(value) is int and -5 <= value <= 256)


def _first(
    calls: Calls,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    key: Any,
    storages: list[Storage] | None,
    short: bool,
    fixed: bool,
) -> Any:
    """A call of types that are not known yet; what is learnt of it is kept. `storages` are those of its operands, None where values of numbers are
    part of the key. Whether there is a `short` road to it, and whether numbers are `fixed` that are no operands: nothing is learnt then of one operation."""
    function, known, valued = calls.function, calls.runs, storages is None
    types = {type(a) for a in args[: calls.operands]}
    numbered = fixed or not types.isdisjoint(_NUMBERS)
    seldom = not numbered and len(calls.programs) < OFTEN
    if not numbered or calls.numbered < NUMBERED:
        if (calls.whole and seldom) or calls.several.get(key, 0) >= (1 if seldom else BACK):
            return _compiled(calls, args, kwargs, key, None, valued, numbered)
        if storages is not None and calls.shapes.get(key[0], 0) >= SHAPES and calls.traces.get(key[0], 0) < TRACES:
            return _compiled(calls, args, kwargs, key, key[0], False, numbered)
    kinds, noted = None, None
    if fixed:
        kinds = key[0]
    elif storages is not None:
        kinds, extents = key
        served = calls.families.get(kinds)
        if served is _by_value:
            valued, noted = True, key
            key, kinds, storages = _told_apart(args, key, kinds, storages)
            served = calls.families.get(kinds)
        if served is not None:
            if served.met.get(extents, 0) < roads.FEW:
                road = served.road(args, calls.operands, calls.recent)
                found = road.run(storages, extents, None, args)
                if found is not None:
                    if short and not valued:
                        _keep(calls.roads, _short(args, calls.operands), road)
                    return found
            else:
                run = _planned(served, storages, args)
                if run is not None:
                    _keep(known, key, run)
                    if noted is not None:
                        _keep(known, noted, _by_value)
                    return run(storages)
    _learning.append(None)
    try:
        with primitive.noting() as notes:
            result = function(*args, **kwargs)
    finally:
        _learning.pop()
    if len(notes) > 1:
        if not valued and not types.isdisjoint(_FLOATING):
            _keep(known, key, _by_value)
        elif types <= _ARRAYS | _NUMBERS:
            _keep(calls.several, key, calls.several.get(key, 0) + 1)
            if kinds is not None:
                _keep(calls.shapes, kinds, calls.shapes.get(kinds, 0) + 1)
    elif fixed:
        return result
    elif notes and type(notes[0].family) is Mapped:
        mapped = notes[0].family
        in_place = len(args) == mapped.count and type(args[mapped.place]) is Array
        if short and in_place and result is notes[0].results[0]:
            _keep(calls.roads, _short(args, calls.operands), _over_values(calls.call, mapped))
    elif notes and type(result) is Array:
        run = _straight(notes[0], args, result, valued)
        if run is not None:
            _keep(known, key, run)
            if noted is not None:
                _keep(known, noted, _by_value)
        elif kinds is not None and storages is not None:
            places = _places(notes[0], args, result, valued)
            if places is None and not valued and (places := _places(notes[0], args, result, True)) is not None:
                _keep(calls.families, kinds, _by_value)
                key, kinds, storages = _told_apart(args, key, kinds, storages)
            if places is not None:
                in_place = places == list(range(len(storages)))
                served = Served(notes[0].family, None if in_place else places, {extents: roads.DEAR})
                _keep(calls.families, kinds, served)
    return result


def _told_apart(args: tuple[Any, ...], key: Any, kinds: Any, storages: list[Storage]) -> tuple[Any, Any, list[Storage]]:
    """The keys of a call and of its structure with the values of Python's floats, and its operands without these."""
    numbers = tuple([repr(a) for a in args if type(a) in _FLOATING])
    operands = [a for a in args if type(a) not in _FIXED]
    arrays = [s for s, a in zip(storages, operands, strict=False) if type(a) not in _FLOATING]
    return (key, numbers), (kinds, numbers), arrays


def _places(note: primitive.Note, args: tuple[Any, ...], result: Array, valued: bool) -> list[int | Storage] | None:
    """Where the operands of an operation are among those of the call, ~k for a number that is argument k, or the number itself, which the function brings;
    if the operation serves operands of any extents, and is all that the call came to; else None. Python's floats are operands, unless calls are told
    apart by their values (`valued`)."""
    if note.family is None or result is not note.results[0]:
        return None
    if any(type(a) not in _FIXED for a in args[len(note.args) :]):
        return None
    own = not any(type(a) in _FLOATING for a in args)  # else a number may follow from the value of another
    made, operands = list[int | Storage](), 0
    for k, (given, value) in enumerate(zip(note.args, note.values, strict=True)):
        a = args[k] if k < len(args) else None
        if own and is_python_scalar(given) and given is not a and (a is None or type(a) in _FIXED):
            made += [value._storage] if isinstance(value, Array) else []
            continue
        number = type(a) in _FLOATING
        if a is None or _source(given) is not a or (number and not valued and not isinstance(value, Array)):
            return None
        if type(a) in _FIXED or (number and valued):
            made += [~k] if isinstance(value, Array) else []
            continue
        made.append(operands)
        operands += 1
    return made


def _over_values(call: Callable[..., Any], mapped: Mapped) -> Road:
    """The way for numbers on which fills depend (`core/entrywise`): the function of what is stored, a dense array, takes its own shortest road."""

    def run(storages: list[Storage], extents: tuple[int, ...], mark: Any, args: tuple[Any, ...]) -> Array | None:
        return mapped.result(args, call)

    return Road(run, ())


def _short(args: tuple[Any, ...], operands: int) -> Any:
    """What a call is known by on the shortest road: its first argument is an array, or one of two operands is. Numbers are known by their type or, integers,
    by their value; other arguments by which objects they are."""
    a = args[0]
    if len(args) == 1:
        return a._aval._kind
    if operands == 1:
        return (a._aval._kind, *map(id, args[1:]))
    b = args[1]
    return (
        a._aval._kind if type(a) is Array else float if type(a) is float else (a,),
        b._aval._kind if type(b) is Array else float if type(b) is float else (b,),
    )


def _planned(served: Served, storages: list[Storage], args: tuple[Any, ...]) -> Run | None:
    """The plan for one of the shapes that are served; None where there is none."""
    given, places = served.given(args), served.places
    storages = storages if given is None else given(storages)
    arrays = [Array(s) for s in storages]
    found = served.family.known([a._aval for a in arrays], arrays)
    if found is None:
        return None
    plan = found[0].cache["plan"]
    if len(plan.out_avals) != 1 or found[0].consts:
        return None
    numbers = [(n, storages[n]) for n, k in enumerate(places or ()) if type(k) is not int or k < 0]
    return _run(plan.kernel, plan.out_avals[0], numbers)


def _by_value(storages: Sequence[Storage]) -> Any:
    """In place of a plan, where there is one for every value of the numbers."""
    raise AssertionError("a mark is no plan")


def _keep(known: dict[Any, Any], key: Any, value: Any) -> None:
    with _lock:
        known[key] = value
        primitive.forget(known, roads.REMEMBERED)


def _straight(note: primitive.Note, args: tuple[Any, ...], result: Array, valued: bool) -> Run | None:
    """The plan of the only operation of a call, over the operands as they are given; None where it takes others, or another result. The
    values of Python's floats are part of it where types depend on them."""
    plan = None if note.closed is None else note.closed.cache.get("plan")
    if (
        plan is None
        or note.closed is None
        or note.closed.consts
        or len(note.results) != 1
        or result is not note.results[0]
    ):
        return None
    floats = [a for a in args if type(a) in _FLOATING and not valued]
    if floats and note.primitive.static is not None:
        return _by_value
    given = [a for a in args if isinstance(a, Array | np.ndarray) or (type(a) in _FLOATING and not valued)]
    constants: list[tuple[int, Storage]] = []
    taken: list[Any] = []
    for a, v in zip(note.args, note.values, strict=True):
        if isinstance(v, Array):
            if is_python_scalar(a) and not any(
                a is f for f in floats
            ):  # a number that was remembered by value, read at run time
                constants.append((len(taken) + len(constants), v._storage))
            else:
                taken.append(_source(a))
    if len(taken) == len(given) and all(map(operator.is_, taken, given)):
        return _run(plan.kernel, plan.out_avals[0], constants)
    return _by_value if floats else None


def _source(value: Any) -> Any:
    """The array of NumPy's that a view for one call is of; else the value."""
    return value._storage.cache.get("transient", value) if type(value) is Array else value


def _run(kernel: Any, aval: Any, constants: Sequence[tuple[int, Storage]]) -> Run:
    plain = maker(kernel, aval)
    if not constants:
        return plain

    def run(storages: list[Storage]) -> Array:
        for place, constant in constants:
            storages.insert(place, constant)
        return plain(storages)

    return run


def _fixed(a: Any) -> tuple[type, Any]:
    """An argument that is remembered by value, floats by their bits."""
    return type(a), repr(a) if type(a) in _FLOATING else a


def _compiled(
    calls: Calls, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any, kinds: Any, valued: bool, numbered: bool
) -> Any:
    """A call of the function as one program; if it is traced, that is counted for these `kinds` of arguments. Numbers among its operands are part of it where
    calls are told apart by their values (`valued`). Programs with numbers (`numbered`) are counted."""
    function = calls.function
    arrays = [a for a in args if isinstance(a, Array | np.ndarray)]
    count = len(arrays)
    rest = args[count:]
    numbers = not valued and any(type(a) in _FLOATING for a in args[: calls.operands])
    if numbers or not all(a is b for a, b in zip(args, arrays, strict=False)):
        return function(*args, **kwargs)
    fixed = count, *map(_fixed, rest), *[(n, _fixed(a)) for n, a in kwargs.items()]
    program: Any = calls.programs.get(fixed)
    if program is None:

        @functools.wraps(function)
        def of_arrays(*operands: Any) -> Any:
            calls.traced += 1
            return function(*operands, *rest, **kwargs)

        del of_arrays.__wrapped__
        calls.numbered += numbered
        program = _compiler[0](of_arrays, (calls.name, fixed) if calls.name else None)
        _keep(calls.programs, fixed, program)
    before = calls.traced
    result = program(*arrays)
    if kinds is not None and calls.traced > before:
        _keep(calls.traces, kinds, calls.traces.get(kinds, 0) + 1)
    run = program.quick(tuple([a._aval if isinstance(a, Array) else primitive.viewed(a)[1] for a in arrays]))
    if run is not None:
        _keep(calls.runs, key, run)
    return result
