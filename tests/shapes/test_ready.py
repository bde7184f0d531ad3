"""Shapes that come again, served by a trace for many: what is kept of how to call it, beside NumPy and SciPy."""

import contextlib

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.core import roads
from sparsejax.jit.runtime import call_cache


def ranked(P, r):
    new = 0.85 * (P @ r)
    new = new + (1 - new.sum()) / new.shape[0]
    return new, abs(new - r).sum()


PROGRAMS = {
    "a step": ranked,
    "one of two": lambda P, r: (P @ r).sum() + r.max(),
    "as given": lambda P, r: {"r": r, "all": [r + 1, (P @ r).sum()]},
    "a matrix": lambda P, r: (P * r, (P @ r).sum(), r.shape[0]),
    "a view": lambda P, r: (r[1:], (P @ r) * r.sum()),
    "nothing": lambda P, r: ((), {"x": (P @ r) / (1 + abs(r).sum())}),
}


def values(made):
    """The leaves of a result as NumPy arrays."""
    leaves = sj.tree_util.tree_leaves(made)
    return [
        x.todense() if isinstance(x, sj.Array) else x.toarray() if sp.issparse(x) else np.asarray(x) for x in leaves
    ]


def operands(rng, n, form="csr"):
    dense = rng.integers(1, 5, (n, n)) * (rng.random((n, n)) < 0.2) / 4
    return sj.array(dense, format=form), sp.csr_array(dense), rng.integers(1, 5, n) / 4


def same(made, want):
    for a, b in zip(values(made), values(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("form", ["csr", "coo", "csc"])
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_shapes_that_come_again(name, form):
    """Each some times in a row, and later again, on both sides of a bound, until it has a plan of its own."""
    rng, function = np.random.default_rng(0), PROGRAMS[name]
    run = sj.jit(function)
    for n in (20, 25, 30, 41, 25, 70, 30, 25, 20, 140, 25):
        for _ in range(5):
            A, S, r = operands(rng, n, form)
            same(run(A, r), function(S, r))
            same(run(A, snp.asarray(r)), function(S, r))
    A, S, r = operands(rng, 33, form)
    for _ in range(roads.FEW + 4):
        same(run(A, r), function(S, r))


def test_it_is_taken_and_counted(monkeypatch):
    """From the third call of a shape on, as often as shapes are served before they get a plan of their own; not under other settings."""
    made, prepare = [], call_cache.Shapes._prepare
    monkeypatch.setattr(call_cache.Shapes, "_prepare", lambda *args: made.append(args[1][1]) or prepare(*args))
    rng, run = np.random.default_rng(1), sj.jit(ranked)
    for n in (50, 51, 52):
        run(*operands(rng, n)[::2])
    made.clear()
    A, S, r = operands(rng, 55)
    for k in range(20):
        with config.using(workspace="hash") if k == 15 else contextlib.nullcontext():
            same(run(A, r), ranked(S, r))
    assert made[0] == (55, 55, 55)
    assert len(made) <= 3  # once more under other settings, and after them
    shapes = run._shapes
    (shape,) = [s for s in shapes.met if s[1] == (55, 55, 55)]
    assert shape in shapes._ready and shapes.met[shape] < roads.FEW
    for _ in range(roads.FEW):
        same(run(A, r), ranked(S, r))
    assert shape not in shapes._ready and shapes.met[shape] == roads.FEW
    assert any(s[1] == shape[1] for s in shapes._shortcuts)


def test_results_are_not_memory_of_the_caller():
    """An operand of NumPy's that is given back is copied, in every call."""
    run, held = sj.jit(lambda P, r: (r, (P @ r).sum(), (P @ r) + 1)), []
    rng = np.random.default_rng(2)
    for n in (20, 24, 26):
        for k in range(6):
            A, _, r = operands(rng, n)
            held.append((run(A, r)[0], r.copy()))
            r[:] = k
    for mine, want in held:
        np.testing.assert_array_equal(mine.todense(), want)


def test_many_shapes(monkeypatch):
    monkeypatch.setattr(roads, "REMEMBERED", 3)
    rng, run = np.random.default_rng(3), sj.jit(ranked)
    for n in rng.integers(20, 30, 120).tolist():
        A, S, r = operands(rng, n)
        same(run(A, r), ranked(S, r))
    assert len(run._shapes._ready) <= 3
    run.clear_cache()
    assert not run._shapes._ready
