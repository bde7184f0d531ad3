"""Corners of the surface that a first look at NumPy's behaviour finds."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz import engine

pytestmark = pytest.mark.rotating(24)


@pytest.fixture(autouse=True, scope="module")
def quick():
    with engine.quick():
        yield


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


X = np.arange(24.0).reshape(2, 3, 4)
TRUE, FALSE = np.array(True), np.array(False)
BOOLS = [
    True,
    np.False_,
    TRUE,
    FALSE,
    (TRUE, 0),
    (0, TRUE),
    (slice(None), TRUE),
    (slice(None), False),
    (..., True),
    (True, ..., [0, 2]),
    ([1, 0], True, [2, 1]),
    (None, True, 1),
    (0, True, slice(1, 3), [1, 2]),
    (True, False),
    (np.array([True, False]), True),
    (slice(None), np.ones((3, 4), bool), True),
    (0, slice(None), True, 0),
]


@pytest.mark.parametrize(("form", "key"), [(("csf", "dense")[k % 2], key) for k, key in enumerate(BOOLS)])
def test_single_bools_are_indices(form, key):
    a = sj.array(X, format=form, copy=True)
    got = a[key]
    assert got.shape == X[key].shape
    np.testing.assert_array_equal(got.todense(), X[key])
    written, added = X.copy(), X.copy()
    written[key] = 7
    added[key] += 7
    np.testing.assert_array_equal(a.at[key].set(7).todense(), written)
    np.testing.assert_array_equal(a.at[key].add(7).todense(), added)
    np.testing.assert_array_equal(a.at[key].get().todense(), X[key])


def test_traced_bools_are_no_indices():
    with pytest.raises(sj.NonConcreteBooleanIndexError, match="where"):
        sj.jit(lambda x, b: x[b])(X, True)
    np.testing.assert_array_equal(sj.jit(lambda x: x[TRUE, 1])(X).todense(), X[TRUE, 1])


def test_counts_of_repetitions():
    x = np.array([[1, 0], [0, 2]])
    a = sj.array(x, format="csr")
    sparse = sj.array(np.array([2, 0]), format="coo")
    for counts in (
        sparse,
        sparse.to_scipy(),
        (2, 0),
        range(2, -1, -2),
        sj.array(np.array([2, 0], "u1")),
        3,
        np.array(2),
    ):
        plain = counts.todense() if hasattr(counts, "todense") else counts
        np.testing.assert_array_equal(snp.repeat(a, counts, axis=0).todense(), np.repeat(x, plain, axis=0))
    ones = sj.array(np.array([1, 2]), format="coo", fill_value=1)
    np.testing.assert_array_equal(snp.repeat(a, ones, axis=1).todense(), np.repeat(x, [1, 2], axis=1))
    tall = sj.array((np.ones(2), np.array([[0, 2**40], [0, 1]])), shape=(2**41, 2))
    counts = sj.array((np.array([3, 2]), np.array([[1, 2**40]])), shape=(2**41,))
    assert snp.repeat(tall, counts, axis=0).todense().tolist() == [[0, 0]] * 3 + [[0, 1]] * 2
    assert snp.repeat(sj.array(np.zeros((0, 2))), [], axis=0).shape == (0, 2)
    for wrong in ([1.5], -1, np.array(-1), [[1, 2]], [1, 2, 3], [0, -1], sj.array(np.array([0, -1]), format="coo")):
        with pytest.raises(ValueError, match="repeats"):
            snp.repeat(a, wrong, axis=0)
    with pytest.raises(sj.TracerArrayConversionError, match="repeats"):
        sj.jit(lambda a, n: snp.repeat(a, n))(a, 2)


NO_DIMENSIONS = {
    "zeros": lambda x, n: snp.zeros(n),
    "zeros:shape": lambda x, n: snp.zeros((n, 3)),
    "full": lambda x, n: snp.full(n, n),
    "ones": lambda x, n: snp.ones(n),
    "eye": lambda x, n: snp.eye(4, k=n),
    "arange": lambda x, n: snp.arange(n),
    "linspace": lambda x, n: snp.linspace(0, n, n),
    "reshape": lambda x, n: snp.reshape(x, (3, n)),
    "reshape:method": lambda x, n: x.reshape(3, n),
    "broadcast_to": lambda x, n: snp.broadcast_to(x, (n, 2, 3)),
    "roll": lambda x, n: snp.roll(x, n),
    "roll:axes": lambda x, n: snp.roll(x, (n, 1), axis=(0, 1)),
    "tile": lambda x, n: snp.tile(x, n),
    "tile:two": lambda x, n: snp.tile(x, (n, 1)),
    "repeat": lambda x, n: snp.repeat(x, n, axis=1),
    "split": lambda x, n: snp.split(x, n)[1],
    "split:places": lambda x, n: snp.split(x, [n], axis=1)[1],
    "slice": lambda x, n: x[:, :n],
    "element": lambda x, n: x[1, n],
    "tril": lambda x, n: snp.tril(x, n),
    "diagonal": lambda x, n: snp.diagonal(x, n),
    "rot90": lambda x, n: snp.rot90(x, n),
    "sum": lambda x, n: snp.sum(x[None], axis=(n, 0)),
    "moveaxis": lambda x, n: snp.moveaxis(x[None], n, 0),
    "transpose": lambda x, n: x[None].transpose(n, 0, 1),
    "var": lambda x, n: snp.var(x, axis=1, ddof=n),
    "round": lambda x, n: snp.round(x / 7, n),
    "tensordot": lambda x, n: snp.tensordot(x[None], x[None].T, n - 1),
}


@pytest.mark.parametrize("name", NO_DIMENSIONS)
def test_arrays_of_no_dimensions_are_integers(name):
    f, x = NO_DIMENSIONS[name], np.arange(6.0).reshape(2, 3)
    want = f(sj.array(x), 2).todense()
    for number in (np.array(2), sj.array(2), np.int64(2), sj.array(2, dtype="u1")):
        for form in ("dense", "csr"):
            np.testing.assert_array_equal(f(sj.array(x, format=form, copy=True), number).todense(), want)


def test_axes_of_tensordot():
    x = np.arange(6.0).reshape(2, 3)
    for axes in (((0,), (0,)), ([1], [-1]), (0, np.int64(0)), 0, ((0, 1), (0, 1))):
        np.testing.assert_array_equal(snp.tensordot(sj.array(x), x, axes).todense(), np.tensordot(x, x, axes))
    for axes, what in ((3, "axes=3"), (-1, "axes=-1"), (((0, 1), (0,)), "names 2 axes"), (((5,), (0,)), "axis 5")):
        with pytest.raises(ValueError, match=what):
            snp.tensordot(sj.array(x), x, axes)


def test_half_precision_is_refused():
    half, a = np.ones((2, 2), np.float16), sj.array(np.eye(2), format="csr")
    refused = [
        lambda: sj.array(half),
        lambda: sj.array(np.eye(2), dtype="float16"),
        lambda: a.astype(np.float16),
        lambda: a * half,
        lambda: a * np.float16(2),
        lambda: a @ half,
        lambda: sj.jit(lambda x: x + 1)(half),
        lambda: snp.zeros(2, dtype=np.float16),
        lambda: snp.sum(a, dtype=np.float16),
        lambda: sj.ShapeDtypeStruct((2,), np.float16),
    ]
    for f in refused:
        with pytest.raises(TypeError, match="float32"):
            f()
    assert snp.sqrt(np.ones(2, np.int8)).dtype == np.float32


def test_clipping_promotes_all_together():
    for x, low, high in (
        (np.array([True, False]), 2.0, np.complex64(7)),
        (np.array([0, 3, 200], np.uint8), -5, 100),
        (np.array([0, 3, 200], np.uint8), 1, 300),
        (np.array([-7, 0, 3], np.int8), np.int16(-3), 2**40),
        (np.array([-7, 0, 3], np.int64), -1.5, np.float32(2.5)),
        (np.array([-7, 0, 3], np.float32), -2, np.float64(2.5)),
        (np.array([-7, 0, 3], np.float32), None, 1),
    ):
        want = np.clip(x, low, high)
        for form in ("dense", "coo"):
            a = sj.array(x, format=form, copy=True)
            for got in (snp.clip(a, low, high), sj.jit(lambda a, b=(low, high): snp.clip(a, *b))(a)):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got.todense(), want)
    with pytest.raises(OverflowError):
        snp.clip(np.array([1], np.uint8), 300, None)


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f4", "c8"])
def test_closeness_of_any_dtype(dtype):
    x, y = np.array([1, 0, 3, 0]).astype(dtype), np.array([1, 1, 5, 0]).astype(dtype)
    a, b = sj.array(x, format="coo"), sj.array(y, format="coo")
    for ours, theirs in ((b, y), (y, y), (1, 1), (np.uint8(1), np.uint8(1)), (True, True)):
        np.testing.assert_array_equal(snp.isclose(a, ours).todense(), np.isclose(x, theirs))
        assert snp.allclose(a, ours).item() == np.allclose(x, theirs)
    assert not snp.isclose(a, 1).format.is_dense


def test_products_of_booleans_keep_their_dtype():
    x, y = np.array([True, False, True]), np.array([3, 2, 1], np.uint8)
    assert (snp.vdot(sj.array(x), y).dtype, snp.vdot(sj.array(x), x).dtype) == (np.uint8, np.bool_)


def test_dtypes_of_variances():
    a = sj.array(np.array([[0, 2], [3, 0]]), format="csr")
    with pytest.raises(TypeError, match="int64"):
        snp.var(a, dtype=int)
    with pytest.raises(TypeError, match="bool"):
        snp.std(a, axis=0, dtype=bool)
    assert snp.var(a, dtype=np.float32).dtype == np.float32
    assert snp.std(a, dtype=np.complex64).dtype == np.std(a.todense(), dtype=np.complex64).dtype


def test_membership_and_divmod():
    x = np.array([[0.0, 7.5], [-3.0, 0.0]])
    for a in (sj.array(x), sj.array(x, format="csr", copy=True)):
        assert 7.5 in a and 0 in a and 7 not in a and np.float32(-3) in a
        for one, other in ((a, 2), (7, a + 1), (a, x + 10)):
            plain = [o.todense() if isinstance(o, sj.Array) else o for o in (one, other)]
            for got, want in zip(divmod(one, other), divmod(*plain), strict=True):
                np.testing.assert_array_equal(got.todense(), want)
    with pytest.raises(TypeError):
        divmod(sj.array(x), "a")
    with pytest.raises(sj.TracerBoolConversionError):
        sj.jit(lambda a: 1 in a)(x)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_products_with_matrices_of_numpy_are_not_guessed():
    x = np.array([[0.0, 7.5], [-3.0, 0.0]])
    for a in (sj.array(x), sj.array(x, format="csr", copy=True)):
        for product in (lambda a: a * np.matrix(x), lambda a: np.matrix(x) * a):
            with pytest.raises(TypeError, match="write @"):
                product(a)
        np.testing.assert_array_equal((a @ np.matrix(x)).todense(), x @ x)
        np.testing.assert_array_equal((a + np.matrix(x)).todense(), x + x)


def test_operands_without_coordinates_are_walked_together():
    """Loops over no coordinates have a price, too: of two operands that meet, of those that do not, and of three."""
    functions = (
        lambda a, b, c: a + b,
        lambda a, b, c: a * b * c,
        lambda a, b, c: snp.minimum(a, snp.maximum(b, c)),
    )
    for shape in ((0,), (0, 4), (4, 0), (0, 0)):
        operands = [sj.array(np.zeros(shape), format="coo") for _ in range(3)]
        for function in functions:
            for run in (function, sj.jit(function)):
                assert run(*operands).todense().shape == shape


@pytest.mark.parametrize("k", [2**31, 2**62, 2**63 - 1, 2**63, 10**30, -(2**31), -(2**63), -(10**30), 3, -2, 1])
@pytest.mark.parametrize("form", ["dense", "csr", "csc", "coo", "dcsr", "ell"])
def test_diagonals_far_outside(form, k):
    """As of the nearest one outside, without a number that C cannot hold."""
    x = np.arange(1, 7).reshape(2, 3)
    near = max(-5, min(5, k))
    for a in (sj.array(x, format=form), sj.array(np.eye(2, 3, dtype=int), format=form)):
        full = a.todense()
        for got, want in (
            (snp.tril(a, k), np.tril(full, near)),
            (snp.triu(a, k), np.triu(full, near)),
            (snp.diagonal(a, k), np.diagonal(full, near)),
            (snp.trace(a, k), np.trace(full, near)),
            (snp.tri(2, 3, k), np.tri(2, 3, near)),
            (sj.jit(lambda a: snp.tril(a, k))(a), np.tril(full, near)),
            (sj.jit(lambda a: snp.diagonal(a, k))(a), np.diagonal(full, near)),
        ):
            np.testing.assert_array_equal(got.todense(), want)
        if form != "dense":
            np.testing.assert_array_equal(snp.eye(2, 3, k, format=form).todense(), np.eye(2, 3, near))
