"""Programs whose computation is one indirect einsum: blocks, graphs, point clouds, equivariant products."""

import importlib

import numpy as np
import pytest

import sparsejax as sj
from benchmarks import datasets
from examples import insum_blocks, insum_equivariant, insum_graphs, insum_pointcloud
from tests.fuzz import engine


@pytest.fixture(autouse=True, scope="module")
def without_optimisation():
    with engine.quick():
        yield


@pytest.mark.parametrize("name", ["blocks", "graphs", "pointcloud", "equivariant"])
def test_program(name, capsys):
    assert importlib.import_module(f"examples.insum_{name}").main(["--quick"]) == 0
    assert "largest difference" in capsys.readouterr().out


def test_a_program_fails_where_results_differ(monkeypatch, capsys):
    """One coefficient is another in the plain computation."""
    right = insum_equivariant.by_paths
    wrong = lambda CG, X, Y, W: right(CG * 1.001, X, Y, W)  # noqa: E731
    monkeypatch.setattr(insum_equivariant, "by_paths", wrong)
    assert insum_equivariant.main(["--quick"]) == 1
    assert "largest difference" in capsys.readouterr().out


def test_rows_of_blocks_are_those_of_bsr():
    dense = np.kron([[1, 0, 1], [0, 0, 0], [0, 1, 0]], np.ones((2, 2), np.float32))
    R, K, V = insum_blocks.rows_of(sj.array(dense, format="bsr:2x2"))
    assert list(R) == [0, 0, 2] and list(K) == [0, 2, 1] and V.shape == (3, 2, 2)


def test_means_of_neighbours_add_up_to_one(tmp_path):
    """Of an npz file with csr parts, and of a list of edges as text."""
    graph = insum_graphs.power_law(40, np.random.default_rng(0))
    np.savez(tmp_path / "a.npz", indptr=graph.indptr, indices=graph.indices, shape=graph.shape)
    np.savetxt(tmp_path / "a.txt", np.array(graph.tocoo().coords).T, fmt="%d", header="from to")
    for name in ("a.npz", "a.txt"):
        found = insum_graphs.read(str(tmp_path / name))
        assert (found != graph[: found.shape[0], : found.shape[1]]).nnz == 0
        sums = insum_graphs.means(found).sum(axis=1)
        np.testing.assert_allclose(sums[sums > 0], 1, rtol=1e-6)


def test_neighbours_of_voxels():
    """Of three voxels, two are side by side, along the last axis."""
    voxels = insum_pointcloud.occupied(np.array([[0, 0, 0], [0, 0, 0.06], [0.3, 0.2, 0.11], [0.3, 0.2, 0.12]]), 0.05)
    assert len(voxels) == 3 and voxels.min() == 1
    N = insum_pointcloud.neighbours(insum_pointcloud.numbers(voxels), *insum_pointcloud.around(voxels))
    rows, places = N.coords
    assert list(zip(rows, places, N.data, strict=True)) == [(0, 13, 0), (0, 14, 1), (1, 12, 0), (1, 13, 1), (2, 13, 2)]
    assert (insum_pointcloud.searched(voxels)[1] >= 0).nonzero()[0].tolist() == [12, 13]


def test_rows_of_features_are_read_where_they_lie():
    graph = insum_graphs.means(insum_graphs.power_law(50, np.random.default_rng(0)))
    told = str(
        sj.explain(insum_graphs.neighbours)(*sj.formats.to_groupcoo(sj.array(graph)), np.ones((50, 4), np.float32))
    )
    assert "gathered in place" in told and "no copy of it is made" in told


@pytest.mark.skipif(datasets.folder() is None, reason="no real data: set SPARSEJAX_DATA to its folder")
def test_coefficients_are_those_of_a_table():
    """Of all paths of l up to 1, as a file made by another program has them."""
    table = insum_equivariant.read(str(datasets.folder() / "cg" / "cg_l1_all.npz")).todense()
    np.testing.assert_allclose(insum_equivariant.coefficients(), table, atol=1e-6)
