"""Gradients of slices: the cotangent lies where the slice was taken from, whatever its steps, beside slices that overlap."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

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
    assert "concatenate" in text
    assert "select" not in text
