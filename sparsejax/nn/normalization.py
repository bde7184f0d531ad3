"""Normalisation of dense features: over the last axis, over a batch, by the root of the mean square."""

from __future__ import annotations

from typing import Any

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.reduce import mean, var
from sparsejax.lax.structural import convert_format, reshape
from sparsejax.nn.activations import floating


def _scaled(x: Any, scale: Any, bias: Any) -> Any:
    x = x if scale is None else elementwise("multiply", x, scale)
    return x if bias is None else elementwise("add", x, bias)


@again(1, whole=True)
def standardize(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    """`x` less its mean, over its standard deviation, along `axis`: dense.

    >>> import numpy as np
    >>> standardize(np.array([1.0, 3.0]), epsilon=0.0)
    Array([-1.,  1.], dtype=float64)
    """
    x = convert_format(floating(asarray(x, "x")), "dense")
    center, spread = mean(x, axis, keepdims=True), var(x, axis, keepdims=True)
    return elementwise(
        "divide", elementwise("subtract", x, center), elementwise("sqrt", elementwise("add", spread, epsilon))
    )


@again(3, whole=True)
def layer_norm(x: Any, scale: Any = None, bias: Any = None, *, axis: Any = -1, epsilon: float = 1e-5) -> Array:
    """`standardize` over `axis`, times `scale`, plus `bias` (Ba, Kiros and Hinton, 2016). Dense.

    >>> import numpy as np
    >>> layer_norm(np.array([[1.0, 3.0]]), epsilon=0.0)
    Array([[-1.,  1.]], dtype=float64)
    """
    return _scaled(standardize(x, axis, epsilon), scale, bias)


@again(2, whole=True)
def rms_norm(x: Any, scale: Any = None, *, axis: Any = -1, epsilon: float = 1e-5) -> Array:
    """`x` over the root of its mean square along `axis`, times `scale` (Zhang and Sennrich, 2019). Zeros that are not stored stay so."""
    x = floating(asarray(x, "x"))
    size = mean(elementwise("multiply", x, x), axis, keepdims=True)
    root = elementwise("sqrt", elementwise("add", convert_format(size, "dense"), epsilon))
    return _scaled(elementwise("divide", x, root), scale, None)


def batch_norm(
    x: Any,
    scale: Any = None,
    bias: Any = None,
    *,
    mean: Any = None,
    var: Any = None,
    axis: int = -1,
    epsilon: float = 1e-5,
) -> Any:
    """`x` normalised per feature, along `axis`, over all other axes (Ioffe and Szegedy, 2015): by its own mean and variance, or, when a
    trained network is used, by running ones. Dense. The running averages are the caller's: functions have no state.

    >>> import numpy as np
    >>> batch_norm(np.array([[1.0, 0.0], [3.0, 4.0]]), epsilon=0.0)
    Array([[-1., -1.],
           [ 1.,  1.]], dtype=float64)
    """
    x = convert_format(floating(asarray(x, "x")), "dense")
    place = axis % x.ndim
    wide = [n if d == place else 1 for d, n in enumerate(x.shape)]
    rest = tuple(d for d in range(x.ndim) if d != place)
    if (mean is None) != (var is None):
        raise ValueError("batch_norm takes both mean and var, or neither")
    if mean is None:
        made = standardize(x, rest, epsilon)
    else:
        center, size = (reshape(asarray(v), wide) for v in (mean, var))
        made = elementwise(
            "divide", elementwise("subtract", x, center), elementwise("sqrt", elementwise("add", size, epsilon))
        )
    parts = [v if v is None else reshape(asarray(v), wide) for v in (scale, bias)]
    return _scaled(made, *parts)
