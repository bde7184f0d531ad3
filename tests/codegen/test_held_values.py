"""Values that do not change along a walk which adds to memory are read before it."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests import bounds
from tests.fuzz import engine


@pytest.fixture(scope="module", autouse=True)
def quick():
    with engine.quick():
        yield


def draw(rng, shape, dtype, density=1.0):
    made = rng.standard_normal(shape) * (rng.random(shape) < density)
    if np.dtype(dtype).kind == "c":
        return (made * (1 + 2j)).astype(dtype)
    return (4 * made).astype(dtype) if np.dtype(dtype).kind in "iu" else made.astype(dtype)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i4"])
@pytest.mark.parametrize("form", ["csc", "(c,c)@(1,0)", "dcsc"])
def test_sums_into_a_vector(form, dtype, seed):
    rng = np.random.default_rng(seed)
    n, m = rng.integers(1, 40, 2)
    dense, x, y = draw(rng, (n, m), dtype, 0.2), draw(rng, (m,), dtype), draw(rng, (m,), dtype)
    dense[:, rng.random(m) < 0.4] = 0
    A = sj.array(dense, format=form)
    for threads in (1, 2):
        with sj.config.using(parallel_work=0, num_threads=threads):
            made = sj.jit(lambda A, x, y: A @ (x * y))(A, x, y).todense()
            twice = sj.jit(lambda A, x, y: (A * x) @ y)(A, x, y).todense()
        wide = bounds.wide(dense)
        exact, terms = wide @ (bounds.wide(x) * y), np.abs(wide) @ np.abs(bounds.wide(x) * y)
        bounds.check(made, exact, terms)
        bounds.check(twice, exact, terms)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_largest_and_smallest(kind):
    rng = np.random.default_rng(3)
    R, C, v, x = rng.integers(0, 9, 60), rng.integers(0, 7, 60), rng.standard_normal(60), rng.standard_normal(9)
    A = sj.array((v, (R, C)), shape=(9, 7), format="csr")
    dense = A.todense()
    made = getattr(snp, kind)(sj.jit(lambda A, x: A * x[:, None])(A, x), axis=0)
    np.testing.assert_array_equal(made.todense(), getattr(np, kind)(dense * x[:, None], axis=0))


def test_a_value_is_read_once_for_a_column_with_entries():
    A, x = sj.array(np.eye(8), format="csc"), np.ones(8)
    before, inside = sj.jit(lambda A, x: A @ x).lower(A, x).as_text("loops").rsplit("for p in", 1)
    assert "B.vals" not in inside
    assert before.count("B.vals") == 1
    assert "if (lo < hi):" in before.split("B.vals")[0]
