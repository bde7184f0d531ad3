"""Programs for many shapes on disk: a trace with symbols, its guards, and its plans by bucket of sizes.

first shape     A > 0.5, A: 40 x 70            a record of that shape alone (`programs`)
second shape    A > 0.5, A: 300 x 51           traced with symbols, A: n0 x n1; the record says for which n0, n1 the trace holds, and has the plan for
                                               n0 <= 4095, n1 <= 255
new process     its second shape               guards are asked, and the plan runs: nothing is traced, scheduled or lowered

Guards are expressions of Python's, which become a function: they are trusted as the machine code beside them is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import object_cache
from sparsejax.jit.runtime.domain import Domain
from sparsejax.jit.runtime.kept import encoding, kernels, keys, planned
from sparsejax.jit.runtime.kept.encoding import Fields, Unkept, tupled
from sparsejax.jit.runtime.kept.kernels import Images
from sparsejax.jit.runtime.kept.keys import Name
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.runtime.plan import Plan
from sparsejax.jit.runtime.shapes import Member

BUCKETS = 4
"""Plans for different sizes that a record has at most."""


class ShapesRecord:
    """The records of a program for many shapes."""

    def __init__(self, key: Any, shared: bool, extra: Any) -> None:
        """The key says all but the types of its operands; `extra` is what is known of its traces."""
        self._key, self._shared, self._extra = key, shared, extra

    def recall(
        self, avals: Sequence[Aval], stands: Sequence[int | str], trace: Callable[[], ClosedJaxpr]
    ) -> Member | None:
        """The trace for operands of such types, with these numbers and symbols at their extents, which `trace` makes again; None without a record."""
        cache = object_cache.active()
        name = None if cache is None else self._name(avals, stands)
        record = None if cache is None or name is None else cache.load(name.text)
        if record is None or name is None:
            return None
        try:
            fields, images = planned.unpacked(record)
            return self._member(fields, images, trace) if fields["numbers"] == name.numbers else None
        except planned.FOREIGN:
            return None

    def _member(self, fields: Fields, images: Images, trace: Callable[[], ClosedJaxpr]) -> Member:
        domain, consts = Domain(*tupled(fields["domain"])), planned.constants(fields)
        made = Member(domain, consts, self._shared, self._extra, trace)
        for bounds, held, told in fields["plans"]:
            values = tuple(bounds)
            if held is None:
                made.bounds[values, None] = self._plan(made, values, told, images)
            else:
                made.by_facts[values, None] = held, functools.partial(self._decided, made, values, told, images)
        made.kept = sum(map(_plans_of, made.bounds.values()))
        return made

    def _plan(
        self, member: Member, bounds: tuple[int, ...], told: Fields, images: Images, observed: Sequence[Storage] = ()
    ) -> Plan:
        full = functools.cache(functools.partial(member.planned, bounds, observed))
        return planned.plan_of(told, images, self._shared, full)

    def _decided(
        self, member: Member, bounds: tuple[int, ...], told: Fields, images: Images, observed: Sequence[Storage]
    ) -> Plan | None:
        """A plan that what was `observed` has decided; None where these sources did not write the record."""
        try:
            made = self._plan(member, bounds, told, images, observed)
        except planned.FOREIGN:
            return None
        member.kept += _plans_of(made)
        return made

    content = staticmethod(keys.content)

    def keep(self, member: Member, avals: Sequence[Aval]) -> None:
        """Keep a trace that served operands of such types, if more is known of it than what is kept."""
        count = sum(map(_plans_of, member.bounds.values()))
        if count <= member.kept or member.extra != self._extra:
            return
        member.kept = count
        cache = object_cache.active()
        name = None if cache is None else self._name(avals, member.domain.stands)
        if cache is None or name is None:
            return
        images: Images = {}
        plans: list[tuple[Any, str | None, Fields]] = []
        for (bounds, forced), plan in list(member.bounds.items())[-BUCKETS:]:
            held = member.held.get((bounds, forced))
            if forced is None and (held is not None or not plan.by_facts):
                with suppress(Unkept):
                    plans.append((bounds, held, planned.of_plan(plan, images)))
        with suppress(Unkept):
            consts = [encoding.of_constant(c) for c in member.consts]
            fields = {"numbers": name.numbers, "domain": member.domain, "consts": consts, "plans": plans}
            if plans:
                cache.store(name.text, planned.packed(fields, images))

    def _name(self, avals: Sequence[Aval], stands: Sequence[int | str]) -> Name | None:
        types = tuple([(a.ndim, a.dtype, a.format, a.fill_value, a.weak_type, a.is_literal) for a in avals])
        return keys.name(("shapes", self._key, types, tuple(stands)))


def _plans_of(plan: Plan) -> int:
    return 1 + sum(kernels.plans_of(s) for s in plan.steps if isinstance(s, KernelRunner))
