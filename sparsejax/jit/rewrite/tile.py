"""Register tiles: dense variables below reduction loops move just outside them, and run in tiles of registers.

before:  forall i                              after:  forall i
           forall j                                      forall k (tile)
             forall k (vector)                             where t: scalar
               C[i,k] += A[i,j] * B[j,k]                      forall j
                                                                t += A[i,j] * B[j,k]
                                                            then
                                                              C[i,k] += t

The result is read and written once per tile instead of once per stored entry; the sparse loops are walked once per
tile. `k` qualifies when its loop is a vector loop, the loops around it are reductions, and the target keeps its place
in memory meanwhile. Other variables of the target between the reductions and `k` move too, where they are dense: below no sparse level, and
above none. The last of these is tiled as well, so that what lacks it is read once for several of its coordinates, as what lacks `k` is:

before:  forall i                              after:  forall i
           forall j                                      forall b (tile)
             forall b                                      forall k (tile)
               forall k (vector)                             where t: scalar
                 C[b,i,k] += A[i,j,b] * B[j,k]                  forall j
                                                                  t += A[i,j,b] * B[j,k]
                                                              then
                                                                C[b,i,k] += t

Numbers that are cheap are computed again by every tile, in place of once for all of them:

before:  forall i                              after:  forall i
           forall j                                      forall k (tile)
             where w: scalar                               where t: scalar
               w = max(v[j], 0)                              forall j
             then                                              t += max(v[j], 0) * B[j,k]
               forall k (vector)                           then
                 C[i,k] += w * B[j,k]                        C[i,k] += t

Where such a reduction walks blocks, the sums may be held over the dense reductions inside a block alone, and each block adds its own to the
result: else every tile of rows would walk all blocks of a row again, and read what they meet from far away (`sums`).

before:  forall io                             after:  forall io
           forall ko                                     forall ko
             forall ii                                     forall ii (tile)
               forall ki                                     forall j (tile)
                 forall j (vector)                             where t: scalar
                   C[io,ii,j] += A[io,ko,ii,ki] * B[ko,ki,j]      forall ki
                                                                    t += A[io,ko,ii,ki] * B[ko,ki,j]
                                                                then
                                                                  C[io,ii,j] += t

Nor where a loop over the second coordinate of entries is inside of one over the first, so that entries are rows (`loops/row_tiles`).

before:  forall i                              after:  forall i
           forall l                                      forall l
             forall c                                      forall k (tile)
               forall k (vector)                             where t: scalar
                 C[i,k] += A[i,l] * B[l,c] * W[c,k]            forall c
                                                                 t += B[l,c] * W[c,k]
                                                             then
                                                               C[i,k] += A[i,l] * t

Either of two tiled loops may be outside of the other (`strips`): where all rows read alike more than the first cache holds, a strip of it stays
there for all rows.

before:  forall b (tile)                       after:  forall k (tile)
           forall k (tile)                               forall b (rows)

The loop over `k` may also be one in which all that is read lies side by side, and the result does not (its order has `k` elsewhere): registers are
filled from vectors, and their lanes stored one by one, as far apart as these are in the result (`strided`).

What a loop over a sparse level adds to rows of the result reads a dense row that is the same for all of them: it stays in registers.

before:  forall k                              after:  forall k
           forall i                                      forall j (tile)
             forall j (vector)                             where b: scalar
               C[i,j] += A[i,k] * B[k,j]                     b = B[k,j]
                                                           then
                                                             forall i
                                                               C[i,j] += A[i,k] * b

Source: reuse analysis of mixed sparse-dense loops (reference section 4.4, Algorithm 2: a variable that some operand lacks is reused over
it, one that is a sparse level or the parent of one cannot be tiled; registers win, accumulators in memory lose).
"""

from __future__ import annotations

import functools
from dataclasses import replace

from sparsejax.formats import Format
from sparsejax.jit.cost import machine
from sparsejax.jit.ir import choices, cin, operators, simplify
from sparsejax.jit.rewrite import vectorize
from sparsejax.jit.schedule import regions
from sparsejax.jit.schedule.regions import is_dense


