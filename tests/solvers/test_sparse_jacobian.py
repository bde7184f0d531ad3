"""`sparse_jacobian` and `sparse_hessian` against dense Jacobians; patterns against what they must contain; numbers of colours."""

import random

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.lax.indexing import pad
from sparsejax.lax.loops import Traced
from sparsejax.transforms import coloring
from sparsejax.transforms import sparse_jacobian as module
from sparsejax.transforms.coloring import color_columns
from sparsejax.transforms.patterns import derivative_pattern
from tests.fuzz import engine

pytestmark = pytest.mark.rotating(24)

N = 6


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def sparse(rng, shape=(N, N), form="csr", density=0.3):
    return sj.array(rng.normal(size=shape) * (rng.random(shape) < density)).asformat(form)


def planned(function, *avals):
    """The plan of a Jacobian by the only argument, which need not be computed."""
    traced = Traced(lambda x: [function(x)], avals)
    return module._planned(module._Key(traced.closed, tuple(traced.consts), "auto"))


def check(function, x, tight=False, mode="auto", **options):
    """The same as jacfwd; `tight`: nothing more is stored than what is not zero at `x`, a general point."""
    made = sj.sparse_jacobian(function, mode=mode)(x)
    wanted = sj.jacfwd(function)(x).todense()
    assert not made.format.is_dense or not made.ndim
    assert_allclose(made.todense(), wanted, rtol=1e-9, atol=1e-12, **options)
    if tight:
        assert made.nnz == np.count_nonzero(wanted)
    return made


B = sparse(np.random.default_rng(1))
STEPS = {
    "sin": lambda a, x: snp.sin(x),
    "scale": lambda a, x: x * np.arange(1.0, N + 1),
    "square": lambda a, x: x * x + x,
    "divide": lambda a, x: x / (1 + x * x),
    "matvec": lambda a, x: a @ x,
    "vecmat": lambda a, x: x @ a,
    "weighted rows": lambda a, x: (a * x).sum(axis=1),
    "stored values": lambda a, x: snp.sin(a * x).sum(axis=0),
    "product": lambda a, x: ((a * x) @ B).sum(axis=1),
    "scaled twice": lambda a, x: sj.einsum("ij,i,j->j", a, x, x),
    "diagonal": lambda a, x: snp.diagonal(a * x).asformat("dense") + x,
    "sampled": lambda a, x: sj.einsum("ij,i,j->ij", a, x, x).sum(axis=1),
    "stencil": lambda a, x: snp.concatenate([x[1:], x[:1]]) - 2 * x,
    "reverse": lambda a, x: x[::-1],
    "padded": lambda a, x: pad([x[1:4] ** 2, x[5], x], [(range(0, 6, 2),), (3,), (None,)], (N,)),
    "gather": lambda a, x: x[np.array([3, 3, 1, 0, 5, 2])],
    "fold": lambda a, x: x.reshape(2, 3).T.reshape(N),
    "halves": lambda a, x: snp.concatenate([x.reshape(2, 3).sum(axis=0), x.reshape(3, 2).max(axis=1)]),
    "relu": lambda a, x: snp.maximum(x, 0.1),
    "choice": lambda a, x: snp.where(x > 0, x, x[::-1]),
    "total": lambda a, x: x * x.sum(),
    "shortest": lambda a, x: snp.minimum(sj.einsum("ij,j->i", a, x, semiring="min_plus"), 3) + x,
    "products": lambda a, x: x.reshape(3, 2).prod(axis=1, keepdims=True).reshape(3) @ np.ones((3, N)) + x,
    "constant": lambda a, x: x + snp.floor(x) * a.sum(axis=1),
    "outer": lambda a, x: (snp.outer(x, x) * a).sum(axis=1),
    "convert": lambda a, x: (a.asformat("coo") * x).asformat("csc") @ np.ones(N),
    "stopped": lambda a, x: x * sj.stop_gradient(x[::-1]),
}
TIGHT = set(STEPS) - {"relu", "choice", "halves", "shortest", "constant", "convert"}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("form", ["csr", "dcsc", "dense"])
def test_steps(rng, name, form):
    """Each rule; nothing superfluous is stored where the derivative has no branches."""
    if name in ("shortest", "diagonal") and form == "dense":
        return
    a, x = sparse(rng, form=form), rng.normal(size=N)
    with engine.quick():
        check(lambda x: STEPS[name](a, x), x, tight=name in TIGHT and form != "dense")


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    """Chains of steps: every value is right, so every pattern is large enough."""
    rng, chosen = np.random.default_rng(seed), random.Random(seed)
    a, x = (
        sparse(rng, form=chosen.choice(["csr", "csc", "coo", "dcsr", "ell", "groupcoo:2", "hash"])),
        rng.normal(size=N),
    )
    names = [chosen.choice(list(STEPS)) for _ in range(chosen.randint(1, 4))]

    def chain(x):
        y = x
        for name in names:
            y = STEPS[name](a, y) * 0.5
        return y

    with engine.quick():
        check(chain, x, err_msg=str(names), mode=chosen.choice(["auto", "forward", "reverse"]))
        if seed % 3 == 0:
            found = sj.sparse_hessian(lambda x: snp.sin(chain(x)).sum())(x)
            wanted = sj.hessian(lambda x: snp.sin(chain(x)).sum())(x)
            assert_allclose(found.todense(), wanted.todense(), rtol=1e-8, atol=1e-10, err_msg=str(names))


