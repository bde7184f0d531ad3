"""Axes of extent one: the loops that are left of kernels, the memory that these are bound to, and results against dense NumPy."""

import re

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as sjn
from sparsejax.formats import Format
from sparsejax.jit.codegen import abi
from sparsejax.jit.ir import blocks, cin, nest, units

FORMATS = ("csr", "csc", "coo", "dense", "bsr:2x2", "ell", "(d,c,d)@(1,0,1)/(1,2)", "(c,c)")
SHAPES = ((1, 1), (1, 7), (7, 1), (9, 7), (6, 8))
F8 = np.dtype(np.float64)
I, J, K, Z = map(cin.IndexVar, "ijkz")


def dense(name, shape, order=None):
    form = Format.parse("dense", len(shape)).levels
    return cin.Tensor(name, shape, F8, Format(form, order or range(len(shape))), 0.0)


def product(columns, order=None):
    """y[i,j] += A[i,k] * x[k,j]"""
    A = cin.Access(cin.Tensor("A", (4, 9), F8, Format.parse("csr", 2), 0.0), (I, K))
    x = cin.Access(dense("x", (9, columns), order), (K, J))
    return nest.of_definition(dense("y", (4, columns)), cin.Definition((I, J), "add", cin.Call("multiply", (A, x), F8)))


def test_a_variable_of_extent_one_goes():
    made = units.dropped(product(1))
    assert [str(v) for v in made.variables] == ["i", "k"]
    assert str(made.producers[0].rhs) == "multiply(A[i,k], x[k])"
    assert [(t.shape, t.stored) for t in (made.output, *made.inputs)] == [
        ((4,), Format.parse("dense", 2)),
        ((4, 9), Format.parse("csr", 2)),
        ((9,), Format.parse("dense", 2)),
    ]
    assert units.dropped(made) is made
    assert units.dropped(product(2)) == product(2)


def test_what_is_reduced_or_sparse_stays():
    x = cin.Access(dense("x", (9, 1)), (K, J))
    summed = nest.of_definition(dense("y", (9,)), cin.Definition((K,), "add", x))
    assert units.dropped(summed) is summed
    A = cin.Access(cin.Tensor("A", (4, 1), F8, Format.parse("csr", 2), 0.0), (I, J))
    scaled = nest.of_definition(A.tensor._replace(name="y"), cin.Definition((I, J), None, A))
    assert units.dropped(scaled) is scaled


def test_the_slots_are_those_of_the_array():
    made = units.dropped(
        nest.of_definition(dense("y", (1, 5)), cin.Definition((Z, I), None, cin.Access(dense("x", (1, 5)), (Z, I))))
    )
    for t in (made.output, *made.inputs):
        assert [str(s) for s in abi.slots_of(t, output=False)] == [f"{t.name}.n0", f"{t.name}.n1", f"{t.name}.vals"]
        assert abi.extent(t, 0) == abi.Slot(t.name, "extent", 1)
        assert (abi.is_unit(t, 0), abi.is_unit(t, 1), abi.literal(t, 1)) == (True, False, 5)
        assert tuple(units.counts(t, (1.0, 5.0))) == (5.0,)


def test_a_format_of_what_is_left_is_one_of_the_array():
    x = cin.Access(dense("x", (3, 1, 5), (2, 0, 1)), (I, Z, J))
    given = nest.of_definition(dense("y", (3, 1, 5)), cin.Definition((I, Z, J), None, x))
    (left,) = units.dropped(given).inputs
    assert (left.shape, left.format.order) == ((3, 5), (1, 0))
    assert units.restored(left, left.format).order == (2, 0, 1)
    plain = blocks.with_formats(given, {"x": Format.parse("dense", 2)})
    assert plain.inputs[0].format.order == (0, 2, 1)
    assert units.dropped(plain).inputs[0].format == Format.parse("dense", 2)


@pytest.mark.parametrize("name", ["csr", "coo", "csc"])
def test_one_column_runs_as_a_vector(name):
    A = sj.array(np.eye(50) + np.eye(50, k=3), format=name)
    x = np.arange(50.0)
    f = sj.jit(lambda A, x: A @ x)
    one, many = (f.lower(A, v).as_text("cin") for v in (x, x[:, None]))
    assert many.replace("k", "j") == one.replace("k", "j")


def test_a_pass_that_can_be_missing():
    """The loop stays, in a plan of its own, and adds up the same."""
    A, x = sj.array(np.eye(50) + np.eye(50, k=3), format="csr"), np.arange(50.0)[:, None]
    f = sj.jit(lambda A, x: A @ x)
    texts, results = [], []
    for skip in ((), ("units",), ()):
        with sj.config.using(skip=sj.config.skip() | {*skip}):
            assert units.dropped(product(1)).variables == ((I, K) if not skip else product(1).variables)
            texts.append(f.lower(A, x).as_text("cin"))
            results.append(np.asarray(f(A, x)))
    assert texts[0] == texts[2] != texts[1]
    assert texts[1].count("forall") == texts[0].count("forall") + 1
    assert all(np.array_equal(results[0], r) for r in results)


