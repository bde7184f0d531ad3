"""A plan bound to buffers once, to run many times: the body of a loop whose changing values are dense.

    a run = the kernels of the plan, one call each over slots that do not change, into buffers that are written again every time

Nothing is allocated, looked up or packed between the kernels. Plans with library calls, sparse results, or operands that change
and must be converted before every run are not bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.storage import Storage
from sparsejax.jit.runtime.binding import Binding

Place = tuple[NDArray[np.int64], int]


class Bound:
    """Kernels in order, over fixed slots; `results` are where they are after a run."""

    def __init__(self) -> None:
        self.results: list[Storage] = []
        self._calls: list[Callable[[], None]] = []
        self._copies: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._places: dict[int, list[Place]] = {}
        self._keep: list[Any] = []

    def add(self, bound: Binding, inputs: Sequence[Storage], vals: NDArray[Any] | None) -> Storage:
        """Bind a kernel with a dense output; where that is after a run: in `vals`, if given."""
        own, made = bound.output(vals)
        slots = bound.fixed(inputs, own)
        for storage, place in zip(inputs, bound.places(inputs), strict=True):
            self._places.setdefault(id(storage), []).append((slots, place))
        self._calls.append(bound.call(slots, own))
        self._keep += [slots, own, *inputs]
        return made

    def copy(self, to: NDArray[Any], source: Storage) -> None:
        """After every run, copy the values of `source`."""
        self._copies.append((to, source.vals))

    def places(self, storage: Storage) -> list[Place]:
        """The slots that hold the address of the values of an input."""
        return self._places.get(id(storage), [])

    def run(self) -> None:
        """Run the kernels: what `results` held before is overwritten."""
        for call in self._calls:
            call()
        for to, source in self._copies:
            to[:] = source
