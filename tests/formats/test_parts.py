"""Parts of stored arrays, level by level, against the road by coordinates and NumPy, over random formats; by NumPy's passes and compiled ones."""

import itertools
import random

import numpy as np
import pytest

from sparsejax import config
from sparsejax.formats import Compressed, Coordinate, Dense, Format, convert, selection
from sparsejax.formats.parts import joined, located, rows, taken, written
from sparsejax.formats.validate import validate
from tests.fuzz.levels import OUTPUTS, random_format

pytestmark = pytest.mark.rotating(16)

SIMPLE = (Dense(), Compressed(), Coordinate())
PASSES = ("passes=numpy", "passes=compiled")


def drawn(rng, levels, ndim=None, blocks=(1,)):
    nrng = np.random.default_rng(rng.getrandbits(32))
    ndim = rng.randint(1, 4) if ndim is None else ndim
    shape = tuple(rng.choice((1, 2, 3, 5, 9)) for _ in range(ndim))
    if ndim < 3 and rng.random() < 0.25:  # lines of more entries than are put in order one by one
        shape = (*shape[:-1], 150)[:: rng.choice((1, -1))]
    values = nrng.integers(1, 9, shape) * (nrng.random(shape) < rng.choice((0.1, 0.5, 1.0)))
    form = random_format(rng, ndim, levels, [rng.choice(blocks) for _ in range(ndim)])
    fill = 0 if form.is_dense or rng.random() < 0.7 else 3
    return convert.from_dense(values.astype(rng.choice(("f8", "i4", "c16", "?"))), form, fill)


def random_key(rng, n):
    kind = rng.choice(("all", "range", "range", "list", "one"))
    if kind == "all":
        return None
    if kind == "one":
        start = rng.randrange(n)
        return range(start, start + 1)
    if kind == "range":
        a, b = (rng.choice([None, rng.randint(-n - 1, n + 1)]) for _ in range(2))
        return range(*slice(a, b, rng.choice([None, 1, 2, 3, -1, -2])).indices(n))
    nrng = np.random.default_rng(rng.getrandbits(32))
    return rng.choice(
        (nrng.permutation(n), nrng.integers(0, n, rng.randint(0, 2 * n)), np.flatnonzero(nrng.random(n) < 0.5))
    )


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(120))
@pytest.mark.parametrize("levels", [SIMPLE, OUTPUTS])
def test_taken(levels, seed, choose):
    rng = random.Random(seed)
    storage = drawn(rng, levels, blocks=(1, 1, 1, 2) if levels is OUTPUTS else (1,))
    keys = [random_key(rng, n) for n in storage.shape]
    axes = tuple(d for d, k in enumerate(keys) if isinstance(k, range) and len(k) == 1 and rng.random() < 0.7)
    form = selection.without(storage.format, axes)
    lists = [np.arange(n) if k is None else np.asarray(k, np.int64) for k, n in zip(keys, storage.shape, strict=True)]
    expected = convert.to_dense(storage)[np.ix_(*lists)]
    expected = expected.reshape([n for d, n in enumerate(expected.shape) if d not in axes])
    plain = taken.by_coordinates(storage, keys, axes, form)
    with config.using(choose=choose):
        made = taken.taken(storage, keys, axes, form)
    for found in (made, plain):
        validate(found)
        assert found.format == form and not found.vals.flags.writeable
        np.testing.assert_array_equal(convert.to_dense(found), expected, strict=True)
    if not storage.format.is_dense and not any(level.fills for level in form.levels) and not form.blocked:
        assert made.nnz == plain.nnz
        for ours, theirs in zip(made.buffers, plain.buffers, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a, b, strict=True)
        np.testing.assert_array_equal(made.vals, plain.vals)


