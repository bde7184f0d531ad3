"""Programs over data of any sizes: after a few shapes, nothing is traced, scheduled or compiled, and results are those of a trace of their own."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.tree_util import tree_leaves
from tests.shapes.programs import PROGRAMS
from tests.shapes.traced import Traced

SHAPES, KNOWN = 40, 14
"""Shapes of every program, a thousand in all; how many of them may be planned."""


def equal(got, wanted):
    for x, y in zip(tree_leaves(got), tree_leaves(wanted), strict=True):
        assert (x.shape, x.dtype, x.format) == (y.shape, y.dtype, y.format)
        np.testing.assert_allclose(x.todense(), y.todense(), rtol=1e-9, atol=1e-9)


@pytest.mark.rotating(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_new_shape_plans_nothing(name, counts):
    operands, function = PROGRAMS[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    run = Traced(function)
    for number in range(SHAPES):
        n, m, k = (int(x) for x in rng.integers(500, 950, 3))
        args = operands(rng, n, m, k)
        before = dict(counts), run.traces
        got = run(*args)
        if number >= KNOWN:
            refused = [
                (f.refused, f._fixed, [(m.domain.stands, m.domain.guards) for m in f._members][-3:])
                for f in run.jitted._families.values()
            ]
            assert (counts, run.traces) == before, f"shape {number} of {name}, {n} x {m} x {k}: {refused}"
        if number % 6 == 5:
            equal(got, sj.jit(function, dynamic=False)(*args))


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    "names",
    [
        ("spmv", "spmm", "spgemm"),
        ("sum of two", "row sums", "concatenation"),
        ("gram", "diagonal", "fills"),
        ("taken rows", "pairs"),
        ("scattered rows", "set columns", "equations"),
        ("segments", "means of segments", "softmax of segments"),
    ],
)
def test_operations_at_once_plan_nothing(names, counts):
    rng = np.random.default_rng(5)
    for number in range(30):
        n, m, k = (int(x) for x in rng.integers(500, 950, 3))
        for name in names:
            operands, function = PROGRAMS[name]
            args = operands(rng, n, m, k)
            before = dict(counts)
            got = function(*args)
            if number >= KNOWN:
                assert counts == before, f"shape {number} of {name}, {n} x {m} x {k}"
            if number % 10 == 9:
                with sj.config.using(skip={"symbolic_shapes"}):
                    equal(got, sj.jit(function, dynamic=False)(*args))


ALONE = {
    "product": lambda A, x: A @ x,
    "scaled": lambda A, x: A * 2.5,
    "of both": lambda A, x: (A * 3) @ x,
    "one operand": lambda A, x: A.sum(axis=0),
    "a number": lambda A, x: snp.sum(abs(A)),
    "several results": lambda A, x: (A @ x, {"twice": A * 2}),
}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("at_once", [False, True])
def test_shapes_in_turns(name, at_once):
    """Shapes that come back as often as it takes to get plans of their own, with operands whose facts differ, and settings that change."""
    rng = np.random.default_rng(sum(map(ord, name)))
    function, dtype = ALONE[name], rng.choice([np.float32, np.float64])
    run = function if at_once else sj.jit(function)
    shapes = [tuple(int(n) for n in rng.integers(2, 400, 2)) for _ in range(9)]
    for number in range(60):
        n, m = shapes[int(rng.integers(len(shapes)))]
        density = rng.choice([0.0, 0.02, 0.3])
        dense = (rng.integers(-4, 5, (n, m)) * (rng.random((n, m)) < density)).astype(dtype)
        x = rng.integers(-4, 5, m).astype(dtype)
        A = sj.array(dense, format=("csr", "csc", "coo")[number % 3])
        with sj.config.using(workspace="hash" if number % 7 == 6 else "auto"):
            got = tree_leaves(run(A, x if number % 2 else sj.array(x)))
        wanted = tree_leaves({"got": function(dense, x)})  # whole numbers: exact
        for found, exact in zip(got, wanted, strict=True):
            assert (found.shape, found.dtype) == (np.shape(exact), exact.dtype)
            np.testing.assert_array_equal(found.todense(), exact)


def test_a_call_gives_the_same_bits_again():
    """Whether another trace serves a shape, or its own."""
    rng = np.random.default_rng(3)
    run = sj.jit(lambda A, x: A @ x / 3 + x[: A.shape[0]].sum())
    pairs = []
    for n in (30, 50, 70, 90, 110):
        A = sj.array(rng.standard_normal((n, n + 1)) * (rng.random((n, n + 1)) < 0.2), format="csr")
        pairs.append((A, sj.array(rng.standard_normal(n + 1))))
    first = [run(*pair).todense().tobytes() for pair in pairs]
    for _ in range(6):
        assert [run(*pair).todense().tobytes() for pair in pairs] == first


REDUCTIONS = ["sum", "prod", "max", "min", "any", "all", "mean", "var", "ptp", "nanprod", "nanmax", "median", "argmax"]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("fill", [0, 1, 2])
@pytest.mark.parametrize("form", ["csr", "dcsr", "coo", "csf", "(d,d,c)", "(d,c,d)"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_have_the_format_and_fill_that_every_shape_has(name, form, fill):
    """Types do not depend on whether extents are known: traced for a shape, for any, and only evaluated; values are NumPy's."""
    rng = np.random.default_rng(sum(map(ord, name + form)))
    shapes = [(7, 8, 2), (9, 4, 3), (3, 4, 5)]
    for axis in range(3):
        run = sj.jit(lambda x, axis=axis: getattr(snp, name)(x, axis=axis % x.ndim))
        for shape in shapes:
            shape = shape if form not in ("csr", "dcsr") else shape[:2]
            dense = np.where(rng.random(shape) < 0.3, rng.integers(-3, 4, shape), fill).astype(float)
            x = sj.array(dense, format=form, fill_value=fill)
            got, typed = run(x), sj.eval_shape(run.__wrapped__, x)
            assert (got.shape, got.dtype, got.format) == (typed.shape, typed.dtype, typed.format)
            assert np.array_equal(got.fill_value, typed.fill_value, equal_nan=True)
            np.testing.assert_allclose(got.todense(), getattr(np, name)(dense, axis=axis % x.ndim), rtol=1e-9)


