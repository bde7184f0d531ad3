"""Kernels stay within their budget: long programs are cut into several, which compute the same."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format
from sparsejax.jit.backend import host
from sparsejax.jit.graph import fuse, limits
from sparsejax.jit.ir import cin
from sparsejax.transforms import staging


def steps_of(function, *args):
    return fuse.fuse(staging.clean(sj.make_jaxpr(function)(*args).jaxpr))


def random_sparse(rng, shape, form, density=0.15):
    dense = np.where(rng.random(shape) < density, rng.standard_normal(shape), 0.0)
    return sj.array(dense, format=form), dense


@pytest.mark.rotating(2)
@pytest.mark.parametrize("steps", [3, 12, 40])
@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
def test_values_used_twice_are_not_written_out_twice(steps, form):
    def grow(x):
        for _ in range(steps):
            x = x + x * x * 0.01
        return x

    a, dense = random_sparse(np.random.default_rng(steps), (6, 7), form, 0.4)
    kernels = steps_of(grow, a)
    assert max(limits.nodes(k.nest.composite) for k in kernels) <= limits.NODES
    assert len(kernels) <= steps
    np.testing.assert_allclose(sj.jit(grow)(a).todense(), grow(dense), rtol=1e-12)


def test_a_value_used_twice_is_computed_once():
    def grow(x):
        for _ in range(5):
            x = x + x
        return x

    x = np.arange(4.0)
    loops = 2 if host.has_masks() else 3  # 8 lanes, some of them; or 8 lanes, 2 lanes, one by one
    assert sj.jit(grow).lower(x).as_text("llvm").count(" fadd ") == 5 * loops
    np.testing.assert_array_equal(sj.jit(grow)(x), 32 * x)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("count", [2, 5, 9, 14])
@pytest.mark.parametrize("forms", [("csr",), ("coo",), ("csr", "coo", "csc", "dcsr")])
def test_sums_of_many_sparse_arrays_are_cut(count, forms):
    rng = np.random.default_rng(count)
    pairs = [random_sparse(rng, (8, 9), forms[k % len(forms)]) for k in range(count)]
    arrays = [a for a, _ in pairs]
    kernels = steps_of(lambda *xs: sum(xs), *arrays)
    assert max(limits.pieces(k.nest.composite) for k in kernels) <= limits.PIECES
    made = sj.jit(lambda *xs: sum(xs))(*arrays)
    np.testing.assert_allclose(made.todense(), sum(d for _, d in pairs), rtol=1e-13, atol=1e-15)


@pytest.mark.rotating(6)
@pytest.mark.parametrize("length", [20, 300, 1000])
def test_long_chains_are_cut(length):
    def chain(x):
        for _ in range(length):
            x = snp.sin(x) * 2
        return x

    x = np.linspace(-1, 1, 5)
    kernels = steps_of(chain, x)
    assert (len(kernels) == 1) == (length == 20)
    assert len(kernels) <= 1 + 4 * length // limits.NODES
    expected = x
    for _ in range(length):
        expected = np.sin(expected) * 2
    np.testing.assert_allclose(sj.jit(chain)(x), expected, rtol=1e-9)


def test_kernels_that_every_reader_absorbed_are_gone():
    """`x` moves into both of its readers, so nothing computes it."""

    def f(a, b):
        x = a + b
        return x * 2, snp.exp(x)

    a = np.arange(3.0)
    assert len(steps_of(f, a, a)) == 2
    for got, want in zip(sj.jit(f)(a, a + 1), ((2 * a + 1) * 2, np.exp(2 * a + 1)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-15)


def test_pieces_follow_from_the_algebra():
    def csr(name):
        tensor = cin.Tensor(name, (4, 4), np.dtype("f8"), Format.parse("csr", 2), np.float64(0))
        return cin.Access(tensor, (cin.IndexVar("i"), cin.IndexVar("j")))

    def call(op, *args):
        return cin.Call(op, args, np.dtype("f8"))

    a, b, c = csr("A"), csr("B"), csr("C")
    assert limits.pieces(call("multiply", call("multiply", a, b), c)) == 1
    assert limits.pieces(call("add", a, b)) == 3
    assert limits.pieces(call("add", call("add", a, b), c)) == 7
    assert limits.pieces(call("add", call("multiply", a, b), c)) == 3
    assert limits.pieces(call("add", a, a)) == 1


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
def test_sums_that_keep_their_axes_are_one_kernel(axis, form):
    """What only puts axes of extent one into a result moves into the kernel of the result; what is read by others stays."""
    A, dense = random_sparse(np.random.default_rng(axis), (30, 20), form)

    def summed(A):
        return A.sum(axis=axis, keepdims=True)

    (step,) = steps_of(summed, A)
    assert step.nest.output.shape == summed(dense).shape
    for made in (summed(A), sj.jit(summed)(A)):
        np.testing.assert_allclose(made.todense(), summed(dense))
    np.testing.assert_allclose(sj.jit(lambda A: A / summed(A))(A + 1).todense(), (dense + 1) / summed(dense + 1))
