"""cond, switch, while_loop, fori_loop, scan and map: results, types, errors, and how they run."""

import pickle

import cloudpickle
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import csgraph

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from sparsejax.jit.backend import compiler
from sparsejax.lax import rounds

pytestmark = pytest.mark.rotating(20)

RNG = np.random.default_rng(0)
N = 12
DENSE = RNG.random((N, N)) * (RNG.random((N, N)) < 0.2)
FORMATS = ["csr", "csc", "coo", "dcsr", "ell", "groupcoo:2", "dia", "bitmap", "hash", "bsr:2x3", "dense", "(d,c)@(1,0)"]
X = RNG.random(N)


def matrix(form="csr"):
    return sj.array(DENSE, format=form, copy=True)


# ------------------------------------------------------------------------------------------------ carries


@pytest.mark.parametrize("form", FORMATS)
def test_negated_values_keep_the_fill_of_the_carry(form):
    """What is not stored is -0.0 once it is negated, an equal number: branches and rounds may differ in it."""
    a = matrix(form)
    calls = [
        lambda a, n: lax.fori_loop(0, n, lambda i, c: -c, a),
        lambda a, n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, -c[1]), (0, a))[1],
        lambda a, n: lax.scan(lambda c, x: (c * x, x), a, -np.ones(n))[0],
        lambda a, n: lax.cond(n == 3, lambda x: -x, lambda x: x, a),
        lambda a, n: lax.cond(n == 3, lambda x: x * -1.0, lambda x: x.asformat("dense"), a),
        lambda a, n: lax.switch(n - 2, [lambda x: x, lambda x: -x], a),
    ]
    for call in calls:
        for n in (2, 3):
            want = DENSE if n == 2 else -DENSE
            for made in (call(a, n), sj.jit(call, static_argnums=1)(a, n)):
                np.testing.assert_array_equal(made.todense(), want)
                np.testing.assert_array_equal((made + 1).todense(), want + 1)
        if call is calls[1]:  # has no derivative in reverse
            continue
        slope = sj.grad(lambda a, call=call: (call(a, 3) * X).sum())(a)
        np.testing.assert_array_equal(slope.todense()[DENSE != 0], np.broadcast_to(-X, (N, N))[DENSE != 0])
    batch = sj.vmap(lambda k: lax.cond(k > 0, lambda x: -x, lambda x: x, a))(np.array([1, 0]))
    np.testing.assert_array_equal(batch.todense(), [-DENSE, DENSE])


@pytest.mark.parametrize("form", FORMATS)
def test_powers_grow_in_the_format_of_the_carry(form):
    a = matrix(form)
    power = sj.jit(lambda a, n: lax.fori_loop(0, n, lambda i, p: p @ a, a))
    for n in (0, 1, 3):
        made = power(a, n)
        assert made.format == a.format
        np.testing.assert_allclose(made.todense(), np.linalg.matrix_power(DENSE, n + 1), rtol=1e-12, atol=1e-12)
    assert form == "dense" or power(a, 3).nnz > a.nnz


def test_breadth_first_search_over_sparse_frontiers():
    a = sj.array(sp.csr_array(DENSE))

    def search(a, source):
        frontier = (snp.asarray(np.arange(N)) == source).asformat("coo")
        levels = snp.where(frontier.asformat("dense"), 0, -1)

        def step(state):
            frontier, levels, depth = state
            new = sj.einsum("i,ij->j", frontier, a, semiring="or_and", mask=levels >= 0, complement=True)
            return new, snp.where(new.asformat("dense"), depth + 1, levels), depth + 1

        return lax.while_loop(lambda state: lax.structural.entries(state[0]) > 0, step, (frontier, levels, 0))

    found, levels, _ = sj.jit(search)(a, 3)
    want = csgraph.shortest_path(sp.csr_array(DENSE), unweighted=True, indices=3)
    np.testing.assert_array_equal(levels, np.where(np.isinf(want), -1, want))
    assert str(found.format) == "coo" and found.nnz == 0


def test_connected_components():
    graph = sp.csr_array(DENSE * (DENSE > 0.6))

    def spread(label):
        label = snp.minimum(label, sj.einsum("ij,j->i", a, label, semiring="min_second"))
        return snp.minimum(label, sj.einsum("ji,j->i", a, label, semiring="min_second"))

    a = sj.array(graph)
    state = (np.arange(float(N)), np.full(N, -1.0))
    label, _ = lax.while_loop(lambda s: snp.any(s[0] != s[1]), lambda s: (spread(s[0]), s[0]), state)
    count, want = csgraph.connected_components(graph, directed=False)
    label = np.asarray(label)
    assert len(np.unique(label)) == count
    assert all(len(np.unique(label[want == k])) == 1 for k in range(count))


