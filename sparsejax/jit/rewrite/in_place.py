"""Entries that are kept for the rest of a row, where the row of the result will stand: nothing is appended, and nothing has keys.

before:  forall i                              out stored as A, w of entries
           where w: append
             forall j
               w[j] = exp(A[i,j])
           then
             where s: scalar
               forall k
                 s += w[k]
             then
               forall j
                 out[i,j] = w[j] / s

after:   forall i                              w' is the memory of out, @A the position of A's entry
           where w': overlay
             forall j
               w'[@A[i,j]] = exp(A[i,j])
           then
             where s: scalar
               forall k
                 s += w'[@A[i,k]]
             then
               forall j
                 out[i,j] = w'[@A[i,j]] / s

Legal where one operand is walked alone by the loop that fills `w`, with an entry for each of its own, and gives the result its
positions (`shared_positions`): other loops over `w` walk that operand too. Whoever writes `out` reads `w` at this very position, if at all,
and all else that reads it has run before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sparsejax.formats import Dense, Format
from sparsejax.jit.ir import cin, policies, sole_leader
from sparsejax.jit.ir.program import Program
from sparsejax.jit.rewrite import shared_positions


def settled(program: Program) -> Program:
    """The program with its result at the positions of an operand (`shared_positions.find`), and a workspace in its place, where there is
    one."""
    if program.stmt is None:
        return program
    inputs, output = program.inputs, program.output
    shapes = {t.name: t.shape for t in (*inputs, output)}
    extents = {var: shapes[name][dimension] for var, (name, dimension) in program.extents.items()}
    for tensor, loop, assign in _kept(program.stmt, output):
        for access in dict.fromkeys(cin.accesses(assign.rhs)):
            if access.tensor not in inputs or not sole_leader.fills(access, loop.var, assign):
                continue
            moved = _moved(program.stmt, assign.lhs, access, loop.var)
            found = None if moved is None else shared_positions.find(moved, inputs, output, extents)
            if found is None or found[1].level + 1 < len(output.format.levels):
                continue
            if _is_safe(found[0], tensor, found[1].access):
                return replace(program, stmt=found[0], given=found[1])
    found = shared_positions.find(program.stmt, inputs, output, extents)
    return program if found is None else replace(program, stmt=found[0], given=found[1])


def _kept(stmt: cin.Stmt, output: cin.Tensor) -> Iterator[tuple[cin.Tensor, cin.Forall, cin.Assign]]:
    """Workspaces of one key per entry that could stand where the output does, with the loops that fill them."""
    while not isinstance(stmt, cin.Assign | cin.Seq):
        if isinstance(stmt, cin.Where):
            tensor, loop = cin.workspace(stmt), shared_positions.behind(stmt.producer)
            fits = tensor.policy == "append" and tensor.dtype == output.dtype and len(tensor.shape) == 1
            if fits and isinstance(loop, cin.Forall) and isinstance(loop.body, cin.Assign):
                yield tensor, loop, loop.body
            stmt = stmt.consumer
        else:
            stmt = stmt.body


def _moved(stmt: cin.Stmt, target: cin.Access, leader: cin.Access, var: cin.IndexVar) -> cin.Stmt | None:
    """`stmt` with what `target` keeps at the positions of `leader`; None where it is read in other ways than entry by entry."""
    old = target.tensor
    lacking = old.result or old.format
    made = old._replace(format=Format((Dense(),)), policy=policies.OVERLAY, result=lacking)

    def beside(access: cin.Access) -> cin.Access | None:
        (index,) = access.indices
        if cin.follows(index) is None or not cin.same_value(access.tensor.fill_value, old.fill_value):
            return None
        head = cin.rename(leader, {var: index})
        return cin.Access(made, (cin.position_of(head),)) if isinstance(head, cin.Access) else None

    reads = {a for a in cin.accesses(stmt) if a.tensor.name == old.name}
    moved = {a: beside(a) for a in (*reads, target)}
    if None in moved.values():
        return None
    known: dict[cin.Access, cin.Expr] = {a: m for a, m in moved.items() if m is not None}

    def change(stmt: cin.Stmt) -> cin.Stmt:
        if not isinstance(stmt, cin.Assign):
            return cin.within(stmt, change)
        to = known.get(stmt.lhs, stmt.lhs)
        assert isinstance(to, cin.Access)
        return cin.Assign(to, stmt.op, cin.substitute(stmt.rhs, known))

    return change(stmt)


def _is_safe(stmt: cin.Stmt, kept: cin.Tensor, leader: cin.Access) -> bool:
    """Whether the loop that writes the output, innermost behind all others, reads what is kept at its own position only."""
    while isinstance(stmt, cin.Forall | cin.Where) and _loops_to(stmt, leader):
        stmt = stmt.body if isinstance(stmt, cin.Forall) else stmt.consumer
    own = cin.Access(kept, (cin.position_of(leader),))
    return all(a.indices == own.indices for a in cin.accesses(stmt) if a.tensor.name == kept.name)


def _loops_to(stmt: cin.Stmt, leader: cin.Access) -> bool:
    """Whether `stmt` is still around the loop over the last variable of `leader`, or is this loop."""
    last = leader.level_index(len(leader.indices) - 1)
    match stmt:
        case cin.Forall(var, body, _):
            return var == last or _loops_to(body, leader)
        case cin.Where(consumer, _):
            return _loops_to(consumer, leader)
        case _:
            return False
