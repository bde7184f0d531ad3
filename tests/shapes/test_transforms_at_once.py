"""Derivatives and batches outside `jit`, of arrays whose shapes never came before: after a few shapes nothing is scheduled or compiled, and all
shapes, small ones and those whose extents coincide among them, give what they give where nothing is remembered."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit import pipeline
from sparsejax.jit.runtime import plans
from tests.fuzz import engine

LOSSES = {
    "product": lambda A, x: (A @ x).sum(),
    "squares": lambda A, x: ((A @ x) ** 2).sum() / 3.5,
    "functions": lambda A, x: (snp.tanh(A @ x) * 0.3).sum() + 2 * (x * x).sum(),
    "broadcast": lambda A, x: (A * snp.exp(-x)).sum() + snp.sum(A * A * (x + 1.5)),
    "rows": lambda A, x: snp.sqrt((A * A).sum(1) + 0.5).sum() * x.sum(),
    "relu": lambda A, x: snp.maximum(A @ x, 0.2).sum() + snp.where(x > 0.5, x, 3.0).sum(),
    "outer": lambda A, x: ((A @ x)[:, None] * x).sum(),
    "extremes": lambda A, x: (A @ x).max(initial=0.0) + x.min(initial=1.0),
    "powers": lambda A, x: ((x + 1) ** 3).sum() + (A**2 @ x**1.5).sum(),
    "transposed": lambda A, x: (A.T @ (A @ x) * x).sum(),
    "mean": lambda A, x: snp.mean(snp.sin(x[None, :] * A)) * 2.5,
    "branches": lambda A, x: (A @ x).sum() if A.shape[0] % 2 else (A @ x * x.shape[0]).sum(),
    "differences": lambda A, x: ((x[1:] - x[:-1]) ** 2).sum() + (A @ x)[:1].sum() + x[-1],
    "reversed": lambda A, x: (x[::-1] * x).sum() + (A[::-1, ::-1] @ x[::-1]).sum() + x[::2].sum(),
    "length": lambda A, x: ((A @ x) ** 2).sum() / len(x) + (A @ x).sum() / A.shape[0],
    "joined": lambda A, x: (snp.concatenate([A @ x, x]) ** 2).sum(),
    "counted": lambda A, x: (snp.arange(x.shape[0]) * x).sum() + (A @ snp.ones(A.shape[1])).sum(),
    "parts": lambda A, x: (A[:, 1:] @ x[1:]).sum() + (x[:1] * 3.0).sum(),
    "broadcast to": lambda A, x: (snp.broadcast_to(x, A.shape) * A).sum(),
}
"""Functions of a sparse matrix (n, m) and a vector (m,)."""
PLANNED = ("branches",)
"""Those that make a program of their own of some shapes."""

TRANSFORMS = {
    "grad": lambda f, A, x: sj.grad(f)(A, x),
    "grad of both": lambda f, A, x: sj.value_and_grad(f, (0, 1))(A, x),
    "vjp": lambda f, A, x: sj.vjp(f, A, x)[1](1.5),
    "jvp": lambda f, A, x: sj.jvp(lambda x: f(A, x), (x,), (x * 0.5,)),
    "linearize": lambda f, A, x: sj.linearize(lambda x: f(A, x), x)[1](x),
    "jacrev": lambda f, A, x: sj.jacrev(lambda x: f(A, x) * x)(x),
    "jacfwd": lambda f, A, x: sj.jacfwd(lambda x: f(A, x) * x)(x),
    "vmap": lambda f, A, x: sj.vmap(lambda t: f(A, x * t))(x),
    "vmap of grad": lambda f, A, x: sj.vmap(lambda t: sj.grad(lambda y: f(A, y * t))(x), out_axes=1)(x),
    "vmap of rows": lambda f, A, x: sj.vmap(lambda a: a * f(A, x))(A),
}


def given(rng, n, m, form="csr"):
    dense = np.where(rng.random((n, m)) < 0.4, rng.uniform(0.2, 1, (n, m)), 0)
    return sj.array(dense, format=form), sj.array(rng.uniform(0.2, 1, m))


def told(made):
    leaves = sj.tree_util.tree_leaves(made) if hasattr(sj, "tree_util") else sj.tree.leaves(made)
    return [(str(x.format), x.dtype, x.todense()) for x in map(sj.asarray, leaves)]


@pytest.mark.rotating(24)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_any_shape_gives_what_it_gives_alone(loss, transform):
    rng = np.random.default_rng(len(loss) * len(transform))
    shapes = [
        (5, 7),
        (6, 8),
        (9, 4),
        (7, 7),
        (1, 5),
        (5, 1),
        (2, 3),
        (3, 2),
        (0, 4),
        (11, 13),
        (5, 7),
        (5, 7),
        (8, 8),
        (4, 9),
    ]
    function, run = LOSSES[loss], TRANSFORMS[transform]
    form = ("csr", "coo", "csc", "dense")[int(rng.integers(4))]
    arrays = [given(rng, *shape, form) for shape in shapes]
    with engine.quick():
        sj.clear_caches()
        found = [told(run(function, *pair)) for pair in arrays]
        for pair, made in list(zip(arrays, found, strict=True))[:: 1 + int(rng.integers(3))]:
            sj.clear_caches()
            for (form, dtype, values), (wanted, kind, expected) in zip(made, told(run(function, *pair)), strict=True):
                assert (form, dtype) == (wanted, kind)
                np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.rotating(12)
@pytest.mark.parametrize("loss", [name for name in LOSSES if name not in PLANNED])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_new_shapes_plan_nothing(loss, transform, monkeypatch):
    rng = np.random.default_rng(5)
    sj.clear_caches()
    scheduled, schedule_of = [], pipeline.schedule_of
    monkeypatch.setattr(pipeline, "schedule_of", lambda *a, **k: scheduled.append(a[0]) or schedule_of(*a, **k))
    extents = rng.permutation(range(66, 97))[:16], rng.permutation(range(97, 128))[:16]
    for k, (n, m) in enumerate(zip(*(e.tolist() for e in extents), strict=True)):
        if k == 12:
            scheduled.clear()
        TRANSFORMS[transform](LOSSES[loss], *given(rng, n, m))
    assert len(scheduled) <= 1  # numbers of entries have buckets, too


@pytest.mark.parametrize("form", ["csr", "coo", "dense"])
def test_new_numbers_plan_nothing(form, monkeypatch):
    rng = np.random.default_rng(6)
    A, x = given(rng, 9, 7, form)
    planned, real = [], plans.planned
    monkeypatch.setattr(plans, "planned", lambda *a, **k: planned.append(a) or real(*a, **k))
    for t in rng.random(8).tolist():
        planned.clear()
        loss = lambda A, x, t=t: (snp.maximum(A @ x * t, t / 7) / (t + 2)).sum() + (A * t).sum()  # noqa: E731
        made = told(sj.grad(loss, (0, 1))(A, x))
        if t:
            for (*_, values), (*_, expected) in zip(made, told(sj.jit(sj.grad(loss, (0, 1)))(A, x)), strict=True):
                np.testing.assert_allclose(values, expected, rtol=1e-13)
        del planned[:]
        sj.grad(lambda A, x, t=t: (snp.maximum(A @ x * (t + 3), t / 5) / (t + 1)).sum() + (A * (t + 4)).sum(), (0, 1))(
            A, x
        )
        assert not planned
