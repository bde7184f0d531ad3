"""Values that several kernels compute again, or that are stored: the same results, for gradients of scaled sparse arrays in any format."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config


def _both_degrees(A, x):
    r, c = 1 / snp.sqrt(1 + A.sum(axis=1)), 1 / snp.sqrt(1 + A.sum(axis=0))
    return (r[:, None] * A * c[None, :]) @ x


def _one_degree(A, x):
    d = 1 / snp.sqrt(1 + A.sum(axis=1))
    return (d[:, None] * A * d[None, : A.shape[1]]) @ x if A.shape[0] == A.shape[1] else A @ x


PROGRAMS = {
    "both degrees": _both_degrees,
    "one degree": _one_degree,
    "sums": lambda A, x: (A.sum(axis=1)[:, None] * A * A.sum(axis=0)) @ x,
    "lengths": lambda A, x: (A / snp.sqrt(1 + (A * A).sum(axis=1))[:, None]) @ x,
    "rows and columns": lambda A, x: snp.concatenate([(A * x).sum(axis=0), (A * x).sum(axis=1)]),
    "shifted rows and columns": lambda A, x: snp.concatenate([(A * x + A).sum(axis=0), (A * x + A) @ x]),
    "three readers": lambda A, x: (A * x).sum(axis=0) * ((A * x) @ x).sum() + (A * x).T @ A.sum(axis=1),
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "bsr:2x2", "dense", "ell"])
@pytest.mark.parametrize("way", [None, "again", "apart"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same(name, way, form):
    rng = np.random.default_rng(sum(map(ord, name + form)))
    n, m = (12, 12) if name == "one degree" else (14, 10)
    dense = np.where(rng.random((n, m)) < 0.4, 0.5 + rng.random((n, m)), 0)
    A, x = sj.array(dense, format=form), rng.standard_normal(m)
    run = PROGRAMS[name]

    def loss(A, x):
        made = run(A, x)
        return run(A, x), sj.grad(lambda A, x: (run(A, x) * snp.arange(made.shape[0])).sum(), argnums=(0, 1))(A, x)

    with config.using(skip={"recomputed", "fuse_reductions"}):
        first, wanted = sj.jit(loss)(A, x)
    with config.using(**({} if way is None else {"choose": f"fusion={way}"})):
        value, got = sj.jit(loss)(A, x)
    np.testing.assert_allclose(value.todense(), first.todense(), rtol=1e-12, atol=1e-13)
    for one, other in zip(got, wanted, strict=True):
        assert one.format == other.format and one.nnz == other.nnz
        np.testing.assert_allclose(one.todense(), other.todense(), rtol=1e-11, atol=1e-12)


def test_what_arrives_at_a_product_is_not_stored():
    """A gradient by rows and by columns reads it in two kernels, each of which computes it."""
    rng = np.random.default_rng(0)
    n, count = 5_000, 50_000
    entries = np.unique(rng.integers(0, n * n, count))
    A = sj.array((np.ones(len(entries)), (entries // n, entries % n)), shape=(n, n), format="csr")
    x = rng.standard_normal(n)
    gradient = sj.jit(sj.grad(lambda A: ((A.sum(axis=1)[:, None] * A * A.sum(axis=0)) @ x).sum()))
    text = str(sj.explain(gradient)(A))
    assert "is computed again where it is read" in text
    with config.using(skip={"recomputed"}):
        apart = str(sj.explain(gradient)(A))
    assert apart.count("\nkernel ") == text.count("\nkernel ") + 1
