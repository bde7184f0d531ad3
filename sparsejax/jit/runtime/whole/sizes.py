"""What in a table depends on extents, so that loops over other sizes run as the table that was made for one of them.

    word 12   n            an extent of a carry, n <= 4095              n = 17: words 12, 30, 31 are 17, 17, 136
    word 30   n            one of a result of a kernel
    word 31   8 n          the bytes that MOVE copies

Operations have no extents in them, but words that do: words are told beside their shapes with bounds (`ir/bounded`). Where something else depends on
extents (bounds of index arrays, entries that are blocks, kernels in chunks), the table serves one size, and is `fixed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from sparsejax import config
from sparsejax.core.avals import Aval
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import statistics
from sparsejax.jit.graph.resize import Change, changes
from sparsejax.jit.runtime.system import threads
from sparsejax.lax.rounds import Body, Rounds

Bytes = tuple[int, tuple[Any, ...], int]
"""How many bytes values take in the sample; their shape with bounds, and how many one takes: equal for what is equal at all sizes."""


class Sizes:
    """The words of a table that depend on extents."""

    def __init__(self) -> None:
        self.fixed = False
        """Whether something else does."""
        self.words: list[tuple[int, tuple[Any, ...], int]] = []
        """Words that are the product of extents and a number."""
        self.constants: list[tuple[int, Callable[[Change], Storage]]] = []
        """Where the slots of values begin that are made of extents alone."""

    def extents(self, at: int, bounded: Aval | None) -> None:
        """The words from `at` on are the extents of a value."""
        if bounded is None:
            return
        self.fixed |= bounded.format.blocked and changes(bounded.shape)
        self.words += [(at + k, (n,), 1) for k, n in enumerate(bounded.shape) if changes((n,))]

    def bytes(self, word: int, size: Bytes) -> None:
        """The word is so many bytes."""
        if changes(size[1]):
            self.words.append((word, size[1], size[2]))


def bytes_of(count: int, aval: Aval, bounded: Aval | None) -> Bytes:
    """The bytes of so many values; of a type with bounds, where it has some."""
    size = aval.dtype.itemsize
    return (count * size, (), size) if bounded is None else (count * size, bounded.shape, size)


def product(shape: tuple[Any, ...], factor: int, change: Change) -> int:
    """A number that depends on extents."""
    return int(math.prod(map(change, shape))) * factor


class _Loop(Protocol):
    """What a table of a loop is here (`loop.Loop`)."""

    def resized(self, change: Change) -> _Loop: ...

    def run(self, operands: Sequence[Storage], carry: Sequence[Storage]) -> tuple[list[Storage], bool]: ...


class _Plan(Protocol):
    """What a plan is here (`plan.Plan`): for many sizes."""

    past: Any
    patience: int
    count: int
    sizes: dict[Any, Any]

    def resized(self, change: Change) -> Any: ...


def key_of(going: Any, operands: Sequence[Storage]) -> Any:
    """Under what a table for many sizes is kept, with the plan of the body: the plan of the condition, settings, and facts of operands that do not tell
    their sizes."""
    return id(going), config.planning(), threads.count(), tuple(map(statistics.rates, operands))


class Later(Body):
    """The plan for one of the sizes that another one serves, which is made where no table serves them all."""

    def __init__(self, many: _Plan, change: Change) -> None:
        self.many, self._change, self._made = many, change, None
        self.past, self.patience, self.count = many.past, many.patience, many.count

    @property
    def plan(self) -> Any:
        """The plan."""
        if self._made is None:
            self._made = self.many.resized(self._change)
        return self._made

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        return self.plan.run(storages)  # type: ignore[no-any-return]

    def loop(
        self,
        going: Body | None,
        asked: Sequence[Storage],
        given: Sequence[Storage],
        carry: Sequence[Storage],
        sample: Sequence[Storage] | None,
        rounds: Rounds | None = None,
        unread: Collection[int] = (),
    ) -> list[Storage] | None:
        if not isinstance(going, Later) or rounds is not None:
            return None
        found = self.many.sizes.get(key_of(going.many, (*asked, *given)))
        if found is not None:
            made: _Loop = found[0].resized(self._change)
            return made.run((*asked, *given), carry)[0]
        return self.plan.loop(going.plan, asked, given, carry, sample, None, unread)  # type: ignore[no-any-return]
