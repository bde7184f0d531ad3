"""How often the points of a kernel meet in the same entry of its sparse result: counted in a small sample of its rows.

    w[i,j] += A[i,k] * B[k,j]      points: all (i,k,j) that are stored;  collisions: points / different (i,j)

Degrees do not tell it: rows of a mesh meet in the same columns, rows of a random matrix do not. The sample holds all points of some
coordinates of one output variable s, so that what meets in an entry is in it as a whole:

    s is stored outermost in an operand      the rows of equally spaced entries of it, weighted by 1 / length: O(sample)
    else                                     the coordinates of s that agree in their low bits: one pass over a column

    w[i,j] += T[p,i,j]     one operand, p outermost: entries at random, no rows; how many coordinates are met once and twice tells how
                           many there are (`_places`)

Further operands are entered where they are stored by a shared variable outermost, else searched in one pass. Where the sample is too
large, some are left out at random, and what that does to points that meet is undone (`_undo`). A sample is taken only
where it costs next to nothing (`SHARE`) beside the kernel, and once per operands. Sources: Cohen, "Structure prediction and computing
sparse matrix products"; Chao, "Nonparametric estimation of the number of classes in a population" (1984); reference section 4.5.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sparsejax.cached import cached_property
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import joins, sampling, skew
from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.ir.nest import Nest

SHARE, BLIND = 0.02, 0.15
"""Of the time of a kernel, what a sample may take; what it may where nothing else tells anything (one operand)."""
POINT, ENTRY, SCATTERED = 1.0, 5.0, 9.0
"""Nanoseconds of a kernel: per point and per entry, where rows are made one by one; per point where they are not."""
CALL, SAMPLED = 1e5, 20.0  # of a sample, call (between one that repeats and one with cold caches) and point
DRAW = 3e4  # of a sample of single entries, call
DRAWN = 64
"""Entries for each that is drawn, between `FEWEST` and `LARGE` of these."""
LARGE = 2048
SCANNED = 0.6  # per entry of a column that is passed over
SEARCH, SEARCHED = 3e5, 5.0  # per operand that is searched in, and per entry of it
ROWS, FEWEST, MOST, PART = 24, 384, 1 << 17, 1024.0
"""Coordinates in a sample; points in it, beyond which some are left out: at least, at most, and as part of the kernel's."""
FOLDED = 1 << 16
"""Coordinates that are told apart in a first pass over an operand."""

Ints = NDArray[np.int64]
Relation = dict[cin.IndexVar, Ints]


