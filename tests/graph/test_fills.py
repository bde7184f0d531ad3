"""Sums over operands whose fill is not zero cost what is stored, not what could be; their results are those of the plain sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import counting
from sparsejax.core import jaxpr as jaxprs
from sparsejax.core.array import Array
from sparsejax.formats import Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import split_fills
from sparsejax.jit.runtime import kernels, plans
from sparsejax.jit.runtime.plan import Plan
from sparsejax.lax.rounds import Body
from sparsejax.transforms import staging
from tests.fuzz import engine
from tests.fuzz import fills as programs


@pytest.fixture
def always(monkeypatch):
    """Sums are taken apart whatever it costs."""
    monkeypatch.setattr(split_fills, "SHARE", np.inf)


@pytest.mark.rotating(20)
@pytest.mark.parametrize("start", range(0, 90, 30))
def test_random_sums(start, always):
    with engine.quick():
        faults = [f for f in map(programs.check, range(start, start + 30)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(24)
@pytest.mark.parametrize("start", range(0, 60, 30))
def test_random_sums_of_special_values(start, always):
    with engine.quick():
        faults = [f for f in map(programs.check_special, range(start, start + 30)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.slow
def test_many_random_sums(always):
    with engine.quick():
        faults = [f for seed in range(1000, 6000) if (f := programs.check(seed) or programs.check_special(seed))]
    assert not faults, "\n\n".join(faults)


def test_sums_that_are_not_checked_are_found_out(always, monkeypatch):
    monkeypatch.setattr(split_fills._Sum, "rounds", False)
    with engine.quick():
        assert any(programs.check_special(seed) for seed in range(40))


def test_both_ways_are_jaxprs(always):
    """What runs where a sum was taken apart, and where it was not, is shown and checked as other jaxprs are."""
    A, x = sj.array(np.eye(9, 7), format="csr"), sj.array(np.arange(7.0))
    closed = sj.make_jaxpr(lambda A, x: (A + 1) @ x)(A, x)
    plan = plans.planned(closed, [A._storage, x._storage])
    (both,) = [s.eqn.bodies for s in plan.steps if getattr(s, "eqn", None) and s.eqn.bodies]
    assert [str(body).count("planned[steps=") for body in both] == [1, 1]
    for body in both:
        jaxprs.check_jaxpr(body.jaxpr)
    assert repr(plan.steps)


# ------------------------------------------------------------------------------------------------------ what it costs


@dataclass
class _Counter(Body):
    """A plan that counts the iterations of its kernels while it runs."""

    plan: Plan
    iterations: int = 0

    def run(self, storages: Sequence[Storage]) -> list[Storage]:
        registers = self.plan.registers(storages)
        for number, step in enumerate(self.plan.steps):
            bodies = [_Counter(b) for b in self.plan.bodies(number)]
            inputs = self.plan.step(number, registers, bodies)
            self.iterations += sum(b.iterations for b in bodies)
            if isinstance(step, kernels.KernelRunner):
                schedule, _ = step.planner.schedule(step.observe(inputs))
                self.iterations += counting.run(step.planner.nest, schedule, inputs)[1].work
        return [registers[k] for k in self.plan.results]


def iterations(function, *arrays) -> int:
    """How many iterations the kernels of a function run."""
    given = [sj.array(a) for a in arrays]
    closed = staging.trace_to_jaxpr(lambda *xs: [function(*xs)], [a.aval for a in given])
    storages = [a.storage for a in (*closed.consts, *given)]
    counter = _Counter(plans.planned(closed, storages))
    counter.run(storages)
    return counter.iterations


def matrix(n: int, form: str, dtype: str = "f8", seed: int = 0):
    """A matrix with about eight entries per row."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((n, n), dtype)
    dense[rng.integers(0, n, 8 * n), rng.integers(0, n, 8 * n)] = 1
    return sj.array(dense, format=form)


