"""Columns of a sparse matrix scattered over a dense result: the row that they are multiplied with is held in registers."""

import numpy as np
import pytest

import sparsejax as sj
from tests.fuzz import engine


@pytest.fixture(scope="module", autouse=True)
def quick():
    with engine.quick():
        yield


def draw(rng, shape, dtype, density=1.0):
    made = rng.integers(-4, 5, shape) * (rng.random(shape) < density)
    return made.astype(dtype) * (1 + 2j if np.dtype(dtype).kind == "c" else 1)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("k", [1, 3, 8, 21, 32, 70])
@pytest.mark.parametrize(("left", "right"), [("f8", "f8"), ("f4", "f8"), ("i4", "i4"), ("c16", "f8")])
@pytest.mark.parametrize("form", ["csc", "(c,c)@(1,0)"])
def test_products_of_columns(form, left, right, k):
    rng = np.random.default_rng(k)
    dense, H = draw(rng, (11, 9), left, 0.3), draw(rng, (9, k), right)
    dense[:, 4] = 0
    A = sj.array(dense, format=form)
    for threads in (1, 2):
        with sj.config.using(parallel_work=0, num_threads=threads):
            made = sj.jit(lambda A, H: A @ H)(A, H)
        np.testing.assert_array_equal(made.todense(), dense @ H)


def test_scaled_and_summed():
    rng = np.random.default_rng(0)
    dense, H, y = draw(rng, (11, 9), "f8", 0.3), draw(rng, (9, 33), "f8"), draw(rng, (9,), "f8")
    A = sj.array(dense, format="csc")
    np.testing.assert_array_equal(sj.jit(lambda A, H, y: (A * y) @ H)(A, H, y).todense(), (dense * y) @ H)
    f = sj.jit(sj.grad(lambda H: ((A @ H) ** 2).sum()))
    np.testing.assert_array_equal(f(H).todense(), 2 * dense.T @ (dense @ H))


def test_the_row_is_read_once_for_a_column():
    A, H = sj.array(np.eye(8), format="csc"), np.ones((8, 32))
    *_, inner = sj.jit(lambda A, H: A @ H).lower(A, H).as_text("loops").split("for p in")
    assert "B.vals" not in inner.split("for j")[0]
