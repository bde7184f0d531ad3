"""The compiled passes that put segments of two arrays together against those in NumPy."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats.passes import Passes
from sparsejax.jit.runtime.passes import segment_passes
from sparsejax.jit.runtime.passes.conversion_passes import CompiledPasses

FEW, MANY = Passes(), CompiledPasses()


def equal(made, wanted):
    assert made.dtype == wanted.dtype
    np.testing.assert_array_equal(made, wanted)


def part(rng, segments, longest, columns, repeated, index):
    """Segments of entries in order of some columns, and a number for each."""
    lengths = rng.integers(0, longest + 1, segments)
    rows = np.repeat(np.arange(segments), lengths)
    keys = [rng.integers(0, 4, len(rows)) for _ in range(columns)]
    order = np.lexsort((*keys[::-1], rows))
    rows, *keys = (key[order] for key in (rows, *keys))
    if not repeated and len(rows):
        _, first = np.unique(np.stack((rows, *keys)), axis=1, return_index=True)
        rows, *keys = (key[first] for key in (rows, *keys))
    pos = np.append(0, np.bincount(rows, minlength=segments).cumsum()).astype(np.int64)
    return pos, *(key.astype(index) for key in keys)


CASES = pytest.mark.parametrize(("segments", "longest"), [(1, 0), (1, 9), (1, 400), (7, 3), (300, 6), (40, 60)])


@pytest.fixture(params=[1, 2, 5])
def threads(request, monkeypatch):
    monkeypatch.setattr(segment_passes, "FAR", 16)
    with sj.config.using(num_threads=request.param):
        yield request.param


@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("columns", [1, 2, 3])
@CASES
def test_united(segments, longest, columns, index, threads):
    rng = np.random.default_rng([segments, longest, columns])
    for size in (longest, 1, 0):
        one, other = (part(rng, segments, n, columns, False, index) for n in (longest, size))
        for given in ((one, other), (other, one)):
            (pos, crds, *numbers), (ends, wanted, *before) = MANY.united(*given), FEW.united(*given)
            for ours, theirs in zip((pos, *crds, *numbers), (ends, *wanted, *before), strict=True):
                equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["?", "u2", "f4", "f8", "c16"])
@pytest.mark.parametrize("by", [1, 2, 3])
@CASES
def test_merged(segments, longest, by, dtype, threads):
    rng = np.random.default_rng([segments, longest, by])
    both = []
    for _ in range(2):
        pos, *keys = part(rng, segments, longest, by, True, "i4")
        more = rng.integers(0, 9, len(keys[0])).astype("i8"), rng.integers(0, 2, len(keys[0])).astype(dtype)
        both.append((pos, *keys, *more))
    for ours, theirs in zip(MANY.merged(*both, by, 11), FEW.merged(*both, by, 11), strict=True):
        equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["?", "f4", "c16"])
@pytest.mark.parametrize("index", ["i4", "i8"])
@CASES
def test_swapped_halves(segments, longest, index, dtype, threads):
    rng = np.random.default_rng([segments, longest])
    pos, crd = part(rng, segments, longest, 1, True, index)
    vals = rng.integers(0, 2, len(crd)).astype(dtype)
    below = np.append(0, rng.integers(0, 3, len(crd)).cumsum())
    for cut in range(5):
        half = FEW.halves(pos, crd, cut)
        equal(MANY.halves(pos, crd, cut), half)
        cases = ([crd, vals], (-cut, 4 - cut)), ([vals, crd], None), ([below[:-1]], (below[pos], below[half]))
        for columns, shifts in cases:
            made, wanted = (over.swapped(pos, half, columns, shifts) for over in (MANY, FEW))
            for ours, theirs in zip(made, wanted, strict=True):
                equal(ours, theirs)


@CASES
def test_pieces_of_segments(segments, longest, threads):
    rng = np.random.default_rng([segments, longest])
    pos, *_ = part(rng, segments, longest, 1, True, "i8")
    for count in (0, 1, 2 * segments):
        start = rng.integers(0, segments + 1, count)
        ends = np.append(0, np.minimum(rng.integers(0, 4, count), segments - start).cumsum())
        below = FEW.picked(pos, start, ends)
        for ours, theirs in zip(MANY.picked(pos, start, ends), below, strict=True):
            equal(ours, theirs)
        pieces = start, ends
        equal(MANY.shifted(pos, pieces, below), FEW.shifted(pos, pieces, below))


@CASES
def test_spliced(segments, longest, threads):
    rng = np.random.default_rng([segments, longest])
    parts = []
    for _ in range(3):
        (pos, column) = part(rng, segments, longest, 1, True, "i8")
        parts.append((pos, column, rng.integers(0, 50, segments)))
    equal(MANY.spliced(parts, 77), FEW.spliced(parts, 77))


@pytest.mark.parametrize("index", ["i4", "i8"])
@pytest.mark.parametrize("dtype", ["?", "f4", "c16"])
@CASES
def test_narrowed(segments, longest, dtype, index, threads):
    rng = np.random.default_rng([segments, longest])
    pos, crd = part(rng, segments, longest, 1, False, index)
    vals = rng.integers(0, 2, len(crd)).astype(dtype)
    cuts = np.sort(rng.integers(0, segments + 1, 4))
    own = np.array([0, *cuts, segments])
    above = own, np.arange(segments, dtype=np.int32), rng.integers(0, 9, segments)
    table = np.array([-1, 0, -1, 1], np.int32)
    for chosen in (range(1, 3), range(0, 4, 2), range(1, 4, 2), range(4), table, (1, True), (-1, False)):
        for columns in ([vals], [vals, crd], None):
            made = MANY.narrowed(above, pos, crd, chosen, columns)
            wanted = FEW.narrowed(above, pos, crd, chosen, columns)
            for ours, theirs in zip(
                (*made[0], *made[1:3], *made[3]), (*wanted[0], *wanted[1:3], *wanted[3]), strict=True
            ):
                equal(ours, theirs)
    few = above[0][:2], above[1][: own[1]]
    if len(pos) > own[1]:  # segments that do not begin at the first entry
        some = pos[-1 - own[1] :]
        for ours, theirs in zip(
            MANY.narrowed(few, some, crd, range(1, 3), None),
            FEW.narrowed(few, some, crd, range(1, 3), None),
            strict=True,
        ):
            for a, b in zip(
                ours if isinstance(ours, list) else [ours],
                theirs if isinstance(theirs, list) else [theirs],
                strict=True,
            ):
                equal(a, b)
