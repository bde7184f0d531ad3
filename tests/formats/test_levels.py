"""Every level type at every place of a format: entries, values and fills survive, positions that are unused stay unused."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsejax as sj
from sparsejax.errors import FormatError
from sparsejax.formats import Banded, Diagonal, Format, RunLength, convert, structural, validate
from sparsejax.formats.levels import hashed
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import statistics
from tests import rotation
from tests.formats import strategies
from tests.formats.sloppy import first_slot, relabelled, sloppy

pytestmark = pytest.mark.rotating(20)

NAMES = ("ell", "groupcoo:2", "groupcoo:4", "dia", "banded", "bitmap", "hash", "rle", "lil")


def entries(coords, vals):
    """Entries as a dictionary; values by their bits."""
    made = {tuple(c): v.tobytes() for c, v in zip(coords.T.tolist(), vals, strict=True)}
    assert len(made) == len(vals)
    return made


@st.composite
def entry_lists(draw, max_ndim=4):
    """(coords, vals, shape, fill): distinct entries, some of them equal to the fill."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=max_ndim)))
    shape = tuple(draw(st.sampled_from([n, n, 65, 130])) for n in shape) if len(shape) < 3 else shape
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = int(np.prod(shape))
    flat = rng.permutation(size)[: draw(st.integers(0, min(size, 25)))]
    dtype = np.dtype(draw(st.sampled_from(strategies.DTYPES)))
    fill = dtype.type(draw(st.sampled_from([0, 1])))
    return np.stack(np.unravel_index(flat, shape)), rng.integers(0, 3, len(flat)).astype(dtype), shape, fill


def adds_fills(form):
    return any(level.full or isinstance(level, Banded | Diagonal) for level in form.levels)


def check(storage, coords, vals, fill):
    """`storage` is sound, and holds the entries, and no others but fills where levels are full, bands or diagonals."""
    validate.validate(storage)
    found, want = entries(*convert.to_coords(storage)), entries(coords, vals)
    assert storage.nnz == len(found)
    assert want.items() <= found.items()
    rest = {found[c] for c in found.keys() - want.keys()}
    assert not rest or (adds_fills(storage.format) and rest == {fill.tobytes()})
    dense = np.full(storage.shape, fill)
    dense[tuple(coords)] = vals
    np.testing.assert_array_equal(convert.to_dense(storage), dense)


@settings(max_examples=rotation.examples(300), deadline=None)
@given(st.data())
def test_entries_survive(data):
    """What is stored stays stored, fills included; and through any other format."""
    coords, vals, shape, fill = data.draw(entry_lists())
    form, other = (data.draw(strategies.formats(len(shape))) for _ in range(2))
    made = convert.from_coords(coords, vals, shape, form, fill)
    check(made, coords, vals, fill)
    kept, values = convert.to_coords(made)
    if form != other and (form.is_dense or other.is_dense):  # by way of the dense array, where a fill is nothing stored
        differs = values != fill
        kept, values = kept[:, differs], values[differs]
    check(convert.convert(made, other), kept, values, fill)


@settings(max_examples=rotation.examples(300), deadline=None)
@given(st.data())
def test_buffers_as_users_make_them(data):
    """Slack, larger tables, wider bands, runs that could be merged: sound, and read as what they are."""
    coords, vals, shape, fill = data.draw(entry_lists())
    form = data.draw(strategies.formats(len(shape)))
    seed = data.draw(st.integers(0, 2**32 - 1))
    made = relabelled(convert.from_coords(coords, vals, shape, sloppy(form, seed), fill), form)
    check(made, coords, vals, fill)
    stored = np.zeros(shape, bool)
    stored[tuple(convert.to_coords(made)[0])] = True
    np.testing.assert_array_equal(convert.to_dense(structural.pattern(made, bool)), stored)
    fresh = structural.refill(made, made.dtype.type(1))
    dense = convert.to_dense(made)
    np.testing.assert_array_equal(convert.to_dense(fresh), np.where(stored, dense, fresh.fill_value))
    for changed in (fresh, structural.pattern(made, np.int8), sj.array(made, dtype=np.complex128).storage):
        validate.validate(changed)
        assert changed.nnz == made.nnz
    array = sj.array(made)
    assert array.nnz == made.nnz and array.format == form and array.fill_value == (0 if form.is_dense else fill)
    twin = pickle.loads(pickle.dumps(array))
    assert twin.format == form and repr(twin) == repr(array)
    np.testing.assert_array_equal(twin.todense(), dense)


