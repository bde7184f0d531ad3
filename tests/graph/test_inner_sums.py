"""Sums over axes of products whose one operand alone has them, summed first (`inner_sums`): against loops over what is stored; and which are."""

import itertools
import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.jit.ir import choices
from tests.fuzz import engine

FORMATS = {1: ("coo", "dense"), 2: ("csr", "csc", "coo", "dcsr", "dense"), 3: ("csf", "coo", "dense")}
RINGS = {
    "plus_times": (np.add, np.multiply, 0.0, "sum"),
    "min_plus": (np.minimum, np.add, np.inf, "min"),
    "max_plus": (np.maximum, np.add, -np.inf, "max"),
    "max_min": (np.maximum, np.minimum, -np.inf, "max"),
}
DTYPES = {"float64": 1e200, "float32": 1e30, "complex128": None, "int64": 2**62, "int32": 2**30, "bool": None}
"""And numbers so large that the product of two overflows."""


@pytest.fixture(autouse=True)
def quick():
    with engine.quick():
        yield


def plan(f, *args):
    return sj.jit(f).lower(*args).as_text("plan")


def drawn(rng, nrng, shape, dtype, special):
    """An array in some format and what it stores; perhaps one number of it is `special`."""
    form = rng.choice(FORMATS[len(shape)])
    values = nrng.integers(-4, 5, shape).astype(dtype)
    if dtype == "complex128":
        values = values + 1j * nrng.integers(-4, 5, shape)
    stored = (nrng.random(shape) < rng.choice((0.1, 0.5))) & (values != 0)
    if special is not None and values.size:
        place = tuple(rng.randrange(n) for n in shape)
        values[place], stored[place] = special, True
    if form == "dense":
        return snp.asarray(values), values, np.ones(shape, bool)
    values = np.where(stored, values, np.zeros((), dtype))
    return snp.asarray(values).asformat(form), values, stored


def slow(operands, inputs, output, axes, ring):
    """The sum of a product by loops over all coordinates that every operand stores, in the dtype of the operands; and the sum of the absolute terms."""
    add, mul, zero, _ = RINGS[ring]
    extents = {x: n for (v, _), ls in zip(operands, inputs, strict=True) for x, n in zip(ls, v.shape, strict=True)}
    dtype = operands[0][0].dtype
    if dtype.kind == "b":
        add, mul = np.logical_or, np.logical_and
    kept = [x for k, x in enumerate(output) if k not in axes]
    product, bound = {}, np.zeros([extents[x] for x in kept])
    for place in itertools.product(*(range(extents[x]) for x in extents)):
        at = dict(zip(extents, place, strict=True))
        keys = [tuple(at[x] for x in ls) for ls in inputs]
        if all(s[k] for (_, s), k in zip(operands, keys, strict=True)):
            term = mul(*(v[k] for (v, _), k in zip(operands, keys, strict=True)))
            key = tuple(at[x] for x in output)
            product[key] = add(product[key], term) if key in product else term
            bound[tuple(at[x] for x in kept)] += np.abs(np.float64(abs(term)))
    want = np.full(bound.shape, zero, dtype)
    for key, value in product.items():
        place = tuple(n for k, n in enumerate(key) if k not in axes)
        want[place] = add(want[place], value)
    return want, bound


def draw_labels(rng):
    """Labels of two operands, of their product, and the axes of it that are summed: one label of them belongs to one operand."""
    while True:
        inputs = [rng.sample("abcd", rng.randint(1, 3)) for _ in range(2)]
        union = sorted({*inputs[0], *inputs[1]})
        output = rng.sample(union, rng.randint(1, len(union)))
        if len(output) > 3:
            continue
        axes = tuple(sorted(rng.sample(range(len(output)), rng.randint(1, len(output)))))
        if any(sum(output[a] in ls for ls in inputs) == 1 for a in axes):
            return inputs, output, axes


