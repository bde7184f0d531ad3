"""A kernel that is called with the extents at hand, whatever they are: what a shape costs that was never seen.

before:   numbers of a shape, its plan, facts of operands, the kernel for these, slots, memory, types: a function each
after:    one function of operands and of the shape of the result, for facts that are as they were
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sparsejax.formats.storage import Storage
from sparsejax.jit.backend import compiler
from sparsejax.jit.cost import statistics
from sparsejax.jit.graph.shared_patterns import values_of
from sparsejax.jit.runtime.binding import Binding, input_slots
from sparsejax.jit.runtime.system import result_memory

Direct = Callable[[Sequence[Storage], tuple[int, ...]], Storage | None]
"""The result of this shape for these operands; None where they are to be looked at more closely."""

DIRECT = 4
"""Facts for which a kernel is called on the shortest road."""
TRIES = 16
"""How often a kernel is asked for that road where it has none."""

AS_IT_IS, VALUES, ENTRIES = 0, 1, 2
"""How an operand is read: as it is, its values as a dense array, or those as a vector where no level below the last sparse one is dense."""

_new: Any = object.__new__
_pack_two = struct.Struct("2q").pack


class Roads:
    """The shortest roads to a kernel for operands of any extents, under the settings of `config` as they are: those for the facts that were met
    last."""

    __slots__ = ("_found", "_known", "_tries")

    def __init__(self, found: Callable[[Sequence[Storage]], Direct | None]) -> None:
        """`found` gives the road for operands, where there is one."""
        self._found, self._tries = found, TRIES
        self._known: tuple[Direct, ...] = ()

    def __call__(self, operands: Sequence[Storage], shape: tuple[int, ...]) -> Storage | None:
        """The result of this shape; None where no road that is known serves the operands."""
        for direct in self._known:
            result = direct(operands, shape)
            if result is not None:
                return result
        return None

    def learn(self, operands: Sequence[Storage]) -> Direct | None:
        """The road for operands that none has served, which is known from now on."""
        if not self._tries:
            return None
        now = self._found(operands)
        if now is None:
            self._tries -= 1
        else:
            self._known = (now, *self._known)[:DIRECT]
        return now


class Rates(NamedTuple):
    """The `statistics.rates` that an operand must have: where one level alone is sparse, bounds of the entries per position above it."""

    operand: int
    level: int
    above: tuple[int, ...]
    low: float
    high: float
    rates: tuple[float, ...]

    @staticmethod
    def of(operand: int, storage: Storage) -> Rates:
        """Those of operands that are like this one."""
        rates, level = statistics.rates(storage), storage.format.alone
        if level < 0:
            return Rates(operand, level, (), 0.0, 0.0, rates)
        return Rates(operand, level, storage.format.order[:level], rates[level] / 2, rates[level] * 2, rates)


def how(storage: Storage, flat: bool) -> int:
    """How an operand is read, or its values are where it is `flat`."""
    if not flat:
        return AS_IT_IS
    return ENTRIES if storage.format.sparse[-1] == len(storage.format.levels) - 1 else VALUES


def _serve(operands: Sequence[Storage], watched: Sequence[Rates]) -> bool:
    """Whether operands have rates as these."""
    for operand, level, dims, low, high, rates in watched:
        s = operands[operand]
        if level < 0:
            if (s.cache.get("rates") or statistics.rates(s)) != rates:
                return False
            continue
        above = 1
        for d in dims:
            above *= s.shape[d]
        if not low * above <= (len(s.buffers[level][-1]) or 1) < high * (above or 1):
            return False
    return True


def called(
    bound: Binding,
    reads: Sequence[tuple[int, int]],
    watched: Sequence[Rates],
    limit: int,
    like: tuple[int, Any] | None = None,
    operands: int = -1,
) -> Direct | None:
    """The kernel of a `bound` dense result as one function. Its inputs are `reads` of the `operands`, of which there are so many, by number, each with
    how it is read; of results of more than `limit` bytes it makes none. Results are `like` an operand, with this fill: they share its buffers. None
    where chunks must know the shape of the result."""
    call = bound.sized()
    if call is None:
        return None
    first, form, zero, memory = bound.prefix, bound.format, bound.zero, bound.memory
    most, address_of, rank = limit // bound.dtype.itemsize, result_memory.address_of, len(form.levels)
    buffers: tuple[tuple[()], ...] = ((),) * rank
    pack, over = struct.Struct(f"{rank + 1}q").pack, -1 if like is None else like[0]

    def run_plain(operands: Sequence[Storage], shape: tuple[int, ...]) -> Storage | None:
        if watched and not _serve(operands, watched):
            return None
        size = math.prod(shape)
        if size > most:
            return None
        slots = first
        for s in operands:
            slots += s.cache.get("slots") or input_slots(s)
        vals, address = memory(size)
        last = pack(*shape, address)
        status = call(slots + last)
        if status:
            compiler.check(status)
        made: Storage = _new(Storage)
        made.format, made.shape, made.fill_value, made.buffers = form, shape, zero, buffers
        made.vals, made.cache, made.ours = vals, {"slots": last}, True  # type: ignore[misc]
        return made

    if like is None and list(reads) == [(k, AS_IT_IS) for k in range(operands)]:
        return run_plain

    def run(operands: Sequence[Storage], shape: tuple[int, ...]) -> Storage | None:
        if watched and not _serve(operands, watched):
            return None
        if over >= 0:
            size = len(operands[over].vals)
            shape = (size,)
        else:
            size = math.prod(shape)
        if size > most:
            return None
        slots = first
        for k, read in reads:
            s = operands[k]
            if read:
                if read == ENTRIES:
                    slots += _pack_two(len(s.vals), address_of(s.vals))
                    continue
                s = s.cache.get("values") or values_of(s)
            slots += s.cache.get("slots") or input_slots(s)
        vals, address = memory(size)
        last = pack(*shape, address)
        status = call(slots + last)
        if status:
            compiler.check(status)
        if like is not None:
            return operands[over].with_values(vals, like[1])
        made: Storage = _new(Storage)
        made.format, made.shape, made.fill_value, made.buffers = form, shape, zero, buffers
        made.vals, made.cache, made.ours = vals, {"slots": last}, True  # type: ignore[misc]
        return made

    return run