@settings(max_examples=rotation.examples(200), deadline=None)
@given(st.data())
def test_counts_of_levels(data):
    """A level holds as many entries as there are different coordinates down to it (down to its run's end)."""
    storage, _ = data.draw(strategies.storages(4))
    form = storage.format
    if not form.ndim or form.is_dense:
        return
    coords = np.stack(form.split(convert.to_coords(storage)[0]))
    padded = [k for k, level in enumerate(form.levels) if isinstance(level, Banded | Diagonal) or level.full]
    for level, count in enumerate(storage.counts):
        last = next(stop - 1 for first, stop in form.runs if first <= level < stop)
        prefixes = {tuple(c) for c in coords[: last + 1].T.tolist()}
        # coordinates without anything below them are stored too: under dense levels and bands
        assert count >= len(prefixes)
        assert count == len(prefixes) or any(k <= last for k in padded)


@pytest.mark.parametrize("name", NAMES)
def test_to_scipy(name):
    x = np.array([[0, 1.0, 2, 0], [3, 0, 0, 3], [0, 0, 0, 0], [0, 5, 5, 0]])
    made = sj.array(x, format=name).to_scipy()
    assert made.format == ("dia" if name == "dia" else "csr")
    np.testing.assert_array_equal(made.toarray(), x)
    np.testing.assert_array_equal(sj.array(made).todense(), x)
    np.testing.assert_array_equal(
        sj.array(x, format=f"(d,{Format.parse(name, 2).levels[1].spelling})@(1,0)").to_scipy().toarray(), x
    )


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4), (4, 1), (2, 40), (0, 3), (3, 0)])
def test_dia_to_scipy(shape):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 3, shape).astype(float)
    np.testing.assert_array_equal(sj.array(x, format="dia").to_scipy().toarray(), x)


@pytest.mark.parametrize("name", NAMES)
def test_empty_and_zero_sized(name):
    for shape in ((0, 3), (3, 0), (0, 0), (4, 5)):
        made = convert.from_coords(np.empty((2, 0), np.int64), np.empty(0), shape, Format.parse(name, 2), 0.0)
        validate.validate(made)
        assert made.nnz == 0 and made.counts[-1] == 0
        np.testing.assert_array_equal(convert.to_dense(made), np.zeros(shape))


# ------------------------------------------------------------------------------------------------------- each level


def test_examples_by_hand():
    """The buffers of each format, as its definition says."""
    x = np.array([[0, 7.0, 7, 0, 8], [0, 0, 0, 0, 0], [9, 0, 0, 9, 0]])

    def buffers(name):
        made = convert.from_dense(x, Format.parse(name, 2), 0.0)
        return [b.tolist() for b in made.buffers[1]], made.vals.tolist()

    assert buffers("ell") == ([[3], [3, 0, 2], [1, 2, 4, 0, 0, 0, 0, 3, 0]], [7, 7, 8, 0, 0, 0, 9, 9, 0])
    assert buffers("groupcoo:2") == ([[0, 2, 2, 3], [3, 0, 2], [1, 2, 4, 4, 0, 3]], [7, 7, 8, 0, 9, 9])
    assert buffers("lil") == ([[0, 3, 3], [3, 3, 5], [1, 2, 4, 0, 3]], [7, 7, 8, 9, 9])
    assert buffers("rle") == ([[0, 2, 2, 4], [1, 4, 0, 3], [3, 5, 1, 4]], [7, 8, 9, 9])
    assert buffers("banded") == ([[0, 4, 4, 8], [1, 0, 0]], [7, 7, 0, 8, 9, 0, 0, 9])
    assert buffers("bitmap") == ([[0b10110, 0, 0b01001]], [0, 7, 7, 0, 8, 0, 0, 0, 0, 0, 9, 0, 0, 9, 0])
    assert (
        buffers("dia") == ([[5], [-2, 1, 2, 1 + 3 - 0 - 0 - 0 - 0 - 0, 0][:0] or [5][:1], [-2, 1, 2, 4]][1:], [])
        or True
    )
    off, vals = buffers("dia")
    assert off == [[4], [-2, 1, 2, 4]] and vals == [0, 7, 7, 8, 0, 0, 0, 0, 9, 9, 0, 0]
    (pos, crd), vals = buffers("hash")
    assert pos == [0, 8, 8, 12] and sorted(crd[:8]) == [-1] * 5 + [1, 2, 4] and sorted(crd[8:]) == [-1, -1, 0, 3]
    assert vals == [dict(enumerate(row)).get(c, 0) for row, table in ((x[0], crd[:8]), (x[2], crd[8:])) for c in table]


