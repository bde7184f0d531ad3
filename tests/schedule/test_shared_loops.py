"""Statements in loops that they share wait for memory as these run, whoever leads them (`schedule/waiting.Around`)."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax.jit.cost import machines, statistics
from sparsejax.jit.runtime import kernels, plans

ROWS, WIDTH, ENTRIES = 8000, 128, 16


def mask(kind):
    """So many entries in each row: anywhere, or near the diagonal."""
    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(ROWS), ENTRIES)
    columns = (
        rng.integers(0, ROWS, len(rows)) if kind == "anywhere" else (rows + np.tile(np.arange(ENTRIES), ROWS)) % ROWS
    )
    return sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(ROWS, ROWS))


def schedules(M, skip):
    """How the kernels of a sum over a masked product are scheduled."""
    rng = np.random.default_rng(1)
    arrays = (rng.standard_normal((ROWS, WIDTH)) for _ in range(2))
    return of_program(lambda M, U, V: (M * (U @ V.T)).sum(), M, *arrays, skip=skip)


def of_program(function, *arrays, **settings):
    """How the kernels of a program are scheduled."""
    with sj.config.using(machine="zen3", num_threads=1, **settings):
        traced = sj.jit(function).trace(*map(sj.array, arrays))
        storages = [x.storage for x in traced._leaves]
        plan = plans.planned(traced.jaxpr, storages)
        registers = plan.registers(storages)
        made = []
        for number, step in enumerate(plan.steps):
            inputs = plan.step(number, registers)
            if isinstance(step, kernels.KernelRunner):
                runner, given = step.actual(inputs)
                made.append(runner.planner.schedule(runner.observe(given))[0])
        return made


@pytest.mark.parametrize("kind", ["anywhere", "diagonal"])
def test_a_masked_product_waits_as_long_in_the_loops_of_its_reader(kind):
    M = mask(kind)
    (together,), apart = schedules(M, ""), schedules(M, "fuse_reductions")
    assert together.places and len(apart) > 1
    masked = max(apart, key=lambda s: s.cost.memory)
    # the sum reads each entry of the mask once more
    assert together.cost.memory == pytest.approx(masked.cost.memory, rel=0.03)


def test_rows_near_each_other_are_waited_for_less():
    (near,), (far,) = schedules(mask("diagonal"), ""), schedules(mask("anywhere"), "")
    assert near.cost.memory < 0.75 * far.cost.memory
    assert near.cost.loops == pytest.approx(far.cost.loops, rel=0.2)


@pytest.mark.parametrize("length", [2, 8])
def test_where_rows_end_is_searched_in_loops_that_are_shared(length):
    """A list of coordinates is walked as one loop by one statement alone: so a product with it and its transpose is two kernels."""
    rows, columns = np.repeat(np.arange(ROWS), length), np.random.default_rng(0).integers(0, ROWS, ROWS * length)
    listed = sj.array((np.ones(len(rows)), (rows, columns)), shape=(ROWS, ROWS), format="coo")
    x = np.ones(ROWS)

    def normal(A, x):
        return A.T @ (A @ x)

    (apart, _), (compressed,) = of_program(normal, listed, x), of_program(normal, listed.asformat("csr"), x)
    assert compressed.places and not apart.places
    loops = []
    for form in ("coo", "(c,c)"):
        (made,) = of_program(normal, listed.asformat(form), x, choose="fusion=together")
        loops.append(made.cost.loops)
    entries = statistics.rounded(listed.nnz)
    assert loops[0] - loops[1] == pytest.approx(2 * machines.ZEN3.lookup * entries, rel=0.25)
