"""Index arrays that a program makes of extents alone: what is known of them, and what is made for lengths that come back."""

import gc
import tracemalloc

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp


def chosen(x, labels):
    return snp.take_along_axis(x, labels[:, None], axis=1)[:, 0]


def test_rows_are_counted_for_every_length():
    rng, f = np.random.default_rng(0), sj.jit(chosen)
    for n in (3, 7, 5, 9, 5, 1, 700, 8, 70_000, 5, 66_000):
        x, labels = rng.random((n, 4)), rng.integers(-4, 4, n)
        np.testing.assert_array_equal(f(x, labels).todense(), x[np.arange(n), labels])


def test_labels_out_of_bounds_are_found_beside_rows_that_are_counted():
    rng, f = np.random.default_rng(0), sj.jit(chosen)
    for n in (3, 7, 5, 9, 6):
        f(rng.random((n, 4)), rng.integers(0, 4, n))
    expected = f(rng.random((8, 4)), np.full(8, 3))
    with pytest.raises(IndexError):
        f(rng.random((8, 4)), np.full(8, 4))
    assert expected.shape == (8,)


def test_counted_numbers_cannot_be_written():
    f = sj.jit(lambda x: snp.arange(x.shape[0]))
    for n in (3, 7, 5, 9, 6):
        made = f(np.zeros(n))
        np.testing.assert_array_equal(made.todense(), np.arange(n))
        with pytest.raises(ValueError):
            made._storage.vals.flags.writeable = True


@pytest.mark.parametrize("key", [np.s_[1:, 0], np.s_[::-1, 1], np.s_[::2], np.s_[:, 2:], np.s_[0:0], np.s_[-3:, ::-2]])
def test_parts_of_dense_arrays_of_any_length(key):
    f = sj.jit(lambda x: (x[key], x.T[key[::-1] if isinstance(key, tuple) else (slice(None), key)]))
    for n in (4, 7, 5, 9, 6, 700):
        x = np.arange(4.0 * n).reshape(n, 4)
        one, other = f(x)
        np.testing.assert_array_equal(one.todense(), x[key])
        np.testing.assert_array_equal(other.todense(), x.T[key[::-1] if isinstance(key, tuple) else (slice(None), key)])


def test_constants_of_several_extents():
    def f(x, y):
        counted = snp.arange(x.shape[0])[:, None] * snp.arange(y.shape[0]) + x.shape[1]
        return counted[-1, :], counted[:, 1:].sum(), x.sum() + y.sum()

    many = sj.jit(f)
    for n, m, k in [(4, 7, 2), (5, 9, 3), (9, 5, 3), (5, 9, 4), (700, 8, 5), (9, 5, 3), (5, 5, 6), (9, 5, 2)] * 3:
        x, y = np.ones((n, k)), np.ones(m)
        for got, want in zip(many(x, y), (counted := np.outer(range(n), range(m)) + k)[-1:], strict=False):
            np.testing.assert_array_equal(got.todense(), want)
        assert [int(v.item()) for v in many(x, y)[1:]] == [counted[:, 1:].sum(), n * k + m]


@pytest.mark.parametrize("key", [np.s_[1:], np.s_[2:5], np.s_[-1], np.s_[:, 0], np.s_[1:, ::2], np.s_[::-1]])
def test_gradients_of_parts_of_any_length(key):
    f = sj.jit(sj.grad(lambda x, w: (x[key] * w).sum()))
    for n in (6, 8, 11, 9, 7, 700):
        x = np.arange(4.0 * n).reshape(n, 4)
        want = np.zeros((n, 4))
        w = want[key] = np.arange(1.0, 1 + x[key].size).reshape(x[key].shape)
        np.testing.assert_array_equal(f(x, w).todense(), want)


def test_what_constants_are_made_of_is_not_held():
    f = sj.jit(lambda x: x[:4] + snp.arange(x.shape[0])[1:][:4] + snp.flip(snp.arange(x.shape[0]))[-1])
    for n in (200_000, 200_010, 200_020, 200_030):
        f(np.zeros(n))
    tracemalloc.start()
    try:
        for n in (*range(200_100, 200_116), *(200_000,) * 16):
            np.testing.assert_array_equal(f(np.zeros(n)).todense(), np.arange(1, 5))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 8 * 200_000 * 4
    finally:
        tracemalloc.stop()
