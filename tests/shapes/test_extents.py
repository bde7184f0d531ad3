"""Extents of traced functions: what they compute, what they ask, and for which shapes a trace holds."""

import collections
import dataclasses
import functools
import logging
import operator

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.symbolic import Scope, SymbolicDim, length, sliced
from tests.shapes.traced import Traced

OPERATORS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]
QUESTIONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def expression(rng, leaves, depth):
    """A random expression, as a function of the leaves."""
    if depth == 0 or rng.random() < 0.2:
        k = int(rng.integers(0, len(leaves) + 2))
        if k >= len(leaves):
            number = int(rng.integers(1, 5))
            return lambda values: number
        return lambda values: values[k]
    op = OPERATORS[int(rng.integers(0, len(OPERATORS)))]
    one, other = expression(rng, leaves, depth - 1), expression(rng, leaves, depth - 1)

    def run(values):
        right = other(values)
        if op in (operator.floordiv, operator.mod) and right == 0:
            right = 3
        return op(one(values), right)

    return run


@pytest.mark.parametrize("seed", range(200))
def test_expressions_are_those_of_integers(seed):
    """The value at hand, and the value elsewhere where the guards hold, are what integers give; answers agree with guards."""
    rng = np.random.default_rng(seed)
    here = {name: int(rng.integers(2, 12)) for name in "nmk"}
    scope = Scope(here)
    symbols = [scope.symbol(name) for name in here]
    run = expression(rng, symbols, 3)
    ask = QUESTIONS[int(rng.integers(0, len(QUESTIONS)))]
    bound = int(rng.integers(-3, 30))
    made = run(symbols)
    answer = bool(ask(made, bound))
    value = run(list(here.values()))
    assert (made.hint if isinstance(made, SymbolicDim) else made) == value
    assert answer == ask(value, bound)
    guards = [scope.compiled([code]) for code in scope.guards]
    compiled = scope.compiled([made.code if isinstance(made, SymbolicDim) else str(made)])
    for _ in range(20):
        there = [int(x) for x in rng.integers(2, 12, 3)]
        if all(guard(*there)[0] for guard in guards):  # in order: what would divide by zero comes later
            (found,) = compiled(*there)
            assert found == run(there)
            assert ask(found, bound) == answer


@pytest.mark.parametrize("seed", range(100))
def test_slices_are_those_of_ranges(seed):
    rng = np.random.default_rng(seed)
    extent = int(rng.integers(2, 12))
    ends = [None if rng.random() < 0.3 else int(rng.integers(-14, 15)) for _ in range(2)]
    step = None if rng.random() < 0.5 else int(rng.choice([-3, -2, -1, 1, 2, 3]))
    scope = Scope({"n": extent})
    made, wanted = sliced(slice(*ends, step), scope.symbol("n")), range(extent)[slice(*ends, step)]
    size = length(made)
    assert (size.hint if isinstance(size, SymbolicDim) else size) == len(wanted)
    if len(wanted):
        start = made.start
        assert (start.hint if isinstance(start, SymbolicDim) else start) == wanted.start


def calls(function, shapes, **options):
    """How often a function is traced for operands of these shapes; results are compared with those of traces of their own."""
    traces = []

    @functools.wraps(function)
    def traced(*args):
        traces.append([a.shape for a in args])
        return function(*args)

    compiled = sj.jit(traced, **options)
    rng = np.random.default_rng(0)
    made = []
    for shape in shapes:
        args = [rng.standard_normal(s) for s in (shape if isinstance(shape, list) else [shape])]
        before = len(traces)
        got = compiled(*args)
        made.append(len(traces) - before)
        np.testing.assert_allclose(got.todense(), sj.jit(function, dynamic=False)(*args).todense())
    return made


def test_a_second_shape_traces_once_more_and_others_not_at_all():
    assert calls(lambda x: x * x.shape[0], [(5,), (7,), (9,), (400,), (5,), (12,)]) == [1, 1, 0, 0, 0, 0]


def test_extents_that_were_equal_are_one_symbol():
    shapes = [[(n, m), (m,)] for n, m in ((5, 3), (7, 4), (9, 9), (3, 12))]
    assert calls(lambda A, x: A @ x, shapes) == [1, 1, 0, 0]


