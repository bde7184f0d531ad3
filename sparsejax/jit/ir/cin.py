"""IR 2: concrete index notation, as pure data.

    stmt  = Forall(var, body, kind)        for every coordinate of `var`: body
          | Where(consumer, producer)      run producer, which fills a workspace, then consumer, which reads it
          | Assign(lhs, op, rhs)           lhs op= rhs      (op None: lhs = rhs)
          | Seq(stmts)                     one after the other
    expr  = Access(tensor, indices)        one entry of a tensor
          | Call(op, args, dtype)          a scalar operator of `operators`; every argument already has its compute dtype
          | Literal(value, dtype, absent)  a number, or (absent) the fill of a sparse operand where it stores nothing
    index = IndexVar | int | Position      an int is a fixed coordinate (0 on an axis of extent one that is broadcast), a Position
                                           where another access is stored (`shared_patterns`)

    Definition(indices, op, rhs)           what an operation computes, before any loop is chosen:
                                           out[indices] op= rhs over all variables, those outside `indices` being reduced

`kind` of a Forall is "serial", "vector" (the innermost loop runs over SIMD lanes) or "tile" (in strips of registers, the
body once per strip). A Tensor with a `policy` is a workspace: "scalar" (one register), "dense" (an array over its
variables), or one of the policies of `jit/codegen/workspaces`, filled in any order and drained in the order of its variables. Nodes
are frozen, compared by value, and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sparsejax.cached import cached_property
from sparsejax.formats import Dense, Format


class IndexVar(NamedTuple):
    """An index variable; its extent is that of every axis it indexes. (A named tuple: sets and dictionaries of variables are most of scheduling.)

    One that runs inside the blocks of `outer` has a constant extent, the `size` of a block; in the last block it runs below
    `rest` only, where that is not zero.
    """

    name: str
    outer: IndexVar | None = None
    size: int = 0
    rest: int = 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Position:
    """The position of `access` at its last sparse storage level `level`: the outermost index of arrays of values beside it."""

    access: Access
    level: int

    @property
    def moves(self) -> bool:
        """Whether values beside the access can be moved along with a copy of it: the entries of both are numbered alike."""
        form = self.access.tensor.format
        return form.packed and self.level + 2 >= form.ndim

    def __str__(self) -> str:
        return f"@{self.access}"


Index = IndexVar | int | Position


class Tensor(NamedTuple):
    """A tensor or workspace: `shape` in dimension order, stored as `format`, with `fill_value` where nothing is stored.

    `result` is the format of the result that a workspace holds for a while: a dense one lacks no entries.

    Of a tensor whose format was `source` before it was split in blocks (`blocks`), the dimensions `inner` are those inside
    blocks, of constant extent; those of them in `paired` are one stored dense dimension together with the dimension before.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    format: Format
    fill_value: Any
    policy: str | None = None
    result: Format | None = None
    source: Format | None = None
    inner: tuple[int, ...] = ()
    paired: tuple[int, ...] = ()

    @property
    def stored(self) -> Format:
        """The format of the array itself."""
        return self.source or self.format

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tensor)
            and self.name == other.name
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.format == other.format
            and self.policy == other.policy
            and self.source == other.source
            and self.inner == other.inner
            and self.paired == other.paired
            and same_value(self.fill_value, other.fill_value)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    @property
    def lacks(self) -> bool:
        """Whether entries may be absent, rather than have the fill as their value."""
        return not (self.result or self.format).is_dense

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Access:
    """`tensor[indices]`, indices in dimension order; `others`: the accesses that it is beside (`Position`)."""

    tensor: Tensor
    indices: tuple[Index, ...]
    _hash: int = field(init=False, repr=False, compare=False, default=0)
    others: tuple[Access, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.tensor.name, self.indices)))
        others = [ix.access for ix in self.indices if isinstance(ix, Position)]
        if others:
            object.__setattr__(self, "others", tuple(others))

    def __hash__(self) -> int:
        return self._hash

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor.dtype

    @cached_property
    def bound(self) -> tuple[IndexVar, ...]:
        """See `bound_by`."""
        return (
            _variables((self,))
            if not self.others
            else tuple(dict.fromkeys(v for ix in self.indices for v in variables_of(ix)))
        )

    def level_index(self, level: int) -> Index:
        """The index bound by storage level `level`."""
        return self.indices[self.tensor.format.order[level]]

    def __str__(self) -> str:
        return f"{self.tensor.name}[{','.join(map(str, self.indices))}]"


@dataclass(frozen=True)
class Call:
    """A scalar operator applied to arguments; `dtype` is the dtype of the result. `simple`: nothing is left to simplify (`simplify`)."""

    op: str
    args: tuple[Expr, ...]
    dtype: np.dtype[Any]
    _hash: int = field(init=False, repr=False, compare=False, default=0)
    simple: bool = field(init=False, repr=False, compare=False, default=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.op, self.args)))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        """See `accesses`."""
        return tuple([a for arg in self.args for a in accesses(arg)])

    @cached_property
    def variables(self) -> tuple[IndexVar, ...]:
        """See `variables`."""
        return _variables(self.reads)

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
        return hash((self.dtype, np.asarray(self.value, self.dtype).tobytes()))

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
    lhs: Access
    op: str | None
    rhs: Expr

    @property
    def reads(self) -> tuple[Access, ...]:
        """See `accesses`."""
        return accesses(self.rhs)

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


