"""Calls of types that were seen before, against the functions as they are written."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import cached, config
from sparsejax.core import again, roads
from sparsejax.numpy.elementwise import operators


def remembered():
    """What is known of the calls of all functions that are called at once."""
    return [calls for calls in cached.remembering() if isinstance(calls, again.Calls)]


def forget():
    for calls in remembered():
        calls.clear_cache()


FORMATS = ("dense", "csr", "csc", "coo", "dcsr", "bsr:2x2")
DTYPES = (bool, np.int8, np.uint8, np.int32, np.int64, np.float32, np.float64, np.complex128)
NUMBERS = (
    0,
    1,
    2,
    -1,
    3,
    127,
    300,
    -257,
    2**24 + 1,
    2**53 + 1,
    2**64,
    True,
    False,
    0.0,
    -0.0,
    0.5,
    2.0,
    1e300,
    float("nan"),
    float("inf"),
    1j,
    2.0 + 0j,
)
BINARY = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "greater",
    "less_equal",
    "equal",
    "maximum",
    "bitwise_and",
    "arctan2",
    "remainder",
    "copysign",
)
UNARY = ("negative", "absolute", "sqrt", "exp", "sign", "conjugate")
REDUCTIONS = (
    "sum",
    "prod",
    "max",
    "min",
    "any",
    "all",
    "mean",
    "var",
    "std",
    "count_nonzero",
    "argmax",
    "argmin",
    "ptp",
)


def told(function, *args, **kwargs):
    """A result as what can be compared, or its error."""
    with np.errstate(all="ignore"):
        try:
            made = function(*args, **kwargs)
        except Exception as error:
            return type(error), str(error).split(" (")[0]
    form, fill = str(made.format), made.fill_value
    return made.shape, made.dtype, form, np.asarray(fill).tobytes(), made.todense()


def same(found, wanted, exact):
    assert len(found) == len(wanted)
    if len(found) == 2:
        assert found == wanted
        return
    assert found[:4] == wanted[:4]
    if exact:
        np.testing.assert_array_equal(np.signbit(found[4].real), np.signbit(wanted[4].real))
        np.testing.assert_array_equal(found[4], wanted[4])
    else:
        np.testing.assert_allclose(found[4], wanted[4], rtol=1e-5 if found[1] in (np.float32, np.complex64) else 1e-12)


def matrix(rng, dtype, shape):
    values = rng.integers(-3, 4, shape) * (rng.random(shape) < 0.5)
    if np.dtype(dtype).kind == "u":
        values = abs(values)
    return values.astype(dtype)


def operand(rng, shape):
    """An array of ours in some format, one of NumPy's, or a number."""
    kind = rng.integers(0, 4)
    if kind == 0:
        return NUMBERS[rng.integers(len(NUMBERS))]
    values = matrix(rng, DTYPES[rng.integers(len(DTYPES))], shape)
    if kind == 1:
        return values if rng.random() < 0.7 else np.asfortranarray(values)
    return sj.array(values, format=FORMATS[rng.integers(len(FORMATS))])


@pytest.mark.rotating(8)
@pytest.mark.parametrize("seed", range(12))
def test_operators_on_what_comes_back(seed):
    """Few types and many numbers: most calls are of a type that was there, with other values."""
    rng = np.random.default_rng(seed)
    shape = (4, 4) if seed % 2 else (2, 6)
    pool = [operand(rng, shape) for _ in range(4)]
    first = sj.array(matrix(rng, DTYPES[rng.integers(len(DTYPES))], shape), format=FORMATS[seed % len(FORMATS)])
    forget()
    for _ in range(60):
        op = BINARY[rng.integers(len(BINARY))]
        other = pool[rng.integers(len(pool))] if rng.random() < 0.6 else NUMBERS[rng.integers(len(NUMBERS))]
        pair = (first, other) if rng.random() < 0.7 else (other, first)
        function = operators[op] if rng.random() < 0.5 else getattr(snp, op)
        same(told(function, *pair), told(function.__wrapped__, *pair), exact=True)


