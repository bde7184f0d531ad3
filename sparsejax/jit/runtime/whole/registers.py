"""Values of a loop that is one table (`table`): where their slots are, and what of their memory is their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.formats import Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.codegen import abi
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.program import heads


class Unbound(Exception):
    """A loop that has no table, and why."""


@dataclass(eq=False)
class Register:
    """A value: `size` words from `at` on are its slots as an input. A sparse one has its counts behind them."""

    at: int
    size: int
    aval: Aval
    sample: Storage
    """What it may be, to plan kernels by."""
    changes: bool = False
    """Whether its slots differ from round to round."""
    own: tuple[int, ...] = ()
    """Words with the addresses of its memory, where kernels allocate it."""
    holds: tuple[Register, ...] = ()
    """Whose memory it shares."""
    readers: int = 1
    """How many registers need its memory, itself included."""
    owned: int = -1
    """The word that tells whether its memory is its own (of carries); -1: always."""
    made: bool = False
    """Whether steps of the loop make it."""
    around: bool = False
    """Whether it is a carry, whose memory a step may overwrite."""
    cells: int = -1
    """Where the words are that its kernel keeps memory in, if the kernel takes over memory for it (`abi.CELLS`)."""
    bounded: Aval | None = None
    """Its type with bounds in place of extents, where the table is to serve many sizes."""
    into: int = -1
    """The word with the address of the memory that it was written to, which is another register's."""

    @property
    def vals(self) -> int:
        return self.at + self.size - 1

    @property
    def count(self) -> int:
        """The word that says how many entries its last sparse level has."""
        return self.at + words_of(self.aval) - 1

    @property
    def dense(self) -> bool:
        return self.aval.format.full


def tensor_of(aval: Aval) -> cin.Tensor:
    return cin.Tensor("x", aval.shape, aval.dtype, aval.format, aval.fill_value)


def size_of(aval: Aval) -> int:
    """How many slots an input has."""
    return len(abi.slots_of(tensor_of(aval), output=False))


def words_of(aval: Aval) -> int:
    """The same with counts, as outputs have them."""
    return size_of(aval) + len(heads(tensor_of(aval)))


def block_of(aval: Aval) -> int:
    """Values per entry of the last sparse level, or all of a dense array."""
    form = aval.format
    first = form.sparse[-1] + 1 if form.sparse else 0
    return math.prod(form.level_extents(aval.shape)[first:])


@dataclass
class Load:
    """Where a call puts the slots of an operand, converted to a format where there is one, and behind them its counts: of `heads`, levels that
    start segments."""

    operand: int
    at: int
    size: int
    heads: tuple[int, ...]
    form: Format | None = None
    kept: bool = True
    """Whether the operand keeps its copy in that format."""


def ints_of(packed: bytes) -> list[int]:
    return np.frombuffer(packed, np.int64).tolist()  # type: ignore[no-any-return]


def pointers_of(register: Register) -> tuple[int, ...]:
    """The words of a sparse register that are addresses."""
    tensor = tensor_of(register.aval)
    return tuple(range(register.at + abi.extents_of(tensor), register.at + register.size))


def parts_of(register: Register) -> list[tuple[int, int, int, int]]:
    """The buffers of a sparse register: the word with the address, the word with a count (-1: none), and how many bytes there are for each counted
    and beside."""
    aval, tensor = register.aval, tensor_of(register.aval)
    form = aval.format
    places = {slot: register.at + k for k, slot in enumerate(abi.slots_of(tensor, output=True))}
    made, counter, each = [], -1, 1  # positions: `each` for every one of the word `counter`
    for number, extent in enumerate(form.level_extents(aval.shape)):
        level, above = form.levels[number], (counter, each)
        kinds, names = level.buffer_types(), form.buffer_names(number)
        found = places.get(abi.Slot("x", "count", number))
        if found is not None:
            counter, each = found, 1
        elif not names:
            each *= extent
        sizes = {"pos": 8, "word": 8, "crd": convert.crd_dtype(extent).itemsize}
        for name in names:
            per, size = level.per[name], sizes[kinds[name]]
            word, times = (counter, each) if per == "position" else above
            times, beside = times * (-(-extent // 64) if per == "word" else 1) * size, size if per == "edge" else 0
            made.append(
                (places[abi.Slot("x", name, number)], word, *((0, times + beside) if word < 0 else (times, beside)))
            )
    return [*made, (places[abi.Slot("x", "vals", 0)], counter, each * aval.dtype.itemsize, 0)]


def pattern_of(value: Any, wide: bool) -> tuple[int, int]:
    """How many bytes repeat in a row of numbers, 8 where it is `wide`, and their bits as a signed integer."""
    raw = np.asarray(value).tobytes()
    size = next(n for n in (1, 2, 4, 8, 16) if raw == raw[:n] * (len(raw) // n))
    if size == 16:
        raise Unbound("a result begins with a complex number of two parts")
    width = 8 if wide else size
    return width, int.from_bytes(raw[:size] * (width // size), "little", signed=True)
