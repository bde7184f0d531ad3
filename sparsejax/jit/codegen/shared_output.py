"""Outputs whose positions are given: those of an operand, so that nothing is appended.

before:  forall i                              A = csf (i,j,k)      out = (d,c,d)
           forall j
             forall r
               out[i,j,r] = sum over k of A[i,j,k] * B[k,r]

Every fiber (i, j) of A becomes one block of `out`, in the order of A's second level: position p there is position p here. So the number
of blocks is known before the kernel runs, `crd` is the operand's own buffer, and values are written in place, by any number of
threads. `pos` is shared too where all levels above are dense in both; else every fiber notes where it ends, and fibers that were never
visited begin and end where the one before ended.

Legal where the loops over the output's levels, down to the last sparse one, are outermost and walk that operand alone, and where
every visit writes: no other sparse operand, no mask, no reduction over what may be empty. The output has one sparse level, or one
run of coordinate levels; levels above and below are dense.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sparsejax.formats import Compressed, Coordinate, Dense, Format
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import abi, emit
from sparsejax.jit.codegen.environment import Cursor
from sparsejax.jit.codegen.kernel_memory import fill
from sparsejax.jit.codegen.operands import Axis
from sparsejax.jit.codegen.output import Output, Span
from sparsejax.jit.ir import cin, simplify


@dataclass(frozen=True)
class Given:
    """The operand whose level `level` gives the output's last sparse level its positions; `whole` where every value of a block is
    assigned, so that none must be cleared."""

    access: cin.Access
    level: int
    whole: bool


@dataclass(frozen=True)
class Shared:
    """The same for who calls the kernel: the number of the input, the level, and which of its buffers are the output's own: `pos`,
    and `crd` from the level `first` on."""

    input: int
    level: int
    pos: bool
    first: int

    @staticmethod
    def of(given: Given, inputs: tuple[cin.Tensor, ...], output: cin.Tensor) -> Shared:
        """What the output of a kernel shares."""
        names, form = [t.name for t in inputs], given.access.tensor.format
        own, head = _head(form, given.level), abi.heads(output)[0]
        pos = own == head and all(isinstance(level, Dense) for level in form.levels[:own])
        return Shared(names.index(given.access.tensor.name), given.level, pos, max(own, head))


def _head(form: Format, level: int) -> int:
    """The level that starts the run of `level`."""
    while form.continues(level):
        level -= 1
    return level


class GivenOutput(Output):
    """An output whose memory the caller provides, all of it; see the module."""

    def __init__(
        self,
        b: Builder,
        tensor: cin.Tensor,
        axes: tuple[Axis, ...],
        slots: dict[abi.Slot, int],
        span: Span | None,
        given: Given,
        shared: Shared,
    ) -> None:
        self._given, self._shares = given, shared
        super().__init__(b, tensor, axes, slots, span)

    def _prepare(self, b: Builder) -> None:
        name, head = self.tensor.name, self.heads[0]
        own = range(head, self._shares.first)
        self._vals_at = b.slot(self._slots[abi.Slot(name, "vals", 0)], "ptr", f"{name}_vals")
        self._crd_at = {lv: b.slot(self._slots[abi.Slot(name, "crd", lv)], "ptr", f"{name}_crd{lv}") for lv in own}
        noted = head > 0 and not self._shares.pos
        self._pos_at = b.slot(self._slots[abi.Slot(name, "pos", head)], "ptr", f"{name}_pos") if noted else None
        self.wrote = b.var("wrote", b.i64(0))
        self._end = b.var("end", b.i64(0))
        self._block = self._product(b, range(self._given.level + 1, len(self.tensor.format.levels)))

    @property
    def leader(self) -> cin.Access | None:
        given = self._given.access
        return given if self._pos_at is None and self._given.level + 1 == len(given.indices) else None

    @property
    def writes_coordinates(self) -> bool:
        return bool(self._crd_at)

    def enter(
        self, b: Builder, level: int, coordinates: dict[int, Val], cursors: Mapping[cin.Access, Cursor]
    ) -> Val | None:
        if level != self._given.level:
            return None
        self._here = cursors[self._given.access].pos
        self.write_coordinates(b, level, self._here, coordinates)
        if not self._given.whole and self._block.ref != "1":
            first, last = b.mul(self._here, self._block), b.mul(b.add(self._here, 1), self._block)
            fill(b, self._vals_at, first, last, emit.constant(b, self.tensor.fill_value, self.tensor.dtype))
        return self._here

    def write_coordinates(self, b: Builder, level: int, position: Val, coordinates: dict[int, Val]) -> None:
        for lv, pointer in self._crd_at.items():
            b.store(pointer, position, self.narrowed(b, lv, coordinates[lv]))

    @contextmanager
    def room(self, b: Builder, count: Val) -> Iterator[None]:
        yield

    def extend(self, b: Builder, count: Val, first: Val) -> Val:
        self._here = first
        return first

    def commit(self, b: Builder, count: Val) -> None:
        if self._pos_at is not None:
            b.set(self._end, b.add(self._here, count))

    def leave(self, b: Builder, level: int) -> None:
        if level == self._given.level and self._pos_at is not None:
            b.set(self._end, b.add(self._here, 1))

    def close(self, b: Builder, head: int, parent: Val) -> None:
        if self._pos_at is not None:
            b.store(self._pos_at, b.add(parent, 1), b.get(self._end))

    def vals(self, b: Builder) -> Val:
        return self._vals_at

    def epilogue(self, b: Builder) -> None:
        """Nothing to hand back."""

    def finalize(self, b: Builder) -> None:
        """Fibers that were not visited are repaired by the caller, since chunks do not know what comes before them."""


# -------------------------------------------------------------------------------------------------------- when it is legal


def find(
    stmt: cin.Stmt | None, inputs: tuple[cin.Tensor, ...], output: cin.Tensor, extents: Mapping[cin.IndexVar, int]
) -> tuple[cin.Stmt, Given] | None:
    """The operand that gives the output of a concrete statement its positions, with the statement, whose blocks are assigned where
    they can be; None where there is no such operand."""
    form, heads = output.format, abi.heads(output)
    if stmt is None or len(heads) != 1 or output.paired or 0 in extents.values():
        return None
    last = max(k for k, level in enumerate(form.levels) if not isinstance(level, Dense))
    targets = {w.lhs for w in cin.writes(stmt) if w.lhs.tensor.name == output.name}
    if len(targets) != 1:
        return None
    (lhs,) = targets
    outer, inner = _outer(stmt, lhs, last)
    if inner is None or not _always(inner, output.name, set(outer)):
        return None
    for access in dict.fromkeys(cin.accesses(inner)):
        if not all(is_stored(condition, access) for condition in simplify.conditions(inner)):
            continue
        if access.tensor in inputs and leads(access, outer) and alone(access, inner, outer):
            assigned = _assigned(inner, lhs, set(lhs.indices) - set(outer))
            whole = assigned is not None and simplify.exhaust_stmt(assigned, {access}) is None
            body = assigned if whole and assigned is not None else inner
            return _around(stmt, body, len(outer)), Given(access, last, whole)
    return None


def _outer(stmt: cin.Stmt, lhs: cin.Access, last: int) -> tuple[list[cin.IndexVar], cin.Stmt | None]:
    """The variables of the output's levels down to `last` and what is inside their loops, if these are outermost and in order; around
    them, workspaces may be filled that hold something in any case."""
    outer: list[cin.IndexVar] = []
    for level in range(last + 1):
        var = lhs.level_index(level)
        stmt = behind(stmt)
        if not isinstance(stmt, cin.Forall) or stmt.kind != "serial" or stmt.var != var:
            return outer, None
        outer.append(stmt.var)
        stmt = stmt.body
    return outer, stmt if len(set(outer)) == len(outer) else None


def _around(stmt: cin.Stmt, body: cin.Stmt, depth: int) -> cin.Stmt:
    """`stmt` with `body` inside its outermost loops."""
    if not depth:
        return body
    if isinstance(stmt, cin.Where):
        return replace(stmt, consumer=_around(stmt.consumer, body, depth))
    assert isinstance(stmt, cin.Forall)
    return replace(stmt, body=_around(stmt.body, body, depth - 1))


def behind(stmt: cin.Stmt) -> cin.Stmt:
    """What runs behind the workspaces around it, whatever was written to these."""
    while isinstance(stmt, cin.Where) and _certain(cin.workspace(stmt)):
        stmt = stmt.consumer
    return stmt


def _certain(workspace: cin.Tensor) -> bool:
    """Whether what reads a workspace runs, whether anything was written to it or not: its values are there."""
    return workspace.policy == "overlay" or (workspace.policy in ("scalar", "dense") and not workspace.lacks)


def is_stored(condition: cin.Expr, access: cin.Access) -> bool:
    """Whether `condition` asks whether `access` is stored, and nothing else."""
    return isinstance(condition, cin.Call) and condition.op == "stored" and condition.args == (access,)


def leads(access: cin.Access, outer: list[cin.IndexVar]) -> bool:
    """Whether the first levels of an operand are over `outer`, with a position for each entry and no other."""
    form, depth = access.tensor.format, len(outer)
    levels = form.levels[:depth]
    if access.tensor.paired or len(levels) < depth or isinstance(levels[-1], Dense):
        return False
    below = range(depth, len(form.levels))
    if any(form.continues(level) for level in below[:1]) or any(access.level_index(level) in outer for level in below):
        return False  # several positions to an entry of a run, or a diagonal, which may not be stored
    plain = all(isinstance(level, Dense | Coordinate) or level == Compressed() for level in levels)
    return plain and [access.level_index(level) for level in range(depth)] == outer


def alone(access: cin.Access, inner: cin.Stmt, outer: list[cin.IndexVar]) -> bool:
    """Whether the loops over `outer` walk `access` alone: nothing is left where it is absent, and others are dense there."""
    for other in dict.fromkeys(cin.accesses(inner)):
        if other == access or other.tensor.policy == "scalar":
            continue
        levels = [k for k in range(len(other.indices)) if other.level_index(k) in outer]
        if any(not isinstance(level, Dense) for level in other.tensor.format.levels[: max(levels, default=-1) + 1]):
            return False
    return simplify.exhaust_stmt(inner, {access}) is None


def _always(stmt: cin.Stmt, name: str, bound: set[cin.IndexVar]) -> bool:
    """Whether `stmt` writes the tensor `name` whenever it runs, the sparse levels over variables in `bound` being resolved."""

    def resolved(access: cin.Access) -> bool:
        levels = enumerate(access.tensor.format.levels)
        return all(isinstance(level, Dense) or access.level_index(k) in bound for k, level in levels)

    match stmt:
        case cin.Assign(lhs, _, rhs):
            return lhs.tensor.name == name and all(map(resolved, cin.accesses(rhs)))
        case cin.Forall(var, body, _):
            return all(resolved(a) for a in cin.accesses(body) if var in a.indices) and _always(body, name, bound)
        case cin.Where(consumer, producer):
            if cin.workspace(stmt).policy not in ("scalar", "dense"):
                return False
            certain = not cin.workspace(stmt).lacks or all(map(resolved, cin.accesses(producer)))
            return certain and _always(consumer, name, bound)
        case _:
            return False


def _assigned(stmt: cin.Stmt, lhs: cin.Access, left: set[cin.Index]) -> cin.Stmt | None:
    """`stmt` with `lhs` assigned instead of accumulated, where it writes every value of a block once; None elsewhere. The loops over
    the variables `left` are still to come."""
    match stmt:
        case cin.Assign():
            return None if left else replace(stmt, op=None)
        case cin.Forall(var, body, _):
            inner = _assigned(body, lhs, left - {var}) if var in left and var.outer is None else None
            return None if inner is None else replace(stmt, body=inner)
        case cin.Where(consumer, _):
            made = _assigned(consumer, lhs, left)
            return None if made is None else replace(stmt, consumer=made)
        case _:
            return None
