"""Boxes of places written into sparse arrays: rows, columns and blocks, by slices of any step, beside NumPy."""

import numpy as np
import pytest

import sparsejax as sj


def part(rng, n):
    """A random integer, or slice, also backward or of nothing."""
    kind = int(rng.integers(0, 4))
    if kind == 0:
        return int(rng.integers(-n, n))
    if kind == 1:
        return slice(None, None, int(rng.choice([1, 1, 2, -1, -2])))
    low, high = sorted(int(k) for k in rng.integers(0, n + 1, 2))
    return slice(low, high, int(rng.choice([1, 3])))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "ell"])
@pytest.mark.parametrize("seed", range(8))
def test_boxes_are_written_as_numpy_writes_them(form, seed):
    rng = np.random.default_rng([seed, 5])
    for _ in range(12):
        shape = tuple(int(n) for n in rng.integers(1, 9, 2))
        dense = rng.integers(-4, 5, shape) * (rng.random(shape) < 0.5) * 1.0
        key = part(rng, shape[0]), part(rng, shape[1])
        if rng.random() < 0.3:
            key = key[0]
        chosen = dense[key]
        values = rng.standard_normal(np.shape(chosen)) if rng.random() < 0.7 else np.float64(2.5)
        expected = dense.copy()
        expected[key] = values
        found = sj.array(dense, format=form).at[key].set(values)
        np.testing.assert_array_equal(found.todense(), expected, err_msg=f"{form} {shape} {key}")
        assert str(found.format) == str(sj.array(dense, format=form).format)
        again = sj.array(found.todense(), format=form) + found
        np.testing.assert_array_equal(again.todense(), expected * 2)
