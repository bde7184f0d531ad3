"""Donated arguments: results take their memory where nobody else can see it, and never any other."""

import copy
import pickle
import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.backend import host
from sparsejax.jit.runtime.system import result_memory

pytestmark = pytest.mark.rotating(16)

N = 1000
SIZES = [N, 3 * result_memory.SMALLEST // 16]
reused = pytest.mark.skipif(not host.has("recycling"), reason="memory of arguments is not used again here")


def fresh(n=N, dtype="f8", seed=0, shape=None):
    """An array that a kernel has made, and its values."""
    x = (np.random.default_rng(seed).random(n) * 8).astype(dtype)
    if shape is not None:
        x = x.reshape(shape)
    return sj.array(x, copy=True) + np.dtype(dtype).type(1), x + np.dtype(dtype).type(1)


def address(array):
    return array._storage.vals.__array_interface__["data"][0]


def step(x, y):
    return x - 2 * y


@reused
@pytest.mark.parametrize("n", SIZES)
def test_an_elementwise_result_takes_the_place_of_its_operand(n):
    f = sj.jit(step, donate_argnums=0)
    x, expected = fresh(n)
    y = sj.array(np.ones(n), copy=True)
    for _ in range(3):
        place = address(x)
        x, expected = f(x, y), expected - 2
        assert address(x) == place
        np.testing.assert_array_equal(x.todense(), expected)


@pytest.mark.parametrize("n", SIZES)
def test_a_product_is_written_where_an_operand_was_that_is_not_read_any_more(n):
    f = sj.jit(lambda A, x, y: A @ (x * y), donate_argnums=1)
    A = sj.array(np.full((1, n), 1.0), format="csc", copy=True)
    B = sj.array((np.arange(n), np.arange(n)[None].repeat(2, 0)), shape=(n, n), format="csr")
    x, values = fresh(n)
    place = address(x)
    assert f(A, x, 2.0).todense() == pytest.approx(2 * values.sum())
    x, values = fresh(n)
    place = address(x)
    made = f(B, x, 2.0)
    np.testing.assert_allclose(made.todense(), 2 * values * np.arange(n))
    assert place != address(made) or n  # x * y may have taken it instead
    assert x.is_deleted()


def test_what_a_kernel_reads_elsewhere_is_not_overwritten():
    f = sj.jit(lambda A, x: A @ x, donate_argnums=1)
    rng = np.random.default_rng(0)
    a = rng.random((N, N))
    x, values = fresh()
    place = address(x)
    made = f(sj.array(a, format="csr", copy=True), x)
    assert address(made) != place
    np.testing.assert_allclose(made.todense(), a @ values)


@reused
def test_the_next_kernel_may_overwrite_it():
    def f(A, x):
        y = A @ x  # reads x, into memory of its own
        return snp.where(y > 0, A @ y, 1)  # x is not read any more

    a = np.random.default_rng(0).random((N, N)) - 0.5
    A = sj.array(a, format="csr", copy=True)
    x, values = fresh()
    place = address(x)
    made = sj.jit(f, donate_argnums=1)(A, x)
    y = a @ values
    np.testing.assert_allclose(made.todense(), np.where(y > 0, a @ y, 1))
    assert address(made) == place


def test_donated_arrays_are_deleted():
    x, _ = fresh()
    sj.jit(step, donate_argnums=(0,))(x, 1.0)
    assert x.is_deleted() and x.shape == (N,) and x.dtype == np.float64
    for use in (
        lambda: x + 1,
        lambda: x.todense(),
        lambda: np.asarray(x),
        lambda: x.nnz,
        lambda: x.storage,
        lambda: repr(x),
        lambda: sj.jit(lambda x: 2 * x)(x),
        lambda: sj.jit(step, donate_argnums=0)(x, 1.0),
        lambda: sj.grad(lambda x: (x * x).sum())(x),
        lambda: copy.deepcopy(x),
        lambda: pickle.dumps(x),
        lambda: x[0],
    ):
        with pytest.raises(RuntimeError, match="donated"):
            use()


HOLDERS = {
    "a transpose": lambda x: x.reshape(4, -1).T,
    "a reshaped array": lambda x: x.reshape(1, -1),
    "a part": lambda x: x[2:],
    "a NumPy array": lambda x: x.todense(),
    "a part of a NumPy array": lambda x: x.todense()[3:][::2],
    "its storage": lambda x: x.storage,
    "the values": lambda x: x.storage.vals,
    "a buffer": lambda x: memoryview(x.todense()),
    "the same through jit": lambda x: sj.jit(lambda x: x)(x),
    "its own storage": lambda x: x._storage,
    "its own values": lambda x: x._storage.vals,
    "a view of its own values": lambda x: x._storage.vals[1:],
    "a copy of the object": lambda x: copy.copy(x),
}


def seen(held):
    """The numbers that somebody sees who holds this."""
    if isinstance(held, sj.Array):
        return held.todense()
    return held.vals if hasattr(held, "vals") else np.asarray(held if held is not None else 0)


@reused
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("holder", HOLDERS)
def test_memory_that_somebody_else_looks_at_is_not_written(holder, n):
    x, values = fresh(n)
    held, place = HOLDERS[holder](x), address(x)
    if isinstance(held, sj.Array) and address(held) not in range(place, place + 8 * n):
        held = None  # a copy: nothing is shared
    before = np.array(seen(held))
    made = sj.jit(step, donate_argnums=0)(x, 1.0)
    assert (address(made) == place) == (held is None)
    np.testing.assert_array_equal(seen(held), before)
    np.testing.assert_array_equal(made.todense(), values - 2)


def test_borrowed_memory_is_not_written():
    source = np.arange(float(N))
    for given in (sj.array(source), sj.array(source, copy=True), source.copy()):
        made = sj.jit(step, donate_argnums=0)(given, 1.0)
        np.testing.assert_array_equal(made.todense(), np.arange(N) - 2)
        np.testing.assert_array_equal(source, np.arange(N))
    given = np.arange(float(N))
    sj.jit(step, donate_argnums=0)(given, 1.0)
    np.testing.assert_array_equal(given, np.arange(N))  # NumPy arrays stay the caller's
    given += 1


@pytest.mark.parametrize("n", SIZES)
def test_arrays_over_the_memory_of_others_do_not_give_it_away(n):
    for over in (lambda x: sj.array(x.storage), lambda x: sj.Array(x.storage), lambda x: sj.array(x.todense())):
        x, values = fresh(n)
        made = sj.jit(step, donate_argnums=0)(over(x), 1.0)
        np.testing.assert_array_equal(made.todense(), values - 2)
        np.testing.assert_array_equal(x.todense(), values)


def test_one_array_twice_and_constants():
    x, values = fresh()
    made = sj.jit(lambda x, y: (x + 1, x * y), donate_argnums=0)(x, x)
    np.testing.assert_array_equal(made[0].todense(), values + 1)
    np.testing.assert_array_equal(made[1].todense(), values * values)
    x, values = fresh()
    f = sj.jit(lambda y: (y + 1, x * y), donate_argnums=0)
    made = f(x)
    np.testing.assert_array_equal(made[1].todense(), values * values)


def test_results_that_are_operands():
    x, values = fresh()
    same, other = sj.jit(lambda x: (x, x + 1), donate_argnums=0)(x)
    assert x.is_deleted() and not same.is_deleted()
    np.testing.assert_array_equal(same.todense(), values)
    np.testing.assert_array_equal(other.todense(), values + 1)
    x, values = fresh(shape=(25, 40))
    turned, other = sj.jit(lambda x: (x.T, x + 1), donate_argnums=0)(x)
    np.testing.assert_array_equal(turned.todense(), values.T)
    np.testing.assert_array_equal(other.todense(), values + 1)


def test_other_dtypes_and_sizes_take_no_memory_but_are_deleted():
    x, values = fresh(dtype="f4")
    made = sj.jit(lambda x: x.astype("f8") + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(made.todense(), values.astype("f8") + 1)
    assert x.is_deleted()
    x, values = fresh()
    total = sj.jit(lambda x: x.sum(), donate_argnums=0)(x)
    assert x.is_deleted() and float(total) == pytest.approx(values.sum())


def test_pytrees_and_sparse_arrays():
    (w, ws), (b, bs) = fresh(seed=1), fresh(seed=2)
    A = sj.array(np.eye(N), format="csr", copy=True)
    f = sj.jit(lambda A, p: {k: A @ v + v for k, v in p.items()}, donate_argnums=(0, 1))
    made = f(A, {"w": w, "b": b})
    np.testing.assert_allclose(made["w"].todense(), 2 * ws)
    np.testing.assert_allclose(made["b"].todense(), 2 * bs)
    assert A.is_deleted() and w.is_deleted() and b.is_deleted()


def test_inside_other_functions_nothing_is_donated():
    f = sj.jit(step, donate_argnums=0)
    x, values = fresh()
    np.testing.assert_array_equal(sj.jit(lambda x: f(x, 1.0) + x)(x).todense(), 2 * values - 2)
    np.testing.assert_array_equal(sj.grad(lambda x: f(x, 1.0).sum())(x).todense(), np.ones(N))
    assert not x.is_deleted()


def test_wrong_numbers():
    with pytest.raises(ValueError, match="donate_argnums names argument 5"):
        sj.jit(step, donate_argnums=5)
    with pytest.raises(TypeError, match="donate_argnums"):
        sj.jit(step, donate_argnums="x")
    with pytest.raises(ValueError, match="both static and donated"):
        sj.jit(step, donate_argnums=1, static_argnums=1)
    x, _ = fresh()
    sj.jit(lambda n, x: n * x, static_argnums=0, donate_argnums=-1)(3, x)
    assert x.is_deleted()
    g = pickle.loads(pickle.dumps(sj.jit(lambda x: x + 1, donate_argnums=0)))
    x, _ = fresh()
    g(x)
    assert x.is_deleted()


OPERATIONS = [
    lambda A, x, y: x + y,
    lambda A, x, y: A @ x,
    lambda A, x, y: x * x.sum(),
    lambda A, x, y: x[::-1] + y,
    lambda A, x, y: snp.where(x > y, x, y),
    lambda A, x, y: (A * x).sum(axis=0),
    lambda A, x, y: A.T @ y - x,
    lambda A, x, y: x.reshape(2, -1).T.reshape(-1) + x,
]


def test_random_programs_with_donation_equal_those_without():
    a = np.random.default_rng(0).random((N, N)) * (np.random.default_rng(1).random((N, N)) < 0.05)
    A = sj.array(a, format="csr", copy=True)
    taken = 0
    for seed in range(20):
        rng = random.Random(seed)
        chosen = [(rng.choice(OPERATIONS), rng.random() < 0.5) for _ in range(rng.randint(1, 4))]
        results = rng.randint(1, 2)

        def program(A, x, y, chosen=chosen, results=results):
            for operation, first in chosen:
                z = operation(A, x, y)
                x, y = (z, y) if first else (x, z)
            return (x, y)[:results]

        donated = rng.choice([(1,), (2,), (1, 2)])
        plain = sj.jit(program)(A, *(fresh(seed=k)[0] for k in (1, 2)))
        x, y = (fresh(seed=k)[0] for k in (1, 2))
        places = {address(v) for v in (x, y)}
        made = sj.jit(program, donate_argnums=donated)(A, x, y)
        taken += any(address(m) in places for m in made)
        for one, other in zip(made, plain, strict=True):
            np.testing.assert_array_equal(one.todense(), other.todense())
    assert taken > 2


@reused
def test_compiled_ahead_of_time_it_is_given_up_too():
    x, expected = fresh()
    y = sj.array(np.ones(N), copy=True)
    f = sj.jit(step, donate_argnums=0).lower(x, y).compile()
    place = address(x)
    for k in range(2):
        made = f(x, y)
        assert x.is_deleted() and address(made) == place, k
        expected = expected - 2
        np.testing.assert_array_equal(made.todense(), expected)
        x = made
    kept = f(sj.array(np.zeros(N), copy=True), y)
    np.testing.assert_array_equal(kept.todense(), np.full(N, -2.0))
    assert not y.is_deleted()
    both = sj.jit(lambda a, b: a + b, donate_argnums=(0, 1))
    types = sj.ShapeDtypeStruct((N,), np.float64), sj.ShapeDtypeStruct((N,), np.float64)
    x, values = fresh()
    np.testing.assert_array_equal(both.lower(*types).compile()(x, x).todense(), 2 * values)
    assert x.is_deleted()
    alike = both.lower(types[0], types[0]).compile()  # one type for two arguments
    (x, values), (z, others) = fresh(), fresh(seed=1)
    np.testing.assert_array_equal(alike(x, z).todense(), values + others)
    assert x.is_deleted() and z.is_deleted()


def test_arguments_that_are_given_by_name_are_donated():
    f = sj.jit(lambda x, y, scale=1.0: x * scale - y, donate_argnums=0)
    for given in ({"x": 0, "y": 1}, {"y": 1, "x": 0}, {"scale": 2.0, "x": 0, "y": 1}):
        operands = fresh()[0], fresh()[0]
        values = operands[0].todense().copy(), operands[1].todense().copy()
        made = f(**{name: operands[k] if name != "scale" else k for name, k in given.items()})
        np.testing.assert_array_equal(made.todense(), values[0] * given.get("scale", 1.0) - values[1])
        assert operands[0].is_deleted() and not operands[1].is_deleted()
    x, y = fresh()[0], fresh()[0]
    f(x, y=y)
    assert x.is_deleted() and not y.is_deleted()
    static = sj.jit(lambda k, x: x * k, static_argnames="k", donate_argnums=1)
    x, values = fresh()
    np.testing.assert_array_equal(static(x=x, k=3).todense(), values * 3)
    assert x.is_deleted()
