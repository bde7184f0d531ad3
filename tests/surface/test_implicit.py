"""Centred sparse matrices that are only multiplied: no dense copy, the same numbers, the same derivatives."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.lax import implicit
from sparsejax.transforms import staging

RNG = np.random.default_rng(0)
DENSE = RNG.normal(size=(12, 8)) * (RNG.random((12, 8)) < 0.3)
A = sj.array(DENSE, format="csr")
MU, NU = DENSE.mean(0), DENSE.mean(1)
V, U = RNG.normal(size=(8, 3)), RNG.normal(size=(12, 3))

PROGRAMS = {
    "right": lambda m, A: (A - MU) @ V,
    "left": lambda m, A: U.T @ (A - MU),
    "transposed": lambda m, A: (A - MU).T @ U,
    "plus": lambda m, A: (MU + A) @ V,
    "reversed": lambda m, A: (MU - A) @ V[:, 0],
    "rows": lambda m, A: (A - NU[:, None]) @ V,
    "rows_transposed": lambda m, A: (A - NU[:, None]).T @ U,
    "number": lambda m, A: (A - m.mean(A)) @ V,
    "einsum": lambda m, A: m.einsum("ij,jk,ik->k", A - MU, V, U),
    "gram": lambda m, A: (A - MU).T @ (A - MU),
    "twice": lambda m, A: ((A - MU) @ V, (A - MU) * 2)[0],
}


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(implicit, "LARGE", 1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    program = PROGRAMS[name]
    want = program(np, DENSE)
    np.testing.assert_allclose(sj.jit(lambda A: program(snp, A))(A).todense(), want, rtol=1e-12, atol=1e-13)
    if name not in ("right", "rows_transposed", "einsum"):
        return
    slope = sj.jit(sj.grad(lambda A: snp.sum(snp.sin(program(snp, A)))))(A).todense()
    whole = sj.grad(lambda A: snp.sum(snp.sin(program(snp, A))))(sj.array(DENSE)).todense()
    np.testing.assert_allclose(slope, np.where(DENSE != 0, whole, 0), rtol=1e-9, atol=1e-12)
    both = sj.vmap(lambda s: program(snp, A * s))(np.array([1.0, 2.0])).todense()
    np.testing.assert_allclose(both[1], program(np, 2 * DENSE), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["right", "left", "transposed", "plus", "reversed", "rows", "einsum"])
def test_nothing_dense_is_made(name):
    jaxpr = staging.clean(sj.make_jaxpr(lambda A: PROGRAMS[name](snp, A))(A).jaxpr)
    shapes = [v.aval.shape for eqn in jaxpr.eqns for v in eqn.outputs if v.aval.is_dense]
    assert shapes and (12, 8) not in shapes and (8, 12) not in shapes
