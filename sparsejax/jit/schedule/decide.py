"""The schedule of a kernel: the cheapest one, or another that can run, where `config.choose` asks for that.

    loop_order   what `search` finds cheapest, the dearest or any that has a finite price
    depth        of reductions in kernels of several statements (`statements`)
    meeting      operands that are scattered where the cheapest schedule merges them, or the other way round
    workspace    any policy that can hold it
    copies       whether copies of operands are remembered (`replan`), from the first call on

Each decision is made under those before it, so that a workspace is one that the loop order needs.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import choices, policies
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import placement, search, statements
from sparsejax.jit.schedule.schedules import Schedule


def schedule(nest: Nest, facts: Facts, workspace: str = "auto") -> Schedule | None:
    """The schedule of `nest`, with a `workspace` policy or any; None when no order can run it as one kernel."""
    if nest.nested:
        return _of_statements(nest, facts)
    kernel = _Kernel(nest, facts, workspace)
    best = kernel.model.search()
    if best is None:
        return None
    made = kernel.with_meeting(kernel.with_order(best))
    if made.workspace is not None:
        made = kernel.with_workspace(made)
    return kernel.with_copies(replace(made, candidates=best.candidates))


class _Kernel:
    """The decisions about a kernel of one statement, each of which changes a schedule."""

    def __init__(self, nest: Nest, facts: Facts, workspace: str) -> None:
        self.model = search.model(nest, facts, workspace)
        self._given = nest, facts, workspace

    def with_order(self, made: Schedule) -> Schedule:
        """The schedule with its loop order."""
        others = ("dearest", "any")
        how = choices.pick("loop_order", lambda: ("cheapest", *(others if self.model.legal else ())), "cheapest")
        if how == "cheapest":
            return made
        listed = self.model.legal
        return self.model.of(listed[-1][1] if how == "dearest" else choices.one_of(listed)[1])

    def with_meeting(self, made: Schedule) -> Schedule:
        """The schedule with its operands merged or scattered."""

        @functools.cache
        def given(scatters: bool | None) -> Schedule:
            return search.model(*self._given, scatters).given(made.order)

        def legal() -> list[str]:
            return ["merged", "scattered"] if given(None).scattered else ["merged"]

        now = "scattered" if made.scattered else "merged"
        how = choices.pick("meeting", legal, now)
        if how == now:
            return made
        return replace(given(None if how == "scattered" else False), workspace=made.workspace, reason=made.reason)

    def with_workspace(self, made: Schedule) -> Schedule:
        """The schedule with the policy of its workspace: the one that is configured, or any."""
        now = made.workspace or ""

        def legal() -> list[str]:
            found = self.model.policies(made.order) if self._given[2] == "auto" else ()
            return list(dict.fromkeys((now, *found)))

        policy = choices.pick("workspace", legal, now)
        return made if policy == now else replace(made, workspace=policy, reason="as chosen")

    def with_copies(self, made: Schedule) -> Schedule:
        """The schedule with what it says of copies that are remembered."""
        now = "never" if made.remembered is None else "paid"

        def legal() -> list[str]:
            return list(dict.fromkeys(("never", now, *(["once"] if self.model.remembered(made.order) else []))))

        how = choices.pick("copies", legal, now)
        if how == now:
            return made
        if how == "never":
            return replace(made, remembered=None)
        found = choices.one_of(self.model.remembered(made.order))
        return replace(made, remembered=found, at_once=True)


def _of_statements(nest: Nest, facts: Facts) -> Schedule | None:
    """The schedule of a kernel of several statements."""
    best = statements.choose(nest, facts)
    if best is None:
        return None
    made, ways = best, statements.CHEAPEST

    def tried(**changed: object) -> Schedule | None:
        return statements.choose(nest, facts, replace(ways, **changed))  # type: ignore[arg-type]

    order = choices.pick("loop_order", ("cheapest", "dearest", "any"), "cheapest")
    if order != "cheapest" and tried(order=order) is not None:
        ways = replace(ways, order=order)
    depths = ("cheapest", "outermost", "innermost")
    depth = choices.pick("depth", lambda: [d for d in depths if d == "cheapest" or tried(depth=d)], "cheapest")
    ways = replace(ways, depth=depth)

    def scattering() -> list[str]:
        found = tried(scatters=None)
        return ["merged", "scattered"] if found is not None and found.scattered else ["merged"]

    now = "scattered" if best.scattered else "merged"
    if not choices.free():
        choices.pick("meeting", (now,), now)
    else:
        how = choices.pick("meeting", lambda: dict.fromkeys((now, *scattering())), now)  # type: ignore[arg-type, return-value]
        if how != now:
            ways = replace(ways, scatters=None if how == "scattered" else False)
    if ways != statements.CHEAPEST:
        made = statements.choose(nest, facts, ways) or best
    known = search.with_targets(nest, facts, made.registers)
    places = []
    for number, place in enumerate(made.places):
        if place.policy in policies.SPARSE:
            part = placement.statement(nest, number, made.registers)
            legal = search.model(part, known).policies(place.loops)
            policy = choices.pick("workspace", list(dict.fromkeys((place.policy, *legal))), place.policy)
            place = replace(place, policy=policy)
        places.append(place)
    return replace(made, places=tuple(places), candidates=best.candidates)
