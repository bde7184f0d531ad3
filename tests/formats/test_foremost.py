"""The largest elements of rows of a matrix, listed by one kernel, against a sort of each row; and what `prune` makes of them."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.formats import validate
from sparsejax.formats.passes import Passes
from sparsejax.jit.runtime.passes import segment_passes
from sparsejax.jit.runtime.passes.conversion_passes import CompiledPasses
from sparsejax.jit.runtime.passes.largest import listed_rows

FEW, MANY = Passes(), CompiledPasses()
DTYPES = ["f8", "f4", "i4", "i2", "u1", "i1"]


def matrix(rng, dtype):
    rows, columns = int(rng.choice([1, 2, 7, 60])), int(rng.choice([2, 5, 63, 64, 65, 130, 300]))
    made = rng.normal(size=(rows, columns)) * 20 if dtype[0] != "u" else rng.integers(0, 9, (rows, columns))
    made = made.astype(dtype)
    made[rng.random(made.shape) < rng.choice([0, 0.5, 0.97])] = 0
    if made.dtype.kind == "f":
        made[rng.random(made.shape) < 0.02] = np.nan
        made[rng.random(made.shape) < 0.02] = -0.0
    return made


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("memory", ["together", "apart"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_against_numpy(dtype, memory, threads, monkeypatch):
    rng = np.random.default_rng([DTYPES.index(dtype), threads])
    monkeypatch.setattr(listed_rows, "SHORT", int(rng.choice([0, listed_rows.SHORT, 1 << 40])))
    listed_rows._layout.cache_clear()
    if memory == "apart":
        monkeypatch.setattr(listed_rows, "MOST", 0)
    if threads > 1:
        monkeypatch.setattr(segment_passes, "FAR", 0)
    for _ in range(40):
        dense = matrix(rng, dtype)
        rows, columns = dense.shape
        keep = int(rng.integers(1, min(columns, segment_passes.HEAPED + 1)))
        with config.using(num_threads=threads):
            found = MANY.foremost(dense, keep)
        assert found is not None
        pos, crd, vals, zeros = found
        flags = FEW.largest(dense.ravel(), np.arange(rows + 1) * columns, keep, True).reshape(dense.shape)
        wanted = FEW.sifted(dense, 0, 0, flags)
        np.testing.assert_array_equal(pos, wanted[0])
        np.testing.assert_array_equal(crd, wanted[1])
        np.testing.assert_array_equal(vals, wanted[2])
        assert crd.dtype == wanted[1].dtype
        assert zeros == bool((vals == 0).any())


@pytest.mark.parametrize("keep", [0, 1, 3, 64, 65, 200])
@pytest.mark.parametrize("dtype", ["f8", "i4", "c16"])
def test_prune(dtype, keep):
    """On every road: few or many elements, rows that are as short, dtypes that kernels do not order."""
    rng, held = np.random.default_rng(keep), []
    for _ in range(40):
        dense = (rng.normal(size=(int(rng.integers(1, 60)), int(rng.integers(1, 150)))) * 9).astype(dtype)
        dense[rng.random(dense.shape) < rng.choice([0, 0.5, 0.97])] = 0
        order = np.argsort(-abs(dense), axis=1, kind="stable")[:, :keep]
        wanted = np.zeros_like(dense)
        np.put_along_axis(wanted, order, np.take_along_axis(dense, order, 1), 1)
        for passes in ("auto", "passes=compiled"):
            with config.using(choose=passes):
                found = sj.prune(sj.array(dense), keep=keep)
            validate.validate(found._storage)
            assert found.nnz == np.count_nonzero(wanted)
            held.append((found, wanted))
    for found, wanted in held:
        np.testing.assert_array_equal(found.todense(), wanted)
