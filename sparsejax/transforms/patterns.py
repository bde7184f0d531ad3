"""Which entries of a result depend on which entries of an argument: patterns, carried through the jaxpr of the derivative.

    { lambda A ; x t. let c = cos x; s = mul c t; y = contract[ij,j->i] A s in (y,) }
      t   identity
      s   elementwise: the pattern of t
      y   a row for every row of A: the union of the rows of s that its entries name

A pattern has a row for every entry that a value stores (every element, where it is dense) and a column for every element of the
argument: a boolean matrix of SciPy's. Only the linear part of the derivative is looked at, so what has no derivative has no pattern.
Which entries sparse values store is found by running what makes them once, on ones in place of dense values that may change. Where
that would be wrong (indices that are computed from the argument, a dense value stored as a sparse one), a value counts as stored
everywhere; the result of an operation without a rule depends on everything that its operands depend on. So no pattern is too small.

Source: Griewank and Walther, Evaluating Derivatives, section 7.1 (propagation of index domains).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.cached import cached_property
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr
from sparsejax.core.primitive import Primitive, execute
from sparsejax.core.trace import eagerly
from sparsejax.formats import Format, convert
from sparsejax.lax.indexing import select_p
from sparsejax.lax.indirect.index_arrays import pairs_p, positions_p
from sparsejax.lax.structural import convert_p
from sparsejax.transforms import ad, staging

Ints = NDArray[np.int64]
Rows = Any
"""A boolean csr_array of SciPy's."""


@dataclass(frozen=True, eq=False)
class Place:
    """Which entries a value stores: their row-major numbers, sorted; None for all."""

    shape: tuple[int, ...]
    keys: Ints | None = None

    def __len__(self) -> int:
        return math.prod(self.shape) if self.keys is None else len(self.keys)

    @cached_property
    def numbers(self) -> Ints:
        return np.arange(len(self)) if self.keys is None else self.keys

    @cached_property
    def coords(self) -> list[Ints]:
        """The coordinates of the entries, one array per dimension."""
        return list(np.unravel_index(self.numbers, self.shape)) if self.shape else []

    def find(self, numbers: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """The entries with these row-major numbers, and whether there are any."""
        if self.keys is None:
            return numbers, np.ones(len(numbers), bool)
        if not len(self.keys):
            return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), bool)
        found = np.minimum(np.searchsorted(self.keys, numbers), len(self.keys) - 1)
        return found, self.keys[found] == numbers


@dataclass(frozen=True, eq=False)
class Pattern:
    """A value's entries and what they depend on (None: on nothing)."""

    place: Place
    rows: Rows | None
    value: Array | None = None
    """An array that stores these entries, if one is known."""
    exact: bool = False
    """Whether it is the value: it does not change from call to call."""

    @staticmethod
    def of(value: Array, exact: bool = True) -> Pattern:
        """The pattern of a value that depends on nothing."""
        if value.format.is_dense:
            return Pattern(Place(value.shape), None, value, exact)
        coords, vals = convert.to_coords(value.storage)
        return Pattern(Place(value.shape, np.unique(flat(list(coords), value.shape, len(vals)))), None, value, exact)

    def at(self, numbers: Ints) -> Rows:
        """The rows of the entries with these row-major numbers; empty ones where nothing is stored."""
        assert self.rows is not None
        found, stored = self.place.find(numbers)
        return (
            self.rows[found] if stored.all() else matrix(np.flatnonzero(stored), found[stored], len(found), self.rows)
        )

    def at_coords(self, coords: Sequence[Ints], count: int) -> Rows:
        """The rows of `count` entries with these coordinates, which broadcast along extents of one."""
        used = [c * (n != 1) for c, n in zip(coords, self.place.shape, strict=True)]
        return self.at(flat(used, self.place.shape, count))


def flat(coords: Sequence[Ints], shape: Sequence[int], count: int) -> Ints:
    """Row-major numbers of `count` coordinates; ValueError for a shape of more than 2^63 elements."""
    return np.ravel_multi_index(tuple(coords), tuple(shape)) if shape else np.zeros(count, np.int64)


def matrix(out: Ints, entries: Ints, count: int, rows: Rows) -> Rows:
    """`count` rows: row `out[k]` is united with row `entries[k]` of `rows`."""
    import scipy.sparse as sp

    moved = sp.csr_array((np.ones(len(out), bool), (out, entries)), shape=(count, rows.shape[0]))
    return moved @ rows


def union(parts: Sequence[Rows]) -> Rows:
    return functools.reduce(lambda x, y: x + y, parts)


Rule = Callable[..., Rows]
rules: dict[Primitive, Rule] = {}
"""rule(operands, out, **params) -> rows of `out`, a Place, given the operands' patterns of which one depends on something."""
loops: dict[Primitive, Callable[..., list[Rows | None]]] = {}
"""The same for operations that run jaxprs, with the places of all results."""


def everything(operands: Sequence[Pattern], out: Place, **params: Any) -> Rows:
    """All entries depend on whatever an operand depends on."""
    import scipy.sparse as sp

    parts = [p.rows for p in operands if p.rows is not None]
    columns = functools.reduce(np.union1d, [np.unique(rows.indices) for rows in parts])
    count = len(out)
    indices, ends = np.tile(columns, count), np.arange(count + 1) * len(columns)
    return sp.csr_array((np.ones(len(indices), bool), indices, ends), shape=(count, parts[0].shape[1]))


