"""Rows sought in a list of them, and places among listed entries: compiled passes beside NumPy's, with tables of every width and none, and what coo arrays
make of it beside csr ones."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats.parts import of_lists
from sparsejax.formats.passes import Passes
from sparsejax.jit.runtime.passes.conversion_passes import CompiledPasses
from sparsejax.jit.runtime.passes.listed import listed_segments

pytestmark = pytest.mark.rotating(16)

FEW, MANY = Passes(), CompiledPasses()
CASES = [(0, 1), (1, 1), (40, 3), (3000, 50), (3000, 40_000), (20_000, 2**40), (20_000, 2**62), (300_000, 70_000)]


def entries_of(rng, count, extent):
    """Rows and columns, in order and each place once, of which the last rows have none, and one has many."""
    rows = np.sort((extent * 0.9 * rng.random(count)).astype(np.int64))
    rows[count // 3 : count // 2] = rows[count // 3] if count else 0
    rows.sort()
    columns = rng.integers(0, 1000, count)
    rows, columns = np.unique(np.stack([rows, columns]), axis=1)
    return rows.astype(np.int32 if extent < 2**31 else np.int64), columns.astype(np.int32)


@pytest.mark.parametrize("widths", [None, (0, 0), (0, 3), (1 << 40, 3), (0, 1 << 30)])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("count", "extent"), CASES)
def test_passes_over_lists_are_as_in_numpy(count, extent, threads, widths, monkeypatch):
    if widths is not None:
        if widths[1] > extent + 4 * count and extent > 10**6:
            pytest.skip("a table of all rows")
        monkeypatch.setattr(listed_segments, "SELDOM", widths[0])
        monkeypatch.setattr(listed_segments, "LEAST", widths[1])
    rng = np.random.default_rng(count)
    rows, columns = entries_of(rng, count, extent)
    vals = rng.random(len(rows))
    for many in (0, 1, 7, 5000):
        wanted = np.concatenate(
            [rng.integers(0, extent, many), rows[rng.integers(0, len(rows), many if len(rows) else 0)]]
        )
        wanted = wanted.astype(np.int64)
        rng.shuffle(wanted)
        own = rng.integers(0, len(rows), len(wanted)) if len(rows) else np.zeros(len(wanted), np.int64)
        at = np.where(rng.random(len(wanted)) < 0.5, columns[own] if len(rows) else 0, 7).astype(np.int64)
        row = np.where(rng.random(len(wanted)) < 0.5, rows[own], wanted) if len(rows) else wanted
        with sj.config.using(num_threads=threads):
            for made, expected in zip(MANY.begun(rows, extent, wanted), FEW.begun(rows, extent, wanted), strict=True):
                there = slice(None)
                if len(made) == len(wanted):  # where rows without entries would begin is not asked
                    there = np.isin(wanted, rows)
                np.testing.assert_array_equal(made[there], expected[there])
            found = MANY.spotted(rows, columns, extent, row, at, vals)
            for made, expected in zip(found, FEW.spotted(rows, columns, extent, row, at, vals), strict=True):
                np.testing.assert_array_equal(made, expected)
                assert made.dtype == expected.dtype


KEYS = {
    "A[i]": lambda A, d: A[d["one"]],
    "A[-1]": lambda A, d: A[-1],
    "A[[i]]": lambda A, d: A[[d["one"]]],
    "A[i, lo:hi]": lambda A, d: A[d["one"], 2:-2],
    "A[:, j]": lambda A, d: A[:, 3],
    "A[lo:hi, j]": lambda A, d: A[3:-3, 1],
    "A[idx]": lambda A, d: A[d["idx"]],
    "A[none]": lambda A, d: A[d["idx"][:0]],
    "A[idx, j]": lambda A, d: A[d["idx"], 2],
    "A[:, cols]": lambda A, d: A[:, d["cols"]],
    "A[ix_]": lambda A, d: A[np.ix_(d["idx"], d["cols"])],
    "A[::-2, cols]": lambda A, d: A[::-2][:, d["cols"]],
    "A[idx, lo:hi]": lambda A, d: A[d["idx"], 1:-1],
    "A[lo:hi, cols]": lambda A, d: A[1:4, d["cols"]],
    "A[R, C]": lambda A, d: A[d["idx"], d["cols"][np.arange(len(d["idx"])) % len(d["cols"])]],
    "diagonal": lambda A, d: snp.diagonal(A),
    "diagonal(2)": lambda A, d: snp.diagonal(A, 2),
    "diagonal(-1)": lambda A, d: snp.diagonal(A, -1),
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("choose", ["passes=numpy", "passes=compiled", "auto"])
@pytest.mark.parametrize("form", ["coo", "(q,q)@(1,0)"])
@pytest.mark.parametrize("shape", [(40, 30), (9, 2000), (3000, 7), (6, 6)])
def test_parts_of_lists_are_as_those_of_rows(shape, form, choose, name):
    rng = np.random.default_rng(shape)
    dense = rng.random(shape) * (rng.random(shape) < 0.3)
    given = {
        "one": shape[0] // 2,
        "idx": rng.integers(-shape[0], shape[0], 50),
        "cols": rng.integers(-shape[1], shape[1], 20),
    }
    A = sj.array(dense).asformat("csr").asformat(form)
    with sj.config.using(choose=choose):
        made = KEYS[name](A, given)
    np.testing.assert_array_equal(made.todense(), np.asarray(KEYS[name](dense, given)))


@pytest.mark.parametrize("choose", ["passes=numpy", "passes=compiled"])
def test_lists_of_huge_extents(choose):
    n = 2**62
    rows, columns = np.array([0, 0, 5, 2**40, n - 1, n - 1]), np.array([3, n - 1, 0, 2**50, 7, n - 1])
    A = sj.array((np.arange(1.0, 7.0), (rows, columns)), shape=(n, n), format="coo")
    with sj.config.using(choose=choose):
        np.testing.assert_array_equal(
            A[np.array([n - 1, 1, -n, 2**40]), np.array([7, 3, -1, 2**50])].todense(), [5, 0, 2, 4]
        )
        picked = A[np.array([n - 1, 1, 0, n - 1])]
        assert picked.format == A.format and picked.shape == (4, n)
        np.testing.assert_array_equal(picked.data, [5, 6, 1, 2, 5, 6])
        assert A[2**40].nnz == 1 and A[2**40 + 1].nnz == 0
        line = A[:, n - 1]
        assert line.shape == (n,)
        np.testing.assert_array_equal(line.data, [2, 6])
        np.testing.assert_array_equal(snp.diagonal(A, 2**50 - 2**40).data, [4])


@pytest.mark.parametrize("form", ["coo", "(q,q)@(1,0)"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [7, 300, 9000, 2**40])
def test_columns_are_named_block_by_block(rows, threads, form, monkeypatch):
    """Long rows, short ones, and rows of which most have no entries; lists that name some once, some several times, in order or not."""
    monkeypatch.setattr(of_lists, "LEAST", 300)
    rng = np.random.default_rng(rows % 1000)
    extent, count = 5000, 9000
    shape = (rows, extent) if form == "coo" else (extent, rows)
    places = rng.integers(0, rows, count), rng.integers(0, extent, count)
    A = sj.array((rng.random(count), places if form == "coo" else places[::-1]), shape=shape, format=form)
    slow = A.asformat("dcsr" if form == "coo" else "(c,c)@(1,0)")
    lists = [rng.permutation(extent)[:1500], rng.integers(0, extent, 2000), np.arange(0, extent, 3), np.full(40, 7)]
    for listed in (*lists, rng.integers(-extent, extent, 3), np.arange(1000)[::-1]):
        at = (slice(None), listed) if form == "coo" else (listed, slice(None))
        with sj.config.using(num_threads=threads):
            made, expected = A[at], slow[at].asformat(form)
        assert made.format == A.format and made.shape == expected.shape
        for ours, theirs in zip(made.storage.buffers, expected.storage.buffers, strict=True):
            np.testing.assert_array_equal(ours[-1], theirs[-1])
            assert ours[-1].dtype == theirs[-1].dtype
        np.testing.assert_array_equal(made.data, expected.data)
