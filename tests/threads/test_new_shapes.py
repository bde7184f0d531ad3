"""Shapes that were never seen, by several threads at once: results are kept, and no memory of theirs is given out twice."""

import multiprocessing
import threading

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from tests.together import in_threads

DTYPES = ["f8", "f4", "i8", "c16"]
PROGRAMS = {
    "A @ x": lambda A, x: A @ x,
    "sum": lambda A, x: A.sum(axis=1),
    "x + x": lambda A, x: x + x,
    "A * 2": lambda A, x: A * 2,
    "x * 1.5": lambda A, x: x * 1.5,
}
jitted = {name: sj.jit(function) for name, function in PROGRAMS.items()}


def check(seed, calls):
    """Call programs on operands of random shapes, formats, dtypes and counts, some of them again, and compare all results at the end."""
    rng, kept = np.random.default_rng(seed), []
    for _ in range(calls):
        name = list(PROGRAMS)[rng.integers(len(PROGRAMS))]
        dtype = DTYPES[rng.integers(len(DTYPES))]
        n, m = (int(k) for k in rng.integers(1, 90, 2)) if rng.random() < 0.8 else (30, 40)
        entries = sp.random_array((n, m), density=float(rng.random()) ** 3, rng=rng)
        matrix = sp.csr_array((np.ceil(9 * entries.data).astype(dtype), entries.coords), shape=(n, m))
        x = rng.integers(1, 9, m).astype(dtype)
        A = sj.array(matrix).asformat(["csr", "csc", "coo", "bsr:2x2"][rng.integers(4)])
        y = sj.array(x) if rng.random() < 0.7 else x
        function = jitted[name] if rng.random() < 0.5 else PROGRAMS[name]
        for _ in range(int(rng.integers(1, 4))):
            kept.append((name, function(A, y), PROGRAMS[name](matrix, x)))
    for name, made, expected in kept:
        made = made if isinstance(made, np.ndarray) else made.todense()
        expected = expected.toarray() if sp.issparse(expected) else np.asarray(expected)
        np.testing.assert_allclose(made, expected, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_call_new_shapes_at_once(threads):
    in_threads(threads, lambda k: check(10 * threads + k, 120))


def test_children_call_new_shapes_beside_a_thread_of_the_parent():
    done = threading.Event()

    def busy():
        seed = 100
        while not done.is_set():
            check(seed, 10)
            seed += 1

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        context = multiprocessing.get_context("fork")
        for seed in range(4):
            child = context.Process(target=check, args=(200 + seed, 30))
            child.start()
            child.join(120)
            assert child.exitcode == 0
    finally:
        done.set()
        thread.join()
