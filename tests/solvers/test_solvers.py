"""`sparsejax.scipy.sparse.linalg`: solutions and their derivatives against dense NumPy, over formats and dtypes."""

import random

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.scipy.sparse import linalg
from tests import bounds
from tests.fuzz.levels import OUTPUTS, random_format

pytestmark = pytest.mark.rotating(20)

FORMATS = ["dense", "csr", "csc", "coo", "dcsr", "bitmap", "ell", "groupcoo:2", "hash", "lil", "banded", "bsr:2x3"]
N = 7


def matrix(rng, n=N, dtype="f8", definite=False, density=0.3):
    """Well conditioned, with a few stored entries per row."""
    a = rng.normal(size=(n, n)) * (rng.random((n, n)) < density)
    if np.dtype(dtype).kind == "c":
        a = a + 1j * rng.normal(size=(n, n)) * (a != 0)
    if definite:
        return (a @ a.conj().T + np.eye(n) * 2).astype(dtype)
    return (a + np.eye(n) * (2 + np.abs(a).sum(axis=1))).astype(dtype)


def vector(rng, shape, dtype="f8"):
    made = rng.normal(size=shape)
    return (made + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else made).astype(dtype)


def direct(A, b):
    return linalg.spsolve(A, b)


def conjugate(A, b):
    return linalg.cg(A, b, tol=1e-13)[0]


def residual(A, b):
    return linalg.gmres(A, b, tol=1e-13)[0]


SOLVERS = {"spsolve": direct, "cg": conjugate, "gmres": residual}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("form", FORMATS)
def test_formats(rng, form):
    a, b = matrix(rng, definite=True), vector(rng, N)
    A = sj.array(a).asformat(form)
    for name, solve in SOLVERS.items():
        want = np.linalg.solve(a, b)
        assert_allclose(solve(A, b).todense(), want, rtol=0, atol=1e-9 * np.abs(want).max(), err_msg=name)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("name", SOLVERS)
def test_dtypes(rng, name, dtype):
    a, b = matrix(rng, dtype=dtype, definite=True), vector(rng, N, dtype)
    single = np.finfo(dtype).eps > 1e-10
    kwargs = {} if name == "spsolve" else {"tol": 1e-6 if single else 1e-12}
    made = getattr(linalg, name)(sj.array(a, format="csr"), b, **kwargs)
    x = made if name == "spsolve" else made[0]
    assert x.dtype == dtype
    want = np.linalg.solve(bounds.wide(a), bounds.wide(b))
    assert_allclose(x.todense(), want, rtol=0, atol=(1e-4 if single else 1e-9) * np.abs(want).max())


def test_integers_become_floats():
    A, b = np.array([[2, 0], [1, 4]]), np.array([2, 5])
    for name, solve in SOLVERS.items():
        if name != "cg":
            assert_allclose(solve(sj.array(A, format="csr"), b).todense(), [1, 1], err_msg=name)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("form", ["csr", "csc", "dense"])
