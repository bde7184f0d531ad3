"""`sparsejax.scipy.sparse.linalg` beside SciPy's and dense linear algebra; derivatives beside differences."""

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg as theirs

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.scipy.sparse import linalg

pytestmark = pytest.mark.rotating(20)

RNG = np.random.default_rng(0)
N = 24
RANDOM = RNG.normal(size=(N, N)) * (RNG.random((N, N)) < 0.3)
SYMMETRIC = RANDOM + RANDOM.T + np.diag(np.arange(1.0, N + 1))
DOMINANT = RANDOM + np.diag(6.0 + RNG.random(N))
TALL = RNG.normal(size=(30, 12)) * (RNG.random((30, 12)) < 0.5)
B = RNG.normal(size=N)
FORMATS = ["csr", "csc", "coo", "dense"]


def slope(f, values, where=None, step=1e-6):
    """Differences of `f` along a random direction at stored places, and the direction."""
    move = RNG.normal(size=values.shape) * (values != 0)
    move = move + move.T if where == "symmetric" else move
    return (float(f(values + step * move)) - float(f(values - step * move))) / (2 * step), move


def as_csr(x):
    return sj.array(x, format="csr")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["cg", "minres", "bicgstab", "gmres"])
def test_solvers(name, form):
    dense = SYMMETRIC @ SYMMETRIC.T + np.eye(N) if name == "cg" else SYMMETRIC if name == "minres" else DOMINANT
    A = sj.array(dense, format=form)
    options = {"rtol": 1e-12, "maxiter": 2000} | ({"restart": N} if name == "gmres" else {})
    x, _ = getattr(linalg, name)(A, B, **options)
    np.testing.assert_allclose(dense @ x.todense(), B, atol=1e-7)
    if form != "csr":
        return
    for M in (linalg.jacobi(A), linalg.spilu(A)) if name != "minres" else ():
        x, _ = getattr(linalg, name)(linalg.aslinearoperator(A), B, M=M, **options)
        np.testing.assert_allclose(dense @ x.todense(), B, atol=1e-7)


@pytest.mark.parametrize("name", ["cg", "minres", "bicgstab", "gmres"])
def test_equations_of_many_sizes(name):
    """At once, one after the other: with preconditioners and starts, and without, of numbers of several types; each as inside `jit`."""
    rng, solve = np.random.default_rng(len(name)), getattr(linalg, name)
    for n in (3, 20, 21, 22, 40, 3):
        dense = np.diag(4.0 + rng.random(n)) - np.eye(n, k=1) - np.eye(n, k=-1)
        b, x0, weights = rng.normal(size=n), sj.array(rng.normal(size=n)), 1 / np.diagonal(dense)
        for A, side in (
            (dense, b),
            (sp.csr_array(dense), b.astype(np.float32)),
            (sj.array(dense, format="coo"), 1j * b),
        ):
            for options in (
                {},
                {"M": snp.diag(weights)},
                {"x0": x0},
                {"M": np.diag(weights), "x0": x0, "maxiter": 900},
            ):
                x, info = solve(A, side, tol=1e-6, **options)
                assert info == 0
                assert x.dtype == np.result_type(side, dense)
                np.testing.assert_allclose(dense @ x.todense(), side, atol=1e-4)
        stopped = solve(sj.array(dense, format="csr"), b, rtol=1e-30, maxiter=1)[1]
        assert (int(stopped), stopped.dtype) == (1, np.int64)
    with pytest.raises(ValueError, match=f"{name}: A must be a square matrix of 3 rows"):
        solve(np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match=f"{name}: x0 has shape"):
        solve(np.eye(3), np.ones(3), x0=np.ones(2))


@pytest.mark.parametrize("name", ["minres", "bicgstab"])
def test_derivatives_of_solvers(name):
    dense = SYMMETRIC if name == "minres" else DOMINANT

    def f(a):
        x, _ = getattr(linalg, name)(as_csr(a), B, rtol=1e-13, maxiter=3000)
        return (x * np.arange(N)).sum()

    want, move = slope(f, dense, "symmetric" if name == "minres" else None)
    made = sj.grad(lambda A: (getattr(linalg, name)(A, B, rtol=1e-13, maxiter=3000)[0] * np.arange(N)).sum())(
        as_csr(dense)
    )
    np.testing.assert_allclose((made.todense() * move).sum(), want, rtol=1e-4)


