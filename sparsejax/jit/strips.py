"""Strips: the code of a tiled loop (`tiling`), one register per vector of the strip.

    for k0 in 0 .. n by 32:             four vectors of 64 bytes, then one, then 16 bytes, then single values
      t0 .. t3 = 0
      for p in pos[i] .. pos[i + 1]:    any loops: co-iteration knows nothing of strips
        a = vals[p]
        t0 .. t3 += a * B[crd[p], k0 .. k0 + 31]
      C[i, k0 .. k0 + 31] += t0 .. t3

While a strip is being emitted, every assignment is made for all its lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparsejax.jit import cin, emit
from sparsejax.jit.builder import Builder, Val, Var
from sparsejax.jit.cursor import Env

if TYPE_CHECKING:
    from sparsejax.jit.lower import Lowering

VECTOR_BYTES = 64
VECTORS = 4


@dataclass
class Strip:
    """The strip in work: `vectors` vectors of `lanes` lanes along `var`, and the registers that accumulate."""

    var: cin.IndexVar
    lanes: int
    vectors: int


class Registers:
    """A scalar workspace over the lanes of a strip. `mark` (when tracked) is true once something was written."""

    def __init__(self, b: Builder, tensor: cin.Tensor, tracked: bool, strip: Strip) -> None:
        self.tensor = tensor
        start = emit.splat(b, emit.constant(b, tensor.fill_value, tensor.dtype), strip.lanes)
        self._vars = [[b.var(f"{tensor.name}{v}", part) for part in start.parts] for v in range(strip.vectors)]
        self.mark: Var | None = b.var(f"{tensor.name}_set", b.const("i1", 0)) if tracked else None

    def get(self, b: Builder, vector: int) -> emit.Num:
        return emit.Num(self.tensor.dtype, tuple(map(b.get, self._vars[vector])))

    def set(self, b: Builder, vector: int, value: emit.Num) -> None:
        for var, part in zip(self._vars[vector], value.parts, strict=True):
            b.set(var, part)
        if self.mark is not None and vector == 0:
            b.set(self.mark, b.const("i1", 1))


def tile_loop(lowering: Lowering, stmt: cin.Forall, env: Env) -> None:
    """Emit a tiled loop: strips of decreasing width until all coordinates are done."""
    b, var, extent = lowering.b, stmt.var, lowering.bound(stmt.var, env)
    used = [a for a in cin.accesses(stmt.body) if a.tensor.policy != "scalar"]
    used += [w.lhs for w in cin.writes(stmt.body) if w.lhs.tensor.policy != "scalar"]
    widest = VECTOR_BYTES // max(a.dtype.itemsize for a in used)
    done = b.i64(0)
    for lanes, vectors in dict.fromkeys(((widest, VECTORS), (widest, 1), (max(1, widest // 4), 1), (1, 1))):
        width = lanes * vectors
        end = extent if width == 1 else b.mul(b.binary("sdiv", extent, b.i64(width)), width)
        with b.for_(done, end, var.name, width) as index:
            lowering.strip = Strip(var, lanes, vectors)
            lowering.guarded(stmt.body, lowering.resolve(env.bind(var, index), stmt.body))
            lowering.strip = None
        done = end


def assign(lowering: Lowering, stmt: cin.Assign, env: Env) -> None:
    """`stmt` for every lane of the strip."""
    b, strip, target = lowering.b, lowering.strip, stmt.lhs.tensor
    assert strip is not None

    def same(access: cin.Access) -> bool:
        own = access.tensor.policy == "scalar" and access.tensor.name not in lowering.scalars
        return strip.var not in access.indices and not own

    invariants = dict.fromkeys(cin.largest(stmt.rhs, same))
    once = {e: emit.splat(b, lowering.value(e, env), strip.lanes) for e in invariants}
    lanes = [a for a in dict.fromkeys(cin.accesses(stmt.rhs)) if not same(a)]
    for vector in range(strip.vectors):
        known: dict[cin.Expr, emit.Num] = {**once}
        known.update((a, _leaf(lowering, a, env, vector)) for a in lanes)
        value = lowering.value(stmt.rhs, env, strip.lanes, known)
        if target.policy == "scalar":
            assert stmt.op is not None
            registers = lowering.registers[target.name]
            old = registers.get(b, vector)
            registers.set(b, vector, emit.apply(b, stmt.op, [old, value], target.dtype))
        else:
            position = _shifted(b, env.cursors[stmt.lhs].pos, vector * strip.lanes)
            lowering.write_lanes(stmt, env, position, value, strip.lanes)


def _leaf(lowering: Lowering, access: cin.Access, env: Env, vector: int) -> emit.Num:
    """What an access reads in the lanes of one vector."""
    b, strip, tensor = lowering.b, lowering.strip, access.tensor
    assert strip is not None
    if tensor.policy == "scalar":
        return lowering.registers[tensor.name].get(b, vector)
    position = _shifted(b, env.cursors[access].pos, vector * strip.lanes)
    return lowering.operands[tensor.name].leaf(b, position, strip.lanes)


def _shifted(b: Builder, position: Val, by: int) -> Val:
    return b.add(position, by) if by else position
