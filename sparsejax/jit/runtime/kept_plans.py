"""Programs on disk: what an earlier process has typed, fused, scheduled and lowered, a new one only reads.

    key      sources of this package, host | settings, prices | an operation with its parameters, or a function of this package | types of operands
    record   a line of JSON: steps, the facts that their plans are for, what kernels read, results | machine code

Operations at once have records, and functions that are compiled as a whole (`core/again`); functions of users are traced in every process. A record holds what
running takes: what a `KernelRunner` finds out about its kernel when it is made, and how its plans are bound. There is no kernel in it: where operands
have other facts, or somebody asks for the kernel, the program is planned as if there were no record (`full`). Where what operands hold decided what
steps there are (`Plan.by_facts`), that is part of the key. Kernels that read numbers at run time, that are for many shapes, or whose plans depend
on collisions have no records; nor have programs that run others, or whose values are looked at on the way.

Records are entries of the object cache: framed, checked, private, and never unpickled. What cannot be read is planned.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np

from sparsejax import config
from sparsejax.cached import cached_property
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.digest import digest
from sparsejax.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var
from sparsejax.core.primitive import named
from sparsejax.errors import FormatError
from sparsejax.formats import Format, ingest
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import compiler, object_cache, records
from sparsejax.jit.codegen.constants import Numbers
from sparsejax.jit.cost import machine
from sparsejax.jit.graph import guards, partition
from sparsejax.jit.graph.shared_patterns import Families, Patterns, Positional, of_sizes
from sparsejax.jit.ir import cin
from sparsejax.jit.runtime import plan_cache
from sparsejax.jit.runtime.kernels import KernelRunner, Observed, Planned, bound
from sparsejax.jit.runtime.pattern_variants import Variants
from sparsejax.jit.runtime.plans import Plan
from sparsejax.jit.schedule import replan
from sparsejax.transforms import staging

PLANS = 4
"""Plans of a kernel, for different facts, that a record has at most."""
HELD, CONSTANTS = 1 << 20, 1 << 16
"""Bytes of operands whose content is part of a key at most, which are kept until their program is planned; and of a constant that is part of a record."""

Make = Callable[[], ClosedJaxpr]
"""What makes the program that a record is of."""
Fields = dict[str, Any]
"""A part of a record."""


class Unkept(Exception):
    """There is no record of this."""


# ------------------------------------------------------------------------------------------------------------- programs


class Kept:
    """A program that has a record, as a `ClosedJaxpr`: it is made only for who reads it."""

    def __init__(self, make: Make, record: bytes, shared: bool) -> None:
        head, _, code = record.partition(b"\n")
        fields = json.loads(head)
        images: dict[str, bytes] = {}
        for key, size in fields["code"]:
            images[key], code = code[:size], code[size:]
        self._make, self.shared = make, shared
        self.consts = tuple([_constant(*c) for c in fields["consts"]])
        self.plan = KeptPlan(fields, images, self)
        self.cache: dict[Any, Any] = {"plan": self.plan}

    @cached_property
    def closed(self) -> ClosedJaxpr:
        """The program."""
        return self._make()

    @property
    def jaxpr(self) -> Jaxpr:
        return self.closed.jaxpr

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        return self.closed.in_avals

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        return self.closed.out_avals

    def __str__(self) -> str:
        return str(self.closed)

    __repr__ = __str__


class KeptPlan(Plan):
    """The plan of a program, as a record says."""

    def __init__(self, fields: Fields, images: dict[str, bytes], program: Kept) -> None:
        self._program, self.shared, self.by_facts = program, program.shared, fields["by_facts"]
        self._made_full: Plan | None = None
        self.observed: Sequence[Storage] = ()
        """What operands held that decided what steps there are."""
        self.operands, self.out_avals = fields["operands"], [_aval(a) for a in fields["avals"]]
        self.literals = [_literal(*number) for number in fields["literals"]]
        self.steps = [
            self._runner(k, found, images) if kind == "kernel" else _call(*found)
            for k, (kind, found) in enumerate(fields["steps"])
        ]
        self.count, self.checks, self.fresh = len(self.steps), guards.NOTHING, fields["fresh"]
        self.reads, self.results, self.dead = fields["reads"], fields["results"], fields["dead"]
        first = self.operands + len(self.literals)
        self.made = [range(first + k, first + k + 1) for k in range(self.count)]
        self._bodies, self._tables = {}, {}
        self._connect()

    def _runner(self, number: int, fields: Fields, images: dict[str, bytes]) -> KeptRunner:
        def full() -> KernelRunner:
            step = self.full.steps[number]
            assert isinstance(step, KernelRunner)
            assert step.output == kept.output
            return step

        kept = KeptRunner(fields, images, self.shared, full)
        return kept

    @property
    def full(self) -> Plan:
        """The plan with its kernels, made when it is asked for first."""
        observed = self.observed  # read first: where another thread let go of them, it has made the plan before
        made = self._made_full
        if made is None:
            self._made_full = made = Plan(self._program.closed, observed)
            self.observed = ()
        return made

    @property
    def missed(self) -> bool:
        """Whether something was asked that the record does not say."""
        return self._made_full is not None

    def __getattr__(self, name: str) -> Any:
        return _of_full(self, name)


class KeptRunner(KernelRunner):
    """A kernel as a record says: what is asked beyond that, the kernel itself answers, which is planned then."""

    def __init__(
        self, fields: Fields, images: dict[str, bytes], shared: bool, full: Callable[[], KernelRunner]
    ) -> None:
        self._full, self.shared, self.positional = full, shared, fields["variants"] is not None
        self.exact, self.bounded, self.meeting, self.large = True, False, None, False
        self.origin, self.choose, self.made = None, "", frozenset()
        self.output = _tensor(fields["output"])
        self.bytes, self.mixed = fields["bytes"], fields["mixed"]
        self._watched = [(k, name) for k, name in fields["watched"]]
        self.joins = dict(_tupled(fields["joins"]))
        self.beside = _tupled(fields["beside"])
        settings, constants = config.planning(), Numbers() if shared else None
        self.plans = {}
        for facts, recipe, key in fields["plans"]:
            observed, kernel = _tupled(facts), compiler.loaded(key, images[key])
            made = bound(kernel, plan_cache.decoded(recipe, ""), self.output, fields["op"], constants, observed)
            self.plans[(*settings, (), observed)] = made
        self._by_rates = {}
        self._start()
        self.variants = None if fields["variants"] is None else KeptVariants(fields["variants"], images, self)

    @cached_property
    def full(self) -> KernelRunner:
        """The kernel itself."""
        return self._full()

    def plan(self, observed: Observed, order: replan.Order = ()) -> Planned:
        known = self.plans.get((*config.planning(), order, observed))
        return self.full.plan(observed, order) if known is None else known

    def __getattr__(self, name: str) -> Any:
        return _of_full(self, name)


class KeptVariants(Variants[KernelRunner]):
    """The kernels by position that a record has; others are made by the kernel itself."""

    def __init__(self, fields: Fields, images: dict[str, bytes], runner: KeptRunner) -> None:
        self._patterns = Patterns(_tupled(fields["groups"]), fields["alone"])
        self._runner, self.choosing = runner, nullcontext
        self._known = {}
        for families, found in fields["known"]:
            key = (*config.planning(), _tupled(families))
            self._known[key] = None if found is None else self._kept(found, images)

    def _kept(self, fields: Fields, images: dict[str, bytes]) -> tuple[Positional, KernelRunner]:
        families, sizes, runner = _tupled(fields["families"]), tuple(fields["sizes"]), self._runner
        dtype, fill = fields["fill"]

        def full() -> KernelRunner:
            step = of_sizes(runner.full.step, families, sizes)
            assert step is not None
            return KernelRunner(step.step, runner.shared, positional=False, made=runner.full.made)

        reads = tuple([(k, flat) for k, flat in fields["reads"]])
        step: Any = None  # who needs it asks the kernel itself
        made = Positional(step, reads, fields["like"], _number(dtype, fill), families, sizes)
        return made, KeptRunner(fields["kernel"], images, runner.shared, full)

    def _made(self, inputs: Sequence[Storage], families: Families) -> tuple[Positional, KernelRunner] | None:
        variants = self._runner.full.variants
        return None if variants is None else variants.of(inputs)


def _of_full(kept: Any, name: str) -> Any:
    """What is asked of a plan or a kernel that its record does not say."""
    if name.startswith("__") or name in ("full", "_full", "_made_full", "_program", "observed"):
        raise AttributeError(name)
    return getattr(kept.full, name)


# ------------------------------------------------------------------------------------------------------------- records


def recall(key: Any, make: Make, arrays: Sequence[Array], shared: bool) -> Kept | None:
    """The program with this key, if it has a record for these operands."""
    cache = object_cache.active()
    text = None if cache is None else _name(key)
    if cache is None or text is None:
        return None
    record = cache.load(text)
    if record == _BY_FACTS:
        held = _held(arrays)
        record = None if held is None else cache.load(text + held)
    try:
        found = None if record is None else Kept(make, record, shared)
    except _FOREIGN:
        return None
    if found is not None and found.plan.by_facts:
        found.plan.observed = [a._storage for a in (*found.consts, *arrays)]
    return found


_FOREIGN = ValueError, KeyError, TypeError, IndexError, AttributeError
"""What is wrong with a record that these sources did not write, whatever its key says."""


def recall_function(key: Any, function: Callable[..., Any], arrays: Sequence[Array]) -> Kept | None:
    """As `recall`, for a function of arrays with one result, which its key says all of."""
    make = functools.partial(staging.trace_to_jaxpr, lambda *given: [function(*given)], [a.aval for a in arrays])
    return recall(key, make, arrays, False)


def keep(key: Any, closed: Any, arrays: Sequence[Array]) -> None:
    """Keep a record of a program that has just run on these operands, if it is one that has records."""
    plan = closed.cache.get("plan")
    if not isinstance(plan, Plan) or (isinstance(plan, KeptPlan) and not plan.missed):
        return
    cache = object_cache.active()
    text = None if cache is None else _name(key)
    if cache is None or text is None:
        return
    with suppress(Unkept):
        record = _record(plan.full if isinstance(plan, KeptPlan) else plan, closed)
        if plan.by_facts:
            held = _held(arrays)
            if held is None:
                return
            cache.store(text, _BY_FACTS)
            text += held
        cache.store(text, record)


_BY_FACTS = b"by facts"
"""In place of a record, where there is one for every content of the operands."""


def _held(arrays: Sequence[Array]) -> str | None:
    """What operands hold, as text; None where that is much."""
    if sum(a.nbytes for a in arrays) > HELD:
        return None
    return "\n" + " ".join([digest(a._storage) for a in arrays])


def _record(plan: Plan, closed: Any) -> bytes:
    """The record of a plan; Unkept where it has none."""
    images: dict[str, bytes] = {}
    if plan.checks.before or plan._bodies or any(len(made) != 1 for made in plan.made):
        raise Unkept
    fields = {
        "operands": plan.operands,
        "consts": [_of_constant(c) for c in closed.consts],
        "literals": [_of_number(s.vals[0]) for s in plan.literals],
        "avals": [_of_aval(a) for a in plan.out_avals],
        "steps": [
            ("kernel", _of_runner(s, images)) if isinstance(s, KernelRunner) else ("call", _of_call(s.eqn))
            for s in plan.steps
        ],
        "reads": plan.reads,
        "results": plan.results,
        "dead": plan.dead,
        "fresh": plan.fresh,
        "by_facts": plan.by_facts,
        "code": [(key, len(image)) for key, image in images.items()],
    }
    return json.dumps(fields).encode() + b"\n" + b"".join(images.values())


def _of_call(eqn: Eqn) -> tuple[Any, ...]:
    primitive = eqn.primitive
    if not primitive.is_known or primitive.multiple or primitive.effect or primitive.asks or eqn.bodies:
        raise Unkept
    params = [(name, _of_param(value)) for name, value in eqn.params]
    return primitive.name, params, [_of_aval(a.aval) for a in eqn.inputs], _of_aval(eqn.outputs[0].aval)


def _call(name: str, params: Sequence[Any], inputs: Sequence[Any], out: Sequence[Any]) -> partition.CallStep:
    given, made = tuple([Var(_aval(a)) for a in inputs]), (Var(_aval(out)),)
    found = tuple([(key, _param(*value)) for key, value in params])
    return partition.CallStep(Eqn(named(name), given, found, made))


def _of_param(value: Any) -> tuple[str, Any]:
    if type(value) in (bool, int, str, type(None)):
        return "", value
    if type(value) is tuple:
        return "tuple", [_of_param(v) for v in value]
    if isinstance(value, np.dtype) and value.names is None:
        return "dtype", value.str
    if type(value) is Format:
        return "format", (_of_format(value), value.ndim)
    raise Unkept


def _param(kind: str, value: Any) -> Any:
    match kind:
        case "":
            return value
        case "tuple":
            return tuple([_param(*v) for v in value])
        case "dtype":
            return np.dtype(value)
        case "format":
            return Format.parse(*value)
    raise ValueError(kind)


def _of_constant(array: Array) -> tuple[Any, ...]:
    if not array.format.is_dense or array.format.order != tuple(range(array.ndim)) or array.nbytes > CONSTANTS:
        raise Unkept
    return array.shape, array.dtype.str, array._storage.vals.tobytes().hex()


def _constant(shape: Sequence[int], dtype: str, vals: str) -> Array:
    return Array(ingest.as_storage(np.frombuffer(bytes.fromhex(vals), dtype).reshape(shape)))


def _literal(dtype: str, value: str) -> Storage:
    number = _number(dtype, value)
    return Storage(Format(()), (), number.dtype.type(0), (), number.reshape(1))


def _of_runner(runner: Any, images: dict[str, bytes]) -> Fields:
    """A kernel with its plans under the settings as they are."""
    if not isinstance(runner, KernelRunner) or runner.bounded or runner.meeting or runner.large or not runner.exact:
        raise Unkept
    out = runner.output
    if cin.Tensor(out.name, out.shape, out.dtype, out.format, out.fill_value) != out:
        raise Unkept
    settings, plans = config.planning(), []
    for (*under, order, observed), planned in list(runner.plans.items())[-PLANS:]:
        image = compiler.latest.get(planned.binding.key)
        if tuple(under) == settings and not order and planned.recipe is not None and image is not None:
            images[planned.binding.key] = image
            plans.append((observed, plan_cache.encoded(planned.recipe), planned.binding.key))
    variants = runner.variants
    known = [] if variants is None else variants.known(settings)
    if not plans and not known:
        raise Unkept
    return {
        "output": (out.name, *_of_type(out.shape, out.dtype, out.format, out.fill_value)),
        "bytes": runner.bytes,
        "mixed": runner.mixed,
        "op": runner.nest.op,
        "watched": runner._watched,
        "joins": list(runner.joins.items()),
        "beside": runner.beside,
        "plans": plans,
        "variants": None if variants is None else _of_variants(variants, known, images),
    }


def _of_variants(variants: Variants[Any], known: Sequence[tuple[Families, Any]], images: dict[str, bytes]) -> Fields:
    found: list[tuple[Families, Fields | None]] = []
    for families, made in known:
        if made is None:
            found.append((families, None))
            continue
        read, runner = made
        kept = {
            "families": read.families,
            "sizes": read.sizes,
            "reads": read.reads,
            "like": read.like,
            "fill": _of_number(read.fill_value),
            "kernel": _of_runner(runner, images),
        }
        found.append((families, kept))
    return {"groups": variants.patterns.groups, "alone": variants.patterns.alone, "known": found}


def _of_type(shape: Sequence[int], dtype: np.dtype[Any], form: Format, fill: Any) -> tuple[Any, ...]:
    if not all(type(n) is int for n in shape):
        raise Unkept
    return tuple(shape), dtype.str, _of_format(form), _of_number(fill)


@functools.lru_cache(maxsize=256)
def _of_format(form: Format) -> str:
    """The name of a format; Unkept where it does not say all, as of levels that are not this package's."""
    name = str(form)
    try:
        known = Format.parse(name, form.ndim) == form
    except FormatError:
        known = False
    if not known:
        raise Unkept
    return name


