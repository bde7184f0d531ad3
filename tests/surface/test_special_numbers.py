"""Every function of one array at infinities, NaN, zeros of both signs, tiny numbers and the limits of integers: NumPy's values, with the
signs of zeros."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import dtypes
from sparsejax.lax.elementwise import UNARY
from tests.fuzz import engine

pytestmark = pytest.mark.rotating(16)

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, np.inf, -np.inf, np.nan, 1e-320, 1e-12, 3.0]


def numbers(dtype):
    kind = np.dtype(dtype).kind
    if kind == "f":
        return np.array(SPECIAL, dtype)
    if kind == "c":
        return np.array([complex(*pair) for pair in itertools.product(SPECIAL, repeat=2)]).astype(dtype)
    if kind == "b":
        return np.array([True, False])
    limits = np.iinfo(dtype)
    return np.array([0, 1, 2, 5, 100, limits.max, limits.min], dtype)


def bounds(name, x, want):
    """How far results may be off, relative to NumPy's."""
    if want.dtype.kind not in "fc":
        return 0
    if x.dtype.kind in "biu" and want.dtype == np.float16:
        return 2e-3
    return 1e-5 if want.dtype in (np.float32, np.complex64) else 1e-12


def parts(x):
    return x.view(x.real.dtype) if x.dtype.kind == "c" else x


@pytest.mark.parametrize("dtype", dtypes.SHORT_NAMES)
def test_values_and_signs(dtype):
    x = numbers(dtype)
    faults, wanted = [], {}
    with np.errstate(all="ignore"):
        for name in UNARY:
            try:
                wanted[name] = getattr(np, name)(x)
            except TypeError:
                with pytest.raises(TypeError):
                    getattr(snp, name)(sj.array(x))
    with engine.quick(), np.errstate(all="ignore"):
        made = sj.jit(lambda x: {name: getattr(snp, name)(x) for name in wanted})(x)
        for name, want in wanted.items():
            loose = bounds(name, x, want)
            want = want.astype(np.float32) if want.dtype == np.float16 else want
            assert made[name].dtype == want.dtype, name
            theirs, ours = parts(want), parts(made[name].todense())
            same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
            if loose:
                same |= np.abs(ours - theirs) <= loose * np.abs(theirs)
                same &= (theirs != 0) | (np.signbit(ours) == np.signbit(theirs))
            if name == "log1p" and want.dtype.kind == "c":
                same |= np.abs(ours - theirs) < loose * 1e-8  # NumPy loses small numbers
            if (
                name == "expm1" and want.dtype.kind == "c"
            ):  # the array API's numbers where NumPy has NaN, and 0 without a sign
                same |= np.repeat(~np.isfinite(x), 2) | ((ours == 0) & (theirs == 0))
            if name == "reciprocal" and want.dtype.kind in "iu":
                same |= np.repeat(x == 0, len(theirs) // len(x))  # undefined
            if name == "exp2" and loose == 2e-3:
                same |= theirs == 0  # too small for NumPy's float16
            if not np.all(same):
                bad = np.flatnonzero(~same) // (len(theirs) // len(x))
                faults.append(f"{name}: {[(x[k], want[k], made[name].todense()[k]) for k in bad[:3]]}")
        engine.forget()
    assert not faults, "\n".join(faults)