@pytest.mark.rotating(8)
@pytest.mark.parametrize("seed", range(8))
def test_functions_of_one_array(seed):
    rng = np.random.default_rng(100 + seed)
    forget()
    shape = (3, 5)
    for number in range(30):
        dtype, form = DTYPES[rng.integers(len(DTYPES))], FORMATS[rng.integers(len(FORMATS) - 1)]
        for _ in range(3):
            x = sj.array(matrix(rng, dtype, shape), format=form)
            if number % 3 == 0:
                op = UNARY[rng.integers(len(UNARY))]
                same(told(operators[op], x), told(operators[op].__wrapped__, x), exact=True)
            else:
                function = getattr(snp, REDUCTIONS[rng.integers(len(REDUCTIONS))])
                options = {"axis": (None, 0, 1, -1, 2)[rng.integers(5)]}
                if rng.random() < 0.3:
                    options["keepdims"] = True
                same(told(function, x, **options), told(function.__wrapped__, x, **options), exact=False)


@pytest.mark.parametrize("name", ["norm", "vector_norm", "matrix_norm", "trace"])
def test_whole_programs(name):
    function = getattr(snp.linalg, name)
    for form in ("dense", "csr", "coo"):
        for seed in range(3):
            x = sj.array(matrix(np.random.default_rng(seed), float, (4, 4)), format=form)
            same(told(function, x), told(function.__wrapped__, x), exact=False)


def test_products():
    rng = np.random.default_rng(5)
    for form in FORMATS:
        for _ in range(3):
            A, x, X = matrix(rng, float, (4, 6)), rng.standard_normal(6), rng.standard_normal((6, 3))
            a = sj.array(A, format=form)
            for other in (x, sj.array(x), X, sj.array(X), np.asfortranarray(X), X[:, ::2]):
                np.testing.assert_allclose((a @ other).todense(), A @ np.asarray(other), atol=1e-12)


def test_a_known_call_runs_its_plan_alone(monkeypatch):
    x = sj.array(np.eye(7) * 3, format="csr")
    for _ in range(roads.FEW + 2):
        snp.multiply(x, x), snp.linalg.norm(x), x @ np.ones(7)

    def refused(*args, **kwargs):
        raise AssertionError("the function ran")

    monkeypatch.setattr(again, "_first", refused)
    y = sj.array(np.eye(7) * 2, format="csr")
    assert snp.multiply(y, y).todense()[1, 1] == 4
    np.testing.assert_allclose(float(snp.linalg.norm(y)), np.sqrt(28))
    np.testing.assert_array_equal((y @ np.ones(7)).todense(), 2)
    with pytest.raises(AssertionError, match="the function ran"):
        snp.multiply(sj.array(np.eye(7), format="csc"), y)


def test_results_do_not_share_the_callers_memory():
    """Neither the first time nor when types come back."""
    for _ in range(3):
        x, y = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
        found = [snp.add(x, y), snp.absolute(x), snp.sum(x, 0), snp.max(x), snp.positive(x)]
        before = [f.todense().copy() for f in found]
        x[:], y[:] = -7, -9
        for f, b in zip(found, before, strict=True):
            np.testing.assert_array_equal(f.todense(), b)


def test_traced_and_forced_calls_run_the_function():
    x = sj.array(np.eye(5), format="csr")
    wanted = np.asarray(snp.sum(x, 1))
    assert "reduce" in str(sj.make_jaxpr(lambda x: snp.sum(x, 1))(x))
    with sj.config.using(choose="random:3"):
        np.testing.assert_array_equal(snp.sum(x, 1), wanted)
    np.testing.assert_array_equal(sj.grad(lambda x: snp.sum(snp.sum(x, 1) * wanted))(x).todense(), np.eye(5))


