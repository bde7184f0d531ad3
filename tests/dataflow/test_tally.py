"""Counts by machine code against NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import matrices
from sparsejax.dataflow import contraction, drawn, pattern, tally

MATRIX = sp.csr_array(matrices.rmat(11, 20_000))
PATTERN = pattern.pattern_of(sj.array(MATRIX).storage, ("i", "k"), ("i", "k"))


@pytest.mark.parametrize("tiles", [(1, 2048), (128, 128), (100, 7), (2048, 1), (37, 300), (2048, 2048), (900, 64)])
def test_words_of_tiles(tiles, monkeypatch):
    grid = pattern.grid_of(PATTERN.extents, tiles)
    assert PATTERN.is_counted and PATTERN.rows[0].dtype == np.int64
    made = tally.words(PATTERN.rows, 2048, tiles, grid)
    keys, words = tally.listed_words(PATTERN.rows, 2048, tiles, grid)
    assert np.array_equal(tally.words(PATTERN.columns, 2048, tiles, grid), made)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(tally.listed_words(PATTERN.columns, 2048, tiles, grid), (keys, words), strict=True)
    )
    found, held = pattern.tiles_of(PATTERN, tiles), [pattern.fits(PATTERN, tiles, b) for b in (500, 5000, 50_000)]
    monkeypatch.setattr(tally, "applies", lambda *_: False)
    slow = pattern.pattern_of(sj.array(MATRIX).storage, ("i", "k"), ("i", "k"))
    wanted = pattern.tiles_of(slow, tiles)
    assert all(np.array_equal(a, b) for a, b in zip(found.columns, wanted.columns, strict=True))
    assert np.array_equal(found.words, wanted.words)
    assert np.array_equal(made[made > 0], words) and np.array_equal(np.flatnonzero(made), keys)
    assert np.array_equal(words + 3, wanted.words)
    assert not slow.is_counted and held == [pattern.fits(slow, tiles, b) for b in (500, 5000, 50_000)]


def test_quotients_at_the_ends_of_tiles():
    extent = 2**31 - 1
    for tile in (1, 3, 10**9, 2**30, extent - 1, extent):
        ends = [x for n in (1, 2, extent // tile) for x in (n * tile - 1, n * tile, n * tile + 1) if 0 <= x < extent]
        columns = np.unique(np.array(ends, np.int64)).astype(np.int32)
        width = -(-extent // tile)
        if width > 10**6:
            columns, width = columns[columns < 1000], 1000
        counted = tally.words((np.zeros(len(columns), np.int32), columns), 1, (1, tile), (1, width))
        wanted = np.bincount(columns.astype(np.int64) // tile, minlength=width)
        assert np.array_equal(counted, np.where(wanted > 0, 2 * wanted + 2, 0)), tile


def test_degrees_and_overlaps():
    assert np.array_equal(
        tally.degrees(PATTERN.columns[1], 2048), np.bincount(PATTERN.columns[1].astype(np.int64), minlength=2048)
    )
    counts = np.append(np.random.default_rng(0).integers(0, 40, 50), [2**40, 2**40 - 1])
    wanted = [int(((counts >= (1 << n >> 1)) & (counts < (1 << n))).sum()) for n in range(42)]
    assert tally.bins(counts).tolist() == wanted and tally.bins(counts[:0]).tolist() == [0]
    keys = np.unique(np.random.default_rng(0).integers(0, 3000, 900))
    for shifts in (1, 5, 400):
        chosen = np.arange(0, len(keys), 7)
        wanted = [int(np.isin(keys[chosen] + s, keys).sum()) for s in range(shifts)]
        assert tally.overlaps(keys, chosen, shifts).tolist() == wanted
    assert tally.overlaps(keys[:0], np.zeros(0, np.int64), 4).tolist() == [0, 0, 0, 0]


def counted(a, b, k_tile, y_tile):
    """Distinct (row, k // k_tile, column // y_tile) of the multiplications of a product."""
    found = set()
    for x in range(a.shape[0]):
        for k in a.indices[a.indptr[x] : a.indptr[x + 1]]:
            row = b.indices[b.indptr[k] : b.indptr[k + 1]] // y_tile
            found.update((x, int(k) // k_tile, int(y)) for y in row)
    return len(found)


@pytest.mark.parametrize("density", [0.02, 0.2])
def test_partial_results_of_all_rows(density):
    rng = np.random.default_rng(1)
    a, b = (sp.csr_array(rng.random(s) < density) for s in ((30, 45), (45, 38)))
    made = contraction.of(lambda A, B: A @ B, (sj.array(a.astype(float)), sj.array(b.astype(float))), {})
    rows = drawn.of(made, tuple("ikj"), drawn.WORK)
    assert rows.complete
    for k_tile in (1, 2, 3, 8, 12, 44, 45, 100):
        for y_tile in (1, 5, 16, 38, 50):
            assert rows.count(k_tile, y_tile) == counted(a, b, min(k_tile, 45), min(y_tile, 38)), (k_tile, y_tile)


def test_partial_results_of_drawn_rows_are_close():
    made = contraction.of(lambda A: A @ A.T, (sj.array(MATRIX),), {})
    whole, part = (drawn.of(made, tuple("ikj"), work) for work in (1 << 40, 1 << 17))
    assert whole.complete and not part.complete
    for k_tile in (16, 300, 2048):
        for y_tile in (1, 256):
            assert part.count(k_tile, y_tile) == pytest.approx(whole.count(k_tile, y_tile), rel=0.1)
    assert part.count(16, 2048) == whole.count(16, 2048)


def test_other_contractions_draw_no_rows():
    x = sj.array(np.ones((3, 4)))
    for function in (lambda x: sj.einsum("ij,ij->ij", x, x), lambda x: sj.einsum("ij,ij->i", x, x)):
        made = contraction.of(function, (x,), {})
        assert drawn.of(made, made.default_order, drawn.WORK) is None


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dense", "(c,c)", "ell", "groupcoo:2", "bsr:2x2", "dia"])
@pytest.mark.parametrize("variables", [("i", "k"), ("k", "i")])
def test_patterns_of_all_formats(form, variables):
    dense = (np.random.default_rng(2).random((24, 18)) < 0.2).astype(float)
    made = sj.array(dense, format=form).storage
    found = pattern.pattern_of(made, ("i", "k"), variables)
    held = np.zeros(dense.shape, bool)
    held[tuple(made.expand()[0])] = True
    wanted = np.nonzero(held if variables == ("i", "k") else held.T)
    assert all(np.array_equal(a, b) for a, b in zip(found.columns, wanted, strict=True))
    assert np.array_equal(found.positions, np.append(0, np.cumsum(np.bincount(wanted[0], minlength=found.extents[0]))))
