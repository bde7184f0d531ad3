"""Operations whose results depend on extents, under `jit`: after a few shapes nothing is traced, scheduled or compiled; results are NumPy's at all."""

import functools
import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from sparsejax.scipy.sparse.linalg import gmres
from tests.shapes.traced import Traced

SHAPES, KNOWN = 30, 15
EDGES = [(0, 0), (1, 1), (0, 3), (3, 0), (1, 4), (4, 1), (2, 2), (2, 3), (3, 2)]


def operands(rng, n, m):
    """A matrix of n x m, a square one, vectors of both lengths, and three columns."""
    shapes = [(n, m), (n, n), (n,), (m,), (n, 3)]
    given = [np.round(rng.standard_normal(s), 1) for s in shapes]
    return [np.where(rng.random(a.shape) < 0.3, a, 0) if k < 2 else a for k, a in enumerate(given)]


def _with_diagonal(A, values, k=0):
    made = A.copy()
    rows = np.arange(max(0, min(A.shape[0] - max(0, -k), A.shape[1] - max(0, k)))) + max(0, -k)
    made[rows, rows + k] = values
    return made


def _changed(a, key, change):
    made = a.copy()
    made[key] = change(made[key])
    return made


def _two_diagonals(x):
    return np.diag(x) + np.diag(x[1:], 1)


def _behind(x):
    """Half of the rows from the second on, or from where so many lie inside."""
    count = x.shape[0] // 2
    return x[min(1, x.shape[0] - count) :][:count]