def test_caches_are_bounded():
    x = sj.array(np.eye(3), format="csr")
    for k in range(3000):
        x * k
    assert max(len(calls.runs) for calls in remembered()) <= roads.REMEMBERED


NEW_SHAPES = {
    "times an integer": lambda A, x, k: A * 2,
    "an integer times": lambda A, x, k: 3 * A,
    "an integer less": lambda A, x, k: (k % 3 - 1) - A,
    "a float less": lambda A, x, k: (0.5 + k) - A,
    "a float by": lambda A, x, k: (1.0 * (k - 2)) / (1 + abs(A)),
    "a large integer times": lambda A, x, k: (1000 + k) * A,
    "times a float": lambda A, x, k: A * (0.5 + k),
    "plus a float": lambda A, x, k: A + (0.5 + k),
    "a power": lambda A, x, k: A ** (1.0 + k % 3),
    "compared": lambda A, x, k: snp.greater(A, 0.5 * k - 1) if isinstance(A, sj.Array) else np.greater(A, 0.5 * k - 1),
    "by a vector of NumPy's": lambda A, x, k: A @ x,
    "sums by position": lambda A, x, k: A.sum(1),
    "sums by name": lambda A, x, k: A.sum(axis=0, keepdims=True),
    "the largest": lambda A, x, k: A.max(),
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("name", list(NEW_SHAPES))
def test_calls_of_new_shapes_are_those_of_their_own_numbers(name, form):
    rng, function = np.random.default_rng(7), NEW_SHAPES[name]
    for k, (n, m) in enumerate(rng.integers(1, 40, (12, 2)).tolist()):
        dense = rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.3)
        A, x = sj.array(dense, format=form), rng.standard_normal(m)
        for _ in range(3):
            got = function(A, x, k)
            np.testing.assert_allclose(got.todense() if got.ndim else got.item(), function(dense, x, k), atol=1e-12)


def test_numbers_before_arrays_take_the_shortest_road():
    """As those behind them do; True, 1 and 1.0 are told apart."""
    forget()
    for n in range(20, 30):
        x = sj.array(np.arange(n), format="dense")
        for number in (2.5, 3, 1.0, 1, True, -1, 10**6):
            for got, want in ((number - x, number - np.arange(n)), (number * x, number * np.arange(n))):
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got.todense(), want)
    assert {road[0] for c in remembered() for road in c.roads if isinstance(road, tuple)} >= {float, (3,)}


@pytest.mark.parametrize("few", [0, 1, roads.FEW])
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", list(NEW_SHAPES))
def test_shapes_in_turns_are_served_and_planned(name, jitted, few, monkeypatch):
    """Each shape comes back until it has a plan of its own, at once and under `jit`; before and after, results are the same."""
    monkeypatch.setattr(roads, "FEW", few)
    rng, function = np.random.default_rng(8), NEW_SHAPES[name]
    run = sj.jit(function, static_argnums=2) if jitted else function
    cases = []
    for n, m in ((9, 5), (31, 22), (17, 40)):
        dense = rng.integers(-3, 4, (n, m)) * (rng.random((n, m)) < 0.3).astype(float)
        x = rng.integers(-3, 4, m).astype(float)
        cases.append((sj.array(dense, format="csr"), dense, x))
    for _ in range(few + 4):
        for A, dense, x in cases:
            got = run(A, x, 1)
            np.testing.assert_array_equal(got.todense() if got.ndim else got.item(), function(dense, x, 1))


def test_a_shape_that_comes_back_has_a_plan_of_its_own():
    def added(x, y):
        return x + y

    plus = again.again(2)(added)
    (calls,) = (c for c in remembered() if c.function is added)
    for n in range(20, 40):
        plus(sj.array(np.ones(n)), sj.array(np.ones(n)))
    served, x, y = len(calls.runs), sj.array(np.arange(39.0) / 2), sj.array(np.arange(39.0))
    counts = []
    for _ in range(roads.FEW + 2):
        np.testing.assert_array_equal(plus(x, y).todense(), 1.5 * np.arange(39.0))
        counts.append(len(calls.runs) - served)
    assert counts[2] == 0  # the shape is served by what serves any extents
    assert counts[-1] == 1


