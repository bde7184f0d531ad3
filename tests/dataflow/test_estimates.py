"""Estimated words of outputs, and how rows are drawn."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import matrices
from sparsejax.dataflow import contraction, outputs, products
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.outputs import Outputs

CASES = {
    "uniform": lambda: matrices.uniform(3000, 2000, 40_000),
    "power law": lambda: matrices.rmat(11, 30_000),
    "stencil": lambda: matrices.stencil(14),
    "band": lambda: sp.csr_array(sp.diags_array(np.ones(40), offsets=np.arange(40) - 20, shape=(1500, 1500))),
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("order", ["ikj", "ijk"])
def test_outputs_are_estimated_closely(name, order):
    A = sj.array(CASES[name]())
    for tiles in ({"i": 128, "k": 128, "j": 128}, {"i": 512, "k": 32, "j": 512}, {"i": 3000, "k": 256, "j": 3000}):
        exact = sj.traffic(lambda A: A @ A.T, tiles, order=order, exact=True)(A)
        told = sj.traffic(lambda A: A @ A.T, tiles, order=order)(A)
        assert told.words[:-1] == exact.words[:-1]
        assert told.words[-1] == pytest.approx(exact.words[-1], rel=0.12)
        assert exact.exact and not told.exact


@pytest.mark.parametrize("work", [1 << 10, 1 << 13])
def test_drawn_rows_estimate_without_bias(work, monkeypatch):
    rng = np.random.default_rng(0)
    a, b = ((rng.random((400, 300)) < 0.1 * rng.random(300)), (rng.random((300, 512)) < 0.1))
    left, right = (products.Rows(m.indptr.astype(np.int64), m.indices) for m in map(sp.csr_array, (a, b)))
    ends = products.running_multiplications(left, right)
    true = products.count(left, right, 512)
    assert true == sp.csr_array(a.astype(int) @ b.astype(int)).nnz
    seeds = iter(range(30))
    fresh = np.random.default_rng
    monkeypatch.setattr(outputs.np.random, "default_rng", lambda _: fresh(next(seeds)))
    found = [outputs.estimated(left, right, 512, work, ends) for _ in range(30)]
    assert np.mean(found) == pytest.approx(true, rel=0.04)
    assert np.std(found) > 0  # something was drawn


def test_products_in_batches(monkeypatch):
    rng = np.random.default_rng(3)
    a, b = sp.csr_array(rng.random((200, 150)) < 0.2), sp.csr_array(rng.random((150, 170)) < 0.2)
    left, right = (products.Rows(m.indptr.astype(np.int64), m.indices) for m in (a, b))
    monkeypatch.setattr(products, "AT_ONCE", 5000)
    assert products.count(left, right, 170) == sp.csr_array(a.astype(int) @ b.astype(int)).nnz


def test_a_result_that_stays_counts_once():
    A = sj.array(CASES["stencil"]())
    made = contraction.of(lambda A: A @ A.T, (A,), {})
    nest = Nest(tuple("ijk"), {"i": 1, "j": 1, "k": 100})
    count = Outputs(made, nest.order).count(nest, (), exact=True)
    assert count == (A @ A.T).nnz


@pytest.mark.parametrize("expression", ["ik,kj->ij", "ik,k->i", "ikl,klj->ij"])
def test_tiles_that_meet_in_no_coordinate_make_nothing(expression):
    rng = np.random.default_rng(0)
    extents = {"i": 40, "j": 30, "k": 60, "l": 3}
    arrays = [(rng.random([extents[v] for v in t]) < 0.3).astype(float) for t in expression.split("->")[0].split(",")]
    arrays[0][:, 0::2] = 0
    for kept in (slice(0, None, 2), slice(0, None, 3)):  # no k in common, some
        second = np.zeros_like(arrays[1])
        second[kept] = arrays[1][kept]
        operands = [sj.array(a, format="coo") for a in (arrays[0], second)]
        for levels in (
            [{"k": 7}],
            [{"k": 7, "j": 5}],
            [{"i": 6, "k": 7}],
            [{"k": 14}, {"k": 7}],
            [{"k": 14, "i": 20}, {"k": 2, "i": 5}],
        ):
            levels = [{v: t for v, t in x.items() if v in expression} for x in levels]
            wanted, told = (
                sj.traffic(
                    lambda *xs: sj.einsum(expression, *xs),
                    translated(expression, levels),
                    [9999] * len(levels),
                    exact=e,
                )(*operands)
                for e in (True, False)
            )
            assert [x.words for x in told.levels] == [x.words for x in wanted.levels]  # of few rows all are looked at


def translated(expression, levels):
    """Tiles by the names that the analysis gives: the result's variables first."""
    terms, output = expression.split("->")
    names = dict(zip(dict.fromkeys(output + terms.replace(",", "")), "ijklm", strict=False))
    return [{names[v]: t for v, t in x.items()} for x in levels]
