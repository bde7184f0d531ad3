"""Statistics against their definitions on dense arrays."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from tests.dataflow import brute_force


def blocks(a, tile):
    return [b for b in brute_force.blocks(a, tile) if b.any()]


def fibers(points, levels):
    return [len({p[: level + 1] for p in points}) for level in range(levels)]


@pytest.mark.parametrize("seed", range(12))
def test_statistics_follow_their_definitions(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(3, 12, rng.integers(1, 4)))
    a = (rng.random(shape) < rng.choice([0.05, 0.2, 0.5])).astype(float)
    tile = tuple(min(int(t), n) for t, n in zip(rng.integers(1, 6, len(shape)), shape, strict=True))
    told = sj.stats(sj.array(a, format="coo"), tile)
    held = blocks(a, tile)
    words = [brute_force.csf_words(b) for b in held]
    assert (told.shape, told.nnz, told.tile, told.tiles) == (shape, int(a.sum()), tile, len(held))
    assert told.max_tile == max(words, default=0)
    assert told.size_tile == pytest.approx(np.mean(words) if words else 0)
    grid = [-(-n // t) for n, t in zip(shape, tile, strict=True)]
    places = [tuple(c // t for c, t in zip(p, tile, strict=True)) for p in zip(*np.nonzero(a), strict=True)]
    above = 1
    for level, found in enumerate(fibers(places, len(shape))):
        assert told.pr_tile_idx[level] == pytest.approx(found / (above * grid[level]) if above else 0)
        above = found
    above = len(held)
    inside = [fibers(list(zip(*np.nonzero(b), strict=True)), len(shape)) for b in held]
    for level in range(len(shape)):
        found = sum(x[level] for x in inside)
        assert told.prob_index[level] == pytest.approx(found / (above * tile[level]) if above else 0)
        above = found
    for d in range(len(shape)):
        moved = [np.moveaxis(b, d, 0) for b in held]
        for s in range(tile[d]):
            both = sum(int((b[s:] * b[: max(len(b) - s, 0)]).sum()) for b in moved)
            assert told.corrs[d][s] == pytest.approx(both / max(a.sum(), 1))
        degrees = a.sum(axis=tuple(x for x in range(len(shape)) if x != d)).astype(int)
        for k, count in enumerate(told.histograms[d]):
            low, high = (0, 0) if k == 0 else (1 << (k - 1), (1 << k) - 1)
            assert count == int(((degrees >= low) & (degrees <= high)).sum())
        present = set(places)
        for s in range(min(grid[d], 129)):
            near = sum(tuple(c + s * (x == d) for x, c in enumerate(p)) in present for p in present)
            assert told.tile_corrs[d][s] == pytest.approx(near / max(len(present), 1))


def test_corrs_of_a_sample_are_close():
    band = sp.csr_array(sp.diags_array(np.ones(9), offsets=np.arange(9) - 4, shape=(6000, 6000)))
    told = sj.stats(sj.array(band))
    assert told.corrs[0][:3] == pytest.approx([1, 8 / 9, 7 / 9], abs=0.02)
    assert told.corrs_sum[0] == pytest.approx(5, abs=0.15)


def test_all_formats_tell_the_same():
    a = np.random.default_rng(0).random((20, 30)) < 0.2
    made = [
        str(sj.stats(sj.array(a.astype(float), format=f), 8))
        for f in ("csr", "csc", "coo", "ell", "groupcoo:2", "(c,c)")
    ]
    assert len(set(made)) == 1
    assert "SizeTile" in made[0] and "<pre>" in sj.stats(sp.csr_array(a))._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((np.eye(3), 0), ValueError, "at least 1"),
        ((np.eye(3), (1, 2, 3)), ValueError, "3 extents"),
        ((np.eye(3), 1.5), TypeError, "one integer"),
        ((np.float64(3), 4), ValueError, "scalar"),
        (("text", 4), TypeError, "must be an array"),
    ],
)
def test_faults_are_named(arguments, error, says):
    with pytest.raises(error, match=says):
        sj.stats(*arguments)


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (4, 4), (1, 1), (3, 0, 2)])
def test_empty_arrays(shape):
    told = sj.stats(sj.array(np.zeros(shape), format="coo"))
    assert (told.tiles, told.nnz, told.size_tile, told.max_tile) == (0, 0, 0.0, 0)
    assert all(p == 0 for p in told.pr_tile_idx)
    assert str(told)
    assert list(itertools.chain(*told.histograms)) == [n for n in shape for n in [n]]