def test_power_iteration_runs_until_it_converges():
    a = sp.csr_array(DENSE + DENSE.T + np.eye(N))

    def step(state):
        x, _ = state
        y = a @ x
        y = y / snp.sqrt(snp.sum(y * y))
        return y, snp.max(abs(y - x))

    x, _ = sj.jit(lambda x: lax.while_loop(lambda s: s[1] > 1e-13, step, (x, np.inf)))(X)
    value = np.asarray(x) @ (a @ np.asarray(x))
    np.testing.assert_allclose(value, np.linalg.eigvalsh(a.toarray())[-1], rtol=1e-12)


def test_pytrees_and_closures_over_traced_values_and_arrays():
    array = sj.array(X)

    @sj.jit
    def f(state, scale):
        def step(state, x):
            total = state["a"] + x["p"] * scale + array
            return {"a": total, "b": (state["b"][0] + 1,)}, [total.sum(), None]

        return lax.scan(step, state, {"p": state["a"] * np.ones((5, 1))})

    state, (sums, none) = f({"a": X, "b": (0,)}, 2.0)
    assert none is None and state["b"][0].item() == 5
    np.testing.assert_allclose(state["a"], X * 16)
    np.testing.assert_allclose(sums, [(X * k).sum() for k in (4, 7, 10, 13, 16)])


def test_python_numbers_are_weak():
    x = np.ones(3, np.float32)
    assert lax.fori_loop(0, 3, lambda i, x: x * i + 1.5, x).dtype == np.float32
    assert lax.fori_loop(0, 3, lambda i, t: t + 0.5, 0).item() == 1.5
    assert lax.while_loop(lambda t: t < 3, lambda t: t + np.float32(0.5), 0).dtype == np.float32
    assert lax.scan(lambda t, _: (0, t), np.float32(3), None, length=2)[0].dtype == np.float32
    assert lax.cond(True, lambda: 1, lambda: 2.5).dtype == np.float64


def test_bounds_of_fori_loop():
    total = sj.jit(lambda lower, upper: lax.fori_loop(lower, upper, lambda i, t: t + i, 0))
    for lower, upper in ((0, 5), (-3, 4), (4, 2), (7, 7), (np.int8(-100), 200)):
        want = sum(range(int(lower), upper))
        assert lax.fori_loop(lower, upper, lambda i, t: t + i, 0).item() == want
        assert total(lower, upper).item() == want
    assert [
        e.primitive.name for e in sj.make_jaxpr(lambda: lax.fori_loop(0, 3, lambda i, t: t + i, 0))().jaxpr.eqns
    ] == ["scan"]


# --------------------------------------------------------------------------------------------- slices and stacks


@pytest.mark.parametrize("form", FORMATS)
def test_slices_and_stacks_of_sparse_arrays(form):
    a = matrix(form)
    rows = []

    def step(total, row):
        rows.append(row)
        return total + row.sum(), row * 2

    total, doubled = lax.scan(step, 0.0, a)
    np.testing.assert_allclose(total.item(), DENSE.sum())
    np.testing.assert_allclose(doubled.todense(), DENSE * 2)
    assert (form == "dense") == rows[0].format.is_dense == doubled.format.is_dense
    if form in ("csr", "csc", "coo", "dcsr", "hash"):
        assert doubled.nnz == a.nnz


@pytest.mark.parametrize("fill", [0.0, 2.0])
def test_stacks_of_matrices_keep_fill_and_order(fill):
    a = lax.refill(matrix("csc"), fill)
    _, stack = lax.scan(lambda c, _: (c, c), a, None, length=3)
    assert str(stack.format) == "(d,d,c)@(0,2,1)" and stack.fill_value == fill and stack.nnz == 3 * a.nnz
    np.testing.assert_allclose(stack.todense(), [a.todense()] * 3)


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_no_rounds(form):
    a = sj.array(np.zeros((0, 4)), format=form)
    carry, ys = lax.scan(lambda c, x: (c + x.sum(), x), 1.5, a)
    assert carry.item() == 1.5 and ys.shape == (0, 4) and ys.dtype == np.float64
    assert lax.fori_loop(3, 3, lambda i, x: x * 0, X).shape == (N,)


def test_reverse():
    carry, ys = lax.scan(lambda c, x: (c * 2 + x, c), 0.0, np.arange(4.0), reverse=True)
    want, c = [], 0.0
    for x in (3.0, 2.0, 1.0, 0.0):
        want.append(c)
        c = c * 2 + x
    assert carry.item() == c and np.asarray(ys).tolist() == want[::-1]


