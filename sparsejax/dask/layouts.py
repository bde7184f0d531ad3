"""Which axes of an operation's operands and results are cut together: its sharding rule.

    Rule(operands, outputs, reduces, op)     every axis has the number of a variable, or None: it must be whole in every block

Blocks of the results are the operation on blocks of the operands: those in which every variable is in the same part. A variable that no result has
is reduced: where it is cut, blocks are partial results, put together by `op`. An operation with index notation says so itself (`derived`); others have
a line in the table below; what has neither runs on whole operands.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn
from sparsejax.core.primitive import Primitive
from sparsejax.jit.ir import cin
from sparsejax.lax import indexing, linear, sorting, structural
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import contract_p
from sparsejax.lax.elementwise import cast_p, primitives, unary_p, where_p
from sparsejax.lax.indirect import statements
from sparsejax.lax.indirect.index_arrays import checked_p, pairs_p, positions_p
from sparsejax.lax.indirect.kernels import indirect_p
from sparsejax.lax.indirect.statements import Statement
from sparsejax.lax.library import searching
from sparsejax.lax.library.cumulative import cumulative_p
from sparsejax.lax.library.solves import solve_p
from sparsejax.lax.library.special import special_p
from sparsejax.lax.reduce import reduce_p
from sparsejax.lax.thinning import thin_p
from sparsejax.lax.top_k import take_along_last_p, top_k_indices_p
from sparsejax.lax.window_places import window_places_p

Axes = tuple[int | None, ...]


@dataclass(frozen=True)
class Rule:
    """See above. `sized`: the parameter `shape` is the shape of the result, or (`by_operand`) `ranges` has one for every axis of the operand."""

    operands: tuple[Axes, ...]
    outputs: tuple[Axes, ...]
    op: str | None = None
    sized: bool = False
    by_operand: bool = False

    @property
    def kept(self) -> frozenset[int]:
        """The variables of the results."""
        return frozenset(v for axes in self.outputs for v in axes if v is not None)

    @property
    def resized(self) -> Axes:
        """The axes whose extents are parameters."""
        return self.operands[0] if self.by_operand else self.outputs[0]

    @property
    def variables(self) -> tuple[int, ...]:
        """All variables, those of results first."""
        found = [v for axes in (*self.outputs, *self.operands) for v in axes if v is not None]
        return tuple(dict.fromkeys(found))


NOTED = (*primitives.values(), cast_p, where_p, unary_p, contract_p, reduce_p, linear.sample_p)
"""Operations that mean on blocks what their index notation says."""
SIZED = (structural.broadcast_p, structural.unit_axes_p)
"""The same with the shape of the result as a parameter."""

RELAYOUTS = (*SIZED, structural.transpose_p, structural.expand_p, structural.squeeze_p)
"""Operations that cost less than to keep or send their result: of one operand, and no work per entry."""
ENTRYWISE = frozenset((*primitives.values(), cast_p, unary_p))
"""Operations that make an entry of the result of the entry of each operand."""


def rule_of(eqn: Eqn) -> Rule | None:
    """The rule of an equation; None where it runs on whole operands."""
    params = eqn.param_dict
    made = _table().get(eqn.primitive)
    avals = [a.aval for a in eqn.inputs]
    if made is not None:
        return made(avals, [v.aval for v in eqn.outputs], **params)
    if eqn.primitive in NOTED or eqn.primitive in SIZED:
        return derived(eqn.primitive, avals, params)
    return None


def derived(primitive: Primitive, avals: Sequence[Aval], params: dict[str, Any]) -> Rule | None:
    """The rule that index notation gives: an axis has the variable of its index; None where one is no variable.

    >>> import numpy as np
    >>> from sparsejax.formats import Format
    >>> A, x = (Aval((5,) * n, np.dtype("f8"), Format.parse("dense", n)) for n in (2, 1))
    >>> derived(contract_p, (A, x), {"inputs": ((0, 1), (1,)), "output": (0,), "dtype": A.dtype, "out_format": None})
    Rule(operands=((0, 1), (1,)), outputs=((0,),), op='add', sized=False, by_operand=False)
    """
    assert primitive.notation is not None
    operands = rules.operands_of(avals)
    definition: cin.Definition = primitive.notation(*operands, **params)
    found: dict[str, tuple[cin.Index, ...]] = {}
    for access in cin.accesses(definition.rhs):
        if found.setdefault(access.tensor.name, access.indices) != access.indices or access.computed:
            return None
    numbers: dict[cin.Index, int] = {}

    def axes(indices: Sequence[cin.Index]) -> Axes | None:
        made: list[int | None] = []
        for index in indices:
            if cin.are_variables([index]):
                made.append(numbers.setdefault(index, len(numbers)))
            elif cin.fixed(index) is not None:
                made.append(None)
            else:
                return None
        return tuple(made) if len({v for v in made if v is not None}) == sum(v is not None for v in made) else None

    out = axes(definition.indices)
    own = [() if isinstance(o, cin.Literal) else axes(found.get(o.name, (0,) * len(o.shape))) for o in operands]
    if out is None or any(a is None for a in own):
        return None
    return Rule(tuple(a for a in own if a is not None), (out,), definition.op, primitive in SIZED)


# ------------------------------------------------------------------------------- operations without index notation


def _same(avals: Sequence[Aval], outs: Sequence[Aval], **params: Any) -> Rule:
    """Operands and results of one shape, each entry by itself."""
    axes = tuple(range(outs[0].ndim))
    return Rule(tuple(axes if a.ndim else () for a in avals), tuple(axes for _ in outs))


def _transpose(avals: Sequence[Aval], outs: Sequence[Aval], axes: tuple[int, ...]) -> Rule:
    return Rule((tuple(range(avals[0].ndim)),), (tuple(axes),))


def _expand(avals: Sequence[Aval], outs: Sequence[Aval], axis: int) -> Rule:
    own = list(range(avals[0].ndim))
    return Rule((tuple(own),), ((*own[:axis], None, *own[axis:]),))


def _squeeze(avals: Sequence[Aval], outs: Sequence[Aval], axis: int) -> Rule:
    own = [None if d == axis else d for d in range(avals[0].ndim)]
    return Rule((tuple(own),), (tuple(v for d, v in enumerate(own) if d != axis),))


def _reshape(avals: Sequence[Aval], outs: Sequence[Aval], shape: tuple[int, ...], format: Any) -> Rule | None:
    """Leading dimensions that stay."""
    before, after = avals[0].shape, outs[0].shape
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    if not same:
        return None
    lead = tuple(range(same))
    return Rule(((*lead, *[None] * (len(before) - same)),), ((*lead, *[None] * (len(after) - same)),), None, True)


def _along(name: str) -> Callable[..., Rule]:
    """Operations along one axis, which must be whole."""

    def rule(avals: Sequence[Aval], outs: Sequence[Aval], **params: Any) -> Rule:
        axis = params[name] % outs[0].ndim
        axes = tuple(None if d == axis else d for d in range(outs[0].ndim))
        return Rule(tuple(axes if a.ndim == len(axes) else (None,) * a.ndim for a in avals), tuple(axes for _ in outs))

    return rule


def _first_absent(avals: Sequence[Aval], outs: Sequence[Aval], axis: int) -> Rule:
    axes = tuple(None if d == axis else d for d in range(avals[0].ndim))
    return Rule((axes,), (tuple(v for d, v in enumerate(axes) if d != axis),))


def _window(avals: Sequence[Aval], outs: Sequence[Aval], ranges: tuple[range, ...], axes: tuple[int, ...]) -> Rule:
    own = [
        d if d not in axes and r == range(n) else None
        for d, (r, n) in enumerate(zip(ranges, avals[0].shape, strict=True))
    ]
    return Rule((tuple(own),), (tuple(v for d, v in enumerate(own) if d not in axes),), None, True, True)


def _window_places(
    avals: Sequence[Aval], outs: Sequence[Aval], ranges: tuple[range, ...], axes: tuple[int, ...]
) -> Rule:
    """That of a window, whose result is an operand."""
    rule = _window(avals[:1], (), ranges, axes)
    return Rule((*rule.operands, *rule.outputs), rule.operands, None, True, True)


def _pad(
    avals: Sequence[Aval], outs: Sequence[Aval], shape: tuple[int, ...], places: tuple[indexing.Place, ...]
) -> Rule:
    own = [d if all(place[d] is None for place in places) else None for d in range(outs[0].ndim)]
    kept = [[r is None or isinstance(r, range) for r in place] for place in places]
    return Rule(tuple(tuple(itertools.compress(own, k)) for k in kept), (tuple(own),), None, True)


def _select(avals: Sequence[Aval], outs: Sequence[Aval], **params: Any) -> Rule:
    axes = tuple(range(avals[0].ndim))
    return Rule((axes,), ((*axes, None),))


def _pairs(avals: Sequence[Aval], outs: Sequence[Aval], **params: Any) -> Rule:
    """Entries of two index arrays, cut alike."""
    return Rule(((0,), (0,)), ((None, None, 0),))


def _checked(avals: Sequence[Aval], outs: Sequence[Aval], **params: Any) -> Rule | None:
    """An index array whose entries are read one by one, whatever others hold."""
    return _same(avals, outs) if len(avals) == 1 and all(isinstance(ix, str) for ix in params["ref"].indices) else None


def _indirect(avals: Sequence[Aval], outs: Sequence[Aval], statement: Statement) -> Rule:
    """The variables that stand at the same axes of an operand wherever it is read; axes with other indices are whole."""
    refs = statements.every(statement)
    named: list[list[set[statements.Index]]] = [[set() for _ in a.shape] for a in avals]
    for ref in refs:
        for indices, ix in zip(named[ref.array], ref.indices, strict=True):
            indices.add(ix)
    axes = [[next(iter(ixs)) if len(ixs) == 1 else None for ixs in own] for own in named]
    twice = [{ix for ix in own if own.count(ix) > 1} for own in axes]
    cut = {ix for own in axes for ix in own if isinstance(ix, str)}
    cut -= {ix for ixs in named for own in ixs if len(own) > 1 for ix in own}
    cut -= {ix for own in twice for ix in own}
    cut -= {ix for ix in statement.target if statement.target.count(ix) > 1}
    numbers = {ix: k for k, ix in enumerate(v for v in statement.variables if v in cut)}
    operands = tuple(tuple(numbers.get(ix) if isinstance(ix, str) else None for ix in own) for own in axes)
    out = tuple(numbers.get(ix) if isinstance(ix, str) else None for ix in statement.target)
    return Rule(operands, (out,), None if statement.each_once() else statement.op)


def _last(avals: Sequence[Aval], outs: Sequence[Aval], **params: Any) -> Rule:
    axes = (*range(avals[0].ndim - 1), None)
    return Rule((axes,), tuple(axes for _ in outs))


def _last_of_all(avals: Sequence[Aval], outs: Sequence[Aval]) -> Rule:
    axes = (*range(avals[0].ndim - 1), None)
    return Rule(tuple(axes for _ in avals), (axes,))


def _entries(avals: Sequence[Aval], outs: Sequence[Aval]) -> Rule:
    return Rule((tuple(range(avals[0].ndim)),), ((),), "add")


def _broadcast(avals: Sequence[Aval], outs: Sequence[Aval], **params: Any) -> Rule:
    """Operands that are broadcast to the shape of the result, each entry by itself."""
    shape = outs[0].shape
    made = []
    for a in avals:
        first = len(shape) - a.ndim
        made.append(tuple(first + d if n == shape[first + d] else None for d, n in enumerate(a.shape)))
    return Rule(tuple(made), (tuple(range(len(shape))),))


def _isin(avals: Sequence[Aval], outs: Sequence[Aval]) -> Rule | None:
    x, test = avals
    axes = tuple(range(x.ndim))
    return Rule((axes, (None,)), (axes,)) if test.ndim == 1 else None


def _searchsorted(avals: Sequence[Aval], outs: Sequence[Aval], side: str = "left") -> Rule | None:
    a, v = avals
    axes = tuple(range(v.ndim))
    return Rule(((None,), axes), (axes,)) if a.ndim == 1 else None


def _histogram(avals: Sequence[Aval], outs: Sequence[Aval], leading: int) -> Rule:
    """Counts of every line of the leading axes; those of parts of a line are added."""
    x, edges = avals
    axes = tuple(range(x.ndim))
    own = tuple(d if edges.ndim > 1 and n == x.shape[d] else None for d, n in enumerate(edges.shape[:-1]))
    return Rule((axes, (*own, None)), ((*axes[:leading], None),), "add")


def _solve(avals: Sequence[Aval], outs: Sequence[Aval], structure: str) -> Rule:
    """Every right-hand side by itself, with the whole matrix; stacks of matrices with theirs."""
    a, b = avals
    lead = tuple(d if a.ndim == b.ndim and a.shape[d] == b.shape[d] else None for d in range(b.ndim - 2))
    axes = (*lead, None, b.ndim - 1)
    return Rule(((*(lead if a.ndim == b.ndim else (None,) * (a.ndim - 2)), None, None), axes), (axes,))


@functools.cache
def _table() -> dict[Primitive, Callable[..., Rule | None]]:
    table: dict[Primitive, Callable[..., Rule | None]] = {
        structural.transpose_p: _transpose,
        structural.expand_p: _expand,
        structural.squeeze_p: _squeeze,
        structural.reshape_p: _reshape,
        structural.entries_p: _entries,
        sorting.cumsum_p: _along("axis"),
        sorting.sort_p: _along("axis"),
        sorting.argsort_p: _along("axis"),
        sorting.places_p: _along("axis"),
        sorting.first_absent_p: _first_absent,
        cumulative_p: _along("axis"),
        indexing.concatenate_p: _along("axis"),
        indexing.window_p: _window,
        window_places_p: _window_places,
        indexing.pad_p: _pad,
        indexing.select_p: _select,
        checked_p: _checked,
        positions_p: _select,
        pairs_p: _pairs,
        indirect_p: _indirect,
        top_k_indices_p: _last,
        take_along_last_p: _last_of_all,
        special_p: _broadcast,
        searching.isin_p: _isin,
        searching.searchsorted_p: _searchsorted,
        searching.look_up_p: _searchsorted,
        searching.histogram_p: _histogram,
        solve_p: _solve,
    }
    alike = (structural.convert_p, structural.refill_p, structural.pattern_p, linear.share_p, linear.zeros_p, thin_p)
    return table | dict.fromkeys(alike, _same)
