"""Semirings: names, constants, dtypes, Python functions, and what they compile to."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.lax.semiring import named, ring_of

INF = np.inf


def weights(seed=0, n=6, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return sp.csr_array((rng.integers(1, 9, (n, n)) * (rng.random((n, n)) < 0.4)).astype(dtype))


def tropical(matrix):
    dense = matrix.toarray().astype(float)
    return np.where(dense == 0, INF, dense)


def test_unstored_entries_are_the_zero_of_the_semiring():
    W, d = weights(), np.arange(6.0)
    made = sj.einsum("ij,j->i", sj.array(W), d, semiring="min_plus")
    np.testing.assert_array_equal(made.todense(), (tropical(W) + d).min(axis=1))


def test_stored_zeros_are_values():
    W = sj.array((np.array([0.0, 5.0]), (np.array([0, 1]), np.array([1, 0]))), shape=(2, 2), format="csr")
    made = sj.einsum("ij,j->i", W, np.array([1.0, 2.0]), semiring="min_plus")
    np.testing.assert_array_equal(made.todense(), [2.0, 6.0])


@pytest.mark.parametrize("fill", [0, 3, INF])
def test_the_fill_of_an_operand_does_not_matter(fill):
    W = weights()
    A = sj.lax.refill(sj.array(W), fill)
    made = sj.einsum("ik,kj->ij", A, A, semiring="min_plus")
    want = (tropical(W)[:, :, None] + tropical(W)[None]).min(axis=1)
    assert made.fill_value == INF and str(made.format) == "csr"
    np.testing.assert_array_equal(made.todense(), want)


def test_a_dense_operand_that_is_constant_holds_values():
    A = sj.array(weights())
    step = sj.jit(lambda A, x: sj.einsum("ij,j->i", A, x * 0, semiring="plus_first"))
    np.testing.assert_allclose(step(A, np.ones(6)).todense(), weights().sum(axis=1))


@pytest.mark.parametrize(
    ("name", "zero", "one"),
    [
        ("plus_times", 0, 1),
        ("min_plus", INF, 0),
        ("max_plus", -INF, 0),
        ("max_times", -INF, 1),
        ("min_first", INF, None),
    ],
)
def test_names(name, zero, one):
    assert named(name).zero == zero and named(name).one == one


def test_boolean_operands():
    A = sj.array(weights() != 0)
    B = weights().toarray() != 0
    counts = sj.einsum("ik,kj->ij", A, A, semiring="plus_pair")
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(counts.todense(), B.astype(int) @ B.astype(int))
    reached = sj.einsum("ik,kj->ij", sj.array(weights()), sj.array(weights()), semiring="or_and")
    assert reached.dtype == np.bool_
    np.testing.assert_array_equal(reached.todense(), B @ B)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_infinity_is_the_extreme_of_integers(dtype):
    top = np.inf if dtype == "float32" else np.iinfo(dtype).max
    ring = ring_of(named("min_plus"), np.dtype(dtype))
    assert ring.zero == top and ring.zero.dtype == dtype
    distance = np.array([3, top, top], dtype)
    A = sj.array(np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype), format="csr")
    made = sj.einsum("i,ij->j", distance, A, semiring="min_plus")  # an unreached node stays unreached: no wrap-around
    np.testing.assert_array_equal(made.todense(), np.array([top, 4, top], dtype))
    dense = sj.einsum("i,ij->j", distance, A.todense(), semiring="min_plus")
    assert dense.dtype == dtype


def test_functions_are_compared_by_structure():
    first = sj.Semiring("min", lambda x, y: x + 2 * y, INF)
    second = sj.Semiring("minimum", lambda a, b: a + b * 2, INF)
    same = sj.Semiring("minimum", lambda a, b: a + 2 * b, INF)
    assert first == same and hash(first) == hash(same)
    assert first != second and first != sj.Semiring("min", lambda x, y: x + 3 * y, INF)
    assert first != sj.Semiring("min", lambda x, y: x + 2 * y, 100.0)
    f8 = np.dtype("float64")
    assert ring_of(first, f8) == ring_of(same, f8) != ring_of(second, f8)


def test_one_kernel_for_equal_functions():
    W, d = sj.array(weights()), np.arange(6.0)

    def text(semiring):
        return sj.jit(lambda A, x: sj.einsum("ij,j->i", A, x, semiring=semiring)).lower(W, d).as_text("llvm")

    def make():
        return sj.Semiring(lambda x, y: snp.minimum(x, y), lambda x, y: x + 2 * y, INF)

    assert text(make()) == text(make()) != text("min_plus")


def test_functions_become_machine_code():
    calls = []

    def distance(x, y):
        calls.append(1)
        return snp.sqrt(x * x + y * y)

    ring = sj.Semiring(lambda x, y: snp.where(x < y, x, y), distance, INF)
    step = sj.jit(lambda A, x: sj.einsum("ij,j->i", A, x, semiring=ring))
    W, d = weights(), np.arange(6.0)
    np.testing.assert_allclose(step(sj.array(W), d).todense(), np.hypot(tropical(W), d).min(axis=1))
    traced = len(calls)
    step(sj.array(W), d + 1)
    assert len(calls) == traced
    assert "llvm.sqrt" in step.lower(sj.array(W), d).as_text("llvm")


@pytest.mark.parametrize("add", ["minimum", lambda x, y: snp.where(x < y, x, y)], ids=["named", "function"])
def test_wide_loops_stay_vectors(add):
    ring = sj.Semiring(add, lambda x, y: x + y, INF)
    step = sj.jit(lambda A, H: sj.einsum("ik,kj->ij", A, H, semiring=ring))
    W, H = weights(), np.random.default_rng(1).random((6, 37))
    want = (tropical(W)[:, :, None] + H[None]).min(axis=1)
    np.testing.assert_array_equal(step(sj.array(W), H).todense(), want)
    assert "<8 x double>" in step.lower(sj.array(W), H).as_text("llvm")


def test_dense_operands():
    rng = np.random.default_rng(0)
    a, b = rng.random((4, 5)), rng.random((5, 3))
    np.testing.assert_array_equal(snp.matmul(a, b, semiring="max_plus").todense(), (a[:, :, None] + b).max(axis=1))


def test_matmul_of_batches_and_vectors():
    W, d = weights(), np.arange(6.0)
    np.testing.assert_array_equal(
        snp.matmul(sj.array(W), d, semiring="min_plus").todense(), (tropical(W) + d).min(axis=1)
    )
    batch = np.stack([W.toarray(), W.T.toarray()])
    made = snp.matmul(batch, batch, semiring="max_times")
    np.testing.assert_array_equal(made.todense(), (batch[..., None] * batch[:, None]).max(axis=2))


def test_reductions():
    W = weights()
    np.testing.assert_array_equal(
        sj.einsum("ij->i", sj.array(W), semiring="min_plus").todense(), tropical(W).min(axis=1)
    )
    total = sj.einsum("ij->", sj.array(W), semiring=sj.Semiring(lambda x, y: x + y + x * y, "multiply", 0))
    np.testing.assert_allclose(total.todense(), np.prod(1 + W.data) - 1)


def test_results_of_any_format_and_order():
    """Whatever a workspace combines, it combines with the function itself."""
    ring = sj.Semiring(lambda x, y: x + y + x * y, "multiply", 0)
    W = weights().toarray()
    terms = W[:, :, None] * W[None]
    want = np.prod(1 + terms, axis=1) - 1
    for form in ("coo", "dcsc", "csc", "dense"):
        made = sj.einsum(
            "ik,kj->ij",
            sj.array(W, format="csc", copy=True),
            sj.array(W, format="csr", copy=True),
            semiring=ring,
            out_format=form,
        )
        np.testing.assert_allclose(made.todense(), want)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: sj.Semiring("nothing", "add"), ValueError, "unknown operation 'nothing'"),
        (lambda: sj.Semiring(lambda x, y: x + y, "multiply"), ValueError, "give the semiring's zero"),
        (lambda: sj.Semiring(3, "multiply"), TypeError, "name or a function"),
        (lambda: sj.Semiring("add", lambda x: x), TypeError, "function of two scalars"),
        (lambda: named("plus"), ValueError, "unknown semiring 'plus'"),
        (lambda: sj.einsum("ij->i", np.ones((2, 2)), semiring=7), TypeError, "name or a sparsejax.Semiring"),
        (
            lambda: sj.einsum("i->", np.ones(2, "u1"), semiring=sj.Semiring("add", "times", -1)),
            ValueError,
            "not a value of dtype uint8",
        ),
        (lambda: sj.einsum("i->", np.ones(2, "c16"), semiring="min_plus"), TypeError, "complex"),
        (
            lambda: hash(sj.Semiring("add", lambda x, y: x if x > y else y)),
            sj.TracerBoolConversionError,
            "sparsejax.numpy.where",
        ),
        (lambda: hash(sj.Semiring("add", lambda x, y: x.reshape((1,)))), TypeError, "unit_axes"),
        (lambda: hash(sj.Semiring("add", lambda x, y: x + np.ones(3))), TypeError, "array of shape"),
    ],
)
def test_errors(make, error, text):
    with pytest.raises(error, match=text):
        make()
