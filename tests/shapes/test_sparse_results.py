"""Sparse results of shapes that were never seen: made by the kernel of their bucket, with the extents at hand, in one piece or in chunks."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.runtime import chunked
from sparsejax.jit.runtime.binding import Binding

FORMATS = ["csr", "csc", "coo", "dcsr", "dcsc", "(b,c)", "(d,b)", "(c,b)", "(d,r)", "(d,h)", "bsr:2x3"]
OPERATIONS = {
    "sum": lambda A, B: A + B,
    "product by entries": lambda A, B: A * B,
    "of both": lambda A, B: (A - 2 * B) * A,
    "matrix product": lambda A, B: A @ B.T,
    "gram": lambda A, B: A.T @ B,
    "comparison": lambda A, B: A > B,
    "maximum": lambda A, B: snp.maximum(A, B),
    "window": lambda A, B: A[1:, : A.shape[1] - 1] + B[:-1, 1:],
    "stacked": lambda A, B: snp.concatenate([A, B]),
    "padded": lambda A, B: snp.pad(A + B, ((1, 0), (0, 2))),
    "sums": lambda A, B: (A + B).sum(axis=1),
    "scaled": lambda A, B: A / (1 + abs(B).sum(axis=1, keepdims=True)),
}


def operand(rng, shape, form):
    found = rng.random(shape) < rng.choice([0.0, 0.03, 0.3])
    return sj.array(np.where(found, rng.integers(-4, 5, shape), 0).astype(float), format=form)


def equal(got, wanted):
    """The same types, patterns and values: whole numbers are exact."""
    assert (got.shape, got.dtype, got.format) == (wanted.shape, wanted.dtype, wanted.format)
    for one, other in zip(got._storage.buffers, wanted._storage.buffers, strict=True):
        for found, expected in zip(one, other, strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(got._storage.vals, wanted._storage.vals)


@pytest.mark.rotating(12)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("forms", [(f, g) for f in FORMATS for g in ("csr", f)], ids=str)
def test_results_are_those_of_a_plan_of_their_own(name, forms):
    function = OPERATIONS[name]
    rng = np.random.default_rng(sum(map(ord, name + str(forms))))
    run, alone = (function, sj.jit(function))[int(rng.integers(2))], sj.jit(function, dynamic=False)
    for _ in range(7):
        shape = tuple(int(n) for n in rng.integers(2, rng.choice([16, 90]), 2))
        A, B = (operand(rng, shape, f) for f in forms)
        equal(run(A, B), alone(A, B))


@pytest.mark.parametrize("name", ["sum", "matrix product", "of both"])
def test_chunks_of_new_shapes(name, monkeypatch):
    function, calls, once, place = OPERATIONS[name], [], Binding.once, chunked._place

    def at_once(self, inputs, shape):
        calls.append("once")
        return once(self, inputs, shape)

    def placed(*args):
        calls.append("placed")
        return place(*args)

    monkeypatch.setattr(Binding, "once", at_once)
    monkeypatch.setattr(chunked, "_place", placed)
    rng, run, alone = np.random.default_rng(1), sj.jit(function), sj.jit(function, dynamic=False)
    with sj.config.using(num_threads=2, parallel_work=2_000):
        for number in range(5):
            n, m, count = int(rng.integers(5_000, 6_000)), int(rng.integers(40, 60)), 30_000
            places = rng.integers(0, n, count), rng.integers(0, m, count)
            A = sj.array((rng.integers(-4, 5, count).astype(float), places), shape=(n, m), format="csr")
            B = A[:200] if name == "matrix product" else sj.array(A * 2 + snp.pad(A[1:], ((0, 1), (0, 0))))
            calls.clear()
            got = run(A, B)
            assert number < 2 or calls[:2] == ["once", "placed"]
            equal(got, alone(A, B))
