"""Quotients that are rounded down, and remainders, beside numbers of a program that are no numbers or infinite: every value is written."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

FUNCTIONS = {
    "//": (lambda x, c: x // c, lambda x, c: x // c),
    "%": (lambda x, c: x % c, lambda x, c: x % c),
    "fmod": (snp.fmod, np.fmod),
    "c //": (lambda x, c: c // x, lambda x, c: c // x),
    "c %": (lambda x, c: c % x, lambda x, c: c % x),
}


@pytest.mark.parametrize("format", ["dense", "csr", "lil"])
@pytest.mark.parametrize("number", [np.nan, np.float32(np.nan), np.inf, -np.inf, 0.0, -2.5, 3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_of_the_program(name, number, format):
    ours, numpys = FUNCTIONS[name]
    for dtype in ("i8", "i4", "u1", "?", "f8", "f4"):
        dense = np.array([[1, 2, -3, 4], [-5, 6, 7, -8]]).astype(dtype)  # all are stored
        x = sj.array(dense, format=format)
        with np.errstate(all="ignore"):
            expected = numpys(dense, number)
        for found in (ours(x, number), sj.jit(lambda x: ours(x, number))(x)):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found.todense(), expected)
