"""What a signature is: types of statics, structures of arguments, weak numbers; tracing inside tracing; pickling; threads."""

import copy
import gc
import pickle
import time
import weakref
from dataclasses import dataclass

import cloudpickle
import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit import function, pipeline
from tests.together import in_threads

pytestmark = pytest.mark.rotating(24)

A = np.array([[0, 1.0], [2, 0]])


@sj.jit
def doubled(x):
    return x * 2


def test_equal_statics_of_different_types_are_different():
    f = sj.jit(lambda x, s: x * s, static_argnums=1)
    x = np.ones(2, np.int8)
    kinds = [f(x, s).dtype.kind for s in (1, True, 1.0, 1, True, 1.0)]
    assert kinds == ["i", "i", "f"] * 2
    g = sj.jit(lambda x, s: x * s[0], static_argnums=1)
    assert [g(x, s).dtype.kind for s in ((1,), (1.0,))] == ["i", "f"]
    assert [f(sj.array(np.ones(2, bool)), s).dtype for s in (1, True)] == [np.int64, np.bool_]


@dataclass
class Scaled:
    array: object
    factor: object


sj.tree_util.register_dataclass(Scaled, meta_fields=["factor"])


def test_equal_structures_of_different_types_are_different():
    f = sj.jit(lambda s: s.array * s.factor)
    kinds = [f(Scaled(np.ones(2, np.int8), factor)).dtype.kind for factor in (1, 1.0, 1, 1.0)]
    assert kinds == ["i", "f"] * 2


@pytest.mark.parametrize("argnums", [5, -5, 1])
def test_statics_must_be_parameters(argnums):
    with pytest.raises(ValueError, match="static_argnums"):
        sj.jit(lambda x: x, static_argnums=argnums)
    with pytest.raises(TypeError, match="static_argnums"):
        sj.jit(lambda x: x, static_argnums="0")
    with pytest.raises(TypeError, match="static_argnames"):
        sj.jit(lambda x: x, static_argnames=0)
    f = sj.jit(lambda x, *rest: x * rest[-1], static_argnums=(2,))
    assert f(np.ones(1), 1.0, 3).todense()[0] == 3
    assert sj.jit(lambda x, n: x * n, static_argnums=-1)(np.ones(1), 3).todense()[0] == 3


def test_compiled_functions_know_their_structure():
    a = sj.array(A, format="csr")
    compiled = sj.jit(lambda d: d["a"] - d["z"]).lower({"a": a, "z": a * 2}).compile()
    np.testing.assert_array_equal(compiled({"a": a, "z": a * 2}).todense(), -A)
    with pytest.raises(TypeError, match="structure"):
        compiled({"q": a, "b": a * 2})
    with pytest.raises(TypeError, match="structure"):
        compiled(a, a * 2)
    named = sj.jit(lambda x, y: x - y).lower(a, y=a).compile()
    assert named(a, y=a).nnz == a.nnz
    with pytest.raises(TypeError, match="structure"):
        named(a, a)


PROGRAMS = [
    lambda x, s: x * snp.sin(s),
    lambda x, s: snp.add(s, 2) * x,
    lambda x, s: snp.where(True, s, 2.0) * x,
    lambda x, s: snp.add(1, 2) * x,
    lambda x, s: snp.sin(1) * x,
    lambda x, s: (s + 1) * x,
    lambda x, s: (1 - s * 2 / 3) * x,
    lambda x, s: abs(s) * x,
    lambda x, s: s * x,
    lambda x, s: snp.real(s) * x,
    lambda x, s: snp.clip(s, 1, 2) * x,
    lambda x, s: (s < 2) * x,
    lambda x, s: doubled(s) * x,
]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("number", [3, 2.5, True])
@pytest.mark.parametrize("dtype", ["i1", "f4", "c8"])
def test_numbers_promote_alike_eager_and_compiled(program, number, dtype):
    x = sj.array(np.ones(2, dtype))
    try:
        want = program(x, number)
    except TypeError:
        with pytest.raises(TypeError):
            sj.jit(program)(x, number)
        return
    got = sj.jit(program)(x, number)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.todense(), want.todense(), rtol=1e-6)


def test_python_integers_must_fit():
    x = np.ones(2, np.int8)
    f = sj.jit(lambda a, s: a * s)
    assert f(x, 100).dtype == np.int8
    for multiplied in (f, lambda a, s: sj.array(a) * s, f.lower(x, 100).compile()):
        with pytest.raises(OverflowError, match="300 out of bounds for int8"):
            multiplied(x, 300)
    assert f(x.astype("f4"), 300).todense()[0] == 300
    assert f(x.astype("i8"), 300).todense()[0] == 300


LONG = (-1, 0, 255, 256, 300, -(2**63), 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70, -(2**70))


@pytest.mark.parametrize("op", ["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i8", "u8", "f8"])
def test_comparisons_with_any_integer(op, dtype):
    limits = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else np.iinfo("i4")
    x = np.array([limits.min, 0, 1, limits.max], dtype)
    for number in LONG:
        want = getattr(np, op)(x, number)
        np.testing.assert_array_equal(getattr(snp, op)(sj.array(x), number).todense(), want)
        np.testing.assert_array_equal(sj.jit(lambda a, n=number: getattr(snp, op)(a, n))(x).todense(), want)
        sparse = sj.array(x, format="csf", copy=True)
        np.testing.assert_array_equal(getattr(snp, op)(number, sparse).todense(), getattr(np, op)(number, x))
        if abs(number) < 2**63:
            f = sj.jit(lambda a, s: getattr(snp, op)(a, s))
            np.testing.assert_array_equal(f(x, number).todense(), want)


