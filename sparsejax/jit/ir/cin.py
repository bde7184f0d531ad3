"""IR 2: concrete index notation, as pure data.

    stmt  = Forall(var, body, kind)        for every coordinate of `var`: body
          | Where(consumer, producer)      run producer, which fills a workspace, then consumer, which reads it
          | Assign(lhs, op, rhs)           lhs op= rhs      (op None: lhs = rhs)
          | Seq(stmts)                     one after the other
    expr  = Access(tensor, indices)        one entry of a tensor
          | Call(op, args, dtype)          a scalar operator of `operators`; every argument already has its compute dtype
          | Literal(value, dtype, absent)  a number, or (absent) the fill of a sparse operand where it stores nothing
    index = IndexVar | int | Position | Access      see `indices`, which says what each of them is, and answers what is asked of it

    Definition(indices, op, rhs)           what an operation computes, before any loop is chosen:
                                           out[indices] op= rhs over all variables, those outside `indices` being reduced

`kind` of a Forall is "serial", "vector" (the innermost loop runs over SIMD lanes), "tile" (in strips of registers, the body once per strip; of
two such loops the outer one has rows of registers) or "rows" (the inner one has them). A Tensor with a `policy` is a workspace: "scalar" (one
register), "dense" (an array over its variables), or one of the policies of `jit/codegen/workspaces`, filled in any order and drained in the order
of its variables. Nodes are frozen, compared by value, and never changed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsejax.cached import cached_property
from sparsejax.jit.ir.indices import Access as Access
from sparsejax.jit.ir.indices import Constant as Constant
from sparsejax.jit.ir.indices import Index as Index
from sparsejax.jit.ir.indices import IndexVar as IndexVar
from sparsejax.jit.ir.indices import Position as Position
from sparsejax.jit.ir.indices import Tensor as Tensor
from sparsejax.jit.ir.indices import Units as Units
from sparsejax.jit.ir.indices import accesses_of as accesses_of
from sparsejax.jit.ir.indices import are_variables as are_variables
from sparsejax.jit.ir.indices import coordinate as coordinate
from sparsejax.jit.ir.indices import distinct as distinct
from sparsejax.jit.ir.indices import entries_of as entries_of
from sparsejax.jit.ir.indices import extents as extents
from sparsejax.jit.ir.indices import fault as fault
from sparsejax.jit.ir.indices import fixed as fixed
from sparsejax.jit.ir.indices import followed as followed
from sparsejax.jit.ir.indices import follows as follows
from sparsejax.jit.ir.indices import jumps as jumps
from sparsejax.jit.ir.indices import known as known
from sparsejax.jit.ir.indices import moved as moved
from sparsejax.jit.ir.indices import moved_access as moved_access
from sparsejax.jit.ir.indices import position_of as position_of
from sparsejax.jit.ir.indices import renamed as renamed
from sparsejax.jit.ir.indices import renamed_access as renamed_access
from sparsejax.jit.ir.indices import same_value as same_value
from sparsejax.jit.ir.indices import variables_of as variables_of


@dataclass(frozen=True, init=False)
class Call:
    """A scalar operator applied to arguments; `dtype` is the dtype of the result. `simple`: nothing is left to simplify (`simplify`)."""

    op: str
    args: tuple[Expr, ...]
    dtype: np.dtype[Any]
    _hash: int = field(init=False, repr=False, compare=False, default=0)
    simple: bool = field(init=False, repr=False, compare=False, default=False)

    def __init__(self, op: str, args: tuple[Expr, ...], dtype: np.dtype[Any]) -> None:
        made = self.__dict__  # in half of the time of attributes of a frozen class, which most of a compilation makes
        made["op"], made["args"], made["dtype"], made["_hash"] = op, args, dtype, hash((op, args))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """See `accesses`."""
        return tuple([a for arg in self.args for a in arg.reads])

    @cached_property
    def variables(self) -> tuple[IndexVar, ...]:
        """See `variables`."""
        return _variables(self.reads)

    @cached_property
    def left(self) -> dict[frozenset[Access], Expr]:
        """What is left of it where accesses read their fills (`simplify.exhaust`), as far as anyone asked."""
        return {}

    @cached_property
    def conditions(self) -> tuple[Expr, ...]:
        """The conditions of the masks in it, in order of appearance."""
        own = self.args[:1] if self.op == "masked" else ()
        return (*own, *[c for a in self.args if isinstance(a, Call) for c in a.conditions])

    def __str__(self) -> str:
        name = f"cast<{self.dtype}>" if self.op == "cast" else self.op
        return f"{name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Literal:
    """A constant; `absent` marks what a sparse operand reads where it stores nothing: only these annihilate. `solid` marks what a dense
    result inside a kernel reads where nothing was added: what is computed from it is there, whatever else is absent."""

    value: Any
    dtype: np.dtype[Any]
    absent: bool = False
    solid: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        value = self.value if type(self.value) is self.dtype.type else np.asarray(self.value, self.dtype)
        return hash((self.dtype, value.tobytes()))

    @property
    def reads(self) -> tuple[Access, ...]:
        """See `accesses`."""
        return ()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and self.dtype == other.dtype
            and (self.absent, self.solid) == (other.absent, other.solid)
            and same_value(self.value, other.value)
        )

    def __str__(self) -> str:
        return str(self.value)


Expr = Access | Call | Literal


@dataclass(frozen=True)
class Assign:
    """`clears`: it gives the target its first value, which is not in memory before."""

    lhs: Access
    op: str | None
    rhs: Expr
    clears: bool = False

    @property
    def reads(self) -> tuple[Access, ...]:
        """See `accesses`."""
        read, entries = self.rhs.reads, self.lhs.entries
        return (*read, *entries) if entries else read

    @property
    def writes(self) -> tuple[Assign, ...]:
        """See `writes`."""
        return (self,)


@dataclass(frozen=True)
class Forall:
    var: IndexVar
    body: Stmt
    kind: str = "serial"

    @property
    def reads(self) -> tuple[Access, ...]:
        """See `accesses`."""
        return self.body.reads

    @property
    def writes(self) -> tuple[Assign, ...]:
        """See `writes`."""
        return self.body.writes


@dataclass(frozen=True)
class Where:
    consumer: Stmt
    producer: Stmt

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """See `accesses`."""
        return self.producer.reads + self.consumer.reads

    @cached_property
    def writes(self) -> tuple[Assign, ...]:
        """See `writes`."""
        return self.producer.writes + self.consumer.writes


@dataclass(frozen=True)
class Seq:
    stmts: tuple[Stmt, ...]

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """See `accesses`."""
        return tuple(a for stmt in self.stmts for a in stmt.reads)

    @cached_property
    def writes(self) -> tuple[Assign, ...]:
        """See `writes`."""
        return tuple(w for stmt in self.stmts for w in stmt.writes)


Stmt = Assign | Forall | Where | Seq


@dataclass(frozen=True)
class Definition:
    """`out[indices] op= rhs`, reduced with `op` over the variables of `rhs` that are not in `indices`."""

    indices: tuple[Index, ...]
    op: str | None
    rhs: Expr

    def __str__(self) -> str:
        return f"out[{','.join(map(str, self.indices))}] {_assign_sign(self.op)} {self.rhs}"


def accesses(node: Expr | Stmt) -> tuple[Access, ...]:
    """Every access that `node` reads, left to right, one that another says where it is after that one. Left-hand sides are not read, but arrays
    that hold their coordinates are, last."""
    return node.reads


def writes(stmt: Stmt) -> tuple[Assign, ...]:
    """Every assignment in `stmt`, in order of execution."""
    return stmt.writes


def within(stmt: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """`stmt` with the statements directly inside it changed."""
    match stmt:
        case Forall(var, body, kind):
            return Forall(var, change(body), kind)
        case Where(consumer, producer):
            return Where(change(consumer), change(producer))
        case Seq(stmts):
            return Seq(tuple(map(change, stmts)))
    return stmt


def map_values(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """`stmt` with every right-hand side changed."""
    if isinstance(stmt, Assign):
        return Assign(stmt.lhs, stmt.op, change(stmt.rhs))
    return within(stmt, lambda inner: map_values(inner, change))


def sequence(stmts: Iterable[Stmt]) -> Stmt:
    """Statements one after the other: at least one, which is itself."""
    first, *rest = stmts
    return Seq((first, *rest)) if rest else first


def around(order: Sequence[IndexVar], stmt: Stmt) -> Stmt:
    """`stmt` inside loops in `order`, outermost first."""
    for var in reversed(order):
        stmt = Forall(var, stmt)
    return stmt


def nested(stmt: Stmt, *kinds: str) -> tuple[list[IndexVar], Stmt]:
    """The variables of loops right inside of each other, outermost first, and what they are around: all loops, or those of these kinds."""
    loops: list[IndexVar] = []
    while isinstance(stmt, Forall) and (not kinds or stmt.kind in kinds):
        loops.append(stmt.var)
        stmt = stmt.body
    return loops, stmt


def loops(stmt: Stmt) -> set[IndexVar]:
    """The variables of all loops in a statement."""
    match stmt:
        case Forall(var, body, _):
            return {var, *loops(body)}
        case Where(consumer, producer):
            return loops(consumer) | loops(producer)
        case Seq(stmts):
            return set[IndexVar]().union(*map(loops, stmts))
    return set()


def workspace(where: Where) -> Tensor:
    """The workspace that the producer of `where` fills: what it writes last, after those of any `where` inside."""
    return where.producer.writes[-1].lhs.tensor


def variables(expr: Expr) -> tuple[IndexVar, ...]:
    """The index variables of `expr` in order of first appearance."""
    return expr.variables if type(expr) is Call else _variables(expr.reads)


def _variables(read: tuple[Access, ...]) -> tuple[IndexVar, ...]:
    return tuple(dict.fromkeys([v for a in read for v in followed(a.indices)]))


def bound_by(access: Access) -> tuple[IndexVar, ...]:
    """The index variables on which the place of `access` depends: its own, and those of the accesses that say where it is."""
    return access.bound


def beside(access: Access, others: Collection[Access]) -> bool:
    """Whether `access` is at the position of one of the others."""
    return bool(access.others) and any(a in others for a in access.others)


def largest(expr: Expr, fit: Callable[[Access], bool]) -> Iterator[Expr]:
    """The largest sub-expressions of `expr` all of whose accesses fit."""
    if all(fit(a) for a in accesses(expr)):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from largest(arg, fit)


def substitute(expr: Expr, replace: dict[Access, Expr]) -> Expr:
    """`expr` with whole accesses replaced."""
    if type(expr) is Access:
        made = replace.get(expr, expr)
        return moved_access(made, replace) if type(made) is Access and made.others else made
    if type(expr) is not Call or replace.keys().isdisjoint(expr.reads):
        return expr
    return Call(expr.op, tuple([substitute(a, replace) for a in expr.args]), expr.dtype)


def exchanged(expr: Expr, part: Expr, new: Expr) -> Expr:
    """`expr` with another expression in place of a part of it, wherever that stands."""
    if expr == part:
        return new
    if type(expr) is not Call:
        return expr
    return Call(expr.op, tuple([exchanged(a, part, new) for a in expr.args]), expr.dtype)


def replaced(expr: Expr, by_name: Mapping[str, Access]) -> Expr:
    """`expr` with other tensors in place of those with these names; each access keeps its fill."""

    def other(access: Access) -> Expr:
        new = by_name.get(access.tensor.name)
        if new is None:
            return access
        return Access(new.tensor._replace(fill_value=access.tensor.fill_value), new.indices)

    return substitute(expr, {a: other(a) for a in accesses(expr)})


def rename(expr: Expr, indices: dict[Index, Index]) -> Expr:
    """`expr` with index variables replaced."""
    if type(expr) is Access:
        return renamed_access(expr, indices)
    if type(expr) is not Call:
        return expr
    made = tuple([rename(a, indices) for a in expr.args])
    return expr if all(map(operator.is_, made, expr.args)) else Call(expr.op, made, expr.dtype)


def _assign_sign(op: str | None) -> str:
    return "=" if op is None else {"add": "+=", "multiply": "*="}.get(op, f"{op}=")


def as_text(stmt: Stmt, indent: int = 0, note: Callable[[Forall], str] = lambda loop: "") -> str:
    """`stmt` printed with one loop or assignment per line; with a `note` behind every loop of which there is one."""
    pad = "  " * indent
    match stmt:
        case Assign(lhs, op, rhs):
            return f"{pad}{lhs} {_assign_sign(op)} {rhs}"
        case Forall(var, body, kind):
            mark = "" if kind == "serial" else f" ({kind})"
            told = note(stmt)
            return f"{pad}forall {var}{mark}{told and '   # ' + told}\n{as_text(body, indent + 1, note)}"
        case Where(consumer, producer):
            tensor = workspace(stmt)
            head = f"{pad}where {tensor.name}: {tensor.policy or 'tensor'} {tensor.dtype}"
            return f"{head}\n{as_text(producer, indent + 1, note)}\n{pad}then\n{as_text(consumer, indent + 1, note)}"
        case Seq(stmts):
            return "\n".join(as_text(s, indent, note) for s in stmts)


def check(stmt: Stmt) -> None:
    """Raise ValueError where `stmt` breaks a rule of CIN: an unbound or rebound variable, an access of the wrong
    rank, a call of the wrong arity, a workspace read outside its Where."""
    _check(stmt, frozenset(), frozenset())


def _check(stmt: Stmt, bound: frozenset[IndexVar], ready: frozenset[str]) -> None:
    match stmt:
        case Assign(lhs, _, rhs):
            _check_expr(lhs, bound, None)
            _check_expr(rhs, bound, ready)
            if lhs.dtype != rhs.dtype:
                raise ValueError(f"{lhs} has dtype {lhs.dtype} but its value {rhs} has dtype {rhs.dtype}")
        case Forall(var, body, _):
            if var in bound:
                raise ValueError(f"index variable {var} is bound twice")
            _check(body, bound | {var}, ready)
        case Where(consumer, producer):
            _check(producer, bound, ready)
            _check(consumer, bound, ready | {w.lhs.tensor.name for w in writes(producer)})
        case Seq(stmts):
            for inner in stmts:
                _check(inner, bound, ready)


def _check_expr(expr: Expr, bound: frozenset[IndexVar], ready: frozenset[str] | None) -> None:
    if isinstance(expr, Access):
        if len(expr.indices) != len(expr.tensor.shape):
            raise ValueError(f"{expr} indexes a tensor of {len(expr.tensor.shape)} dimensions")
        for ix in expr.indices:
            found = fault(ix, bound)
            if found is not None:
                raise ValueError(f"{expr}: {found}")
        for other in expr.others:
            _check_expr(other, bound, ready)
        if ready is not None and expr.tensor.policy is not None and expr.tensor.name not in ready:
            raise ValueError(f"workspace {expr.tensor} is read before its producer has run")
    elif isinstance(expr, Call):
        for arg in expr.args:
            _check_expr(arg, bound, ready)