def test_shapes_that_come_again_are_served_by_the_types_of_operands():
    """What is kept of such a shape gives up where operands have other counts, or settings are others, and after as many calls as shapes are served."""

    def product(x, y):
        return x @ y

    times, rng = again.again(2)(product), np.random.default_rng(5)
    (calls,) = (c for c in remembered() if c.function is product)

    def operands(n, density):
        dense = rng.integers(1, 5, (n, n)) * (rng.random((n, n)) < density) / 4
        return sj.array(dense, format="csr"), dense, rng.integers(1, 5, n) / 4

    def runs(n, density, count=1):
        for _ in range(count):
            A, dense, x = operands(n, density)
            np.testing.assert_array_equal(times(A, snp.asarray(x)).todense(), dense @ x)

    for n in range(50, 56):  # from now on products of any extents are served, whatever ran in this process before
        A, _, x = operands(n, 0.1)
        assert (A @ x).shape == (n,)
    for n in range(60, 64):
        runs(n, 0.1, 2)
    assert not any(run in calls.runs.values() for run, *_ in calls.recent.values())
    kept = len(calls.recent)
    runs(63, 0.1, roads.AGAIN + 2)
    assert 1 <= len(calls.recent) <= kept + 1
    for density in (0.0, 0.9, 0.1, 0.01, 0.1):
        runs(63, density, 3)
    with config.using(workspace="hash"):
        runs(63, 0.1, 3)
    runs(63, 0.1, 2 * roads.FEW + 4)
    assert any(run in calls.runs.values() for run, *_ in calls.recent.values())


