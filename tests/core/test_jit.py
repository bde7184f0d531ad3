"""Tracing, jaxprs, jit: signatures, statics, closures, nesting, and the errors of traced values."""

import functools
import gc
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var, check_jaxpr, evaluate
from sparsejax.jit.backend import compiler

RNG = np.random.default_rng(0)
A = sp.random_array((6, 7), density=0.4, format="csr", random_state=RNG)
X = RNG.standard_normal((7, 3))


def test_traced_once_per_signature():
    count = []

    @sj.jit
    def f(A, x):
        count.append(1)
        return A @ x

    a = sj.array(A, copy=True)
    np.testing.assert_allclose(f(a, X).todense(), A @ X)
    np.testing.assert_allclose(f(a, X + 1).todense(), A @ (X + 1))
    assert len(count) == 1
    f(a, X[:, :2])
    f(a.asformat("coo"), X)
    assert len(count) == 3


def test_pytrees_statics_and_keywords():
    @functools.partial(sj.jit, static_argnames="power")
    def f(params, x, power=1):
        y = x
        for _ in range(power):
            y = params["w"] @ y + params["b"][0]
        return {"y": y, "none": None}

    w = sj.array(np.eye(3) * 2, format="csr")
    made = f({"w": w, "b": [np.ones(3)]}, np.ones(3), power=2)
    np.testing.assert_array_equal(made["y"].todense(), [7.0, 7, 7])
    assert made["none"] is None
    with pytest.raises(ValueError, match="not hashable"):
        f({"w": w, "b": [np.ones(3)]}, np.ones(3), power=[1])
    with pytest.raises(TypeError, match="static"):
        sj.jit(lambda x, mode: x)(np.ones(3), "fast")


def test_closures_are_run_time_constants():
    w = sj.array(np.arange(9.0).reshape(3, 3), format="csr")
    f = sj.jit(lambda x: w @ x)
    np.testing.assert_array_equal(f(np.ones(3)).todense(), [3.0, 12, 21])
    jaxpr = sj.make_jaxpr(lambda x: w @ x)(np.ones(3))
    assert len(jaxpr.consts) == 1 and jaxpr.consts[0] is w


def test_nested_jit_is_inlined():
    inner = sj.jit(lambda x: x * 2)
    outer = sj.jit(lambda x: inner(x) + 1)
    assert outer(np.ones(2)).todense().tolist() == [3, 3]
    assert "jit" not in str(sj.make_jaxpr(outer)(np.ones(2)))


def test_jaxpr_prints_checks_and_evaluates():
    f = lambda A, x: snp.maximum(A @ x, 0).sum()  # noqa: E731
    closed = sj.make_jaxpr(f)(sj.array(A, copy=True), X)
    assert "f64[6:d,7:c]" in str(closed) and "contract[ij,jk->ik]" in str(closed)
    check_jaxpr(closed.jaxpr)
    np.testing.assert_allclose(evaluate(closed, A.toarray(), X)[0], np.maximum(A @ X, 0).sum())
    eqn = closed.jaxpr.eqns[0]
    wrong = Eqn(eqn.primitive, eqn.inputs, eqn.params, (Var(closed.jaxpr.inputs[0].aval),))
    with pytest.raises(sj.JaxprTypeError, match="its rule gives"):
        check_jaxpr(Jaxpr(closed.jaxpr.inputs, (), (wrong,), ()))
    with pytest.raises(sj.JaxprTypeError, match="not defined before"):
        check_jaxpr(Jaxpr((), (), (eqn,), ()))


def test_eval_shape_and_structs():
    made = sj.eval_shape(lambda A, x: (A @ x, A.T), sj.ShapeDtypeStruct((4, 5), "f4", format="csr"), np.ones(5, "f4"))
    assert made[0].shape == (4,) and made[0].dtype == np.float32
    assert made[1].format == sj.formats.Format.parse("csc", 2)


def test_stages():
    f = sj.jit(lambda A, x: A @ x)
    a = sj.array(A, copy=True)
    lowered = f.trace(a, X).lower()
    for stage, word in (
        ("jaxpr", "contract"),
        ("plan", "loop order"),
        ("cin", "forall"),
        ("loops", "for "),
        ("llvm", "define i64"),
    ):
        assert word in lowered.as_text(stage)
    assert "ret" in lowered.as_text("asm")
    np.testing.assert_allclose(lowered.compile()(a, X).todense(), A @ X)
    with pytest.raises(TypeError, match="compile again"):
        lowered.compile()(a, X[:, :1])
    with pytest.raises(ValueError, match="not one of"):
        lowered.as_text("c++")


def test_products_in_any_formats_are_not_inner_products():
    n = 3000
    big = sp.random_array((n, n), density=3e-3, format="csr", random_state=np.random.default_rng(0))
    f = sj.jit(lambda A, B: A @ B)
    for first in ("csr", "csc", "coo"):
        for second in ("csr", "csc", "coo"):
            operands = sj.array(big, format=first, copy=True), sj.array(big, format=second, copy=True)
            best = f.lower(*operands).as_text("plan").split("loop order ")[1]
            assert not best.startswith(("i,j,k", "j,i,k")), (first, second, best)


def test_shape_polymorphic_kernels():
    f = sj.jit(lambda A, x: A @ x)
    f(sj.array(np.eye(11), format="csr"), np.ones(11))
    before = compiler.compile_count()
    f(sj.array(np.eye(12), format="csr"), np.ones(12))
    assert compiler.compile_count() == before


