"""Entries that pass a test, packed by kernels, against NumPy: any length, any threads, with packed lanes and without, room for all and for some."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.formats import validate
from sparsejax.formats.passes import Passes
from sparsejax.jit.runtime.passes import packed_entries
from sparsejax.jit.runtime.passes.conversion_passes import CompiledPasses

FEW, MANY = Passes(), CompiledPasses()
DTYPES = ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]


def same(ours, theirs):
    assert (ours is None) == (theirs is None)
    if theirs is not None:
        np.testing.assert_array_equal(ours[0], theirs[0])
        for mine, wanted in zip(ours[1], theirs[1], strict=True):
            assert mine.dtype == wanted.dtype
            np.testing.assert_array_equal(mine.view(f"V{mine.itemsize}"), wanted.view(f"V{mine.itemsize}"))


def values(rng, dtype, count, share):
    """Numbers of which a share is 0, with NaN, infinities and zeros below 0 among them."""
    dtype = np.dtype(dtype)
    made = (rng.normal(size=count) * 20).astype(dtype) if dtype.kind != "u" else rng.integers(0, 9, count).astype(dtype)
    if dtype.kind in "fc":
        special = np.array([np.nan, np.inf, -np.inf, -0.0], dtype.char.lower() if dtype.kind == "f" else dtype)
        made[rng.random(count) < 0.1] = rng.choice(special)
        if dtype.kind == "c":
            made[rng.random(count) < 0.1] = complex(0, np.nan)
            made[rng.random(count) < 0.1] = complex(2, 0)
    made[rng.random(count) < share] = 0
    return made


@pytest.fixture(params=["lanes", "one by one"])
def lanes(request):
    with config.using(skip=set() if request.param == "lanes" else {"masks"}):
        yield


@pytest.mark.rotating(6)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 700])
@pytest.mark.parametrize("first", ["at once", "looked at"])
def test_entries_that_differ(dtype, count, threads, first, lanes, monkeypatch):
    rng = np.random.default_rng([count, threads, DTYPES.index(dtype)])
    if first == "looked at":
        monkeypatch.setattr(packed_entries, "FEW", 64)
        monkeypatch.setattr(packed_entries, "TOGETHER", 0)
        monkeypatch.setattr(packed_entries, "FAR", 0)
        monkeypatch.setattr(packed_entries, "LOOK", 4)
    for share in (0, 0.05, 0.5, 0.95, 1):
        vals = values(rng, dtype, count, share)
        lengths = np.bincount(rng.integers(0, 9, count), minlength=9) * 1
        pos = np.append(0, np.cumsum(lengths))
        columns = [np.arange(count, dtype=np.int32), np.arange(count, dtype=np.int64), vals]
        with config.using(num_threads=threads):
            for fill in (0, 1, np.nan) if vals.dtype.kind in "fc" else (0, 1):
                for tol in (0, 2, np.float32(2.5), 7.0, np.inf) if vals.dtype.kind == "f" else (0, 1):
                    fill = vals.dtype.type(fill)
                    given = pos, fill, tol, columns
                    same(MANY.distant(*given), FEW.distant(*given))
            flags = rng.random(count) < share
            same(MANY.chosen(pos, flags, columns), FEW.chosen(pos, flags, columns))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("dropped", [[], [4999], [0], range(0, 5000, 50), range(4000, 5000), range(5000)])
def test_room_for_all_or_for_what_is_left(dropped, together, lanes, monkeypatch):
    """Few of the first entries go, none, or all; rows are empty, or long."""
    monkeypatch.setattr(packed_entries, "FEW", 128)
    if not together:
        monkeypatch.setattr(packed_entries, "TOGETHER", 0)
    vals = np.arange(1.0, 5001)
    vals[list(dropped)] = 0
    columns = [np.arange(5000, dtype=np.int32), vals]
    for pos in (np.array([0, 5000]), np.array([0, 0, 1, 64, 64, 128, 4990, 5000, 5000]), np.arange(5001)):
        same(MANY.distant(pos, 0.0, 0, columns), FEW.distant(pos, 0.0, 0, columns))


def test_arrays_that_are_held_share_no_memory():
    """What is left lies in blocks that earlier results had: never in those of arrays that somebody still has."""
    rng, held = np.random.default_rng(7), []
    for _ in range(400):
        form, n = rng.choice(["csr", "csc", "coo", "dcsr"]), int(rng.choice([4, 30, 33, 200, 220]))
        dense = np.where(rng.random((n, n)) < 0.2, rng.integers(1, 5, (n, n)), 0).astype(rng.choice(["f8", "f4", "i4"]))
        array = sj.array(dense, format=form)
        share = rng.choice([0, 0.05, 0.5, 1])
        zeroed = np.where(rng.random(dense.shape) < share, 0, dense)
        made = sj.prune(array * sj.array((zeroed != 0).astype(dense.dtype)))
        assert made.nnz == np.count_nonzero(zeroed)
        held.append((made, zeroed))
        del made
        if len(held) > 8:
            for mine, wanted in held:
                validate.validate(mine._storage)
                np.testing.assert_array_equal(mine.todense(), wanted)
            held = held[int(rng.integers(1, 8)) :]


@pytest.mark.parametrize("count", [0, 1, 15, 63, 64, 100, 4095, 4097])
@pytest.mark.parametrize("rows", [60_000, 65_536, 200_000])
def test_few_entries_of_many_rows(rows, count):
    rng = np.random.default_rng([rows, count])
    places = np.sort(rng.choice(rows, count, replace=False))
    for dropped in (0, 1, count // 2, count):
        vals = np.arange(1.0, count + 1)
        vals[rng.permutation(count)[:dropped]] = 0
        array = sj.array((vals, (places, places[::-1])), shape=(rows, rows), format="csr")
        left = vals != 0
        for made in (sj.prune(array), sj.prune(array, predicate=lambda x: x != 0), array.eliminate_zeros()):
            validate.validate(made._storage)
            np.testing.assert_array_equal(made.indices, places[::-1][left])
            np.testing.assert_array_equal(made.data, vals[left])
            np.testing.assert_array_equal(np.diff(made.indptr).nonzero()[0], places[left])