@pytest.mark.parametrize("form", ["csr", "coo", "dcsc"])
def test_sparse_results(rng, form):
    a, x = sparse(rng, form=form), rng.normal(size=N)
    with engine.quick():
        made = check(lambda x: a * x, x, tight=True)
        assert made.format.ndim == 3
        check(lambda x: snp.concatenate([a * x, a * 2]), x, tight=True)
        check(lambda x: (a * x) @ B, x)
        check(lambda x: (a * x)[1], x, tight=True)
        check(lambda x: a.T * x + B, x, tight=True)
        check(lambda x: snp.exp(a * x), x, tight=True)


def test_dimensions(rng):
    a = sparse(rng, (3, 4))
    x = rng.normal(size=(4, 2))
    made = check(lambda x: a @ x, x, tight=True)
    assert made.shape == (3, 2, 4, 2) and str(made.format) == "coo"
    check(lambda x: x.sum(), x, tight=True)
    check(lambda x: snp.stack([x, x * x], axis=1), x, tight=True)
    assert_allclose(check(lambda x: x * x, rng.normal(size=())).todense().shape, ())
    empty = sj.sparse_jacobian(snp.floor)(x)
    assert empty.nnz == 0 and empty.shape == (4, 2, 4, 2)
    assert sj.sparse_jacobian(lambda x: np.ones(3) * 2 + 0 * x.sum())(x).shape == (3, 4, 2)
    assert sj.sparse_jacobian(lambda x: sj.array(np.ones(3)))(x[:, 0]).nnz == 0
    assert sj.sparse_jacobian(lambda x: x * x)(np.zeros(0)).shape == (0, 0)


def test_dtypes(rng):
    a, x = sparse(rng), rng.normal(size=N)
    made = sj.sparse_jacobian(lambda x: (a @ x) * (1 + 2j))(x)
    assert_allclose(made.todense(), a.todense() * (1 + 2j))
    assert sj.sparse_jacobian(lambda x: snp.sin(x))(x.astype("f4")).dtype == np.float32
    assert sj.sparse_jacobian(lambda x: a @ x)(x.astype("f4")).dtype == np.float64


def test_numbers_of_colors():
    n = 50

    def tridiagonal(x):
        return x[1:-1] ** 2 + snp.sin(x[2:]) * x[:-2]

    assert planned(tridiagonal, sj.array(np.ones(n)).aval).count == 3
    assert planned(lambda x: x * x, sj.array(np.ones(n)).aval).count == 1
    plan = planned(lambda x: (x * x).sum(), sj.array(np.ones(n)).aval)
    assert plan.count == 1 and plan.reverse
    grid = sj.array(sp.kronsum(*[sp.diags_array([1.0, 1, 1], offsets=[-1, 0, 1], shape=(9, 9))] * 2, format="csr"))
    assert 5 <= planned(lambda x: grid @ snp.sin(x), sj.array(np.ones(81)).aval).count <= 9
    rosenbrock = sj.sparse_hessian(lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())
    x = np.linspace(-1, 1, n)
    made = rosenbrock(x)
    assert made.nnz == 3 * n - 2
    assert_allclose(made.todense(), made.todense().T)


def test_colors_are_proper(rng):
    for _ in range(30):
        pattern = sp.csr_array(rng.random(rng.integers(0, 20, 2)) < rng.random() * 0.5)
        colors = color_columns(pattern)
        dense = pattern.todense()
        for c in np.unique(colors):
            assert dense[:, colors == c].sum(axis=1).max(initial=0) <= 1
        least = dense.sum(axis=1).max(initial=0)
        assert colors.max(initial=0) + 1 >= least


