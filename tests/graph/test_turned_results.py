"""Dense results that are computed in the order of a dense operand and turned, against those that are written in the order of their dimensions."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.jit.ir import choices

pytestmark = pytest.mark.rotating(8)

PROGRAMS = {
    "columns beside rows": lambda A, X: X.T @ A,
    "then a function": lambda A, X: snp.maximum(X.T @ A, 0) + 1,
    "three indices": lambda A, X: sj.einsum("ki,kl,kj->ilj", X, X, A),
    "with a reader": lambda A, X: (X.T @ A) @ snp.ones((A.shape[1], 2)),
}


@pytest.mark.parametrize("way", ["straight", "turned"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(3))
def test_both_ways_give_the_same_numbers(seed, name, form, way):
    """Whole numbers, so that nothing is rounded."""
    rng = np.random.default_rng(seed)
    n, m, k = rng.integers(1, 30, 3)
    A = rng.integers(-3, 4, (n, m)) * (rng.random((n, m)) < 0.3) * 1.0
    X = rng.integers(-3, 4, (n, k)) * 1.0
    choices.TAKEN.clear()
    with config.using(choose=f"results={way}"):
        made = sj.jit(PROGRAMS[name])(sj.array(A, format=form), sj.array(X))
        assert made.format.order == tuple(range(made.ndim))
    np.testing.assert_array_equal(made.todense(), sj.jit(PROGRAMS[name])(sj.array(A), sj.array(X)).todense())


@pytest.mark.parametrize("form", ["(c,c,c)@(0,2,1)", "(d,b,d)@(1,2,0)", "coo"])
def test_sums_that_are_repeated_along_an_axis_are_left_as_they_are(form):
    """The sum over an axis that stays, with one element, has fewer dimensions than the result that it is repeated in."""
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (4, 5, 3)) * (rng.random((4, 5, 3)) < 0.5) * 1.0
    for axis in range(3):
        made = sj.vmap(lambda x: snp.var(x, axis=0, keepdims=True), in_axes=axis)(sj.array(x, format=form))
        want = np.var(np.moveaxis(x, axis, 0), axis=1, keepdims=True)
        np.testing.assert_allclose(made.todense(), want, rtol=1e-12, atol=1e-12)


def test_the_choice_is_asked():
    A, X = sj.array(np.eye(4), format="csr"), sj.array(np.ones((4, 3)))
    for way in ("straight", "turned"):
        choices.TAKEN.clear()
        with config.using(choose=f"results={way}"):
            sj.jit(lambda A, X: X.T @ A)(A, X)
        assert choices.TAKEN["results", way]


def test_what_is_turned_is_said():
    A, X = sj.array(np.random.default_rng(0).random((300, 5000)) < 0.01, format="csr"), np.ones((300, 8))
    with config.using(choose="results=turned"):
        assert "and turned: cost" in str(sj.explain(lambda A, X: X.T @ A)(A, sj.array(X)))
