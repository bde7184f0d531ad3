"""`lax.top_k` against a stable sort of dense rows: formats, fills, ties, NaN, derivatives, batches."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import lax


def sorted_rows(dense, k, axis=-1):
    """NaN first, then descending; of equal entries the first comes first."""
    lines = np.moveaxis(dense, axis, -1)
    backwards = np.argsort(lines[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    indices = (lines.shape[-1] - 1 - backwards)[..., :k]
    values = np.take_along_axis(lines, indices, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(indices, -1, axis)


def check(array, dense, k, axis=-1):
    expected = sorted_rows(dense, k, axis)
    for run in (lax.top_k, sj.jit(lax.top_k, static_argnames=("k", "axis"))):
        values, indices = run(array, k=k, axis=axis)
        assert indices.dtype == np.int32 and values.dtype == dense.dtype
        np.testing.assert_array_equal(indices.todense(), expected[1])
        np.testing.assert_array_equal(values.todense(), expected[0])


def draw(rng, shape, dtype="f8", fill=0):
    dense = np.full(shape, fill, dtype)
    stored = rng.random(shape) < 0.4
    dense[stored] = rng.integers(-3, 4, np.count_nonzero(stored))  # ties, also with the fill
    return dense


@pytest.mark.parametrize("form", ["dense", "csr", "csc", "coo", "dcsr", "lil", "ell", "groupcoo:2", "bsr:2x2"])
@pytest.mark.parametrize("k", [0, 1, 3, 7])
def test_rows_of_matrices(form, k):
    rng = np.random.default_rng(k)
    dense = draw(rng, (6, 7))
    dense[2] = 0
    dense[3] = -1
    check(sj.array(dense, format=form), dense, k)
    check(sj.array(dense, format=form), dense, min(k, 6), axis=0)


@pytest.mark.parametrize("dtype", ["f4", "i4", "u1", "?"])
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_dtypes(dtype, form):
    dense = np.abs(draw(np.random.default_rng(1), (5, 9))).astype(dtype)
    check(sj.array(dense, format=form), dense, 4)


@pytest.mark.parametrize("fill", [-2.0, 1.0, -np.inf, np.inf, np.nan])
def test_what_is_not_stored_is_the_fill(fill):
    dense = draw(np.random.default_rng(2), (5, 9), fill=fill)
    dense[1, 4], dense[2, 3] = np.inf, -np.inf
    check(sj.array(dense, format="csr", fill_value=fill), dense, 6)


@pytest.mark.parametrize("form", ["coo", "csr", "dcsr"])
@pytest.mark.parametrize("extent", [2**31, 2**31 + 1, 2**34, 2**62])
def test_places_along_axes_that_int32_does_not_hold(form, extent):
    rng, rows, k = np.random.default_rng(extent), 9, 3
    columns = np.unique(np.concatenate([rng.integers(0, extent, 30), extent - 1 - np.arange(4), np.arange(4)]))
    at = np.unique(np.array([rng.integers(0, rows, 60), rng.choice(columns, 60)]), axis=1)
    values = rng.integers(-2, 3, at.shape[1]).astype(float)
    A = sj.array((values, tuple(at)), shape=(rows, extent), format=form)
    for row, run in enumerate([lax.top_k, sj.jit(lax.top_k, static_argnames=("k", "axis"))] * 4):
        found, indices = run(A.T, k=k, axis=0) if row % 3 == 1 else run(A, k=k)
        found, indices = (v.todense().T if row % 3 == 1 else v.todense() for v in (found, indices))
        stored = {int(j): v for i, j, v in zip(*at, values, strict=True) if i == row}
        near = {j: 0.0 for j in range(len(stored) + k) if j not in stored}
        wanted = sorted((stored | near).items(), key=lambda item: (-item[1], item[0]))[:k]
        np.testing.assert_array_equal(indices[row], [j for j, _ in wanted])
        np.testing.assert_array_equal(found[row], [v for _, v in wanted])
        assert indices.dtype == (np.int32 if extent <= 2**31 else np.int64)


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_nan_comes_first(form):
    dense = draw(np.random.default_rng(3), (4, 8))
    dense[0, [2, 5]], dense[1, :], dense[2, 7] = np.nan, np.nan, np.nan
    check(sj.array(dense, format=form), dense, 3)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "ell"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "?"])
def test_rows_of_many_lengths(form, dtype):
    rng = np.random.default_rng(5)
    dense = rng.integers(-6, 0, (9, 80)).astype(dtype)  # where no place is free, all that is found is below zero
    dense[2:][rng.random((7, 80)) < np.linspace(0, 1, 7)[:, None]] = 0
    dense[0, 70:] = dense[0, :10]
    if dense.dtype.kind == "f":
        dense[0, [3, 40, 41]], dense[1, :9], dense[4, 5] = np.nan, -np.inf, np.nan
    else:
        dense[1, :9] = -128 if dtype == "i1" else False
    for k in (1, 4, 33, 80):
        check(sj.array(dense, format=form), dense, k)
    check(sj.array(dense, format=form), dense, 5, axis=0)


@pytest.mark.parametrize("form", ["dense", "csf", "coo"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_more_dimensions(form, axis):
    dense = draw(np.random.default_rng(4), (3, 4, 5))
    check(sj.array(dense, format=form), dense, 2, axis)


@pytest.mark.parametrize("form", ["dense", "(c)"])
def test_vectors(form):
    dense = draw(np.random.default_rng(5), (40,))
    check(sj.array(dense, format=form), dense, 11)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_nothing(shape):
    values, indices = lax.top_k(np.zeros(shape), 0)
    assert values.shape == indices.shape == (shape[0], 0)


def test_wide_rows_cost_what_they_store():
    A = sj.array((np.array([-1.0]), (np.array([1]), np.array([3]))), shape=(2, 10**9), format="csr")
    _, indices = lax.top_k(A, 4)
    np.testing.assert_array_equal(indices.todense(), [[0, 1, 2, 3], [0, 1, 2, 4]])


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_derivatives_of_values(form):
    rng = np.random.default_rng(6)
    dense = draw(rng, (5, 6)) + rng.random((5, 6)) * 0.1
    weights = rng.random((5, 3))
    A = sj.array(dense, format=form)

    def f(A):
        return (lax.top_k(A, 3)[0] * weights).sum()

    expected = np.zeros_like(dense)
    np.put_along_axis(expected, sorted_rows(dense, 3)[1], weights, -1)
    for gradient in (sj.grad(f), sj.jit(sj.grad(f))):
        made = gradient(A)
        assert made.format == A.format
        np.testing.assert_allclose(made.todense(), expected)
    tangent = sj.array(rng.random((5, 6)) * (dense != 0), format=form)
    _, moved = sj.jvp(lambda A: lax.top_k(A, 3)[0], (A,), (tangent,))
    np.testing.assert_allclose(moved.todense(), np.take_along_axis(tangent.todense(), sorted_rows(dense, 3)[1], -1))


@pytest.mark.parametrize("form", ["dense", "(d,c,d)@(1,2,0)", "(d,d,c)"])
def test_batches(form):
    dense = draw(np.random.default_rng(7), (3, 4, 5))
    A = sj.array(dense, format=form)
    for run in (sj.vmap(lambda A: lax.top_k(A, 2)), sj.jit(sj.vmap(lambda A: lax.top_k(A, 2)))):
        values, indices = run(A)
        expected = sorted_rows(dense, 2)
        np.testing.assert_array_equal(indices.todense(), expected[1])
        np.testing.assert_array_equal(values.todense(), expected[0])
    gradient = np.zeros_like(dense)
    np.put_along_axis(gradient, sorted_rows(dense, 2)[1], 1.0, -1)
    if not A.format.is_dense:
        gradient *= lax.pattern(A).todense()
    np.testing.assert_array_equal(sj.vmap(sj.grad(lambda A: lax.top_k(A, 2)[0].sum()))(A).todense(), gradient)


def test_row_by_row():
    rng = np.random.default_rng(8)
    A, B = rng.random((6, 4)), rng.random((9, 4))
    values, indices = sj.jit(lambda A, B: lax.map(lambda row: lax.top_k(B @ row, 3), A))(A, B)
    expected = sorted_rows(A @ B.T, 3)
    np.testing.assert_array_equal(indices.todense(), expected[1])
    np.testing.assert_allclose(values.todense(), expected[0])


def test_errors():
    x = np.ones((2, 3))
    with pytest.raises(ValueError, match="k=4 of top_k must be from 0 to the extent 3 of axis 1"):
        lax.top_k(x, 4)
    with pytest.raises(ValueError, match="k=-1"):
        lax.top_k(x, -1)
    with pytest.raises(TypeError, match=r"k=1\.5"):
        lax.top_k(x, 1.5)
    with pytest.raises(TypeError, match="operand of top_k must be real"):
        lax.top_k(x * 1j, 1)
    with pytest.raises(ValueError, match="at least one dimension"):
        lax.top_k(np.float64(1), 1)
    with pytest.raises(np.exceptions.AxisError):
        lax.top_k(x, 1, axis=2)
