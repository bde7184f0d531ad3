"""Operands that are copied where they do not begin with a line of the cache: which ones, and that results are the same wherever they begin."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime.system import result_memory
from tests.fuzz import engine

COPIED = "is copied where it does not begin with a line"


def begun(array, behind):
    """The same array in memory that begins so many bytes behind a line."""
    array = np.ascontiguousarray(array)
    room = np.empty(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + behind
    made = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def matrix(n, each, dtype="f8"):
    return sj.asarray(
        sp.random_array((n, n), density=each / n, format="csr", rng=np.random.default_rng(1), dtype=dtype)
    )


@pytest.mark.parametrize(
    ("n", "each", "columns", "machine", "copies"),
    [
        (1000, 95, 32, "granite_rapids", True),
        (500, 95, 32, "granite_rapids", True),
        (4000, 30, 32, "granite_rapids", True),
        (1000, 95, 33, "granite_rapids", False),  # rows begin anywhere
        (2708, 2, 32, "granite_rapids", False),  # it is read twice
        (1000, 10, 128, "granite_rapids", False),  # a copy takes what the kernel finds in the caches
        (30_000, 10, 64, "granite_rapids", False),  # the second cache does not hold it
        (1000, 95, 32, "zen3", False),  # what that costs is not known there
    ],
)
def test_operands_that_are_read_again_from_the_second_cache_are_copied(n, each, columns, machine, copies):
    with sj.config.using(machine=machine):
        text = str(sj.explain(lambda A, B: A @ B)(matrix(n, each), begun(np.ones((n, columns)), 16)))
    assert (f"B {COPIED}" in text) == copies, text


@pytest.mark.parametrize("each, copies", [(4, False), (95, True)])
def test_operands_are_read_as_often_as_the_loops_run_that_statements_share(each, copies):
    """The product alone would read all of V for every row of U."""
    U = begun(np.ones((1000, 32)), 16)
    with sj.config.using(machine="granite_rapids", choose="fusion=together"):
        text = str(
            sj.explain(lambda A, U, V: snp.sum(A * snp.exp(U @ V.T), axis=1))(matrix(1000, each), U, begun(U, 16))
        )
    assert "fused" in text and (f"C {COPIED}" in text) == copies, text


def test_views_of_operands_are_copied():
    """A library call makes a view of V, which begins where V does."""
    U = begun(np.ones((1000, 32)), 16)
    with sj.config.using(machine="granite_rapids"):
        text = str(sj.explain(lambda A, U, V: A * (U @ V.T))(matrix(1000, 95), U, begun(U, 16)))
    assert f"C {COPIED}" in text, text


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c16"])
@pytest.mark.parametrize("form", ["csr", "csc", "bsr:2x2", "coo", "dense"])
def test_results_do_not_depend_on_where_operands_begin(form, dtype):
    rng = np.random.default_rng([len(form), ord(dtype[0])])
    left = (rng.integers(-3, 4, (20, 30)) * (rng.random((20, 30)) < 0.4)).astype(dtype)
    right, W = rng.integers(-3, 4, (30, 16)).astype(dtype), rng.integers(-3, 4, (16, 16)).astype(dtype)
    A = sj.array(left, format=form)
    with engine.quick(), sj.config.using(choose="line_starts=copied"):
        product, layer = sj.jit(lambda A, B: A @ B), sj.jit(lambda A, B, W: snp.abs((A @ B) @ W))
        choices.TAKEN.clear()
        for behind in (0, 16, 40, 0, 8):
            given = begun(right, behind)
            kept = given.copy()
            np.testing.assert_array_equal(product(A, given).todense(), left @ right)
            np.testing.assert_array_equal(layer(A, given, begun(W, behind)).todense(), np.abs(left @ right @ W))
            np.testing.assert_array_equal(given, kept)
        assert choices.TAKEN["line_starts", "copied"] or form == "dense"


def test_an_operand_that_changes_between_calls_is_read_anew():
    A, given = matrix(40, 10), begun(np.ones((40, 16)), 16)
    with engine.quick(), sj.config.using(choose="line_starts=copied"):
        product = sj.jit(lambda A, B: A @ B)
        for k in range(4):
            given[:] = k
            np.testing.assert_allclose(product(A, given).todense(), A.todense() @ given)


@pytest.mark.parametrize("count", [0, 3, 40_000])
@pytest.mark.parametrize("behind", [0, 8, 16])
def test_copies_begin_with_a_line(count, behind):
    given = begun(np.arange(float(count)), behind)
    made = result_memory.from_line(given)
    np.testing.assert_array_equal(made, given)
    assert made is given if behind == 0 or not count else result_memory.address_of(made) % 64 == 0
    assert made is given or not made.flags.writeable
