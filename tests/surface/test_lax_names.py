"""`sparsejax.lax` by the names of `jax.lax`: values, derivatives and batches."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4))


@pytest.mark.parametrize("form", ["dense", "csr", "csc", "ell"])
def test_windows_at_traced_places(form):
    a = sj.array(X, format=form)
    for start in ((1, 2), (5, 0), (-1, -2), (0, 0)):
        rows = min(max(start[0] + 3 if start[0] < 0 else start[0], 0), 1)
        columns = min(max(start[1] + 4 if start[1] < 0 else start[1], 0), 1)
        made = sj.jit(lambda a, i, j: lax.dynamic_slice(a, (i, j), (2, 3)))(a, *start)
        np.testing.assert_array_equal(made.todense(), X[rows : rows + 2, columns : columns + 3])
        for places in (start, np.array(start), [np.int32(start[0]), sj.array(start[1])]):  # at once
            known = lax.dynamic_slice(a, places, (2, 3))
            assert known.format == made.format
            np.testing.assert_array_equal(known.todense(), made.todense())
        want = X.copy()
        want[rows : rows + 2, columns : columns + 3] = 7.0
        new = np.full((2, 3), 7.0)
        made = sj.jit(lambda a, i, j, new=new: lax.dynamic_update_slice(a, new, (i, j)))(a, *start)
        np.testing.assert_array_equal(made.todense(), want)
        known = lax.dynamic_update_slice(a, new, start)
        assert known.format == made.format
        np.testing.assert_array_equal(known.todense(), want)
    with pytest.raises(TypeError, match="integer"):
        lax.dynamic_slice(a, (1.5, 0), (2, 3))
    np.testing.assert_array_equal(lax.dynamic_index_in_dim(a, 2, 1, False).todense(), X[:, 2])
    np.testing.assert_array_equal(lax.dynamic_slice_in_dim(a, 1, 2, 1).todense(), X[:, 1:3])
    made = lax.dynamic_update_index_in_dim(a, np.zeros(4), 1, 0).todense()
    np.testing.assert_array_equal(made, np.where(np.arange(3)[:, None] == 1, 0, X))
    slope = sj.grad(lambda a: lax.dynamic_slice(a, (1, 1), (2, 2)).sum())(sj.array(X)).todense()
    assert slope.sum() == 4 and slope[1:, 1:3].sum() == 4
    starts = np.array([0, 2, 1])
    made = sj.vmap(lambda row, k: lax.dynamic_slice(row, (k,), (2,)))(X, starts)
    np.testing.assert_array_equal(made.todense(), [x[k : k + 2] for x, k in zip(X, starts, strict=True)])


def test_running_results():
    for name, want in (("cumsum", np.cumsum), ("cumprod", np.cumprod), ("cummax", np.maximum.accumulate)):
        for axis in (0, 1):
            np.testing.assert_allclose(getattr(lax, name)(X, axis).todense(), want(X, axis=axis))
            back = np.flip(want(np.flip(X, axis), axis=axis), axis)
            np.testing.assert_allclose(getattr(lax, name)(X, axis, reverse=True).todense(), back)
    np.testing.assert_allclose(lax.cummin(X, 1).todense(), np.minimum.accumulate(X, axis=1))
    np.testing.assert_allclose(lax.cumlogsumexp(X, 1).todense(), np.logaddexp.accumulate(X, axis=1))
    for reverse in (False, True):
        for kind, combine in (("cumprod", np.cumprod), ("cummax", np.maximum.accumulate)):
            x = np.array([1.5, 0.0, -2.0, 3.0]) if kind == "cumprod" else X[0]
            t = RNG.normal(size=4)

            def f(v, combine=combine, reverse=reverse):
                return combine(v[::-1])[::-1] if reverse else combine(v)

            slope = (f(x + 1e-6 * t) - f(x - 1e-6 * t)) / 2e-6
            made = sj.jvp(lambda v, kind=kind, reverse=reverse: getattr(lax, kind)(v, reverse=reverse), (x,), (t,))[1]
            np.testing.assert_allclose(made.todense(), slope, rtol=1e-5, atol=1e-8)
            ct = RNG.normal(size=4)
            pulled = sj.vjp(lambda v, kind=kind, reverse=reverse: getattr(lax, kind)(v, reverse=reverse), x)[1](ct)[0]
            np.testing.assert_allclose(pulled.todense() @ t, ct @ made.todense(), rtol=1e-9)


def test_associative_scan():
    pairs = (RNG.normal(size=(5, 2, 2)), RNG.normal(size=(5, 2)))

    def joined(first, second):
        (a, b), (c, d) = first, second
        return snp.einsum("kij,kjl->kil", c, a), snp.einsum("kij,kj->ki", c, b) + d

    for reverse in (False, True):
        made = lax.associative_scan(joined, pairs, reverse=reverse)
        a, b = np.eye(2), np.zeros(2)
        for k in range(5)[:: -1 if reverse else 1]:
            a, b = pairs[0][k] @ a, pairs[0][k] @ b + pairs[1][k]
            np.testing.assert_allclose(made[0].todense()[k], a)
            np.testing.assert_allclose(made[1].todense()[k], b)
    with pytest.raises(ValueError, match="agree"):
        lax.associative_scan(joined, (np.ones(3), np.ones(4)))


def test_smaller_functions():
    np.testing.assert_array_equal(lax.clamp(-1.0, X, 1.0).todense(), X.clip(-1, 1))
    np.testing.assert_array_equal(lax.select(X > 0, X, -X).todense(), abs(X))
    np.testing.assert_array_equal(lax.select_n(np.array([2, 0, 1]), *X.T[:3]).todense(), X[range(3), [2, 0, 1]])
    np.testing.assert_array_equal(lax.iota("i4", 3).todense(), [0, 1, 2])
    np.testing.assert_array_equal(lax.broadcasted_iota(int, (2, 3), 1).todense(), [[0, 1, 2]] * 2)
    np.testing.assert_array_equal(lax.rev(X, (1,)).todense(), X[:, ::-1])
    np.testing.assert_array_equal(lax.slice(X, (0, 1), (3, 4), (2, 1)).todense(), X[0:3:2, 1:4])
    np.testing.assert_array_equal(lax.slice_in_dim(X, 1, None, 2, axis=1).todense(), X[:, 1::2])
    np.testing.assert_allclose(lax.rsqrt(X**2).todense(), 1 / abs(X))
    np.testing.assert_allclose(lax.rem(X * 5, 3.0).todense(), np.fmod(X * 5, 3.0))
    np.testing.assert_allclose(lax.reduce_max(X, (0,)).todense(), X.max(0))
    np.testing.assert_array_equal(lax.argmax(X, 1, np.int32).todense(), X.argmax(1))
    np.testing.assert_array_equal(lax.argmin(X, 0).todense(), X.argmin(0))
    keys = np.array([[1, 0, 1, 0]] * 3)
    first, second = lax.sort((keys, X), num_keys=2)
    for k in range(3):
        order = np.lexsort((X[k], keys[k]))
        np.testing.assert_array_equal(second.todense()[k], X[k][order])
        np.testing.assert_array_equal(first.todense()[k], keys[k][order])
    assert lax.add(1, 2) == 3 and lax.full((2,), 3.0).shape == (2,)


@pytest.mark.parametrize("name", ["lgamma", "digamma", "erfc", "erf_inv"])
def test_special_functions(name):
    special = pytest.importorskip("scipy.special")
    theirs = {"lgamma": "gammaln", "digamma": "psi", "erfc": "erfc", "erf_inv": "erfinv"}[name]
    x = np.array([0.2, 0.5, 0.9])
    np.testing.assert_allclose(getattr(lax, name)(x).todense(), getattr(special, theirs)(x))
    slope = (getattr(special, theirs)(x + 1e-6) - getattr(special, theirs)(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(sj.grad(lambda v: getattr(lax, name)(v).sum())(x).todense(), slope, rtol=1e-6)
    sparse = sj.array(np.diag(x), format="csr")
    np.testing.assert_allclose(getattr(lax, name)(sparse).todense(), getattr(special, theirs)(np.diag(x)))
    np.testing.assert_allclose(
        sj.vmap(getattr(lax, name))(np.stack([x, x / 2])).todense()[1], getattr(special, theirs)(x / 2)
    )


def test_solves_of_the_users_own():
    a = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
    b = RNG.normal(size=3)

    def solution(a, b):
        return lax.custom_linear_solve(
            lambda x: a @ x, b, lambda f, b: snp.linalg.solve(a, b), lambda f, b: snp.linalg.solve(a.T, b)
        )

    np.testing.assert_allclose(solution(a, b).todense(), np.linalg.solve(a, b))
    want = sj.grad(lambda a, b: (snp.linalg.solve(a, b) ** 2).sum(), (0, 1))(a, b)
    made = sj.jit(sj.grad(lambda a, b: (solution(a, b) ** 2).sum(), (0, 1)))(a, b)
    for ours, theirs in zip(made, want, strict=True):
        np.testing.assert_allclose(ours.todense(), theirs.todense(), rtol=1e-9)
    sides = np.stack([b, 2 * b])
    made = sj.vmap(lambda b: solution(a, b))(sides).todense()
    np.testing.assert_allclose(made, np.linalg.solve(a, sides.T).T)
    slope = sj.grad(lambda a: (sj.vmap(lambda b: solution(a, b))(sides) ** 2).sum())(a).todense()
    want = sj.grad(lambda a: (snp.linalg.solve(a, sides.T) ** 2).sum())(a).todense()
    np.testing.assert_allclose(slope, want, rtol=1e-9)
    many = sj.vmap(sj.grad(lambda a, b: (solution(a, b) ** 2).sum()), (None, 0))(a, sides).todense()
    np.testing.assert_allclose(many.sum(0), want, rtol=1e-9)
    with pytest.raises(TypeError, match="transpose_solve"):
        sj.grad(lambda b: lax.custom_linear_solve(lambda x: x * 2, b, lambda f, b: b / 2).sum())(b)

    def root(c):
        def newton(f, x):
            return lax.fori_loop(0, 40, lambda _, x: x - f(x) / sj.jvp(f, (x,), (1.0,))[1], x)

        return lax.custom_root(lambda x: x**3 - c, 1.0, newton, lambda g, y: y / g(1.0))

    np.testing.assert_allclose(float(root(8.0)), 2.0)
    np.testing.assert_allclose(float(sj.grad(root)(8.0)), 1 / 12)
    np.testing.assert_allclose(float(sj.grad(sj.grad(root))(8.0)), -2 / 9 * 8 ** (-5 / 3), rtol=1e-6)


@pytest.mark.parametrize("form", ["csr", "coo", "dense"])
def test_axes_of_extent_one(form):
    x = sj.array(np.arange(9.0).reshape(3, 3), format=form)
    wide = lax.expand_dims(x, (0, -2))
    assert wide.shape == (1, 3, 1, 3)
    for axes in ((0, 2), [-2, 0]):
        made = lax.squeeze(wide, axes)
        assert made.format == x.format
        np.testing.assert_array_equal(made.todense(), x.todense())
    for call in (lambda x: lax.squeeze(x, 0), lambda x: lax.squeeze(x, (0,)), sj.jit(lambda x: lax.squeeze(x, 1))):
        with pytest.raises(ValueError, match="has 3"):
            call(x)
    with pytest.raises(ValueError, match="duplicate"):
        lax.squeeze(wide, (0, -4))


def test_a_fill_is_a_number():
    x = sj.array(np.eye(3), format="csr")
    assert lax.refill(x, 2).todense()[0, 1] == 2
    for fill in ((3, 3), np.ones(3)):
        with pytest.raises(ValueError, match="fill must be a number"):
            lax.refill(x, fill)
