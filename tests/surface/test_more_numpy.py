"""NumPy's functions by NumPy's results: dense and sparse, jitted; what a function takes beside arrays."""

import functools
import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

X = np.array([[0.0, 2.0, 0.0, -1.5], [3.0, 0.0, 0.5, 0.0], [0.0, 0.0, 2.0, 1.0]])
V = np.array([0.0, 3.0, 0.0, 1.0, 2.0])
Q = [0.0, 0.3, 0.5, 0.77, 1.0]

ONE = {
    "quantile": lambda m, x: m.quantile(x, Q, axis=1),
    "quantile_all": lambda m, x: m.quantile(x, 0.4),
    "quantile_axes": lambda m, x: m.quantile(x, Q, axis=(0, 1), keepdims=True),
    "quantile_lower": lambda m, x: m.quantile(x, Q, axis=0, method="lower"),
    "quantile_higher": lambda m, x: m.quantile(x, Q, axis=0, method="higher"),
    "quantile_nearest": lambda m, x: m.quantile(x, Q, axis=0, method="nearest"),
    "quantile_midpoint": lambda m, x: m.quantile(x, Q, axis=0, method="midpoint"),
    "percentile": lambda m, x: m.percentile(x, [10, 90], axis=0),
    "histogram": lambda m, x: m.histogram(x, bins=4)[0],
    "histogram_edges": lambda m, x: m.histogram(x, bins=[-2.0, 0.0, 1.0, 3.0])[0],
    "histogram_range": lambda m, x: m.histogram(x, bins=3, range=(0, 2))[0],
    "histogram_density": lambda m, x: m.histogram(x, bins=3, density=True)[0],
    "histogram_weights": lambda m, x: m.histogram(x, bins=3, weights=np.arange(12.0).reshape(3, 4))[0],
    "diff": lambda m, x: m.diff(x),
    "diff_twice": lambda m, x: m.diff(x, n=2, axis=0, prepend=np.zeros((1, 4))),
    "cumprod": lambda m, x: m.cumprod(x + 1, axis=0),
    "cumulative_sum": lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda m, x: m.cumulative_prod(x, axis=1, include_initial=True),
    "average": lambda m, x: m.average(x, axis=1, weights=np.arange(1.0, 5)),
    "cov": lambda m, x: m.cov(x),
    "cov_columns": lambda m, x: m.cov(x, rowvar=False, ddof=0),
    "corrcoef": lambda m, x: m.corrcoef(x),
    "ptp": lambda m, x: m.ptp(x, axis=0),
    "isin": lambda m, x: m.isin(x, [2.0, 3.0]),
    "isin_zero": lambda m, x: m.isin(x, [0.0, 0.5], invert=True),
    "searchsorted": lambda m, x: m.searchsorted(np.array([-1.0, 0.0, 2.0]), x, side="right"),
    "digitize": lambda m, x: m.digitize(x, np.array([-1.0, 0.0, 2.0])),
    "interp": lambda m, x: m.interp(x, np.array([-1.0, 0.0, 2.0]), np.array([5.0, 1.0, 7.0])),
    "interp_ends": lambda m, x: m.interp(x, np.array([0.0, 1.0]), np.array([5.0, 1.0]), left=-1, right=9),
    "interp_period": lambda m, x: m.interp(x, np.array([0.2, 1.4]), np.array([5.0, 1.0]), period=2),
    "pad": lambda m, x: m.pad(x, ((1, 0), (2, 1))),
    "pad_value": lambda m, x: m.pad(x, 1, constant_values=7),
    "pad_edge": lambda m, x: m.pad(x, ((1, 2), (0, 1)), mode="edge"),
    "pad_reflect": lambda m, x: m.pad(x, 2, mode="reflect"),
    "pad_wrap": lambda m, x: m.pad(x, ((2, 2), (3, 0)), mode="wrap"),
    "block": lambda m, x: m.block([[x, x], [np.ones((1, 8))]]),
    "sort_down": lambda m, x: -m.sort(-x, axis=1),
    "partition": lambda m, x: m.sort(m.partition(x, 2, axis=1)[:, :2], axis=1),
    "unique_index": lambda m, x: m.unique(x, return_index=True)[1],
    "unique_inverse": lambda m, x: m.unique(x, return_inverse=True)[1],
    "median": lambda m, x: m.nanmedian(m.where(x == 2, np.nan, x), axis=1),
    "nanmedian_all": lambda m, x: m.nanmedian(m.where(x == 2, np.nan, x)),
    "nanquantile": lambda m, x: m.nanquantile(m.where(x == 2, np.nan, x), [0.1, 0.5, 1.0], axis=1),
    "nanquantile_lower": lambda m, x: m.nanquantile(m.where(x == 2, np.nan, x), 0.3, axis=0, method="lower"),
    "nanquantile_kept": lambda m, x: m.nanquantile(m.where(x == 2, np.nan, x), 0.7, keepdims=True, method="midpoint"),
    "nanpercentile": lambda m, x: m.nanpercentile(m.where(x == 2, np.nan, x), 70, axis=1, method="nearest"),
    "isclose_nan": lambda m, x: m.isclose(m.where(x == 2, np.nan, x), m.where(x == 2, np.nan, 1), equal_nan=True),
    "nanstd": lambda m, x: m.nanstd(m.where(x == 2, np.nan, x), axis=0),
    "nanvar": lambda m, x: m.nanvar(m.where(x == 2, np.nan, x), axis=1, ddof=1),
    "nanvar_infinite": lambda m, x: m.nanvar(m.where(x == 2, np.nan, m.where(x < 0, np.inf, x)), axis=1),
    "nanmedian_empty": lambda m, x: m.nanmedian(x[:, :0], axis=1, keepdims=True),
    "nanmedian_no_lines": lambda m, x: m.nanmedian(x[:0], axis=1),
    "nanquantile_empty": lambda m, x: m.nanquantile(x[:0], 0.5, axis=0),
    "nanquantile_no_lines": lambda m, x: m.nanquantile(x[:, :0], 0.5, axis=0, keepdims=True),
    "ravel_columns": lambda m, x: m.ravel(x, order="F"),
    "ravel_method": lambda m, x: m.abs(x).ravel("F") + m.abs(x).flatten(order="C"),
    "reshape_method": lambda m, x: m.abs(x).reshape((2, -1), order="F"),
    "nanprod": lambda m, x: m.nanprod(m.where(x == 2, np.nan, x), axis=1),
    "nancumsum": lambda m, x: m.nancumsum(m.where(x == 2, np.nan, x), axis=1),
    "nanargmax": lambda m, x: m.nanargmax(m.where(x == 2, np.nan, x), axis=1),
    "nanmean": lambda m, x: m.nanmean(m.where(x == 2, np.nan, x), axis=1, dtype="f4"),
    "sum_where": lambda m, x: m.sum(x, axis=1, where=x > 0, initial=3.0),
    "max_where": lambda m, x: m.max(x, axis=0, where=x < 2, initial=-5.0),
    "mean_where": lambda m, x: m.mean(x, axis=1, where=x > -1),
    "std_where": lambda m, x: m.std(x, axis=1, where=x > -1),
    "prod_where": lambda m, x: m.prod(x, axis=1, where=x != 0),
    "any_where": lambda m, x: m.any(x, axis=1, where=x < 1),
    "var_correction": lambda m, x: m.var(x, axis=0, correction=1),
    "matrix_transpose": lambda m, x: m.matrix_transpose(x),
    "permute_dims": lambda m, x: m.permute_dims(x, (1, 0)),
    "concat_flat": lambda m, x: m.concat([x, V], axis=None),
    "reshape_f": lambda m, x: m.reshape(x, (4, 3), order="F"),
    "atleast_3d": lambda m, x: m.atleast_3d(x),
    "atleast_1d": lambda m, x: m.atleast_1d(x[0, 1]),
    "broadcast_arrays": lambda m, x: m.broadcast_arrays(x, np.ones(4))[0],
    "unstack": lambda m, x: m.unstack(x, axis=1)[2],
    "array_split": lambda m, x: m.array_split(x, 3, axis=1)[0],
    "hsplit": lambda m, x: m.hsplit(x, 2)[1],
    "append": lambda m, x: m.append(x, x, axis=1),
    "nextafter": lambda m, x: m.nextafter(x, 1.0),
    "deg2rad": lambda m, x: m.deg2rad(x),
    "sinc": lambda m, x: m.sinc(x),
    "heaviside": lambda m, x: m.heaviside(x, 0.5),
    "angle": lambda m, x: m.angle(x * (1 + 2j)),
    "divmod": lambda m, x: m.divmod(x, 2.0)[1],
    "float_power": lambda m, x: m.float_power(abs(x), 1.5),
    "logaddexp2": lambda m, x: m.logaddexp2(x, 1.0),
    "fabs": lambda m, x: m.fabs(x),
    "fix": lambda m, x: m.fix(x),
    "isposinf": lambda m, x: m.isposinf(x),
    "vander": lambda m, x: m.vander(x[0], 3),
    "setxor1d": lambda m, x: m.setxor1d(x, [2.0, 9.0]),
    "union1d": lambda m, x: m.union1d(x, [2.0, 9.0]),
    "intersect1d": lambda m, x: m.intersect1d(x, [2.0, 9.0]),
    "setdiff1d": lambda m, x: m.setdiff1d(x, [2.0, 9.0]),
    "fmod": lambda m, x: m.fmod(x, -0.7),
    "fmod_integers": lambda m, x: m.fmod(x.astype(np.int64) * 4, np.array([3, -3, 2, 7])),
    "gradient": lambda m, x: m.gradient(x, axis=1),
    "gradient_rows": lambda m, x: m.gradient(x, 0.5, axis=0, edge_order=2),
    "gradient_places": lambda m, x: m.gradient(x, np.array([0, 1.0, 3]), np.array([0, 1, 1.5, 4]), edge_order=2)[1],
    "trapezoid": lambda m, x: m.trapezoid(x, np.array([0, 1, 1.5, 4])),
    "trapezoid_columns": lambda m, x: m.trapezoid(x, dx=0.5, axis=0),
    "convolve": lambda m, x: m.convolve(x[0], np.array([1.0, 2, 3])),
    "convolve_same": lambda m, x: m.convolve(np.array([1.0, 2]), x[1], "same"),
    "convolve_valid": lambda m, x: m.convolve(x[1], np.array([1.0, 2]), "valid"),
    "correlate": lambda m, x: m.correlate(x[1], np.array([1.0, 2, 3j])),
    "correlate_full": lambda m, x: m.correlate(np.array([1.0, 2j]), x[1], "full"),
    "select": lambda m, x: m.select([x > 1, x < 0], [x * 2, x - 1], 5.0),
    "piecewise": lambda m, x: m.piecewise(x, [x > 1, x < 0.5], [lambda v: v * 2, -3, lambda v: v + 1]),
    "lexsort": lambda m, x: m.lexsort([x, -abs(x)], axis=0),
    "delete": lambda m, x: m.delete(x, [0, -1], axis=1),
    "delete_mask": lambda m, x: m.delete(x, np.array([True, False, True]), axis=0),
    "delete_flat": lambda m, x: m.delete(x, slice(1, 7, 2)),
    "insert": lambda m, x: m.insert(x, 1, np.array([3.0, 4, 5]), axis=1),
    "insert_column": lambda m, x: m.insert(x, [1], np.array([[3.0], [4], [5]]), axis=1),
    "insert_rows": lambda m, x: m.insert(x, [2, 0, 2], 9.0, axis=0),
    "insert_flat": lambda m, x: m.insert(x, [1, -2], [3.0, 4.0]),
}
NEEDS_VALUES = ("unique", "setxor1d", "union1d", "intersect1d", "setdiff1d")


