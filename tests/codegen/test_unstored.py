"""Reductions to which entries count that are not stored, and infinities: in every shape of loops, whatever the processor is good at."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.cost import statistics
from tests.fuzz import engine

pytestmark = pytest.mark.rotating(24)

ROWS, COLUMNS = 300, 24


@pytest.fixture(autouse=True, scope="module")
def unoptimised():
    with engine.quick():
        yield


@pytest.fixture(autouse=True, params=["few", "many"])
def lengths(request, monkeypatch):
    """Small arrays taken as such, or for large ones whose rows are computed in blocks."""
    monkeypatch.setattr(statistics, "MANY", 1 if request.param == "many" else statistics.MANY)


@pytest.fixture(autouse=True, params=["scalar", "masks", "gathers"])
def kind(request, processor):
    processor(masks=request.param != "scalar", gathers=request.param == "gathers")


def ragged(mean, dtype="f8", fill=0):
    """Rows of all lengths, side by side: blocks of these are not alike (`loops/row_blocks`)."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.poisson(mean, ROWS) * rng.integers(0, 3, ROWS), COLUMNS)
    stored = rng.random((ROWS, COLUMNS)).argsort(1) < lengths[:, None]
    values = rng.integers(1, 5, stored.shape) * rng.choice([-1, 1], stored.shape)
    dense = np.where(stored, values, fill).astype(dtype)
    coords = np.nonzero(stored)
    return sj.array((dense[coords], np.array(coords)), shape=dense.shape, format="csr", fill_value=fill), dense


PROGRAMS = {
    "one more, times a vector": lambda np, A, x: (A + 1) @ x,
    "squared distances": lambda np, A, x: np.sum((A - x) ** 2, axis=1),
    "norms": lambda np, A, x: np.linalg.norm(A - x, axis=1),
    "largest product": lambda np, A, x: np.max((A + 1) * x, axis=1),
    "smallest product": lambda np, A, x: np.min((A + 1) * x, axis=1),
    "product": lambda np, A, x: np.prod((A + 5) * x / 4, axis=1),
    "largest distance": lambda np, A, x: np.max(np.absolute(A - x), axis=1),
    "largest exponential": lambda np, A, x: np.max(np.exp(A) * x, axis=1),
    "all": lambda np, A, x: np.all(A + x > -5, axis=1),
    "any": lambda np, A, x: np.any(A + x > 7, axis=1),
    "where": lambda np, A, x: np.argmax((A + 1) * x, axis=1),
    "normalised": lambda np, A, x: (A - x) / np.max(np.absolute(A - x), axis=1, keepdims=True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    function = PROGRAMS[name]
    A, dense = ragged(7)
    jitted = sj.jit(lambda A, x: function(snp, A, x))
    x = np.random.default_rng(1).integers(1, 5, COLUMNS).astype(float)
    for special in (1.0, np.inf, np.nan):
        x[3] = special
        with np.errstate(all="ignore"):
            want = function(np, dense, x)
        np.testing.assert_allclose(jitted(A, x).todense(), want, rtol=1e-12)


def test_derivatives():
    A, dense = ragged(7)
    x = np.random.default_rng(1).integers(1, 5, COLUMNS).astype(float)
    sums = ((dense - x) ** 2).sum(1)
    made = sj.jit(sj.grad(lambda x: snp.sum(snp.sum((A - x) ** 2, axis=1) ** 2)))(x)
    np.testing.assert_allclose(made.todense(), (4 * sums[:, None] * (x - dense)).sum(0), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f4", "i4", "c16"])
@pytest.mark.parametrize("fill", [0, -1])
def test_types_and_fills(dtype, fill):
    A, dense = ragged(7, dtype, fill)
    x = np.random.default_rng(1).integers(1, 5, COLUMNS).astype(dtype)
    for function in (lambda A, x: (A + 1) @ x, lambda A, x: (A * x + x).sum(axis=1)):
        np.testing.assert_allclose(sj.jit(function)(A, x).todense(), function(dense, x), rtol=1e-5)
