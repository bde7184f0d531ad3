"""Unions without branches: leaders each of which is a case by itself, whose values are computed whoever is there.

    while p < p_end and q < q_end:                     places of two leaders
      v = min(a = crd_a[p], b = crd_b[q])
      if a == b: out[v] = both's case; p += 1; q += 1
      else:      out[v] = a <= b ? a's case : b's case; p += a <= b; q += b <= a
    the rest of the only leader that is left

Which of several leaders comes next is as good as random: a branch for it would be predicted wrongly every other time, which costs more than
computing every case. That all come together is foreseen where patterns are alike, and where they are not. Of more than two leaders, the
rest is merged with branches once one has come to its end. Source: branch-free merging as in Inoue, Ohara, Taura, "Faster Set Intersection
with SIMD instructions by Reducing Branch Mispredictions" (2014).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparsejax.formats import Format
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.loops.walker import Loop, Walker
from sparsejax.jit.codegen.operands import Scalar
from sparsejax.jit.ir import cin


def union(loop: Loop, rest: Callable[[Loop], None]) -> None:
    """Merge the leaders of `loop` while all of them last; then walk the only one that is left, or merge several by `rest`."""
    b = loop.b
    walkers = [w for a, w in loop.walkers.items() if any(a in key for key in loop.cases)]
    present = [b.var("p", w.segment.lo) for w in walkers]
    bound = b.i64(0)
    for w in walkers:
        bound = b.add(bound, b.sub(w.segment.hi, w.segment.lo))
    flags = [_flag(loop, k) for k in range(len(walkers))]
    for flag in flags:
        register = Scalar(b, flag.tensor, tracked=False)
        loop = replace(loop, env=loop.env.with_register(flag.tensor.name, register))
    first = next(iter(loop.cases.values()))
    assert isinstance(first, cin.Assign)
    made = replace(first, rhs=_chosen(loop, walkers, flags))

    def inside() -> Val:
        return functools.reduce(b.and_, (b.lt(b.get(p), w.segment.hi) for p, w in zip(present, walkers, strict=True)))

    with loop.room(bound):
        with b.while_(inside):
            places = [b.get(p) for p in present]
            at = [w.segment.coordinate(p) for w, p in zip(walkers, places, strict=True)]
            cursors = {w.access: w.cursor(p, None, c) for w, p, c in zip(walkers, places, at, strict=True)}
            lowest = at[0]
            for coordinate in at[1:]:
                lowest = b.min(lowest, coordinate)
            lowest = b.named(loop.var.name, lowest)
            there = _there(b, at, lowest)

            def step(by: Sequence[Val], stmt: cin.Stmt) -> None:
                loop.visit(stmt, lowest, cursors)
                for var, place, steps in zip(present, places, by, strict=True):
                    b.set(var, b.add(place, steps))

            def some() -> None:
                for hit, flag in zip(there, flags, strict=True):
                    loop.env.scalar(flag.tensor).put(b, None, emit.Num(emit.BOOL, (hit,)))
                step([b.convert("zext", hit, "i64") for hit in there], made)

            together = functools.reduce(b.and_, (b.eq(at[0], c) for c in at[1:]))
            b.if_else(together, lambda: step([b.i64(1)] * len(walkers), first), some)
        if len(walkers) == 2:
            for w, p in zip(walkers, present, strict=True):
                with b.for_(b.get(p), w.segment.hi, "p") as place:
                    loop.at_place(frozenset([w.access]), w, place)
            return
        left = {w.access: _from(loop, w, b.get(p)) for w, p in zip(walkers, present, strict=True)}
        rest(replace(loop, walkers={**loop.walkers, **left}))


def _there(b: Builder, at: Sequence[Val], lowest: Val) -> list[Val]:
    """Whether each of several leaders is at the lowest coordinate: of two, the next places wait for one comparison, not for the lowest before it."""
    if len(at) == 2:
        return [b.named("hit", b.compare("sle", *pair)) for pair in (at, at[::-1])]
    return [b.named("hit", b.eq(here, lowest)) for here in at]


def _from(loop: Loop, walker: Walker, place: Val) -> Walker:
    """What is left of a leader from a place on."""
    b, segment = loop.b, walker.segment
    first = None if segment.first is None else b.add(segment.first, b.sub(place, segment.lo))
    return replace(walker, segment=replace(segment, lo=place, first=first))


def _flag(loop: Loop, number: int) -> cin.Access:
    """A register that tells whether a leader is at the present coordinate."""
    tensor = cin.Tensor(f"at_{loop.var}_{number}", (), emit.BOOL, Format(()), emit.BOOL.type(False), "scalar")
    return cin.Access(tensor, ())


def _chosen(loop: Loop, walkers: list[Walker], flags: list[cin.Access]) -> cin.Expr:
    """The value of the first case all of whose leaders are there, where not all of `walkers` are."""
    hits = {w.access: flag for w, flag in zip(walkers, flags, strict=True)}
    made: cin.Expr | None = None
    for key, stmt in reversed(list(loop.cases.items())):
        assert isinstance(stmt, cin.Assign)
        if made is None:
            made = stmt.rhs
        elif len(key) < len(walkers):
            present: list[cin.Expr] = [hits[w.access] for w in walkers if w.access in key]
            there = functools.reduce(_both, present)
            made = cin.Call("where", (there, stmt.rhs, made), stmt.rhs.dtype)
    assert made is not None
    return made


def _both(x: cin.Expr, y: cin.Expr) -> cin.Expr:
    return cin.Call("logical_and", (x, y), emit.BOOL)
