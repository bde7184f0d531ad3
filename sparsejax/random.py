"""`sparsejax.random`: random numbers by keys, as in JAX. A key gives the same numbers whatever formats, loops or threads.

    key = sj.random.key(0)
    key, use = sj.random.split(key)         never use a key twice
    noise = sj.random.normal(use, (3, 4))

The generator is threefry2x32 in counter mode, compiled into the kernels that read the numbers. A key is a scalar uint64, so jitted
functions take keys. `like=A` draws one number for every stored entry of a sparse array, in its format.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import SymbolicDim, known
from sparsejax.formats import Format, convert
from sparsejax.lax.contract import matmul
from sparsejax.lax.elementwise import convert_element_type, elementwise, where
from sparsejax.lax.extents import filled
from sparsejax.lax.indexing import gather, window
from sparsejax.lax.library.solves import cholesky
from sparsejax.lax.library.special import special
from sparsejax.lax.linear import sample
from sparsejax.lax.loops import while_loop
from sparsejax.lax.names import argmax
from sparsejax.lax.random_bits import permutation as _permutation
from sparsejax.lax.random_bits import random_bits
from sparsejax.lax.reduce import reduce
from sparsejax.lax.sorting import argsort
from sparsejax.lax.structural import broadcast_to, convert_format, extent, extents, integer, normal_axis, reshape
from sparsejax.lax.typing_rules import broadcast_shapes

__all__ = [
    "PRNGKey",
    "bernoulli",
    "beta",
    "bits",
    "categorical",
    "cauchy",
    "choice",
    "dirichlet",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "laplace",
    "logistic",
    "multivariate_normal",
    "normal",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "sparse",
    "split",
    "truncated_normal",
    "uniform",
]


def __dir__() -> list[str]:
    return __all__


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
    return random_bits(_key(key), (extent(num, "num"),), first=_SPLIT)


def fold_in(key: Any, data: int) -> Any:
    """A new key made of a key and a non-negative integer."""
    number = integer(data, "data")
    if not 0 <= number < 2**63:
        raise ValueError(f"data={number} must be at least 0 and below 2^63")
    return random_bits(_key(key), (), first=_FOLD + number)


def bits(key: Any, shape: Any = (), *, like: Any = None) -> Array:
    """64 random bits per entry, as uint64; with `like`, for the stored entries of a sparse array."""
    wanted = extents(shape) if like is None else asarray(like, "like").shape
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
) -> Array:
    """Numbers in [minval, maxval), all equally likely.

    >>> 0 <= float(uniform(key(0)).todense()) < 1
    True
    """
    made = _unit(key, shape, dtypes.canonical(dtype), like)
    if isinstance(minval, int | float) and isinstance(maxval, int | float) and (minval, maxval) == (0, 1):
        return made
    scaled = elementwise("multiply", made, elementwise("subtract", maxval, minval))
    return convert_element_type(_sampled(elementwise("add", scaled, minval), like), made.dtype)


def normal(key: Any, shape: Any = (), dtype: Any = float, *, like: Any = None) -> Array:
    """Numbers of the normal distribution of mean 0 and variance 1 (Box and Muller, 1958)."""
    first, second = split(key)
    wanted = dtypes.canonical(dtype)
    size = elementwise("sqrt", -2.0 * elementwise("log1p", -_unit(first, shape, wanted, like)))
    made = size * elementwise("cos", _unit(second, shape, wanted, like) * (2 * math.pi))
    return _sampled(made, like)


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, *, like: Any = None) -> Array:
    """True with probability `p`; `shape` is that of `p` unless given."""
    made = _unit(key, np.shape(p) if shape is None else shape, np.dtype(np.float64), like)
    return _sampled(elementwise("less", made, p), like)


def randint(key: Any, shape: Any, minval: int, maxval: int, dtype: Any = int, *, like: Any = None) -> Array:
    """Integers from `minval` to `maxval - 1`, equally likely up to 2^-64 times their number."""
    low = integer(minval, "minval")
    high = maxval if isinstance(maxval, SymbolicDim) else integer(maxval, "maxval")
    wanted = dtypes.canonical(dtype)
    if wanted.kind not in "iu" or not np.iinfo(wanted).min <= low < high <= np.iinfo(wanted).max + 1:
        raise ValueError(f"minval={low} must be below maxval={high}, and both must fit {wanted}")
    drawn = bits(key, shape, like=like)
    within = drawn if high - low == 2**64 else elementwise("remainder", drawn, high - low)
    return _sampled(elementwise("add", convert_element_type(within, wanted), low), like)


def permutation(key: Any, x: Any) -> Array:
    """The numbers 0 to `x` - 1 in random order; for an array, its rows (dense or sparse) in random order."""
    if isinstance(x, int | SymbolicDim):
        return _permutation(_key(key), extent(x, "x"))
    made = asarray(x)
    if not made.ndim:
        raise ValueError("x must be an integer or an array of at least one dimension")
    return gather(made, {0: _permutation(_key(key), made.shape[0])})


# ------------------------------------------------------------------------------------------------- more distributions


def PRNGKey(seed: Any) -> Any:
    """JAX's older name of `key`."""
    return key(seed)


