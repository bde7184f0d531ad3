"""Contractions of two dense operands, which BLAS computes: every arrangement of matrices and vectors, transposed or not."""

import itertools

import numpy as np
import pytest

import sparsejax as sj

EXTENTS = {"i": 3, "j": 4, "k": 5}
LEFT, RIGHT = ["ik", "ki", "k", "ii"], ["kj", "jk", "k", "ik", "j", "kk"]


@pytest.mark.parametrize(("left", "right"), list(itertools.product(LEFT, RIGHT)))
def test_arrangements(left, right):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal([EXTENTS[x] for x in labels]) for labels in (left, right))
    labels = sorted(set(left) | set(right))
    outputs = [p for n in range(4) for p in itertools.permutations(labels, n)]
    for output in map("".join, outputs):
        subscripts = f"{left},{right}->{output}"
        made = sj.einsum(subscripts, sj.array(a), sj.array(b))
        np.testing.assert_allclose(made.todense(), np.einsum(subscripts, a, b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("subscripts", ["ik,kj->ij", "ki,kj->ji", "ik,jk->ij"])
def test_broadcast_operands(subscripts):
    rng = np.random.default_rng(1)
    left, right = subscripts.split("->")[0].split(",")
    a = rng.standard_normal([1 if x == "k" else 3 for x in left])
    b = rng.standard_normal([5 if x == "k" else 4 for x in right])
    made = sj.einsum(subscripts, sj.array(a), sj.array(b))
    np.testing.assert_allclose(made.todense(), np.einsum(subscripts, a, b), rtol=1e-12, atol=1e-12)
