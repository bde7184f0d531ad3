"""The largest and smallest of what is a number: where nothing is, in rows with all entries, of every fill."""

import warnings

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

ROWS = np.array(
    [
        [np.nan, np.nan, np.nan],
        [np.nan, 0.0, np.nan],
        [0.0, 0.0, 0.0],
        [np.nan, -1.0, np.nan],
        [2.0, np.inf, -np.inf],
        [0.0, -2.0, np.nan],
    ]
)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("fill", [0.0, np.nan, -1.0, np.inf])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dense"])
@pytest.mark.parametrize("name", ["nanmax", "nanmin"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1)])
def test_where_nothing_is_a_number(name, axis, form, fill):
    x = sj.array(ROWS, format=form, fill_value=0.0 if form == "dense" else fill)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = [getattr(np, name)(values, axis=axis, keepdims=True) for values in (ROWS, ROWS[:1], ROWS[1:3])]
    for at_once in (True, False):
        run = lambda x: getattr(snp, name)(x, axis=axis, keepdims=True)  # noqa: E731
        run = run if at_once else sj.jit(run)
        for part, right in zip((x, x[:1], x[1:3]), expected, strict=True):
            np.testing.assert_array_equal(run(part).todense(), right)


@pytest.mark.parametrize("name", ["nanmax", "nanmin"])
def test_more_elements_than_integers_count(name):
    x = sj.array((np.array([np.nan, 3.0]), np.array([[0, 1], [5, 2**62]])), shape=(2**33, 2**62 + 1), format="coo")
    assert getattr(snp, name)(x).item() == (3.0 if name == "nanmax" else 0.0)
