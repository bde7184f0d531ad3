"""Activations. The fill of a sparse array is mapped too: those that keep zero keep the array's sparsity and its fill."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.lax.elementwise import aval_of, convert_element_type, elementwise, logistic, where
from sparsejax.lax.structural import normal_axis
from sparsejax.transforms.custom import custom_jvp


def floating(x: Any) -> Any:
    """`x` in floating point: integers and booleans as float64."""
    dtype = aval_of(x).dtype
    return convert_element_type(x, dtype if dtype.kind in "fc" else np.float64)


@again(1)
def relu(x: Any) -> Array:
    """max(x, 0), with derivative 0 at 0.

    >>> import numpy as np, sparsejax as sj
    >>> relu(sj.array(np.array([-1.0, 0, 2])))
    Array([0., 0., 2.], dtype=float64)
    """
    return elementwise("maximum", 0, x)


@again(1, whole=True)
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Array:
    """`x` where it is positive, else `negative_slope * x`."""
    x = floating(x)
    return where(elementwise("greater_equal", x, 0), x, x * negative_slope)


@again(1, whole=True)
def elu(x: Any, alpha: float = 1.0) -> Array:
    """`x` where it is positive, else `alpha * (exp(x) - 1)` (Clevert, Unterthiner and Hochreiter, 2016)."""
    x = floating(x)
    return where(elementwise("greater", x, 0), x, elementwise("expm1", elementwise("minimum", x, 0)) * alpha)


@again(1, whole=True)
def silu(x: Any) -> Array:
    """`x * sigmoid(x)` (Elfwing, Uchibe and Doya, 2018)."""
    x = floating(x)
    return x * logistic(x)


@again(1, whole=True)
def gelu(x: Any) -> Array:
    """The Gaussian error linear unit by its tanh approximation, as JAX's default (Hendrycks and Gimpel, 2016)."""
    x = floating(x)
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * (elementwise("tanh", inner) + 1) * 0.5


@custom_jvp
def _softplus(x: Any) -> Any:
    return elementwise("maximum", x, 0) + elementwise("log1p", elementwise("exp", -elementwise("absolute", x)))


@_softplus.defjvp
def _softplus_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    (x,), (t,) = primals, tangents
    return _softplus(x), t * logistic(x)


@again(1, whole=True)
def softplus(x: Any) -> Array:
    """log(1 + exp(x)), without overflow."""
    return _softplus(floating(x))


def swish(x: Any) -> Array:
    """Another name of `silu`."""
    return silu(x)


@again(1, whole=True)
def log_sigmoid(x: Any) -> Array:
    """log(sigmoid(x)), without overflow.

    >>> import numpy as np
    >>> log_sigmoid(np.array([-1000.0])).todense()
    array([-1000.])
    """
    return -softplus(-floating(x))


@again(1, whole=True)
def relu6(x: Any) -> Array:
    """min(max(x, 0), 6)."""
    return elementwise("minimum", relu(x), 6)


@again(1, whole=True)
def hard_sigmoid(x: Any) -> Array:
    """relu6(x + 3) / 6."""
    return relu6(floating(x) + 3) * (1 / 6)


@again(1, whole=True)
def hard_tanh(x: Any) -> Array:
    """`x` limited to [-1, 1]."""
    return elementwise("minimum", elementwise("maximum", x, -1), 1)


@again(1, whole=True)
def soft_sign(x: Any) -> Array:
    """x / (1 + |x|)."""
    x = floating(x)
    return x / (elementwise("absolute", x) + 1)


@again(1, whole=True)
def celu(x: Any, alpha: float = 1.0) -> Array:
    """`x` where it is positive, else `alpha * (exp(x / alpha) - 1)` (Barron, 2017)."""
    x = floating(x)
    return where(elementwise("greater", x, 0), x, elementwise("expm1", elementwise("minimum", x, 0) / alpha) * alpha)


@again(1, whole=True)
def selu(x: Any) -> Array:
    """The self-normalising exponential unit (Klambauer et al., 2017)."""
    return elu(x, 1.6732632423543772) * 1.0507009873554805


@again(1, whole=True)
def glu(x: Any, axis: int = -1) -> Array:
    """The first half of `x` along `axis` times the sigmoid of the second (Dauphin et al., 2017)."""
    x = asarray(floating(x))
    place = normal_axis(axis, x.ndim)
    n = x.shape[place]
    if n % 2:
        raise ValueError(f"glu halves axis {place}, but shape {x.shape} has the odd extent {n} there")
    front = (slice(None),) * place
    return x[(*front, slice(n // 2))] * logistic(x[(*front, slice(n // 2, None))])
