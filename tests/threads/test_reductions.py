"""Reductions in chunks: partial scalars and partial outputs, the same bits for any number of threads, and no digits lost."""

import math

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config

pytestmark = pytest.mark.rotating(16)

REDUCTIONS = {
    "sum": (lambda a, x: snp.sum(a * a), "scalar"),
    "largest": (lambda a, x: snp.max(a), "scalar"),
    "any": (lambda a, x: snp.any(a > 0.9), "scalar"),
    "complex": (lambda a, x: snp.sum(x + 1j * x), "scalar"),
    "used afterwards": (lambda a, x: snp.sqrt(snp.sum(x * x + 1.0)), "scalar"),
    "columns": (lambda a, x: a.sum(axis=0), "output"),
    "transposed": (lambda a, x: x @ a, "output"),
    "smallest of columns": (lambda a, x: snp.min(a, axis=0), "output"),
}


@pytest.mark.parametrize("form", ["csr", "dcsr", "coo"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_partial_results(name, form):
    function, partial = REDUCTIONS[name]
    rng = np.random.default_rng(0)
    dense, x = rng.standard_normal((200, 150)), rng.standard_normal(200)
    dense[rng.random(dense.shape) < 0.9] = 0.0
    a, v = sj.array(dense, format=form), sj.array(x)
    results = []
    for threads in (1, 2, 4):
        config.update("num_threads", threads)
        results.append(np.asarray(sj.jit(function)(a, v).todense()))
    assert len({r.tobytes() for r in results}) == 1
    np.testing.assert_allclose(results[0], np.asarray(function(a, v).todense()), rtol=1e-13)
    config.update("parallel_work", 1 << 60)
    np.testing.assert_allclose(results[0], np.asarray(sj.jit(function)(a, v).todense()), rtol=1e-12, atol=1e-12)
    config.update("parallel_work", 0)
    told = sj.explain(function)(a, v).kernels[0].threads
    assert f"partial {partial}" in told


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_keep_their_digits(dtype):
    x = (np.random.default_rng(1).standard_normal(300_000) * 1e3 + 1e5).astype(dtype)
    for threads in (1, 3):
        config.update("num_threads", threads)
        total = float(sj.jit(lambda x: snp.sum(x * 1.0))(sj.array(x)).todense())
        assert total == float(dtype(math.fsum(x.tolist())))