def probe(crd, c):
    """The slot of `c` in one table, by search."""
    slot = first_slot(c, len(crd))
    while crd[slot] not in (c, -1):
        slot = (slot + 1) % len(crd)
    return slot if crd[slot] == c else None


@pytest.mark.parametrize("kind", ["random", "same home", "around the end", "wide"])
@pytest.mark.parametrize("count", [1, 2, 5, 64, 500])
def test_hash_tables_are_probed(kind, count):
    """Every coordinate is found by probing in Python integers, and no other one is, wherever they start."""
    rng = np.random.default_rng(count)
    size = 1 << (2 * count - 1).bit_length()
    if kind == "random":
        keys = rng.choice(10**6, count, replace=False)
    elif kind == "wide":
        keys = np.unique(rng.integers(0, 2**62, count))
    else:
        target = 3 % size if kind == "same home" else size - 1
        pool = np.arange(size * count * 4)
        near = hashed.home(pool, np.full(len(pool), size))
        keys = pool[near == target if kind == "same home" else near >= size - 2][:count]
    keys = np.sort(keys)
    n = 2**62
    made = convert.from_coords([keys], np.arange(len(keys)) + 1.0, (n,), Format.parse("(h)", 1), 0.0)
    validate.validate(made)
    pos, crd = made.buffers[0]
    assert pos.tolist() == [0, 1 << (2 * len(keys) - 1).bit_length()] and np.count_nonzero(crd >= 0) == len(keys)
    for k, c in enumerate(keys.tolist()):
        assert made.vals[probe(crd.tolist(), c)] == k + 1
    for c in rng.integers(0, n, 50).tolist():
        assert (probe(crd.tolist(), c) is not None) == (c in keys)


def test_equal_bits_make_runs():
    """Values join when all their bits are equal: -0 is not 0, and a NaN is itself."""
    x = np.array([0.0, -0.0, -0.0, np.nan, np.nan, 1.0])
    made = convert.from_coords([np.arange(6)], x, (6,), Format.parse("(r)", 1), 5.0)
    assert [b.tolist() for b in made.buffers[0]] == [[0, 4], [0, 1, 3, 5], [1, 3, 5, 6]]
    assert convert.to_coords(made)[1].tobytes() == x.tobytes()
    wide = np.array([1 + 2j, 1 + 2j, 1 + 3j, 2 + 3j])
    made = convert.from_coords([np.arange(4)], wide, (4,), Format.parse("(r)", 1), 0)
    assert len(made.vals) == 3 and made.nnz == 4


def test_long_runs_are_not_expanded():
    n = 2**60
    run = (np.array([0, 2]), np.array([0, 2**59]), np.array([2**58, n]))
    made = Storage(Format((RunLength,)), (n,), np.float64(0), (run,), np.array([1.0, 2.0]))
    validate.validate(made)
    assert made.nnz == 2**58 + 2**59 and structural.pattern(made, bool).nnz == made.nnz
    assert structural.refill(made, 3).vals is made.vals
    with pytest.raises(FormatError, match="positions"):
        convert.to_coords(made)


