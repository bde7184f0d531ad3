"""Reductions at several places of a walk at once: right for any lengths, formats and dtypes, and the same bits wherever a place stands."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.backend import host
from tests import bounds
from tests.fuzz import engine

FORMATS = ["csr", "coo", "dcsr", "ell", "groupcoo:4", "csc", "lil", "hash"]


@pytest.fixture
def quick():
    """Without optimisation: products may be fused with sums in one place and not in another."""
    with engine.quick():
        yield


def factors(rng, rows, cols, extent, dtype):
    def drawn(*shape):
        made = rng.standard_normal(shape) * 4
        return (made + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else made).astype(dtype)

    keep = np.arange(cols) < rng.integers(0, cols + 1, (rows, 1))  # rows of every length
    return np.where(keep, drawn(rows, cols), 0).astype(dtype), drawn(rows, extent), drawn(cols, extent)


EXPRESSIONS = {
    "sampled": (lambda A, U, V: sj.einsum("ij,ik,jk->ij", A, U, V), lambda A, U, V: A * (U @ V.T)),
    "masked": (lambda A, U, V: A * (U @ V.T) + A, lambda A, U, V: A * (U @ V.T) + A),
    "summed": (lambda A, U, V: (A * (U @ V.T)).sum(), lambda A, U, V: (A * (U @ V.T)).sum()),
    "rows": (lambda A, U, V: (A * (U @ V.T)).sum(axis=1), lambda A, U, V: (A * (U @ V.T)).sum(axis=1)),
    "distances": (
        lambda A, U, V: A * ((U[:, None, :] - V[None, :, :]) ** 2).sum(axis=2),
        lambda A, U, V: A * ((U[:, None, :] - V[None, :, :]) ** 2).sum(axis=2),
    ),
}


def sizes(name, A, U, V):
    """The same of absolute values."""
    return EXPRESSIONS[name][1](np.abs(A), np.abs(U), -np.abs(V) if name == "distances" else np.abs(V))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("form", FORMATS)
def test_expressions_over_formats(quick, name, form):
    ours, theirs = EXPRESSIONS[name]
    rng = np.random.default_rng(0)
    A, U, V = factors(rng, 9, 11, 21, np.float64)
    made = sj.jit(ours)(sj.array(A, format=form), U, V)
    bounds.check(made.todense(), theirs(A, U, V), sizes(name, A, U, V))


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i4", "i8"])
@pytest.mark.parametrize("extent", [1, 2, 7, 16, 37])
def test_dtypes_and_extents(quick, dtype, extent):
    A, U, V = factors(np.random.default_rng(extent), 8, 10, extent, dtype)
    made = sj.jit(EXPRESSIONS["sampled"][0])(sj.array(A, format="csr"), U, V)
    wide = "c16" if np.dtype(dtype).kind == "c" else "f8"
    A, U, V = (x.astype(wide) for x in (A, U, V))
    bounds.check(made.todense(), EXPRESSIONS["sampled"][1](A, U, V), sizes("sampled", A, U, V))


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_other_reductions(quick, reduce):
    A, U, V = factors(np.random.default_rng(1), 9, 11, 13, np.float64)
    pattern = sj.array((A != 0).astype(float), format="csr")
    made = sj.jit(lambda P, U, V: P * getattr(snp, reduce)(U[:, None, :] * V[None, :, :], axis=2))(pattern, U, V)
    want = (A != 0) * getattr(np, reduce)(U[:, None, :] * V[None, :, :], axis=2)
    np.testing.assert_array_equal(made.todense(), want)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_a_value_does_not_depend_on_its_neighbours(dtype):
    rng = np.random.default_rng(2)
    A, U, V = factors(rng, 40, 23, 37, dtype)
    sampled = sj.jit(EXPRESSIONS["sampled"][0])
    whole = sampled(sj.array(A, format="csr"), U, V).todense()
    for _ in range(3):
        kept = np.where(rng.random(A.shape) < 0.7, A, 0)
        made = sampled(sj.array(kept, format="csr"), U, V).todense()
        np.testing.assert_array_equal(made[kept != 0], whole[kept != 0])


@pytest.mark.parametrize("name", ["sampled", "summed"])
def test_the_loop_takes_several_places(name):
    A, U, V = factors(np.random.default_rng(3), 30, 30, 16, np.float64)
    text = sj.jit(EXPRESSIONS[name][0]).lower(sj.array(A, format="csr"), U, V).as_text("loops")
    once = [line for line in text.splitlines() if " = B.vals" in line]
    several, one = text.index("step 4"), text.rindex("for p")
    assert several < one
    loops = 2 if host.has_masks() else 3  # 8 lanes, some of them; or 8 lanes, 2 lanes, one by one
    assert len(once) == 2 * loops  # the row of U, for four places and for one


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_several_sums_at_every_place(quick, form):
    rng = np.random.default_rng(4)
    A, _, V = factors(rng, 10, 10, 21, np.float64)
    W = rng.standard_normal((21, 5))

    def loss(A):
        return (A @ ((A @ V) @ W)).sum()

    made = sj.jit(sj.grad(loss))(sj.array(A, format=form))
    ones = np.ones((10, 5))
    want = (A != 0) * (ones @ (A @ V @ W).T + A.T @ ones @ W.T @ V.T)
    terms = (A != 0) * (ones @ (abs(A) @ abs(V) @ abs(W)).T + abs(A).T @ ones @ abs(W).T @ abs(V).T)
    bounds.check(made.todense(), want, terms)


def test_several_sums_are_taken_in_one_loop():
    rng = np.random.default_rng(5)
    A, _, V = factors(rng, 30, 30, 16, np.float64)
    W = rng.standard_normal((16, 7))

    def loss(A):
        return ((A @ ((A @ V) @ W)) ** 2).sum()

    text = sj.jit(sj.grad(loss)).lower(sj.array(A, format="csr")).as_text("loops")
    assert "step 4" in text[text.index("A.crd") :]


@pytest.mark.parametrize("batch", [1, 3, 4, 9])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_coordinates_of_a_counted_loop(quick, batch, dtype):
    rng = np.random.default_rng(6)
    A, *_ = factors(rng, 9, 11, 1, dtype)
    values = np.stack([A * (k + 1) for k in range(batch)])
    U, V = (np.stack([factors(rng, 9, 11, 13, dtype)[n] for _ in range(batch)]) for n in (1, 2))
    mapped = sj.jit(sj.vmap(EXPRESSIONS["sampled"][0]))
    made = mapped(sj.array(values).asformat("(d,c,d)@(1,2,0)"), U, V)
    want = values * np.einsum("bik,bjk->bij", U, V)
    terms = abs(values) * np.einsum(
        "bik,bjk->bij", abs(U), abs(V)
    )  # sums in single precision are off by some roundings of their terms
    assert np.all(abs(made.todense() - want) <= (3e-7 if dtype == "f4" else 1e-15) * terms)


def test_a_counted_loop_takes_several_coordinates():
    rng = np.random.default_rng(7)
    A, U, V = factors(rng, 12, 12, 16, np.float64)
    values = sj.array(np.stack([A] * 8)).asformat("(d,c,d)@(1,2,0)")
    mapped = sj.jit(sj.vmap(EXPRESSIONS["sampled"][0]))
    assert "step 4" in mapped.lower(values, np.stack([U] * 8), np.stack([V] * 8)).as_text("loops")


def test_no_terms_at_all():
    A = sj.array(np.eye(5), format="csr")
    empty = np.zeros((5, 0))
    made = sj.jit(EXPRESSIONS["sampled"][0])(A, empty, empty)
    np.testing.assert_array_equal(made.todense(), np.zeros((5, 5)))
