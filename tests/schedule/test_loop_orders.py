"""Algorithm 1 of Scorch, the baseline of `benchmarks.asymptotics`: its worked examples; and results that do not depend on the order of loops."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import scorch
from sparsejax import config
from sparsejax.formats.levels.runlength import RunLength
from sparsejax.jit.runtime import plans
from tests.fuzz import definitions
from tests.fuzz.engine import quick


def matrix(n=60, density=0.1, seed=0, format="csr"):
    return sp.random_array((n, n), density=density, format=format, rng=np.random.default_rng(seed))


def published(function, *operands):
    closed = sj.jit(function).trace(*map(sj.array, operands)).jaxpr
    (runner,) = plans.plan_of(closed).steps
    return "".join(map(str, scorch.order(runner.planner.plain)))


def test_published_examples():
    A, H = matrix(), np.ones((60, 8))
    assert published(lambda A, H: A @ H, A, H) == "ikj"
    assert published(lambda A, B: A @ B, A, matrix(seed=1)) == "ikj"  # Gustavson's product
    assert published(lambda A, B: A @ B, matrix(format="csc"), matrix(format="csc")) == "jki"
    assert published(lambda A, x: A @ x, A, np.ones(60)) == "ij"


def test_the_data_do_not_matter():
    for density in (0.001, 0.5):
        assert published(
            lambda A, B: A @ B, matrix(density=density), matrix(density=density, format="csc")
        ) == published(lambda A, B: A @ B, matrix(), matrix(format="csc"))


def test_schedulers_do_not_share_plans():
    A, B = sj.array(matrix(100, 0.3)), sj.array(matrix(100, 0.3, 1, "csc"))
    closed = sj.jit(lambda A, B: A @ B).trace(A, B).jaxpr
    (runner,) = plans.plan_of(closed).steps
    for name in ("auto", "loop_order=dearest", "auto"):
        with config.using(choose=name):
            (made,) = plans.execute(closed, [A, B])
        np.testing.assert_allclose(made.todense(), A.todense() @ B.todense())
    with config.using(choose="loop_order=dearest"):
        (other,) = plans.plan_of(closed).steps
    assert [key[3] for r in (runner, other) for key in r.plans] == ["auto", "loop_order=dearest"]


@pytest.mark.rotating(6)
@pytest.mark.parametrize("start", range(0, 120, 40))
def test_random_definitions(start):
    """The same differential cases as for the default scheduler, in the dearest order of loops; but those with long extents, over which it may
    count."""
    made = (definitions.make(seed) for seed in range(start, start + 40))
    with quick(), config.using(choose="loop_order=dearest"):
        short = [case for case in made if max(case.extents.values(), default=0) <= 100]
        faults = [f for f in map(definitions.check_case, short) if f]
    assert len(short) > 20
    assert not faults, "\n\n".join(faults)


def test_reason_names_the_choice():
    with config.using(choose="loop_order=dearest"):
        (kernel,) = sj.explain(lambda A, B: A @ B)(matrix(), matrix()).kernels
    assert kernel.reason.startswith("taken by choose='loop_order=dearest'")


RUNS = {
    "vector": lambda A, X, Y: snp.tril(A) @ X[:, 0],
    "matrix": lambda A, X, Y: snp.triu(A) @ X,
    "from the left": lambda A, X, Y: X.T @ snp.tril(A),
    "several statements": lambda A, X, Y: snp.tril(A) * (X @ Y.T).sum(axis=0) / (1 + snp.tril(A).sum(axis=1)[:, None]),
    "under a mask": lambda A, X, Y: snp.tril(A) * (X @ Y.T),
}


@pytest.mark.parametrize("choose", ["auto", "loop_order=dearest", "copies=once", *map("random:{}".format, range(3))])
@pytest.mark.parametrize("name", RUNS)
def test_runs_are_not_unfolded(name, choose, monkeypatch):
    """A triangle is stored in runs, of n * n / 2 coordinates: no order that would list them is an alternative."""
    rng = np.random.default_rng(0)
    A, X, Y = matrix(), rng.random((60, 4)), rng.random((60, 4))
    want = np.asarray(RUNS[name](sj.asarray(A.todense()), X, Y))
    monkeypatch.setattr(RunLength, "expand", lambda *given: pytest.fail("runs are unfolded"))
    with quick(), config.using(choose=choose):
        got = sj.jit(RUNS[name])(sj.array(A), X, Y)
    np.testing.assert_allclose(np.asarray(snp.asarray(got).todense()), want, rtol=1e-12)


def test_what_is_explained_lists_no_coordinates_of_long_runs():
    A, x = sj.array(matrix(10_000, 1e-3)), np.ones(10_000)
    tracemalloc.start()
    text = str(sj.explain(lambda A, x: snp.tril(A) @ x)(A, x))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "rle" in text
    assert most < 2 * 10_000 * 10_000  # half of these places, eight bytes each, are twice as much
