"""Tasks with equations, as their users would write them at first: finite differences and elements, preconditioners, SciPy's solvers."""

import numpy as np
import scipy.integrate
import scipy.optimize
import scipy.sparse as sp
import scipy.sparse.linalg as theirs
from numpy.testing import assert_allclose

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.scipy.sparse import linalg


def test_poisson_equation():
    n = 20
    T = sj.diags([-1, 2, -1], offsets=[-1, 0, 1], shape=(n, n))
    A = snp.kron(sj.eye(n), T) + snp.kron(T, sj.eye(n))
    b = np.ones(n * n)
    x, info = linalg.cg(A, b, tol=1e-10)
    assert info == 0
    assert_allclose(x, theirs.spsolve(A.to_scipy().tocsc(), b), rtol=1e-6)


def test_preconditioners():
    n = 200
    d = np.linspace(1, 1000, n) + 2
    S = sp.diags_array([-np.ones(n - 1), d, -np.ones(n - 1)], offsets=[-1, 0, 1]).tocsr()
    A, b = sj.array(S), np.ones(n)
    want = theirs.spsolve(S.tocsc(), b)
    ilu = linalg.spilu(A)
    found = [
        linalg.cg(A, b, M=sj.diags(1 / A.diagonal()), rtol=1e-10),
        linalg.cg(A, b, M=lambda v: v / A.diagonal(), rtol=1e-10),
        linalg.gmres(A, b, M=linalg.LinearOperator(A.shape, ilu.solve), rtol=1e-10),
        theirs.cg(A, b, M=theirs.LinearOperator(A.shape, matvec=lambda v: v / d), rtol=1e-10),
        theirs.gmres(A, sj.array(b), M=sj.diags(1 / d), rtol=1e-10),
    ]
    for x, info in found:
        assert info == 0
        assert_allclose(x, want, rtol=1e-7)


def test_heat_with_one_factor():
    n = 50
    L = sj.diags([np.ones(n - 1), -2 * np.ones(n), np.ones(n - 1)], [-1, 0, 1]) * (n + 1) ** 2
    factor = linalg.splu(sj.eye(n) - 1e-3 * L)

    @sj.jit
    def evolved(u):
        return sj.lax.fori_loop(0, 50, lambda i, u: factor.solve(u), u)

    start = np.sin(np.pi * np.linspace(0, 1, n + 2)[1:-1])
    solver, want = theirs.splu((sp.eye_array(n) - 1e-3 * L.to_scipy()).tocsc()), start
    for _ in range(50):
        want = solver.solve(want)
    assert_allclose(evolved(start), want)


def test_stiff_differential_equation():
    n = 20
    L = sj.diags([np.ones(n - 1), -2 * np.ones(n), np.ones(n - 1)], [-1, 0, 1]) * (n + 1.0) ** 2
    made = scipy.integrate.solve_ivp(
        lambda t, u: L @ u, (0, 0.01), np.ones(n), method="BDF", jac=lambda t, u: L.to_scipy(), rtol=1e-7, atol=1e-9
    )
    assert_allclose(made.y[:, -1], linalg.expm_multiply(L * 0.01, np.ones(n)), atol=1e-5)


def test_roots_with_sparse_jacobians():
    n = 60

    def residual(x):  # Broyden's tridiagonal function
        y = (3 - 2 * x) * x + 1
        y = y.at[1:].add(-x[:-1])
        return y.at[:-1].add(-2 * x[1:])

    jacobian = sj.sparse_jacobian(residual)
    found = scipy.optimize.least_squares(sj.jit(residual), -np.ones(n), jac=lambda x: jacobian(x).to_scipy())
    assert found.cost < 1e-10
    by_hand = -snp.ones(n)
    for _ in range(8):
        by_hand = by_hand - linalg.spsolve(jacobian(by_hand), residual(by_hand))
    assert_allclose(by_hand, found.x, atol=1e-6)


def test_derivative_through_assembly():
    n = 20
    elements = np.arange(n - 1)
    i = (elements[:, None] + [0, 0, 1, 1]).ravel()
    j = (elements[:, None] + [0, 1, 0, 1]).ravel()
    local = np.array([1.0, -1, -1, 1])

    def compliance(k):  # of a bar whose elements have stiffnesses k
        K = sj.coo_array(((k[:, None] * local).reshape(-1), (i, j)), shape=(n, n)).tocsr()
        return snp.sum(linalg.spsolve(K[1:-1, 1:-1], np.ones(n - 2)))

    def plain(k):
        K = sp.coo_array(((k[:, None] * local).ravel(), (i, j)), shape=(n, n)).tocsr()
        return np.sum(theirs.spsolve(K[1:-1, 1:-1].tocsc(), np.ones(n - 2)))

    k = np.linspace(1, 2, n - 1)
    assert_allclose(compliance(k), plain(k))
    want = scipy.optimize.approx_fprime(k, plain, 1e-7)
    assert_allclose(sj.jit(sj.grad(compliance))(k), want, rtol=1e-4, atol=1e-4)