def test_arithmetic_with_long_integers():
    x = np.array([1, 2], np.uint64)
    np.testing.assert_array_equal((sj.array(x) + 2**63).todense(), x + 2**63)
    np.testing.assert_array_equal((sj.array([1.5]) + 2**70).todense(), np.array([1.5]) + 2**70)
    for number in (2**63, 2**64, -1):
        with pytest.raises(OverflowError):
            sj.array(x if number != 2**63 else x.astype(np.int64)) + number


def test_tracing_inside_tracing():
    kept = {}

    @sj.jit
    def outer(x):
        kept["jaxpr"] = sj.make_jaxpr(lambda y: y * 2)(x)
        kept["shape"] = sj.eval_shape(lambda y: y @ x, x)
        kept["text"] = sj.jit(lambda y: y + x).lower(x).as_text("jaxpr")
        with pytest.raises(ValueError, match="statistics"):
            sj.jit(lambda y: y + 1).lower(x).as_text("cin")
        with pytest.raises(sj.ConcretizationTypeError, match="arguments"):
            sj.jit(lambda y: y + x).lower(x).compile()
        with pytest.raises(sj.UnexpectedTracerError):
            sj.jit(lambda y: y + 1).lower(x).compile()(x)
        return x + 1

    np.testing.assert_array_equal(outer(A).todense(), A + 1)
    assert "multiply" in str(kept["jaxpr"]) and kept["shape"].shape == (2, 2) and "add" in kept["text"]


def test_functions_that_read_an_outer_trace_are_traced_again():
    seen = []
    outer_value = [None]
    inner = sj.jit(lambda y: y + outer_value[0])

    @sj.jit
    def outer(x):
        outer_value[0] = x
        seen.append(sj.make_jaxpr(inner)(np.ones(2)))
        return inner(np.ones(2))

    np.testing.assert_array_equal(outer(np.ones(2)).todense(), [2, 2])
    outer_value[0] = 5.0
    np.testing.assert_array_equal(inner(np.ones(2)).todense(), [6, 6])


def test_types_have_no_data():
    struct = sj.ShapeDtypeStruct((2,), float)
    with pytest.raises(TypeError, match="no data"):
        sj.jit(lambda x: x)(struct)
    with pytest.raises(TypeError, match="ShapeDtypeStruct"):
        sj.array(struct)
    for shape in ((-2, 2), (1.5,)):
        with pytest.raises(ValueError):
            sj.ShapeDtypeStruct(shape, float)


def test_types_and_functions_are_copied_and_pickled():
    struct = sj.ShapeDtypeStruct((2, 3), "f4", format="csr", fill_value=np.nan)
    for again in (copy.copy(struct), copy.deepcopy(struct), pickle.loads(pickle.dumps(struct))):
        assert again == struct and again.aval == struct.aval
    assert copy.deepcopy(doubled) is doubled
    assert pickle.loads(pickle.dumps(sj.lax.structural.transpose_p.typing(struct.aval, (1, 0)))).shape == (3, 2)
    shift = 3.0
    local = sj.jit(lambda x, n: x * n + shift, static_argnums=1)
    for dumps in (pickle.dumps, cloudpickle.dumps):
        again = pickle.loads(dumps(local))
        np.testing.assert_array_equal(again(np.ones(2), 4).todense(), [7, 7])
        np.testing.assert_array_equal(pickle.loads(dumps(doubled))(np.ones(2)).todense(), [2, 2])


def test_leaked_tracers_say_so():
    kept = []

    @sj.jit
    def leak(x):
        kept.append(x)
        assert copy.deepcopy(x) is x
        with pytest.raises(sj.ConcretizationTypeError, match="pickle"):
            pickle.dumps(x)
        with pytest.raises(AttributeError, match="immutable"):
            x._aval = None
        return x

    leak(np.ones(2))
    for use in (sj.array, float, np.asarray, bool, lambda x: x.todense(), snp.exp, lambda x: x.reshape(2, 1)):
        with pytest.raises(sj.UnexpectedTracerError, match="leaked"):
            use(kept[0])


def test_threads_share_one_trace(monkeypatch):
    count, lowered, real = [], [], pipeline.lower.lower
    monkeypatch.setattr(pipeline.lower, "lower", lambda *args: lowered.append(1) or real(*args))

    @sj.jit
    def slow(x):
        count.append(1)
        time.sleep(0.05)
        return x + 1

    results = in_threads(8, lambda _: slow(np.ones(2)))
    assert len(lowered) == 1
    assert len(count) == 1 and all(r.todense()[0] == 2 for r in results)


def test_signatures_that_are_not_called_any_more_are_forgotten(monkeypatch):
    monkeypatch.setattr(function, "SIGNATURES", 4)
    traced = []
    f = sj.jit(lambda x, n: traced.append(n) or x * n, static_argnums=1)
    x = np.ones(2)
    f(x, 0)
    first = weakref.ref(next(iter(f._cache.values())).closed)
    for n in range(1, 4):
        f(x, n)
        f(x, 0)
    assert traced == [0, 1, 2, 3]
    assert [f(x, n).todense()[1] for n in (4, 0, 2, 3, 4)] == [4, 0, 2, 3, 4] and traced == [0, 1, 2, 3, 4]
    f(x, 1)
    assert traced == [0, 1, 2, 3, 4, 1] and len(f._cache) == 4
    compiled = f.lower(x, 0).compile()
    for n in range(10, 20):
        f(x, n)
    gc.collect()
    assert len(f._cache) == 4 and first() is None
    assert compiled(x).todense()[0] == 0
    again = len(traced)
    f(x, 0)
    assert len(traced) == again + 1
