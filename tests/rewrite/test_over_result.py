"""Dense workspaces in the memory of the result: when that is legal, and the same numbers as NumPy's."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.runtime import kernels, plans
from tests.fuzz import engine


def matrix(form="csr", dtype="f8", shape=(30, 40)):
    rng = np.random.default_rng(4)
    dense = (rng.integers(-9, 9, shape) * (rng.random(shape) < 0.2)).astype(dtype)
    return sj.array(dense, format=form), dense


def resting(function, *operands):
    """The workspaces in memory of results, of all kernels of a program."""
    traced = sj.jit(function).trace(*operands)
    storages = [sj.array(x, copy=True).storage for x in operands]
    plan = plans.planned(traced.jaxpr, storages)
    registers, found = plan.registers(storages), []
    for number, step in enumerate(plan.steps):
        if isinstance(step, kernels.KernelRunner):
            inputs = [registers[k] for k in plan.reads[number]]
            found += step.planner.schedule(step.observe(inputs))[1].resting
        plan.step(number, registers)
    return found


PROGRAMS = {
    "function of a sum": lambda A, x, y: snp.maximum(x @ A, 0),
    "beside another operand": lambda A, x, y: y - x @ A,
    "of another dtype": lambda A, x, y: snp.where(snp.count_nonzero(A, axis=0) > 1, y, 0.5),
    "twice": lambda A, x, y: (x @ A) * (x @ A) + y,
    "extreme": lambda A, x, y: snp.max(A, axis=0),
    "place": lambda A, x, y: snp.argmax(A, axis=0),
    "two sums": lambda A, x, y: (x @ A) / (1 + snp.count_nonzero(A, axis=0)),
    "smaller elements": lambda A, x, y: x @ A > 0,
    "larger elements": lambda A, x, y: snp.any(A, axis=0) + y,
    "matrix": lambda A, x, y: snp.maximum(A.T @ np.outer(x, np.arange(5.0)), 0),
    "entries of the result": lambda A, x, y: A * (x @ A),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_results_are_numpys(form, name):
    A, dense = matrix(form)
    rng = np.random.default_rng(1)
    x, y = rng.integers(-5, 5, 30).astype(float), rng.integers(-5, 5, 40).astype(float)
    wanted = {
        "function of a sum": np.maximum(x @ dense, 0),
        "beside another operand": y - x @ dense,
        "of another dtype": np.where(np.count_nonzero(dense, axis=0) > 1, y, 0.5),
        "twice": (x @ dense) ** 2 + y,
        "extreme": dense.max(axis=0),
        "place": dense.argmax(axis=0),
        "two sums": (x @ dense) / (1 + np.count_nonzero(dense, axis=0)),
        "smaller elements": x @ dense > 0,
        "larger elements": np.any(dense, axis=0) + y,
        "matrix": np.maximum(dense.T @ np.outer(x, np.arange(5.0)), 0),
        "entries of the result": dense * (x @ dense),
    }[name]
    for skip in ((), ("over_result",), ("vectorize",), ("contract_arrays", "assigned_once")):
        with engine.quick(), sj.config.using(skip=skip):
            function = sj.jit(PROGRAMS[name])
            for _ in range(3):  # results lie where earlier ones were
                assert np.allclose(function(A, x, y).todense(), wanted, rtol=1e-14, atol=0), skip


def test_what_is_legal():
    A, _ = matrix()
    x, y = np.ones(30), np.ones(40)
    assert resting(PROGRAMS["function of a sum"], A, x, y)
    assert resting(PROGRAMS["of another dtype"], A, x, y)
    assert len(resting(PROGRAMS["two sums"], A, x, y)) <= 1 + len(resting(PROGRAMS["function of a sum"], A, x, y))
    assert not resting(PROGRAMS["smaller elements"], A, x, y)  # what is eight bytes does not fit into one
    assert not resting(PROGRAMS["entries of the result"], A, x, y)
    with sj.config.using(skip=("over_result",)):
        assert not resting(PROGRAMS["function of a sum"], A, x, y)


def test_donated_memory_is_not_that_of_the_workspace():
    A, dense = matrix()
    x = np.arange(30.0)
    step = sj.jit(lambda y, A, x: y - x @ A, donate_argnums=0)
    for k in range(4):
        y = snp.asarray(np.arange(40.0)) + k
        assert np.array_equal(step(y, A, x).todense(), np.arange(40.0) + k - x @ dense)
