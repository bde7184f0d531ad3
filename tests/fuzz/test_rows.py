"""Kernels of several statements: random programs, and where their reductions are placed."""

import re

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import nn
from tests.fuzz import engine, forced, rows


@pytest.mark.rotating(10)
@pytest.mark.parametrize("start", range(0, 150, 15))
def test_random_programs(start):
    with engine.quick():
        faults = [fault for seed in range(start, start + 15) if (fault := forced.half(rows.check)(seed)) is not None]
    assert not faults, "\n".join(faults)


@pytest.mark.slow
def test_many_random_programs():
    with engine.quick():
        faults = [fault for seed in range(1000, 6000) if (fault := rows.check(seed)) is not None]
    assert not faults, "\n".join(faults)


def softmax(S):
    E = snp.expm1(S)
    return E / snp.sum(E, axis=1, keepdims=True)


A = sj.array(
    np.random.default_rng(0).random((40, 40)) * (np.random.default_rng(1).random((40, 40)) < 0.3), format="csr"
)
X = np.random.default_rng(2).random((40, 8))
PROGRAMS = {
    "sum of sampled products": (lambda A, X: snp.sum(A * (X @ X.T)), 1),
    "row sums of sampled products": (lambda A, X: snp.sum(A * (X @ X.T), axis=1), 1),
    "sparse softmax": (lambda A, X: softmax(A), 1),
    "rows normalised before a product": (lambda A, X: (A / snp.sum(A, axis=1, keepdims=True)) @ X, 1),
    "normalise, log1p": (lambda A, X: snp.log1p(A / snp.sum(A, axis=1, keepdims=True) * 1e4), 1),
    "two reductions in a chain": (lambda A, X: A / snp.sqrt(snp.sum(A * A, axis=1, keepdims=True)), 1),
    "column sums, stored by rows": (lambda A, X: A / snp.sum(A, axis=0, keepdims=True), 2),
    "a sum of everything": (lambda A, X: A / snp.sum(A), 2),
    "sparse attention": (lambda A, X: nn.dot_product_attention(X, X, X, A), 1),
    "softmax of sampled products": (lambda A, X: nn.softmax(sj.einsum("ik,jk->ij", X, X, mask=A)), 1),
    "graph attention": (lambda A, X: nn.softmax(nn.leaky_relu(A * X[:, :1] + A * X[:, 1])) @ X, 1),
    "sum of a masked sparse product": (lambda A, X: snp.sum(A * (A @ A)), 1),
    "rows of a sparse product, normalised": (lambda A, X: nn.softmax(A @ A), 1),
    "an intermediate that is a result": (lambda A, X: (s := snp.sum(A, axis=1, keepdims=True), A / s), 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels(name):
    """How many kernels a program takes; what shares no loop, or is a result, stays apart."""
    function, count = PROGRAMS[name]
    told = sj.explain(function)(A, X)
    assert len(told.kernels) == count
    assert bool(told.kernels[-1].fused) == (count == 1)
    np.testing.assert_allclose(
        *(y.todense() for y in (sj.jit(lambda *a: _last(function(*a)))(A, X), _last(function(A, X)))), rtol=1e-12
    )


def _last(made):
    return made[-1] if isinstance(made, tuple) else made


def test_rows_that_are_read_twice_are_kept():
    """Scores and weights of attention live in lists of one row; a product in no order goes through a workspace that sorts."""
    cin = sj.explain(lambda A, X: nn.dot_product_attention(X, X, X, A))(A, X).kernels[0].cin
    assert cin.count(": append") == 2 and re.match(r"forall i .*\n  where", cin)
    (kernel,) = sj.explain(lambda A: nn.softmax(A @ A))(A).kernels
    assert ": bitmap" in kernel.cin or ": marks" in kernel.cin
    assert any("moves in: cost" in text and "apart" in text for text in kernel.fused)


def test_what_a_mask_keeps_is_found_in_scattered_rows():
    """Triangles: elements of the product are computed where the mask has entries, each by looking up a row in a scattered one."""
    B = sj.array(np.ones((800, 800)) * (np.random.default_rng(3).random((800, 800)) < 0.02), format="csr")
    (kernel,) = sj.explain(lambda A: snp.sum(A * (A @ A)))(B).kernels
    assert "scattered" in kernel.cin and "j: led by A" in str(kernel), kernel
    assert kernel.cin.index("scattered") < kernel.cin.index("forall j")


def test_rows_are_walked_where_they_are_shared():
    with sj.config.using(choose="fusion=together"):
        text = sj.jit(softmax).lower(A).as_text("cin")
    assert [line.partition("   #")[0] for line in text.splitlines()[:4]] == [
        "forall i",
        "  where w: overlay float64",
        "    forall j",
        "      w[@A[i,j]] = expm1(A[i,j])",
    ]


def test_costs_are_shown():
    (kernel,) = sj.explain(softmax)(A).kernels
    assert len(kernel.fused) == 2 and all("moves in: cost" in x and "apart" in x for x in kernel.fused)
