"""Loops over one variable: who leads, which cases there are, and the shape of the loop.

Leaders are accesses whose next level is sparse and indexed by the loop's variable. The cases are the subsets of leaders
for which something remains to be done when the others are absent (`simplify.exhaust_stmt`); they are tried largest
first. Shapes, the first that applies:

    counted        no leader:                    for v in 0 .. n
    single walk    one leader, one case:         for p in lo .. hi: v = crd[p]
    intersection   two leaders, both needed:     two cursors, the smaller moves
    universe       work left without leaders:    for v in 0 .. n, leaders checked as they come
    sentinel       any other mix:                v = min over minimal cases of (max over their leaders)

Source: "The Tensor Algebra Compiler", section 4 (merge lattices); the sentinel loop is the stream view of
"Indexed Streams" as a single loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from sparsejax.formats import Dense
from sparsejax.jit import cin, simplify
from sparsejax.jit.builder import Val, Var
from sparsejax.jit.cursor import Cursor, Env
from sparsejax.jit.operands import Bitmap, Input

if TYPE_CHECKING:
    from sparsejax.jit.lower import Lowering

Leaders = frozenset[cin.Access]
END = 2**62  # larger than any coordinate


@dataclass
class Walker:
    """A leader being walked: position, end, and in ranges (coordinate runs) the end of the present coordinate."""

    access: cin.Access
    level: int
    lo: Val
    hi: Val
    ranged: bool
    at: Var | None = None
    here: Var | None = None


def forall(lowering: Lowering, stmt: cin.Forall, env: Env) -> None:
    """Emit the loop of `stmt`."""
    b, var, body = lowering.b, stmt.var, stmt.body
    leaders = [a for a in dict.fromkeys(cin.accesses(body)) if _leads(a, var, env)]
    cases = find_cases(body, leaders)
    fiber = _fiber(lowering, stmt, env)
    walkers = {a: _walker(lowering, a, env.cursors[a]) for a in leaders}

    def at(coordinate: Val, key: Leaders, matched: dict[cin.Access, Cursor]) -> None:
        _visit(lowering, cases[key], var, coordinate, env.with_cursors(matched))

    universe = frozenset() in cases
    needed = [k for k in cases if k]
    if not cases:
        pass
    elif not needed:
        with b.for_(b.i64(0), lowering.extents[var], var.name) as index:
            at(index, frozenset(), {})
    elif universe:
        _universe(lowering, lowering.extents[var], var, walkers, cases, at)
    elif len(needed) == 1 and len(needed[0]) == 1:
        _single(lowering, walkers[next(iter(needed[0]))], var, needed[0], at)
    elif len(needed) == 1 and len(needed[0]) == 2 and not any(walkers[a].ranged for a in needed[0]):
        _intersection(lowering, [w for a, w in walkers.items() if a in needed[0]], needed[0], at)
    else:
        used = {a for k in needed for a in k}
        _sentinel(lowering, {a: w for a, w in walkers.items() if a in used}, cases, at)
    if fiber is not None:
        lowering.output.close(b, *fiber)


def find_cases(body: cin.Stmt, leaders: list[cin.Access]) -> dict[Leaders, cin.Stmt]:
    """The cases of a loop: for each set of leaders that matters, what is left to do when only these are present.

    Keys are sorted by size, largest first; the empty key means that work remains without any leader.
    """
    cases: dict[Leaders, cin.Stmt] = {}
    for size in range(len(leaders), -1, -1):
        for present in combinations(leaders, size):
            left = simplify.exhaust_stmt(body, frozenset(leaders) - set(present))
            if left is None:
                continue
            key = frozenset(a for a in cin.accesses(left) if a in present)
            if len(key) < size and simplify.exhaust_stmt(body, frozenset(leaders) - key) != left:
                key = frozenset(present)  # 0 / B[i] is 0 where B is stored and 0 / 0 elsewhere: B still matters
            cases.setdefault(key, left)
    return dict(sorted(cases.items(), key=lambda item: -len(item[0])))


def _leads(access: cin.Access, var: cin.IndexVar, env: Env) -> bool:
    if access.tensor.policy == "scalar":
        return False
    cursor, levels = env.cursors[access], access.tensor.format.levels
    return (
        cursor.level < len(levels)
        and not isinstance(levels[cursor.level], Dense)
        and access.level_index(cursor.level) == var
    )


def _readable(lowering: Lowering, access: cin.Access) -> Input | Bitmap:
    operand = lowering.operands[access.tensor.name]
    assert isinstance(operand, Input | Bitmap)
    return operand


def _walker(lowering: Lowering, access: cin.Access, cursor: Cursor) -> Walker:
    form = access.tensor.format
    ranged = cursor.level + 1 < len(form.levels) and form.continues(cursor.level + 1)
    if form.continues(cursor.level):
        assert cursor.end is not None
        return Walker(access, cursor.level, cursor.pos, cursor.end, ranged)
    lo, hi = _readable(lowering, access).bounds(lowering.b, cursor.level, cursor.pos)
    return Walker(access, cursor.level, lo, hi, ranged)


def _fiber(lowering: Lowering, stmt: cin.Forall, env: Env) -> tuple[int, Val] | None:
    """The output level that this loop fills, with its parent position, when it starts a segment."""
    output = lowering.output
    if output.appends:
        return None
    for write in cin.writes(stmt.body):
        lhs = write.lhs
        if lhs.tensor.name == output.tensor.name:
            cursor = env.cursors[lhs]
            if cursor.level in output.heads and lhs.level_index(cursor.level) == stmt.var:
                return cursor.level, cursor.pos
    return None


def _visit(lowering: Lowering, stmt: cin.Stmt, var: cin.IndexVar, coordinate: Val, env: Env) -> None:
    """The body at one coordinate, between entering and leaving the output's level where this loop appends."""
    b, output = lowering.b, lowering.output
    env = env.bind(var, coordinate)
    target = next((w.lhs for w in cin.writes(stmt) if w.lhs.tensor.name == output.tensor.name), None)
    level = None
    if target is not None and not output.appends:
        cursor = env.cursors[target]
        if cursor.level in output.sparse and target.level_index(cursor.level) == var:
            level = cursor.level
            position = output.enter(b, level, env.level_coordinates(b, target))
            env = env.with_cursors({target: Cursor(level + 1, cursor.pos if position is None else position)})
    lowering.guarded(stmt, lowering.resolve(env, stmt))
    if level is not None:
        output.leave(b, level)


