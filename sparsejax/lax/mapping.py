"""`map`: a function of every slice along the first axis, one after the other or in blocks.

    map f xs, batch_size=b        scan (vmap f) over xs[: n // b * b] as (n // b, b, ...);   vmap f of the n % b slices that are left

A block is a batch (`batching`): what is computed of it is planned as one program, and no more than that is there at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparsejax import tree_util
from sparsejax.core.batching import Batched
from sparsejax.formats import Format
from sparsejax.formats.parts import stacking
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.loops import check_callable, leaves_of, scan, sliced_aval
from sparsejax.lax.rules.batching import batch_jaxpr, moved, spread
from sparsejax.lax.structural import convert_format, integer, reshape
from sparsejax.transforms import staging


def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """`f` of every slice of `xs`, a pytree, along the first axis, stacked: a `scan` without a carry.

    With `batch_size`, blocks of so many slices are computed at a time, as by `vmap`: faster, for the memory of a block. The largest
    entries of a product, of which only eight rows are ever stored:

    >>> import sparsejax as sj, numpy as np
    >>> A, B = sj.array(np.eye(20), format="csr"), sj.array(np.arange(60.0).reshape(3, 20).T)
    >>> values, places = map(lambda row: sj.lax.top_k(row @ B, 2), A, batch_size=8)
    >>> values.shape, places[19]
    ((20, 2), Array([2, 1], dtype=int32))
    """
    check_callable(f, "f of map")
    if batch_size is None:
        return scan(lambda _, x: ((), f(x)), (), xs)[1]
    size = integer(batch_size, "batch_size")
    if size < 1:
        raise ValueError(f"batch_size={size} of map must be positive")
    leaves, tree = leaves_of(xs, "xs of map")
    if not leaves or any(x.ndim == 0 or x.shape[0] != leaves[0].shape[0] for x in leaves):
        shapes = [x.shape for x in leaves]
        raise ValueError(f"xs of map must be arrays of one extent along the first axis, got shapes {shapes}")
    leaves = [convert_format(x, stacking.stacked(stacking.slices(x.format))) for x in leaves]
    count = leaves[0].shape[0]
    even = count // size * size
    parts: list[Any] = []
    forms: list[Format] = []

    def block(part: Sequence[Any]) -> Any:
        part = [convert_format(x, whole.format) for x, whole in zip(part, leaves, strict=True)]
        made, forms[:] = _block(f, tree, part)
        return made

    if even or not count:
        blocks = [reshape(x[:even], (even // size, size, *x.shape[1:])) for x in leaves]
        ys = scan(lambda _, part: ((), block(part)), (), blocks)[1]
        parts.append(tree_util.tree_map(lambda y: reshape(y, (even, *y.shape[2:])), ys))
    if even < count:
        parts.append(block([x[even:] for x in leaves]))
    joined = parts[0] if len(parts) == 1 else tree_util.tree_map(lambda *ys: concatenate(ys), *parts)
    results, out_tree = tree_util.tree_flatten(joined)
    return tree_util.tree_unflatten(out_tree, [convert_format(y, form) for y, form in zip(results, forms, strict=True)])


def _block(f: Callable[[Any], Any], tree: tree_util.PyTreeDef, block: Sequence[Any]) -> tuple[Any, list[Format]]:
    """`f` of every slice of the arrays of a block, stacked, and the formats in which `scan` would stack all of them."""
    trees: list[tree_util.PyTreeDef] = []

    def flat(*elements: Any) -> list[Any]:
        outs, out_tree = leaves_of(f(tree_util.tree_unflatten(tree, elements)), "what f of map returns")
        trees[:] = [out_tree]
        return outs

    avals = [sliced_aval(x.aval) for x in block]
    closed = staging.trace_to_jaxpr(flat, avals)
    operands = [Batched(moved(x, 0, x.ndim - 1), aval) for x, aval in zip(block, avals, strict=True)]
    size = block[0].shape[0]
    made = [spread(x, size) for x in batch_jaxpr(closed, size, operands)]
    forms = [stacking.stacked(x.aval.format) for x in closed.jaxpr.outputs]
    return tree_util.tree_unflatten(trees[0], [moved(x, x.ndim - 1, 0) for x in made]), forms