# ------------------------------------------------------------------------------------------------------ how they run


def count_traces(loop, *args):
    calls = []

    def body(*values):
        calls.append(1)
        return values[-1] * 1.0001

    loop(body, *args)
    return len(calls)


def test_bodies_are_traced_and_compiled_once():
    assert count_traces(lambda f, x: lax.fori_loop(0, 100, f, x), X) == 1
    assert count_traces(lambda f, x: sj.jit(lambda x: lax.fori_loop(0, 100, f, x))(x), X) == 1
    f = sj.jit(lambda a, x, n: lax.fori_loop(0, n, lambda i, x: snp.sin(a @ x) * 1.375, x))
    f(matrix(), X, 3)
    before = compiler.compile_count()
    f(matrix(), X, 300)
    assert compiler.compile_count() == before and len(f._cache) == 1


def test_loops_outside_jit_are_planned_once_and_see_new_closures():
    for scale in (2.0, 3.0):
        made = lax.fori_loop(0, 2, lambda i, x, scale=scale: x * scale + 0.15625, X)
        np.testing.assert_allclose(made, (X * scale + 0.15625) * scale + 0.15625)
    held = sj.array(X)
    for factor in (2.0, 3.0):
        weights = sj.array(X * factor)
        before = compiler.compile_count() if factor == 3.0 else None
        np.testing.assert_allclose(
            lax.fori_loop(0, 2, lambda i, x, weights=weights: x * weights, held), X * (X * factor) ** 2
        )
        assert before is None or compiler.compile_count() == before


@pytest.fixture(params=rounds.WAYS)
def mode(request, tables):
    """Both ways to run a loop, and the tables that are made."""
    with sj.config.using(choose=f"rounds={request.param}"):
        yield request.param, tables


@pytest.mark.parametrize("length", [31, 32])
def test_rounds_as_a_whole(mode, length):
    """Carries that accumulate, swap, stay, count and come from constants; stacked and scanned values."""
    name, made = mode
    a, consts = matrix(), sj.array(X)

    def step(state, x):
        u, v, w, k, _ = state
        new = a @ u * 0.5 + x
        return (v, new, w, k + 1, consts), (new.sum(), new, u)

    xs = RNG.random((length, N))
    run = sj.jit(lambda xs, u, v, w: lax.scan(step, (u, v, w, 0, u), xs))
    (u, v, w, k, c), ys = run(xs, X, X + 1, X + 2)
    want, state = [], (X, X + 1, X + 2, 0, X)
    for x in xs:
        new = DENSE @ state[0] * 0.5 + x
        want.append((new.sum(), new, state[0]))
        state = (state[1], new, state[2], state[3] + 1, X)
    for mine, theirs in zip((u, v, w, k, c), state, strict=True):
        np.testing.assert_allclose(mine, theirs)
    for mine, theirs in zip(ys, zip(*want, strict=True), strict=True):
        np.testing.assert_allclose(mine, theirs)
    assert [m is not None for m in made] == [True] * (name == "table")
    again, _ = run(xs, X, X + 1, X + 2)
    np.testing.assert_array_equal(again[1], v)
    np.testing.assert_allclose(v, state[1])


@pytest.mark.parametrize("count", [0, 1, 8, 9, 30, 31])
def test_while_as_a_whole(mode, count):
    name, made = mode
    a, mask = matrix(), X > 0.5

    def step(state):
        i, x, y = state
        return i + 1, sj.einsum("ij,j->i", a, y, mask=mask), x + 1

    _, x, y = sj.jit(lambda n, x, y: lax.while_loop(lambda s: s[0] < n, step, (0, x, y)))(count, X, X * 2)
    u, v = X, X * 2
    for _ in range(count):
        u, v = np.where(mask, DENSE @ v, 0), u + 1
    np.testing.assert_allclose(x, u)
    np.testing.assert_allclose(y, v)
    assert [m is not None for m in made] == [True] * (name == "table" and count > 8)


def test_slices_that_are_passed_on_are_not_overwritten():
    xs = RNG.random((40, 3))
    carry, ys = lax.scan(lambda c, x: (x, x), np.zeros(3), xs)
    np.testing.assert_array_equal(carry, xs[-1])
    np.testing.assert_array_equal(ys, xs)


