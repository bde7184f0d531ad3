"""Functions over shards against the same functions on one machine, by NumPy: with the cuts that are cheapest and with any others."""

import itertools
import random

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import special

import sparsejax as sj
import sparsejax.numpy as snp

dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'sparsejax[dask]'")
pytest.importorskip("dask.array")

import sparsejax.dask as sd  # noqa: E402
from sparsejax.dask import cuts, emit, plan, prices, tasks  # noqa: E402
from sparsejax.jit.backend import compiler  # noqa: E402

rng = np.random.default_rng(0)
N = 90
S = sp.random_array((N, N), density=0.06, format="csr", rng=rng)
D = S.toarray()
A = sj.array(S)
X = rng.normal(size=(N, 12))
W = rng.normal(size=(12, 5))
x = rng.normal(size=N)
GRIDS = [{"rows": 4}, {"cols": 3}, {"rows": 2, "cols": 3}]


def gcn(A, X, W):
    return snp.maximum(A @ (X @ W), 0)


def loss(A, W, X):
    return ((A @ (X @ W)) ** 2).sum()


def softmax(M):
    made = np.zeros_like(M)
    for i in range(len(M)):
        there = M[i] != 0
        e = np.exp(M[i, there] - M[i, there].max(initial=-np.inf))
        made[i, there] = e / e.sum()
    return made


def gradients():
    Z = D @ (X @ W)
    return (D != 0) * (2 * Z @ (X @ W).T), X.T @ (D.T @ (2 * Z))


def pagerank(A, x):
    return sj.lax.fori_loop(0, 4, lambda k, x: 0.85 * (A @ x) + 0.15 / N, x)


def pagerank_of_numpy():
    y = x
    for _ in range(4):
        y = 0.85 * (D @ y) + 0.15 / N
    return y


def until(A, x):
    return sj.lax.while_loop(lambda c: c[1] < 3, lambda c: (A @ c[0], c[1] + 1), (x, 0))[0]


def kept(A, x):
    return sj.lax.cond(x.sum() > 0, lambda: A @ x, lambda: A @ (-x))


def rows_of(A, x):
    return sj.lax.scan(lambda c, r: (c + 1, r @ x), 0.0, A.asformat("dense"))


def min_plus():
    B = np.where(D != 0, D, np.inf)
    return np.min(B[:, :, None] + B[None], axis=1)


