"""Reductions of flags over lanes, and values that are stored for a library call, against NumPy."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp


@pytest.mark.rotating(2)
@pytest.mark.parametrize("dtype", ["?", "i1", "i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("n", [0, 1, 3, 16, 67, 200])
def test_any_and_all(n, dtype):
    """One flag at every place differs from all others, or none does."""
    ours = sj.jit(lambda a, b: (snp.any(a != b), snp.all(a == b), snp.any(a == b), snp.all(a != b)))
    a = (np.arange(n) % 2).astype(dtype)
    for k in range(-1, n):
        b = a.copy()
        if k >= 0:
            b[k] = 1 - b[k].astype("i8")
        c = np.where(np.arange(n) == k, a, 1 - a.astype("i8")).astype(dtype)
        for other in (b, c):
            want = np.any(a != other), np.all(a == other), np.any(a == other), np.all(a != other)
            assert [bool(x) for x in ours(a, other)] == [bool(x) for x in want]


def test_flags_of_rows():
    rng = np.random.default_rng(0)
    x = rng.random((7, 70)) < 0.02
    for axis in (None, 0, 1):
        ours = sj.jit(lambda x, axis=axis: (snp.any(x, axis=axis), snp.all(~x, axis=axis)))
        for mine, want in zip(ours(x), (x.any(axis), (~x).all(axis)), strict=True):
            np.testing.assert_array_equal(mine.todense(), want)


def test_a_value_that_is_stored_anyway_is_not_made_again():
    @sj.jit
    def ours(a, b):
        least = snp.minimum(a, b)
        return least[least], least + 1

    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 40, (2, 40)).astype("i4")
    least = np.minimum(a, b)
    for mine, want in zip(ours(a, b), (least[least], least + 1), strict=True):
        np.testing.assert_array_equal(mine.todense(), want)
    assert ours.lower(a, b).as_text("cin").count("minimum") == 1
