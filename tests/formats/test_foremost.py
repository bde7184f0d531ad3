"""The largest elements of rows of a matrix, listed by one kernel, against a sort of each row; and what `prune` makes of them."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.formats import validate
from sparsejax.formats.passes import Passes
from sparsejax.jit.runtime.passes import segment_passes
from sparsejax.jit.runtime.passes.conversion_passes import CompiledPasses
from sparsejax.jit.runtime.passes.largest import halving, listed_rows

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
        if rng.random() < 0.4:  # many that differ in their last bits alone
            made = np.nextafter(np.round(made / 20), rng.choice([-np.inf, 0, np.inf], made.shape)).astype(dtype)
    return made


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("memory", ["together", "apart"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_against_numpy(dtype, memory, threads, monkeypatch):
    rng = np.random.default_rng([DTYPES.index(dtype), threads])
    monkeypatch.setattr(halving, "SHORT", int(rng.choice([-1, halving.SHORT, 1 << 40])))
    monkeypatch.setattr(halving, "LEAST", int(rng.choice([1, halving.LEAST])))
    listed_rows._layout.cache_clear()
    if memory == "apart":
        monkeypatch.setattr(listed_rows, "MOST", 0)
    if threads > 1:
        monkeypatch.setattr(segment_passes, "FAR", 0)
    for _ in range(40):
        dense = matrix(rng, dtype)
        rows, columns = dense.shape
        whole = bool(rng.random() < 0.3)
        count = dense.size if whole else columns
        keep = int(rng.integers(1, count if rng.random() < 0.3 else min(count, segment_passes.HEAPED + 1)))
        with config.using(num_threads=threads):
            found = MANY.foremost(dense, keep, whole)
        if found is None:
            assert keep > segment_passes.HEAPED or whole
            continue
        pos, crd, vals, zeros = found
        ends = np.array([0, dense.size]) if whole else np.arange(rows + 1) * columns
        flags = FEW.largest(dense.ravel(), ends, keep, True).reshape(dense.shape)
        wanted = FEW.sifted(dense, 0, 0, flags)
        np.testing.assert_array_equal(pos, wanted[0])
        np.testing.assert_array_equal(crd, wanted[1])
        np.testing.assert_array_equal(vals, wanted[2])
        assert crd.dtype == wanted[1].dtype
        some = bool((vals == 0).any())
        told = some or bool((abs(vals) < 1e-300).any())  # of the least numbers of 64 bits, too
        assert some <= zeros <= told


@pytest.mark.parametrize("keep", [0, 1, 3, 64, 65, 200])
@pytest.mark.parametrize("dtype", ["f8", "i4", "c16"])
def test_prune(dtype, keep):
    """On every road: few or many elements, rows that are as short, dtypes that kernels do not order."""
    rng, held = np.random.default_rng(keep), []
    for _ in range(40):
        dense = (rng.normal(size=(int(rng.integers(1, 60)), int(rng.integers(1, 150)))) * 9).astype(dtype)
        dense[rng.random(dense.shape) < rng.choice([0, 0.5, 0.97])] = 0
        whole = bool(rng.random() < 0.3)
        lines, made = (1, -1) if whole else dense.shape, np.zeros_like(dense)
        values, wanted = dense.reshape(lines), made.reshape(lines)
        order = np.argsort(-abs(values), axis=1, kind="stable")[:, :keep]
        np.put_along_axis(wanted, order, np.take_along_axis(values, order, 1), 1)
        wanted = made
        for passes in ("auto", "passes=compiled"):
            with config.using(choose=passes):
                found = sj.prune(sj.array(dense), keep=keep, axis=None if whole else -1)
            validate.validate(found._storage)
            assert found.nnz == np.count_nonzero(wanted)
            held.append((found, wanted))
    for found, wanted in held:
        np.testing.assert_array_equal(found.todense(), wanted)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("absolute", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_largest_of_segments(dtype, absolute, threads, monkeypatch):
    """Of segments of any length, against a sort of each."""
    rng = np.random.default_rng([DTYPES.index(dtype), threads, absolute])
    monkeypatch.setattr(halving, "SHORT", int(rng.choice([-1, halving.SHORT, 1 << 40])))
    monkeypatch.setattr(halving, "LEAST", int(rng.choice([1, halving.LEAST])))
    if threads > 1:
        monkeypatch.setattr(segment_passes, "FAR", 0)
    for _ in range(30):
        values = matrix(rng, dtype).ravel()
        if values.dtype.kind != "u":
            values = (values * rng.choice([-1, 1], values.shape)).astype(dtype)
        inner = np.sort(rng.integers(0, len(values) + 1, int(rng.choice([0, 1, 8, 60]))))
        pos = np.concatenate([[0], inner, [len(values)]])
        keep = int(rng.choice([1, 2, 9, 40, 90]))
        with config.using(num_threads=threads):
            found = MANY.largest(values, pos, keep, absolute)
        np.testing.assert_array_equal(found, FEW.largest(values, pos, keep, absolute))
