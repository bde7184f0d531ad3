"""examples/gcn.py on a small graph of three communities: training, both models, the program itself."""

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.special as special

import sparsejax as sj
from examples import gcn
from tests.fuzz import engine


@pytest.fixture(autouse=True, scope="module")
def without_optimisation():
    with engine.quick():
        yield


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """60 nodes in three communities, as a planetoid file."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    joined = rng.random((60, 60)) < np.where(labels[:, None] == labels, 0.25, 0.03)
    adjacency = sp.csr_array(np.triu(joined, 1) | np.triu(joined, 1).T).astype(np.float64)
    own = np.eye(3)[labels].repeat(4, axis=1)
    features = sp.csr_array((rng.random((60, 12)) < np.where(own, 0.8, 0.1)).astype(np.float64))
    order = rng.permutation(60)
    file = tmp_path_factory.mktemp("graph") / "graph.npz"
    parts = {
        f"{p}_{k}": getattr(m, k)
        for p, m in (("adj", adjacency), ("feat", features))
        for k in ("indices", "indptr", "shape", "data")
    }
    np.savez(file, labels=labels, train_idx=order[:15], test_idx=order[15:], **parts)
    return str(file)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_the_program(path, model, capsys):
    assert gcn.main(["--data", path, "--model", model, "--quick", "--seeds", "2", "--hidden", "8"]) == 0
    told = capsys.readouterr().out
    assert "mean test accuracy" in told and ("largest difference" in told) == (model == "gcn")


@pytest.mark.rotating(2)
@pytest.mark.parametrize(("name", "wanted"), [("graph_convolution", 0.8), ("graph_attention", 0.8)])
def test_training(path, name, wanted):
    graph = gcn.planetoid(path)
    A, X = sj.array(gcn.normalised(graph.adjacency)), sj.array(graph.features)
    model = getattr(gcn, name)(8)
    params, times = gcn.train(model, gcn.training_step(model), graph, A, X, 100, seed=0)
    assert len(times) == 100
    assert gcn.accuracy(model.logits(params, None, A, X).todense(), graph) >= wanted


def test_attention_layer_is_dense_attention(path):
    graph = gcn.planetoid(path)
    rng = np.random.default_rng(1)
    X, params = (
        rng.normal(size=(60, 5)),
        {k: rng.normal(size=s) for k, s in (("W", (5, 2, 3)), ("a", (2, 3)), ("b", (2, 3)), ("bias", (2, 3)))},
    )
    made = gcn.attention_layer(params, None, sj.array(graph.adjacency), X, 0.5)
    H = np.einsum("nf,fho->hno", X, params["W"])
    scores = np.einsum("hno,ho->hn", H, params["a"])[:, :, None] + np.einsum("hno,ho->hn", H, params["b"])[:, None]
    scores = np.where(graph.adjacency.todense() != 0, np.where(scores > 0, scores, 0.2 * scores), -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.nan_to_num(special.softmax(scores, axis=2))
    np.testing.assert_allclose(made.todense(), (weights @ H).transpose(1, 0, 2) + params["bias"], rtol=1e-11)


def test_errors(tmp_path, path):
    with pytest.raises(SystemExit):
        gcn.main(["--data", str(tmp_path / "none.npz")])
    with pytest.raises(SystemExit):
        gcn.main(["--data", path, "--epochs", "0"])
