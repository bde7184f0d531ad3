"""The calling convention of a kernel: one array of 8-byte slots.

For every tensor, inputs first and the output last:

    extent of each dimension (of each level, where dimensions are blocked), the buffers of each level (pos, crd), vals

and for an output that grows, one count per level with coordinates: on entry how many to make room for, on return how many
there are; the kernel writes these and its pointers back. A kernel returns a status code (`builder.OK`, `builder.OUT_OF_MEMORY`).

Where a caller calls a kernel again and again, it may keep the memory of workspaces from call to call: the slot of the values of an output that grows is
the address of `CELLS` words on entry, which the kernel fills in and finds again, or 0.
"""

from __future__ import annotations

from typing import NamedTuple

from sparsejax.jit.ir import cin
from sparsejax.jit.ir.program import heads


class Slot(NamedTuple):
    """One slot: which tensor, what it holds ("extent", the name of a buffer, "vals", "count"), of which dimension or level."""

    tensor: str
    what: str
    number: int

    def __str__(self) -> str:
        if self.what == "vals":
            return f"{self.tensor}.vals"
        return f"{self.tensor}.{'n' if self.what == 'extent' else self.what}{self.number}"


KEPT = 4
"""Words for addresses of blocks that a caller keeps for a kernel."""
ROOMS, MADE, SPARE, CELLS = KEPT, KEPT + 4, KEPT + 6, KEPT + 9
"""Behind them, of a result that is a list of coordinates (`is_list`): room in memory that the kernel may use for it, for coordinates and for edges; two
words of the caller's own; the same of the result, on return; and the addresses of this memory, which the kernel takes away, in the order of the slots."""


def is_list(tensor: cin.Tensor) -> bool:
    """Whether an output that grows is one segment of coordinates and values."""
    levels = tensor.format.levels
    return len(levels) == 1 and levels[0].settled and tensor.format.buffer_names(0) == ("pos", "crd")


def by_parent(tensor: cin.Tensor, level: int) -> list[str]:
    """The buffers of a level with as many elements as there are positions above it, or edges of these, or words of their coordinates."""
    return [
        n for n in tensor.format.buffer_names(level) if tensor.format.levels[level].per[n] in ("edge", "parent", "word")
    ]


def by_position(tensor: cin.Tensor, level: int) -> list[str]:
    """The buffers of a level with an element for every position."""
    return [n for n in tensor.format.buffer_names(level) if tensor.format.levels[level].per[n] == "position"]


def slots_of(tensor: cin.Tensor, output: bool) -> list[Slot]:
    """The slots of one tensor, in order."""
    slots = [Slot(tensor.name, "extent", d) for d in range(extents_of(tensor))]
    for level in range(len(tensor.format.levels)):
        slots += [Slot(tensor.name, name, level) for name in tensor.format.buffer_names(level)]
    slots.append(Slot(tensor.name, "vals", 0))
    if output:
        slots += [Slot(tensor.name, "count", level) for level in heads(tensor)]
    return slots


def extents_of(tensor: cin.Tensor) -> int:
    """How many extents a tensor passes: one per dimension of the array, or per level where dimensions are blocked."""
    return len(tensor.format.levels) - len(tensor.paired) + len(_units(tensor))


def _units(tensor: cin.Tensor) -> tuple[int, ...]:
    return () if tensor.units is None else tensor.units.dimensions


def extent(tensor: cin.Tensor, dimension: int) -> Slot:
    """The slot of the extent of a dimension of a tensor that is not in blocks, or read as if it were."""
    given = [d for d in range(extents_of(tensor)) if d not in _units(tensor)]
    return Slot(tensor.name, "extent", given[dimension])


def is_unit(tensor: cin.Tensor, number: int) -> bool:
    """Whether the extent that a slot passes is that of an axis of extent one that the kernel does not know."""
    return number in _units(tensor)


def literal(tensor: cin.Tensor, number: int) -> int | None:
    """The extent that a slot passes, where it is known when code is made: not of a dimension that is read as two, or may be any of many."""
    if tensor.format.blocked:
        return None
    given = [d for d in range(len(tensor.shape)) if d not in tensor.paired]
    dimension = given[number - sum(d < number for d in _units(tensor))]
    extent = tensor.shape[dimension]
    return extent if type(extent) is int and dimension + 1 not in tensor.paired else None


def layout(inputs: tuple[cin.Tensor, ...], output: cin.Tensor) -> tuple[Slot, ...]:
    """All slots of a kernel."""
    slots = [s for t in inputs for s in slots_of(t, output=False)]
    return (*slots, *slots_of(output, output=True))


NAME, STATE = "sparsejax_block", "sparsejax_blocks"
"""The symbols of the function and of its state."""


ALIGNMENT = 64
"""Of all blocks, on systems that are `SUPPORTED`."""


PLAIN, ZERO, SETTLE, SPARSE, EXACT = range(5)
"""What is asked for: anything; zeros; the pages behind `size` bytes given up; zeros of which only few may ever be touched; anything of
which all will be."""