def tile(stmt: cin.Stmt, inside: bool = False) -> cin.Stmt:
    """`stmt` with every loop that qualifies moved out and tiled; `inside` other loops or not."""
    if not isinstance(stmt, cin.Forall):
        return cin.within(stmt, lambda part: tile(part, inside))
    if stmt.kind != "serial":
        return stmt
    made: cin.Stmt | None = None
    way = "tiled"
    loops, body = cin.nested(stmt, "serial")
    match _computed_again(body):
        case cin.Forall(_, cin.Assign(lhs), "vector") as inner:
            apart = _by_entries(loops, inner)
            if apart is not None and choices.pick("sums", ("walk", "block"), "block") == "block":
                return apart
            made = _around(loops, inner) if stmt.var not in cin.bound_by(lhs) else None
            if made is not None and (blocked := _by_blocks(loops, inner)) is not None:
                apart, cheapest = blocked
                if choices.pick("sums", ("walk", "block"), cheapest) == "block":
                    made = apart
        case cin.Assign() as inner_body if (across := _across(loops, inner_body)) is not None:
            made, way = across, "strided"
    if made is None and inside:
        made, way = _held(stmt), "held"
    if made is not None and choices.pick("tile", ("plain", way), way) == way:
        return _strips(made)
    return cin.within(stmt, lambda body: tile(body, True))


def _computed_again(stmt: cin.Stmt) -> cin.Stmt:
    """A loop with what is cheap in place of numbers that are computed before it."""
    while isinstance(stmt, cin.Where) and isinstance(stmt.consumer, cin.Forall):
        made, inner = stmt.producer, stmt.consumer
        if not isinstance(made, cin.Assign) or not isinstance(inner.body, cin.Assign) or simplify.conditions(made):
            break
        kept = made.lhs.tensor
        if made.op is not None or kept.policy != "scalar" or kept.lacks or not simplify.cheap(made.rhs):
            break
        value = cin.substitute(inner.body.rhs, {made.lhs: made.rhs})
        stmt = replace(inner, body=replace(inner.body, rhs=value))
    return stmt


def _by_entries(loops: list[cin.IndexVar], inner: cin.Forall) -> cin.Stmt | None:
    """Loops over the two coordinates of entries with tiles inside of both, each entry being a row; None where `loops` are others.

    An entry adds one row to the result; without, it reads all that rows share once more, which is as much for every term that it sums up.
    """
    assert isinstance(inner.body, cin.Assign)
    reads = tuple(cin.accesses(inner.body.rhs))
    if not regions.entries_are_rows((*loops, inner.var), inner.body.lhs, reads):
        return None
    made = _around(loops[2:], inner)
    return None if made is None else cin.around(loops[:2], _apart(made, {*loops[2:], inner.var}))


def _apart(stmt: cin.Stmt, varies: set[cin.IndexVar]) -> cin.Stmt:
    """A tile whose sums are of products, with the factors that are the same for all terms of a row outside of the sum."""
    assert isinstance(stmt, cin.Forall) and isinstance(stmt.body, cin.Where)
    used, (loops, producer) = stmt.body.consumer, cin.nested(stmt.body.producer)
    assert isinstance(producer, cin.Assign) and isinstance(used, cin.Assign)
    asked, product = _asked(producer.rhs)
    factors = _factors(product)
    own = [f for f in factors if any(v in varies for a in cin.accesses(f) for v in cin.bound_by(a))]
    same = [f for f in factors if f not in own]
    if producer.op != "add" or not own or not same:
        return stmt
    rest, whole = functools.reduce(_times, own), functools.reduce(_times, [*same, used.rhs])
    if asked is not None:  # of both: a factor times a sum of nothing may be NaN
        rest, whole = (replace(asked, args=(asked.args[0], x, asked.args[2])) for x in (rest, whole))
    return replace(stmt, body=cin.Where(replace(used, rhs=whole), cin.around(loops, replace(producer, rhs=rest))))


def _asked(expr: cin.Expr) -> tuple[cin.Call | None, cin.Expr]:
    """A value that is asked for where something is stored, else zero, and what it is there; or what it is everywhere."""
    if isinstance(expr, cin.Call) and expr.op == "masked":
        return expr, expr.args[1]
    return None, expr


def _factors(expr: cin.Expr) -> list[cin.Expr]:
    """The factors of a product of values of one type."""
    if isinstance(expr, cin.Call) and expr.op == "multiply" and all(a.dtype == expr.dtype for a in expr.args):
        return [f for a in expr.args for f in _factors(a)]
    return [expr]


def _times(a: cin.Expr, b: cin.Expr) -> cin.Expr:
    return cin.Call("multiply", (a, b), a.dtype)


def _by_blocks(loops: list[cin.IndexVar], inner: cin.Forall) -> tuple[cin.Stmt, str] | None:
    """Loops with tiles inside a walk over blocks, and whether these are cheaper ("block") or tiles around it ("walk"); None where
    there is no such walk."""
    assert isinstance(inner.body, cin.Assign)
    lhs, reads = inner.body.lhs, tuple(cin.accesses(inner.body.rhs))
    first = regions.block((*loops, inner.var), 0, lhs, reads)
    made = None if first is None else _around(loops[first:], inner)
    if made is None:
        return None
    inside = (*loops[first:], inner.var)
    packed = any(
        a.tensor.policy == "dense" and inner.var in a.indices for a in reads
    )  # it is near, whoever reads it again
    pays = not packed and regions.blocks_pay(inside, lhs, cin.extents((lhs, *reads)), machine.current())
    return cin.around(loops[:first], made), "block" if pays else "walk"


