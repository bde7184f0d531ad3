"""What takes roads of its own outside `jit`, beside NumPy and SciPy: whole extremes, diagonals, triplets, lists as keys, numbers beside arrays."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats.validate import validate

FORMATS = ("csr", "csc", "coo", "dcsr", "bsr:2x2", "dense")


def _values(rng, shape):
    """Few different values, so that extremes occur several times, and now and then a NaN."""
    made = np.where(rng.random(shape) < rng.choice([0.2, 0.6, 1.0]), rng.integers(-2, 3, shape), 0).astype(float)
    if rng.random() < 0.2:
        made[tuple(rng.integers(0, shape))] = np.nan
    return made


@pytest.mark.parametrize("format", FORMATS)
def test_where_the_extreme_of_a_whole_array_is(format):
    rng = np.random.default_rng(sum(map(ord, format)))
    for number in range(9):
        x = _values(rng, (4, 5) if number % 3 else rng.integers(1, 7, 2))
        fill = 0 if format == "dense" else rng.choice([0.0, 1.0, -1.0])
        A = sj.array(x, format=format, fill_value=fill)
        for name in ("argmax", "argmin"):
            want = getattr(np, name)(x)
            assert getattr(snp, name)(A).item() == want, (name, x, fill)
            assert number or sj.jit(getattr(snp, name))(A).item() == want
            assert getattr(snp, name)(A, keepdims=True).shape == (1, 1)


def test_where_the_extreme_of_a_large_matrix_is_takes_memory_for_its_entries_alone():
    n = 2_000_000
    A = sj.array(
        (np.array([1.0, 5.0, 5.0]), (np.array([3, 7, n - 1]), np.array([9, 2, 0]))), shape=(n, n), format="csr"
    )
    assert snp.argmax(A).item() == 7 * n + 2
    assert snp.argmin(A).item() == 0


def test_several_diagonals():
    rng = np.random.default_rng(0)
    for _ in range(240):
        m, n = (int(k) for k in rng.integers(1, 9, 2))
        offsets = [int(k) for k in rng.integers(-m + 1, n, rng.integers(1, 5))]
        dtypes = rng.choice(["f8", "i4", "f4", "?", "c16"], len(offsets))
        given = [
            rng.integers(-3, 4, min(m - max(0, -k), n - max(0, k))).astype(d)
            for k, d in zip(offsets, dtypes, strict=True)
        ]
        want = np.zeros((m, n), np.result_type(*given))
        for values, k in zip(given, offsets, strict=True):
            here = np.zeros((m, n), want.dtype)
            np.fill_diagonal(here[max(0, -k) :, max(0, k) :], values)
            want = want + here
        format = str(rng.choice(FORMATS))
        got = snp.diags(given, offsets, shape=(m, n), format=format)
        assert got.dtype == want.dtype and str(got.format) == format
        np.testing.assert_array_equal(got.todense(), want)
        validate(got.storage)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_triplets_as_coo(dtype):
    rng = np.random.default_rng(1)
    for size in (1, 5, 200, 6000):
        shape = tuple(int(k) for k in rng.integers(1, 90, 2))
        at = [rng.integers(0, k, size).astype(dtype) for k in shape]
        values = rng.integers(-4, 5, size).astype(float)
        for given in (values, values[:1].repeat(size)):
            got = sj.array((given, tuple(at)), shape=shape, format="coo")
            want = sp.coo_array((given, tuple(at)), shape=shape)
            np.testing.assert_array_equal(got.todense(), want.toarray())
            assert str(got.format) == "coo" and got.nnz == want.tocsr().nnz
            validate(got.storage)


def test_lists_are_keys_as_vectors_are():
    A = np.arange(20.0).reshape(4, 5)
    B = sj.array(A, format="csr")
    for key in ([1], [3, 0, -1, 3]):
        np.testing.assert_array_equal(B[key].todense(), A[key])
    np.testing.assert_array_equal(B[[True, False, True, False]].todense(), A[[True, False, True, False]])
    with pytest.raises(IndexError):
        B[[4]]


def test_numbers_beside_arrays_are_told_apart_when_calls_come_back():
    x = sj.array(np.array([[1.0, -2.0], [0.0, 4.0]]), format="csr")
    for _ in range(3):
        for ord in (np.inf, -np.inf, 1.0, -1.0, 1, 2.0):
            np.testing.assert_allclose(snp.linalg.norm(x, ord).item(), np.linalg.norm(x.todense(), ord))
        for ord in (np.inf, 3.0, 0.5, 2.5):
            got = snp.linalg.norm(x, ord=ord, axis=1)
            np.testing.assert_allclose(got.todense(), np.linalg.norm(x.todense(), ord=ord, axis=1))
        np.testing.assert_array_equal(snp.dot(x, np.ones(2)).todense(), x.todense() @ np.ones(2))
        assert snp.dot(x, 2.0).todense().tolist() == (2 * x.todense()).tolist()
        assert np.isnan(snp.nanmax(sj.array(np.array([np.nan, np.nan]))).item())
        assert snp.nanmax(x, axis=1).todense().tolist() == [1.0, 4.0]


@pytest.mark.parametrize("fill", [0.0, -0.0, 2.0, np.nan])
@pytest.mark.parametrize(
    "form", ["dense", "csr", "csc", "coo", "dcsr", "bsr:2x2", "dia", "ell", "bitmap", "hash", "rle", "banded", "lil"]
)
def test_elements_that_are_not_zero_are_counted(form, fill):
    """Few values, which are counted and remembered, and many; stored zeros, padding, runs of one value, and slices of what was counted."""
    rng = np.random.default_rng(4)
    for n in (1, 7, 60):
        x = np.where(rng.random((n, n + 1)) < 0.3, rng.integers(-1, 2, (n, n + 1)) * 1.0, fill)
        A = sj.array(x, format=form, fill_value=fill)
        for _ in range(3):
            for part, expected in (
                (A, x),
                (A[1:], x[1:]),
                (A[:, ::2], x[:, ::2]),
                (-A, -x),
                (A * 0, x * 0),
                (A.T, x.T),
            ):
                made = snp.count_nonzero(part)
                assert (made.shape, made.dtype, int(made)) == ((), np.int64, np.count_nonzero(expected))
    assert int(snp.count_nonzero(-A)) == int(sj.jit(snp.count_nonzero)(A)) == np.count_nonzero(x)


def test_a_number_that_was_counted_may_be_donated():
    A = sj.array([[0, 2], [3, 0]], format="csr")
    for _ in range(5):
        doubled = sj.jit(lambda n: n * 2, donate_argnums=0)(snp.count_nonzero(A))
        assert (int(doubled), int(snp.count_nonzero(A))) == (4, 2)


def test_entries_that_are_stored_twice_count_as_their_sum():
    pos, crd, vals = np.array([0, 2]), np.array([1, 1], np.int32), np.array([1.0, -1.0])
    A = sj.array(sj.formats.Storage(sj.formats.Format.parse("(d,n)", 2), (1, 3), np.float64(0), ((), (pos, crd)), vals))
    assert int(snp.count_nonzero(A)) == 0
