"""Plans of one kernel for all shapes like some: what calls it for a shape that may not come back, and for one that did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparsejax import config
from sparsejax.core.array import Array, made
from sparsejax.core.roads import DEAR
from sparsejax.formats.storage import Storage
from sparsejax.jit.runtime.direct import Roads
from sparsejax.jit.runtime.plan import Plan


class Alone:
    """A plan of one kernel for all shapes like some."""

    __slots__ = ("_plan", "aval", "roads")

    def __init__(self, plan: Plan) -> None:
        self._plan, self.aval = plan, plan.out_avals[0]
        self.roads = config.planning(), Roads(plan.direct)
        """The shortest roads to it, under these settings."""

    def once(self, storages: Sequence[Storage], shape: tuple[int, ...]) -> tuple[list[Array], int] | None:
        """The result of this shape, of which nothing is kept, and as how many calls it counts; None where there is more to do than to call the kernel."""
        (settings, roads), now = self.roads, config.planning()
        if now is not settings and now != settings:
            roads = Roads(self._plan.direct)
            self.roads = now, roads
        found = roads(storages, shape)
        if found is not None:
            return [made(found, self.aval.at(shape))], 1
        result = self._plan.alone_once(storages, shape)
        if result is None:
            return None
        roads.learn(storages)
        # of a sparse result, what is lost beside a plan of its own is little
        return [result], DEAR if self.aval.is_dense else 1

    def at(self, shape: tuple[int, ...], consts: Sequence[Storage]) -> Callable[[list[Storage]], Array | None]:
        """The result of this shape as a function of operands, by the road that was learnt last: None where that does not serve."""
        (settings, roads), aval = self.roads, self.aval.at(shape)
        direct = roads.known[0]

        def run(storages: list[Storage]) -> Array | None:
            if config.planning() is not settings:
                return None
            result = direct([*consts, *storages] if consts else storages, shape)
            return None if result is None else made(result, aval)

        return run
