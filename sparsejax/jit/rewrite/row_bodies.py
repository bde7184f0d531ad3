"""Outermost loops over rows that run in blocks: which bodies may, and whether rows are short enough for it to pay.

summed   one reduction of a fiber of every row into a register, which depends on no row but through that fiber  (`loops/row_blocks`)
staged   any number of reductions of fibers, of values at the positions of a fiber, and of what is computed once per row;
         a statement reads other operands densely, wherever they are                                            (`loops/distributed`)
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparsejax.jit.ir import cin, operators, policies, simplify
from sparsejax.jit.ir.loop_plans import RowStages, RowSums, Stage
from sparsejax.jit.rewrite import summation
from sparsejax.jit.rewrite.loop_shapes import SHORT, Loop, output_leader, tracked
from sparsejax.jit.rewrite.vectorize import maskable, reduces_in_lanes

SOME = 512
"""Rows of a block from which on bodies of several statements are distributed (rows of less than six entries)."""
FORCED = 32
"""Rows of a block of operands that nobody expects to have many entries."""
Registers = dict[cin.Tensor, np.dtype]


def found(loop: Loop) -> dict[str, RowSums | RowStages]:
    """The shapes in blocks that a loop may take, and what its body is then."""
    bodies: dict[str, RowSums | RowStages | None] = {"staged_rows": staged(loop), "summed_rows": summed(loop)}
    return {shape: body for shape, body in bodies.items() if body is not None}


def rows_of(loop: Loop, found: RowSums | RowStages) -> int:
    """How many rows a block has."""
    leaders = found.leaders if isinstance(found, RowStages) else (found.leader,)
    return min(loop.program.blocks.get((a.tensor.name, len(a.indices) - 1), FORCED) for a in leaders)


def pays(loop: Loop, found: RowSums | RowStages) -> bool:
    """Whether operands have many entries, and rows are expected to be as short as it takes."""
    leaders = found.leaders if isinstance(found, RowStages) else (found.leader,)
    places = [(a.tensor.name, len(a.indices) - 1) for a in leaders]
    if not all(place in loop.program.blocks for place in places):
        return False
    if isinstance(found, RowSums):
        return True
    if found.single:
        return all(loop.program.lengths.get(place, SHORT) < SHORT for place in places)
    return all(loop.program.blocks[place] >= SOME for place in places)


def _leads(loop: Loop, access: cin.Access, var: cin.IndexVar) -> bool:
    """Whether the levels left of `access` are a dense one of rows, over the loop's variable, and one over `var` that lists their entries."""
    if not loop.is_input(access) or access in loop.state.unsure:
        return False
    level, form = loop.state.levels[access], access.tensor.format
    if level + 2 != len(access.indices) or not form.levels[level].full:
        return False
    if (access.level_index(level), access.level_index(level + 1)) != (loop.var, var):
        return False
    return form.levels[level + 1].listed and "pos" in form.buffer_names(level + 1)


def _outermost(loop: Loop) -> cin.Stmt | None:
    """The body of an outermost loop that visits every coordinate."""
    if len(loop.cases) != 1 or loop.state.bound or loop.state.in_tile or loop.enters:
        return None
    return loop.cases.get(frozenset())


# -------------------------------------------------------------------------------------------------------------- summed


def summed(loop: Loop) -> RowSums | None:
    """The reduction of every row that the body of a loop is; None where it is none."""
    body = _outermost(loop)
    if not isinstance(body, cin.Where) or simplify.conditions(body) or loop.program.output.format.sparse:
        return None
    match body.producer:
        case cin.Forall(var, cin.Assign() as stmt, kind) if kind not in ("vector", "parallel", "tile"):
            pass
        case _:
            return None
    tensor = cin.workspace(body)
    if tensor.policy != "scalar" or any(w.lhs.tensor.policy is not None for w in cin.writes(body.consumer)):
        return None
    if any(a.tensor.name == tensor.name and a.tensor != tensor for a in cin.accesses(body.consumer)):
        return None
    leader = next((a for a in cin.accesses(stmt.rhs) if loop.var in cin.bound_by(a)), None)
    if leader is None or not _leads(loop, leader, var):
        return None
    others = [a for a in cin.accesses(stmt.rhs) if a != leader]
    if any(loop.var in cin.bound_by(a) or not _dense(a) for a in others):
        return None
    operator = operators.get(stmt.op or "") if stmt.op else None
    if operator is None or not (operator.associative and operator.commutative):
        return None
    if simplify.exhaust_stmt(stmt, {leader}) is not None:
        return None  # what is not stored counts too: only entries are added up here
    if not maskable(stmt) or not reduces_in_lanes(stmt, var):
        return None
    return RowSums(body, stmt, var, leader, loop.state.levels[leader])


def _dense(access: cin.Access) -> bool:
    return access.tensor.policy is None and access.tensor.format.full


# -------------------------------------------------------------------------------------------------------------- staged


