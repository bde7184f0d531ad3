"""Kernels in chunks that add to a result in a loop, on one thread and several: their slots are theirs alone."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj

N = 400
S = sp.random_array((N, N), density=0.05, format="csr", rng=np.random.default_rng(0))


@pytest.mark.parametrize("rounds", ["table", "program"])
@pytest.mark.parametrize("choose", ["chunks=two", "chunks=each,alone=straight", "chunks=two,alone=straight"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_sums_that_are_cleared(form, threads, choose, rounds):
    A, x = sj.array(S, format=form), np.ones(N) / N

    def steps(A, x):
        def step(k, c):
            y, z = c
            return 0.1 * (A.T @ y) + 0.01, 0.1 * (A @ z) + y.sum()

        return sj.lax.fori_loop(0, 20, step, (x, x))

    y = z = x
    for _ in range(20):
        y, z = 0.1 * (S.T @ y) + 0.01, 0.1 * (S @ z) + y.sum()
    with sj.config.using(num_threads=threads, choose=f"{choose},rounds={rounds}"):
        program = sj.jit(steps)
        for _ in range(3):
            made = program(A, x)
            np.testing.assert_allclose(made[0].todense(), y, rtol=1e-12)
            np.testing.assert_allclose(made[1].todense(), z, rtol=1e-12)
