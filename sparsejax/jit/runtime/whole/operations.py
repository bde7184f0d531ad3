"""The operations of a table (`loop`), and what runs them: the function that reads them (`driver`), and once there were many rounds, machine code of
their own (`written_out`)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sparsejax.jit.backend import compiler
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime.system import result_memory
from sparsejax.jit.runtime.whole import driver, written_out
from sparsejax.jit.runtime.whole.driver import AT, BUDGET, DONE, PAUSED

ENOUGH = 1000
"""Rounds after which operations become machine code: that takes as long as a hundred thousand rounds of few entries gain, but a twentieth of that
in later processes, which find it on disk."""
FIRST, USUAL = 64, 512
"""Rounds before Python is asked for signals for the first time: of a table that never ran, and the most of another one, whose rounds may be longer today."""
LOOKED = 8
"""Rounds after which it is seen whether a table still suits, always the same: what a loop computes depends on no clock."""
AWAY = 0.05
"""Seconds, about, after which it is asked again."""


Words = Any
"""64-bit words that are read and written by number: an array of NumPy's, or a `memoryview`, which takes a fifth of the time for one of them."""


class Operations:
    """The operations of a table; `failures`: by their numbers, what raises where one fails."""

    def __init__(self, ops: Sequence[Sequence[int]], failures: Mapping[int, Callable[[Words], None]]) -> None:
        self.ops, self._failures = np.array(ops, np.int64), failures
        self.address = result_memory.address_of(self.ops)
        self._kernel = driver.kernel()
        self._function: Callable[[int], int] = self._kernel.run_at
        way = choices.pick("operations", ("written", "read"), "written")
        self._left: float = math.inf if way == "read" else 0 if choices.free() else ENOUGH
        """Rounds until they become machine code."""
        self._budget = FIRST

    def drive(
        self,
        address: int,
        slots: Words,
        words: Words,
        left: int | None,
        suits: Callable[[], bool] | None = None,
    ) -> bool:
        """Run them on the slots at this address, so many rounds or (None) until they leave, and ask for signals from time to time. Whether they came to
        their end: not where they no longer suit (`suits`) after some `LOOKED` rounds."""
        if self._left <= 0:
            self._kernel = written_out.kernel(self.ops.tolist())  # loaded for as long as it is referred to
            self._left, self._function = math.inf, self._kernel.run_at
        run, budget = self._function, self._budget if suits is None else LOOKED
        while True:
            now = budget if left is None else min(budget, left)
            slots[BUDGET], started = now, time.perf_counter()
            status = run(address)
            self._left -= now - slots[BUDGET]
            if status == PAUSED:
                if left is not None:
                    left -= now
                    if not left:
                        return True
                if suits is not None:
                    if not suits():
                        return False
                    continue
                budget = budget * 2 if time.perf_counter() - started < AWAY else max(1, budget // 2)
                self._budget = min(budget, USUAL)
                continue
            if status:
                raises = self._failures.get(int(slots[AT]))
                if raises is not None:
                    raises(words)
                if status == -DONE:
                    raise KeyboardInterrupt
                compiler.check(status)
            return True
