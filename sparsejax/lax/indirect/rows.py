"""Rows that arrays of integers name: gathered, and accumulated. What `x[index]`, `x.at[index].add(values)`, segments and embeddings are.

y[p,n] = x[K[p],n]        y[R[p],n] += v[p,n]

Of a sparse `x` whose outermost level is indexed, entries are looked up level by level. Of another one they are walked as they are stored, each
beside the places that name it:

y[n,p] = x[n,t] where S[p,t] is stored, S = positions(K)        (`kernels`)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import SymbolicDim, span
from sparsejax.formats import Coordinate, Format
from sparsejax.jit.ir import operators
from sparsejax.lax.extents import INT64, coordinates, extent
from sparsejax.lax.indirect.index_arrays import positions
from sparsejax.lax.indirect.kernels import BOOL, Label, insum
from sparsejax.lax.indirect.statements import Apply, Expr, Index, Number, Ref, Statement
from sparsejax.lax.linear import refilled
from sparsejax.lax.structural import convert_format, transpose
from sparsejax.lax.typing_rules import broadcast_shapes

VAR = "p"
BOOLEAN = {"add": "logical_or", "maximum": "logical_or", "multiply": "logical_and", "minimum": "logical_and"}
"""What accumulates booleans in place of other operators."""


def _dense(x: Any) -> Any:
    return convert_format(x, Format.parse("dense", x.ndim))


def gathered(
    x: Any,
    indices: Mapping[int, Any],
    axes: Sequence[int] | None = None,
    drop: bool = False,
    place: int | None = None,
) -> Any:
    """`x` at arrays of integers that are broadcast to one shape, one for each of some dimensions. The axes of that shape replace the dimensions,
    before the other dimension number `place` (default: where the first of them stood).

    A sparse result has the format of `x` where one vector indexes it, and coo else; its fill is that of `x`.
    With `drop`, zeros where the only index, a vector of a dense `x`, is out of bounds, negative ones too; else IndexError, which calls
    dimension d `axes[d]`. Work: the result, and of a sparse `x` a search for every place, or its entries.
    """
    arrays = {d: _dense(i) for d, i in indices.items()}
    shape = broadcast_shapes(*(i.shape for i in arrays.values()))
    own = [f"{VAR}{k}" for k in range(len(shape))]
    rest = [d for d in range(x.ndim) if d not in indices]
    at = sum(d < min(indices) for d in rest)
    place = at if place is None else place
    single = len(indices) == 1 and len(shape) == 1
    if place != at and single and not x.format.is_dense:  # the format is that of `x` before the axis moves
        others = [k for k in range(x.ndim) if k != at]
        return transpose(gathered(x, arrays, axes), [*others[:place], at, *others[place:]])
    kept = [*(f"d{d}" for d in rest[:place]), *own, *(f"d{d}" for d in rest[place:])]
    extents = {**dict(zip(own, shape, strict=True)), **{f"d{d}": x.shape[d] for d in rest}}
    called = Label("", "", tuple(range(x.ndim) if axes is None else axes))
    made_shape = tuple(extents[v] for v in kept)
    refs = {d: Ref(k, _along(a.shape, shape, own)) for k, (d, a) in enumerate(arrays.items(), 1)}
    target = tuple(kept)
    form = made = None
    ends: list[Any] = []
    filled = refilled(x)
    walked = filled is not x and x.format.order[0] not in indices
    if not x.format.is_dense:
        form = made = x.format if single else Format.parse("coo" if kept else "dense", len(kept))
        # formats that store zeros between the entries of a result (bands, diagonals, blocks) take them over the right fill only
        if walked and (form.blocked or not all(level.plain for level in form.levels)):
            made = Format([Coordinate()] * len(kept), form.unblocked().order)
    value: Expr = Ref(0, tuple(refs.get(d, f"d{d}") for d in range(x.ndim)))
    if drop:
        (d,) = indices
        end, ends = _end(x.shape[d], 1 + len(arrays))
        value = _inside(value, x.dtype, x.dtype.type(0), arrays[d].dtype, end, refs[d])
    op = BOOLEAN["add"] if x.dtype.kind == "b" else "add"
    names = [called, *(Label("") for _ in (*indices, *ends))]
    own_fill = form is not None and not walked
    s = Statement(op, target, made_shape, value, (), tuple(extents.items()), x.dtype, made, drop=drop, kept=own_fill)
    result = insum([filled if walked else x, *arrays.values(), *ends], s, names, "the result")
    return convert_format(refilled(result, x.fill_value), x.format if form is None else form) if walked else result


def _along(own: Sequence[int], shape: Sequence[int], variables: Sequence[str]) -> tuple[Index, ...]:
    """The indices of an array that is broadcast to `shape`."""
    offset = len(shape) - len(own)
    return tuple(0 if n == 1 and shape[offset + k] != 1 else variables[offset + k] for k, n in enumerate(own))


def accumulated(
    op: str,
    values: Any,
    indices: Mapping[int, Any],
    shape: Sequence[int],
    drop: bool = False,
    chosen: Mapping[int, Any] | None = None,
    without: Collection[int] = (),
    format: Format | None = None,
) -> Any:
    """The array of `shape` that holds what `op` makes of all `values` of a row, from its identity: their first dimension is in place of
    those of `indices`, vectors of integers; dense, or in `format`. Where `chosen` has coordinates for a dimension, the values at r go to
    coordinate number r of these; `values` have no dimensions `without`, which have one coordinate. With `drop`, dense values are left out
    whose only index is out of bounds, or negative. O(values + result).
    """
    op = BOOLEAN[op] if values.dtype.kind == "b" else op
    chosen = chosen or {}
    arrays = [values, *map(_dense, indices.values()), *chosen.values()]
    numbers = {d: k for k, d in enumerate((*indices, *chosen), 1)}
    own = {**dict.fromkeys(indices, (VAR,)), **{d: (f"r{d}",) for d in chosen}}
    target = tuple(Ref(numbers[d], own[d]) if d in own else f"d{d}" for d in range(len(shape)))
    rest = [d for d in range(len(shape)) if d not in indices]
    extents = {VAR: values.shape[0]} if indices else {}
    extents |= {f"d{d}": shape[d] for d in rest if d not in chosen} | {f"r{d}": m.shape[0] for d, m in chosen.items()}
    axes = [f"r{d}" if d in chosen else f"d{d}" for d in rest if d not in without]
    value: Expr = Ref(0, (*((VAR,) if indices else ()), *axes))
    if drop:
        (axis,) = indices
        nothing = operators.get(op).identity(values.dtype)
        end, ends = _end(shape[axis], len(arrays))
        arrays += ends
        value = _inside(value, values.dtype, values.dtype.type(nothing), arrays[1].dtype, end, Ref(1, (VAR,)))
    names = [Label("")] * len(arrays)
    s = Statement(op, target, tuple(shape), value, (), tuple(extents.items()), values.dtype, format, drop=drop)
    return insum(arrays, s, names, "the result")


def placed(
    values: Any,
    last: Any,
    indices: Collection[int],
    shape: Sequence[int],
    chosen: Mapping[int, Any],
    without: Collection[int],
) -> Any:
    """The sparse array (coo) that has, where `last` over the dimensions `indices` stores p, row p of `values`; None for true. `chosen` and `without`
    as in `accumulated`. O(result)."""
    own = [f"d{d}" for d in range(len(shape))]
    ref = Ref(0, tuple(own[d] for d in indices))
    numbers = {d: k for k, d in enumerate(chosen, 1)}
    axes = [f"r{d}" if d in chosen else own[d] for d in range(len(shape)) if d not in indices and d not in without]
    extents = {own[d]: n for d, n in enumerate(shape) if d not in chosen} | {
        f"r{d}": m.shape[0] for d, m in chosen.items()
    }
    target = tuple(Ref(numbers[d], (f"r{d}",)) if d in chosen else v for d, v in enumerate(own))
    arrays, dtype = [last, *chosen.values()], BOOL
    made: Expr = Number(np.bool_(True), BOOL)
    if values is not None:
        arrays, dtype, made = [*arrays, values], values.dtype, Ref(len(arrays), (ref, *axes))
    op = BOOLEAN["add"] if dtype.kind == "b" else "add"
    form = Format.parse("coo", len(shape))
    s = Statement(op, target, tuple(shape), made, (ref,), tuple(extents.items()), dtype, form)
    return insum(arrays, s, [Label("")] * len(arrays), "the result")


def labelled(labels: Any, count: int) -> Any:
    """True at (p, t) where the label at p is t, of t from 0 to `count` - 1: (*labels.shape, count). Remembered with the labels. O(labels)."""
    return positions(_dense(labels), count, by_target=False, drop=True)


def combined(op: str, values: Any, labels: Any, count: int) -> Any:
    """out[labels[p], ..] op= values[p, ..] where the label, one of a vector, is in [0, `count`). Its type follows from that of `values` and
    the matrix of labels. O(entries)."""
    return _selected(op, values, labelled(labels, count), (VAR, "t"), "t", False)


def looked_up(table: Any, labels: Any) -> Any:
    """out[t, ..] = table[labels[t], ..] where the label, one of a vector, is within bounds, else nothing. Its type follows from that of
    `table` and the matrix of labels. O(entries)."""
    return _selected("add", table, labelled(labels, table.shape[0]), ("t", VAR), "t", True)


def _selected(op: str, values: Any, matrix: Any, indices: tuple[str, str], to: str, once: bool) -> Any:
    """out[t, ..] op= values[p, ..] where `matrix` stores an entry at `indices`, p and t."""
    op = BOOLEAN[op] if values.dtype.kind == "b" else op
    rest = tuple(f"d{d}" for d in range(1, values.ndim))
    extents = dict(zip((*indices, *rest), (*matrix.shape, *values.shape[1:]), strict=True))
    shape = (extents[to], *values.shape[1:])
    kept, value = (Ref(1, indices),), Ref(0, (VAR, *rest))
    s = Statement(op, (to, *rest), shape, value, kept, tuple(extents.items()), values.dtype, once=once)
    return insum([values, matrix], s, [Label(""), Label("")], "the result")


def _end(size: Any, number: int) -> tuple[Expr, list[Any]]:
    """An extent in a statement, and the operands that it takes: one, with this number, where it is not known."""
    if isinstance(size, SymbolicDim):
        return Ref(number, ()), [extent(size)]
    return Number(np.int64(size), INT64), []


def _inside(value: Expr, dtype: Any, nothing: Any, of: Any, end: Expr, ref: Ref) -> Expr:
    """A value where the index is from 0 to below `end`, else `nothing`."""
    index = Apply("cast", (ref,), INT64) if of != INT64 else ref
    above = Apply("greater_equal", (index, Number(np.int64(0), INT64)), BOOL)
    below = Apply("less", (index, end), BOOL)
    return Apply("where", (Apply("logical_and", (above, below), BOOL), value, Number(nothing, dtype)), dtype)


def replaced(
    x: Any,
    values: Any,
    indices: Mapping[int, Any],
    chosen: Mapping[int, Any] | None = None,
    without: Collection[int] = (),
) -> Any:
    """A dense `x` with dense `values`, whose first dimension is in place of those of `indices`, vectors of integers, at these: of those for one
    place the last. `chosen` and `without` as in `accumulated`. O(x + values).

    L[R[p]] max= p        y[t,n] = v[L[t],n] where L[t] names one, else x[t,n]        v[L[t],M[n]] where n is among those that are chosen
    """
    whole = [x.shape[d] for d in indices]
    arrays = [x, values, _last(dict(enumerate(indices.values())), whole)]
    own = tuple(f"d{d}" for d in range(x.ndim))
    refs = [Ref(2, tuple(own[d] for d in indices))]
    axes: list[Index] = [refs[0]]
    for d, var in enumerate(own):
        if d in (chosen or {}):
            refs.append(Ref(len(arrays), (var,)))
            arrays.append(_last({0: (chosen or {})[d]}, [x.shape[d]]))
            axes += [] if d in without else [refs[-1]]
        elif d not in indices:
            axes.append(var)
    zero = Number(np.int64(0), np.dtype(np.int64))
    named: Expr = Apply("greater_equal", (refs[0], zero), BOOL)
    for ref in refs[1:]:
        named = Apply("logical_and", (named, Apply("greater_equal", (ref, zero), BOOL)), BOOL)
    value = Apply("where", (named, Ref(1, tuple(axes)), Ref(0, own)), x.dtype)
    extents = tuple(zip(own, x.shape, strict=True))
    op = BOOLEAN["add"] if x.dtype.kind == "b" else "add"
    s = Statement(op, own, x.shape, value, (), extents, x.dtype, drop=True)
    return insum(arrays, s, [Label("")] * len(arrays), "the result")


def _last(indices: Mapping[int, Any], shape: Sequence[int]) -> Any:
    """For every place of `shape` the last position at which vectors of integers name it; a negative number where none does."""
    (count,) = {i.shape[0] for i in indices.values()}
    return accumulated("maximum", asarray(coordinates(span(0, count))), indices, shape)