def _open(key: Any, shape: Any, dtype: np.dtype[Any], like: Any = None) -> Any:
    """Numbers in (0, 1]: one less those in [0, 1)."""
    return 1.0 - _unit(_key(key), shape, dtype, like)


def exponential(key: Any, shape: Any = (), dtype: Any = float, *, like: Any = None) -> Array:
    """Numbers of the exponential distribution of mean 1.

    >>> round(float(exponential(key(0), (1000,)).mean()))
    1
    """
    return _sampled(-elementwise("log", _open(key, shape, dtypes.canonical(dtype), like)), like)


def gumbel(key: Any, shape: Any = (), dtype: Any = float, *, like: Any = None) -> Array:
    """Numbers of the Gumbel distribution: -log(-log(u))."""
    wanted = dtypes.canonical(dtype)
    tiny = float(np.finfo(wanted).tiny)
    drawn = elementwise("maximum", _unit(_key(key), shape, wanted, like), tiny)
    return _sampled(-elementwise("log", -elementwise("log", drawn)), like)


def laplace(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Numbers of the Laplace distribution of mean 0 and scale 1."""
    wanted = dtypes.canonical(dtype)
    drawn = _unit(_key(key), shape, wanted, None) - 0.5
    inside = elementwise("maximum", 1.0 - 2.0 * elementwise("absolute", drawn), float(np.finfo(wanted).tiny))
    return -elementwise("sign", drawn) * elementwise("log", inside)


def logistic(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Numbers of the logistic distribution."""
    wanted = dtypes.canonical(dtype)
    u = elementwise("maximum", _unit(_key(key), shape, wanted, None), float(np.finfo(wanted).tiny))
    return elementwise("log", u) - elementwise("log1p", -u)


def cauchy(key: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Numbers of the Cauchy distribution."""
    return elementwise("tan", (_unit(_key(key), shape, dtypes.canonical(dtype), None) - 0.5) * math.pi)


def rademacher(key: Any, shape: Any = (), dtype: Any = int) -> Array:
    """1 or -1, equally likely."""
    return convert_element_type(elementwise("right_shift", bits(key, shape), 63), dtypes.canonical(dtype)) * 2 - 1


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = (), dtype: Any = float) -> Array:
    """Numbers of the normal distribution of mean 0 and variance 1, given that they lie between `lower` and `upper`.

    >>> x = truncated_normal(key(0), -1.0, 2.0, (100,)).todense()
    >>> bool(-1 <= x.min() <= x.max() <= 2)
    True
    """
    wanted = dtypes.canonical(dtype)
    low, high = (special("ndtr", asarray(v)) for v in (lower, upper))
    u = low + _unit(_key(key), shape, wanted, None) * (high - low)
    made = special("ndtri", u)
    return convert_element_type(elementwise("minimum", elementwise("maximum", made, lower), upper), wanted)


def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None) -> Array:
    """Numbers of categories, drawn with probabilities proportional to exp(`logits`) along `axis`, by Gumbel's maximum; with `shape`, which
    ends with that of `logits` without `axis`, several draws.

    >>> int(categorical(key(0), np.array([-np.inf, 0.0])))
    1
    """
    x = convert_format(asarray(logits, "logits"), "dense")
    x = x if x.dtype.kind == "f" else convert_element_type(x, np.float64)
    place = normal_axis(axis, x.ndim)
    rest = tuple(n for d, n in enumerate(x.shape) if d != place)
    wanted = rest if shape is None else extents(shape)
    if wanted[len(wanted) - len(rest) :] != rest:
        raise ValueError(f"shape={wanted} must end with {rest}, that of logits without axis {place}")
    lead = len(wanted) - len(rest)
    noise = gumbel(key, (*wanted[:lead], *x.shape), x.dtype)
    return argmax(elementwise("add", noise, x), place + lead, np.int64)


def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0) -> Array:
    """Random entries along `axis` of an array, or random numbers below an integer `a`: equally likely, or with probabilities `p`.

    Without `replace` none is drawn twice (Gumbel's maxima where `p` is given: Efraimidis and Spirakis, 2006).

    >>> sorted(choice(key(0), 3, (3,), replace=False).todense().tolist())
    [0, 1, 2]
    """
    pool = None if isinstance(a, int | SymbolicDim) else asarray(a, "a")
    place = 0 if pool is None else normal_axis(axis, pool.ndim)
    n = known(a) if pool is None else pool.shape[place]
    new = extents(shape)
    count = math.prod(new)
    if n < 1 and count:
        raise ValueError("a must hold at least one entry to choose from")
    if not replace and count > n:
        raise ValueError(f"cannot take {count} of {n} entries without replacement: pass replace=True")
    if p is None and replace:
        index = randint(key, (count,), 0, n)
    elif p is None:
        index = window(_permutation(_key(key), n), [range(count)])
    else:
        weights = elementwise("log", asarray(p, "p"))
        if weights.shape != (n,):
            raise ValueError(f"p of shape {weights.shape} must have {n} probabilities")
        if replace:
            index = categorical(key, weights, shape=(count,))
        else:
            index = window(argsort(-(gumbel(key, (n,)) + weights)), [range(count)])
    if pool is None:
        return reshape(index, new)
    made = gather(pool, {place: index})
    return reshape(made, (*pool.shape[:place], *new, *pool.shape[place + 1 :]))


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Numbers of the gamma distribution of shape `a` and scale 1 (Marsaglia and Tsang, 2000), by rejection. nan where `a` is negative or nan, inf where
    it is inf.

    >>> round(float(gamma(key(0), 3.0, (2000,)).mean()))
    3
    """
    return _gamma(_key(key), _spread(a, "a", shape, dtypes.canonical(dtype)))


def _spread(a: Any, name: str, shape: Any, dtype: np.dtype[Any]) -> Any:
    """A parameter as an array of the shape and type of what is drawn."""
    given = convert_element_type(asarray(a, name), dtype)
    return convert_format(given if shape is None else broadcast_to(given, extents(shape)), "dense")


@again(2, whole=True)
def _gamma(key: Any, a: Any) -> Any:
    made, u, inverse = _gamma_factors(key, a)
    return made * elementwise("power", u, inverse)


def _log_gamma(key: Any, a: Any) -> Any:
    """The logarithms of what `gamma` draws, also where these are too small for their type."""
    made, u, inverse = _gamma_factors(key, a)
    return elementwise("log", made) + elementwise("log", u) * inverse


def _gamma_factors(key: Any, asked: Any) -> tuple[Any, Any, Any]:
    """Numbers of the gamma distribution as products of two: x and u^b, of which the second is 1 where the parameter is at least 1."""
    new, wanted = asked.shape, asked.dtype
    valid = elementwise("greater_equal", asked, 0.0)
    drawn = elementwise("logical_and", valid, elementwise("isfinite", asked))
    alpha = where(drawn, asked, 1.0)
    small = elementwise("less", alpha, 1.0)
    d = where(small, alpha + 1.0, alpha) - 1 / 3
    c = (1 / 3) / elementwise("sqrt", d)
    first, boost = split(key)

    def going(state: Any) -> Any:
        return elementwise("logical_not", reduce("all", state[1]))

    def step(state: Any) -> Any:
        key, done, made = state
        key, one, two = (split(key, 3)[k] for k in range(3))
        x = normal(one, new, wanted)
        v = 1 + c * x
        v = v * v * v
        positive = elementwise("greater", v, 0)
        safe = where(positive, v, 1.0)
        log_u = elementwise("log", _open(two, new, wanted))
        accepted = elementwise("less", log_u, 0.5 * x * x + d - d * safe + d * elementwise("log", safe))
        accepted = elementwise("logical_and", accepted, positive)
        return key, elementwise("logical_or", done, accepted), where(done, made, where(accepted, d * safe, made))

    start = asarray(filled(new, False, bool)), asarray(filled(new, 1, wanted))
    _, _, made = while_loop(going, step, (_key(first), *start))
    made = where(drawn, made, convert_element_type(where(valid, np.inf, np.nan), wanted))
    return made, _open(boost, new, wanted), where(small, 1.0 / where(small, alpha, 1.0), 0.0)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Numbers of the beta distribution, as a share of two of the gamma distribution, taken from their logarithms: those of small `a` and `b` are too
    small for their type. nan where `a` or `b` is negative or nan."""
    new = broadcast_shapes(asarray(a, "a").shape, asarray(b, "b").shape) if shape is None else extents(shape)
    wanted = dtypes.canonical(dtype)
    return _beta(_key(key), _spread(a, "a", new, wanted), _spread(b, "b", new, wanted))


@again(3, whole=True)
def _beta(key: Any, a: Any, b: Any) -> Any:
    first, second = split(key)
    x, y = _log_gamma(first, a), _log_gamma(second, b)
    return 1.0 / (1.0 + elementwise("exp", y - x))


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Vectors of the Dirichlet distribution: of positive numbers along the last axis whose sum is 1. nan where a number of `alpha` is negative or
    nan."""
    weights = asarray(alpha, "alpha")
    outer = weights.shape[:-1] if shape is None else extents(shape)
    return _dirichlet(_key(key), _spread(weights, "alpha", (*outer, weights.shape[-1]), dtypes.canonical(dtype)))


@again(2, whole=True)
def _dirichlet(key: Any, alpha: Any) -> Any:
    logs = _log_gamma(key, alpha)
    drawn = elementwise("exp", logs - reduce("max", logs, -1, keepdims=True))
    return drawn / reduce("sum", drawn, -1, keepdims=True)


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = int) -> Array:
    """Numbers of the Poisson distribution of mean `lam`: arrivals are counted up to a mean of 10 (Knuth), else by rejection (Hörmann's PTRS,
    1993). -1 where `lam` is negative or nan, as in JAX; the largest number of the type where those drawn are beyond it.

    >>> round(float(poisson(key(0), 4.0, (2000,)).mean()))
    4
    """
    return _poisson(_key(key), _spread(lam, "lam", shape, np.dtype(np.float64)), dtypes.canonical(dtype))


@again(2, whole=True)
def _poisson(key: Any, asked: Any, wanted: np.dtype[Any]) -> Any:
    new = asked.shape
    valid = elementwise("greater_equal", asked, 0.0)
    rate = where(valid, elementwise("minimum", asked, 2.0**63), 0.0)
    few = elementwise("less", rate, 10.0)
    first, second = split(key)
    limit = where(few, rate, 0.0)

    def arriving(state: Any) -> Any:
        return reduce("any", elementwise("less_equal", state[1], limit))

    def arrive(state: Any) -> Any:
        key, time, count = state
        key, use = (split(key)[k] for k in range(2))
        going = elementwise("less_equal", time, limit)
        time = where(going, time + exponential(use, new), time)
        return (
            key,
            time,
            where(elementwise("logical_and", going, elementwise("less_equal", time, limit)), count + 1, count),
        )

    zeros = asarray(filled(new, 0, np.float64)), asarray(filled(new, 0, np.int64))
    counted = while_loop(arriving, arrive, (_key(first), *zeros))[2]
    many = where(few, 10.0, rate)
    b = 0.931 + 2.53 * elementwise("sqrt", many)
    a, inverse = -0.059 + 0.02483 * b, 1.1239 + 1.1328 / (b - 3.4)
    v_r, log_rate = 0.9277 - 3.6224 / (b - 2), elementwise("log", many)

    def going(state: Any) -> Any:
        return elementwise("logical_not", reduce("all", state[1]))

    def step(state: Any) -> Any:
        key, done, made = state
        key, one, two = (split(key, 3)[k] for k in range(3))
        u, v = uniform(one, new) - 0.5, _open(two, new, np.dtype(np.float64))
        us = 0.5 - elementwise("absolute", u)
        k = elementwise("floor", (2 * a / us + b) * u + many + 0.43)
        quick = elementwise("logical_and", elementwise("greater_equal", us, 0.07), elementwise("less_equal", v, v_r))
        low = elementwise("less", k, 0)
        steep = elementwise("logical_and", elementwise("less", us, 0.013), elementwise("greater", v, us))
        out = elementwise("logical_or", low, steep)
        number = where(low, 0.0, k)
        left = elementwise("log", v * inverse / (a / (us * us) + b))
        fits = elementwise("less_equal", left, number * log_rate - many - special("gammaln", number + 1))
        taken = elementwise("logical_or", quick, elementwise("logical_and", elementwise("logical_not", out), fits))
        return key, elementwise("logical_or", done, taken), where(done, made, where(taken, k, made))

    start = few, zeros[0]
    _, _, rejected = while_loop(going, step, (_key(second), *start))
    most = np.iinfo(wanted).max if wanted.kind in "iu" else np.inf
    beyond = elementwise("greater_equal", rejected, float(most))
    large = where(beyond, wanted.type(most), convert_element_type(where(beyond, 0.0, rejected), wanted))
    found = where(few, convert_element_type(counted, wanted), large)
    return where(valid, found, convert_element_type(asarray(np.int64(-1)), wanted))


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = float) -> Array:
    """Vectors of the normal distribution of a mean and a covariance matrix, by its Cholesky factor."""
    center = asarray(mean, "mean")
    outer = center.shape[:-1] if shape is None else extents(shape)
    drawn = normal(key, (*outer, center.shape[-1]), dtype)
    return elementwise("add", matmul(drawn, cholesky(cov).T), center)


def sparse(
    key: Any,
    shape: Any,
    density: float = 0.01,
    dtype: Any = float,
    format: str | Format = "csr",
    *,
    sampler: Callable[..., Any] | None = None,
) -> Array:
    """A random sparse array of round(`density` * size) entries in random places, all equally likely, with values of `sampler(key, shape,
    dtype)` (`uniform`). Outside `jit`, since the places are read. O(entries).

    >>> sparse(key(0), (10, 20), 0.1).nnz
    20

    Raises ValueError for a density outside [0, 1].
    """
    new = extents(shape)
    size = math.prod(new)
    if not 0 <= density <= 1:
        raise ValueError(f"density={density} must be at least 0 and at most 1")
    where_, values = split(key)
    # the places of a generator that the key begins: they are read anyway, and distinct
    seed = int(np.asarray(bits(where_)))
    count = round(density * size)
    places = (
        np.random.Generator(np.random.PCG64(seed)).choice(size, count, replace=False)
        if count
        else np.zeros(0, np.int64)
    )
    places.sort()
    drawn = (uniform if sampler is None else sampler)(values, (count,), dtype)
    coords = np.array(np.unravel_index(places, new)).reshape(len(new), count)
    vals = np.ascontiguousarray(drawn.todense())
    form = Format.parse(format, len(new))
    return Array(convert.from_coords(coords, vals, new, form, vals.dtype.type(0)))
