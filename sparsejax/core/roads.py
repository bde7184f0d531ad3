"""The shortest ways to what serves calls whose operands have any extents (`again`): what is kept of shapes that come again, and how often each came.

A + B    first shape: noted, one operation, whose family serves any extents
C + D    another shape: the family is asked, without a look at anything else; it counts
E + F    a shape that came `AGAIN` times: how to call the family for it is kept; after `FEW` times it gets a plan of its own
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from sparsejax.core import primitive
from sparsejax.core.array import Array
from sparsejax.formats.storage import Storage

Run = Callable[[list[Storage]], Any]

FEW, DEAR = 64, 24
"""Calls of one shape that what serves any extents answers on the shortest road: should it come back more often, it gets a plan of its own, which takes
as long to make (70 to 210 microseconds) as these calls lose by all that they look at (1 to 3 each). Calls that take another road lose as much as
`DEAR` of them."""
AGAIN = 8
"""Calls of one shape after which it is kept how what serves any extents is called for it: that takes as long as ten calls gain."""
REMEMBERED = 512
"""Calls that are remembered of every function, with their plans."""


class Road(NamedTuple):
    """The shortest way to what serves operands of any extents."""

    run: Callable[[list[Storage], tuple[int, ...], Any, tuple[Any, ...]], Array | None]
    """The result for operands and their extents; None where there is more to do. Of extents that come again it is kept how to call what serves
    them, by this mark of the call's arguments (`Calls.recent`)."""
    rest: tuple[Any, ...]
    """The arguments that are no operands: these very objects."""


class Served(NamedTuple):
    """What serves operands of any extents."""

    family: Any
    places: list[int | Storage] | None
    """Where its operands are among those of a call, ~k for a number that is argument k, or a number; None where they are as they come."""
    met: dict[tuple[int, ...], int]
    """How often calls of some extents were served: up to `FEW`."""

    def given(self, args: tuple[Any, ...]) -> Callable[[list[Storage]], list[Storage]] | None:
        """Its operands as a function of those of calls like this one; None where they are the same."""
        places = self.places
        if places is None:
            return None
        known = [k if type(k) is not int or k >= 0 else number(args[~k]) for k in places]
        return lambda storages: [storages[k] if type(k) is int else k for k in known]  # type: ignore[misc]

    def road(self, args: tuple[Any, ...], operands: int, recent: dict[Any, Any]) -> Road:
        """The shortest way for calls like this one."""
        met, family, given, rest = self.met, self.family, self.given(args), args[operands:]
        alone, once = family.alone, family.once

        def keep(extents: tuple[int, ...], mark: Any, args: tuple[Any, ...], serve: Run) -> None:
            def end() -> None:
                recent.pop(mark, None)
                met[extents] = FEW

            if len(recent) > REMEMBERED:
                recent.clear()
            way = serve if given is None else lambda storages: serve(given(storages))
            left = FEW - met.get(extents, 0) - 1
            recent[mark] = counted(left, way, end), [a._aval for a in args if type(a) is Array], rest

        def run(storages: list[Storage], extents: tuple[int, ...], mark: Any, args: tuple[Any, ...]) -> Array | None:
            times = met.get(extents, 0)
            if times >= FEW:
                return None
            if given is not None:
                storages = given(storages)
            found, count = alone(extents, storages), 1
            if times % (2 * AGAIN) == AGAIN and found is not None and mark is not None:
                serve = family.alone_ready(extents)
                if serve is not None:
                    keep(extents, mark, args, serve)
            if found is None:
                more = once(extents, storages)
                if more is None:
                    return None
                found, count = more[0][0], more[2]
            if len(met) > REMEMBERED:
                met.clear()
            met[extents] = times + count
            return found  # type: ignore[no-any-return]

        return Road(run, rest)


def counted(left: int, serve: Run, end: Callable[[], None]) -> Run:
    """What serves so many more calls of one shape: it is at its `end` in the last, so that the shape gets a plan of its own in the next."""

    def run(storages: list[Storage]) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            end()
        return serve(storages)

    return run


def number(value: Any) -> Storage:
    """A number as an operand."""
    return _integer(value) if type(value) is int else primitive.weak_scalar(value)._storage


@functools.lru_cache(maxsize=256)
def _integer(value: int) -> Storage:
    return primitive.weak_scalar(value)._storage