@pytest.mark.rotating(6)
@pytest.mark.parametrize("name", ONE)
def test_one_array(name):
    function = ONE[name]
    want = np.asarray(function(np, X))
    for given in (X, sj.array(X, format="csr"), sj.array(X, format="coo")):
        made = function(snp, given)
        assert made.shape == want.shape and (made.dtype == want.dtype or name == "nanmean")
        np.testing.assert_allclose(made.todense(), want, rtol=1e-6 if name == "nanmean" else 1e-12, atol=1e-14)
    if not name.startswith(NEEDS_VALUES):
        made = sj.jit(lambda x: function(snp, x))(sj.array(X, format="csr"))
        np.testing.assert_allclose(made.todense(), want, rtol=1e-6 if name == "nanmean" else 1e-12, atol=1e-14)


SAMPLED = {
    "fmod": lambda m, x: m.fmod(x, 3),
    "fmod_of_a_float": lambda m, x: m.fmod(x, 2.5),
    "fmod_of_numbers": lambda m, x: m.fmod(3, x + 20),
    "gradient": lambda m, x: m.gradient(x, axis=1),
    "gradient_spaced": lambda m, x: m.gradient(x, 2.0, axis=0, edge_order=2),
    "gradient_places": lambda m, x: m.gradient(x, np.array([0, 1, 1.5, 4]), axis=1, edge_order=2),
    "trapezoid": lambda m, x: m.trapezoid(x),
    "trapezoid_spaced": lambda m, x: m.trapezoid(x, dx=2, axis=0),
    "trapezoid_places": lambda m, x: m.trapezoid(x, np.array([0, 1, 1.5, 4])),
    "heaviside": lambda m, x: m.heaviside(x, 1),
    "heaviside_of_arrays": lambda m, x: m.heaviside(x, x),
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "float32", "float64", "complex64"])
@pytest.mark.parametrize("name", SAMPLED)
def test_dtypes_of_samples_are_those_of_numpy(name, dtype):
    """A Python number beside an array says nothing of the dtype; float16, which this library does not have, is float32."""
    if dtype == "complex64" and name.startswith(("fmod", "heaviside")):
        pytest.skip("NumPy has no such function of complex numbers")
    function, x = SAMPLED[name], (X * 2).round().astype(dtype)
    want = function(np, x)
    kind = np.dtype("float32") if want.dtype == np.float16 else want.dtype
    room = 0 if kind.kind in "iu" else 16 * 100 * np.finfo(kind).eps  # a few operations on numbers below 100
    for given in (x, sj.array(x, format="csr"), sj.array(x, format="csc")):
        for made in (function(snp, given), sj.jit(lambda a: function(snp, a))(given)):
            assert made.dtype == kind
            np.testing.assert_allclose(made.todense(), want, rtol=0, atol=room)


