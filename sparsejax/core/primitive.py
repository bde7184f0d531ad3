"""Primitive: one operation and all its rules."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from sparsejax import config, forks
from sparsejax.core import entrywise, numbered
from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval, scalar_aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from sparsejax.core.numbered import Numbered
from sparsejax.core.source import user_line
from sparsejax.core.symbolic import SymbolicDim, as_value
from sparsejax.core.trace import Trace, Tracer, current, is_python_scalar, leaked
from sparsejax.formats import Format, ingest, scipy_io
from sparsejax.formats.storage import Storage, Template, dense_template

Rule = Callable[..., Any]


class Records(Protocol):
    """What earlier processes have planned."""

    def name(self, key: Any) -> Any:
        """The name of the record of a program with this key; None where it has none."""

    def recall(self, name: Any, make: Callable[[], ClosedJaxpr], arrays: Sequence[Array], shared: bool) -> Any:
        """What runs the program of a record, which `make` makes, on such operands, as a `ClosedJaxpr`; None where no process has planned it."""

    def of_shapes(self, key: Any, shared: bool, extra: Any) -> Any:
        """Where traces of the program of a key are kept that serve many shapes (`jit/runtime/shapes`)."""

    def keep(self, name: Any, closed: Any, arrays: Sequence[Array]) -> None:
        """Keep for other processes what a program became that has run on these operands, in the record of this name, if any; traces for many shapes
        know where they are kept."""


Executor = Callable[[ClosedJaxpr, Sequence[Array]], list[Array]]

_executor: list[Executor] = []
_eager: dict[Any, ClosedJaxpr] = {}
_once: dict[Any, bool] = {}
"""Operations that ran once, without a plan of their own: should they come back, they get one."""
_direct: list[Callable[..., Array]] = []
_lifts: dict[Any, bool] = {}
_families: dict[Any, Any] = {}
_new_family: list[Callable[[], Any]] = []
_records: list[Records] = []
_PACKAGE = __name__.partition(".")[0]
_named: dict[str, Primitive | None] = {}
"""The primitives by name; None where several have it."""
_lock = threading.Lock()
forks.anew(__name__, _lock=threading.Lock)


REMEMBERED = 2048
"""How many operations that ran at once are remembered with their plans."""


def forget(cache: dict[Any, Any], most: int | None = None) -> None:
    """Drop the oldest of a cache of more than `most` (REMEMBERED), down to three quarters, so that numbers that keep changing do not fill the memory."""
    most = REMEMBERED if most is None else most
    if len(cache) > most:
        for key in list(cache)[: len(cache) - 3 * most // 4]:
            del cache[key]


def set_executor(executor: Executor) -> None:
    """Install what runs jaxprs (the compiler, a higher floor)."""
    _executor[:] = [executor]


def set_direct(run: Callable[..., Array]) -> None:
    """Install what runs one library call (a higher floor)."""
    _direct[:] = [run]


def set_families(make: Callable[[], Any]) -> None:
    """Install what finds the jaxpr of an operation for operands of a new shape (`jit/runtime/shapes`, a higher floor)."""
    _new_family[:] = [make]


def new_family() -> Any:
    """What finds the jaxpr of one program for operands of any extents."""
    return _new_family[0]()


def set_records(records: Records) -> None:
    """Install what remembers programs from process to process (`jit/runtime/kept/programs`, a higher floor)."""
    _records[:] = [records]


def execute(closed: ClosedJaxpr, arrays: Sequence[Array]) -> list[Array]:
    """Run a jaxpr on its constants and inputs."""
    return _executor[0](closed, arrays)


class Note(NamedTuple):
    """An operation that ran at once: its jaxpr (None: a library call without one), its operands as they were given and as they were taken,
    its results, and what serves such operands of any extents, where that served these."""

    primitive: Primitive
    closed: ClosedJaxpr | None
    args: Sequence[Any]
    values: Sequence[Any]
    results: Sequence[Array]
    family: Any


class _Noting(threading.local):
    notes: list[Note] | None = None


_noting = _Noting()


@contextmanager
def noting() -> Iterator[list[Note]]:
    """Note the operations that this thread runs at once."""
    before = _noting.notes
    notes: list[Note] = []
    _noting.notes = notes
    try:
        yield notes
    finally:
        _noting.notes = before
        if before is not None:
            before.extend(notes)


def note(primitive: Primitive, x: Array, result: Array) -> None:
    """Note an operation on one array that ran at once, without a program, if this thread's are noted."""
    if _noting.notes is not None:
        _noting.notes.append(Note(primitive, None, (x,), (x,), (result,), None))


