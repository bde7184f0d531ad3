"""Constants that a kernel reads at run time, so that one kernel serves all of them.

    A + 0.25,  A + 0.5                  one text:  out = a + constants[0]
    A + 1,     A * 0                    others: a number that is likely to decide something stays in the text

What the compiler derives from numbers (which cases there are, what is stored) is derived from their values as before; only
the code is shared. One area of 16 bytes per constant is passed in the first slot.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.jit.ir import cin

BYTES = 16
_PLAIN = (0, 1, -1)


class Numbers:
    """The constants of one kernel, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._places: dict[cin.Literal, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def holds(self, literal: cin.Literal) -> bool:
        """Whether `literal` is read at run time: a finite number other than 0, 1 and -1."""
        return literal.dtype.kind in "iufc" and bool(np.isfinite(literal.value)) and literal.value not in _PLAIN

    def place(self, literal: cin.Literal) -> int:
        """Where it stands, in elements of its own dtype."""
        return self._places.setdefault(literal, len(self._places)) * BYTES // literal.dtype.itemsize

    def area(self) -> NDArray[Any]:
        """The values, in memory."""
        made = np.zeros(max(1, len(self._places)) * BYTES, np.uint8)
        for literal, k in self._places.items():
            value = np.asarray(literal.value, literal.dtype).reshape(1).view(np.uint8)
            made[k * BYTES : k * BYTES + len(value)] = value
        return made