def staged(loop: Loop) -> RowStages | None:
    """The stages that the body of a loop is made of; None where it has any other form."""
    body, leader = _outermost(loop), output_leader(loop.program)
    if body is None or (loop.program.output.format.sparse and (leader is None or _writes_coordinates(loop))):
        return None
    registers: Registers = {}
    stages = []
    for stmt, where in _flattened(body):
        stage = None if stmt is None else _stage(loop, stmt, registers)
        if stage is None:
            return None
        stages.append(stage)
        if stage.reduces and (where is None or cin.workspace(where) != stage.stmt.lhs.tensor):
            return None  # into a register of all rows
        if where is not None:
            kept = _kept(loop, where)
            if kept is None:
                return None
            registers[cin.workspace(where)] = kept
    leaders = {s.leader.tensor.name: s.leader for s in stages if s.leader is not None}
    return RowStages(tuple(stages), registers, tuple(leaders.values())) if leaders else None


def _writes_coordinates(loop: Loop) -> bool:
    shared = loop.program.shared
    return shared is None or loop.program.output.format.sparse[0] < shared.first


def _flattened(stmt: cin.Stmt, fills: cin.Where | None = None) -> Iterator[tuple[cin.Stmt | None, cin.Where | None]]:
    """The statements of a body in the order in which they run, each with the `where` whose register it fills; None for what has another
    form."""
    if not isinstance(stmt, cin.Where):
        yield stmt, fills
        return
    tensor = cin.workspace(stmt)
    if tensor.policy not in ("scalar", policies.OVERLAY):
        yield None, None
        return
    yield from _flattened(stmt.producer, stmt if tensor.policy == "scalar" else None)
    yield from _flattened(stmt.consumer, fills)


def _kept(loop: Loop, where: cin.Where) -> np.dtype | None:
    """The type in which the register of a `where` is accumulated; None where it needs more than a number per row."""
    tensor = cin.workspace(where)
    if tracked(loop.program, where, loop.state):
        return None
    if not summation.is_sum(where.producer, tensor):
        return tensor.dtype
    return None if summation.wants_exact(where.producer, True) else summation.wide(tensor.dtype)


def _stage(loop: Loop, stmt: cin.Stmt, registers: Registers) -> Stage | None:
    match stmt:
        case cin.Assign() if not simplify.conditions(stmt):
            dense = all(_reads_densely(loop, a, registers) for a in cin.accesses(stmt.rhs))
            return Stage(stmt) if dense and not _of_entry(loop, stmt.lhs) else None
        case cin.Forall(var, cin.Assign() as body, kind) if kind not in ("vector", "parallel", "tile"):
            pass
        case _:
            return None
    leader = next((a for a in cin.accesses(body.rhs) if len(a.indices) == 2 and _leads(loop, a, var)), None)
    if leader is None or simplify.exhaust_stmt(body, {leader}) is not None:
        return None  # what is not stored counts too
    for condition in simplify.conditions(body):
        left = simplify.assume(body, condition, True)
        if condition != cin.Call("stored", (leader,), condition.dtype) or not isinstance(left, cin.Assign):
            return None
        body = left
    if simplify.conditions(body):
        return None
    others = [a for a in cin.accesses(body.rhs) if a != leader]
    if not all(_beside(a, leader) or _reads_densely(loop, a, registers) for a in others):
        return None
    if body.lhs.tensor.policy == "scalar":
        operator = operators.get(body.op) if body.op else None
        return Stage(body, var, leader) if operator is not None and operator.associative else None
    return Stage(body, var, leader) if body.op is None and _writes_along(loop, body.lhs, leader) else None


def _beside(access: cin.Access, leader: cin.Access) -> bool:
    """Whether `access` has a value for every entry of the leader."""
    return len(access.indices) == 1 and not access.entries and cin.beside(access, (leader,))


def _of_entry(loop: Loop, access: cin.Access) -> bool:
    """Whether a statement that runs once per row would write an entry of a sparse result."""
    policy = access.tensor.policy
    return policy == policies.OVERLAY or (policy is None and bool(loop.program.output.format.sparse))


def _writes_along(loop: Loop, access: cin.Access, leader: cin.Access) -> bool:
    """Whether `access` writes the value at the leader's position of the result."""
    given = output_leader(loop.program)
    if given is None or given.tensor != leader.tensor:
        return False
    if access.tensor.policy == policies.OVERLAY:
        return _beside(access, leader)
    same = [access.level_index(k) for k in range(len(access.indices))] == [leader.level_index(k) for k in range(2)]
    return access.tensor.policy is None and same


def _reads_densely(loop: Loop, access: cin.Access, registers: Registers) -> bool:
    """Whether `access` is there for every row and coordinate: a register, or an operand that is dense."""
    tensor = access.tensor
    if tensor.policy == "scalar":
        return tensor in registers or tensor.name in loop.state.accumulators
    if not cin.are_variables(access.indices):
        return False
    return tensor.policy is None and tensor.format.full