# name: (function, its arguments (A in shards), what NumPy gives)
PROGRAMS = {
    "matvec": (lambda A, x: A @ x, (A, x), lambda: [D @ x]),
    "transposed": (lambda A, x: A.T @ x, (A, x), lambda: [D.T @ x]),
    "spgemm": (lambda A: A @ A, (A,), lambda: [D @ D]),
    "gram": (lambda A: A.T @ A + A * 2, (A,), lambda: [D.T @ D + 2 * D]),
    "gcn": (gcn, (A, X, W), lambda: [np.maximum(D @ (X @ W), 0)]),
    "gradients": (sj.grad(loss, (0, 1)), (A, W, X), gradients),
    "sddmm": (lambda A, X: sj.einsum("ij,ik,jk->ij", A, X, X), (A, X), lambda: [D * (X @ X.T)]),
    "softmax": (lambda A: sj.nn.softmax(A, axis=1), (A,), lambda: [softmax(D)]),
    "argmax": (lambda A: A.argmax(axis=1), (A,), lambda: [D.argmax(1)]),
    "centred": (lambda A: A - A.mean(axis=0), (A,), lambda: [D - D.mean(0)]),
    "std": (lambda A: (A.std(axis=1), A.max(axis=0), A.min()), (A,), lambda: [D.std(1), D.max(0), D.min()]),
    "cumsum": (lambda A: snp.cumsum(A, axis=1), (A,), lambda: [D.cumsum(1)]),
    "sort": (lambda A: snp.sort(A, axis=0), (A,), lambda: [np.sort(D, 0)]),
    "pieces": (
        lambda A: snp.concatenate([A, A * 2], axis=1)[:, 5:130:3],
        (A,),
        lambda: [np.hstack([D, D * 2])[:, 5:130:3]],
    ),
    "rows by index": (lambda A: A[np.array([3, 80, 3])], (A,), lambda: [D[[3, 80, 3]]]),
    "reshape": (lambda A: A.reshape(N, 9, 10).sum(axis=2), (A,), lambda: [D.reshape(N, 9, 10).sum(2)]),
    "pagerank": (pagerank, (A, x), lambda: [pagerank_of_numpy()]),
    "while_loop": (until, (A, x), lambda: [D @ (D @ (D @ x))]),
    "cond": (kept, (A, x), lambda: [D @ x if x.sum() > 0 else D @ -x]),
    "scan": (rows_of, (A, x), lambda: [float(N), D @ x]),
    "vmap": (lambda A, X: sj.vmap(lambda v: A @ v, in_axes=1, out_axes=1)(X), (A, X), lambda: [D @ X]),
    "jvp": (lambda A, x: sj.jvp(lambda x: (A @ x) ** 2, (x,), (x,))[1], (A, x), lambda: [2 * (D @ x) * (D @ x)]),
    "tensors": (lambda A, X: {"a": [A @ X, A.sum()]}, (A, X), lambda: [D @ X, D.sum()]),
    "closed over": (lambda A: A @ x + np.arange(N), (A,), lambda: [D @ x + np.arange(N)]),
    "special": (lambda A: sj.lax.lgamma(A + 1.5), (A,), lambda: [special.gammaln(D + 1.5)]),
    "searchsorted": (
        lambda A, e: snp.searchsorted(e, A.asformat("dense")),
        (A, np.sort(x)),
        lambda: [np.searchsorted(np.sort(x), D)],
    ),
    "isin": (lambda A: snp.isin(A, A[:, 3].asformat("dense")), (A,), lambda: [np.isin(D, D[:, 3])]),
    "histogram": (
        lambda A: snp.histogram(A, np.linspace(-1, 1, 7))[0],
        (A,),
        lambda: [np.histogram(D, np.linspace(-1, 1, 7))[0]],
    ),
    "median": (lambda A: snp.median(A, axis=1), (A,), lambda: [np.median(D, axis=1)]),
    "top_k": (lambda A: sj.lax.top_k(A, 3)[0], (A,), lambda: [-np.sort(-D, axis=1)[:, :3]]),
    "solve": (lambda A, X: snp.linalg.solve(X.T @ X, (A @ X).T), (A, X), lambda: [np.linalg.solve(X.T @ X, (D @ X).T)]),
    "prune": (lambda A: snp.abs(sj.prune(A, tol=0.5)), (A,), lambda: [np.abs(D * (abs(D) > 0.5))]),
    "dense prune": (lambda A: sj.prune(A.asformat("dense"), tol=0.5), (A,), lambda: [D * (abs(D) > 0.5)]),
    "nothing cut": (lambda A, X: (X * 2, 3.0), (A, X), lambda: [X * 2, 3.0]),
}


def run(name, grid, **how):
    function, (first, *rest), expected = PROGRAMS[name]
    made = sd.jit(function)(sd.shard(first, **grid), *rest)
    leaves = sj.tree_util.tree_leaves(made)
    found = dask.compute(*leaves, scheduler="sync", **how)
    for one, two in zip(found, expected(), strict=True):
        np.testing.assert_allclose(one.todense(), two, rtol=1e-9, atol=1e-11)
    return found


@pytest.mark.rotating(3)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_cheapest(name, grid):
    run(name, grid)


@pytest.fixture
def any_choice(monkeypatch):
    """Cuts are drawn, those that cut something first."""

    def use(seed):
        draws = random.Random(seed)
        monkeypatch.setattr(emit, "_plans", {})

        def pick(choices):
            cut = [c for c in choices if c.split]
            return draws.choice(cut) if cut and draws.random() < 0.85 else draws.choice(choices)

        monkeypatch.setattr(plan.Plan, "pick", staticmethod(pick))

    return use


