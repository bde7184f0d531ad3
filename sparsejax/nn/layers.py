"""Layers as functions of their weights."""

from __future__ import annotations

import math
from typing import Any

from sparsejax import random
from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.lax.contract import einsum, matmul
from sparsejax.lax.elementwise import elementwise, where
from sparsejax.nn.activations import floating
from sparsejax.nn.stored import at, softmax


@again(3)
def linear(x: Any, weight: Any, bias: Any = None) -> Array:
    """`x @ weight + bias`; `x` and `weight` may be sparse.

    >>> import numpy as np
    >>> linear(np.ones(2), np.eye(2), np.array([1.0, 2.0]))
    Array([2., 3.], dtype=float64)
    """
    made = matmul(x, weight)
    return made if bias is None else made + bias


def dropout(key: Any, x: Any, rate: float) -> Array:
    """Each entry zero with probability `rate`, else scaled by 1 / (1 - rate); of a sparse array, each stored entry (Srivastava et
    al., 2014). ValueError unless 0 <= rate < 1.

    >>> import numpy as np, sparsejax as sj
    >>> dropout(sj.random.key(0), np.ones(3), 0.0)
    Array([1., 1., 1.], dtype=float64)
    """
    if not 0 <= rate < 1:
        raise ValueError(f"rate={rate} must be at least 0 and below 1")
    x = floating(asarray(x, "x"))
    if not rate:
        return x
    dropped = elementwise("less", random.uniform(key, x.shape, like=None if x.format.is_dense else x), rate)
    return where(dropped, 0.0, x * (1 / (1 - rate)))


def dot_product_attention(
    query: Any, key: Any, value: Any, mask: Any = None, scale: float | None = None, bias: Any = None
) -> Array:
    """softmax(scale * query @ key.T + bias) @ value, of arrays (..., n, d), (..., m, d) and (..., m, e).

    Only where `mask` of shape (n, m) or (..., n, m) stores an entry (is true, where it is dense): a sampled product, a softmax over
    stored entries and a sparse product, in memory proportional to the mask. A row without entries attends to nothing and gives
    zeros. `scale` is 1 / sqrt(d) unless given. The values of a sparse mask mean nothing.

    Source: Vaswani et al., "Attention Is All You Need", section 3.2.1.
    """
    query, key, value = (asarray(x, name) for x, name in ((query, "query"), (key, "key"), (value, "value")))
    if query.ndim < 2 or query.shape[:-2] != key.shape[:-2] or query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"query of shape {query.shape} and key of shape {key.shape} must be (..., n, d) and (..., m, d)"
        )
    if value.shape[:-1] != key.shape[:-1]:
        raise ValueError(f"value of shape {value.shape} must be (..., m, e) where key is {key.shape}")
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    mask = None if mask is None else asarray(mask, "mask")
    if mask is None or mask.format.is_dense:
        scores = einsum("...nd,...md->...nm", query * factor, key)
        scores = scores if bias is None else scores + bias
        scores = scores if mask is None else where(mask, scores, -math.inf)
    else:
        scores = einsum("...nd,...md->...nm", query * factor, key, mask=mask)
        scores = scores if bias is None else scores + at(bias, scores)
    return einsum("...nm,...me->...ne", softmax(scores), value)
