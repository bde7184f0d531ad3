"""The largest entries of lines that do not follow each other in storage, which are looked at some at a time, against NumPy."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.lax.library import thinning

pytestmark = pytest.mark.rotating(8)


def wanted(x, keep, axis, mask):
    made = np.zeros_like(x)
    lines, out = np.moveaxis(x, axis, -1), np.moveaxis(made, axis, -1)
    stored = np.moveaxis((x != 0) & mask, axis, -1)
    for at in np.ndindex(lines.shape[:-1]):
        own = np.flatnonzero(stored[at])
        best = own[np.argsort(-np.abs(lines[at][own]), kind="stable")[:keep]]
        out[at][best] = lines[at][best]
    return made


@pytest.mark.parametrize("block", [1, 7, 1 << 18])
@pytest.mark.parametrize("choose", ["passes=numpy", "passes=compiled"])
@pytest.mark.parametrize("seed", range(8))
def test_largest_of_lines(seed, choose, block, monkeypatch):
    monkeypatch.setattr(thinning, "BLOCK", block)
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 14, 2 + seed % 2))
    x = (rng.integers(-5, 6, shape) * (rng.random(shape) < 0.6)).astype(float)
    mask = rng.random(shape) < 0.7
    with config.using(choose=choose):
        for form in (
            ("csr", "csc", "coo", "dcsr", "(q,q)@(1,0)", "rle")
            if len(shape) == 2
            else ("coo", "csf", "(q,q,q)@(2,0,1)")
        ):
            A = sj.array(x).asformat(form)
            for axis in range(len(shape)):
                for keep in (1, 2, 5):
                    found = sj.prune(A, keep=keep, axis=axis)
                    assert np.array_equal(found.todense(), wanted(x, keep, axis, np.ones(shape, bool)))
                    found = sj.prune(A, predicate=mask, keep=keep, axis=axis)
                    assert np.array_equal(found.todense(), wanted(x, keep, axis, mask))
