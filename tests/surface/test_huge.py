"""Shapes whose sizes exceed 64 bits, and dense results out of proportion."""

import math

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.errors import FormatError

pytestmark = pytest.mark.rotating(24)

N = 2**40
ROWS, COLS, VALUES = np.array([0, 7, 7, 2**39]), np.array([1, 1, 2**35, 7]), np.array([2.0, -3.0, 5.0, 0.5])
FORMS = ["coo", "dcsr", "dcsc"]


def huge(form, dtype=np.float64, fill=0):
    return sj.array((VALUES.astype(dtype), (ROWS, COLS)), shape=(N, N), format="coo", fill_value=fill).asformat(form)


def entries(x):
    """The stored entries of a sparse array, zeros left out."""
    coords, vals = x.storage.expand()
    return {tuple(map(int, c)): v for *c, v in zip(*coords, vals, strict=True) if v}


def product(a, b):
    made = {}
    for (i, k), x in a.items():
        for (l, j), y in b.items():
            if k == l:
                made[i, j] = made.get((i, j), 0) + x * y
    return made


@pytest.mark.parametrize("form", FORMS)
def test_reductions_count_what_is_not_stored(form):
    h = huge(form)
    assert (float(h.max().todense()), float(h.min().todense())) == (5, -3)
    assert (float(h.prod().todense()), float(h.sum().todense())) == (0, 4.5)
    assert not h.all().todense() and h.any().todense()
    exact = float(N) * N - 4 + math.fsum(np.cos(VALUES))
    assert float(snp.cos(h).sum().todense()) == exact
    assert float((h + 3).min().todense()) == 0 and float((h - 6).max().todense()) == -1


@pytest.mark.parametrize("fill", [3, -1, 2, 6])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int32])
def test_integers_count_modulo_two_to_the_sixty_four(fill, dtype):
    values = np.array([2, 3, 5], dtype)
    fill = fill % 256 if dtype == np.uint8 else fill
    h = sj.array((values, ([0, 7, 9], [1, 1, 7])), shape=(N, N), fill_value=fill)
    missing = N * N - 3
    wrap = np.uint64 if dtype == np.uint8 else np.int64
    total = (10 + fill * missing) % 2**64
    assert h.sum().todense() == np.uint64(total).astype(wrap)
    product = (30 * pow(fill, missing, 2**64)) % 2**64
    assert h.prod().todense() == np.uint64(product).astype(wrap)


def test_signs_of_huge_powers():
    for shape, missing in (((2**40, 2**40), 2**80 - 1), ((2**40 + 1, 2**40 + 1), (2**40 + 1) ** 2 - 1)):
        h = sj.array((np.ones(1), ([0], [1])), shape=shape, fill_value=-1.0)
        assert h.prod().todense() == (-1.0) ** (missing % 2)


UNITS = {"f": (-1, 1), "c": (-1, 1j, -1j, 1)}


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_products_count_every_absent_entry(dtype):
    """Powers of units are exact, however many: beyond 2^24, 2^53 and 2^63 floats are not."""
    rng = np.random.default_rng(0)
    for _ in range(6):
        bits, along = int(rng.choice([2, 23, 24, 25, 31, 32, 52, 53, 54, 61, 62])), int(rng.integers(1, 4))
        extent, fill = 2**bits + int(rng.integers(-3, 4)), UNITS[dtype[0]][rng.integers(len(UNITS[dtype[0]]))]
        form = rng.choice(["coo", "(d,c)"])
        rows = rng.integers(0, along, 2)
        coords = np.unique(np.array([rows, rng.integers(0, extent, 2)]), axis=1)
        values = np.full(coords.shape[1], 2, dtype)
        h = sj.array((values, coords), shape=(along, extent), format=str(form), fill_value=fill)
        counts = np.bincount(coords[0], minlength=along)
        want = [2 ** int(n) * raised(fill, extent - int(n)) for n in counts]
        for f in (snp.prod, sj.jit(snp.prod, static_argnames="axis")):
            np.testing.assert_array_equal(f(h, axis=1).todense(), np.array(want, dtype), str(h))
        whole = 2 ** len(values) * raised(fill, along * extent - len(values))
        np.testing.assert_array_equal(snp.prod(h).todense(), np.dtype(dtype).type(whole), str(h))


