"""`sparsejax.numpy` against NumPy: every function, dtype and a spread of formats, eager and compiled, and result formats."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.lax.elementwise import BINARY, UNARY

pytestmark = pytest.mark.rotating(24)

FORMATS = ("dense", "csr", "csc", "coo", "dcsr")
DTYPES = ("?", "i4", "i8", "u1", "f4", "f8", "c8", "c16")


def matrix(dtype, seed=0, shape=(4, 5)):
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 4, shape) * (rng.random(shape) < 0.6)
    return (
        made.astype(dtype)
        if np.dtype(dtype).kind != "c"
        else (made + 1j * rng.integers(0, 2, shape) * (made != 0)).astype(dtype)
    )


def agree(ours, theirs):
    theirs = np.asarray(theirs)
    half = theirs.dtype == np.float16
    if half:  # ours is float32 then
        theirs = theirs.astype(np.float32)
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    loose = ours.dtype in (np.float32, np.complex64)
    np.testing.assert_allclose(
        ours.todense(), theirs, rtol=2e-3 if half else 1e-5 if loose else 1e-12, atol=1e-6 if loose else 1e-13
    )


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_unary(name, dtype):
    x = matrix(dtype)
    with np.errstate(all="ignore"):
        try:
            want = getattr(np, name)(x)
        except TypeError:
            with pytest.raises(TypeError):
                getattr(snp, name)(sj.array(x, format="csr"))
            return
    if name == "reciprocal" and np.dtype(dtype).kind in "iu":
        x = np.where(x == 0, 1, x).astype(dtype)
        want = np.reciprocal(x)
    for form in FORMATS[:3]:
        agree(getattr(snp, name)(sj.array(x, format=form, copy=True)), want)


# entries that are not stored annihilate: 0 / 0, 0 % 0 and inf or NaN times an unstored zero stay zero, unlike in NumPy
SKIP_ZERO = ("divide", "floor_divide", "remainder", "power")


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_binary(name, dtype):
    x, y = matrix(dtype, 1), matrix(dtype, 2)
    if name in SKIP_ZERO or "shift" in name:
        y = np.where(y == 0, 1, y).astype(dtype)
    with np.errstate(all="ignore"):
        try:
            want = getattr(np, name)(x, y)
        except TypeError:
            with pytest.raises(TypeError):
                getattr(snp, name)(sj.array(x, format="csr"), sj.array(y, format="csr"))
            return
    for first, second in (("csr", "csr"), ("csr", "csc"), ("coo", "dense"), ("dense", "dcsr")):
        agree(getattr(snp, name)(sj.array(x, format=first, copy=True), sj.array(y, format=second, copy=True)), want)


def test_quotients_of_entries_that_are_not_stored():
    d = matrix("f8", 10)
    x, y = sj.array(d, format="csr", copy=True), sj.array(np.roll(d, 1, axis=1), format="csr", copy=True)
    with np.errstate(all="ignore"):
        want = d / np.roll(d, 1, axis=1)
    assert np.isnan((x / y).fill_value) and (x / x).nnz == x.nnz
    np.testing.assert_array_equal((x / y).todense(), want)
    assert (x / 2).nnz == x.nnz and (x / 2).fill_value == 0


def test_integer_division_never_traps():
    x = sj.array(np.array([1, -(2**63), 7, -7]))
    with np.errstate(all="ignore"):
        for y in (0, -1, 2, -3):
            np.testing.assert_array_equal((x // y).todense(), np.asarray(x) // y)
            np.testing.assert_array_equal((x % y).todense(), np.asarray(x) % y)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min", "any", "all", "mean"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (1,), ()])
@pytest.mark.parametrize("fill", [0, 2])
def test_reductions(kind, axis, fill):
    x = np.where(matrix("f8", 3, (3, 4, 2)) == 0, fill, matrix("f8", 3, (3, 4, 2)))
    if kind == "prod":
        x = np.where(x == 0, 0.0, 1.5)
        fill = 0
    want = getattr(np, kind)(x, axis=axis)
    for form in ("dense", "csf", "coo", "(d,c,d)@(0,1,2)", "(c,d,c)@(2,0,1)"):
        a = sj.array(x, format=form, copy=True)
        if form != "dense" and fill:
            coords = np.array(np.nonzero(x != fill))
            a = sj.array((x[x != fill], coords), shape=x.shape, format=form, fill_value=fill)
        agree(getattr(snp, kind)(a, axis=axis), want)
        agree(
            sj.jit(lambda a: getattr(a, kind)(axis=axis, keepdims=True))(a),
            getattr(np, kind)(x, axis=axis, keepdims=True),
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_dtypes(dtype):
    x = matrix(dtype)
    agree(sj.array(x, format="csr").sum(axis=1), x.sum(axis=1))


def test_shapes():
    x = matrix("f8", 4, (2, 3, 4))
    for form in ("dense", "csf", "coo"):
        a = sj.array(x, format=form, copy=True)
        agree(snp.transpose(a, (2, 0, 1)), x.transpose(2, 0, 1))
        agree(a.reshape(6, -1), x.reshape(6, -1))
        agree(snp.ravel(a), x.ravel())
        agree(snp.moveaxis(a, 0, -1), np.moveaxis(x, 0, -1))
        agree(snp.swapaxes(a, 0, 2), x.swapaxes(0, 2))
        agree(snp.expand_dims(a, 1), np.expand_dims(x, 1))
        agree(snp.squeeze(snp.expand_dims(a, (0, 2))), x)
        agree(snp.broadcast_to(a, (5, 2, 3, 4)), np.broadcast_to(x, (5, 2, 3, 4)))
        agree(snp.where(a > 1, a, -1.0), np.where(x > 1, x, -1.0))
        agree(snp.clip(a, 1, 2), np.clip(x, 1, 2))
    square = matrix("f8", 5, (4, 4))
    for form in FORMATS:
        a = sj.array(square, format=form, copy=True)
        agree(snp.trace(a), np.trace(square))
        agree(snp.diagonal(a), np.diagonal(square))
    agree(snp.eye(3, 4, 1), np.eye(3, 4, 1))


def test_products():
    x, y = matrix("f8", 6, (2, 3, 4)), matrix("f8", 7, (4, 5))
    for form in ("dense", "csf", "coo"):
        a, b = sj.array(x, format=form, copy=True), sj.array(y, format="csr", copy=True)
        agree(a @ b, x @ y)
        agree(snp.tensordot(a, b, 1), np.tensordot(x, y, 1))
        agree(snp.dot(a, b), np.dot(x, y))
        agree(snp.inner(a, b.T), np.inner(x, y.T))
        agree(snp.outer(b, b), np.outer(y, y))
        agree(snp.vdot(b, b), np.vdot(y, y))
    with pytest.raises(ValueError, match="inner dimensions"):
        sj.array(y, format="csr") @ np.ones(3)


@pytest.mark.parametrize(
    ("function", "expected", "fill"),
    [
        (lambda A, B, x, U: A @ x, "dense", 0),
        (lambda A, B, x, U: A.T @ x, "dense", 0),
        (lambda A, B, x, U: A @ B, "csr", 0),
        (lambda A, B, x, U: A.T @ B.T, "csc", 0),
        (lambda A, B, x, U: A.T @ A, "csr", 0),
        (lambda A, B, x, U: A @ A.T, "csr", 0),
        (lambda A, B, x, U: A @ B.asformat("csc"), "csr", 0),
        (lambda A, B, x, U: A.asformat("csc") @ B, "csr", 0),
        (lambda A, B, x, U: A.asformat("coo") @ B.asformat("coo").T, "csr", 0),
        (lambda A, B, x, U: A.asformat("csc").sum(axis=1), "dense", 0),
        (lambda A, B, x, U: A.asformat("dcsc") @ U, "dense", 0),
        (lambda A, B, x, U: sj.einsum("ij,jk,kl->il", A, B, A), "csr", 0),
        (lambda A, B, x, U: A * 2, "csr", 0),
        (lambda A, B, x, U: A + 1, "csr", 1),
        (lambda A, B, x, U: snp.exp(A), "csr", 1),
        (lambda A, B, x, U: A * x, "csr", 0),
        (lambda A, B, x, U: A + x, "dense", 0),
        (lambda A, B, x, U: A + B, "csr", 0),
        (lambda A, B, x, U: A + A.T, "csr", 0),
        (lambda A, B, x, U: A > 0, "csr", False),
        (lambda A, B, x, U: sj.einsum("ij,ik,jk->ij", A, U, U), "csr", 0),
        (lambda A, B, x, U: A.T, "csc", 0),
        (lambda A, B, x, U: A.sum(axis=0), "dense", 0),
        (lambda A, B, x, U: A.asformat("coo") @ x, "dense", 0),
        (lambda A, B, x, U: A.asformat("coo") * B.asformat("coo"), "coo", 0),
        (lambda A, B, x, U: A.asformat("coo") @ B, "csr", 0),
    ],
)
def test_formats_follow_from_types(function, expected, fill):
    rng = np.random.default_rng(0)
    d = matrix("f8", 8, (4, 4))
    A, B = sj.array(d, format="csr", copy=True), sj.array(matrix("f8", 9, (4, 4)), format="csr", copy=True)
    x, U = sj.array(rng.random(4)), sj.array(rng.random((4, 3)))
    made = sj.jit(function)(A, B, x, U)
    assert str(made.format) == str(sj.formats.Format.parse(expected, made.ndim)) and made.fill_value == fill
    dense = [sj.array(v.todense(), copy=True) for v in (A, B, x, U)]
    if "asformat" not in function.__code__.co_names:
        np.testing.assert_allclose(made.todense(), function(*dense).todense(), rtol=1e-12)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda A, B, x: A + B, "(d,c)"),
        (lambda A, B, x: A * B, "banded"),
        (lambda A, B, x: snp.sqrt(A), "banded"),
        (lambda A, B, x: A * x[:, None], "(q,s)"),
        (lambda A, B, x: A.asformat("dia") + B.asformat("dia"), "dia"),
        (lambda A, B, x: A.asformat("(c,o)") + B.asformat("(c,o)"), "(c,c)"),
        (lambda A, B, x: sj.einsum("ij,kj->ikj", A.asformat("dia"), B), "(d,d,c)"),
        (lambda A, B, x: sj.einsum("ij->ij", A, mask=B, complement=True), "(d,c)"),
    ],
)
def test_bands_and_diagonals_are_kept_where_they_fill_nothing(function, expected):
    rng = np.random.default_rng(1)
    a, b = (rng.random((5, 6)) * (rng.random((5, 6)) < 0.3) for _ in range(2))
    x = np.array([1.0, 0, 2, 0, 3])
    A, B, s = sj.array(a, format="banded"), sj.array(b, format="banded"), sj.array(x, format="(c)")
    made = sj.jit(function)(A, B, s)
    assert str(made.format) == str(sj.formats.Format.parse(expected, made.ndim))
    plain = function(*(v.asformat("coo") for v in (A, B)), s) if expected != "banded" else None
    if plain is not None and "asformat" not in function.__code__.co_names:
        assert made.nnz == plain.nnz


def test_out_format_pins_the_result():
    A = sj.array(matrix("f8"), format="csr", copy=True)
    for form in ("csc", "coo", "dense", "dcsc"):
        made = sj.einsum("ij,kj->ik", A, A, out_format=form)
        assert str(made.format) == form
        np.testing.assert_allclose(made.todense(), matrix("f8") @ matrix("f8").T)


def test_huge_shapes():
    n = 2**40
    a = sj.array((np.ones(3), ([0, 5, n - 1], [1, n - 1, 5])), shape=(n, n))
    b = a.asformat("dcsr")
    assert float((a + b).sum()) == 6 and (b @ b).nnz == 2 and "2**" not in repr(b)
    assert float((b * b.T).sum()) == 2
