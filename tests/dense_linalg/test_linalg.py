"""Dense linear algebra: values beside NumPy's, derivatives beside differences, batches beside loops."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.autodiff.checks import check

pytestmark = pytest.mark.rotating(16)

RNG = np.random.default_rng(0)


def check_grads(f, args, order):
    check(np.random.default_rng(1), f, *map(sj.array, args), second=order == 2)


SQUARE = RNG.normal(size=(3, 3)) + 3 * np.diag([1.0, -2.0, 3.0])
POSITIVE = SQUARE @ SQUARE.T + np.eye(3)
TALL, WIDE = RNG.normal(size=(4, 2)), RNG.normal(size=(2, 4))
COLUMN = RNG.normal(size=3)
COMPLEX = SQUARE + 1j * RNG.normal(size=(3, 3))

SAME = {
    "solve": (lambda m, a: m.linalg.solve(a, COLUMN), SQUARE),
    "solve_columns": (lambda m, a: m.linalg.solve(a, TALL[:3]), SQUARE),
    "solve_complex": (lambda m, a: m.linalg.solve(a, COLUMN), COMPLEX),
    "inv": (lambda m, a: m.linalg.inv(a), SQUARE),
    "det": (lambda m, a: m.linalg.det(a), SQUARE),
    "det_complex": (lambda m, a: m.linalg.det(a), COMPLEX),
    "slogdet": (lambda m, a: m.linalg.slogdet(a)[1], SQUARE),
    "cholesky": (lambda m, a: m.linalg.cholesky(a), POSITIVE),
    "eigvalsh": (lambda m, a: m.linalg.eigvalsh(a), POSITIVE),
    "eigvals": (lambda m, a: m.sort(abs(m.linalg.eigvals(a))), SQUARE),
    "svdvals": (lambda m, a: m.linalg.svdvals(a), TALL),
    "pinv": (lambda m, a: m.linalg.pinv(a), WIDE),
    "norm_2": (lambda m, a: m.linalg.norm(a, 2), TALL),
    "norm_nuc": (lambda m, a: m.linalg.norm(a, "nuc"), WIDE),
    "norm_1": (lambda m, a: m.linalg.norm(a, 1), WIDE),
    "cond": (lambda m, a: m.linalg.cond(a), SQUARE),
    "cond_1": (lambda m, a: m.linalg.cond(a, 1), SQUARE),
    "matrix_power": (lambda m, a: m.linalg.matrix_power(a, 5), SQUARE),
    "matrix_power_inverse": (lambda m, a: m.linalg.matrix_power(a, -2), SQUARE),
    "multi_dot": (lambda m, a: m.linalg.multi_dot([a, TALL[:3], WIDE, WIDE.T]), SQUARE),
    "lstsq": (lambda m, a: m.linalg.lstsq(a, RNG.normal(size=(4, 2)) * 0 + 1)[0], TALL),
    "cross": (lambda m, a: m.linalg.cross(a, a[::-1]), SQUARE),
    "vecdot": (lambda m, a: m.vecdot(a, a[::-1], axis=0), COMPLEX),
    "vector_norm": (lambda m, a: m.linalg.vector_norm(a, axis=(0, 1), ord=3), TALL),
    "tensorinv": (lambda m, a: m.linalg.tensorinv(m.reshape(a, (3, 3, 1)), ind=1), SQUARE),
    "tensorsolve": (lambda m, a: m.linalg.tensorsolve(a, COLUMN), SQUARE),
}
FACTORS = {
    "cholesky_upper": (lambda a: [snp.linalg.cholesky(a, upper=True)], POSITIVE),
    "qr": (lambda a: list(snp.linalg.qr(a)), TALL),
    "qr_square": (lambda a: list(snp.linalg.qr(a)), SQUARE),
    "svd_tall": (lambda a: list(snp.linalg.svd(a, full_matrices=False)), TALL),
    "svd_wide": (lambda a: list(snp.linalg.svd(a, full_matrices=False)), WIDE),
    "svd_square": (lambda a: list(snp.linalg.svd(a)), SQUARE),
    "eigh": (lambda a: list(snp.linalg.eigh(a)), POSITIVE),
    "eigh_lower": (lambda a: list(snp.linalg.eigh(a, UPLO="L")), SQUARE),
    "eigh_upper": (lambda a: list(snp.linalg.eigh(a, UPLO="U")), SQUARE),
}


@pytest.mark.parametrize("name", SAME)
def test_values(name):
    function, a = SAME[name]
    want = function(np, a)
    for given in (a, sj.array(a), sj.array(a, format="csr")):
        np.testing.assert_allclose(function(snp, given).todense(), want, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sj.jit(lambda a: function(snp, a))(a).todense(), want, rtol=1e-9, atol=1e-12)
    if "norm_" not in name and name not in ("cond_1", "multi_dot", "lstsq"):
        stack = np.stack([a, a + 0.01 * np.eye(*a.shape)])
        batched = sj.vmap(lambda a: function(snp, a))(stack).todense()
        np.testing.assert_allclose(batched[0], want, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(batched[1], function(np, stack[1]), rtol=1e-9, atol=1e-11)


def test_factors_are_factors():
    for a in (TALL, WIDE, SQUARE, COMPLEX, np.stack([TALL, 2 * TALL])):
        for full in (False, True):
            u, s, vh = (x.todense() for x in snp.linalg.svd(a, full_matrices=full))
            k = s.shape[-1]
            np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, atol=1e-12)
            q, r = (x.todense() for x in snp.linalg.qr(a, mode="complete" if full else "reduced"))
            np.testing.assert_allclose(q @ r, a, atol=1e-12)
            assert (q.shape[-1] == a.shape[-2]) or not full
    w, v = (x.todense() for x in snp.linalg.eig(SQUARE))
    np.testing.assert_allclose(SQUARE @ v, v * w, atol=1e-12)
    for part in ("L", "U"):
        w, v = (x.todense() for x in snp.linalg.eigh(SQUARE, UPLO=part))
        want = np.linalg.eigh(SQUARE, part)
        np.testing.assert_allclose(w, want[0])
        np.testing.assert_allclose(abs(v), abs(want[1]), atol=1e-12)
    assert snp.linalg.qr(TALL, mode="r").shape == (2, 2)
    assert int(snp.linalg.matrix_rank(np.diag([1.0, 1e-20, 2]))) == 2
    np.testing.assert_array_equal(snp.linalg.matrix_rank(np.stack([np.eye(2), np.ones((2, 2))])).todense(), [2, 1])


@pytest.mark.parametrize("name", [n for n in SAME if n not in ("eigvals", "solve_complex", "det_complex", "vecdot")])
def test_derivatives_of_values(name):
    function, a = SAME[name]
    check_grads(lambda a: snp.sum(snp.cos(function(snp, a))), (a,), order=2 if name in ("inv", "det", "slogdet") else 1)


@pytest.mark.parametrize("name", FACTORS)
def test_derivatives_of_factors(name):
    """Of functions that do not depend on the signs of vectors."""
    function, a = FACTORS[name]
    check_grads(lambda a: sum(snp.sum(snp.cos(abs(x)) * (k + 1)) for k, x in enumerate(function(a))), (a,), order=1)


def test_determinants_of_singular_matrices_have_derivatives():
    a = np.array([[1.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(sj.grad(snp.linalg.det)(a).todense(), [[4, -2], [-2, 1]], atol=1e-12)


def test_derivatives_of_eigenvalues():
    step = 1e-6 * RNG.normal(size=(3, 3))
    _, moved = sj.jvp(snp.linalg.eigvals, (SQUARE,), (step,))
    pairs = [np.linalg.eigvals(SQUARE + sign * step) for sign in (1, -1)]
    np.testing.assert_allclose(moved.todense(), (pairs[0] - pairs[1]) / 2, rtol=1e-5, atol=1e-12)
    (w, v), (dw, dv) = sj.jvp(snp.linalg.eig, (SQUARE,), (step,))
    left = step @ v.todense() + SQUARE @ dv.todense()
    np.testing.assert_allclose(left, dv.todense() * w.todense() + v.todense() * dw.todense(), atol=1e-12)


def test_complex_derivatives():
    def f(a):
        return snp.sum(abs(snp.linalg.inv(a)) ** 2) + snp.real(snp.linalg.det(a))

    gradient = sj.grad(f)(COMPLEX).todense()
    step = 1e-6
    for k in np.ndindex(3, 3):
        for unit in (1.0, 1j):
            moved = [np.array(COMPLEX), np.array(COMPLEX)]
            moved[0][k] += step * unit
            moved[1][k] -= step * unit
            slope = (float(f(moved[0])) - float(f(moved[1]))) / (2 * step)
            np.testing.assert_allclose((gradient[k] * unit).real, slope, rtol=1e-4, atol=1e-6)
    for function in (snp.linalg.svd, snp.linalg.eigh, snp.linalg.qr):
        hermitian = COMPLEX @ COMPLEX.conj().T
        move = 1e-6 * (COMPLEX + COMPLEX.conj().T)
        outs, changes = sj.jvp(lambda a, f=function: tuple(f(a)), (hermitian,), (move,))
        outs, changes = ([x.todense() for x in part] for part in (outs, changes))

        def product(parts, f=function):
            if f is snp.linalg.svd:
                return (parts[0] * parts[1]) @ parts[2]
            return parts[0] @ parts[1] if f is snp.linalg.qr else (parts[1] * parts[0]) @ parts[1].conj().T

        change = product([x + d for x, d in zip(outs, changes, strict=True)]) - product(outs)
        np.testing.assert_allclose(change, move, atol=1e-9)


def test_errors_name_what_is_wrong():
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        snp.linalg.inv(TALL)
    with pytest.raises(np.linalg.LinAlgError):
        snp.linalg.solve(np.zeros((2, 2)), np.ones(2))
    with pytest.raises(ValueError, match="UPLO"):
        snp.linalg.eigh(SQUARE, UPLO="X")
    with pytest.raises(ValueError, match="mode"):
        snp.linalg.qr(SQUARE, mode="raw")
    with pytest.raises(NotImplementedError, match="full_matrices"):
        sj.jvp(lambda a: snp.linalg.svd(a)[0], (TALL,), (TALL,))
    big = sj.array(([1.0], ([0], [0])), shape=(10**6, 10**6), format="coo")
    with pytest.raises(TypeError, match="asformat"):
        snp.linalg.det(big)
