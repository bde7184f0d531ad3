"""Numbers at equal distances between ends that are traced: a library call, since kernels fuse products with the sums that they go into, and
where an entry lies on an edge the last bit decides.

x = spaced[endpoint=True, size=n] a b       x[k] = a + k (b - a) / (n - 1), each step rounded, and x[n - 1] = b
                                            tangent  da (1 - k / (n - 1)) + db k / (n - 1)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import dtypes
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.symbolic import SymbolicDim, span
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.extents import coordinates, number
from sparsejax.lax.library.calls import on_arrays
from sparsejax.lax.rules.batching import spread
from sparsejax.lax.structural import broadcast_to, convert_format

FLOAT = np.dtype(float)


def _spaced(low: NDArray[Any], high: NDArray[Any], size: int, endpoint: bool, batched: int) -> NDArray[Any]:
    """`numpy.linspace`, to the bit, for each of the elements of the last `batched` axes."""
    if not batched:
        return np.linspace(low, high, size, endpoint)
    gap, last = high - low, size - 1 if endpoint else size
    index = np.arange(size, dtype=low.dtype).reshape(-1, *[1] * low.ndim)
    step = gap / max(last, 1)
    lost = np.any(step == 0, axis=tuple(range(low.ndim - batched)), keepdims=True)  # steps below the least number
    made = np.where(lost, index / max(last, 1) * gap, index * step) + low
    if endpoint and size > 1:
        made[-1] = high
    return np.asarray(made, low.dtype)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, size: Any, endpoint: bool, batched: int) -> Any:
    part = _parts(size, endpoint, primals[0].ndim)
    terms = [
        elementwise("multiply", t, convert_element_type(share, out.dtype))
        for t, share in zip(tangents, (1.0 - part, part), strict=True)
        if t is not None
    ]
    return elementwise("add", *terms) if len(terms) == 2 else terms[0]


def _parts(size: Any, endpoint: bool, ndim: int) -> Any:
    """How far along each number lies: 0 to 1, or to one step before it."""
    last = elementwise("maximum", number(size - 1 if endpoint else size), 1.0)
    return elementwise("divide", coordinates(span(0, size), FLOAT), last).reshape([-1, *[1] * ndim])


def _batch(count: int, low: Any, high: Any, size: Any, endpoint: bool, batched: int) -> Any:
    first, second = (convert_format(spread(end, count), "dense") for end in (low, high))
    return spaced_p.bind(first, second, size=size, endpoint=endpoint, batched=batched + 1)


spaced_p: Primitive = Primitive(
    "spaced",
    typing=lambda low, high, size, endpoint, batched: rules.dense((size, *low.shape), low.dtype),
    reference=_spaced,
    call=on_arrays(_spaced),
    jvp=_jvp,
    batch=_batch,
)


def spaced(low: Any, high: Any, size: int | SymbolicDim, endpoint: bool = True) -> Any:
    """So many numbers from `low` to `high`, or to one step before it, along a new first axis: the bits of `numpy.linspace`. Dense.

    >>> spaced(0.0, np.array([1.0, 2.0]), 3)
    Array([[0. , 0. ],
           [0.5, 1. ],
           [1. , 2. ]], dtype=float64)
    """
    ends = [convert_format(asarray(end), "dense") for end in (low, high)]
    dtype = dtypes.result_type(*((end.dtype, end.aval.weak_type) for end in ends))
    shape = rules.broadcast_shapes(*(end.shape for end in ends))
    wide = [broadcast_to(convert_element_type(e, dtype if dtype.kind in "fc" else FLOAT), shape) for e in ends]
    return spaced_p.bind(*wide, size=size, endpoint=endpoint, batched=0)
