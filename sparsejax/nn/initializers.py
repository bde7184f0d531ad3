"""`sparsejax.nn.initializers`: how weights begin, as functions `init(key, shape, dtype)`; the names of `jax.nn.initializers`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes, random
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.library.decompositions import qr
from sparsejax.lax.structural import diagonal, extents, reshape, transpose

__all__ = [
    "constant",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "zeros",
]

Initializer = Callable[..., Any]


def __dir__() -> list[str]:
    return __all__


def constant(value: Any, dtype: Any = float) -> Initializer:
    """All entries `value`."""

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Any:
        return asarray(np.full(extents(shape), value, dtypes.canonical(dtype)))

    return init


def zeros(key: Any, shape: Any, dtype: Any = float) -> Array:
    """Zeros."""
    return constant(0)(key, shape, dtype)


def ones(key: Any, shape: Any, dtype: Any = float) -> Array:
    """Ones."""
    return constant(1)(key, shape, dtype)


def uniform(scale: float = 1e-2, dtype: Any = float) -> Initializer:
    """Uniform in [0, scale)."""

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Any:
        return random.uniform(key, shape, dtype) * scale

    return init


def normal(stddev: float = 1e-2, dtype: Any = float) -> Initializer:
    """Normal of a standard deviation.

    >>> normal(0.1)(random.key(0), (2, 3)).shape
    (2, 3)
    """

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Any:
        return random.normal(key, shape, dtype) * stddev

    return init


def truncated_normal(stddev: float = 1e-2, dtype: Any = float, lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """Normal of a standard deviation, within `lower` and `upper` of them."""

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Any:
        return random.truncated_normal(key, lower, upper, shape, dtype) * stddev

    return init


def _fans(shape: Sequence[int], in_axis: int, out_axis: int) -> tuple[float, float]:
    if len(shape) < 2:
        raise ValueError(f"weights of shape {tuple(shape)} have no inputs and outputs: two dimensions are needed")
    rest = math.prod(shape) / shape[in_axis] / shape[out_axis] if math.prod(shape) else 0
    return shape[in_axis] * rest, shape[out_axis] * rest


def variance_scaling(
    scale: float, mode: str, distribution: str, in_axis: int = -2, out_axis: int = -1, dtype: Any = float
) -> Initializer:
    """Of variance `scale / n`, n being the number of inputs ("fan_in"), outputs ("fan_out") or their mean ("fan_avg"); `distribution`
    "uniform", "normal" or "truncated_normal". Source: Glorot and Bengio 2010; He et al. 2015.

    >>> variance_scaling(1.0, "fan_in", "normal")(random.key(0), (4, 2)).shape
    (4, 2)
    """

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Any:
        new = extents(shape)
        fan_in, fan_out = _fans(new, in_axis, out_axis)
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        if mode not in fans:
            raise ValueError(f"mode={mode!r} must be 'fan_in', 'fan_out' or 'fan_avg'")
        variance = scale / max(1.0, fans[mode])
        if distribution == "uniform":
            return random.uniform(key, new, dtype, -1.0, 1.0) * math.sqrt(3 * variance)
        if distribution == "normal":
            return random.normal(key, new, dtype) * math.sqrt(variance)
        if distribution == "truncated_normal":
            # the standard deviation of what lies within two of them
            return random.truncated_normal(key, -2.0, 2.0, new, dtype) * (math.sqrt(variance) / 0.87962566103423978)
        raise ValueError(f"distribution={distribution!r} must be 'uniform', 'normal' or 'truncated_normal'")

    return init


def glorot_uniform(in_axis: int = -2, out_axis: int = -1, dtype: Any = float) -> Initializer:
    """Glorot's, also called Xavier's, uniform."""
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis, dtype)


def glorot_normal(in_axis: int = -2, out_axis: int = -1, dtype: Any = float) -> Initializer:
    """Glorot's, also called Xavier's, truncated normal."""
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis, dtype)


def lecun_uniform(in_axis: int = -2, out_axis: int = -1, dtype: Any = float) -> Initializer:
    """LeCun's uniform."""
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis, dtype)


def lecun_normal(in_axis: int = -2, out_axis: int = -1, dtype: Any = float) -> Initializer:
    """LeCun's truncated normal."""
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis, dtype)


def he_uniform(in_axis: int = -2, out_axis: int = -1, dtype: Any = float) -> Initializer:
    """He's, also called Kaiming's, uniform."""
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis, dtype)


def he_normal(in_axis: int = -2, out_axis: int = -1, dtype: Any = float) -> Initializer:
    """He's, also called Kaiming's, truncated normal."""
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis, dtype)


def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: Any = float) -> Initializer:
    """Orthonormal columns (or rows, where there are fewer), uniformly distributed, times `scale` (Saxe et al., 2014).

    >>> w = orthogonal()(random.key(0), (4, 2))
    >>> bool(np.allclose((w.T @ w).todense(), np.eye(2)))
    True
    """

    def init(key: Any, shape: Any, dtype: Any = dtype) -> Any:
        new = extents(shape)
        _fans(new, 0, column_axis)
        columns = new[column_axis]
        rows = math.prod(new) // columns
        tall = rows >= columns
        drawn = random.normal(key, (rows, columns) if tall else (columns, rows), dtype)
        q, r = qr(drawn)
        q = q * elementwise("sign", convert_element_type(diagonal(r), q.dtype))
        made = q if tall else transpose(q)
        rest = [n for d, n in enumerate(new) if d != column_axis % len(new)]
        made = reshape(made, (*rest, columns))
        order = list(range(len(new) - 1))
        order.insert(column_axis % len(new), len(new) - 1)
        return transpose(made, order) * scale

    return init
