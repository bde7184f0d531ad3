"""What is expected of values that do not exist yet, and how they are stored between kernels: never seen in results."""

from __future__ import annotations

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.array import Array
from sparsejax.formats import convert
from sparsejax.jit.graph import intermediate_storage
from tests.fuzz import engine
from tests.fuzz.levels import OUTPUTS, random_format

CHAINS = {
    "sums of roots": lambda A, B, H: snp.sum(snp.sqrt(snp.absolute(A @ B)), axis=1),
    "column sums of sizes": lambda A, B, H: snp.sum(snp.absolute(A @ B), axis=0),
    "a larger one of two": lambda A, B, H: snp.sum(snp.maximum(A @ B, H), axis=1),
    "a product read twice": lambda A, B, H: snp.sum((C := A @ B) + 0.5 * C, axis=0),
    "a product with a transposed one": lambda A, B, H: snp.einsum("ij,kj->ik", A, A @ B),
    "three factors": lambda A, B, H: snp.sum(snp.absolute(B @ (A @ B)), axis=1),
    "times a dense array": lambda A, B, H: (A @ B) @ H,
    "divided": lambda A, B, H: snp.sum((A @ B) / (1 + H), axis=0),
    "sampled": lambda A, B, H: snp.sum((A @ B) * B, axis=1),
    "a sparse result": lambda A, B, H: (A @ B) + B,
    "where it is positive": lambda A, B, H: snp.sum(snp.where(A @ B > 1, 1.0, 2.0), axis=1),
    "counted": lambda A, B, H: ((A > 0) @ (B > 0)) @ (H > 1),
    "integers": lambda A, B, H: snp.sum((A.astype(int) @ B.astype(int)) * H.astype(int), axis=1),
}
"""Products between kernels, and what reads them."""


def _operands(seed: int, special: bool):
    """Two sparse matrices in random formats, and a dense one."""
    rng, nrng, made = random.Random(seed), np.random.default_rng(seed), []
    for _ in range(2):
        values = nrng.integers(1, 4, (6, 6)) * 1.0
        stored = np.array(np.nonzero(nrng.random((6, 6)) < rng.choice((0.2, 0.6, 1.0))))
        form = random_format(rng, 2, OUTPUTS)
        made.append(Array(convert.from_coords(stored, values[tuple(stored)], (6, 6), form, 0.0)))
    dense = nrng.integers(0, 4, (6, 6)) * 1.0
    if special:
        dense[nrng.random((6, 6)) < 0.3] = nrng.choice([np.inf, np.nan])
    return *made, sj.array(dense)


def _stored_otherwise(function, arrays) -> bool:
    return "is stored" in str(sj.explain(function)(*arrays))


@pytest.mark.rotating(8)
@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("special", [False, True])
def test_results_do_not_depend_on_the_storage_between_kernels(name, special, monkeypatch):
    """Every storage that is possible, whatever it costs, against the types' own."""
    if special and name == "integers":
        pytest.skip("integers are finite")
    prices = {"own": 0}

    def price(steps, known):
        prices["own"] += 1
        return 1e9 / prices["own"]

    with engine.quick(), np.errstate(all="ignore"):
        for seed in range(6):
            arrays = _operands(seed, special)
            monkeypatch.setattr(intermediate_storage, "_price", price)
            monkeypatch.setattr(intermediate_storage, "ROOM", np.inf)
            got = sj.jit(lambda *xs: CHAINS[name](*xs))(*arrays)
            monkeypatch.undo()
            monkeypatch.setattr(intermediate_storage, "_price", lambda steps, known: 1.0)
            want = sj.jit(lambda *xs: CHAINS[name](*xs))(*arrays)
            monkeypatch.undo()
            assert got.aval == want.aval
            assert got.nnz == want.nnz
            np.testing.assert_allclose(got.todense(), want.todense(), rtol=1e-12, err_msg=f"seed {seed}")


def matrix(n: int, each: int, seed: int = 0, form: str = "csr"):
    rng = np.random.default_rng(seed)
    dense = np.zeros((n, n))
    dense[rng.integers(0, n, each * n), rng.integers(0, n, each * n)] = rng.random(each * n)
    return sj.array(dense, format=form)


def test_full_products_are_stored_densely_where_nobody_can_tell():
    assert _stored_otherwise(lambda A: snp.sum(snp.absolute(A @ A), axis=0), [matrix(1000, 30)])
    assert not _stored_otherwise(lambda A: snp.sum(snp.absolute(A @ A), axis=0), [matrix(1000, 3)])


def test_rows_of_a_dense_intermediate_move_into_its_reader():
    A = matrix(400, 30)
    assert len(sj.explain(lambda A: snp.sum(snp.sqrt(A @ A), axis=1))(A).kernels) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda A, x: (A @ A) @ x,  # an absent zero stays 0 times infinity
        lambda A, x: snp.sum((A @ A) / x, axis=1),
        lambda A, x: (A @ A) + A,  # the result shows what is stored
        lambda A, x: A @ A,
    ],
)
def test_products_that_must_not_be_dense(function):
    arrays = matrix(400, 30), np.ones(400)
    assert not _stored_otherwise(function, arrays)


def test_products_with_themselves_transposed():
    """A value that its reader walks in another order than it is made in."""
    A = matrix(400, 1)
    made = sj.jit(lambda A: snp.einsum("ij,kj->ik", A, A @ A))(A)
    dense = A.todense()
    np.testing.assert_allclose(made.todense(), dense @ (dense @ dense).T, rtol=1e-12)


EXPECTED = {
    "elementwise": (lambda A: snp.sin(A), 1.3),
    "transposed": (lambda A: snp.sin(A).T @ snp.ones(2000), 1.3),
    "union": (lambda A: A + A.T, 1.3),
    "product": (lambda A: A @ A, 1.3),
    "chain": (lambda A: snp.sin(A) @ A @ A, 1.6),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_expected_entries(name):
    """Of uniform operands, within a small factor (positions are rounded to powers of two)."""
    function, most = EXPECTED[name]
    A = matrix(2000, 4)
    kernels = [k for k in sj.explain(function)(A).kernels if not k.output_format.is_dense]
    assert kernels
    for k in kernels:
        expected, made = k.entries
        assert max(expected / made, made / expected) < most * 2**0.5


def test_uneven_degrees_are_known_of_what_does_not_exist():
    """exp(A) has the degrees of A, and so its product as many terms as A's own."""
    dense = np.zeros((2000, 2000))
    dense[:, :2] = dense[:2] = 1  # two full rows and columns
    A = sj.array(dense, format="csr")
    told = sj.explain(lambda A: (E := snp.sin(A)) @ (2 * E))(A)
    expected, made = told.kernels[-1].entries
    assert made == 2000**2
    assert expected > made / 4
