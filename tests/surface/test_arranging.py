"""Functions that repeat, shift, cut and search: against NumPy over formats, fills and dtypes, at once and jitted."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from scipy import special

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.errors import ConcretizationTypeError, TracerIntegerConversionError
from sparsejax.formats.validate import validate
from tests.fuzz import engine

pytestmark = pytest.mark.rotating(24)

FORMATS = ("dense", "csr", "csc", "coo", "ell", "groupcoo:2", "dia", "banded", "bitmap", "hash", "rle", "bsr:2x3")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True, scope="module")
def quick():
    with engine.quick():
        yield


def sparse(form, fill=0.0, nan=False, shape=(4, 6), seed=0):
    """(ours, dense): small values, some of them equal, stored over `fill`."""
    rng = np.random.default_rng(seed)
    d = rng.integers(-2, 3, shape) * 1.0
    if nan:
        d[rng.random(shape) < 0.15] = np.nan
    if form != "dense":
        d[rng.random(shape) < 0.5] = fill
    given = d if form == "dense" else sj.array(d, format="coo", fill_value=fill, copy=True)
    return sj.array(given, format=form, copy=True), d


def check(function, a, d, keeps=None):
    """`function(numpy, d)` and ours at once and jitted, of one type, which is known before anything runs."""
    with np.errstate(all="ignore"):
        want = np.asarray(function(np, d))
    ours = lambda a: function(snp, a)  # noqa: E731
    for got in (ours(a), sj.jit(ours)(a)):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(got.todense(), want)
        known = sj.eval_shape(ours, a)
        assert (known.format, known.shape) == (got.format, got.shape)
        if keeps is not None:
            assert got.format == (a.format if keeps else sj.formats.Format.parse("dense", got.ndim))


SAME_FORMAT = {
    "tril": lambda xp, x: xp.tril(x),
    "tril above": lambda xp, x: xp.tril(x, 2),
    "tril of nothing": lambda xp, x: xp.tril(x, -9),
    "triu": lambda xp, x: xp.triu(x),
    "triu below": lambda xp, x: xp.triu(x, -2),
    "roll": lambda xp, x: xp.roll(x, 2, axis=1),
    "roll back": lambda xp, x: xp.roll(x, -9, axis=0),
    "roll both": lambda xp, x: xp.roll(x, (1, 2), axis=(0, 1)),
    "roll flat": lambda xp, x: xp.roll(x, 5),
    "tile": lambda xp, x: xp.tile(x, (2, 3)),
    "tile columns": lambda xp, x: xp.tile(x, 2),
    "repeat": lambda xp, x: xp.repeat(x, 3, axis=1),
    "repeat none": lambda xp, x: xp.repeat(x, 0, axis=0),
    "fliplr": lambda xp, x: xp.fliplr(x),
    "flipud": lambda xp, x: xp.flipud(x),
    "rot90 twice": lambda xp, x: xp.rot90(x, 2),
    "sort": lambda xp, x: xp.sort(x, axis=0),
    "sort rows": lambda xp, x: xp.sort(x),
}
DENSE = {
    "argmax": lambda xp, x: xp.argmax(x, axis=1),
    "argmin": lambda xp, x: xp.argmin(x, axis=0),
    "argmax of all": lambda xp, x: xp.argmax(x),
    "argmin, axes kept": lambda xp, x: xp.argmin(x, axis=-1, keepdims=True),
    "cumsum": lambda xp, x: xp.cumsum(x, axis=0),
    "cumsum flat": lambda xp, x: xp.cumsum(x),
    "argsort": lambda xp, x: (
        xp.sort(x, axis=1) if xp is np else xp.take_along_axis(x, xp.argsort(x), 1).asformat("dense")
    ),
}
OTHERS = {
    "tile more": lambda xp, x: xp.tile(x, (2, 1, 2)),
    "repeat flat": lambda xp, x: xp.repeat(x, 2),
    "repeat each": lambda xp, x: xp.repeat(x, [1, 0, 2, 1], axis=0),
    "rot90": lambda xp, x: xp.rot90(x),
    "rot90 back": lambda xp, x: xp.rot90(x, -1),
    "column_stack": lambda xp, x: xp.column_stack([x, x[:, 0]]),
    "dstack": lambda xp, x: xp.dstack([x, x]),
    "sort flat": lambda xp, x: xp.sort(x, axis=None),
    "median": lambda xp, x: xp.median(x, axis=1),
    "median of all": lambda xp, x: xp.median(x),
    "median, axes kept": lambda xp, x: xp.median(x, axis=(0, 1), keepdims=True),
    "take_along_axis": lambda xp, x: xp.take_along_axis(x, np.array([[1, 0], [2, 2], [0, 5], [3, 1]]), 1),
}


@pytest.mark.parametrize("name", [*SAME_FORMAT, *DENSE, *OTHERS])
def test_over_formats(name):
    keeps = True if name in SAME_FORMAT else False if name in DENSE else None
    function = {**SAME_FORMAT, **DENSE, **OTHERS}[name]
    forms = FORMATS if keeps else ("dense", "csr", "csc", "bsr:2x3", "rle")
    for k, form in enumerate(forms):
        check(function, *sparse(form, seed=k), keeps)


@pytest.mark.parametrize("fill", [1.0, -1.5, np.nan])
@pytest.mark.parametrize(
    "name", ["roll both", "tile", "repeat", "sort", "sort rows", "argmax", "argmin", "argmax of all", "median"]
)
def test_over_fills(name, fill):
    function = {**SAME_FORMAT, **DENSE, **OTHERS}[name]
    for form, nan in itertools.product(("csr", "coo"), (False, True)):
        check(function, *sparse(form, fill, nan, seed=7), True if name in SAME_FORMAT else None)


def test_triangles_of_a_fill_and_of_more_dimensions():
    a, d = sparse("csr", 2.0)
    np.testing.assert_array_equal(snp.tril(a).todense(), np.tril(d))
    assert snp.tril(a).fill_value == 0 and not snp.tril(a).format.is_dense
    for form in ("dense", "csf", "(d,c,d)@(2,1,0)"):
        a, d = sparse(form, shape=(2, 3, 4))
        for k in (-1, 0, 1):
            check(lambda xp, x, k=k: xp.triu(x, k), a, d, True)
    for a in (np.arange(3), sj.array([0, 5, 0, 2], format="coo")):
        d = a.todense() if isinstance(a, sj.Array) else a
        np.testing.assert_array_equal(snp.tril(a, 1).todense(), np.tril(d, 1))
        np.testing.assert_array_equal(sj.jit(snp.triu)(a).todense(), np.triu(d))
    with pytest.raises(ValueError, match="one dimension or more"):
        snp.tril(1.0)


def test_triangles_visit_stored_entries_only():
    """Under a mask of one run per row nothing grows with the area."""
    n = 200_000
    a = sj.array((np.ones(n), np.stack([np.arange(n), (np.arange(n) * 7) % n])), shape=(n, n), format="csr")
    made = sj.jit(snp.tril)(a)
    assert made.nnz == int(((np.arange(n) * 7) % n <= np.arange(n)).sum())


@pytest.mark.parametrize("dtype", ["?", "i4", "u1", "f4", "c16"])
def test_dtypes(dtype):
    d = RNG.integers(0, 3, (4, 5)).astype(dtype)
    for form in ("dense", "csr"):
        a = sj.array(d, format=form, copy=True)
        for function in (
            lambda xp, x: xp.tril(x),
            lambda xp, x: xp.roll(x, 1),
            lambda xp, x: xp.tile(x, 2),
            lambda xp, x: xp.cumsum(x, axis=1),
            lambda xp, x: xp.sort(x),
            lambda xp, x: xp.argmax(x, axis=0),
            lambda xp, x: xp.median(x, axis=0),
            lambda xp, x: xp.nan_to_num(x),
            lambda xp, x: xp.nansum(x, axis=0),
            lambda xp, x: xp.nanmax(x, axis=0),
        ):
            check(function, a, d)


def test_numbers_that_are_none():
    d = np.array([[np.nan, 1.0, -np.inf, 0.0], [np.nan, np.nan, np.nan, np.nan], [0.0, 2.0, np.inf, np.nan]])
    for form in ("dense", "csr", "coo"):
        a = sj.array(d, format=form, copy=True)
        check(lambda xp, x: xp.nan_to_num(x), a, d, True)
        check(lambda xp, x: xp.nan_to_num(x, nan=7.0, posinf=8.0, neginf=9.0), a, d, True)
        with pytest.warns(RuntimeWarning, match="All-NaN"):
            for axis in (None, 0, 1):
                check(lambda xp, x, axis=axis: xp.nanmin(x, axis=axis), a, d)
                check(lambda xp, x, axis=axis: xp.nanmax(x, axis=axis, keepdims=True), a, d)
        check(lambda xp, x: xp.nansum(x, axis=0), a, d)
        with pytest.warns(RuntimeWarning, match="Mean of empty"):
            check(lambda xp, x: xp.nanmean(x, axis=1), a, d)
        assert snp.array_equal(a, d, equal_nan=True) and not snp.array_equal(a, d) and not snp.array_equal(a, d[:2])
    z = np.array([1 + 1j * np.nan, np.inf + 2j])
    np.testing.assert_array_equal(snp.nan_to_num(z).todense(), np.nan_to_num(z))


@pytest.mark.parametrize("form", ["dense", "coo", "hash"])
def test_extremes_of_complex_infinities(form):
    for x in ([1 + 1j, np.inf, 3], [np.inf + 1j, np.inf + 2j, 0], [0, 1, complex(np.nan, 1)]):
        a = sj.array(np.array([x]), format=form, copy=True)
        assert snp.argmax(a, axis=1).todense() == np.argmax(x) and snp.argmin(a, axis=1).todense() == np.argmin(x)


def test_logarithms_of_sums():
    x = np.array([0.0, 1000.0, -np.inf, np.inf, np.nan, -3.0, np.inf])
    y = np.array([1.0, 1001.0, -np.inf, np.inf, 1.0, 0.0, -np.inf])
    with np.errstate(invalid="ignore"):
        want = np.logaddexp(x, y)
    np.testing.assert_allclose(snp.logaddexp(x, y).todense(), want, rtol=1e-14)
    a, d = sparse("csr")
    made = snp.logaddexp(a, 2 * a)
    np.testing.assert_allclose(made.todense(), np.logaddexp(d, 2 * d), rtol=1e-14)
    assert made.format == a.format and made.fill_value == np.logaddexp(0.0, 0.0)
    for dtype in ("bool", "uint8", "int8", "uint16", "int64", "uint64"):
        low, high = np.array([0, 1, 1]).astype(dtype), np.array([1, 0, 100]).astype(dtype)
        made, want = snp.logaddexp(sj.array(low, format="coo", copy=True), high), np.logaddexp(low, high)
        np.testing.assert_allclose(made.todense(), want, rtol=1e-3)
        assert made.dtype == np.result_type(want.dtype, np.float32)


def test_signs_and_extremes_beside_nan():
    d = np.array([[0.0, -0.0, np.nan, -np.nan], [1.5, -np.inf, np.nan, 2.0]])
    e = np.array([[np.nan, 1.0, np.nan, -1.0], [-0.0, 0.0, 3.0, np.nan]])
    for form in ("dense", "csr"):
        a, b = sj.array(d, format=form, copy=True), sj.array(e, format=form, copy=True)
        d, e = a.todense(), b.todense()  # a zero that is not stored has no sign
        for name in ("copysign", "fmax", "fmin"):
            got = getattr(snp, name)(a, b).todense()
            np.testing.assert_array_equal(got, getattr(np, name)(d, e))
        np.testing.assert_array_equal(np.signbit(snp.copysign(a, b).todense()), np.signbit(np.copysign(d, e)))
        np.testing.assert_array_equal(snp.signbit(a + 0).todense(), np.signbit(d + 0))


@pytest.mark.parametrize("fill", [0.0, 1.0, np.nan])
def test_places_and_values(fill):
    for form in ("dense", "csr", "csc", "coo", "rle"):
        a, d = sparse(form, fill, nan=True)
        for name in ("nonzero", "argwhere", "flatnonzero", "unique"):
            got, want = getattr(snp, name)(a), getattr(np, name)(d)
            for g, w in zip(got, want, strict=True) if name == "nonzero" else [(got, want)]:
                np.testing.assert_array_equal(g.todense(), w)
        got, want = snp.unique(a, return_counts=True), np.unique(d, return_counts=True)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g.todense(), w)
        for g, w in zip(snp.where(a > 0), np.where(d > 0), strict=True):
            np.testing.assert_array_equal(g.todense(), w)


def test_places_of_a_size_known_before():
    a, d = sparse("csr")
    count = int((d != 0).sum())
    for size in (3, count, count + 4):
        want = np.full((2, size), -1)
        found = np.stack(np.nonzero(d))[:, :size]
        want[:, : found.shape[1]] = found
        made = sj.jit(lambda a, size=size: snp.stack(snp.nonzero(a, size=size, fill_value=-1)))(a)
        np.testing.assert_array_equal(made.todense(), want)
        np.testing.assert_array_equal(snp.argwhere(a, size=size, fill_value=-1).todense(), want.T)
    values, counts = sj.jit(lambda a: snp.unique(a, return_counts=True, size=8))(a)
    want, often = np.unique(d, return_counts=True)
    np.testing.assert_array_equal(values.todense(), np.append(want, [want[0]] * (8 - len(want))))
    np.testing.assert_array_equal(counts.todense(), np.append(often, [0] * (8 - len(want))))
    for function in (snp.nonzero, snp.argwhere, snp.unique, snp.where):
        with pytest.raises(ConcretizationTypeError, match="size="):
            sj.jit(function)(a)
    with pytest.raises(ValueError, match="both x and y"):
        snp.where(a, 1.0)


DERIVED = {
    "tril": lambda x: snp.tril(x) * x,
    "roll": lambda x: snp.roll(x, 2, axis=1) * x,
    "tile": lambda x: snp.tile(x * x, (2, 2)),
    "repeat": lambda x: snp.repeat(x * x, 2, axis=0),
    "cumsum": lambda x: snp.cumsum(x, axis=1) * x,
    "nansum": lambda x: snp.nansum(x * x, axis=0),
    "fmax": lambda x: snp.fmax(x, 0.5) * x,
    "copysign": lambda x: snp.copysign(x * x, x),
    "logaddexp": lambda x: snp.logaddexp(x, 2 * x),
}


@pytest.mark.parametrize("name", [*DERIVED, "sort", "median"])
def test_derivatives_and_batches(name):
    function = DERIVED.get(name) or (lambda x: getattr(snp, name)(x, axis=1) * snp.arange(4).reshape(4, 1)[:, :1].sum())
    weights = np.random.default_rng(3).random(())

    def total(x):
        return (function(x) * snp.cos(function(x) * weights)).sum()

    for form in ("dense", "csr"):
        a, d = sparse(form, seed=5)
        d = (
            d + np.random.default_rng(4).random(d.shape) * 0.1 * (d != 0)
            if form != "dense"
            else d + np.linspace(0, 0.3, d.size).reshape(d.shape)
        )
        a = sj.array(d, format=form, copy=True)
        for got in (sj.grad(total)(a), sj.jit(sj.grad(total))(a)):
            got = got.todense()
            for place in np.argwhere(d != 0)[::3]:
                step = np.zeros_like(d)
                step[tuple(place)] = 1e-6
                slope = (float(total(sj.array(d + step))) - float(total(sj.array(d - step)))) / 2e-6
                assert abs(slope - got[tuple(place)]) < 1e-6 * max(1, abs(slope))
    stack = np.stack([d, d[::-1], 2 * d])
    batch = sj.jit(sj.vmap(function))(stack)
    for k in range(3):
        np.testing.assert_allclose(batch[k].todense(), function(sj.array(stack[k])).todense(), rtol=1e-13)


@pytest.mark.parametrize("name", ["argmax", "argmin", "sort", "argsort", "cumsum"])
def test_batches_of_patterns(name):
    stack = sj.array(np.random.default_rng(5).integers(-1, 2, (3, 4, 5)) * 1.0, format="csf")
    made = sj.vmap(lambda x: getattr(snp, name)(x, axis=1))(stack)
    np.testing.assert_array_equal(
        made.todense(), getattr(np, name)(stack.todense(), axis=2, **({"kind": "stable"} if name == "argsort" else {}))
    )


def test_arrays_of_different_fills_are_joined():
    a, d = sparse("csr")
    made = snp.concatenate([a, a + 1])
    assert made.format.is_dense
    np.testing.assert_array_equal(made.todense(), np.concatenate([d, d + 1]))
    signed = snp.concatenate([a, -a], axis=1)
    assert signed.format == a.format
    np.testing.assert_array_equal(signed.todense(), np.concatenate([d, -d], axis=1))
    third = snp.vstack([snp.log(a), snp.log(a)])  # fills of -inf are alike, and so are those that are NaN
    assert third.format == a.format and third.fill_value == -np.inf


def test_names_of_scipy_and_numpy_on_arrays():
    a, d = sparse("ell")
    for form in ("csr", "csc", "coo"):
        assert getattr(a, f"to{form}")().format == sj.formats.Format.parse(form, 2)
    for function in (
        lambda x: x.std(),
        lambda x: x.var(axis=0),
        lambda x: x.argmax(1),
        lambda x: x.argmin(),
        lambda x: x.cumsum(1),
        lambda x: x.flatten(),
        lambda x: x.swapaxes(0, 1),
        lambda x: x[:1].squeeze(),
        lambda x: x.take([1, 0], 1),
        lambda x: x.repeat(2, 0),
        lambda x: x.conjugate(),
        lambda x: x.argsort(0)[:0],
    ):
        np.testing.assert_allclose(function(a).todense(), function(d), rtol=1e-14)
        np.testing.assert_allclose(sj.jit(function)(a).todense(), function(d), rtol=1e-14)
    np.testing.assert_array_equal(a.multiply(a).todense(), d * d)
    np.testing.assert_array_equal(a.power(2).todense(), d**2)
    np.testing.assert_array_equal(a.maximum(1).todense(), np.maximum(d, 1))
    np.testing.assert_array_equal(a.minimum(1).todense(), np.minimum(d, 1))
    assert int(a.count_nonzero()) == np.count_nonzero(d) and len(a.nonzero()) == 2
    assert sj.array([1, 2]).tolist() == [1, 2]
    for ours, theirs in (
        (np.linalg.norm(a), np.linalg.norm(d)),
        (np.linalg.norm(a, 1, axis=0), np.linalg.norm(d, 1, axis=0)),
        (np.argmax(a, axis=1), np.argmax(d, axis=1)),
        (
            np.linalg.trace(sj.array(np.arange(12.0).reshape(3, 2, 2))),
            np.linalg.trace(np.arange(12.0).reshape(3, 2, 2)),
        ),
    ):
        np.testing.assert_allclose(ours.todense(), theirs)
    with pytest.raises(TypeError, match=r"np\.unwrap does not take an array in format.*to_scipy"):
        np.unwrap(a)


def test_errors_say_what_to_do():
    a, _ = sparse("csr")
    for function in (lambda n: snp.zeros(n), lambda n: snp.eye(n), lambda n: snp.arange(n), lambda n: snp.ones((2, n))):
        with pytest.raises(
            TracerIntegerConversionError, match=r"known while a function is traced.*(.|\n)*static_argnums"
        ):
            sj.jit(function)(3)
    assert sj.jit(lambda v: snp.full(3, v))(2.5).tolist() == [2.5] * 3
    with pytest.raises(ConcretizationTypeError, match=r"lax\.entries"):
        sj.jit(lambda a: a.nnz)(a)
    assert int(sj.jit(sj.lax.entries)(a)) == a.nnz
    for key, axis, size in (((0, np.array([1, 9])), 1, 6), (np.array([2, -7]), 0, 4)):
        with pytest.raises(
            IndexError, match=rf"index -?\d is out of bounds for axis {axis} with size {size} \(at position 1"
        ):
            a[key]
    for x, shape in ((snp.ones, (10**7, 10**8)), (snp.zeros, 10**15)):
        with pytest.raises(MemoryError, match=r"PiB for an array with shape \(1000"):
            x(shape)
    for function in (lambda: snp.argmax(np.zeros((2, 0)), axis=1), lambda: snp.argmin(np.zeros(0))):
        with pytest.raises(ValueError, match="empty sequence"):
            function()
    with pytest.raises(ValueError, match="not negative"):
        snp.repeat(a, -1, axis=0)
    with pytest.raises(ValueError, match="has 2 numbers, but axis 0"):
        snp.repeat(a, [1, 2], axis=0)


def test_booleans_squared():
    b = np.array([True, False])
    for exponent in (0, 1, 2, 3, 2.0, np.int8(2)):
        assert (sj.array(b) ** exponent).dtype == (b**exponent).dtype
        np.testing.assert_array_equal((sj.array(b) ** exponent).todense(), b**exponent)
    assert snp.power(sj.array(b), 2).dtype == np.power(b, 2).dtype


@pytest.mark.parametrize("name", ["logaddexp", "logaddexp2"])
def test_logaddexp_has_no_kink(name):
    """The maximum in it has one, where operands agree; also of a constant and of a sparse operand."""
    f = getattr(snp, name)
    x = np.array([0.0, 1.0, -2.0, 1000.0, -1000.0])
    want = special.expit(x * (np.log(2) if name == "logaddexp2" else 1))
    np.testing.assert_allclose(sj.grad(lambda x: snp.sum(f(0, x)))(x), want, atol=1e-300)
    np.testing.assert_allclose(sj.grad(lambda x: snp.sum(f(x, 0.0)))(x), want, atol=1e-300)
    np.testing.assert_allclose(sj.grad(lambda x: snp.sum(f(x, x)))(x), np.ones(5))
    A = sj.array(np.diag(x[:3]) + np.eye(3), format="csr")
    np.testing.assert_allclose(sj.grad(lambda A: snp.sum(f(A, A)))(A).data, np.ones(A.nnz))
    curved = sj.hessian(lambda x: snp.sum(snp.logaddexp(x, 0)))(np.zeros(2))
    np.testing.assert_allclose(curved, np.eye(2) / 4)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "(c,d)", "(d,d)@(1,0)", "ell", "bsr:2x2", "mixed"])
def test_blocks_on_a_diagonal(form):
    """At once, and as a program; also what has no entry, no row, or stored zeros."""
    rng = np.random.default_rng(0)
    dense = [
        np.round(rng.random(shape) * (rng.random(shape) < 0.3), 2) for shape in ((4, 6), (0, 2), (6, 0), (2, 2), (8, 4))
    ]
    forms = itertools.cycle(["csr", "csc", "dcsr", "ell"] if form == "mixed" else [form])
    parts = [sj.array(x, format=own) for x, own in zip(dense, forms)]
    parts[0] = parts[0] * 0
    dense[0] = dense[0] * 0
    expected = scipy.sparse.block_diag([scipy.sparse.csr_array(x) for x in dense]).toarray()
    for made in (snp.block_diag(parts), sj.jit(lambda *xs: snp.block_diag(xs))(*parts)):
        assert str(made.format) == "csr"
        np.testing.assert_array_equal(made.todense(), expected)
    for other in ("coo", "csc"):
        made = snp.block_diag(parts, format=other)
        assert str(made.format) == other
        np.testing.assert_array_equal(made.todense(), expected)
        validate(made._storage)
    validate(snp.block_diag(parts)._storage)
