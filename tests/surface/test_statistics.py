"""Variances, counts, norms, Kronecker products and diagonals against NumPy: dtypes, formats, fills, axes."""

import functools
import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz import engine

pytestmark = pytest.mark.rotating(24)

FORMATS = ("dense", "csr", "coo", "bsr:2x2")
AXES = (None, 0, 1, (0, 1))


@pytest.fixture(autouse=True)
def _quickly():
    with engine.quick():
        yield


def matrices(dtype):
    """A random matrix in every format, with fill 0 and, but for booleans, with fill 1."""
    rng = np.random.default_rng(0)
    dense = (rng.integers(0, 4, (5, 6)) * (rng.random((5, 6)) < 0.5)).astype(dtype)
    if dense.dtype.kind == "c":
        dense = dense + 1j * dense[::-1] * (dense != 0)
    for form in FORMATS:
        array = sj.array(dense, format=form, copy=True)
        yield array, dense
        if dense.dtype != bool:
            yield snp.cos(array), np.cos(dense)


def agree(ours, theirs):
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.todense(), theirs, rtol=1e-5 if ours.dtype.itemsize == 4 else 1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16", "?"])
def test_variances_and_counts(dtype):
    for (array, dense), axis in itertools.product(matrices(dtype), AXES):
        keepdims, ddof = axis == 1, int(axis == 0)
        agree(snp.var(array, axis, ddof=ddof, keepdims=keepdims), np.var(dense, axis, ddof=ddof, keepdims=keepdims))
        agree(snp.count_nonzero(array, axis, keepdims), np.count_nonzero(dense, axis, keepdims=keepdims))
        agree(sj.jit(lambda x, axis=axis: snp.std(x, axis))(array), np.std(dense, axis))


def test_deviations_of_shifted_data_do_not_cancel():
    x = np.random.default_rng(1).normal(1e8, 1, (50, 3))
    x[::2] = 0
    agree(snp.var(sj.array(x, format="csr"), axis=0), np.var(x, axis=0))
    constant = np.full((4, 3), 1e8 + 0.1)
    assert not snp.var(sj.array(constant, format="csr"), axis=0).todense().any()


@pytest.mark.parametrize("dtype", ["f8", "i8", "c16"])
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_norms(dtype):
    for (array, dense), axis in itertools.product(matrices(dtype), AXES):
        matrix = axis in (None, (0, 1))
        for order in (None, 1, -1, np.inf, -np.inf, *(("fro",) if matrix else (0, 2, 3, 0.5))):
            agree(snp.linalg.norm(array, order, axis), np.linalg.norm(dense, order, axis))
            kept = np.linalg.norm(dense, order, axis, keepdims=True)
            agree(snp.linalg.norm(array, order, axis, keepdims=True), kept)


@pytest.mark.parametrize("dtype", ["f8", "c16", "?"])
def test_kronecker_products_and_diagonals(dtype):
    for array, dense in matrices(dtype):
        small = dense[:3, :2]
        agree(snp.kron(array, sj.array(small, format="csr", copy=True)), np.kron(dense, small))
        agree(snp.kron(array[0], array), np.kron(dense[0], dense))
        for k in (-7, -2, 0, 1, 9):
            agree(snp.diag(array, k), np.diag(dense, k))
            agree(snp.diag(array[0], k), np.diag(dense[0], k))


def test_results_stay_sparse():
    big = snp.eye(1000)
    assert snp.kron(big, big).nnz == 10**6
    assert not snp.diag(np.ones(10**5)).format.is_dense
    wide = sj.array((np.ones(3), ([0, 5, 9], [1, 2**39, 7])), shape=(2**40, 2**40))
    assert float(snp.var(wide).todense()) == pytest.approx(3 / 2**80)