@pytest.mark.parametrize("format", ["dense", "csr", "csc", "coo", "dcsr", "lil", "bsr:2x2"])
def test_put_along_axis(format):
    places = np.array([[1], [0], [3]])
    wanted = X.copy()
    np.put_along_axis(wanted, places, 7.0, 1)
    for put in (snp.put_along_axis, sj.jit(snp.put_along_axis, static_argnums=3)):
        made = put(sj.array(X, format=format), places, 7.0, 1)
        assert made.format == sj.array(X, format=format).format
        np.testing.assert_array_equal(made.todense(), wanted)
    with pytest.raises(ValueError, match="as many dimensions"):
        snp.put_along_axis(X, np.array([1]), 7.0, 1)


def test_remainders_are_exact():
    """Also of quotients that no floating-point number holds, and of the ends of the range of integers."""
    x = np.array([1e300, -1e300, 5.5, -0.0, np.inf, np.nan, 3.0, -3.0])
    y = np.array([3.0, 0.7, -2.0, 5.0, 2.0, 1.0, np.inf, 0.0])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(snp.fmod(x, y).todense(), np.fmod(x, y))
        np.testing.assert_array_equal(np.signbit(snp.fmod(x, y).todense()[:4]), np.signbit(np.fmod(x, y)[:4]))
    least = np.iinfo(np.int64).min
    a, b = np.array([least, least, 7, -7, 7]), np.array([-1, 3, -3, 3, 0])
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(sj.lax.rem(a, b).todense(), np.fmod(a, b))