@pytest.mark.rotating(6)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", ["inside", "outside"])
@pytest.mark.parametrize("seed", range(12))
def test_random_sums_of_products(dtype, way, seed):
    """In any format, with numbers that are infinite, NaN or large, in semirings: as loops over what is stored say."""
    rng, nrng = random.Random(f"{dtype} {seed}"), np.random.default_rng(seed)
    real = dtype.startswith("float")
    ring = rng.choice(list(RINGS)) if real else "plus_times"
    inputs, output, axes = draw_labels(rng)
    extents = {x: rng.choice((1, 2, 3, 5)) for x in "abcd"}
    specials = [None, None, DTYPES[dtype], *((np.inf, -np.inf, np.nan) if real else ())]
    made = [drawn(rng, nrng, [extents[x] for x in ls], dtype, rng.choice(specials)) for ls in inputs]
    kind = "any" if dtype == "bool" else RINGS[ring][3]
    subscripts = f"{','.join(''.join(ls) for ls in inputs)}->{''.join(output)}"
    options = {"dtype": dtype} if dtype == "int32" else {}

    def program(x, y):
        product = sj.einsum(subscripts, x, y, semiring=None if ring == "plus_times" else ring)
        return getattr(snp, kind)(product, axis=axes, **options)

    arrays = [a for a, _, _ in made]
    choices.TAKEN.clear()
    with np.errstate(all="ignore"), config.using(choose=f"reductions={way}"):
        got = np.asarray(sj.jit(program)(*arrays).todense())
        want, bound = slow([(v, s) for _, v, s in made], inputs, output, axes, ring)
    assert got.dtype == want.dtype
    told = f"{subscripts} {axes} {ring} {[a.format for a in arrays]}"
    if not real or ring != "plus_times":
        np.testing.assert_array_equal(got, want, told)
        return
    with np.errstate(invalid="ignore"):
        close = np.abs(got - want) <= 64 * np.finfo(dtype).eps * bound
    assert np.all(close | (got == want) | (np.isnan(got) & np.isnan(want))), told


def test_what_is_drawn_is_summed_first():
    """Nearly all that `draw_labels` makes is legal, so that the random test is about it."""
    rng, nrng = random.Random(0), np.random.default_rng(0)
    choices.TAKEN.clear()
    for _ in range(10):
        inputs, output, axes = draw_labels(rng)
        x, y = (drawn(rng, nrng, [3] * len(ls), "float64", None)[0] for ls in inputs)
        subscripts = f"{','.join(''.join(ls) for ls in inputs)}->{''.join(output)}"
        with config.using(choose="reductions=inside"):
            sj.jit(lambda x, y, s=subscripts, a=axes: snp.sum(sj.einsum(s, x, y), axis=a)).lower(x, y).as_text("plan")
    assert choices.TAKEN["reductions", "inside"] >= 9


def sparse(n=400, degree=8, seed=0):
    rng = np.random.default_rng(seed)
    made = np.zeros((n, n))
    made[rng.integers(0, n, n * degree), rng.integers(0, n, n * degree)] = rng.integers(1, 5, n * degree)
    made[::5] = 0
    return made


def test_a_sum_of_a_product_of_sparse_matrices():
    """Along rows, columns and both: no row of the product is made; what it costs is told."""
    D = sparse()
    A = snp.asarray(D).asformat("csr")
    for axis, text in ((1, "ij,(jk->j)->i: cost"), (0, "(jk->k),ki->i: cost"), (None, "(ij->j),(jk->j)->: cost")):
        made = plan(lambda A, axis=axis: (A @ A).sum(axis=axis), A)
        assert text in made, made
        assert "as written (" in made
        assert "w[i,k]" not in made
        np.testing.assert_array_equal(
            sj.jit(lambda A, axis=axis: (A @ A).sum(axis=axis))(A).todense(), (D @ D).sum(axis)
        )


