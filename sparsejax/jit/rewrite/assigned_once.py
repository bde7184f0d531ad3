"""Dense outputs of which every element is assigned once: nobody has to clear them, and nothing is read from them.

before:  forall i                              after:  forall i
           forall j (tile)                               forall j (tile)
             where t: scalar                               where t: scalar
               forall k                                      forall k
                 t += A[i,k] * B[k,j]                          t += A[i,k] * B[k,j]
             then                                          then
               C[i,j] += t                                   C[i,j] = t

Where a walk over blocks or entries adds tiles to rows of the result, the iteration that has these rows clears them first: they come to the first cache for what
is added, and are not written, and read again, all at once.

before:  forall io                             after:  forall io
           forall ko                                     forall ii
             forall ii (tile)                              forall j (vector)
               forall j (tile)                               C[io,ii,j] = 0
                 where t: scalar                         forall ko
                   ...                                     forall ii (tile)
                 then                                        ...
                   C[io,ii,j] += t                             C[io,ii,j] += t

Legal where the loops around the assignment are those over the output's variables, once each, and all of these run over whole extents:
wherever they index something, it is at dense levels. What is written then starts from the identity, as cleared memory would. A mask may
leave out terms of a sum, where it depends on a loop inside that sum; not a sum as a whole, which then would not be written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sparsejax.jit.ir import cin, operators, simplify
from sparsejax.jit.ir.program import Program


def assigned(stmt: cin.Stmt | None, output: cin.Tensor) -> cin.Stmt | None:
    """`stmt` with every element of `output` assigned once; None where it cannot be."""
    if stmt is None or not output.format.full or _is_masked(stmt):
        return None
    found = _path(stmt, output)
    if found is None:
        return None
    loops, made = found
    (lhs,) = {w.lhs for w in cin.writes(made) if w.lhs.tensor.name == output.name}
    if len(lhs.indices) != len(loops) or set(lhs.indices) != set(loops):
        return None
    return made if over_all(made, loops) and not _sticks_out(lhs) else None


def before_read(stmt: cin.Where, tensor: cin.Tensor) -> bool:
    """Whether the producer of a dense workspace assigns every element that the consumer reads: where they have coordinates for variables, over the
    same loops, with the same numbers beside them."""
    found: list[cin.Access] = []
    if not tensor.format.full or _is_masked(stmt.producer) or not _assignments(stmt.producer, tensor, (), found):
        return False
    variables = {v for access in found for v in cin.followed(access.indices)}
    # sums inside of the loops lead them, too: where nothing is stored, there is no iteration
    if not over_all(stmt.producer, variables):
        return False
    made = {access.indices for access in found}
    reads = [a for a in cin.accesses(stmt.consumer) if a.tensor.name == tensor.name]
    writes = [w for w in cin.writes(stmt.consumer) if w.lhs.tensor.name == tensor.name]
    return not writes and all(a.indices in made for a in reads)


def _assignments(stmt: cin.Stmt, tensor: cin.Tensor, loops: tuple[cin.IndexVar, ...], found: list[cin.Access]) -> bool:
    """Note in `found` what a statement assigns of a workspace; whether it does nothing else to that: assignments are plain, each has the variables of
    all loops around it, once (numbers may stand beside these), and the workspaces around them are dense."""
    match stmt:
        case cin.Forall(var, body, _):
            return _assignments(body, tensor, (*loops, var), found)
        case cin.Seq(stmts):
            return all(_assignments(s, tensor, loops, found) for s in stmts)
        case cin.Where(consumer, producer):
            kept = cin.workspace(stmt)
            if kept.policy not in ("scalar", "dense") or kept.lacks:
                return False
            return _assignments(producer, tensor, loops, found) and _assignments(consumer, tensor, loops, found)
        case cin.Assign(lhs, op, rhs):
            if any(a.tensor.name == tensor.name for a in cin.accesses(rhs)):
                return False
            if lhs.tensor.name != tensor.name:
                return True
            own = [ix for ix in lhs.indices if not isinstance(ix, int)]
            found.append(lhs)
            return op is None and len(own) == len(loops) and set(own) == set(loops)
    return False


def noted(program: Program) -> Program:
    """`program` with every element of its output assigned once, or first, where that can be; it says so."""
    made = assigned(program.stmt, program.output) or _cleared(program.stmt, program.output)
    return program if made is None else replace(program, stmt=made, whole=True)


def _cleared(stmt: cin.Stmt | None, output: cin.Tensor) -> cin.Stmt | None:
    """`stmt` with rows of `output` cleared by the iteration that then adds tiles to them, entry by entry; None of another statement."""
    if not isinstance(stmt, cin.Forall) or stmt.kind != "serial" or not output.format.is_dense:
        return None
    found = {w.lhs for w in cin.writes(stmt) if w.lhs.tensor.name == output.name}
    if len(found) != 1 or not _adds_tiles(stmt.body, output):
        return None
    (lhs,) = found
    inner = [lhs.indices[d] for d in output.format.order]
    if len(inner) < 2 or inner[0] != stmt.var or len(set(inner)) < len(inner) or not cin.are_variables(inner):
        return None
    if (
        not over_all(stmt, [stmt.var])
        or _sticks_out(lhs)
        or any(a.tensor.name == output.name for a in cin.accesses(stmt))
    ):
        return None
    *outer, last = cin.followed(inner[1:])
    start = cin.Literal(operators.get("add").identity(output.dtype), output.dtype)
    row = cin.Forall(last, cin.Assign(lhs, None, start, clears=True), "vector")
    return replace(stmt, body=cin.Seq((cin.around(outer, row), stmt.body)))


def _adds_tiles(stmt: cin.Stmt, output: cin.Tensor) -> bool:
    """Whether a loop over what the result does not follow has tiles inside that add to it."""
    loops, tiles = cin.nested(stmt, "serial")
    if not loops or not isinstance(tiles, cin.Forall) or tiles.kind != "tile":
        return False
    added = [w for w in cin.writes(tiles) if w.lhs.tensor.name == output.name]
    return all(w.op == "add" and loops[-1] not in cin.bound_by(w.lhs) for w in added)


def visited(program: Program) -> bool:
    """Whether loops over all of a dense output assign each element, where their one sparse operand is stored and where it is not, perhaps
    twice (`codegen/loops/gaps`): nobody has to clear it either."""
    loops, stmt = ([], None) if program.stmt is None else cin.nested(program.stmt)
    if not isinstance(stmt, cin.Assign) or stmt.op is not None or stmt.lhs.tensor.name != program.output.name:
        return False
    sparse = {a for a in cin.accesses(stmt.rhs) if not a.tensor.format.full}
    if len(sparse) != 1 or len(loops) != len(stmt.lhs.indices) or set(loops) != set(stmt.lhs.indices):
        return False
    plain = program.output.format.full and not program.chunking.partial and not _sticks_out(stmt.lhs)
    return plain and not _is_masked(stmt) and isinstance(simplify.exhaust_stmt(stmt, sparse), cin.Assign)


def _is_masked(stmt: cin.Stmt) -> bool:
    """Whether a mask may be known before a sum begins: where it fails, nothing would be written."""
    match stmt:
        case cin.Forall(_, body, _):
            return _is_masked(body)
        case cin.Where(consumer, producer):
            inside = cin.loops(producer)
            asked = simplify.conditions(producer)
            return _is_masked(consumer) or not all(any(simplify.decides(v, c) for v in inside) for c in asked)
        case cin.Seq(stmts):
            return any(map(_is_masked, stmts))
    return bool(simplify.conditions(stmt))


def _sticks_out(lhs: cin.Access) -> bool:
    """Whether a result has memory outside its shape, which no loop visits: that of blocks that stick out."""
    if lhs.tensor.policy is not None:
        return False
    followed = ((d, cin.follows(ix)) for d, ix in enumerate(lhs.indices))
    return any(v is not None and v.rest and d not in lhs.tensor.paired for d, v in followed)


def over_all(stmt: cin.Stmt, loops: Collection[cin.IndexVar]) -> bool:
    """Whether `loops` around `stmt` run over whole extents, as far as what it reads and writes says."""
    return all(_runs_through(loops, access) for access in {*cin.accesses(stmt), *(w.lhs for w in cin.writes(stmt))})


def _path(stmt: cin.Stmt, output: cin.Tensor) -> tuple[list[cin.IndexVar], cin.Stmt] | None:
    """The loops around the only assignment to `output`, which becomes a plain one; and the statement with it."""
    match stmt:
        case cin.Forall(var, body, _):
            found = _path(body, output)
            return None if found is None else ([var, *found[0]], replace(stmt, body=found[1]))
        case cin.Where(consumer, producer):
            kept = cin.workspace(stmt)
            inner = [w for w in cin.writes(producer) if w.lhs.tensor.name == output.name]
            if inner or kept.policy not in ("scalar", "dense") or kept.lacks:
                return None
            found = _path(consumer, output)
            return None if found is None else (found[0], replace(stmt, consumer=found[1]))
        case cin.Assign(lhs, op, rhs) if lhs.tensor.name == output.name:
            started = isinstance(rhs, cin.Access) and rhs.tensor.policy == "scalar"
            sparse = any(not lv.full for a in cin.accesses(rhs) for lv in a.tensor.format.levels)
            return None if sparse or not (op is None or started) else ([], replace(stmt, op=None, clears=True))
        case _:
            return None


def _runs_through(loops: Collection[cin.IndexVar], access: cin.Access) -> bool:
    """Whether no loop of `loops` is over a sparse level of an access, nor decides whether one of its entries is there."""
    if len(access.others) > len(access.entries):
        return False  # it is at the position of another
    for number, level in enumerate(access.tensor.format.levels):
        var = cin.follows(access.level_index(number))
        if not level.full and (var is None or var in loops):
            return False
    return True
