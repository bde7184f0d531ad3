"""`associative_scan`: all prefixes of an associative operation, in log2(n) rounds of operations on whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparsejax import tree_util
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import span
from sparsejax.lax.indexing import concatenate, window
from sparsejax.lax.structural import convert_format, normal_axis


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """The results of combining all elements along `axis` up to and including each, by an associative function `fn(a, b)` of trees of
    arrays, as `jax.lax.associative_scan`. Dense. O(n log n) work in log2(n) rounds (Hillis and Steele, 1986). Under `jit` a trace serves all extents
    that take as many rounds.

    >>> import numpy as np
    >>> associative_scan(lambda a, b: a * b, np.array([1.0, 2.0, 3.0]))
    Array([1., 2., 6.], dtype=float64)

    Raises ValueError where leaves have different extents along `axis`.
    """
    leaves, tree = tree_util.tree_flatten(elems)
    values = [convert_format(asarray(x, "elems of associative_scan"), "dense") for x in leaves]
    places = [normal_axis(axis, x.ndim) for x in values]
    extents = {x.shape[a] for x, a in zip(values, places, strict=True)}
    if len(extents) > 1:
        raise ValueError(f"elems of associative_scan must agree along axis {axis}, but have extents {sorted(extents)}")
    n = extents.pop() if extents else 0
    step = 1
    while step < n:
        first = [_part(x, a, span(0, n - step) if not reverse else span(step, n)) for x, a in zip(values, places)]
        second = [_part(x, a, span(step, n) if not reverse else span(0, n - step)) for x, a in zip(values, places)]
        joined = tree_util.tree_leaves(
            fn(tree_util.tree_unflatten(tree, first), tree_util.tree_unflatten(tree, second))
        )
        kept = [_part(x, a, span(0, step) if not reverse else span(n - step, n)) for x, a in zip(values, places)]
        values = [_beside(k, j, a, reverse) for k, j, a in zip(kept, joined, places)]
        step *= 2
    return tree_util.tree_unflatten(tree, values)


def _part(x: Any, axis: int, chosen: Any) -> Any:
    return window(x, [chosen if d == axis else span(0, m) for d, m in enumerate(x.shape)])


def _beside(kept: Any, joined: Any, axis: int, reverse: bool) -> Any:
    parts: Sequence[Any] = [joined, kept] if reverse else [kept, joined]
    return concatenate(parts, axis)