def _around(loops: list[cin.IndexVar], inner: cin.Forall) -> cin.Stmt | None:
    """Tiles over the vector loop `inner` and the loops around it that its target follows, around the others."""
    assert isinstance(inner.body, cin.Assign)
    lhs, op, rhs = inner.body.lhs, inner.body.op, inner.body.rhs
    dense = [v for v in loops if v in cin.bound_by(lhs)]
    if op is None or inner.var not in lhs.indices:
        return None
    used = (lhs, *cin.accesses(rhs))
    if not all(is_dense(v, used) and _decides_nothing(v, inner.body) for v in dense):
        return None
    identity = operators.get(op).identity(lhs.dtype)
    register = cin.Access(cin.Tensor(f"{lhs.tensor.name}_t", (), lhs.dtype, Format(()), identity, "scalar"), ())
    producer = cin.around([v for v in loops if v not in dense], cin.Assign(register, op, rhs))
    made: cin.Stmt = cin.Forall(inner.var, cin.Where(cin.Assign(lhs, op, register), producer), "tile")
    # the last block of a dimension has fewer coordinates than others: its rows would differ
    if dense and dense[-1] is not inner.var.outer:
        return cin.around(dense[:-1], cin.Forall(dense[-1], made, "tile"))
    return cin.around(dense, made)


def _across(loops: list[cin.IndexVar], body: cin.Assign) -> cin.Stmt | None:
    """Tiles over the last of `loops`, around the others, where that is a vector loop but for the result, whose elements lie apart."""
    (*others, last), lhs = loops, body.lhs
    inner = cin.Forall(last, body)
    dense = lhs.tensor.policy is None and lhs.tensor.format.is_dense and not lhs.tensor.format.blocked
    if not dense or vectorize.contiguous(lhs, last) or not others or others[0] in cin.bound_by(lhs):
        return None
    if not any(last in a.indices for a in cin.accesses(body.rhs)) or not vectorize.vectorizable(inner, fixed=(lhs,)):
        return None
    return _around(others, inner)


def _strips(stmt: cin.Stmt) -> cin.Stmt:
    """Two tiled loops in the cheaper order: strips inside of rows, or outside."""
    if not isinstance(stmt, cin.Forall):
        return stmt
    inner = stmt.body
    if stmt.kind != "tile" or not isinstance(inner, cin.Forall) or inner.kind != "tile":
        return replace(stmt, body=_strips(stmt.body))
    pays = regions.strips_pay(stmt.var, inner, machine.current())
    if choices.pick("strips", ("inside", "outside"), "outside" if pays else "inside") == "inside":
        return stmt
    return replace(inner, body=cin.Forall(stmt.var, inner.body, "rows"))


def _held(stmt: cin.Forall) -> cin.Stmt | None:
    """A vector loop inside one over a sparse level, with what it reads whatever the entry in registers; None when `stmt` is something
    else."""
    inner, var = stmt.body, stmt.var
    if not isinstance(inner, cin.Forall) or inner.kind != "vector" or not isinstance(inner.body, cin.Assign):
        return None
    lhs, op, rhs = inner.body.lhs, inner.body.op, inner.body.rhs
    used = (lhs, *cin.accesses(rhs))
    in_place = lhs.tensor.policy is None and lhs.tensor.format.full
    if (
        op is None
        or not in_place
        or var not in cin.bound_by(lhs)
        or inner.var not in lhs.indices
        or is_dense(var, used)
    ):
        return None
    if any(inner.var in a.indices and var in cin.bound_by(a) for a in cin.accesses(rhs)):
        return None
    if not _decides_nothing(inner.var, inner.body):
        return None
    read = [a for a in dict.fromkeys(cin.accesses(rhs)) if inner.var in a.indices]
    if len(read) != 1 or not read[0].tensor.format.is_dense or read[0].tensor.policy is not None:
        return None
    tensor = cin.Tensor(f"{read[0].tensor.name}_r", (), read[0].dtype, Format(()), read[0].tensor.fill_value, "scalar")
    register = cin.Access(tensor, ())
    body = cin.Forall(var, cin.Assign(lhs, op, cin.substitute(rhs, {read[0]: register})))
    return cin.Forall(inner.var, cin.Where(body, cin.Assign(register, None, read[0])), "tile")


def _decides_nothing(var: cin.IndexVar, body: cin.Stmt) -> bool:
    return not any(simplify.decides(var, c) for c in simplify.conditions(body))