@dataclass(frozen=True)
class Plan:
    """How to sample a kernel: its sparse operands in the order in which they are joined, and the variable that is sampled."""

    accesses: tuple[cin.Access, ...]
    variable: cin.IndexVar
    indices: tuple[cin.IndexVar, ...]
    """The output's variables that sparse operands have."""
    repeated: float
    """Points for each point of the sparse operands, by reduced variables that none of them has."""
    spread: float
    """The same by all variables that none of them has."""
    extents: Mapping[cin.IndexVar, int] = field(default_factory=dict)

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What tells ways to sample apart that begin with the same array."""
        indices = tuple(tuple(v.name for v in cin.followed(a.indices)) for a in self.accesses)
        return indices, tuple(v.name for v in self.indices), self.variable.name

    @cached_property
    def needed(self) -> tuple[set[cin.Index], ...]:
        """The variables that are still of use when each operand has been joined."""
        later = ((v for access in self.accesses[k:] for v in access.indices) for k in range(1, len(self.accesses) + 1))
        return tuple({self.variable, *self.indices, *rest} for rest in later)

    @property
    def direct(self) -> bool:
        """Whether rows are found without a pass over all entries."""
        return self.accesses[0].level_index(0) == self.variable

    @property
    def alone(self) -> bool:
        """Whether there is one operand, that is stored by what is reduced first."""
        return len(self.accesses) == 1 and not self.direct

    @cached_property
    def shared(self) -> tuple[tuple[float, int], ...]:
        """The extents of variables that several operands have, and how many operands beyond the first."""
        times = [(n, sum(v in a.indices for a in self.accesses)) for v, n in self.extents.items()]
        return tuple((float(max(1, n)), k - 1) for n, k in times if k > 1)

    @cached_property
    def countable(self) -> bool:
        """Whether `points` is exact: at most two operands, that share one variable."""
        return len(self.accesses) == 1 or (len(self.accesses) == 2 and len(self.shared) == 1)

    def points(self, entries: Mapping[str, float], couplings: Mapping[tuple[str, int, str, int], float]) -> float:
        """The expected number of points of the sparse operands: their join, with even degrees but for `couplings`."""
        total = math.prod(entries[a.tensor.name] for a in self.accesses)
        for extent, times in self.shared:
            total /= extent**times
        return total * math.prod(couplings.values())

    def worthwhile(self, entries: Mapping[str, float], couplings: Mapping[tuple[str, int, str, int], float]) -> bool:
        """Whether a sample costs at most `SHARE` of the kernel."""
        points = self.points(entries, couplings)
        if self.alone:
            return DRAW + SAMPLED * drawn(points) <= BLIND * SCATTERED * self.repeated * points
        price, each = CALL + SAMPLED * limit(points), SCATTERED
        if not self.direct:
            price += SCANNED * entries[self.accesses[0].tensor.name]
        known = set(self.accesses[0].indices)
        for access in self.accesses[1:]:
            if access.level_index(0) not in known:
                price += SEARCH + SEARCHED * entries[access.tensor.name]
            elif self.direct:
                size = math.prod(max(1.0, self.extents[v]) for v in self.indices)
                each = POINT + ENTRY * size * -math.expm1(-points / size) / max(1.0, points)
            known |= set(access.indices)
        return price <= SHARE * each * self.repeated * points


def limit(points: float) -> int:
    """How many points a sample may have, of so many in all."""
    return int(max(FEWEST, min(MOST, points / PART)))


def drawn(entries: float) -> int:
    """How many of so many entries are drawn."""
    return int(min(entries, max(FEWEST, min(LARGE, entries / DRAWN))))


def plan(nest: Nest) -> Plan | None:
    """How to sample `nest`; None where its result is dense, no points can meet, or patterns of operands do not decide where they are."""
    if nest.nested or nest.output.format.is_dense or nest.op is None or not nest.indices:
        return None
    if any(t.format.blocked for t in (*nest.inputs, nest.output)):
        return None
    expr = simplify.simplify(nest.composite)
    accesses = tuple(dict.fromkeys(cin.accesses(expr)))
    sparse = tuple(a for a in accesses if not a.tensor.format.is_dense)
    if not sparse or set(joins.factors(expr)) != set(sparse) or not all(map(_plain, sparse)):
        return None
    extents = cin.extents(accesses)
    held = {v: extents[v] for a in sparse for v in cin.followed(a.indices)}
    indices = tuple(v for v in cin.followed(nest.indices) if v in held)
    reduced = [v for v in extents if v not in nest.indices]
    if not indices or not reduced:
        return None
    repeated = math.prod(float(extents[v]) for v in reduced if v not in held)
    spread = math.prod(float(n) for v, n in extents.items() if v not in held)
    starts = [(a, lv, v) for v in indices for a in sparse for lv in range(len(a.indices)) if a.level_index(lv) == v]
    starts = [s for s in starts if not s[1] or not s[0].tensor.format.levels[s[1]].full]
    if not starts:
        return None
    first, _, variable = min(starts, key=lambda s: (s[1] > 0, nest.storage_indices.index(s[2])))
    return Plan(_connected(first, sparse), variable, indices, repeated, spread, held)


def _plain(access: cin.Access) -> bool:
    """Whether entries are at positions, by levels that can be entered and left; each variable stands once."""
    form = access.tensor.format
    plain = all(level.plain and level.unique for level in form.levels)
    variables = cin.are_variables(access.indices) and len(set(access.indices)) == form.ndim
    return plain and variables and not form.blocked and form.packed


def _connected(first: cin.Access, sparse: Sequence[cin.Access]) -> tuple[cin.Access, ...]:
    """`sparse` from `first` on, such that each shares a variable with those before, and can be entered, where that is possible."""
    made, known = [first], set(first.indices)
    waiting = [a for a in sparse if a is not first]
    while waiting:
        following = min(waiting, key=lambda a: (a.level_index(0) not in known, not known & set(a.indices)))
        waiting.remove(following)
        made.append(following)
        known |= set(following.indices)
    return tuple(made)


def observed(
    how: Plan, storages: Mapping[str, Storage], couplings: Mapping[tuple[str, int, str, int], float]
) -> tuple[float, float | None]:
    """How many points a kernel has, and how many meet in an entry of its result; None where that would cost too much to find out.
    Computed once per operands."""
    entries = {name: float(len(s.vals)) for name, s in storages.items()}
    points = how.points(entries, couplings)
    if not how.worthwhile(entries, couplings):
        return points * how.spread, None
    given = [storages[a.tensor.name] for a in how.accesses]
    known = given[0].cache.setdefault("collisions", {})
    marks = [skew.mark(s) for s in given[1:]]
    found = known.get(how.key)
    if found is None or found[0] != marks:
        found = known[how.key] = marks, sampled(how, given, points)
    rate: float = found[1]
    return points * how.spread, rate * how.repeated


def sampled(how: Plan, storages: Sequence[Storage], points: float) -> float:
    """Points of the sparse operands per entry, from a sample; 1 where it holds none."""
    first, storage, most, kept = how.accesses[0], storages[0], limit(points), 1.0
    if not len(storage.vals):
        return 1.0
    if how.alone:
        return _places(how, storage)
    if how.direct:
        values, weights, lo, hi = _weighted(storage, points)
        rows, entries = _ranges(lo, hi - lo)
    else:
        level = next(lv for lv in range(len(first.indices)) if first.level_index(lv) == how.variable)
        found = _agreeing(storage, level, points)
        lo, hi = _below(storage, level, found, found + 1)
        each, entries = _ranges(lo, hi - lo)
        values, rows = np.unique(storage.buffers[level][-1][found[each]], return_inverse=True)
        weights = np.ones(len(values))
    joined = _columns(first, storage, entries, how.needed[0]) | {how.variable: rows}
    for k, access in enumerate(how.accesses[1:], 1):
        if access.level_index(0) in joined:
            made = _entered(joined, values, how, k, storages[k], most)
        else:
            made = _searched(joined, values, how, k, storages[k], most)
        if made is None:
            return 1.0
        joined, share = made
        kept *= share
    return _rate(joined, how, weights, kept)


def _places(how: Plan, storage: Storage) -> float:
    """Entries of an array for each different coordinate that they have in the output's dimensions, from some drawn at random.

    Of f1 coordinates drawn once and f2 drawn twice, f1^2 / 2 f2 were not drawn at all, were all equally likely, and more if not.
    """
    n = len(storage.vals)
    count = drawn(n)
    at = ((np.arange(count) + np.resize(_noise(), count)) * (n / count)).astype(np.int64)
    joined = _columns(how.accesses[0], storage, at, how.indices)
    keys = np.sort(_keys(joined, how, how.extents[how.variable])[0])
    ends = np.append(np.flatnonzero(keys[1:] != keys[:-1]), count - 1)
    times = np.diff(ends, prepend=-1)
    once, twice = int(np.count_nonzero(times == 1)), int(np.count_nonzero(times == 2))
    if count == n:
        return n / len(times)
    places = len(times) + once * max(0, once - 1) / (2.0 * (twice + 1))
    return max(1.0, n / skew.distinct(n, places))


def _rate(joined: Relation, how: Plan, weights: NDArray[np.float64], kept: float) -> float:
    """Points per different entry of a sample: a quotient of weighted sums."""
    rows = joined[how.variable]
    if not len(rows):
        return 1.0
    keys, size = _keys(joined, how, len(weights))
    different = _different(np.sort(keys)) // size
    return _undone(float(weights[rows].sum()) / float(weights[different].sum()), kept)


def _keys(joined: Relation, how: Plan, count: int) -> tuple[Ints, int]:
    """A number for the output's coordinates of every point of a sample: its row, of `count`, and below it, of so many, the others."""
    rows = joined[how.variable]
    keys, size = rows, 1
    for var in (v for v in how.indices if v != how.variable):
        column, extent = joined[var], how.extents[var]
        if count * size * extent >= 2**62:  # too many to tell apart by number: those that occur are numbered
            column, extent = np.unique(column, return_inverse=True)[1], len(column)
        if count * size * extent >= 2**62:
            inner = np.unique(keys - rows * size, return_inverse=True)[1]
            keys, size = rows * len(column) + inner, len(column)
        keys, size = keys * extent + column, size * extent
    return keys, size


