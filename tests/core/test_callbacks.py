"""Python inside traced functions: callbacks for results and for what they show; jit switched off; caches cleared."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

A = sj.array(np.diag([1.0, 2.0, 3.0]), format="csr")


def test_what_is_shown_stays():
    seen = []

    @sj.jit
    def f(A, x):
        y = A @ x
        sj.debug.callback(lambda a, v, name: seen.append((str(a.format), v.tolist(), name)), A, y, "one")
        sj.debug.callback(lambda v: seen.append(v.tolist()), y)
        return (y * 2).sum()

    assert float(f(A, np.ones(3))) == 12
    assert seen == [("csr", [1.0, 2.0, 3.0], "one"), [1.0, 2.0, 3.0]]
    f(A, np.ones(3))
    assert len(seen) == 4
    sj.grad(lambda x: f(A, x))(np.ones(3))
    assert len(seen) == 6
    sj.vmap(lambda x: f(A, x))(np.ones((4, 3)))
    assert len(seen) == 14 and seen[-1] == [1.0, 2.0, 3.0]
    sj.lax.fori_loop(0, 5, lambda k, x: (sj.debug.callback(seen.append, k), x + 1)[1], 0.0)
    assert [int(k) for k in seen[-5:]] == list(range(5))


def test_two_equal_lines_are_printed_twice(capsys):
    @sj.jit
    def f(x):
        sj.debug.print("x={}", x)
        sj.debug.print("x={}", x)
        sj.debug.print("{y:.1f}", y=x * 2)

    f(1.0)
    sj.debug.print("outside {}", 3)
    assert capsys.readouterr().out.split("\n") == ["x=1.0", "x=1.0", "2.0", "outside 3", ""]


def test_results_of_python():
    def sorted_by_numpy(x):
        return sj.pure_callback(np.sort, sj.ShapeDtypeStruct((3,), float), x)

    x = np.array([[3.0, 1, 2], [5, 4, 6]])
    np.testing.assert_array_equal(sj.jit(sorted_by_numpy)(x[0]).todense(), np.sort(x[0]))
    np.testing.assert_array_equal(sj.vmap(sorted_by_numpy)(x).todense(), np.sort(x))
    both = sj.jit(sj.vmap(sj.vmap(sorted_by_numpy)))(np.stack([x, -x]))
    np.testing.assert_array_equal(both.todense(), np.sort(np.stack([x, -x])))
    shape = sj.ShapeDtypeStruct((3, 3), float, format="csr"), {"n": sj.ShapeDtypeStruct((), int)}
    made, rest = sj.jit(lambda a, n: sj.pure_callback(lambda a, n: (a.to_scipy() * 2, {"n": n + 1}), shape, a, n))(A, 4)
    assert str(made.format) == "csr" and int(rest["n"]) == 5
    np.testing.assert_array_equal(made.todense(), A.todense() * 2)
    assert int(sj.pure_callback(lambda: np.int64(3), sj.ShapeDtypeStruct((), int))) == 3


def test_promises_are_kept():
    with pytest.raises(ValueError, match="promised"):
        sj.pure_callback(lambda x: x[:2], sj.ShapeDtypeStruct((3,), float), np.ones(3))
    with pytest.raises(ValueError, match="structure"):
        sj.pure_callback(lambda x: (x, x), sj.ShapeDtypeStruct((3,), float), np.ones(3))
    with pytest.raises(ValueError, match="no derivative"):
        sj.grad(lambda x: sj.pure_callback(np.sum, sj.ShapeDtypeStruct((), float), x))(np.ones(3))
    with pytest.raises(TypeError, match="ShapeDtypeStruct"):
        sj.pure_callback(np.sum, float, np.ones(3))


def test_callbacks_may_call_us():
    inner = sj.jit(lambda x: (A @ x).sum())
    made = sj.jit(lambda x: sj.pure_callback(lambda v: np.asarray(inner(v)), sj.ShapeDtypeStruct((), float), x) + 1)
    assert float(made(np.ones(3))) == 7


def test_what_was_handed_over_stays():
    kept = []
    f = sj.jit(lambda x: (sj.debug.callback(kept.append, x * 2), x + 1)[1])
    for k in range(5):
        f(np.full(3, float(k)))
    assert [v[0] for v in kept] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_jit_switched_off():
    def f(x):
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(sj.TracerBoolConversionError):
        sj.jit(f)(sj.array([1.0, 2.0]))
    with sj.disable_jit():
        np.testing.assert_array_equal(sj.jit(f)(sj.array([1.0, 2.0])).todense(), [2, 4])
        slope = sj.grad(lambda x: (sj.jit(snp.sin)(x) * 2).sum())(np.zeros(2))
        np.testing.assert_array_equal(slope.todense(), [2, 2])
        with sj.disable_jit(False):
            assert float(sj.jit(f)(sj.array(3.0))) == 6
    with pytest.raises(sj.TracerBoolConversionError):
        sj.jit(f)(sj.array([1.0, 2.0]))


def test_caches_are_cleared():
    traced = []
    f = sj.jit(lambda x: (traced.append(1), A @ x)[1])
    f(np.ones(3)), f(np.ones(3))
    assert len(traced) == 1
    sj.clear_caches()
    np.testing.assert_array_equal(f(np.ones(3)).todense(), [1, 2, 3])
    assert len(traced) == 2


def test_names_at_the_top():
    assert sj.device_put({"a": np.ones(2)})["a"].device == "cpu" and sj.devices() == ["cpu"]
    assert sj.block_until_ready(A) is A and A.block_until_ready() is A
    with pytest.raises(ValueError, match="device"):
        sj.device_put(A, "gpu")
    S = A.to_scipy()
    for made in (
        sj.csr_array(S),
        sj.csr_array(A.todense()),
        sj.csr_array((S.data, S.indices, S.indptr)),
        sj.csr_array((A.data, A.indices, A.indptr), shape=(3, 3)),
        sj.csr_array((S.data, S.nonzero()), shape=(3, 3)),
        sj.csr_array(A.tocsc()),
    ):
        assert str(made.format) == "csr"
        np.testing.assert_array_equal(made.todense(), A.todense())
    assert sj.csc_array((2, 3)).shape == (2, 3) and sj.coo_array(np.eye(2)).nnz == 2
    assert sj.tree.map(lambda x: x + 1, {"a": 1}) == {"a": 2} and sj.tree.leaves((1, [2])) == [1, 2]


@pytest.mark.parametrize(
    "module", [sj, snp, snp.linalg, snp.fft, sj.lax, sj.nn, sj.random, sj.tree, sj.debug, sj.nn.initializers]
)
def test_namespaces_show_what_is_public(module):
    names = [n for n in dir(module) if not n.startswith("__")]
    assert names and all(hasattr(module, n) for n in names)
    public = {
        "config",
        "debug",
        "formats",
        "interop",
        "io",
        "lax",
        "nn",
        "numpy",
        "plot",
        "random",
        "scipy",
        "tree",
        "tree_util",
    }
    public |= {"fft", "linalg", "initializers"}
    modules = {n for n in names if type(getattr(module, n)).__name__ == "module"}
    assert modules <= public | ({"dask", "export"} if module is sj else set())
    later = {"dask", "export"} if module is sj else set()
    assert {n for n in names if not n.startswith("_")} <= set(module.__all__) | {"__version__"} | later
