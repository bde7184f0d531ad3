"""Functions of one array (and what else they take) with random dtypes, shapes, formats, axes and options: values, dtypes and errors are
NumPy's, at once and jitted."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import dtypes
from tests.fuzz import scalars
from tests.fuzz.levels import OUTPUTS, random_format

DTYPES = tuple(dtypes.SHORT_NAMES)
KEEP = ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "nansum", "nanmax", "nanmin", "nanmean")
AXES = (*KEEP, "count_nonzero", "argmax", "argmin", "cumsum", "median", "sort")
OTHERS: dict[str, Callable[..., Any]] = {
    # of NumPy or ours, an array, an operand of its shape, two numbers
    "nan_to_num": lambda m, x, y, s, t: m.nan_to_num(x),
    "round": lambda m, x, y, s, t: m.round(x),
    "ravel": lambda m, x, y, s, t: m.ravel(x),
    "real": lambda m, x, y, s, t: m.real(x),
    "imag": lambda m, x, y, s, t: m.imag(x),
    "isclose": lambda m, x, y, s, t: m.isclose(x, y),
    "allclose": lambda m, x, y, s, t: m.allclose(x, y),
    "isclose:number": lambda m, x, y, s, t: m.isclose(x, s),
    "array_equal": lambda m, x, y, s, t: m.array_equal(x, y),
    "clip": lambda m, x, y, s, t: m.clip(x, s, t),
    "where": lambda m, x, y, s, t: m.where(x, s, y),
    "where:numbers": lambda m, x, y, s, t: m.where(x, s, t),
    "full_like": lambda m, x, y, s, t: m.full_like(x, s),
    "zeros_like": lambda m, x, y, s, t: m.zeros_like(x),
    "norm": lambda m, x, y, s, t: m.linalg.norm(x),
    "vdot": lambda m, x, y, s, t: m.vdot(x, y),
    "outer": lambda m, x, y, s, t: m.outer(x, y),
    "inner": lambda m, x, y, s, t: m.inner(x, y),
    "kron": lambda m, x, y, s, t: m.kron(x, y),
    "dot": lambda m, x, y, s, t: m.dot(x, y.T),
    "matmul": lambda m, x, y, s, t: m.matmul(x, y.T),
    "astype": lambda m, x, y, s, t: x.astype("c16" if x.dtype.kind in "fc" else y.dtype),
}
EXTREMES = (np.nan, np.inf, -np.inf, 1e30, 1e200)


def operand(rng: random.Random, shape: tuple[int, ...], special: bool = False) -> Any:
    """A NumPy array of many zeros, of any dtype, with extreme values if `special`."""
    nrng, dtype = np.random.default_rng(rng.getrandbits(32)), np.dtype(rng.choice(DTYPES))
    made = nrng.integers(-3, 6, shape) * (nrng.random(shape) < rng.choice((0.3, 1.0)))
    if dtype.kind == "c":
        made = made + 1j * nrng.integers(-2, 3, shape) * (made != 0)
    made = np.abs(made) if dtype.kind == "u" else made / 2 if dtype.kind == "f" else made
    with np.errstate(all="ignore"):
        made = np.asarray(made).astype(dtype)
        if special and made.size and dtype.kind in "iufc":
            limits = EXTREMES if dtype.kind in "fc" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            made.reshape(-1)[nrng.integers(0, made.size, 2)] = nrng.choice(np.array(limits).astype(dtype), 2)
    return made


def call(rng: random.Random, x: Any) -> tuple[str, Callable[[Any, Any], Any]]:
    """A call on `x`: its text, and a function of a module and the array."""
    if rng.random() < 0.6:
        name, options = rng.choice(AXES), {}
        axis: Any = rng.choice((None, *range(-x.ndim, x.ndim)))
        if name in KEEP and x.ndim > 1 and rng.random() < 0.2:
            axis = tuple(rng.sample(range(x.ndim), 2))
        if name in KEEP and rng.random() < 0.3:
            options["keepdims"] = True
        if name in ("sum", "prod", "mean", "cumsum", "nansum") and rng.random() < 0.2:
            options["dtype"] = rng.choice(DTYPES)
        if name in ("var", "std") and rng.random() < 0.3:
            options["ddof"] = rng.choice((1, 2, 5))
        if rng.random() < 0.03:  # what is no axis, met with an axis that is equal to it before
            axis = rng.choice((True, False, 1.0))
        return f"{name}(axis={axis}, {options})", lambda m, v: getattr(m, name)(v, axis=axis, **options)
    name, y = rng.choice(list(OTHERS)), operand(rng, x.shape)
    s, t = (scalars.number(rng, rng.choice(("int", "float", "complex", "scalar"))) for _ in range(2))
    if name == "clip" and isinstance(s, int) and s >= 2**63:
        s = 1
    return f"{name}({y.dtype}, {s!r}, {t!r})", lambda m, v: OTHERS[name](m, v, y, s, t)


def check(seed: int) -> str | None:
    """None, or what differs from NumPy."""
    rng = random.Random(seed)
    extents = (1, 2, 3, 4, 0) if rng.random() < 0.2 else (2, 3, 4)
    x = operand(rng, tuple(rng.choice(extents) for _ in range(rng.choice((1, 2, 2, 3)))), rng.random() < 0.3)
    form = "dense" if rng.random() < 0.3 else random_format(rng, x.ndim, OUTPUTS, None)
    a = sj.array(x, format=form, copy=True)
    name, function = call(rng, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = scalars.outcome(function, np, x)
        for how, f in (("at once", function), ("jitted", lambda m, v: sj.jit(lambda v: function(m, v))(v))):
            wrong = differs(want, scalars.outcome(f, snp, a), x, a.format.is_dense)
            if wrong:
                return f"seed {seed}: {name} of {a.aval} {how}: {wrong}; {x.tolist()}"
    return None


def differs(want: Any, got: Any, x: Any, dense: bool) -> str | None:
    """None where results agree, up to rounding; beside infinities and NaN, zeros that are not stored have a rule of their own."""
    if isinstance(want, type) or isinstance(got, type):
        both = isinstance(want, type) and isinstance(got, type)
        return None if both else f"{got!r} instead of {want!r}"
    want = np.asarray(want)
    half = want.dtype == np.float16
    want = want.astype(np.float32) if half else want
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.aval} instead of {want.dtype}{want.shape}"
    mine = got.todense()
    with np.errstate(all="ignore"):
        same = (mine == want) | ((mine != mine) & (want != want))
        if want.dtype.kind in "fc":
            finite = np.isfinite(want)
            size = np.abs(want) + np.abs(want).max(initial=0, where=finite)
            loose = 2e-3 if half else 1e-4 if want.dtype in (np.float32, np.complex64) else 1e-9
            same |= np.abs(mine - want) <= loose * size
            same |= ~finite & ~np.isfinite(mine) & (want.dtype.kind == "c")
        undefined = not dense and x.dtype.kind in "fc" and not np.all(np.isfinite(x))
        # sums of numbers near the largest ones are rounded, or overflow, in another order
        undefined |= (
            x.size > 0
            and bool(np.max(np.abs(x.astype(complex)), where=np.isfinite(x), initial=0) > 1e15)
            and want.dtype.kind in "fc"
        )
    return None if undefined or np.all(same) else f"{mine[~same]} instead of {want[~same]}"
