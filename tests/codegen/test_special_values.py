"""Scalar operators at the edges: complex numbers with infinite, NaN and zero parts, integers of different signs."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

PARTS = (0.0, 1.0, -2.0, 0.5, np.inf, -np.inf, np.nan)
VALUES = np.array([complex(x, y) for x in PARTS for y in PARTS])
FINITE = VALUES[np.isfinite(VALUES)]


def pairs(values):
    made = np.array(list(itertools.product(values, values)))
    return made[:, 0].copy(), made[:, 1].copy()


def same(ours, theirs, rtol=1e-13):
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.todense(), theirs, rtol=rtol, atol=1e-13)


def both(function, *args):
    """Eager and compiled results, dense and from sparse operands that store everything."""
    yield function(*map(sj.array, args))
    yield sj.jit(function)(*args)
    yield function(*(sj.array((a, [np.arange(len(a))]), shape=a.shape, format="csf") for a in args))


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_quotients(dtype):
    x, y = (a.astype(dtype) for a in pairs(FINITE))
    with np.errstate(all="ignore"):
        want, inverse = x / y, np.reciprocal(y)
    for made in both(snp.divide, x, y):
        same(made, want, 1e-6 if dtype == "c8" else 1e-13)
    for made in both(snp.reciprocal, y):
        same(made, inverse, 1e-6 if dtype == "c8" else 1e-13)
    same(sj.array(np.array([2.0, 4.0])) / 1j, np.array([2.0, 4.0]) / 1j)
    same(sj.array(np.array([-1 + 1j])) / sj.array(np.array([1 - 2j])), np.array([-0.6 - 0.2j]))


@pytest.mark.parametrize("op", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
def test_complex_order(op):
    x, y = pairs(VALUES)
    for made in both(getattr(snp, op), x, y):
        np.testing.assert_array_equal(made.todense(), getattr(np, op)(x, y))


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_complex_extrema(op):
    x, y = pairs(VALUES)
    for made in both(getattr(snp, op), x, y):
        np.testing.assert_array_equal(made.todense(), getattr(np, op)(x, y))


def test_complex_sign():
    with np.errstate(all="ignore"):
        want = np.sign(VALUES)
    for made in both(snp.sign, VALUES):
        same(made, want)


def test_complex_powers_of_zero():
    exponents = [0j, 2, -1, 1j, 1 + 1j, 1 - 1j, -1 + 1j]
    x, y = np.repeat([0j, 1j], len(exponents)), np.tile(exponents, 2)
    with np.errstate(all="ignore"):
        want = x**y
    for made in both(snp.power, x, y):
        same(made, want, 1e-12)
    assert complex((sj.array([0j, 1]) ** 0).todense()[0]) == 1


@pytest.mark.parametrize("op", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
def test_signed_against_unsigned(op):
    x = np.array([-(2**63), -1, 0, 7, 2**63 - 1])
    y = np.array([0, 7, 2**63, 2**64 - 2, 2**64 - 1], np.uint64)
    x, y = np.repeat(x, len(y)), np.tile(y, len(x))
    for made in both(getattr(snp, op), x, y):
        np.testing.assert_array_equal(made.todense(), getattr(np, op)(x, y))
    for made in both(getattr(snp, op), y, x):
        np.testing.assert_array_equal(made.todense(), getattr(np, op)(y, x))


@pytest.mark.parametrize("form", ["(c,d)", "csr", "dcsc", "coo", "bitmap"])
def test_zeros_of_dense_sums_are_numbers(form):
    """Where a row stores nothing, its sum is a zero that is there, and its product with NaN is NaN."""
    x = snp.zeros((3, 3), format=form)

    def f(x):
        return (x.sum(1) + x) * np.nan

    assert np.isnan(f(x).todense()).all() and np.isnan(sj.jit(f)(x).todense()).all()


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
def test_a_written_zero_is_added_to_zeros_with_a_sign(dtype):
    """-0.0 + 0.0 is 0.0, at once and under `jit`, of what is stored; -0.0 - 0.0 is -0.0."""
    x = np.array([-0.0, 0.0, 2.0], dtype)
    stored = sj.array((x, (np.arange(3),)), shape=(3,), format="coo")
    for function in (lambda x: x + 0.0, lambda x: 0 + x, lambda x: x - (-0.0), lambda x: x - 0.0, lambda x: x + (-0.0)):
        expected = np.signbit(function(x).real)
        for operand in (sj.asarray(x.copy()), stored):
            for made in (function(operand), sj.jit(function)(operand)):
                np.testing.assert_array_equal(np.signbit(made.todense().real), expected)