@pytest.mark.parametrize("form", ["csr", "coo", "ell", "bsr:2x3", "dia", "hash", "bitmap", "rle", "lil", "(c,d)@(1,0)"])
@pytest.mark.parametrize("fill", [0.0, 1.5, -9.0])
def test_places_and_interpolation_stay_sparse(form, fill):
    rng = np.random.default_rng(3)
    D = np.where(rng.random((6, 9)) < 0.3, rng.integers(-3, 4, (6, 9)), fill)
    A = sj.array(D, format=form, fill_value=fill)
    at, value = np.array([-2.0, -1, 0, 1, 2]), np.array([5.0, 1, 3, 0, 7])
    for program in (
        lambda m, x: m.searchsorted(at, x),
        lambda m, x: m.searchsorted(at, x, "right"),
        lambda m, x: m.digitize(x, at),
        lambda m, x: m.interp(x, at, value),
        lambda m, x: m.interp(x, at, value, -1, 9.0),
        lambda m, x: m.interp(x, at[2:], value[2:], period=2.5),
    ):
        f, wanted = functools.partial(program, snp), program(np, D)
        for run in (f, sj.jit(f), sj.vmap(f)):
            made = run(A)
            assert not made.format.is_dense and made.dtype == wanted.dtype
            np.testing.assert_allclose(made.todense(), wanted, rtol=1e-14)
    slope = sj.grad(lambda x: (snp.interp(x, at, value) ** 2).sum())
    stored = fill != D
    np.testing.assert_allclose(slope(A).todense()[stored], slope(sj.array(D)).todense()[stored])
    assert sj.grad(lambda v: snp.interp(A, at, v).sum())(value).shape == (5,)


