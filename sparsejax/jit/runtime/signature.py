"""A traced signature of a jitted function: what its next calls need to know."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.digest import digest
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Jaxpr
from sparsejax.core.trace import Tracer
from sparsejax.errors import NEGATIVE_POWER
from sparsejax.jit.runtime.call_cache import Shortcut

Limits = list[tuple[int, np.dtype[Any], bool]]
"""Inputs that are Python integers, by number, with the dtypes that they must fit into, and whether they are exponents."""

clock = itertools.count()
"""Ticks with every use of a signature: those that were used longest ago are forgotten first."""


class Signature:
    """A traced signature: the jaxpr, the tree of its result, and what its Python integers must fit into."""

    __slots__ = ("closed", "keep", "limits", "out_tree", "quick", "used")

    def __init__(self, closed: ClosedJaxpr, out_tree: tree_util.PyTreeDef, limits: Limits | None = None) -> None:
        self.used = next(clock)
        self.closed = closed
        self.out_tree = out_tree
        self.limits = limits_of(closed.jaxpr) if limits is None else limits
        self.quick: Shortcut | None = None
        self.keep: Callable[[ClosedJaxpr, Sequence[Array]], None] | None = None
        """What keeps a record of it after the first call (`kept.programs`), if it is to have one."""

    def kept(self, leaves: Sequence[Array]) -> None:
        """Keep a record of it, which has run on these operands, once."""
        keep, self.keep = self.keep, None
        if keep is not None:
            keep(self.closed, leaves)

    @property
    def is_inner(self) -> bool:
        """Whether it was traced inside another traced function and reads values of it."""
        return any(isinstance(c, Tracer) for c in self.closed.consts)

    def shortcut(self, avals: Sequence[Aval], names: tuple[str, ...] | None) -> Shortcut | None:
        """How the next call of this signature may go, if nothing else is to be done: of arrays and numbers of these types, the last of which
        are given by these names; None where arguments are something else."""
        if self.quick is None and not self.limits and names is not None:
            self.quick = Shortcut(avals, names, self.closed, self.out_tree)
        return self.quick

    def check(self, leaves: Sequence[Any]) -> None:
        """OverflowError for a Python integer that the dtype of the array beside it cannot hold, ValueError for one that is the
        exponent of an integer and negative."""
        for position, dtype, exponent in self.limits:
            value, limits = int(leaves[position]._storage.vals[0]), np.iinfo(dtype)
            if not limits.min <= value <= limits.max:
                raise OverflowError(f"Python integer {value} out of bounds for {dtype}")
            if exponent and value < 0:
                raise ValueError(NEGATIVE_POWER)


def _known(extent: Any) -> int | None:
    return extent if type(extent) is int else None


def limits_of(jaxpr: Jaxpr) -> Limits:
    """The inputs that are Python integers, with the integer dtypes that elementwise operations convert them to, and whether they
    are exponents there."""
    weak: dict[Atom, int] = {v: k for k, v in enumerate(jaxpr.inputs) if v.aval.weak_type and v.aval.dtype.kind in "iu"}
    found: dict[tuple[int, np.dtype[Any], bool], None] = {}
    for eqn in jaxpr.eqns if weak else ():
        params = eqn.param_dict
        wanted = params["loops"][0] if "loops" in params else ()
        for k, (atom, dtype) in enumerate(zip(eqn.inputs, wanted, strict=False)):
            exponent = eqn.primitive.name == "power" and k == 1 and 0 not in map(_known, eqn.outputs[0].aval.shape)
            if atom in weak and dtype.kind in "iu" and (exponent or dtype != atom.aval.dtype):
                found[weak[atom], dtype, exponent] = None
    return list(found)


def paths(numbers: Sequence[int], positional: Sequence[Any], named: Mapping[str, Any]) -> list[str]:
    """The names of the leaves of arguments, in order: those given by position, which have these numbers, and by name."""
    found = [
        f"argument {k}{p}" for k, a in zip(numbers, positional, strict=True) for p, _ in tree_util.leaves_with_paths(a)
    ]
    return found + [f"argument {p}" for p, _ in tree_util.leaves_with_paths(named)]


def typed(value: Any) -> Any:
    """A static argument with its types, so that 1, True and 1.0 are three values; of an array what it holds."""
    if type(value) is Array:
        return Array, digest(value.storage)
    if type(value) is tuple:
        return tuple, tuple([typed(v) for v in value])
    return type(value), value


def structure(tree: tree_util.PyTreeDef) -> Any:
    """The structure of arguments as part of a signature: with the types of what containers remember, as for static arguments."""
    known: list[Any] = []

    def look(node: Any) -> None:
        if node is not None:
            if node[1] is not None:
                known.append(typed(node[1]))
            for child in node[2]:
                look(child)

    look(tree.node)
    return tree, tuple(known)


def structure_of(key: Any, avals: Sequence[Aval]) -> Any:
    """What a call has in common with those that differ in extents alone."""
    return (() if isinstance(key[0], Aval) else key[:-1], *[a.kind for a in avals]) if key else ()


def structured(key: Any) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """What a signature has in common with those that differ in extents alone, and all extents."""
    avals: Sequence[Aval] = key if not key or isinstance(key[0], Aval) else key[-1]
    return structure_of(key, avals), tuple([n for a in avals for n in a.shape])


def called(
    cache: Mapping[Any, Signature], args: Sequence[Any], leaves: Sequence[Any], avals: tuple[Aval, ...]
) -> Signature | None:
    """The signature that a call of arrays by position left behind, if it was traced for these very extents: what it planned is known then."""
    plain = len(leaves) == len(args) and all(x is a for x, a in zip(leaves, args, strict=True))
    found = cache.get(avals) if plain else None
    return None if found is None or "planned" in found.closed.cache else found


def axes(paths: Sequence[str], avals: Sequence[Aval]) -> list[str]:
    """The names of all extents of the leaves of the arguments."""
    return [f"axis {d} of {path}" for path, a in zip(paths, avals, strict=True) for d in range(a.ndim)]


def named(
    names: dict[str, Any],
    function: Callable[..., Any],
    statics: frozenset[int],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> list[str | int | None]:
    """The symbols that `dynamic` names, and the numbers that it gives, for all extents of the leaves of the arguments; ValueError where they
    do not fit."""
    if not names:
        return []
    parameters = list(inspect.signature(function).parameters)
    for name in names:
        if name not in parameters:
            raise ValueError(
                f"dynamic names {name!r}, which is not a parameter; parameters are {', '.join(parameters)}"
            )
    made: list[str | int | None] = []
    places: dict[str, tuple[str, int, Any]] = {}
    given = [(parameters[k] if k < len(parameters) else "", a) for k, a in enumerate(args) if k not in statics]
    for name, argument in (*given, *sorted(kwargs.items())):
        for leaf in tree_util.tree_leaves(argument):
            shape = np.shape(leaf) if not hasattr(leaf, "shape") else leaf.shape
            wanted = tuple(names.get(name, (None,) * len(shape)))
            if len(wanted) != len(shape):
                raise ValueError(f"dynamic names {len(wanted)} axes of {name!r}, which has {len(shape)}: {wanted}")
            for axis, (word, n) in enumerate(zip(wanted, shape, strict=True)):
                if type(word) is int and word != n:
                    raise ValueError(
                        f"dynamic={{{name!r}: {wanted}}}: axis {axis} of {name!r} has extent {n}, not {word}; give a name or None for "
                        "an extent that varies"
                    )
                if word is not None and type(word) is not int and not _is_symbol(word):
                    raise ValueError(f"dynamic={{{name!r}: {wanted}}} must hold names such as 'n', numbers, or None")
                if isinstance(word, str):
                    other, place, known = places.setdefault(word, (name, axis, n))
                    if known != n:
                        raise ValueError(
                            f"dynamic names axis {place} of {other!r} and axis {axis} of {name!r} both {word!r}, but they have extents "
                            f"{known} and {n}; give them two names, or arrays with equal extents"
                        )
            made += wanted
    return made


def _is_symbol(word: Any) -> bool:
    return isinstance(word, str) and word.isidentifier() and word != "e"


def positions(
    function: Callable[..., Any], nums: Sequence[int], names: Sequence[str], what: str
) -> tuple[frozenset[int], frozenset[str]]:
    """Static (or donated) positions and names, each completed from the other through the function's signature."""
    try:
        described = inspect.signature(function).parameters
        parameters, kinds = list(described), {p.kind for p in described.values()}
    except (TypeError, ValueError):
        parameters, kinds = [], set()
    count = len(parameters)
    open_ended = not kinds or inspect.Parameter.VAR_POSITIONAL in kinds
    found = set()
    for n in nums:
        if not open_ended and not -count <= n < count:
            raise ValueError(f"{what}_argnums names argument {n}, but there are {count} parameters")
        found.add(n % count if n < 0 and count else n)
    for name in names:
        if parameters and name not in parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise ValueError(
                f"{what}_argnames names {name!r}, which is not a parameter; parameters are {', '.join(parameters)}"
            )
    positions = found | {parameters.index(n) for n in names if n in parameters}
    return frozenset(positions), frozenset({*names, *(parameters[k] for k in found if k < count)})