def raised(unit, times):
    """A power of 1, -1, 1j or -1j."""
    made = 1
    for _ in range(times % 4):
        made *= unit
    return made


@pytest.mark.parametrize("fill", [0.5, -2.0, -np.inf, np.nan, -0.0, 1 + 2**-20, -1 - 2**-20])
def test_powers_of_fills_in_single_precision(fill):
    for extent in (5, 6, 2**24 + 2, 2**24 + 3, 2**25 + 3):
        h = sj.array((np.array([2], "f4"), ([1],)), shape=(extent,), format="coo", fill_value=np.float32(fill))
        with np.errstate(all="ignore"):
            size = np.power(np.abs(np.float64(np.float32(fill))), extent - 1)
            want = np.float32(2 * (-size if fill < 0 and extent % 2 == 0 else size))
        np.testing.assert_allclose(h.prod().todense(), want, rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_results_stay_sparse(form, other):
    h, g = huge(form), huge(other)
    a = entries(h)
    t = {(j, i): v for (i, j), v in a.items()}
    assert entries(h + g.T) == {k: a.get(k, 0) + t.get(k, 0) for k in {*a, *t}}
    assert entries(h.T @ g) == product(t, a)
    assert entries(h @ g) == product(a, a)
    assert entries(h @ g.T) == product(a, t)
    assert entries(h.T @ g.T) == product(t, t)


@pytest.mark.parametrize("form", [*FORMS, "(q,q)@(1,0)", "(h,h)", "(c,l)"])
def test_parts_and_updates_have_no_size_of_the_shape(form):
    """Where a vector along an axis was made, 8 TiB were asked for."""
    h, end = huge(form), N - 1
    a = entries(h)
    assert entries(h[::-1]) == {(end - i, j): v for (i, j), v in a.items()}
    assert entries(snp.flip(h, 1)) == {(i, end - j): v for (i, j), v in a.items()}
    assert entries(h[:, [2**35, 1]]) == {(i, 1 - (j == 2**35)): v for (i, j), v in a.items() if j != 7}
    for k in (0, 7, -6, 2**35):
        assert entries(snp.tril(h, k)) == {(i, j): v for (i, j), v in a.items() if j - i <= k}
        assert entries(snp.triu(h, k)) == {(i, j): v for (i, j), v in a.items() if j - i >= k}
    assert snp.tril(h).format == h.format
    new = h.at[np.array([7, end]), np.array([1, 2])].set(np.array([9.0, 8.0]))
    assert entries(new) == a | {(7, 1): 9.0, (end, 2): 8.0}
    if form != "(c,l)":
        assert entries(snp.kron(sj.eye(2, format="coo"), h)) == a | {(i + N, j + N): v for (i, j), v in a.items()}
    with pytest.raises(ValueError, match=r"argmax of an array of shape .* give the axis"):
        h.argmax()


def test_functions_along_a_long_axis_cost_what_is_stored():
    n = 2**34
    h = sj.array((np.array([1.0, 2.0, -3.0]), ([5, 2**33, 2**33 + 7],)), shape=(n,), format="coo")
    assert (int(h.argmax()), int(snp.argmin(h)), int(snp.argmin(snp.abs(h)))) == (2**33, 2**33 + 7, 0)
    drawn = sj.random.uniform(sj.random.key(0), like=h)
    assert drawn.format == h.format and len(set(drawn.data.tolist())) == 3
    assert entries(snp.diag(h, -2)) == {(k + 2, k): v for (k,), v in entries(h).items()}
    assert entries(snp.delete(h, 5)) == {(2**33 - 1,): 2.0, (2**33 + 6,): -3.0}
    assert entries(snp.delete(h, slice(3, 2**33 + 1))) == {(9,): -3.0}
    assert entries(snp.insert(h, 6, 9.0)) == {(5,): 1.0, (6,): 9.0, (2**33 + 1,): 2.0, (2**33 + 8,): -3.0}
    assert entries(snp.digitize(h, np.array([0.5, 1.5]))) == {(5,): 1, (2**33,): 2}
    for function in (snp.argsort, snp.cumsum, lambda x: snp.convolve(x, np.ones(3))):
        with pytest.raises(FormatError, match="is dense: of an array of shape"):
            function(h)


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "dcsr"])
def test_long_axes_give_what_short_ones_do(form, monkeypatch):
    rng = np.random.default_rng(1)
    X = np.where(rng.random((5, 23)) < 0.4, rng.integers(-3, 4, (5, 23)), 0).astype(float)
    A, x = sj.array(X, format=form), sj.array(X[0], format="coo")
    drawn = sj.random.normal(sj.random.key(3), like=A)
    keys = sj.random.split(sj.random.key(3), 5)
    lines = sj.vmap(lambda key, a: sj.random.uniform(key, like=a))
    of_lines = lines(keys, A).todense()
    programs = [
        lambda m, A, x: m.argmax(A, axis=1), lambda m, A, x: m.argmin(A, axis=0), lambda m, A, x: m.argmin(x),
        lambda m, A, x: m.diag(x), lambda m, A, x: m.diag(x, 2), lambda m, A, x: m.diag(x, -2),
        *(lambda m, A, x, o=o: m.delete(A, o, 1) for o in (3, -1, [0, 22, 5, 5], [-23, 4], slice(2, 9), slice(9, 2, -1), slice(None),
                                                            slice(7, 7), slice(20, None), slice(None, None, 4), slice(20, 2, -5))),
        lambda m, A, x: m.insert(x, [3, 3, 0, 23, -1], [1.0, 2.0, 3.0, 4.0, 5.0]), lambda m, A, x: m.insert(x, 3, [1.0, 2.0]),
        lambda m, A, x: m.insert(A, [6, 2, 6], np.arange(15.0).reshape(5, 3), 1), lambda m, A, x: m.insert(A, 4, 7.0, 1),
        lambda m, A, x: m.insert(A, slice(2, 6, 2), 7.0, 1), lambda m, A, x: m.insert(x, [], []),
    ]  # fmt: skip
    monkeypatch.setattr("sparsejax.lax.extents.LONG", 3)
    for program in programs:
        np.testing.assert_array_equal(program(snp, A, x).todense(), program(np, X, X[0]))
    sj.clear_caches()
    again = sj.random.normal(sj.random.key(3), like=A)
    assert again.format == A.format
    np.testing.assert_array_equal(again.todense(), drawn.todense())
    np.testing.assert_array_equal(lines(keys, A).todense(), of_lines)