def test_values_of_the_argument_do_not_decide_the_pattern(rng):
    """Zeros, and indices and patterns that are made from the argument."""
    a, x = sparse(rng), rng.normal(size=N)
    jacobian = sj.sparse_jacobian(lambda x: x * x + a @ (x * x))
    at_zero, there = jacobian(np.zeros(N)), jacobian(x)
    assert at_zero.nnz == there.nnz and not at_zero.todense().any()
    check(lambda x: x[(x > 0).astype(int) * 2 + 1] * x, x)
    check(lambda x: (x - 1).asformat("coo").asformat("dense") * x, np.where(x > 0, x, 1.0))
    w = rng.normal(size=N)
    both = sj.sparse_jacobian(lambda x, w: (a * w) @ (x * x))
    for k in range(2):
        assert_allclose(both(x, w * k).todense(), a.todense() * (w * k) * 2 * x)


def test_arguments(rng):
    a, x, y = sparse(rng), rng.normal(size=N), rng.normal(size=N)

    def f(x, a, y):
        return a @ (x * y)

    found = sj.sparse_jacobian(f, argnums=(0, 2))(x, a, y)
    assert_allclose(found[0].todense(), a.todense() * y)
    assert_allclose(found[1].todense(), a.todense() * x)
    assert_allclose(
        sj.sparse_hessian(lambda a, x: (snp.sin(a @ x)).sum(), argnums=1)(a, x).todense(),
        sj.hessian(lambda x: (snp.sin(a @ x)).sum())(x).todense(),
        atol=1e-12,
    )
    other = sparse(rng, density=0.6)
    assert_allclose(sj.sparse_jacobian(f)(x, other, y).todense(), other.todense() * y)
    assert_allclose(
        sj.sparse_jacobian(lambda x, k: x[k] * x)(x, np.array(3)).todense(), sj.jacfwd(lambda x: x[3] * x)(x).todense()
    )
    assert_allclose(
        sj.sparse_jacobian(lambda x, k: x[k] * x)(x, np.array(4)).todense(), sj.jacfwd(lambda x: x[4] * x)(x).todense()
    )


def test_jit_and_further_derivatives(rng):
    a, x = sparse(rng), rng.normal(size=N)

    def f(x):
        return snp.sin(a @ x) * x

    jacobian = sj.sparse_jacobian(f)
    wanted = sj.jacfwd(f)(x).todense()
    assert_allclose(sj.jit(jacobian)(x).todense(), wanted, rtol=1e-12)
    found = sj.jit(sj.grad(lambda x: (jacobian(x) ** 2).sum()))(x)
    assert_allclose(found.todense(), sj.grad(lambda x: (sj.jacfwd(f)(x) ** 2).sum())(x).todense(), rtol=1e-9)
    two = sj.vmap(jacobian)(np.stack([x, 2 * x]))
    assert_allclose(two.todense()[0], wanted, rtol=1e-12)
    with pytest.raises(sj.ConcretizationTypeError, match="close over"):
        sj.jit(lambda a, x: sj.sparse_jacobian(lambda x: a @ x)(x))(a, x)


def test_plans_are_kept(rng):
    a, x = sparse(rng), rng.normal(size=N)
    jacobian = sj.sparse_jacobian(lambda x, a: a @ x)
    jacobian(x, a)
    before = module._planned.cache_info()
    jacobian(x * 2, a)
    after = module._planned.cache_info()
    assert after.hits == before.hits + 1 and after.misses == before.misses


def test_newton():
    """A discretised Bratu problem, solved by Newton's method with sparse Jacobians and direct solves."""
    n = 60

    def residual(u):
        line = snp.concatenate([np.zeros(1), u, np.zeros(1)])
        return (line[2:] - 2 * line[1:-1] + line[:-2]) * (n + 1) ** 2 + snp.exp(u)

    @sj.jit
    def step(u):
        return u - sj.scipy.sparse.linalg.spsolve(sj.sparse_jacobian(residual)(u), residual(u))

    u = np.zeros(n)
    for _ in range(5):
        u = step(u)
    assert np.abs(residual(u).todense()).max() < 1e-8
    assert sj.sparse_jacobian(residual)(u).nnz == 3 * n - 2


def test_errors(rng):
    a, x = sparse(rng), np.ones(N)
    with pytest.raises(TypeError, match="dense real array"):
        sj.sparse_jacobian(lambda a: a.sum())(a)
    with pytest.raises(TypeError, match="dense real array"):
        sj.sparse_jacobian(lambda x: x)(np.ones(3, int))
    with pytest.raises(TypeError, match="one array"):
        sj.sparse_jacobian(lambda x: (x, x))(x)
    with pytest.raises(ValueError, match="mode"):
        sj.sparse_jacobian(lambda x: x, mode="both")
    for function in (lambda x: a * x, lambda x: x * 1j):
        with pytest.raises(TypeError, match="dense real result"):
            sj.sparse_jacobian(function, mode="reverse")(x)
    with pytest.raises(TypeError, match="real or complex"):
        sj.sparse_jacobian(lambda x: x > 0)(x)
    with pytest.raises(TypeError, match="scalar-output"):
        sj.sparse_hessian(lambda x: x)(x)


