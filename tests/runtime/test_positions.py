"""Kernels over one pattern: values by position, results over the buffers of an operand, scattered fibers, copies by pattern."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import copies
from sparsejax.jit.runtime import pattern_variants
from tests.autodiff import programs
from tests.fuzz import engine
from tests.prices import priced

pytestmark = pytest.mark.rotating(24)

FORMATS = (
    "csr",
    "csc",
    "dcsr",
    "coo",
    "bitmap",
    "ell",
    "groupcoo:4",
    "blockgroupcoo:2x3:2",
    "dia",
    "banded",
    "lil",
    "hash",
    "rle",
    "bsr:2x3",
    "(d,b)@(1,0)",
)


@pytest.fixture(autouse=True)
def quick():
    with engine.quick():
        yield


def matrix(seed, shape=(7, 9), format="csr", density=0.3, low=-3):
    rng = np.random.default_rng(seed)
    dense = rng.integers(low, 4, shape) * (rng.random(shape) < density) * 0.5
    return sj.array(dense, format=format), dense


def same_buffers(a, b):
    return a._storage.buffers is b._storage.buffers


@pytest.mark.parametrize("format", FORMATS)
def test_arrays_over_one_pattern(format):
    A, dense = matrix(1, format=format)
    B = sj.jit(lambda A: A * 2)(A)
    x = np.arange(9.0)

    @sj.jit
    def f(A, B, x):
        both = snp.where(A > 0.5, A, B)
        return (
            A * B * x,
            A + B,
            both,
            (A + B).sum(),
            A @ x + B @ x,
            snp.maximum(A, B).sum(axis=0),
            sj.lax.cond(True, snp.sin, snp.tan, B),
        )

    made = f(A, B, x)
    wanted = (
        dense * dense * 2 * x,
        dense * 3,
        np.where(dense > 0.5, dense, dense * 2),
        dense.sum() * 3,
        dense @ x * 3,
        np.maximum(dense, dense * 2).sum(axis=0),
        np.sin(dense * 2),
    )
    for ours, theirs in zip(made, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(ours.todense()), theirs, rtol=1e-13)
    again = f(A, sj.array(dense * 2, format=format), x)  # the same pattern in other buffers, or fewer entries
    for ours, theirs in zip(again, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(ours.todense()), theirs, rtol=1e-13)


@pytest.mark.parametrize("format", ["csr", "csc", "dcsr", "coo", "bitmap", "ell", "groupcoo:4"])
def test_results_take_over_index_buffers(format):
    A, dense = matrix(2, format=format)
    U, V = np.random.default_rng(0).random((2, 9, 4))
    B = sj.jit(lambda A: snp.sin(A) * 2)(A)
    assert same_buffers(A, B)
    f = sj.jit(lambda A, B, U, V: sj.einsum("ij,ij,ik,jk->ij", A, B, U, V, out_format=format))
    sampled = f(A, B, U[:7], V)
    assert same_buffers(A, sampled)
    np.testing.assert_allclose(sampled.todense(), dense * np.sin(dense) * 2 * (U[:7] @ V.T), rtol=1e-13)
    assert sampled.nnz == A.nnz


def test_fills_and_unused_positions():
    A, dense = matrix(3, format="ell")
    made = sj.jit(snp.cos)(A)
    assert made.fill_value == 1
    assert same_buffers(A, made)
    np.testing.assert_allclose(made.todense(), np.cos(dense))
    np.testing.assert_allclose(made._storage.vals[A._storage.vals == 0], 1)
    np.testing.assert_allclose(sj.jit(lambda B: B.sum())(made), np.cos(dense).sum())


def test_batches_of_values():
    elements = [matrix(4)[0] * k for k in (1.0, 2.0, 3.0)]
    V = snp.stack(elements).asformat("(d,c,d)@(1,2,0)")
    W = sj.jit(sj.vmap(lambda A: A * A))(V)
    x = np.arange(9.0)
    made = sj.jit(lambda V, W: sj.vmap(lambda A, B: (A * B) @ x)(V, W))(V, W)
    wanted = [e.todense() ** 3 @ x for e in elements]
    np.testing.assert_allclose(np.asarray(made.todense()), wanted)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "dcsr"])
@pytest.mark.parametrize("other", ["csr", "csc"])
def test_cotangents_of_sparse_products(format, other):
    A, a = matrix(5, (6, 8), format)
    B, b = matrix(6, (8, 7), other)
    weight = np.random.default_rng(1).random((6, 7))
    value, (dA, dB) = sj.jit(sj.value_and_grad(lambda A, B: (snp.sin(A @ B) * weight).sum(), (0, 1)))(A, B)
    G = np.cos(a @ b) * weight * ((a != 0).astype(int) @ (b != 0) > 0)
    np.testing.assert_allclose(value, (np.sin(a @ b) * weight).sum())
    np.testing.assert_allclose(dA.todense(), (G @ b.T) * (a != 0))
    np.testing.assert_allclose(dB.todense(), (a.T @ G) * (b != 0))
    assert same_buffers(dA, A)
    assert same_buffers(dB, B)


def test_masked_products_keep_only_what_contributes():
    """What is stored of a user's mask is what some term gives; only cotangents are stored at the whole pattern."""
    A = sj.array(np.eye(4), format="csr")
    mask = sj.array(np.ones((4, 4)), format="csr")
    assert sj.jit(lambda A: sj.einsum("ij,jk->ik", A, A, mask=mask))(A).nnz == 4


