"""`prune` and `eliminate_zeros`: every format, dtype, fill and transformation, against NumPy and SciPy."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.array import Array
from sparsejax.formats import convert, distances
from sparsejax.formats import largest as numbers
from sparsejax.formats.validate import validate
from tests import rotation
from tests.autodiff import checks
from tests.formats.strategies import storages
from tests.sweeps.operations import FORMATS

SPARSE = [form for form in FORMATS if form != "dense"] + ["csf", "dcsc", "(d,d,d,d)@(0,1,0,1)/(2,2)"]
RNG = np.random.default_rng(0)
D = np.round(RNG.normal(size=(6, 7)), 1) * (RNG.random((6, 7)) < 0.6)


def is_sound(made, source, want):
    """The result has the type of its source, sound storage, and these values."""
    assert (made.format, made.dtype, made.shape) == (source.format, source.dtype, source.shape)
    assert_array_equal(made.fill_value, source.fill_value)
    validate(made.storage)
    assert_array_equal(made.todense(), want)


def largest(dense, keep, axes):
    """The `keep` largest magnitudes of every line, one after the other."""
    lines = np.moveaxis(dense, axes, range(-len(axes), 0))
    if not dense.size:
        return dense
    flat = lines.reshape(math.prod(n for d, n in enumerate(dense.shape) if d not in axes), -1)
    made = np.zeros_like(flat)
    for row, out in zip(flat, made):
        sizes = np.abs(row) if row.dtype.kind in "fc" else [abs(int(v)) for v in row]
        order = sorted(range(len(row)), key=lambda k: (-sizes[k], k))[:keep]
        out[order] = row[order]
    return np.moveaxis(made.reshape(lines.shape), range(-len(axes), 0), axes)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("form", SPARSE)
def test_formats(form):
    A = sj.array(D, format=form)
    is_sound(sj.prune(A, tol=0.5), A, np.where(np.abs(D) > 0.5, D, 0))
    is_sound(sj.prune(A, tol=np.abs(D).mean(axis=1, keepdims=True)), A, D * (np.abs(D) > np.abs(D).mean(1)[:, None]))
    positive = np.where(D > 0.3, D, 0)
    for predicate in (lambda a: a > 0.3, D > 0.3, sj.array(D > 0.3, format="csc"), sj.array(D > 0.3, format=form)):
        is_sound(sj.prune(A, predicate=predicate), A, positive)
    is_sound(sj.prune(A, predicate=lambda a: a < 0.3), A, np.where(D < 0.3, D, 0))
    is_sound(sj.prune(A, predicate=A.data > 0.3), A, positive)
    for axis in (0, 1, None):
        want = largest(D, 2, (0, 1) if axis is None else (axis,))
        is_sound(sj.prune(A, keep=2, axis=axis), A, want)
        is_sound(sj.jit(lambda A, axis=axis: sj.prune(A, keep=2, axis=axis))(A), A, want)
    is_sound(sj.prune(A, tol=0.5, predicate=lambda a: a > 0, keep=1), A, largest(np.where(D > 0.5, D, 0), 1, (1,)))
    is_sound(sj.jit(lambda A, t: sj.prune(A, tol=t))(A, 0.5), A, np.where(np.abs(D) > 0.5, D, 0))
    is_sound(sj.jit(lambda A: sj.prune(A, predicate=lambda a: a > 0.3))(A), A, positive)


@pytest.mark.parametrize("form", SPARSE)
def test_stored_zeros(form):
    coords = np.array([[0, 0, 1, 2, 2], [0, 2, 1, 0, 2]])
    A = Array(
        convert.from_coords(coords, np.array([0.0, 3, 0, np.nan, -0.0]), (3, 3), sj.array(D, format=form).format, 0)
    )
    want = np.array([[0, 0, 3], [0, 0, 0], [np.nan, 0, 0]])
    is_sound(A.eliminate_zeros(), A, want)
    is_sound(sj.prune(A), A, want)
    is_sound(sj.jit(lambda A: A.eliminate_zeros())(A), A, want)
    assert not str(A.format).startswith("c") or A.eliminate_zeros().nnz == 2
    assert A.nnz >= 5


@settings(max_examples=rotation.examples(60), deadline=None)
@given(storages(max_ndim=4), st.integers(0, 3), st.sampled_from([0, 1, 2.5]), st.integers(0, 3))
def test_any_array(drawn, keep, tol, axis):
    storage, dense = drawn
    A = Array(storage)
    if A.format.is_dense:
        return
    is_sound(sj.prune(A, tol=tol), A, np.where(np.abs(dense) > tol, dense, 0))
    is_sound(sj.prune(A), A, dense)
    if A.ndim:
        axis %= A.ndim
        is_sound(sj.prune(A, keep=keep, axis=axis), A, largest(dense, keep, (axis,)))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_against_scipy(form):
    S = sp.random_array((200, 300), density=0.1, rng=1, format="csr")
    A, T = sj.array(S.asformat(form)), S.asformat(form).copy()
    T.data[np.abs(T.data) <= 0.4] = 0
    T.eliminate_zeros()
    made = sj.prune(A, tol=0.4)
    assert made.nnz == T.nnz and abs(made.to_scipy() - T).nnz == 0
    want = largest(S.toarray(), 7, (1,))
    assert_array_equal(sj.prune(A, keep=7).todense(), want)
    assert_array_equal(sj.prune(A, keep=7, axis=0).todense(), largest(S.toarray(), 7, (0,)))
    assert sj.prune(A, keep=7).nnz == np.count_nonzero(want)


@pytest.mark.parametrize("form", ["csr", "bsr:2x2", "coo", "rle"])
def test_fills(form):
    values = np.array([[1.0, 2.0, 5.0], [1.0, 0.0, 1.5]])
    A = sj.array(values, format=form, fill_value=1)
    is_sound(sj.prune(A, tol=1), A, [[1, 1, 5], [1, 1, 1]])
    far = sj.array(np.array([[np.inf, 3.0], [np.nan, np.inf]]), format="csr", fill_value=np.inf)
    is_sound(sj.prune(far, tol=1), far, far.todense())
    missing = sj.array(np.array([[np.nan, 3.0], [np.nan, 0.0]]), format="csr", fill_value=np.nan)
    is_sound(sj.prune(missing), missing, missing.todense())
    assert sj.prune(missing, predicate=np.ones((2, 2), bool)).nnz == 2


def test_numbers():
    I = sj.array(np.array([[-128, 127, 3], [1, -2, 100]], np.int8), format="csr")
    is_sound(sj.prune(I, keep=1), I, [[-128, 0, 0], [0, 0, 100]])
    is_sound(sj.prune(I, tol=127), I, [[-128, 0, 0], [0, 0, 0]])
    is_sound(sj.prune(I, tol=2.9), I, [[-128, 127, 3], [0, 0, 100]])
    big = sj.array(np.array([2**53 + 1, 2**53, 5]), format="coo")
    is_sound(sj.prune(big, tol=2**53), big, [2**53 + 1, 0, 0])
    is_sound(sj.prune(big, keep=1), big, [2**53 + 1, 0, 0])
    is_sound(sj.prune(big, tol=np.inf), big, [0, 0, 0])
    C = sj.array(np.array([3 + 4j, 1j, 2.0]), format="coo")
    is_sound(sj.prune(C, tol=2), C, [3 + 4j, 0, 0])
    is_sound(sj.prune(C, keep=2), C, [3 + 4j, 0, 2])
    B = sj.array(np.array([[True, True, False]]), format="csr")
    is_sound(sj.prune(B, keep=1), B, [[True, False, False]])
    F = sj.array(np.array([0.1, 0.2], np.float32), format="coo")
    is_sound(sj.prune(F, tol=0.1), F, np.array([0, 0.2], np.float32))  # as abs(F) <= 0.1
    row = sj.array(np.array([1.0, np.nan, np.inf, 5.0, np.nan, -1.0]), format="coo")
    is_sound(sj.prune(row, keep=1), row, [0, np.nan, 0, 0, 0, 0])
    is_sound(sj.prune(row, keep=3), row, [0, np.nan, np.inf, 0, np.nan, 0])
    is_sound(sj.prune(sj.array(-np.ones(5), format="coo"), keep=2), row[:5], [-1, -1, 0, 0, 0])


@pytest.mark.rotating(2)
@pytest.mark.parametrize("form", [form for form in SPARSE if form not in ("rle", "(d,n)")])  # over buffers of their own
def test_derivatives(form):
    rng = np.random.default_rng(3)
    A = checks.array(rng, (5, 6), form)
    checks.check(rng, lambda A: sj.prune(A, tol=0.8) * 2, A)
    checks.check(rng, lambda A: snp.sin(sj.prune(A, keep=2, axis=0)), A)
    g = sj.grad(lambda A: (sj.prune(A, tol=0.8) ** 2).sum())(A)
    assert_array_equal(g.todense(), np.where(np.abs(A.todense()) > 0.8, 2 * A.todense(), 0))


@pytest.mark.parametrize("form", ["coo", "csf", "(d,d,c)", "(d,c,d)@(1,2,0)", "(d,c,d)"])
def test_batches(form):
    dense = np.round(RNG.normal(size=(3, 4, 5)), 1)
    A = sj.array(dense, format=form)
    got = sj.vmap(lambda a, t: sj.prune(a, tol=t, keep=2))(A, np.array([0.1, 0.5, 0.9]))
    bounded = np.where(np.abs(dense) > np.array([0.1, 0.5, 0.9])[:, None, None], dense, 0)
    assert_array_equal(got.todense(), largest(bounded, 2, (2,)))
    got = sj.vmap(lambda a: sj.prune(a, keep=3, axis=None))(A)
    assert_array_equal(got.todense(), largest(dense, 3, (1, 2)))
    one = sj.array(dense[0], format="csr")
    got = sj.vmap(lambda m: sj.prune(one, predicate=m))(dense > 0)
    assert_array_equal(got.todense(), np.where(dense > 0, dense[0], 0))


def test_arrays_from_their_own_parts():
    A = sj.array(D, format="csr")
    for condition in (A > 0.3, abs(A) > 0.5):
        made = sj.array((A[condition], snp.nonzero(condition)), shape=A.shape, format="csr")
        is_sound(made, A, np.where(condition.todense(), D, 0))
    values, indices = sj.array(A.data), [sj.array(c) for c in A.coords]
    is_sound(sj.array((values, indices), shape=A.shape, format="csr"), A, D)
    is_sound(sj.array((values, snp.stack(indices)), shape=A.shape, format="csr"), A, D)
    made = sj.jit(lambda v: sj.array((v * 2, indices), shape=A.shape, format="csr"))(values)
    assert_array_equal(made.todense(), 2 * D)


def test_nothing_is_changed():
    A = sj.array(D, format="csr")
    before = A.data.copy()
    assert sj.prune(A, tol=0.5) is not A
    assert_array_equal(A.data, before)
    assert A.prune() is A and sj.array(D).eliminate_zeros().format.is_dense
    assert sj.prune(sp.csr_array(D), tol=0.5).nnz == np.count_nonzero(np.abs(D) > 0.5)


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (ValueError, "tol=-1", {"tol": -1}),
        (ValueError, "tol=nan", {"tol": float("nan")}),
        (ValueError, "tol must not be negative", {"tol": np.array([[-1.0]])}),
        (ValueError, "does not broadcast", {"tol": np.ones(3)}),
        (TypeError, "must be real", {"tol": np.array(1j)}),
        (ValueError, "keep=-1", {"keep": -1}),
        (TypeError, "keep=1.5", {"keep": 1.5}),
        (np.exceptions.AxisError, "out of bounds", {"keep": 1, "axis": 2}),
        (ValueError, "twice", {"keep": 1, "axis": (0, -2)}),
        (TypeError, "must be bool", {"predicate": lambda a: a * 2}),
        (TypeError, "must be bool", {"predicate": np.ones((6, 7))}),
        (ValueError, "predicate has shape", {"predicate": np.ones(3, bool)}),
        (ValueError, "result of predicate has shape", {"predicate": lambda a: a[0] > 0}),
    ],
)
def test_errors(error, text, options):
    with pytest.raises(error, match=text):
        sj.prune(sj.array(D, format="csr"), **options)


OPTIONS = [
    {},
    {"tol": 2},
    {"tol": 1.5},
    {"tol": np.array([[0.0], [1.0], [2.0], [0.5], [9.0]])},
    {"keep": 1},
    {"keep": 3, "tol": 1},
    {"keep": 2, "axis": 0},
    {"keep": 4, "axis": None},
    {"keep": 0},
    {"keep": 70, "axis": None},
    {"predicate": lambda a: a > 1},
    {"predicate": lambda a: a < 1, "keep": 2},
    {"predicate": lambda a: a != 2, "tol": 1, "axis": 0, "keep": 1},
]


@pytest.mark.parametrize("passes", ["numpy", "compiled"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "u4", "i8", "?", "c16"])
def test_dense_arrays_become_sparse(dtype, options, passes):
    """As if they had been csr before; in any layout, without elements, with NaN and infinities."""
    rng = np.random.default_rng(3)
    dense = (rng.normal(size=(5, 70)) * 2).round().clip(0 if dtype[0] in "u?" else None, None).astype(dtype)
    if dtype[0] in "fc":
        dense[rng.random(dense.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf, -0.0])
    elif dtype == "i1":
        dense[0, 5] = -128
    if dtype[0] == "c" and "predicate" in options:
        return  # complex numbers have no order
    with sj.config.using(choose=f"passes={passes}"):
        for given in (dense, np.asfortranarray(dense), dense[::-1, ::2], dense[:, :0]):
            want = sj.prune(sj.array(given, format="csr"), **options)
            made = sj.prune(given, **options)
            assert (str(made.format), made.dtype, made.nnz) == ("csr", given.dtype, want.nnz)
            validate(made.storage)
            assert_array_equal(made.todense(), want.todense())
        if not isinstance(options.get("tol"), np.ndarray):
            jitted = sj.jit(lambda x: sj.prune(x, **options))(dense)
            assert str(jitted.format) == "csr"
            assert_array_equal(jitted.todense(), sj.prune(dense, **options).todense())


def test_dense_arrays_of_other_dimensions_and_fills():
    for dense in (RNG.normal(size=9), RNG.normal(size=(3, 4, 5))):
        made = sj.prune(dense, tol=0.5, keep=2)
        assert str(made.format) == "coo"
        assert_array_equal(made.todense(), sj.prune(sj.array(dense, format="coo"), tol=0.5, keep=2).todense())
    mask = RNG.random((6, 7)) < 0.5
    for predicate in (mask, sj.array(mask, format="csr")):
        assert_array_equal(sj.prune(D, predicate=predicate).todense(), np.where(mask, D, 0))
    with pytest.raises(TypeError, match="one dimension or more"):
        sj.prune(np.array(1.0))


def test_derivatives_and_batches_of_dense_arrays():
    rng = np.random.default_rng(5)
    X = checks.array(rng, (5, 6), "dense")
    checks.check(rng, lambda X: sj.prune(X, tol=0.8) * 2, X)
    checks.check(rng, lambda X: snp.sin(sj.prune(X @ X.T, keep=2)), X)
    g = sj.grad(lambda X: (sj.prune(X, keep=2) ** 2).sum())(X)
    assert_array_equal(g.todense(), 2 * largest(X.todense(), 2, (1,)))
    batch = rng.normal(size=(3, 4, 5))
    got = sj.vmap(lambda x: sj.prune(x, keep=2))(batch)
    assert_array_equal(got.todense(), largest(batch, 2, (2,)))
    got = sj.vmap(lambda x, t: sj.prune(x, tol=t))(batch, np.array([0.1, 0.5, 0.9]))
    assert_array_equal(got.todense(), np.where(np.abs(batch) > np.array([0.1, 0.5, 0.9])[:, None, None], batch, 0))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "ell", "groupcoo:2"])
def test_blocks_of_entries(form, monkeypatch):
    """What is done block by block, in blocks that are shorter than the data."""
    monkeypatch.setattr(distances, "IN_CACHE", 7)
    monkeypatch.setattr(numbers, "BLOCK", 16)
    S = sp.random_array((40, 50), density=0.3, rng=2, format="csr")
    A, dense = sj.array(S, format=form), S.toarray()
    is_sound(sj.prune(A, tol=0.4), A, np.where(dense > 0.4, dense, 0))
    is_sound(sj.prune(A, predicate=lambda a: a < 0.4), A, np.where(dense < 0.4, dense, 0))
    is_sound(sj.prune(A, keep=4), A, largest(dense, 4, (1,)))
    is_sound(sj.prune(A, keep=4, axis=0), A, largest(dense, 4, (0,)))
