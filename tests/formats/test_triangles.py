"""`tril` and `triu` at once, of all formats, beside NumPy's; the pass behind them beside the one in NumPy."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats.parts import triangles
from sparsejax.formats.passes import Passes
from sparsejax.formats.validate import validate
from sparsejax.jit.runtime.passes.conversion_passes import CompiledPasses
from tests import rotation

FORMATS = ["csr", "csc", "coo", "dcsr", "lil", "ell", "dia", "bsr:1x1", "(d,b)", "dense"]
LISTED = ["csr", "csc", "coo"]
OFFSETS = [0, 1, -1, 3, -4, 40, -40, 10**30, -(10**30)]


@pytest.mark.rotating(4)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?", "c16"])
def test_beside_numpy(form, dtype):
    rng = np.random.default_rng(sum(map(ord, form + dtype)))
    for shape in [(5, 7), (7, 5), (0, 3), (3, 0), (1, 1), (30, 20)]:
        dense = np.where(rng.random(shape) < 0.3, rng.integers(1, 5, shape), 0).astype(dtype)
        x = sj.array(dense, format=form)
        for k in OFFSETS:
            bounded = int(np.clip(k, -50, 50))
            for name in ("tril", "triu"):
                made = getattr(snp, name)(x, k)
                validate(made._storage)
                assert (made.format, made.dtype) == (x.format, x.dtype)
                np.testing.assert_array_equal(made.todense(), getattr(np, name)(dense, bounded))


@pytest.mark.parametrize("seed", range(rotation.examples(6)))
@pytest.mark.parametrize("form", LISTED)
def test_at_once_as_under_jit(form, seed):
    """The same entries, zeros among them, in the same order."""
    rng = np.random.default_rng(seed)
    n, m = (int(extent) for extent in rng.integers(1, 40, 2))
    count, k = n * m // 3, int(rng.integers(-m, m))
    x = sj.array((rng.integers(-1, 2, count), (rng.integers(0, n, count), rng.integers(0, m, count))), shape=(n, m))
    x = x.asformat(form)
    for name in (snp.tril, snp.triu):
        made, compiled = name(x, k), sj.jit(lambda x, name=name: name(x, k))(x)
        assert made.format == compiled.format and made.nnz == compiled.nnz
        for ours, theirs in zip(made._storage.buffers, compiled._storage.buffers, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(made._storage.vals, compiled._storage.vals)


@pytest.mark.parametrize("form", LISTED)
def test_what_is_whole_is_given_back(form):
    x = sj.array(np.tril(np.ones((4, 5))), format=form)
    assert snp.tril(x)._storage.vals is x._storage.vals


@pytest.mark.parametrize("form", LISTED)
def test_lists_need_no_mask(form, monkeypatch):
    """Rows are cut, whatever their number: no triangle of ones is made."""
    monkeypatch.setattr("sparsejax.lax.extents.triangle", lambda *args: pytest.fail("a mask was made"))
    x = sj.array(np.ones((4, 5)), format=form)
    assert snp.triu(x, 1).nnz == 10
    assert triangles.triangle((x + 1)._storage, 0, lower=True) is None  # absent places are no zeros


@pytest.mark.rotating(4)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["i4", "i8"])
@pytest.mark.parametrize(
    ("rows", "columns", "entries"), [(0, 5, 0), (9, 4, 20), (3000, 5000, 9000), (7, 300_000, 200_000)]
)
def test_entries_below_a_diagonal_are_counted(rows, columns, entries, kind, threads):
    rng = np.random.default_rng(entries)
    row = np.sort(rng.integers(0, max(1, rows), entries))
    pos = np.searchsorted(row, np.arange(rows + 1))
    crd = rng.integers(0, columns, entries).astype(kind)
    with sj.config.using(num_threads=threads):
        for k in (0, 3, -2, columns, -rows - 1):
            expected = np.append(0, np.cumsum(np.bincount(row, crd <= row + k, minlength=rows)))[: rows + 1]
            for run in (Passes(), CompiledPasses()):
                np.testing.assert_array_equal(run.below(pos, crd, k), expected)


@pytest.mark.parametrize("form", ["coo", "dcsr"])
@pytest.mark.parametrize("columns", [7, 2**31 - 1, 2**33])
def test_long_axes_take_no_memory(form, columns):
    """At once, under `jit` and in gradients: entries are told by their coordinates, and no mask has a run for every row."""
    row, column, vals = np.array([0, 3, 5, 2**33 - 1]), np.array([2, 3, 1, 6]), np.arange(1.0, 5)
    x = sj.array((vals, (row, column)), shape=(2**33, columns), format=form)
    for k in OFFSETS:
        for name, stays in (("tril", column - row <= k), ("triu", column - row >= k)):
            part = getattr(snp, name)
            for made in (part(x, k), sj.jit(lambda x, part=part, k=k: part(x, k))(x)):
                assert made.format == x.format and made.nnz == stays.sum()
                np.testing.assert_array_equal(made.data, vals[stays])
            slope = sj.grad(lambda x, part=part, k=k: (part(x, k) ** 2).sum())(x)
            np.testing.assert_array_equal(slope.data, 2 * vals * stays)


def test_long_axes_of_tensors():
    at = np.array([0, 1, 1]), np.array([3, 7, 2**33 - 1]), np.array([5, 7, 0])
    x = sj.array((np.array([1.0, 3.0, 2.0]), at), shape=(2, 2**33, 1000), format="coo")
    for call in (snp.tril, sj.jit(snp.tril), sj.vmap(snp.tril)):
        np.testing.assert_array_equal(call(x).data, [3.0, 2.0])