def test_gradients_of_deviations():
    dense = np.array([[1.0, 0.0, 3.0], [0.0, 2.0, 5.0]])
    array, step = sj.array(dense, format="csr", copy=True), 1e-6
    found = sj.grad(lambda x: snp.std(x, axis=1).sum())(array).todense()
    for i, j in zip(*dense.nonzero(), strict=True):
        moved = [
            np.std(dense + sign * step * (np.indices(dense.shape) == [[[i]], [[j]]]).all(0), axis=1).sum()
            for sign in (1, -1)
        ]
        assert found[i, j] == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-7)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: snp.linalg.norm(np.eye(2), 3), "no norm of matrices"),
        (lambda: snp.linalg.norm(np.ones(2), "fro"), "numbers"),
        (lambda: snp.linalg.norm(np.ones((2, 2, 2)), axis=(0, 1, 2)), "one axis or two"),
        (lambda: snp.diag(np.ones((2, 2, 2))), "vector or a matrix"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(ValueError, match=match):
        call()


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16"])
@pytest.mark.parametrize("endpoint", [True, False])
def test_numbers_at_equal_distances_have_the_bits_of_numpy(dtype, endpoint):
    """Where ends are traced too: which bin an entry on an edge is counted in depends on the last bit."""
    rng = np.random.default_rng(2)
    spaced = sj.jit(lambda a, b: snp.linspace(a, b, 11, endpoint=endpoint))
    for shape in ((), (), (), (), (), (3,), (2, 2)):
        a, b = (10 * rng.normal(size=(2, *shape))).astype(dtype)
        np.testing.assert_array_equal(spaced(a, b).todense(), np.linspace(a, b, 11, endpoint), strict=True)
    np.testing.assert_array_equal(spaced(0.0, 3e-323).todense(), np.linspace(0.0, 3e-323, 11, endpoint))
    np.testing.assert_array_equal(spaced(-1.5, 2).todense(), np.linspace(-1.5, 2, 11, endpoint))
    a, b = rng.normal(size=(2, 4))
    b[1] = a[1]
    each = [np.linspace(low, high, 11, endpoint) for low, high in zip(a, b, strict=True)]
    np.testing.assert_array_equal(sj.vmap(spaced)(a, b).todense(), each)


def test_numbers_between_traced_ends_are_differentiated_and_rounded_down():
    np.testing.assert_allclose(sj.jacfwd(lambda a: snp.linspace(a, 2.0, 5))(1.0).todense(), [1, 0.75, 0.5, 0.25, 0])
    assert sj.grad(lambda a: snp.linspace(1.0, a, 4, endpoint=False)[2])(3.0) == 0.5
    whole = sj.jit(lambda a: snp.linspace(a, 2, 6, dtype=int))(-3.0)
    np.testing.assert_array_equal(whole.todense(), np.linspace(-3, 2, 6, dtype=int), strict=True)
    sized = sj.jit(lambda a, x: snp.linspace(a, 2.0, x.shape[0]))
    for n in (3, 4, 5, 6, 1, 2):
        np.testing.assert_array_equal(sized(0.3, np.ones(n)).todense(), np.linspace(0.3, 2, n))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
def test_edges_of_bins_have_the_bits_of_numpy(dtype):
    rng = np.random.default_rng(3)
    traced = sj.jit(lambda x: snp.histogram(x, 7))
    for _ in range(20):
        low, high = np.sort(rng.normal(size=2) * 9)
        x = np.linspace(low, high, 8).astype(dtype)  # most entries lie on an edge
        x[3] = 0
        for form in ("dense", "coo"):
            array = sj.array(x, format=form)
            for (counts, edges), (want, places) in (
                (traced(array), np.histogram(x, 7)),
                (snp.histogram(array, 7), np.histogram(x, 7)),
                (snp.histogram(array, 7, (-0.7, 0.9)), np.histogram(x, 7, (-0.7, 0.9))),
            ):
                np.testing.assert_array_equal(edges.todense(), places, strict=True)
                np.testing.assert_array_equal(counts.todense(), want)


@pytest.mark.filterwarnings("ignore:Degrees of freedom", "ignore:invalid value", "ignore:divide by zero")
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_covariances_of_few(dtype):
    """No variables, no columns, and fewer columns than degrees of freedom."""
    for shape, ddof in itertools.product(((0, 4), (3, 0), (0, 0), (0,), (1, 1), (3, 1), (3, 2)), (None, 0, 3)):
        x = np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape) ** 2 + np.zeros(shape, dtype)
        for form in ("dense", "coo"):
            array = sj.array(x, format=form)
            agree(snp.cov(array, ddof=ddof), np.cov(x, ddof=ddof))
            agree(sj.jit(lambda x, ddof=ddof: snp.cov(x, ddof=ddof))(array), np.cov(x, ddof=ddof))
        agree(snp.corrcoef(array), np.corrcoef(x))


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_correlations_do_not_leave_one(dtype):
    rng = np.random.default_rng(4)
    for _ in range(10):
        x = rng.normal(size=5).astype(dtype)
        x = np.stack([x, 3 * x + 0.1, -x])
        found = sj.jit(snp.corrcoef)(x)
        assert np.abs(found.todense().real).max() <= 1
        agree(found, np.corrcoef(x))


@pytest.mark.parametrize("dtype", ["i8", "u1", "?"])
def test_counts_of_nothing(dtype):
    for minlength in (0, 4):
        counted = functools.partial(snp.bincount, minlength=minlength)
        for count in (counted, sj.jit(counted)):
            x = np.zeros(0, dtype)
            np.testing.assert_array_equal(count(x).todense(), np.bincount(x, minlength=minlength), strict=True)
