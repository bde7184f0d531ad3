"""examples/minibatches.py: sampled means, the loss against NumPy and SciPy, the program itself."""

import numpy as np
import pytest

import sparsejax as sj
from examples import minibatches
from tests.fuzz import engine


@pytest.fixture(autouse=True, scope="module")
def without_optimisation():
    with engine.quick():
        yield


def test_sampled_neighbours_are_neighbours():
    rng = np.random.default_rng(0)
    graph = minibatches.power_law(200, rng)
    nodes = rng.choice(200, 30, replace=False)
    means, reached = minibatches.sampled(graph, nodes, 4, rng, 150)
    np.testing.assert_allclose(means.sum(axis=1), 1)
    assert means.shape == (30, 150) and len(reached) == 150
    assert minibatches.sampled(graph, nodes, 4, rng, 20) is None
    row, column = means.nonzero()
    assert (graph.todense()[nodes[row], reached[column]] != 0).all()


def test_losses_of_batches_of_any_size_are_those_of_numpy():
    rng = np.random.default_rng(1)
    graph, features = minibatches.power_law(300, rng), rng.standard_normal((300, minibatches.FEATURES))
    labels = rng.integers(0, minibatches.CLASSES, 300)
    weights = tuple(
        rng.standard_normal(s)
        for s in ((minibatches.FEATURES, minibatches.HIDDEN), (minibatches.HIDDEN, minibatches.CLASSES))
    )
    loss = sj.jit(minibatches.loss)
    for size in (20, 31, 25, 40):
        batch = minibatches.batch_of(graph, features, labels, (size, None, None), 3, rng)
        got = loss(weights, sj.array(batch.inner), sj.array(batch.outer), batch.features, batch.labels)
        np.testing.assert_allclose(float(got), minibatches.expected(weights, batch))


def test_program(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["minibatches.py", "--quick"])
    assert minibatches.main() == 0
    assert "traced 2 times" in capsys.readouterr().out
