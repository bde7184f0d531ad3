"""Counted: every coordinate of a range, in lanes where possible, at once where the body does not depend on the coordinate.

for v in lo .. hi: body            any body
for v in lo .. hi by 8: body       contiguous accesses, lane-wise operators (`vectors`)
s += (hi - lo) * x                 for a body s += x that is the same everywhere: the operator's `repeat`
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from sparsejax.formats import Format
from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.loops import prefetch
from sparsejax.jit.codegen.loops.walker import Loop
from sparsejax.jit.codegen.operands import Scalar
from sparsejax.jit.codegen.vectors import COPIES, Follow, VectorLoop, whole_lanes
from sparsejax.jit.ir import cin, operators
from sparsejax.jit.ir.loop_plans import Leaders

INT = np.dtype(np.int64)
SHORT = 8
"""Coordinates of a loop in register tiles that are written out. C code for blocks of 8x8 takes 0.76 of the time so (an EPYC of the third generation)."""


class Ranges:
    """Ranges of coordinates in the case `key`, visited one after the other: at "once", in "lanes" or in "steps". Accesses in `fixed` have
    one position in a range.

    `add` may be called in a loop; `finish` comes after it.
    """

    def __init__(
        self,
        loop: Loop,
        key: Leaders,
        kind: str,
        fixed: Collection[cin.Access] = (),
        copies: int = 1,
        halves: bool = False,
        lanes: int = 0,
    ) -> None:
        self.loop, self.key, self.kind = loop, key, kind
        body = loop.cases[key]
        self.body, self.vector, self._prepared = body, None, None
        if self.kind == "lanes" and isinstance(body, cin.Assign):
            vector = self.vector = VectorLoop(
                loop.context, loop.env, loop.var, body, fixed, copies=copies, halves=halves, lanes=lanes
            )
            self._prepared = None if fixed else vector.prepared(loop.env)

    def add(
        self,
        lo: Val,
        hi: Val,
        cursors: Mapping[cin.Access, Cursor] | None = None,
        follow: Follow | None = None,
        short: bool = False,
    ) -> None:
        """The range lo to hi (lo <= hi), often `short` or not; `cursors` are those of the fixed accesses, `follow` those of the
        walked ones."""
        loop, b = self.loop, self.loop.b
        env = loop.env.with_cursors(cursors or {})
        if self.kind == "once":
            assert isinstance(self.body, cin.Assign)
            with b.if_(b.lt(lo, hi)):
                _repeat(loop, self.body, env, b.named("times", b.sub(hi, lo)))
        elif self.vector is not None:
            self.vector.run(self._prepared or self.vector.prepared(env), lo, hi, follow, short)
        else:
            jumps = any(cin.jumps(a, loop.var) for a in cin.accesses(self.body))
            times, sure = self._copies if follow is None and cursors is None else (1, True)

            def steps(times: int = 1) -> None:
                with b.for_(lo, hi, loop.var.name, times) as index:
                    if jumps and follow is None and cursors is None:
                        prefetch.named_rows(loop, index, hi, self.body)
                    prefetch.streams(loop, index)
                    here = {} if follow is None else follow(index)
                    for k in range(times):
                        loop.at(b.add(index, k) if k else index, self.key, {**(cursors or {}), **here})

            if sure:
                steps(times)
            else:
                same = b.eq(hi, times)
                for span in self._spans():
                    same = b.and_(same, b.eq(span, times))
                b.if_else(same, lambda: self._written_out(times), steps)

    def _spans(self) -> list[Val]:
        """What lies between two rows that end along the loop, of each access: as long as the loop, which LLVM does not know, whose registers would else hold
        a place for every row."""
        loop, found = self.loop, dict[str, Val]()
        for access in cin.accesses(self.body):
            last = len(access.indices) - 1
            levels = access.tensor.format.levels
            if last > 0 and access.level_index(last) == loop.var and all(level.full for level in levels[last - 1 :]):
                span = loop.context.axis_of_level(access, last - 1).span
                found[span.ref] = span
        return list(found.values())

    def _written_out(self, times: int) -> None:
        """Coordinates from zero on, one after the other."""
        for k in range(times):
            self.loop.at(self.loop.b.i64(k), self.key, {})

    @property
    def _copies(self) -> tuple[int, bool]:
        """How many coordinates are written out, one after the other: in register tiles, those of a short loop, as the end of a block comes too soon for
        the loop around it to be foreseen. And whether there are as many for sure: only the size of a block is part of the kernel, and other extents are
        read when it runs, so that there is a loop beside what is written out."""
        loop, var = self.loop, self.loop.var
        if loop.begin.ref != "0" or loop.env.mode.strip is None or not isinstance(self.body, cin.Assign):
            return 1, True
        if self.body.lhs.tensor.policy != "scalar" or var.rest:
            return 1, True
        if var.outer is not None:
            return (var.size if 1 < var.size <= SHORT else 1), True
        extent = loop.context.program.extent(var)
        several = loop.env.mode.strip.rows is not None  # else little is added up at each of them
        return (extent, False) if several and type(extent) is int and 1 < extent <= SHORT else (1, True)

    def finish(self) -> None:
        if self.vector is not None:
            self.vector.finish(self.loop.env)


def counted(loop: Loop) -> None:
    """The whole extent, without leaders; a reduction that runs once, or over a chunk, has several sets of lanes, and reads both halves of a chunk
    at once."""
    copies = 1 if loop.env.bound and loop.span is None else COPIES
    body = loop.cases[frozenset()]
    lanes = whole_lanes(loop.env, loop.var, body) if isinstance(body, cin.Assign) else 0
    ranges = Ranges(loop, frozenset(), loop.plan.range, copies=copies, halves=loop.span is not None, lanes=lanes)
    ranges.add(loop.begin, loop.extent)
    ranges.finish()


def _repeat(loop: Loop, body: cin.Assign, env: Env, times: Val) -> None:
    """`body`, `times` times (at least once)."""
    context, operator = loop.context, operators.get(body.op or "")
    if not operator.idempotent:
        tensor = cin.Tensor(f"times_{loop.var}", (), INT, Format(()), INT.type(0), "scalar")
        count = Scalar(context.b, tensor, tracked=False)
        env = env.with_register(tensor.name, count)
        count.put(context.b, None, emit.Num(INT, (times,)))
        dtype = body.rhs.dtype
        number = cin.Call("cast", (cin.Access(tensor, ()),), dtype)
        body = cin.Assign(body.lhs, body.op, cin.Call(operator.repeat or "", (body.rhs, number), dtype))
    context.emit(body, context.resolve(env, body))
