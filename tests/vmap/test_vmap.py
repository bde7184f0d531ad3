"""vmap: the three cases, formats of results, composition, functions with derivatives of their own, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.trace import eagerly
from sparsejax.lax import indexing, linear, structural
from sparsejax.lax.contract import contract_p
from sparsejax.lax.elementwise import cast_p, primitives, unary_p, where_p
from sparsejax.lax.indexing import pad
from sparsejax.lax.reduce import reduce_p
from sparsejax.lax.rules import semiring_rules
from tests.autodiff.checks import array, dense, same_buffers
from tests.fuzz import engine
from tests.vmap.programs import element

pytestmark = pytest.mark.rotating(24)

B, N, M = 3, 4, 5
LEADING, SHARED, NESTED = "(d,d,c)", "(d,c,d)@(1,2,0)", "(c,c,c)"
BATCHED = (LEADING, SHARED, NESTED, "coo", "(d,d,c)@(1,0,2)", "(d,c,q)@(2,1,0)", "(d,b,d)@(1,2,0)", "(d,d,e)", "dense")


def rng():
    return np.random.default_rng(5)


def loop(f, axes, *args):
    return [f(*(element(x, a, k) for x, a in zip(args, axes, strict=True))) for k in range(B)]


def compare(f, axes, *args, out=0):
    """vmap, eagerly and jitted, against the stacked loop; the eager result."""
    want = np.stack([dense(x) for x in loop(f, axes, *args)], out)
    mapped = sj.vmap(f, in_axes=tuple(axes), out_axes=out)
    got = mapped(*args)
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(dense(got), want, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(dense(sj.jit(mapped)(*args)), want, rtol=1e-12, atol=1e-12)
    return got


def shared(shape, form="dense"):
    with eagerly():
        return array(np.random.default_rng(6), shape, form)


OPERATIONS = {
    "unary": lambda A: snp.exp(A),
    "binary": lambda A: A * 2 + A,
    "union": lambda A: A + shared((N, M), "csr"),
    "dense": lambda A: A * shared((N, M)) + shared((M,)),
    "cast": lambda A: A.astype("f4").astype("f8"),
    "where": lambda A: snp.where(A > 0, A, shared((M,))),
    "power": lambda A: abs(A) ** 1.5,
    "real": lambda A: snp.real(A * 1j),
    "logistic": lambda A: sj.lax.elementwise("tanh", A),
    "spmv": lambda A: A @ shared((M,)),
    "spmm": lambda A: A @ shared((M, 2)),
    "spgemm": lambda A: A @ shared((M, 6), "csr"),
    "gram": lambda A: A @ A.T,
    "sddmm": lambda A: sj.einsum("ij,ik,jk->ij", A, shared((N, 2)), shared((M, 2))),
    "trace": lambda A: sj.einsum("ii", A[:, :N]),
    "min_plus": lambda A: sj.einsum("ij,j->i", A, shared((M,)), semiring="min_plus"),
    "masked": lambda A: sj.einsum("ik,kj->ij", shared((N, 2)), shared((2, M)), mask=A),
    "complement": lambda A: sj.einsum("ik,kj->ij", shared((N, 2)), shared((2, M)), mask=A, complement=True),
    "masked min_plus": lambda A: sj.einsum("ik,kj->ij", shared((N, 2)), shared((2, M)), mask=A, semiring="min_plus"),
    "sum": lambda A: A.sum(axis=0),
    "sum of all": lambda A: A.sum(),
    "max": lambda A: A.max(axis=1),
    "prod with fill": lambda A: snp.exp(A).prod(axis=0),
    "mean": lambda A: (A + 1).mean(),
    "any": lambda A: (A > 1).any(axis=1),
    "transpose": lambda A: A.T,
    "reshape": lambda A: snp.reshape(A, (M, N)),
    "ravel": lambda A: snp.ravel(A),
    "diagonal": lambda A: snp.diagonal(A, 1),
    "broadcast": lambda A: snp.broadcast_to(A, (2, N, M)),
    "expand_dims": lambda A: sj.lax.structural.expand_dims(A, 1),
    "squeeze": lambda A: sj.lax.structural.squeeze(A[:1], 0),
    "unit axes": lambda A: snp.reshape(A.asformat("dense"), (N, 1, M)),
    "to csc": lambda A: A.asformat("csc"),
    "to dense": lambda A: A.asformat("dense"),
    "refill": lambda A: sj.lax.refill(A, 0),
    "pattern": lambda A: sj.lax.pattern(A),
    "entries": lambda A: sj.lax.structural.entries(A),
    "window": lambda A: A[1:, ::2],
    "row": lambda A: A[1],
    "pad": lambda A: pad([A, shared((M,)), A[0, 0]], [(range(1, 2 * N, 2), None), (0, range(M)), (1, 2)], (2 * N, M)),
    "gather": lambda A: A[np.array([2, 0, 2])],
    "scatter": lambda A: A.at[np.array([2, 0])].add(1.0),
    "concatenate": lambda A: snp.concatenate([A, A * 2, shared((1, M), "csr")]),
    "stack": lambda A: snp.stack([A, A]),
    "sample": lambda A: linear.sample(shared((N, M)), A),
    "sampled": lambda A: linear.sample(A.asformat("dense"), shared((N, M), "csr")),
    "share": lambda A: linear.share(A * 2, A),
    "zeros": lambda A: linear.zeros_like(A),
    "first": lambda A: sj.grad(lambda A: sj.einsum("ij,j->i", A, shared((M,)), semiring="min_plus")[:2].sum())(A * 1),
    "gradient": lambda A: sj.grad(lambda A: (snp.sin(A) @ shared((M,))).sum())(A),
    "gradient of max": lambda A: sj.grad(lambda A: A.max(axis=1).sum())(A),
    "gradient by shared": lambda A: sj.grad(lambda W: (snp.square(A * W) @ shared((M,))).sum())(shared((N, M), "csr")),
}


def grid():
    """Every operation in every format; every run has both kinds of patterns, dense arrays and one format more for each."""
    others = [form for form in BATCHED if form not in (LEADING, SHARED, "dense")]
    for number, (name, form) in enumerate(itertools.product(OPERATIONS, BATCHED)):
        usual = form not in others or form == others[number // len(BATCHED) % len(others)]
        yield pytest.param(name, form, marks=() if usual else pytest.mark.slow)


def test_derivatives_of_semirings_over_scalars():
    f = sj.grad(lambda x, y: sj.einsum(",->", x, y, semiring="max_plus") ** 2, (0, 1))
    xs, ys = np.arange(3.0), np.array([1.0, -1.0, 2.0])
    for made in sj.vmap(f)(xs, ys):
        np.testing.assert_allclose(made, 2 * (xs + ys))


@pytest.mark.parametrize(("name", "form"), list(grid()))
def test_operations_equal_the_loop(name, form):
    """The batch in front, in the middle and behind, for every operation in another of the formats."""
    number = list(OPERATIONS).index(name) + BATCHED.index(form)
    axis = number % 3
    shape = [N, M]
    shape.insert(axis, B)
    f = OPERATIONS[name]
    with engine.quick():
        compare(
            f, [axis], array(rng(), shape, form), out=0 if name in ("sum of all", "mean", "entries", "trace") else -1
        )


def test_every_primitive_has_a_rule():
    all_of = [*primitives.values(), cast_p, where_p, unary_p, contract_p, reduce_p]
    for module in (indexing, linear, semiring_rules, structural):
        all_of += [p for name, p in vars(module).items() if name.endswith("_p")]
    assert [p.name for p in all_of if p.batch is None] == []


@pytest.mark.parametrize("axis", range(3))
def test_values_under_one_pattern_stay_so(axis):
    """One pattern is walked: every result is values under one pattern, over the index arrays of the operand."""
    order = {0: "(1,2,0)", 1: "(0,2,1)", 2: "(0,1,2)"}[axis]
    shape = [N, M]
    shape.insert(axis, B)
    V = array(rng(), shape, f"(d,c,d)@{order}")
    W = shared((N, M), "csr")
    for f in (lambda A: A * 2, lambda A: A * W, lambda A: A + W, lambda A: A @ shared((M, 6), "csr")):
        made = compare(f, [axis], V)
        assert str(made.format) == "(d,c,d)@(1,2,0)"
    gradient = compare(lambda A: sj.grad(lambda A: (A @ shared((M,))).sum())(A), [axis], V, out=axis)
    assert gradient.format == V.format and same_buffers(gradient, V)


def test_ragged_patterns_stay_ragged():
    A = array(rng(), (B, N, M), LEADING)
    W = shared((N, M), "csr")
    for f in (
        lambda A: A * 2,
        lambda A: A * W,
        lambda A: A + W,
        lambda A: A @ shared((M, 6), "csr"),
        lambda A: A @ A.T,
    ):
        made = compare(f, [0], A)
        assert str(made.format) == "(d,d,c)@(0,1,2)"
    nnz = sum(element(A, 0, k).nnz for k in range(B))
    assert A.nnz == nnz == compare(lambda A: snp.sin(A), [0], A).nnz


def test_unions_of_shared_and_own_patterns_store_what_elements_do():
    A, V = array(rng(), (B, N, M), LEADING), array(np.random.default_rng(8), (B, N, M), SHARED)
    made = compare(lambda A, V: A + V, [0, 0], A, V)
    assert made.nnz == sum(x.nnz for x in loop(lambda A, V: A + V, [0, 0], A, V))
    compare(lambda A, V: sj.einsum("ij->ij", shared((N, M)), mask=A + V), [0, 0], A, V)


def test_dense_batches_of_a_shared_matrix():
    W = shared((N, M), "csr")
    for axis, out in itertools.product((0, 1), (0, 1)):
        x = array(rng(), (B, M) if axis == 0 else (M, B))
        compare(lambda W, x: W @ x, [None, axis], W, x, out=out)
    compare(lambda W, s: W * s, [None, 0], W, array(rng(), (B,)))
    compare(lambda U: sj.einsum("ij,ik,jk->ij", W, U, shared((M, 2))), [0], array(rng(), (B, N, 2)))
    compare(lambda U: sj.einsum("ij,ik->jk", shared((N, M)), U), [1], array(rng(), (N, B, 2)))


def test_batches_of_indices():
    x, W = shared((M,)), shared((N, M), "csr")
    index = sj.array(np.random.default_rng(1).integers(0, N, (B, 6)))
    compare(lambda i: x[i], [0], index)
    compare(lambda i: W[i], [0], index)
    compare(lambda i, v: snp.zeros(M).at[i].add(v), [0, 0], index, array(rng(), (B, 6)))


def test_nested():
    f = lambda A, x: snp.sin(A @ x)  # noqa: E731
    A, x = array(rng(), (2, B, N, M), "(d,d,d,c)"), array(rng(), (B, M))
    want = np.sin(np.einsum("pqij,qj->pqi", dense(A), dense(x)))
    got = sj.vmap(sj.vmap(f), in_axes=(0, None))(A, x)
    np.testing.assert_allclose(dense(got), want)
    got = sj.vmap(sj.vmap(f, in_axes=(0, None)), in_axes=(1, 0), out_axes=1)(A, x)
    np.testing.assert_allclose(dense(got), want)
    W, y = shared((N, M), "csr"), array(rng(), (2, B, M))
    got = sj.vmap(sj.vmap(lambda y: sj.grad(lambda W: f(W, y).sum())(W)))(y)
    slope = np.cos(np.einsum("ij,pqj->pqi", dense(W), dense(y)))
    want = np.einsum("pqi,pqj->pqij", slope, dense(y)) * (dense(W) != 0)
    np.testing.assert_allclose(dense(got), want)


@pytest.mark.parametrize("order", list(itertools.permutations(("jit", "grad", "vmap"))), ids="∘".join)
@pytest.mark.parametrize("form", [LEADING, SHARED, "dense", None])
def test_composition(order, form):
    """Gradients of a sum over the batch are batches of gradients; that by a shared array is their sum."""
    f = lambda A, x: (snp.sin(A @ x) ** 2).sum()  # noqa: E731
    A = shared((N, M), "csr") if form is None else array(rng(), (B, N, M), form)
    x = array(rng(), (B, M))
    axes = (None if form is None else 0, 0)
    inner = order.index("vmap") > order.index("grad")
    made = f
    for name in reversed(order):
        if name == "jit":
            made = sj.jit(made)
        elif name == "vmap":
            made = sj.vmap(made, in_axes=axes)
        elif inner:
            batched = made
            made = sj.grad(lambda A, x, batched=batched: batched(A, x).sum(), (0, 1))
        else:
            made = sj.grad(made, (0, 1))
    got = made(A, x)
    parts = loop(sj.grad(f, (0, 1)), axes, A, x)
    first = np.stack([dense(p[0]) for p in parts])
    if form is None and inner:
        first = first.sum(0)
        assert got[0].format == A.format
    np.testing.assert_allclose(dense(got[0]), first, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dense(got[1]), np.stack([dense(p[1]) for p in parts]), rtol=1e-10, atol=1e-12)


@sj.custom_jvp
def scaled(x, s):
    return snp.sin(x) * s


@scaled.defjvp
def _scaled_jvp(primals, tangents):
    return scaled(*primals), 10 * tangents[0] * primals[1] + 3 * tangents[1] * primals[0]


@sj.custom_vjp
def product(A, x):
    return A @ x


product.defvjp(
    lambda A, x: (product(A, x), (A, x)),
    lambda r, ct: (2 * sj.vjp(lambda A: A @ r[1], r[0])[1](ct)[0], 3 * (r[0].T @ ct)),
)


def test_functions_with_their_own_derivative():
    x = array(rng(), (B, M))
    compare(lambda x: scaled(x, 2.0), [0], x)
    compare(lambda x: sj.grad(lambda x: scaled(x, 2.0).sum())(x), [0], x)
    outer = sj.grad(lambda s: sj.vmap(lambda x: scaled(x, s).sum())(x).sum())(2.0)
    np.testing.assert_allclose(float(outer), 3 * dense(x).sum())
    outer = sj.grad(lambda x: sj.vmap(lambda x: scaled(x, 2.0).sum())(x).sum())(x)
    np.testing.assert_allclose(dense(outer), np.full((B, M), 20.0))


@pytest.mark.parametrize("form", [LEADING, SHARED, None])
def test_functions_with_their_own_reverse_derivative(form):
    A = shared((N, M), "csr") if form is None else array(rng(), (B, N, M), form)
    x = array(rng(), (B, M))
    axes = (None if form is None else 0, 0)
    both = sj.grad(lambda A, x: (product(A, x) ** 2).sum(), (0, 1))
    parts = loop(both, axes, A, x)
    inside = sj.vmap(both, in_axes=axes)(A, x)
    outside = sj.grad(lambda A, x: (sj.vmap(product, in_axes=axes)(A, x) ** 2).sum(), (0, 1))(A, x)
    first, second = (np.stack([dense(p[k]) for p in parts]) for k in range(2))
    np.testing.assert_allclose(dense(inside[0]), first)
    np.testing.assert_allclose(dense(inside[1]), second)
    np.testing.assert_allclose(dense(outside[0]), first.sum(0) if form is None else first)
    np.testing.assert_allclose(dense(outside[1]), second)
    assert outside[0].format == A.format


def test_trees_and_shared_results():
    x = np.arange(6.0).reshape(2, 3)
    f = lambda p, y, *, z: {"a": p["u"] + y + z, "b": p["v"]}  # noqa: E731
    got = sj.vmap(f, in_axes=({"u": 1, "v": None}, None), out_axes={"a": 1, "b": None})(
        {"u": x, "v": 7.0}, 1.0, z=np.arange(3.0)
    )
    np.testing.assert_allclose(dense(got["a"]), x + 1 + np.arange(3.0))
    assert float(got["b"]) == 7
    assert sj.vmap(lambda: snp.ones(2), axis_size=3)().shape == (3, 2)
    assert sj.vmap(lambda x: 1.0)(x).shape == (2,)
    assert sj.vmap(lambda x: x * 2)(sj.array(np.eye(3)[1], format="coo")).nnz == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: sj.vmap(3), TypeError, "Expected a callable value"),
        (lambda x: sj.vmap(abs, in_axes="a"), TypeError, "in_axes must be an int, None, or a tuple"),
        (lambda x: sj.vmap(abs, in_axes=(0.5,)), TypeError, "with those types as leaves"),
        (lambda x: sj.vmap(abs, out_axes="a"), TypeError, "vmap out_axes must be an int"),
        (lambda x: sj.vmap(abs, in_axes=(0, 0))(x), ValueError, r"got len\(in_axes\)=2, len\(args\)=1"),
        (lambda x: sj.vmap(abs)(), ValueError, "at least one argument containing an array"),
        (lambda x: sj.vmap(abs, in_axes=None)(x), ValueError, "at least one non-None value in in_axes"),
        (lambda x: sj.vmap(abs, in_axes=2)(x), ValueError, "rank should be at least 3, but is only 2"),
        (lambda x: sj.vmap(abs, in_axes=-3)(x), ValueError, "rank should be at least 3"),
        (lambda x: sj.vmap(abs)(1.0), ValueError, r"along axis 0, which .* only 0 \(its shape is \(\)\)"),
        (lambda x: sj.vmap(abs, out_axes=None)(x), ValueError, "mapped output but out_axes is None"),
        (lambda x: sj.vmap(lambda x: x.sum(), out_axes=1)(x), ValueError, "its result along axis 1"),
        (lambda x: sj.vmap(abs, in_axes=({"a": 0},))(x), ValueError, "in_axes specification must be a tree prefix"),
        (lambda x: sj.vmap(abs, out_axes=(0, 1))(x), ValueError, "out_axes specification must be a tree prefix"),
        (lambda x: sj.vmap(abs, axis_size=3)(x), ValueError, "axis_size is 3"),
        (
            lambda x: sj.vmap(lambda a, b: a)(x, x[:1]),
            ValueError,
            r"(?s)one axis had size 2: axis 0 of argument a .*size 1.* b ",
        ),
        (
            lambda x: sj.vmap(lambda p, b: b)({"u": x, "v": x}, x[:1]),
            ValueError,
            r"(?s)most axes \(2 of them\) had size 2, e.g. axis 0 of argument p\['u'\]",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(np.ones((2, 4)))


def test_a_primitive_without_a_rule_is_named(monkeypatch):
    monkeypatch.setattr(structural.diagonal_p, "batch", None)
    with pytest.raises(NotImplementedError, match="Batching rule for 'diagonal' not implemented"):
        sj.vmap(snp.diagonal)(np.ones((2, 3, 3)))


@pytest.mark.parametrize("k", [0, 1, 7, 16])
def test_sampled_products(k):
    """Factors that elements share are summed once for all of them; factors of their own are read as they are stored."""
    V = array(rng(), (B, N, M), SHARED)
    f = lambda A, U, W: sj.einsum("ij,ik,jk->ij", A, U, W)  # noqa: E731
    U, W, Us = (rng().random(shape) for shape in ((N, k), (M, k), (B, N, k)))
    for axes, args in [((0, None, None), (V, U, W)), ((0, 0, None), (V, Us, W)), ((None, 0, None), (V[0], Us, W))]:
        compare(f, axes, *(x if hasattr(x, "format") else sj.array(x) for x in args))
    text = sj.jit(sj.vmap(f, in_axes=(0, None, None))).lower(V, U, W).as_text("plan")
    assert ("w[i,j] reduces add of multiply(B[i,l], C[j,l])" in text) == (k > 0), text


def test_patterns_in_orders_that_do_not_agree():
    """The batch goes in front where dimensions come in their own order, so that results keep the pattern of every element."""
    c = array(rng(), (2, 4), "(q,s)@(1,0)")
    f = lambda b: snp.where(c > 0.5, (c * 2).asformat("coo"), b)  # noqa: E731
    stack = array(rng(), (2, 3, 4), "(d,d,c)")
    made = sj.vmap(f, in_axes=1)(stack)
    elements = [f(sj.array(stack.todense()[:, k], format="csr")) for k in range(3)]
    assert not made.format.is_dense and made.nnz == sum(e.nnz for e in elements)
    np.testing.assert_array_equal(made.todense(), np.stack([e.todense() for e in elements]))
