"""Outputs whose positions are those of an operand: against NumPy, on any number of threads, and when they must not be."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.formats import Format, validate
from sparsejax.formats.storage import Storage
from tests.fuzz import engine


@pytest.fixture(autouse=True)
def small_kernels_in_chunks():
    with config.using(parallel_work=0), engine.quick():
        yield


def sparse(rng, shape, holes=True):
    made = rng.random(shape) * (rng.random(shape) < 0.4)
    if holes:  # the first and the last slices are empty, and one between
        made[0] = made[-1] = made[len(made) // 2] = 0
    return made


MATRICES = ["csr", "csc", "coo", "dcsr", "(d,q)", "(q,q)@(1,0)", "bsr:2x3"]
TENSORS = ["csf", "coo", "(d,c,c)", "(c,c,c)@(1,0,2)", "(d,d,c)", "(c,q,q)", "(d,c,d)"]
CALLS = {
    "matrix": [
        ("ij,i,j->ij", ("csr", "csc", "coo", None)),
        ("ij,ik,jk->ij", ("csr", "csc", "coo", None)),
        ("ij,k->ijk", ("(d,c,d)", "(q,q,d)", None)),
        ("ij,ij->ij", (None, "coo")),
    ],
    "tensor": [
        ("ijk,kr->ijr", ("(d,c,d)", "(q,q,d)", "(c,c,d)", None)),
        ("ijk->ijk", ("coo", "csf", "(d,d,c)", None)),
        ("ijk->ij", ("csr", "coo", None)),
        ("ijk,i->ijk", ("coo", "(d,d,c)", None)),
    ],
}
EXTENTS = {"i": 7, "j": 9, "k": 5, "r": 11}


@pytest.mark.parametrize("kind", CALLS)
def test_values_and_bits(kind, planned):
    rng = np.random.default_rng(0)
    for form in MATRICES if kind == "matrix" else TENSORS:
        for formula, outputs in CALLS[kind]:
            terms = formula.split("->")[0].split(",")
            arrays = [rng.random([EXTENTS[v] for v in term]) for term in terms]
            arrays[0] = sparse(rng, arrays[0].shape)
            operands = [sj.array(arrays[0], format=form), *arrays[1:]]
            for out in outputs:
                call = sj.jit(lambda *xs, f=formula, o=out: sj.einsum(f, *xs, out_format=o))
                bits = set()
                for threads in (1, 2, 3):
                    config.update("num_threads", threads)
                    made = call(*operands)
                    validate.validate(made.storage)
                    levels = [b.tobytes() for level in made.storage.buffers for b in level]
                    bits.add((*levels, made.storage.vals.tobytes()))
                config.update("num_threads", 0)
                np.testing.assert_allclose(
                    made.todense(), np.einsum(formula, *arrays), err_msg=f"{form} {formula} {out}"
                )
                assert len(bits) == 1, f"{form} {formula} {out} depends on threads"
    assert sum(p.shared is not None for p in planned) > len(planned) // 3


def test_buffers_are_shared():
    A = sj.array(sparse(np.random.default_rng(0), (7, 9)), format="csr")
    made = sj.jit(lambda A: sj.numpy.expm1(A) * 2)(A)
    assert all(np.shares_memory(x, y) for x, y in zip(made.storage.buffers[1], A.storage.buffers[1], strict=True))
    assert not np.shares_memory(made.storage.vals, A.storage.vals)
    assert "the result has the positions of level 1 of A" in sj.jit(lambda A, x: A * x).lower(A, np.ones(9)).as_text(
        "plan"
    )
    coo = sj.jit(lambda A: sj.einsum("ij->ij", A, out_format="coo"))(A)
    assert np.shares_memory(coo.storage.buffers[1][0], A.storage.buffers[1][1])
    np.testing.assert_array_equal(coo.todense(), A.todense())


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_nothing_at_all(shape):
    A, x = sj.array(np.zeros(shape), format="csr"), np.ones(shape[0])
    made = sj.jit(lambda A, x: A * x[:, None])(A, x)
    validate.validate(made.storage)
    assert made.shape == shape and made.nnz == 0


CASES = {
    "two sparse operands": lambda A, B: A * B,
    "a sum of two": lambda A, B: A + B,
    "a mask": lambda A, B: sj.numpy.where(B > 0.5, A, 0),
    "a reduction over what may be empty": lambda A, B: A @ B.T,
}


@pytest.mark.parametrize("case", CASES)
def test_other_outputs_have_positions_of_their_own(case, planned):
    rng = np.random.default_rng(0)
    a, b = sparse(rng, (7, 9)), sparse(rng, (7, 9))
    operands = [sj.array(x, format="csr") for x in (a, b)]
    made = sj.jit(CASES[case])(*operands)
    np.testing.assert_allclose(made.todense(), CASES[case](a, b) if "mask" not in case else np.where(b > 0.5, a, 0))
    assert planned and not any(p.shared for p in planned)


def test_a_diagonal_may_not_be_stored(planned):
    a = sparse(np.random.default_rng(0), (9, 9))
    made = sj.jit(lambda A: sj.einsum("ii->i", A, out_format="coo"))(sj.array(a, format="dcsr"))
    np.testing.assert_array_equal(made.todense(), np.diag(a))
    assert made.nnz == np.count_nonzero(np.diag(a)) and not any(p.shared for p in planned)


def test_empty_fibers_of_an_operand_leave_no_entry():
    """A fiber that is stored but empty becomes a block of zeros where the result is dense in it, and nothing where it is not."""
    levels = (
        (np.array([0, 2]), np.array([0, 1], np.int32)),
        (np.array([0, 2, 3]), np.array([0, 2, 1], np.int32)),
        (np.array([0, 2, 2, 3]), np.array([0, 3, 1], np.int32)),
    )
    storage = Storage(Format.parse("csf", 3), (2, 3, 4), np.float64(0), levels, np.array([1.0, 2.0, 3.0]))
    T, C = sj.array(storage), np.random.default_rng(0).random((4, 5))
    summed = sj.jit(lambda T: sj.einsum("ijk->ij", T, out_format="csr"))(T)
    np.testing.assert_array_equal(summed.todense(), T.todense().sum(2))
    assert summed.nnz == 2
    blocks = sj.jit(lambda T, C: sj.einsum("ijk,kr->ijr", T, C))(T, C)
    validate.validate(blocks.storage)
    np.testing.assert_allclose(blocks.todense(), np.einsum("ijk,kr->ijr", T.todense(), C))