@pytest.mark.parametrize("right", [False, True])
def test_bins_that_decrease(right):
    x = np.arange(-4.0, 5).reshape(3, 3)
    traced = sj.jit(functools.partial(snp.digitize, right=right))
    for bins in ([2.0, 0.5, 0.5, -3.0], [3.0, 3.0], [-1.0, 2.0], [1.0], []):
        wanted = np.digitize(x, bins, right)
        for operand in (x, sj.array(x, format="csr")):
            np.testing.assert_array_equal(snp.digitize(operand, np.array(bins), right).todense(), wanted)
            np.testing.assert_array_equal(traced(operand, np.array(bins)).todense(), wanted)
    with pytest.raises(ValueError, match="increase or decrease"):
        snp.digitize(x, np.array([0.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match="must be a vector"):
        snp.digitize(x, np.array(1.0))


def test_norms_and_partitions_without_entries():
    for shape in ((0, 5), (5, 0), (0, 0)):
        x = np.zeros(shape)
        for ord in (np.inf, 1, 2, "nuc", "fro"):
            assert snp.linalg.norm(x, ord) == np.linalg.norm(x, ord)
        assert snp.partition(x, 1, axis=None).shape == (0,) and snp.argpartition(x, 7, axis=1).shape == shape
        assert snp.take(x, [], axis=0).shape == (0, shape[1])
    np.testing.assert_array_equal(snp.linalg.norm(np.zeros((3, 0)), np.inf, axis=1).todense(), np.zeros(3))


@pytest.mark.parametrize("x", ["i1", "i2", "i4", "i8"])
@pytest.mark.parametrize("y", ["f4", "f8", "u8", "u1", "i1", "i8"])
def test_remainders_of_the_least_integers(x, y):
    """Also where the result is of another dtype, that holds their size."""
    a = np.array([np.iinfo(x).min, np.iinfo(x).min + 1, -7, np.iinfo(x).max], x)
    b = np.array([7, 3, 100, 11], y)
    for f in (snp.fmod, sj.jit(snp.fmod), sj.lax.rem):
        for left, right in ((a, b), (b, a), (a[:1], 7.5), (7.5, a[:1])):
            made, wanted = f(left, right), np.fmod(left, right)
            assert made.dtype == wanted.dtype
            np.testing.assert_array_equal(made.todense(), wanted)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ValueError, "a choice for every condition", lambda: snp.select([X > 1], [])),
        (TypeError, r"condlist\[0\] has dtype float64", lambda: snp.select([X], [X])),
        (ValueError, "3 functions for 1", lambda: snp.piecewise(X, X > 1, [1, 2, 3])),
        (IndexError, "obj 4 of delete .* axis 1 with size 4", lambda: snp.delete(X, 4, 1)),
        (IndexError, "obj 5 of insert .* axis 1 with size 4", lambda: snp.insert(X, 5, 0, 1)),
        (sj.TracerArrayConversionError, "obj of delete", lambda: sj.jit(lambda k: snp.delete(X, k))(1)),
        (ValueError, "differences with edge_order=2 need 3", lambda: snp.gradient(X[:2], axis=0, edge_order=2)),
        (ValueError, "a spacing of shape", lambda: snp.gradient(X, np.ones(3), axis=1)),
        (ValueError, "v of convolve", lambda: snp.convolve(V, X)),
        (ValueError, "mode='all'", lambda: snp.convolve(V, V, "all")),
    ],
)
def test_what_does_not_fit(error, text, call):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_nothing_raise_as_in_numpy(name):
    for shape in itertools.product((0, 1, 3), repeat=2):
        for axis in (None, 0, 1, (0, 1), ()):
            for format in ("dense", "csr", "coo"):
                x = np.zeros(shape)
                try:
                    wanted = getattr(np, name)(x, axis=axis)
                except ValueError as error:
                    with pytest.raises(ValueError, match=str(error)):
                        getattr(snp, name)(sj.array(x, format=format), axis)
                else:
                    assert getattr(snp, name)(sj.array(x, format=format), axis).shape == wanted.shape


