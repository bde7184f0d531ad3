"""Contraction paths: which operands of an einsum to contract first, and which together in one kernel.

    "ij,jk,k->i"          y_j = A_jk x_k,  then  A_ij y_j          instead of all pairs of entries
    "ij,kl->ij"           s = sum A_kl,    then  A_ij s
    "ij,ik,jk->ij"        one kernel: no pair can be contracted without making more than the whole has

A plan is a list of steps; each takes the operands at its positions and appends their contraction, as `numpy.einsum_path`
does, but any number at a time. Numbers of entries are never looked at (types alone decide formats and programs): below a dense
level, a sparse one is taken to hold `FIBER` coordinates.

    size(P)     coordinates of the labels P that the operands admit: extents, times the densities of sparse operands over P
    kernel      the least sum of size over the prefixes of a loop order, found by dynamic programming over sets of labels
    plan        kernels, their overhead, and making every intermediate; exhaustive for few operands, greedy for many

Where the result is sparse, an intermediate must be too (or have dense operands only): else entries would be stored of which no
term exists. (A number is taken as it is: where it sums nothing, zeros are stored.)
Source of the scheme: dynamic programming over contraction trees (opt_einsum, "optimal") with the cardinalities of the loop
scheduler in place of extents.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sparsejax.core.avals import Aval

Labels = tuple[int, ...]
Step = tuple[int, ...]
Typing = Callable[[tuple[Aval, ...], tuple[Labels, ...], Labels], Aval]

FIBER, DENSE_LOOP, STORE, OVERHEAD, BLAS = 16.0, 0.25, 20.0, 5000.0, 0.1
"""Entries per fibre; costs, with 1 for one iteration of a loop over entries: an iteration of an innermost dense loop, storing an
entry of a sparse result, one more kernel, a multiplication in BLAS."""

EXHAUSTIVE = 4
"""Operands up to which all plans are compared."""


@dataclass(frozen=True)
class _Item:
    """An operand or intermediate: the operands in it, its labels and type, and the expected number of entries."""

    members: frozenset[int]
    labels: Labels
    aval: Aval
    entries: float

    @property
    def dense(self) -> bool:
        return self.aval.format.is_dense


Items = tuple[_Item, ...]


def entries_of(aval: Aval) -> float:
    """How many entries an array of this type is taken to have."""
    count, last = 1.0, len(aval.shape) - 1
    for level, dimension in enumerate(aval.format.order):
        extent = aval.shape[dimension]
        dense = aval.format.levels[level].full
        whole = dense or (level == 0 and level < last)
        count *= extent if whole else min(float(extent), FIBER)
    return count


@functools.lru_cache(maxsize=1024)
def plan(avals: tuple[Aval, ...], inputs: tuple[Labels, ...], output: Labels, typing: Typing) -> tuple[Step, ...]:
    """The steps of the cheapest plan; the last contracts all that is left into `output`."""
    extents: dict[int, int] = {}
    for aval, labels in zip(avals, inputs, strict=True):
        for extent, label in zip(aval.shape, labels, strict=True):
            extents[label] = max(extent, extents.get(label, 1))
    items = tuple(
        _Item(frozenset([k]), ls, a, entries_of(a)) for k, (a, ls) in enumerate(zip(avals, inputs, strict=True))
    )
    return _Planner(extents, output, typing, typing(avals, inputs, output)).run(items)


class _Planner:
    def __init__(self, extents: dict[int, int], output: Labels, typing: Typing, result: Aval) -> None:
        self.extents, self.output, self.typing = extents, output, typing
        self.sparse_result = not result.format.is_dense
        self.kernel = functools.cache(self._kernel)
        self.search = functools.cache(self._search)

    def run(self, items: Items) -> tuple[Step, ...]:
        steps: list[Step] = []
        while len(items) > EXHAUSTIVE:
            options = [(cost, step) for step in _groups(items, [2]) if (cost := self._make(items, step)[0]) < math.inf]
            if not options and self.sparse_result:
                self.sparse_result = False  # too many operands for one kernel: better a zero stored here and there
                continue
            if not options:
                return (*steps, tuple(range(len(items))))
            step = min(options)[1]
            items = self._make(items, step)[1]
            steps.append(step)
        return (*steps, *self.search(items)[1])

    def _search(self, items: Items) -> tuple[float, tuple[Step, ...]]:
        """The cheapest way to contract all of `items`, and its steps."""
        best: tuple[float, tuple[Step, ...]] = self.kernel(items, self.output), (tuple(range(len(items))),)
        for step in _groups(items, range(1, len(items))):
            cost, left = self._make(items, step, best[0])
            if cost < best[0]:
                rest, steps = self.search(left)
                if cost + rest < best[0]:
                    best = cost + rest, (step, *steps)
        return best

    def _make(self, items: Items, step: Step, limit: float = math.inf) -> tuple[float, Items]:
        """The cost of contracting the items at `step`, and the items then; infinite where that may or need not be done, or costs `limit`
        whatever the type of the result, which then is not asked for: finding types takes most of the time of a plan."""
        chosen = tuple(items[k] for k in step)
        left = tuple(x for k, x in enumerate(items) if k not in step)
        needed = {*self.output, *(label for x in left for label in x.labels)}
        labels = tuple(dict.fromkeys(label for x in chosen for label in x.labels if label in needed))
        if len(step) == 1 and set(labels) == set(chosen[0].labels):
            return math.inf, items
        space = math.prod(float(self.extents[label]) for label in labels)
        joins = self._size(frozenset(label for x in chosen for label in x.labels), chosen)
        found = _distinct(joins, space)
        cost = self.kernel(chosen, labels) + OVERHEAD
        if cost + min(space, STORE * found) >= limit:
            return math.inf, items
        aval = self.typing(tuple(x.aval for x in chosen), tuple(x.labels for x in chosen), labels)
        if self.sparse_result and not all(x.dense for x in chosen):
            levels = aval.format.levels
            if levels and levels[-1].full:
                return math.inf, items
        entries = space if aval.format.is_dense else found
        store = entries if aval.format.is_dense else STORE * entries
        made = _Item(frozenset().union(*(x.members for x in chosen)), labels, aval, entries)
        return cost + store, (*left, made)

    def _kernel(self, items: Items, output: Labels) -> float:
        """The iterations of one kernel over `items`, under the best order of its loops."""
        labels = tuple(dict.fromkeys(label for x in items for label in x.labels))
        if all(x.dense for x in items):
            return BLAS * math.prod(float(self.extents[label]) for label in labels) if len(items) < 3 else math.inf
        cost = {frozenset[int](): 0.0}
        for count in range(1, len(labels) + 1):
            for chosen in itertools.combinations(labels, count):
                bound = frozenset(chosen)
                size = self._size(bound, items)
                cost[bound] = min(cost[bound - {label}] + size * self._weight(label, items) for label in chosen)
        return cost[frozenset(labels)]

    def _weight(self, label: int, items: Items) -> float:
        return 1.0 if any(label in x.labels and not x.dense for x in items) else DENSE_LOOP

    def _size(self, bound: frozenset[int], items: Items) -> float:
        size = math.prod(float(self.extents[label]) for label in bound)
        for item in items:
            own = frozenset(item.labels) & bound
            if item.dense or not own:
                continue
            space = math.prod(float(self.extents[label]) for label in own)
            present = item.entries if own == frozenset(item.labels) else _distinct(item.entries, space)
            size *= min(1.0, present / space) if space else 0.0
        return size


def _distinct(entries: float, space: float) -> float:
    """The expected number of different places when `entries` fall into `space` of them."""
    return space * -math.expm1(-entries / space) if space else 0.0


def _groups(items: Items, sizes: Iterable[int]) -> list[Step]:
    """Positions that may be contracted together: of given numbers, and connected by labels."""
    made = []
    for size in sizes:
        for step in itertools.combinations(range(len(items)), size):
            if size < 2 or all(any(set(items[k].labels) & set(items[n].labels) for n in step if n != k) for k in step):
                made.append(step)
    return made