def _cursor(walker: Walker, operand: Input | Bitmap, position: Val, end: Val | None, coordinate: Val) -> Cursor:
    return Cursor(walker.level + 1, operand.child(position, coordinate), end)


At = Callable[[Val, Leaders, dict[cin.Access, Cursor]], None]


def _segment_end(lowering: Lowering, walker: Walker, position: Val, coordinate: Val) -> Val:
    """The first position after `position` with another coordinate (never reads past the end)."""
    b, operand = lowering.b, _readable(lowering, walker.access)
    end = b.var("seg", b.add(position, 1))
    going = b.var("going", b.lt(b.get(end), walker.hi))
    with b.while_(lambda: b.get(going)):
        same = b.eq(operand.coordinate(b, walker.level, b.get(end)), coordinate)
        b.increment(end, b.convert("zext", same, "i64"))
        b.set(going, b.and_(same, b.lt(b.get(end), walker.hi)))
    return b.get(end)


def _single(lowering: Lowering, walker: Walker, var: cin.IndexVar, key: Leaders, at: At) -> None:
    b, operand = lowering.b, _readable(lowering, walker.access)
    if not walker.ranged:
        with b.for_(walker.lo, walker.hi, "p") as position:
            coordinate = operand.coordinate(b, walker.level, position)
            at(coordinate, key, {walker.access: _cursor(walker, operand, position, None, coordinate)})
        return
    place = b.var("p", walker.lo)
    with b.while_(lambda: b.lt(b.get(place), walker.hi)):
        position = b.get(place)
        coordinate = operand.coordinate(b, walker.level, position)
        end = _segment_end(lowering, walker, position, coordinate)
        at(coordinate, key, {walker.access: _cursor(walker, operand, position, end, coordinate)})
        b.set(place, end)


def _intersection(lowering: Lowering, walkers: list[Walker], key: Leaders, at: At) -> None:
    b = lowering.b
    operands = [_readable(lowering, w.access) for w in walkers]
    places = [b.var("p", w.lo) for w in walkers]

    def inside() -> Val:
        return b.and_(*(b.lt(b.get(p), w.hi) for p, w in zip(places, walkers, strict=True)))

    with b.while_(inside):
        positions = [b.get(p) for p in places]
        x, y = (o.coordinate(b, w.level, p) for o, w, p in zip(operands, walkers, positions, strict=True))
        with b.if_(b.eq(x, y)):
            matched = {
                w.access: _cursor(w, o, p, None, x) for w, o, p in zip(walkers, operands, positions, strict=True)
            }
            at(x, key, matched)
        b.set(places[0], b.add(positions[0], b.convert("zext", b.compare("sle", x, y), "i64")))
        b.set(places[1], b.add(positions[1], b.convert("zext", b.compare("sle", y, x), "i64")))


def _start(lowering: Lowering, walker: Walker) -> None:
    walker.at = lowering.b.var("p", walker.lo)
    walker.here = lowering.b.var("c", lowering.b.i64(END))
    _look(lowering, walker)


def _look(lowering: Lowering, walker: Walker) -> None:
    """Read the coordinate at the walker's position; END behind the last."""
    b = lowering.b
    assert walker.at is not None and walker.here is not None
    at, here = walker.at, walker.here
    position = b.get(at)

    def read() -> None:
        b.set(here, _readable(lowering, walker.access).coordinate(b, walker.level, position))

    b.if_else(b.lt(position, walker.hi), read, lambda: b.set(here, b.i64(END)))