def test_integers():
    k = np.array([0, 3, 1, 3])
    for given in (k, sj.array(k), sj.array(k, format="coo")):
        np.testing.assert_array_equal(snp.bincount(given).todense(), np.bincount(k))
        np.testing.assert_array_equal(snp.bincount(given, minlength=6).todense(), np.bincount(k, minlength=6))
        np.testing.assert_array_equal(snp.bincount(given, weights=V[:4]).todense(), np.bincount(k, V[:4]))
        np.testing.assert_array_equal(sj.jit(lambda x: snp.bincount(x, length=3))(given).todense(), [1, 1, 0])
    np.testing.assert_array_equal(snp.argsort(k, descending=True).todense(), [1, 3, 2, 0])
    np.testing.assert_array_equal(snp.sort(sj.array(k, format="coo"), descending=True).todense(), [3, 3, 1, 0])
    with pytest.raises(sj.ConcretizationTypeError):
        sj.jit(lambda x: snp.unique_all(x))(k)
    values, index, inverse, counts = snp.unique(k, True, True, True, size=4, fill_value=9)
    assert values.todense().tolist() == [0, 1, 3, 9] and counts.todense().tolist() == [1, 1, 2, 0]
    assert index.todense().tolist() == [0, 2, 1, 0] and inverse.todense().tolist() == [0, 2, 1, 2]
    many = sj.vmap(lambda x: snp.unique(x, return_inverse=True, size=2)[1])(np.stack([k, k[::-1]]))
    np.testing.assert_array_equal(many.todense(), [[0, 2, 1, 2], [2, 1, 2, 0]])


def test_nan_is_a_value_of_its_own():
    x = np.array([np.nan, 1.0, np.nan, 0.0])
    for given in (x, sj.array(x, format="coo")):
        values, counts = snp.unique_counts(given)
        assert values.shape == (4,) and counts.todense().tolist() == [1, 1, 1, 1]
        assert snp.unique_values(given).shape == (4,)
        assert snp.unique_inverse(given).inverse_indices.todense()[1] == 1
    assert snp.unique(x).shape == (3,)