@pytest.mark.rotating(8)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", PROGRAMS)
def test_any_cuts(name, seed, any_choice, in_rounds):
    any_choice(seed)
    run(name, GRIDS[seed % 3])


@pytest.mark.parametrize("name", ["min_plus", "or_and"])
def test_semirings(name, any_choice):
    any_choice(1)
    B = A if name == "min_plus" else A != 0
    made = sd.jit(lambda A: sj.einsum("ij,jk->ik", A, A, semiring=name))(sd.shard(B, rows=2, cols=2))
    expected = sj.einsum("ij,jk->ik", B, B, semiring=name).todense()
    np.testing.assert_array_equal(made.compute(scheduler="sync").todense(), expected)
    if name == "min_plus":
        np.testing.assert_allclose(expected, min_plus())


def test_formats_and_types_are_those_of_one_machine():
    for function, (first, *rest), _ in PROGRAMS.values():
        one = sj.tree_util.tree_leaves(sj.jit(function)(first, *rest))
        two = sj.tree_util.tree_leaves(sd.jit(function)(sd.shard(first, rows=3), *rest))
        for a, b in zip(one, two, strict=True):
            made = b.compute(scheduler="sync")
            assert (made.shape, made.dtype, made.format) == (a.shape, a.dtype, a.format)
            assert b.format == a.format


# ------------------------------------------------------------------------------------------------------------ shards


def power_law(n, mean, seed=0):
    draws = np.random.default_rng(seed)
    weights = (np.arange(n) + 10.0) ** -0.8
    weights /= weights.sum()
    rows, columns = draws.choice(n, n * mean, p=weights), draws.choice(n, n * mean, p=weights)
    return sp.coo_array((np.ones(n * mean), (rows, columns)), shape=(n, n)).tocsr()


@pytest.mark.parametrize("grid", [{"rows": 2}, {"rows": 16}, {"cols": 8}, {"rows": 4, "cols": 4}], ids=str)
def test_balance_of_power_laws(grid):
    graph = sd.shard(power_law(20_000, 20), **grid)
    assert graph.balance < 1.1
    even = sd.shard(power_law(20_000, 20), **{k: cuts.even(20_000, v) for k, v in grid.items()})
    assert even.balance > 1.3


def best_of_all(weights, parts):
    """The lightest heaviest part, by trying every cut."""
    if parts == 1 or len(weights) <= 1:
        return sum(weights)
    return min(max(sum(weights[:k]), best_of_all(weights[k:], parts - 1)) for k in range(1, len(weights)))


@pytest.mark.parametrize("seed", range(30))
def test_balanced_is_best(seed):
    draws = np.random.default_rng(seed)
    weights = draws.integers(0, 9, draws.integers(1, 9))
    parts = int(draws.integers(1, 5))
    cut = cuts.balanced(weights, parts)
    assert cut[0] == 0 and cut[-1] == len(weights)
    assert all(b > a for a, b in itertools.pairwise(cut))
    if weights.sum():
        heaviest = max(weights[a:b].sum() for a, b in itertools.pairwise(cut))
        assert heaviest == min(best_of_all(list(weights), p) for p in range(1, min(parts, len(weights)) + 1))


def test_shards_hold_the_array():
    for grid in GRIDS:
        made = sd.shard(A, **grid)
        back = made.compute(scheduler="sync")
        assert back.format == A.format and int(made.counts.sum()) == A.nnz
        np.testing.assert_array_equal(back.todense(), D)
        np.testing.assert_array_equal(made.to_dask_array().compute(scheduler="sync").todense(), D)


def test_errors_of_shard():
    with pytest.raises(ValueError, match="second dimension"):
        sd.shard(x, cols=2)
    with pytest.raises(ValueError, match="must ascend"):
        sd.shard(A, rows=(0, 50, 40, N))
    with pytest.raises(ValueError, match="one part or more"):
        sd.shard(A, rows=0)
    with pytest.raises(ValueError, match="axes="):
        sd.shard(A, axes=(2,))


