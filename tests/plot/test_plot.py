"""Plots have what they should show; nothing here depends on how long something takes."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.plot import Roof, measured_roof, roofline, spy, tasks

matplotlib = pytest.importorskip("matplotlib")
pyplot = pytest.importorskip("matplotlib.pyplot")
matplotlib.use("Agg")


@pytest.fixture
def ax():
    figure, made = pyplot.subplots()
    yield made
    pyplot.close(figure)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dense", "dia", "ell", "groupcoo:2", "bsr:2x2"])
def test_spy_shows_where_entries_are(form, ax):
    A = sj.array(np.diag(np.arange(1.0, 9)), format=form)
    assert spy(A, ax=ax) is ax
    shown = ax.images[0].get_array()
    assert shown.shape == (8, 8) and ax.get_ylim() == (7.5, -0.5)
    assert (np.diag(shown) > 0).all() and (form == "bsr:2x2" or (shown > 0).sum() == 8)
    assert form in ax.get_xlabel() or form == "dense"


def test_spy_of_any_shape(ax):
    spy(np.arange(50), ax=ax)
    spy(sj.array(np.ones((2, 3, 4)), format="csf"), ax=ax, cmap="Blues")
    spy(sj.array(([1.0, 2.0], [[5, 10**11], [7, 3]]), shape=(10**12, 9)), cells=10, ax=ax)
    assert [image.get_array().shape for image in ax.images] == [(1, 50), (3, 4), (10, 9)]
    with pytest.raises(ValueError, match="no dimensions"):
        spy(np.float64(1))


def test_functions_under_a_roof(ax):
    A = sj.array(np.eye(50), format="csr")
    roof = Roof(1e10, 1e11)
    made = roofline(lambda A, X: A @ X, A, np.ones((50, 4)), roof=roof, ax=ax, label="product")
    assert made.roof is roof and made.ax is ax and made.speed > 0
    assert made.share == made.speed / min(1e11, 1e10 * made.intensity)
    cost = sj.jit(lambda A, X: A @ X).lower(A, np.ones((50, 4))).cost_analysis()
    assert made.intensity == cost["flops"] / cost["bytes accessed"]
    (line,) = ax.lines
    assert line.get_xydata().tolist() == [[made.intensity, made.speed / 1e9]] and line.get_label() == "product"
    with pytest.raises(ValueError, match="0 operations"):
        roofline(lambda A: A.T, A, roof=roof)


def test_a_roof_can_be_measured():
    roof = measured_roof("f4", nbytes=1 << 16, order=64)
    assert roof.bandwidth > 0 and roof.peak > 0 and roof.at(1e9) == roof.peak
    made = roofline(lambda x: x + 1, np.ones(100), roof=roof)
    assert len(made.ax.lines) == 2
    pyplot.close(made.ax.figure)


def test_task_graphs(ax):
    pytest.importorskip("dask.array", reason="dask is not installed: pip install 'sparsejax[dask]'")
    sd = pytest.importorskip("sparsejax.dask")
    A = sd.shard(sj.array(np.tri(40), format="csr"), rows=3)
    made = sd.jit(lambda A, x: (A @ x, A.sum(axis=0)))(A, np.ones(40))[1]
    assert sj.plot.task_graph(made, ax=ax) is ax
    told = [text.get_text() for text in ax.texts]
    needs = tasks.needed(dict(made.__dask_graph__()), made.__dask_keys__())
    assert len(told) == len(needs) < len(made.__dask_graph__())  # nothing of the other result
    assert len(ax.lines) == sum(map(len, needs.values()))
    depth = tasks.depths(needs)
    assert all(depth[k] > depth[n] for k, own in needs.items() for n in own)
    assert any(t.startswith("shard") for t in told)
