"""Sums of sums (`jit/rewrite/fission`): those of floats are added as they are written, so that what cancels in an element cancels."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz import engine, sums


@pytest.mark.parametrize("start", range(0, 30, 10))
def test_random_sums(start):
    with engine.quick():
        faults = list(filter(None, map(sums.check, range(start, start + 10))))
    assert not faults, "\n".join(faults[:5])


@pytest.mark.slow
def test_many_random_sums():
    with engine.quick():
        faults = list(filter(None, map(sums.check, range(1000, 6000))))
    assert not faults, "\n".join(faults[:5])


def csr(dense):
    return sj.array(np.asarray(dense, float), format="csr")


def test_rows_that_overflow_by_themselves():
    A, B = csr([[1e308, 1e308], [1e308, 0]]), csr([[1e308, 1e308], [0, 1e308]])
    made = sj.jit(lambda A, B: snp.sum(A - B, axis=1))(A, B)
    np.testing.assert_array_equal(made.todense(), [0, 0])
    made = sj.jit(lambda A, B: snp.sum(A + B, axis=1))(A, -B)
    np.testing.assert_array_equal(made.todense(), [0, 0])


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dense"])
def test_digits_that_are_left(form, axis):
    rng = np.random.default_rng(0)
    u = 1e8 + rng.random((20, 30))
    v = u + 1e-6 * rng.random((20, 30))
    want = np.sum(u.astype("g") - v.astype("g"), axis=axis)
    for a, b in ((u, v), (v, u)):
        made = sj.jit(lambda A, B: snp.sum(A - B, axis=axis))(csr(a), sj.array(b, format=form, copy=True))
        np.testing.assert_allclose(made.todense(), np.asarray(want, float) * (1 if a is u else -1), rtol=1e-12)


def loops(function, *args):
    return sj.jit(function).lower(*args).as_text("cin")


def test_what_is_taken_apart():
    """Whole numbers, truths, and terms of one sign."""
    A, B = csr(np.eye(3)), csr(np.ones((3, 3)))
    whole = [x.astype("i8") for x in (A, B)]
    assert loops(lambda A, B: snp.sum(A - B, axis=1), *whole).count("forall j") == 2
    truths = [x.astype(bool) for x in (A, B)]
    assert loops(lambda A, B: snp.any(snp.logical_or(A, B), axis=1), *truths).count("forall j") == 2
    assert loops(lambda A, B: snp.sum(A * A + abs(B), axis=1), A, B).count("forall j") == 2
    assert loops(lambda A, B: snp.sum(-(A * A) - abs(B), axis=1), A, B).count("forall j") == 2
    for function in (
        lambda A, B: snp.sum(A - B, axis=1),
        lambda A, B: snp.sum(A + B, axis=1),
        lambda A, B: snp.sum(A * A - B * B, axis=1),
    ):
        assert loops(function, A, B).count("forall j") == 1


def test_many_terms_are_added_as_they_are_written():
    """More operands than are merged: one test for each, and one register for what an element adds up to."""
    dense = [np.full((2, 3), x) for x in (1e17, 1e17, 1.0, 1e17, 1e17, 3.0)]
    arrays = [csr(x) for x in dense]

    def function(A, B, C, D, E, F):
        return A - B + C + (D - E) - F

    np.testing.assert_array_equal(sj.jit(function)(*arrays).todense(), function(*dense))
    made = sj.jit(lambda *xs: snp.sum(function(*xs), axis=1))(*arrays)
    np.testing.assert_array_equal(made.todense(), function(*dense).sum(1))
    text = loops(lambda *xs: snp.sum(function(*xs), axis=1), *arrays)
    assert text.count("forall j") == 1 and text.count("where") == 2, text
