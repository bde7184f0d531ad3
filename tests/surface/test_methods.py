"""Methods, creation, axes and operands that are not arrays: as in NumPy, or an error that names the argument."""

import itertools
import operator

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.errors import FormatError

pytestmark = pytest.mark.rotating(24)

FORMATS = ("dense", "csr", "csc", "coo", "dcsr", "(d,d)@(1,0)")
RNG = np.random.default_rng(0)
D = RNG.integers(-2, 3, (3, 5)) * (RNG.random((3, 5)) < 0.6) * 1.25


@pytest.fixture(params=FORMATS)
def form(request):
    return request.param


@pytest.mark.parametrize("offset", [-4, -3, -1, 0, 1, 2, 4, 7])
def test_diagonals(form, offset):
    a = sj.array(D, format=form, copy=True)
    for function in (lambda x: x.diagonal(offset), lambda x: x.T.diagonal(offset), lambda x: x.trace(offset)):
        want = function(D)
        np.testing.assert_array_equal(function(a).todense(), want)
        np.testing.assert_array_equal(sj.jit(function)(a).todense(), want)
    np.testing.assert_array_equal(snp.trace(a, offset, dtype="f4").todense(), np.trace(D, offset, dtype="f4"))


def test_diagonals_of_three_dimensions():
    d = RNG.integers(0, 2, (2, 3, 4)) * 1.5
    for name in ("dense", "csf", "coo", "(c,d,c)@(2,0,1)"):
        a = sj.array(d, format=name, copy=True, fill_value=1.5 if name == "coo" else 0)
        for first, second in itertools.permutations((0, 1, -1), 2):
            for offset in (-1, 0, 2):
                got = snp.diagonal(a, offset, first, second)
                np.testing.assert_array_equal(got.todense(), np.diagonal(d, offset, first, second))
    with pytest.raises(ValueError, match="cannot be the same"):
        snp.diagonal(a, 0, 1, 1)
    with pytest.raises(ValueError, match="two dimensions"):
        snp.diagonal(np.ones(3))


def test_methods(form):
    a = sj.array(D, format=form, copy=True)
    for function in (
        lambda x: x.ravel(),
        lambda x: x.clip(-1, 1),
        lambda x: x.clip(max=1.5),
        lambda x: x.round(),
        lambda x: x.round(1),
        lambda x: x.round(-1),
        lambda x: x.copy(),
        lambda x: x.reshape((5, 3)),
        lambda x: x.reshape(5, 3),
        lambda x: x.reshape(-1),
        lambda x: x.transpose(1, 0),
        lambda x: x.transpose(None),
        lambda x: np.clip(x, min=-1, max=1),
    ):
        want = function(D)
        for got in (function(a), sj.jit(function)(a)):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got.todense(), want)
    np.testing.assert_array_equal(a.toarray(), D)
    np.testing.assert_array_equal(snp.full_like(a, 7).todense(), np.full_like(D, 7))
    assert snp.full_like(a, 1, "i4").dtype == np.int32


@pytest.mark.parametrize("dtype", ["i4", "u1", "f4", "f8", "c16"])
@pytest.mark.parametrize("decimals", [-1, 0, 2])
def test_round(dtype, decimals):
    x = (np.array([0, 5, 14, 15, 25.555, 99.995])).astype(dtype)
    want = np.round(x, decimals)
    got = snp.round(sj.array(x, copy=True), decimals)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.todense(), want, rtol=1e-6)


def test_numbers_and_iteration():
    a = sj.array(D, format="csr")
    assert f"{a.sum():.2f}" == f"{D.sum():.2f}" and f"{a.sum()}" == str(a.sum())
    assert float(round(a.sum(), 1)) == round(float(D.sum()), 1)
    with pytest.raises(TypeError, match="shape"):
        f"{a:.2f}"
    rows = list(sj.array(D, copy=True))
    assert len(rows) == 3 and all(isinstance(r, sj.Array) for r in rows)
    np.testing.assert_array_equal([r.todense() for r in rows], D)
    rows = list(a)
    assert all(str(r.format) != "dense" for r in rows)
    np.testing.assert_array_equal([r.todense() for r in rows], D)
    with pytest.raises(TypeError, match="no dimensions"):
        iter(sj.array(1.0)).__next__()