def test_unknown_operations_depend_on_everything():
    """An operation without a rule: rows are full, in the columns that it reads."""
    A = sj.array(np.eye(N) * 2, format="csr")
    traced = Traced(
        lambda x: [sj.scipy.sparse.linalg.spsolve(A, snp.concatenate([x[:2], np.ones(N - 2)]))],
        [sj.array(np.ones(N)).aval],
    )
    _, rows = derivative_pattern(ClosedJaxpr(traced.closed.jaxpr, ()), traced.consts)
    assert_array_equal(rows.todense(), np.arange(N) < np.full((N, 1), 2))


def heat(a, x):
    return lax.fori_loop(0, 2, lambda i, x: x + 0.1 * (a @ snp.sin(x)), x)


def rows_one_by_one(a, x):
    return lax.map(lambda row: snp.sin(row.sum()) * row, x.reshape(3, 2)).reshape(N)


def running_sum(a, x):
    return lax.scan(lambda total, y: (total + y, total * y), 1.0, x)[1]


def reversed_sum(a, x):
    return lax.scan(lambda total, y: (total + y * y, total), x[0], x, reverse=True)[1]


def until(a, x):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, (a * s[1]).sum(axis=1) * x), (0, x))[1]


def branch(a, x):
    return lax.cond(x[0] > 0, lambda x: x * x, lambda x: a @ x, x)


def kept(a, x):
    return sj.checkpoint(lambda x: lax.fori_loop(0, 2, lambda i, p: p * x[i], a * x))(x).sum(axis=0)


LOOPS = [
    (heat, True),
    (rows_one_by_one, True),
    (running_sum, True),
    (reversed_sum, True),
    (until, False),
    (branch, False),
    (kept, False),
]


@pytest.mark.parametrize(("function", "tight"), LOOPS, ids=lambda p: getattr(p, "__name__", ""))
def test_loops(rng, function, tight):
    a, x = sparse(rng), rng.normal(size=N)
    mode = "forward" if function is until else "auto"
    with engine.quick():
        made = check(lambda x: function(a, x), x, tight=tight, mode=mode)
        assert tight or made.nnz < N * N or function is kept
        check(lambda x: function(a, x), -x, mode=mode)


def test_long_loops_depend_on_everything():
    made = sj.sparse_jacobian(lambda x: lax.fori_loop(0, 300, lambda i, x: x * 1.01, x), mode="forward")(np.ones(3))
    assert made.nnz == 9
    assert_allclose(made.todense(), np.eye(3) * 1.01**300)


def _arrow(x):
    return (x[0] ** 2 * snp.sin(x[1:])).sum() + (x**4).sum()


def _grid(x):
    u = x.reshape(6, 7)
    return ((u[1:] - u[:-1]) ** 4).sum() + ((u[:, 1:] * u[:, :-1]) ** 2).sum()


@pytest.mark.parametrize(("function", "most"), [(_arrow, 2), (_grid, 7)])
def test_symmetric_patterns_need_fewer_colours(function, most):
    x = np.random.default_rng(0).random(42)
    made, wanted = sj.sparse_hessian(function)(x), sj.hessian(function)(x).todense()
    np.testing.assert_allclose(made.todense(), wanted, rtol=1e-12, atol=1e-13)
    assert made.nnz == sj.sparse_jacobian(sj.grad(function))(x).nnz
    pattern = sp.csr_array(wanted != 0)
    star, partial = coloring.color_symmetric(pattern), coloring.color_columns(pattern)
    assert star.max() + 1 <= most
    assert star.max() <= partial.max()


@pytest.mark.parametrize("seed", range(8))
def test_star_colourings_tell_entries_apart(seed):
    rng = np.random.default_rng(seed)
    dense = rng.random((20, 20)) < rng.choice([0.05, 0.15, 0.4])
    pattern = sp.csr_array(dense | dense.T)
    own = coloring.alone(pattern, coloring.color_symmetric(pattern))
    entries = pattern.tocoo()
    direct = sp.csr_array((own, (entries.row, entries.col)), shape=pattern.shape).toarray()
    assert ((direct | direct.T) == pattern.toarray()).all()
    own = coloring.alone(pattern, np.zeros(20, np.int64))
    assert not own.all()


@pytest.mark.parametrize("function", [lambda x: (x[0] * x**2).sum(), lambda x: x[0] * (x @ x)])
def test_one_element_that_all_others_meet(function):
    """The cotangent of x[0] goes to one place, and reaches no other."""
    x = np.random.default_rng(0).random(9)
    made = sj.sparse_hessian(function)(x)
    assert_allclose(made.todense(), sj.hessian(function)(x).todense(), rtol=1e-12)
    assert made.nnz == 3 * 9 - 2
