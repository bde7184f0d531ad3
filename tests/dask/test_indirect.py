"""Indirect einsums over arrays in shards: variables are cut where they stand at the same axes of an operand; the rest is whole."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.dask
import sparsejax.numpy as snp
from sparsejax.dask import layouts
from sparsejax.lax.indirect.index_arrays import pairs, pairs_p

rng = np.random.default_rng(0)
A = sj.array(np.where(rng.random((12, 9)) < 0.4, rng.integers(1, 5, (12, 9)), 0.0), format="csr")
x, I, J, G = rng.random(9), rng.integers(0, 12, 8), rng.integers(0, 9, 8), np.arange(12) % 4

PROGRAMS = {
    "a gather": lambda A, x: sj.insum("y[i] = A[i,j] * x[P[j]]", A=A, x=x, P=np.arange(9)[::-1].copy()),
    "a scatter": lambda A, x: sj.insum("C[G[i]] += A[i,j] * x[j]", C=snp.zeros(4), G=G, A=A, x=x),
    "maxima": lambda A, x: sj.insum("C[G[i]] max= y[i]", C=snp.zeros(4), G=G, y=A @ x),
    "products": lambda A, x: sj.insum("C[G[i]] *= y[i]", C=snp.ones(4), G=G, y=A @ x),
    "rows": lambda A, x: A[I] @ x,
    "columns": lambda A, x: A[:, J].sum(0),
    "places": lambda A, x: A[I, J],
    "add": lambda A, x: A.at[I, J].add(1.0).sum(1),
    "set": lambda A, x: A.at[I, J].set(2.0).sum(1),
    "segments": lambda A, x: sj.nn.segment_sum(A, G, 4) @ x,
    "a diagonal": lambda A, x: sj.insum("d[i] = A[i,i]", A=A[:9]),
}


def test_pairs_of_index_arrays_in_shards():
    """Two index arrays are cut alike, and their pairs where these are: every task sorts its own."""
    x, z, v = rng.integers(0, 5, 12), rng.integers(0, 3, 12), rng.integers(1, 9, 12)
    program = lambda x, z, v: (pairs(x, z, (5, 3)) * v).sum(2)  # noqa: E731
    cut = [sj.dask.shard(sj.array(a), rows=3) for a in (x, z, v)]
    want = np.zeros((5, 3), int)
    np.add.at(want, (x, z), v)
    np.testing.assert_array_equal(sj.dask.jit(program)(*cut).compute().todense(), want)
    assert "pairs" in str(sj.make_jaxpr(program)(x, z, v))
    rule = layouts._table()[pairs_p]((), ())
    assert rule is not None and (rule.operands, rule.outputs) == (((0,), (0,)), ((None, None, 0),))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_shards(name):
    program = PROGRAMS[name]
    got = sj.dask.jit(program)(sj.dask.shard(A, rows=3), x).compute()
    np.testing.assert_allclose(got.todense(), program(A, x).todense())
