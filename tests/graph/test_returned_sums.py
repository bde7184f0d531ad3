"""Gradients by arrays that are repeated: every entry gets the sum of what its copies get, in every format."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit import pipeline
from tests import rotation

N, M = 6, 5
RNG = np.random.default_rng(3)
W = RNG.random((4 * N, 4 * M))
FORMS = ["csr", "csc", "coo", "dcsr", "(c,d)", "bitmap", "ell", "hash", "(d,n)"]
REPEATED = {
    "tile rows": lambda A: snp.tile(A, (3, 1)),
    "tile columns": lambda A: snp.tile(A, (1, 3)),
    "tile": lambda A: snp.tile(A, (2, 3)),
    "repeat rows": lambda A: snp.repeat(A, 3, axis=0),
    "repeat columns": lambda A: snp.repeat(A, 3, axis=1),
    "repeat": lambda A: snp.repeat(snp.repeat(A, 2, axis=1), 2, axis=0),
    "broadcast": lambda A: snp.broadcast_to(A[:, None], (N, 3, M)).sum(1) * snp.broadcast_to(A[None], (2, N, M))[1],
    "of a product": lambda A: snp.tile(A * A, (1, 2)) * snp.repeat(snp.sin(A), 2, axis=1),
}
ENDS = {
    "@": lambda B: (B @ W[: B.shape[1], :3]).sum(),
    "squares": lambda B: (B * B * W[: B.shape[0], : B.shape[1]]).sum(),
    "rows": lambda B: (B.sum(1) ** 2).sum(),
}


@pytest.mark.parametrize(("form", "name", "end"), rotation.share(list(itertools.product(FORMS, REPEATED, ENDS)), 10))
def test_gradients(form, name, end):
    dense = np.where(RNG.random((N, M)) < 0.4, 0.5 + RNG.random((N, M)), 0.0)
    A = sj.array(dense, format=form)

    def loss(A):
        return ENDS[end](REPEATED[name](A))

    wanted = np.where(dense != 0, sj.grad(loss)(sj.array(dense)).todense(), 0)
    for choose in ("auto", "random:1", "random:2"):
        with sj.config.using(choose=choose):
            made = sj.jit(sj.grad(loss))(A).todense()
            np.testing.assert_allclose(made * (dense != 0), wanted, rtol=1e-12)
    second = sj.jit(sj.grad(lambda A: (sj.grad(loss)(A) * A).sum()))
    whole = sj.grad(lambda A: (sj.grad(loss)(A) * A).sum())(sj.array(dense)).todense()
    np.testing.assert_allclose(
        second(A).todense() * (dense != 0), np.where(dense != 0, whole, 0), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("name", ["tile rows", "tile columns", "repeat rows", "repeat columns"])
def test_nothing_is_searched(name):
    A = sj.array(np.eye(N, M), format="csr")
    jaxpr = pipeline.cleaned(sj.make_jaxpr(sj.grad(lambda A: ENDS["@"](REPEATED[name](A))))(A).jaxpr)
    assert any(e.primitive.name == "returned" for e in jaxpr.eqns), str(jaxpr)


@pytest.mark.parametrize("form", ["csr", "coo", "dcsr", "ell"])
def test_masks_that_have_a_witness(form):
    dense = np.where(RNG.random((N, M)) < 0.4, 0.5 + RNG.random((N, M)), 0.0)
    weights = RNG.random((3, 1, 1))

    def loss(A):
        return (snp.broadcast_to(A * W[:N, :1] * snp.sin(A), (3, N, M)) * weights).sum()

    wanted = np.where(dense != 0, sj.grad(loss)(sj.array(dense)).todense(), 0)
    made = sj.jit(sj.grad(loss))(sj.array(dense, format=form)).todense()
    np.testing.assert_allclose(made * (dense != 0), wanted, rtol=1e-12)