@pytest.mark.parametrize("bits", [34, 59, 60, 62])
@pytest.mark.parametrize("count", [12, 90, 5000])
def test_rows_of_columns_whose_places_no_number_names(bits, count):
    rng = np.random.default_rng(bits)
    at = np.unique(np.array([rng.integers(0, 9, count), rng.integers(0, 2**bits, count)]), axis=1)
    mixed = rng.permutation(np.tile(np.arange(at.shape[1]), 2))  # every entry twice
    for form in ("coo", "csr", "dcsr"):
        A = sj.array((np.ones(len(mixed)), tuple(at[:, mixed])), shape=(9, 2**bits), format=form)
        np.testing.assert_array_equal(np.array(A.storage.expand()[0], dtype=np.int64), at)
        assert (A.data == 2).all()
    B = sj.array((np.arange(float(at.shape[1])), tuple(at)), shape=(9, 2**bits), format="csr")
    some = rng.integers(0, at.shape[1], 20)
    np.testing.assert_array_equal(B[at[0, some], at[1, some]].todense(), some)
    assert not B[at[0, some], at[1, some] ^ 1].todense().any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("axis", [0, 1])
def test_sums_along_an_axis_stay_sparse(form, axis):
    h = huge(form)
    want = {}
    for index, v in entries(h).items():
        want[(index[1 - axis],)] = want.get((index[1 - axis],), 0) + v
    got = h.sum(axis=axis)
    assert got.shape == (N,) and not got.format.is_dense
    assert entries(got) == {k: v for k, v in want.items() if v}
    highest = {}
    for index, v in entries(h).items():
        highest[(index[1 - axis],)] = max(highest.get((index[1 - axis],), 0), v)
    assert entries(h.max(axis=axis)) == {k: v for k, v in highest.items() if v}


