"""What records of programs depend on, as text: equal in every process in which the program is the same, and in no other."""

from __future__ import annotations

import functools
import itertools
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsejax import config
from sparsejax.core.avals import Aval
from sparsejax.core.digest import digest
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Var
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import object_cache, records
from sparsejax.jit.cost import machine
from sparsejax.jit.runtime.kept.encoding import Unkept, of_format
from sparsejax.transforms import staging

PLACES = 64
"""Records of programs that differ in a number alone: with more numbers, some take the places of others."""
CONTENT = 1 << 20
"""Bytes of operands whose content is part of a key at most, which are kept until their program is planned."""


class Name(NamedTuple):
    """What the record of a program is found by, as text, and the numbers that it must be of."""

    text: str
    numbers: list[str]
    has_constants: bool = True
    """Whether the record says which constants the program has; what was traced has its own."""


def name(key: Any) -> Name | None:
    """The name of the record of a program; None where programs have no records as things are, or a part has no spelling."""
    if object_cache.active() is None or config.forcing or config.told() or records.recording() or records.exchanged():
        return None
    try:
        text = spelled(key)
    except Unkept:
        return None
    numbers: list[str] = []

    def placed(found: re.Match[str]) -> str:
        kind, value = found.groups()
        numbers.append(value)
        return f"{kind} {zlib.crc32(value.encode()) % PLACES}"

    text = _NUMBER.sub(placed, text)
    return Name(object_cache.named(f"program {_settings(config.planning(), config.dense_limit())}\n{text}"), numbers)


_NUMBER = re.compile(r"\((int|float|complex),'([^']*)',\)")
"""A number by its value, as `spelled` has it."""


@functools.lru_cache(maxsize=16)
def _settings(*settings: Any) -> str:
    return f"{settings} {machine.current()}"


def spelled(value: Any) -> str:
    """A part of a key as text that no other value has; Unkept for what may be something else in another process.

    >>> spelled(("sum", 2, np.float32(1), np.dtype("f4"), (None, "a")))
    "('sum',2,<f4 0000803f,<f4,(None,'a',),)"
    """
    kind = type(value)
    if kind is Aval:
        fill = value.fill_value.tobytes().hex()
        return f"{value.shape}{value.dtype.str}{of_format(value.format)}{fill}{value.weak_type}{value.is_literal}"
    if kind in _PLAIN:
        return repr(value)
    if kind is tuple:
        return f"({''.join([spelled(v) + ',' for v in value])})"
    if isinstance(value, np.dtype) and value.names is None:
        return str(value.str)
    if isinstance(value, np.generic):
        return f"{value.dtype.str} {value.tobytes().hex()}"
    if kind is Format:
        return f"Format({of_format(value)},{value.ndim})"
    if kind is range:
        return repr(value)
    if kind is ClosedJaxpr:
        return of_jaxpr(value)
    if kind is frozenset:
        return f"{{{','.join(sorted(map(spelled, value)))}}}"
    if kind is type and value.__module__ == "builtins":
        return str(value.__qualname__)
    raise Unkept


_PLAIN = frozenset([type(None), bool, int, float, complex, str, bytes])


def of_jaxpr(closed: ClosedJaxpr) -> str:
    """All that a plan of a jaxpr depends on: its equations with their parameters, types, numbers, and what constants hold. O(equations, bytes of
    constants).

    Unkept where that may be something else in another process, as what operations do that are not this package's."""
    held = content([c._storage for c in closed.consts])
    if held is None or closed.shared:
        raise Unkept
    jaxpr = staging.inline(closed.jaxpr)
    numbers = {var: k for k, var in enumerate((*jaxpr.consts, *jaxpr.inputs))}

    def used(atom: Atom) -> str:
        return str(numbers[atom]) if isinstance(atom, Var) else f"{spelled(atom.value)}:{spelled(atom.aval)}"

    lines = [" ".join([spelled(v.aval) for v in numbers])]
    for eqn in jaxpr.eqns:
        if not eqn.primitive.is_known:
            raise Unkept
        numbers.update(zip(eqn.outputs, itertools.count(len(numbers))))
        outputs = " ".join([spelled(v.aval) for v in eqn.outputs])
        lines.append(f"{outputs}={eqn.primitive.name}{spelled(eqn.params)} {' '.join(map(used, eqn.inputs))}")
    return "\n".join([*lines, " ".join(map(used, jaxpr.outputs)), held])


def content(storages: Sequence[Storage]) -> str | None:
    """What operands hold, as text; None where that is much."""
    if sum(s.nbytes for s in storages) > CONTENT:
        return None
    return "\n" + " ".join([digest(s, listed=False) for s in storages])