def test_numbers_do_not_mean_new_kernels():
    a = sj.array(A, copy=True)
    a * 1.5, a + 1.5
    before = compiler.compile_count()
    for number in (2.5, 3.5, 7, 0):
        assert (a * float(number)).format == a.format
        np.testing.assert_array_equal((a * float(number)).todense(), A.toarray() * number)
    assert compiler.compile_count() == before
    assert (a + 2.5).fill_value == 2.5
    assert sj.jit(lambda a: a * 0)(a).format == a.format


def test_six_dimensions_and_duplicates():
    x = RNG.integers(0, 2, (2, 1, 3, 2, 2, 2)).astype(float)
    for form in ("csf", "coo", "(d,c,q,q,d,c)@(5,3,1,0,2,4)"):
        made = sj.array(x, format=form, copy=True)
        np.testing.assert_array_equal((made * 2 + made).todense(), x * 3)
        np.testing.assert_array_equal(made.sum(axis=(1, 4)).todense(), x.sum(axis=(1, 4)))
    b = sj.array(A, format="(d,n)@(0,1)", copy=True)
    np.testing.assert_allclose((b @ X).todense(), A @ X)
    np.testing.assert_allclose((b + b).todense(), 2 * A.toarray())


def branch(x):
    return x if x > 0 else -x


@pytest.mark.parametrize(
    ("function", "error", "word"),
    [
        (branch, sj.TracerBoolConversionError, "boolean conversion"),
        (lambda x: np.asarray(x), sj.TracerArrayConversionError, "NumPy array"),
        (lambda x: range(3)[x], sj.TracerIntegerConversionError, "integer"),
        (lambda x: float(x), sj.ConcretizationTypeError, "float"),
        (lambda x: list(x), sj.ConcretizationTypeError, "iterate"),
        (lambda x: x.todense(), sj.TracerArrayConversionError, "todense"),
    ],
)
def test_traced_values_are_not_concrete(function, error, word):
    with pytest.raises(error, match=word) as caught:
        sj.jit(function)(np.float64(1.0))
    assert __file__ in str(caught.value)


def test_leaked_tracer():
    kept = []
    sj.jit(lambda x: kept.append(x) or x)(np.ones(2))
    with pytest.raises(sj.UnexpectedTracerError, match="leaked"):
        kept[0] + 1
    with pytest.raises(sj.UnexpectedTracerError, match="leaked"):
        sj.jit(lambda x: x + kept[0])(np.ones(2))


def test_arrays_are_immutable_and_pickle():
    a = sj.array(A, copy=True)
    with pytest.raises(AttributeError, match="immutable"):
        a.shape = (1,)
    with pytest.raises(TypeError, match="immutable"):
        a[0] = 1
    with pytest.raises(TypeError, match="todense"):
        np.asarray(a)
    again = pickle.loads(pickle.dumps(a, protocol=5))
    np.testing.assert_array_equal(again.todense(), a.todense())
    assert again.format == a.format
    with pytest.raises(ValueError, match="ambiguous"):
        bool(a)
    assert "format=csr" in repr(a) and "density=" in repr(a)


def test_numpy_functions_are_redirected():
    a = sj.array(A, copy=True)
    assert isinstance(np.add(a, 1), sj.Array)
    assert isinstance(X.T @ a.T, sj.Array)
    assert isinstance(np.sum(a, axis=0), sj.Array)
    with pytest.raises(TypeError, match="sparsejax"):
        sj.jit(np.unwrap)(a)


@dataclass
class Layer:
    weights: object
    name: str


def test_registered_dataclass():
    sj.tree_util.register_dataclass(Layer, meta_fields=["name"])
    f = sj.jit(lambda layer, x: layer.weights @ x)
    made = f(Layer(sj.array(np.eye(2), format="csr"), "first"), np.ones(2))
    assert made.todense().tolist() == [1, 1]


def test_weak_scalars():
    f = sj.jit(lambda x, s: x * s)
    assert f(np.ones(2, np.float32), 2.0).dtype == np.float32
    assert f(np.ones(2, np.float32), np.float64(2)).dtype == np.float64
    with pytest.raises(OverflowError, match="out of bounds"):
        sj.array(np.ones(2, np.uint8)) + 300


def test_unused_work_is_dropped_and_shared_work_is_done_once():
    closed = sj.make_jaxpr(lambda x: (x * 2, x * 2, snp.exp(x))[:2])(np.ones(2))
    assert isinstance(closed, ClosedJaxpr) and len(closed.jaxpr.eqns) == 3
    assert sj.jit(lambda x: (x * 2, x * 2, snp.exp(x))[:2]).lower(np.ones(2)).as_text("jaxpr").count("=") == 1


def test_traced_arrays_unpack():
    first, rest = sj.jit(lambda x: (lambda a, *b: (a * 2, len(b)))(*x))(np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(first.todense(), [0, 2])
    assert int(rest.todense()) == 2
    with pytest.raises(sj.ConcretizationTypeError, match="iterate over"):
        sj.jit(lambda x: list(x))(1.0)


def test_clear_caches_finds_functions_without_looking_at_what_others_make(monkeypatch):
    """A tuple that another thread is making must not be seen: CPython raises SystemError there."""
    traced = []

    @sj.jit
    def f(x):
        traced.append(x)
        return x + 1

    f(np.ones(3))
    monkeypatch.setattr(gc, "get_objects", None)
    sj.clear_caches()
    f(np.ones(3))
    assert len(traced) == 2
