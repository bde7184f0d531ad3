"""Instrumented kernels count what loops do, and compute what plain kernels compute."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import counting
from sparsejax.formats import convert
from sparsejax.jit import pipeline
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.cost import statistics
from sparsejax.jit.ir import cin
from sparsejax.jit.runtime import plans
from sparsejax.jit.schedule import search


def kernel(function, *operands):
    """The nest of a function that is one kernel, with its inputs."""
    traced = sj.jit(function).trace(*operands)
    plan = plans.planned(traced.jaxpr)
    (runner,) = plan.steps
    return runner.planner.step.nest, plan.step(0, plan.registers([x.storage for x in traced._leaves]))


def count(function, operands, order=None):
    nest, inputs = kernel(function, *operands)
    known = statistics.of(nest, inputs)
    if order is None:
        schedule = search.choose(nest, known)
    else:
        schedule = search.schedule_of(nest, known, tuple(cin.IndexVar(x) for x in order))
    made, counted = counting.run(nest, schedule, inputs)
    return convert.to_dense(made), counted


def matrix(n, m, density, seed=0, format="csr"):
    return sp.random_array((n, m), density=density, format=format, rng=np.random.default_rng(seed))


def test_spmv_counts_rows_and_entries():
    A, x = matrix(40, 30, 0.1), np.random.default_rng(1).random(30)
    made, counted = count(lambda A, x: A @ x, (A, x), "ij")
    np.testing.assert_allclose(made, A @ x)
    assert counted == counting.Count(40 + A.nnz, 0, 0)


def test_vector_lanes_count_as_scalars():
    A, H = matrix(40, 30, 0.1), np.random.default_rng(1).random((30, 13))
    made, counted = count(lambda A, H: A @ H, (A, H), "ikj")
    np.testing.assert_allclose(made, A @ H)
    assert counted == counting.Count(40 + 40 * 13 + A.nnz * 13, 0, 0)  # i, strips of j, k: 13 lanes in all


def test_intersections_count_both_operands():
    A, B = matrix(40, 30, 0.2), matrix(40, 30, 0.2, 1)
    made, counted = count(lambda A, B: (A * B).sum(axis=1), (A, B))
    np.testing.assert_allclose(made, (A * B).sum(axis=1))
    merged = 0
    for i in range(40):
        p, q = A.indices[A.indptr[i] : A.indptr[i + 1]], B.indices[B.indptr[i] : B.indptr[i + 1]]
        a = b = 0
        while a < len(p) and b < len(q):
            merged += 1
            x, y = p[a], q[b]
            a, b = a + (x <= y), b + (y <= x)
    assert counted.iterations == 40 + merged


def test_conversions_are_counted():
    A, B = matrix(40, 30, 0.1), matrix(30, 50, 0.1, 1, "csc")
    made, counted = count(lambda A, B: A @ B, (A, B), "ikj")
    np.testing.assert_allclose(made, (A @ B).todense())
    assert counted.converted == B.nnz
    assert counted.visits == 6 * B.nnz + (50 + 1) + (30 + 1)  # and `pos` before and after
    assert counted.work == counted.iterations + counted.visits


@pytest.mark.parametrize("order", ["ikj", "ijk", "kij", "jki", "kji", "jik"])
@pytest.mark.parametrize("formats", ["csr csr", "csc dcsr", "coo csc"])
def test_every_order_gives_the_same_result(order, formats):
    A, B = matrix(20, 15, 0.2), matrix(15, 25, 0.2, 1)
    given = [sj.array(x, format=f) for x, f in zip((A, B), formats.split(), strict=True)]
    made, _ = count(lambda A, B: A @ B, given, order)
    np.testing.assert_allclose(made, (A @ B).todense())


def test_ordinary_kernels_hold_no_counter():
    nest, inputs = kernel(lambda A, x: A @ x, matrix(5, 5, 0.5), np.ones(5))
    runner_text = lower.lower(_program(nest, inputs), LLVMBuilder())
    assert "iterations" not in runner_text
    assert "iterations" in counting.text(_program(nest, inputs))


def _program(nest, inputs):
    known = statistics.of(nest, inputs)
    return pipeline.in_order(nest, search.choose(nest, known))


@pytest.mark.parametrize("policy", ["bitmap", "marks", "hash", "coordinate", "bucket"])
def test_every_workspace_counts_and_sorts(policy):
    """Draining is counted as well, routines included."""
    A, B = matrix(300, 250, 0.05), matrix(250, 300, 0.05, 1)
    nest, inputs = kernel(lambda A, B: A @ B, A, B)
    known = statistics.of(nest, inputs)
    schedule = search.schedule_of(nest, known, tuple(cin.IndexVar(x) for x in "kij"), policy)
    made, counted = counting.run(nest, schedule, inputs)
    np.testing.assert_allclose(convert.to_dense(made), (A @ B).todense())
    products = int(np.diff(A.tocsc().indptr) @ np.diff(B.indptr))
    entries = made.nnz
    assert counted.iterations >= products + entries
    assert counted.iterations <= 250 + 2 * A.nnz + 40 * products + 300 * 300
