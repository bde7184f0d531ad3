"""Dense results of which every element is assigned: not cleared, and complete; and which these are."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.formats import validate
from sparsejax.jit.runtime.system import result_memory
from tests import poison
from tests.fuzz import engine


@pytest.fixture(autouse=True)
def quick():
    with engine.quick():
        yield


def sparse(rng, shape):
    made = rng.random(shape) * (rng.random(shape) < 0.4)
    made[0] = made[-1] = made[len(made) // 2] = 0  # empty rows
    return made


CASES = [
    ("ij,j->i", ["csr"], True),
    ("ij,jk->ik", ["csr"], True),
    ("ij,jk->ik", ["ell"], True),
    ("ij,jk->ik", ["groupcoo:4"], True),
    ("ij,jkb->ikb", ["csr"], True),
    ("bij,jk->bik", ["(d,d,c)"], True),
    ("ij,jk,kl->il", ["csr"], True),
    ("ij,ij->i", ["csr", "csr"], True),
    ("ij,j->i", ["csc"], False),
    ("ij,j->i", ["dcsr"], False),
    ("ij,j->i", ["coo"], False),
    ("ij,jk->ik", ["bsr:2x3"], True),
    ("ij,jk->ik", ["csr", "csr"], False),
    ("ij,ik->ijk", ["csr"], False),
    ("ii->i", ["csr"], False),
]


@pytest.mark.parametrize("work", [0, 1 << 16])
@pytest.mark.parametrize(("subscripts", "formats", "whole"), CASES)
def test_what_is_assigned_needs_no_clearing(planned, subscripts, formats, whole, work):
    rng, extents = np.random.default_rng(0), {"i": 9, "j": 9, "k": 11, "l": 5, "b": 4}
    terms = subscripts.split("->")[0].split(",")
    dense = [rng.random([extents[c] for c in term]) for term in terms]
    for number in range(len(formats)):
        dense[number] = sparse(rng, dense[number].shape)
    arrays = [sj.array(x, format=f, copy=True) for x, f in zip(dense, [*formats, *["dense"] * 3], strict=False)]
    with config.using(parallel_work=work):
        result = sj.einsum(subscripts, *arrays, out_format="dense")
    np.testing.assert_allclose(result.todense(), np.einsum(subscripts, *dense))
    assert planned[-1].whole == whole


@pytest.mark.parametrize("rows", [3, 4000])
def test_functions_of_a_reduction_are_assigned(planned, rows):
    A = sparse(np.random.default_rng(1), (rows, 7))
    x = np.random.default_rng(2).random((7, 5))
    result = sj.jit(lambda A, x: sj.numpy.exp(A @ x) / 2)(sj.array(A, format="csr", copy=True), x)
    np.testing.assert_allclose(result.todense(), np.exp(A @ x) / 2)
    assert [p.whole for p in planned] == [True]


@pytest.mark.parametrize(("semiring", "add", "times"), [("min_plus", "min", "add"), ("max_times", "max", "multiply")])
def test_rows_without_entries_hold_the_zero_of_the_semiring(semiring, add, times):
    dense, x = sparse(np.random.default_rng(3), (9, 9)), np.random.default_rng(4).random((9, 3))
    A = sj.array(dense, format="csr", copy=True)
    zero = np.inf if add == "min" else -np.inf
    result = sj.einsum("ij,jk->ik", A, x, semiring=semiring)
    products = getattr(np, times)(dense[:, :, None], x[None])
    stored = np.where(dense[:, :, None] != 0, products, zero)
    np.testing.assert_allclose(result.todense(), getattr(stored, add)(axis=1))


def test_memory_that_is_not_cleared_is_poisoned():
    made, _ = result_memory.aligned(100, np.dtype("f8"), None)
    assert (made > 1e300).all()
    assert made.view(np.uint8)[0] == poison.POISON


@pytest.mark.parametrize(("extent", "whole"), [(4, False), (6, True)])
def test_blocks_that_stick_out_are_cleared(planned, extent, whole):
    """No loop visits what lies outside the shape, which holds the fill."""
    x = np.arange(1.0, extent + 1)
    made = sj.jit(lambda x: sj.einsum("i,i->i", x, x, out_format="(d,d)@(0,0)/(3)", semiring="max_plus"))(x)
    validate.validate(made.storage)
    np.testing.assert_array_equal(made.todense(), 2 * x)
    assert planned[-1].whole == whole
