"""Kernels in chunks that add to a cleared result, in a table of a loop, on one thread and several: the words that tell the chunks follow the slots of the
result."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax.jit.runtime.chunked import Chunked
from sparsejax.jit.runtime.whole import table

N = 400
S = sp.random_array((N, N), density=0.05, format="csr", rng=np.random.default_rng(0))


@pytest.mark.parametrize("choose", ["chunks=two", "chunks=each,alone=straight", "chunks=two,alone=chunked"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "dcsc"])
def test_sums_that_are_cleared(form, threads, choose, monkeypatch):
    A, x, met = sj.array(S, format=form), np.ones(N) / N, []
    call = table.Table._call

    def called(self, bound, *args, **kwargs):
        met.append(isinstance(bound.kernel, Chunked) and bound.dense and bound.content is not None)
        return call(self, bound, *args, **kwargs)

    monkeypatch.setattr(table.Table, "_call", called)

    def steps(A, x):
        def step(c):
            k, y, z = c
            return k + 1, 0.1 * sj.einsum("ij,i->j", A, y) + 0.01, 0.1 * (A @ z) + 0.02

        return sj.lax.while_loop(lambda c: c[0] < 20, step, (0, x, x))

    y = z = x
    for _ in range(20):
        y, z = 0.1 * (S.T @ y) + 0.01, 0.1 * (S @ z) + 0.02
    with sj.config.using(num_threads=threads, choose=f"{choose},rounds=table"):
        program = sj.jit(steps)
        for _ in range(3):
            _, first, second = program(A, x)
            np.testing.assert_allclose(first.todense(), y, rtol=1e-12)
            np.testing.assert_allclose(second.todense(), z, rtol=1e-12)
    if form in ("dcsr", "dcsc"):
        assert any(met)