def _match(
    lowering: Lowering, walkers: dict[cin.Access, Walker], coordinate: Val, cases: dict[Leaders, cin.Stmt], at: At
) -> None:
    """Run the first case all of whose leaders are at `coordinate`, then move these leaders on."""
    b = lowering.b
    hit = {}
    ends: dict[cin.Access, Var] = {}
    for access, walker in walkers.items():
        assert walker.at is not None and walker.here is not None
        hit[access] = b.eq(b.get(walker.here), coordinate)
        if walker.ranged:
            ends[access] = b.var("next", b.get(walker.at))
            with b.if_(hit[access]):
                b.set(ends[access], _segment_end(lowering, walker, b.get(walker.at), coordinate))

    def matched(key: Leaders) -> dict[cin.Access, Cursor]:
        found = {}
        for access in key:
            walker = walkers[access]
            assert walker.at is not None
            end = b.get(ends[access]) if walker.ranged else None
            operand = _readable(lowering, access)
            found[access] = _cursor(walker, operand, b.get(walker.at), end, coordinate)
        return found

    def chain(keys: list[Leaders]) -> None:
        if not keys:
            return
        key, rest = keys[0], keys[1:]
        if not key:
            at(coordinate, key, {})
            return
        condition = None
        for access in walkers:
            if access in key:
                condition = hit[access] if condition is None else b.and_(condition, hit[access])
        assert condition is not None
        b.if_else(condition, lambda: at(coordinate, key, matched(key)), (lambda: chain(rest)) if rest else None)

    chain(list(cases))
    for access, walker in walkers.items():
        assert walker.at is not None
        with b.if_(hit[access]):
            moved = b.get(ends[access]) if walker.ranged else b.add(b.get(walker.at), 1)
            b.set(walker.at, moved)
            _look(lowering, walker)


def _universe(
    lowering: Lowering,
    extent: Val,
    var: cin.IndexVar,
    walkers: dict[cin.Access, Walker],
    cases: dict[Leaders, cin.Stmt],
    at: At,
) -> None:
    for walker in walkers.values():
        _start(lowering, walker)
    with lowering.b.for_(lowering.b.i64(0), extent, var.name) as coordinate:
        _match(lowering, walkers, coordinate, cases, at)


def _sentinel(lowering: Lowering, walkers: dict[cin.Access, Walker], cases: dict[Leaders, cin.Stmt], at: At) -> None:
    b = lowering.b
    for walker in walkers.values():
        _start(lowering, walker)
    minimal = [k for k in cases if not any(other < k for other in cases)]
    # a leader that is a case by itself is never behind the smallest coordinate, unless a case of several skips ahead
    alone = {a for k in minimal if len(k) == 1 for a in k} if all(len(k) == 1 for k in minimal) else set()
    lagging = [walker for access, walker in walkers.items() if access not in alone]

    def here(access: cin.Access) -> Val:
        walker = walkers[access]
        assert walker.here is not None
        return b.get(walker.here)

    def candidate() -> Val:
        lowest: Val | None = None
        for key in minimal:
            needs: Val | None = None
            for access in walkers:
                if access in key:
                    needs = here(access) if needs is None else b.max(needs, here(access))
            assert needs is not None
            lowest = needs if lowest is None else b.min(lowest, needs)
        assert lowest is not None
        return lowest

    place = b.var("v", candidate())
    with b.while_(lambda: b.ne(b.get(place), END)):
        coordinate = b.get(place)
        for walker in lagging:
            _catch_up(lowering, walker, coordinate)
        _match(lowering, walkers, coordinate, cases, at)
        b.set(place, candidate())


def _catch_up(lowering: Lowering, walker: Walker, coordinate: Val) -> None:
    """Move a walker to the first coordinate that is not below `coordinate`."""
    b = lowering.b
    assert walker.at is not None and walker.here is not None
    at, here = walker.at, walker.here
    with b.while_(lambda: b.lt(b.get(here), coordinate)):
        b.increment(at)
        _look(lowering, walker)


def search(lowering: Lowering, access: cin.Access, cursor: Cursor, coordinate: Val) -> Cursor:
    """Resolve a sparse level at a known coordinate by binary search in its segment."""
    b, operand = lowering.b, _readable(lowering, access)
    walker = _walker(lowering, access, cursor)

    def lower_bound(target: Val) -> Val:
        lo, hi = b.var("lo", walker.lo), b.var("hi", walker.hi)
        with b.while_(lambda: b.lt(b.get(lo), b.get(hi))):
            half = b.binary("ashr", b.add(b.get(lo), b.get(hi)), b.i64(1))
            below = b.lt(operand.coordinate(b, walker.level, half), target)
            b.set(lo, b.select(below, b.add(half, 1), b.get(lo)))
            b.set(hi, b.select(below, b.get(hi), half))
        return b.get(lo)

    first = lower_bound(coordinate)
    if walker.ranged:
        end = lower_bound(b.add(coordinate, b.i64(1)))
        return Cursor(walker.level + 1, first, end, b.lt(first, end))
    hit = b.var("hit", b.const("i1", 0))
    with b.if_(b.lt(first, walker.hi)):
        b.set(hit, b.eq(operand.coordinate(b, walker.level, first), coordinate))
    return Cursor(walker.level + 1, operand.child(first, coordinate), None, b.get(hit))