def test_gradients(rng, name, form):
    """The cotangent of b solves the transposed equation; that of A is an outer product at its pattern."""
    a, b, w = matrix(rng, definite=name == "cg"), vector(rng, N), vector(rng, N)
    A = sj.array(a).asformat(form)
    found_a, found_b = sj.jit(sj.grad(lambda A, b: (SOLVERS[name](A, b) * w).sum(), (0, 1)))(A, b)
    side, x = np.linalg.solve(a.T, w), np.linalg.solve(a, b)
    assert found_a.format == A.format
    assert_allclose(found_b.todense(), side, rtol=1e-8)
    mask = np.ones_like(a) if form == "dense" else a != 0
    assert_allclose(found_a.todense(), -np.outer(side, x) * mask, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", SOLVERS)
def test_forward_mode_and_second_derivatives(rng, name):
    a, b = matrix(rng, n=4, definite=True), vector(rng, 4)
    A, solve = sj.array(a, format="csr"), SOLVERS[name]
    da, db = rng.normal(size=(4, 4)) * (a != 0), vector(rng, 4)
    x, moved = sj.jvp(solve, (A, sj.array(b)), (sj.array(da, format="csr"), sj.array(db)))
    wanted = np.linalg.solve(a, db - da @ x.todense())
    assert_allclose(moved.todense(), wanted, rtol=1e-8)

    def loss(t):
        return (solve(A * t, b * (1 + t)) ** 2).sum()

    x = np.linalg.solve(a, b)
    t = 0.7  # |x|^2 (1 + t)^2 / t^2
    assert_allclose(sj.grad(loss)(t).item(), -2 * (x @ x) * (1 + t) / t**3, rtol=1e-7)
    assert_allclose(sj.grad(sj.grad(loss))(t).item(), (x @ x) * (6 + 4 * t) / t**4, rtol=1e-6)
    assert_allclose(sj.jvp(sj.grad(loss), (t,), (1.0,))[1].item(), (x @ x) * (6 + 4 * t) / t**4, rtol=1e-6)


@pytest.mark.parametrize("name", ["cg", "gmres"])
def test_functions_preconditioners_and_starts(rng, name):
    n = 40
    scale = np.geomspace(1, 1e4, n)
    a = matrix(rng, n, definite=True, density=0.1) * np.sqrt(np.outer(scale, scale))
    b = vector(rng, n)
    A, solve = sj.array(a, format="csr"), getattr(linalg, name)
    inverse = sp.diags_array(1 / a.diagonal(), format="csr")
    wanted = np.linalg.solve(a, b)
    weight = vector(rng, n)

    def f(A, b, M, x0=None):
        return solve(lambda x: A @ x, b, x0, M=M, tol=1e-12, maxiter=200)

    x, info = f(A, b, inverse)
    assert int(info) == 0
    assert_allclose(x.todense(), wanted, rtol=1e-6)
    again, rounds = solve(A, b, x, tol=1e-6, maxiter=0)
    assert_allclose(again.todense(), x.todense())
    assert int(rounds) == 0
    found = sj.grad(lambda b: (f(A, b, lambda x: x / a.diagonal(), wanted)[0] * weight).sum())(b)
    assert_allclose(found.todense(), np.linalg.solve(a.T, weight), rtol=1e-5)


def test_shapes_of_functions(rng):
    """Functions may take arrays of any dimensions."""
    b = vector(rng, (3, 4))
    x, _ = linalg.cg(lambda x: 2 * x + x.sum(), b, tol=1e-12)
    assert_allclose(x.todense() * 2 + x.todense().sum(), b, rtol=1e-9)
    x, _ = linalg.gmres(lambda x: x[::-1] * 2, b, tol=1e-12)
    assert_allclose(x.todense(), b[::-1] / 2, rtol=1e-9)


def test_info_counts_what_did_not_converge(rng):
    a, b = matrix(rng, 30, definite=True), vector(rng, 30)
    A = sj.array(a, format="csr")
    assert int(linalg.cg(A, b, tol=1e-14, maxiter=3)[1]) == 3
    assert int(linalg.gmres(A, b, tol=1e-14, maxiter=2, restart=3)[1]) == 2
    assert int(linalg.cg(A, b, rtol=1e-3)[1]) == 0
    assert int(linalg.cg(A, b, tol=0.0, atol=1e9, maxiter=5)[1]) == 0
    zero, info = linalg.gmres(A, b * 0)
    assert not zero.todense().any() and int(info) == 0


def test_complex_gradient(rng):
    """As JAX's: no conjugation in the transposed equation."""
    a, b, w = matrix(rng, dtype="c16"), vector(rng, N, "c16"), vector(rng, N, "c16")
    A = sj.array(a, format="csr")
    for name in ("spsolve", "gmres"):
        _, pull = sj.vjp(lambda b, name=name: SOLVERS[name](A, b), b)
        assert_allclose(pull(w)[0].todense(), np.linalg.solve(a.T, w), rtol=1e-8)


def test_spsolve_of_matrices(rng):
    a, b, w = matrix(rng), vector(rng, (N, 3)), vector(rng, (N, 3))
    A = sj.array(a, format="csr")
    assert_allclose(linalg.spsolve(A, b).todense(), np.linalg.solve(a, b), rtol=1e-10)
    found = sj.grad(lambda A: (linalg.spsolve(A, b) * w).sum())(A)
    assert_allclose(found.todense(), -np.linalg.solve(a.T, w) @ np.linalg.solve(a, b).T * (a != 0), atol=1e-12)


def test_spsolve_in_batches(rng):
    matrices = np.stack([matrix(rng) for _ in range(3)])
    b = vector(rng, (3, N))
    A = sj.array(matrices[0], format="csr")
    shared = sj.vmap(lambda b: linalg.spsolve(A, b))(b)
    assert_allclose(shared.todense(), np.linalg.solve(matrices[0], b.T).T, rtol=1e-10)
    whole = np.linalg.solve(matrices, b[..., None])[..., 0]
    for form in ("(d,d,c)", "dense", "coo"):
        made = sj.vmap(linalg.spsolve)(sj.array(matrices).asformat(form), b)
        assert_allclose(made.todense(), whole, rtol=1e-10)
    nested = sj.vmap(lambda A: sj.vmap(lambda b: linalg.spsolve(A, b))(b))(sj.array(matrices, format="(d,d,c)"))
    assert_allclose(nested.todense(), np.linalg.solve(matrices, b.T[None]).swapaxes(1, 2), rtol=1e-10)

    def loss(A, b):
        return (sj.vmap(linalg.spsolve)(A, b) ** 2).sum()

    found = sj.grad(loss, 1)(sj.array(matrices, format="(d,d,c)"), b)
    assert_allclose(found.todense(), np.linalg.solve(matrices.swapaxes(1, 2), 2 * whole[..., None])[..., 0], rtol=1e-9)


def test_random_formats(rng):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        a = matrix(rng, int(rng.integers(1, 9)), density=rng.random())
        b = vector(rng, len(a))
        A = sj.array(a).asformat(random_format(random.Random(seed), 2, OUTPUTS))
        assert_allclose(linalg.spsolve(A, b).todense(), np.linalg.solve(a, b), rtol=1e-8)


def test_laplacian_of_a_grid():
    """Five hundred unknowns under jit, against SciPy."""
    n = 22
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    a = sp.kronsum(line, line, format="csr")
    b = np.ones(n * n)
    wanted = sp.linalg.spsolve(a.tocsc(), b)
    A = sj.array(a)
    assert_allclose(sj.jit(lambda A, b: linalg.cg(A, b, tol=1e-10)[0])(A, b).todense(), wanted, rtol=1e-7)
    assert_allclose(linalg.spsolve(A, b).todense(), wanted, rtol=1e-9)
    assert A.storage.cache["factors"]


def test_errors():
    A, b = sj.array(np.eye(3), format="csr"), np.ones(3)
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        linalg.spsolve(sj.array(np.diag([1.0, 0, 1]), format="csr"), b)
    with pytest.raises(ValueError, match="square"):
        linalg.spsolve(np.ones((2, 3)), b)
    with pytest.raises(ValueError, match="rows"):
        linalg.spsolve(A, np.ones(4))
    with pytest.raises(ValueError, match="fill"):
        linalg.spsolve(snp.exp(A), b)
    for solve in (linalg.cg, linalg.gmres):
        with pytest.raises(ValueError, match="A must be a square matrix"):
            solve(np.ones((2, 3)), b)
        with pytest.raises(ValueError, match="x0 has shape"):
            solve(A, b, np.ones(4))
        with pytest.raises(ValueError, match="M must be"):
            solve(A, b, M=np.eye(4))
        with pytest.raises(ValueError, match="shape"):
            solve(lambda x: x[:2], b)
    with pytest.raises(ValueError, match="solve_method"):
        linalg.gmres(A, b, solve_method="incremental")
    with pytest.raises(ValueError, match="restart"):
        linalg.gmres(A, b, restart=0)


@pytest.mark.parametrize("name", ["cg", "gmres"])
def test_iterations_in_batches(rng, name):
    """Over right sides, and over values under one pattern; derivatives inside and outside."""
    solve = SOLVERS[name]
    a, b = matrix(rng, definite=True), vector(rng, (3, N))
    A = sj.array(a, format="csr")
    whole = np.linalg.solve(a, b.T).T
    x, info = sj.vmap(lambda b: getattr(linalg, name)(A, b, tol=1e-12))(b)
    assert_allclose(x.todense(), whole, rtol=1e-9)
    assert_array_equal(info.todense(), 0)
    found = sj.vmap(sj.grad(lambda b: (solve(A, b) ** 2).sum()))(b)
    assert_allclose(found.todense(), np.linalg.solve(a.T, 2 * whole.T).T, rtol=1e-8)
    matrices = np.stack([a + np.eye(N) * k for k in range(3)])
    stack = sj.array(matrices, format="(d,d,c)")
    whole = np.linalg.solve(matrices, b[..., None])[..., 0]
    of_a, of_b = sj.grad(lambda A, b: (sj.vmap(solve)(A, b) ** 2).sum(), (0, 1))(stack, b)
    side = np.linalg.solve(matrices.swapaxes(1, 2), 2 * whole[..., None])[..., 0]
    assert_allclose(of_b.todense(), side, rtol=1e-8)
    outer = -np.einsum("bi,bj->bij", side, whole) * (matrices != 0)
    assert_allclose(of_a.todense(), outer, rtol=1e-8, atol=1e-12)
    inverse = np.linalg.inv(a)
    second = sj.hessian(lambda b: (solve(A, b) ** 2).sum())(b[0])
    assert_allclose(second.todense(), 2 * inverse.T @ inverse, rtol=1e-7, atol=1e-10)
