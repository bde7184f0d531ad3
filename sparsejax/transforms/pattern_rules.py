"""Rules of `patterns`: which entries of its operands an entry of a result is made of.

elementwise, broadcast, samples    the entries at the same place
transpose, reshape, windows, ...   the entry that is moved there
contract, reduce                   a join: every entry that meets stored entries of the other operands
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.lax.contract import Labels, contract_p, extents_of
from sparsejax.lax.elementwise import cast_p, primitives, unary_p, where_p
from sparsejax.lax.indexing import concatenate_p, pad_p, window_p
from sparsejax.lax.indirect import statements
from sparsejax.lax.indirect.kernels import insum_p
from sparsejax.lax.indirect.statements import Index, Ref, Statement
from sparsejax.lax.linear import sample_p, share_p
from sparsejax.lax.reduce import reduce_p
from sparsejax.lax.rules.semiring_rules import pick_p
from sparsejax.lax.structural import (
    broadcast_p,
    convert_p,
    diagonal_p,
    expand_p,
    refill_p,
    reshape_p,
    squeeze_p,
    transpose_p,
    unit_axes_p,
)
from sparsejax.lax.window_places import window_places_p
from sparsejax.transforms.patterns import Ints, Pattern, Place, Rows, everything, flat, matrix, rules, union

Coords = list[Ints]
Moved = Callable[..., Sequence[Any]]

# --------------------------------------------------------------------------------------------------------- same place


def _elementwise(operands: Sequence[Pattern], out: Place, **params: Any) -> Rows:
    def aligned(p: Pattern) -> Rows:
        return p.at_coords(out.coords[len(out.shape) - len(p.place.shape) :], len(out))

    return union([aligned(p) for p in operands if p.rows is not None])


for _primitive in (*primitives.values(), cast_p, where_p, unary_p, broadcast_p, sample_p, share_p, convert_p, refill_p):
    rules[_primitive] = _elementwise


def _same_number(operands: Sequence[Pattern], out: Place, **params: Any) -> Rows:
    return operands[0].at(out.numbers)


for _primitive in (reshape_p, expand_p, squeeze_p, unit_axes_p):
    rules[_primitive] = _same_number

# --------------------------------------------------------------------------------------------------------- moved there


def _from(coords: Moved) -> Callable[..., Rows]:
    """The rule of an operation that takes the entry at `coords(coordinates in the result, ndim of the operand, **params)`."""

    def rule(operands: Sequence[Pattern], out: Place, **params: Any) -> Rows:
        (p,) = operands
        found = coords(out.coords, len(p.place.shape), **params)
        return p.at_coords([np.broadcast_to(c, len(out)) for c in found], len(out))

    return rule


def _transposed(coords: Coords, ndim: int, axes: tuple[int, ...]) -> Coords:
    return [coords[axes.index(d)] for d in range(ndim)]


def _diagonal(coords: Coords, ndim: int, offset: int, axis1: int, axis2: int) -> Coords:
    *rest, last = coords
    others = iter(rest)
    starts = {axis1: max(0, -offset), axis2: max(0, offset)}
    return [last + starts[d] if d in starts else next(others) for d in range(ndim)]


def _window(coords: Coords, ndim: int, ranges: tuple[range, ...], axes: tuple[int, ...]) -> list[Any]:
    kept = iter(coords)
    return [r.start if d in axes else r.start + r.step * next(kept) for d, r in enumerate(ranges)]


rules[transpose_p] = _from(_transposed)
rules[diagonal_p] = _from(_diagonal)
rules[window_p] = _from(_window)


def _concatenate(operands: Sequence[Pattern], out: Place, axis: int) -> Rows:
    parts, start = [], 0
    for p in operands:
        stop = start + p.place.shape[axis]
        if p.rows is not None:
            (chosen,) = np.nonzero((out.coords[axis] >= start) & (out.coords[axis] < stop))
            coords = [c[chosen] - (start if d == axis else 0) for d, c in enumerate(out.coords)]
            numbers = flat(coords, p.place.shape, len(chosen))
            found, stored = p.place.find(numbers)
            parts.append(matrix(chosen[stored], found[stored], len(out), p.rows))
        start = stop
    return union(parts)


rules[concatenate_p] = _concatenate


def _pad(operands: Sequence[Pattern], out: Place, shape: tuple[int, ...], places: Sequence[Sequence[Any]]) -> Rows:
    parts = []
    for p, place in zip(operands, places, strict=True):
        if p.rows is None:
            continue
        inside, coords = np.ones(len(out), bool), []
        for found, r in zip(out.coords, place, strict=True):
            if r is None:
                coords.append(found)
            elif isinstance(r, range):
                number, between = np.divmod(found - r.start, r.step)
                inside &= (between == 0) & (number >= 0) & (number < len(r))
                coords.append(number)
            else:
                inside &= found == r
        (chosen,) = np.nonzero(inside)
        numbers = flat([c[chosen] for c in coords], p.place.shape, len(chosen))
        found, stored = p.place.find(numbers)
        parts.append(matrix(chosen[stored], found[stored], len(out), p.rows))
    return union(parts)


rules[pad_p] = _pad


def _window_places(operands: Sequence[Pattern], out: Place, ranges: tuple[range, ...], axes: tuple[int, ...]) -> Rows:
    place = tuple(r.start if d in axes else r for d, r in enumerate(ranges))
    return _pad(operands[1:], out, out.shape, [place])


rules[window_places_p] = _window_places

# --------------------------------------------------------------------------------------------------------------- joins


class _Relation:
    """Entries by the labels of their axes. Where a label stands twice, those on the diagonal; broadcast axes have no label."""

    def __init__(self, place: Place, labels: Labels, extents: dict[int, int]) -> None:
        kept = np.ones(len(place), bool)
        found: dict[int, Ints] = {}
        for label, column, n in zip(labels, place.coords, place.shape, strict=True):
            if n == 1 and extents[label] != 1:
                continue
            kept &= found.setdefault(label, column) == column
        (self.entries,) = np.nonzero(kept)
        self.columns = {label: column[self.entries] for label, column in found.items()}


class _Join:
    """Combinations of entries: columns by label, and what each depends on."""

    def __init__(self, columns: dict[int, Ints], rows: Rows, extents: dict[int, int]) -> None:
        self.columns, self.rows, self.extents = columns, rows, extents

    def key(self, columns: dict[int, Ints], labels: Sequence[int], count: int) -> Ints:
        return flat([columns[x] for x in labels], [self.extents[x] for x in labels], count)

    def keep(self, labels: Sequence[int]) -> _Join:
        """Unite what differs in other labels."""
        key = self.key(self.columns, labels, self.rows.shape[0])
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        columns = {x: self.columns[x][first] for x in labels}
        return _Join(columns, matrix(group, np.arange(len(group)), len(first), self.rows), self.extents)

    def with_(self, other: dict[int, Ints], needed: set[int]) -> _Join:
        """Every combination with an entry of `other` that has the same labels; labels that are not needed are dropped."""
        shared = [x for x in other if x in self.columns]
        new = [x for x in other if x not in self.columns and x in needed]
        count = len(next(iter(other.values())))
        _, first = np.unique(self.key(other, [*shared, *new], count), return_index=True)
        other = {x: other[x][first] for x in (*shared, *new)}
        right = self.key(other, shared, len(first))  # sorted: shared labels come first
        left = self.key(self.columns, shared, self.rows.shape[0])
        start, stop = np.searchsorted(right, left), np.searchsorted(right, left, "right")
        own = np.repeat(np.arange(len(left)), stop - start)
        met = np.arange(len(own)) - np.repeat(np.cumsum(stop - start) - (stop - start) - start, stop - start)
        columns = {x: c[own] for x, c in self.columns.items()} | {x: other[x][met] for x in new}
        made = _Join(columns, self.rows, self.extents)
        kept = [x for x in columns if x in needed]
        key = made.key(columns, kept, len(own))
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        rows = matrix(group, own, len(first), self.rows)
        return _Join({x: columns[x][first] for x in kept}, rows, self.extents)

    def result(self, out: Place, output: Labels) -> Rows:
        """The rows of `out`; labels that nothing has are broadcast."""
        present = [x for x in output if x in self.columns]
        made = self.keep(present)
        shape = tuple(self.extents[x] for x in present)
        place = Place(shape, made.key(made.columns, present, made.rows.shape[0]))
        coords = dict(zip(output, out.coords, strict=True))
        return Pattern(place, made.rows).at_coords([coords[x] for x in present], len(out))


def _einsum(operands: Sequence[Pattern], inputs: Sequence[Labels], out: Place, output: Labels) -> Rows:
    extents = extents_of([p.place.shape for p in operands], inputs)
    extents.update({x: n for x, n in zip(output, out.shape, strict=True) if x not in extents})
    relations = [_Relation(p.place, ls, extents) for p, ls in zip(operands, inputs, strict=True)]
    made = []
    for k, p in enumerate(operands):
        if p.rows is None:
            continue
        join = _Join(relations[k].columns, p.rows[relations[k].entries], extents)
        rest = [
            r.columns
            for n, (r, q) in enumerate(zip(relations, operands, strict=True))
            if n != k and q.place.keys is not None and r.columns
        ]
        while rest:
            best = max(rest, key=lambda r: len(r.keys() & join.columns.keys()))
            rest = [r for r in rest if r is not best]
            join = join.with_(best, {*output, *(x for r in rest for x in r)})
        made.append(join.result(out, output))
    return union(made)


def _contract(
    operands: Sequence[Pattern],
    out: Place,
    inputs: tuple[Labels, ...],
    output: Labels,
    mask: str | None = None,
    **params: Any,
) -> Rows:
    """A mask is in the place of the result, or ignored."""
    return _einsum(operands[: len(inputs)], inputs, out, output)


def _reduce(operands: Sequence[Pattern], out: Place, axes: tuple[int, ...], **params: Any) -> Rows:
    labels = tuple(range(len(operands[0].place.shape)))
    return _einsum(operands, [labels], out, tuple(x for x in labels if x not in axes))


def _pick(
    operands: Sequence[Pattern],
    out: Place,
    moving: Labels,
    inputs: tuple[Labels, ...],
    output: Labels,
    **params: Any,
) -> Rows:
    return _einsum(operands[: len(inputs) + 1], [moving, *inputs], out, output)


rules[contract_p] = _contract
rules[reduce_p] = _reduce
rules[pick_p] = _pick


# ------------------------------------------------------------------------------------------------------------ indirect


def _insum(operands: Sequence[Pattern], out: Place, statement: Statement, **params: Any) -> Rows:
    """An entry of the target depends on what is read at any combination of variables that reaches it. Of index arrays that are not known, on
    everything."""
    inside = {r.array for r in statements.index_refs(statement)}
    if any(not operands[k].exact or operands[k].value is None for k in inside):
        return everything(operands, out)
    shape = tuple(n for _, n in statement.extents)
    grid = dict(zip(statement.variables, (c.reshape(-1) for c in np.indices(shape)), strict=True))
    kept = np.ones(int(np.prod(shape)), bool)

    def numbers(indices: Sequence[Index], extents: Sequence[int]) -> Ints:
        """Row-major numbers of entries; combinations that leave the bounds are left out."""
        made = np.zeros(len(kept), np.int64)
        for index, n in zip(indices, extents, strict=True):
            if isinstance(index, Ref):
                array = operands[index.array].value
                assert array is not None
                at = numbers(index.indices, array.shape)
                place = array.todense().reshape(-1)[at].astype(np.int64)
                place += np.where((place < 0) & (not statement.drop), n, 0)
                kept[:] &= (place >= 0) & (place < n)
                place = np.clip(place, 0, max(n - 1, 0))
            else:
                place = grid[index] if isinstance(index, str) else np.asarray(index)
            made = made * n + place
        return made

    for ref in statement.stored:
        p = operands[ref.array]
        kept &= p.place.find(numbers(ref.indices, p.place.shape))[1]
    found, there = out.find(numbers(statement.target, statement.shape))
    parts = []
    for ref in statements.refs(statement.value):
        p = operands[ref.array]
        if p.rows is not None:
            entry, stored = p.place.find(numbers(ref.indices, p.place.shape))
            use = kept & there & stored
            parts.append(matrix(found[use], entry[use], len(out), p.rows))
    return union(parts)


rules[insum_p] = _insum
