"""`sparsejax.tree`: functions of nested containers, by the names of `jax.tree`; see `sparsejax.tree_util`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sparsejax import tree_util
from sparsejax.tree_util import tree_all as all
from sparsejax.tree_util import tree_flatten as flatten
from sparsejax.tree_util import tree_leaves as leaves
from sparsejax.tree_util import tree_map as map
from sparsejax.tree_util import tree_structure as structure
from sparsejax.tree_util import tree_unflatten as unflatten

__all__ = ["all", "flatten", "leaves", "leaves_with_path", "map", "reduce", "structure", "transpose", "unflatten"]


def __dir__() -> list[str]:
    return __all__


_MISSING: Any = object()


def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _MISSING,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """`functools.reduce` over the leaves.

    >>> reduce(lambda x, y: x + y, {"a": 1, "b": (2, 3)})
    6
    """
    found = leaves(tree, is_leaf)
    return (
        functools.reduce(function, found) if initializer is _MISSING else functools.reduce(function, found, initializer)
    )


def leaves_with_path(tree: Any) -> list[tuple[str, Any]]:
    """The leaves with where they are.

    >>> leaves_with_path({"a": (5,)})
    [("['a'][0]", 5)]
    """
    return list(tree_util.leaves_with_paths(tree))


def transpose(outer_treedef: Any, inner_treedef: Any, tree: Any) -> Any:
    """A tree of trees with the outer structure inside.

    >>> transpose(structure([0, 0]), structure({"a": 0}), [{"a": 1}, {"a": 2}])
    {'a': [1, 2]}
    """
    flat = leaves(tree)
    inner, outer = inner_treedef.num_leaves, outer_treedef.num_leaves
    if len(flat) != inner * outer:
        raise ValueError(f"the tree has {len(flat)} leaves, but {outer} times {inner} are needed")
    columns = [unflatten(outer_treedef, flat[k::inner]) for k in range(inner)]
    return unflatten(inner_treedef, columns)
