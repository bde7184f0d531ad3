"""Sums keep their digits, whatever the format, the dtype and the length."""

import math

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config

pytestmark = pytest.mark.rotating(16)

FORMS = ["dense", "csr", "csc", "coo", "dcsr", "bitmap"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_whole_sums_are_exact_to_one_rounding(form, dtype):
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((60, 71)) * 10.0 ** rng.integers(-6, 7, (60, 71))).astype(dtype)
    a = sj.array(x, format=form)
    exact = complex(math.fsum(x.real.ravel()), math.fsum(x.imag.ravel()))
    rest = np.finfo(np.float64).eps * x.size * np.abs(x).sum()
    rest *= 1 if np.finfo(dtype).bits == 32 else np.finfo(np.float64).eps * x.size
    for got in (a.sum(), sj.jit(lambda a: a.sum())(a)):
        assert got.dtype == dtype
        assert abs(complex(got.todense()) - exact) <= np.finfo(dtype).eps * abs(exact) + rest


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_float32_sums_do_not_stop_growing(form):
    ones = sj.array(np.ones((1, 2**24 + 2**20), np.float32), format=form)
    assert ones.sum().todense() == 2**24 + 2**20
    assert ones.mean().todense() == 1
    tenths = sj.array(np.full((3, 100_000), 0.1, np.float32), format=form)
    for got in (tenths.sum(), tenths.sum(axis=1).sum()):
        assert abs(got.todense() - 30_000) < 0.01
    assert np.abs(tenths.sum(axis=1).todense() - 10_000).max() < 0.002
    tenths = tenths.asformat("csr")  # dense products are BLAS's
    assert np.abs((tenths @ np.ones(100_000, np.float32)).todense() - 10_000).max() < 0.02


@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
def test_cancellation(form):
    x = np.array([[1.0, 1e100, 1.0, -1e100] * 100])
    assert sj.array(x, format=form).sum().todense() == 200
    assert sj.array(x + 1j * x, format=form).sum().todense() == 200 + 200j


@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "special", [[np.inf], [-np.inf], [np.inf, -np.inf], [np.nan], [np.nan, np.inf], [np.inf, np.inf]]
)
def test_infinities_and_nan_survive(form, dtype, special):
    for length in (3, 40):
        x = np.ones((1, length), dtype)
        x[0, : len(special)] = special
        with np.errstate(invalid="ignore"):
            want = x.sum()
        np.testing.assert_array_equal(sj.array(x, format=form).sum().todense(), want)


def test_overflow_is_infinite():
    big = np.full((1, 40), 1e308)
    assert sj.array(big).sum().todense() == np.inf
    assert sj.array(-big, format="csr").sum().todense() == -np.inf
    assert sj.array(np.full((1, 40), 3e38, np.float32), format="csr").sum().todense() == np.inf


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_products_with_one_lose_the_same_bits(dtype):
    """What rounding loses is found by products with one, where the processor has them, or by additions: the same numbers."""
    rng = np.random.default_rng(3)
    for length in (3, 40, 1000):
        x = (rng.standard_normal(length) * 10.0 ** rng.integers(-9, 9, length)).astype(dtype)
        x[:: max(2, length // 3)] = -0.0
        for special in (1.0, np.inf, np.nan):
            x[-1] = special
            with config.using(skip={"fma"}):
                plain = sj.jit(lambda x: x.sum())(x).todense()
            assert sj.jit(lambda x: x.sum())(x).todense().tobytes() == plain.tobytes()


@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("size", [0, 1, 15, 31, 32, 63, 64, 65, 127, 129, 191, 700, 100_003])
def test_sums_of_rounded_terms_lose_two_roundings_more_whatever_their_length(form, dtype, size):
    rng = np.random.default_rng(size)
    x = rng.standard_normal((1, size)).astype(dtype) * 10.0 ** rng.integers(-6, 7, (1, size))
    x = x * (1 + 1j) if np.dtype(dtype).kind == "c" else x
    a, terms = sj.array(x, format=form), (x * x).ravel()
    exact = complex(math.fsum(terms.real), math.fsum(terms.imag))
    for got in ((a * a).sum(), sj.jit(lambda a: (a * a).sum())(a)):
        assert abs(complex(got.todense()) - exact) <= 8 * np.finfo(np.float64).eps * np.abs(terms).sum()
