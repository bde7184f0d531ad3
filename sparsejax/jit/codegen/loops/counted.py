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
from sparsejax.jit.codegen.loops import unroll_and_jam
from sparsejax.jit.codegen.loops.walker import Leaders, Loop
from sparsejax.jit.codegen.operands import Scalar
from sparsejax.jit.codegen.vectors import Follow, VectorLoop
from sparsejax.jit.ir import cin, operators, simplify
from sparsejax.jit.rewrite.vectorize import vectorizable

INT = np.dtype(np.int64)


def kind(loop: Loop, key: Leaders, fixed: Collection[cin.Access] = (), walked: Collection[cin.Access] = ()) -> str:
    """How a range of coordinates in the case `key` is visited: at "once", in "lanes" or in "steps".

    Accesses in `fixed` have one position in the range, those in `walked` consecutive ones.
    """
    body = loop.cases[key]
    if loop.env.mode.strip is None and not loop.enters and not simplify.conditions(body):
        if isinstance(body, cin.Assign) and _same_everywhere(body, loop.var, fixed):
            return "once"
        if vectorizable(cin.Forall(loop.var, body), fixed, walked):
            return "lanes"
    return "steps"


class Ranges:
    """Ranges of coordinates in the case `key`, visited one after the other; `fixed` and `walked` as in `kind`.

    `add` may be called in a loop; `finish` comes after it.
    """

    def __init__(
        self, loop: Loop, key: Leaders, fixed: Collection[cin.Access] = (), walked: Collection[cin.Access] = ()
    ) -> None:
        self.loop, self.key = loop, key
        self.kind, body = kind(loop, key, fixed, walked), loop.cases[key]
        self.body, self.vector, self._prepared = body, None, None
        if self.kind == "lanes" and isinstance(body, cin.Assign):
            vector = self.vector = VectorLoop(loop.context, loop.env, loop.var, body, fixed)
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
            with b.for_(lo, hi, loop.var.name) as index:
                here = {} if follow is None else follow(index)
                loop.at(index, self.key, {**(cursors or {}), **here})

    def finish(self) -> None:
        if self.vector is not None:
            self.vector.finish(self.loop.env)


def counted(loop: Loop) -> None:
    """The whole extent, without leaders."""
    if unroll_and_jam.applies(loop, frozenset(), None):
        unroll_and_jam.walk(loop, frozenset(), None)
        return
    ranges = Ranges(loop, frozenset())
    ranges.add(loop.begin, loop.extent)
    ranges.finish()


def _same_everywhere(body: cin.Assign, var: cin.IndexVar, fixed: Collection[cin.Access]) -> bool:
    """Whether `body` accumulates the same value at every coordinate, by an operator that knows what that gives."""
    if body.op is None or var in body.lhs.indices:
        return False
    if not operators.get(body.op).repeats(body.rhs.dtype):
        return False
    return all(a in fixed or var not in a.indices for a in cin.accesses(body.rhs))


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