def places_in(key, c):
    """Where a key keeps a coordinate."""
    if key is None:
        return [c]
    if isinstance(key, range):
        return [key.index(c)] if c in key else []
    return np.flatnonzero(key == c).tolist()


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(60))
def test_taken_of_huge_extents(seed, choose):
    """Ranges and lists of coordinates that no table can have, against a dictionary; the memory is that of the entries."""
    rng = random.Random(seed)
    nrng, ndim = np.random.default_rng(seed), rng.randint(1, 3)
    shape = tuple(rng.choice((7, 2**33, 2**40 + 3)) for _ in range(ndim))
    few = [nrng.choice([0, n - 1, *nrng.integers(0, n, 4)], 30) for n in shape]
    form = Format([rng.choice((Compressed(), Coordinate())) for _ in range(ndim)], rng.sample(range(ndim), ndim))
    storage = convert.from_coords(np.array(few, np.int64), nrng.random(30), shape, form, 0.0)
    keys = []
    for column, n in zip(few, shape, strict=True):
        low, high = sorted((int(nrng.choice(column)), int(nrng.integers(0, n))))
        backwards = range(high, low - 1, -1) if low else range(high, -1, -1)
        listed = nrng.permutation(np.append(nrng.choice(column, 5), nrng.integers(0, n, 5)))
        keys.append(rng.choice((None, range(low, high + 1), range(low, high + 1, 3), backwards, listed)))
    expected = {}
    coords, vals = convert.to_coords(storage)
    for *place, value in zip(*coords.tolist(), vals.tolist(), strict=True):
        lists = [places_in(key, c) for c, key in zip(place, keys, strict=True)]
        expected |= dict.fromkeys(itertools.product(*lists), value)
    with config.using(choose=choose):
        made = taken.taken(storage, keys, (), form)
    validate(made)
    coords, vals = convert.to_coords(made)
    assert dict(zip(map(tuple, coords.T.tolist()), vals.tolist(), strict=True)) == expected


def test_levels_that_list_coordinates_take_the_short_road():
    made = 0
    for seed in range(60):
        rng = random.Random(seed)
        storage = drawn(rng, SIMPLE)
        keys = [random_key(rng, n) for n in storage.shape]
        if not storage.format.is_dense:
            made += taken.by_levels(storage, keys, (), storage.format) is not None
    assert made > 20


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(80))
def test_located(seed, choose):
    rng = random.Random(seed)
    storage = drawn(rng, rng.choice((SIMPLE, OUTPUTS)), blocks=(1, 1, 2))
    nrng = np.random.default_rng(seed)
    columns = [nrng.integers(0, n, 30) for n in storage.shape]
    dense = convert.to_dense(storage)
    with config.using(choose=choose):
        made = located.gathered(storage, columns)
    validate(made)
    np.testing.assert_array_equal(convert.to_dense(made), dense[tuple(columns)])
    if located.searched(storage.format):
        for place in zip(*(c.tolist() for c in columns), strict=True):
            at = located.position(storage, place)
            assert dense[place] == (storage.vals[at] if at >= 0 else storage.fill_value)


def test_places_without_numbers_are_left_to_others():
    coo = Format.parse("coo", 3)
    huge = convert.from_coords(np.array([[1], [2], [3]]), np.ones(1), (2**40, 2**40, 2**40), coo, 0)
    assert located.gathered(huge, [np.array([1])] * 3) is None
    assert located.position(huge, (1, 2, 3)) == 0


def test_small_parts_keep_no_large_memory_alive():
    storage = convert.from_dense(np.ones((100, 10)), Format.parse("csr", 2), 0)
    whole = taken.taken(storage, (range(60), None), (), storage.format)
    assert np.shares_memory(whole.vals, storage.vals)
    part = taken.taken(whole, (range(20), None), (), storage.format)
    assert not np.shares_memory(part.vals, storage.vals)


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(80))
@pytest.mark.parametrize("levels", [SIMPLE, OUTPUTS])
def test_joined(levels, seed, choose):
    rng = random.Random(seed)
    first = drawn(rng, levels)
    axis, dense = rng.randrange(first.ndim), [convert.to_dense(first)]
    for _ in range(rng.randint(1, 4)):
        other = np.take(dense[0], np.arange(rng.randint(0, 7)) % dense[0].shape[axis], axis)
        dense.append(np.where(np.random.default_rng(seed).random(other.shape) < 0.5, other, first.fill_value))
    form = first.format
    storages = [first, *(convert.from_dense(d.astype(first.dtype), form, first.fill_value) for d in dense[1:])]
    with config.using(choose=choose):
        made = selection.concatenate(storages, axis, form)
    validate(made)
    assert made.format == form
    np.testing.assert_array_equal(convert.to_dense(made), np.concatenate(dense, axis), strict=True)


