"""Models of kernels (`search.Model`) that are made once while something is planned, with all that they find out: those who decide and those who
count ask for the same again and again, and orders of loops share their beginnings.

    with remembering():
        search.model(nest, facts)       made
        search.model(nest, facts)       the same again
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, TypeVarTuple, Unpack

from sparsejax.jit.cost import machine
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir.nest import Nest

Rest = TypeVarTuple("Rest")
T = TypeVar("T")
_known: ContextVar[dict[Any, Any] | None] = ContextVar("sparsejax_models", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Remember models until the outermost block ends, inside which nothing that they depend on may change but their arguments and the machine."""
    if _known.get() is not None:
        yield
        return
    token = _known.set({})
    try:
        yield
    finally:
        _known.reset(token)


def remembered(make: Callable[[Nest, Facts, Unpack[Rest]], T], nest: Nest, facts: Facts, *rest: *Rest) -> T:
    """`make(nest, facts, *rest)`, or what it made of the same before."""
    known = _known.get()
    if known is None:
        return make(nest, facts, *rest)
    observed = tuple(sorted(facts.counts.items())), tuple(sorted(facts.couplings.items()))
    named = tuple(facts.lookups.items())
    key = nest, observed, facts.points, facts.collisions, facts.same, facts.fresh, named, rest, machine.current()
    if key not in known:
        known[key] = make(nest, facts, *rest)
    made: T = known[key]
    return made