def test_numbers_that_types_depend_on_in_turns(counts):
    """A number may decide whether a result is sparse: it is told apart by its value, and served at any shape all the same."""
    rng = np.random.default_rng(11)
    calls = [
        lambda A: A > 0.5,
        lambda A: A > -0.5,
        lambda A: A + 0.0,
        lambda A: A + 1.5,
        lambda A: snp.clip(A, 0, 0.5),
        lambda A: snp.where(A > 0.25, 2, 0.0),
        lambda A: A > 0.5,
        lambda A: A**2.0,
        lambda A: float("nan") != A,
    ]
    shapes = [tuple(int(n) for n in rng.integers(500, 950, 2)) for _ in range(30)]
    for number in range(240):
        call = calls[int(rng.integers(len(calls)))]
        n, m = shapes[number % 30] if number < 120 else shapes[int(rng.integers(30))]
        dense = np.round(4 * rng.standard_normal((n, m))) / 4 * (rng.random((n, m)) < 0.02)
        before = dict(counts)
        got = call(sj.array(dense, format="csr"))
        assert number < 100 or counts == before
        np.testing.assert_array_equal(got.todense(), np.asarray(call(sj.array(dense)).todense()))
        with sj.config.using(skip={"symbolic_shapes"}):
            wanted = sj.jit(call, dynamic=False)(sj.array(dense, format="csr")) if number % 20 == 0 else got
        assert got.aval == wanted.aval


@pytest.mark.parametrize("named", [True, False])
def test_bits_of_named_extents_do_not_depend_on_which_shape_comes_first(named):
    """Each of two shapes of one bucket would be associated in its own way."""
    rng = np.random.default_rng(0)
    shapes = [(16, 200, 16, 200), (200, 16, 200, 16)]
    given = [[rng.standard_normal((s[k], s[k + 1])) for k in range(3)] for s in shapes]
    words = {"x": ("n", "m"), "y": ("m", "k"), "z": ("k", "p")} if named else True
    bits = []
    for order in ((0, 1), (1, 0)):

        def product(x, y, z):
            return x @ y @ z

        f = sj.jit(product, dynamic=words)
        for _ in range(2):
            found = {k: np.asarray(f(*given[k])).tobytes() for k in order}
        bits.append((found[0], found[1]))
        for k in order:
            x, y, z = given[k]
            np.testing.assert_allclose(f(x, y, z).todense(), x @ y @ z, atol=1e-10)
    if named:
        assert bits[0] == bits[1]
