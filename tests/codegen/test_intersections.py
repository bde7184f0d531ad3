"""Intersections and unions of sorted segments: equal, nearly equal and disjoint patterns of lengths around which room is made anew."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.core.array import Array
from sparsejax.formats import Format, convert
from sparsejax.jit.codegen.loops import merge

LENGTHS = [0, 1, 2, 7, 8, merge.PIECE - 1, merge.PIECE, merge.PIECE + 1, 3 * merge.PIECE + 5]
DTYPES = ["?", "i4", "f4", "f8", "c16"]


def values(rng, count, dtype):
    made = rng.integers(1, 5, count)
    return (made + 1j * rng.integers(1, 5, count)).astype(dtype) if dtype == "c16" else made.astype(dtype)


def pairs(rng, count, extent):
    """Sorted coordinates of two segments: alike in all, most, half, few or none of them, or one within the other."""
    first = np.sort(rng.choice(extent // 2, count, replace=False) * 2)
    yield "equal", first, first
    for name, share in (("nearly", 0.03), ("half", 0.5), ("few", 0.95)):
        moved = rng.random(count) < share
        yield name, first, np.sort(first + moved)
    yield "disjoint", first, first + 1
    yield "apart", first, first + extent
    yield "within", first, first[rng.random(count) < 0.5]
    yield "one more", first, np.append(first, extent)
    yield "ends", first, first[1:-1]
    yield "empty", first, first[:0]


def vector(crd, vals, extent, form="(c)"):
    storage = convert.from_coords(crd[None], vals, (extent,), Format.parse(form, 1), vals.dtype.type(0))
    return Array(storage)


def entries(made):
    coords, vals = convert.to_coords(made.storage)
    return coords[0], vals


@pytest.mark.rotating(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extent", [2**31 - 1, 2**40])
def test_products_and_sums_of_vectors(dtype, extent):
    product, total, dot = sj.jit(snp.multiply), sj.jit(snp.add), sj.jit(lambda a, b: snp.sum(a * b))
    rng = np.random.default_rng(0)
    for count in LENGTHS:
        for name, p, q in pairs(rng, count, 4 * count + 4):
            x, y = values(rng, len(p), dtype), values(rng, len(q), dtype)
            a, b = vector(p, x, extent), vector(q, y, extent)
            both, at, to = np.intersect1d(p, q, return_indices=True)
            for made, want in ((product(a, b), x[at] * y[to]), (product(b, a), y[to] * x[at])):
                assert made.dtype == np.dtype(dtype)
                np.testing.assert_array_equal(entries(made)[0], both, name)
                np.testing.assert_array_equal(entries(made)[1], want, name)
            np.testing.assert_allclose(dot(a, b), np.sum(x[at] * y[to]), rtol=1e-6)
            every = np.union1d(p, q)
            want = np.zeros(len(every), dtype)
            want[np.searchsorted(every, p)] = x
            want[np.searchsorted(every, q)] += y
            np.testing.assert_array_equal(entries(total(a, b))[0], every, name)
            np.testing.assert_array_equal(entries(total(a, b))[1], want, name)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("form", ["(c)", "(l)", "(q)"])
@pytest.mark.parametrize("count", LENGTHS)
def test_products_of_three_vectors(form, count):
    rng, extent = np.random.default_rng(count), 4 * count + 8
    three = sj.jit(lambda a, b, c: a * b * c)
    for name, p, q in pairs(rng, count, extent):
        r = np.sort(rng.choice(2 * extent, count, replace=False))
        for crd in ((p, q, p), (p, q, r), (q, p, p[:1]), (p[-1:], p, q)):
            dense = np.zeros((3, 2 * extent))
            for row, c in zip(dense, crd, strict=True):
                row[c] = values(rng, len(c), "f8")
            made = three(*(vector(c, row[c], 2 * extent, form) for c, row in zip(crd, dense, strict=True)))
            want = np.flatnonzero(dense.all(axis=0))
            np.testing.assert_array_equal(entries(made)[0], want, name)
            np.testing.assert_array_equal(entries(made)[1], dense.prod(axis=0)[want], name)


def rows(rng, shape, lengths, other=None, keep=1.0):
    """A matrix whose rows have these lengths, as a masked array; the pattern of `other`, where that is given, but for some of it."""
    there = np.zeros(shape, bool)
    for row, count in zip(there, lengths, strict=True):
        row[rng.choice(shape[1], count, replace=False)] = True
    if other is not None:
        there = (other != 0) & (rng.random(shape) < keep)
    return np.where(there, rng.integers(1, 9, shape), 0).astype(float)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("form", ["csr", "coo", "dcsr", "ell", "groupcoo:2", "lil"])
@pytest.mark.parametrize("keep", [1.0, 0.97, 0.4])
def test_matrices_with_long_and_empty_rows(form, keep):
    rng = np.random.default_rng(1)
    lengths = [0, 1, 600, 0, 256, 255, 257, 3, 0]
    x = rows(rng, (9, 900), lengths)
    for y in (rows(rng, x.shape, lengths, x, keep), rows(rng, x.shape, lengths[::-1])):
        a, b = sj.array(x, format=form), sj.array(y, format=form)
        for function in (
            lambda a, b: a * b,
            lambda a, b: a + b,
            lambda a, b: a * b + b,
            lambda a, b: snp.sum(a * b, axis=1),
            lambda a, b: snp.minimum(a, b) * a,
        ):
            made = sj.jit(function)(a, b)
            want = np.asarray(function(x, y))
            np.testing.assert_array_equal(made.todense(), want)


def test_values_that_are_not_numbers_stay_where_they_are():
    crd = np.arange(0, 40, 2)
    x, y = np.linspace(-1, 1, 20), np.linspace(1, 2, 20)
    x[[0, 7, 19]], y[[3, 19]] = np.nan, np.inf
    made = sj.jit(snp.multiply)(vector(crd, x, 40), vector(crd, y, 40))
    np.testing.assert_array_equal(entries(made)[1], x * y)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_make_the_same(threads):
    rng = np.random.default_rng(2)
    x = rows(rng, (300, 700), rng.integers(0, 600, 300))
    y = rows(rng, x.shape, [0] * 300, x, 0.9) / 3
    a, b = sj.array(x, format="csr"), sj.array(y, format="csr")
    before = config.parallel_work()
    try:
        config.update("parallel_work", 0)
        config.update("num_threads", threads)
        made, total = sj.jit(snp.multiply)(a, b), sj.jit(lambda a, b: snp.sum(a * b, axis=1))(a, b)
    finally:
        config.update("parallel_work", before)
        config.update("num_threads", 0)
    np.testing.assert_array_equal(made.todense(), x * y)
    np.testing.assert_allclose(total, (x * y).sum(axis=1), rtol=1e-13, atol=1e-12)


def test_room_is_made_for_pieces():
    """Not for every entry, and not for as many as the intersection of long segments might have."""
    crd = np.arange(0, 2000, 2)
    a, b = vector(crd, np.ones(1000), 2001), vector(crd + 1, np.ones(1000), 2001)
    text = sj.jit(snp.multiply).lower(a, b).as_text("loops")
    walk = text[text.rindex("while ") :]
    assert "sparsejax_block" not in walk
    assert f"+ {merge.PIECE})" in text
