"""Loop shapes: how many iterations a loop takes, and how much code it is. What they compute is tested in tests/fuzz/shapes.py."""

import math

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import counting
from sparsejax import config
from sparsejax.core.array import Array
from sparsejax.formats import Format, RunLength, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.rewrite import iteration
from sparsejax.jit.runtime import kernels, plans


def run(function, *arrays):
    """(values of the result, iterations of all kernels)."""
    closed = sj.make_jaxpr(function)(*arrays)
    plan = plans.planned(closed)
    registers = plan.registers([a.storage for a in (*closed.consts, *arrays)])
    iterations = 0
    for number, step in enumerate(plan.steps):
        inputs = plan.step(number, registers)
        if isinstance(step, kernels.KernelRunner):
            schedule, _ = step.planner.schedule(step.observe(inputs))
            made, counted = counting.run(step.planner.step.nest, schedule, inputs)
            iterations += counted.iterations
            if step.exact:
                np.testing.assert_array_equal(made.vals, registers[-1].vals)
    return registers[plan.results[0]].vals, iterations


def row(n, count, form, seed=0):
    """One row with `count` entries among `n`."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((1, n))
    dense[0, rng.choice(n, count, replace=False)] = rng.integers(1, 5, count)
    return sj.array(dense, format=form), dense


def loops(function, *args):
    return sj.jit(function).lower(*args).as_text("loops")


@pytest.mark.parametrize("form", ["csr", "coo", "dcsr", "lil", "ell", "groupcoo:4"])
def test_long_segments_are_galloped_through(form):
    n, short, long = 40_000, 10, 20_000
    (a, x), (b, y) = row(n, short, form), row(n, long, "csr", 1)
    for operands in ((a, b), (b, a)):
        made, iterations = run(lambda a, b: (a * b).sum(), *operands)
        assert made == (x * y).sum()
        assert iterations < 20 + 3 * short * math.log2(n)


@pytest.mark.parametrize("form", ["(h,h)", "(c,h)", "dcsr"])
@pytest.mark.parametrize("other", ["(h,h)", "dcsr"])
def test_no_array_is_walked_for_every_row_of_another(form, other):
    """Rows of a hash table could be looked up while all rows of the other operand are walked: that took n^2 iterations."""
    n = 1000
    coords = np.random.default_rng(0).permuted(np.tile(np.arange(n), (2, 1)), axis=1)
    there, back = (
        Array(convert.from_coords(c, np.ones(n), (2**40, 2**40), Format.parse(name, 2), np.float64(0)))
        for c, name in ((coords, form), (coords[::-1], other))
    )
    made, iterations = run(lambda A, B, C: sj.einsum("ik,kj->ij", A, B, mask=C), there, back, back)
    assert made.sum() == np.sum(coords[0] == coords[1])
    assert iterations < 60 * n


@pytest.mark.parametrize("form", ["csr", "coo"])
def test_the_shortest_of_three_leads(form):
    (a, x), (b, y), (c, z) = row(40_000, 10, form), row(40_000, 20_000, form, 1), row(40_000, 15_000, form, 2)
    for operands in ((a, b, c), (c, b, a)):
        made, iterations = run(lambda a, b, c: (a * b * c).sum(), *operands)
        assert made == (x * y * z).sum()
        assert iterations < 20 + 6 * 10 * math.log2(40_000)


def test_segments_of_like_length_are_merged():
    (a, x), (b, y) = row(4000, 1000, "csr"), row(4000, 900, "csr", 1)
    made, iterations = run(lambda a, b: (a * b).sum(), a, b)
    assert made == (x * y).sum()
    assert 1000 < iterations < 1910


@pytest.mark.parametrize("form", ["csr", "coo", "dcsr", "banded", "ell", "groupcoo:4"])
def test_unions_take_a_step_for_every_coordinate(form):
    (a, x), (b, y), (c, z) = row(4000, 1000, form), row(4000, 900, "csr", 1), row(4000, 50, "csr", 2)
    for function in (lambda a, b: (a - b).sum(), snp.add, snp.maximum, lambda a, b: snp.arctan2(a, b) + a):
        made, iterations = run(function, a, b)
        np.testing.assert_allclose(np.sum(made), function(x, y).sum())
        assert iterations <= a.nnz + b.nnz + 40
    made, iterations = run(lambda a, b, c: (a + b + c).sum(axis=1), a, b, c)
    np.testing.assert_array_equal(made, (x + y + z).sum(axis=1))
    assert iterations <= 2 * (a.nnz + b.nnz + c.nnz) + 40


def test_room_is_made_once_for_a_segment():
    (a, _), (b, _) = row(400, 100, "csr"), row(400, 90, "csr", 1)
    text = loops(lambda a, b: a + b, a, b)
    body = text[text.index("while ") :]
    assert "realloc" not in body and "hit" in body


def test_rows_of_a_product_are_fetched_ahead():
    a = sj.array(np.random.default_rng(0).random((200, 200)) * (np.indices((200, 200)).sum(0) % 9 == 0), format="csr")
    assert "prefetch" in loops(lambda a, b: a @ b, a, a)
    assert "prefetch" not in loops(lambda a, b: a + b, a, a)


@pytest.mark.parametrize(("columns", "ahead"), [(100_000, True), (1_000, False)])
def test_sums_at_places_of_a_large_result_fetch_what_they_add(columns, ahead):
    """The last entries have nothing behind them; a column and a row are empty."""
    rng = np.random.default_rng(0)
    places = np.unique(rng.integers(1, 50 * columns, 2_000))
    triplets = rng.integers(1, 5, len(places)).astype(float), (places // columns, places % columns)
    a, x = sj.array(triplets, shape=(52, columns), format="csr"), rng.integers(1, 5, 52).astype(float)
    expected = np.zeros(columns)
    np.add.at(expected, triplets[1][1], triplets[0] * x[triplets[1][0]])
    for choose, own in (("auto", ahead), ("prefetch=own", True), ("prefetch=ahead", False), ("prefetch=none", False)):
        with config.using(choose=choose):
            text = loops(lambda a, x: a.T @ x, a, x)
            assert all((f"prefetch.p0((ptr)((i64){buffer}" in text) is own for buffer in ("A.crd1", "A.vals"))
            np.testing.assert_array_equal(np.asarray(sj.jit(lambda a, x: a.T @ x)(a, x)), expected)


def runs(n, dtype=float):
    """Five runs in `n` coordinates, as an array; and the value and length of each."""
    start = np.array([0, 10, n // 3, n // 2, n - 5])
    stop = np.array([3, n // 4, n // 3 + 100, n - 7, n])
    values = np.array([2, 1, 3, 1, 4], dtype)
    coordinate = np.int32 if n < 2**31 else np.int64
    buffers = ((np.array([0, 5]), start.astype(coordinate), stop.astype(coordinate)),)
    return sj.array(Storage(Format([RunLength()]), (n,), dtype(0), buffers, values)), values, stop - start


def test_runs_are_reduced_at_once():
    a, values, lengths = runs(10**12)
    for function, want in (
        (lambda a: a.sum(), (values * lengths).sum()),
        (lambda a: (3 * a).sum(), (3 * values * lengths).sum()),
        (lambda a: a.max(), 4.0),
    ):
        made, iterations = run(function, a)
        np.testing.assert_allclose(made, want)
        assert iterations < 60


def test_runs_that_meet_are_reduced_at_once():
    a, values, lengths = runs(10**12)
    made, iterations = run(lambda a, b: (a * b).sum(), a, sj.array(a.storage))
    np.testing.assert_allclose(made, (values**2 * lengths).sum())
    assert iterations < 60


def test_powers_of_integers_are_exact():
    a, values, lengths = runs(1000, np.int64)
    made, _ = run(lambda a: (a + 1).prod(), a)
    want = 1
    for value, length in zip(values.tolist(), lengths.tolist(), strict=True):
        want = want * pow(value + 1, length, 2**64) % 2**64
    assert int(made[0]) % 2**64 == want


def test_a_run_times_dense_is_a_vector_loop():
    a, _, _ = runs(1000)
    x = np.random.default_rng(0).random(1000)
    text = loops(lambda a, x: (a * x).sum(), a, x)
    assert "step 8" in text
    made, iterations = run(lambda a, x: (a * x).sum(), a, sj.array(x))
    np.testing.assert_allclose(made, (a.todense() * x).sum())
    assert iterations <= a.nnz + 10


def test_gaps_without_variables_are_reduced_at_once():
    a, x = row(100_000, 20, "csr")
    for function, want in (
        (lambda a: snp.maximum(a, 2.0).sum(axis=1), np.maximum(x, 2).sum()),
        (lambda a: (a + 1).sum(axis=1), (x + 1).sum()),
        (lambda a: snp.exp(-a).max(axis=1), 1.0),
    ):
        made, iterations = run(function, a)
        np.testing.assert_allclose(made, want)
        assert iterations < 100


def test_a_dense_result_takes_one_pass_and_an_update():
    a, x = row(10_000, 50, "csr")
    y = np.random.default_rng(1).random((1, 10_000))
    made, iterations = run(lambda a, y: a + y, a, sj.array(y))
    np.testing.assert_array_equal(made, (x + y)[0])
    assert iterations <= 10_000 + 50 + 2
    assert "step 8" in loops(lambda a, y: a + y, a, y)


def band(n, width, shift, form="banded"):
    i, j = np.indices((n, n))
    dense = np.where(np.abs(i - j + shift) <= width, 1.0 + i + 2 * j, 0)
    return sj.array(dense, format=form), dense


def test_bands_are_ranges():
    a, x = band(60, 20, 0)
    y = np.random.default_rng(0).random(60)
    assert "step 8" in loops(lambda a, y: a @ y, a, y)
    made, iterations = run(lambda a, y: a @ y, a, sj.array(y))
    np.testing.assert_allclose(made, x @ y)
    assert iterations == 60 + a.nnz
    b, z = band(60, 10, 15)
    made, iterations = run(lambda a, b: (a * b).sum(axis=1), a, b)
    np.testing.assert_allclose(made, (x * z).sum(axis=1))
    assert iterations == 60 + np.count_nonzero(x * z)


def test_unordered_levels_are_walked_where_the_order_does_not_matter():
    dense = np.where(np.random.default_rng(0).random((9, 40)) < 0.2, 2.0, 0)
    a, y = sj.array(dense, format="hash"), np.arange(40.0)
    for function, want in (
        (lambda a, y: a.sum(axis=1), dense.sum(axis=1)),
        (lambda a, y: a.sum(axis=0), dense.sum(axis=0)),
        (lambda a, y: a @ y, dense @ y),
        (lambda a, y: a + y, dense + y),
        (lambda a, y: snp.einsum("ij->j", a, out_format="(c)"), dense.sum(axis=0)),
    ):
        assert "is converted" not in sj.jit(function).lower(a, y).as_text("plan")
        np.testing.assert_allclose(snp.asarray(sj.jit(function)(a, y)).todense(), want)
    for function in (lambda a: a * 2, lambda a: snp.maximum(a, 1.0).sum(axis=1)):
        assert "A is converted" in sj.jit(function).lower(a).as_text("plan")


def normalised(*xs):
    """A sum that is read twice: its entries are kept for a row, by loops of a kernel of several statements."""
    whole = sum(xs)
    return whole * whole.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("lengths", [(15, 16, 17, 1), (18, 33, 16), (1, 1, 700), (700, 1), (17,)])
def test_ranges_of_all_lengths_end_where_their_coordinate_does(lengths):
    """Ranges around the number of places that are looked at one by one, and at the end of all places."""
    rng, n = np.random.default_rng(0), 800
    dense = np.zeros((len(lengths), n))
    for row, length in enumerate(lengths):
        dense[row, rng.permutation(n)[:length]] = rng.integers(1, 9, length)
    x = rng.integers(1, 9, n).astype(float)
    a, b = sj.array(dense, format="coo"), sj.array(dense[::-1], format="coo")
    np.testing.assert_array_equal(sj.jit(lambda a, x: a @ x)(a, x), dense @ x)
    np.testing.assert_array_equal(sj.jit(lambda a, b: a + b)(a, b).todense(), dense + dense[::-1])
    np.testing.assert_array_equal(
        sj.jit(lambda a, b: (a * b).sum(axis=1))(a, b).todense(), (dense * dense[::-1]).sum(axis=1)
    )


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    "function", [lambda *xs: sum(xs), lambda *xs: sum(xs).sum(axis=1), normalised], ids=["elements", "rows", "twice"]
)
@pytest.mark.parametrize("form", ["csr", "dcsr", "coo"])
def test_code_for_a_sum_is_linear_in_its_terms(function, form):
    rng = np.random.default_rng(0)
    dense = [np.where(rng.random((7, 30)) < 0.3, k + 1.0, 0) for k in range(12)]
    arrays = [sj.array(d, format=form) for d in dense]
    sizes = [loops(function, *arrays[:k]).count("\n") for k in (4, 8, 12)]
    assert max(sizes) < 1000 and sizes[2] - sizes[1] <= max(120, 1.2 * (sizes[1] - sizes[0]) + 5)
    np.testing.assert_allclose(sj.jit(function)(*arrays).todense(), function(*dense))


def test_products_have_few_cases(monkeypatch):
    asked = []
    real = simplify.exhaust_stmt
    monkeypatch.setattr(simplify, "exhaust_stmt", lambda *args: asked.append(args) or real(*args))
    i, dtype = cin.IndexVar("i"), np.dtype("f8")
    form = Format.parse("(c)", 1)
    accesses = [cin.Access(cin.Tensor(f"X{k}", (9,), dtype, form, dtype.type(0)), (i,)) for k in range(16)]
    rhs = accesses[0]
    for access in accesses[1:]:
        rhs = cin.Call("multiply", (rhs, access), dtype)
    body = cin.Assign(cin.Access(cin.Tensor("s", (), dtype, Format(()), dtype.type(0), "scalar"), ()), "add", rhs)
    assert set(iteration.find_cases(body, accesses)) == {frozenset(accesses)}
    assert len(asked) < 100
