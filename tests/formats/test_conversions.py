"""Conversions in one kernel call against the passes one by one."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import Format, convert, passes, validate
from sparsejax.jit.backend import compiler
from sparsejax.jit.runtime.passes import conversion_passes, conversions, pass_kernels
from sparsejax.jit.runtime.system import threads

pytestmark = pytest.mark.rotating(20)

MATRICES = ("csr", "csc", "coo", "dcsr", "dcsc", "(q,q)@(1,0)", "(d,q)@(1,0)")
TENSORS = (
    "coo",
    "csf",
    "(d,c,c)",
    "(d,q,q)",
    "(d,q,q)@(1,0,2)",
    "(d,d,c)@(1,0,2)",
    "(c,q,q)@(2,0,1)",
    "(d,d,c)@(2,1,0)",
)


def stored(shape, form, entries, dtype="f8", seed=0):
    """Random entries; rows of very different lengths, and many without any."""
    rng = np.random.default_rng(seed)
    coords = np.stack([(n * rng.random(entries) ** power).astype(np.int64) for n, power in zip(shape, (3, 1, 2))])
    vals = rng.integers(0, 2 if dtype == "?" else 9, entries).astype(dtype)
    return convert.from_coords(coords, vals, shape, Format.parse(form, len(shape)), 0)


def passed(storage, form, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(convert, "_planned", None)
        return convert.convert(storage, form)


def same(made, expected):
    validate.validate(made)
    assert (made.format, made.shape, made.fill_value) == (expected.format, expected.shape, expected.fill_value)
    for ours, theirs in zip(
        (*sum(made.buffers, ()), made.vals), (*sum(expected.buffers, ()), expected.vals), strict=True
    ):
        assert ours.dtype == theirs.dtype and not ours.flags.writeable
        np.testing.assert_array_equal(ours, theirs)


def pairs(names, ndim):
    forms = [Format.parse(name, ndim) for name in names]
    return [
        (a, b) for a, b in itertools.permutations(forms, 2) if conversions._plan(a, b, (False,) * ndim, np.dtype("f8"))
    ]


def test_which_are_planned():
    found = {(str(a), str(b)) for a, b in pairs(MATRICES, 2)}
    assert {("csr", "csc"), ("csc", "csr"), ("coo", "csr"), ("coo", "csc"), ("csr", "coo"), ("dcsr", "csc")} <= found
    assert ("csr", "dcsr") not in found and ("csr", "(q,q)@(1,0)") not in found
    assert len(found) > 15 and len(pairs(TENSORS, 3)) > 15


@pytest.mark.parametrize("pair", [*pairs(MATRICES, 2), *pairs(TENSORS, 3)], ids=lambda pair: "-".join(map(str, pair)))
def test_plans_and_passes_agree(pair, monkeypatch):
    monkeypatch.setattr(passes, "MANY", 0)
    source, target = pair
    for entries, shape in (
        (0, (4, 3, 5)),
        (1, (1, 1, 1)),
        (300, (40, 30, 20)),
        (300, (4, 5, 900)),
        (3000, (700, 9, 50)),
    ):
        storage = stored(shape[: source.ndim], str(source), entries)
        made = conversions.converted(storage, target)
        assert made is not None
        same(made, passed(storage, target, monkeypatch))


@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "i8", "c16"])
def test_values_of_any_width_move(dtype, monkeypatch):
    monkeypatch.setattr(passes, "MANY", 0)
    storage, csc = stored((30, 40), "csr", 200, dtype), Format.parse("csc", 2)
    same(conversions.converted(storage, csc), passed(storage, csc, monkeypatch))


def test_wide_coordinates(monkeypatch):
    monkeypatch.setattr(passes, "MANY", 0)
    storage = stored((50, 2**40), "(c,c)@(1,0)", 200)
    for name in ("csr", "(d,q)"):
        target = Format.parse(name, 2)
        same(conversions.converted(storage, target), passed(storage, target, monkeypatch))


def test_what_stays_as_it_is_is_shared(monkeypatch):
    monkeypatch.setattr(passes, "MANY", 0)
    coo = stored((30, 40), "coo", 200)
    csr = convert.convert(coo, Format.parse("csr", 2))
    assert csr.vals is coo.vals and csr.buffers[1][1] is coo.buffers[1][0]
    listed = convert.convert(csr, Format.parse("(d,q)", 2))
    assert listed.buffers[1][0] is csr.buffers[1][0] and listed.vals is csr.vals


def test_small_arrays_wait_for_their_kernel(monkeypatch):
    """A kernel is not compiled for a few small conversions, and serves them when it is there."""
    storage, csc = stored((31, 47), "dcsr", 20, "i2"), Format.parse("csc", 2)
    conversions._plan.cache_clear()
    monkeypatch.setattr(conversions, "COMPILED", 5)
    monkeypatch.setattr(conversions, "LOADED", 3)
    monkeypatch.setattr(compiler, "known_text", lambda text: None)
    made = [conversions.converted(storage, csc) for _ in range(6)]
    assert [m is None for m in made] == [True] * 4 + [False] * 2
    same(made[-1], passed(storage, csc, monkeypatch))


def test_small_arrays_load_a_kernel_that_is_known(monkeypatch):
    monkeypatch.setattr(passes, "MANY", 0)
    storage, csr = stored((31, 47), "dcsc", 20, "i2"), Format.parse("csr", 2)
    conversions._plan.cache_clear()
    assert conversions.converted(storage, csr) is not None
    before = compiler.compile_count()
    monkeypatch.setattr(passes, "MANY", 4096)
    monkeypatch.setattr(conversions, "LOADED", 3)
    conversions._plan.cache_clear()
    assert [conversions.converted(storage, csr) is None for _ in range(4)] == [True, True, False, False]
    assert compiler.compile_count() == before


def test_arrays_of_other_extents_share_kernels(monkeypatch):
    monkeypatch.setattr(conversions, "COMPILED", 3)
    conversions._plan.cache_clear()
    csc, wide = Format.parse("csc", 2), 1 << 40
    made = []
    for rows in range(20, 29):
        storage = stored((rows, 2 * rows), "csr", 30, "f4")
        made.append(conversions.converted(storage, csc))
        if made[-1] is not None:
            same(made[-1], passed(storage, csc, monkeypatch))
    assert made[:2] == [None, None] and None not in made[3:]
    before = conversions._plan(Format.parse("csr", 2), csc, (False, False), np.dtype("f4"))
    far = conversions._plan(Format.parse("csr", 2), csc, (True, False), np.dtype("f4"))
    assert before._kernels and not far._kernels  # whose coordinates have other dtypes
    assert conversions.converted(stored((9, wide), "csr", 30, "f4"), csc) is None  # more columns than fit


@pytest.mark.parametrize("dtype", ["?", "f4", "f8", "c16"])
@pytest.mark.parametrize(
    "pair", [("csr", "csc"), ("csc", "csr"), ("(d,q,q)", "(d,q,q)@(1,0,2)"), ("(d,q,q)", "(d,d,c)@(2,1,0)")]
)
def test_rows_move_with_their_entries(pair, dtype, monkeypatch):
    """Of many entries, or long rows, no column of rows is made; the same comes out."""
    monkeypatch.setattr(passes, "MANY", 0)
    monkeypatch.setattr(conversions, "AHEAD", 0)
    monkeypatch.setattr(conversions, "CROWDED", 0)
    conversions._plan.cache_clear()
    ndim = 3 if "q" in pair[0] else 2
    source, target = (Format.parse(name, ndim) for name in pair)
    assert conversions._plan(source, target, (False,) * ndim, np.dtype("f8"))._by_rows
    for entries, shape in ((0, (4, 3, 5)), (1, (1, 1, 1)), (300, (40, 30, 20)), (40, (400, 30, 5)), (3000, (7, 90, 9))):
        storage = stored(shape[:ndim], pair[0], entries, dtype)
        same(conversions.converted(storage, target), passed(storage, target, monkeypatch))
    conversions._plan.cache_clear()


def test_rows_move_with_many_entries_of_one_thread(monkeypatch):
    storage, csc = stored((900, 900), "csr", 500_000), Format.parse("csc", 2)
    assert len(storage.vals) >= conversions.FAR
    monkeypatch.setattr(threads, "count", lambda: 1)
    same(conversions.converted(storage, csc), passed(storage, csc, monkeypatch))
    coo = convert.convert(storage, Format.parse("(q,q)@(1,0)", 2))
    assert conversions.converted(coo, Format.parse("csr", 2)) is None


def test_many_entries_or_buckets_go_through_passes(monkeypatch):
    monkeypatch.setattr(passes, "MANY", 0)
    monkeypatch.setattr(threads, "count", lambda: 2)
    assert conversions.converted(stored((9, 10**6), "csr", 30), Format.parse("csc", 2)) is None
    assert conversions.converted(stored((2000, 2000), "csr", 1_500_000), Format.parse("csc", 2)) is None
    assert conversions.converted(stored((900, 900), "csr", 500_000), Format.parse("csc", 2)) is not None


def test_jitted_and_eager_conversions(monkeypatch):
    monkeypatch.setattr(passes, "MANY", 0)
    A = sj.array(np.diag(np.arange(1.0, 6.0))[:, ::-1].copy(), format="csr")
    f = sj.jit(lambda A: A.asformat("csc"))
    for _ in range(3):
        for made in (f(A), A.asformat("csc")):
            assert str(made.format) == "csc"
            np.testing.assert_array_equal(made.todense(), A.todense())


def test_results_of_views_do_not_share_memory_that_the_caller_may_change():
    f = sj.jit(lambda x: x.reshape(2, 3))
    x = np.arange(6.0)
    made = [f(x) for _ in range(3)]
    x[:] = 0
    for y in made:
        np.testing.assert_array_equal(y.todense(), np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize(("entries", "parents"), [(0, 3), (1, 1), (500, 60), (300, 9000), (60, 60), (40, 2)])
def test_offsets_in_parts(entries, parents, crowded):
    """Each part writes its own places and no others."""
    rng = np.random.default_rng(entries)
    parent = np.sort(rng.integers(0, parents, entries)).astype(np.int32)
    expected = passes.Passes().offsets(parent, parents)
    for parts in (1, 2, 5) if entries > 5 else (1,):
        pos, seen = np.full(parents + 1, -1), np.zeros(parents + 1, int)
        for k in range(parts):
            own = np.full(parents + 1, -1)
            ends = entries * k // parts, entries * (k + 1) // parts
            numbers = (*ends, entries, parents, pass_kernels.address(parent), pass_kernels.address(own))
            pass_kernels.run(conversion_passes._offsets(4, 8, crowded, False), *numbers)
            seen += own >= 0
            pos = np.where(own >= 0, own, pos)
        np.testing.assert_array_equal(pos, expected)
        assert (seen == 1).all() or not entries


@pytest.mark.parametrize("shape", [(1, 7, 6), (7, 1, 6), (1, 1, 90), (1, 90, 60)])
@pytest.mark.parametrize("form", ["(d,c,c)", "(d,d,c)", "csf", "coo", "(c,d,c)", "(d,c,d)", "(d,q,q)"])
def test_extents_of_one(shape, form):
    """One segment below a dense level is not the root: its owners are columns of the result."""
    dense = np.random.default_rng(0).random(shape)
    dense[dense < 0.6] = 0
    A = sj.array(dense, format=form)
    for other in ("coo", "csf", "(d,c,c)", "(d,d,c)@(2,0,1)"):
        np.testing.assert_array_equal(A.asformat(other).todense(), dense)
    flat = sj.numpy.reshape(A, (-1, shape[-1]))
    np.testing.assert_array_equal(flat.todense(), dense.reshape(flat.shape))
    np.testing.assert_array_equal(sj.numpy.reshape(flat.asformat("csr"), shape).todense(), dense)
