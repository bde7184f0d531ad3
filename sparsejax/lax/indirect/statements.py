"""Indirect statements as data: what `insum` is parsed to, what its derivatives and batches are made of.

    stmt   = Statement(op, target, shape, value, stored, extents, dtype, format)    target[..] op= value, from the identity of op
    expr   = Ref(array, indices) | Number(value, dtype) | Apply(op, args, dtype)
    index  = variable (str) | coordinate (int) | Ref                               an entry of an array of integers: A[X[p,Y[q]],i]

Arrays are the operands, by number. The value is computed for every combination of the variables in `extents` at which every `Ref` in `stored`
is a stored entry, and put to the target, which several combinations may hit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.formats import Format

DType = np.dtype[Any]


@dataclass(frozen=True)
class Ref:
    """An entry of operand number `array`."""

    array: int
    indices: tuple[Index, ...]


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: Any
    dtype: DType


@dataclass(frozen=True)
class Apply:
    """An elementwise operator ("cast" too) of expressions."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType


Index = str | int | Ref
Expr = Ref | Number | Apply


@dataclass(frozen=True)
class Statement:
    """`target op= value`; `shape` is that of the target, `format` pins that of the result, and the operand `like` has all entries that it may
    have. With `drop`, indices may be out of bounds where the value is that of no entry: they are read as 0. A sparse result has the identity
    of `op` as its fill, or with `kept`, where the value is an entry and the target is reached once, that of the operand. With `once`, what is
    stored lets every place of the target be reached once at most."""

    op: str
    target: tuple[Index, ...]
    shape: tuple[int, ...]
    value: Expr
    stored: tuple[Ref, ...]
    extents: tuple[tuple[str, int], ...]
    dtype: DType
    format: Format | None = None
    like: int | None = None
    drop: bool = False
    kept: bool = False
    once: bool = False

    @property
    def variables(self) -> dict[str, int]:
        """The extent of every variable."""
        return dict(self.extents)

    def each_once(self) -> bool:
        """Whether every coordinate of the target is reached once: its indices are all the variables."""
        return set(self.target) == set(self.variables) and len(set(self.target)) == len(self.target)

    def with_(self, **changed: Any) -> Statement:
        return replace(self, **changed)

    def mapped(self, change: Callable[[Ref], Ref]) -> Statement:
        """Every reference changed, innermost first."""
        return replace(
            self,
            target=tuple(map_index(ix, change) for ix in self.target),
            value=map_expr(self.value, change),
            stored=tuple(map_ref(r, change) for r in self.stored),
        )


def map_index(index: Index, change: Callable[[Ref], Ref]) -> Index:
    """An index with every reference in it changed."""
    return map_ref(index, change) if isinstance(index, Ref) else index


def map_ref(ref: Ref, change: Callable[[Ref], Ref]) -> Ref:
    """A reference and those in it changed, innermost first."""
    return change(Ref(ref.array, tuple(map_index(ix, change) for ix in ref.indices)))


def map_expr(expr: Expr, change: Callable[[Ref], Ref]) -> Expr:
    """An expression with every reference changed."""
    if isinstance(expr, Apply):
        return Apply(expr.op, tuple(map_expr(a, change) for a in expr.args), expr.dtype)
    return map_ref(expr, change) if isinstance(expr, Ref) else expr


def map_outer(expr: Expr, change: Callable[[Ref], Ref]) -> Expr:
    """An expression with the references whose values it has changed, as wholes."""
    if isinstance(expr, Apply):
        return Apply(expr.op, tuple(map_outer(a, change) for a in expr.args), expr.dtype)
    return change(expr) if isinstance(expr, Ref) else expr


def refs(expr: Expr) -> Iterator[Ref]:
    """The references whose values an expression has, in order; not those in their indices."""
    if isinstance(expr, Apply):
        for arg in expr.args:
            yield from refs(arg)
    elif isinstance(expr, Ref):
        yield expr


