"""What copies of operands cost, and what is only paid where loops run in some orders: results that are cleared, rows that are not read ahead."""

import dataclasses

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import Format
from sparsejax.jit.cost import conversion_price, memory, statistics
from sparsejax.jit.cost.machines import ZEN3
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest, Producer
from sparsejax.jit.runtime import plans
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.schedule import search
from sparsejax.jit.schedule.waiting import Shared

I, K, J = map(cin.IndexVar, "ikj")
N, WIDTH, ENTRIES = 4096, 32, 16384.0


def tensor(name, shape, form):
    return cin.Tensor(name, shape, np.dtype(float), Format.parse(form, len(shape)), np.float64(0))


def product(form, fresh=(), calls=ZEN3.calls, entries=ENTRIES, n=N):
    """The model of out[i,j] += A[i,k] * B[k,j] with A in this format."""
    A = cin.Access(tensor("A", (n, n), form), (I, K))
    B = cin.Access(tensor("B", (n, WIDTH), "dense"), (K, J))
    w = cin.Access(tensor("w", (n, WIDTH), "dense"), (I, J))
    nest = Nest(
        tensor("out", (n, WIDTH), "dense"),
        (I, J),
        (Producer(w, "add", cin.Call("multiply", (A, B), np.dtype(float))),),
        w,
    )
    facts = statistics.Facts({"A": (n, entries), "B": (n, n * WIDTH)}, fresh=frozenset(fresh))
    return search.Model(nest, facts, here=dataclasses.replace(ZEN3, calls=calls))


def test_a_copy_that_stays_is_paid_in_parts():
    whole = conversion_price.cost(Format.parse("csc", 2), Format.parse("csr", 2), (N, N), ENTRIES)
    for calls in (1.0, 4.0, 100.0):
        assert product("csc", calls=calls).given((I, K, J)).cost.conversions == pytest.approx(whole / calls)
        assert product("csc", ["A"], calls).given((I, K, J)).cost.conversions == pytest.approx(whole)
    assert product("csc").given((K, I, J)).cost.conversions == 0.0


def test_more_calls_choose_the_copy():
    orders = [product("csc", calls=calls).search().order for calls in (1e-3, 1e9)]
    assert orders == [(K, I, J), (I, K, J)]
    assert product("csc", ["A"], 1e9).search().order == product("csc", calls=1.0).search().order


def test_values_that_steps_make_are_fresh():
    """B = sin(A) is stored, as it is returned; the product that reads it is planned for a new B at each call."""
    A, H = sj.array(np.eye(8), format="csc"), sj.array(np.ones((8, 4)))

    def program(A, H):
        B = A * 3.0
        return B, B @ H, A @ H

    traced = sj.jit(program).trace(A, H)
    plan = plans.planned(traced.jaxpr, [x.storage for x in traced._leaves])
    steps = [s for s in plan.steps if isinstance(s, KernelRunner)]
    known = {s.planner.step.output: s for s in steps}
    for step in steps:
        stored = [
            step.planner.step.nest.inputs[k].name for k, a in enumerate(step.planner.step.arguments) if a in known
        ]
        assert step.planner._fresh == frozenset(stored)
    assert any(s.planner._fresh for s in steps) and not all(s.planner._fresh for s in steps)


@pytest.mark.parametrize(("order", "cleared"), [((I, K, J), False), ((I, J, K), False), ((K, I, J), True)])
def test_results_that_are_added_to_are_cleared(order, cleared):
    """Where the loop over what is summed is outside of loops over the result."""
    made = product("csc" if order[0] == K else "csr").given(order).cost
    size = N * WIDTH * 8
    expected = memory.price([memory.Lines(size / 64, size, 0.0)], ZEN3, True)
    assert expected > 0 and made.output == pytest.approx(expected if cleared else 0.0)


def test_the_dense_level_of_a_copy_has_all_positions():
    """Loops over columns visit as many, whether the columns are stored so or copied."""
    few = {"entries": 2000.0}
    stored, copied = product("csc", **few), product("csr", **few)
    assert copied.walk((K,)).survivors == stored.walk((K,)).survivors == N


def test_rows_anywhere_stall_runs_of_shared_loops():
    """Once per row where what is read lies out of the caches; not where it fits, nor where nothing is read in the loops inside."""
    small, large = product("csr"), product("csr", entries=float(1 << 20), n=1 << 18)
    shared = memory.Beside(1, 0.0, 0.0)
    assert small.waiting.stalls((I, K, J), Shared(shared)) < 1e-6
    assert large.waiting.stalls((I, K, J), Shared(shared)) == 1.0
    assert large.waiting.stalls((I,), Shared(shared)) == 0.0