def test_small_shapes_keep_their_formats():
    a = sj.array(np.eye(4), format="csr")
    assert a.sum(axis=0).format.is_dense
    assert str((a + a.T).format) == "csr" and str((a.T @ a).format) == "csr"


def test_dense_results_out_of_proportion_are_refused(monkeypatch):
    big = sj.array((np.ones(1), ([3], [4])), shape=(20_000, 20_000))
    with pytest.raises(FormatError, match="dense_limit"):
        big + np.ones(20_000)
    with pytest.raises(FormatError, match="out_format"):
        sj.jit(lambda a, x: a + x)(big, np.ones(20_000))
    assert not (big * np.ones(20_000)).format.is_dense
    monkeypatch.setattr(config, "GIBIBYTE", 1000)
    a, row = sj.array((np.ones(1), ([3], [4])), shape=(300, 301)), np.ones(301)
    old = config.dense_limit()
    try:
        for limit in (1000, 0):
            config.update("dense_limit", limit)
            assert float((a + row).sum().todense()) == 300 * 301 + 1
        config.update("dense_limit", 100)
        with pytest.raises(FormatError, match="100 times"):
            a - row
    finally:
        config.update("dense_limit", old)
    for wrong in (-1, True, 2.5):
        with pytest.raises(TypeError, match="whole number"):
            config.update("dense_limit", wrong)


@pytest.mark.parametrize("name", ["dia", "bsr:64x64", "ell"])
def test_formats_that_pad_out_of_proportion_are_refused(name, monkeypatch):
    monkeypatch.setattr(config, "GIBIBYTE", 1000)
    n = 20_000
    rows = np.zeros(200, int) if name == "ell" else np.arange(200) * 97
    scattered = sj.array((np.ones(200), (rows, (np.arange(200) * 31) % n)), shape=(n, n))
    with pytest.raises(FormatError, match="dense_limit"):
        scattered.asformat(name)
    with config.using(dense_limit=0):
        assert scattered.asformat(name).sum() == 200


SPARSE = [
    "csr",
    "csc",
    "coo",
    "dcsr",
    "dcsc",
    "csf",
    "lil",
    "ell",
    "dia",
    "hash",
    "rle",
    "banded",
    "bsr:2x2",
    "groupcoo:4",
    "(c,c,d,d)@(0,1,0,1)/(2,2)",
    "(c,b)",
]


@pytest.mark.parametrize("form", SPARSE)
def test_arrays_like_sparse_ones_take_no_dense_memory(form):
    """A million rows and columns: 7 TiB as dense arrays."""
    n = 10**6
    A = sj.array((np.ones(3), ([0, 5, n - 1], [1, n - 2, 7])), shape=(n, n), format="coo").asformat(form)
    for made, fill in (
        (snp.zeros_like(A), 0),
        (snp.ones_like(A), 1),
        (snp.full_like(A, 2.5), 2.5),
        (snp.zeros((n, n), format=form), 0),
        (sj.jit(lambda x: snp.full_like(x, 2.5))(A), 2.5),
    ):
        assert (made.shape, made.format, made.fill_value, made.nnz) == ((n, n), A.format, fill, 0)
        assert made.nbytes < 1 << 25