@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_extrema_of_complex_numbers(kind, dtype, form):
    z = (D + 1j * np.roll(D, 2, axis=1)).astype(dtype)
    a = sj.array(z, format=form, copy=True)
    for axis in (None, 0, 1):
        want = getattr(np, kind)(z, axis=axis)
        np.testing.assert_array_equal(getattr(a, kind)(axis).todense(), want)
    z[1, 2] = complex(1, np.nan)
    assert np.isnan(complex(getattr(sj.array(z, format=form, copy=True), kind)()))


def test_means_have_the_dtype_that_is_asked_for(form):
    a = sj.array(D, format=form, copy=True)
    for dtype in (int, "f4", "c16", None):
        want = np.mean(D, axis=0, dtype=dtype)
        got = snp.mean(a, axis=0, dtype=dtype)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.todense(), want, rtol=1e-6)


@pytest.mark.parametrize("op", [operator.mul, operator.add, operator.matmul, operator.eq, operator.lt, operator.pow])
@pytest.mark.parametrize("value", [[1.0, 2], (1, 2)])
def test_operators_take_no_lists(op, value):
    for array in (sj.array([1.0, 2]), sj.array(3), sj.array(np.eye(2), format="csr")):
        with pytest.raises(TypeError, match=r"not a (list|tuple); convert it with sparsejax.array"):
            op(array, value)
        with pytest.raises(TypeError, match=r"not a (list|tuple); convert it with sparsejax.array"):
            op(value, array)
        with pytest.raises(TypeError, match=r"not a (list|tuple)"):
            sj.jit(lambda x: op(x, value))(array)
    np.testing.assert_array_equal(snp.add(sj.array([1.0, 2]), [1, 2]).todense(), [2, 4])
    assert (sj.array(3) == None) is False  # noqa: E711


def test_negative_integer_powers():
    x = sj.array(np.array([2, 4]))
    for function in (lambda x: x**-1, lambda x: snp.power(x, -2)):
        with pytest.raises(ValueError, match="negative integer powers"):
            function(x)
        with pytest.raises(ValueError, match="negative integer powers"):
            sj.jit(function)(x)
    with pytest.raises(ValueError, match="negative integer powers"):
        sj.jit(lambda x, s: x**s)(x, -1)
    for form in ("dense", "csf"):
        with pytest.raises(ValueError, match="negative integer powers"):
            x ** sj.array(np.array([-1, 1]), format=form)
        np.testing.assert_array_equal((x ** sj.array(np.array([3, 1]), format=form)).todense(), [8, 4])
    np.testing.assert_array_equal((x**-1.0).todense(), [0.5, 0.25])
    assert sj.jit(lambda x, s: x**s)(x * 1.0, -1).todense()[0] == 0.5


@pytest.mark.parametrize("op", ["matmul", "mul", "truediv", "eq", "lt", "ge", "add", "sub"])
@pytest.mark.parametrize("make", [sp.csr_array, sp.coo_array, sp.csc_array])
def test_scipy_on_the_left(op, make, form):
    square = np.where(D[:, :3] == 0, 0, D[:, :3])
    m, a = make(np.eye(3) * 2 + np.diag([1.0, 0], 1)), sj.array(square, format=form, copy=True)
    function = getattr(operator, op)
    with np.errstate(all="ignore"):
        want = function(m.toarray(), square)
    for got in (function(m, a), sj.jit(lambda a: function(m, a))(a), sj.jit(function)(m, a)):
        assert isinstance(got, sj.Array)
        if op == "truediv":
            got, want = snp.where(square != 0, got, 0.0), np.where(square != 0, want, 0)
        np.testing.assert_allclose(got.todense(), want)
    scaled = m * sj.array(2.0)
    assert isinstance(scaled, sj.Array)
    np.testing.assert_array_equal(scaled.todense(), m.toarray() * 2)


def test_products_with_scipy_matrices_are_not_guessed():
    m, a = sp.csr_matrix(np.eye(3)), sj.array(D[:, :3], format="csr", copy=True)
    with pytest.raises(TypeError, match="write @"):
        m * a
    np.testing.assert_array_equal((m @ a).todense(), D[:, :3])


