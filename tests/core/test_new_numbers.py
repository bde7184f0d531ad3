"""Numbers on which a fill depends, beside sparse arrays: values stored are computed by a program for any number, and all is as with a plan for one."""

import functools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core import entrywise
from sparsejax.formats.validate import validate
from sparsejax.jit import pipeline
from sparsejax.lax.elementwise import BINARY, UNARY, elementwise
from tests import rotation

FORMATS = ["csr", "csc", "coo", "dcsr", "lil", "ell", "bsr:2x3", "(d,b)", "(d,r)", "groupcoo:2", "dia"]
NUMBERS = [0, 1, -1, 2, 3, 0.0, -0.0, 1.0, 0.5, -1.5, 2.5, np.inf, -np.inf, np.nan, True, False, 1j, 2 - 1j, 300, 2**40]
DTYPES = ["f8", "f4", "i8", "i4", "u1", "?", "c16"]


def outcome(call):
    """What a call gives, or the error that it raises."""
    try:
        made = call()
    except (TypeError, ValueError, OverflowError) as error:
        return type(error), str(error)
    assert made.format == made._storage.format and made._storage.fill_value.tobytes() == made.fill_value.tobytes()
    validate(made._storage)
    return made.format, made.dtype, made.aval.weak_type, made.fill_value.tobytes(), made.todense().tobytes(), made.nnz


@pytest.mark.rotating(6)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("op", BINARY)
def test_as_with_a_plan(op, form, monkeypatch):
    rng = np.random.default_rng(len(op))
    used = 0
    for dtype in rng.choice(DTYPES, 3, replace=False):
        dense = np.where(rng.random((5, 6)) < 0.4, rng.integers(1, 5, (5, 6)), 0).astype(dtype)
        x = sj.array(dense, format=form)
        for number in rng.choice(np.array(NUMBERS, object), 6, replace=False):
            for args in ((x, number), (number, x)):
                with monkeypatch.context() as m:
                    m.setattr(entrywise, "OFTEN", 0)
                    planned = outcome(lambda args=args: elementwise(op, *args))
                before = dict(entrywise.met)
                made = outcome(lambda args=args: elementwise(op, *args))
                used += entrywise.met != before
                assert made == planned, (op, dtype, args)
    assert used or op in UNDECIDED or form == "(d,r)"


@pytest.mark.rotating(4)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("op", [*UNARY, "cast"])
def test_of_new_fills_as_with_a_plan(op, form, monkeypatch):
    """A fill that an earlier operation made is such a number, too."""
    rng = np.random.default_rng(len(op + form))
    call = (lambda x: x.astype(target)) if op == "cast" else functools.partial(elementwise, op)
    for dtype in rng.choice(DTYPES, 3, replace=False):
        target = rng.choice(["f8", "f4", "i8", "i2", "c8", "?"])
        dense = np.where(rng.random((5, 6)) < 0.4, rng.integers(1, 5, (5, 6)), 0).astype(dtype)
        x = sj.array(dense, format=form)
        for number in (2, 1, 0, 0.25):
            y = x + number
            with monkeypatch.context() as m:
                m.setattr(entrywise, "OFTEN", 0)
                planned = outcome(lambda y=y: call(y))
            assert outcome(lambda y=y: call(y)) == planned, (op, dtype, number)


UNDECIDED = {"multiply", "left_shift", "right_shift", "logical_and", "bitwise_and"}
"""Functions that may give the fill whatever the number is."""


def test_what_comes_back_gets_a_plan():
    x = sj.array(np.eye(3), format="csr")
    kept = [x > 0.25 for _ in range(entrywise.OFTEN + 3)]
    assert all(k.fill_value == False and (k.todense() == (np.eye(3) > 0.25)).all() for k in kept)  # noqa: E712
    assert max(entrywise.met.values()) == entrywise.OFTEN


@pytest.mark.parametrize("form", ["csr", "lil", "ell", "(d,b)", "bsr:2x3", "dia", "groupcoo:2"])
def test_nothing_is_planned_for_new_numbers(form, monkeypatch):
    x = sj.array(np.eye(5, 4), format=form)
    calls = {
        "greater": lambda t: x > t,
        "sum": lambda t: (x + t).sum(),
        "clip": lambda t: snp.clip(x, -t, t),
        "thinned": lambda t: sj.prune(x, predicate=x > t),
        "chain": lambda t: snp.exp(abs(x - t)).astype("f4") > t,
        "isclose": lambda t: snp.isclose(x, t),
        "allclose": lambda t: snp.allclose(x, t, equal_nan=True),
    }
    rng = np.random.default_rng(sum(map(ord, form)))  # numbers of its own: what comes back is planned
    for call in calls.values():
        for t in rng.random(3).tolist():
            call(t)
    planned, schedule_of = [], pipeline.schedule_of
    monkeypatch.setattr(pipeline, "schedule_of", lambda *a, **k: planned.append(a[0]) or schedule_of(*a, **k))
    for call in calls.values():
        for t in rng.random(8).tolist():
            call(t)
    assert not planned


@pytest.mark.parametrize("form", FORMATS)
def test_gradients_and_transformations_are_as_before(form):
    x = sj.array(np.diag(np.arange(1.0, 5.0)), format=form)
    t = 0.7361
    grad = sj.grad(lambda x: ((x + t) * x).sum())(x)
    np.testing.assert_allclose(grad.todense()[np.eye(4, dtype=bool)], 2 * np.arange(1.0, 5.0) + t)
    np.testing.assert_array_equal(sj.jit(lambda x: x + t)(x).todense(), (x + t).todense())
    np.testing.assert_array_equal(sj.vmap(lambda r: r + t)(x).todense(), (x + t).todense())


@pytest.mark.parametrize("seed", range(rotation.examples(8)))
def test_results_compose(seed):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((6, 5)) < 0.4, rng.standard_normal((6, 5)), 0)
    x, expected = sj.array(dense, format=str(rng.choice(FORMATS[:6]))), dense
    for _ in range(5):
        op, t = str(rng.choice(["add", "subtract", "maximum", "minimum", "multiply"])), float(rng.standard_normal())
        args = (x, t) if rng.random() < 0.5 else (t, x)
        x, expected = getattr(snp, op)(*args), getattr(np, op)(*[expected if a is x else a for a in args])
        np.testing.assert_array_equal(x.todense(), expected)
    np.testing.assert_allclose((x @ x.T).todense(), expected @ expected.T)
    np.testing.assert_array_equal(x.asformat("coo").todense(), expected)
    np.testing.assert_array_equal(x[1:, ::2].todense(), expected[1:, ::2])
