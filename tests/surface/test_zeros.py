"""What 0 * x is: an entry that is not stored annihilates, a zero that is stored or written is a number. Eager and jit alike."""

import itertools
import warnings

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

pytestmark = pytest.mark.rotating(24)

SPECIAL = np.array([[np.nan, np.inf, 1.0], [0.0, -0.0, -np.inf]])
FORMATS = ("dense", "csr", "csc", "coo", "dcsr", "bitmap")


def agree(function, *args):
    """The result, which eager and jit give alike in value, format and fill."""
    eager, compiled = function(*args), sj.jit(function)(*args)
    assert eager.format == compiled.format and eager.dtype == compiled.dtype and eager.nnz == compiled.nnz
    np.testing.assert_array_equal(eager.fill_value, compiled.fill_value)
    np.testing.assert_array_equal(eager.todense(), compiled.todense())
    return eager


LITERALS = [
    lambda x: x * 0,
    lambda x: 0 * x,
    lambda x: 0 / x,
    lambda x: x / 0,
    lambda x: 0 // x,
    lambda x: x // 0,
    lambda x: 0 % x,
    lambda x: x % 0,
    lambda x: x * np.nan,
    lambda x: x * float("inf"),
    lambda x: (x * 0) * 2 + x,
    lambda x: (x + 1) * 0.0,
]


@pytest.mark.parametrize("function", LITERALS)
def test_literal_zeros_are_numbers(function):
    with np.errstate(all="ignore"):
        want = function(SPECIAL)
    np.testing.assert_array_equal(agree(function, sj.array(SPECIAL, copy=True)).todense(), want)
    everything = (SPECIAL.ravel(), np.indices(SPECIAL.shape).reshape(2, -1))
    for form in FORMATS[1:]:
        full = sj.array(everything, shape=SPECIAL.shape, format=form, copy=True)
        np.testing.assert_array_equal(agree(function, full).todense(), want)


@pytest.mark.parametrize("form", FORMATS[1:])
def test_literal_zeros_beside_sparse_arrays(form):
    dense = np.array([[0, np.nan, 2.0], [np.inf, 0, 0]])
    A = sj.array(dense, format=form, copy=True)
    for function in (lambda x: x * 0, lambda x: x / 0, lambda x: x // 0, lambda x: x * np.nan):
        made = agree(function, A)
        with np.errstate(all="ignore"):
            want = np.where(dense != 0, function(dense), 0)
        assert made.fill_value == 0 and made.nnz == A.nnz and made.format == A.format
        np.testing.assert_array_equal(made.todense(), want)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(agree(lambda x: 0 / x, A).todense(), 0 / dense)
    n = sj.array(np.array([[np.nan, 1, 2]]), format=form, fill_value=np.nan)
    np.testing.assert_array_equal(agree(lambda x: x * 0, n).todense(), [[np.nan, 0, 0]])


@pytest.mark.parametrize(("first", "second"), list(itertools.product(("csr", "csc", "coo"), repeat=2)))
def test_absent_zeros_annihilate_whatever_the_other_fill(first, second):
    a = sj.array(np.diag([1.0, 0, 0]), format=first, copy=True)
    b = sj.array(np.array([[2.0, 0, 0], [0, 3, 0], [0, 0, 0]]), format=second, copy=True)
    undefined = agree(lambda a: a / a, a)
    assert np.isnan(undefined.fill_value)
    made = agree(lambda a, b: b * (a / a), a, b)
    np.testing.assert_array_equal(made.todense(), np.array([[2.0, 0, 0], [0, np.nan, 0], [0, 0, 0]]))
    for function in (lambda a, b: b @ (a / a), lambda a, b: b @ (a % a).T, lambda a, b: (b @ (a / a)) != 0):
        made = agree(function, a, b)
        assert not np.any(made.todense()[2])  # nothing is stored in the last row of b
    empty = snp.zeros((3, 3), "f4", format=second)
    for function in (lambda a, b: b @ (a / a), lambda a, b: b * (a % a), lambda a, b: (b @ (a / a).T) != 0):
        assert not agree(function, a, empty).todense().any()


@pytest.mark.parametrize("form", FORMATS)
def test_fusion_does_not_change_what_is_absent(form):
    """A dense result holds numbers where nothing was added to it; a sparse one has no entry there."""
    dense = np.array([[0, 0, 0], [0, 2.0, 0], [1, 0, 0]])
    A, x, y = sj.array(dense, format=form, copy=True), np.array([1.0, 2, 3]), np.array([np.nan, np.inf, 2])
    H = np.array([[np.nan, 1.0], [np.inf, 2], [3, 4]])
    with np.errstate(all="ignore"):
        wants = (dense @ x) * y, (dense @ H[:, 1:]) * H, y / (dense @ x)
    functions = (lambda A: (A @ x) * y, lambda A: (A @ H[:, 1:]) * H, lambda A: y / (A @ x))
    for want, function in zip(wants, functions, strict=True):
        np.testing.assert_array_equal(agree(function, A).todense(), want)
    made = agree(lambda A: (A @ A) * y, A)
    kept = dense @ dense != 0 if form != "dense" else np.ones((3, 3), bool)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(made.todense(), np.where(kept, (dense @ dense) * y, 0))


@pytest.mark.parametrize("form", ["coo", "csf", "(c,c,d)", "dense"])
@pytest.mark.parametrize("shape", [(4, 5, 0), (4, 0, 5), (0, 4, 5)])
def test_means_of_nothing_are_not_numbers(form, shape):
    x = sj.array(np.zeros(shape), format=form)
    for axis in (0, 1, 2, (1, 2), None):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = np.mean(np.zeros(shape), axis=axis)
        for made in (snp.mean(x, axis=axis), sj.jit(lambda x, axis=axis: snp.mean(x, axis=axis))(x)):
            np.testing.assert_array_equal(made.todense(), want)
        np.testing.assert_array_equal(snp.median(x, axis=axis).todense(), want)


def test_what_is_broadcast_is_reduced_as_often():
    """Values that fusion moves into a reduction tell nothing of how far its variables run."""
    a, b = sj.array(1.0), sj.array(2.0)
    A = sj.array(np.diag([1.0, 2.0]), format="csr")
    assert float(sj.jit(lambda a, b: snp.sum(snp.broadcast_to(a + b, (5,))))(a, b)) == 15
    assert float(sj.jit(lambda a, b: snp.prod(snp.broadcast_to(a + b, (3,))))(a, b)) == 27
    assert int(sj.jit(lambda a, b: snp.argmin(a + b))(a, b)) == 0
    made = sj.jit(lambda A: snp.sum(snp.broadcast_to(A * 0.5, (3, 2, 2)), axis=0))(A)
    np.testing.assert_array_equal(made.todense(), np.diag([1.5, 3.0]))
    for form in ("csr", "coo", "dense"):
        x = sj.array(np.array([[0.5, 1.0]]), format=form)
        mean = sj.jit(lambda x: snp.mean(x * 1.0, axis=0, keepdims=True))(x)
        np.testing.assert_array_equal(mean.todense(), [[0.5, 1.0]])
        total = sj.jit(lambda x: snp.broadcast_to(snp.sum(x * 1.0), (2, 3)))(x)
        np.testing.assert_array_equal(total.todense(), np.full((2, 3), 1.5))
    batch = sj.jit(sj.vmap(lambda x: snp.mean(snp.broadcast_to(snp.all(x * 1.0), (3,)) * 1.0, axis=0, keepdims=True)))
    np.testing.assert_array_equal(batch(sj.array(np.array([1.0, 0.0]))).todense(), [[1.0], [0.0]])