def test_what_did_not_change_is_no_symbol():
    assert calls(lambda A: A.sum(axis=1), [(5, 3), (6, 3), (7, 3), (7, 4), (9, 5)]) == [1, 1, 0, 1, 0]


def test_answers_are_guards():
    def program(x):
        return x + 1 if x.shape[0] > 100 else x * 2

    assert calls(program, [(5,), (7,), (99,), (101,), (500,), (8,)]) == [1, 1, 0, 1, 0, 0]


def test_a_loop_over_an_extent_is_traced_for_every_extent():
    def program(A):
        total = 0
        for row in range(A.shape[0]):
            total = total + A[row]
        return total

    assert calls(program, [(3, 5), (4, 6), (4, 9), (4, 12), (5, 7)]) == [1, 2, 0, 0, 1]


NUMBERS_NEEDED = {
    "key": lambda n, m: {5: 2, 9: 3}.get(n, 4),
    "member": lambda n, m: 2 if n in {5, 9} else 3,
    "set": lambda n, m: len({n, m, 6, 9}),
    "hash": lambda n, m: hash(n) % 7,
    "shape as key": lambda n, m: {(5, 3): 2, (7, 4): 3}.get((n, m), 4),
    "frozen": lambda n, m: {Sizes(5, 3): 2, Sizes(9, 4): 3}.get(Sizes(n, m), 4),
    "remembered": lambda n, m: remembered(n + 1),
    "kind": lambda n, m: 2 if isinstance(n, int) and isinstance(n * m, int) else 3,
    "text": lambda n, m: len(str(n)) + len(f"{2 * m}") + len(f"{m:>4}"),
    "counter": lambda n, m: collections.Counter([n, m, 5])[5],
}


@dataclasses.dataclass(frozen=True)
class Sizes:
    n: int
    m: int


@functools.lru_cache
def remembered(n):
    return 2 if n in (6, 10) else 3


def matched(n, m):
    match (n, m):
        case (int(k), 4):
            return k
        case (int(), int()):
            return 2
    return 3


@pytest.mark.parametrize("name", [*NUMBERS_NEEDED, "matched"])
def test_questions_that_no_operator_asks(name):
    question = NUMBERS_NEEDED.get(name, matched)
    f = sj.jit(lambda x: x * question(*x.shape))
    for n, m in ((5, 3), (6, 3), (9, 4), (7, 4), (70, 700), (5, 5), (8, 9), (6, 9)):
        assert f(np.ones((n, m)))[0, 0] == question(n, m), (n, m)


def test_names_of_types_are_no_numbers():
    n, m = sj.eval_shape(lambda A: A, sj.ShapeDtypeStruct(("n", 4), "float32")).shape
    assert str(n) == f"{n}" == "n" and not isinstance(n, int) and m == 4
    assert {n: 1}[n] == 1


def test_extents_of_none_and_one_are_programs_of_their_own():
    assert calls(lambda x, y: x + y, [[(5,), (5,)], [(6,), (6,)], [(1,), (6,)], [(7,), (7,)], [(0,), (0,)]])[3] == 0


def test_sums_of_extents():
    shapes = [[(n,), (m,)] for n, m in ((2, 3), (4, 6), (9, 2), (2, 9))]
    assert calls(lambda x, y: snp.concatenate([x, y])[: x.shape[0] + 1] / (x.size + y.size), shapes) == [1, 1, 0, 0]


def test_an_extent_that_another_tells():
    shapes = [[(n + 1,), (n,)] for n in (4, 6, 9, 30)]
    assert calls(lambda x, y: x[1:] - x[:-1] + y, shapes) == [1, 2, 0, 0]


