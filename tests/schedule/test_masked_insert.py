"""Insertions under masks that select, against those that jump and a dense reference: the same bits either way."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax.jit.ir import choices
from tests.fuzz import engine


def _operand(rng, n, dtype):
    made = sp.random_array(
        (n, n), density=0.15, format="csr", rng=rng, data_sampler=lambda size: rng.integers(-4, 5, size)
    )
    return sp.csr_array(made, dtype=dtype)


SEMIRINGS = {
    "plus_times": "float64",
    "or_pair": "bool",
    "min_plus": "float64",
    "max_second": "int32",
    "plus_pair": "int64",
    "any_pair": "float32",
    "max_pair": "int32",
    "min_pair": "float64",
}
ONE = "or_pair", "any_pair", "max_pair", "min_pair"
"""Semirings over which all entries are one constant."""


@pytest.mark.rotating(2)
@pytest.mark.parametrize("workspace", ["bitmap", "marks"])
@pytest.mark.parametrize("complement", [False, True])
@pytest.mark.parametrize("semiring", SEMIRINGS)
@pytest.mark.parametrize("seed", range(3))
def test_selected_as_jumped(semiring, complement, workspace, seed):
    rng = np.random.default_rng([seed, len(semiring)])
    n = int(rng.choice([1, 5, 40, 300]))
    dtype = SEMIRINGS[semiring]
    A = sj.array(_operand(rng, n, dtype))
    x = sj.array(_operand(rng, n, dtype)[[0]].toarray()[0]).asformat("coo")
    mask = (rng.random(n) < rng.choice([0.1, 0.5, 0.9])).astype(np.int32)

    def step(x, A, mask):
        return sj.einsum("i,ij->j", x, A, semiring=semiring, mask=mask, complement=complement, out_format="coo")

    made = {}
    for way, entries in itertools.product(("jump", "select"), ("kept", "one")):
        before = choices.TAKEN["masked_insert", way], choices.TAKEN["entries", entries]
        with sj.config.using(choose=f"masked_insert={way},entries={entries},mask_tests=inserted", workspace=workspace):
            made[way, entries] = sj.jit(step)(x, A, mask)
        assert choices.TAKEN["masked_insert", way] > before[0]
        assert (choices.TAKEN["entries", entries] > before[1]) == (semiring in ONE)
    jumped, *others = made.values()
    for selected in others:
        assert selected.nnz == jumped.nnz
        assert np.array_equal(selected.todense(), jumped.todense())
    full = sj.jit(lambda x, A: sj.einsum("i,ij->j", x, A, semiring=semiring, out_format="coo"))(x, A)
    kept = np.asarray(mask, bool) ^ complement
    wanted = np.where(kept, np.asarray(full.todense()), full.fill_value)
    assert np.array_equal(selected.todense(), wanted)


def test_every_row_of_a_masked_product():
    rng = np.random.default_rng(5)
    A, mask = _operand(rng, 60, "float64"), (rng.random((60, 60)) < 0.3).astype(float)

    def product(A, mask):
        return sj.einsum("ik,kj->ij", A, A, mask=mask, out_format="csr")

    with sj.config.using(choose="masked_insert=select", workspace="bitmap"):
        made = sj.jit(product)(sj.array(A), mask)
    assert np.array_equal(made.todense(), (A @ A).toarray() * mask)


@pytest.mark.parametrize("workspace", ["bitmap", "marks"])
@pytest.mark.parametrize("semiring", ONE)
@pytest.mark.parametrize("seed", range(3))
def test_products_of_one_constant(semiring, workspace, seed):
    rng = np.random.default_rng([seed, len(semiring), 1])
    shapes = [(int(n), int(m)) for n, m in zip(rng.choice([1, 7, 90], 2), rng.choice([3, 70, 200], 2), strict=True)]
    dtype, inner = {"or_pair": "bool", "any_pair": "float32"}.get(semiring, "float64"), shapes[0][1]
    left = sp.random_array(shapes[0], density=0.2, format="csr", rng=rng).astype(dtype)
    right = sp.random_array((inner, shapes[1][1]), density=0.2, format="csr", rng=rng).astype(dtype)
    made = []
    for entries in "kept", "one":
        with sj.config.using(choose=f"entries={entries}", workspace=workspace):
            made.append(
                sj.jit(lambda A, B: sj.einsum("ik,kj->ij", A, B, semiring=semiring, out_format="csr"))(
                    sj.array(left), sj.array(right)
                )
            )
    kept, one = made
    met = (left.astype(bool).astype(int) @ right.astype(bool).astype(int)).toarray() > 0
    assert one.nnz == kept.nnz == met.sum()
    assert np.array_equal(np.asarray(one.todense()), np.where(met, 1, one.fill_value).astype(one.dtype))
    assert np.array_equal(np.asarray(one.todense()), np.asarray(kept.todense()))


def test_negative_zeros_and_nans_stay():
    x = sj.array(np.array([1.0, 1.0])).asformat("coo")
    A = sj.array(
        sp.csr_array((np.array([-0.0, np.nan, 2.0]), (np.array([0, 0, 1]), np.array([0, 1, 1]))), shape=(2, 2))
    )

    def step(x, A, mask):
        return sj.einsum("i,ij->j", x, A, mask=mask, out_format="coo")

    bits = []
    for way in "jump", "select":
        with sj.config.using(choose=f"masked_insert={way}", workspace="bitmap"):
            bits.append(np.asarray(sj.jit(step)(x, A, np.array([1, 0])).todense()).tobytes())
    assert bits[0] == bits[1]


def test_draws_take_every_alternative():
    """They are decided while a kernel is planned, where draws reach."""
    rng = np.random.default_rng(6)
    A, mask = sj.array(_operand(rng, 9, "float64")), rng.random((9, 9)) < 0.5

    def product(A, mask):
        return sj.einsum("ik,kj->ij", A, A, semiring="max_pair", mask=mask, out_format="csr")

    taken = set()
    for seed in range(12):
        choices.TAKEN.clear()
        with sj.config.using(choose=f"random:{seed}", workspace="bitmap"), engine.quick():
            sj.jit(product)(A, mask)
        taken |= {pair for pair in choices.TAKEN if pair[0] in ("masked_insert", "entries")}
    assert taken == {("masked_insert", "jump"), ("masked_insert", "select"), ("entries", "kept"), ("entries", "one")}