@pytest.mark.parametrize("seed", range(6))
def test_scattered_fibers(seed):
    rng = random.Random(seed)
    formats = [rng.choice(("csr", "csc", "dcsr", "coo")) for _ in range(3)]
    terms = rng.choice(("ij,ik,jk->ij", "ij,ik,kj->ij", "ik,ik,jk->ij", "ijk,kl,il->ij"))
    shapes = [[{"i": 6, "j": 7, "k": 8, "l": 5}[x] for x in term] for term in terms.split("->")[0].split(",")]
    made = [
        matrix(seed * 3 + k, shape, f if len(shape) == 2 else "csf", 0.5)
        for k, (shape, f) in enumerate(zip(shapes, formats, strict=True))
    ]
    ours, dense = zip(*made, strict=True)
    found = []
    for price in (0.0, np.inf):
        f = sj.jit(lambda *args: sj.einsum(terms, *args, optimize=False))
        with priced(scatter=price):
            found.append(f(*ours))
        np.testing.assert_allclose(np.asarray(found[-1].todense()), np.einsum(terms, *dense), rtol=1e-13)
    assert found[0].nnz == found[1].nnz


def test_a_fiber_is_scattered_once_for_many():
    A, B, M = (matrix(k, (40, 40), density=0.5)[0] for k in range(3))
    f = sj.jit(lambda M, A, B: sj.einsum("ij,ik,jk->ij", M, A, B, optimize=False))
    assert "scattered" in f.lower(M, A, B).as_text("cin")
    assert "scattered" in str(sj.explain(f)(M, A, B))


@pytest.mark.parametrize("format", ["csr", "coo", "dcsr", "csf"])
@pytest.mark.parametrize("to", ["csc", "coo", "(c,c)@(1,0)", "ell"])
def test_copies_by_pattern(format, to):
    A, _ = matrix(8, format=format)
    B = sj.jit(lambda A: A + A * A)(A)
    form = B.asformat(to).format
    copies.converted(A._storage, form)
    made, wanted = copies.converted(B._storage, form), B.asformat(to)._storage
    assert made.format == wanted.format
    for ours, theirs in zip((made.vals, *sum(made.buffers, ())), (wanted.vals, *sum(wanted.buffers, ())), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_values_move_along_with_copies():
    A, dense = matrix(9, (50, 60), density=0.5)
    B = sj.jit(lambda A: A * 3)(A)
    X = np.random.default_rng(0).random((50, 40))
    f = sj.jit(lambda A, B, X: sj.einsum("ki,ki,kj->ij", A, B, X))
    for scale in (1.0, 2.0):
        np.testing.assert_allclose(f(A * scale, B, X), (dense * dense * 3 * scale).T @ X)


def test_the_comparison_can_fail(monkeypatch):
    A, dense = matrix(10)
    B, other = matrix(11)
    f = sj.jit(lambda A, B: A * B)
    np.testing.assert_allclose(f(A, B).todense(), dense * other)
    monkeypatch.setattr(pattern_variants, "_same_buffers", lambda a, b: True)
    A, B = (sj.array(np.eye(3)[::step].copy(), format="csr") for step in (1, -1))
    assert not np.array_equal(sj.jit(lambda A, B: A * B)(A, B).todense(), A.todense() * B.todense())


def test_operands_that_others_are_beside_are_not_scattered():
    """Values beside an operand are found by its positions, which a row in a workspace does not have."""
    for seed in (1000019, 1000046):
        assert programs.check(seed) is None


def test_copies_of_operands_that_others_are_beside_have_the_same_dense_levels():
    assert programs.check(1000358) is None


def test_one_array_whose_coordinates_do_not_matter_is_reduced_by_position():
    A = snp.asarray(np.diag(np.arange(5.0))).asformat("csr")
    f = sj.jit(lambda A: (A * A).sum())
    assert "forall p (vector)" in f.lower(A).as_text("cin")
    assert f(A) == 30


def test_what_asks_for_a_pattern_alone_asks_an_input():
    A = snp.asarray(np.diag(np.arange(1.0, 6.0))).asformat("csr")
    text = sj.jit(sj.value_and_grad(lambda A: (snp.sin(A) ** 2).sum())).lower(A).as_text("plan")
    assert "reduces add of multiply(A[p], A[p])" in text, text


def test_witnesses_have_the_same_entries():
    """What is added to has other entries than its operand."""
    A = snp.asarray(np.diag(np.arange(1.0, 6.0))).asformat("csr")
    B = snp.asarray(np.eye(5)[::-1]).asformat("csr")
    made = sj.jit(lambda A, B: sj.lax.pattern(snp.exp(A + B) * 2, float))(A, B)
    np.testing.assert_array_equal(made.todense(), (np.eye(5) + np.eye(5)[::-1]) > 0)


@pytest.mark.parametrize("other", ["csr", "dcsr", "coo", "hash"])
@pytest.mark.parametrize("format", ["csr", "csc", "dcsr", "coo", "bsr:2x3"])
def test_rows_of_which_nothing_is_summed_are_written(format, other):
    """The result stands at the positions of A; where B has no row its sum is a constant 0, the fill of the result, and is written all the same."""
    A, dense = matrix(2, (6, 9), format)
    rows = np.zeros((6, 7))
    rows[2, 3], rows[4, 1] = 2, 3
    made = sj.jit(lambda A, B: sj.vjp(lambda A: A.sum(axis=1), A)[1](B.sum(axis=1))[0])(A, sj.array(rows, format=other))
    np.testing.assert_array_equal(
        made.todense()[dense != 0], np.broadcast_to(rows.sum(1)[:, None], dense.shape)[dense != 0]
    )
    assert same_buffers(made, A)