@pytest.mark.parametrize("letters", ["cb", "bc", "hb", "co", "ce", "cs", "be", "ld", "bg2", "cg4"])
def test_more_positions_than_memory_is_an_error(letters):
    """Two rows far apart, a full one and one with a wide band: what a level would need is known before it is allocated."""
    n = 2**45
    wide = np.arange(2**10) * (n // 2**10)
    coords = [np.append(np.zeros(2**10, np.int64), [n - 1, n - 1]), np.append(wide, [0, n - 1])]
    form = Format.parse(f"({','.join(re.findall('[a-z][0-9]*', letters))})", 2)
    made = None
    try:
        made = convert.from_coords(coords, np.ones(len(wide) + 2), (n, n), form, 0.0)
    except FormatError as error:
        assert "positions" in str(error)
    assert (made is not None) == (letters in ("co", "ce", "cg4"))


@pytest.mark.parametrize("letters", ["cl", "lc", "hc", "ch", "hh", "lh", "cr", "ce", "qq", "cg4", "g2c"])
def test_hypersparse(letters):
    n = 2**40
    coords = np.array([[5, 1, n - 1, 5], [n - 1, 7, 0, 3]])
    made = convert.from_coords(
        coords, np.arange(4.0), (n, n), Format.parse(f"({','.join(re.findall('[a-z][0-9]*', letters))})", 2), 0.0
    )
    check_hyper = entries(*convert.to_coords(made))
    assert check_hyper == entries(coords, np.arange(4.0)) and made.nbytes < 2000
    validate.validate(made)


# -------------------------------------------------------------------------------------------------------- validation


def i64(*numbers):
    return np.array(numbers, np.int64)


def i32(*numbers):
    return np.array(numbers, np.int32)


def matrix(name, buffers, vals, shape=(2, 5)):
    return Storage(Format.parse(name, 2), shape, np.float64(0), ((), buffers), np.array(vals, float))


def words(*numbers):
    return (np.array(numbers, np.uint64),)


HASH_1 = i32(*[1 if first_slot(1, 2) == k else -1 for k in range(2)])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (matrix("ell", (i64(1), i64(1, 0), i32(3)), [1]), "crd of level 1 .* has 1 entries; it must have 2"),
        (matrix("ell", (i64(), i64(1, 0), i32(3)), [1]), "width of level 1 .* has 0 entries"),
        (matrix("ell", (i64(-1), i64(1, 0), i32(3)), [1]), "width of level 1 .* is -1"),
        (matrix("ell", (i64(2**40), i64(1, 0), i32(3)), [1]), "as width says"),
        (matrix("ell", (i64(1), i64(1, 2), i32(3, 0)), [1, 0]), "len of level 1 .* out of bounds at position 1"),
        (matrix("ell", (i64(1), i64(1), i32(3, 0)), [1, 0]), "len of level 1 .* must have 2"),
        (matrix("ell", (i64(1), i64(0, 1), i32(0, 9)), [0, 1]), "crd of level 1 .* out of bounds at position 1"),
        (matrix("ell", (i64(2), i64(2, 0), i32(3, 3, 0, 0)), [1, 2, 0, 0]), "repeats a coordinate at position 1"),
        (matrix("ell", (i64(3), i64(0, 2), i32(0, 0, 0, 3, 1, 0)), [0, 0, 0, 1, 2, 0]), "not sorted at position 4"),
        (matrix("ell", (i64(1), i64(1, 0), i32(3, 4)), [1, 0]), "crd of level 1 .* is 4 at position 1, an unused slot"),
        (matrix("ell", (i64(1), i64(1, 0), i32(3, 0)), [1, 6]), "vals is 6.0 at position 1, which is unused"),
        (matrix("ell", (i64(1), i64(1, 0), i64(3, 0)), [1, 0]), "crd of level 1 .* dtype int64; it must be int32"),
        (
            matrix("groupcoo:2", (i64(0, 1, 1), i64(1, 0), i32(3)), [1]),
            "crd of level 1 .* must have 2, 2 for each of the 1",
        ),
        (matrix("groupcoo:2", (i64(0, 1), i64(1, 0), i32(3, 3)), [1, 0]), "pos of level 1 .* must have 3"),
        (matrix("groupcoo:2", (i64(1, 1, 1), i64(1, 0), i32(3, 3)), [1, 0]), "pos of level 1 .* starts at 1"),
        (matrix("groupcoo:2", (i64(0, 1, 0), i64(1, 0), i32(3, 3)), [1, 0]), "pos of level 1 .* decreases from 1 to 0"),
        (matrix("groupcoo:2", (i64(0, 2**62, 2**62), i64(1, 0), i32(3, 3)), [1, 0]), "crd of level 1 .* has 2 entries"),
        (matrix("groupcoo:2", (i64(0, 1, 1), i64(1), i32(3, 3)), [1, 0]), "len of level 1 .* must have 2"),
        (
            matrix("groupcoo:2", (i64(0, 1, 1), i64(-1, 0), i32(3, 3)), [1, 0]),
            "len of level 1 .* negative at position 0",
        ),
        (matrix("groupcoo:2", (i64(0, 1, 1), i64(9, 0), i32(3, 3)), [1, 0]), "len of level 1 .* out of bounds"),
        (
            matrix("groupcoo:2", (i64(0, 1, 1), i64(3, 0), i32(3, 3)), [1, 0]),
            "where pos gives 1 groups of 2; 3 coordinates take 2",
        ),
        (matrix("groupcoo:2", (i64(0, 1, 1), i64(0, 0), i32(3, 3)), [0, 0]), "0 coordinates take 0"),
        (
            matrix("groupcoo:2", (i64(0, 1, 1), i64(1, 0), i32(9, 9)), [1, 0]),
            "crd of level 1 .* out of bounds at position 0",
        ),
        (matrix("groupcoo:2", (i64(0, 1, 1), i64(2, 0), i32(3, 1)), [1, 2]), "not sorted at position 1"),
        (matrix("groupcoo:2", (i64(0, 1, 1), i64(2, 0), i32(3, 3)), [1, 2]), "repeats a coordinate at position 1"),
        (
            matrix("groupcoo:2", (i64(0, 1, 1), i64(1, 0), i32(3, 4)), [1, 0]),
            "is 4 at position 1, an unused slot; .* coordinate of their group, 3",
        ),
        (
            matrix("groupcoo:2", (i64(0, 1, 1), i64(1, 0), i32(3, 3)), [1, 6]),
            "vals is 6.0 at position 1, which is unused",
        ),
        (
            matrix("groupcoo:2", (i64(0, 1, 1), i64(1, 0), i64(3, 3)), [1, 0]),
            "crd of level 1 .* dtype int64; it must be int32",
        ),
        (matrix("lil", (i64(0, 1), i64(1, 3), i32(3, 4)), [1, 2]), "hi of level 1 .* out of bounds at position 1"),
        (matrix("lil", (i64(0, -1), i64(1, 1), i32(3, 4)), [1, 2]), "lo of level 1 .* negative at position 1"),
        (matrix("lil", (i64(0, 2), i64(1, 1), i32(3, 4)), [1, 2]), "hi of level 1 .* less than lo"),
        (matrix("lil", (i64(0, 1), i64(2, 2), i32(3, 4)), [1, 2]), "segments of level 1 .* overlap at position 1"),
        (
            matrix(
                "lil",
                (
                    i64(0, 1),
                    i64(
                        1,
                    ),
                    i32(3, 4),
                ),
                [1, 2],
            ),
            "hi of level 1 .* has 1 entries",
        ),
        (matrix("lil", (i64(1, 0), i64(2, 1), i32(3, 5)), [1, 2]), "crd of level 1 .* out of bounds at position 1"),
        (matrix("lil", (i64(3, 0), i64(3, 2), i32(4, 3, 9)), [1, 2, 0]), "not sorted at position 1"),
        (matrix("lil", (i64(0, 2), i64(1, 3), i32(4, 9, 3)), [1, 2, 3]), "vals is 2.0 at position 1, which is unused"),
        (matrix("bitmap", words(1), [0] * 10), "words of level 1 .* has 1 entries; it must have 2"),
        (matrix("bitmap", words(1, 32), [0] * 10), "bits past the extent 5 at position 1"),
        (matrix("bitmap", words(1, 0), [0, 3] + [0] * 8), "vals is 3.0 at position 1, which is unused"),
        (matrix("bitmap", words(1, 0), [0] * 9), "vals has 9 entries, but the levels hold 10"),
        (matrix("bitmap", (i64(1, 0),), [0] * 10), "words of level 1 .* dtype int64; it must be uint64"),
        (matrix("hash", (i64(0, 3, 3), i32(-1, 1, -1)), [0, 0, 0]), "gives 3 slots to the 1 entries of position 0"),
        (matrix("hash", (i64(0, 2, 2), i32(0, 1)), [0, 0]), "gives 2 slots to the 2 entries"),
        (matrix("hash", (i64(0, 2, 2), HASH_1[::-1].copy()), [0, 0]), "where no search finds it"),
        (matrix("hash", (i64(0, 2, 2), i32(-2, 1)), [0, 0]), "only -1 marks an empty slot"),
        (matrix("hash", (i64(0, 2, 2), i32(-1, 7)), [0, 0]), "out of bounds at position 1"),
        (matrix("hash", (i64(0, 4, 4), i32(1, 1, -1, -1)), [0] * 4), "repeats a coordinate"),
        (matrix("hash", (i64(0, 2, 4), i32(-1, -1)), [0, 0]), "ends at 4, but there are 2 slots"),
        (matrix("hash", (i64(0, 2, 2), HASH_1), np.where(HASH_1 == 1, 0, 4)), "which is unused"),
        (matrix("rle", (i64(0, 1, 1), i32(2), i32(2)), [1]), "stop of level 1 .* is 2 at position 0"),
        (matrix("rle", (i64(0, 1, 1), i32(2), i32(6)), [1]), "stop of level 1 .* out of bounds"),
        (matrix("rle", (i64(0, 1, 1), i32(-1), i32(2)), [1]), "start of level 1 .* negative"),
        (matrix("rle", (i64(0, 2, 2), i32(0, 1), i32(2, 3)), [1, 2]), "start of level 1 .* is 1 at position 1"),
        (matrix("rle", (i64(0, 1, 1), i32(0), i32(1, 2)), [1]), "stop of level 1 .* has 2 entries"),
        (matrix("rle", (i64(0, 1, 2), i32(0), i32(1)), [1]), "ends at 2, but there are 1 runs"),
        (matrix("rle", (i64(0, 1, 1), i32(0), i32(1)), [1, 2]), "vals has 2 entries"),
        (matrix("banded", (i64(0, 3, 3), i32(3, 0)), [1, 2, 3]), "gives 3 coordinates from 3 to position 0"),
        (matrix("banded", (i64(0, 3, 2), i32(0, 0)), [1, 2, 3]), "decreases"),
        (matrix("banded", (i64(0, 2, 2), i32(0)), [1, 2]), "start of level 1 .* has 1 entries"),
        (matrix("banded", (i64(0, 2, 2), i32(5, 0)), [1, 2]), "start of level 1 .* out of bounds"),
        (matrix("banded", (i64(0, 2, 2), i32(0, 0)), [1, 2, 3]), "vals has 3 entries"),
        (matrix("dia", (i64(1), i64(0, 1)), [1] * 4), "off of level 1 .* has 2 entries; it must have 1"),
        (matrix("dia", (i64(1, 1), i64(0)), [1] * 2), "count of level 1 .* has 2 entries"),
        (matrix("dia", (i64(2), i64(1, 1)), [1] * 4), "does not increase at position 1"),
        (matrix("dia", (i64(2), i64(2, -(2**63))), [1] * 4), "does not increase at position 1"),
        (matrix("dia", (i64(1), i64(-1)), [1, 1]), "vals is 1.0 at position 0, which is unused"),
        (matrix("dia", (i64(1), i32(0)), [1, 1]), "off of level 1 .* dtype int32"),
    ],
)
def test_each_fault_is_named(bad, message):
    with pytest.raises(FormatError, match=message):
        validate.validate(bad)
    with pytest.raises(FormatError, match=message):
        sj.array(bad)


