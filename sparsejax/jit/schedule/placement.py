"""Kernels of several statements: each reduction is computed at the deepest loop of its reader that it depends on.

Statement k < n of a nest of n producers is producer k, statement n the value. The parent of a producer is the statement that reads
it, or the nearest one that all its readers are placed in; of its parent's loops it shares a prefix over variables of its own
result. So nothing is computed twice, and what is kept between statements has the variables that are not shared: a register, a dense
array, or of a sparse result a workspace over its inner levels ("append" where entries are made in the order of storage).

before:  m[i] max= A[i,j];   s[i] += exp(A[i,k] - m[i]);   out[i,j] = exp(A[i,j] - m[i]) / s[i]
after:   forall i
           where m: scalar
             forall j
               m max= A[i,j]
           then
             where s: scalar
               forall k
                 s += exp(A[i,k] - m)
             then
               forall j
                 out[i,j] = exp(A[i,j] - m) / s

Source: "SparseLNR: Accelerating Sparse Tensor Computations Using Loop Nest Restructuring" (reference section 5.2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from sparsejax.formats import Coordinate, Dense, Format
from sparsejax.jit.cost import workspace_choice
from sparsejax.jit.ir import cin, operators, policies
from sparsejax.jit.ir.nest import Nest, Producer

Loops = tuple[cin.IndexVar, ...]
KEPT = "kept"
"""The policy of a target, to the scheduler: it cannot be converted."""


@dataclass(frozen=True)
class Place:
    """Where a producer is computed: in which statement, inside how many of its loops; and all loops around its assignment."""

    parent: int
    depth: int
    loops: Loops
    policy: str | None = None
    """Of a part of a sparse result that is kept: "append" where its entries are made in order, else a policy of `workspaces`."""


def readers(nest: Nest) -> list[list[int]]:
    """For every producer, the statements that read its target."""
    found: list[list[int]] = [[] for _ in nest.producers]
    for number, expr in enumerate((*(p.rhs for p in nest.producers), nest.value)):
        read = {a.tensor.name for a in cin.accesses(expr)}
        for k, p in enumerate(nest.producers):
            if p.target.tensor.name in read:
                found[k].append(number)
    return found


def variables(nest: Nest, number: int) -> Loops:
    """The variables of a statement, those of its result first."""
    if number == len(nest.producers):
        out = cin.Access(nest.output, nest.indices)
        return tuple(dict.fromkeys((*cin.variables(out), *cin.variables(nest.value))))
    p = nest.producers[number]
    return tuple(dict.fromkeys((*cin.variables(p.target), *cin.variables(p.rhs))))


def places(nest: Nest, order: Loops, choose: Callable[[int, list[Place | None], int, int], Place]) -> list[Place]:
    """The place of every producer, when the value's loops are in `order`.

    `choose(number, made, parent, most)` places one inside at most so many loops of its parent; `made` has the places of the
    statements behind it, the value's last.
    """
    last = len(nest.producers)
    made: list[Place | None] = [None] * last + [Place(last, 0, order)]
    found = readers(nest)
    for number in reversed(range(last)):
        chains = [_chain(made, r) for r in found[number]]
        parent = next(s for s in chains[0] if all(s in chain for chain in chains))
        own = set(cin.bound_by(nest.producers[number].target))
        around = at(made, parent).loops
        depth = next((k for k, v in enumerate(around) if v not in own), len(around))
        for chain in chains:
            if chain[0] != parent:
                depth = min(depth, at(made, chain[chain.index(parent) - 1]).depth)
        made[number] = _outer(made, choose(number, made, parent, depth))
    return [at(made, k) for k in range(last)]


def at(made: Sequence[Place | None], number: int) -> Place:
    """The place of a statement that has one."""
    place = made[number]
    assert place is not None
    return place


def _outer(made: Sequence[Place | None], place: Place) -> Place:
    """`place` in the statement whose loops it shares, where its parent shares them with another."""
    while place.depth < at(made, place.parent).depth:
        place = replace(place, parent=at(made, place.parent).parent)
    return place


def _chain(made: Sequence[Place | None], number: int) -> list[int]:
    """A statement and those it is placed in, from the inside."""
    chain = [number]
    while at(made, chain[-1]).parent != chain[-1]:
        chain.append(at(made, chain[-1]).parent)
    return chain


def kept(nest: Nest, number: int, place: Place) -> Loops:
    """The variables of a producer's result that are not shared: what is kept of it has these."""
    shared = place.loops[: place.depth]
    return tuple(v for v in cin.variables(nest.producers[number].target) if v not in shared)


def fits(target: cin.Access, shared: Collection[cin.Index]) -> bool:
    """Whether what is left of a result inside the loops `shared` can be kept: of a sparse one, if these are its outermost levels and
    some level below is sparse."""
    tensor = target.tensor
    if not tensor.lacks:
        return True
    outer = [target.level_index(level) for level in range(len(target.indices))]
    depth = sum(v in shared for v in outer)
    below = tensor.format.levels[depth:]
    return not below or (set(outer[:depth]) <= set(shared) and not all(x.full for x in below))


