"""From a kernel and a loop order to a concrete statement: loops and workspaces.

Let L be the loop order, A the output's variables in storage order, p the length of their common prefix, and
rest = A[p:] the output levels that no loop order of L visits in order.

    rest empty            the loops left are reductions: a scalar workspace
    rest dense            written in place, in any order
    otherwise             a workspace over rest, filled in any order and drained in the output's storage order

before:  C[i,j] += A[i,k] * B[k,j],  L = i,k,j,  C compressed in j
after:   forall i
           where w: bitmap
             forall k
               forall j
                 w[j] += A[i,k] * B[k,j]
           then
             forall j
               C[i,j] = w[j]

Source: "Compilation of Modular and General Sparse Workspaces", section 4 (reference section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparsejax.formats import Coordinate, Dense, Format
from sparsejax.jit.cost import workspace_choice
from sparsejax.jit.ir import cin, policies, simplify
from sparsejax.jit.ir.nest import Nest, Producer
from sparsejax.jit.ir.program import Program
from sparsejax.jit.rewrite import fission
from sparsejax.jit.schedule import placement
from sparsejax.jit.schedule.assembly import IN_PLACE, SCATTER, assembly
from sparsejax.jit.schedule.schedules import Schedule


def concretize(nest: Nest, schedule: Schedule) -> Program:
    """The program of `nest` with its loops in the order of a schedule, scattering through its workspace; one of several statements with its
    producers at their places."""
    order, workspace = schedule.order, schedule.workspace
    nest = _started(nest)
    if nest.nested:
        return _program(nest, placement.loops_of(nest, order, schedule.places))
    how, p = assembly(nest.output, nest.storage_indices, order)
    merged = _many_merged(nest, order)
    if merged is not None:
        how, p = SCATTER, min(p, merged[1])
    out = cin.Access(nest.output, nest.indices)
    rest = nest.storage_indices[p:]
    if how == SCATTER:
        how = workspace or workspace_choice.default([nest.output.shape[nest.indices.index(v)] for v in rest])
    if not nest.producers:
        if how not in policies.SPARSE:
            return _program(nest, cin.around(order, cin.Assign(out, None, nest.value)))
        op = None if merged is None else merged[0]
        moved = nest.output._replace(name=f"{nest.output.name}_t")
        nest = replace(nest, producers=(Producer(cin.Access(moved, nest.indices), op, nest.value),))
        nest = replace(nest, value=nest.producers[0].target)
    elsewhere = out.computed
    if nest.direct and (how == IN_PLACE or elsewhere):
        return _program(nest, _in_place(nest.producers[0], out, order))
    workspaces = {q.target: _workspace(nest, q, rest, how) for q in nest.producers}
    stmt = cin.around(rest, cin.Assign(out, None, cin.substitute(nest.value, dict(workspaces))))
    for producer in nest.producers:
        target = workspaces[producer.target]
        inside = _inner(order[p:], producer, rest)
        stmt = cin.Where(stmt, cin.around(inside, cin.Assign(target, producer.op, producer.rhs)))
    return _program(nest, cin.around(order[:p], stmt))


def _started(nest: Nest) -> Nest:
    """A dense result that is a reduction holds the identity when the kernel starts: that need not be assigned."""
    if nest.op is None or not nest.output.format.is_dense:
        return nest
    start = nest.producers[-1].target.tensor.fill_value
    output = nest.output._replace(fill_value=start)
    return replace(nest, output=output)


def _many_merged(nest: Nest, order: tuple[cin.IndexVar, ...]) -> tuple[str, int] | None:
    """Whether a sum has too many sparse operands to be merged: it is accumulated in a workspace, one after the other.

    Its operator, and how many loops may stay around the workspace; None where an operand is not to be taken by itself (`fission`
    sees to these).
    """
    op = None if nest.producers or nest.output.format.is_dense else fission.accumulated(nest.value)
    if op is None or not cin.same_value(nest.output.fill_value, simplify.nothing(nest.output, op)):
        return None
    return op, next(k for k, v in enumerate(order) if fission.walks(nest.value, v))


def _in_place(producer: Producer, out: cin.Access, order: tuple[cin.IndexVar, ...]) -> cin.Stmt:
    """Accumulate into dense storage; trailing reduction loops go through a register."""
    cut = 1 + max((k for k, v in enumerate(order) if v in cin.bound_by(out)), default=-1)
    if cut == len(order):
        return cin.around(order, cin.Assign(out, producer.op, producer.rhs))
    identity = producer.target.tensor.fill_value
    scalar = cin.Access(cin.Tensor(f"{out.tensor.name}_s", (), out.dtype, Format(()), identity, "scalar"), ())
    inner = cin.around(order[cut:], cin.Assign(scalar, producer.op, producer.rhs))
    return cin.around(order[:cut], cin.Where(cin.Assign(out, producer.op, scalar), inner))


def _workspace(nest: Nest, producer: Producer, rest: Sequence[cin.IndexVar], how: str) -> cin.Access:
    old = producer.target.tensor
    shape = tuple(old.shape[producer.target.indices.index(v)] for v in rest)
    if not rest:
        form, policy = Format(()), "scalar"
    elif how in policies.SPARSE:
        # dense levels of the output stay dense below the keys
        below = workspace_choice.dense_below(nest.output.format) if how in policies.BLOCKS else 0
        keys = len(rest) - below
        form, policy = Format((Coordinate(),) * keys + (Dense(),) * below), how
    else:
        form, policy = Format((Dense(),) * len(rest)), "dense"
    return cin.Access(cin.Tensor(old.name, shape, old.dtype, form, old.fill_value, policy, old.format), tuple(rest))


def _inner(order: Sequence[cin.IndexVar], producer: Producer, rest: Sequence[cin.IndexVar]) -> list[cin.IndexVar]:
    used = set(cin.variables(producer.rhs)) | set(rest)
    return [v for v in order if v in used]


def _program(nest: Nest, stmt: cin.Stmt) -> Program:
    extents: dict[cin.IndexVar, tuple[str, int]] = {}
    for access in (*nest.reads, cin.Access(nest.output, nest.indices)):
        for dimension, index in enumerate(access.indices):
            var = cin.follows(index)
            if var is not None:
                extents.setdefault(var, (access.tensor.name, dimension))
    return Program(stmt, nest.inputs, nest.output, extents)