class Primitive:
    """One operation with its rules; each is documented in docs/how-it-works/design.md, section 3.

    typing(*avals, **params) -> Aval              reference(*ndarrays, **params) -> ndarray
    notation(*operands, **params) -> Definition   call(*storages, out_aval, **params) -> Storage
    prefers_call(*avals, **params) -> bool        batch: see `core.batching`; jvp, transpose: see `core.tangents`
    on_numpy(*avals, **params) -> function or None: `call` as a function of NumPy's arrays and of one that it writes the result to; asked
    for where all of them are dense and in NumPy's order; where extents are bounds, it is for all extents
    describe(**params) -> str                     the parameters as printed in jaxprs (default: name=value)
    static(position, number) -> bool              whether the code should depend on that number (default: where the type does)
    extents(change, **params) -> params           the parameters with every extent changed, where some are extents (default: none are)

    bodies(**params) -> ClosedJaxprs              what it runs, without constants: a `call` gets their plans as `bodies`
    kept(**params) -> a range for each body       the operands that are its first inputs whenever it runs
    linearize(primals, tangents, **params) -> (results, tangents): in place of binding and `jvp`, where they share work
    factored(moving, *avals, **params) -> closed jaxpr: simpler operations that are differentiated in its place, or None
    prune(used, **params) -> (operands that are read, results that stay, params): the same for those results alone that are used

    effect: it does something beside computing a result, so that it stays where nobody reads that, and twice where it stands twice
    refuses(**params) -> bool: whether its call raises where operands are wrong, so that it stays where readers turn out not to need its values
    asks: it calls a function of the user, which may take any time
    entrywise: every entry of a result depends on the same entries of the operands alone
    remembered: its library call gives the same storage for the same operands, so that copies of the result stay where these stay

    pushdown(maker, **params) -> function of the operands of the equation `maker`, or None: the same of the result of that equation, if
    there is a way that computes less of it

    With `multiple`, typing gives a tuple of types, and binding and `call` a list of results; with `partial`, too, `call` is given None as the type of
    a result that nobody reads, which may be anything. `inline(**params)` is the jaxpr that stands for the operation: it takes its place before
    anything is compiled.
    """

    def __init__(
        self,
        name: str,
        *,
        typing: Rule,
        reference: Rule,
        notation: Rule | None = None,
        call: Rule | None = None,
        prefers_call: Rule | None = None,
        batch: Rule | None = None,
        jvp: Rule | None = None,
        transpose: Rule | None = None,
        describe: Callable[..., str] | None = None,
        multiple: bool = False,
        partial: bool = False,
        inline: Rule | None = None,
        static: Callable[[int, Any], bool] | None = None,
        extents: Rule | None = None,
        bodies: Rule | None = None,
        kept: Rule | None = None,
        linearize: Rule | None = None,
        factored: Rule | None = None,
        prune: Rule | None = None,
        pushdown: Rule | None = None,
        on_numpy: Rule | None = None,
        effect: bool = False,
        refuses: Callable[..., bool] | None = None,
        asks: bool = False,
        remembered: bool = False,
        entrywise: bool = False,
    ) -> None:
        self.name = name
        _named[name] = self if name not in _named else None
        self._own = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] == _PACKAGE
        self.typing = typing
        self.reference = reference
        self.notation = notation
        self.call = call
        self.prefers_call = prefers_call
        self.batch = batch
        self.jvp = jvp
        self.transpose = transpose
        self.describe = describe
        self.multiple, self.partial = multiple, partial
        self.inline = inline
        self.static = static
        self.extents = extents
        self.bodies = bodies
        self.kept = kept
        self.linearize = linearize
        self.factored = factored
        self.prune = prune
        self.pushdown = pushdown
        self.on_numpy = on_numpy
        self.effect = effect
        self.refuses = refuses
        self.asks = asks
        self.remembered = remembered
        self.entrywise = entrywise

    def __repr__(self) -> str:
        return f"Primitive({self.name!r})"

    @property
    def is_known(self) -> bool:
        """Whether it is the only one of its name, in every process: this package's, as others may mean something else by it there."""
        return self._own and _named[self.name] is self

    @property
    def views(self) -> bool:
        """Whether its library call serves any operands: it has one, and no rule about when that is preferred."""
        return self.call is not None and self.prefers_call is None

    def uses_call(self, avals: Sequence[Aval], params: dict[str, Any]) -> bool:
        """Whether this use is a library call rather than part of a compiled kernel."""
        if self.notation is None:
            return True
        return self.call is not None and self.prefers_call is not None and bool(self.prefers_call(*avals, **params))

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply the primitive: recorded when a function is being traced, run at once otherwise."""
        trace = current()
        values = [_value(a, k, self.name, trace is not None) for k, a in enumerate(args)]
        if trace is not None:
            return self._stage(trace, values, params)
        for value in values:
            if isinstance(value, Tracer):
                leaked(value)
        return self._run(values, params, args)

    def out_avals(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        """The types of the results."""
        made = self.typing(*avals, **params)
        return made if self.multiple else (made,)

    def _stage(self, trace: Trace, values: list[Any], params: dict[str, Any]) -> Any:
        atoms = tuple(trace.atom(v) for v in values)
        outs = tuple(Var(a) for a in self.out_avals([a.aval for a in atoms], params))
        trace.eqns.append(Eqn(self, atoms, tuple(params.items()), outs, user_line()))
        made = [Tracer(trace, out) for out in outs]
        return made if self.multiple else made[0]

    def _lifted(self, values: list[Any], params: dict[str, Any]) -> list[Any]:
        """Python numbers as run-time scalars where the type of the result does not need their values, so that another
        number does not mean another kernel. It does need them for a fill: `A + 1` is sparse with fill 1."""
        avals = [v.aval if isinstance(v, Array) else scalar_aval(v, is_literal=False) for v in values]
        ones = [tuple([n if n < 2 else 2 for n in a.shape]) for a in avals]  # what broadcasts
        key = (self, tuple(params.items()), *[a.structure for a in avals], *ones)
        lift = _lifts.get(key)
        if lift is None:
            sparse = any(not a.format.is_dense for a in avals)
            lift = not sparse or not self.typing(*avals, **params).format.is_dense
            with _lock:
                _lifts[key] = lift
                forget(_lifts)
        if not lift:
            return values
        return [
            v if isinstance(v, Array) or (self.static is not None and self.static(k, v)) else weak_scalar(v)
            for k, v in enumerate(values)
        ]

    def _run(self, values: list[Any], params: dict[str, Any], args: Sequence[Any]) -> Any:
        numbers = any(not isinstance(v, Array) for v in values)
        if numbers:
            values = self._lifted(values, params)
            numbers = any(not isinstance(v, Array) for v in values)
        elif len(values) == 1:
            numbers = bool(values[0]._aval.fill_value)  # one that an earlier operation may have made
        if numbers and self.entrywise and not config.forcing:
            mapped = entrywise.of_values(self, values, params, lambda *given: self._on_values(given, params))
            if mapped is not None:
                if _noting.notes is not None:
                    _noting.notes.append(Note(self, None, args, values, mapped[:1], mapped[1]))
                return mapped[0]
        key = (
            self,
            tuple(params.items()),
            tuple(v.aval if isinstance(v, Array) else (type(v), repr(v)) for v in values),
        )
        arrays = [v for v in values if isinstance(v, Array)]
        closed = _eager.get(key)
        if closed is None and self._is_plain(values) and key not in _once:
            with _lock:
                _once[key] = True  # what comes back is planned: that is quicker the third time
                forget(_once)
            (out,) = self.out_avals([a.aval for a in arrays], params)
            if _noting.notes is not None:
                _noting.notes.append(Note(self, None, args, values, (), None))
            return _direct[0](self, arrays, out, params)
        planned, name = closed is None, None
        if closed is None:
            alike, others = self._alike(params, arrays)
            family = self._family(key, alike)
            if key not in _once:
                with _lock:
                    _once[key] = True  # what comes back is planned
                    forget(_once)
                given = extents_of(arrays) + others
                found = None if family is None else family.once(given, [a._storage for a in arrays])
                if found is not None:
                    if _noting.notes is not None:
                        # extents of other calls may be equal to others
                        serves = family if self.extents is None else None
                        _noting.notes.append(Note(self, None, args, values, found[0], serves))
                    return found[0] if self.multiple else found[0][0]
            closed, name = self._at_once(values, arrays, key, family, alike, others)
            with _lock:
                closed = _eager.setdefault(key, closed)
                forget(_eager)
        results = execute(closed, arrays)
        if planned:
            _records[0].keep(name, closed, arrays)
        if _noting.notes is not None:
            _noting.notes.append(Note(self, closed, args, values, results, None))
        return results if self.multiple else results[0]

    def _on_values(self, given: Sequence[Any], params: dict[str, Any]) -> Any:
        """The operation on stored values and numbers, which is part of another and not noted by itself."""
        before, _noting.notes = _noting.notes, None
        try:
            return self._run(list(given), params, given)
        finally:
            _noting.notes = before

    @property
    def _is_pure(self) -> bool:
        """Whether its name, parameters and operands say all that it does."""
        return self.is_known and not self.effect and not self.asks and self.notation is not None

    def _is_plain(self, values: list[Any]) -> bool:
        """Whether a library call of one result is all there is to do."""
        plain = self.notation is None and self.call is not None and self.bodies is None and self.inline is None
        return plain and not self.multiple and not config.forcing and all(isinstance(v, Array) for v in values)

    def _at_once(
        self,
        values: list[Any],
        arrays: list[Array],
        key: Any,
        family: Any,
        alike: dict[str, Any],
        others: tuple[int, ...],
    ) -> tuple[ClosedJaxpr, Any]:
        """The operation as a jaxpr: for these shapes, with the name of its record, or for those of its `family`, which differ in their extents alone."""
        line, numbers = user_line(), [None if isinstance(v, Array) else v for v in values]

        def make(avals: Sequence[Aval]) -> tuple[ClosedJaxpr, Any]:
            trace, given, params = Trace(), iter(avals), self._with_extents(alike, avals)
            inputs: list[Var] = []
            atoms: list[Atom] = []
            for number in numbers:  # not the arrays, which whoever keeps this would keep
                if number is None:
                    inputs.append(Var(next(given)))
                    atoms.append(inputs[-1])
                else:
                    literal = trace.atom(number)
                    assert isinstance(literal, Literal)
                    atoms.append(literal)
            outs = tuple(Var(a) for a in self.out_avals([a.aval for a in atoms], params))
            eqn = Eqn(self, tuple(atoms), tuple(params.items()), outs, line)
            return ClosedJaxpr(Jaxpr(tuple(inputs), (), (eqn,), outs), (), shared=True), None

        avals = [a.aval for a in arrays]
        if others:
            avals.append(Aval(others, np.bool_, Format.parse("dense", len(others))))
        if family is None or not self._is_pure or others:
            found = None if family is None else family.find(avals, arrays, make)
            return (found or make(avals))[0], None
        known_by = self.name, tuple(alike.items()), tuple([None if isinstance(k, Aval) else k for k in key[2]])
        found = family.find(avals, arrays, make, _records[0].of_shapes(known_by, True, None))
        if found is not None:
            return found[0], None
        name = _records[0].name((self.name, *key[1:]))
        return _records[0].recall(name, lambda: make(avals)[0], arrays, True) or make(avals)[0], name

    def _alike(self, params: dict[str, Any], arrays: Sequence[Array]) -> tuple[dict[str, Any], tuple[int, ...]]:
        """The parameters with ~k for extents, the first as large of those of operands and of the others, which come with them; themselves, where none
        are extents."""
        if self.extents is None:
            return params, ()
        place = Numbered(extents_of(arrays))
        made: dict[str, Any] = self.extents(place, **params)
        return made, place.others

    def _with_extents(self, alike: dict[str, Any], avals: Sequence[Aval]) -> dict[str, Any]:
        """The parameters for operands of these types."""
        if self.extents is None:
            return alike
        made: dict[str, Any] = self.extents(numbered.at([n for a in avals for n in a.shape]), **alike)
        return made

    def _family(self, key: Any, alike: dict[str, Any]) -> Any:
        """What serves all operands that differ from these in their extents alone, as do parameters; None where what it runs was traced for these
        shapes."""
        if self.bodies is not None or (self.inline is not None and self.extents is None):
            return None
        items = key[1] if self.extents is None else tuple(alike.items())
        structure = (self, items, *(k.kind if isinstance(k, Aval) else k for k in key[2]))
        family = _families.get(structure)
        if family is None:
            with _lock:
                family = _families.setdefault(structure, new_family())
                forget(_families)
        return family


def extents_of(arrays: Sequence[Any]) -> tuple[int, ...]:
    """All extents of arrays in a row."""
    return tuple([n for a in arrays for n in a._aval.shape])


def _value(value: Any, position: int, name: str, keep: bool) -> Any:
    if isinstance(value, SymbolicDim):
        return as_value(value)
    if isinstance(value, Array | Tracer) or is_python_scalar(value):
        return value
    if type(value) is np.ndarray and not keep:
        return view(value)
    return asarray(value, f"argument {position} of {name}", keep)


def named(name: str) -> Primitive:
    """The only primitive with this name; KeyError where there is none."""
    found = _named.get(name)
    if found is None:
        raise KeyError(name)
    return found


def clear_caches() -> None:
    """Forget the operations that ran at once, with their plans."""
    with _lock:
        for cache in (_eager, _families, _once, _lifts, _templates, _viewed, _seen, entrywise.met):
            cache.clear()


def weak_scalar(value: Any) -> Array:
    """A Python number as a run-time array of no dimensions, weakly typed."""
    kind = type(value)
    kept = _floats if kind is float else _integers if kind is int else None
    if kept is not None and (found := kept.get(value)) is not None:
        return found
    known = _numbers.get(kind)
    if known is None or (kind is int and not -(2**63) <= value < 2**63):
        aval = scalar_aval(value, is_literal=False)
        template = _templates.get(aval)
        if template is None:
            template = _templates[aval] = dense_template(aval.format, (), aval.dtype.type(0))
        known = aval, template
        if kind in (bool, int, float, complex) and aval.dtype != np.uint64:
            _numbers[kind] = known
    found = made(Storage.dense(known[1], np.asarray([value], known[0].dtype), {}), known[0])
    if kept is not None and (
        kind is int or (value and value == value)
    ):  # zeros of both signs are equal, NaN not to itself
        found._storage.vals.flags.writeable = False
        if len(kept) >= 256:
            kept.clear()
        kept[value] = found
    return found


_floats: dict[float, Array] = {}
_integers: dict[float, Array] = {}
"""Some numbers that were given lately."""
_templates: dict[Aval, Template] = {}
_numbers: dict[type, tuple[Aval, Template]] = {}
"""The types of Python's own numbers that fit into 64 bits."""
_viewed: dict[Any, tuple[Template, Aval]] = {}
_seen: dict[Any, Aval] = {}
"""The types of arrays of NumPy's by how many dimensions they have, by dtype, and whether they are in the order of columns: of any shape."""


