"""Values that are the same at all places of a walk which adds to a dense result: they are read before it, once.

    for p in lo .. hi:                             before: y may be where x is, for all that LLVM knows
      y[crd[p]] += vals[p] * x[i]

    if lo < hi:                                    after
      t = x[i]
      for p in lo .. hi:
        y[crd[p]] += vals[p] * t

Nothing is read for an empty segment. Sums into workspaces stay as they are: a product of sparse matrices took a tenth longer in the one run that was made.
Legal where an access is of an operand, which no kernel that accumulates writes, is stored for certain, does not depend on the loop's variable, and is no
entry of an index array by which something else is read.
"""

from __future__ import annotations

from dataclasses import replace

from sparsejax.formats import Format
from sparsejax.jit.codegen.loops.walker import Loop
from sparsejax.jit.codegen.operands import Input, Scalar
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import Leaders


def of(loop: Loop, key: Leaders) -> list[cin.Access]:
    """What the case `key` reads at one place for all of the walk, and is not kept in a register already."""
    stmt = loop.cases[key]
    if not isinstance(stmt, cin.Assign) or stmt.op is None or stmt.lhs.tensor.policy is not None or loop.grows:
        return []
    if loop.env.mode.strip is not None:
        return []
    read = dict.fromkeys(cin.accesses(stmt.rhs))
    entries = {named for a in read for named in cin.accesses(a) if named != a}
    return [a for a in read if a not in key and a not in entries and _is_same(loop, a)]


def inside(loop: Loop, key: Leaders, accesses: list[cin.Access]) -> Loop:
    """The loop as it runs inside, with these values in registers."""
    b, context, env = loop.b, loop.context, loop.env
    names: dict[cin.Access, cin.Expr] = {}
    for number, access in enumerate(accesses):
        tensor = cin.Tensor(f"held{number}", (), access.dtype, Format(()), access.dtype.type(0), "scalar")
        register = Scalar(b, tensor, tracked=False)
        register.put(b, None, context.value(access, env))
        env, names[access] = env.with_register(tensor.name, register), cin.Access(tensor, ())
    stmt = cin.map_values(loop.cases[key], lambda rhs: cin.substitute(rhs, names))
    return replace(loop, env=env, cases=dict(loop.cases) | {key: stmt})


def _is_same(loop: Loop, access: cin.Access) -> bool:
    """Whether an operand has one value, which is where the walk begins already known to be stored, and where."""
    if not isinstance(loop.context.operands.get(access.tensor.name), Input) or loop.var in cin.bound_by(access):
        return False
    cursor = loop.env.cursors[access]
    return cursor.found is None and cursor.level == len(access.indices) and cursor.end is None