# --------------------------------------------------------------------------------------------------------- propagation


def derivative_pattern(closed: ClosedJaxpr, values: Sequence[Array | None]) -> tuple[Place, Rows]:
    """The pattern of the derivative of the only result of `closed`, by its last input, which is dense. `values` are its other inputs;
    None for dense ones that may have other values."""
    import scipy.sparse as sp

    lin = ad.linearized(closed, [False] * (len(closed.in_avals) - 1) + [True])
    (moved,) = lin.out_tangents
    outputs = (lin.outs[0] if moved is None else moved,)
    jaxpr = staging.clean(Jaxpr(lin.jaxpr.inputs, lin.jaxpr.consts, lin.jaxpr.eqns, outputs), keep=rules)
    shape = closed.in_avals[-1].shape
    operands = [Pattern.of(v) if v is not None else Pattern(Place(a.shape), None) for v, a in _pairs(closed, values)]
    operands.append(Pattern(Place(shape), sp.eye_array(math.prod(shape), dtype=bool, format="csr")))
    (made,) = propagate(ClosedJaxpr(jaxpr, lin.consts), operands)
    if made.rows is None:
        return made.place, sp.csr_array((len(made.place), math.prod(shape)), dtype=bool)
    return made.place, made.rows


def _pairs(closed: ClosedJaxpr, values: Sequence[Array | None]) -> list[tuple[Array | None, Aval]]:
    return list(zip([*values, None], closed.in_avals, strict=True))


def propagate(
    closed: ClosedJaxpr, operands: Sequence[Pattern], places: dict[Atom, Pattern] | None = None
) -> list[Pattern]:
    """The patterns of the results of a jaxpr, given those of its inputs; `places` are those that `stored` finds."""
    jaxpr = closed.jaxpr
    known = _known(closed, operands)
    places = stored(closed, operands) if places is None else places

    def of(atom: Atom) -> Pattern:
        return known.get(atom) or places.get(atom) or Pattern(Place(atom.aval.shape), None)

    for eqn in jaxpr.eqns:
        inputs = [of(a) for a in eqn.inputs]
        if all(p.rows is None for p in inputs):
            continue
        outs = [of(v) for v in eqn.outputs]
        rule = rules.get(eqn.primitive)
        if eqn.primitive in loops:
            made = loops[eqn.primitive](inputs, [p.place for p in outs], **eqn.param_dict)
        else:
            made = [(rule or everything)(inputs, p.place, **eqn.param_dict) for p in outs]
        for var, p, rows in zip(eqn.outputs, outs, made, strict=True):
            known[var] = Pattern(p.place, rows, p.value)
    return [of(a) for a in jaxpr.outputs]


def _known(closed: ClosedJaxpr, operands: Sequence[Pattern]) -> dict[Atom, Pattern]:
    consts = [Pattern.of(c) for c in closed.consts]
    return dict(zip((*closed.jaxpr.consts, *closed.jaxpr.inputs), (*consts, *operands), strict=True))


def stored(closed: ClosedJaxpr, operands: Sequence[Pattern]) -> dict[Atom, Pattern]:
    """What sparse values store, found by running what makes them; dense values that may change are ones there."""
    jaxpr, known = closed.jaxpr, _known(closed, operands)
    changing, unknown = _changing(jaxpr.eqns, known)
    wanted = [v for eqn in jaxpr.eqns for v in eqn.outputs if not v.aval.is_dense and v not in unknown]
    if not wanted:
        return {}
    eqns = tuple(eqn for eqn in jaxpr.eqns if any(not v.aval.is_dense or v not in changing for v in eqn.outputs))
    made = {v for eqn in eqns for v in eqn.outputs}
    cut = [v for eqn in jaxpr.eqns for v in eqn.outputs if v not in made]
    program = staging.dead_code(Jaxpr((*jaxpr.consts, *jaxpr.inputs, *cut), (), eqns, tuple(wanted)))
    inputs = tuple(itertools.compress(program.inputs, staging.reads(program)))
    values = [known[v].value if v in known else None for v in inputs]
    with eagerly():
        arrays = execute(
            ClosedJaxpr(Jaxpr(inputs, (), program.eqns, program.outputs), ()),
            [_ones(v.aval) if x is None else x for v, x in zip(inputs, values, strict=True)],
        )
    return {v: Pattern.of(x, v not in changing) for v, x in zip(wanted, arrays, strict=True)}


def _ones(aval: Aval) -> Array:
    dense = Format.parse("dense", aval.ndim)
    return Array(convert.convert(convert.from_dense(np.ones(aval.shape, aval.dtype), dense, 0), aval.format))


def _changing(eqns: Sequence[Eqn], known: dict[Atom, Pattern]) -> tuple[set[Atom], set[Atom]]:
    """Values that may change, and those of them that may store other entries: formats decide what is stored, but for indices, dense
    values that become sparse, and what loops and branches make."""
    changing = {v for v, p in known.items() if not p.exact}
    unknown = {v for v in changing if not v.aval.is_dense and known[v].value is None}
    for eqn in eqns:
        if any(a in changing for a in eqn.inputs):
            changing.update(eqn.outputs)
            decides = eqn.primitive in (select_p, positions_p, pairs_p) or eqn.primitive.bodies is not None
            made_sparse = eqn.primitive is convert_p and eqn.inputs[0].aval.is_dense
            if decides or made_sparse or any(a in unknown for a in eqn.inputs):
                unknown.update(eqn.outputs)
    return changing, unknown
