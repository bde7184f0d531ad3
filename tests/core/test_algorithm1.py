"""Algorithm 1 of Scorch: its worked examples, and results that do not depend on the scheduler."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax import config
from sparsejax.jit.runtime import plans
from tests.fuzz import definitions
from tests.fuzz.engine import quick


@pytest.fixture
def published():
    config.update("choose", "loop_order=scorch")
    yield
    config.update("choose", "auto")


def matrix(n=60, density=0.1, seed=0, format="csr"):
    return sp.random_array((n, n), density=density, format=format, rng=np.random.default_rng(seed))


def chosen(function, *operands):
    (kernel,) = sj.explain(function)(*operands).kernels
    return "".join(kernel.order)


def test_published_examples(published):
    A, H = matrix(), np.ones((60, 8))
    assert chosen(lambda A, H: A @ H, A, H) == "ikj"
    assert chosen(lambda A, B: A @ B, A, matrix(seed=1)) == "ikj"  # Gustavson's product
    assert chosen(lambda A, B: A @ B, matrix(format="csc"), matrix(format="csc")) == "jki"
    assert chosen(lambda A, x: A @ x, A, np.ones(60)) == "ij"


def test_the_data_do_not_matter(published):
    for density in (0.001, 0.5):
        assert chosen(lambda A, B: A @ B, matrix(density=density), matrix(density=density, format="csc")) == chosen(
            lambda A, B: A @ B, matrix(), matrix(format="csc")
        )


def test_schedulers_do_not_share_plans():
    A, B = sj.array(matrix(100, 0.3)), sj.array(matrix(100, 0.3, 1, "csc"))
    closed = sj.jit(lambda A, B: A @ B).trace(A, B).jaxpr
    (runner,) = plans.plan_of(closed).steps
    for name in ("auto", "loop_order=scorch", "auto"):
        with config.using(choose=name):
            (made,) = plans.execute(closed, [A, B])
        np.testing.assert_allclose(made.todense(), A.todense() @ B.todense())
    with config.using(choose="loop_order=scorch"):
        (other,) = plans.plan_of(closed).steps
    assert [key[3] for r in (runner, other) for key in r.plans] == ["auto", "loop_order=scorch"]


@pytest.mark.rotating(6)
@pytest.mark.parametrize("start", range(0, 120, 40))
def test_random_definitions(published, start):
    """The same differential cases as for the default scheduler, but those with long extents: knowing no data, it may count
    over them."""
    made = (definitions.make(seed) for seed in range(start, start + 40))
    with quick():
        short = [case for case in made if max(case.extents.values(), default=0) <= 100]
        faults = [f for f in map(definitions.check_case, short) if f]
    assert len(short) > 20
    assert not faults, "\n\n".join(faults)


def test_reason_names_the_scheduler(published):
    (kernel,) = sj.explain(lambda A, B: A @ B)(matrix(), matrix()).kernels
    assert kernel.reason.startswith("taken by choose='loop_order=scorch'")
