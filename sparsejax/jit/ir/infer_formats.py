"""The format and fill of a result, from types alone.

Users can predict a result's format without knowing any number of stored entries:

1. Fill. Without a reduction: the value of the expression where every sparse operand reads its fill, when that is a
   constant; with a reduction: the identity of its operator. `A + 1` has fill 1, `A * s` has fill 0.
2. Level algebra. A level of the result is sparse when the expression falls back to the fill once the operands that
   hold few of its coordinates, for fixed outer coordinates of the result, are absent: products are sparse when any
   factor is, sums when every term is. Without a reduction it keeps the type that the operands' levels agree on (coordinate,
   bitmap, ELL, …), else it is compressed.
3. Fill-in. In a reduction, an operand does not hold few coordinates where they lie below a reduced variable that runs
   over its whole extent: `A @ x` of a CSC matrix is dense, `A @ B` of two sparse matrices is sparse, `A.sum(axis=0)` is
   dense. The outermost level of an operand becomes dense too (most rows of a matrix are not empty) up to extent 2^24, but
   that of a mask stays sparse. A complemented mask restricts nothing. Beyond 2^24 fill-in makes no level dense either: there a
   level is sparse when the expression falls back to the fill without the operands whose own level of that variable is sparse.
4. Blocks. A result keeps the blocks of its operands where all sparse ones that share an index store it in blocks of the same
   size; the rules above then decide every level. Otherwise the result has no blocks: rules 1 to 5 see operands without them.
5. Order. Modes keep the storage order of the sparse operands where these agree, else the order of dimensions.
   A dense result is stored in the order of its dimensions.
"""

from __future__ import annotations

import graphlib
import itertools
from typing import Any

import numpy as np

from sparsejax.cached import Recent
from sparsejax.formats import Compressed, Dense, Format, Level
from sparsejax.jit.ir import blocks, cin, operators, simplify

DENSE_ROOT_LIMIT = 1 << 24
remembered: Recent[Any, Any] = Recent(4096)
"""The latest types of results, by what they follow from (`lax/typing_rules`): a program repeats them, and so do its derivatives."""


