"""Donated dense arrays beside sparse ones: every result is what it is where nothing is donated, wherever it is written."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.jit.runtime.system import result_memory
from tests.fuzz import engine
from tests.runtime.test_donation import address

pytestmark = pytest.mark.rotating(16)

SHAPES = [
    (),
    (1,),
    (3,),
    (result_memory.TINY // 8 + 1,),
    (result_memory.RETURNED // 8 + 7,),
    (40_000,),
    (30, 40),
    (3, 30, 20),
]
VECTORS = ("coo", "(c)", "(b)", "(h)", "(r)", "(s)")
MATRICES = (
    "csr",
    "csc",
    "coo",
    "dcsr",
    "ell",
    "groupcoo:2",
    "dia",
    "banded",
    "bitmap",
    "hash",
    "rle",
    "bsr:4x8",
    "bsr:2x3",
    "dcsc",
)
TENSORS = ("coo", "csf", "(c,d,c)", "(d,c,d)")
PROGRAMS = {
    "step": lambda x, A, B, y: x - 0.1 * A,
    "step and back": lambda x, A, B, y: A - x,
    "sum": lambda x, A, B, y: A + x,
    "twice": lambda x, A, B, y: x + x * A,
    "doubled": lambda x, A, B, y: 2 * x - A,
    "product": lambda x, A, B, y: x * A + 1,
    "larger": lambda x, A, B, y: snp.maximum(x, A),
    "chosen": lambda x, A, B, y: snp.where(A > 0, x, y),
    "chosen the other way": lambda x, A, B, y: snp.where(A > 0, y, x),
    "two": lambda x, A, B, y: x - A - B,
    "two alike": lambda x, A, B, y: x - A * B,
    "four": lambda x, A, B, y: x - A - B - A.T.T * 2 - B * A,
    "with a vector": lambda x, A, B, y: x - A * y,
    "normalised": lambda x, A, B, y: x / (1 + snp.sum(x * x)) - A,
    "rows normalised": lambda x, A, B, y: (x - A) / (1 + snp.sum(x, axis=-1, keepdims=True)) if x.ndim else x,
    "moments": lambda x, A, B, y: (0.9 * x + A, x - A),
    "turned": lambda x, A, B, y: x.T.reshape(x.shape) - A,
    "two steps": lambda x, A, B, y: (x - A) * 2 - B,
}


def sparse(rng, shape, form, fill, dtype):
    dense = np.full(shape, fill, dtype)
    stored = rng.random(shape) < rng.choice([0, 0.1, 0.5])
    dense[stored] = rng.integers(1, 5, int(stored.sum()))
    return sj.array(dense, format=form, fill_value=fill)


def fresh(rng, shape, dtype):
    """A dense array that a kernel has made."""
    return sj.array(rng.integers(-4, 5, shape).astype(dtype), copy=True) + np.dtype(dtype).type(1)


def operands(shape, form, fill, dtype, seed):
    rng = np.random.default_rng(seed)
    A, B = (sparse(rng, shape, form, fill, dtype) for _ in range(2))
    return fresh(rng, shape, dtype), A, B, fresh(rng, shape, dtype)


def differs(name, shape, form, fill, dtype, donated):
    """What is wrong with a program that is given arrays; None where nothing is."""
    program = PROGRAMS[name]
    plain = sj.tree_util.tree_leaves(sj.jit(program)(*operands(shape, form, fill, dtype, 0)))
    args = operands(shape, form, fill, dtype, 0)
    places = [address(a) for a in args]
    made = sj.tree_util.tree_leaves(sj.jit(program, donate_argnums=donated)(*args))
    for k, (one, other) in enumerate(zip(made, plain, strict=True)):
        if not np.array_equal(one.todense(), other.todense(), equal_nan=True):
            taken = [n for n in donated if places[n] == address(one)]
            return f"{name} of {dtype}{list(shape)} {form} fill {fill}: result {k} differs, taken {taken}"
    return None


def cases():
    for shape in SHAPES:
        forms = {0: ("dense",), 1: VECTORS, 2: MATRICES, 3: TENSORS}[len(shape)]
        yield from itertools.product([shape], forms, PROGRAMS)


@pytest.mark.parametrize("turn", range(6))
def test_programs_with_donation_equal_those_without(turn):
    """Of every shape some formats with some programs; together all programs with most formats (`test_all_programs`)."""
    every = list(cases())
    with engine.quick():
        faults = [
            differs(name, shape, form, 0, ("f8", "f8", "f4", "i8", "c16")[k % 5], ((0,), (0, 3))[k % 2])
            for k, (shape, form, name) in enumerate(every[turn::71])
        ]
    assert not any(faults), "\n".join(filter(None, faults))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16"])
@pytest.mark.parametrize("fill", [0, 1])
def test_all_programs(dtype, fill):
    faults = [
        differs(name, shape, form, fill, dtype, (0, 3))
        for shape, form, name in cases()
        if not (form == "dense" and fill)
    ]
    assert not any(faults), "\n".join(filter(None, faults))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "ell", "groupcoo:2", "bitmap", "bsr:4x8", "hash"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_along_a_sparse_gradient_stands_where_the_weights_were(form, threads):
    """What the kernel writes where the gradient stores nothing is what is there."""
    before = config.num_threads(), config.parallel_work()
    config.update("num_threads", threads)
    config.update("parallel_work", 0)
    try:
        x, A, _, _ = operands((60, 80), form, 0, "f8", 1)
        want, place, step = (
            x.todense() - 0.5 * A.todense(),
            address(x),
            sj.jit(lambda x, A: x - 0.5 * A, donate_argnums=0),
        )
        for _ in range(3):
            x = step(x, A)
            np.testing.assert_array_equal(x.todense(), want)
            assert address(x) == place
            want = want - 0.5 * A.todense()
    finally:
        config.update("num_threads", before[0])
        config.update("parallel_work", before[1])


def test_a_step_along_a_product_stands_where_the_weights_were():
    """The product is kept in registers until all of an element is there."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((50, 60)) < 0.2, rng.integers(1, 5, (50, 60)), 0).astype(float)
    A, R = sj.array(dense, format="csr"), sj.array(rng.integers(-3, 4, (60, 16)).astype(float))
    W = fresh(rng, (50, 16), "f8")
    want, place = W.todense() - 0.5 * (dense @ R.todense()), address(W)
    made = sj.jit(lambda W, A, R: W - 0.5 * (A @ R), donate_argnums=0)(W, A, R)
    np.testing.assert_array_equal(made.todense(), want)
    assert address(made) == place


@pytest.mark.parametrize("rows", [40, 55, 61, 300, 500])
def test_arrays_in_the_memory_of_others_are_given_up_as_well(rows):
    """The first result of a shape has memory that another result had, which is kept to be used again: not once it is donated."""
    rng = np.random.default_rng(rows)
    step = sj.jit(lambda W, G: W - 2.0 * G, donate_argnums=0)
    for extra in range(6):
        G = sj.array(rng.integers(-3, 4, (rows + extra, 16)).astype(float))
        W = fresh(rng, G.shape, "f8")
        want, place = W.todense() - 2.0 * G.todense(), address(W)
        made = step(W, G)
        others = [fresh(rng, G.shape, "f8") for _ in range(10)]
        assert address(made) == place
        assert all(not np.shares_memory(made.todense(), x.todense()) for x in others)
        np.testing.assert_array_equal(made.todense(), want)


@pytest.mark.parametrize("name", ["doubled", "chosen", "rows normalised"])
def test_what_is_read_twice_is_not_overwritten(name):
    args = operands((60, 80), "csr", 0, "f8", 1)
    place = address(args[0])
    assert address(sj.jit(PROGRAMS[name], donate_argnums=0)(*args)) != place
