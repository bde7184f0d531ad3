"""The meaning of indirect einsums, in plain loops over dense NumPy arrays: slow and obvious, and with a parser of its own (Python's).

A sparse array of integers is (array, stored): as an index it is visited where `stored` is true.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

import numpy as np

LINE = re.compile(r"(?P<target>.*?)(?P<op>(?<![a-z])max=|(?<![a-z])min=|\+=|\*=|=)(?P<value>.*)")
OPS = {"=": np.add, "+=": np.add, "*=": np.multiply, "max=": np.maximum, "min=": np.minimum}
BINARY = {ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide}
Stored = dict[str, np.ndarray]


def interpret(
    text: str, arrays: dict[str, np.ndarray], stored: Stored | None = None, dtypes: dict[str, object] | None = None
) -> dict[str, np.ndarray]:
    """The targets of all lines. `dtypes` has those of targets that are not given (default: float64)."""
    made: dict[str, np.ndarray] = {}
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if line:
            known = {**arrays, **made}
            name, value = _line(line, known, stored or {}, dtypes or {})
            made[name] = value
    return made


def _line(
    line: str, arrays: dict[str, np.ndarray], stored: Stored, dtypes: dict[str, object]
) -> tuple[str, np.ndarray]:
    found = LINE.fullmatch(line)
    assert found is not None, line
    target = ast.parse(found["target"].strip(), mode="eval").body
    value = ast.parse(found["value"].strip(), mode="eval").body
    name = target.id if isinstance(target, ast.Name) else target.value.id
    extents: dict[str, int] = {}
    _extents(value, arrays, extents)
    _extents(target, arrays, extents, name not in arrays)
    op = OPS[found["op"]]
    if name in arrays:
        out = arrays[name].copy()
        if found["op"] == "=":
            out[...] = 0
    else:
        dtype = np.dtype(dtypes.get(name, np.float64))
        out = np.full([extents[ix.id] for ix in _indices(target)], _identity(found["op"], dtype), dtype)
    for numbers in itertools.product(*map(range, extents.values())):
        at = dict(zip(extents, numbers, strict=True))
        if all(_visited(node, at, arrays, stored) for node in (target, value)):
            place = tuple(_entry(ix, at, arrays) for ix in _indices(target))
            with np.errstate(all="ignore"):
                out[place] = op(out[place], _entry(value, at, arrays)).astype(out.dtype)
    return name, out


def _identity(op: str, dtype: np.dtype) -> object:
    if op not in ("max=", "min="):
        return 1 if op == "*=" else 0
    if dtype.kind == "f":
        return -np.inf if op == "max=" else np.inf
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    low, high = (limits.min, limits.max) if limits else (False, True)
    return low if op == "max=" else high


def _indices(node: ast.expr) -> list[ast.expr]:
    if not isinstance(node, ast.Subscript):
        return []
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _extents(node: ast.AST, arrays: dict[str, np.ndarray], extents: dict[str, int], absent: bool = False) -> None:
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and not (absent and part is node):
            for ix, n in zip(_indices(part), arrays[part.value.id].shape, strict=True):
                if isinstance(ix, ast.Name):
                    assert extents.setdefault(ix.id, n) == n


def _accesses_in_indices(node: ast.AST) -> Iterator[ast.Subscript]:
    for part in ast.walk(node):
        for ix in _indices(part) if isinstance(part, ast.Subscript) else ():
            if isinstance(ix, ast.Subscript):
                yield ix


def _visited(node: ast.expr, at: dict[str, int], arrays: dict[str, np.ndarray], stored: Stored) -> bool:
    """Whether every sparse array that an index is read from has an entry there; those inside others first."""
    for access in [*_accesses_in_indices(node)][::-1]:
        name = access.value.id
        if name in stored and not stored[name][tuple(_entry(ix, at, arrays) for ix in _indices(access))]:
            return False
    return True


def _entry(node: ast.expr, at: dict[str, int], arrays: dict[str, np.ndarray]) -> object:
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return np.int64(at[name]) if name in at else arrays[name][()]
        case ast.Subscript():
            return arrays[node.value.id][tuple(_entry(ix, at, arrays) for ix in _indices(node))]
        case ast.UnaryOp(ast.USub(), x):
            return -_entry(x, at, arrays)
        case ast.BinOp(x, op, y):
            return BINARY[type(op)](_entry(x, at, arrays), _entry(y, at, arrays))
        case ast.Call(ast.Name(name), args):
            return getattr(np, name)(*(_entry(a, at, arrays) for a in args))
    raise AssertionError(ast.dump(node))
