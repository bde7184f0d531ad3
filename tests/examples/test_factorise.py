"""examples/factorise.py: its losses are those of dense models, and all three fits recover models of low rank."""

import gzip
import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from examples import factorise
from tests.autodiff.checks import array
from tests.fuzz import engine


@pytest.fixture(autouse=True, scope="module")
def without_optimisation():
    with engine.quick():
        yield


def low_rank(rng, *shape):
    """A model of rank 2 whose factors are half zeros."""
    factors = [rng.uniform(0.5, 1.5, (n, 2)) * (rng.random((n, 2)) < 0.6) for n in shape]
    return np.einsum("ir,jr,kr->ijk", *factors)


@pytest.mark.parametrize("form", ["csf", "coo", "dense"])
def test_error_is_that_of_the_dense_model(form):
    rng = np.random.default_rng(0)
    X = array(rng, (4, 5, 6), form)
    factors = tuple(rng.normal(size=(n, 3)) for n in X.shape)
    gap = X.todense() - np.einsum("ir,jr,kr->ijk", *factors)
    wanted = np.linalg.norm(gap) / np.linalg.norm(X.todense())
    np.testing.assert_allclose(factorise.relative_error(X, factors).todense(), wanted, rtol=1e-10)


def test_fits_recover_a_low_rank():
    X = sj.array(low_rank(np.random.default_rng(1), 9, 8, 7), format="csf")
    factors, losses = factorise.least_squares(X, 3, 40)
    assert losses[-1] < 1e-3 and all(b <= a + 1e-6 for a, b in itertools.pairwise(losses))
    np.testing.assert_allclose(np.einsum("ir,jr,kr->ijk", *map(np.asarray, factors)), X.todense(), atol=0.02)
    assert factorise.gradient_descent(X, 3, 300, 0.05)[1][-1] < 0.05


def test_completion_fits_stored_entries_only():
    rng = np.random.default_rng(2)
    full = rng.uniform(0.5, 1.5, (12, 2)) @ rng.uniform(0.5, 1.5, (2, 9))
    R = sj.array(sp.csr_array(full * (rng.random((12, 9)) < 0.5)))
    _, losses = factorise.completion(R, 2, 300, 0.05)
    assert losses[-1] < 1e-2 < losses[0]


def test_the_program(tmp_path, capsys):
    rng = np.random.default_rng(3)
    X = low_rank(rng, 6, 5, 4)
    with gzip.open(tmp_path / "x.tns.gz", "wt") as file:
        file.writelines(f"{i + 1} {j + 1} {k + 1} {X[i, j, k]}\n" for i, j, k in zip(*np.nonzero(X), strict=True))
    R = sp.csr_array((rng.random((7, 5)) < 0.5) * 3)
    np.savez(tmp_path / "r.npz", data=R.data, indices=R.indices, indptr=R.indptr, shape=R.shape)
    files = ["--tensor", str(tmp_path / "x.tns.gz"), "--matrix", str(tmp_path / "r.npz")]
    assert factorise.main([*files, "--rank", "2", "--quick"]) == 0
    assert capsys.readouterr().out.count("loss") == 3
    with pytest.raises(SystemExit):
        factorise.main(["--tensor", str(tmp_path / "none.tns")])


def test_loss_curves_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    factorise.plot(str(tmp_path / "losses.png"), {"CP by least squares": [0.5, 0.2], "other": [1.0, 0.1, 0.01]})
    assert (tmp_path / "losses.png").read_bytes().startswith(b"\x89PNG")