def test_what_is_merged_is_priced_as_vectors_are():
    A, x = sj.array(np.eye(2000) + np.eye(2000, k=3), format="csr"), np.ones(2000)
    f = sj.jit(lambda A, x: A.T @ (A @ x))
    one, many = (str(sj.explain(f)(A, v)) for v in (x, x[:, None]))
    vector, column = (re.search(r"moves in: cost (\S+), apart (\S+)", text) for text in (one, many))
    assert [float(p) for p in column.groups()] == pytest.approx([float(p) for p in vector.groups()], rel=0.01)


CASES = {
    "product": lambda np, A, X, V, W, S: A @ X,
    "from the left": lambda np, A, X, V, W, S: V.T @ A,
    "rows scaled": lambda np, A, X, V, W, S: A * V,
    "columns scaled": lambda np, A, X, V, W, S: A * W + S,
    "sum of rows": lambda np, A, X, V, W, S: A / (1 + A.sum(axis=1, keepdims=True)),
    "sum of columns": lambda np, A, X, V, W, S: A.sum(axis=0, keepdims=True) * 2 + W,
    "largest": lambda np, A, X, V, W, S: np.max(A * V, axis=1, keepdims=True) + V,
    "finished": lambda np, A, X, V, W, S: np.maximum(A @ X + V, S),
    "of one rank": lambda np, A, X, V, W, S: A * (V @ W),
    "both sides": lambda np, A, X, V, W, S: V.T @ A @ X,
    "softmax": lambda np, A, X, V, W, S: np.exp(A @ X) / np.exp(A @ X).sum(axis=0, keepdims=True),
    "two of them": lambda np, A, X, V, W, S: np.einsum("ij,jz,jy->izy", A, X, X),
    "summed": lambda np, A, X, V, W, S: (A @ X).sum(axis=1),
    "turned": lambda np, A, X, V, W, S: (A @ X).T + V.T,
    "dense": lambda np, A, X, V, W, S: np.sqrt(V * V + S).T * V.T,
}


def arrays(shape, seed=0):
    """A matrix with zeros, columns for it and beside it, a row, a number."""
    rng, (m, n) = np.random.default_rng(seed), shape
    return (
        rng.random(shape) * (rng.random(shape) < 0.4),
        np.asfortranarray(rng.random((n, 3)))[:, :1],
        *map(rng.random, ((m, 1), (1, n), (1, 1))),
    )


@pytest.mark.rotating(5)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_results(case, name, shape):
    A, *rest = arrays(shape)
    want = CASES[case](np, A, *rest)
    given = sj.array(A, format=name)
    for f, skip in ((CASES[case], ()), (jitted := sj.jit(CASES[case], static_argnums=0), ()), (jitted, ("units",))):
        with sj.config.using(skip=sj.config.skip() | {*skip}):
            got = f(sjn, given, *map(sj.asarray, rest))
        np.testing.assert_allclose(np.asarray(sjn.asarray(got).todense()), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", CASES)
def test_extents_that_are_one_by_chance(case):
    f = sj.jit(lambda A, X, V, W, S: CASES[case](sjn, A, X, V, W, S))
    for shape in ((9, 7), (11, 7), (11, 8), (1, 8), (12, 1), (1, 1), (10, 6)):
        A, *rest = arrays(shape)
        got = f(sj.array(A, format="csr"), *rest)
        want = CASES[case](np, A, *rest)
        np.testing.assert_allclose(np.asarray(sjn.asarray(got).todense()), want, rtol=1e-12, atol=1e-14)


def test_columns_that_are_one_by_chance():
    f = sj.jit(lambda A, X: A @ X + X[:1], dynamic={"A": ("n", "m"), "X": ("m", "k")})
    for columns in (3, 1, 2, 1):
        A, *_ = arrays((9, 7))
        X = np.random.default_rng(columns).random((7, columns))
        np.testing.assert_allclose(np.asarray(f(sj.array(A, format="csr"), X)), A @ X + X[:1], rtol=1e-12)


@pytest.mark.parametrize("case", ["product", "finished", "from the left", "dense", "turned"])
def test_in_chunks(case):
    A, *rest = arrays((700, 500))
    want = CASES[case](np, A, *rest)
    with sj.config.using(num_threads=2, parallel_work=1):
        got = CASES[case](sjn, sj.array(A, format="csr"), *map(sj.asarray, rest))
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)


def test_gradients():
    A, X, V, *_ = arrays((9, 7))
    gradient = sj.grad(lambda X, A: ((A @ X - V) ** 2).sum())
    np.testing.assert_allclose(np.asarray(gradient(X, sj.array(A, format="csr"))), 2 * A.T @ (A @ X - V), rtol=1e-12)


def test_indices_from_arrays():
    rng = np.random.default_rng(3)
    X, rows = rng.random((9, 1)), rng.integers(0, 9, 20)
    out = sjn.zeros((9, 1)).at[rows].add(X[rows] * 2)
    want = np.zeros((9, 1))
    np.add.at(want, rows, X[rows] * 2)
    np.testing.assert_allclose(np.asarray(out), want, rtol=1e-12)
    got = sj.jit(lambda X, r: X[r] + X[r[:, None], 0])(X, rows)
    np.testing.assert_allclose(np.asarray(got), X[rows] + X[rows[:, None], 0], rtol=1e-12)
