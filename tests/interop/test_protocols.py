"""NumPy's functions and ufuncs on our arrays: arguments, reductions, what passes through, what is refused and how."""

import io
import sys

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

import sparsejax as sj
import sparsejax.numpy as snp

D = np.array([[0.0, 2.0, -1.0], [3.0, 0.0, 0.5]])
S, A = sj.array(D, format="csr"), sj.array(D)
BOTH = pytest.mark.parametrize("x", [A, S], ids=["dense", "csr"])


@BOTH
def test_arguments_of_ufuncs(x):
    cases = [
        (np.add(x, x, dtype="f4"), np.add(D, D, dtype="f4")),
        (np.multiply(x, 2, where=D > 0), np.where(D > 0, D * 2, 0)),
        (np.add(x, 1, casting="safe"), D + 1),
        (np.sqrt(abs(x), dtype="f4"), np.sqrt(abs(D), dtype="f4")),
        (np.less(x, 1, where=True), D < 1),
        (np.true_divide(x, 2, order="C", subok=True), D / 2),
    ]
    for made, want in cases:
        assert isinstance(made, sj.Array) and made.dtype == want.dtype
        np.testing.assert_array_equal(made.todense(), want)
    with pytest.raises(TypeError, match="safe"):
        np.add(x, x, dtype="i4", casting="safe")


@BOTH
def test_results_in_given_memory(x):
    """NumPy's arrays take results of dense arrays; ours never change, and sparse ones are not made dense silently."""
    with pytest.raises(TypeError, match=r"add: out= is refused"):
        np.add(D, D, out=x)
    target, total = D.copy(), np.empty(())
    if x.format.is_dense:
        target += x
        target *= x
        np.testing.assert_array_equal(target, (D + D) * D)
        assert np.sum(x, out=total) is total and total == D.sum()
        np.clip(x, 0, 1, out=target)
        np.testing.assert_array_equal(target, D.clip(0, 1))
        np.add.reduce(x, axis=0, out=target[0])
        np.testing.assert_array_equal(target[0], D.sum(0))
        return
    with pytest.raises(TypeError, match=r"add: out= is refused.*y = y \+ x"):
        target += x
    with pytest.raises(TypeError, match=r"sum: out= is refused"):
        np.sum(x, out=total)


@pytest.mark.rotating(2)
@BOTH
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "logical_or", "logical_and"])
def test_methods_of_ufuncs(name, x):
    ufunc = getattr(np, name)
    for options in ({}, {"axis": 1}, {"axis": None, "keepdims": True}, {"axis": 0, "initial": 1.0}):
        if "initial" in options and name.startswith("logical"):
            continue
        np.testing.assert_array_equal(ufunc.reduce(x, **options).todense(), ufunc.reduce(D, **options))
    if not name.startswith("logical"):
        np.testing.assert_array_equal(ufunc.accumulate(x, axis=1).todense(), ufunc.accumulate(D, axis=1))
        made, want = ufunc.outer(x, [1.0, -2.0]), ufunc.outer(D, [1.0, -2.0])
        np.testing.assert_array_equal(made.todense(), want)
        np.testing.assert_array_equal(ufunc.outer([1.0, -2.0], x).todense(), ufunc.outer([1.0, -2.0], D))
    with pytest.raises(TypeError, match=r"x\.at"):
        ufunc.at(x, (0, 0), 1.0)


def test_reductions_with_masks():
    np.testing.assert_array_equal(
        np.add.reduce(S, axis=1, where=D > 0).todense(), np.add.reduce(D, axis=1, where=D > 0)
    )
    np.testing.assert_array_equal(np.sum(S, axis=0, where=D > 0, initial=2.0).todense(), [5, 4, 2.5])
    np.testing.assert_array_equal(np.nanmean(S, axis=0, dtype="f4").todense(), np.nanmean(D, axis=0, dtype="f4"))
    np.testing.assert_allclose(np.nanstd(S, axis=0, dtype="f8").todense(), np.nanstd(D, axis=0))


def test_other_ufuncs():
    x = np.array([0.5, 2.0])
    for function in (scipy.special.gammaln, scipy.special.erf, scipy.special.expit, scipy.special.j0, np.spacing):
        made = function(sj.array(x))
        assert isinstance(made, sj.Array)
        np.testing.assert_allclose(made.todense(), function(x))
    made = scipy.special.gammaln(S + 1)
    np.testing.assert_allclose(made.todense(), scipy.special.gammaln(D + 1))
    made = scipy.special.j1(S)  # of what is stored, and of the fill
    assert made.nnz == 4 and made.fill_value == 0
    np.testing.assert_allclose(made.todense(), scipy.special.j1(D))
    np.testing.assert_allclose(scipy.special.jv(1, sj.array(x)).todense(), scipy.special.jv(1, x))
    mantissa, exponent = np.frexp(A)
    np.testing.assert_array_equal((mantissa * 2.0**exponent).todense(), D)
    with pytest.raises(TypeError, match="to_scipy"):
        np.ldexp(S, 2)
    with pytest.raises(TypeError, match="pure_callback"):
        sj.jit(np.spacing)(x)
    slope = sj.grad(lambda v: snp.sum(scipy.special.gammaln(v)))(x)
    np.testing.assert_allclose(slope.todense(), scipy.special.psi(x))


