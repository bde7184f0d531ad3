"""What is linear in the stored entries stays so under derivatives: operands of a million rows and columns with few entries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax, nn
from sparsejax.core.array import Array
from sparsejax.formats import Format, convert
from tests.autodiff.checks import dense
from tests.fuzz import engine

N, COUNT = 10**6, 200
SMALL = np.random.default_rng(3).permutation(N)[:9]


def hypersparse(form, seed=0):
    rng = np.random.default_rng(seed)
    places = np.unique(rng.integers(0, N * N, COUNT))
    places = np.unique(np.append(places, [5 * N + 5, 5 * N + 7, 9 * N + 5]))
    coords = np.stack(np.unravel_index(places, (N, N)))
    values = rng.uniform(0.3, 1.7, len(places)) * rng.choice([-1, 1], len(places))
    return Array(convert.from_coords(coords, values, (N, N), Format.parse(form, 2), 0.0))


OTHER = hypersparse("csr", 1)
OPERATIONS = {
    "where": lambda A: snp.where(A > 0.5, A, 0.0) * np.full((1, 1), 2.0),
    "union": lambda A: snp.maximum(A, OTHER) + A.T,
    "power": lambda A: (A + 1) ** 2 - 1,
    "spgemm": lambda A: A @ A + A.T @ A,
    "min_plus": lambda A: snp.exp(-sj.einsum("ij,jk->ik", A, A, semiring="min_plus")),
    "sddmm": lambda A: sj.einsum("ij,jk,ik->ij", A, A, A),
    "trace": lambda A: snp.trace(A) * snp.diagonal(A @ A),
    "max": lambda A: A.max() * A.min(),
    "max of columns": lambda A: A.max(axis=0),
    "prod": lambda A: (A + 1).prod(),
    "prod of columns": lambda A: (A + 1).prod(axis=0),
    "std": lambda A: A.std() + A.var(axis=1),
    "norm": lambda A: snp.linalg.norm(A) * A,
    "logsumexp": lambda A: nn.logsumexp(A),
    "softmax": lambda A: nn.softmax(A, 0),
    "sort": lambda A: snp.sort(A, 1),
    "reshape": lambda A: snp.reshape(A, (10**3, 10**9)),
    "ravel": lambda A: snp.ravel(A),
    "concatenate": lambda A: snp.concatenate([A, OTHER], axis=1),
    "repeat": lambda A: snp.repeat(A, 2, axis=0),
    "tile": lambda A: snp.tile(A, (2, 1)),
    "roll": lambda A: snp.roll(A, 3, axis=1),
    "roll of all": lambda A: snp.roll(A, 3),
    "tril": lambda A: snp.tril(A, -1),
    "window": lambda A: A[3:500_000, ::2],
    "gather": lambda A: A[SMALL],
    "at": lambda A: A.at[2:4, 5:7].set(2.0),
    "formats": lambda A: A.asformat("dcsc").asformat("hash").asformat("csr"),
    "loop": lambda A: lax.scan(lambda C, w: (C + (C @ A) * w, C.sum()), A, np.arange(2.0))[0],
    "cond": lambda A: lax.cond(A.sum() > 0, lambda C: C * 2, lambda C: snp.sin(C), A),
    "batch": lambda A: sj.vmap(lambda row: snp.sin(row) * row.sum())(A),
}


USUAL = ("where", "max", "prod", "logsumexp", "concatenate", "repeat", "roll of all", "loop", "batch")
"""What runs by default: others are slow tests."""


def loss(f):
    return lambda A: sum(snp.sum(y * y) for y in sj.tree_util.tree_leaves(f(A)))


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=() if name in USUAL else pytest.mark.slow)
        for name, form in zip(OPERATIONS, itertools.cycle(["dcsr", "coo"]))
    ],
)
def test_derivatives_are_linear_in_entries(name, form):
    """Gradients, and their derivatives along the matrix, agree with differences; nothing is of the size of the matrix."""
    A = hypersparse(form)
    g = loss(OPERATIONS[name])
    with engine.quick():
        first = sj.grad(g)
        made, second = sj.jvp(first, (A,), (A,))
        step = 1e-5
        up, down = (A * (1 + s) for s in (step, -step))
        slope = (float(g(up)) - float(g(down))) / (2 * step)
        bend = (first(up).storage.vals - first(down).storage.vals) / (2 * step)
    np.testing.assert_allclose(float((made * A).sum()), slope, rtol=1e-5, atol=1e-6)
    assert made.nnz == A.nnz and made.format == A.format
    np.testing.assert_allclose(second.storage.vals, bend, rtol=1e-4, atol=1e-4 * np.abs(bend).max(initial=1))


def test_absent_conditions_choose_what_is_absent():
    """Also where the operation is fused with its reader: 0 times infinity is 0 where nothing is stored."""
    A = sj.array(np.diag([1.0, 0.2, 2.0]), format="csr")
    f = lambda A, c: snp.where(A > 0.5, A, 0.0) * c  # noqa: E731
    c = np.full((1, 1), np.inf)
    assert sj.jit(f)(A, c).nnz == f(A, c).nnz == 3
    np.testing.assert_array_equal(dense(sj.jit(f)(A, c)), dense(f(A, c)))
