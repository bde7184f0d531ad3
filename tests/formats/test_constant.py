"""Arrays of one value: sparse ones like sparse ones, and zeros that take no memory."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import validate
from sparsejax.formats.parts import constant

FORMS = ("csr", "csc", "coo", "dcsr", "lil", "ell", "dia", "bsr:2x2", "rle", "(h,h)", "bitmap", "groupcoo:4")
HUGE = (1 << 20, 1 << 20)
"""8 TiB of float64, more than the machines that run tests have."""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [0, 1, 2.5, -0.0])
def test_what_is_like_a_sparse_array_is_stored_as_it_is(form, value):
    dense = np.where(np.arange(48).reshape(6, 8) % 3, 0, 1.5)
    A = sj.array(dense, format=form)
    for made in (snp.full_like(A, value), sj.jit(lambda A: snp.full_like(A, value))(A)):
        assert (made.format, made.shape, made.dtype) == (A.format, A.shape, A.dtype)
        np.testing.assert_array_equal(made.todense(), np.full_like(dense, value))
    np.testing.assert_array_equal((snp.ones_like(A) + A).todense(), dense + 1)
    np.testing.assert_array_equal(snp.full_like(A, value, shape=(3, 5)).todense(), np.full((3, 5), value))


def test_what_is_like_a_dense_array_is_dense():
    x = np.ones((2, 3))
    for made in (snp.zeros_like(x), snp.full_like(sj.array(x, format="csr"), np.ones(3)), snp.ones_like(x)):
        assert made.format.is_dense and made.shape == (2, 3)
    A = sj.array(x, format="csr")
    traced = sj.jit(lambda A, v: snp.full_like(A, v))(A, 2.0)
    np.testing.assert_array_equal(traced.todense(), np.full((2, 3), 2.0))
    assert snp.zeros_like(A, shape=(4,)).format.is_dense and snp.zeros_like(A, format="dense").format.is_dense


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1, 3), (2, 3, 4), ()])
def test_what_is_like_an_array_in_another_order_is_in_that_order(shape):
    x = sj.array(np.arange(float(np.prod(shape))).reshape(shape)).T
    columns = sj.asarray(np.asfortranarray(np.ones(shape)))
    for source in (x, columns, columns.T):
        for function in (snp.zeros_like, snp.ones_like, snp.empty_like):
            for made in (function(source), sj.jit(function)(source)):
                validate.validate(made.storage)
                assert (made.format, made.shape) == (source.format, source.shape)
                np.testing.assert_array_equal((made + source).todense(), made.todense() + source.todense())
        np.testing.assert_array_equal(snp.zeros_like(source).todense(), np.zeros(source.shape))


def test_huge_arrays_of_one_value_take_no_memory():
    coords = np.array([[0, 5], [7, HUGE[1] - 1]])
    A = sj.array((np.ones(2), coords), shape=HUGE, format="csr")
    assert snp.zeros_like(A).nnz == snp.ones_like(A).nnz == 0 and snp.ones_like(A).fill_value == 1
    try:
        zeros = snp.zeros(HUGE)
    except MemoryError:
        pytest.skip("the system maps no more memory than it has")
    assert zeros.format.is_dense and zeros[3, 5].todense() == 0
    for form in ("csr", "csc", "coo"):
        made = zeros.asformat(form)
        assert made.shape == HUGE and made.nnz == 0 and (made + A).nnz == 2


@pytest.mark.parametrize("form", ["csr", "coo", "dcsc"])
def test_zeros_become_sparse_while_functions_are_traced(form):
    """As constants without entries: a call looks at no element of them."""
    n = 20_000
    A = sj.array((np.ones(2), ([0, 7], [5, 9])), shape=(n, n), format=form)
    for function in (lambda x: snp.zeros((n, n)).asformat(form) + x, lambda x: x * snp.zeros((n, n)).asformat(form)):
        traced = sj.make_jaxpr(function)(A)
        assert "convert_format" not in str(traced)
        made, expected = sj.jit(function)(A), function(A)
        assert made.format == expected.format and made.nnz == expected.nnz
    assert sj.jit(lambda: snp.zeros((n, n)).asformat(form))().nnz == 0


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, np.nan])
def test_only_zeros_are_known_to_be(value):
    storage = constant.filled((2, 3), value, np.dtype(float))
    assert constant.is_zeros(storage) == (value == 0 and not np.signbit(value))
    np.testing.assert_array_equal(np.signbit(storage.vals), np.signbit(np.full(6, value)))
    for form in ("csr", "dia", "bsr:2x3"):
        got = snp.full((2, 3), value).asformat(form)
        np.testing.assert_array_equal(got.todense(), np.full((2, 3), value))