def infer(definition: cin.Definition, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[Format, Any]:
    """Format and fill of `out[definition.indices]`, an array of `shape` and `dtype`.

    >>> import numpy as np
    >>> A = cin.Tensor("A", (4, 5), np.dtype("f8"), Format.parse("csr", 2), np.float64(0))
    >>> i, j = cin.IndexVar("i"), cin.IndexVar("j")
    >>> out = cin.Definition((i, j), None, cin.Call("exp", (cin.Access(A, (i, j)),), A.dtype))
    >>> infer(out, (4, 5), A.dtype)
    (Format('csr'), np.float64(1.0))
    """
    plain = blocks.split_definition(definition, shape)
    form, fill, _ = _infer(plain.definition, plain.shape, dtype)
    return plain.joined(form), fill


def reasons(definition: cin.Definition, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Why `infer` gives the result its fill, and each storage level its type: one sentence each.

    >>> import numpy as np
    >>> A = cin.Tensor("A", (4, 5), np.dtype("f8"), Format.parse("csr", 2), np.float64(0))
    >>> i, j = cin.IndexVar("i"), cin.IndexVar("j")
    >>> out = cin.Definition((i, j), None, cin.Call("exp", (cin.Access(A, (i, j)),), A.dtype))
    >>> print("; ".join(reasons(out, (4, 5), A.dtype)))
    fill 1.0: the value where every sparse operand reads its fill; i is dense: no operand restricts it; \
j is compressed: without A it falls back to the fill
    """
    definition, shape = (plain := blocks.split_definition(definition, shape)).definition, plain.shape
    form, fill, rules = _infer(definition, shape, dtype)
    made = []
    if not form.is_dense:
        why = (
            f"the identity of {definition.op}"
            if definition.op
            else "the value where every sparse operand reads its fill"
        )
        made = [f"fill {fill}: {why}"]
    for axis, level, (rule, owners) in zip(form.order, form.levels, rules, strict=True):
        name = str(definition.indices[axis])
        kind = type(level).__name__.lower()
        made.append(f"{name} is {kind}: {rule.format(names=' and '.join(sorted({a.tensor.name for a in owners})))}")
    return tuple(made)


Rule = tuple[str, tuple[cin.Access, ...]]
_UNRESTRICTED = "no operand restricts it"
_REMAINS = "without {names} something other than the fill remains"
_FALLS_BACK = "without {names} it falls back to the fill"
_ROOT = "{names} is stored by it first, and most of its coordinates are expected to be present"
_WIDE_ROOT = f"{{names}} is stored by it first, and its extent is above {DENSE_ROOT_LIMIT}"
_NO_FILL = "where the sparse operands read their fill, the value is not one constant"
_ALL_DENSE = "every operand is dense"


def _infer(
    definition: cin.Definition, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[Format, Any, tuple[Rule, ...]]:
    """Format, fill, and the rule behind every level with the operands that it names."""
    rhs = simplify.simplify(definition.rhs)
    # operands that simplification removed still lend their format: A * 0 is an empty csr, not a dense array of zeros
    sparse = tuple(dict.fromkeys(a for a in cin.accesses(definition.rhs) if not a.tensor.format.is_dense))
    fill = _fill(definition, rhs, sparse, dtype)
    masks = _masks(definition.rhs)
    masks_out = False in masks.values()
    sparse = tuple(a for a in sparse if masks.get(a) is not False)
    order = _mode_order(definition, sparse)
    kinds: list[Any] = []
    rules: list[Rule] = []
    for level, axis in enumerate(order):
        index = definition.indices[axis]
        outer = {definition.indices[d] for d in order[:level]}
        few = _few(outer, sparse, rhs, fill)
        owners = tuple(a for a in sparse if _restricts(a, index, few))
        if shape[axis] > DENSE_ROOT_LIMIT and not _falls_back(rhs, owners, fill):
            owners = tuple(a for a in sparse if index in a.indices and not _level_of(a, index).full)
        if not _falls_back(rhs, owners, fill):
            kinds.append(Dense())
            why = _NO_FILL if fill is None else _REMAINS if owners else _UNRESTRICTED
            rules.append((why if sparse else _ALL_DENSE, owners))
        elif definition.op is None:
            kept = _kept([_level_of(a, index) for a in owners], level, len(order))
            above = (definition.indices[order[level - 1]], kinds[-1]) if level else None
            exact = not kept.fills or (not masks_out and _represents(kept, owners, index, above, rhs, fill))
            kinds.append(kept if exact else Compressed())
            rules.append((_FALLS_BACK, owners))
        else:
            roots = tuple(a for a in owners if _is_root(a, index, few))
            masked = any(masks.get(a) for a in roots)
            dense = bool(roots) and shape[axis] <= DENSE_ROOT_LIMIT and not masked
            kinds.append(Dense() if dense else Compressed())
            rules.append(
                (_ROOT, roots) if dense else (_WIDE_ROOT, roots) if roots and not masked else (_FALLS_BACK, owners)
            )
    zero = dtype.type(0)
    if all(k.full for k in kinds):
        by_axis = [rule for _, rule in sorted(zip(order, rules, strict=True), key=lambda item: item[0])]
        return Format(tuple(kinds), None), zero, tuple(by_axis)
    return Format(tuple(kinds), order), zero if fill is None else fill, tuple(rules)


def _falls_back(rhs: cin.Expr, owners: tuple[cin.Access, ...], fill: Any) -> bool:
    """Whether nothing but the fill is left of `rhs` without `owners`."""
    return bool(owners) and fill is not None and _is(simplify.exhaust(rhs, owners), fill)


def _kept(levels: list[Level], number: int, count: int) -> Level:
    """The level that operands agree on, where it may stand at level `number` of `count`; else a compressed one."""
    first = levels[0]
    agreed = all(level == first for level in levels) and first.kept
    stands = not (first.relative and number == 0) and not (first.shared and number + 1 < count)
    return first if agreed and stands else Compressed()


def _represents(
    kept: Level,
    owners: tuple[cin.Access, ...],
    index: cin.Index,
    above: tuple[cin.Index, Level] | None,
    rhs: cin.Expr,
    fill: Any,
) -> bool:
    """Whether a level that fills gaps has none to fill here, so that the result has the entries of the expression, and those only: bands of
    one operand or common to all, and diagonals of all rows, below the index that they are relative to."""
    if kept.relative and any(_above(a, index) != (above and above[0]) for a in owners):
        return False
    if all(_falls_back(rhs, (a,), fill) for a in owners):
        return True
    whole = above is not None and all(a.tensor.format.levels[_level_number(a, index) - 1].full for a in owners)
    return kept.relative and whole


def _above(access: cin.Access, index: cin.Index) -> cin.Index | None:
    """The index of the level above that of `index`."""
    number = _level_number(access, index)
    return access.level_index(number - 1) if number else None


def _fill(definition: cin.Definition, rhs: cin.Expr, sparse: tuple[cin.Access, ...], dtype: np.dtype[Any]) -> Any:
    if definition.op is not None:
        return operators.get(definition.op).identity(dtype)
    value = simplify.exhaust(rhs, sparse)
    return dtype.type(value.value) if isinstance(value, cin.Literal) else None


def _masks(expr: cin.Expr) -> dict[cin.Access, bool]:
    """The sparse masks around the whole of `expr`: True for one that the result's entries are among, False for a complement."""
    match expr:
        case cin.Call("masked", (cin.Call("stored", (cin.Access() as mask,), _), _, _), _):
            return {mask: True}
        case cin.Call(
            "masked", (cin.Call("logical_not", (cin.Call("stored", (cin.Access() as mask,), _),), _), inner, _), _
        ):
            return {} if mask in set(cin.accesses(inner)) else {mask: False}
        case _:
            return {}


def _is(expr: cin.Expr, value: Any) -> bool:
    return isinstance(expr, cin.Literal) and cin.same_value(expr.value, value)


def _level_number(access: cin.Access, index: cin.Index) -> int:
    return next(lv for lv in range(len(access.indices)) if access.level_index(lv) == index)


def _level_of(access: cin.Access, index: cin.Index) -> Level:
    """The outermost level of `access` that `index` addresses."""
    return access.tensor.format.levels[_level_number(access, index)]


def _is_root(access: cin.Access, index: cin.Index, few: set[cin.Index]) -> bool:
    """Whether `index` addresses the outermost level of `access`, a sparse one, and nothing below restricts it either."""
    level = _level_number(access, index)
    if access.tensor.format.levels[level].full:
        return False
    if any(cin.variables_of(access.level_index(lv)) for lv in range(level)):
        return False
    below = range(level + 1, len(access.indices))
    return not any(access.level_index(lv) in few and not access.tensor.format.levels[lv].full for lv in below)


def _restricts(access: cin.Access, index: cin.Index, few: set[cin.Index]) -> bool:
    """Whether `access` holds few coordinates of `index`.

    Within reach are `index`, and the variables of which `few` coordinates remain. `access` restricts `index` when a
    sparse level at or below that of `index` belongs to a variable within reach, and so does every level above it: in
    `A[i,k] B[k,j]` with i fixed, few k remain, and B restricts j whether it is stored by k or by j.
    """
    if index not in access.indices:
        return False
    reach = few | {index}
    for level in range(_level_number(access, index), len(access.indices)):
        if access.tensor.format.levels[level].full or access.level_index(level) not in reach:
            continue
        above = {access.level_index(lv) for lv in range(level)}
        if all(cin.known(ix, reach) for ix in above):
            return True
    return False


def _few(outer: set[cin.Index], sparse: tuple[cin.Access, ...], rhs: cin.Expr, fill: Any) -> set[cin.Index]:
    """The output variables `outer`, where there are any, and those of which few coordinates remain once these are fixed.

    A variable joins when the expression falls back to the fill without operands that hold it together with a member, the deeper of the two
    being a sparse level, and no dense level of a variable that is not a member between them: in `A[i,j] B[j,k] C[k,l]` with i fixed,
    first j, then k. In `A[i,j,k]` with only k sparse and i fixed, every j remains, and so does every k. In `(A[i,j] + 1) B[j,k]` every
    j remains.
    """
    known = set(outer)
    grown = bool(outer)
    while grown:
        grown = False
        for index in dict.fromkeys(v for a in sparse for v in cin.followed(a.indices)):
            if index not in known and _falls_back(rhs, tuple(a for a in sparse if _leaves_few(a, index, known)), fill):
                known.add(index)
                grown = True
    return known


def _leaves_few(access: cin.Access, index: cin.IndexVar, known: set[cin.Index]) -> bool:
    """Whether `access` holds few coordinates of `index` for every coordinate of some `known` variable: the deeper of the two levels is
    sparse, and dense levels between them belong to known variables."""
    if index not in access.indices:
        return False
    levels, own = access.tensor.format.levels, _level_number(access, index)
    for other in (_level_number(access, ix) for ix in access.indices if ix in known):
        upper, lower = min(own, other), max(own, other)
        between = range(upper + 1, lower)
        if not levels[lower].full and all(access.level_index(lv) in known or not levels[lv].full for lv in between):
            return True
    return False


def _mode_order(definition: cin.Definition, sparse: tuple[cin.Access, ...]) -> tuple[int, ...]:
    """Output dimensions in storage order: a topological order of the operands' storage orders, operands that would
    close a cycle being left out, ties broken by dimension number."""
    parts = cin.followed(definition.indices)
    after: dict[cin.Index, set[cin.Index]] = {ix: {ix.outer} for ix in parts if ix.outer is not None}
    for access in sparse:
        chain = dict.fromkeys(cin.followed(map(access.level_index, range(len(access.indices)))))
        trial = {k: set(v) for k, v in after.items()}
        for outer, inner in itertools.pairwise(chain):
            trial.setdefault(inner, set()).add(outer)
            trial.setdefault(outer, set())
        try:
            graphlib.TopologicalSorter(trial).prepare()
        except graphlib.CycleError:
            continue
        after = trial
    waiting = {ix: set(after.get(ix, ())) for ix in (*definition.indices, *after)}
    order: list[int] = []
    while waiting:
        free = [ix for ix, before in waiting.items() if not before & waiting.keys()]
        chosen = free[0]
        del waiting[chosen]
        if chosen in definition.indices:
            order.append(definition.indices.index(chosen))
    return tuple(order)
