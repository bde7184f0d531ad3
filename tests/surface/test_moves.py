"""Entries moved along axes, repeated, and matrices put together, in every format: against NumPy, at once and jitted, by passes in NumPy and in machine code."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format, Storage
from sparsejax.formats.validate import validate
from tests.formats.strategies import DTYPES, NAMED
from tests.fuzz import engine

FORMATS = [form for form in NAMED if form != "dense"]
CHOICES = ("auto", "passes=numpy", "passes=compiled")


@pytest.fixture(autouse=True, scope="module")
def quick():
    with engine.quick():
        yield


def drawn(rng, shape, dtype):
    kept = rng.random(shape) < rng.choice([0.05, 0.5, 1.0])
    return (rng.integers(0, 4, shape) * kept).astype(dtype)


def check(got, want):
    validate(got.storage)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(got.todense(), want)


def moves(rng):
    shift, other, axis, count = *map(int, rng.integers(-9, 10, 2)), int(rng.integers(0, 2)), int(rng.integers(0, 4))
    return {
        "one axis": lambda xp, x: xp.roll(x, shift, axis=axis),
        "both axes": lambda xp, x: xp.roll(x, (shift, other), axis=(axis, 1 - axis)),
        "an axis twice": lambda xp, x: xp.roll(x, (shift, other), axis=(axis, axis)),
        "flat": lambda xp, x: xp.roll(x, shift),
        "repeated": lambda xp, x: xp.repeat(x, count, axis=axis),
        "often": lambda xp, x: xp.repeat(x, 18, axis=axis),
        "rows": lambda xp, x: x[1:shift],
        "a window": lambda xp, x: x[count:shift, 1:other],
        "columns": lambda xp, x: x[:, 1:shift],
        "every second": lambda xp, x: x[::2, count:],
    }


@pytest.mark.rotating(24)
@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("seed", range(12))
def test_moves_are_those_of_numpy(seed, form, choose):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(0, 200 if choose == "auto" else 7, 2))
    d = drawn(rng, shape, DTYPES[int(rng.integers(len(DTYPES)))])
    A = sj.array(d, format=form)
    with sj.config.using(choose=choose):
        for name, move in moves(rng).items():
            made = move(snp, A)
            check(made, move(np, d))
            assert name == "flat" or made.format == A.format
        name = list(moves(rng))[seed % len(moves(rng))]
        move = moves(rng)[name]
        check(sj.jit(lambda x: move(snp, x))(A), move(np, d))


@pytest.mark.rotating(24)
@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("seed", range(48))
def test_matrices_of_any_formats_are_put_together(seed, choose):
    rng = np.random.default_rng(seed)
    h, w, below, beside = (int(n) for n in rng.integers(0, 90 if choose == "auto" else 7, 4))
    dtype = DTYPES[int(rng.integers(len(DTYPES)))]
    d = [drawn(rng, shape, dtype) for shape in ((h, w), (h, beside), (below, w), (below, beside))]
    alike = [str(rng.choice(FORMATS))] * 4
    for forms in (alike, rng.choice(FORMATS, 4)):
        a = [sj.array(x, format=str(form)) for x, form in zip(d, forms, strict=True)]
        with sj.config.using(choose=choose):
            for join in (
                lambda xp, a: xp.block([[a[0], a[1]], [a[2], a[3]]]),
                lambda xp, a: xp.concatenate([a[0], a[1], a[0]], 1),
                lambda xp, a: xp.concatenate([a[0], a[2], a[2]], 0),
            ):
                made = join(snp, a)
                check(made, join(np, d))
                assert forms is not alike or made.format == a[0].format


@pytest.mark.parametrize("form", ["coo", "dcsr", "csr", "(q,q)@(1,0)"])
@pytest.mark.parametrize("axis", [0, 1])
def test_moves_along_long_axes(form, axis):
    """Extents beyond 32 bits; one dimension is short enough for rows."""
    n = 2**40
    shape = (5, n) if form == "csr" else (n, n) if axis else (n, 7)
    rng = np.random.default_rng(axis)
    coords = np.unique(np.stack([rng.integers(0, m, 60) for m in shape]), axis=1)
    A = sj.array((np.arange(1.0, coords.shape[1] + 1), tuple(coords)), shape=shape, format=form)
    for shift in (1, -5, n // 3, 2 * n + 1):
        made = snp.roll(A, shift, axis=axis)
        want = coords.copy()
        want[axis] = [(int(c) + shift) % shape[axis] for c in coords[axis]]
        _same(made, want, np.arange(1.0, coords.shape[1] + 1))
    if shape[axis] == n and A.format.order[-1] == axis:
        twice = snp.repeat(A, 2, axis=axis)
        assert twice.shape[axis] == 2 * n
        each = np.repeat(coords, 2, axis=1)
        each[axis] = 2 * each[axis] + np.tile([0, 1], coords.shape[1])
        _same(twice, each, np.repeat(np.arange(1.0, coords.shape[1] + 1), 2))


def _same(made, coords, values):
    validate(made.storage)
    columns, vals = made.storage.expand()
    got, want = np.lexsort(columns[::-1]), np.lexsort(coords[::-1])
    for column, expected in zip(columns, coords, strict=True):
        np.testing.assert_array_equal(column[got], expected[want])
    np.testing.assert_array_equal(vals[got], values[want])


@pytest.mark.parametrize("axis", [0, 1])
def test_moves_of_repeated_entries(axis):
    """A format whose segments may hold a coordinate twice: the values of those count together."""
    form = Format.parse("(d,n)", 2)
    pos, crd, vals = np.array([0, 3, 3, 5]), np.array([1, 1, 2, 0, 0], np.int32), np.arange(1.0, 6.0)
    A = sj.array(Storage(form, (3, 4), np.float64(0), ((), (pos, crd)), vals))
    d = A.todense()
    check(snp.roll(A, 3, axis=axis), np.roll(d, 3, axis=axis))
    check(snp.repeat(A, 2, axis=axis), np.repeat(d, 2, axis=axis))
    check(snp.concatenate([A, A.asformat("csr")], axis), np.concatenate([d, d], axis))
    check(snp.block([[A, A], [A, A]]), np.block([[d, d], [d, d]]))


@pytest.mark.parametrize("form", ["csr", "coo", "csf"])
def test_moves_of_larger_arrays(form):
    rng = np.random.default_rng(0)
    d = drawn(rng, (3, 4, 5), float)
    A = sj.array(d, format="(d,d,c)" if form == "csr" else form)
    for axis in range(3):
        check(snp.roll(A, 2, axis=axis), np.roll(d, 2, axis=axis))
        check(snp.repeat(A, 3, axis=axis), np.repeat(d, 3, axis=axis))
    for choose in CHOICES:
        with sj.config.using(choose=choose):
            check(snp.roll(A, (1, 2, -3), axis=(2, 1, 0)), np.roll(d, (1, 2, -3), axis=(2, 1, 0)))
