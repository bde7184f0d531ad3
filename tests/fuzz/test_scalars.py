"""Operators between arrays and numbers are NumPy's, and NumPy's scalars are numbers of the program."""

import sys

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.lax.elementwise import COMPARISONS
from tests.fuzz import engine, forced, scalars

BATCH = 30


def faults(seeds):
    with engine.quick():
        found = [f for f in map(forced.half(scalars.check), seeds) if f]
        engine.forget()
    return found


@pytest.mark.rotating(4)
@pytest.mark.parametrize("start", range(0, 120, BATCH))
def test_numbers_of_any_kind(start):
    assert not faults(range(start, start + BATCH))


@pytest.mark.slow
def test_many_numbers_of_any_kind():
    assert not faults(range(3000))


def test_the_check_can_fail(monkeypatch):
    monkeypatch.setattr(sys.modules["sparsejax.lax.elementwise"], "_numbers", lambda args, values: values)
    assert any("format" in f for seed in range(120) for f in faults([seed]))


BIG = np.array([[1, 0, 2**64 - 1]], np.uint64)


@pytest.mark.parametrize("value", [True, False])
def test_large_unsigned_integers_compare_with_booleans(value):
    for form in ("dense", "csr"):
        a = sj.array(BIG, format=form)
        for name in COMPARISONS:
            want, f = getattr(np, name)(BIG, value), getattr(snp, name)
            for got in (f(a, value), sj.jit(lambda a, f=f: f(a, value))(a), sj.jit(f)(a, value)):
                np.testing.assert_array_equal(got.todense(), want)


NUMBERS = [np.float64(5), np.float32(5), np.int8(5), np.array(5.0), np.uint64(5)]
PROGRAMS = [
    lambda a, s: a > s,
    lambda a, s: s > a,
    lambda a, s: a**s,
    lambda a, s: a + s,
    lambda a, s: snp.maximum(a, s),
    lambda a, s: snp.clip(a, 0, s),
    lambda a, s: snp.where(a > s, a, s - s),
    lambda a, s: np.where(a > s, s, a) * s,
    lambda a, s: np.minimum(s, a) / s,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_scalars_of_numpy_are_numbers_of_the_program(program):
    x = np.array([[0, 2, 0, 9], [7, 0, 0, 0]], np.float32)
    a = sj.array(x, format="csr")
    for s in NUMBERS:
        got, plain = program(a, s), program(a, s.item())
        want = program(x, s)
        np.testing.assert_allclose(got.todense(), want)
        assert got.dtype == want.dtype and str(got.format) == "csr"
        assert got.format == plain.format and got.fill_value == plain.fill_value and got.nnz == plain.nnz
        assert sj.jit(lambda a, s=s: program(a, s))(a).aval == got.aval


def test_scalars_of_numpy_stay_strong_types():
    assert (sj.array(np.ones(2, np.float32)) * np.float64(2)).dtype == np.float64
    assert sj.jit(lambda s: s * np.float32(2))(3).dtype == np.float32
    gradient = sj.grad(lambda x: (x ** np.float64(3)).sum())(np.array([2, 3], np.float32))
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, [12, 27])