def test_operands_are_not_changed():
    x = sj.array(X, copy=True)
    lax.fori_loop(0, 50, lambda i, x: x * 1.5, x)
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("size", [1, 3, 7, 10])
def test_maps_in_blocks(size):
    """Blocks that fit and that leave a rest; dense, sparse and integer results, and derivatives."""
    rng = np.random.default_rng(0)
    A, B = sj.array(rng.random((7, 6)) * (rng.random((7, 6)) < 0.4), format="csr"), rng.random((6, 5))
    f = lambda row: (lax.top_k(row @ B, 2), row * 2, row.sum())  # noqa: E731
    for made, want in zip(
        sj.tree_util.tree_leaves(sj.jit(lambda A: lax.map(f, A, batch_size=size))(A)),
        sj.tree_util.tree_leaves(lax.map(f, A)),
        strict=True,
    ):
        np.testing.assert_allclose(made.todense(), want.todense(), rtol=1e-14)
        assert made.aval == want.aval

    def loss(A, size):
        return (lax.map(lambda row: snp.sin(row @ B).sum(), A, batch_size=size) ** 2).sum()

    grads = [sj.grad(loss)(A, s) for s in (size, None)]
    assert grads[0].format == A.format
    np.testing.assert_allclose(grads[0].todense(), grads[1].todense(), rtol=1e-12)
    assert lax.map(lambda x: x * 2, np.zeros((0, 3)), batch_size=size).shape == (0, 3)


def test_maps_in_blocks_store_a_block():
    """Of the product no more than a block is stored."""
    A, B = sj.array(np.eye(4096, 64), format="csr"), np.ones((64, 4096))
    program = sj.jit(lambda A: lax.map(lambda row: lax.top_k(row @ B, 1)[0], A, batch_size=64))
    assert program.lower(A).compile().memory_analysis().temp_size_in_bytes < 8 * 4096 * 64 * 4


@pytest.mark.parametrize(
    ("xs", "size", "error"),
    [
        (np.ones(3), 0, "positive"),
        (np.ones(3), 1.5, "integer"),
        (3.0, 2, "first axis"),
        ((np.ones(2), np.ones(3)), 2, "first axis"),
    ],
)
def test_errors_of_maps_in_blocks(xs, size, error):
    with pytest.raises((TypeError, ValueError), match=error):
        lax.map(lambda x: x, xs, batch_size=size)


def test_nested_loops_and_branches():
    a = matrix()

    @sj.jit
    def f(x, n):
        def outer(i, x):
            x = lax.fori_loop(0, i, lambda j, x: a @ x + j, x)
            return lax.cond(
                i % 2 == 0, lambda x: x * 2, lambda x: lax.while_loop(lambda x: x[0] < 5, lambda x: x + 1, x), x
            )

        return lax.fori_loop(0, n, outer, x)

    want = X
    for i in range(4):
        for j in range(i):
            want = DENSE @ want + j
        if i % 2 == 0:
            want = want * 2
        else:
            while want[0] < 5:
                want = want + 1
    np.testing.assert_allclose(f(X, 4), want)


@pytest.mark.parametrize("k", [-2, 0, 1, 2, 9])
def test_switch_takes_the_nearest_branch(k):
    branches = [lambda a: a, lambda a: (a @ a).asformat("coo"), lambda a: a * 3]
    made = sj.jit(lambda k, a: lax.switch(k, branches, a))(k, matrix())
    want = [DENSE, DENSE @ DENSE, DENSE * 3][min(max(k, 0), 2)]
    np.testing.assert_allclose(made.todense(), want)
    assert str(made.format) == "csr"


@pytest.mark.parametrize("pred", [True, False, 0, 2.5, np.bool_(False), np.int32(7)])
def test_predicates(pred):
    assert lax.cond(pred, lambda x: x + 1, lambda x: x - 1, 1.0).item() == (2.0 if pred else 0.0)
    assert sj.jit(lambda p: lax.cond(p, lambda: 1, lambda: 0))(pred).item() == bool(pred)


def test_reports():
    a = matrix()
    f = sj.jit(lambda a, x, n: lax.fori_loop(0, n, lambda i, x: lax.cond(i > 0, lambda x: a @ x, lambda x: x, x), x))
    text = str(sj.make_jaxpr(f)(a, X, 3))
    assert "while" in text and "cond" in text and "contract[ij,j->i]" in text
    lowered = f.lower(a, X, 3)
    for stage in ("jaxpr", "plan", "cin", "loops", "llvm"):
        assert "while" in lowered.as_text(stage)
    assert 2 * 2 * a.nnz <= lowered.cost_analysis()["flops"] <= 2 * 2 * a.nnz + 30
    assert lowered.compile().memory_analysis().peak_memory_in_bytes > 0
    told = sj.explain(f)(a, X, 3)
    assert len(told.kernels) > 2 and "3 runs" in str(told) and "control flow cond" in str(told)