def same_value(a: Any, b: Any) -> bool:
    """Equal scalars of one dtype, NaN equal to NaN."""
    return bool(a == b) or bool(a != a and b != b)


def accesses(node: Expr | Stmt) -> tuple[Access, ...]:
    """Every access that `node` reads, left to right (left-hand sides are not read); one beside another after that one."""
    if not isinstance(node, Access):
        return () if isinstance(node, Literal) else node.reads
    return (*node.others, node) if node.others else (node,)


def writes(stmt: Stmt) -> tuple[Assign, ...]:
    """Every assignment in `stmt`, in order of execution."""
    return stmt.writes


def map_values(stmt: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    """`stmt` with every right-hand side changed."""
    match stmt:
        case Assign(lhs, op, rhs):
            return Assign(lhs, op, change(rhs))
        case Forall(var, body, kind):
            return Forall(var, map_values(body, change), kind)
        case Where(consumer, producer):
            return Where(map_values(consumer, change), map_values(producer, change))
        case Seq(stmts):
            return Seq(tuple(map_values(s, change) for s in stmts))


def around(order: Sequence[IndexVar], stmt: Stmt) -> Stmt:
    """`stmt` inside loops in `order`, outermost first."""
    for var in reversed(order):
        stmt = Forall(var, stmt)
    return stmt


def workspace(where: Where) -> Tensor:
    """The workspace that the producer of `where` fills: what it writes last, after those of any `where` inside."""
    return where.producer.writes[-1].lhs.tensor


def variables(expr: Expr) -> tuple[IndexVar, ...]:
    """The index variables of `expr` in order of first appearance."""
    return expr.variables if isinstance(expr, Call) else _variables(accesses(expr))


def _variables(read: tuple[Access, ...]) -> tuple[IndexVar, ...]:
    return tuple(dict.fromkeys([ix for a in read for ix in a.indices if isinstance(ix, IndexVar)]))


def bound_by(access: Access) -> tuple[IndexVar, ...]:
    """The index variables on which the place of `access` depends: its own, and those of an access that it is beside."""
    return access.bound


def variables_of(index: Index) -> tuple[IndexVar, ...]:
    """The index variables that an index depends on: a position on those of the levels down to its own."""
    if isinstance(index, Position):
        levels = range(index.level + 1)
        return tuple(v for lv in levels if isinstance(v := index.access.level_index(lv), IndexVar))
    return (index,) if isinstance(index, IndexVar) else ()


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
    match expr:
        case Access():
            made = replace.get(expr, expr)
            return _moved_along(made, replace) if isinstance(made, Access) else made
        case Call(op, args, dtype):
            return Call(op, tuple(substitute(a, replace) for a in args), dtype)
        case _:
            return expr


def replaced(expr: Expr, by_name: Mapping[str, Access]) -> Expr:
    """`expr` with other tensors in place of those with these names; each access keeps its fill."""

    def other(access: Access) -> Expr:
        new = by_name.get(access.tensor.name)
        if new is None:
            return access
        return Access(new.tensor._replace(fill_value=access.tensor.fill_value), new.indices)

    return substitute(expr, {a: other(a) for a in accesses(expr)})


def _moved_along(access: Access, replace: dict[Access, Expr]) -> Access:
    """`access` at the position of what replaces the one that it is beside."""
    if not access.others:
        return access
    indices: list[Index] = []
    for ix in access.indices:
        made = replace.get(ix.access) if isinstance(ix, Position) else None
        indices.append(position_of(made) if isinstance(made, Access) else ix)
    return Access(access.tensor, tuple(indices))


def position_of(access: Access) -> Position:
    """Where `access` is stored, at its last sparse level."""
    levels = access.tensor.format.levels
    return Position(access, max(k for k, level in enumerate(levels) if not isinstance(level, Dense)))


def rename(expr: Expr, indices: dict[Index, Index]) -> Expr:
    """`expr` with index variables replaced."""
    match expr:
        case Access(tensor, old):
            return Access(tensor, tuple(indices.get(ix, ix) for ix in old))
        case Call(op, args, dtype):
            return Call(op, tuple(rename(a, indices) for a in args), dtype)
        case _:
            return expr


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
            if isinstance(ix, IndexVar) and ix not in bound:
                raise ValueError(f"index variable {ix} of {expr} is not bound by a forall")
        if ready is not None and expr.tensor.policy is not None and expr.tensor.name not in ready:
            raise ValueError(f"workspace {expr.tensor} is read before its producer has run")
    elif isinstance(expr, Call):
        for arg in expr.args:
            _check_expr(arg, bound, ready)