def viewed(value: np.ndarray[Any, Any]) -> tuple[Storage, Aval]:
    """The storage and the type of `view(value)`, of an array of NumPy's."""
    known = _viewed.get((value.shape, value.dtype, False)) if value.flags.c_contiguous else None
    if known is None:
        made = view(value)
        return made._storage, made._aval
    flat = value if value.ndim == 1 else value.reshape(-1)
    return Storage.dense(known[0], flat, {"transient": value}), known[1]


def view(value: Any) -> Array:
    """A NumPy or SciPy operand of one call as an array: memory is viewed, not frozen, and must not outlive the call."""
    if type(value) is not np.ndarray:
        return Array(ingest.operand_storage(value))
    flags = value.flags
    fortran = flags.f_contiguous and not flags.c_contiguous
    if not (fortran or flags.c_contiguous):
        return Array(ingest.operand_storage(value))
    key = value.shape, value.dtype, fortran
    known = _viewed.get(key)
    if known is None:
        like = _seen.get((value.ndim, value.dtype, fortran))
        if like is None:
            first = Array(ingest.operand_storage(value))
            if first.dtype != value.dtype:
                return first
            like = _seen[value.ndim, value.dtype, fortran] = first.aval
        if len(_viewed) > 4096:
            _viewed.clear()
        aval = like.at(value.shape)
        known = _viewed[key] = dense_template(like.format, value.shape, like.fill_value), aval
    storage = Storage.dense(known[0], value.reshape(-1, order="F" if fortran else "C"), {"transient": value})
    return made(storage, known[1])


