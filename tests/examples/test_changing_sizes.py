"""Programs whose arrays change their sizes: cross-validation, mesh refinement, triplets that stream."""

import importlib

import numpy as np
import pytest

import sparsejax as sj
from examples import crossvalidation, refinement, streaming
from tests.fuzz import engine


@pytest.fixture(autouse=True, scope="module")
def without_optimisation():
    with engine.quick():
        yield


@pytest.mark.parametrize("name", ["crossvalidation", "refinement", "streaming"])
def test_program(name, capsys):
    assert importlib.import_module(f"examples.{name}").main(["--quick"]) == 0
    told = capsys.readouterr().out
    assert "largest difference" in told
    assert name != "crossvalidation" or "traced 2 times" in told


def test_folds_are_a_partition_of_different_sizes():
    parts = crossvalidation.folds(100, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(100))
    assert len({len(p) for p in parts}) > 2


def test_assembled_elements_are_the_tridiagonal_matrix():
    A, b = refinement.assembled(np.linspace(0, 1, 6))
    np.testing.assert_allclose(A.todense(), 5 * (2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1)))
    assert b.shape == (4,)


def test_refined_elements_are_halved_where_the_solution_bends():
    nodes = np.linspace(0, 1, 11)
    finer = refinement.refined(nodes, np.maximum(nodes - 0.5, 0))
    assert set(np.round(nodes, 12)) < set(np.round(finer, 12))
    assert abs(np.setdiff1d(np.round(finer, 12), np.round(nodes, 12)) - 0.5).max() < 0.2


def test_grown_matrices_keep_their_entries():
    A = sj.array(np.eye(2), format="csr")
    B = streaming.grown(A, (3, 4))
    assert B.nnz == 2 and str(B.format) == "csr"
    np.testing.assert_array_equal(B.todense(), np.eye(3, 4) * [[1], [1], [0]])