def test_batches():
    stack = np.stack([X, X[::-1]])
    for name in ("isin", "searchsorted", "quantile", "histogram_range", "histogram", "cumprod", "interp", "nextafter"):
        made = sj.vmap(lambda x, f=ONE[name]: f(snp, x))(stack).todense()
        np.testing.assert_allclose(made, [ONE[name](np, x) for x in stack], rtol=1e-12)
    a = np.sort(stack.reshape(2, -1), axis=1)
    made = sj.vmap(snp.searchsorted)(a, stack).todense()
    np.testing.assert_array_equal(made, [np.searchsorted(p, q) for p, q in zip(a, stack, strict=True)])
    made = sj.vmap(snp.isin)(stack, np.array([[0.0, 2], [3, 9]])).todense()
    np.testing.assert_array_equal(made, [np.isin(X, [0, 2]), np.isin(X[::-1], [3, 9])])


def test_creation():
    assert snp.full((2, 3), 5, format="csr").nnz == 0 and snp.full((2, 3), 5, format="csr").fill_value == 5
    assert snp.ones_like(X, shape=(4,), dtype="i4").dtype == np.int32
    assert snp.zeros_like(X, format="coo").format == sj.array(X, format="coo").format
    np.testing.assert_array_equal(snp.linspace(0, 1, 4, endpoint=False).todense(), np.linspace(0, 1, 4, endpoint=False))
    np.testing.assert_allclose(sj.jit(lambda a: snp.linspace(a, 2.0, 5))(1.0).todense(), np.linspace(1, 2, 5))
    np.testing.assert_array_equal(snp.full((2, 2), np.arange(2)).todense(), [[0, 1], [0, 1]])
    for sparse in (False, True):
        for index in ("xy", "ij"):
            made = snp.meshgrid(np.arange(2), np.arange(3), indexing=index, sparse=sparse)
            for ours, theirs in zip(made, np.meshgrid(np.arange(2), np.arange(3), indexing=index, sparse=sparse)):
                np.testing.assert_array_equal(ours.todense(), theirs)
    np.testing.assert_array_equal(snp.from_dlpack(X).todense(), X)
    shared = X.copy()
    assert np.shares_memory(snp.from_dlpack(shared, copy=False).todense(), shared)
    with pytest.raises(TypeError, match="todense"):
        np.from_dlpack(sj.array(X, format="csr"))
    np.testing.assert_array_equal(np.from_dlpack(sj.array(X)), X)
    np.testing.assert_array_equal(snp.diags([[1.0, 2], [5.0]], [0, -1]).todense(), [[1, 0], [5, 2]])
    np.testing.assert_array_equal(snp.diags([1.0, 4.0], [0, 1], shape=(2, 3)).todense(), [[1, 4, 0], [0, 1, 4]])
    np.testing.assert_array_equal(snp.diagflat([[1, 2]], 1).todense(), np.diagflat([[1, 2]], 1))
    parts = [X, np.ones((1, 2)), sj.array(X, format="csc")]
    made = snp.block_diag(*parts)
    assert str(made.format) == "csr" and made.shape == (7, 10) and made.nnz == 14
    np.testing.assert_array_equal(made[4:, 6:].todense(), X)


def test_data_types():
    assert snp.result_type(np.float32, 1.0) == np.float32 and snp.result_type(1, 2.0) == np.float64
    assert snp.result_type(sj.array([1], dtype="i4"), np.int8) == np.int32
    assert snp.isdtype(np.int8, "signed integer") and not snp.isdtype(np.int8, ("bool", np.int16))
    assert snp.can_cast(sj.array([1.0]), "f4") is False and isinstance(snp.finfo("f4").eps, float)
    assert snp.iinfo(sj.array([1])).max == 2**63 - 1 and snp.finfo(sj.array([1j])).bits == 64
    info = snp.__array_namespace_info__()
    assert info.devices() == ("cpu",) and list(info.dtypes(kind="bool")) == ["bool"]
    x = sj.array(X, format="csr")
    assert x.__array_namespace__() is snp and x.device == "cpu" and x.to_device("cpu") is x
    with pytest.raises(ValueError, match="api_version"):
        x.__array_namespace__(api_version="1999.01")
    with pytest.raises(ValueError, match="device"):
        x.to_device("gpu")


