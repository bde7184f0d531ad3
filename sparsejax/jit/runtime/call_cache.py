"""How the next call of a jitted function may go, if it is of the same signature as the last: types are compared, and a plan is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparsejax import tree_util
from sparsejax.core import primitive
from sparsejax.core.array import made
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.formats.storage import Storage
from sparsejax.jit.runtime import plans, sequence


class Shortcut:
    """A signature of arrays and numbers alone, with the plan of its jaxpr. (With slots: what it holds is read in every call.)"""

    __slots__ = ("avals", "count", "kernel", "names", "result", "run", "several", "templates")

    def __init__(
        self, avals: Sequence[Aval], names: tuple[str, ...], closed: ClosedJaxpr, tree: tree_util.PyTreeDef
    ) -> None:
        plan: plans.Plan = closed.cache["plan"]
        self.avals, self.names, self.count = tuple(avals), names, len(avals) - len(names)
        """Types of the operands, those that are given by name last, in the order of their names; how many are given by position."""
        self.templates = tuple(map(primitive.plain_template, avals))
        """Those of NumPy arrays that have the types of the operands."""
        one = tree.node is None
        self.kernel: sequence.Step | plans.Plan = plan.alone or plan
        """What makes the only result."""
        self.result: Any = plan.out_avals[0] if one else None
        self.several = None if one and not closed.consts else _several(closed, plan, tree)
        """What makes results that are several, or read constants."""
        self.run: Callable[[list[Storage]], Any] = self.several or _alone(self.kernel, self.result)
        """The results for operands of these types."""

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """The operands of a call in order; None where others are given by name."""
        names = self.names
        if len(kwargs) != len(names) or not all(map(kwargs.__contains__, names)):
            return None
        return [*args, *[kwargs[n] for n in names]]


def _alone(kernel: sequence.Step | plans.Plan, aval: Any) -> Callable[[list[Storage]], Any]:
    """What makes the only result, as a function."""
    return lambda storages: made(kernel.call(storages), aval)


def _several(closed: ClosedJaxpr, plan: plans.Plan, tree: tree_util.PyTreeDef) -> Callable[[list[Storage]], Any]:
    """A plan as a function of operands."""
    consts, avals = [c._storage for c in closed.consts], plan.out_avals
    kind, _, children = tree.node or (None, None, ())
    if kind is tuple and all(c is None for c in children):
        return lambda storages: tuple(map(made, plan.outcome([*consts, *storages]), avals))
    return lambda storages: tree_util.tree_unflatten(tree, map(made, plan.outcome([*consts, *storages]), avals))
