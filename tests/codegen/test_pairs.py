"""Walks over few entries that have two running sums (`loops/reduce`)."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.cost import statistics
from tests.prices import longer_rows


@pytest.fixture(autouse=True, params=["rows", "blocks"])
def few(monkeypatch, gathers, request):
    """Rows by themselves, and in blocks of rows that are alike."""
    monkeypatch.setattr(statistics, "MANY", 1 if request.param == "blocks" else 1 << 15)
    longer_rows(monkeypatch)
    gathers(False)


def alike(rows, entries, dtype="f8"):
    """Rows of so many entries each."""
    rng = np.random.default_rng(rows + entries)
    dense = np.zeros((rows, 40), dtype)
    for row in dense:
        row[rng.choice(40, entries, replace=False)] = rng.integers(1, 5, entries).astype(dtype)
    return dense


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "c8"])
@pytest.mark.parametrize("entries", [0, 1, 2, 3, 4, 5, 7])
def test_rows_of_few_entries(entries, dtype):
    dense = alike(700, entries, dtype)
    A, x = sj.array(dense, format="csr"), (np.arange(40) % 7).astype(dtype)
    np.testing.assert_array_equal(sj.jit(lambda A, x: A @ x)(A, x).todense(), dense @ x)
    np.testing.assert_array_equal(sj.jit(lambda A: snp.sum(A * A, axis=1))(A).todense(), (dense * dense).sum(1))
    if dtype != "c8":
        np.testing.assert_array_equal(sj.jit(lambda A: snp.max(A, axis=1))(A).todense(), dense.max(1))
        np.testing.assert_array_equal(sj.jit(lambda A: snp.min(A - 2, axis=1))(A).todense(), (dense - 2).min(1))


@pytest.mark.parametrize("semiring", ["min_plus", "max_times"])
def test_semirings(semiring):
    dense = alike(300, 4)
    A, x = sj.array(dense, format="csr"), np.arange(40.0)
    made = sj.jit(lambda A, x: sj.einsum("ij,j->i", A, x, semiring=semiring))(A, x).todense()
    assert made.shape == (300,)
    for row, entry in zip(dense, made, strict=True):
        at = np.flatnonzero(row)
        both = row[at] + x[at] if semiring == "min_plus" else row[at] * x[at]
        assert entry == (both.min() if semiring == "min_plus" else max(both.max(), 0))


def test_it_runs(few):
    A, x = sj.array(alike(300, 4), format="csr"), np.arange(40.0)
    text = sj.jit(lambda A, x: A @ x).lower(A, x).as_text("loops")
    assert "step 2:" in text
