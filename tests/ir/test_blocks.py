"""Blocked operands and results in compiled operations, against dense NumPy; what is read natively and what is converted."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as sjn
from sparsejax.formats import Compressed, Dense, Format, convert, validate
from sparsejax.jit.ir import blocks, cin
from tests.fuzz import definitions

SHAPES = [(6, 9), (7, 10), (1, 2), (0, 4), (5, 3)]  # tiled by 2 x 3, sticking out, smaller than a block, empty
BSR = "bsr:2x3"


def random_array(seed, shape, dtype="f8", density=0.4):
    rng = np.random.default_rng(seed)
    return (rng.integers(1, 5, shape) * (rng.random(shape) < density)).astype(dtype)


def check(result, want, form=None):
    """Equal values, sound storage, and the format asked for."""
    if form is not None:
        assert str(result.format) == form
    validate.validate(result.storage)
    np.testing.assert_allclose(result.todense(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [BSR, "bsr:2x2", "bsr:1x4", "bsr:5x1", "(c,c,d,d)/(2,3)", "(d,c,d,d)@(1,0,1,0)/(2,2)"])
def test_products_with_dense_operands(shape, name):
    x, (m, n) = random_array(0, shape), shape
    rng = np.random.default_rng(1)
    v, w, H = rng.random(n), rng.random(m), rng.random((n, 11))
    A = sj.array(x, format=name)
    check(A @ v, x @ v, "dense")
    check(w @ A, w @ x, "dense")
    check(A @ H, x @ H, "dense")
    check(A.T @ w, x.T @ w, "dense")
    check(sjn.einsum("ij,j,i->", A, v, w), x.dot(v).dot(w))
    check(
        sjn.einsum("ij,ik,jk->ij", A, np.ones((m, 2)), np.ones((n, 2))),
        2 * x,
        str(A.format).replace("(c,c,d,d)@(0,1,0,1)/(2,3)", BSR),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_elementwise(shape):
    x, y = random_array(0, shape), random_array(1, shape)
    A, B = sj.array(x, format=BSR), sj.array(y, format=BSR)
    for op in (np.add, np.multiply, np.maximum, np.subtract):
        check(getattr(sjn, op.__name__)(A, B), op(x, y), BSR)
        check(getattr(sjn, op.__name__)(A, sj.array(y, format="csr")), op(x, y), "csr")
        check(getattr(sjn, op.__name__)(A, sj.array(y, format="bsr:4x4")), op(x, y), "csr")
    check(A * y, x * y, BSR)
    check(A + y, x + y, "dense")
    check(A * 3, x * 3, BSR)
    check(A * y[0] if len(y) else A * 2, x * y[0] if len(y) else x * 2, BSR)
    shifted = A + 1
    check(shifted, x + 1, BSR)
    assert shifted.fill_value == 1
    check(shifted * B, (x + 1) * y, BSR)
    check(sjn.exp(A), np.exp(x), BSR)
    check(A > 1, x > 1, BSR)


@pytest.mark.parametrize("shape", [(6, 9), (7, 10), (1, 2)])
def test_reductions_see_nothing_outside_the_shape(shape):
    x = random_array(0, shape) + 1
    A = sj.array(x - 1, format=BSR) + 1  # fill 1: what sticks out of the shape holds ones
    assert A.fill_value == 1
    for name in ("sum", "prod", "max", "min"):
        for axis in (None, 0, 1):
            check(getattr(sjn, name)(A, axis=axis), getattr(np, name)(x, axis=axis))


def test_values_outside_the_shape_are_never_computed():
    x = random_array(0, (3, 4), density=1.0)
    made = sj.array(x, format="bsr:2x3") * np.full(4, np.inf)
    check(made, x * np.inf, BSR)  # zero times infinity is no number, and would not be the fill
    np.testing.assert_array_equal((made @ np.ones(4)), np.full(3, np.inf))


@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_blocked_matrices(shape):
    x, y = random_array(0, shape), random_array(1, shape)
    A, B = sj.array(x, format=BSR), sj.array(y, format=BSR)
    check(A @ B.T, x @ y.T, "bsr:2x2")
    check(A.T @ B, x.T @ y)
    check(A @ sj.array(np.ascontiguousarray(y.T), format="bsr:3x4"), x @ y.T, "bsr:2x4")
    check(A @ sj.array(np.ascontiguousarray(y.T), format="csr"), x @ y.T, "csr")
    check(A @ sj.array(np.ascontiguousarray(y.T), format="bsr:2x2"), x @ y.T, "csr")
    check(sjn.maximum(A @ B.T, 1.0), np.maximum(x @ y.T, 1.0))


@pytest.mark.parametrize("dtype", ["f4", "i8", "?", "c16", "u1"])
def test_dtypes(dtype):
    x, y = random_array(0, (7, 10), dtype), random_array(1, (7, 10), dtype)
    A, B = sj.array(x, format=BSR), sj.array(y, format=BSR)
    check(A * B, x * y, BSR)
    check(A @ y.T, x @ y.T)
    check(A @ B.T, x @ y.T)


@pytest.mark.parametrize("blocks_", [(2, 2, 2), (1, 2, 3), (4, 1, 1), (3, 3, 1)])
def test_blocks_of_more_dimensions(blocks_):
    x = random_array(0, (5, 6, 7), density=0.2)
    form = Format([Compressed] * 3 + [Dense] * sum(b > 1 for b in blocks_), None, blocks_)
    A = sj.array(x, format=form)
    rng = np.random.default_rng(1)
    B, C = rng.random((6, 4)), rng.random((7, 4))
    check(sjn.einsum("ijk,jr,kr->ir", A, B, C), np.einsum("ijk,jr,kr->ir", x, B, C))
    check(sjn.einsum("ijk,kr->ijr", A, C), np.einsum("ijk,kr->ijr", x, C))
    check(A.sum(axis=1), x.sum(axis=1))
    check(A + A, x + x, str(form))
    check(sjn.transpose(A, (2, 0, 1)) * 2, x.transpose(2, 0, 1) * 2)


def test_diagonals_of_blocked_matrices():
    x = random_array(0, (7, 7), density=0.6)
    for name in ("bsr:2x2", "bsr:2x3", "bsr:8x8"):
        A = sj.array(x, format=name)
        check(sjn.einsum("ii->i", A), np.diag(x))
        check(sjn.einsum("ii->", A), np.trace(x))


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("out", "shape"), list(itertools.product([BSR, "bsr:4x4", "(c,d,c,d)@(0,0,1,1)/(2,2)", "(d,d,d,d)/(2,3)"], SHAPES))
)
def test_pinned_results(out, shape):
    x, y = random_array(0, shape), random_array(1, shape)
    A, B = sj.array(x, format=BSR), sj.array(y, format="csr")
    check(sjn.einsum("ij,ij->ij", A, B, out_format=out), x * y, out if out != "(d,d,d,d)/(2,3)" else None)
    check(sjn.einsum("ij,ij->ij", A, A, out_format=out), x * x)
    check(sjn.einsum("i,j->ij", x[:, :1].sum(1), np.ones(shape[1]), out_format=out), x[:, :1].sum(1)[:, None] + 0 * x)
    check(A.asformat(out), x)


def plan(function, *args):
    return sj.jit(function).lower(*args).as_text("plan")


def test_what_is_native_and_what_is_converted():
    x = random_array(0, (8, 9))
    A, C, D = (sj.array(x, format=name) for name in (BSR, "csr", "bsr:2x2"))
    for function, args in [
        (lambda a, v: a @ v, (A, np.ones(9))),
        (lambda a, h: a @ h, (A, np.ones((9, 4)))),
        (lambda a, b: a * b, (A, A)),
        (lambda a, b: a + b, (A, A)),
        (lambda a: a * 2, (A,)),
        (lambda a: a @ a.T, (sj.array(x, format="bsr:2x2"),)),
        (lambda a, u, v: sjn.einsum("ij,ik,jk->ij", a, u, v), (A, np.ones((8, 2)), np.ones((9, 2)))),
    ]:
        text = plan(function, *args)
        assert "converted" not in text.replace("is converted to (d,c,d,d)@(1,0,1,0)", ""), text
    assert "A is converted to csr first" in plan(lambda a, b: a + b, A, C)
    assert "A is converted to csr first" in plan(lambda a, b: a + b, A, D)
    pinned = plan(lambda a: sjn.einsum("ij->ij", a, out_format="bsr:4x4"), C)
    assert "the result is converted to bsr:4x4 last" in pinned or "library call" in pinned


def test_the_pass():
    A = cin.Tensor("A", (4, 8), np.dtype("f8"), Format.parse(BSR, 2), 0.0)
    x = cin.Tensor("x", (8,), np.dtype("f8"), Format.parse("dense", 1), 0.0)
    i, j = cin.IndexVar("i"), cin.IndexVar("j")
    parts = blocks.parts_of([cin.Access(A, (i, j))])
    split = blocks.split_access(cin.Access(A, (i, j)), parts)
    assert str(split) == "A[io,jo,ii,ji]" and split.tensor.shape == (2, 3, 2, 3) and split.tensor.inner == (2, 3)
    assert parts[j][1] == cin.IndexVar("ji", cin.IndexVar("jo"), 3, 2)
    vector = blocks.split_access(cin.Access(x, (j,)), parts)
    assert str(vector) == "x[jo,ji]" and vector.tensor.shape == (3, 3) and vector.tensor.paired == (1,)
    moved = blocks.joined(cin.Access(A, (i, j)), parts, Format(split.tensor.format.levels, (1, 0, 3, 2)))
    assert str(moved) == "(d,c,d,d)@(1,0,1,0)/(2,3)"
    assert blocks.joined(cin.Access(x, (j,)), parts, vector.tensor.format) == x.format


def test_formats_of_results():
    x = random_array(0, (6, 6))
    A = sj.array(x, format="bsr:2x3")
    assert str(sj.eval_shape(lambda a: a @ a.T, A).format) == "bsr:2x2"
    assert str(sj.eval_shape(lambda a: a @ a, A).format) == "csr"  # blocks of 3 columns meet blocks of 2 rows
    assert str(sj.eval_shape(lambda a: a.T * 2, A).format) == "(d,c,d,d)@(1,0,1,0)/(3,2)"
    assert str(sj.eval_shape(lambda a: a + a.asformat("csr"), A).format) == "csr"
    assert sj.eval_shape(lambda a: a.sum(axis=1), A).format.is_dense


def test_scipy_bsr_stays_bsr():
    x = random_array(0, (8, 9))
    S = sp.bsr_array(x, blocksize=(2, 3))
    A = sj.array(S)
    assert str(A.format) == BSR
    made = (A * 2).to_scipy()
    assert made.format == "bsr" and made.blocksize == (2, 3)
    np.testing.assert_array_equal(made.toarray(), 2 * x)
    np.testing.assert_allclose(sj.jit(lambda a, v: a @ v)(S, np.ones(9)), x.sum(1))
    assert convert.to_dense(A.storage).shape == (8, 9)


@pytest.mark.parametrize("levels", ["(c,o,d)@(1,1,0)/(1,3)", "(c,c,d)@(1,1,0)/(1,3)", "(d,d,d)@(1,1,0)/(1,3)"])
def test_an_extent_of_one_in_blocks_that_is_broadcast(levels):
    """Where no index variable runs over the blocks, their levels are still no dimensions of their own."""
    x, y = np.array([[-0.5], [1.0]]), np.array([0.25, 0.0])
    made = sj.jit(lambda a, b: b - a)(sj.array(x, format=levels), sj.array(y[:, None] + np.zeros((2, 4)), format="csr"))
    np.testing.assert_array_equal(made.todense(), y[:, None] + np.zeros((2, 4)) - x)
    assert definitions.check(9256, True) is None
