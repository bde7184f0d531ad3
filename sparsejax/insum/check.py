"""What is wrong with statements over arrays of known shapes and dtypes: names, numbers of axes, extents, indices; every error shows its place."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparsejax.insum.parse import Constant, Line, Name, Node, Op, Whole, fault, pointer


@dataclass(frozen=True)
class Extent:
    """The extent of a variable, and the axis from which it is known."""

    size: int
    axis: int
    name: str


@dataclass(frozen=True)
class Checked:
    """A line with the extent of every variable, and the shape of its target."""

    line: Line
    extents: dict[str, int]
    shape: tuple[int, ...]


def accesses(node: Node) -> Iterator[Name]:
    """The accesses whose values a right-hand side has, bare names too."""
    if isinstance(node, Op):
        for arg in node.args:
            yield from accesses(arg)
    elif not isinstance(node, Constant):
        yield node


def nested(name: Name) -> Iterator[Name]:
    """The accesses in the indices of an access, to any depth."""
    for index in name.indices or ():
        if isinstance(index, Name) and index.indices is not None:
            yield from nested(index)
            yield index


def variables(name: Name) -> Iterator[Name]:
    """The variables in the indices of an access, to any depth."""
    for index in name.indices or ():
        if isinstance(index, Name):
            if index.indices is None:
                yield index
            else:
                yield from variables(index)


def known(line: Line, arrays: Collection[str]) -> tuple[dict[str, Name], list[Name]]:
    """The variables of a line, and its accesses of arrays in the order in which they are looked at; ValueError for a name that is no array, or both."""
    text, target = line.text, line.target
    reads = [*accesses(line.value)]
    indices = {v.name: v for name in (target, *reads) for v in variables(name)}
    for v in indices.values():
        if v.name in arrays or v.name == target.name:
            fault(
                text,
                v.at,
                f"{v.name} is an array and a variable: an array of no dimensions is written {v.name}[] as an index",
            )
    values = [r for r in reads if r.indices is not None or r.name not in indices]
    used = [n for name in (*values, target) for n in nested(name)] + values
    for name in used:
        if name.name not in arrays:
            kind = "array" if name.indices is not None else "array or variable"
            fault(text, name.at, f"unknown {kind} {name.name}: pass it as {name.name}=...")
    return indices, used


def check(line: Line, arrays: Mapping[str, Any]) -> Checked:
    """The extents of a line over `arrays` (shapes and dtypes); ValueError or IndexError for what is wrong with it. Work: the text."""
    text, target = line.text, line.target
    indices, used = known(line, arrays)
    given = arrays.get(target.name)
    for name in [*used, *([target] if given is not None else [])]:
        _axes(text, name, arrays[name.name])
    for name in used:
        for index in name.indices or ():
            _index_array(text, index, arrays)
    for index in target.indices or ():
        _index_array(text, index, arrays)
    found: dict[str, Extent] = {}
    for name in [*used, *([target] if given is not None else [])]:
        _extents(text, name, arrays[name.name].shape, found)
    for v in indices.values():
        if v.name not in found:
            fault(text, v.at, f"variable {v.name} has no extent: it stands directly at no axis of an operand")
    sizes = {v: found[v].size for v in indices}
    if given is not None:
        return Checked(line, sizes, given.shape)
    own = target.indices or ()
    for index in own:
        if not isinstance(index, Name) or index.indices is not None:
            at = index.at
            fault(
                text,
                at,
                f"the shape of {target.name} is unknown: pass {target.name}=..., since this axis is no variable",
            )
    return Checked(line, sizes, tuple(sizes[v.name] for v in own if isinstance(v, Name)))


def _axes(text: str, name: Name, array: Any) -> None:
    count = len(name.indices or ())
    if count != array.ndim:
        fault(text, name.at, f"{name.name} has {array.ndim} axes, but {count} indices")


def _index_array(text: str, index: Name | Whole, arrays: Mapping[str, Any]) -> None:
    if isinstance(index, Name) and index.indices is not None:
        dtype = arrays[index.name].dtype
        if dtype.kind not in "iu":
            fault(
                text,
                index.at,
                f"arrays used as indices must be of integer type, but {index.name} is of {dtype}",
                IndexError,
            )


def _extents(text: str, name: Name, shape: tuple[int, ...], found: dict[str, Extent]) -> None:
    for axis, (index, size) in enumerate(zip(name.indices or (), shape, strict=True)):
        if isinstance(index, Whole):
            if not -size <= index.value < size:
                message = f"index {index.value} is out of bounds for axis {axis} of {name.name} with size {size}"
                raise IndexError(f"{message}{pointer(text, index.at)}")
        elif index.indices is None:
            known = found.setdefault(index.name, Extent(size, axis, name.name))
            if known.size != size:
                fault(
                    text,
                    index.at,
                    f"{index.name} is {known.size} along axis {known.axis} of {known.name} and {size} along axis {axis} of {name.name}",
                )