def view_as(value: np.ndarray[Any, Any], aval: Aval, template: Template) -> Storage | None:
    """The storage of `view(value)` if that is of the type `aval`, a dense array in the order of NumPy with this template; else None."""
    if value.shape != aval.shape or value.dtype != aval.dtype or not value.flags.c_contiguous:
        return None
    return Storage.dense(template, value if value.ndim == 1 else value.reshape(-1), {"transient": value})


def plain_template(aval: Aval) -> Template | None:
    """The template of NumPy's arrays of the type `aval`; None where none has it: they are dense, in the order of rows, without fill."""
    plain = Aval(aval.shape, aval.dtype, Format.parse("dense", aval.ndim))
    return dense_template(plain.format, plain.shape, plain.dtype.type(0)) if plain == aval else None


def as_operand(value: Any, what: str) -> Any:
    """An operand of a primitive: `asarray` that keeps nothing of the caller's when the call runs at once, a copy when it is
    traced and the program remembers it."""
    try:
        if type(value) is np.ndarray and current() is None:
            return view(value)
        return asarray(value, what, keep=current() is not None)
    except TypeError as error:
        said = str(error)
        if not said.startswith("dtype "):
            raise
        raise TypeError(f"{what}: {said}") from None


def asarray(value: Any, what: str = "the argument", keep: bool = True) -> Any:
    """An Array or Tracer for anything array-like; TypeError names `what`.

    With `keep` the array may outlive the call and owns a copy; without, it views the caller's memory for one call.
    """
    if type(value) is Array:
        return value
    if isinstance(value, SymbolicDim):
        return asarray(as_value(value), what, keep)
    if isinstance(value, Array | Tracer):
        if isinstance(value, Tracer) and not value.maker.open:
            leaked(value)
        return value
    if isinstance(value, np.ndarray | np.generic | list | bool | int | float | complex) or scipy_io.is_scipy(value):
        return Array(ingest.as_storage(value, copy=True)) if keep else view(value)
    raise TypeError(
        f"{what} must be an array (sparsejax, NumPy or SciPy sparse) or a number, but it is of type {type(value).__name__}; "
        "convert it first with sparsejax.array"
    )
