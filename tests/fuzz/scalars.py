"""Every operator between an array and a number, for every dtype, format and kind of number: Python's, NumPy's scalars, arrays of no
dimensions; at once, jitted, and with the number as an argument. Values, dtypes and errors are NumPy's; a NumPy scalar gives the
format that the Python number of its value gives."""

from __future__ import annotations

import operator
import random
from typing import Any

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import dtypes
from sparsejax.lax.elementwise import BINARY, COMPARISONS
from tests.fuzz.levels import OUTPUTS, random_format

DTYPES = tuple(dtypes.SHORT_NAMES)
OPERATORS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
KINDS = ("bool", "int", "float", "complex", "scalar", "scalar", "0-d", "ours")
ERRORS = (TypeError, ValueError, OverflowError)


def number(rng: random.Random, kind: str) -> Any:
    """A number of that kind (a NumPy scalar where `kind` is "ours")."""
    small = rng.choice((0, 1, 2, 3, 5, -1, -2, 7))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "int":
        return rng.choice((small, small, 200, 300, -129, 2**31, 2**63, -(2**63)))
    if kind in ("float", "complex"):
        value = rng.choice((small, 0.5, -2.5, 1e300, 0.1, -0.0, np.inf, np.nan))
        return float(value) if kind == "float" else complex(value, rng.choice((0, 1, -2)))
    with np.errstate(all="ignore"):
        made = np.asarray(small + rng.choice((0, 0, 0, 0.5))).astype(rng.choice(DTYPES))
    if made.dtype.kind in "iu" and rng.random() < 0.15:
        limits = np.iinfo(made.dtype)
        made = np.asarray(rng.choice((limits.min, limits.max)), made.dtype)
    return made if kind == "0-d" else made[()]


def values(rng: random.Random, dtype: str) -> Any:
    """A matrix of many zeros, with extreme values among the others."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    made = nrng.integers(-3, 6, (3, 4)) * (nrng.random((3, 4)) < rng.choice((0.3, 1.0)))
    kind = np.dtype(dtype).kind
    if kind == "c":
        return (made + 1j * nrng.integers(-2, 3, made.shape) * (made != 0)).astype(dtype)
    made = (made / 2 if kind == "f" else np.abs(made) if kind == "u" else made).astype(dtype)
    if kind in "iu" and rng.random() < 0.3:
        made[0, 1], made[2, 3] = np.iinfo(dtype).max, np.iinfo(dtype).min
    return made


def outcome(function: Any, *args: Any) -> Any:
    """A result, or the type of the error."""
    with np.errstate(all="ignore"):
        try:
            return function(*args)
        except ERRORS as error:
            return type(error)


def check(seed: int) -> str | None:
    """None, or what differs from NumPy."""
    rng = random.Random(seed)
    name, kind = rng.choice(BINARY), rng.choice(KINDS)
    if name == "threefry":
        return None
    dtype, left, plain = rng.choice(DTYPES), rng.random() < 0.4, rng.random() < 0.5
    x, s = values(rng, dtype), number(rng, kind)
    a = sj.array(x, format=random_format(rng, 2, OUTPUTS, None), copy=True)
    n = sj.array(np.asarray(s)) if kind == "ours" else s
    theirs, ours = getattr(np, name), getattr(snp, name)
    if plain and name in OPERATORS:
        theirs = ours = OPERATORS[name]
    one, other = (lambda a, s: theirs(s, a)) if left else theirs, (lambda a, s: ours(s, a)) if left else ours
    want = outcome(one, x, s)
    if want is OverflowError and isinstance(s, int) and s >= 2**63 and (name in COMPARISONS or "logical" in name):
        return None  # NumPy knows no such integers there
    text = f"seed {seed}: {name} of {a.aval} and {type(s).__name__} {s!r} ({kind}), {left=}, {plain=}"
    if name == "power" and want is ValueError and not isinstance(s, int):
        return None if not x.size else differs(text, want, outcome(other, a, n))
    got = {"at once": outcome(other, a, n), "jitted": outcome(sj.jit(lambda a: other(a, n)), a)}
    if not (isinstance(s, int) and name not in OPERATORS):
        got["as an argument"] = outcome(sj.jit(other), a, n)
    for how, made in got.items():
        wrong = differs(f"{text}, {how}", want, made, np.asarray(s), x)
        if wrong:
            return wrong
    if not isinstance(want, type) and isinstance(s, np.generic | np.ndarray) and kind != "ours":
        alike = outcome(other, a, s.item())
        if not isinstance(alike, type) and alike.format != got["at once"].format:
            return f"{text}: format {got['at once'].format}, but {alike.format} with a Python number"
    return None


def differs(text: str, want: Any, got: Any, s: Any = None, x: Any = None) -> str | None:
    """None where results agree; values that are not stored annihilate what is not finite."""
    if isinstance(want, type) or isinstance(got, type):
        return None if want is got else f"{text}: {got!r} instead of {want!r}"
    dtype = np.dtype(np.float32) if want.dtype == np.float16 else want.dtype
    if got.dtype != dtype or got.shape != want.shape:
        return f"{text}: {got.aval} instead of {want.dtype}{want.shape}"
    mine, theirs = got.todense(), want.astype(dtype)
    if s is not None and dtype.kind in "fc":
        with np.errstate(all="ignore"):
            s = np.asarray(s).astype(want.dtype)  # a number that the type cannot hold is infinite
        if want.dtype == np.float16 and not np.all(np.isfinite(s)):
            return None  # half precision, in which NumPy computes, holds less than ours
    same = (mine == theirs) | ((mine != mine) & (theirs != theirs))
    if dtype.kind in "fc":
        with np.errstate(all="ignore"):
            loose = 2e-3 if want.dtype == np.float16 else 1e-5 if dtype in (np.float32, np.complex64) else 1e-12
            same |= np.abs(mine - theirs) <= loose * np.abs(theirs)
            same |= ~np.isfinite(mine) & ~np.isfinite(theirs) if dtype.kind == "c" else False
    same |= (x == 0) & (not np.all(np.isfinite(s)) or not np.all(s))
    return None if np.all(same) else f"{text}: {mine[~same]} instead of {theirs[~same]} for {x[~same]}"