def statement(nest: Nest, number: int, registers: Collection[str] = ()) -> Nest:
    """One statement of `nest` as a kernel that reads the results of others as tensors, which cannot be converted.

    Those in `registers` are computed where they are read, in all of their loops, which they do not lead: a reduction is found there like
    an element of a dense array, anything else is what stands for it.
    """
    key = number, frozenset(registers)
    made = nest.apart.get(key)
    if made is None:
        made = nest.apart[key] = _statement(nest, number, registers)
    return made


def _statement(nest: Nest, number: int, registers: Collection[str]) -> Nest:
    read: dict[str, cin.Access] = {}
    inlined: dict[cin.Access, cin.Expr] = {}
    for q in nest.producers:
        tensor = q.target.tensor
        if tensor.name in registers:
            if q.op is None:
                inlined[q.target] = cin.substitute(q.rhs, inlined)
            tensor = tensor._replace(format=Format((Dense(),) * len(q.target.indices)))
        read[tensor.name] = cin.Access(tensor._replace(policy=KEPT), q.target.indices)

    def reading(expr: cin.Expr) -> cin.Expr:
        return cin.replaced(cin.substitute(expr, inlined), read)

    if number == len(nest.producers):
        return Nest(nest.output, nest.indices, (), reading(nest.value))
    p = nest.producers[number]
    rhs, indices = reading(p.rhs), cin.variables(p.target)
    output = p.target.tensor._replace(name="out")
    if p.op is None:
        return Nest(output, indices, (), rhs)
    return Nest(output, indices, (Producer(p.target, p.op, rhs),), p.target)


def accumulates(nest: Nest, place: Place) -> bool:
    """Whether the value is the last producer's result, at `place`, which is then accumulated in the output: there is no copy of it."""
    return nest.op is not None and nest.output.format.is_dense and bool(kept(nest, len(nest.producers) - 1, place))


def loops_of(nest: Nest, order: Loops, found: Sequence[Place]) -> cin.Stmt:
    """The loops of `nest`: the value's in `order`, the producers at their places."""
    spaces = {
        p.target.tensor.name: _workspace(p.target, kept(nest, k, found[k]), found[k])
        for k, p in enumerate(nest.producers)
    }
    last, out = len(nest.producers), cin.Access(nest.output, nest.indices)
    in_place = accumulates(nest, found[-1])
    if in_place:  # what would be copied entry by entry is accumulated where it belongs
        spaces[nest.producers[-1].target.tensor.name] = out
        order = order[: found[-1].depth]

    def loops(number: int) -> cin.Stmt:
        if number == last:
            target, op, rhs, around, start = out, None, nest.value, order, 0
        else:
            p, place = nest.producers[number], found[number]
            target, op, rhs, around, start = spaces[p.target.tensor.name], p.op, p.rhs, place.loops, place.depth
        stmt: cin.Stmt | None = None
        register, cut = None, len(around)
        if number < last or not in_place:
            if op is not None and number < last and target.indices:
                cut = 1 + max(k for k, v in enumerate(around) if v in cin.bound_by(p.target))
                once = cut < len(around) and all(v in target.indices for v in around[start:cut])
                if target.tensor.policy == "append" or (target.tensor.policy == "dense" and once):
                    register = _register(target, op)
            stmt = cin.Assign(register or target, op, cin.replaced(rhs, spaces))
        for depth in range(len(around), start - 1, -1):
            if register is not None and depth == cut:
                assert stmt is not None
                blocks = target.tensor.policy == "append" and target.tensor.format.levels[-1].full
                stmt = cin.Where(cin.Assign(target, op if blocks else None, register), stmt)
            for k in reversed(range(len(found))):
                if found[k].parent == number and found[k].depth == depth:
                    inner = loops(k)
                    stmt = inner if stmt is None else cin.Where(stmt, inner)
            if depth > start:
                assert stmt is not None
                stmt = cin.Forall(around[depth - 1], stmt)
        assert stmt is not None
        return stmt

    return loops(len(nest.producers))


def _register(target: cin.Access, op: str) -> cin.Access:
    """Where an element is accumulated that is made once, in loops of its own."""
    identity = operators.get(op).identity(target.dtype)
    name = f"{target.tensor.name}_s"
    return cin.Access(cin.Tensor(name, (), target.dtype, Format(()), identity, "scalar", target.tensor.result), ())


def _workspace(target: cin.Access, rest: Loops, place: Place) -> cin.Access:
    old = target.tensor
    rest = tuple([v for v in map(target.level_index, range(len(target.indices))) if v in rest])
    policy, form = "dense" if rest else "scalar", Format((Dense(),) * len(rest))
    if rest and place.policy is not None:
        below = workspace_choice.dense_below(old.format) if place.policy in policies.BLOCKS else 0
        policy, form = place.policy, Format((Coordinate(),) * (len(rest) - below) + (Dense(),) * below)
    shape = tuple(old.shape[target.indices.index(v)] for v in rest)
    return cin.Access(cin.Tensor(old.name, shape, old.dtype, form, old.fill_value, policy, old.format), rest)
