"""A kernel that is called with the extents at hand, whatever they are: what a shape costs that was never seen.

before:   numbers of a shape, its plan, facts of operands, the kernel for these, slots, memory, types: a function each
after:    one function of operands and of the shape of the result, for facts that are as they were
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import statistics
from sparsejax.jit.runtime import written
from sparsejax.jit.runtime.binding import Binding
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.runtime.written import Direct

DIRECT = 4
"""Facts for which a kernel is called on the shortest road."""
TRIES = 16
"""How often a kernel is asked for that road where it has none."""


class Roads:
    """The shortest roads to a kernel for operands of any extents, under the settings of `config` as they are: those for the facts that were met
    last."""

    __slots__ = ("_found", "_tries", "known")

    def __init__(self, found: Callable[[Sequence[Storage]], Direct | None]) -> None:
        """`found` gives the road for operands, where there is one."""
        self._found, self._tries = found, TRIES
        self.known: tuple[Direct, ...] = ()
        """Those that were learnt last, the latest first."""

    def __call__(self, operands: Sequence[Storage], shape: tuple[int, ...]) -> Storage | None:
        """The result of this shape; None where no road that is known serves the operands."""
        for direct in self.known:
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
            self.known = (now, *self.known)[:DIRECT]
        return now


def how(storage: Storage, flat: bool) -> int:
    """How an operand is read, or its values are where it is `flat`."""
    if not flat:
        return written.AS_IT_IS
    return written.ENTRIES if storage.format.sparse[-1] == len(storage.format.levels) - 1 else written.VALUES


def called(
    bound: Binding,
    inputs: Sequence[written.Input],
    watched: Sequence[tuple[int, Storage]],
    limit: int | None,
    like: tuple[int, Any] | None,
    operands: int,
    memory: result_memory.Passing | None = None,
) -> Direct | None:
    """The kernel of a `bound` dense result as one function of so many `operands`, for `inputs` of these; of results of more than `limit` bytes it makes
    none. Those that are `watched`, by number of the operand, have `statistics.rates` as these storages. Results are `like` an operand, with this fill: they
    share its buffers. They lie in `memory` where that is given. None where chunks must know the shape of the result."""
    call = bound.sized()
    if call is None:
        return None
    counted, rates = list[written.Counted](), list[tuple[int, tuple[float, ...]]]()
    for number, storage in watched:
        known, level = statistics.rates(storage), storage.format.alone
        if level < 0:
            rates.append((number, known))
        else:
            counted.append(
                written.Counted(number, level, known[level] / 2, known[level] * 2, storage.format.order[:level])
            )
    most = written.UNLIMITED if limit is None else limit // bound.dtype.itemsize
    take = bound.memory if memory is None else result_memory.taker(bound.dtype, bound.content, memory)
    stays = memory is not None or like is not None
    stored = None if stays else result_memory.repeated(bound.format, bound.dtype, bound.zero, bound.content)
    what = bound.prefix, call, take, bound.format, bound.zero, stored, bound.content
    return written.sized(inputs, counted, rates, what, most, like, operands)
