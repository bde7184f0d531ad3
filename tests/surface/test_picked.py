"""What index arrays and vectors of bools take of dense arrays at once, and numbers beside arrays: as NumPy has it, and as inside `jit`."""

import math

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.numpy import at_once

SHAPES = (7,), (7, 5), (4, 5, 6), (0, 3), (3, 0)


def vectors(n, rng):
    some = rng.integers(-n, n, 9) if n else np.zeros(0, int)
    few = rng.integers(0, n, 4) if n else np.zeros(0, int)
    yield from (some, few.astype(np.uint8), few.astype(np.uint64), some[::-2], rng.random(n) < 0.5, np.zeros(0, int))
    yield some[:6].reshape(-1, 2)


@pytest.mark.parametrize("picked", [1 << 20, -1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, bool, complex])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parts_of_dense_arrays(shape, dtype, picked, monkeypatch):
    monkeypatch.setattr(at_once, "PICKED", picked)
    rng = np.random.default_rng(len(shape))
    values = (rng.random(shape) * 9).astype(dtype)
    A = sj.array(values)
    for d, n in enumerate(shape):
        for index in vectors(n, rng):
            key = *[slice(None)] * d, index
            for k in (key, (*key, *[slice(None)] * (len(shape) - d - 1))):
                made, wanted = A[k], values[k]
                assert (made.shape, made.dtype, str(made.format)) == (wanted.shape, wanted.dtype, "dense")
                np.testing.assert_array_equal(made.todense(), wanted)
                np.testing.assert_array_equal((made + made).todense(), wanted + wanted)


@pytest.mark.parametrize("index", [np.array([0, 7]), np.array([-8]), np.array([7], np.uint64)])
def test_places_that_are_not_there(index):
    with pytest.raises(IndexError, match="is out of bounds for axis 1 with size 7"):
        sj.array(np.ones((2, 7)))[:, index]
    with pytest.raises(IndexError, match="boolean index did not match"):
        sj.array(np.ones((2, 7)))[:, np.ones(6, bool)]


def test_numbers_beside_arrays_in_turns():
    """The same type with other numbers, on both sides, of each sign of zero; and integers that types depend on."""
    A, x = sj.array(np.diag([1.0, 2.0, 0.0]), format="csr"), sj.array(np.arange(3.0))
    small, dense, plain = sj.array(np.arange(3, dtype=np.int8)), A.todense(), x.todense()
    with np.errstate(all="ignore"):
        for _ in range(4):
            for c in (2.5, 0.0, -0.0, math.nan, math.inf, -1.0, 3, 0, -1, 2):
                for ours, theirs in ((A, dense), (x, plain))[not math.isfinite(c) :]:
                    np.testing.assert_array_equal((ours * c).todense(), theirs * c)
                    np.testing.assert_array_equal((c * ours).todense(), c * theirs)
                    np.testing.assert_array_equal((c - ours).todense(), c - theirs)
                    np.testing.assert_array_equal((ours > c).todense(), theirs > c)
                np.testing.assert_array_equal(np.signbit((x * c).todense()), np.signbit(plain * c))
                found, wanted = small * c, small.todense() * c
                assert found.dtype == wanted.dtype
                np.testing.assert_array_equal(found.todense(), wanted)
    with pytest.raises(OverflowError):
        small + 300
    assert (small + 100).dtype == np.int8


def test_donated_numbers_stay_what_they_are():
    step = sj.jit(lambda x, y: (x * 2 + y, y), donate_argnums=(0, 1))
    for _ in range(4):
        assert [float(v) for v in step(2.5, 3.5)] == [8.5, 3.5]
        np.testing.assert_array_equal((sj.array(np.ones(2)) * 2.5).todense(), [2.5, 2.5])


def test_updates_behind_a_single_bool():
    X, V = np.ones((3, 2)), np.arange(6.0).reshape(3, 2)
    for key in (True, (True, np.array([2, 0, 1]))):
        wanted = X.copy()
        wanted[key] += V
        np.testing.assert_array_equal(sj.array(X).at[key].add(V).todense(), wanted)


@pytest.mark.parametrize("value", [0.0, -0.0, 2.5, math.nan, 3, 0, True, False, np.float32(1.5), 1j])
def test_arrays_of_one_value(value):
    for shape in ((), (3,), (2, 0, 3), 5):
        made, wanted = sj.numpy.full(shape, value), np.full(shape, value)
        assert (made.shape, made.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(made.todense(), wanted)
        np.testing.assert_array_equal(np.signbit(made.todense().real), np.signbit(wanted.real))
    wide = sj.numpy.full(3, value)[:, None, None]
    assert wide.shape == (3, 1, 1)
    np.testing.assert_array_equal((wide + 1).todense(), np.full((3, 1, 1), value) + 1)
    with pytest.raises(sj.errors.FormatError):
        sj.numpy.full(3, 2.5, dtype=int)
