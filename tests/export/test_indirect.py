"""Programs with indirect einsums, written down and read again."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.export import deserialize, export

rng = np.random.default_rng(0)
R, K, V, B = rng.integers(0, 5, 30), rng.integers(0, 7, 30), rng.random(30), rng.random((7, 3))
A = sj.array(np.where(rng.random((9, 9)) < 0.4, 1.0, 0), format="csr")

PROGRAMS = {
    "products": lambda V, B: sj.insum("C[R[p],n] += V[p] * B[K[p],n]", C=snp.zeros((5, 3)), R=R, V=V, B=B, K=K),
    "maxima": lambda V, B: sj.insum("C[R[p]] max= V[p]", C=snp.zeros(5), R=R, V=V),
    "derivative of products": lambda V, B: sj.grad(
        lambda V: sj.insum("C[R[p]] *= V[p]", C=snp.ones(5), R=R, V=V).sum()
    )(V),
    "rows": lambda V, B: sj.asarray(B)[K],
    "places of a sparse array": lambda V, B: A[K, R],
    "set": lambda V, B: A.at[K, R].set(V),
    "a sparse index array": lambda V, B: sj.insum("y[p] = exp(B[N[p,q],n])", N=A[:, :7].astype(int), B=B),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_written_down(name):
    program = PROGRAMS[name]
    back = deserialize(export(sj.jit(program))(V, B).serialize())
    np.testing.assert_allclose(back.call(V, B).todense(), program(V, B).todense())
