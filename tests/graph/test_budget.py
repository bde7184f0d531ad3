"""Kernels stay within their budget: long programs are cut into several, which compute the same."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format
from sparsejax.jit.backend import host
from sparsejax.jit.graph import fuse, limits, partition
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


LONG = {
    "products": "{0} * ({1} * {2}) + {3} * {4}",
    "sum": "{0} + {1} - {2} * {3} + {4} - {5}",
    "nested": "hypot(hypot(hypot({0}, {1}), hypot({2}, {3})), {4}) * {5}",
    "with entries": "({0} * ({1} + {2}) + {3} * {4}) * V[K[j]]",
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("choose", ["auto", "random:3", "random:4"])
@pytest.mark.parametrize("target", ["Out[i]", "Out[i,j]", "Out[j,i]"])
@pytest.mark.parametrize("expression", LONG)
def test_long_statements_are_cut(expression, target, choose):
    """Operands of different formats would be hundreds of cases of one loop, in each of which another loop has as many."""
    rng = np.random.default_rng(len(expression))
    forms = [
        "(l,b)@(1,0)",
        "dcsc",
        "(q,d)@(1,0)",
        "csr",
        "(l,r)@(1,0)",
        "dcsr",
        "csc",
        "(d,q)",
        "(h,c)@(1,0)",
        "coo",
        "bsr:2x3",
        "(d,g2)",
    ]
    pairs = {f"A{k}": random_sparse(rng, (5, 7), form, 0.3) for k, form in enumerate(forms)}
    terms = [f"{'maximum' if k % 4 else 'minimum'}(A{k}[i,j], A{k + 1}[i,j])" for k in range(0, 12, 2)]
    text = LONG[expression].format(*terms)
    read = {name: pair for name, pair in pairs.items() if f"{name}[" in text}
    dense = {"V": rng.standard_normal(4), "K": rng.integers(0, 4, 7)} if "K[" in text else {}
    statement = f"{target} {'+=' if target == 'Out[i]' else '='} {text}"

    given = {name: pair[0] for name, pair in read.items()} | {name: sj.array(x) for name, x in dense.items()}
    kernels = steps_of(lambda *xs: sj.insum(statement, **dict(zip(given, xs, strict=True))), *given.values())
    nests = [k.nest for k in kernels if isinstance(k, partition.KernelStep)]
    assert len(nests) > 1 or expression == "sum"  # whose terms are accumulated one after the other
    assert all(limits.pieces(n.composite, n.op) <= limits.PIECES for n in nests)
    names = {name: pair[1] for name, pair in read.items()} | ({"V": dense["V"][dense["K"]]} if dense else {})
    plain = text.replace("[i,j]", "").replace("V[K[j]]", "V")
    want = eval(plain, {f: getattr(np, f) for f in ("minimum", "maximum", "hypot")} | names)
    want = {"Out[i]": want.sum(1), "Out[i,j]": want, "Out[j,i]": want.T}[target]
    with sj.config.using(choose=choose):
        made = sj.insum(statement, **given)
    np.testing.assert_allclose(made.todense(), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("choose", ["auto", "fusion=apart"])
def test_parts_of_what_moves_into_its_readers_are_stored(choose):
    """A long statement that only another kernel reads is no kernel, its parts are."""
    rng = np.random.default_rng(0)
    pairs = [random_sparse(rng, (5, 7), form, 0.3) for form in ["dcsc", "csr", "coo", "dcsr", "csc"] * 2]
    terms = [f"maximum(A{k}[i,j], A{k + 1}[i,j])" for k in range(0, 10, 2)]
    text = LONG["products"].format(*terms)

    def function(*arrays):
        return sj.insum(f"Out[i,j] = {text}", **{f"A{k}": x for k, x in enumerate(arrays)}) * 2.0

    names = {f"A{k}": dense for k, (_, dense) in enumerate(pairs)}
    want = 2 * eval(text.replace("[i,j]", ""), {"maximum": np.maximum} | names)
    with sj.config.using(choose=choose):
        made = sj.jit(function)(*(a for a, _ in pairs))
    np.testing.assert_allclose(made.todense(), want, rtol=1e-12, atol=1e-14)