EXPRESSIONS = {
    "(A + 1) @ x": lambda A, B, x, H: (A + 1) @ x,
    "x @ (A + 1)": lambda A, B, x, H: x @ (A + 1),
    "exp(A) @ H": lambda A, B, x, H: snp.exp(A) @ H,
    "an operation after it": lambda A, B, x, H: snp.square(snp.exp(A) @ H),
    "sum of (A + 1) * x": lambda A, B, x, H: snp.sum((A + 1) * x, axis=1),
    "sum of |A - x|": lambda A, B, x, H: snp.sum(snp.absolute(A - x), axis=1),
    "two fills, row by row": lambda A, B, x, H: snp.einsum("ij,ij->i", A + 1, B + 2),
    "two fills, then a vector": lambda A, B, x, H: snp.einsum("ij,jk,k->i", A + 1, B + 2, x),
    "a fill with a sparse operand": lambda A, B, x, H: snp.einsum("ij,jk->k", A + 1, B),
    "column sums of a product": lambda A, B, x, H: snp.einsum("ij,jk->k", A + 1, B + 1),
    "derivative": lambda A, B, x, H: sj.grad(lambda x: snp.sum(snp.square((A + 1) @ x)))(x),
    "logical": lambda A, B, x, H: (A == 0) @ (x > 0.5),
}


@pytest.mark.rotating(20)
@pytest.mark.parametrize(("form", "dtype"), [("csr", "f8"), ("csc", "i8"), ("coo", "c8")])
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_iterations_grow_with_the_entries(name, form, dtype):
    """Four times the extents and entries: plain loops would take sixteen times the iterations."""
    if dtype != "f8" and name in ("derivative", "logical"):
        pytest.skip("real numbers only")

    def count(n: int) -> int:
        x = np.ones(n, dtype)
        operands = matrix(n, form, dtype), matrix(n, form, dtype, 1), x, np.ones((n, 4), dtype)
        return iterations(EXPRESSIONS[name], *operands)

    with engine.quick():
        small, large = count(500), count(2000)
    assert large < 6 * small


def test_plain_sums_where_these_are_cheaper():
    """Of a matrix that is full anyway, or small."""
    told = sj.explain(lambda A, x: (A + 1) @ x)(sj.array(np.ones((500, 500)), format="csr"), np.ones(500))
    assert len(told.steps) == 1
    assert "apart" not in str(told)


def test_explain_says_both_costs():
    told = sj.explain(lambda A, x: (A + 1) @ x)(matrix(500, "csr"), np.ones(500))
    assert "fills are summed apart: cost" in str(told)


# ------------------------------------------------------------------------------------------------- what comes out of it


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", ["operand", "vector", "both"])
def test_values_that_are_not_finite(odd, where):
    """They stay in the rows that they belong to, and keep their sign."""
    dense = np.ones((600, 600))
    dense[5, 7] = odd if where != "vector" else 3
    dense[6, 8] = 2
    x = np.linspace(1, 2, 600)
    x[9] = odd if where != "operand" else 1
    coords = np.array([[5, 6], [7, 8]])
    A = _with_fill(dense, coords, 1.0)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(sj.jit(lambda A, x: A @ x)(A, x).todense(), dense @ x, rtol=1e-12)


def test_a_fill_that_cancels():
    """Stored zeros under a large fill: what is left must not drown in what was taken away."""
    n = 600
    dense = np.full((n, n), 1e8)
    rows, columns = np.indices((n, n))[:, :4].reshape(2, -1)  # four full rows
    dense[:4] = 0
    A = _with_fill(dense, np.array([rows, columns]), 1e8)
    x = np.random.default_rng(0).standard_normal(n)
    x[3] = 1e10
    got = sj.jit(lambda A, x: A @ x)(A, x).todense()
    assert not got[:4].any()
    np.testing.assert_allclose(got[4:], (dense @ x)[4:], rtol=1e-12)


def _with_fill(dense, coords, fill):
    values = dense[tuple(coords)]
    return Array(convert.from_coords(coords, values, dense.shape, Format.parse("csr", 2), np.float64(fill)))