def test_indefinite_equations():
    x, info = linalg.minres(as_csr(np.diag([1.0, -2.0, 3.0, -4.0])), np.ones(4), rtol=1e-12)
    np.testing.assert_allclose(x.todense(), [1, -0.5, 1 / 3, -0.25])
    assert int(info) == 0


def test_callbacks_see_iterates():
    A = as_csr(SYMMETRIC @ SYMMETRIC.T + np.eye(N))
    seen = []
    x, _ = linalg.cg(A, B, rtol=1e-10, maxiter=500, callback=seen.append)
    assert len(seen) > 3
    np.testing.assert_allclose(seen[-1], x.todense())


@pytest.mark.parametrize("damp", [0.0, 0.5])
def test_least_squares(damp):
    b = RNG.normal(size=30)
    x, info = linalg.lsqr(as_csr(TALL), b, damp=damp, atol=1e-13)
    want = theirs.lsqr(sp.csr_array(TALL), b, damp=damp, atol=1e-14, btol=1e-14)[0]
    np.testing.assert_allclose(x.todense(), want, rtol=1e-7, atol=1e-9)
    assert int(info) == 0

    def f(a):
        return (linalg.lsqr(as_csr(a), b, damp=damp, atol=1e-14)[0] ** 2).sum()

    expected, move = slope(f, TALL)
    made = sj.grad(lambda A: (linalg.lsqr(A, b, damp=damp, atol=1e-14)[0] ** 2).sum())(as_csr(TALL)).todense()
    np.testing.assert_allclose((made * move).sum(), expected, rtol=1e-4)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangles(lower, unit):
    part = np.tril(DOMINANT) if lower else np.triu(DOMINANT)
    unit_part = part - np.diag(np.diag(part)) + np.eye(N)
    given = unit_part if unit else part

    def solution(A, b):
        return linalg.spsolve_triangular(A, b, lower, unit_diagonal=unit)

    for b in (B, RNG.normal(size=(N, 2))):
        for form in FORMATS:
            made = solution(sj.array(given, format=form), b)
            np.testing.assert_allclose(made.todense(), np.linalg.solve(given, b), rtol=1e-8, atol=1e-10)
    made = sj.jit(sj.vmap(lambda b: solution(as_csr(given), b)))(RNG.normal(size=(3, N)))
    assert made.shape == (3, N)
    expected, move = slope(lambda a: (solution(as_csr(a), B) ** 2).sum(), given)
    move = move - np.diag(np.diag(move)) if unit else move
    if not unit:
        gradient = sj.grad(lambda A: (solution(A, B) ** 2).sum())(as_csr(given)).todense()
        np.testing.assert_allclose((gradient * move).sum(), expected, rtol=1e-5)
    by_b = sj.grad(lambda b: (solution(as_csr(given), b) ** 2).sum())(B).todense()
    np.testing.assert_allclose(by_b, 2 * np.linalg.solve(given.T, np.linalg.solve(given, B)), rtol=1e-7)


def test_factors_are_used_again():
    A = as_csr(DOMINANT)
    lu = linalg.splu(A)
    for trans, matrix in (("N", DOMINANT), ("T", DOMINANT.T), ("H", DOMINANT.T)):
        np.testing.assert_allclose(lu.solve(B, trans).todense(), np.linalg.solve(matrix, B), rtol=1e-9)
    solve = linalg.factorized(A)
    known = A._storage.cache["factors"]
    np.testing.assert_allclose(sj.jit(solve)(B).todense(), np.linalg.solve(DOMINANT, B), rtol=1e-9)
    assert A._storage.cache["factors"] is known
    complex_ = DOMINANT + 1j * RANDOM
    made = linalg.splu(as_csr(complex_)).solve(B, "H").todense()
    np.testing.assert_allclose(made, np.linalg.solve(complex_.conj().T, B), rtol=1e-9)


@pytest.mark.parametrize("which", ["LM", "SM", "LA", "SA", "BE"])
def test_eigenvalues(which):
    w, v = linalg.eigsh(as_csr(SYMMETRIC), 4, which=which)
    want = np.sort(theirs.eigsh(sp.csr_array(SYMMETRIC), 4, which=which)[0])
    np.testing.assert_allclose(w.todense(), want, rtol=1e-8)
    np.testing.assert_allclose(SYMMETRIC @ v.todense(), v.todense() * w.todense(), atol=1e-7)


