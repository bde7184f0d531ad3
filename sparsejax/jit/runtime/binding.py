"""Binding arrays to a kernel: slots in, the output's storage out."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.cached import copied
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert
from sparsejax.formats.storage import Storage, dense_template
from sparsejax.jit.backend import compiler, entry
from sparsejax.jit.codegen import abi
from sparsejax.jit.cost import statistics
from sparsejax.jit.ir import cin, operators
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.ir.program import Shared, heads
from sparsejax.jit.runtime import chunked, written
from sparsejax.jit.runtime.system import allocator, result_memory
from sparsejax.jit.runtime.written import packer

_pack_one = struct.Struct("q").pack
_INT64 = np.dtype(np.int64)
Kept = tuple[int, str, object, "statistics.Few | None"]
"""What an input keeps that a plan depends on: its number, the name, the value; and what tells it by how many entries there are, where something does."""
LESS = 0.8
"""How much of the room that was made for a result whose size nobody has foretold is made for the next one, where that needed less: what grows is moved, and
what is behind a result costs little (products of random shapes in turns: 0.96 of the time without)."""
GROWING: tuple[int, ...] = (-1,)
"""In place of how many coordinates are expected, where nobody knows."""


def input_slots(storage: Storage) -> bytes:
    """The packed slots of an input: extents, buffer addresses, address of the values. Computed once per storage."""
    known: bytes | None = storage.cache.get("slots")
    return packer(storage.format)(storage) if known is None else known


@functools.lru_cache(maxsize=64)
def _packer(count: int) -> Callable[..., bytes]:
    return struct.Struct(f"{count}q").pack


def _extents(form: Format, shape: tuple[int, ...]) -> tuple[int, ...]:
    """What a tensor passes as its extents: those of its dimensions, or of its levels where dimensions are blocked."""
    return form.level_extents(shape) if form.blocked else shape


def _pack(numbers: Sequence[int]) -> bytes:
    return _packer(len(numbers))(*numbers)


class Binding:
    """A kernel with everything about its output that does not change from call to call.

    `op` is the operator by which a dense output accumulates (None: it is assigned); `expected` tells how many coordinates
    to make room for at first, per level that starts a segment. `constants` are the numbers that it reads. Memory of a
    `whole` result, all of which the kernel assigns, is not cleared. `cut` tells how it runs in chunks.

    Where the output has bounds in place of extents, it only serves to make others (`resized`).
    """

    def __init__(
        self,
        compiled: compiler.Kernel,
        output: cin.Tensor,
        op: str | None,
        cut: chunked.Cut | None = None,
        expected: tuple[int, ...] = (),
        constants: NDArray[Any] | None = None,
        shared: Shared | None = None,
        whole: bool = False,
    ) -> None:

        def resized(output: cin.Tensor) -> Binding:
            return Binding(compiled, output, op, cut, GROWING, constants, shared, whole)

        self.resized = resized
        """The same kernel with an output of another shape."""
        self.shared = shared
        """Whose positions the output has, if these are given."""
        self._kernel: compiler.Kernel | chunked.Chunked = compiled
        self._compiled, self._output = compiled, output
        self.numbers = constants
        """The numbers that it reads."""
        self._first = b"" if constants is None else _pack_one(result_memory.address_of(constants))
        self.dtype = output.dtype
        self._dense = output.format.full
        self._start = output.fill_value if op is None else operators.get(op).identity(output.dtype)
        self._content = None if whole else self._start
        self.memory = result_memory.taker(output.dtype, self._content)
        """Memory for a dense output of so many elements, which may be the only one of its size."""
        fill = 0 if output.format.is_dense else output.fill_value
        self.zero = output.dtype.type(fill)
        """The fill of the output."""
        self.format = output.format
        self.single = self._dense and not output.format.blocked
        """Whether the output is dense, one value after the other."""
        self.sizes = not output.format.blocked
        """Whether `once` serves."""
        self._partial = cut if cut is not None and cut.partial == "output" else None
        """How chunks are called that must know the shape of the output: each computes one of its own."""
        bounded = any(isinstance(n, Bounded) for n in output.shape)
        if cut is not None and not (bounded and (output.format.blocked or self._partial)):
            self._kernel = chunked.Chunked(compiled, output, cut)
        self._call: entry.Call = self._kernel.run_packed
        if not self._dense:
            self._grows(output, shared)
        if bounded:
            return
        self._size = math.prod(output.format.level_extents(output.shape))
        if self._dense:
            if self._size * output.dtype.itemsize > 2**62:
                raise MemoryError(
                    f"a dense result of shape {output.shape} does not fit in memory; ask for a sparse one with out_format"
                )
            self._template = dense_template(output.format, output.shape, self.zero)
            self._extents = _pack(_extents(output.format, output.shape))
            self._results = result_memory.Results(self._size, output.dtype, self._content, self._extents)
            self._shape = output.shape
            return
        _check_size(output.format, output.shape)
        self._growing = expected is GROWING
        counts = expected if len(expected) == self._heads else (0,) * self._heads
        self._before = _pack((*_extents(output.format, output.shape), *((0,) * self._pointers)))
        self._make_room(counts)

    def _grows(self, output: cin.Tensor, shared: Shared | None) -> None:
        """Work out how an output that is not dense comes about, whatever its shape."""
        self._given = None if shared is None else _GivenMemory(output, shared)
        self._adoption = Adoption(output)
        slots = abi.slots_of(output, output=True)
        self._heads = sum(slot.what == "count" for slot in slots)
        self._yield: tuple[float, ...] = (1.0,) * self._heads
        """Coordinates to make room for in `once`, as times the entries of the largest operand: an eighth more than the last call had, or what it made
        room for, but a little."""
        self._pointers = len(slots) - abi.extents_of(output) - self._heads

    def fixed(self, inputs: Sequence[Storage], vals: NDArray[Any]) -> NDArray[np.int64]:
        """The slots of a call with a dense output in `vals`."""
        packed = [self._first, *map(input_slots, inputs), self._extents, _pack_one(result_memory.address_of(vals))]
        return np.frombuffer(b"".join(packed), np.int64).copy()

    @property
    def kernel(self) -> compiler.Kernel | chunked.Chunked:
        """What is called."""
        return self._kernel

    @property
    def key(self) -> str:
        """The digest of its text."""
        return self._compiled.key

    @property
    def prefix(self) -> bytes:
        """The slots before those of inputs."""
        return self._first

    @property
    def dense(self) -> bool:
        """Whether the output has a value for every coordinate, in memory that is there before the call."""
        return self._dense

    @property
    def extents(self) -> bytes:
        """The slots of a dense output but the last, the address of its memory."""
        return self._extents

    @property
    def content(self) -> Any:
        """What memory of a dense output must hold before the call (None: anything)."""
        return self._content

    @property
    def room(self) -> tuple[int, ...]:
        """How many coordinates of a growing output to make room for, per level that starts a segment."""
        return self._room

    def run_over(self, inputs: Sequence[Storage], like: Storage) -> NDArray[Any]:
        """Call the kernel on these inputs; its output, one value at every position of `like` (`shared_patterns`)."""
        size, below = len(like.vals), self._shape[1:]
        slots = self._first
        for s in inputs:
            slots += s.cache.get("slots") or input_slots(s)
        vals, address = self.memory(size)
        status = self._call(slots, _pack((size // max(1, math.prod(below)), *below, address)))
        if status:
            compiler.check(status)
        return vals

    def run(self, inputs: Sequence[Storage]) -> Storage:
        """Call the kernel on these inputs; the storage of its output."""
        slots = self._first
        for s in inputs:
            slots += s.cache.get("slots") or input_slots(s)
        if self._dense:
            made, last = self._results.storage(self._template)
            status = self._call(slots, last)
            if status:
                compiler.check(status)
            return made
        if self._given is not None:
            return self._given.run(self._kernel, slots, inputs)
        if self._growing:  # nobody has foretold how many coordinates there are: about as many as in an operand
            self._growing = False
            self._make_room((max((len(s.vals) for s in inputs), default=0),) * len(self._room))
        status, after = self._kernel(slots, self._empty)
        if status:
            self._adoption.release(after)
            compiler.check(status)
        counts = self._adoption.counts(after)
        if any(n > room for n, room in zip(counts, self._room, strict=True)):
            self._make_room([max(n + (n >> 3), room) for n, room in zip(counts, self._room, strict=True)])
        return self._adoption.take(after)

    def once(self, inputs: Sequence[Storage], shape: tuple[int, ...]) -> Storage:
        """The result for an output of this shape, of which nothing is kept."""
        slots, size = self._first, math.prod(shape)
        for s in inputs:
            slots += s.cache.get("slots") or input_slots(s)
        if not self._dense:
            return self._once_grown(slots, inputs, shape)
        vals, address = self.memory(size)
        last = _packer(len(shape) + 1)(*shape, address)
        if self._partial is None:
            status = self._call(slots, last)
        else:
            chunks = chunked.Chunked(self._compiled, self._output._replace(shape=shape), self._partial)
            status = chunks.run_packed(slots, last)
        if status:
            compiler.check(status)
        return Storage.result((self.format, shape, self.zero, ((),) * len(shape)), vals, {"slots": last})

    def _once_grown(self, slots: bytes, inputs: Sequence[Storage], shape: tuple[int, ...]) -> Storage:
        _check_size(self.format, shape)
        if self._given is not None:
            return self._given.at(shape).run(self._kernel, slots, inputs)
        entries = max(max((len(s.vals) for s in inputs), default=0), 1)
        most = math.prod(shape) if self._heads == 1 else 1 << 62
        rooms = [min(int(entries * n), most) for n in self._yield]
        packed = slots + _pack((*shape, *((0,) * self._pointers), *rooms))
        kernel = self._kernel
        status, after = kernel(packed, shape=shape) if isinstance(kernel, chunked.Chunked) else kernel(packed)
        if status:
            self._adoption.release(after)
            compiler.check(status)
        counts = self._adoption.counts(after)
        self._yield = tuple([max(1.125 * n / entries, LESS * y) for n, y in zip(counts, self._yield, strict=True)])
        return self._adoption.take(after, shape)

    def sized(self) -> entry.Call | None:
        """What calls the kernel on slots, for outputs of any shape; None where chunks must know it."""
        return None if self._partial is not None else self._call

    def quick(
        self,
        kept: Sequence[Kept],
        settings: object,
        otherwise: Callable[[Sequence[Storage]], Storage],
        inputs: Sequence[written.Input],
    ) -> Callable[[Sequence[Storage]], Storage]:
        """`run` as one function, where the settings of `config` are as they were, and what inputs keep, by number. Else `otherwise`. It takes operands of
        which these are the `inputs`, or the values of those."""
        planning, facts = config.planning, [known[:3] for known in kept]

        def run(inputs: Sequence[Storage]) -> Storage:
            if planning() != settings or written.others(facts, inputs):
                return otherwise(inputs)
            return self.run(inputs)

        if not self._dense:
            return run
        counted, asked = list[written.Counted](), list[tuple[int, str, object]]()
        for k, name, value, few in kept:
            if few is None or inputs[k].read != written.AS_IT_IS:
                asked.append((k, name, value))
            elif few.level >= 0:
                counted.append(written.Counted(inputs[k].operand, *few))
        bound = self._first, self._call, self._results, self._template
        return written.fixed(inputs, counted, asked, bound, settings, otherwise)

    def _make_room(self, counts: Sequence[int]) -> None:
        """Make room for so many coordinates from the next call on: what grows is moved, to pages that are touched for the first time."""
        self._room, self._empty = tuple(counts), self._before + _pack(counts)

    def run_into(self, inputs: Sequence[Storage], vals: NDArray[Any], clear: bool) -> Storage:
        """Call a kernel with a dense output, into memory that only the result refers to; it is cleared before, unless all of it is
        assigned, or it is not to be: an operand is there."""
        slots = self.fixed(inputs, vals)
        if clear and self._content is not None:
            result_memory.fill(vals, int(slots[-1]), self._content)
        status = self._call(slots.tobytes())
        if status:
            compiler.check(status)
        return Storage.result(self._template, vals, {})


def _check_size(form: Format, shape: Sequence[int]) -> None:
    """Dense levels of an output must be addressable."""
    size = 1
    for level, extent in zip(form.levels, form.level_extents(shape), strict=True):
        if level.full:
            size *= max(1, extent)
    if size > 2**44:
        raise FormatError(
            f"the dense levels of a result of shape {shape} in format {form} need {size} positions; "
            "choose a compressed format for it with out_format or .asformat"
        )


class _GivenMemory:
    """The memory of an output whose positions are those of an input: known before the kernel runs, and partly the input's own."""

    def __init__(self, output: cin.Tensor, shared: Shared) -> None:
        self._output, self._shared = output, shared
        form, starts = output.format, heads(output)
        self._head, self._counts = starts[0], len(starts)
        self._dtypes = [convert.crd_dtype(n) for n in form.level_extents(output.shape)]
        self._below = len(form.levels) - shared.level - 1
        self._sized(output.shape)

    def _sized(self, shape: tuple[int, ...]) -> None:
        form, self._shape = self._output.format, shape
        extents = form.level_extents(shape)
        self._parents = math.prod(extents[: self._head])
        self._block = math.prod(extents[self._shared.level + 1 :])
        self._extents = _extents(form, shape)

    def at(self, shape: tuple[int, ...]) -> _GivenMemory:
        """That of an output of another shape."""
        made = copied(self)
        made._sized(shape)
        return made

    def run(self, kernel: compiler.Kernel | chunked.Chunked, slots: bytes, inputs: Sequence[Storage]) -> Storage:
        """The output of a kernel with these slots of its inputs."""
        memory = self._memory(inputs)
        status = kernel.run_packed(slots, self._slots(memory))
        if status:
            compiler.check(status)
        return self._storage(memory, inputs)

    def _memory(self, inputs: Sequence[Storage]) -> list[NDArray[Any]]:
        """`pos`, `crd` of every level of the run, and values, to be written where they are not the input's."""
        shared, head = self._shared, self._head
        source = inputs[shared.input].buffers
        entries = len(source[shared.level][-1])
        if shared.pos:
            pos = source[head][0]
        else:
            pos = np.zeros(self._parents + 1, np.int64)
            pos[-1] = entries
        crds = [np.empty(entries, self._dtypes[level]) for level in range(head, shared.first)]
        crds += [source[level][-1] for level in range(shared.first, shared.level + 1)]
        return [pos, *crds, result_memory.empty(entries * self._block, self._output.dtype)]

    def _slots(self, memory: list[NDArray[Any]]) -> bytes:
        """The output's slots."""
        return _pack((*self._extents, *(result_memory.address_of(array) for array in memory), *(0,) * self._counts))

    def _storage(self, memory: list[NDArray[Any]], inputs: Sequence[Storage]) -> Storage:
        """The output; fibers that the kernel did not visit begin and end where the one before ends. What is counted of an input over the same
        index buffers is known of it, too."""
        pos, *crds, vals = memory
        if not self._shared.pos:
            np.maximum.accumulate(pos, out=pos)
        output, levels = self._output, [(pos, crds[0]), *((crd,) for crd in crds[1:])]
        buffers = (*((),) * self._head, *levels, *((),) * self._below)
        made = Storage(output.format, self._shape, output.fill_value, buffers, vals)
        source = inputs[self._shared.input]
        same = self._shared.pos and self._shared.first == self._head and output.format == source.format
        if same and self._shape == source.shape and "positions" in source.cache:
            made.cache["positions"] = source.cache["positions"]
        return made


