"""Kernels in chunks: the same bits for any number of threads, and the right ones, over random definitions, formats and loop orders."""

import random
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.formats import convert
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.ir import blocks
from sparsejax.jit.rewrite import in_place, legalize, parallelize
from sparsejax.jit.runtime import binding, chunked, kernels
from sparsejax.jit.schedule import schedules
from sparsejax.jit.schedule.schedules import Cost
from tests.fuzz import definitions, engine

pytestmark = pytest.mark.rotating(20)

CASES = 240
BATCH = 60
THREADS = (1, 2, 4)


def program_of(case):
    """The case's program, marked where that is legal, with its inputs and the type of its result."""
    step, inputs, order, _ = definitions.step_of(case)
    runner = kernels.KernelRunner.of(step)
    if order is None:
        _, program = runner.planner.schedule(runner.observe(inputs))
    else:
        workspace = None if case.workspace == "auto" else case.workspace
        made = blocks.adapted(step.nest)
        order = definitions.parted(order, blocks.parts_of_nest(made), random.Random(case.seed))
        cost = Cost(1e6, 0.0, 0.0, 0.0)
        schedule = schedules.unpriced(order, workspace)
        reading = pipeline.readable(made, schedule)
        program = in_place.settled(pipeline.in_order(blocks.split(reading), schedule))
        program = parallelize.parallelize(program, cost)
    inputs = [convert.convert(s, t.stored) for s, t in zip(inputs, program.inputs, strict=True)]
    return program, inputs, runner


def bits(storage):
    """Everything that a storage holds."""
    return [a.tobytes() for level in storage.buffers for a in level] + [storage.vals.tobytes()]


def check(seed, blocked):
    """Whether the kernel of a case runs in chunks, and what is wrong with it."""
    case = definitions.make(seed, blocked)
    program, inputs, runner = program_of(case)
    if not program.chunking.count:
        return False, None
    nest = runner.planner.nest
    compiled = compiler.compile_text(lower.lower(program, LLVMBuilder()))
    kernel = chunked.Chunked(compiled, nest.output, chunked.Cut.of(program))
    bound = binding.Binding(kernel, nest.output, nest.op, shared=program.shared, whole=program.whole)
    results = []
    for threads in THREADS:
        config.update("num_threads", threads)
        results.append(bound.run(inputs))
    alone = replace(program, chunking=replace(program.chunking, work=float(chunked.LONG)))  # one thread, chunk by chunk
    config.update("num_threads", 1)
    kernel = chunked.Chunked(compiled, nest.output, chunked.Cut.of(alone))
    results.append(binding.Binding(kernel, nest.output, nest.op, shared=program.shared).run(inputs))
    if any(bits(r) != bits(results[0]) for r in results):
        return True, f"{case}\nthe result depends on the number of threads"
    got = legalize.finished(results[1], runner.planner.step.output.aval)
    return True, definitions.fault_of(case, got)


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_any_number_of_threads_gives_the_same_bits(start, blocked):
    with engine.quick():
        found = [check(seed, blocked) for seed in range(start, start + BATCH)]
    faults = [fault for _, fault in found if fault]
    assert not faults, "\n\n".join(faults)
    assert sum(ran for ran, _ in found) > BATCH // 8


def test_chunks_inside_a_loop_that_is_bound_to_its_buffers():
    rng = np.random.default_rng(0)
    a = sj.array(rng.random((40, 40)) * (rng.random((40, 40)) < 0.2), format="csr")
    x = sj.array(rng.random(40))

    @sj.jit
    def power(a, x):
        return sj.lax.fori_loop(0, 20, lambda k, v: (a @ v) * 0.25 + v / snp.max(v), x)

    want = np.asarray(x.todense())
    for _ in range(20):
        want = (a.todense() @ want) * 0.25 + want / np.max(want)
    results = []
    for threads in THREADS:
        config.update("num_threads", threads)
        results.append(np.asarray(power(a, x).todense()))
    np.testing.assert_allclose(results[0], want, rtol=1e-12)
    assert len({r.tobytes() for r in results}) == 1


def test_a_plan_for_many_shapes_is_cut_by_the_extents_of_the_call():
    cut = chunked.Cut(4, 64, False, "", "", 1, 10.0, 131_072.0)

    def slots(extent):
        return np.array([7, extent, 7, 7]).tobytes()

    assert [cut.rows(slots(n)) for n in (50, 13_107, 13_108, 60_000, 10**9)] == [1, 1, 8, 36, 64]
    assert chunked.Cut(4, 64, False, "", "").rows(slots(1)) == 64


@pytest.mark.parametrize("program", ["rows", "columns", "sum", "product"])
def test_sizes_of_one_plan_give_the_same_bits_with_any_number_of_threads(program):
    run = {
        "rows": lambda A, x: A @ x,
        "columns": lambda A, x: A.T @ x,
        "sum": lambda A, x: (A * A).sum(),
        "product": lambda A, x: A @ A,
    }[program]
    rng = np.random.default_rng(2)
    data = []
    for n in (60, 90, 5000, 300, 40_000):
        A = sp.random_array((n, n), density=4 / n, format="csr", rng=rng)
        data.append((sj.array(A), sj.array(rng.standard_normal(n)), A))
    found = []
    for threads in THREADS:
        config.update("num_threads", threads)
        compiled = sj.jit(run)
        found.append([compiled(A, x).storage for A, x, _ in data])
    for results in zip(*found, strict=True):
        assert len({tuple(bits(r)) for r in results}) == 1
    for (_, x, A), got in zip(data, found[0], strict=True):
        want = run(A, x.todense())
        if sp.issparse(want):
            assert abs(sj.Array(got).to_scipy() - want).max() < 1e-12
        else:
            np.testing.assert_allclose(convert.to_dense(got), want, rtol=1e-11, atol=1e-12)
