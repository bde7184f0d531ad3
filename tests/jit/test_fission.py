"""Sums of sums (`jit/rewrite/fission`): those of floats are added as they are written, so that what cancels in an element cancels."""

import math
import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.array import Array
from sparsejax.formats import convert
from tests.fuzz import engine
from tests.fuzz.levels import INPUTS, random_format

SHAPES = [(40,), (5, 30), (30, 5), (3, 4, 6)]
EPS = {"f8": 2.0**-53, "f4": 2.0**-24, "c16": 2.0**-51, "c8": 2.0**-22}


def operand(rng, shape, dtype, like):
    """A random array with huge and tiny numbers: many where another one, `like`, has nearly the same. Ours, and dense."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    top = 1e30 if dtype in ("f4", "c8") else 1e300
    dense = nrng.standard_normal(shape) * nrng.choice([1, 1, 1e8, top], shape)
    if like is not None:
        dense = np.where(nrng.random(shape) < 0.7, like * nrng.choice([1, 1, 1 + 1e-7, -1], shape), dense)
    dense = np.clip(dense.real, -3 * top, 3 * top).astype(dtype)
    form = random_format(rng, len(shape), INPUTS)
    if form.is_dense:
        return sj.array(dense, copy=True), dense
    stored = nrng.random(shape) < rng.choice((0.3, 0.7, 1.0))
    dense = np.where(stored, dense, 0).astype(dtype)
    coords = np.array(np.nonzero(stored)).reshape(len(shape), -1)
    return Array(convert.from_coords(coords, dense[stored], shape, form, 0)), dense


def tree(rng, leaves):
    """A random tree of additions and subtractions over leaves, as a function of the operands."""
    if len(leaves) == 1:
        (leaf,) = leaves
        return rng.choice((lambda xs: xs[leaf], lambda xs: xs[leaf], lambda xs: -xs[leaf], lambda xs: xs[leaf] * 2))
    cut = len(leaves) - 1 if rng.random() < 0.5 else rng.randint(1, len(leaves) - 1)
    left, right = tree(rng, leaves[:cut]), tree(rng, leaves[cut:])
    return rng.choice(
        (lambda xs: left(xs) - right(xs), lambda xs: left(xs) - right(xs), lambda xs: left(xs) + right(xs))
    )


def fault(seed):
    """What is wrong with a random sum, or a sum over random axes of it: it must be within a few roundings of the elements as written."""
    rng = random.Random(seed)
    shape, dtype = rng.choice(SHAPES), rng.choice(("f8", "f8", "f8", "f4", "c16", "c8"))
    count = rng.choice((2, 2, 2, 3, 3, 4, 5, 6))
    arrays: list = []
    for _ in range(count):
        arrays.append(operand(rng, shape, dtype, rng.choice(arrays)[1].real.astype("f8") if arrays else None))
    leaves = [*range(count), *(rng.randrange(count) for _ in range(rng.choice((0, 0, 1))))]
    written = tree(rng, leaves)
    axes = tuple(sorted(rng.sample(range(len(shape)), rng.choice((0, 1, 1, len(shape))))))
    program = (lambda xs: snp.sum(written(xs), axis=axes)) if axes else written
    got = sj.jit(lambda *xs: program(xs))(*(a for a, _ in arrays)).todense()
    with np.errstate(all="ignore"):
        elements = np.asarray(written([d for _, d in arrays]))
        text = f"seed {seed}: {dtype} {[str(a.aval) for a, _ in arrays]} axes {axes}"
        if not axes:
            return (
                None if np.array_equal(got, elements, equal_nan=True) else f"{text}\nexpected\n{elements}\ngot\n{got}"
            )
        sums, sizes = exactly(elements, axes)
        good = np.abs(got - sums) <= 4 * EPS[dtype] * sizes * (1 if dtype in ("f4", "c8") else elements.size)
        good |= (np.isnan(got) & np.isnan(sums)) | (got == sums) | ~np.isfinite(sizes)
    return None if np.all(good) else f"{text}\nexpected\n{sums}\ngot\n{got}\nsizes\n{sizes}"


def exactly(elements, axes):
    """The sums of elements, and of their absolute values, rounded once."""
    moved = np.moveaxis(elements, axes, range(-len(axes), 0))
    moved = moved.reshape(*moved.shape[: moved.ndim - len(axes)], -1).astype("c16")
    sums, sizes = np.empty(moved.shape[:-1], "c16"), np.empty(moved.shape[:-1])
    for place in np.ndindex(sums.shape):
        row = moved[place]
        if np.isfinite(row).all():
            sums[place] = complex(math.fsum(row.real), math.fsum(row.imag))
        else:
            sums[place] = row.sum()
        sizes[place] = np.abs(row).sum()
    return sums if elements.dtype.kind == "c" else sums.real, sizes


@pytest.mark.parametrize("start", range(0, 30, 10))
def test_random_sums(start):
    with engine.quick():
        faults = list(filter(None, map(fault, range(start, start + 10))))
    assert not faults, "\n".join(faults[:5])


@pytest.mark.slow
def test_many_random_sums():
    with engine.quick():
        faults = list(filter(None, map(fault, range(1000, 6000))))
    assert not faults, "\n".join(faults[:5])


def csr(dense):
    return sj.array(np.asarray(dense, float), format="csr")


def test_rows_that_overflow_by_themselves():
    A, B = csr([[1e308, 1e308], [1e308, 0]]), csr([[1e308, 1e308], [0, 1e308]])
    made = sj.jit(lambda A, B: snp.sum(A - B, axis=1))(A, B)
    np.testing.assert_array_equal(made.todense(), [0, 0])
    made = sj.jit(lambda A, B: snp.sum(A + B, axis=1))(A, -B)
    np.testing.assert_array_equal(made.todense(), [0, 0])


@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dense"])
def test_digits_that_are_left(form, axis):
    rng = np.random.default_rng(0)
    u = 1e8 + rng.random((20, 30))
    v = u + 1e-6 * rng.random((20, 30))
    want = np.sum(u.astype("g") - v.astype("g"), axis=axis)
    for a, b in ((u, v), (v, u)):
        made = sj.jit(lambda A, B: snp.sum(A - B, axis=axis))(csr(a), sj.array(b, format=form, copy=True))
        np.testing.assert_allclose(made.todense(), np.asarray(want, float) * (1 if a is u else -1), rtol=1e-12)


def loops(function, *args):
    return sj.jit(function).lower(*args).as_text("cin")


def test_what_is_taken_apart():
    """Whole numbers, truths, and terms of one sign."""
    A, B = csr(np.eye(3)), csr(np.ones((3, 3)))
    whole = [x.astype("i8") for x in (A, B)]
    assert loops(lambda A, B: snp.sum(A - B, axis=1), *whole).count("forall j") == 2
    truths = [x.astype(bool) for x in (A, B)]
    assert loops(lambda A, B: snp.any(snp.logical_or(A, B), axis=1), *truths).count("forall j") == 2
    assert loops(lambda A, B: snp.sum(A * A + abs(B), axis=1), A, B).count("forall j") == 2
    assert loops(lambda A, B: snp.sum(-(A * A) - abs(B), axis=1), A, B).count("forall j") == 2
    for function in (
        lambda A, B: snp.sum(A - B, axis=1),
        lambda A, B: snp.sum(A + B, axis=1),
        lambda A, B: snp.sum(A * A - B * B, axis=1),
    ):
        assert loops(function, A, B).count("forall j") == 1


def test_many_terms_are_added_as_they_are_written():
    """More operands than are merged: one test for each, and one register for what an element adds up to."""
    dense = [np.full((2, 3), x) for x in (1e17, 1e17, 1.0, 1e17, 1e17, 3.0)]
    arrays = [csr(x) for x in dense]

    def function(A, B, C, D, E, F):
        return A - B + C + (D - E) - F

    np.testing.assert_array_equal(sj.jit(function)(*arrays).todense(), function(*dense))
    made = sj.jit(lambda *xs: snp.sum(function(*xs), axis=1))(*arrays)
    np.testing.assert_array_equal(made.todense(), function(*dense).sum(1))
    text = loops(lambda *xs: snp.sum(function(*xs), axis=1), *arrays)
    assert text.count("forall j") == 1 and text.count("where") == 2, text
