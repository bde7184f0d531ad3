"""The largest and the smallest of many numbers, in lanes, both halves of a chunk at once: what is not a number, infinities and zeros of both signs
anywhere, and every length around that of a vector."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config

pytestmark = pytest.mark.rotating(8)

SIZES = [1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 127, 129, 255, 1000, 4097]


@pytest.mark.parametrize("chunks", ["whole", "two", "each"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("size", SIZES)
def test_extremes_are_those_of_numpy(size, op, dtype, chunks):
    rng = np.random.default_rng(size)
    with config.using(choose=f"chunks={chunks}", parallel_work=0):
        made = sj.jit(lambda x: getattr(snp, op)(x))
        for number in range(12):
            x = rng.integers(-50, 50, size).astype(dtype)
            if dtype != "i4" and number > 2:
                x[rng.integers(0, size)] = [np.nan, np.inf, -np.inf][number % 3]
            if dtype != "i4" and number > 8:
                x[rng.integers(0, size, 2)] = np.nan
            np.testing.assert_array_equal(made(sj.array(x)).todense(), getattr(np, op)(x))


@pytest.mark.parametrize("chunks", ["whole", "two"])
@pytest.mark.parametrize("size", SIZES)
def test_whole_numbers_are_added_without_rounding(size, chunks):
    """Every element once: halves neither overlap nor leave any out."""
    rng = np.random.default_rng(size)
    x, y = (rng.integers(-50, 50, size) * 1.0 for _ in range(2))
    with config.using(choose=f"chunks={chunks}", parallel_work=0):
        assert float(sj.jit(lambda x, y: snp.sum(x * y))(sj.array(x), sj.array(y))) == float(np.sum(x * y))
