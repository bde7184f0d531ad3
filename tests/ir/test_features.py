"""Conditions of passes on what a kernel has: plans are the same where every pass is asked, whether its condition holds or not."""

import re
from contextlib import nullcontext

import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.jit import pipeline
from sparsejax.jit.graph import shared_patterns
from sparsejax.jit.graph.partition import KernelStep
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime import kernels as runners
from tests.fuzz import definitions
from tests.golden import kernels

WIDE, DENSE, VECTOR = kernels.matrix(rows=80), kernels.H, kernels.V


def told(found):
    return [
        re.sub(r"number=\d+|\b[vt]\d+", "", kernels._in_order(repr(x))) for x in found
    ]  # variables have numbers of their own


def both(found):
    """What is found where passes are asked by their conditions, and where all are."""
    made = []
    for inside in (nullcontext, choices.asking):
        kernels.steps.cache_clear()
        with config.using(machine="ice_lake", num_threads=4), inside():
            made.append(told(found()))
    return made


def asked(runner):
    """What a kernel knows of its operands before it is planned."""
    return runner.runnable.meeting, runner._watched, runner.variants is None, runner.beside, runner.planner.plain


def of_steps(steps):
    for step in steps:
        if isinstance(step, KernelStep):
            yield step, asked(runners.KernelRunner.of(step))
        else:
            yield step.eqn.primitive.name, [v.aval for v in step.outputs]
            for body in step.eqn.bodies:
                yield from of_steps(body.cache.get("steps", ()))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", kernels.PROGRAMS)
def test_programs_are_planned_alike(name):
    function, operands = kernels.PROGRAMS[name]
    jaxpr = sj.jit(function).trace(*operands).jaxpr.jaxpr

    def found():
        clean = pipeline.cleaned(jaxpr)
        yield clean
        for step in of_steps(pipeline.steps_of(clean, {})[0]):
            yield kernels.re.sub(r"Var\([^)]*\)|v\d+|\bt\d+", "v", str(step))
        for masks in (False, True):
            with kernels.processor(masks):
                yield from kernels._everything(name, 1 - masks)

    ruled, every = both(found)
    assert ruled == every


@pytest.mark.rotating(8)
@pytest.mark.parametrize("seed", range(1600))
def test_definitions_are_planned_alike(seed):
    def found():
        step, *_ = definitions.step_of(kernels._case(seed))
        yield from of_steps([step])
        yield from kernels._defined(seed)

    ruled, every = both(found)
    assert ruled == every


@pytest.mark.parametrize(
    ("function", "operands", "has"),
    [
        (lambda A, x: A @ x, (WIDE, VECTOR), {"products", "reduced", "plain", "met"}),
        (lambda A, H: A @ H, (WIDE, DENSE), {"products", "reduced", "plain", "met", "tiles"}),
        (lambda A: A * 2.0, (WIDE,), {"plain", "met", "sparse_result", "fills"}),
        (lambda x: sj.numpy.tanh(x) + x, (VECTOR,), {"fills", "plain", "overwrites"}),
        (lambda T: T.sum(), (kernels.T,), {"products", "reduced", "plain"}),
        (lambda B, x: B @ x, (kernels.matrix("bsr:4x4", rows=80), VECTOR), {"products", "reduced", "met"}),
    ],
)
def test_features(function, operands, has):
    (step,) = pipeline.steps_of(pipeline.cleaned(sj.jit(function).trace(*operands).jaxpr.jaxpr), {})[0]
    found = step.nest.features
    flags = ("sparse_result", "reduced", "products", "fills", "tiles", "plain", "placed", "met", "overwrites")
    assert {name for name in flags if getattr(found, name)} == has


def test_passes_with_conditions_are_asked_of_some_programs_and_not_of_others():
    found = [step.nest.features for name in kernels.PROGRAMS for step in kernels.steps(name)]
    for name in ("split_fills", "turned_results"):
        assert {pipeline.STEP_PASSES[name].wanted(f) for f in found} == {True, False}


def test_what_may_take_anything_asks_every_pass():
    assert not choices.applies(False) and choices.applies(True)
    with config.using(choose="random:1"):
        assert choices.applies(False)
    with choices.asking():
        assert choices.applies(False)
    assert shared_patterns.beside(kernels.steps("spmv")[0].nest) == ()