def test_reports_of_long_loops():
    """Loops that are bound to their buffers are only listened to here."""
    f = sj.jit(lambda x: lax.while_loop(lambda s: s[1] < 50, lambda s: (s[0] * 1.01, s[1] + 1), (x, 0)))
    assert "while" in f.lower(X).as_text("plan")
    g = sj.jit(lambda x: lax.scan(lambda c, y: (c + y, c * y), 0.0, x)[1])
    assert "scan" in g.lower(np.arange(50.0)).as_text("plan")


def test_jitted_functions_with_loops_are_pickled():
    f = sj.jit(lambda a, x: lax.fori_loop(0, 3, lambda i, x: a @ x, x))
    f(matrix(), X)
    np.testing.assert_array_equal(pickle.loads(cloudpickle.dumps(f))(matrix(), X), f(matrix(), X))


# ------------------------------------------------------------------------------------------------------------ errors

S = matrix()
ERRORS = [
    (
        lambda: lax.fori_loop(0, 2, lambda i, s: {"a": s["a"], "b": s["a"]}, {"a": X, "b": 0.0}),
        TypeError,
        r"leaf \['b'\].*shape \(12,\)",
    ),
    (
        lambda: lax.fori_loop(0, 2, lambda i, s: s + 0.5, np.arange(3)),
        TypeError,
        "dtype float64 instead of int64.*astype",
    ),
    (lambda: lax.fori_loop(0, 2, lambda i, s: snp.exp(s), S), TypeError, "fill 1.0 instead of 0.0.*refill"),
    (lambda: lax.fori_loop(0, 2, lambda i, s: (s, s), X), TypeError, "same pytree structure"),
    (lambda: lax.fori_loop(0.0, 2, lambda i, s: s, X), TypeError, "lower of fori_loop"),
    (lambda: lax.fori_loop(0, X, lambda i, s: s, X), TypeError, "upper of fori_loop"),
    (lambda: lax.while_loop(lambda s: s, lambda s: s, X), TypeError, "boolean scalar"),
    (lambda: lax.while_loop(lambda s: (True, True), lambda s: s, X), TypeError, "pytree"),
    (lambda: lax.while_loop(True, lambda s: s, X), TypeError, "cond_fun"),
    (lambda: lax.scan(lambda c, x: c, 0, X), TypeError, "pair"),
    (lambda: lax.scan(lambda c, x: (c, x), 0), ValueError, "length"),
    (lambda: lax.scan(lambda c, x: (c, x), 0, X, length=3), ValueError, "disagrees"),
    (lambda: lax.scan(lambda c, x: (c, x), 0, length=-3), ValueError, "negative"),
    (lambda: lax.scan(lambda c, x: (c, x), 0, length=2.5), TypeError, "length"),
    (
        lambda: lax.scan(lambda c, x: (c, x), 0, (X, X[:3])),
        ValueError,
        r"different leading axis sizes.*\[0\]: 12.*\[1\]: 3",
    ),
    (lambda: lax.scan(lambda c, x: (c, x), 0, 3.0), ValueError, "no leading axis"),
    (lambda: lax.scan(lambda c, x: (c, x), 0, "text"), TypeError, "xs of scan"),
    (lambda: lax.cond(X, lambda: 1, lambda: 2), TypeError, "scalar"),
    (lambda: lax.cond(True, lambda: 1, 2), TypeError, "false_fun"),
    (lambda: lax.cond(True, lambda: 1, lambda: (2,)), TypeError, "true_fun and false_fun output"),
    (lambda: lax.cond(True, lambda: X, lambda: X[:2]), TypeError, "leaf 0 of the result of false_fun has shape"),
    (lambda: lax.switch(1.5, [lambda: 1, lambda: 2]), TypeError, "Index type"),
    (lambda: lax.switch(1, []), ValueError, "Empty branch"),
    (lambda: lax.switch(1, [lambda: S, lambda: S, lambda: snp.cos(S)]), TypeError, "branch 2 has fill"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors(number):
    call, kind, text = ERRORS[number]
    with pytest.raises(kind, match=text):
        call()
    with pytest.raises(kind, match=text):
        sj.jit(call)()


def test_values_of_a_body_do_not_leak():
    kept = []
    lax.fori_loop(0, 2, lambda i, x: (kept.append(x), x * 2)[1], X)
    with pytest.raises(sj.UnexpectedTracerError):
        kept[0] + 1
