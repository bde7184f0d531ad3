"""Linear recurrences of the first order in segments, in NumPy.

before:  x 2 3 4, b 2 0 4, segments begin at 0 and 2
after:   2 6 4                                          y[k] = b[k] + x[k] * y[k - 1]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def recurred(x: Array, b: Array, begins: Array) -> Array:
    """`b[k] + x[k] * y[k - 1]` for every k, where y[k - 1] counts as 0 if a segment begins at k.

    >>> recurred(np.array([2, 3, 4]), np.array([2, 0, 4]), np.array([True, False, True]))
    array([2, 6, 4])
    """
    made = np.array(b)
    starts = np.flatnonzero(begins) if len(b) and begins[0] else np.append(0, np.flatnonzero(begins))
    lengths = np.diff(np.append(starts, len(b)))
    for step in range(1, int(lengths.max(initial=0))):  # entries of the same place in their segments at once
        inside = lengths > step
        starts, lengths = starts[inside], lengths[inside]
        here = starts + step
        with np.errstate(all="ignore"):
            made[here] = b[here] + x[here] * made[here - 1]
    return made