def test_a_function_around_one_that_is_known_is_learnt():
    """What the inner one answers is noted as if it were called for the first time."""
    runs = []

    def around(x):
        runs.append(x.shape)
        return snp.negative(x)

    x, outer = sj.array(np.eye(6), format="csr"), again.again(1)(around)
    for _ in range(roads.FEW + 4):
        snp.negative(x)
    before = []
    for k in range(roads.FEW + 8):
        np.testing.assert_array_equal(outer(x * float(k)).todense(), -k * np.eye(6))
        before.append(len(runs))
    assert before[0] == 1 and before[-1] == before[roads.FEW // 2]


def test_other_arguments_are_told_apart_by_type_and_value():
    """Calls with the same array and other arguments that compare equal, or are equal objects made anew, in turns."""
    dense = np.arange(12.0).reshape(3, 4) % 5
    x = sj.array(dense, format="csr")
    for _ in range(2):
        for axis, keep in ((0, False), (1, False), (None, False), (0, True), (np.int64(1), False), (-1, True)):
            for _ in range(roads.FEW + 3):
                got = snp.sum(x, axis, None, keep)
                np.testing.assert_array_equal(got.todense(), np.sum(dense, axis, keepdims=keep))
                assert snp.sum(x, axis, np.float32, keep).dtype == np.float32
                assert snp.sum(x, axis, np.dtype("".join(["i", "8"])), keep).dtype == np.int64
                np.testing.assert_array_equal(snp.sum(x).todense(), dense.sum())


def test_types_that_are_gone_are_not_taken_for_others():
    """Arrays of many types, each made anew: the objects of earlier types are freed, and their addresses come back."""
    forget()
    rng = np.random.default_rng(0)
    for n in rng.integers(2, 12, 400).tolist():
        dense = rng.integers(-2, 3, (n, n + 1)).astype(float)
        x, y = sj.array(dense, format="csr"), sj.array(dense.T, format="csr")
        for _ in range(2):
            np.testing.assert_array_equal((x @ y).todense(), dense @ dense.T)
            np.testing.assert_array_equal((-x).todense(), -dense)
    assert max(len(calls.recent) for calls in remembered()) <= roads.REMEMBERED + 1


@pytest.mark.parametrize("shapes", [[(5, 7)], [(5, 7), (6, 4), (9, 9), (5, 7)]])
def test_calls_are_told_apart_by_their_other_arguments(shapes):
    """Arrays of one type and of several, called again with axes and words in turns."""
    rng = np.random.default_rng(4)
    for number in range(60):
        dense = (rng.random(shapes[number % len(shapes)]) < 0.4) * rng.random(shapes[number % len(shapes)])
        A = sj.array(dense).asformat("csr")
        for _ in range(int(rng.integers(1, 4))):
            axis = [0, 1, -1, -2, None][rng.integers(5)]
            keep = bool(rng.integers(2))
            for function in ("sum", "max", "mean"):
                made = getattr(snp, function)(A, axis=axis, keepdims=keep)
                np.testing.assert_allclose(made.todense(), getattr(dense, function)(axis, keepdims=keep))
            made = A.sum(axis) if rng.random() < 0.5 else A.sum(axis=axis)
            np.testing.assert_allclose(made.todense(), dense.sum(axis))
        large = 300 + int(rng.integers(3))
        np.testing.assert_array_equal((A * large).todense(), dense * large)
        np.testing.assert_array_equal((A * True).todense(), dense)
        np.testing.assert_array_equal((A * 1).todense(), dense)


@pytest.mark.parametrize("kind", ["f4", "f8", "c16"])
def test_a_length_beside_an_array_is_an_operand(kind, monkeypatch):
    """`x / len(x)` is learnt once, not for every length."""
    learnt, plain = [], again.primitive.noting
    monkeypatch.setattr(again.primitive, "noting", lambda: (learnt.append(None), plain())[1])
    forget()
    for n in range(1000, 1020):
        given = np.arange(n).astype(kind)
        x = sj.array(given)
        for made, wanted in ((x / n, given / n), (n * x, n * given), (x - n, given - n)):
            assert made.dtype == wanted.dtype
            np.testing.assert_allclose(made.todense(), wanted, rtol=1e-15 if kind != "f4" else 1e-7)
    assert len(learnt) <= 12  # of 60 calls: what serves any extents is there after some of each kind


@pytest.mark.parametrize("form", ["csr", "dense"])
def test_functions_of_several_operations_are_compiled_for_new_shapes(form, monkeypatch):
    """After some shapes: the program is traced with symbols, and no operation of the function runs by itself any more."""
    forget()
    rng = np.random.default_rng(3)
    shapes = [tuple(rng.integers(3, 40, 2)) for _ in range(again.SHAPES + 6)]
    dense = [np.where(rng.random(shape) < 0.5, rng.random(shape), 0) for shape in shapes]
    for value in dense[: again.SHAPES + 3]:
        snp.std(sj.array(value, format=form), axis=0)
    monkeypatch.setattr(again, "_learning", _Refusing())
    for value in dense[again.SHAPES + 3 :]:
        made = snp.std(sj.array(value, format=form), axis=0)
        np.testing.assert_allclose(made.todense(), value.std(axis=0), rtol=1e-12)


class _Refusing(list):
    def append(self, value):
        pytest.fail("the function ran operation by operation")


def test_functions_that_look_at_extents_are_not_traced_for_each(monkeypatch):
    """A program that is traced for every new shape is given up: the function runs as it is written."""
    traced = []

    @again.again(1)
    def shifted(x):
        traced.append(type(x) is sj.Array)
        return x * float(int(x.shape[0])) + 1.0  # another program for every extent

    for n in range(3, 60):
        value = np.arange(n, dtype=float)
        np.testing.assert_array_equal(shifted(sj.array(value)).todense(), value * n + 1)
    assert traced[-10:] == [True] * 10