def factors(expr: Expr) -> Iterator[Ref]:
    """The references that stand once in an expression, which is zero where one of them is."""
    if isinstance(expr, Apply):
        if expr.op in ("multiply", "cast", "negative"):
            for arg in expr.args:
                yield from factors(arg)
    elif isinstance(expr, Ref):
        yield expr


def inner(indices: Sequence[Index]) -> Iterator[Ref]:
    """The references among some indices, to any depth, those that are needed first before the others."""
    for index in indices:
        if isinstance(index, Ref):
            yield from inner(index.indices)
            yield index


def index_refs(stmt: Statement) -> tuple[Ref, ...]:
    """The references from which coordinates are read."""
    found = [r for ref in refs(stmt.value) for r in inner(ref.indices)]
    return tuple(dict.fromkeys([*found, *inner(stmt.target)]))


def variables_of(*indices: Index) -> tuple[str, ...]:
    """The variables in some indices, to any depth."""
    found: dict[str, None] = {}
    for index in indices:
        if isinstance(index, str):
            found[index] = None
        elif isinstance(index, Ref):
            found |= dict.fromkeys(variables_of(*index.indices))
    return tuple(found)


def variables_in(expr: Expr) -> tuple[str, ...]:
    """The variables of an expression."""
    return tuple(dict.fromkeys(v for r in refs(expr) for v in variables_of(r)))


def renumbered(stmt: Statement, numbers: Mapping[int, int]) -> Statement:
    """The same of operands in other places."""
    made = stmt.mapped(lambda r: Ref(numbers[r.array], r.indices))
    return made if made.like is None else made.with_(like=numbers[made.like])


def every(stmt: Statement) -> tuple[Ref, ...]:
    """All references of a statement, those in indices too, without the target."""
    outer = (*refs(stmt.value), *stmt.stored)
    found = [r for ref in outer for r in (*inner(ref.indices), ref)]
    return tuple(dict.fromkeys([*found, *inner(stmt.target)]))


def resized(stmt: Statement, shapes: Sequence[Sequence[int]]) -> Statement:
    """The same statement over operands of other shapes: blocks of those that it had."""
    sizes = stmt.variables
    for ref in every(stmt):
        sizes |= {ix: n for ix, n in zip(ref.indices, shapes[ref.array], strict=True) if isinstance(ix, str)}
    shape = tuple(sizes[ix] if isinstance(ix, str) else n for ix, n in zip(stmt.target, stmt.shape, strict=True))
    return replace(stmt, shape=shape, extents=tuple(sizes.items()))


# --------------------------------------------------------------------------------------------------------- derivatives

POLYNOMIAL = ("add", "subtract", "negative", "multiply", "divide", "cast", "where")
"""The operators whose derivatives are expressions of these operators."""


def moves(expr: Expr, moving: Collection[int]) -> bool:
    """Whether an expression reads one of some operands."""
    return any(r.array in moving for r in refs(expr))


def is_rational(expr: Expr, moving: Collection[int]) -> bool:
    """Whether the derivatives of an expression by some operands are expressions, too."""
    if not isinstance(expr, Apply) or not moves(expr, moving):
        return True
    if expr.op == "where" and moves(expr.args[0], moving):
        return False
    return expr.op in POLYNOMIAL and expr.dtype.kind in "fc" and all(is_rational(a, moving) for a in expr.args)