PARTS = {
    "halves": (lambda p, x: x[: x.shape[0] // 2] + x[x.shape[0] // 2 :], lambda n: 2 * n),
    "around the middle": (lambda p, x: x[: x.shape[0] // 2] + x[x.shape[0] // 2 + 1 :], lambda n: 2 * n + 1),
    "pairs": (lambda p, x: p.concatenate([x[::2] + x[1::2], x[::2] - x[1::2]]) + x, lambda n: 2 * n),
    "thirds": (lambda p, x: x[::3] + x[1::3] * x[2::3], lambda n: 3 * n),
    "quarters": (lambda p, x: x[: x.shape[0] // 2][: x.shape[0] // 4] + x[3 * x.shape[0] // 4 :], lambda n: 4 * n),
    "rows of two": (lambda p, x: x.reshape(-1, 2).sum(axis=1) * x[::2], lambda n: 2 * n),
    "either": (
        lambda p, x: x[x.shape[0] // 2] + x[: x.shape[0] // 2] if x.shape[0] % 2 else x[::2] - x[1::2],
        lambda n: n,
    ),
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("small", [False, True])
def test_equal_parts(name, small):
    """Parts of a vector that are equal for some remainders: one trace serves all extents with that remainder, whatever came first."""
    function, extent = PARTS[name]
    rng = np.random.default_rng(3)
    sizes = [*([1, 2, 3] if small else []), *(int(n) for n in rng.integers(9, 60, 12)), 2, 40, 1, 3, 27]
    shapes = [[(extent(n),)] for n in sizes]
    traces = calls(lambda x: function(snp, x), shapes)
    assert sum(traces[7:15] if small else traces[4:12]) == 0, traces
    run = sj.jit(lambda x: function(snp, x))
    for ((n,),) in shapes:
        x = rng.standard_normal(n)
        np.testing.assert_allclose(run(x).todense(), function(np, x), rtol=1e-13, atol=1e-15)


def test_equal_parts_of_named_extents():
    shapes = [[(2 * n,)] for n in (7, 12, 5, 30)]
    halves = PARTS["halves"][0]
    assert calls(lambda x: halves(snp, x), shapes, dynamic={"x": ("n",)}) == [2, 0, 0, 0]


BLOCKED = {
    "operands": lambda A, x: A.asformat("bsr:2x3") * x,
    "sums": lambda A, x: (A.asformat("bsr:2x2") + x).sum(axis=0),
    "products": lambda A, x: A.asformat("bsr:3x2") @ x.T,
    "results": lambda A, x: sj.einsum("ij,kj->ik", A, x, out_format="bsr:2x2").sum(axis=1),
    "one of two": lambda A, x: A.asformat("bsr:1x4") * 2 + x,
    "groups": lambda A, x: A.asformat("blockgroupcoo:2x3:2") @ x.T,
    "gathered": lambda A, x: (A.asformat("bsr:2x1")[snp.arange(x.shape[0]) // 2] * x).sum(axis=1),
    "loops": lambda A, x: sj.lax.fori_loop(0, 2, lambda _, y: y + (A.asformat("bsr:2x2") * y).sum(axis=0), x),
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("dynamic", [True, {"A": ("n", "m"), "x": ("n", "m")}], ids=["found", "named"])
@pytest.mark.parametrize("name", BLOCKED)
def test_extents_in_blocks_are_numbers(name, dynamic):
    rng = np.random.default_rng(1)
    compiled = sj.jit(BLOCKED[name], dynamic=dynamic)
    for n, m in ((4, 6), (5, 9), (3, 3), (11, 5), (5, 12)):
        dense, x = rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.5), rng.standard_normal((n, m))
        A = sj.array(dense, format="csr")
        wanted = sj.jit(BLOCKED[name], dynamic=False)(A, x)
        np.testing.assert_allclose(compiled(A, x).todense(), wanted.todense(), atol=1e-12)


def test_an_argument_in_blocks_has_numbers_as_extents():
    rng = np.random.default_rng(1)
    compiled = sj.jit(lambda A, x: A @ x, dynamic={"A": ("n", "m"), "x": ("m",)})
    for n, m in ((4, 6), (5, 9), (3, 3), (11, 5)):
        dense, x = rng.standard_normal((n, m)), rng.standard_normal(m)
        np.testing.assert_allclose(compiled(sj.array(dense, format="bsr:2x2"), x), dense @ x)


def test_never_dynamic():
    assert calls(lambda x: x * 2, [(5,), (6,), (7,)], dynamic=False) == [1, 1, 1]


def test_named_extents_are_symbols_from_the_first_call_on():
    assert calls(lambda A, x: A @ x, [[(5, 3), (3,)], [(6, 4), (4,)]], dynamic={"A": ("n", "m"), "x": ("m",)}) == [1, 0]


@pytest.mark.parametrize(
    "dynamic, message",
    [
        ({"B": ("n",)}, "dynamic names 'B', which is not a parameter"),
        ({"A": ("n",)}, "dynamic names 1 axes of 'A', which has 2"),
        ({"A": ("n m", None)}, "must hold names"),
    ],
)
def test_names_that_do_not_fit(dynamic, message):
    with pytest.raises(ValueError, match=message):
        sj.jit(lambda A: A, dynamic=dynamic)(np.ones((2, 2)))


def test_numbers_among_dynamic_names():
    f = sj.jit(lambda A: A.sum(axis=1), dynamic={"A": ("n", 4)})
    for n in (5, 6, 9):
        np.testing.assert_array_equal(f(np.ones((n, 4))).todense(), np.full(n, 4.0))
    for extents in [(5, 3), (7, 6)]:
        with pytest.raises(ValueError, match=r"axis 1 of 'A' has extent ., not 4"):
            f(np.ones(extents))
    assert calls(lambda A: A * 2, [(5, 4), (6, 4), (7, 4)], dynamic={"A": ("n", 4)}) == [1, 0, 0]


def test_dynamic_of_another_kind():
    with pytest.raises(TypeError, match="dynamic=3"):
        sj.jit(lambda A: A, dynamic=3)


def test_types_that_name_extents():
    A, x = sj.ShapeDtypeStruct(("n", "m"), "f4", format="csr"), sj.ShapeDtypeStruct(("m",), "f4")
    assert "f32[n:d,m:c]" in str(sj.make_jaxpr(lambda A, x: A @ x / A.shape[0])(A, x))
    assert str(sj.eval_shape(lambda A: snp.concatenate([A, A[1:]]), A).shape) == "(2*n - 1, m)"
    assert "f32[m:d]" in str(sj.make_jaxpr(sj.grad(lambda x, A: (A @ x).sum()))(x, A))
    assert "f32[n:d]" in str(sj.make_jaxpr(sj.vmap(lambda a, x: a @ x, in_axes=(0, None)))(A, x))
    with pytest.raises(ValueError, match="n is not m"):
        sj.eval_shape(lambda A, x: A.T @ x, A, x)
    lowered = sj.jit(lambda A, x: sj.lax.fori_loop(0, 3, lambda k, y: y + A @ x, A @ x)).lower(A, x)
    assert "f32[n:d] = scan[length=3" in lowered.as_text("jaxpr")
    with pytest.raises(ValueError, match="plans depend on data"):
        lowered.compile()
    with pytest.raises(ValueError, match="lower with arrays"):
        lowered.as_text("plan")
    with pytest.raises(ValueError, match="costs depend on the data"):
        lowered.cost_analysis()
    with pytest.raises(ValueError, match="must be a name"):
        sj.ShapeDtypeStruct(("n + 1",), "f4")


def test_errors_are_those_of_the_shapes_at_hand():
    compiled = sj.jit(lambda A, x: A @ x)
    for n in (4, 5, 6):
        compiled(np.ones((n, 3)), np.ones(3))
    with pytest.raises(ValueError, match="differ"):
        compiled(np.ones((7, 3)), np.ones(4))
    assert compiled(np.ones((8, 3)), np.ones(3)).shape == (8,)


def test_the_line_that_needs_an_extent_is_told(caplog):
    def program(A):
        return A * len([0] * A.shape[1])

    sj.config.update("explain_cache_misses", True)
    try:
        with caplog.at_level(logging.WARNING):
            compiled = sj.jit(program)
            for n in (3, 4):
                compiled(np.ones((n, n + 1)))
    finally:
        sj.config.update("explain_cache_misses", False)
    told = caplog.records[-1].message
    assert "axis 0 of argument 0 = n0" in told
    assert "axis 1 of argument 0 is needed itself at" in told and "test_extents.py" in told


def test_large_extents_keep_their_coordinates():
    compiled = sj.jit(lambda A: A * 2)
    for n in (2**31 - 1, 2**31 - 2, 2**31 - 5, 2**31 + 5, 2**33):
        A = sj.array((np.array([1.0, 2.0]), np.array([[0, 1], [3, n - 1]])), shape=(5, n), format="csr")
        got = compiled(A)
        assert got[1, n - 1].todense() == 4.0
        assert got.storage.buffers[1][1].dtype == (np.int32 if n < 2**31 else np.int64)


def test_extents_do_not_leave_their_trace():
    kept = []

    def program(x):
        kept.append(x.shape[0])
        return x

    compiled = sj.jit(program)
    for n in (4, 5):
        compiled(np.ones(n))
    assert int(kept[-1]) == 5
    with pytest.raises(TypeError, match="being traced"):
        import pickle

        pickle.dumps(kept[-1])


SMALL = {
    "times": lambda m, x: x.shape[0] * x,
    "less": lambda m, x: x.shape[0] - x,
    "negative": lambda m, x: x + (-x.shape[0]),
    "product": lambda m, x: x + x.shape[0] * x.shape[0],
    "modulo": lambda m, x: x % x.shape[0],
    "and": lambda m, x: x & x.shape[0],
    "maximum": lambda m, x: m.maximum(x, x.shape[0]),
    "clip": lambda m, x: m.clip(x, -x.shape[0], x.shape[0]),
    "full": lambda m, x: m.full_like(x, x.shape[0]),
    "where": lambda m, x: m.where(x > 1, x, x.shape[0]),
    "insert": lambda m, x: m.insert(x, 0, x.shape[0]),
    "compared": lambda m, x: x < x.shape[0],
    "divided": lambda m, x: x / x.shape[0],
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("name", SMALL)
def test_extents_that_small_integers_cannot_hold(name, dtype):
    """NumPy's results, or its OverflowError, whatever shapes came before."""
    ours = sj.jit(lambda x: SMALL[name](snp, x))
    for n in (5, 6, 90, 200, 300, 40_000):
        x = (np.arange(n) % 50).astype(dtype)
        for given in (sj.array(x), sj.array(x, format="coo")):
            try:
                want = SMALL[name](np, x)
            except OverflowError:
                with pytest.raises(OverflowError, match="out of bounds for"):
                    ours(given)
            else:
                np.testing.assert_array_equal(ours(given).todense(), want)


def test_numbers_that_do_not_fit_are_refused():
    x = np.ones(2, np.int8)
    for call in (lambda m: m.insert(x, 0, 200), lambda m: m.pad(x, 1, constant_values=200)):
        for module in (np, snp):
            with pytest.raises(OverflowError):
                call(module)
    made = sj.jit(lambda x: x.at[0].set(x.shape[0]))
    for n in (5, 6):
        assert made(np.ones(n, np.int8)).todense()[0] == n
    with pytest.raises(OverflowError):
        made(np.ones(200, np.int8))


ANSWERED = {
    "even": (lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3, 4),
    "a quotient": (lambda x: x[: x.shape[0] // 2] * 2 if x.shape[0] // 16 == 1 else x * 3, 4),
    "halves": (lambda x: snp.split(x, 2)[1] if not x.shape[0] % 2 else x, 4),
    "a remainder as an extent": (lambda x: snp.zeros(x.shape[0] % 3) + 2 if x.shape[0] % 3 == 1 else x, 4),
    "rows as many as a remainder": (
        lambda x: snp.zeros((x.shape[0] % 3, 4)) + snp.ones((x.shape[0], 4)) if x.shape[0] % 3 == 1 else x,
        4,
    ),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_a_question_about_a_remainder_is_a_guard(name):
    """Where the remainder is an extent as well, shapes were told by the answer: the trace serves those with that remainder."""
    function, most = ANSWERED[name]
    run = Traced(function)
    for n in (7, 12, 9, 10, 30, 17, 28, 31, 40, 16, 22, 19, 13, 25, 2, 3, 1, 0):
        x = sj.array(np.arange(n) + 1.0)
        np.testing.assert_array_equal(run(x).todense(), function(x).todense())
        if n == 25:
            assert run.traces <= most
