"""Rows into blocks and back by kernels, against the passes of NumPy."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.formats import Format, convert, validate
from sparsejax.jit.runtime.passes.between import block_conversions
from sparsejax.jit.runtime.system import threads

BLOCKS = [
    "bsr:2x2",
    "bsr:1x3",
    "bsr:3x1",
    "bsr:4x5",
    "(d,c,d,d)@(0,1,1,0)/(2,3)",
    "(d,c,d,d)@(1,0,0,1)/(3,2)",
    "(d,c,d,d)@(1,0,1,0)/(2,2)",
]
OTHERS = ["csr", "csc", "coo", "dcsr", "ell", "(d,l)", "dense", "(d,h)"]


def stored(rng, shape, dtype, form, fill=0):
    x = rng.standard_normal(shape) * 100
    x[rng.random(shape) < 0.8] = fill
    x[: shape[0] // 3] = fill
    return sj.array(x.astype(dtype), format=form, fill_value=fill).storage


def same(got, wanted):
    validate.validate(got)
    assert (got.format, got.shape, got.nnz) == (wanted.format, wanted.shape, wanted.nnz)
    assert got.fill_value.tobytes() == wanted.fill_value.tobytes()
    for one, other in zip(got.buffers, wanted.buffers, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    assert got.vals.tobytes() == wanted.vals.tobytes()


def both_ways(storage, form):
    """By kernels and by passes."""
    made = []
    for way in ("kernel", "passes"):
        with config.using(choose=f"conversion={way}"):
            made.append(convert.convert(storage, form))
    return made


@pytest.mark.rotating(2)
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("other", OTHERS)
def test_blocks_and_back(blocks, other):
    rng = np.random.default_rng(len(blocks) + len(other))
    blocks, other = Format.parse(blocks, 2), Format.parse(other, 2)
    for shape, dtype in [
        ((8, 12), float),
        ((7, 11), np.float32),
        ((1, 5), np.complex128),
        ((0, 3), float),
        ((30, 41), np.int8),
    ]:
        A = stored(rng, shape, dtype, str(other))
        made, wanted = both_ways(A, blocks)
        same(made, wanted)
        same(*both_ways(wanted, other))


@pytest.mark.parametrize("fill", [3.0, -0.0, np.nan])
def test_fills(fill):
    A = stored(np.random.default_rng(1), (9, 10), float, "csr", fill)
    made, wanted = both_ways(A, Format.parse("bsr:2x4", 2))
    same(made, wanted)
    same(*both_ways(wanted, Format.parse("csr", 2)))


def test_zeros_that_are_stored_stay():
    A = sj.array(([0.0, 1.0, 0.0], ([0, 3, 4], [2, 1, 4])), shape=(5, 5), format="csr")
    made, wanted = both_ways(A.storage, Format.parse("bsr:2x2", 2))
    assert made.nnz == wanted.nnz
    same(made, wanted)


def test_threads_share_rows(monkeypatch):
    monkeypatch.setattr(block_conversions, "FAR", 0)
    monkeypatch.setattr(threads, "count", lambda: 2)
    for shape in ((1, 4), (5, 9), (41, 30)):
        A = stored(np.random.default_rng(2), shape, float, "csr")
        made, wanted = both_ways(A, Format.parse("bsr:2x3", 2))
        same(made, wanted)
        same(*both_ways(wanted, Format.parse("csr", 2)))


@pytest.mark.parametrize("parts", [1, 3])
def test_blocks_are_counted_by_marks_where_there_are_enough_entries(monkeypatch, parts):
    """Marks of as many blocks as lie in a row of blocks, for each thread; of wide matrices with few entries, rows are merged."""
    monkeypatch.setattr(block_conversions, "FAR", 0)
    monkeypatch.setattr(threads, "count", lambda: parts)
    marked, marking = [], block_conversions._marking
    merged, kernel = [], block_conversions._kernel
    monkeypatch.setattr(block_conversions, "_marking", lambda *a: Noted(marking(*a), marked))
    monkeypatch.setattr(block_conversions, "_kernel", lambda *a: Noted(kernel(*a), merged) if a[-1] else kernel(*a))
    rng = np.random.default_rng(5)
    for blocks in ("bsr:2x3", "(d,c,d,d)@(1,0,0,1)/(3,2)"):
        block_conversions._plan.cache_clear()
        for shape, density, marks in (((40, 30), 0.3, True), ((7, 9), 0.9, True), ((300, 300), 0.0008, False)):
            marked.clear(), merged.clear()
            x = rng.standard_normal(shape) * (rng.random(shape) < density)
            same(*both_ways(sj.array(x, format="csr" if blocks[0] == "b" else "csc").storage, Format.parse(blocks, 2)))
            assert (bool(marked), bool(merged)) == (marks, not marks)
    block_conversions._plan.cache_clear()


class Noted:
    """A kernel whose runs are noted."""

    def __init__(self, kernel, runs):
        self._kernel, self._runs = kernel, runs

    def __getattr__(self, name):
        self._runs.append(name)
        return getattr(self._kernel, name)


def test_few_entries_are_converted_by_kernels_when_they_come_often(monkeypatch):
    monkeypatch.setattr(block_conversions, "COMPILED", 3)
    monkeypatch.setattr(block_conversions, "LOADED", 100)
    block_conversions._plan.cache_clear()
    ran, run = [], block_conversions.Plan.run
    monkeypatch.setattr(block_conversions.Plan, "run", lambda plan, storage: ran.append(1) or run(plan, storage))
    A = stored(np.random.default_rng(3), (6, 6), float, "csr")
    form = Format.parse("bsr:2x2", 2)
    made = [convert.convert(A, form) for _ in range(4)]
    assert len(ran) == 2
    for other in made[1:]:
        same(other, made[0])


def test_what_is_not_covered():
    """Blocks that are larger, or below other levels, go through coordinates."""
    for blocks in ("bsr:20x2", "(c,c,d,d)@(0,1,0,1)/(2,2)"):
        form = Format.parse(blocks, 2)
        assert block_conversions.Blocks.of(form) is None
        A = stored(np.random.default_rng(4), (21, 9), float, "csr")
        same(*both_ways(A, form))