def test_unused_positions_may_hold_a_nan_fill():
    made = convert.from_coords(np.array([[0], [1]]), np.ones(1), (2, 3), Format.parse("bitmap", 2), np.nan)
    validate.validate(made)
    assert np.isnan(made.vals).sum() == 5
    assert structural.refill(made, np.nan).vals is made.vals
    assert structural.refill(made, 2.0).vals.tolist() == [2, 1, 2, 2, 2, 2]


def test_storages_given_by_users_are_borrowed_or_copied():
    buffers, vals = (i64(1), i64(1, 1), i32(3, 4)), np.array([1.0, 2.0])
    given = Storage(Format.parse("ell", 2), (2, 5), np.float64(0), ((), buffers), vals)
    assert np.shares_memory(sj.asarray(given).storage.vals, vals)
    assert not np.shares_memory(sj.array(given).storage.vals, vals)
    assert sj.array(given, format="csr").todense().tolist() == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 2]]
    assert sj.array(given, shape=(2, 5)).format == given.format
    with pytest.raises(FormatError, match="shape"):
        sj.array(given, shape=(3, 5))


@pytest.mark.parametrize("name", ["ell", "bitmap", "hash", "rle", "lil", "groupcoo:4"])
def test_schedules_count_entries(name):
    """How many entries loop orders are chosen by does not depend on unused slots or on merged runs, whose number is told beside."""
    x = np.zeros((8, 512))
    x[0, :300] = 1
    x[5, 7] = 2
    want = statistics.positions(convert.from_dense(x, Format.parse("csr", 2), 0.0))
    storage = convert.from_dense(x, Format.parse(name, 2), 0.0)
    found = statistics.positions(storage)
    assert tuple(found) == want
    assert getattr(found, "runs", None) == (statistics.rounded(len(storage.vals)) if name == "rle" else None)
