"""Algorithm 1 of Scorch, the baseline of `benchmarks.asymptotics`: its worked examples; and results that do not depend on the order of loops."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import scorch
from sparsejax import config
from sparsejax.jit.runtime import plans
from tests.fuzz import definitions
from tests.fuzz.engine import quick


def matrix(n=60, density=0.1, seed=0, format="csr"):
    return sp.random_array((n, n), density=density, format=format, rng=np.random.default_rng(seed))


def published(function, *operands):
    closed = sj.jit(function).trace(*map(sj.array, operands)).jaxpr
    (runner,) = plans.plan_of(closed).steps
    return "".join(map(str, scorch.order(runner.plain)))


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
