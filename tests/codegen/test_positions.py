"""Levels that share positions, walked as one loop (`rewrite/position_walks`): position by position, and in segmented scans."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.formats import Format
from tests.fuzz import guarded

SHAPES = ["positions", "segmented"]
LENGTHS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 0, 0, 8, 3, 30, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2]


@pytest.fixture(autouse=True)
def lanes(processor):
    processor(True, True)


def matrix(lengths, cols, dtype, rng):
    dense = np.zeros((len(lengths), cols), dtype)
    for row, length in enumerate(lengths):
        dense[row, rng.choice(cols, length, replace=False)] = rng.integers(1, 5, length)
    return dense


def run(function, shape, *args):
    """What a function gives where loops take a shape, and how they run."""
    with config.using(choose=f"loop_shape={shape}"):
        jitted = sj.jit(function)
        return np.asarray(jitted(*args).todense()), jitted.lower(*args).as_text("cin")


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u4", "i2", "u1", "?", "c16", "c8"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shuffled", [False, True])
def test_products_and_sums(dtype, shape, shuffled):
    rng = np.random.default_rng(4)
    dense = matrix(rng.permutation(LENGTHS) if shuffled else LENGTHS, 40, dtype, rng)
    x, y = rng.integers(0, 5, 40).astype(dtype), rng.integers(0, 5, len(LENGTHS)).astype(dtype)
    X = rng.integers(0, 5, (40, 3)).astype(dtype)
    A = sj.array(dense, format="coo")
    programs = {
        "rows": (lambda A, x: A @ x, (x,), dense @ x),
        "columns": (lambda A, y: A.T @ y, (y,), dense.T @ y),
        "several": (lambda A, X: A @ X, (X,), dense @ X),
        "factors": (
            lambda A, x, y: sj.einsum("ij,j,i->i", A, x, y),
            (x, y),
            (dense @ x) * y if dtype != "?" else (dense @ x) & y,
        ),
        "sums of rows": (lambda A: A.sum(axis=1), (), dense.sum(1)),
        "sums of columns": (lambda A: A.sum(axis=0), (), dense.sum(0)),
        "everything": (lambda A: A.sum(), (), dense.sum()),
    }
    for name, (function, args, expected) in programs.items():
        made, text = run(function, shape, A, *args)
        np.testing.assert_array_equal(made, expected, err_msg=name)
        assert made.dtype == expected.dtype
        in_lanes = dtype in ("f8", "f4", "i8", "i4", "u4") and name == "rows"
        accumulated = shape == "positions" and dtype in ("f8", "i8", "c16") and name in ("rows", "columns")
        if (shape == "segmented" and in_lanes) or accumulated:
            assert f": {shape} over" in text, name


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["(q,q)@(0,1)", "(q,q)@(1,0)"])
def test_orders_and_semirings(dtype, shape, order):
    rng = np.random.default_rng(5)
    dense = matrix(LENGTHS, 40, dtype, rng) - matrix(LENGTHS, 40, dtype, rng)
    A, x = sj.array(dense, format=order), rng.integers(-4, 5, 40).astype(dtype)
    y = rng.integers(-4, 5, len(LENGTHS)).astype(dtype)
    np.testing.assert_array_equal(run(lambda A, x: A @ x, shape, A, x)[0], dense @ x)
    np.testing.assert_array_equal(run(lambda A, y: y @ A, shape, A, y)[0], y @ dense)
    for axis in (0, 1):
        np.testing.assert_array_equal(run(lambda A, axis=axis: A.max(axis=axis), shape, A)[0], dense.max(axis))
        np.testing.assert_array_equal(run(lambda A, axis=axis: A.min(axis=axis), shape, A)[0], dense.min(axis))
    far = np.where(dense != 0, dense, np.inf).astype("f8")
    D = sj.array(far, format=order, fill_value=np.inf)
    made, text = run(lambda D, x: snp.matmul(D, x, semiring="min_plus"), shape, D, x.astype("f8"))
    np.testing.assert_array_equal(made, (far + x).min(1))
    assert order != "(q,q)@(0,1)" or f": {shape} over" in text


@pytest.mark.rotating(3)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["coo", "(d,q,q)@(0,1,2)", "(c,q,q)@(0,1,2)", "(q,q,q)@(2,0,1)", "(q,q,d)@(0,1,2)"])
@pytest.mark.parametrize(
    "text", ["ijk,j,k->i", "ijk,k->ij", "ijk,j->ik", "ijk->k", "ijk->ij", "ijk->j", "ijk,kr->ijr", "ijk,jr,kr->ir"]
)
def test_tensors(form, text, shape):
    rng = np.random.default_rng(6)
    dense = np.where(rng.random((7, 6, 9)) < rng.random((7, 6, 1)) ** 2, rng.integers(1, 5, (7, 6, 9)), 0).astype(float)
    A = sj.array(dense, format=Format.parse(form, 3))
    sizes = dict(zip("ijkr", (7, 6, 9, 3), strict=True))
    factors = [
        rng.integers(-3, 4, [sizes[c] for c in part]).astype(float) for part in text.split("->")[0].split(",")[1:]
    ]
    made, _ = run(lambda A, *factors: snp.einsum(text, A, *factors), shape, A, *factors)
    np.testing.assert_array_equal(made, np.einsum(text, dense, *factors))


@pytest.mark.parametrize("form", ["(d,q,q)@(0,1,2)", "(c,q,q)@(0,1,2)"])
@pytest.mark.parametrize("stored", [0, 3, 8, 13])
@pytest.mark.parametrize("at_end", [False, True])
def test_segments_without_positions(form, stored, at_end):
    """The last ones read no coordinate behind all that are stored, the first ones none before."""
    dense = np.zeros((5, 6, 9))
    dense[2].flat[:stored] = 1
    with guarded.guarded(at_end):
        A = sj.array(dense, format=Format.parse(form, 3))
        made, text = run(lambda A: snp.einsum("ijk->j", A), "segmented", A)
    assert "segmented over" in text
    np.testing.assert_array_equal(made, dense.sum((0, 2)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_keep_what_is_no_number_to_themselves(shape, bad):
    rng = np.random.default_rng(1)
    dense = np.zeros((60, 50))
    for row in range(60):
        dense[row, rng.choice(25, rng.integers(0, 10), replace=False) + 25 * (row % 2)] = 1
    x = np.where(np.arange(50) < 25, rng.integers(1, 5, 50), bad)
    made, _ = run(lambda A, x: A @ x, shape, sj.array(dense, format="coo"), x)
    np.testing.assert_array_equal(made[::2], dense[::2, :25] @ x[:25])
    assert not np.isfinite(made[1::2][dense[1::2].any(axis=1)]).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sum_of_negative_zeros_is_a_positive_one(shape):
    A = sj.array((np.ones(40), (np.arange(40), np.arange(40))), shape=(41, 40), format="coo")
    made, text = run(lambda A, x: A @ x, shape, A, np.full(40, -0.0))
    assert f": {shape} over" in text
    assert not np.signbit(made).any()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("program", ["rows", "columns", "sums"])
def test_bits_do_not_depend_on_chunks(shape, dtype, program):
    """Rows lie in one chunk each, and are summed up in the same order in any."""
    rng = np.random.default_rng(8)
    rows = np.sort(rng.integers(0, 700, 3000) ** 2 // 700)
    A = sj.array(
        (rng.normal(size=3000).astype(dtype), (rows, rng.integers(0, 90, 3000))), shape=(700, 90), format="coo"
    )
    x, y = rng.normal(size=90).astype(dtype), rng.normal(size=700).astype(dtype)
    function, args = {
        "rows": (lambda A, x: A @ x, (x,)),
        "columns": (lambda A, y: A.T @ y, (y,)),
        "sums": (lambda A: A.sum(axis=1), ()),
    }[program]
    for chunks in ("two", "usual", "each"):
        made = []
        for threads, alone in ((1, "straight"), (1, "chunked"), (2, "chunked")):
            choose = f"loop_shape={shape}, chunks={chunks}, alone={alone}"
            with config.using(choose=choose, num_threads=threads, parallel_work=1):
                made.append(np.asarray(sj.jit(function)(A, *args).todense()))
        np.testing.assert_array_equal(made[1], made[2])
        if program != "columns":  # chunks that share rows of the result each have one of their own
            np.testing.assert_array_equal(made[0], made[1])
        np.testing.assert_allclose(made[0], function(np.asarray(A.todense()), *args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_and_batches(shape):
    rng = np.random.default_rng(9)
    dense = matrix(LENGTHS, 40, "f8", rng)
    A, x, w = sj.array(dense, format="coo"), rng.normal(size=40), rng.normal(size=len(LENGTHS))
    with config.using(choose=f"loop_shape={shape}"):
        made = sj.jit(sj.grad(lambda x, A, w: (w * (A @ x) ** 2).sum()))(x, A, w)
        np.testing.assert_allclose(made.todense(), dense.T @ (2 * w * (dense @ x)), rtol=1e-12)
        entries = sj.jit(sj.grad(lambda A, x, w: (w * (A @ x) ** 2).sum()))(A, x, w)
        np.testing.assert_allclose(entries.todense(), (dense != 0) * np.outer(2 * w * (dense @ x), x), rtol=1e-12)
        X = rng.normal(size=(5, 40))
        np.testing.assert_allclose(sj.jit(sj.vmap(lambda x: A @ x))(X).todense(), X @ dense.T, rtol=1e-12)


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "u1", "c8"])
@pytest.mark.parametrize("shape", ["positions", "entries"])
def test_rows_of_part_of_a_vector(processor, shape, dtype, masks):
    """Of as many columns as half a vector has lanes, or a quarter, nothing is left out under a mask."""
    processor(masks, True)
    rng = np.random.default_rng(5)
    dense = matrix(LENGTHS, 40, dtype, rng)
    for columns in (1, 2, 3, 4, 5, 8, 12, 16, 20, 32, 40):
        X = rng.integers(0, 5, (40, columns)).astype(dtype)
        for form in ("coo", "csr"):
            with config.using(choose=f"loop_shape={shape}"):
                A, jitted = sj.array(dense, format=form), sj.jit(lambda A, X: A @ X)
                np.testing.assert_array_equal(jitted(A, X).todense(), dense @ X)
                text = jitted.lower(A, X).as_text("llvm")
            if masks and dtype == "f4" and columns in (4, 8):
                assert f"<{columns} x float>" in text
                assert "<16 x float>" not in text


@pytest.mark.parametrize("form", ["csr", "coo", "csc", "dcsr"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_values_beside_positions_are_as_many_as_there_are(form, dtype):
    """Kernels over the values of a pattern are planned for as many as are expected."""
    rng = np.random.default_rng(6)
    for rows in range(3, 12):
        dense = np.where(rng.random((rows, 4)) < 0.5, 1 + rng.random((rows, 4)), 0).astype(dtype)
        A, y = sj.array(dense, format=form), rng.random(rows).astype(dtype)
        slope = sj.jit(sj.grad(lambda A, y: (A * 2 * y.sum()).sum()))
        np.testing.assert_allclose(slope(A, y).todense(), (dense != 0) * 2 * y.sum(), rtol=1e-5)
        most = sj.jit(lambda A, y: sj.nn.segment_sum(A * 2, np.arange(len(y)) % 3, 3))(A, y).todense()
        np.testing.assert_allclose(most, [2 * dense[k::3].sum(0) for k in range(3)], rtol=1e-5)


FUNCTIONS = {
    "power": lambda np, s: s**0.3,
    "cubes": lambda np, s: s**3,
    "of powers": lambda np, s: 1.5**s,
    "logaddexp": lambda np, s: np.logaddexp(s, 1.5),
    "arctan2": lambda np, s: np.arctan2(s, 2.5),
    "floor_divide": lambda np, s: s // 3,
    "remainder": lambda np, s: s % 3,
    "fmod": lambda np, s: np.fmod(s, 3),
    "sqrt": lambda np, s: np.sqrt(s),
    "tanh": lambda np, s: np.tanh(s) + 1,
    "cbrt": lambda np, s: np.cbrt(s),
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_sums(dtype, shape, name):
    """Some are computed in lanes, others by a call of a library function for each lane: a scan runs only where it can write what becomes of sums."""
    dense = matrix(LENGTHS, 40, dtype, np.random.default_rng(4))
    made, text = run(lambda A: FUNCTIONS[name](snp, snp.sum(A, 1)), shape, sj.array(dense, format="coo"))
    close = 1e-5 if dtype == "f4" else 1e-12
    np.testing.assert_allclose(made, FUNCTIONS[name](np, dense.sum(1)), rtol=close, err_msg=text)
