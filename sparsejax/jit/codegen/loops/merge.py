"""Loops that walk leaders: alone, where all of them are, or wherever enough of them are.

Places are found by galloping (doubling steps, then halving) where one segment is much longer than the other.
Source: galloping as in "An Almost Optimal Algorithm for Unbounded Searching"; the sentinel loop is the stream view of "Indexed
Streams" as a single loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import register_tiles, tile_fetches
from sparsejax.jit.codegen.environment import Cursor, Strip
from sparsejax.jit.codegen.loops import held, prefetch
from sparsejax.jit.codegen.loops.counted import Ranges
from sparsejax.jit.codegen.loops.walker import END, Loop, Walker
from sparsejax.jit.cost.machine import UNEVEN
from sparsejax.jit.ir import cin, scalar_functions
from sparsejax.jit.ir.loop_plans import Leaders

PIECE = 256
"""Places of an intersection for whose entries room is made at once: how many there will be is not known, and room for all would be
memory that is held for nothing."""


def entries(loop: Loop, key: Leaders, walker: Walker) -> None:
    """One leader, one case: its places in order."""
    b, segment = loop.b, walker.segment
    if loop.plan.prefetch:  # no pass of LLVM moves a load out of a loop that fetches
        walker.last = prefetch.last_place(loop, walker)
    if walker.side_by_side:
        if loop.plan.streamed:
            asked = scalar_functions.read_by(loop.cases[key])
            prefetch.stream(loop, walker, segment.lo, True, (a for a in loop.walkers if a in key and a in asked))
        same = held.of(loop, key)
        if same:
            with b.if_(b.lt(segment.lo, segment.hi)):
                inside = held.inside(loop, key, same)
                with b.for_(segment.lo, segment.hi, "p", some=True) as place:
                    at_entry(inside, key, walker, place)
        else:
            with loop.room(b.sub(segment.hi, segment.lo)), b.for_(segment.lo, segment.hi, "p") as place:
                at_entry(loop, key, walker, place)
        walker.last = None
        return
    present = b.var("p", segment.lo)
    with b.while_(lambda: b.lt(b.get(present), segment.hi)):
        place = b.get(present)
        coordinate = segment.coordinate(place)
        end = walker.end_of(b, place, coordinate) if walker.ranged else None
        inside = tile_fetches.of_blocks(loop, key, walker, place, end) if loop.plan.prefetch else loop
        inside.at(coordinate, key, {walker.access: walker.cursor(place, end, coordinate)})
        b.set(present, walker.after(b, place, coordinate) if end is None else end)
    walker.last = None


def at_entry(loop: Loop, key: Leaders, walker: Walker, place: Val) -> None:
    """One place of a walk in order, before which is fetched what comes later."""
    if loop.plan.prefetch:
        prefetch.fetch(loop, key, walker, place)
        _fetch_strip(loop, key, walker, place)
        loop = tile_fetches.of_blocks(loop, key, walker, place)
    loop.at_place(key, walker, place)


def _fetch_strip(loop: Loop, key: Leaders, walker: Walker, place: Val) -> None:
    """Fetch what a wide strip will read of dense operands."""
    strip, stmt = loop.env.mode.strip, loop.cases[key]
    if strip is not None and is_wide(strip) and isinstance(stmt, cin.Assign):
        here = {walker.access: walker.cursor(place, None, walker.segment.coordinate(place))}
        env, width = loop.env.with_cursors(here), strip.vectors * strip.lanes
        prefetch.rows(loop, walker, place, stmt, env, strip.var, width, prefetch.ROWS)


def is_wide(strip: Strip) -> bool:
    """Whether a strip has so many vectors that fetching what it reads later pays (`prefetch`)."""
    return strip.vectors >= register_tiles.VECTORS


def runs(loop: Loop, key: Leaders, walker: Walker) -> None:
    """Ranges of coordinates that share a position: the leader does not change in them."""
    b, found = loop.b, walker.segment.runs
    assert found is not None
    with b.if_(b.lt(found.lo, found.hi)):
        ranges = Ranges(loop, key, loop.plan.range, fixed=key)
        with b.for_(found.lo, found.hi, "run") as run:
            ranges.add(found.start(run), found.stop(run), {walker.access: Cursor(walker.level + 1, run)}, short=True)
        ranges.finish()


def common_runs(loop: Loop, key: Leaders) -> None:
    """Several leaders in runs, all needed: the ranges that their runs have in common, in which none of them changes."""
    b, walkers = loop.b, loop.walkers_of(key)
    runs = [w.segment.runs for w in walkers if w.segment.runs is not None]
    present = [b.var("run", r.lo) for r in runs]
    some = b.var("some", b.const("i1", 0))

    def inside() -> Val:
        made = b.lt(b.get(present[0]), runs[0].hi)
        for var, r in zip(present[1:], runs[1:], strict=True):
            made = b.and_(made, b.lt(b.get(var), r.hi))
        return made

    ranges = Ranges(loop, key, loop.plan.range, fixed=key)
    with b.while_(inside):
        places = [b.get(p) for p in present]
        start, stops = runs[0].start(places[0]), [r.stop(q) for r, q in zip(runs, places, strict=True)]
        stop = stops[0]
        for r, q, end in zip(runs[1:], places[1:], stops[1:], strict=True):
            start, stop = b.max(start, r.start(q)), b.min(stop, end)
        start, stop = b.named("start", start), b.named("stop", stop)
        with b.if_(b.lt(start, stop)):
            found = {w.access: Cursor(w.level + 1, q) for w, q in zip(walkers, places, strict=True)}
            ranges.add(start, stop, found, short=True)
            b.set(some, b.const("i1", 1))
        for var, place, end in zip(present, places, stops, strict=True):
            b.set(var, b.add(place, b.convert("zext", b.eq(end, stop), "i64")))
    with b.if_(b.get(some)):
        ranges.finish()


def bands(loop: Loop, key: Leaders) -> None:
    """Leaders that each hold consecutive coordinates at consecutive places, all needed: the range that they have in common."""
    b, walkers = loop.b, loop.walkers_of(key)
    firsts: list[Val] = []
    lo = hi = b.i64(0)
    for number, walker in enumerate(walkers):
        segment = walker.segment
        first = segment.first
        assert first is not None
        end = b.add(first, b.sub(segment.hi, segment.lo))
        firsts.append(first)
        lo, hi = (b.max(lo, first), b.min(hi, end)) if number else (first, end)
    lo, hi = b.named("first", lo), b.named("last", hi)

    def follow(coordinate: Val) -> dict[cin.Access, Cursor]:
        found = {}
        for walker, first in zip(walkers, firsts, strict=True):
            place = b.add(walker.segment.lo, b.sub(coordinate, first))
            found[walker.access] = walker.cursor(place, None, coordinate)
        return found

    with b.if_(b.lt(lo, hi)):
        ranges = Ranges(loop, key, loop.plan.range)
        ranges.add(lo, hi, follow=follow)
        ranges.finish()


def intersection(loop: Loop, key: Leaders) -> None:
    """Several leaders, all needed, places side by side: merged where their lengths are alike, else galloped through.

        while p < p_end and q < q_end:
          if a = crd_a[p] == b = crd_b[q]: out[a] = ...; p += 1; q += 1
          else: v = max(a, b); p += a < v; q += b < v

    Which leader is behind is as good as random, and costs no branch; that all are at one coordinate is foreseen where patterns are alike:
    then nothing waits for what was compared. The body is emitted for both ways, unless it holds loops of its own.
    """
    b, walkers = loop.b, loop.walkers_of(key)
    present = [b.var("p", w.segment.lo) for w in walkers]

    def inside(ends: Sequence[Val]) -> Val:
        return functools.reduce(b.and_, (b.lt(b.get(p), end) for p, end in zip(present, ends, strict=True)))

    def walk(ends: Sequence[Val], apart: Callable[[Sequence[Val], Sequence[Val]], None]) -> None:
        with b.while_(lambda: inside(ends), some=True):
            places = [b.get(p) for p in present]
            at = [w.segment.coordinate(p) for w, p in zip(walkers, places, strict=True)]

            def together() -> None:
                loop.at(at[0], key, {w.access: w.cursor(p, None, at[0]) for w, p in zip(walkers, places, strict=True)})
                for var, place in zip(present, places, strict=True):
                    b.set(var, b.add(place, 1))

            equal = functools.reduce(b.and_, (b.eq(at[0], c) for c in at[1:]))
            b.if_else(equal, together, lambda: apart(places, at))

    def highest(at: Sequence[Val]) -> list[Val]:
        """What each of the leaders must come to: the coordinate of the other, or the highest of all."""
        if len(at) == 2:
            return [at[1], at[0]]
        return [b.named("highest", functools.reduce(b.max, at))] * len(at)

    def step(places: Sequence[Val], at: Sequence[Val]) -> None:
        for var, place, here, aim in zip(present, places, at, highest(at), strict=True):
            b.set(var, b.add(place, b.convert("zext", b.lt(here, aim), "i64")))

    def jump(places: Sequence[Val], at: Sequence[Val]) -> None:
        for w, var, place, here, aim in zip(walkers, present, places, at, highest(at), strict=True):
            with b.if_(b.lt(here, aim)):
                b.set(var, w.seek(b, place, aim))

    def both(ends: Sequence[Val]) -> None:
        if uneven is None:
            walk(ends, jump)
        else:
            b.if_else(uneven, lambda: walk(ends, jump), lambda: walk(ends, step))

    lengths = [b.named("length", b.sub(w.segment.hi, w.segment.lo)) for w in walkers]
    shortest = b.named("shortest", functools.reduce(b.min, lengths))
    uneven = None
    if isinstance(loop.cases[key], cin.Assign):
        longest = functools.reduce(b.max, lengths)
        uneven = b.named("uneven", b.lt(b.mul(shortest, UNEVEN), longest))
    ends = [w.segment.hi for w in walkers]
    with b.if_(b.lt(b.i64(0), shortest)):  # one branch, whichever of them are empty
        if not loop.grows:
            both(ends)
            return
        with b.while_(lambda: inside(ends), some=True):
            first = b.get(present[0])
            end = b.named("end", b.min(b.add(first, PIECE), ends[0]))
            with loop.room(b.sub(end, first)):
                both([end, *ends[1:]])


class Match:
    """What the leaders of a sentinel loop show at one coordinate: who is there, and where."""

    def __init__(self, b: Builder, walkers: Mapping[cin.Access, Walker], coordinate: Val) -> None:
        self._b, self._walkers, self._coordinate = b, walkers, coordinate
        self.hit: dict[cin.Access, Val] = {}
        self._ends: dict[cin.Access, Var] = {}
        for access, walker in walkers.items():
            self.hit[access] = b.named("hit", b.eq(walker.coordinate(b), coordinate))
            if walker.ranged:
                end = self._ends[access] = b.var("next", walker.place(b))
                with b.if_(self.hit[access]):
                    b.set(end, walker.end_of(b, walker.place(b), coordinate))

    def cursor(self, access: cin.Access) -> Cursor:
        end = self._b.get(self._ends[access]) if access in self._ends else None
        return self._walkers[access].cursor(self._walkers[access].place(self._b), end, self._coordinate)

    def all_of(self, key: Leaders) -> Val:
        """Whether all leaders of `key` are there."""
        hits = [self.hit[a] for a in self._walkers if a in key]
        made = hits[0]
        for hit in hits[1:]:
            made = self._b.and_(made, hit)
        return made

    def advance(self) -> None:
        """Move the leaders that are there on."""
        b = self._b
        for access, walker in self._walkers.items():
            with b.if_(self.hit[access]):
                place = walker.place(b)
                ranged = access in self._ends
                walker.move(b, b.get(self._ends[access]) if ranged else walker.after(b, place, self._coordinate))


def choose(loop: Loop, match: Match, coordinate: Val, keys: Sequence[Leaders]) -> None:
    """The first of the cases `keys` all of whose leaders are there (keys: the largest first).

    Leaders are tested one by one, in a tree with a leaf for each case; where a case would need several leaves, all leaders of a
    key are tested at once, key after key.
    """
    b = loop.b
    order = [a for a in loop.walkers if any(a in k for k in keys)]

    def at(key: Leaders) -> None:
        loop.at(coordinate, key, {a: match.cursor(a) for a in order if a in key})

    def tree(keys: Sequence[Leaders], known: Leaders) -> None:
        asked = frozenset([a for a in order if a in keys[0] - known][:1])
        if not asked:
            at(keys[0])
            return
        rest = [k for k in keys if not asked & k]
        no = (lambda: tree(rest, known)) if rest else None
        b.if_else(match.all_of(asked), lambda: tree(keys, known | asked), no)

    def chain() -> None:
        *others, last = keys
        b.first_of(
            [(functools.partial(match.all_of, key), functools.partial(at, key)) for key in others],
            lambda: b.if_else(match.all_of(last), lambda: at(last)) if last else at(last),
        )

    if _leaves(order, keys, frozenset(), len(keys)) > len(keys):
        chain()
    else:
        tree(keys, frozenset())


def _leaves(order: Sequence[cin.Access], keys: Sequence[Leaders], known: Leaders, limit: int) -> int:
    """The leaves of the tree over `keys` when the leaders `known` are there; anything above `limit` when there are more."""
    if not keys:
        return 0
    if keys[0] <= known:
        return 1
    access = next(a for a in order if a in keys[0] - known)
    count = _leaves(order, keys, known | {access}, limit)
    if count > limit:
        return count
    return count + _leaves(order, [k for k in keys if access not in k], known, limit - count)


def minimal(keys: Iterable[Leaders]) -> list[Leaders]:
    """Those of `keys` that contain no other."""
    every = list(dict.fromkeys(keys))
    return [k for k in every if not any(other < k for other in every)]


def _compare(b: Builder, walkers: Sequence[Walker]) -> None:
    """Tell the walkers which of them are long, compared to the shortest."""
    lengths = {k: b.named("length", b.sub(*w.ends)) for k, w in enumerate(walkers) if w.ends is not None}
    if len(lengths) < 2:
        return
    shortest = next(iter(lengths.values()))
    for length in lengths.values():
        shortest = b.min(shortest, length)
    limit = b.named("limit", b.mul(shortest, UNEVEN))
    for k, length in lengths.items():
        walkers[k].long = b.named("long", b.lt(limit, length))


def sentinel(loop: Loop, keys: Sequence[Leaders], run: Callable[[Val, Match], None]) -> None:
    """Every coordinate where all leaders of one of `keys` may be: `run` is told who is there."""
    b = loop.b
    used = {a for k in keys for a in k}
    walkers = {a: w for a, w in loop.walkers.items() if a in used}
    for walker in walkers.values():
        walker.start(b)
    least = minimal(keys)
    # a leader that is a case by itself is never behind the smallest coordinate, unless a case of several skips ahead
    alone = {a for k in least if len(k) == 1 for a in k} if all(len(k) == 1 for k in least) else set()
    lagging = [walker for access, walker in walkers.items() if access not in alone]
    _compare(b, lagging)

    def candidate() -> Val:
        lowest: Val | None = None
        for key in least:
            needs: Val | None = None
            for access, walker in walkers.items():
                if access in key:
                    here = walker.coordinate(b)
                    needs = here if needs is None else b.max(needs, here)
            assert needs is not None
            lowest = needs if lowest is None else b.min(lowest, needs)
        assert lowest is not None
        return lowest

    place = b.var("v", candidate())
    with b.while_(lambda: b.ne(b.get(place), END)):
        coordinate = b.get(place)
        for walker in lagging:
            walker.catch_up(b, coordinate)
        match = Match(b, walkers, coordinate)
        run(coordinate, match)
        match.advance()
        b.set(place, candidate())


def cases(loop: Loop) -> None:
    """The sentinel loop over the cases of `loop`."""
    keys = list(loop.cases)
    sentinel(loop, keys, lambda coordinate, match: choose(loop, match, coordinate, keys))