def test_operators_and_shifts():
    A = as_csr(SYMMETRIC)
    want = np.sort(np.linalg.eigvalsh(SYMMETRIC))
    for operator in (A, SYMMETRIC, linalg.aslinearoperator(A), sp.csr_array(SYMMETRIC)):
        w = linalg.eigsh(operator, 3, which="LA", return_eigenvectors=False)
        np.testing.assert_allclose(w.todense(), want[-3:], rtol=1e-8)
    w = linalg.eigsh(lambda x: A @ x, 3, which="LA", v0=np.ones(N), return_eigenvectors=False)
    np.testing.assert_allclose(w.todense(), want[-3:], rtol=1e-8)
    w, _ = linalg.eigsh(A, 3, sigma=10.3)
    near = np.sort(want[np.argsort(abs(want - 10.3))[:3]])
    np.testing.assert_allclose(w.todense(), near, rtol=1e-8)
    np.testing.assert_allclose(linalg.eigsh(A, N - 1, which="LA")[0].todense(), want[1:], rtol=1e-8)
    made = sj.jit(lambda A: linalg.eigsh(A, 3, which="LA")[0])(A)
    np.testing.assert_allclose(made.todense(), want[-3:], rtol=1e-8)
    start = RNG.normal(size=(N, 2))
    w, _ = linalg.lobpcg(A, start, tol=1e-9, maxiter=200)
    np.testing.assert_allclose(w.todense(), want[:-3:-1], rtol=1e-6)
    w, _ = linalg.lobpcg(A, start, tol=1e-9, maxiter=200, largest=False)
    np.testing.assert_allclose(w.todense(), want[:2], rtol=1e-5)
    scales = np.array([1.0, 2.0])
    made = sj.vmap(lambda s: linalg.eigsh(A * s, 2, which="LA")[0])(scales).todense()
    np.testing.assert_allclose(made, want[-2:] * scales[:, None], rtol=1e-8)


@pytest.mark.parametrize("sigma", [None, 10.3])
def test_derivatives_of_eigenvalues_and_vectors(sigma):
    weights = RNG.normal(size=(N, 1))

    def f(A):
        w, v = linalg.eigsh(A, 3, which="LM", sigma=sigma)
        return (w * np.arange(1.0, 4)).sum() + ((v * weights).sum(0) ** 2 * np.arange(1.0, 4)).sum()

    want, move = slope(lambda a: f(as_csr(a)), SYMMETRIC, "symmetric", 1e-5)
    made = sj.grad(f)(as_csr(SYMMETRIC)).todense()
    np.testing.assert_allclose((made * move).sum(), want, rtol=1e-4)
    _, tangent = sj.jvp(f, (as_csr(SYMMETRIC),), (sj.array(sp.csr_array(SYMMETRIC)) * 0 + as_csr(move),))
    np.testing.assert_allclose(float(tangent), want, rtol=1e-4)


def test_singular_values():
    for dense in (TALL, TALL.T):
        u, s, vh = linalg.svds(as_csr(dense), 3)
        np.testing.assert_allclose(s.todense(), np.linalg.svd(dense)[1][:3][::-1], rtol=1e-8)
        np.testing.assert_allclose(dense @ vh.todense().T, u.todense() * s.todense(), atol=1e-7)
    centred = TALL - TALL.mean(0)
    mu = snp.mean(as_csr(TALL), axis=0)
    _, s, _ = linalg.svds(linalg.aslinearoperator(as_csr(TALL)) - mu.asformat("dense"), 3)
    np.testing.assert_allclose(s.todense(), np.linalg.svd(centred)[1][:3][::-1], rtol=1e-8)

    def f(A):
        u, s, vh = linalg.svds(A, 2)
        return (s * np.array([1.0, 2.0])).sum() + (abs(u).sum(0) * abs(vh).sum(1)).sum()

    want, move = slope(lambda a: f(as_csr(a)), TALL, None, 1e-5)
    np.testing.assert_allclose((sj.grad(f)(as_csr(TALL)).todense() * move).sum(), want, rtol=1e-4)


def test_exponentials():
    want = scipy.linalg.expm(RANDOM) @ B
    for form in FORMATS:
        np.testing.assert_allclose(linalg.expm_multiply(sj.array(RANDOM, format=form), B).todense(), want, rtol=1e-9)
    A = as_csr(RANDOM)
    many = linalg.expm_multiply(A, B, start=0.0, stop=1.0, num=3).todense()
    np.testing.assert_allclose(many, [B, scipy.linalg.expm(RANDOM / 2) @ B, want], rtol=1e-9)
    with pytest.raises(TypeError, match="steps"):
        sj.jit(lambda A: linalg.expm_multiply(A, B))(A)
    steps = linalg.expm_steps(A)

    def f(A):
        return (linalg.expm_multiply(A, B, steps=steps) ** 2).sum()

    np.testing.assert_allclose(float(sj.jit(f)(A)), (want**2).sum(), rtol=1e-9)
    expected, move = slope(lambda a: f(as_csr(a)), RANDOM)
    np.testing.assert_allclose((sj.grad(f)(A).todense() * move).sum(), expected, rtol=1e-5)