def _tensor(fields: Sequence[Any]) -> cin.Tensor:
    name, shape, dtype, form, fill = fields
    return cin.Tensor(name, tuple(shape), np.dtype(dtype), Format.parse(form, len(shape)), _number(*fill))


def _of_aval(aval: Aval) -> tuple[Any, ...]:
    if aval.weak_type or aval.is_literal:
        raise Unkept
    return _of_type(aval.shape, aval.dtype, aval.format, aval.fill_value)


def _aval(fields: Sequence[Any]) -> Aval:
    shape, dtype, form, fill = fields
    return Aval(shape, np.dtype(dtype), Format.parse(form, len(shape)), _number(*fill))


def _of_number(value: Any) -> tuple[str, Any]:
    """A number with its type and its bits."""
    if isinstance(value, np.generic):
        return value.dtype.str, value.tobytes().hex()
    if type(value) is int:
        return "", value
    raise Unkept


def _number(dtype: str, value: Any) -> Any:
    return np.frombuffer(bytes.fromhex(value), dtype)[0] if dtype else value


def _tupled(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple([_tupled(v) for v in value]) if type(value) is list else value


# ---------------------------------------------------------------------------------------------------------------- keys


def _name(key: Any) -> str | None:
    """What the record of a program depends on, as text; None where programs have no records as things are, or a part has no spelling."""
    if config.forcing or config.told() or records.recording() or records.exchanged():
        return None
    try:
        return object_cache.named(f"program {_settings(config.planning(), config.dense_limit())}\n{spelled(key)}")
    except Unkept:
        return None


@functools.lru_cache(maxsize=16)
def _settings(*settings: Any) -> str:
    return f"{settings} {machine.current()}"


def spelled(value: Any) -> str:
    """A part of a key as text that no other value has; Unkept for what may be something else in another process.

    >>> spelled(("sum", 2, np.float32(1), np.dtype("f4"), (None, "a")))
    "('sum',2,<f4 0000803f,<f4,(None,'a',),)"
    """
    kind = type(value)
    if kind is Aval:
        fill = value.fill_value.tobytes().hex()
        return f"{value.shape}{value.dtype.str}{_of_format(value.format)}{fill}{value.weak_type}{value.is_literal}"
    if kind in _PLAIN:
        return repr(value)
    if kind is tuple:
        return f"({''.join([spelled(v) + ',' for v in value])})"
    if isinstance(value, np.dtype) and value.names is None:
        return str(value.str)
    if isinstance(value, np.generic):
        return f"{value.dtype.str} {value.tobytes().hex()}"
    if kind is Format:
        return f"Format({_of_format(value)},{value.ndim})"
    if kind is frozenset:
        return f"{{{','.join(sorted(map(spelled, value)))}}}"
    if kind is type and value.__module__ == "builtins":
        return str(value.__qualname__)
    raise Unkept


_PLAIN = frozenset([type(None), bool, int, float, complex, str, bytes])
