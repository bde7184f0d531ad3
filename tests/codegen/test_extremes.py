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


ROWS = [1, 3, 4, 5, 8, 11]


@pytest.mark.parametrize(
    "form", ["dense", "(d,d)@(1,0)", "csr", "csc", "coo", "bitmap", "ell", "bsr:2x2", "groupcoo:2"]
)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("columns", [1, 2, 5, 8, 17, 40])
def test_what_is_no_number_stays_in_its_row(columns, op, dtype, form):
    """And in its column: of several that are reduced side by side, each notes its own."""
    rng = np.random.default_rng(columns)
    program = sj.jit(lambda x, axis: getattr(snp, op)(x, axis=axis), static_argnums=1)
    for seed, rows in enumerate(ROWS):
        x = rng.integers(-9, 9, (rows, columns)).astype(dtype) * (rng.random((rows, columns)) < 0.8)
        x[rng.random(x.shape) < 0.3 / columns] = np.nan
        x[rng.integers(rows), rng.integers(columns)] = np.nan
        A = sj.array(x, format=form)
        for axis in (0, 1):
            wanted = getattr(np, op)(x, axis=axis)
            np.testing.assert_array_equal(program(A, axis).todense(), wanted)
            with config.using(choose=f"random:{seed}", parallel_work=0):
                np.testing.assert_array_equal(program(A, axis).todense(), wanted)


@pytest.mark.parametrize("op", ["max_times", "min_times", "max_plus"])
def test_semirings_keep_what_is_no_number_where_it_is(op):
    rng = np.random.default_rng(3)
    for seed, rows in enumerate(ROWS):
        x, y = rng.integers(1, 9, (rows, 12)).astype("f8"), rng.integers(1, 9, (9, 12)).astype("f8")
        x[rng.random(x.shape) < 0.05] = np.nan
        y[rng.random(y.shape) < 0.02] = np.nan
        terms = x[:, None] + y[None] if op == "max_plus" else x[:, None] * y[None]
        wanted = terms.min(-1) if op == "min_times" else terms.max(-1)
        with config.using(choose=f"random:{seed}" if seed % 2 else "auto"):
            made = sj.jit(lambda x, y: snp.matmul(x, y.T, semiring=op))(x, y).todense()
        np.testing.assert_array_equal(made, wanted)
