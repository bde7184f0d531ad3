"""The compiled passes of conversions against those in NumPy."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.formats.passes import Learning, Passes
from sparsejax.jit.runtime.passes import conversion_passes, entered_rows, flagged_values, partitions, segment_passes
from sparsejax.jit.runtime.passes.conversion_passes import CompiledPasses
from sparsejax.jit.runtime.passes.largest import leading_digits

pytestmark = pytest.mark.rotating(16)

FEW, MANY = Passes(), CompiledPasses()
SIZES = [0, 1, 17, 5000]


def equal(made, expected):
    assert made.dtype.kind == expected.dtype.kind
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("longest", [0, 1, 3, 40])
@pytest.mark.parametrize("parents", SIZES)
def test_owners_and_offsets(parents, longest):
    rng = np.random.default_rng(parents)
    pos = np.append(0, np.cumsum(rng.integers(0, longest + 1, parents) * rng.integers(0, 2, parents)))
    owners = MANY.owners(pos)
    equal(owners, FEW.owners(pos))
    for index in (np.int32, np.int64):
        equal(MANY.offsets(owners.astype(index), parents), pos)


@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.parametrize(("entries", "parents"), [(200_000, 3000), (200_000, 3), (140_000, 1_000_000)])
def test_offsets_are_the_same_for_any_number_of_threads(entries, parents, threads):
    """Rows go over from one part to the next; the last rows are empty."""
    rng = np.random.default_rng(entries)
    parent = np.sort((parents * rng.random(entries) ** 2 / 1.5).astype(np.int32))
    with sj.config.using(num_threads=threads):
        equal(MANY.offsets(parent, parents), FEW.offsets(parent, parents))


@pytest.mark.parametrize("key", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", ["?", "u2", "f4", "i8", "c16"])
@pytest.mark.parametrize(("size", "extent"), [(0, 3), (1, 1), (17, 5), (5000, 60), (5000, 2**31 - 1), (3000, 8192)])
def test_ordered_is_stable(size, extent, dtype, key):
    rng = np.random.default_rng(size)
    keys = rng.integers(0, extent, size).astype(key)
    columns = [np.arange(size), rng.integers(0, 2, size).astype(dtype), rng.integers(0, 9, 2 * size)[::2]]
    (made, moved), (expected, wanted) = MANY.ordered(keys, columns, extent), FEW.ordered(keys, columns, extent)
    np.testing.assert_array_equal(made, expected)
    for ours, theirs in zip(moved, wanted, strict=True):
        equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_wide_keys_are_ordered_by_all_their_bits():
    keys = np.random.default_rng(0).integers(0, 2**62, 5000)
    made, (order,) = MANY.ordered(keys, [np.arange(5000)], 2**62)
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(made, np.sort(keys))


@pytest.mark.parametrize(("size", "extent"), [(0, 3), (17, 5), (5000, 60), (5000, 100_000), (200_000, 3000)])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_buckets_are_the_same_for_any_number_of_threads(size, extent, threads):
    rng = np.random.default_rng(size)
    keys, columns = rng.integers(0, extent, size).astype(np.int32), [np.arange(size), rng.random(size)]
    with sj.config.using(num_threads=threads):
        pos, moved = MANY.bucketed(keys, columns, extent)
    expected, wanted = FEW.bucketed(keys, columns, extent)
    for ours, theirs in zip((pos, *moved), (expected, *wanted), strict=True):
        equal(ours, theirs)


@pytest.mark.parametrize("dtypes", [("i4", "f8"), ("i8", "c16", "i1"), ("u2", "f4")])
@pytest.mark.parametrize("kind", ["i4", "u4", "i8"])
@pytest.mark.parametrize(
    ("threads", "size", "extent"), [(1, 300_011, 1_000_003), (2, 600_011, 2_400_003), (5, 300_011, 1_000_003)]
)
def test_many_entries_go_to_parts_of_the_buckets_first(dtypes, kind, threads, size, extent, monkeypatch):
    """Of buckets, a part has numbers of 16 bits or of more; columns of integers may become narrower on the way."""
    found = []
    scattered = partitions.scattered
    monkeypatch.setattr(partitions, "scattered", lambda *args: found.append(scattered(*args)) or found[-1])
    rng = np.random.default_rng(threads)
    keys = rng.integers(0, extent, size).astype(kind)
    columns = [rng.integers(0, 100, size).astype(dtype) for dtype in dtypes]
    narrow = [np.dtype("i4" if c.dtype == "i8" else c.dtype) for c in columns]
    for kinds in (None, narrow):
        with sj.config.using(num_threads=threads):
            pos, moved = MANY.bucketed(keys, columns, extent, kinds)
        assert found[-1] is not None
        order = np.argsort(keys, kind="stable")
        np.testing.assert_array_equal(pos, np.searchsorted(keys[order], np.arange(extent + 1)))
        for ours, column, own in zip(moved, columns, kinds or [c.dtype for c in columns], strict=True):
            assert ours.dtype == own
            equal(ours, column[order])


@pytest.mark.parametrize("size", SIZES)
def test_columns_become_narrower_on_their_way_to_buckets(size):
    rng = np.random.default_rng(size)
    keys, columns = rng.integers(0, 300, size), [rng.integers(0, 2**31 - 1, size), rng.random(size)]
    kinds = [np.dtype("i4"), np.dtype("f8")]
    for extent in (300, 10**6):
        (pos, moved), (expected, wanted) = (run.bucketed(keys, columns, extent, kinds) for run in (MANY, FEW))
        for ours, theirs in zip((pos, *moved), (expected, *wanted), strict=True):
            assert ours.dtype == theirs.dtype
            equal(ours, theirs)


def uneven(rng, size, extent):
    keys = rng.integers(0, extent, size)
    keys[rng.random(size) < 0.5] = 7
    return keys


@pytest.mark.parametrize("order", [lambda rng, n, m: np.sort(rng.integers(0, m, n)), uneven])
def test_parts_are_not_made_of_entries_in_order_or_of_one_bucket(order, monkeypatch):
    found = []
    scattered = partitions.scattered
    monkeypatch.setattr(partitions, "scattered", lambda *args: found.append(scattered(*args)) or found[-1])
    size, extent = 300_011, 1_000_003
    keys = order(np.random.default_rng(0), size, extent)
    pos, (moved,) = MANY.bucketed(keys, [np.arange(size)], extent)
    assert not any(found)
    wanted = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(moved, wanted)
    np.testing.assert_array_equal(pos, np.searchsorted(keys[wanted], np.arange(extent + 1)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_take_and_distinct(size, index):
    rng = np.random.default_rng(size)
    columns = [np.sort(rng.integers(0, 40, size)).astype(index), rng.integers(0, 2, size)]
    (made, number), (expected, wanted) = MANY.distinct(columns), FEW.distinct(columns)
    for ours, theirs in zip((*made, number), (*expected, wanted), strict=True):
        equal(ours, theirs)
    for column in (np.arange(40.0), np.arange(40) * 1j):
        equal(MANY.take(column, columns[0]), column[columns[0]])


@pytest.mark.parametrize(("count", "extent"), [(0, 3), (4, 0), (3, 5), (700, 9)])
def test_grid(count, extent):
    for ours, theirs in zip(MANY.grid(count, extent), FEW.grid(count, extent), strict=True):
        equal(ours, theirs)


@pytest.mark.parametrize("extent", [600, 2**40])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_joined(extent, dtype):
    rng = np.random.default_rng(0)
    block, place = rng.integers(0, 100, 500).astype(dtype), rng.integers(0, 6, 500)
    equal(MANY.joined(block, place, 6, extent), FEW.joined(block, place, 6, extent))


@pytest.mark.parametrize("dtype", ["?", "f4", "c16"])
@pytest.mark.parametrize("fill", [0, 1, -0.0])
@pytest.mark.parametrize("count", [0, 900, 5_000_000])
def test_spread(count, fill, dtype):
    rng = np.random.default_rng(0)
    vals = np.ones(min(count, 400), dtype)
    position = rng.permutation(count)[: len(vals)]
    ours, theirs = (passes.spread(vals, position, count, fill) for passes in (MANY, FEW))
    assert ours.tobytes() == theirs.tobytes() and ours.dtype == theirs.dtype


def test_passes_over_few_entries_become_machine_code_where_they_come_often():
    learning, many = Learning(MANY, 3), []
    pos = np.array([0, 2, 3])
    for _ in range(5):
        equal(learning.owners(pos), FEW.owners(pos))
        many.append("owners" in vars(learning) and learning.owners == MANY.owners)
    assert many == [False, False, True, True, True]
    assert all(hasattr(learning, name) for name in Learning.LEARNT)


def segments_of(rng, parents, longest, extent, first=0):
    """`pos`, and coordinates that increase in every segment, of which `first` others lie before."""
    counts = np.minimum(rng.integers(0, longest + 1, parents) * rng.integers(0, 2, parents), extent)
    crd = [np.sort(rng.choice(extent, n, replace=False)) for n in (first, *counts)]
    return np.append(0, np.cumsum(counts)) + first, np.concatenate(crd).astype(np.int32)


def same_parts(ours, theirs):
    for made, expected in zip(ours, theirs, strict=True):
        if isinstance(made, list):
            same_parts(made, expected)
        else:
            equal(made, expected)
            assert made.dtype == expected.dtype


@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize(("parents", "longest"), [(0, 1), (1, 40), (900, 1), (900, 12), (60_000, 12)])
def test_parts_of_segments(parents, longest, first):
    rng = np.random.default_rng(parents + longest)
    extent = 50
    pos, crd = segments_of(rng, parents, longest, extent, first)
    columns = [rng.random(len(crd)), rng.random(len(crd)) < 0.5, np.arange(len(crd))]
    with sj.config.using(num_threads=3):
        index = rng.integers(0, parents, parents + 5) if parents else np.empty(0, np.int64)
        start, made = FEW.picked(pos, index)
        same_parts(MANY.picked(pos, index), (start, made))
        same_parts(MANY.copied(start, made, columns), FEW.copied(start, made, columns))
        for chosen in (range(50), range(10, 30), range(3, 48, 4), range(20, 20), range(49, 50)):
            same_parts(MANY.within(pos, crd, chosen, columns), FEW.within(pos, crd, chosen, columns))
        for listed in (rng.permutation(extent), rng.integers(0, extent, 30), np.empty(0, np.int64)):
            places = FEW.numbered(listed, extent)
            same_parts(MANY.numbered(listed, extent), places)
            same_parts(MANY.named(pos, crd, listed, extent, columns), FEW.named(pos, crd, listed, extent, columns))
            for vals in columns:
                same_parts(MANY.named(pos, crd, listed, extent, [vals]), FEW.named(pos, crd, listed, extent, [vals]))
        for start, step in ((0, 1), (7, 1), (3, 0)):
            same_parts(MANY.met(pos, crd, start, step, columns[0]), FEW.met(pos, crd, start, step, columns[0]))
        parts = [(pos, crd, columns[0])] * 3
        others = segments_of(rng, parents, longest, extent)
        parts.append((*others, rng.random(len(others[1]))))
        shifts = [0, 50, 100, 7]
        if not first:
            for flags in (columns[1], np.zeros(len(crd), bool), np.ones(len(crd), bool)):
                same_parts(MANY.chosen(pos, flags, columns), FEW.chosen(pos, flags, columns))
            for some in (parts, [(*part, part[1][::-1], part[2] > 0.5) for part in parts]):
                same_parts(MANY.interleaved(some, shifts), FEW.interleaved(some, shifts))
            small = segments_of(rng, 5, 3, 7)
            pair, extents = (parts[0], (*small, rng.random(len(small[1])))), (5 * parents, 7 * extent)
            same_parts(MANY.crossed(*pair, 7, extents), FEW.crossed(*pair, 7, extents))
        for own in (0, 1, 2):
            strings, dtype = [part[own] for part in parts] * 2, parts[0][own].dtype
            same_parts([MANY.strung(strings, None, dtype)], [FEW.strung(strings, None, dtype)])
            if own < 2:
                for wide in (dtype, np.dtype(np.int64)):
                    same_parts([MANY.strung(strings, shifts * 2, wide)], [FEW.strung(strings, shifts * 2, wide)])
        if parents:
            parent, wanted = rng.integers(0, parents, 3 * parents), rng.integers(0, extent, 3 * parents)
            same_parts([MANY.located(pos, crd, parent, wanted)], [FEW.located(pos, crd, parent, wanted)])
            inside = [set(crd[a:b].tolist()) for a, b in itertools.pairwise(pos)]
            stored = [c in inside[p] for p, c in zip(parent.tolist(), wanted.tolist(), strict=True)]
            np.testing.assert_array_equal(FEW.located(pos, crd, parent, wanted) >= 0, stored)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float64])
def test_vectors_are_copied_by_kernels_from_any_size_on(monkeypatch, threads, dtype):
    """What is copied, and what is shifted too; vectors may be empty."""
    rng = np.random.default_rng(threads)
    ran, run_parts = [], segment_passes.run_parts
    monkeypatch.setattr(segment_passes, "FAR", 0)
    monkeypatch.setattr(segment_passes, "COPIED", 0)
    monkeypatch.setattr(segment_passes, "run_parts", lambda *a: ran.append(1) or run_parts(*a))
    with sj.config.using(num_threads=threads):
        for lengths in ((0,), (1, 0, 5), (300, 2, 0, 77)):
            strings = [rng.integers(0, 20, n).astype(dtype) for n in lengths]
            same_parts([MANY.strung(strings, None, np.dtype(dtype))], [FEW.strung(strings, None, np.dtype(dtype))])
            if dtype is np.int32:
                shifts = [7 * k for k in range(len(lengths))]
                for wide in (np.dtype(np.int32), np.dtype(np.int64)):
                    same_parts([MANY.strung(strings, shifts, wide)], [FEW.strung(strings, shifts, wide)])
    assert ran


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    "lengths", [[], [0, 0], [512], [0, 511, 0, 1, 513, 0], [3, 200_000, 0, 99_997, 0], [0, 270_000]]
)
def test_flags_choose_entries_of_segments_of_any_length(lengths, threads):
    """Entries are taken some at a time, whose segments begin before them, end behind them, or are empty; threads take parts of the segments."""
    rng, count = np.random.default_rng(sum(lengths)), sum(lengths)
    pos = np.append(0, np.cumsum(lengths, dtype=np.int64))
    columns = [np.arange(count, dtype=np.int32), rng.random(count), rng.random(count) + 1j, rng.random(count) < 0.5]
    with sj.config.using(num_threads=threads):
        for share in (0, 0.01, 0.5, 1):
            flags = rng.random(count) < share
            same_parts(MANY.chosen(pos, flags, columns), FEW.chosen(pos, flags, columns))
        ahead = np.arange(count) < count // 3  # of the last segments, nothing
        same_parts(MANY.chosen(pos, ahead, columns), FEW.chosen(pos, ahead, columns))


@pytest.mark.parametrize("entries", SIZES)
@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8", "c16"])
def test_values_whose_flags_hold_are_ordered_by_keys(dtype, entries, monkeypatch):
    rng = np.random.default_rng(entries)
    for far, extent, index in ((0, 1, np.int32), (10**6, 70, np.int64), (0, 9000, np.int32)):
        monkeypatch.setattr(flagged_values, "FAR", far)
        key, vals = rng.integers(0, extent, entries).astype(index), rng.integers(0, 99, entries).astype(dtype)
        for flags in (rng.random(entries) < 0.4, np.zeros(entries, bool), np.ones(entries, bool)):
            equal(MANY.flagged(key, flags, vals, extent), FEW.flagged(key, flags, vals, extent))


@pytest.mark.parametrize("share", [0, 0.1, 0.9, 1])
def test_parts_of_named_entries_are_closed_up(share, monkeypatch):
    """Every thread begins where its entries do; what they leave is closed up, and the result takes no more memory than it has entries."""
    monkeypatch.setattr(segment_passes, "FAR", 0)
    rng = np.random.default_rng(5)
    rows, crd = np.divmod(np.unique(rng.integers(0, 700 * 400, 2800)), 400)
    pos, crd, vals = (
        np.append(0, np.bincount(rows, minlength=700).cumsum()),
        crd.astype(np.int32),
        rng.random(len(rows)),
    )
    listed = np.flatnonzero(rng.random(400) < share)
    for threads in (1, 3):
        with config.using(num_threads=threads):
            made = MANY.named(pos, crd, listed, 400, [vals], MANY.places(listed, 400))
        same_parts(made, FEW.named(pos, crd, listed, 400, [vals]))
        assert made[1].base is None or share == 1
        assert made[2][0].base is None or share == 1


def test_more_entries_are_named_than_there_is_room_for():
    """All entries are at one coordinate, which the list names thirty times: the kernel of few entries runs twice."""
    pos, crd, vals = np.arange(41), np.full(40, 3, np.int32), np.arange(40.0)
    for listed in (np.full(30, 3), np.full(30, 4), np.arange(30) % 4):
        same_parts(MANY.named(pos, crd, listed, 50, [vals]), FEW.named(pos, crd, listed, 50, [vals]))


@pytest.mark.parametrize("segments", [1, 3, 900, 5000])
@pytest.mark.parametrize("entries", [4000, 6000, 9000, 25_000, 40_000])
def test_short_lists_of_some_thousand_entries(segments, entries):
    """Each side of where one kernel does what several do."""
    rng = np.random.default_rng([segments, entries])
    for extent in (200, 5000, 40_000):
        if segments * extent < 2 * entries:
            continue
        rows, crd = np.divmod(np.unique(rng.integers(0, segments * extent, entries)), extent)
        pos, crd = np.append(0, np.bincount(rows, minlength=segments).cumsum()), crd.astype(np.int32)
        vals = rng.random(len(crd))
        for share in (1, extent // 100, extent // 12, extent // 3):
            for listed in (rng.choice(extent, share, replace=False), rng.integers(0, extent, share)):
                for some in (listed, np.sort(listed)):
                    same_parts(MANY.named(pos, crd, some, extent, [vals]), FEW.named(pos, crd, some, extent, [vals]))


def test_long_segments_that_lists_turn_around():
    crd, order, vals = np.arange(500, dtype=np.int32), np.arange(500)[::-1], np.arange(500.0)
    pos = np.array([0, 500])
    for listed in (order, np.append(order, order[:7])):
        same_parts(MANY.named(pos, crd, listed, 500, [vals]), FEW.named(pos, crd, listed, 500, [vals]))
    assert MANY.named(pos, crd, order, 500, []) is None


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["?", "u2", "f4", "f8", "c16"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("extent", [1, 200, 256, 257, 70_000, 2**31 - 1, 2**56, 2**57, 2**63 - 1])
def test_long_segments_are_ordered_by_digits(extent, index, dtype, threads, monkeypatch):
    """Long and short ones, empty ones, in order and not, with one coordinate many times; results are stable."""
    monkeypatch.setattr(segment_passes, "FAR", 0)
    rng = np.random.default_rng(extent)
    lengths = rng.permutation([0, 0, 1, 5, 64, 128, 129, 130, 255, 600, 3000])
    pos = np.append(0, np.cumsum(lengths))
    crd = rng.integers(0, min(extent, np.iinfo(index).max), pos[-1]).astype(index)
    vals = (rng.random(pos[-1]) * 99).astype(dtype)
    if extent > 3000:
        crd[pos[4] : pos[5]] = np.sort(crd[pos[4] : pos[5]])
    with sj.config.using(num_threads=threads):
        made, moved, distinct = MANY.tidied(pos, crd.copy(), vals.copy())
    expected, wanted, once = FEW.tidied(pos, crd, vals)
    same_parts([made, moved], [expected, wanted])
    assert distinct is once


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 600])
def test_lists_that_rise_keep_segments_of_any_length_in_order(rows, threads):
    """No segment is put in order, so that long ones are no reason for another road; of lists that name a coordinate twice neither."""
    rng = np.random.default_rng(rows)
    extent = 3000
    pos = np.append(0, np.cumsum(np.append(rng.integers(0, 900, rows), [0, extent])))
    crd = np.concatenate([np.sort(rng.permutation(extent)[:n]) for n in np.diff(pos)]).astype(np.int32)
    vals = rng.random(len(crd))
    once = np.sort(rng.permutation(extent)[: extent // 2])
    with sj.config.using(num_threads=threads):
        for listed in (once, np.sort(rng.integers(0, extent, extent // 2))):
            made = MANY.named(pos, crd, listed, extent, [vals])
            same_parts(made, FEW.named(pos, crd, listed, extent, [vals]))


@pytest.mark.parametrize("entries", [0, 1, 3000, 300_000])
@pytest.mark.parametrize("old", [(60, 100), (6000,), (6, 100, 10)])
@pytest.mark.parametrize("new", [(6000,), (30, 200), (2, 3, 1000), (6000, 1)])
def test_regrouped(old, new, entries):
    flat = np.random.default_rng(entries).integers(0, 6000, entries)
    columns = [c.astype(np.int32) for c in np.unravel_index(flat, old)]
    with sj.config.using(num_threads=3):
        same_parts(MANY.regrouped(columns, old, new), FEW.regrouped(columns, old, new))
    for made, expected in zip(MANY.regrouped(columns, old, new), np.unravel_index(flat, new), strict=True):
        np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("extent", [20, 5000])
@pytest.mark.parametrize(("parents", "longest"), [(0, 1), (1, 40), (900, 12), (300, 125), (60_000, 12)])
def test_tidied(parents, longest, extent):
    rng = np.random.default_rng(parents)
    pos = np.append(0, np.cumsum(rng.integers(0, longest + 1, parents)))
    crd, vals = rng.integers(0, extent, pos[-1]).astype(np.int32), rng.random(pos[-1])
    with sj.config.using(num_threads=3):
        for own in (crd, np.arange(len(crd), dtype=np.int32)[::-1].copy()):
            expected, wanted, distinct = FEW.tidied(pos, own, vals)
            made, moved, same = MANY.tidied(pos, own.copy(), vals.copy())
            same_parts([made, moved], [expected, wanted])
            assert same is distinct


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("parents", "longest", "extent"),
    [(0, 1, 1), (1, 40, 9), (1, 400, 3), (900, 12, 6), (900, 12, 5000), (60, 400, 5000), (60, 400, 3)],
)
def test_folded(parents, longest, extent, index, dtype, monkeypatch):
    """Runs of none, two and many equal coordinates, also over the end of a segment; the bits of sums are NumPy's."""
    monkeypatch.setattr(segment_passes, "FAR", 0)
    rng = np.random.default_rng(parents + extent)
    pos = np.append(0, np.cumsum(rng.integers(0, longest + 1, parents)))
    crd = np.concatenate([np.sort(rng.integers(0, extent, n)) for n in np.diff(pos)] or [[]]).astype(index)
    vals = (rng.standard_normal(len(crd)) * 100).astype(dtype)
    if vals.dtype.kind in "fc":
        vals[::7] = -0.0
    expected, made = FEW.folded(pos, crd, vals), MANY.folded(pos, crd.copy(), vals.copy())
    for ours, theirs in zip(made, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()
    total = np.zeros((parents, extent), vals.dtype)
    with np.errstate(over="ignore"):
        np.add.at(total, (np.arange(parents).repeat(np.diff(pos)), crd), vals)
    owners = np.arange(parents).repeat(np.diff(made[0]))
    assert (np.diff(owners * np.int64(extent) + made[1]) > 0).all()
    np.testing.assert_allclose(made[2], total[owners, made[1]], rtol=0, atol=1e-3 * (vals.dtype.kind in "fc"))


@pytest.mark.parametrize("dtype", ["?", "i2", "i8", "f4", "f8", "c16"])
@pytest.mark.parametrize("extent", [1, 7, 300, 2**33])
@pytest.mark.parametrize("order", ["none", "rows", "grid", "outside"])
def test_entered(order, extent, dtype):
    """Rows of none to a hundred entries, of every width of coordinates; those that increase already, too; the bits are those of passes one by one."""
    rng = np.random.default_rng(extent % 1000)
    for entries, rows in ((1, 1), (60, 9), (900, 2000), (3000, 400), (3000, 31)):
        row, column = rng.integers(0, rows, entries), rng.integers(0, extent, entries)
        if order == "rows":
            row.sort()
        elif order == "grid":
            row, column = np.arange(entries) // 3 % rows, (np.arange(entries) // 2) % extent
        elif order == "outside":
            (row if rows % 2 else column)[entries // 2] = rng.choice([-1, 2**40])
        vals = (rng.standard_normal(entries) * 100).astype(dtype)
        for widths in ((np.int32, np.int64), (np.int64, np.int32)):
            if order == "outside" or extent > 2**31:
                widths = np.int64, np.int64
            own = row.astype(widths[0]), column.astype(widths[1]), vals
            expected, made = FEW.entered(*own, rows, extent), MANY.entered(*own, rows, extent)
            if order == "outside":
                assert expected is None and made is None
                continue
            assert made is not None or np.bincount(row).max() > 64
            for ours, theirs in zip(made or (), expected if made else (), strict=True):
                assert ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", ["none", "rows", "grid"])
def test_many_entries_in_some_order_are_entered_by_one_kernel_on_one_thread(order, threads, monkeypatch):
    """Whatever makes the rows, the bits are the same."""
    met = []
    for module in (segment_passes, entered_rows):
        monkeypatch.setattr(module, "FAR", 1000)
    monkeypatch.setattr(
        segment_passes.entered_rows, "entered", lambda *a, made=entered_rows.entered: met.append(1) or made(*a)
    )
    rng = np.random.default_rng(5)
    entries, rows, extent = 9000, 4000, 300
    row, column = rng.integers(0, rows, entries), rng.integers(0, extent, entries)
    if order == "rows":
        row.sort()
    elif order == "grid":
        row, column = np.arange(entries) // 3, (np.arange(entries) // 2) % extent
    own = row, column, rng.standard_normal(entries)
    with config.using(num_threads=threads):
        made = MANY.entered(*own, rows, extent)
    assert len(met) == (threads == 1 and order != "none")
    for ours, theirs in zip(made, FEW.entered(*own, rows, extent), strict=True):
        assert ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", ["i1", "f4", "f8", "c16"])
@pytest.mark.parametrize("length", [2, 3, 7, 8, 9, 16, 17, 33, 63, 64, 65, 127, 128, 129])
def test_segments_of_every_number_of_vectors_are_tidied(length, dtype, index):
    """All entries but those of the last segments are ranked; equal coordinates stay in their order."""
    rng = np.random.default_rng(length)
    pos = np.arange(0, 40 * length + 1, length)
    vals = rng.integers(-100, 100, pos[-1]).astype(dtype)
    for extent in (2, length, 10**6):
        crd = rng.integers(0, extent, pos[-1]).astype(index)
        expected, wanted, distinct = FEW.tidied(pos, crd, vals)
        found = MANY.tidied(pos, crd.copy(), vals.copy())
        same_parts(found[:2], [expected, wanted])
        assert found[2] is distinct


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("lead", [0, 5])
@pytest.mark.parametrize(
    ("rows", "extent", "longest"), [(0, 5, 1), (40, 1, 1), (200, 64, 9), (3000, 65, 60), (40_000, 900, 9)]
)
@pytest.mark.parametrize("which", ["permutation", "some once", "some often", "none"])
def test_coordinates_that_a_list_names(which, rows, extent, longest, lead, threads, monkeypatch):
    """Extents of a word of marks, more and less; entries before the first segment belong to none."""
    if threads > 1:
        monkeypatch.setattr(segment_passes, "FAR", 0)
    rng = np.random.default_rng(rows)
    pos = lead + np.append(0, np.cumsum(rng.integers(0, min(longest, extent) + 1, rows)))
    crd = np.concatenate([np.zeros(lead, int), *(np.sort(rng.permutation(extent)[:n]) for n in np.diff(pos))])
    crd, columns = crd.astype(np.int32), [rng.random(len(crd)), rng.integers(0, 9, len(crd)).astype("i1")]
    order = rng.permutation(extent)
    wanted = {
        "permutation": order,
        "some once": order[: extent // 3],
        "some often": rng.integers(0, extent, 1 + extent // 8),
        "none": order[:0],
    }[which]
    places = MANY.places(wanted, extent)
    for kept in (columns, columns[:1], columns[1:]):
        expected = FEW.named(pos, crd, wanted, extent, kept)
        with sj.config.using(num_threads=threads):
            same_parts(MANY.named(pos, crd, wanted, extent, kept), expected)
            same_parts(MANY.named(pos, crd, wanted, extent, kept, places), expected)
            if len(kept) == 1:
                given = []

                def room(count, given=given, dtype=kept[0].dtype):
                    given[:] = np.empty(count, np.int32), np.empty(count, dtype)
                    return given

                made = MANY.named(pos, crd, wanted, extent, kept, places, room)
                same_parts(made, expected)
                assert made[1] is given[0]
                assert made[2][0] is given[1]


def test_a_long_segment_among_short_ones():
    rng = np.random.default_rng(0)
    pos = np.append(0, np.cumsum(np.append(rng.integers(0, 12, 5000), 3000)))
    crd, vals = rng.integers(0, 10_000, pos[-1]).astype(np.int32), rng.random(pos[-1])
    same_parts(MANY.tidied(pos, crd.copy(), vals.copy())[:2], FEW.tidied(pos, crd, vals)[:2])


@pytest.mark.parametrize("dtype", ["?", "f4", "f8", "c16"])
@pytest.mark.parametrize("seed", range(40))
def test_diagonals_are_lined_up(seed, dtype):
    """Extents from none on, offsets inside, at the edges and outside; lines of one value, of all, and none."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(n) for n in rng.integers(0, 60, 2))
    offsets = sorted({int(k) for k in rng.integers(-65, 65, rng.integers(1, 10))})
    counts = [max(0, min(rows, columns - k) - max(0, -k)) for k in offsets]
    lines = [rng.integers(-5, 5, n if n and rng.random() < 0.7 else 1).astype(dtype) for n in counts]
    for given in (lines, None):
        made, expected = (over.lined((rows, columns), offsets, given) for over in (MANY, FEW))
        for ours, theirs in zip(made[: 2 if given is None else 3], expected, strict=False):
            equal(ours, theirs)
            assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("dtype", ["?", "f4", "f8", "c16"])
@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (1, 5), (7, 9), (8, 8), (17, 33), (100, 1), (90, 70)])
def test_matrices_are_turned(shape, dtype):
    matrix = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    equal(MANY.turned(matrix), FEW.turned(matrix))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("fill", [0, 1, np.nan, complex(1, np.nan), 2j])
@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f4", "f8", "c8", "c16"])
def test_what_differs_from_the_fill_is_sifted(dtype, fill, threads, monkeypatch):
    """Rows shorter and longer than a word of bits, and elements that are the fill, its parts, NaN, and zero of either sign."""
    if (fill != fill and dtype[0] not in "fc") or (isinstance(fill, complex) and dtype[0] != "c"):
        return
    monkeypatch.setattr(conversion_passes, "FAR", 0)
    rng, fill = np.random.default_rng(0), np.dtype(dtype).type(fill)
    pool = [-0.0, 0, 1, 2, np.nan] if dtype[0] in "fc" else [0, 1, 2]
    pool = [*pool, 2j, complex(1, np.nan), complex(np.nan, 2), -0j] if dtype[0] == "c" else pool
    for shape in ((1, 1), (5, 3), (3, 8), (40, 37), (3, 170), (60, 1)):
        for share in (0, 0.1, 0.6, 1):
            matrix = rng.choice(np.array(pool).astype(dtype), shape)
            matrix[rng.random(shape) >= share] = fill
            with sj.config.using(num_threads=threads):
                made = MANY.sifted(matrix, fill)
            expected = FEW.sifted(matrix, fill)
            same_parts([*made[:2], made[2].view("u1")], [*expected[:2], expected[2].view("u1")])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("keep", [1, 2, 5, 40])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i4", "u8", "i8", "f2", "f4", "f8"])
@pytest.mark.parametrize("way", ["heap", "digits"])
def test_the_largest_of_segments(dtype, keep, threads, way, monkeypatch):
    """Short and long segments, with many equal numbers, NaN of either sign, infinities, zeros of either sign, and the least integers."""
    monkeypatch.setattr(segment_passes, "FAR", 0)
    if way == "digits":
        monkeypatch.setattr(segment_passes, "HEAPED", 0)
        monkeypatch.setattr(leading_digits, "LONG", 0)
    rng, kind = np.random.default_rng(keep), np.dtype(dtype)
    pool = [-0.0, 0, 1, -2, np.nan, -np.nan, np.inf, -np.inf] if kind.kind == "f" else [0, 1, 2]
    if kind.kind in "iu":
        pool += [np.iinfo(kind).min, np.iinfo(kind).max]
    for segments, longest in ((1, 1), (1, 300), (50, 12), (7, 90), (3, 500)):
        count = rng.integers(0, longest + 1, segments)
        count[0] = longest
        starts, ends = np.cumsum(count) - count, np.append(0, np.cumsum(count))
        near = (rng.normal(size=400) + 3).astype(kind)  # digits that are equal at first
        for some in (np.array(pool).astype(kind), rng.integers(0, 99, 200).astype(kind), near):
            size = rng.choice(some, count.sum())
            with sj.config.using(num_threads=threads):
                made = MANY.largest(size, ends, keep)
            equal(made, FEW.largest(size, ends, keep))
            for a, n in zip(starts, count, strict=True):  # largest first, NaN before all, then the first
                key = [(v == v, 0 if v != v else -v, p) for p, v in enumerate(size[a : a + n].tolist())]
                first = [p for *_, p in sorted(key)[:keep]]
                assert sorted(first) == made[a : a + n].nonzero()[0].tolist()
            with sj.config.using(num_threads=threads):
                made = MANY.largest(size, ends, keep, True)
            equal(made, FEW.largest(size, ends, keep, True))
            for a, n in zip(starts, count, strict=True):
                key = [(v == v, 0 if v != v else -abs(v), p) for p, v in enumerate(size[a : a + n].tolist())]
                assert sorted(p for *_, p in sorted(key)[:keep]) == made[a : a + n].nonzero()[0].tolist()


def test_halves_are_sifted_too():
    """Of dtypes that kernels do not compare."""
    matrix = np.array([[0, 1.5], [0, 0]], np.longdouble)
    same_parts(MANY.sifted(matrix, matrix.dtype.type(0)), FEW.sifted(matrix, 0))


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("seed", range(6))
def test_pairs_of_entries_and_their_products(seed, dtype):
    rng = np.random.default_rng(seed)

    def matrix(rows, columns):
        pos = np.append(0, np.cumsum(rng.integers(0, 4, rows)))
        return pos, rng.integers(0, columns, pos[-1]).astype(np.int32), rng.integers(-99, 99, pos[-1]).astype(dtype)

    m, n, k, l = (int(x) for x in rng.integers(1, 30, 4))
    one, other = matrix(m, n), matrix(k, l)
    for multiplied in (False, True):
        made, expected = (over.crossed(one, other, l, (m * k, n * l), multiplied) for over in (MANY, FEW))
        assert len(made) == len(expected) == (3 if multiplied else 4)
        for ours, theirs in zip(made, expected, strict=True):
            equal(ours, theirs)
            assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("seed", range(6))
def test_interleaved_segments_go_where_they_are_wanted(seed):
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(rng.integers(1, 4)):
        pos = np.append(0, np.cumsum(rng.integers(0, 4, 50)))
        parts.append((pos, rng.integers(0, 9, pos[-1]).astype(np.int32), rng.random(pos[-1])))
    shifts = [9 * k for k in range(len(parts))]
    wanted = FEW.interleaved(parts, shifts)
    for over in (FEW, MANY):
        room = np.empty(len(wanted[1]) + 5, np.int32), np.empty(len(wanted[2]) + 5)
        made = over.interleaved(parts, shifts, (room[0][2:-3], room[1][2:-3]))
        for ours, theirs in zip(made, wanted, strict=True):
            equal(ours, theirs)
        np.testing.assert_array_equal(room[0][2:-3], wanted[1])


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("index", "dtype"), [("i4", "f8"), ("i8", "c16"), ("i4", "?"), ("i8", "u2")])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_woven(density, index, dtype, replace):
    """By one coordinate, and by several, of which the first ones may be equal."""
    rng = np.random.default_rng([int(10 * density), np.dtype(dtype).itemsize])
    for rows, *extents in ((1, 1), (7, 30), (60, 9), (1, 5, 7), (4, 3, 9), (9, 2, 2, 5)):
        mask = rng.random((rows, *extents)) < density
        pos = np.append(0, np.cumsum(mask.reshape(rows, -1).sum(axis=1)))
        crds = [c.astype(index) for c in np.nonzero(mask)[1:]]
        vals = rng.integers(0, 9, len(crds[0])).astype(dtype)
        for share in (0.0, 0.1, 0.7, 1.0):
            places = np.nonzero(rng.random(mask.shape) < share)
            new = rng.integers(0, 9, len(places[0])).astype(dtype)
            given = pos, crds, vals, places, new, replace
            made, wanted = MANY.woven(*given), FEW.woven(*given)
            for ours, theirs in zip((made[0], *made[1], *made[2:]), (wanted[0], *wanted[1], *wanted[2:]), strict=True):
                equal(ours, theirs)
                assert ours.dtype == theirs.dtype
            assert (made[2] is vals) == (wanted[2] is vals) == bool(mask[places].all())
            both = mask.copy()
            both[places] = True
            for ours, theirs in zip(made[1], np.nonzero(both)[1:], strict=True):
                equal(ours, theirs.astype(index))


@pytest.mark.parametrize(("index", "dtype"), [("i4", "f8"), ("i8", "c16"), ("i4", "?"), ("i8", "u2"), ("i4", "f4")])
@pytest.mark.parametrize("threads", [1, 3])
def test_carried(index, dtype, threads):
    """Of patterns that hold each other, meet, or do not."""
    rng = np.random.default_rng(np.dtype(dtype).itemsize)

    def parts(mask):
        return np.append(0, np.cumsum(mask.sum(axis=1))), np.nonzero(mask)[1].astype(index)

    shapes = [(1, 1), (7, 30), (60, 9), (3, 0)] + [(2000, 300)] * (threads > 1)
    for shape in shapes:
        for share, other in itertools.product([0.0, 0.05, 0.4, 1.0], repeat=2):
            mask, to = rng.random(shape) < share, rng.random(shape) < other
            mask[:: 2 + len(mask) % 2] = False
            dense = np.where(mask, rng.integers(1, 9, shape), 0).astype(dtype)
            (pos, crd), (to_pos, to_crd) = parts(mask), parts(to)
            given = pos, crd, dense[mask], to_pos, to_crd
            with sj.config.using(num_threads=threads):
                made = MANY.carried(*given)
            equal(made, dense[to])
            equal(FEW.carried(*given), dense[to])
            assert made.dtype == dense.dtype


@pytest.mark.parametrize("choose", ["auto", "passes=numpy", "passes=compiled"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_coordinates_narrower_than_those_of_the_array(dtype, choose):
    """Triplets whose coordinates have fewer bits than the extent: few and many entries, one row and many, by one and two threads."""
    rng = np.random.default_rng(0)
    for count, rows in ((100, 1), (5_000, 50), (70_000, 120)):
        for extent in (2**31, 2**40):
            row, column = rng.integers(0, rows, count).astype(dtype), rng.integers(0, 100, count).astype(dtype)
            expected = np.zeros((rows, 100))
            np.add.at(expected, (row, column), 1)
            for threads in (1, 2):
                with config.using(choose=choose, num_threads=threads):
                    A = sj.array((np.ones(count), (row, column)), shape=(rows, extent), format="csr")
                    assert A.nnz == np.count_nonzero(expected)
                    np.testing.assert_array_equal(A[:, :100].todense(), expected)
                    B = sj.array((np.ones(count), (column, row)), shape=(extent, rows), format="csc")
                    np.testing.assert_array_equal(B[:100].todense(), expected.T)


@pytest.mark.parametrize("dtype", ["i4", "i8", "f8", "c16", "?", "u2"])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_repeated(count, dtype):
    column = np.arange(11)[::2].astype(dtype)
    for given in (column, np.tile(column, 3)[1::2], column[:0]):
        same_parts([MANY.repeated(given, count)], [np.repeat(given, count)])
        same_parts([FEW.repeated(given, count)], [np.repeat(given, count)])
        for kind in map(np.dtype, ("i4", "i8")) if dtype in ("i4", "i8") else ():
            wanted = (given[:, None] * np.array(count, kind) + np.arange(count, dtype=kind)).astype(kind).reshape(-1)
            same_parts([MANY.repeated(given, count, kind)], [wanted])
            same_parts([FEW.repeated(given, count, kind)], [wanted])