def _undone(rate: float, kept: float) -> float:
    """The points per entry of which `rate` are left, in those entries that are, when each point is kept with probability `kept`.

    >>> r, kept = 8.0, 0.25
    >>> round(_undone(kept * r / (1 - (1 - kept) ** r), kept), 6)
    8.0
    """
    if kept >= 1.0:
        return max(1.0, rate)
    low, high = 1.0, max(2.0, rate / kept)
    for _ in range(60):
        middle = 0.5 * (low + high)
        if kept * middle / -math.expm1(middle * math.log1p(-kept)) < rate:
            low = middle
        else:
            high = middle
    return low


def _weighted(storage: Storage, points: float) -> tuple[Ints, NDArray[np.float64], Ints, Ints]:
    """Coordinates of the outermost level: those of equally spaced entries, with 1 / the probability of being among them; where their
    entries are."""
    n = len(storage.vals)
    at = ((np.arange(ROWS) + 0.5) * (n / ROWS)).astype(np.int64)
    values = _different(_ascended(storage, at, {0})[0])
    lo, hi = _spans(storage, values)
    lengths = np.maximum(1, hi - lo)
    step = max(1, min(len(values) // 8, round(float(lengths.sum()) * points / n / limit(points))))
    weights = np.maximum(1.0, (n * step / ROWS) / lengths[::step])
    return values[::step], weights, lo[::step], hi[::step]


def _different(ordered: Ints) -> Ints:
    """The different ones of ordered numbers."""
    fresh = np.empty(len(ordered), bool)
    fresh[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    made: Ints = ordered[fresh]
    return made


def _agreeing(storage: Storage, level: int, points: float) -> Ints:
    """The positions of a level whose coordinates agree in so many low bits that `limit` points are expected, of 16 coordinates or more."""
    coordinates = storage.buffers[level][-1]
    extent = storage.shape[storage.format.order[level]]
    groups = max(1.0, min(points / limit(points), extent / 16))
    mask = (1 << int(math.log2(groups))) - 1
    found: Ints = np.flatnonzero((coordinates & coordinates.dtype.type(mask)) == mask // 3)
    return found


@functools.cache
def _noise() -> NDArray[np.float64]:
    """Random numbers below 1, the same in every process: making a generator takes longer than a sample."""
    return np.random.default_rng(0).random(1 << 13)


def _thinned(joined: Relation, step: int) -> tuple[Relation, NDArray[np.bool_]]:
    """About one row in `step`, at random: neighbours meet more often than others."""
    picked = np.resize(_noise(), len(next(iter(joined.values())))) * step < 1.0
    return {v: c[picked] for v, c in joined.items()}, picked


def _spans(storage: Storage, values: Ints) -> tuple[Ints, Ints]:
    """The entries below coordinates of the outermost level: from, up to."""
    level = storage.format.levels[0]
    if level.full:
        return _below(storage, 0, values, values + 1)
    crd = storage.buffers[0][-1]
    lo = np.searchsorted(crd, values.astype(crd.dtype, copy=False), "left").astype(np.int64, copy=False)
    hi = np.searchsorted(crd, values.astype(crd.dtype, copy=False), "right").astype(np.int64, copy=False)
    return _below(storage, 0, lo, hi)


def _below(storage: Storage, level: int, lo: Ints, hi: Ints) -> tuple[Ints, Ints]:
    """The entries below the positions `lo` up to `hi` of a level."""
    form = storage.format
    for lv in range(level + 1, len(form.levels)):
        if form.levels[lv].full:
            extent = storage.shape[form.order[lv]]
            lo, hi = lo * extent, hi * extent
        elif not form.continues(lv):
            pos = storage.buffers[lv][0]
            lo, hi = pos[lo], pos[hi]
    return lo, hi


def _ranges(lo: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    """For all numbers in ranges, one after the other: which range, which number."""
    which = np.repeat(np.arange(len(lo)), lengths)
    return which, np.arange(len(which)) + np.repeat(lo - (np.cumsum(lengths) - lengths), lengths)


def _ascended(storage: Storage, entries: Ints, levels: Collection[int]) -> dict[int, Ints]:
    """The coordinates of entries at some levels."""
    form, position = storage.format, entries
    found: dict[int, Ints] = {}
    for lv in range(len(form.levels) - 1, min(levels, default=len(form.levels)) - 1, -1):
        if form.levels[lv].full:
            position, coordinate = np.divmod(position, storage.shape[form.order[lv]])
        else:
            coordinate = storage.buffers[lv][-1][position]
            if lv and not form.continues(lv) and min(levels) < lv:
                position = np.searchsorted(storage.buffers[lv][0], position, "right") - 1
        if lv in levels:
            found[lv] = coordinate.astype(np.int64, copy=False)
    return found


def _columns(access: cin.Access, storage: Storage, entries: Ints, wanted: Collection[cin.Index]) -> Relation:
    """The coordinates of entries in the dimensions of some variables."""
    variables = {lv: v for lv in range(len(access.indices)) if (v := cin.follows(access.level_index(lv))) in wanted}
    found = _ascended(storage, entries, set(variables))
    return {v: found[lv] for lv, v in variables.items() if v is not None}


def _entered(
    joined: Relation, values: Ints, how: Plan, number: int, storage: Storage, most: int
) -> tuple[Relation, float] | None:
    """The join with an operand whose outermost level is known, and the share of points that were kept; None where it is too large."""
    access, step = how.accesses[number], 1
    outer = cin.follows(access.level_index(0))
    assert outer is not None
    lo, hi = _spans(storage, values[joined[outer]] if outer == how.variable else joined[outer])
    total = int((hi - lo).sum())
    if total > 2 * most:
        step = -(-total // most)
        joined, picked = _thinned(joined, step)
        lo, hi = lo[picked], hi[picked]
        if int((hi - lo).sum()) > 16 * most:
            return None
    which, entries = _ranges(lo, hi - lo)
    needed = how.needed[number]
    made = {v: c[which] for v, c in joined.items() if v in needed}
    added = _columns(access, storage, entries, (needed | set(joined)) - {outer})
    return _agreed(made, added, joined, which, values, how), 1.0 / step


def _agreed(made: Relation, added: Relation, joined: Relation, which: Ints, values: Ints, how: Plan) -> Relation:
    """`made` with the columns that an operand adds, where these agree with those that were known."""
    for var, column in added.items():
        if var in joined:
            before = joined[var][which]
            same = (values[before] if var == how.variable else before) == column
            return _agreed(
                {v: c[same] for v, c in made.items()},
                {v: c[same] for v, c in added.items() if v != var},
                joined,
                which[same],
                values,
                how,
            )
    return made | added


def _searched(
    joined: Relation, values: Ints, how: Plan, number: int, storage: Storage, most: int
) -> tuple[Relation, float] | None:
    """The join with an operand all entries of which are looked at, in the dimension of one variable that is known."""
    access = how.accesses[number]
    shared = [v for v in cin.followed(access.indices) if v in joined]
    level = next((lv for lv in range(len(access.indices)) if access.level_index(lv) in shared), None)
    if level is None or storage.format.levels[level].full:
        return None
    var = cin.follows(access.level_index(level))
    assert var is not None
    known = values if var == how.variable else joined[var]
    marked = np.zeros(FOLDED, bool)
    marked[known & (FOLDED - 1)] = True
    crd = storage.buffers[level][-1]
    found = np.flatnonzero(marked[crd & crd.dtype.type(FOLDED - 1)])
    lo, hi = _below(storage, level, found, found + 1)
    entries = _ranges(lo, hi - lo)[1]
    right = _columns(access, storage, entries, how.needed[number] | set(shared))
    left = {v: values[c] if v == how.variable and v in right else c for v, c in joined.items()}
    step, made = 1, None
    while made is None and step < MOST:
        made = sampling.natural_join(_thinned(left, step)[0], right, 4 * most)
        step *= 4
    if made is not None and how.variable in right:
        made[how.variable] = np.searchsorted(values, made[how.variable])
    return None if made is None else (made, 4.0 / step)
