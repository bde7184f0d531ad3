"""Tangents and cotangents: their types, and how linear operands stand in rules.

    jvp(primals, tangents, out, **params) -> tangent              None is a tangent that is zero
    transpose(ct, *operands, **params) -> one cotangent each      None for an operand that is not `Linear`, or for zero

The tangent of a sparse value has its format and pattern, over fill 0: what is not stored is constant. So the cotangent of a
linear operand that is sparse is needed only at that operand's pattern: `Linear.pattern` is an array that stores it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.formats import Format


def tangent_aval(aval: Aval) -> Aval | None:
    """The type of tangents of a value of type `aval`; None for booleans and integers, which have none.

    >>> tangent_aval(Aval((5, 7), "f8", Format.parse("csr", 2), 1.0))
    f64[5:d,7:c]
    """
    if aval.dtype.kind not in "fc":
        return None
    return Aval(aval.shape, aval.dtype, aval.format, 0, aval.weak_type)


class Linear:
    """An operand that the result depends on linearly: known by its type, and by its pattern where it is sparse.

    `has_pattern_of_result`: its pattern is known to be that of the result, where a cotangent of the result is already.
    """

    def __init__(self, aval: Aval, pattern: Callable[[], Any], has_pattern_of_result: bool = False) -> None:
        self.aval = aval
        self._pattern = pattern
        self.has_pattern_of_result = has_pattern_of_result

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def ndim(self) -> int:
        return self.aval.ndim

    @property
    def format(self) -> Format:
        return self.aval.format

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def is_sparse(self) -> bool:
        return not self.aval.format.is_dense

    @property
    def pattern(self) -> Any:
        """An array of the type of the operand that stores every entry that the operand stores; its values mean nothing."""
        return self._pattern()
