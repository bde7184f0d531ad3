"""Quotients that are rounded down, and remainders, beside numbers of a program that are no numbers or infinite: every value is written."""

import subprocess
import sys

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


def test_nothing_is_left_unwritten_in_machine_code_as_users_have_it():
    """LLVM's optimiser, most of which tests go without, took `fmod` of an integer and NaN for a call that gives no NaN."""
    script = """
import numpy as np, sparsejax as sj
from tests import poison
poison.install()
for dtype in ("i8", "u1", "?"):
    x = np.ones((2, 5), dtype)
    for f in (lambda x: x // np.nan, lambda x: x % np.nan, lambda x: divmod(x, np.float32(np.nan))[1]):
        assert np.isnan(sj.jit(f)(x).todense()).all(), (dtype, sj.jit(f)(x))
"""
    subprocess.run([sys.executable, "-c", script], check=True)