FUNCTIONS = {
    "percentile": lambda x: np.percentile(x, 30),
    "histogram": lambda x: np.histogram(x, bins=3)[0],
    "diff": np.diff,
    "isin": lambda x: np.isin(x, [2.0, 3.0]),
    "atleast_1d": np.atleast_1d,
    "atleast_3d": np.atleast_3d,
    "linalg.norm": np.linalg.norm,
    "linalg.svd": lambda x: np.linalg.svd(x)[1],
    "linalg.pinv": np.linalg.pinv,
    "fft": lambda x: abs(np.fft.fft(x)),
    "cov": np.cov,
    "clip": lambda x: np.clip(x, a_min=0, a_max=1),
    "full_like": lambda x: np.full_like(x, 3, shape=(2,)),
    "zeros_like": lambda x: np.zeros_like(x, order="K", subok=True),
    "partition": lambda x: np.partition(x, 1, axis=1)[:, 1],
    "einsum": lambda x: np.einsum("ij->j", x),
    "concatenate": lambda x: np.concatenate([x, x], axis=None),
    "where": lambda x: np.where(x > 0, x, 0),
    "result_type": lambda x: np.zeros(1, np.result_type(x, np.float32)),
    "pad": lambda x: np.pad(x, 1),
    "quantile": lambda x: np.quantile(x, [0.1, 0.9], axis=0),
    "nanmedian": lambda x: np.nanmedian(x, axis=1),
    "trapezoid": lambda x: np.trapezoid(x, axis=1),
    "gradient": lambda x: np.gradient(x, axis=1),
    "apply_along_axis": lambda x: np.apply_along_axis(np.max, 1, x),
    "lexsort": np.lexsort,
    "unwrap": np.unwrap,
    "polyfit": lambda x: np.polyfit(np.arange(3.0), x.T, 1),
    "put_along": lambda x: np.take_along_axis(x, np.zeros((2, 1), int), 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpys_functions_take_dense_arrays(name):
    np.testing.assert_allclose(np.asarray(FUNCTIONS[name](A)), FUNCTIONS[name](D), atol=1e-12)


def test_refusals_name_the_way_out():
    with pytest.raises(TypeError, match=r"np\.unwrap.*to_scipy.*np\.asarray"):
        np.unwrap(S)
    with pytest.raises(TypeError, match=r"todense.*to_scipy"):
        np.asarray(S)
    with pytest.raises(TypeError, match="pure_callback"):
        sj.jit(np.unwrap)(A)
    with pytest.raises(TypeError, match=r"np\.cov.*fweights.*sparsejax\.numpy\.cov"):
        np.cov(S, fweights=[1, 1, 1])


def test_files_and_sizes():
    buffer = io.BytesIO()
    np.save(buffer, A)
    buffer.seek(0)
    np.testing.assert_array_equal(np.load(buffer), D)
    big = sj.array(np.ones(10_000))
    assert sys.getsizeof(big) > 80_000 and sys.getsizeof(S) > S.nbytes


def test_scipy_minimises_our_functions():
    target = np.array([1.0, -2.0, 0.5])

    def f(x):
        return snp.sum((x - target) ** 2) + snp.sum(x**4) * 0.01

    for method in ("L-BFGS-B", "BFGS", "CG", "TNC", "SLSQP"):
        found = scipy.optimize.minimize(sj.jit(sj.value_and_grad(f)), np.zeros(3), jac=True, method=method)
        assert found.success
        np.testing.assert_allclose(sj.grad(f)(found.x).todense(), 0, atol=1e-3)
    found = scipy.optimize.minimize(f, np.zeros(3), jac=sj.grad(f), hess=sj.hessian(f), method="Newton-CG")
    np.testing.assert_allclose(sj.grad(f)(found.x).todense(), 0, atol=1e-4)
    root = scipy.optimize.root(sj.grad(f), np.zeros(3), jac=sj.hessian(f))
    np.testing.assert_allclose(sj.grad(f)(root.x).todense(), 0, atol=1e-6)
    fitted = scipy.optimize.least_squares(
        lambda x: x - target, np.zeros(3), jac=lambda x: sj.jacfwd(lambda y: y - target)(x)
    )
    np.testing.assert_allclose(fitted.x, target)
    assert scipy.stats.describe(A, axis=None).nobs == 6


def test_order_says_what_entries_follow_each_other():
    dense = np.arange(6).reshape(2, 3)
    for x in (sj.array(dense), sj.array(dense, format="csr")):
        for order in "CF":
            np.testing.assert_array_equal(np.ravel(x, order=order).todense(), np.ravel(dense, order=order))
            made = np.reshape(x, (3, 2), order=order)
            np.testing.assert_array_equal(made.todense(), np.reshape(dense, (3, 2), order=order))


def test_what_numpy_writes_in_place_is_refused():
    with pytest.raises(TypeError, match="immutable"):
        np.put_along_axis(sj.array(np.eye(3)), np.array([[0]]), 9, axis=1)
