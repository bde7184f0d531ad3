"""Plans of kernels: what scheduling and lowering made of one, so that neither an equal kernel nor a second process does it again.

    key      the sources of this package | settings | observed facts | the nest, spelled out
    record   a line of JSON: conversions, capacities, chunks | LLVM text

The latest are kept in memory (kernels of a program are often equal: layers, heads of attention), all on disk. Records there are
entries of the object cache under their keys: framed, checked, private, and never unpickled. The machine code is
found by the text, as for any kernel, so that equal texts of different plans share it. Kernels that read numbers at run time are
not recorded, since every other number would be another record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax.cached import Recent
from sparsejax.formats import Format
from sparsejax.jit.backend import records
from sparsejax.jit.backend.object_cache import named
from sparsejax.jit.ir import cin, infer_formats
from sparsejax.jit.ir.nest import Nest, Producer
from sparsejax.jit.ir.program import Shared
from sparsejax.jit.runtime import chunked
from sparsejax.jit.schedule import replan


@dataclass(frozen=True)
class Recipe:
    """Everything that running a kernel takes besides its nest: LLVM text, inputs by position with the formats they are converted to
    first, how many coordinates to make room for, how it is cut into chunks, which buffers of an input are the output's own, whether
    all of a dense output is assigned, what is cheaper once copies are remembered, which inputs the result may overwrite, and which are copied where
    they do not begin with a line."""

    text: str
    moves: tuple[tuple[int, Format], ...]
    expected: tuple[int, ...]
    cut: chunked.Cut | None
    shared: Shared | None = None
    whole: bool = False
    later: replan.Later | None = None
    over: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()


_recent: Recent[bytes, Recipe] = Recent(256)


def forget() -> None:
    """Drop what is in memory, as in a new process: plans, and the types of results."""
    _recent.clear()
    infer_formats.remembered.clear()


def load(key: str) -> Recipe | None:
    """The recipe recorded under a key; None when there is none. O(size)."""
    name = _name(key)
    known = _recent.get(name)
    if known is None:
        known = _load(key)
        if known is not None:
            _recent.put(name, known)
    if known is not None and records.recording():
        records.note(key, _encoded(known))
    return known


def store(key: str, recipe: Recipe) -> None:
    """Record a recipe under a key."""
    _recent.put(_name(key), recipe)
    if records.recording():
        records.note(key, _encoded(recipe))
    cache = records.active()
    if cache is not None:
        cache.store(key, _encoded(recipe))


def _name(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _load(key: str) -> Recipe | None:
    cache = records.active()
    record = None if cache is None else cache.load(key)
    try:
        return None if record is None else _decoded(record)
    except (ValueError, KeyError, TypeError):  # not written by these sources, whatever its key says
        return None


def _encoded(recipe: Recipe) -> bytes:
    return f"{json.dumps(encoded(recipe))}\n{recipe.text}".encode()


def encoded(recipe: Recipe) -> dict[str, Any]:
    """A recipe but for its text, for JSON."""
    moves = [(position, str(form), form.ndim) for position, form in recipe.moves]
    cut = None if recipe.cut is None else vars(recipe.cut)
    shared = None if recipe.shared is None else vars(recipe.shared)
    later = None if recipe.later is None else recipe.later.encoded()
    fields = {"moves": moves, "expected": recipe.expected, "cut": cut, "shared": shared, "whole": recipe.whole}
    return fields | {"later": later, "over": recipe.over, "starts": recipe.starts}


def _decoded(record: bytes) -> Recipe:
    head, _, text = record.decode().partition("\n")
    return decoded(json.loads(head), text)


def decoded(fields: dict[str, Any], text: str) -> Recipe:
    """The recipe that `encoded` says, with its text."""
    moves = tuple((position, Format.parse(form, ndim)) for position, form, ndim in fields["moves"])
    cut = None if fields["cut"] is None else chunked.Cut(**fields["cut"])
    shared = None if fields["shared"] is None else Shared(**fields["shared"])
    later = None if fields["later"] is None else replan.Later.decoded(fields["later"])
    over, starts = tuple(fields["over"]), tuple(fields["starts"])
    return Recipe(text, moves, tuple(fields["expected"]), cut, shared, fields["whole"], later, over, starts)


def key(nest: Nest, *settings: Hashable) -> str:
    """The key of a kernel under these settings: equal for equal nests in every process that runs these sources."""
    return named(f"plan {settings!r}\n{spell(nest)}")


def spell(node: Any) -> str:
    """A nest as text that tells everything about it, numbers by their bits.

    >>> spell(cin.Call("negative", (cin.Literal(np.float32(1), np.dtype("f4")),), np.dtype("f4")))
    "Call('negative', (Literal(<f4 0000803f, <f4, False, False)), <f4)"
    """
    known = _spelled.get(type(node))
    if known is not None:
        return f"{known[0]}({', '.join([spell(getattr(node, name)) for name in known[1]])})"
    match node:
        case np.dtype():
            return node.str
        case np.generic():
            return f"{node.dtype.str} {node.tobytes().hex()}"
        case tuple():
            return f"({', '.join(map(spell, node))})"
        case _:
            return repr(node)


_spelled = {
    kind: (kind.__name__, tuple([name for name, f in kind.__dataclass_fields__.items() if f.init]))
    for kind in (Nest, Producer, cin.Access, cin.Call, cin.Literal, cin.Position)
}
"""The names of kinds of nodes, and of their parts."""
