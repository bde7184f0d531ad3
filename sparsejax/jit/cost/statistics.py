"""Observed facts about stored arrays: positions per level, and how often entries meet. They choose schedules, never types."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import collisions, joins, lookups, machine, skew, spreads
from sparsejax.jit.cost.price_table import Machine
from sparsejax.jit.cost.spreads import EVEN, WINDOW, WINDOWS, Spread
from sparsejax.jit.ir import simplify
from sparsejax.jit.ir.cin import Tensor
from sparsejax.jit.ir.nest import Nest

Counts = tuple[float, ...]
"""The number of positions of each storage level."""


MANY, BLOCK = 1 << 15, 2048
"""Positions of a level from which on its segments are taken in blocks (the processor remembers the lengths of fewer, if they come again), where
these are short (`Machine.short`); positions of a block, about."""


class Positions(tuple[float, ...]):
    """The number of positions of each storage level, with the spread of coordinates where entries lie close together; of two levels, that of
    the outer one's where entries are visited by the inner one, as a copy in that order stores them (`crossed`); and where coordinates of the last one share
    positions, how many there are (`runs`)."""

    spread: tuple[Spread, ...]
    crossed: Spread
    runs: float | None

    def __new__(
        cls, counts: Sequence[float], spread: Sequence[Spread], crossed: Spread = EVEN, runs: float | None = None
    ) -> Positions:
        made = super().__new__(cls, counts)
        made.spread, made.crossed, made.runs = tuple(spread), crossed, runs
        return made

    def __eq__(self, other: object) -> bool:
        told = spread_of(other), crossed_of(other), runs_of(other)
        return super().__eq__(other) is True and (self.spread, self.crossed, self.runs) == told

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self.spread, self.crossed, self.runs))

    def __repr__(self) -> str:
        return f"Positions({tuple(self)}, {self.spread}, {self.crossed}, {self.runs})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Positions, (tuple(self), self.spread, self.crossed, self.runs)


def crossed_of(counts: object) -> Spread:
    """The spread of coordinates in the other order of two levels."""
    return counts.crossed if isinstance(counts, Positions) else EVEN


def spread_of(counts: object) -> tuple[Spread, ...]:
    """The spread of every level; none where entries are spread evenly, or nothing is known."""
    return counts.spread if isinstance(counts, Positions) else ()


def runs_of(counts: object) -> float | None:
    """How many positions the last level has, whose coordinates share them; None where each has its own, or nothing is known."""
    return counts.runs if isinstance(counts, Positions) else None


@dataclass(frozen=True)
class Facts:
    """What is known about the inputs of one kernel: positions by tensor, by join the coupling (`skew.coupling`), how many
    points there are in all, and how many of them meet in an entry of the result (`collisions`; None: not observed)."""

    counts: Mapping[str, Counts]
    couplings: Mapping[tuple[str, int, str, int], float] = field(default_factory=dict)
    points: float | None = None
    collisions: float | None = None
    fresh: frozenset[str] = frozenset()
    """Tensors that every call makes anew: copies of them do not stay."""
    same: tuple[tuple[str, str], ...] = ()
    """Tensors that are the same array as another one, with the name of that one."""
    lookups: Mapping[lookups.Key, Spread] = field(default_factory=dict)
    """How near the rows lie that index arrays name (`lookups`)."""

    def __getitem__(self, name: str) -> Counts:
        return self.counts[name]


def named(nest: Nest, arguments: Sequence[object], some: Collection[object]) -> frozenset[str]:
    """The inputs of a nest, by name, of which the arguments are among `some`."""
    return frozenset(t.name for t, a in zip(nest.inputs, arguments, strict=True) if a in some)


def same(nest: Nest, arguments: Sequence[object]) -> tuple[tuple[str, str], ...]:
    """Which inputs of a nest are the same of its `arguments`: by name, with the name of the first."""
    first: dict[object, str] = {}
    pairs = [(t.name, first.setdefault(a, t.name)) for t, a in zip(nest.inputs, arguments, strict=True)]
    return tuple((name, other) for name, other in pairs if name != other)


def of(nest: Nest, inputs: Sequence[Storage], exact: bool = False) -> Facts:
    """The facts about `inputs`, one per tensor of `nest.inputs`; rounded to powers of two, unless `exact`.

    >>> from sparsejax.formats import ingest
    >>> from sparsejax.jit.ir import cin
    >>> A = cin.Access(cin.Tensor("A", (2, 3), np.dtype(float), Format.parse("csr", 2), 0.0), tuple(map(cin.IndexVar, "ij")))
    >>> stored = ingest.as_storage(np.ones((2, 3)), format="csr")
    >>> of(Nest(A.tensor, A.indices, (), A), [stored], exact=True).counts
    {'A': (2.0, 6.0)}
    """
    named = {t.name: s for t, s in zip(nest.inputs, inputs, strict=True)}
    counts = {name: exact_positions(s) if exact else positions(s) for name, s in named.items()}
    keys = {j.key for j in meetings(nest)}
    pairs = {key: skew.coupling(named[key[0]], key[1], named[key[2]], key[3]) for key in keys}
    how = collisions.plan(nest)
    found = (None, None) if how is None else product(how, named, pairs, exact)
    near = {key: lookups.spread(how, inputs) for key, how in lookups.of_nest(nest).items()}
    return Facts(counts, pairs if exact else {key: rounded(x) for key, x in pairs.items()}, *found, lookups=near)


def product(
    how: collisions.Plan,
    inputs: Mapping[str, Storage],
    couplings: Mapping[tuple[str, int, str, int], float],
    exact: bool = False,
) -> tuple[float | None, float | None]:
    """Points and collisions of a kernel whose exact couplings are known: their number, and that of entries, rounded to powers of two.

    Points are None where degrees do not tell them (`Plan.countable`)."""
    points, met = collisions.observed(how, inputs, couplings)
    known = points if exact else rounded(points)
    if met is not None and not exact:
        met = known / rounded(points / met) if points else 1.0
    return known if how.countable else None, met


def meetings(nest: Nest, left_out: Collection[str] = ()) -> tuple[joins.Join, ...]:
    """Where inputs of `nest` meet, but those that are `left_out`."""
    if nest.features.sparse < 2:
        return ()
    found = (joins.joins(simplify.simplify(e), {*left_out, *nest.targets}) for e in nest.wholes)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(found)))


def converted(known: Facts, moved: Collection[Tensor]) -> Facts:
    """What is to be expected of inputs that are `moved` into other formats, those of these tensors; of all others, what is `known`."""
    counts = {t.name: expected(t.format, t.shape, known[t.name][-1]) for t in moved}
    return replace(known, counts={**known.counts, **counts}) if counts else known


def lengths(inputs: Sequence[Tensor], known: Facts) -> dict[tuple[str, int], float]:
    """How many positions the segments of levels of inputs, by name and number, are expected to hold on average.

    >>> A = Tensor("A", (4, 8), np.dtype(float), Format.parse("csr", 2), 0.0)
    >>> lengths([A], Facts({"A": (4.0, 8.0)}))
    {('A', 1): 2.0}
    """
    return {
        (t.name, level): known[t.name][level] / max(known[t.name][level - 1], 1.0)
        for t in inputs
        for level in range(1, len(t.format.levels))
        if not t.format.levels[level].full
    }


def many(inputs: Sequence[Tensor], known: Facts) -> frozenset[tuple[str, int]]:
    """Levels of inputs, by name and number, that hold so many positions that the processor does not remember how long each segment is."""
    return frozenset(
        (t.name, level)
        for t in inputs
        for level in range(1, len(t.format.levels))
        if not t.format.levels[level].full and known[t.name][level] >= MANY
    )


def blocks(inputs: Sequence[Tensor], known: Facts) -> dict[tuple[str, int], int]:
    """Levels of inputs, by name and number, that are expected to hold many positions in segments of moderate length: how many of these,
    a power of two, hold about `BLOCK` positions."""
    found, here = {}, machine.current()
    for tensor in inputs:
        for level in range(1, len(tensor.format.levels)):
            above, count = known[tensor.name][level - 1 : level + 1]
            if in_blocks(tensor.format, known[tensor.name], level, here):
                found[tensor.name, level] = int(max(64, min(BLOCK, rounded(BLOCK * above / count))))
    return found


def in_blocks(form: Format, counts: Counts, level: int, here: Machine) -> bool:
    """Whether the segments of a level, one per coordinate of a dense one, are so many and so short that they are taken in blocks."""
    above, count = counts[level - 1 : level + 1]
    return form.levels[level - 1].full and MANY <= count <= here.short * above


def positions(storage: Storage) -> tuple[float, ...]:
    """The number of positions of every level, rounded to a power of two so that schedules are reused, but where the type tells it.

    They tell the spread of coordinates too, where that is small. Where positions are unused, or hold several entries, entries count.
    Inside a coordinate run, where positions repeat coordinates, the number of distinct ones is estimated.
    """
    known: tuple[float, ...] | None = storage.cache.get("positions")
    if known is None:
        known, form = rounded_counts(storage), storage.format
        if not form.is_dense and not _are_few(storage):
            near, other = spread(storage), crossed(storage)
            runs = rounded(len(storage.vals)) if form.levels[-1].shared else None
            if near or other != EVEN or runs is not None:
                known = Positions(known, near, other, runs)
        storage.cache["positions"] = known
    return known


def rounded_counts(storage: Storage) -> Counts:
    """`positions` without the spread of coordinates."""
    known: Counts | None = storage.cache.get("rounded_counts")
    if known is None:
        if _are_few(storage):
            known = _of_few(storage, storage.format.alone)
        else:
            known = _of_dense(storage.shape, storage.format) if storage.format.is_dense else _all_rounded(storage)
        storage.cache["rounded_counts"] = known
    return known


def _are_few(storage: Storage) -> bool:
    """Whether one level is sparse and holds so few that nothing else is told: the shortest road, as new arrays ask."""
    alone = storage.format.alone
    return alone >= 0 and len(storage.buffers[alone][-1]) < spreads.LEAST


def _of_few(storage: Storage, alone: int) -> tuple[float, ...]:
    """`positions` where one level is sparse and holds so few that nothing else is told."""
    count, counts = 1.0, list[float]()
    for level, d in enumerate(storage.format.order):
        count = float(len(storage.buffers[alone][-1])) if level == alone else count * storage.shape[d]
        counts.append(count if level < alone else rounded(count))
    return tuple(counts)


class Few(NamedTuple):
    """Storages of one format and shape of which `positions` and `rounded_counts` are the same: those that have from `low` up to below `high` entries at
    `level`; all of them where that is -1."""

    level: int
    low: int
    high: int


def few(storage: Storage) -> Few | None:
    """Those that are like this one, if the number of entries tells all.

    >>> from sparsejax.formats import ingest
    >>> few(ingest.as_storage(np.zeros((3, 4)))), few(Storage(Format.parse("csr", 2), (1, 9), 0.0, ((), (np.array([0, 5]), np.arange(5))), np.ones(5)))
    (Few(level=-1, low=0, high=0), Few(level=1, low=3, high=6))
    """
    if storage.format.is_dense:
        return Few(-1, 0, 0)
    if not _are_few(storage):
        return None
    alone = storage.format.alone
    count, below = len(storage.buffers[alone][-1]), 1
    low, high = (1, spreads.LEAST) if count else (0, 1)
    for d in (None, *storage.format.order[alone + 1 :]):
        below *= 1 if d is None else storage.shape[d]
        if below >= 64:  # the logarithm of larger numbers is not exact enough
            return None
        if count * below:
            power = round(math.log2(count * below))
            low, high = max(low, _root(2 * power - 1) // below + 1), min(high, _root(2 * power + 1) // below + 1)
    return Few(alone, low, high)


def _root(power: int) -> int:
    """The square root of a power of two, rounded down: between two numbers that are `rounded` to other powers."""
    return math.isqrt(1 << power) if power >= 0 else 0


def spread(storage: Storage) -> tuple[Spread, ...]:
    """How close together entries lie that follow one another, per level, from some windows of entries: those of a mesh or a band lie among few
    coordinates, and come back to them; in graphs some coordinates come back often. Rounded to powers; none where all are spread evenly, or where
    there are few positions.

    >>> import scipy.sparse as sp
    >>> from sparsejax.formats import ingest
    >>> spread(ingest.as_storage(sp.eye_array(100_000, format="csr")))
    (Spread(new=1.0, among=1.0), Spread(new=1.0, among=0.015625))
    """
    if not spreads.in_line(storage.format):
        return ()
    made = []
    for level, extent in enumerate(storage.format.level_extents(storage.shape)):
        stored = not storage.format.levels[level].full and level > 0
        many = stored and len(storage.buffers[level][-1]) >= spreads.LEAST
        made.append(_spread(storage, level, extent) if many else EVEN)
    return () if all(x == EVEN for x in made) else tuple(made)


def crossed(storage: Storage) -> Spread:
    """How many coordinates of the outer one of two levels are new where entries are visited by the inner one, as far as the lengths of segments tell:
    some entries anywhere are looked at. Long segments come back again and again in that order.

    >>> import scipy.sparse as sp
    >>> from sparsejax.formats import ingest
    >>> few_long_rows = sp.vstack([np.ones((3, 30_000)), sp.eye_array(30_000)]).tocsr()
    >>> crossed(ingest.as_storage(few_long_rows))
    Spread(new=0.25, among=1.0)
    """
    form = storage.format
    if form.ndim != 2 or not spreads.in_line(form) or not form.levels[0].full or len(storage.buffers[1]) < 2:
        return EVEN
    pos, count, step = storage.buffers[1][0], len(storage.buffers[1][-1]), form.levels[1].group
    if count < spreads.LEAST:
        return EVEN
    asked = (_ANYWHERE * (count / step)).astype(pos.dtype)  # of other numbers, NumPy would make a copy of `pos`
    segments = np.searchsorted(pos, asked, "right")
    extent = form.level_extents(storage.shape)[0]
    return spreads.told([segments[k::WINDOWS] for k in range(WINDOWS)], extent)._replace(among=1.0)


_ANYWHERE = np.sort(np.random.default_rng(0).random(WINDOWS * WINDOW))
"""Where some entries lie, as shares of all."""


def _spread(storage: Storage, level: int, extent: int) -> Spread:
    """That of one level. Windows in one segment see no coordinate again, however near or far it comes: they tell nothing."""
    *above, crd = storage.buffers[level]
    step = storage.format.levels[level].group
    starts = [k for k in spreads.starts(len(crd)) if not above or not spreads.in_one(above[0], step, k)]
    return spreads.told([np.sort(crd[k : k + WINDOW]) for k in starts], extent, WINDOWS - len(starts))


@functools.lru_cache(maxsize=4096)
def _of_dense(shape: tuple[int, ...], format: Format) -> tuple[float, ...]:
    """A storage without data tells as much."""
    return _all_rounded(Storage(format, shape, 0, ((),) * len(shape), np.empty(0)))


def _all_rounded(storage: Storage) -> tuple[float, ...]:
    return _rounded_below(storage.format, exact_positions(storage))


def _rounded_below(form: Format, counts: Counts) -> Counts:
    """Counts rounded, but those of dense levels above all sparse ones, which the type tells."""
    sparse = next((lv for lv, level in enumerate(form.levels) if not level.full), 0)
    return (*counts[:sparse], *map(rounded, counts[sparse:]))


def exact_positions(storage: Storage) -> tuple[float, ...]:
    """The number of positions of every level, not rounded: for reports and forecasts."""
    counts = []
    count = 1.0
    size = 1.0
    form = storage.format
    for level, extent in enumerate(form.level_extents(storage.shape)):
        size *= extent
        if form.levels[level].full:
            count *= extent
        else:
            count = float(len(storage.buffers[level][-1]) if form.packed else storage.counts[level])
            if level + 1 < len(form.levels) and form.continues(level + 1):
                counts.append(_distinct(storage, level, count, size))
                continue
        counts.append(count)
    return tuple(counts) or (1.0,)


def _distinct(storage: Storage, level: int, count: float, size: float) -> float:
    """How many of `count` positions of a coordinate run begin new coordinates down to `level`, which has `size` places: as many as the same share of
    some positions anywhere does; of few positions, what is to be expected of coordinates that are drawn evenly."""
    first = next(start for start, stop in storage.format.runs if start <= level < stop)
    pos, *columns = storage.buffers[first]
    columns += [storage.buffers[k][-1] for k in range(first + 1, level + 1)]
    if len(columns[0]) < spreads.LEAST:
        return skew.distinct(count, size)
    places = 1 + (_ANYWHERE * (len(columns[0]) - 1)).astype(np.int64)
    new = pos[np.searchsorted(pos, places)] == places
    for column in columns:
        new |= column[places] != column[places - 1]
    return min(size, max(1.0, float(np.count_nonzero(new)) / len(places) * count))


def rates(storage: Storage) -> tuple[float, ...]:
    """How many positions a level has per position above it, rounded to a power of four; 0 for dense levels, which the type tells. Equal for
    arrays that differ in size alone: what plans for many shapes depend on.

    >>> import scipy.sparse as sp
    >>> from sparsejax.formats import ingest
    >>> [rates(ingest.as_storage(sp.eye_array(n, format="csr"))) for n in (10, 100_000)]
    [(0.0, 1.0), (0.0, 1.0)]
    """
    known: tuple[float, ...] | None = storage.cache.get("rates")
    if known is None:
        form = storage.format
        if form.is_dense:
            return (0.0,) * len(form.levels)
        if (alone := form.alone) >= 0:  # on the shortest road: every new shape asks
            made = [0.0] * len(form.levels)
            parents = math.prod([storage.shape[d] for d in form.order[:alone]])
            made[alone] = _rate(len(storage.buffers[alone][-1]), parents)
        else:
            made, above = [], 1.0
            for level, count in zip(form.levels, exact_positions(storage), strict=False):
                made.append(0.0 if level.full else _rate(count, above))
                above = count
        known = storage.cache["rates"] = tuple(made)
    return known


def _rate(count: float, above: float) -> float:
    return 4.0 ** round(math.log2(max(count, 1.0) / max(above, 1.0)) / 2)


def at_most(form: Format, shape: Sequence[int], per_position: Sequence[float]) -> Counts:
    """The number of positions of every level of the largest array of `shape` that has these `rates`.

    >>> at_most(Format.parse("csr", 2), (4, 8), (0.0, 4.0))
    (4.0, 16.0)
    """
    counts, count, size = [], 1.0, 1.0
    for level, extent, rate in zip(form.levels, form.level_extents(shape), per_position, strict=True):
        size *= extent
        count = count * extent if level.full else min(size, count * rate)
        counts.append(count)
    return _rounded_below(form, tuple(counts)) or (1.0,)


def expected(form: Format, shape: Sequence[int], entries: float) -> tuple[float, ...]:
    """What is to be expected of `entries` that are spread evenly over an array of `shape`, stored as `form`.

    >>> expected(Format.parse("csr", 2), (4, 8), 7.0)
    (4.0, 8.0)
    """
    counts = []
    count = size = 1.0
    for level, extent in zip(form.levels, form.level_extents(shape), strict=True):
        size *= extent
        if level.full:
            count *= extent
        else:
            count = skew.distinct(entries, size)
        counts.append(count)
    return _rounded_below(form, tuple(counts)) or (1.0,)


def rounded(count: float) -> float:
    """The nearest power of two."""
    return 2.0 ** round(math.log2(count)) if count > 0 else 0.0
