"""Pytrees: nested containers with arrays at the leaves, as in JAX. A sparse array is a leaf.

Containers: tuple, list, dict (by sorted keys), OrderedDict (by its own order), defaultdict, named tuples, None (an empty
tree), and what is registered. Subclasses of these are leaves unless they are registered.

    node = None (a leaf) | (type, aux, (node, ...))         # a structure is plain tuples: fast to build, compare and hash
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax import forks

Node = tuple[type, Any, tuple[Any, ...]] | None
IsLeaf = Callable[[Any], bool] | None
Flatten = Callable[[Any], tuple[Iterable[Any], Any]]
Unflatten = Callable[[Any, Sequence[Any]], Any]


@dataclass(frozen=True, slots=True, repr=False)
class PyTreeDef:
    """The structure of a pytree; compared and hashed by value.

    >>> tree_structure([1, {"a": 2}])
    PyTreeDef([*, {'a': *}])
    """

    node: Node
    num_leaves: int = dataclasses.field(compare=False)

    def __repr__(self) -> str:
        return f"PyTreeDef({_draw(self.node)})"

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The pytree of this structure with these leaves."""
        return tree_unflatten(self, leaves)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` where this structure has leaves; ValueError, naming the path, if it begins differently.

        >>> tree_structure([1, 2]).flatten_up_to([3, (4, 5)])
        [3, (4, 5)]
        """
        found: list[Any] = []
        _match(self.node, tree, "the tree", "", found)
        return found


def _draw(node: Node) -> str:
    if node is None:
        return "*"
    kind, aux, children = node
    inner = [_draw(c) for c in children]
    if kind is tuple:
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if kind is list:
        return f"[{', '.join(inner)}]"
    if kind is dict:
        return "{" + ", ".join(f"{k!r}: {c}" for k, c in zip(aux, inner, strict=True)) + "}"
    if kind is type(None):
        return "None"
    return f"{kind.__name__}({', '.join(inner)})"


# -------------------------------------------------------------------------------------------------------- containers


def _sorted_keys(mapping: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(mapping))
    except TypeError:
        raise TypeError(f"the keys {list(mapping)} of a dict cannot be sorted; use keys of one type") from None


def _flatten_dict(value: dict[Any, Any]) -> tuple[list[Any], Any]:
    keys = _sorted_keys(value)
    return [value[k] for k in keys], keys


def _flatten_defaultdict(value: defaultdict[Any, Any]) -> tuple[list[Any], Any]:
    keys = _sorted_keys(value)
    return [value[k] for k in keys], (value.default_factory, keys)


_registry: dict[type, tuple[Flatten, Unflatten]] = {
    tuple: (lambda x: (x, None), lambda aux, children: tuple(children)),
    list: (lambda x: (x, None), lambda aux, children: list(children)),
    dict: (_flatten_dict, lambda keys, children: dict(zip(keys, children, strict=True))),
    type(None): (lambda x: ((), None), lambda aux, children: None),
    OrderedDict: (
        lambda x: (x.values(), tuple(x)),
        lambda keys, children: OrderedDict(zip(keys, children, strict=True)),
    ),
    defaultdict: (
        _flatten_defaultdict,
        lambda aux, children: defaultdict(aux[0], zip(aux[1], children, strict=True)),
    ),
}
_named_tuple: tuple[Flatten, Unflatten] = (lambda x: (x, None), lambda kind, children: kind(*children))
_fields: dict[type, tuple[str, ...]] = {}  # of registered dataclasses, for paths
_lock = threading.Lock()
forks.anew(__name__, _lock=threading.Lock)


def register_pytree_node(kind: type, flatten: Flatten, unflatten: Unflatten) -> None:
    """Make `kind` a container: `flatten(x) -> (children, aux)`, `unflatten(aux, children) -> x`; aux must be hashable.

    ValueError when `kind` is a container already, TypeError when it is not a class.
    """
    if not isinstance(kind, type):
        raise TypeError(f"only classes can be registered as pytree nodes, not {kind!r}")
    with _lock:
        if kind in _registry:
            raise ValueError(f"{kind.__name__} is a pytree node already; a type can be registered once")
        _registry[kind] = (flatten, unflatten)


def register_dataclass(
    kind: type, data_fields: Sequence[str] | None = None, meta_fields: Sequence[str] | None = None
) -> type:
    """Make a dataclass a container of its `data_fields`; its `meta_fields` are part of the structure. Usable as a decorator.

    Without `meta_fields`, these are the fields declared with `field(metadata={"static": True})`; without `data_fields`, these
    are all others. TypeError when `kind` is no dataclass, ValueError when the fields do not add up.

    >>> @register_dataclass
    ... @dataclass
    ... class Line:
    ...     slope: float
    ...     name: str = dataclasses.field(default="", metadata={"static": True})
    >>> tree_map(lambda x: 2 * x, Line(3.0, "y"))
    Line(slope=6.0, name='y')
    """
    if not dataclasses.is_dataclass(kind):
        name = getattr(kind, "__name__", repr(kind))
        raise TypeError(f"{name} is not a dataclass; use register_pytree_node instead")
    fields = [f for f in dataclasses.fields(kind) if f.init]
    names = [f.name for f in fields]
    static = [f.name for f in fields if f.metadata.get("static")]
    meta = tuple(static if meta_fields is None else meta_fields)
    data = tuple([n for n in names if n not in meta] if data_fields is None else data_fields)
    for wrong, what in (
        (set(names) - set(data) - set(meta), "are neither data nor meta fields"),
        ((set(data) | set(meta)) - set(names), "are not among its fields"),
        (set(data) & set(meta), "are both data and meta fields"),
    ):
        if wrong:
            raise ValueError(f"{', '.join(sorted(wrong))} of {kind.__name__} {what}; its fields are {', '.join(names)}")
    register_pytree_node(
        kind,
        lambda x: ([getattr(x, n) for n in data], tuple([getattr(x, n) for n in meta])),
        lambda aux, children: kind(**dict(zip(data, children, strict=True)), **dict(zip(meta, aux, strict=True))),
    )
    _fields[kind] = data
    return kind


def _rules(value: Any) -> tuple[Flatten, Unflatten] | None:
    """How to open and close `value`; None for a leaf."""
    kind = type(value)
    rules = _registry.get(kind)
    if rules is None and isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _named_tuple
    return rules


# ------------------------------------------------------------------------------------------------ flatten, unflatten


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], PyTreeDef]:
    """(leaves, structure) of a pytree; what `is_leaf` says yes to is not looked into. Linear in the nodes.

    >>> tree_flatten({"b": 1, "a": (2, None)})
    ([2, 1], PyTreeDef({'a': (*, None), 'b': *}))
    """
    leaves: list[Any] = []
    node = _flatten_into(tree, leaves, is_leaf)
    return leaves, PyTreeDef(node, len(leaves))


def _flatten_into(value: Any, leaves: list[Any], is_leaf: IsLeaf) -> Node:
    kind = type(value)
    rules = _registry.get(kind)
    if rules is None and isinstance(value, tuple):
        rules = _rules(value)
    if rules is None or (is_leaf is not None and is_leaf(value)):
        leaves.append(value)
        return None
    children, aux = rules[0](value)
    return kind, aux, tuple([_flatten_into(c, leaves, is_leaf) for c in children])


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The pytree of this structure with these leaves; ValueError unless their number fits.

    >>> tree_unflatten(tree_structure({"a": 0, "b": (0,)}), [1, 2])
    {'a': 1, 'b': (2,)}
    """
    given = list(leaves)
    if len(given) != treedef.num_leaves:
        many = "few" if len(given) < treedef.num_leaves else "many"
        raise ValueError(f"too {many} leaves: {len(given)} given, but {treedef} has {treedef.num_leaves}")
    return _build(treedef.node, iter(given))


def _build(node: Node, leaves: Iterator[Any]) -> Any:
    if node is None:
        return next(leaves)
    kind, aux, children = node
    made = [_build(c, leaves) for c in children]
    rules = _registry.get(kind)
    return _named_tuple[1](kind, made) if rules is None else rules[1](aux, made)


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a pytree.

    >>> tree_leaves([1, (2, None)])
    [1, 2]
    """
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> PyTreeDef:
    """The structure of a pytree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_all(tree: Any, is_leaf: IsLeaf = None) -> bool:
    """Whether all leaves are true.

    >>> tree_all([True, {"a": False}])
    False
    """
    return all(tree_leaves(tree, is_leaf))


def tree_map(function: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `function` leaf by leaf; the other trees begin with the structure of the first (where it has a leaf they may have
    a subtree, which is passed whole). ValueError names the path where they differ.

    >>> tree_map(lambda x, y: x + y, [1, (2,)], [10, (20,)])
    [11, (22,)]
    """
    leaves, treedef = tree_flatten(tree, is_leaf)
    columns = [leaves]
    for number, other in enumerate(rest, 1):
        found: list[Any] = []
        _match(treedef.node, other, f"tree {number}", "", found)
        columns.append(found)
    return _build(treedef.node, iter([function(*xs) for xs in zip(*columns, strict=True)]))


# -------------------------------------------------------------------------------------------------------------- paths


def _match(node: Node, value: Any, whose: str, path: str, found: list[Any]) -> None:
    """Collect the subtrees of `value` at the leaves of `node`."""
    if node is None:
        found.append(value)
        return
    kind, aux, children = node
    rules = _rules(value)
    where = f"{whose} has another structure at {path or 'its root'}: expected {_titled(node)}, but got"
    if type(value) is not kind or rules is None:
        raise ValueError(f"{where} {'None' if value is None else f'a {type(value).__name__}'}")
    parts, extra = rules[0](value)
    parts = list(parts)
    if len(parts) != len(children) or extra != aux:
        raise ValueError(f"{where} one of {len(parts)}{_keyed(extra)}")
    for name, child, part in zip(_child_names(kind, aux, len(parts)), children, parts, strict=True):
        _match(child, part, whose, path + name, found)


def _titled(node: tuple[type, Any, tuple[Any, ...]]) -> str:
    kind, aux, children = node
    if kind is type(None):
        return "None"
    return f"a {kind.__name__} of {len(children)} children{_keyed(aux)}"


def _keyed(aux: Any) -> str:
    return f" with {aux!r}" if aux else ""


def _child_names(kind: type, aux: Any, count: int) -> list[str]:
    """How each child of a container is written after it: "[0]", "['key']", ".field"."""
    if kind is dict or kind is OrderedDict:
        return [f"[{k!r}]" for k in aux]
    if kind is defaultdict:
        return [f"[{k!r}]" for k in aux[1]]
    if kind in _fields:
        return [f".{n}" for n in _fields[kind]]
    if kind not in _registry:
        return [f".{n}" for n in kind._fields]  # type: ignore[attr-defined]
    return [f"[{k}]" for k in range(count)]


def leaves_with_paths(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path.

    >>> list(leaves_with_paths([{"w": 1}]))
    [("[0]['w']", 1)]
    """
    rules = _rules(tree)
    if rules is None:
        yield path, tree
        return
    parts, aux = rules[0](tree)
    children = list(parts)
    for name, child in zip(_child_names(type(tree), aux, len(children)), children, strict=True):
        yield from leaves_with_paths(child, path + name)