def test_matrices_are_joined_without_ordering_entries():
    for name, axes in (("csr", (0, 1)), ("csc", (0, 1)), ("dcsr", (0,)), ("coo", (0,))):
        storage = convert.from_dense(np.eye(3), Format.parse(name, 2), 0.0)
        for axis in axes:
            assert joined.joined([storage, storage], axis) is not None


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(80))
def test_written(seed, choose):
    rng = random.Random(seed)
    storage = drawn(rng, rng.choice((SIMPLE, OUTPUTS)))
    nrng = np.random.default_rng(seed)
    count = rng.choice((0, 1, 1, 1, 6))
    columns = [nrng.integers(0, n, count) for n in storage.shape]
    if rng.random() < 0.4 and not storage.format.is_dense and storage.nnz:  # at places that are stored
        number = nrng.integers(0, storage.nnz, count)
        columns = list(convert.to_coords(storage)[0][:, number])
    vals = nrng.integers(0, 9, count).astype(storage.dtype)
    form = storage.format if rng.random() < 0.7 else Format.parse("coo", storage.ndim)
    expected = convert.to_dense(storage).copy()
    for k in range(count):
        expected[tuple(c[k] for c in columns)] = vals[k]
    with config.using(choose=choose):
        made = written.written(storage, columns, vals, form)
    validate(made)
    assert made.format == form
    np.testing.assert_array_equal(convert.to_dense(made), expected, strict=True)
    if located.searched(form) and not form.is_dense:
        assert all(located.position(made, place) >= 0 for place in zip(*(c.tolist() for c in columns), strict=True))


@pytest.mark.parametrize("name", ["csr", "csc", "(d,q)@(0,1)"])
def test_ranges_beside_lines_without_entries(name):
    values = np.zeros((5, 5))
    values[2, 2] = 1
    storage = convert.from_dense(values, Format.parse(name, 2), 0.0)
    for start in range(6):
        for stop in range(start, 6):
            for keys in ((range(start, stop), None), (None, range(start, stop))):
                made = taken.taken(storage, keys, (), storage.format)
                validate(made)
                rows, columns = (slice(None) if k is None else slice(start, stop) for k in keys)
                np.testing.assert_array_equal(convert.to_dense(made), values[rows, columns])


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(40))
def test_entries_in_rows(seed, choose):
    rng, nrng = random.Random(seed), np.random.default_rng(seed)
    shape = rng.choice((1, 5, 60)), rng.choice((1, 7, 300))
    count = rng.choice((1, 3, 20, 400))
    coords = tuple(nrng.integers(0, n, count).astype(rng.choice((np.int32, np.int64))) for n in shape)
    data = nrng.integers(0, 5, count).astype(rng.choice(("f8", "f4", "i8", "?", "c16")))
    form = Format.parse(rng.choice(("csr", "csc", "(d,q)@(0,1)")), 2)
    kept = data.copy(), *(c.copy() for c in coords)
    expected = convert.from_coords([c.copy() for c in coords], data.copy(), shape, form, 0)
    with config.using(choose=choose):
        made = rows.of_entries(data, coords, shape, form)
    for ours, theirs in zip((data, *coords), kept, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.flags.writeable
    if made is None:
        assert choose == "passes=compiled" and count > 60
        return
    validate(made)
    assert made.format == form
    np.testing.assert_array_equal(made.vals, expected.vals, strict=True)
    for own, other in zip(made.buffers[1], expected.buffers[1], strict=True):
        np.testing.assert_array_equal(own, other, strict=True)
