"""What operators cost: as many as values, or as many as vectors."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format
from sparsejax.jit.cost import operator_counts
from sparsejax.jit.cost.machines import GRANITE_RAPIDS
from sparsejax.jit.ir import cin

I = cin.IndexVar("i")
X = cin.Access(cin.Tensor("x", (8,), np.dtype("f8"), Format.parse("dense", 1), np.float64(0)), (I,))


@pytest.mark.parametrize("name, alone", [("sqrt", True), ("floor", True), ("exp", False), ("log1p", False)])
def test_elementary_functions_cost_vectors_and_other_operators_values(name, alone):
    cost = operator_counts.nanoseconds([cin.Call(name, (X,), X.dtype)], 1.0, GRANITE_RAPIDS)
    each = GRANITE_RAPIDS.function
    assert cost == {frozenset([I]): (0.0, each, 0.0) if alone else (0.0, 0.0, each)}


@pytest.mark.parametrize("function, kernels", [(snp.sqrt, 1), (snp.exp, 2)])
def test_roots_of_sums_are_computed_beside_the_sums_that_they_scale(function, kernels):
    A = sj.asarray(sp.random_array((20_000, 20_000), density=5e-4, format="csr", rng=np.random.default_rng(1)))
    with sj.config.using(machine="granite_rapids"):
        text = "\n" + str(sj.explain(lambda A, x: function(A @ x)[:, None] * (A @ x[:, None]))(A, np.ones(20_000)))
    assert text.count("\nkernel ") == kernels, text
