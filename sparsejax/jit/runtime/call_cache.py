"""How the next call of a jitted function may go, if it is of the same signature as the last: types are compared, and a plan is run."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core import primitive, roads
from sparsejax.core.array import Array, made, maker
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.formats.storage import Storage
from sparsejax.jit.runtime.plan import Plan
from sparsejax.jit.runtime.shapes import Family

_NUMBERS = frozenset([bool, int, float, complex])


class Shortcut:
    """A signature of arrays and numbers alone, with the plan of its jaxpr. (With slots: what it holds is read in every call.)"""

    __slots__ = ("avals", "count", "kernel", "names", "result", "run", "several", "templates")

    def __init__(
        self, avals: Sequence[Aval], names: tuple[str, ...], closed: ClosedJaxpr, tree: tree_util.PyTreeDef
    ) -> None:
        plan: Plan = closed.cache["plan"]
        self.avals, self.names, self.count = tuple(avals), names, len(avals) - len(names)
        """Types of the operands, those that are given by name last, in the order of their names; how many are given by position."""
        self.templates = tuple(map(primitive.plain_template, avals))
        """Those of NumPy arrays that have the types of the operands."""
        one = tree.node is None
        self.kernel = plan.kernel
        """What makes the only result."""
        self.result: Any = plan.out_avals[0] if one else None
        self.several = None if one and not closed.consts else _several(closed, plan, tree)
        """What makes results that are several, or read constants."""
        self.run: Callable[[list[Storage]], Any] = self.several or maker(self.kernel, plan.out_avals[0])
        """The results for operands of these types."""

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """The operands of a call in order; None where others are given by name."""
        names = self.names
        if len(kwargs) != len(names) or not all(map(kwargs.__contains__, names)):
            return None
        return [*args, *[kwargs[n] for n in names]]


class Shapes:
    """The shapes that a jitted function was called with, by structure (`signature.structured`) and extents: how often another trace served them,
    and their shortcuts."""

    def __init__(self, families: dict[Any, Family]) -> None:
        self._families = families
        self.met: dict[Any, int] = {}
        """How often a shape was served by a trace of another one, counted as in `again`: `roads.FEW` where it has its own."""
        self._shortcuts: dict[Any, Shortcut] = {}
        self._ready: dict[Any, Callable[[list[Storage]], Any]] = {}
        """What gives the results for shapes that came again, from one trace for many."""

    def clear(self) -> None:
        """Forget all."""
        self.met.clear()
        self._shortcuts.clear()
        self._ready.clear()

    def forget(self, shape: Any) -> None:
        """Forget one shape."""
        self.met.pop(shape, None)
        self._shortcuts.pop(shape, None)
        self._ready.pop(shape, None)

    def keep(self, shape: Any, shortcut: Shortcut) -> None:
        """Remember how calls of a shape may go."""
        if len(self._shortcuts) > primitive.REMEMBERED:
            self._shortcuts = {}
        self._shortcuts[shape] = shortcut

    def quickly(self, args: Sequence[Any], varies: bool) -> tuple[Any, Shortcut | None] | None:
        """The result for arrays and numbers, of a shape that was met few times, or has a shortcut, and that; None where there is more to do.
        Unless it `varies`, no trace serves another shape."""
        kinds: list[Any] = [()]
        extents: tuple[int, ...] = ()
        storages: list[Storage] = []
        for a in args:
            kind = type(a)
            if kind is np.ndarray:
                try:
                    storage, aval = primitive.viewed(a)
                except TypeError:  # of a dtype that is not supported
                    return None
            elif kind is Array or kind in _NUMBERS:
                a = a if kind is Array else primitive.weak_scalar(a)
                storage, aval = a._storage, a._aval
            else:
                return None
            kinds.append(aval._kind if aval._kind >= 0 else aval.kind)
            extents += aval.shape
            storages.append(storage)
        structure = tuple(kinds)
        last = self._shortcuts.get((structure, extents))
        if last is not None:
            return last.run(storages), last
        return self.once(structure, extents, storages) if varies else None

    def once(
        self, structure: tuple[Any, ...], extents: tuple[int, ...], storages: list[Storage]
    ) -> tuple[Any, Shortcut | None] | None:
        """The result for a shape that was met few times, where an earlier trace serves it: it may not come back, and nothing is kept of it but how
        often it did."""
        shape = structure, extents
        ready = self._ready.get(shape)
        if ready is not None:
            made = ready(storages)
            if made is not None:
                return made, None
            self._ready.pop(shape, None)
        family, times = self._families.get(structure), self.met.get(shape, 0)
        if family is None or times >= roads.FEW:
            return None
        made, counted = family.alone(extents, storages, _single), 1
        if made is None:
            found = family.once(extents, storages, _unlimited)
            if found is None:
                return None
            outs, (tree, _), counted = found
            made = _grown(tree)(outs)
            if times:
                self._prepare(shape, family)
        if len(self.met) > 2 * primitive.REMEMBERED:
            own = {shape: times for shape, times in list(self.met.items()) if times >= roads.FEW}
            self.met = own if len(own) < primitive.REMEMBERED else {}
        self.met[shape] = times + counted
        return made, None

    def _prepare(self, shape: tuple[tuple[Any, ...], tuple[int, ...]], family: Family) -> None:
        """Keep what gives the results for a shape that has come again, and may again."""
        found = family.ready(shape[1], _unlimited)
        if found is None:
            return
        run, build = found[0], _grown(found[1][0])

        def ready(storages: list[Storage]) -> Any:
            outs = run(storages)
            return None if outs is None else build(outs)

        def end() -> None:
            self._ready.pop(shape, None)
            self.met[shape] = roads.FEW

        if len(self._ready) >= roads.REMEMBERED:
            self._ready.clear()
        self._ready[shape] = roads.counted(roads.FEW - self.met.get(shape, 0) - 1, ready, end)


def _grown(tree: tree_util.PyTreeDef) -> Callable[[Any], Any]:
    """What makes a pytree of leaves: of a list of them, or of what gives one after the other, unless the tree is a leaf."""
    kind, _, children = tree.node or (None, None, ())
    if kind is None:
        return operator.itemgetter(0)
    if kind is tuple and all(c is None for c in children):
        return tuple
    return functools.partial(tree_util.tree_unflatten, tree)


def _unlimited(extra: Any) -> bool:
    """Whether a trace has no integers that must fit into a dtype."""
    return not extra[1]


def _single(extra: Any) -> bool:
    """The same, of one result."""
    return not extra[1] and extra[0].node is None


def _several(closed: ClosedJaxpr, plan: Plan, tree: tree_util.PyTreeDef) -> Callable[[list[Storage]], Any]:
    """A plan as a function of operands."""
    consts, avals = [c._storage for c in closed.consts], plan.out_avals
    if tree.node is None:
        return lambda storages: made(plan.outcome([*consts, *storages])[0], avals[0])
    build = _grown(tree)
    return lambda storages: build(map(made, plan.outcome([*consts, *storages]), avals))
