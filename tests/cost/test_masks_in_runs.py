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
