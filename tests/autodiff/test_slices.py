"""Gradients of slices: the cotangent lies where the slice was taken from, whatever its steps, beside slices that overlap."""

import functools
import operator

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.lax.indexing import pad, slices
from tests.autodiff.checks import array, check

KEYS = [
    (slice(None, -1), slice(1, None)),
    (slice(None, None, -1), slice(None)),
    (slice(-2, None, -1), slice(None, None, -2)),
    (slice(1, None, 2), slice(-1, 0, -1)),
    (0, slice(1, 3)),
    (slice(2, 4), -1),
    (-1, slice(None, None, -1)),
    (slice(5, 2), slice(1, None)),
    (slice(0, 3, -1), slice(None)),
    (None, slice(1, None), slice(None, -1)),
]


def slope(x, keys):
    made = np.zeros(x.shape)
    for factor, key in enumerate(keys, 1):
        made[key] += factor * np.cos(x[key])
    return made


def gradient(keys):
    return sj.grad(lambda x: sum(factor * snp.sin(x[key]).sum() for factor, key in enumerate(keys, 1)))


@pytest.mark.parametrize("number", range(len(KEYS)))
def test_gradients_of_slices(number):
    rng = np.random.default_rng(number)
    keys = [KEYS[number], KEYS[(number * 3 + 1) % len(KEYS)]]
    f = gradient(keys)
    compiled = sj.jit(f)
    for shape in ((5, 6), (7, 4), (5, 9), (4, 4)):  # the second one on are of a program for many shapes
        x = rng.random(shape)
        np.testing.assert_allclose(compiled(x).todense(), slope(x, keys))
    np.testing.assert_allclose(f(np.asfortranarray(x)).todense(), slope(x, keys))
    X = rng.random((5, 3, 6))
    made = sj.jit(sj.vmap(f, in_axes=1))(X).todense()
    np.testing.assert_allclose(made, [slope(X[:, k], keys) for k in range(3)])


def test_second_derivatives_of_slices():
    f = sj.grad(lambda x: ((x[1:] - x[:-1]) ** 2).sum() + (x[::-1] * x).sum())
    n = 6
    D = np.eye(n - 1, n, 1) - np.eye(n - 1, n)
    wanted = 2 * D.T @ D + 2 * np.eye(n)[::-1]
    np.testing.assert_allclose(sj.jacfwd(f)(np.arange(6.0)).todense(), wanted)
    np.testing.assert_allclose(sj.jacrev(f)(np.arange(6.0)).todense(), wanted)


def test_gradients_of_slices_make_no_selection():
    text = sj.jit(gradient([slice(None, -1), slice(None, None, -1)])).lower(np.ones(9)).as_text("plan")
    assert "select" not in text
    assert text.count("pad") == 1  # one array of zeros for all slices


def test_padded_arrays_that_are_read_again_stay():
    def f(x):
        one, other = pad([x], [(range(0, 6, 2),)], (7,)), pad([x], [(range(1, 4),)], (7,))
        return one + other, one * 2

    one, other = sj.jit(f)(np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(one.todense(), [1, 1, 4, 4, 4, 0, 0])
    np.testing.assert_array_equal(other.todense(), [2, 0, 4, 0, 8, 0, 0])


PLACES = [(range(8), None), (range(2, 9, 3), range(1)), (range(5, 1, -1), 1), (6, 0), (range(2, 2), range(1, -1, -1))]


@pytest.mark.parametrize("first", range(len(PLACES)))
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i4", "?"])
def test_sums_of_padded_arrays_have_the_bits_of_sums(first, dtype):
    places, shape = PLACES[first:] + PLACES[:first], (9, 2)
    rng = np.random.default_rng(first)
    values = [np.where(rng.random(shape) < 0.4, -0.0, 2 * rng.random(shape)).astype(dtype) for _ in places]
    parts = [x[slices(place)].copy() for x, place in zip(values, places, strict=True)]
    wanted = []
    for x, place in zip(parts, places, strict=True):
        wanted.append(np.zeros(shape, dtype))
        wanted[-1][slices(place)] = x
        made = pad([x], [place], shape).todense()
        assert made.dtype == dtype
        assert made.tobytes() == wanted[-1].tobytes()

    def f(*parts):
        return functools.reduce(operator.add, (pad([x], [p], shape) for x, p in zip(parts, places, strict=True)))

    made = sj.jit(f)(*parts).todense()
    assert made.tobytes() == functools.reduce(operator.add, wanted).tobytes()


def test_derivatives_of_padded_arrays():
    def f(x):
        parts = [x, x[0] * x[1]]
        return (pad(parts, [(range(1, 3), range(0, 6, 2)), (1, range(4, 1, -1))], (4, 6)) ** 3).sum()

    rng = np.random.default_rng(0)
    check(rng, f, array(rng, (2, 3)), second=True)