def test_scipy_still_reads_dense_arrays():
    x = sj.array(D, copy=True)
    np.testing.assert_array_equal(sp.csr_array(x).toarray(), D)
    np.testing.assert_array_equal(sp.csr_array(D).multiply(x).toarray(), D * D)


def test_arguments_are_named():
    a, t = sj.array(D, format="csr"), sj.array(np.ones((2, 3, 4)))
    for function, error, word in (
        (lambda: snp.expand_dims(a, (0, 0)), ValueError, "duplicate"),
        (lambda: snp.expand_dims(a, "0"), TypeError, "axis"),
        (lambda: snp.moveaxis(t, [0, 1], [1]), ValueError, "same number"),
        (lambda: snp.squeeze(a, 1.5), TypeError, "axis"),
        (lambda: snp.eye(-1), ValueError, "extent -1"),
        (lambda: snp.zeros((2, -1)), ValueError, "extent -1"),
        (lambda: snp.zeros("3"), TypeError, "shape"),
        (lambda: a.reshape(2.0, 3), TypeError, "shape"),
        (lambda: a.sum(axis="0"), TypeError, "axis"),
        (lambda: a.sum(axis=(0, 0)), ValueError, "axis"),
        (lambda: a.astype("foo"), TypeError, "dtype"),
        (lambda: snp.broadcast_to(a, "x"), TypeError, "shape"),
        (lambda: a.transpose("a"), TypeError, "axes"),
    ):
        with pytest.raises(error, match=word):
            function()
    assert snp.zeros(np.int64(3)).shape == (3,) and snp.ones(3).shape == (3,) and snp.full([2, 1], 5).shape == (2, 1)
    np.testing.assert_array_equal(snp.expand_dims(a, (0, -1)).todense(), np.expand_dims(D, (0, -1)))


def test_arrays_of_arrays(form):
    a = sj.array(D, format=form, copy=True)
    assert (
        sj.array(a) is not a
        and snp.asarray(a) is a
        and sj.array(a, format=form, dtype="f8", shape=(3, 5), copy=False) is a
    )
    with pytest.raises(FormatError, match="shape"):
        sj.array(a, shape=(15,))
    again = sj.array(a, copy=True)
    assert not np.shares_memory(again.storage.vals, a.storage.vals) and again.format == a.format
    np.testing.assert_array_equal(again.todense(), D)
    other = "coo" if form != "coo" else "csr"
    np.testing.assert_array_equal(sj.array(a, format=other, dtype="f4").todense(), D.astype("f4"))
    for arguments in ({"format": other}, {"dtype": "f4"}):
        with pytest.raises(ValueError, match="copy=None"):
            sj.array(a, copy=False, **arguments)
    if a.format.is_dense:
        filled = sj.array(a, format="csr", fill_value=1.25)
        assert filled.fill_value == 1.25 and filled.nnz == np.sum(D != 1.25)
        np.testing.assert_array_equal(filled.todense(), D)
        np.testing.assert_array_equal(sj.array(a, fill_value=7).todense(), D)
    else:
        with pytest.raises(FormatError, match="fill_value=7"):
            sj.array(a, fill_value=7)
        assert snp.asarray(a, fill_value=0) is a


def test_arrays_of_traced_values():
    f = sj.jit(lambda x: sj.array(x, format="csr", dtype="f4"))
    made = f(D)
    assert made.dtype == np.float32 and str(made.format) == "csr"
    with pytest.raises(FormatError, match="shape"):
        sj.jit(lambda x: sj.array(x, shape=(15,)))(D)
    with pytest.raises(FormatError, match="fill_value"):
        sj.jit(lambda x: sj.array(x, fill_value=7))(D)


def test_results_are_arrays():
    x = np.array([1.0, 2.0])
    for function in (snp.real, snp.clip, snp.copy, snp.round, snp.ravel, snp.transpose, lambda x: snp.astype(x, "f8")):
        made = function(x)
        assert isinstance(made, sj.Array)
        x[0] += 1
        assert made.todense()[0] == x[0] - 1