def tangent(expr: Expr, tangents: Mapping[int, int]) -> Expr | None:
    """The tangent of an expression, where operands have tangents, which are operands too; None where it is zero."""
    if isinstance(expr, Ref):
        number = tangents.get(expr.array)
        return None if number is None else Ref(number, expr.indices)
    if isinstance(expr, Number) or not moves(expr, tangents):
        return None
    dtype, made = expr.dtype, [tangent(a, tangents) for a in expr.args]

    def apply(op: str, *args: Expr) -> Expr:
        return Apply(op, args, dtype)

    if expr.op in ("cast", "negative"):
        assert made[0] is not None
        return apply(expr.op, made[0])
    if expr.op == "where":
        zero = Number(dtype.type(0), dtype)
        return apply("where", expr.args[0], made[1] or zero, made[2] or zero)
    (x, y), (tx, ty) = expr.args, made
    if expr.op == "multiply":
        tx, ty = tx and apply("multiply", tx, y), ty and apply("multiply", x, ty)
    elif expr.op == "divide":
        tx, ty = (
            tx and apply("divide", tx, y),
            ty and apply("divide", apply("multiply", x, ty), apply("multiply", y, y)),
        )
    minus = expr.op in ("subtract", "divide")
    if tx is None or ty is None:
        left = tx or ty
        return apply("negative", left) if left is not None and tx is None and minus else left
    return apply("subtract" if minus else "add", tx, ty)


def pulled(expr: Expr, seed: Expr, linear: Collection[int], dtypes: Sequence[DType]) -> Iterator[tuple[Ref, Expr]]:
    """For every reference in `expr` to an operand on which it depends linearly, that and what its cotangent is of the cotangent `seed`."""
    if isinstance(expr, Ref):
        yield expr, seed
    if not isinstance(expr, Apply):
        return
    dtype = expr.dtype
    moving = [moves(a, linear) for a in expr.args]
    if expr.op == "cast" and moving[0]:
        (x,) = expr.args
        own = dtypes[x.array] if isinstance(x, Ref) else x.dtype
        if dtype.kind == "c" and own.kind == "f":
            seed = Apply("real", (seed,), np.dtype(f"f{dtype.itemsize // 2}"))
        yield from pulled(x, seed if dtype == own else Apply("cast", (seed,), own), linear, dtypes)
    elif expr.op in ("negative", "add", "subtract"):
        for k, (x, moved) in enumerate(zip(expr.args, moving, strict=True)):
            minus = expr.op == "negative" or (expr.op == "subtract" and k == 1)
            if moved:
                yield from pulled(x, Apply("negative", (seed,), dtype) if minus else seed, linear, dtypes)
    elif expr.op == "where":
        zero = Number(dtype.type(0), dtype)
        condition, x, y = expr.args
        if moving[1]:
            yield from pulled(x, Apply("where", (condition, seed, zero), dtype), linear, dtypes)
        if moving[2]:
            yield from pulled(y, Apply("where", (condition, zero, seed), dtype), linear, dtypes)
    elif expr.op in ("multiply", "divide"):
        x, y = expr.args
        if moving[0]:
            yield from pulled(x, Apply(expr.op, (seed, y), dtype), linear, dtypes)
        if moving[1]:
            yield from pulled(y, Apply("multiply", (seed, x), dtype), linear, dtypes)


def check(stmt: Statement, operands: Sequence[Aval]) -> None:
    """Raise ValueError unless every access has as many indices as its array axes, integers lie inside of these, and variables run over extents that are
    those of their axes, as far as these are numbers. O(text)."""
    extents = stmt.variables
    read = (*refs(stmt.value), *stmt.stored, Ref(-1, stmt.target))
    for ref in inner(read):
        if not -1 <= ref.array < len(operands):
            raise ValueError(f"a statement reads operand {ref.array} of {len(operands)}")
        shape = stmt.shape if ref.array < 0 else operands[ref.array].shape
        if len(ref.indices) != len(shape):
            raise ValueError(f"an access of {len(shape)} axes has {len(ref.indices)} indices")
        for index, size in zip(ref.indices, shape, strict=True):
            if isinstance(index, Ref):
                continue
            extent = extents.get(index) if isinstance(index, str) else size
            known = isinstance(extent, int) and isinstance(size, int)
            outside = isinstance(index, int) and not 0 <= index < size
            if extent is None or (known and (extent != size or outside)):
                raise ValueError(f"index {index} of extent {extent} stands at an axis of {size}")
