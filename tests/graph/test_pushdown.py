"""Diagonals of results are computed alone: the same values, entries and types as of the whole, and no more work than they need."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import counting
from sparsejax.jit.runtime import kernels, plans
from tests.fuzz import engine


@pytest.fixture(autouse=True, scope="module")
def quick():
    with engine.quick():
        yield


def matrix(n, m, form, seed, fill=0.0):
    d = (
        np.random.default_rng(seed).integers(0, 3, (n, m))
        * (np.random.default_rng(seed + 9).random((n, m)) < 0.4)
        * 1.0
    )
    if form == "dense":
        return sj.array(d)
    d[d == 0] = fill
    return sj.array(sj.array(d, format="coo", fill_value=fill), format=form)


PROGRAMS = {
    "product": lambda A, B, C, M: A @ B,
    "product and more": lambda A, B, C, M: snp.maximum((A @ B).T * 2 + 1, 0.5),
    "sum": lambda A, B, C, M: snp.exp(A @ B + C),
    "chain": lambda A, B, C, M: A @ B @ C,
    "outer sum": lambda A, B, C, M: sj.einsum("ij,kl->ik", A, B),
    "mask": lambda A, B, C, M: snp.matmul(A, B, mask=M),
    "complement": lambda A, B, C, M: snp.matmul(A, B, mask=M, complement=True),
    "semiring": lambda A, B, C, M: sj.einsum("ij,jk->ik", A, B, semiring="min_plus"),
    "cast": lambda A, B, C, M: (A @ B).astype(np.float32) > 2,
    "where": lambda A, B, C, M: snp.where(A @ B > 1, C, 0.5),
    "broadcast": lambda A, B, C, M: A @ B + C[0],
    "shared": lambda A, B, C, M: (A @ B) * (A @ B),
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_diagonals_of_results(name):
    program = PROGRAMS[name]
    for k, forms in enumerate(
        [("csr", "csr", "csr"), ("csc", "coo", "dense"), ("dense", "dense", "csr"), ("bsr:2x3", "ell", "csc")]
    ):
        A, B, C, M = (
            matrix(*shape, form, k)
            for shape, form in zip([(6, 5), (5, 6), (6, 6), (6, 6)], (*forms, "csr"), strict=True)
        )
        for offset in (0, 2, -5):
            whole = program(A, B, C, M)
            want = snp.diagonal(whole, offset)
            got = sj.jit(lambda *xs, o=offset: snp.diagonal(program(*xs), o))(A, B, C, M)
            np.testing.assert_allclose(got.todense(), want.todense(), rtol=1e-12)
            assert (got.aval, got.nnz) == (want.aval, want.nnz)


def test_diagonals_of_more_dimensions():
    A, B = matrix(4, 5, "csr", 0), sj.array(np.random.default_rng(1).random((3, 5, 4)))
    for axes in ((0, 1), (1, 2), (2, 0), (2, 1)):
        function = lambda A, B, axes=axes: snp.diagonal(sj.einsum("ij,bjk->ibk", A, B).transpose(2, 1, 0), 1, *axes)  # noqa: E731
        want = np.diagonal(np.einsum("ij,bjk->ibk", A.todense(), B.todense()).transpose(2, 1, 0), 1, *axes)
        np.testing.assert_allclose(sj.jit(function)(A, B).todense(), want)


def test_derivatives():
    A, B = matrix(5, 4, "csr", 2), matrix(4, 5, "csc", 3)
    made = sj.jit(sj.grad(lambda A: snp.trace(A @ B)))(A)
    np.testing.assert_allclose(made.todense(), B.todense().T * (A.todense() != 0))
    batch = sj.jit(sj.vmap(lambda x: snp.trace(A @ (x[:, None] * B))))(np.eye(4))
    np.testing.assert_allclose(batch.todense(), [np.trace(A.todense()[:, [k]] @ B.todense()[[k]]) for k in range(4)])


def work(function, *operands):
    """Iterations of all kernels, entries converted and visited before them."""
    traced = sj.jit(function).trace(*operands)
    plan = plans.planned(traced.jaxpr)
    registers, total = plan.registers([x.storage for x in traced._leaves]), 0
    for number, step in enumerate(plan.steps):
        if isinstance(step, kernels.KernelRunner):
            inputs = [registers[k] for k in plan.reads[number]]
            schedule, _ = step.planner.schedule(step.observe(inputs))
            total += counting.run(step.planner.plain, schedule, inputs)[1].work
        plan.step(number, registers)
    return total


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_only_the_diagonal_is_computed(form):
    """A full column makes the product of a matrix with its transpose full: n^2 multiplications, of which the diagonal needs nnz."""
    n = 300
    coords = np.concatenate(
        [np.stack([np.arange(n), np.zeros(n, int)]), np.stack([np.arange(n), (np.arange(n) * 7 + 1) % n])], axis=1
    )
    A = sj.array((np.ones(coords.shape[1]), coords), shape=(n, n), format=form)
    B = sj.array(np.random.default_rng(0).random((n, n)) < 0.005, format="csr").astype(float)
    assert work(lambda A, B: A @ A.T, A, B) > n * n
    for function in (lambda A, B: snp.trace(A @ A.T), lambda A, B: snp.trace(A.T @ A), lambda A, B: snp.diag(A @ B)):
        dense = function(*(np.asarray(x.todense()) for x in (A, B)))
        np.testing.assert_allclose(
            sj.jit(function)(A, B).todense(), dense.todense() if hasattr(dense, "todense") else dense
        )
        assert work(function, A, B) < 16 * (A.nnz + B.nnz) < n * n / 3
