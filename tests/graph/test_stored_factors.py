"""Divisions and functions of what is broadcast along a sparse array: stored before, or computed for every entry, with the same bits."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config

PROGRAMS = {
    "a division": lambda A, x, y: A * (1 / y),
    "a division of columns": lambda A, x, y: A * (1 / x)[:, None],
    "both": lambda A, x, y: A * (1 / x)[:, None] * (1 / y),
    "a function": lambda A, x, y: A * snp.exp(y) * snp.sqrt(y),
    "one of two vectors": lambda A, x, y: A * (x[: y.shape[0]] / y),
    "of a sum": lambda A, x, y: A / (1 + A.sum(axis=0)) * (1 / A.sum(axis=0)),
    "twice": lambda A, x, y: (A * (1 / y)) @ (1 / y) + (A * (1 / y)).sum(axis=1),
    "by rows and by columns": lambda A, x, y: snp.concatenate([(A * (1 / y)).sum(axis=0), (A * (1 / y)).sum(axis=1)]),
    "no entries": lambda A, x, y: (A * 0 * (1 / (y - y))).sum(axis=1),
    "integers": lambda A, x, y: A.astype(int) * (7 // (y * 3).astype(int)),
    "remainders by zero": lambda A, x, y: (A != 0) * (7 % (y * 0).astype(int)),
    "a grid": lambda A, x, y: A * (1 / (x[:, None] + y)),
    "a gradient": lambda A, x, y: sj.grad(lambda A: ((A * (1 / y) * (1 / snp.sqrt(1 + A.sum(axis=0)))) @ y).sum())(A),
}


@pytest.mark.rotating(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "bsr:2x2", "dense", "ell", "csr float32"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same(name, form):
    rng = np.random.default_rng(sum(map(ord, name + form)))
    form, *dtype = form.split()
    dense = np.where(rng.random((14, 10)) < 0.4, 0.5 + rng.random((14, 10)), 0).astype(*(dtype or [float]))
    A = sj.array(dense, format=form)
    x, y = (0.5 + rng.random(n).astype(dense.dtype) for n in dense.shape)
    run = PROGRAMS[name]
    with config.using(skip={"stored_factors"}):
        wanted = sj.jit(run)(A, x, y)
    for way in ("computed", "stored"):
        with config.using(choose=f"factors={way}"):
            got = sj.jit(run)(A, x, y)
        assert (got.format, got.nnz, got.dtype) == (wanted.format, wanted.nnz, wanted.dtype)
        np.testing.assert_array_equal(got.todense(), wanted.todense())


def _graph(n, count, rng):
    entries = np.unique(rng.integers(0, n * n, count))
    return sj.array((np.ones(len(entries)), (entries // n, entries % n)), shape=(n, n), format="csr")


def test_what_pays_is_stored():
    """A division for every column is stored where there are many entries in it; one for every row, or for few entries, is not."""
    rng = np.random.default_rng(0)
    y = 1 + rng.random(20_000)

    def kernels(function, A):
        return str(sj.explain(function)(A, y[: A.shape[0]])).count("kernel out")

    many, few = _graph(20_000, 400_000, rng), _graph(200, 500, rng)
    by_columns, by_rows = lambda A, y: A * (1 / y), lambda A, y: A * (1 / y)[:, None]
    assert [kernels(by_columns, A) for A in (many, few)] == [2, 1]
    assert [kernels(by_rows, A) for A in (many, few)] == [1, 1]
