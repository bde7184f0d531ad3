"""Rows that arrays of integers name: gathered, and accumulated. What `x[index]`, `x.at[index].add(values)`, segments and embeddings are.

y[p,n] = x[K[p],n]        y[R[p],n] += v[p,n]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sparsejax.formats import Format
from sparsejax.jit.ir import operators
from sparsejax.lax.indirect.kernels import BOOL, Label, insum
from sparsejax.lax.indirect.statements import Apply, Expr, Number, Ref, Statement
from sparsejax.lax.structural import convert_format

VAR = "p"
BOOLEAN = {"add": "logical_or", "maximum": "logical_or", "multiply": "logical_and", "minimum": "logical_and"}
"""What accumulates booleans in place of other operators."""


def _index_arrays(indices: Mapping[int, Any]) -> list[Any]:
    return [convert_format(i, Format.parse("dense", 1)) for i in indices.values()]


def gathered(x: Any, indices: Mapping[int, Any], axes: Sequence[int] | None = None, drop: bool = False) -> Any:
    """A dense `x` at vectors of integers of one length, one for each of some dimensions, which one dimension replaces, at the place of the first.

    With `drop`, zeros where the only index is out of bounds, negative ones too; else IndexError, which calls dimension d `axes[d]`. O(result).
    """
    first, (length, *_) = min(indices), (i.shape[0] for i in indices.values())
    arrays = [x, *_index_arrays(indices)]
    numbers = {d: k for k, d in enumerate(indices, 1)}
    own = tuple(Ref(numbers[d], (VAR,)) if d in numbers else f"d{d}" for d in range(x.ndim))
    kept = [VAR if d == first else f"d{d}" for d in range(x.ndim) if d == first or d not in indices]
    extents = {VAR: length, **{f"d{d}": n for d, n in enumerate(x.shape) if d not in indices}}
    value: Expr = Ref(0, own)
    if drop:
        value = _inside(value, x.dtype, x.dtype.type(0), arrays[1].dtype, x.shape[first])
    names = [Label("", "", tuple(range(x.ndim) if axes is None else axes)), *(Label("") for _ in indices)]
    shape = tuple(extents[v] for v in kept)
    s = Statement("add", tuple(kept), shape, value, (), tuple(extents.items()), x.dtype, drop=drop)
    return insum(arrays, s, names, "the result")


def accumulated(op: str, values: Any, indices: Mapping[int, Any], shape: Sequence[int], drop: bool = False) -> Any:
    """The array of `shape` that holds what `op` makes of all dense `values` of a row, from its identity: their first dimension is in place of
    those of `indices`, vectors of integers. With `drop`, values are left out whose only index is out of bounds, or negative. O(values + result).
    """
    op = BOOLEAN[op] if values.dtype.kind == "b" else op
    arrays = [values, *_index_arrays(indices)]
    numbers = {d: k for k, d in enumerate(indices, 1)}
    target = tuple(Ref(numbers[d], (VAR,)) if d in numbers else f"d{d}" for d in range(len(shape)))
    rest = [f"d{d}" for d in range(len(shape)) if d not in indices]
    extents = dict(zip((VAR, *rest), values.shape, strict=True))
    value: Expr = Ref(0, (VAR, *rest))
    if drop:
        (axis,) = indices
        nothing = operators.get(op).identity(values.dtype)
        value = _inside(value, values.dtype, values.dtype.type(nothing), arrays[1].dtype, shape[axis])
    names = [Label(""), *(Label("") for _ in indices)]
    s = Statement(op, target, tuple(shape), value, (), tuple(extents.items()), values.dtype, drop=drop)
    return insum(arrays, s, names, "the result")


def _inside(value: Expr, dtype: Any, nothing: Any, of: Any, extent: int) -> Expr:
    """A value where the index is within bounds, else `nothing`."""
    index = Apply("cast", (Ref(1, (VAR,)),), np.dtype(np.int64)) if of != np.int64 else Ref(1, (VAR,))
    above = Apply("greater_equal", (index, Number(np.int64(0), np.dtype(np.int64))), BOOL)
    below = Apply("less", (index, Number(np.int64(extent), np.dtype(np.int64))), BOOL)
    return Apply("where", (Apply("logical_and", (above, below), BOOL), value, Number(nothing, dtype)), dtype)
