"""Kernels of several statements: each reduction is computed at the deepest loop of its reader that it depends on.

Statement k < n of a nest of n producers is producer k, statement n the value. The parent of a producer is the statement that reads
it, or the nearest one that all its readers are placed in; of its parent's loops it shares a prefix over variables of its own
result. So nothing is computed twice, and what is kept between statements has the variables that are not shared.

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

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sparsejax.formats import Dense, Format
from sparsejax.jit import cin
from sparsejax.jit.facts import Facts
from sparsejax.jit.nest import Nest, Producer

Loops = tuple[cin.IndexVar, ...]


@dataclass(frozen=True)
class Place:
    """Where a producer is computed: in which statement, inside how many of its loops; and all loops around its assignment."""

    parent: int
    depth: int
    loops: Loops


def readers(nest: Nest) -> list[list[int]]:
    """For every producer, the statements that read its target."""
    found: list[list[int]] = [[] for _ in nest.producers]
    for number, expr in enumerate((*(p.rhs for p in nest.producers), nest.value)):
        read = set(cin.accesses(expr))
        for k, p in enumerate(nest.producers):
            if p.target in read:
                found[k].append(number)
    return found


def variables(nest: Nest, number: int) -> Loops:
    """The variables of a statement, those of its result first."""
    if number == len(nest.producers):
        return tuple(dict.fromkeys((*nest.indices, *cin.variables(nest.value))))
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
        own = set(nest.producers[number].target.indices)
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


def statement(nest: Nest, number: int) -> Nest:
    """One statement of `nest` as a kernel that reads the results of others as dense tensors."""
    dense: dict[cin.Access, cin.Expr] = {
        p.target: cin.Access(_dense(p.target.tensor), p.target.indices) for p in nest.producers
    }
    if number == len(nest.producers):
        return Nest(nest.output, nest.indices, (), cin.substitute(nest.value, dense))
    p = nest.producers[number]
    rhs, indices = cin.substitute(p.rhs, dense), cin.variables(p.target)
    output = replace(_dense(p.target.tensor), name="out")
    if p.op is None:
        return Nest(output, indices, (), rhs)
    return Nest(output, indices, (Producer(p.target, p.op, rhs),), p.target)


def with_targets(nest: Nest, facts: Facts) -> Facts:
    """`facts` with the positions of the results of producers, which are dense."""
    made = dict(facts.counts)
    for p in nest.producers:
        sizes = itertools.accumulate(map(float, p.target.tensor.shape), operator.mul)
        made[p.target.tensor.name] = tuple(sizes) or (1.0,)
    return replace(facts, counts=made)


def _dense(tensor: cin.Tensor) -> cin.Tensor:
    return replace(tensor, format=Format((Dense(),) * len(tensor.shape)))


def loops_of(nest: Nest, order: Loops, found: Sequence[Place]) -> cin.Stmt:
    """The loops of `nest`: the value's in `order`, the producers at their places."""
    spaces = {p.target: _workspace(p.target, kept(nest, k, found[k])) for k, p in enumerate(nest.producers)}
    last, out = len(nest.producers), cin.Access(nest.output, nest.indices)
    in_place = nest.op is not None and nest.output.format.is_dense and bool(spaces[nest.producers[-1].target].indices)
    if in_place:  # what would be copied entry by entry is accumulated where it belongs
        spaces[nest.producers[-1].target] = out
        order = order[: found[-1].depth]

    def loops(number: int) -> cin.Stmt:
        if number == last:
            target, op, rhs, around, start = out, None, nest.value, order, 0
        else:
            p, place = nest.producers[number], found[number]
            target, op, rhs, around, start = spaces[p.target], p.op, p.rhs, place.loops, place.depth
        stmt: cin.Stmt | None = None
        if number < last or not in_place:
            stmt = cin.Assign(target, op, cin.substitute(rhs, dict(spaces)))
        for depth in range(len(around), start - 1, -1):
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


def _workspace(target: cin.Access, rest: Loops) -> cin.Access:
    old = target.tensor
    shape = tuple(old.shape[target.indices.index(v)] for v in rest)
    policy = "dense" if rest else "scalar"
    form = Format((Dense(),) * len(rest))
    return cin.Access(cin.Tensor(old.name, shape, old.dtype, form, old.fill_value, policy, old.format), rest)
