"""Statements in loops that they share wait for memory as these run, whoever leads them (`schedule/waiting.Around`)."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
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
    arrays = sj.array(M), *(sj.array(rng.standard_normal((ROWS, WIDTH))) for _ in range(2))
    with sj.config.using(skip=skip, machine="zen3", num_threads=1):
        traced = sj.jit(lambda M, U, V: (M * (U @ V.T)).sum()).trace(*arrays)
        storages = [x.storage for x in traced._leaves]
        plan = plans.Plan(traced.jaxpr, storages)
        registers = plan.registers(storages)
        made = []
        for number, step in enumerate(plan.steps):
            inputs = plan.step(number, registers)
            if isinstance(step, kernels.KernelRunner):
                runner, given = step.actual(inputs)
                made.append(runner.schedule(runner.observe(given))[0])
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