def test_products_of_products_are_summed_through():
    """A @ (B @ (C @ 1)): three products with vectors."""
    D = sparse()
    A = snp.asarray(D).asformat("csr")

    def chain(A):
        return (A @ (A @ A)).sum(axis=1)

    np.testing.assert_array_equal(sj.jit(chain)(A).todense(), (D @ D @ D).sum(axis=1))
    assert plan(chain, A).count("as written (") == 2


def test_derivatives_and_batches():
    D, rng = sparse(60), np.random.default_rng(0)
    A = snp.asarray(D).asformat("csr")
    X = rng.integers(-3, 4, (60, 5)).astype(float)

    def summed(X):
        return (A @ X).sum(axis=1)

    with config.using(choose="reductions=inside"):
        slopes = sj.jit(sj.grad(lambda X: snp.sum(summed(X) ** 2)))(X)
        many = sj.jit(sj.vmap(summed))(np.stack([X, 2 * X]))
    want = (D @ X).sum(axis=1)
    np.testing.assert_array_equal(many.todense(), np.stack([want, 2 * want]))
    np.testing.assert_array_equal(slopes.todense(), np.repeat((D.T @ (2 * want))[:, None], 5, axis=1))


def test_neither_what_others_read_nor_pinned_nor_converted_products_are_summed_first():
    A = snp.asarray(sparse()).asformat("csr")
    narrow = A.astype(np.int32)
    programs = {
        "read twice": (lambda A: (T := A @ A).sum(axis=1) + T.max(), A),
        "pinned": (lambda A: sj.einsum("ij,jk->ik", A, A, out_format="csr").sum(axis=1), A),
        "in 64 bits": (lambda A: (A @ A).sum(axis=1), narrow),
        "another operation": (lambda A: (A @ A).max(axis=1), A),
        "every operand has the axis": (lambda A: sj.einsum("ij,ij->ij", A, A).sum(axis=1), A),
    }
    for name, (program, array) in programs.items():
        with config.using(choose="reductions=inside"):
            choices.TAKEN.clear()
            plan(program, array)
            assert not choices.TAKEN["reductions", "inside"], name
    assert "as written (" in plan(lambda A: (A @ A).sum(axis=1, dtype=np.int32), narrow)


def test_fills_that_do_not_annihilate_stay():
    D = np.where(sparse(40) == 0, 2.0, sparse(40))
    F, A = sj.array(D, format="csr", fill_value=2.0), snp.asarray(sparse(40)).asformat("csr")
    with config.using(choose="reductions=inside"):
        got = sj.jit(lambda A, F: (A @ F).sum(axis=1))(A, F)
    np.testing.assert_array_equal(got.todense(), (sparse(40) @ D).sum(axis=1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_what_is_not_finite_spreads_as_written(bad):
    """An infinity beside an empty row contributes nothing; the plan serves other numbers before and after."""
    D = sparse()
    D[1, 5] = bad  # row 5 is empty
    assert not D[5].any()
    made = sj.jit(lambda A: (A @ A).sum(axis=1))
    A, B = (snp.asarray(x).asformat("csr") for x in (D, sparse()))
    assert "ij,(jk->j)->i: cost" in made.lower(A).as_text("plan")
    for _ in range(2):
        np.testing.assert_array_equal(made(B).todense(), (sparse() @ sparse()).sum(axis=1))
        assert made(A).todense()[1] == (sparse()[1] @ sparse()).sum()


def test_operands_that_steps_make_are_looked_at():
    D = sparse()
    A = snp.asarray(D).asformat("csr")
    made = sj.jit(lambda A, s: (A @ snp.exp(A * s)).sum(axis=1))
    for s in (0.0, 0.5, 300.0):
        with np.errstate(all="ignore"), config.using(skip=config.skip() | {"inner_sums"}):
            want = sj.jit(lambda A, s: (A @ snp.exp(A * s)).sum(axis=1))(A, s).todense()
        np.testing.assert_allclose(made(A, s).todense(), want, rtol=1e-12)