@pytest.mark.parametrize("name", ["deg2rad", "rad2deg", "radians", "degrees"])
@pytest.mark.parametrize("dtype", ["b1", "i1", "i2", "u2", "i4", "i8", "f4", "f8"])
def test_angles_have_the_floats_of_numpy(name, dtype):
    """float32 where NumPy has float16."""
    x = np.array([[0, 90, 0], [1, 0, 100]]).astype(dtype)
    wide = getattr(np, name)(x.astype("f8"))
    numpy = getattr(np, name)(x).dtype
    dtype = np.dtype("f4") if numpy == np.float16 else numpy
    for operand in (x, sj.array(x, format="csr")):
        for function in (getattr(snp, name), sj.jit(getattr(snp, name))):
            made = function(operand)
            assert made.dtype == dtype
            assert np.all(np.abs(made.todense() - wide) <= 2 * np.finfo(dtype).eps * np.abs(wide))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_functions_of_float64_alone_keep_float32(dtype):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    x[0, 1] = 5
    kept = np.dtype("f4" if dtype == "f4" else "f8")
    assert snp.cov(x).dtype == snp.corrcoef(x).dtype == snp.interp(x[0], x[1], x[1]).dtype == kept


@pytest.mark.parametrize("name", ["deg2rad", "rad2deg", "fabs", "isposinf", "isneginf"])
def test_what_takes_real_numbers_refuses_complex_ones(name):
    for module in (np, snp):
        with pytest.raises(TypeError, match=r"complex|not supported"):
            getattr(module, name)(np.array([1j]))


def test_logaddexp2_has_the_type_of_its_operands():
    for a, b in itertools.product((np.int16([1]), np.float32([0.5]), np.float64([2]), np.uint16([3])), repeat=2):
        made, want = snp.logaddexp2(a, b), np.logaddexp2(a, b)
        assert made.dtype == want.dtype
        np.testing.assert_allclose(made.todense(), want, rtol=1e-6)


@pytest.mark.parametrize("method", ["lower", "higher", "nearest"])
def test_quantiles_that_are_entries_have_the_type_of_entries(method):
    """Also of integers that floats cannot tell apart."""
    for x in (2**53 + np.array([[3, 1, 2], [9, 5, 7]]), np.array([[True, False], [True, True]]), np.float32([[1, 3]])):
        for q in (0.3, [0.0, 0.9]):
            want = np.quantile(x, q, axis=1, method=method)
            for name in ("quantile", "nanquantile"):
                function = getattr(snp, name)
                made = [function(sj.array(x, format=f), q, 1, method=method) for f in ("dense", "csr")]
                traced = sj.jit(lambda x, q, function=function: function(x, q, 1, method=method))
                for found in (*made, traced(x, np.asarray(q))):
                    np.testing.assert_array_equal(found.todense(), want, strict=True)


def test_choices_of_select_are_promoted_together():
    c = np.ones(2, bool)
    choices = [np.zeros(2, np.float32), np.zeros(2, np.int8)]
    assert snp.select([c, c], choices, 0.5).dtype == np.select([c, c], choices, 0.5).dtype == np.float32


def test_edges_of_histograms_have_the_type_of_floats():
    x = np.float32([0.1, 0.5, 0.9, 0.7])
    (counts, edges), (want, places) = snp.histogram(x, 3), np.histogram(x, 3)
    assert edges.dtype == places.dtype == np.float32
    np.testing.assert_array_equal(counts.todense(), want)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "bsr:2x2"])
@pytest.mark.parametrize("obj", [0, -1, [2, 0, 2], [], slice(None, None, 2), slice(4, 1, -2), slice(1, 3), slice(2, 2)])
def test_what_is_inserted_is_stored_as_the_array_is(obj, form):
    """No result of the size of all entries; also under `jit`, and along axes so long that parts are joined."""
    dense = np.diag(np.arange(1.0, 7.0))
    A, wanted = sj.array(dense, format=form), np.insert(dense, np.array(obj, int) if obj == [] else obj, 2.5, 0)
    for made in (snp.insert(A, obj, 2.5, 0), sj.jit(lambda A: snp.insert(A, obj, 2.5, 0))(A)):
        np.testing.assert_array_equal(made.todense(), wanted)
        assert not made.format.is_dense and (form.startswith("bsr") or made.format == A.format)