def _halves(x):
    return x[: x.shape[0] // 2] + x[x.shape[0] // 2 :]


def _leading(p, S):
    few = S[: S.shape[0] // 4, : S.shape[0] // 4]
    return few + 9 * p.eye(few.shape[0])


def _record(a):
    """How many numbers behind each, itself included, it is the largest of so far."""
    best = np.maximum.accumulate(a)
    new = np.concatenate([[True], best[1:] != best[:-1]]) if len(a) else np.zeros(0, bool)
    return np.bincount(np.maximum.accumulate(np.where(new, np.arange(len(a)), 0)), minlength=len(a)).astype(float)


def _gcn(p, S, X):
    hat = S + p.eye(S.shape[0])
    degrees = hat.sum(axis=1)
    return hat @ X / (1 + degrees * degrees)[:, None]


OPERATIONS = {
    "eye": lambda p, A, S, x, y, X: p.eye(S.shape[0]),
    "eye of two extents": lambda p, A, S, x, y, X: p.eye(A.shape[0], A.shape[1] + 1, 1),
    "identity": lambda p, A, S, x, y, X: p.identity(A.shape[1]) @ y,
    "with loops": lambda p, A, S, x, y, X: S + p.eye(S.shape[0]),
    "product with the identity": lambda p, A, S, x, y, X: p.eye(A.shape[0]) @ A,
    "graph convolution": lambda p, A, S, x, y, X: _gcn(p, S, X),
    "diag": lambda p, A, S, x, y, X: p.diag(x),
    "diag above": lambda p, A, S, x, y, X: p.diag(x, 1) @ p.ones(x.shape[0] + 1),
    "diag below": lambda p, A, S, x, y, X: p.diag(x, -2),
    "tril": lambda p, A, S, x, y, X: p.tril(A),
    "triu": lambda p, A, S, x, y, X: p.triu(A, 1) @ y,
    "dense tril": lambda p, A, S, x, y, X: p.tril(X, -1),
    "tri": lambda p, A, S, x, y, X: p.tri(A.shape[0], A.shape[1], 1),
    "linspace": lambda p, A, S, x, y, X: p.linspace(0, 1, x.shape[0]) + p.linspace(-3, 7, x.shape[0], endpoint=False),
    "vander": lambda p, A, S, x, y, X: p.vander(x / 8)[:, -2:] if x.shape[0] > 1 else x,
    "lax.rev": lambda p, A, S, x, y, X: lax.rev(A, (0, 1)) if p is snp else A[::-1, ::-1],
    "lax.slice_in_dim": lambda p, A, S, x, y, X: lax.slice_in_dim(A, 1, None, 2, axis=1) if p is snp else A[:, 1::2],
    "lax.dynamic_slice": lambda p, A, S, x, y, X: (
        lax.dynamic_slice_in_dim(X, 1, X.shape[0] // 2, 0) if p is snp else _behind(X)
    ),
    "arange from a float": lambda p, A, S, x, y, X: p.arange(1.0, x.shape[0]),
    "average": lambda p, A, S, x, y, X: p.average(X, axis=0) if x.shape[0] else x,
    "median": lambda p, A, S, x, y, X: p.median(A, axis=0) if A.shape[0] else A.sum(axis=0),
    "median of all": lambda p, A, S, x, y, X: p.median(A) if A.size else A.sum(),
    "quantiles": lambda p, A, S, x, y, X: p.quantile(A, [0.2, 0.5, 1.0], axis=1) if A.shape[1] else A.sum(axis=1),
    "percentile": lambda p, A, S, x, y, X: p.percentile(x, 30, method="higher") if x.shape[0] else x,
    "edge": lambda p, A, S, x, y, X: p.pad(x, (2, 1), mode="edge") if x.shape[0] else x,
    "wrap": lambda p, A, S, x, y, X: p.pad(x, (1, 70), mode="wrap") if x.shape[0] else x,
    "reflect": lambda p, A, S, x, y, X: p.pad(x, (90, 3), mode="reflect") if x.shape[0] else x,
    "symmetric": lambda p, A, S, x, y, X: p.pad(X, ((2, 80), (0, 0)), mode="symmetric") if x.shape[0] else x,
    "covariance": lambda p, A, S, x, y, X: p.cov(X.T) if x.shape[0] > 1 else x,
    "covariance of a sparse matrix": lambda p, A, S, x, y, X: p.cov(S, bias=True) if x.shape[0] > 1 else x,
    "correlation": lambda p, A, S, x, y, X: p.corrcoef(X[:, :2].T) if x.shape[0] > 2 else x,
    "insert": lambda p, A, S, x, y, X: p.insert(x, 0, 2.0),
    "insert several": lambda p, A, S, x, y, X: p.insert(A, [-1, 0], [[3.0], [4.0]], 0) if A.shape[0] else A.sum(),
    "insert rows": lambda p, A, S, x, y, X: p.insert(X, 0, X, 0),
    "insert at a slice": lambda p, A, S, x, y, X: p.insert(x, slice(1, 4), 2.0) if x.shape[0] > 3 else x,
    "insert at every other": lambda p, A, S, x, y, X: (
        p.insert(A, slice(None, None, 2), 2.0, 0) if A.shape[0] > 2 else A.sum()
    ),
    "insert backwards": lambda p, A, S, x, y, X: (
        p.insert(X, slice(-2, None, -3), X[: (X.shape[0] - 1 + 2) // 3], 0) if x.shape[0] > 4 else x
    ),
    "delete every third": lambda p, A, S, x, y, X: p.delete(X, slice(1, None, 3), 0),
    "delete backwards": lambda p, A, S, x, y, X: p.delete(x, slice(-1, 2, -2)) if x.shape[0] > 5 else x,
    "delete": lambda p, A, S, x, y, X: p.delete(x, -1) if x.shape[0] else x,
    "delete several": lambda p, A, S, x, y, X: p.delete(X, [2, 0, -1, 2, -3], 0) if x.shape[0] > 2 else x,
    "delete a slice": lambda p, A, S, x, y, X: p.delete(A, slice(1, -3), 1),
    "pseudoinverse": lambda p, A, S, x, y, X: p.linalg.pinv(X),
    "least squares": lambda p, A, S, x, y, X: p.linalg.lstsq(X, x, rcond=None)[0] if x.shape[0] else x,
    "halves of an even extent": lambda p, A, S, x, y, X: _halves(x) if x.shape[0] % 2 == 0 else x,
    "parts": lambda p, A, S, x, y, X: p.array_split(x, 2)[0] if x.shape[0] else x,
    "parts at places": lambda p, A, S, x, y, X: p.array_split(x, [3, -2])[1],
    "fourier transform": lambda p, A, S, x, y, X: p.fft.fft(x, norm="ortho") if x.shape[0] else x,
    "fourier transform back": lambda p, A, S, x, y, X: p.fft.irfft(p.fft.rfft(x)) if x.shape[0] > 1 else x,
}
APART = {
    "setdiag": (lambda A, S, x, y, X: A.setdiag(2.0), lambda A, S, x, y, X: _with_diagonal(A, 2.0)),
    "setdiag above": (
        lambda A, S, x, y, X: A.setdiag(-1.0, k=1) if A.shape[1] > 1 else A,
        lambda A, S, x, y, X: _with_diagonal(A, -1.0, 1),
    ),
    "setdiag to a vector": (lambda A, S, x, y, X: S.setdiag(x), lambda A, S, x, y, X: _with_diagonal(S, x)),
    "diags": (lambda A, S, x, y, X: sj.diags(x) @ A, lambda A, S, x, y, X: x[:, None] * A),
    "diags of two": (
        lambda A, S, x, y, X: sj.diags([x[1:], x], offsets=[1, 0]) if x.shape[0] > 1 else sj.diags(x),
        lambda A, S, x, y, X: _two_diagonals(x),
    ),
    "at a slice": (
        lambda A, S, x, y, X: x.at[1:].add(2.0),
        lambda A, S, x, y, X: _changed(x, slice(1, None), lambda a: a + 2),
    ),
    "at every other": (
        lambda A, S, x, y, X: x.at[::2].multiply(x.shape[0]),
        lambda A, S, x, y, X: _changed(x, slice(None, None, 2), lambda a: a * len(x)),
    ),
    "at rows": (
        lambda A, S, x, y, X: A.at[np.arange(A.shape[0] > 1)].multiply(2.0),
        lambda A, S, x, y, X: _changed(A, slice(0, A.shape[0] > 1), lambda a: a * 2),
    ),
    "gradient of a square": (
        lambda A, S, x, y, X: sj.grad(lambda S: (S @ S @ x).sum())(S),
        lambda A, S, x, y, X: np.where(S != 0, np.ones_like(S) @ np.diag(S @ x) + np.outer(S.sum(axis=0), x), 0),
    ),
    "gradient of a trace": (
        lambda A, S, x, y, X: sj.grad(lambda S: snp.trace(S @ S))(S),
        lambda A, S, x, y, X: np.where(S != 0, 2 * S.T, 0),
    ),
    "gradient of the least": (
        lambda A, S, x, y, X: sj.grad(lambda X: snp.sort(X, axis=0)[0].sum())(X) if x.shape[0] else X,
        lambda A, S, x, y, X: np.where(np.arange(len(X))[:, None] == X.argmin(axis=0), 1.0, 0) if len(X) else X,
    ),
    "gradient of maxima": (
        lambda A, S, x, y, X: sj.grad(lambda X: X.max(axis=0).sum())(X) if x.shape[0] else X,
        lambda A, S, x, y, X: np.where(np.arange(len(X))[:, None] == X.argmax(axis=0), 1.0, 0) if len(X) else X,
    ),
    "loop over an extent": (
        lambda A, S, x, y, X: sj.lax.fori_loop(0, x.shape[0], lambda k, s: s * 0.5 + x[k], 0.0),
        lambda A, S, x, y, X: np.asarray(functools.reduce(lambda s, v: s * 0.5 + v, x, 0.0)),
    ),
    "loop that writes": (
        lambda A, S, x, y, X: (
            sj.lax.fori_loop(1, x.shape[0], lambda k, v: v.at[k].add(v[k - 1] * 0.5), x) if x.shape[0] else x
        ),
        lambda A, S, x, y, X: np.array(list(itertools.accumulate(x, lambda s, v: s * 0.5 + v))),
    ),
    "running extremes": (
        lambda A, S, x, y, X: sj.lax.cummax(X, axis=0) - sj.lax.cummin(X, axis=0, reverse=True),
        lambda A, S, x, y, X: np.maximum.accumulate(X) - np.minimum.accumulate(X[::-1])[::-1],
    ),
    "gradient of running maxima": (
        lambda A, S, x, y, X: sj.grad(lambda x: sj.lax.cummax(x).sum())(x),
        lambda A, S, x, y, X: _record(x),
    ),
    "gradient of running products": (
        lambda A, S, x, y, X: sj.grad(lambda x: sj.lax.cumprod(x, reverse=True).sum())(x * 0 + 1),
        lambda A, S, x, y, X: np.arange(len(x)) + 1.0,
    ),
    "associative scan": (
        lambda A, S, x, y, X: sj.lax.associative_scan(lambda a, b: a * b, x),
        lambda A, S, x, y, X: np.cumprod(x),
    ),
    "equations of few unknowns": (
        lambda A, S, x, y, X: gmres(_leading(snp, S), x[: x.shape[0] // 4], rtol=1e-14)[0] if x.shape[0] > 3 else x,
        lambda A, S, x, y, X: np.linalg.solve(_leading(np, S), x[: len(x) // 4]) if len(x) > 3 else x,
    ),
    "jacrev": (lambda A, S, x, y, X: sj.jacrev(lambda w: X @ w)(snp.ones(3)), lambda A, S, x, y, X: X),
}


def both(name):
    """An operation as a function of our arrays, and of NumPy's."""
    if name in APART:
        return APART[name]
    call = OPERATIONS[name]
    return lambda *args: call(snp, *args), lambda *args: call(np, *args)


def equal(got, wanted):
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(got.todense(), wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.rotating(8)
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("name", [*OPERATIONS, *APART])
def test_a_new_shape_plans_nothing(name, form, counts):
    ours, exact = both(name)
    rng = np.random.default_rng(sum(map(ord, name + form)))
    run = Traced(ours)
    shapes = [tuple(int(n) for n in rng.integers(36, 60, 2)) for _ in range(SHAPES)]
    for number, (n, m) in enumerate([*shapes, *EDGES]):
        given = operands(rng, n, m)
        args = [sj.array(a, format=form if k < 2 else None) for k, a in enumerate(given)]
        before = dict(counts), run.traces
        got = run(*args)
        if KNOWN <= number < SHAPES:
            assert (counts, run.traces) == before, f"shape {number} of {name}: {n} x {m}"
        equal(got, exact(*given))
        if number % 5 == 0:
            alone = sj.jit(ours, dynamic=False)(*args)
            assert (got.aval.format, got.aval.fill_value) == (alone.aval.format, alone.aval.fill_value)


KEY = sj.random.key(7)
DRAWN = {
    "normal": lambda x, X: sj.random.normal(KEY, X.shape),
    "integers": lambda x, X: sj.random.randint(KEY, (5,), 0, x.shape[0]),
    "permutation": lambda x, X: sj.random.permutation(KEY, x.shape[0]),
    "choice": lambda x, X: sj.random.choice(KEY, x.shape[0], (3,)),
    "choice without replacement": lambda x, X: sj.random.choice(KEY, X, (3,), replace=False),
    "categories": lambda x, X: sj.random.categorical(KEY, x),
    "numbers for many keys": lambda x, X: sj.vmap(lambda k: sj.random.normal(k, (3,)))(
        sj.random.split(KEY, x.shape[0])
    ),
    "gamma": lambda x, X: sj.random.gamma(KEY, 0.2 + x * x),
    "gamma of a shape": lambda x, X: sj.random.gamma(KEY, 2.5, X.shape),
    "beta": lambda x, X: sj.random.beta(KEY, 0.2 + X * X, 1 + x[:, None] * x[:, None]),
    "dirichlet": lambda x, X: sj.random.dirichlet(KEY, 0.2 + X * X),
    "poisson": lambda x, X: sj.random.poisson(KEY, 8 + 4 * x),
    "segment means": lambda x, X: sj.nn.segment_mean(X.T, np.array([0, 2, 1]), x.shape[0]),
    "segment softmax": lambda x, X: sj.nn.segment_softmax(X.T, np.array([0, 2, 1]), x.shape[0]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_at_once(name):
    """Numbers that are drawn, and sums of segments, are those of the function called at once."""
    rng, function = np.random.default_rng(3), DRAWN[name]
    run, sizes = Traced(function), [*(int(n) for n in rng.integers(36, 60, 12)), 3, 4, 1]
    for number, n in enumerate(sizes):
        given = rng.standard_normal(n), rng.standard_normal((n, 3))
        if n == 1 and name.startswith(("choice", "segment")):
            continue
        before = run.traces
        got, alone = run(*given), function(*map(sj.array, given))
        np.testing.assert_allclose(got.todense(), alone.todense(), rtol=1e-12)
        assert number < 4 or n < 30 or run.traces == before


@pytest.mark.parametrize("seed", range(4))
def test_random_numbers_are_those_of_the_shape(seed):
    """Entry k in row-major order is number k of the stream of the key, whether extents are known or not, and at a pattern."""
    rng = np.random.default_rng(seed)
    key = sj.random.key(seed)
    run = sj.jit(lambda A: (sj.random.bits(key, (A.shape[0], 2, A.shape[1])), sj.random.bits(key, like=A)))
    for n, m in [*(tuple(int(n) for n in rng.integers(2, 40, 2)) for _ in range(6)), *EDGES]:
        A = sj.array(operands(rng, n, m)[0], format="csr")
        got, stored = run(A)
        stream = np.asarray(sj.random.bits(key, (n * 2 * m,)))
        np.testing.assert_array_equal(got.todense(), stream.reshape(n, 2, m))
        np.testing.assert_array_equal(stored.todense(), np.where(A.todense(), stream[: n * m].reshape(n, m), 0))


@pytest.mark.parametrize("name", ["gamma", "gamma of a shape", "beta", "dirichlet", "poisson"])
def test_a_new_shape_at_once_plans_nothing(name, counts):
    rng, function = np.random.default_rng(4), DRAWN[name]
    for number, n in enumerate(int(n) for n in rng.integers(36, 60, 12)):
        before = dict(counts)
        function(*map(sj.array, (rng.standard_normal(n), rng.standard_normal((n, 3)))))
        assert number < 4 or counts == before, f"shape {number} of {name}: {n}"
