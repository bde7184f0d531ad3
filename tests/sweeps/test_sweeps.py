"""Sweeps: every public operation under every transformation, in every kind of format; a slice of each by default.

The table is `tests.sweeps.operations`. What is public and has no line there, and primitives that no line reaches, fail a test, so
that a new operation is swept without being asked. The slices rotate with the commit (`SPARSEJAX_SLICE=k` chooses one).
"""

from __future__ import annotations

import gc

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.core.primitive import Primitive
from tests.fuzz import engine
from tests.rotation import slice_number
from tests.sweeps import compositions, operations, sweeps
from tests.sweeps.operations import FORMATS, OPERATIONS

BATCH_STEP, DERIVATIVE_STEP, NARROW_STEP, COMPOSITION_STEP = 300, 1800, 1800, 1200
"""Of how many cells one is computed by default."""


def batches():
    """Every operation in every kind of batch; of two operands either, or both, are batched."""
    forms = sweeps.BATCHES
    for name, op in OPERATIONS.items():
        for k, form in enumerate(forms):
            axis = k % 3
            if op.arity == 1:
                yield name, (form,), (axis,)
                continue
            yield name, (form, forms[(k + 1) % len(forms)]), (axis, (axis + 1) % 3)
            yield name, (form, "csr"), (axis, None)
            yield name, ("csr", form), (None, axis)
            yield name, ("dense", form), (None, axis)


def cells(dtype):
    """Every operation that has derivatives for a dtype in every format; of two operands the other is in another."""
    for number, (name, op) in enumerate(OPERATIONS.items()):
        if op.smooth and (np.dtype(dtype).kind != "c" or op.complex):
            for k, form in enumerate(FORMATS):
                yield name, (form, FORMATS[(k + number) % len(FORMATS)])[: op.arity]


def run(check, cases, step, *more):
    """All that fails of every `step`-th case."""
    failed = []
    with engine.quick():
        for case in list(cases)[slice_number() % step :: step]:
            try:
                check(*case, *more)
            except Exception as error:
                failed.append(f"{case}: {type(error).__name__}: {str(error)[:500]}")
    assert not failed, "\n".join(failed)


def test_every_public_operation_is_in_the_table():
    assert operations.missing() == []


def test_every_primitive_is_reached():
    """By an operation or its derivatives."""
    seen: set[tuple[Primitive, frozenset[str]]] = set()  # with the names of their parameters

    def visit(jaxpr):
        for eqn in jaxpr.eqns:
            use = eqn.primitive, frozenset(eqn.param_dict)
            if use not in seen or eqn.primitive.bodies or eqn.primitive.inline:
                seen.add(use)
                for rule in (eqn.primitive.bodies, eqn.primitive.inline):
                    made = [] if rule is None else rule(**eqn.param_dict)
                    for inner in made if isinstance(made, list | tuple) else [made]:
                        visit(getattr(inner, "jaxpr", inner))

    for name, op in list(OPERATIONS.items()):
        f, args = sweeps.flat(op.function), sweeps.operands(name, ("csr", "dense")[: op.arity])
        before = len(seen)
        visit(sj.make_jaxpr(f)(*args).jaxpr)
        if op.smooth and len(seen) > before:
            visit(sj.make_jaxpr(lambda *xs, f=f: sj.vjp(f, *xs)[1](f(*xs)))(*args).jaxpr)
    known = {p for p in gc.get_objects() if isinstance(p, Primitive)}
    transposed_at_once = {"custom_vjp_tangent"}
    assert {p.name for p in known - {p for p, _ in seen}} <= transposed_at_once


def test_batches():
    run(sweeps.batch, batches(), BATCH_STEP)


@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_derivatives(dtype):
    run(sweeps.derivatives, cells(dtype), DERIVATIVE_STEP, dtype)


@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_derivatives_in_single_precision(dtype):
    run(sweeps.narrow, cells(dtype), NARROW_STEP, dtype)


@pytest.mark.slow
def test_all_batches():
    run(sweeps.batch, batches(), 1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_all_derivatives(dtype):
    run(sweeps.derivatives, cells(dtype), 1, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "c8"])
def test_all_derivatives_in_single_precision(dtype):
    run(sweeps.narrow, cells(dtype), 1, dtype)


def test_compositions():
    run(compositions.check, compositions.grid(), COMPOSITION_STEP)


@pytest.mark.slow
def test_all_compositions():
    run(compositions.check, compositions.grid(), 1)
