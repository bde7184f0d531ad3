"""Indexing, updates of parts and concatenation against NumPy, over random formats and random keys."""

import random
import warnings

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.array import Array
from sparsejax.formats import Compressed, Coordinate, Format, convert, validate
from sparsejax.numpy import indexing
from sparsejax.numpy.indexing import parse
from tests.autodiff.checks import check
from tests.fuzz import engine
from tests.fuzz.levels import OUTPUTS, random_format

pytestmark = pytest.mark.rotating(24)

DTYPES = ("f8", "f4", "i8", "?", "c16")


def drawn(rng, ndim, fill=0, dtype="f8"):
    nrng = np.random.default_rng(rng.getrandbits(32))
    shape = tuple(rng.randint(1, 5) for _ in range(ndim))
    values = nrng.integers(0, 4, shape).astype(dtype)
    blocks = [rng.choice((1, 1, 1, 2, 3)) for _ in range(ndim)]
    form = random_format(rng, ndim, OUTPUTS, blocks)
    fill = 0 if form.is_dense else np.dtype(dtype).type(fill)
    return Array(convert.from_dense(values, form, fill)), values


def random_key(rng, shape, arrays=True):
    """Integers, slices, None, an ellipsis, index arrays of up to two dimensions, masks."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    dims = list(shape[: rng.randint(0, len(shape))]) if rng.random() < 0.5 else list(shape)
    key: list = []
    common = rng.choice([(3,), (2, 2), (), (1,), (0,)])
    for n in dims:
        kind = rng.choice(["int", "slice", "slice", "array"] if arrays else ["int", "slice"])
        if kind == "int":
            key.append(rng.randint(-n, n - 1))
        elif kind == "slice":
            a, b = (rng.choice([None, rng.randint(-n - 1, n + 1)]) for _ in range(2))
            key.append(slice(a, b, rng.choice([None, 1, 2, -1, -2])))
        elif rng.random() < 0.2:
            key.append(nrng.random(n) < 0.5)
            common = (int(key[-1].sum()),)
        else:
            key.append(nrng.integers(-n, n, rng.choice([common, common, (1,)])))
    if rng.random() < 0.3:
        key.insert(rng.randint(0, len(key)), None)
    if len(dims) == len(shape) and rng.random() < 0.3:
        key.insert(rng.randint(0, len(key)), Ellipsis)
    elif rng.random() < 0.3:
        key.append(Ellipsis)
    return key[0] if len(key) == 1 and rng.random() < 0.5 else tuple(key)


@pytest.mark.parametrize("seed", range(150))
def test_reading(seed):
    rng = random.Random(seed)
    x, dense = drawn(rng, rng.randint(1, 3), rng.choice((0, 0, 1)), rng.choice(DTYPES))
    key = random_key(rng, dense.shape)
    try:
        expected = dense[key]
    except IndexError:
        with pytest.raises(IndexError):
            x[key]
        return
    with engine.quick():
        made = x[key]
        traced = sj.jit(lambda a: a[key])(x)
    assert made.shape == expected.shape and made.dtype == x.dtype
    np.testing.assert_array_equal(made.todense(), expected)
    np.testing.assert_array_equal(traced.todense(), expected)
    if () in (parse(key, dense.shape).plain, made.shape):
        return  # a single entry is dense
    assert made.format.is_dense == x.format.is_dense
    assert x.format.is_dense or made.fill_value == x.fill_value


CROSSED = [
    np.ix_([3, 0, 2], [1, 5]),
    (slice(None, None, 2), *np.ix_([1, 1], [2, 0, 3])),
    (np.array([[2], [0]]), slice(1, 4), np.array([3, 1, 1])),
    (np.array([3, 1]), 0, np.array([[2], [-1]])),
    (None, np.array([[[0, 2]], [[1, 1]]]), np.array([[4], [3], [1]])),
    (np.zeros((0, 1), int), np.array([1, 2])),
]


@pytest.mark.parametrize("form", ["dense", "coo", "csf", "(d,c,d)@(2,0,1)", "(d,c,d,d,d)@(0,1,0,1,2)/(2,3,1)"])
@pytest.mark.parametrize("fill", [0, 2])
def test_index_arrays_along_axes_of_their_own(form, fill):
    values = np.random.default_rng(0).integers(0, 4, (4, 6, 5))
    x = sj.array(np.where(values == 3, fill, values), fill_value=fill).asformat(form)
    with engine.quick():
        for key in CROSSED:
            expected = x.todense()[key]
            np.testing.assert_array_equal(x[key].todense(), expected)
            np.testing.assert_array_equal(sj.jit(lambda a, key=key: a[key])(x).todense(), expected)
        traced = sj.jit(lambda a, k: a[k])(x, CROSSED[0])
        np.testing.assert_array_equal(traced.todense(), x.todense()[CROSSED[0]])


@pytest.mark.parametrize("form", ["csr", "dia", "banded", "bsr:2x3", "ell", "groupcoo:2", "rle"])
def test_gathers_over_another_fill(form):
    values = np.random.default_rng(0).integers(0, 3, (6, 7))
    x = sj.array(values).asformat(form) + 1
    with engine.quick():
        for key in ([3, 0, 5, 3], (slice(None), [1, 6, 2]), np.ix_([4, 1], [0, 5])):
            assert x[key].format == x.format
            np.testing.assert_array_equal(x[key].todense(), values[key] + 1)


@pytest.mark.parametrize("seed", range(80))
def test_writing(seed):
    rng = random.Random(seed)
    x, dense = drawn(rng, rng.randint(1, 3), 0, rng.choice(("f8", "i8", "c16")))
    key = random_key(rng, dense.shape)
    method = rng.choice(["set", "set", "add"] if dense.dtype.kind == "c" else ["set", "set", "add", "min", "max"])
    try:
        part = dense[key]
    except IndexError:
        with pytest.raises(IndexError):
            x.at[key]
        return
    values = np.random.default_rng(seed).integers(-3, 6, rng.choice([part.shape, ()])).astype(dense.dtype)
    expected = dense.copy()
    ufunc = {"add": np.add, "min": np.minimum, "max": np.maximum}.get(method)
    if ufunc is None:
        expected[key] = values
    else:
        ufunc.at(expected, key, values)
    with engine.quick():
        made = getattr(x.at[key], method)(values)
        traced = sj.jit(lambda a, v: getattr(a.at[key], method)(v))(x, sj.array(values))
    assert made.shape == x.shape and made.dtype == x.dtype
    if isinstance(x.format.levels[-1], Compressed | Coordinate):
        assert not made.format.is_dense
    np.testing.assert_array_equal(made.todense(), expected)
    np.testing.assert_array_equal(traced.todense(), expected)


@pytest.mark.parametrize("seed", range(40))
def test_concatenation(seed):
    rng = random.Random(seed)
    ndim = rng.randint(1, 3)
    first, dense = drawn(rng, ndim)
    axis = rng.randrange(-ndim, ndim)
    parts, arrays = [first], [dense]
    for k in range(rng.randint(0, 2)):
        shape = list(dense.shape)
        shape[axis] = rng.randint(0, 3)
        values = np.random.default_rng(seed + k).integers(0, 3, shape) * 1.0
        form = first.format if rng.random() < 0.5 else random_format(rng, ndim, OUTPUTS)
        parts.append(Array(convert.from_dense(values, form, 0)))
        arrays.append(values)
    made = snp.concatenate(parts, axis)
    np.testing.assert_array_equal(made.todense(), np.concatenate(arrays, axis))
    assert made.format.is_dense == any(p.format.is_dense for p in parts)
    same = [first, first]
    np.testing.assert_array_equal(snp.stack(same, axis).todense(), np.stack([dense, dense], axis))


@pytest.mark.parametrize("form", ["dense", "csr", "csc", "coo", "dcsr", "bsr:2x2"])
@pytest.mark.parametrize(
    "key",
    [
        1,
        (slice(None), 2),
        slice(None, None, -2),
        (slice(1, 3), slice(0, 3)),
        [2, 0, 2],
        (slice(None), [1, 1, 0]),
        ([0, 2, 0], [1, 2, 1]),
    ],
    ids=str,
)
def test_derivatives(form, key):
    rng = np.random.default_rng(0)
    values = rng.uniform(0.5, 1.5, (4, 3)) * (rng.random((4, 3)) < 0.6)
    x = sj.array(values, format=form)
    with engine.quick():
        check(rng, lambda a: a[key], x)
        check(rng, lambda a: snp.concatenate([a[1:], a * 2.0]), x)
        if form == "dense":
            v = sj.array(rng.uniform(0.5, 1.5, values[key].shape))
            check(rng, lambda a, b: a.at[key].add(b), x, v)
            check(rng, lambda a, b: a.at[key].set(b), x, v)


def test_traced_indices():
    A = sj.array(np.arange(12.0).reshape(3, 4), format="csr")
    f = sj.jit(lambda a, i, k: (a[i], a[k], a[:, k], a.at[i].add(1.0)))
    rows, row, columns, added = f(A, np.array([2, -1]), 1)
    dense = A.todense()
    np.testing.assert_array_equal(rows.todense(), dense[[2, -1]])
    np.testing.assert_array_equal(row.todense(), dense[1])
    np.testing.assert_array_equal(columns.todense(), dense[:, 1])
    np.add.at(dense := dense.copy(), [2, -1], 1.0)
    np.testing.assert_array_equal(added.todense(), dense)
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
        f(A, np.array([0, 3]), 1)


def test_masks():
    A = sj.array([[0, 2, 0], [3, 0, 4]], format="csc")
    np.testing.assert_array_equal(A[A > 2].todense(), [3, 4])
    np.testing.assert_array_equal(A[np.array([False, True])].todense(), [[3, 0, 4]])
    with pytest.raises(IndexError, match="boolean index did not match"):
        A[np.array([True, False, True])]
    with pytest.raises(sj.NonConcreteBooleanIndexError, match="only known at run time"):
        sj.jit(lambda a: a[a > 2])(A)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (3, "index 3 is out of bounds for axis 0 with size 2"),
        ((0, 0, 0), "too many indices"),
        (1.5, "only integers"),
        ("a", "only integers"),
        ((Ellipsis, Ellipsis), "single ellipsis"),
        (([0, 1], [0, 1, 2]), "shape mismatch"),
        ([0, 2], "index 2 is out of bounds for axis 0 with size 2"),
        ((Ellipsis, [True, False, False]), "boolean index did not match indexed array along axis 1"),
        ((Ellipsis, [True], 0), "boolean index did not match indexed array along axis 0"),
        ((0, Ellipsis, [True]), "boolean index did not match indexed array along axis 1"),
        ((Ellipsis, np.zeros((2, 3), bool)), "boolean index did not match indexed array along axis 1"),
        ((Ellipsis, [True, False], None, 0, 0), "too many indices"),
    ],
)
def test_errors(key, words):
    with pytest.raises(IndexError, match=words):
        sj.array(np.eye(2), format="csr")[key]


@pytest.mark.parametrize("form", ["dense", "csr", "bitmap"])
@pytest.mark.parametrize("number", [128, -129, 2**63, 2**80])
@pytest.mark.parametrize("method", ["set", "add", "min", "max"])
def test_integers_that_do_not_fit(form, number, method):
    x = sj.array(np.eye(2, dtype=np.int8), format=form)
    for key in ((0, 1), 0, np.array([[True, False], [True, True]])):
        for _ in range(2):
            with pytest.raises(OverflowError, match=f"Python integer {number} out of bounds for int8"):
                getattr(x.at[key], method)(number)
    with pytest.raises(OverflowError, match="out of bounds for int8"):
        sj.jit(lambda x: getattr(x.at[0], method)(number))(x)


@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
def test_tuples_in_keys_are_arrays(form):
    values = np.arange(12.0).reshape(3, 4)
    x = sj.array(values, format=form)
    for key in (
        ((0, 2), (1, 1)),
        ((0, 2),),
        (slice(None), (1, 3)),
        (0, (3, 3)),
        ((),),
        ((True, False, True),),
        (((0,), (1,)), (1, 3)),
    ):
        np.testing.assert_array_equal(x[key].todense(), values[key])
        changed = values.copy()
        changed[key] = 5
        np.testing.assert_array_equal(x.at[key].set(5).todense(), changed)


def test_concatenation_refuses():
    A = sj.array(np.eye(2), format="csr")
    with pytest.raises(ValueError, match="array 1 has shape"):
        snp.concatenate([A, sj.array(np.ones((2, 3)))])
    with pytest.raises(ValueError, match="at least one"):
        snp.concatenate([])


def test_slices_of_huge_arrays():
    coords = np.array([[0, 5, 2**39], [1, 2**39, 7]])
    A = sj.array(([1.0, 2.0, 3.0], coords), shape=(2**40, 2**40))
    assert A[2**39].nnz == 1 and A[5:].nnz == 2
    assert A[5, 2**39].item() == 2.0


def test_format_of_a_part():
    A = sj.array(np.ones((2, 3, 4)), format=Format.parse("(d,d,c)", 3))
    assert str(A[0].format) == "csr" and A[:, 0].format == A[0].format
    assert A[:, :, 0].format == Format.parse("coo", 2) and A[0, 0].format.ndim == 1


def test_filling_a_sparse_array_with_its_fill_warns():
    A, mask = sj.array(np.eye(40), format="csr"), np.tri(40, dtype=bool)
    with pytest.warns(
        sj.SparseEfficiencyWarning, match="set stored 780 more entries that equal the fill 0.0, in an array of 40"
    ) as told:
        made = A.at[mask].set(0)
    assert told[0].filename == __file__
    np.testing.assert_array_equal(made.todense(), np.where(mask, 0, np.eye(40)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        A.at[mask].set(1.0), A.at[3].set(0), A.at[mask].set(np.zeros(820)), snp.where(mask, 0, A)
        assert snp.where(mask, 0, A).nnz <= 40


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "(d,c,c)", "(d,d,c)@(1,0,2)", "bitmap"])
@pytest.mark.parametrize("count", [0, 1, 40, 5000, 150_000])
def test_many_places(form, count):
    rng = np.random.default_rng(count)
    shape = (300, 20, 9) if form.startswith("(") else (300, 180)
    dense = rng.integers(1, 9, shape) * (rng.random(shape) < 0.05)
    A, keys = sj.array(dense, format=form), tuple(rng.integers(-n, n, count) for n in shape)
    made = A[keys]
    np.testing.assert_array_equal(made.todense(), dense[keys])
    assert made.format == Format.parse("coo", 1) and made.nnz == np.count_nonzero(dense[keys])
    nothing = snp.zeros(shape, format=form, dtype=int)[keys]
    assert nothing.nnz == 0 and nothing.shape == (count,)


def test_positions_of_arrays_without_entries_are_shared_and_right():
    made = [snp.zeros((n, 3), format="csr") for n in (10, 5000, 70_000)]
    for A in made:
        assert A.nnz == 0 and not A.todense().any() and (A + 1.0).sum() == 3.0 * A.shape[0]
        assert not A.storage.buffers[1][0].flags.writeable


@pytest.mark.parametrize("seed", range(300))
def test_usual_keys_are_parsed_as_all_are(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 5)))
    key = []
    for n in shape[: rng.integers(0, len(shape) + 1)]:
        start, stop = (int(k) for k in rng.integers(-n - 1, n + 2, 2))
        step = int(rng.choice([-2, -1, 1, 3]))
        vector = rng.integers(-n, n, 3).astype(rng.choice(["i4", "i8"]))
        key.append([int(rng.integers(-n, n)), slice(start, stop, step), slice(None), vector][rng.integers(0, 4)])
    usual, wanted = indexing._usual(tuple(key), shape), indexing._parsed(tuple(key), shape)
    if usual is None:
        assert sum(isinstance(part, np.ndarray) for part in key) > 1
        return
    names = "shape", "ranges", "single", "advanced", "first", "new", "sliced", "plain", "result"
    for name in names:
        assert getattr(usual, name) == getattr(wanted, name)
    assert list(usual.given) == list(wanted.given) and list(usual.crossed) == list(wanted.crossed)
    for d in usual.given:
        np.testing.assert_array_equal(usual.given[d], wanted.given[d] % shape[d])
        np.testing.assert_array_equal(usual.arrays[d], wanted.arrays[d] % shape[d])


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "(d,c,c)", "(d,d,c)@(1,0,2)", "(c,d,c)", "ell"])
@pytest.mark.parametrize("seed", range(6))
def test_sparse_arrays_get_their_fill_around_them_in_one_step(form, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(2 * rng.integers(1, 4, 3 if form.startswith("(") else 2))
    dense = rng.integers(0, 3, shape) if seed else np.zeros(shape, int)
    A = sj.array(dense, format=form)
    widths = [tuple(int(n) for n in rng.integers(0, 3, 2)) for _ in shape]
    made = snp.pad(A, widths)
    validate.validate(made._storage)
    np.testing.assert_array_equal(made.todense(), np.pad(dense, widths))
    np.testing.assert_array_equal((made * 2).sum(axis=-1).todense(), 2 * np.pad(dense, widths).sum(axis=-1))
    np.testing.assert_array_equal(A.todense(), dense)
    traced = sj.jit(lambda x: snp.pad(x, widths))(A)
    assert made.format == traced.format and made.nnz == traced.nnz
    other = snp.pad(A, widths, constant_values=1)
    np.testing.assert_array_equal(other.todense(), np.pad(dense, widths, constant_values=1))


def test_coordinates_become_wider_with_the_extent_around_them():
    A = sj.array(np.eye(3), format="coo")
    made = snp.pad(A, [(0, 2**31), (2**32, 0)])
    validate.validate(made._storage)
    rows, columns = (np.asarray(c) for c in made.coords)
    np.testing.assert_array_equal(rows, [0, 1, 2])
    np.testing.assert_array_equal(columns, 2**32 + np.arange(3))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "(d,d)", "(d,c,c)", "(d,d,c)@(1,0,2)"])
@pytest.mark.parametrize("seed", range(4))
def test_arrays_without_entries_make_others_larger(form, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 7, 3 if form.endswith(("c,c)", "2)")) else 2))
    dense = rng.integers(0, 3, shape)
    given = dense.copy()
    A = sj.asarray(given) if form == "(d,d)" else sj.array(dense, format=form)
    for axis in range(A.ndim):
        before, after = (int(n) for n in rng.integers(0, 3, 2))
        widths = [(before, after) if d == axis else (0, 0) for d in range(A.ndim)]
        made = snp.pad(A, widths)
        np.testing.assert_array_equal(made.todense(), np.pad(dense, widths))
        np.testing.assert_array_equal(made.sum(axis=axis).todense(), np.pad(dense, widths).sum(axis=axis))
        np.testing.assert_array_equal(A.todense(), dense)
        many = [*(snp.zeros_like(A) for _ in range(seed)), A, snp.zeros_like(A)]
        np.testing.assert_array_equal(
            snp.concatenate(many, axis).todense(), np.concatenate([x.todense() for x in many], axis)
        )


@pytest.mark.parametrize("seed", range(60))
def test_parts_under_jit_are_those_at_once(seed):
    rng = random.Random(seed)
    A, dense = drawn(rng, rng.randint(1, 3), fill=seed % 2)
    key = tuple(
        rng.randrange(n)
        if rng.random() < 0.2
        else slice(rng.choice((None, 0, 1, 2)), rng.choice((None, n, n - 1)), rng.choice((None, 1, 2, -1)))
        for n in A.shape
    )
    made = sj.jit(lambda A: A[key])(A)
    np.testing.assert_array_equal(made.todense(), dense[key])
    assert made.format == A[key].format and made.fill_value == A[key].fill_value
    if made.ndim:
        np.testing.assert_array_equal(made.sum(axis=0).todense(), dense[key].sum(axis=0))


BROADCAST = {
    "a number": lambda x, i: snp.broadcast_to(x, (5,))[i],
    "full": lambda x, i: snp.full((5,), x)[i],
    "taken": lambda x, i: snp.take(snp.full((5, 2), x), i, axis=0),
    "computed": lambda x, i: (snp.full((5,), x) * 2 + 1)[i].sum(),
    "of two axes": lambda x, i: snp.full((5, 7), x)[i, 0],
    "rows": lambda x, i: snp.broadcast_to(snp.arange(3) * x, (5, 3))[i],
    "one index": lambda x, i: snp.full((5,), x)[i[0]],
}


@pytest.mark.parametrize("name", BROADCAST)
def test_indices_of_broadcast_numbers_are_checked(name):
    """No kernel reads what is the same everywhere, and so no index; one that is out of bounds is an error all the same."""
    function, inside, outside = BROADCAST[name], np.array([4, -5]), np.array([5, 1])
    run = sj.jit(function)
    many = sj.jit(sj.vmap(function, in_axes=(0, None)))
    np.testing.assert_array_equal(run(2.0, inside).todense(), function(2.0, inside).todense())
    for call in (function, run, lambda x, i: many(snp.ones(3) * x, i)):
        with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 5"):
            call(2.0, outside)