@pytest.mark.parametrize("asked", [2.5, True, "2", [0, 1.5, N]])
def test_parts_that_are_none(asked):
    with pytest.raises(TypeError, match=r"axis 0 is cut into .*; give a number of parts, boundaries"):
        sd.shard(A, rows=asked)


def test_parts_of_numpy():
    assert sd.shard(A, rows=np.int64(3)).cuts == sd.shard(A, rows=3).cuts
    assert sd.shard(A, rows=np.array([0, 40, N])).cuts[0] == (0, 40, N)


ODD = {
    "more shards than rows": (A[:5], {"rows": 9}),
    "one row": (A[:1], {"rows": 3}),
    "no rows": (A[:0], {"rows": 3}),
    "no columns": (A[:, :0], {"rows": 3, "cols": 2}),
    "no entries": (A * 0 @ A * 0, {"rows": 3}),
    "empty shards": (sj.array(sp.csr_array(([1.0], ([0], [2])), shape=(N, 7))), {"rows": (0, 1, 50, N)}),
    "one heavy row": (sj.array(sp.csr_array((np.ones(N), (np.full(N, 3), np.arange(N))), shape=(N, N))), {"rows": 4}),
    "single precision": (A.astype("f4"), {"rows": 2, "cols": 2}),
    "integers": ((A * 10).astype("i4"), {"rows": 4}),
    "complex": (A * (1 + 2j), {"cols": 3}),
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", ODD)
def test_odd_arrays(name):
    one, grid = ODD[name]
    function = lambda A, x: (A @ x, A.T @ A, A.sum(axis=0), snp.maximum(abs(A), 1).sum())  # noqa: E731
    v = np.arange(one.shape[1], dtype="f8")  # of another type than some
    found = dask.compute(*sd.jit(function)(sd.shard(one, **grid), v), scheduler="sync")
    for a, b in zip(found, function(one, v), strict=True):
        assert (a.shape, a.dtype, a.format) == (b.shape, b.dtype, b.format)
        np.testing.assert_allclose(a.todense(), b.todense(), rtol=1e-5 if a.dtype.char in "fF" else 1e-12)


def test_used_like_an_array():
    graph = sd.shard(A, rows=2)
    for use in (
        lambda: graph + 1,
        lambda: x @ graph,
        lambda: np.sin(graph),
        lambda: np.asarray(graph),
        lambda: bool(graph),
        lambda: graph[0],
        lambda: sd.jit(lambda x: graph @ x)(x),  # closed over
        lambda: sd.jit(lambda A, x: A @ x, static_argnums=0)(graph, x),
        lambda: sj.grad(lambda x: (graph @ x).sum())(x),
    ):
        with pytest.raises(TypeError, match=r"no operators: pass it to a function of sparsejax.dask.jit|operand type"):
            use()
    for used in (lambda: graph.sum(), lambda: graph.T):
        with pytest.raises(AttributeError, match=r"pass it to a function of sparsejax.dask.jit"):
            used()
    assert not hasattr(graph, "other") and not hasattr(graph, "_other")
    for traced in (sj.jit(lambda x: sd.shard(x, rows=2)), sj.grad(lambda x: (sd.shard(S, rows=2), x.sum())[1])):
        with pytest.raises(TypeError, match="shard is called while a function is traced"):
            traced(x)
    for outer in (sj.grad(sd.jit(lambda x, A: (A @ x).sum())), sj.vmap(sd.jit(lambda x, A: A @ x), in_axes=(0, None))):
        with pytest.raises(TypeError, match=r"put sparsejax.dask.jit outside|must be an array"):
            outer(x, graph)


def test_static_arguments():
    scaled = sd.jit(lambda A, k, power=1: A * k**power, static_argnums=1, static_argnames="power")
    np.testing.assert_allclose(scaled(sd.shard(A, rows=2), 3, power=2).compute(scheduler="sync").todense(), D * 9)


def test_arrays_of_dask():
    da = pytest.importorskip("dask.array")
    lazy = da.from_array(A, chunks=(40, 50))
    made = sd.shard(lazy)
    assert made.grid == (3, 2) and made.format == A.format
    found = sd.jit(lambda A, X, x: A @ X * x[:, None])(made, da.from_array(X, chunks=(30, 5)), x)
    np.testing.assert_allclose(found.compute(scheduler="sync").todense(), D @ X * x[:, None])
    with pytest.raises(ValueError, match="rechunk"):
        sd.shard(lazy, rows=3)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        sd.shard(lazy[da.from_array(x > 0, chunks=40)])
    with pytest.raises(TypeError, match="in shards already"):
        sd.shard(made)


# ----------------------------------------------------------------------------------------------------------- explain


def test_explain():
    text = sd.explain(gcn)(sd.shard(A, rows=4), X, W)
    assert "contract" in text and "test_sharded.py" in text and "moved at most" in text


@pytest.mark.parametrize(
    ("split", "scheme"),
    [("i", "1-D"), ("j", "1-D"), ("ij", "2-D"), ("ik", "1.5-D"), ("jk", "1.5-D"), ("ijk", "3-D"), ("k", "1-D, summed")],
)
def test_schemes_of_products(split, scheme, monkeypatch):
    """Every way to cut a product of sparse matrices gives the same, and `explain` names it. Variables are those of the rule: i, j of the result, k."""
    wanted = {"ijk".index(v) for v in split}
    monkeypatch.setattr(emit, "_plans", {})
    pick = lambda choices: next((c for c in choices if set(c.split) == wanted), choices[0])  # noqa: E731
    monkeypatch.setattr(plan.Plan, "pick", staticmethod(pick))
    graph = sd.shard(A, rows=(0, 30, 60, N), cols=(0, 30, 60, N))
    product = sd.jit(lambda A: sj.einsum("ik,kj->ij", A, A))
    np.testing.assert_allclose(product(graph).compute(scheduler="sync").todense(), D @ D)
    assert f", {scheme}]" in product.explain(graph)


@pytest.mark.parametrize(
    ("function", "given", "price"),
    [
        (lambda A, x: A @ x, (A, x), prices.VISIT),
        (lambda A, X: A @ X, (A, X), prices.LANE),
        (lambda A, B: A @ B, (A, A), prices.PRODUCT),
        (lambda X, W: X @ W, (X, W), 2 * prices.MULTIPLY),
        (lambda A, x: A * 2.0, (A, x), 1.0),
        (lambda A, x: A.sum(axis=1), (A, x), 1.0),
    ],
)
def test_prices_of_operations(function, given, price):
    """By the kind of an operation, however it is cut."""
    emitter, *_ = sd.jit(function)._emit((sd.shard(given[0], rows=3), given[1]), {})
    (choice,) = [c for p in emitter.plans for s in p.order for c in s.choices]
    assert choice.spent == pytest.approx(choice.work * price) and choice.work > 0


def test_names_are_what_is_computed():
    one, two = (sd.jit(lambda A, x: A @ x)(sd.shard(A, rows=4), x) for _ in range(2))
    assert one.name == two.name
    assert one.name != sd.jit(lambda A, x: A @ x)(sd.shard(A, rows=4), x + 1).name
    assert one.name != sd.jit(lambda A, x: A @ x)(sd.shard(A, rows=3), x).name


def test_equal_programs_are_read_once():
    """Wherever their lines are, stages that compute the same have one text, which a process reads once; errors name the lines of each."""
    A = sd.shard(np.ones((6, 4)), rows=2)

    def here(A):
        return (A * 2).sum(axis=1)

    def there(A):
        return (A * 2).sum(axis=1)

    first, second = (sd.jit(f)(A) for f in (here, there))
    texts = [
        {node.args[0] for node in x._graph.values() if getattr(node, "func", None) is tasks.run}
        for x in (first, second)
    ]
    assert texts[0] == texts[1] and len(texts[0]) == 1
    assert "test_sharded" not in texts[0].pop()
    first.compute(scheduler="sync")
    before = tasks._program.cache_info().misses
    np.testing.assert_array_equal(second.compute(scheduler="sync").todense(), np.full(6, 8.0))
    assert tasks._program.cache_info().misses == before


def test_a_program_serves_blocks_of_all_shapes():
    """Whatever the number of shards, whose blocks all differ in their rows: a text is read once for each number of entries per row (a power of four),
    traced once, and its kernels are compiled once."""
    B = sj.array(sp.random_array((1200, 1200), density=0.008, format="csr", rng=rng))
    Y = rng.normal(size=(1200, 3))

    def epoch(A, Y):
        return sj.value_and_grad(lambda Y: (snp.maximum(A @ Y, 0) ** 2).sum())(Y)

    def run(shards):
        shape = sd.shard(B, rows=shards)
        assert len(set(np.diff(shape.cuts[0]))) > 1
        read, compiled = tasks._program.cache_info().misses, compiler.compile_count()
        found = dask.compute(*sd.jit(epoch)(shape, Y), sd.jit(lambda A: A @ A)(shape), scheduler="sync")
        return found, tasks._program.cache_info().misses - read, compiler.compile_count() - compiled

    (loss, slope, product), programs, _ = run(10)
    H = np.maximum(B.to_scipy() @ Y, 0)
    np.testing.assert_allclose(loss.todense(), (H**2).sum(), rtol=1e-10)
    np.testing.assert_allclose(slope.todense(), B.to_scipy().T @ (2 * H), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(product.todense(), (B.to_scipy() @ B.to_scipy()).toarray(), rtol=1e-10)
    assert programs <= 4
    for shards in (13, 19):
        _, programs, compiled = run(shards)
        assert programs <= 2 and compiled == 0


def test_large_work_is_cut():
    """With enough to do, tasks are as many as shards, and equations of one cut share them."""
    big = sj.array(sp.random_array((20_000, 20_000), density=1e-3, format="csr", rng=rng))
    made = sd.jit(lambda A, X: snp.maximum(A @ X, 0) * 2)(sd.shard(big, rows=4), np.ones((20_000, 16)))
    assert made.grid == (4, 1)
    assert len(made.__dask_graph__()) == 4 + 1 + 4


def test_equations_on_given_values_share_a_task(in_rounds):
    """A round of PageRank is a task per shard, as `0.15 * x` runs beside the product that it is added to."""
    big = sd.shard(sj.array(sp.random_array((20_000, 20_000), density=1e-3, format="csr", rng=rng)), rows=4)
    start = np.ones(20_000)

    def rounds(A, x):
        return sj.lax.fori_loop(0, 3, lambda k, y: 0.85 * (A @ y) + 0.15 * x, x)

    def between(A, x):
        """The product of the second stage reads all of the first, and neither waits for more than it reads."""
        y = A @ x
        return (A @ y) + y * x

    def stages(function):
        return [p.count("stage") for p in sd.explain(function)(big, start).split("plan")[1:]]

    assert stages(rounds) == [1, 1]
    assert stages(between) == [2]
    whole = big.compute(scheduler="sync")
    for function in (rounds, between):
        found = sd.jit(function)(big, start).compute(scheduler="sync").todense()
        np.testing.assert_allclose(found, function(whole.to_scipy(), start) if function is between else _rounds(whole))


def _rounds(A):
    x = y = np.ones(A.shape[1])
    for _ in range(3):
        y = 0.85 * (A.to_scipy() @ y) + 0.15 * x
    return y


def test_many_shards():
    """Operands of many blocks are put together once."""
    made = sd.jit(pagerank)(sd.shard(A, rows=40), x)
    np.testing.assert_allclose(made.compute(scheduler="sync").todense(), pagerank_of_numpy())
    monkey = sd.jit(lambda A: A @ A)(sd.shard(A, rows=(*range(0, N, 2), N)))
    np.testing.assert_allclose(monkey.compute(scheduler="sync").todense(), D @ D)
