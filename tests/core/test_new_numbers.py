"""Numbers on which a fill depends, beside sparse arrays: values stored are computed by a program for any number, and all is as with a plan for one."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.core import entrywise
from sparsejax.formats.validate import validate
from sparsejax.lax.elementwise import BINARY, elementwise
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
    assert used or op in UNDECIDED or form not in ("csr", "csc", "coo")


UNDECIDED = {"multiply", "left_shift", "right_shift", "logical_and", "bitwise_and"}
"""Functions that may give the fill whatever the number is."""


def test_what_comes_back_gets_a_plan():
    x = sj.array(np.eye(3), format="csr")
    kept = [x > 0.25 for _ in range(entrywise.OFTEN + 3)]
    assert all(k.fill_value == False and (k.todense() == (np.eye(3) > 0.25)).all() for k in kept)  # noqa: E712
    assert max(entrywise.met.values()) == entrywise.OFTEN


def test_nothing_is_planned_for_new_numbers(caplog):
    x = sj.array(np.eye(4), format="csr")
    calls = {
        "greater": lambda t: x > t,
        "sum": lambda t: (x + t).sum(),
        "clip": lambda t: snp.clip(x, -t, t),
        "thinned": lambda t: sj.prune(x, predicate=x > t),
    }
    rng = np.random.default_rng(5)
    for call in calls.values():
        for t in rng.random(3).tolist():
            call(t)
    with config.using(log_compiles=True), caplog.at_level("WARNING"):
        for name, call in calls.items():
            for t in rng.random(8).tolist():
                call(t)
            assert not caplog.records, name


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
