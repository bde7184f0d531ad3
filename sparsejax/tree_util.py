"""Pytrees: nested containers with arrays at the leaves, as in JAX. A sparse array is a leaf."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PyTreeDef:
    """The structure of a pytree: `kind` is None for a leaf, else the container's type; `aux` what else it needs."""

    kind: Any
    aux: Any
    children: tuple[PyTreeDef, ...]

    @property
    def num_leaves(self) -> int:
        return 1 if self.kind is None else sum(c.num_leaves for c in self.children)

    def __repr__(self) -> str:
        return f"PyTreeDef({_draw(self)})"


_LEAF = PyTreeDef(None, None, ())


def _draw(tree: PyTreeDef) -> str:
    if tree.kind is None:
        return "*"
    inner = ", ".join(_draw(c) for c in tree.children)
    if tree.kind is tuple:
        return f"({inner}{',' if len(tree.children) == 1 else ''})"
    if tree.kind is list:
        return f"[{inner}]"
    if tree.kind is dict:
        return "{" + ", ".join(f"{k!r}: {_draw(c)}" for k, c in zip(tree.aux, tree.children, strict=True)) + "}"
    if tree.kind is type(None):
        return "None"
    return f"{tree.kind.__name__}({inner})"


Flatten = Callable[[Any], tuple[Iterable[Any], Any]]
Unflatten = Callable[[Any, Sequence[Any]], Any]
_registry: dict[type, tuple[Flatten, Unflatten]] = {}
_lock = threading.Lock()


def register_pytree_node(kind: type, flatten: Flatten, unflatten: Unflatten) -> None:
    """Make `kind` a container: `flatten(x) -> (children, aux)`, `unflatten(aux, children) -> x`; aux must be hashable."""
    with _lock:
        if kind in _registry:
            raise ValueError(f"{kind.__name__} is registered as a pytree node already")
        _registry[kind] = (flatten, unflatten)


def register_dataclass(kind: type, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] = ()) -> type:
    """Make a dataclass a container of its `data_fields` (default: all but `meta_fields`); usable as a decorator."""
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is not a dataclass; use register_pytree_node instead")
    names = [f.name for f in dataclasses.fields(kind)]
    data = tuple(n for n in names if n not in meta_fields) if data_fields is None else tuple(data_fields)
    meta = tuple(meta_fields)
    if set(data) | set(meta) != set(names):
        missing = sorted(set(names) - set(data) - set(meta))
        raise ValueError(f"fields {missing} of {kind.__name__} are neither data nor meta fields")
    register_pytree_node(
        kind,
        lambda x: ([getattr(x, n) for n in data], tuple(getattr(x, n) for n in meta)),
        lambda aux, children: kind(**dict(zip(data, children, strict=True)), **dict(zip(meta, aux, strict=True))),
    )
    return kind


def _sorted_keys(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(mapping))
    except TypeError:
        raise TypeError(f"the keys {list(mapping)} of a dict cannot be sorted; use keys of one type") from None


def _open(value: Any) -> tuple[Any, Any, list[Any]] | None:
    """(kind, aux, children) of a container; None for a leaf."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind, None, list(value)
    if kind is dict:
        keys = _sorted_keys(value)
        return dict, keys, [value[k] for k in keys]
    if value is None:
        return kind, None, []
    if kind is OrderedDict:
        return kind, tuple(value), list(value.values())
    if kind is defaultdict:
        keys = _sorted_keys(value)
        return kind, (value.default_factory, keys), [value[k] for k in keys]
    if kind in _registry:
        children, aux = _registry[kind][0](value)
        return kind, aux, list(children)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind, None, list(value)
    return None


def _close(kind: Any, aux: Any, children: list[Any]) -> Any:
    if kind is tuple:
        return tuple(children)
    if kind is list:
        return children
    if kind is dict:
        return dict(zip(aux, children, strict=True))
    if kind is type(None):
        return None
    if kind is OrderedDict:
        return OrderedDict(zip(aux, children, strict=True))
    if kind is defaultdict:
        return defaultdict(aux[0], zip(aux[1], children, strict=True))
    if kind in _registry:
        return _registry[kind][1](aux, children)
    return kind(*children)


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], PyTreeDef]:
    """(leaves, structure) of a pytree.

    >>> tree_flatten({"b": 1, "a": (2, None)})
    ([2, 1], PyTreeDef({'a': (*, None), 'b': *}))
    """
    leaves: list[Any] = []

    def walk(value: Any) -> PyTreeDef:
        opened = None if is_leaf is not None and is_leaf(value) else _open(value)
        if opened is None:
            leaves.append(value)
            return _LEAF
        kind, aux, children = opened
        return PyTreeDef(kind, aux, tuple([walk(c) for c in children]))

    return leaves, walk(tree)


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The pytree of this structure with these leaves."""
    if treedef.kind is None:
        (leaf,) = leaves
        return leaf
    feed = iter(leaves)

    def build(node: PyTreeDef) -> Any:
        if node.kind is None:
            try:
                return next(feed)
            except StopIteration:
                raise ValueError(f"too few leaves for {treedef}: it has {treedef.num_leaves}") from None
        return _close(node.kind, node.aux, [build(c) for c in node.children])

    made = build(treedef)
    if next(feed, feed) is not feed:
        raise ValueError(f"too many leaves for {treedef}: it has {treedef.num_leaves}")
    return made


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a pytree."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> PyTreeDef:
    """The structure of a pytree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Apply `function` leaf by leaf; all trees must have the structure of the first.

    >>> tree_map(lambda x, y: x + y, [1, (2,)], [10, (20,)])
    [11, (22,)]
    """
    leaves, treedef = tree_flatten(tree, is_leaf)
    columns = [leaves]
    for number, other in enumerate(rest):
        found, structure = tree_flatten(other, is_leaf)
        if structure != treedef:
            raise ValueError(f"tree {number + 1} has structure {structure}, but the first tree has {treedef}")
        columns.append(found)
    return tree_unflatten(treedef, [function(*xs) for xs in zip(*columns, strict=True)])


def leaves_with_paths(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path, such as "[0]['w']"."""
    opened = _open(tree)
    if opened is None:
        yield path, tree
        return
    kind, aux, children = opened
    names: Sequence[Any] = range(len(children))
    if kind in (dict, OrderedDict):
        names = [repr(k) for k in aux]
    for name, child in zip(names, children, strict=True):
        yield from leaves_with_paths(child, f"{path}[{name}]")
