"""Corners of the surface that a first look at NumPy's behaviour finds."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

FORMATS = ("csr", "coo", "csf")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_products_that_overflow_beside_zeros_that_are_not_stored(form, dtype):
    huge = 1e300 if dtype != "f4" else 1e38
    x = np.array([[0, huge, huge], [huge, huge, huge], [0, 0, 0], [np.nan, 1, 0], [np.inf, 0, 1], [2, 3, 4]], dtype)
    a = sj.array(x, format=form)
    with np.errstate(all="ignore"):
        want = np.prod(x, axis=1)
    assert want[0] == 0  # NumPy meets the zero first
    for f in (lambda a: a.prod(axis=1), lambda a: a[:, ::-1].prod(axis=1)):
        for got in (f(a), sj.jit(f)(a)):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(np.isnan(got.todense()), np.isnan(want))
            keep = ~np.isnan(want)
            np.testing.assert_array_equal(got.todense()[keep], want[keep])
    assert np.isnan(a.prod().item()) and a[:3].prod().item() == 0
    assert sj.array(np.array([[0, 7], [3, 2]], "u1"), format=form).prod(axis=1, dtype="u1").todense().tolist() == [0, 6]


def test_products_of_more_elements_than_fit_into_64_bits():
    a = sj.array((np.array([1e300, 1e300]), np.array([[0, 1], [0, 1]])), shape=(2**62, 2**62))
    assert a.prod().item() == 0


def test_counts_beyond_64_bits_are_refused():
    coords = np.array([[0, 1], [0, 1]])
    full = sj.array((np.zeros(2), coords), shape=(2**62, 2**62), fill_value=2.0)
    with pytest.raises(OverflowError, match="2\\^63"):
        snp.count_nonzero(full)
    with pytest.raises(OverflowError, match="fewer axes"):
        sj.jit(snp.count_nonzero)(full)
    assert snp.count_nonzero(sj.array((np.ones(2), coords), shape=(2**62, 2**62))).item() == 2
    row = sj.array((np.zeros(2), coords), shape=(2, 2**62), fill_value=2.0)
    assert snp.count_nonzero(row, axis=1).todense().tolist() == [2**62 - 1, 2**62 - 1]


@pytest.mark.parametrize("form", ("coo", "csf"))
@pytest.mark.parametrize(("n", "ddof"), [(0, 0), (3, 4), (2, 1)])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_variances_over_nothing(form, n, ddof):
    x = np.arange(10.0 * n).reshape(5, n, 2) * (np.arange(5) % 2)[:, None, None]
    a = sj.array(x, format=form, copy=True)
    for name, axis, keepdims in (("var", 1, False), ("std", 1, True), ("var", None, False)):
        want = getattr(np, name)(x, axis=axis, ddof=ddof, keepdims=keepdims)
        got = getattr(snp, name)(a, axis, None, ddof, keepdims)
        np.testing.assert_allclose(got.todense(), want, rtol=1e-12)
