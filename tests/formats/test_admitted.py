"""Entries from outside, looked at and copied by a kernel, against NumPy, and whole arrays of SciPy's against SciPy: sound, unsorted, with duplicates,
and damaged."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax import config
from sparsejax.errors import FormatError
from sparsejax.formats import validate
from sparsejax.formats.passes import Passes
from sparsejax.jit.runtime.passes import admitted_entries
from sparsejax.jit.runtime.passes.conversion_passes import CompiledPasses

FEW, MANY = Passes(), CompiledPasses()
COUNTS = [0, 1, 2, 15, 16, 17, 33, 200, 5000]
EXTENTS = [1, 5, 300, 2**31 - 1, 2**31, 2**40]
DAMAGE = [None, None, "coordinate", "pointer"]


def case(rng, count, extent, segments, axes):
    """(pos, columns, extents): mostly in order, sometimes each entry at a place of its own."""
    if segments:
        rows = int(rng.integers(bool(count), 30))
        pos = np.sort(rng.integers(0, count + 1, rows + 1))
        pos[0], pos[-1] = 0, count
        parts = [np.sort(rng.integers(0, extent, n)) for n in np.diff(pos)]
        if rng.integers(2):
            parts = [np.unique(part) for part in parts]
            pos = np.append(0, np.cumsum([len(part) for part in parts], dtype=np.int64))
        columns = [np.concatenate([*parts, np.zeros(0, np.int64)])]
        return pos.astype(rng.choice(["i4", "i8"])), narrowed(rng, columns, extent), [extent]
    columns = [rng.integers(0, extent, count) for _ in range(axes)]
    if rng.integers(4):
        order = np.lexsort(columns[::-1])
        columns = [column[order] for column in columns]
        if rng.integers(2):
            columns = list(np.unique(np.array(columns), axis=1))
    return None, narrowed(rng, columns, extent), [extent] * axes


def narrowed(rng, columns, extent):
    return [column.astype(rng.choice(["i4", "i8"]) if extent <= 2**31 else "i8") for column in columns]


def damaged(rng, pos, columns, extent, what):
    if what == "coordinate" and len(columns[0]):
        column = columns[rng.integers(len(columns))]
        column[rng.integers(len(column))] = rng.choice([-1, extent if extent < 2**31 else 0, -(2**31)])
    if what == "pointer" and pos is not None and len(pos) > 1:
        pos[rng.integers(len(pos) - 1)] = rng.choice([-1, len(columns[0]), len(columns[0]) + 5, 0, 2**31 - 1])


def same(ours, theirs):
    assert ours.dtype == theirs.dtype
    assert not ours.flags.writeable
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_kernel_against_numpy(seed, threads, monkeypatch):
    rng = np.random.default_rng(seed)
    if threads > 1:
        monkeypatch.setattr(admitted_entries, "FAR", 0)
    if seed % 2:
        monkeypatch.setattr(admitted_entries, "TOGETHER", 0)
    for _ in range(120):
        count, extent, what = int(rng.choice(COUNTS)), int(rng.choice(EXTENTS)), DAMAGE[rng.integers(4)]
        pos, columns, extents = case(rng, count, extent, bool(rng.integers(2)), int(rng.integers(1, 4)))
        damaged(rng, pos, columns, extent, what)
        vals = rng.random(len(columns[0])).astype(rng.choice(["f4", "f8", "c16", "i1"]))
        theirs = FEW.admitted(pos, columns, extents, vals, True)
        with config.using(num_threads=threads):
            ours, seen = (
                MANY.admitted(pos, columns, extents, vals, True),
                MANY.admitted(pos, columns, extents, vals, False),
            )
        if pos is None and ours is not None and not ours[3]:  # what follows was not looked at
            assert theirs is None or not theirs[3]
            continue
        assert (ours is None) == (theirs is None) == (seen is None)
        if theirs is None:
            continue
        assert ours[3] == theirs[3] == seen[3]
        assert seen[1][0] is columns[0]
        assert seen[2] is vals
        for mine, wanted in zip([*ours[1], ours[2]], [*theirs[1], theirs[2]], strict=True):
            same(mine, wanted)
        if pos is not None:
            np.testing.assert_array_equal(ours[0], theirs[0])
            assert ours[0].dtype == seen[0].dtype == np.int64


def scipys(rng, kind):
    """An array of SciPy's of some shape and dtypes: in order, in no order, or with duplicates."""
    shape = tuple(int(rng.choice([0, 1, 2, 7, 60])) for _ in range(2))
    dtype, index = rng.choice(["f8", "f4", "i8", "c16", "?"]), rng.choice(["i4", "i8"])
    count = int(rng.integers(0, 3 * shape[0] * shape[1] // 2 + 1)) if rng.integers(3) else min(shape[0] * shape[1], 30)
    row, column = (rng.integers(0, max(1, n), count if 0 not in shape else 0).astype(index) for n in shape)
    vals = rng.integers(1, 9, len(row)).astype(dtype)
    made = sp.coo_array((vals, (row, column)), shape=shape)
    way = rng.choice(["in order", "no order", "duplicates"])
    if way == "in order":
        made.sum_duplicates()
        made = sp.coo_array((made.data, tuple(c.astype(index) for c in made.coords)), shape=shape)
    if kind == "coo":
        return made
    by_rows = kind == "csr"
    major, minor = made.coords if by_rows else made.coords[::-1]
    order = np.argsort(major, kind="stable") if way != "in order" else np.lexsort((minor, major))
    pos = np.append(0, np.cumsum(np.bincount(major, minlength=shape[not by_rows]))).astype(index)
    out = (sp.csr_array if by_rows else sp.csc_array)(shape, dtype=made.dtype)
    out.data, out.indices, out.indptr = made.data[order], minor[order].astype(index), pos
    if rng.integers(4) == 0:  # with room behind what is in use
        out.data, out.indices = np.append(out.data, out.data[:1]), np.append(out.indices, out.indices[:1])
    return out


def buffers_of(array):
    return (array.data, *array.coords) if array.format == "coo" else (array.data, array.indices, array.indptr)


def places_of(array):
    if array.format == "coo":
        return array.coords
    major, minor = np.repeat(np.arange(len(array.indptr) - 1), np.diff(array.indptr)), array.indices[: array.indptr[-1]]
    return (major, minor) if array.format == "csr" else (minor, major)


@pytest.mark.parametrize("passes", ["numpy", "compiled"])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("target", [None, "csr", "csc", "coo", "dcsr"])
def test_scipys_arrays(kind, target, passes):
    rng = np.random.default_rng(len(kind) + len(target or ""))
    for _ in range(25):
        array = scipys(rng, kind)
        before = [buffer.copy() for buffer in buffers_of(array)]
        with config.using(choose=f"passes={passes}"):
            made = sj.array(array, format=target)
            shared = sj.asarray(sj.array(array, format=target))
        validate.validate(made._storage)
        assert str(made.format) == (target or kind)
        wanted = np.zeros(array.shape, array.dtype)
        rows, columns = places_of(array)
        vals = array.data[: len(rows)]
        (np.logical_or if array.dtype == bool else np.add).at(wanted, (rows, columns), vals)
        np.testing.assert_array_equal(made.todense(), wanted)
        np.testing.assert_array_equal(shared.todense(), wanted)
        places = set(zip(rows.tolist(), columns.tolist(), strict=True))
        assert made.nnz == len(places)
        for buffer, was in zip(buffers_of(array), before, strict=True):
            assert buffer.flags.writeable
            np.testing.assert_array_equal(buffer, was)
        if kind == "coo":
            frozen, strided = [np.array(b) for b in before], [np.repeat(b, 2)[::2] for b in before]
            for buffer in frozen:
                buffer.flags.writeable = False
            for data, row, column in (frozen, strided):
                with config.using(choose=f"passes={passes}"):
                    again = sj.array((data, (row, column)), shape=array.shape, format=target)
                np.testing.assert_array_equal(again.todense(), wanted)
                validate.validate(again._storage)


BAD = {
    "indptr of the csr array decreases at position 2": lambda m: m.indptr.__setitem__(1, 6),
    "indptr of the csr array starts at 1": lambda m: m.indptr.__setitem__(0, 1),
    "past the 9 entries": lambda m: m.indptr.__setitem__(-1, 10),
    "has 3 entries; it must have 5": lambda m: setattr(m, "indptr", m.indptr[:3]),
    "indices of the csr array is negative at position 3": lambda m: m.indices.__setitem__(3, -1),
    "indices of the csr array is out of bounds at position 3: 40": lambda m: m.indices.__setitem__(3, 40),
    "indptr and indices must be": lambda m: setattr(m, "indices", np.full(len(m.indices), np.nan)),
    "data of the csr array has shape": lambda m: setattr(m, "data", m.data[:, None]),
}


@pytest.mark.parametrize("passes", ["numpy", "compiled"])
@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("text", BAD)
def test_damaged_arrays(text, index, passes):
    array = sp.csr_array(np.triu(np.arange(1.0, 21).reshape(4, 5))[:, :5])
    array.indices, array.indptr = array.indices.astype(index), array.indptr.astype(index)
    array.data, array.indices = array.data[:9], array.indices[:9]
    array.indptr[:] = [0, 3, 5, 8, 9]
    BAD[text](array)
    for copy in (True, None, False):
        with config.using(choose=f"passes={passes}"), pytest.raises(FormatError, match=text):
            sj.array(array, copy=copy)


@pytest.mark.parametrize("passes", ["numpy", "compiled"])
@pytest.mark.parametrize("format", [None, "coo", "csr", "csc"])
def test_damaged_triplets(format, passes):
    vals, row, column = np.ones(3), np.array([0, 1, 2]), np.array([0, 1, 1])
    for given, text in (
        ((vals, (row, column + 1)), "coords of axis 1 is out of bounds at position 1: 2 is not in"),
        ((vals, (row - 1, column)), "coords of axis 0 is negative at position 0: -1"),
        ((vals[:2], (row, column)), "coords of axis 0 has 3 entries, but data has 2"),
        ((vals, (row, column * 0.5)), "coords of axis 1 must be a one-dimensional integer array"),
        ((vals, (row, column * np.nan)), "coords of axis 1 must be a one-dimensional integer array"),
        ((vals, (row, column, row)), "coords has 3 axes"),
    ):
        with config.using(choose=f"passes={passes}"), pytest.raises(FormatError, match=text):
            sj.array(given, shape=(3, 2), format=format)


def test_results_that_are_held_share_no_memory():
    """Copies are in blocks that earlier ones had: never in those of arrays that somebody still has, or of parts of these."""
    rng, held = np.random.default_rng(5), []
    for _ in range(300):
        kind = rng.choice(["csr", "csc", "coo"])
        n = int(rng.choice([3, 40, 45, 300, 320, 2000]))
        array = sp.random_array((n, n), density=min(1, 4 / n), format=kind, rng=rng)
        with config.using(choose="passes=compiled"):
            made = sj.array(array)
        what = int(rng.integers(4))
        kept = (made, made.T, made.data, made * 2)[what]
        held.append((kept, (array, array.T, made.data.copy(), 2 * array)[what]))
        del made, kept
        if len(held) > 10:
            for mine, wanted in held:
                if isinstance(mine, np.ndarray):
                    np.testing.assert_array_equal(mine, wanted)
                else:
                    assert abs(mine.to_scipy() - wanted).nnz == 0
            held = held[int(rng.integers(1, 10)) :]
