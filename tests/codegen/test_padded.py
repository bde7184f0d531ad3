"""Walks that add to dense results anywhere: the first places of every segment without asking where it ends, beside place by place, bit by bit."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax import config
from sparsejax.jit.codegen.loops import padded

LENGTHS = {
    "any": lambda rng, n: rng.integers(0, 12, n),
    "few": lambda rng, n: rng.poisson(5, n),
    "alike": lambda rng, n: np.full(n, 5),
    "none behind": lambda rng, n: np.where(np.arange(n) < n - 3, rng.integers(3, 9, n), 0),
    "long": lambda rng, n: rng.integers(0, 60, n),
}


@pytest.fixture(autouse=True)
def of_any_number(monkeypatch):
    monkeypatch.setattr(padded, "MANY", 0)


def matrix(kind, n, m, dtype=np.float64, seed=0):
    """A csc matrix of n columns with lengths of a kind, with infinities."""
    rng = np.random.default_rng(seed)
    counts = np.minimum(LENGTHS[kind](rng, n), m)
    rows = np.concatenate([np.sort(rng.choice(m, c, replace=False)) for c in counts] or [np.zeros(0, int)])
    vals = (rng.standard_normal(counts.sum()) * 8).astype(dtype)
    if np.dtype(dtype).kind == "f":
        vals[rng.random(len(vals)) < 0.01] = np.inf
        vals[rng.random(len(vals)) < 0.05] = -0.0
    return sp.csc_array((vals, rows.astype(np.int32), np.append(0, np.cumsum(counts))), shape=(m, n))


def both(function, *arguments, **chosen):
    """What a function returns in both shapes, under an order of loops that has them."""
    for order in ("cheapest", "dearest"):
        found = []
        for shape in ("padded", "entries"):
            ways = {"loop_shape": shape, "loop_order": order, "copies": "never", **chosen}
            with config.using(choose=",".join(f"{k}={v}" for k, v in ways.items())):
                run = sj.jit(function)
                if shape == "padded" and ": padded" not in run.lower(*arguments).as_text("cin"):
                    break
                found.append(np.asarray(run(*arguments).todense()))
        else:
            return found
    return []


PROGRAMS = {
    "product": lambda A, x: A @ x,
    "sum": lambda A, x: A.sum(axis=1),
    "max": lambda A, x: A.max(axis=1),
    "square": lambda A, x: sj.einsum("ij,ij,j->i", A, A, x),
    "turned": lambda A, x: x @ A.T,
}


@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits(kind, name):
    for n, m in ((900, 70), (300, 300), (40, 9), (265, 5)):
        A, x = sj.array(matrix(kind, n, m)), np.random.default_rng(1).standard_normal(n)
        with np.errstate(all="ignore"):
            a, b = both(PROGRAMS[name], A, x)
        assert a.tobytes() == b.tobytes(), (n, m)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64, np.complex128, bool])
def test_dtypes(dtype):
    A = sj.array(matrix("any", 700, 90, dtype))
    x = np.random.default_rng(1).integers(0, 5, 700).astype(dtype)
    for function in (lambda A, x: A @ x, lambda A, x: A.sum(axis=1)):
        a, b = both(function, A, x)
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("form", ["dcsc", "csc", "csf", "(d,d,c)@(0,2,1)", "(d,c,c)@(2,0,1)", "(c,c,c)@(2,1,0)"])
@pytest.mark.parametrize("chunks", ["whole", "each"])
def test_formats(form, chunks):
    rng = np.random.default_rng(3)
    if "," in form or form == "csf":
        dense = np.where(rng.random((6, 9, 500)) < 0.4, rng.standard_normal((6, 9, 500)), 0)
        A, x = sj.array(dense, format=form), rng.standard_normal(500)
        programs = [
            lambda A, x, e=e: sj.einsum(e, A, x)
            for e in ("ijk,k->ij", "ijk,k->j", "ijk,k->i", "ijk,k->k", "ijk,k->ik", "ijk,k->jk")
        ]
    else:
        A, x = sj.array(matrix("few", 600, 80), format=form), rng.standard_normal(600)
        programs = [lambda A, x: A @ x]
    taken = 0
    for function in programs:
        found = both(function, A, x, chunks=chunks)
        taken += len(found)
        assert len({made.tobytes() for made in found}) <= 1
    assert taken


def test_it_pays(processor):
    processor(True, True)
    run, x = sj.jit(lambda A, x: sj.einsum("ji,j->i", A, x)), np.ones(900)
    for kind, pays in (("few", True), ("long", False)):
        A = sj.array(matrix(kind, 900, 200).T, format="csr")
        assert (": padded" in run.lower(A, x).as_text("cin")) == pays, kind


def test_lengths_are_looked_at(monkeypatch):
    """Blocks of segments of which none is padded, and some, in one array; and the last ones, which nobody looks at."""
    parts = [matrix(kind, n, 60, seed=n) for kind, n in (("alike", 512), ("few", 700), ("long", 300), ("few", 263))]
    A, x = sj.array(sp.hstack(parts, format="csc")), np.random.default_rng(2).standard_normal(1775)
    for dtype, segments, many in ((np.float64, 256, 0), (np.float32, 128, 0), (np.complex64, 256, 3000)):
        monkeypatch.setattr(padded, "SEGMENTS", segments)
        monkeypatch.setattr(padded, "MANY", many)
        a, b = both(lambda A, x: A @ x, A.astype(dtype), x)
        assert a.tobytes() == b.tobytes()
