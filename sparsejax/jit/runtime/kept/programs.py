"""Programs on disk: what an earlier process has typed, fused, scheduled and lowered, a new one only reads.

    key      sources of this package, host | settings, prices | an operation with its parameters, or a function of this package | types of operands
             (of programs for many shapes: what stands at their extents, numbers or symbols)
    record   a line of JSON: steps, what running them takes, the facts that their plans are for, results | machine code

Operations at once have records, and functions that are compiled as a whole (`core/again`). Functions of users are traced in every process, and known by
what was traced (`recall_traced`). A record holds what
running takes (`Plan`, `Runnable`), and not what made it: where operands have other facts, or somebody asks for the kernel, the program is planned as
if there were no record (`Kept.full`). Where what operands hold decided what steps there are (`Plan.by_facts`), that is part of the key. Programs for
many shapes have records, too (`shapes`). Programs that run others have none. Of programs that differ in numbers
alone, few have records (`keys.PLACES`): each holds one, and says of which number.

Records are entries of the object cache: framed, checked, private, and never unpickled. What cannot be read is planned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sparsejax.cached import cached_property
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr, Jaxpr
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import object_cache
from sparsejax.jit.runtime import plans
from sparsejax.jit.runtime.kept import encoding, keys, planned
from sparsejax.jit.runtime.kept.encoding import Unkept
from sparsejax.jit.runtime.kept.kernels import Images
from sparsejax.jit.runtime.kept.keys import Name
from sparsejax.jit.runtime.kept.shapes import ShapesRecord
from sparsejax.jit.runtime.plan import Plan
from sparsejax.jit.runtime.shapes import Resized
from sparsejax.transforms import staging

Make = Callable[[], ClosedJaxpr]
"""What makes the program that a record is of."""


class Kept:
    """A program that has a record, as a `ClosedJaxpr`: it is made only for who reads it."""

    def __init__(
        self, make: Make, record: bytes, numbers: list[str], shared: bool, consts: tuple[Array, ...] | None = None
    ) -> None:
        """ValueError where the record is of other numbers. It says which constants there are, unless these are given."""
        fields, images = planned.unpacked(record)
        if fields["numbers"] != numbers:
            raise ValueError(numbers)
        self._make, self.shared = make, shared
        self.observed: Sequence[Storage] = ()
        """What operands held that decided what steps there are."""
        self._full: Plan | None = None
        self.consts = planned.constants(fields) if consts is None else consts
        self.plan = planned.plan_of(fields["plan"], images, shared, lambda: self.full)
        self.cache: dict[Any, Any] = {"plan": self.plan}

    @property
    def full(self) -> Plan:
        """The plan as it is made without a record, when something is asked that the record does not say."""
        observed = self.observed  # read first: where another thread let go of them, it has made the plan before
        made = self._full
        if made is None:
            self._full = made = plans.planned(self.closed, observed)
            self.observed = ()
        return made

    @property
    def missed(self) -> bool:
        """Whether something was asked that the record does not say."""
        return self._full is not None

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


_BY_FACTS = b"by facts"
"""In place of a record, where there is one for every content of the operands."""


def recall(
    name: Name | None, make: Make, arrays: Sequence[Array], shared: bool, consts: tuple[Array, ...] | None = None
) -> Kept | None:
    """The program that has a record of this name for these operands, if there is one; the record says which constants there are, unless these are
    given."""
    cache = object_cache.active()
    if cache is None or name is None:
        return None
    record = cache.load(name.text)
    if record == _BY_FACTS:
        held = keys.content([a._storage for a in arrays])
        record = None if held is None else cache.load(name.text + held)
    try:
        found = None if record is None else Kept(make, record, name.numbers, shared, consts)
    except planned.FOREIGN:
        return None
    if found is not None and found.plan.by_facts:
        found.observed = [a._storage for a in (*found.consts, *arrays)]
    return found


name, of_shapes = keys.name, ShapesRecord


def recall_function(name: Name | None, function: Callable[..., Any], arrays: Sequence[Array]) -> Kept | None:
    """As `recall`, for a function of arrays with one result, which its key says all of."""
    make = functools.partial(staging.trace_to_jaxpr, lambda *given: [function(*given)], [a.aval for a in arrays])
    return recall(name, make, arrays, False)


def recall_traced(closed: ClosedJaxpr, arrays: Sequence[Array]) -> Name | None:
    """The name of the record of what was traced, whose plan is from now on that of its record, if there is one; None where it has no records."""
    name = keys.name(("traced", closed))
    if name is None:
        return None
    found = recall(name, lambda: closed, arrays, False, closed.consts)
    if found is not None:
        closed.cache["plan"], closed.cache["kept"] = found.plan, found
    return name._replace(has_constants=False)


def keep(name: Name | None, closed: Any, arrays: Sequence[Array]) -> None:
    """Keep a record of this name of a program that has just run on these operands, if it is one that has records; traces for many shapes know where
    they are kept."""
    if isinstance(closed, Resized):
        closed.member.keep()
        return
    plan = closed.cache.get("plan")
    known = closed if isinstance(closed, Kept) else closed.cache.get("kept")
    if not isinstance(plan, Plan) or (known is not None and not known.missed):
        return
    cache = object_cache.active()
    if cache is None or name is None:
        return
    text = name.text
    with suppress(Unkept):
        record = _record(plan, closed, name)
        if plan.by_facts:
            held = keys.content([a._storage for a in arrays])
            if held is None:
                return
            cache.store(text, _BY_FACTS)
            text += held
        cache.store(text, record)


def _record(plan: Plan, closed: Any, name: Name) -> bytes:
    """The record of a plan; Unkept where it has none."""
    images: Images = {}
    consts = [encoding.of_constant(c) for c in closed.consts] if name.has_constants else []
    return planned.packed({"numbers": name.numbers, "consts": consts, "plan": planned.of_plan(plan, images)}, images)
