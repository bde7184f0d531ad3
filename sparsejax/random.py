"""`sparsejax.random`: random numbers by keys, as in JAX. A key gives the same numbers whatever formats, loops or threads.

    key = sj.random.key(0)
    key, use = sj.random.split(key)         never use a key twice
    noise = sj.random.normal(use, (3, 4))

The generator is threefry2x32 in counter mode, compiled into the kernels that read the numbers. A key is a scalar uint64, so jitted
functions take keys. `like=A` draws one number for every stored entry of a sparse array, in its format.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.primitive import asarray
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.indexing import gather
from sparsejax.lax.linear import sample
from sparsejax.lax.random_bits import permutation as _permutation
from sparsejax.lax.random_bits import random_bits
from sparsejax.lax.structural import extents, integer

_SPLIT, _FOLD = 2**62, 2**63
"""Where the parts of a stream begin that make keys; numbers are drawn from its beginning."""


def key(seed: Any) -> Any:
    """A key made of an integer.

    >>> key(7)
    Array(7, dtype=uint64)
    """
    if isinstance(seed, int):
        return asarray(np.uint64(seed % 2**64))
    made = asarray(seed, "seed")
    if made.ndim or made.dtype.kind not in "iu":
        raise TypeError(f"seed must be one integer, not {made.dtype} of shape {made.shape}")
    return convert_element_type(made, np.uint64)


def _key(value: Any) -> Any:
    made = asarray(value, "key")
    if made.ndim or made.dtype != np.uint64:
        raise TypeError(f"key must be made by sparsejax.random.key or split; it is {made.dtype} of shape {made.shape}")
    return made


def split(key: Any, num: int = 2) -> Any:
    """A vector of `num` new keys. Use each once, and the old one no more.

    >>> first, second = split(key(7))
    """
    return random_bits(_key(key), (integer(num, "num"),), first=_SPLIT)


def fold_in(key: Any, data: int) -> Any:
    """A new key made of a key and a non-negative integer."""
    number = integer(data, "data")
    if not 0 <= number < 2**63:
        raise ValueError(f"data={number} must be at least 0 and below 2^63")
    return random_bits(_key(key), (), first=_FOLD + number)


def bits(key: Any, shape: Any = (), *, like: Any = None) -> Any:
    """64 random bits per entry, as uint64; with `like`, for the stored entries of a sparse array."""
    wanted = extents(shape) if like is None else asarray(like, "like").shape
    if any(n < 0 for n in wanted):
        raise ValueError(f"shape={wanted} has negative extents")
    return random_bits(_key(key), wanted, None if like is None else asarray(like, "like"))


def _unit(key: Any, shape: Any, dtype: np.dtype[Any], like: Any) -> Any:
    """Multiples of the dtype's precision in [0, 1); what `like` does not store is 0."""
    if dtype.kind != "f":
        raise TypeError(f"dtype must be a floating point type, not {dtype}")
    digits = np.finfo(dtype).nmant + 1
    whole = convert_element_type(elementwise("right_shift", bits(key, shape, like=like), 64 - digits), dtype)
    return elementwise("multiply", whole, 2.0**-digits)


def _sampled(x: Any, like: Any) -> Any:
    """`x` at the stored entries of a sparse `like`, over fill 0."""
    return x if like is None or like.format.is_dense else sample(x, like)


def uniform(
    key: Any, shape: Any = (), dtype: Any = float, minval: Any = 0.0, maxval: Any = 1.0, *, like: Any = None
) -> Any:
    """Numbers in [minval, maxval), all equally likely.

    >>> 0 <= float(uniform(key(0)).todense()) < 1
    True
    """
    made = _unit(key, shape, dtypes.canonical(dtype), like)
    if isinstance(minval, int | float) and isinstance(maxval, int | float) and (minval, maxval) == (0, 1):
        return made
    scaled = elementwise("multiply", made, elementwise("subtract", maxval, minval))
    return convert_element_type(_sampled(elementwise("add", scaled, minval), like), made.dtype)


def normal(key: Any, shape: Any = (), dtype: Any = float, *, like: Any = None) -> Any:
    """Numbers of the normal distribution of mean 0 and variance 1 (Box and Muller, 1958)."""
    first, second = split(key)
    wanted = dtypes.canonical(dtype)
    size = elementwise("sqrt", -2.0 * elementwise("log1p", -_unit(first, shape, wanted, like)))
    made = size * elementwise("cos", _unit(second, shape, wanted, like) * (2 * math.pi))
    return _sampled(made, like)


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, *, like: Any = None) -> Any:
    """True with probability `p`; `shape` is that of `p` unless given."""
    made = _unit(key, np.shape(p) if shape is None else shape, np.dtype(np.float64), like)
    return _sampled(elementwise("less", made, p), like)


def randint(key: Any, shape: Any, minval: int, maxval: int, dtype: Any = int, *, like: Any = None) -> Any:
    """Integers from `minval` to `maxval - 1`, equally likely up to 2^-64 times their number."""
    low, high = integer(minval, "minval"), integer(maxval, "maxval")
    wanted = dtypes.canonical(dtype)
    if wanted.kind not in "iu" or not np.iinfo(wanted).min <= low < high <= np.iinfo(wanted).max + 1:
        raise ValueError(f"minval={low} must be below maxval={high}, and both must fit {wanted}")
    drawn = bits(key, shape, like=like)
    within = drawn if high - low == 2**64 else elementwise("remainder", drawn, high - low)
    return _sampled(elementwise("add", convert_element_type(within, wanted), low), like)


def permutation(key: Any, x: Any) -> Any:
    """The numbers 0 to `x` - 1 in random order; for an array, its rows (dense or sparse) in random order."""
    if isinstance(x, int):
        return _permutation(_key(key), integer(x, "x"))
    made = asarray(x)
    if not made.ndim:
        raise ValueError("x must be an integer or an array of at least one dimension")
    return gather(made, {0: _permutation(_key(key), made.shape[0])})
