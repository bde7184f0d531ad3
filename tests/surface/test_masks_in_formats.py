"""`A[mask]` of a mask of the shape of `A`, in every format and by every kind of pass, against NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import sparsejax as sj
from sparsejax.lax.library import thinning
from tests.sweeps.operations import FORMATS

RNG = np.random.default_rng(7)

SPARSE = [form for form in FORMATS if form != "dense"] + ["csf", "dcsc", "(q,q)@(1,0)", "(d,d,d,d)@(0,1,0,1)/(2,2)"]
CUBES = ["coo", "csf", "(d,c,c)@(0,1,2)", "(c,c,c)@(2,1,0)", "(q,q,q)@(1,2,0)", "(d,q,q)@(2,0,1)", "(c,d,c)@(1,0,2)"]


def drawn(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    return (rng.integers(1, 9, shape) * (rng.random(shape) < 0.5)).astype(dtype)


def agrees(A, mask, want):
    made = A[mask]
    assert made.dtype == A.dtype
    assert_array_equal(made.todense(), want)


@pytest.mark.parametrize("passes", ["numpy", "compiled"])
@pytest.mark.parametrize("form", SPARSE)
def test_masks_of_matrices(form, passes):
    for seed, (shape, dtype) in enumerate(
        [((6, 7), "f8"), ((1, 9), "i4"), ((9, 1), "f4"), ((0, 5), "f8"), ((5, 0), "f8")]
    ):
        D = drawn(shape, dtype, seed)
        A = sj.array(D, format=form)
        with sj.config.using(choose=f"passes={passes}"):
            for t in (0, 4, 7, 99):
                agrees(A, t < A, D[t < D])
                agrees(A, sj.array(t < D, format="csc"), D[t < D])


@pytest.mark.parametrize("passes", ["numpy", "compiled"])
@pytest.mark.parametrize("form", CUBES)
def test_masks_of_cubes(form, passes):
    for seed, shape in enumerate([(4, 5, 6), (1, 3, 9), (2, 0, 3)]):
        D = drawn(shape, "f8", seed)
        A = sj.array(D, format=form)
        with sj.config.using(choose=f"passes={passes}"):
            for t in (0, 4, 7, 99):
                agrees(A, t < A, D[t < D])


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsc"])
def test_zeros_that_are_stored_are_values_like_others(form):
    D = drawn((8, 5), "f8", 1)
    A = sj.array(D, format=form)
    stored = A * (A > 4)
    mask = A > 0
    made = stored[mask]
    assert made.nnz == np.count_nonzero(D > 0)
    assert_array_equal(made.todense(), np.where(D > 4, D, 0)[D > 0])


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsc", "(q,q)@(1,0)"])
@pytest.mark.parametrize("axis", [0, 1, None, (0, 1)])
def test_lines_are_looked_at_in_parts(form, axis, monkeypatch):
    """The largest of lines, of which few entries are looked at at a time; lines without entries, and one with more than a part."""
    D = drawn((40, 30), "f8", 2)
    D[:, 3], D[5], D[:, 7], D[9] = 0, np.arange(30) - 11, np.arange(40) % 7, 0
    for block in (1, 7, 50, 10**6):
        monkeypatch.setattr(thinning, "BLOCK", block)
        for keep in (1, 2, 9):
            made = sj.prune(sj.array(D, format=form), keep=keep, axis=axis)
            lines = (
                np.moveaxis(D, axis if axis is not None else (0, 1), -1) if isinstance(axis, int) else D.reshape(1, -1)
            )
            want = np.zeros_like(lines)
            for line, out in zip(lines, want):
                first = sorted(np.flatnonzero(line), key=lambda k: (-abs(line[k]), k))[:keep]
                out[first] = line[first]
            want = np.moveaxis(want, -1, axis) if isinstance(axis, int) else want.reshape(D.shape)
            assert_array_equal(made.todense(), want)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "ell", "dia", "lil", "dense"])
def test_grids_of_one_row_have_the_format_that_they_are_traced_to_have(form):
    dense = (RNG.random((5, 6)) < 0.5) * RNG.integers(1, 9, (5, 6))
    A = sj.array(dense, format=form)
    for rows in ([1], [0, 2], [], [3, 3, 1]):
        for columns in ([0], [1, 4, 2], []):
            key = np.ix_(np.array(rows, int), np.array(columns, int))
            at_once, traced = A[key], sj.jit(lambda A, key=key: A[key])(A)
            assert at_once.format == traced.format == sj.eval_shape(lambda A, key=key: A[key], A).format
            for found in (at_once, traced):
                np.testing.assert_array_equal(found.todense(), dense[key])
