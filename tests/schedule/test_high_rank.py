"""Arrays of many dimensions: the search for loop orders stays short, and finds orders that follow the storage."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.jit.schedule import search


@pytest.mark.parametrize("form", ["coo", "csf"])
@pytest.mark.parametrize("rank", [7, 12, 18])
def test_the_search_is_short(rank, form, monkeypatch):
    tried = []
    extend = search.Model.extend
    monkeypatch.setattr(search.Model, "extend", lambda *args: tried.append(1) or extend(*args))
    rng = np.random.default_rng(rank)
    coords, values = rng.integers(0, 2, (rank, 3)), np.array([1.0, 2.0, 4.0])
    a = sj.array((values, tuple(coords)), shape=(2,) * rank).asformat(form)
    assert a.sum().todense() == 7
    doubled = a * 2
    assert doubled.format == a.format and doubled.sum().todense() == 14
    assert len(tried) < 3 * 40 * rank**2


def test_reductions_of_many_dimensions():
    rng = np.random.default_rng(0)
    x = np.where(rng.random((2,) * 9) < 0.1, rng.integers(1, 9, (2,) * 9), 0).astype(float)
    for form in ("coo", "csf"):
        a = sj.array(x, format=form)
        np.testing.assert_array_equal(a.sum(axis=(1, 3, 8)).todense(), x.sum(axis=(1, 3, 8)))
        np.testing.assert_array_equal((a + a.transpose(tuple(range(9))[::-1])).todense(), x + x.T)


@pytest.mark.parametrize("transposed", [False, True])
def test_results_beyond_the_cache_are_written_row_by_row(transposed):
    """dense @ csr: with the reduction outermost, every entry of the result would be fetched again for every row of the matrix."""
    n = 20_000
    rng = np.random.default_rng(0)
    a = sj.array((np.ones(200_000), (rng.integers(0, n, 200_000), rng.integers(0, n, 200_000))), shape=(n, n)).asformat(
        "csr"
    )
    h = np.ones((n, 128)).T if transposed else np.ones((128, n))
    text = sj.jit(lambda h, a: h @ a).lower(h, a).as_text("cin")
    assert next(line.split()[1] for line in text.splitlines() if "forall" in line) in ("i", "j")
