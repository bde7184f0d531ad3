"""Coordinates that are looked for in segments: among few entries, which are all looked at, and among many, by bisection."""

import numpy as np
import pytest

from sparsejax.formats import searches
from sparsejax.formats.passes import Passes


@pytest.mark.parametrize("few", [0, 50, searches.FEW])
@pytest.mark.parametrize("seed", range(20))
def test_searches_find_what_is_stored(monkeypatch, seed, few):
    monkeypatch.setattr(searches, "FEW", few)
    rng = np.random.default_rng(seed)
    extent, rows, lead = int(rng.choice([1, 5, 300])), int(rng.integers(1, 8)), int(rng.integers(3))
    segments = [np.sort(rng.choice(extent, rng.integers(extent + 1), replace=False)) for _ in range(rows)]
    pos = lead + np.append(0, np.cumsum([len(s) for s in segments]))
    crd = np.concatenate([np.zeros(lead, int), *segments]).astype(rng.choice(["i4", "i8"]))
    count = int(rng.integers(40))
    parent, wanted = rng.integers(0, rows, count).astype(rng.choice(["i8", "i1"])), rng.integers(0, extent, count)
    there = [np.flatnonzero(crd[pos[p] : pos[p + 1]] == w) for p, w in zip(parent, wanted, strict=True)]
    expected = np.array([pos[p] + k[0] if len(k) else -1 for p, k in zip(parent, there, strict=True)], np.int64)
    np.testing.assert_array_equal(Passes().located(pos, crd, parent, wanted), expected)
    np.testing.assert_array_equal(searches.bisected(pos[parent], pos[parent + 1], crd, wanted), expected)
    vals = rng.random(len(crd))
    number, found = Passes().placed(pos, crd, parent, wanted, vals)
    assert number.dtype == np.int32
    np.testing.assert_array_equal(number, np.flatnonzero(expected >= 0))
    np.testing.assert_array_equal(found, vals[expected[expected >= 0]])
