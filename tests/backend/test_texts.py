"""What stages of the compiler made of a program, as text (`jit.stages`, `jit.pretty`): lowered and compiled."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from sparsejax.jit.backend.builder import Val
from sparsejax.jit.backend.pretty import LONG, PrettyBuilder
from sparsejax.jit.runtime.kernel_planner import KernelPlanner
from tests.fuzz import engine

STAGES = ["jaxpr", "plan", "cin", "loops", "llvm", "asm"]
A = sp.random_array((6, 7), density=0.4, format="csr", random_state=np.random.default_rng(0))
X = np.random.default_rng(1).standard_normal((7, 3))


@pytest.mark.parametrize("stage", STAGES)
def test_compiled_functions_have_every_stage(stage):
    a = sj.array(A, copy=True)
    for function, args in (
        (lambda a, x: snp.maximum(a @ (x @ x.T), 0), (a, X)),
        (lambda a: a * 2 + a, (a,)),
        (lambda x: lax.fori_loop(0, 3, lambda i, y: y * i, x) + 1, (X,)),
        (lambda x: lax.cond(x[0, 0] > 100, lambda: x, lambda: x + 1), (X,)),
    ):
        lowered = sj.jit(function).lower(*args)
        assert lowered.compile().as_text(stage) == lowered.as_text(stage) != ""


def test_compiled_text_is_assembly_and_keeps_no_operands():
    a = sj.array(A, copy=True)
    compiled = sj.jit(lambda a, x: a @ x, donate_argnums=1).lower(a, x := sj.array(X, copy=True)).compile()
    compiled(a, x)
    assert x.is_deleted()
    assert "ret" in compiled.as_text()
    assert "forall" in compiled.as_text("cin")


def test_errors():
    f = sj.jit(lambda a, x: a @ x)
    compiled = f.lower(sj.array(A, copy=True), X).compile()
    for made in (compiled, f.lower(sj.array(A, copy=True), X)):
        with pytest.raises(ValueError, match="stage='c\\+\\+' is not one of 'jaxpr', 'plan'"):
            made.as_text("c++")
    typed = f.lower(sj.ShapeDtypeStruct((6, 7), "f8", format="csr"), sj.ShapeDtypeStruct((7,), "f8")).compile()
    assert "contract" in typed.as_text("jaxpr")
    with pytest.raises(ValueError, match="stage 'asm' depends on the data; compile for arrays"):
        typed.as_text()


@pytest.mark.parametrize("dtype", ["i1", "f4", "f8"])
def test_loops_of_folded_lanes_are_short(dtype):
    """Each half of the lanes is read twice by the maximum that folds it: nested expressions would double every time."""
    x = (np.random.default_rng(2).random((300, 300)) * 100).astype(dtype)
    for function in (lambda x: x.max(axis=1), lambda x: x.argmax(axis=1), lambda x: x.min()):
        text = sj.jit(function).lower(x).as_text("loops")
        assert len(text) < 20_000
        assert max(map(len, text.splitlines())) < 5 * LONG


def test_text_is_linear_in_the_program():
    b = PrettyBuilder()
    x = Val("x", "i64")
    for _ in range(200):
        x = b.binary("add", x, x)
    b.set_slot(0, x)
    text = b.finish(lambda: None)
    assert len(text) < 200 * 2 * LONG
    value: dict[str, int] = {"x": 1}
    for line in text.splitlines()[1:-1]:
        name, _, expression = line.partition(" = ")
        value[name.strip()] = eval(expression, {}, value)
    assert eval(text.splitlines()[-1].partition(": ")[2], {}, value) == 2**200


def test_texts_after_a_call_are_those_of_the_call_and_plan_nothing(monkeypatch):
    square = sj.array(np.eye(30) + np.eye(30, k=2), format="csr")
    dense, vector = sj.array(np.ones((30, 8))), sj.array(np.ones(30))
    scheduled, schedule = [], KernelPlanner.schedule
    monkeypatch.setattr(KernelPlanner, "schedule", lambda *a: scheduled.append(a) or schedule(*a))
    for function, given in (
        (lambda a, b: snp.maximum(a @ b, 0), (square, dense)),
        (lambda a, x: a / (a @ x)[:, None], (square, vector)),
    ):
        stages = [s for s in STAGES if s != "asm"]
        fresh = [sj.jit(function).lower(*given).as_text(s) for s in stages]
        with engine.quick():
            f = sj.jit(function)
            f(*given)
            assert scheduled
            scheduled.clear()
            assert [f.lower(*given).as_text(s) for s in stages] == fresh
            assert not scheduled
            with sj.config.using(workspace="hash"):
                assert f.lower(*given).as_text("cin")
            assert scheduled


def test_texts_of_a_shape_that_an_earlier_trace_serves_are_those_of_its_own():
    f, alone = (sj.jit(lambda A, x: A @ x + A.shape[0]) for _ in range(2))
    for n in (5, 6, 7, 8):
        A, x = sj.array(np.eye(n), format="csr"), sj.array(np.ones(n))
        f(A, x)
        assert f.lower(A, x).as_text("jaxpr") == alone.lower(A, x).as_text("jaxpr")