def test_norms():
    A = as_csr(TALL)
    for ord in (None, "fro", 1, np.inf, 2):
        np.testing.assert_allclose(float(linalg.norm(A, ord)), theirs.norm(sp.csr_array(TALL), ord), rtol=1e-8)
    np.testing.assert_allclose(float(linalg.onenormest(A)), np.linalg.norm(TALL, 1))


def test_operator_algebra():
    A, X = as_csr(TALL), RNG.normal(size=(12, 2))
    mu = RNG.normal(size=12)
    op = linalg.aslinearoperator(A)
    Y = RNG.normal(size=(30, 2))
    cases = {
        "sum": (op + 2 * op, 3 * TALL),
        "centred": (op - mu, TALL - mu),
        "reversed": (mu - op, mu - TALL),
        "matrix": (op + A, 2 * TALL),
        "negative": (-op, -TALL),
        "product": (op @ op.H, TALL @ TALL.T),
        "function": (linalg.LinearOperator((30, 12), lambda x: A @ x, lambda y: A.T @ y), TALL),
    }
    for made, want in cases.values():
        x, y = (X, Y) if want.shape == (30, 12) else (Y, Y)
        np.testing.assert_allclose((made @ x).todense(), want @ x, rtol=1e-10)
        np.testing.assert_allclose((made @ x[:, 0]).todense(), want @ x[:, 0], rtol=1e-10)
        np.testing.assert_allclose((made.H @ y).todense(), want.T @ y, rtol=1e-10)
        np.testing.assert_allclose(made.T.matvec(y[:, :1]).todense(), want.T @ y[:, :1], rtol=1e-10)
    z = TALL[:12] * (1 + 2j)
    op = linalg.aslinearoperator(as_csr(z))
    np.testing.assert_allclose((op.H @ X).todense(), z.conj().T @ X)
    np.testing.assert_allclose((op.T @ X).todense(), z.T @ X)
    np.testing.assert_allclose(((2j * op).H @ X).todense(), (2j * z).conj().T @ X)
    with pytest.raises(ValueError, match="shape"):
        op @ np.ones(5)


@pytest.mark.parametrize("form", FORMATS)
def test_arrays_are_operators_for_scipy(form):
    A = sj.array(SYMMETRIC @ SYMMETRIC.T + np.eye(N), format=form)
    operator = theirs.aslinearoperator(A)
    np.testing.assert_allclose(operator @ B, A.todense() @ B)
    np.testing.assert_allclose(operator.H @ B, A.todense() @ B)
    x, info = theirs.cg(A, B, rtol=1e-10, maxiter=2000)
    assert info == 0
    np.testing.assert_allclose(A.todense() @ x, B, atol=1e-6)
    np.testing.assert_allclose(np.sort(theirs.eigsh(operator, 2)[0]), np.linalg.eigvalsh(A.todense())[-2:])
    np.testing.assert_allclose(A.matmat(np.eye(N)), A.todense())
    for method in (theirs.gmres, theirs.bicgstab, theirs.lgmres, theirs.qmr):  # they write into what a product returns
        x, info = method(A, sj.array(B), rtol=1e-10)
        assert info == 0
        np.testing.assert_allclose(A.todense() @ x, B, atol=1e-6)
    start = RNG.random((N, 2))
    np.testing.assert_allclose(*(theirs.lobpcg(M, start, tol=1e-3, maxiter=100)[0] for M in (A, A.todense())))


def test_errors():
    A = as_csr(SYMMETRIC)
    with pytest.raises(ValueError, match="square"):
        linalg.eigsh(as_csr(TALL), 2)
    with pytest.raises(ValueError, match="which"):
        linalg.eigsh(A, 2, which="XX")
    with pytest.raises(ValueError, match="v0"):
        linalg.eigsh(lambda x: x, 2)
    with pytest.raises(ValueError, match="k=99"):
        linalg.eigsh(A, 99)
    with pytest.raises(ValueError, match="square"):
        linalg.splu(as_csr(TALL))
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        linalg.splu(as_csr(np.diag([1.0, 0.0]))).solve(np.ones(2))
