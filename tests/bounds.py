"""What rounding may cost: floating-point results are compared with wider numbers, by the sizes of the terms that were added up. A bound relative to the
result alone breaks where terms cancel, on the first processor that adds in another order or fuses products with sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

ROUNDINGS = 32
"""Units in the last place of the sum of all absolute terms: more than a sum of some thousands gathers, far less than a wrong term."""


def wide(x: np.ndarray) -> np.ndarray:
    """The same numbers, in double precision at least."""
    return x.astype(np.result_type(x.dtype, np.float64))


def check(made: np.ndarray, exact: ArrayLike, terms: ArrayLike, roundings: float = ROUNDINGS, name: str = "") -> None:
    """`made`, computed in its own precision, is `exact` up to that many roundings of `terms`, the sums of absolute terms."""
    unit = np.finfo(made.dtype if made.dtype.kind in "fc" else np.float64).eps
    np.testing.assert_array_less(np.abs(wide(made) - exact), roundings * unit * np.abs(terms) + 5e-324, err_msg=name)