class Adoption:
    """How the storage of a growing output is made from its slots after a call; everything static is worked out once."""

    def __init__(self, output: cin.Tensor) -> None:
        self._output = output
        form, name = output.format, output.name
        places = {slot: k for k, slot in enumerate(abi.slots_of(output, output=True))}
        self._extents = form.level_extents(output.shape)
        self._levels: list[tuple[int, list[tuple[int, str, np.dtype[Any]]]]] = []
        for level, extent in enumerate(self._extents):
            dtypes = {"pos": _INT64, "word": np.dtype(np.uint64), "crd": convert.crd_dtype(extent)}
            kinds, per = form.levels[level].buffer_types(), form.levels[level].per
            count = places.get(abi.Slot(name, "count", level), -1)
            buffers = [(places[abi.Slot(name, n, level)], per[n], dtypes[kinds[n]]) for n in form.buffer_names(level)]
            self._levels.append((count, buffers))
        self._vals = places[abi.Slot(name, "vals", 0)]
        self._pointers = [k for slot, k in places.items() if slot.what not in ("extent", "count")]
        self._counts = [k - len(places) for slot, k in places.items() if slot.what == "count"]
        self._size = len(places)

    def counts(self, slots: tuple[int, ...]) -> list[int]:
        """How many coordinates there are, per level that starts a segment."""
        return [slots[k] for k in self._counts]

    def take(self, slots: tuple[int, ...], shape: tuple[int, ...] | None = None) -> Storage:
        """The storage; its arrays own the memory that the kernel allocated. It has another `shape` where one is given."""
        slots, output = slots[-self._size :], self._output
        extents = self._extents if shape is None else output.format.level_extents(shape)
        count = 1
        buffers: list[tuple[NDArray[Any], ...]] = []
        for extent, (number, held) in zip(extents, self._levels, strict=True):
            above = count
            if number >= 0:
                count = slots[number]
            elif not held:
                count *= extent
            sizes = {"edge": above + 1, "parent": above, "word": above * -(-extent // 64), "position": count}
            buffers.append(tuple([allocator.adopt(slots[k], sizes[per], dtype) for k, per, dtype in held]))
        vals = allocator.adopt(slots[self._vals], count, output.dtype)
        shape = output.shape if shape is None else shape
        return Storage(output.format, shape, output.fill_value, tuple(buffers), vals)

    def release(self, slots: tuple[int, ...]) -> None:
        """Free what a failed kernel left behind."""
        slots = slots[-self._size :]
        allocator.release([slots[k] for k in self._pointers])
