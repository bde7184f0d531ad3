"""A mask whose rows are runs is priced by its runs, not by the coordinates that these hold, so that a kernel under it is not cut into chunks for nothing."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp


@pytest.mark.parametrize("function", [snp.tril, snp.triu])
@pytest.mark.parametrize("n", [2000, 20_000])
def test_triangles(function, n):
    x = sp.random_array((n, n), density=5 / n, format="csr", rng=np.random.default_rng(0))
    A = sj.array(x)
    text = str(sj.explain(sj.jit(function))(A))
    (line,) = [row for row in text.splitlines() if row.strip().startswith("* ")]
    assert float(line.split(":")[1].split("=")[0]) < 10 * x.nnz  # nanoseconds
    assert "one thread" in text
    assert abs(function(A).to_scipy() - getattr(sp, function.__name__)(x)).nnz == 0


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "ell", "bitmap"])
def test_masks_without_runs(form):
    """Nothing is left, and nothing is divided by how many runs there are."""
    x = np.ones((64, 80))
    A, nothing = sj.array(x, format=form), sj.array(np.zeros(x.shape, bool), format="rle")
    for function in (lambda A: snp.triu(A, 80), lambda A: snp.tril(A, -64), lambda A: A * nothing):
        for made in (function(A), sj.jit(function)(A), sj.grad(lambda A, f=function: f(A).sum())(A)):
            np.testing.assert_array_equal(made.todense(), 0 * x)
    for made in (snp.tril(sj.array(np.ones((7, 300)), format=form), -307), snp.where(nothing, A, 0)):
        np.testing.assert_array_equal(made.todense(), np.zeros(made.shape))
