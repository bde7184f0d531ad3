"""A look at some entries finds what a walk over all finds."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsejax as sj
from sparsejax.formats import Format, convert, peek
from sparsejax.formats.storage import Storage
from tests import rotation
from tests.formats.sloppy import relabelled, sloppy
from tests.formats.strategies import storages


def rows_of(columns, vals):
    return sorted(zip(*(c.tolist() for c in columns), vals.tolist(), strict=True), key=repr)


@given(storages(), st.booleans())
@settings(max_examples=rotation.examples(200), deadline=None)
def test_positions_hold_what_a_walk_finds(case, loose):
    storage, _ = case
    if not storage.ndim:
        return
    if loose:
        storage = relabelled(convert.convert(storage, sloppy(storage.format, 3)), storage.format)
    columns, position = peek.at(storage, np.arange(len(storage.vals)))
    found, vals = storage.expand()
    if not storage.format.levels[-1].shared:
        assert rows_of(columns, storage.vals[position]) == rows_of(found, vals)
    else:  # the first coordinate of every run
        assert set(rows_of(columns, storage.vals[position])) <= set(rows_of(found, vals))
        assert len(position) == len(np.unique(position))


@given(storages(), st.integers(1, 4))
@settings(max_examples=rotation.examples(200), deadline=None)
def test_both_ends_are_entries_in_the_order_of_storage(case, few):
    storage, _ = case
    if not storage.ndim:
        return
    first, last = peek.ends(storage, few)
    found, vals = storage.expand()
    everything = set(rows_of(found, vals))
    if last is None:
        if not (storage.format.blocked and storage.format.levels[-1].shared):
            assert rows_of(*first) == rows_of(found, vals)
        return
    assert len(first.vals) == len(last.vals) == few
    assert set(rows_of(*first)) <= everything and set(rows_of(*last)) <= everything
    if (
        all(level.ordered for level in storage.format.levels)
        and not storage.format.levels[-1].shared
        and "l" not in str(storage.format)
    ):
        for k, column in enumerate(first.columns):
            np.testing.assert_array_equal(column, found[k][:few])
        for k, column in enumerate(last.columns):
            np.testing.assert_array_equal(column, found[k][-few:])


def test_large_arrays_are_not_walked():
    n = 1 << 20
    runs = np.array([0, 1]), np.array([0]), np.array([2**62])
    whole = Storage(Format.parse("(r)", 1), (2**62,), np.float64(0), (runs,), np.ones(1))
    first, _ = peek.ends(whole, 3)
    assert first.columns[0].tolist() == [0, 1, 2]
    words = np.zeros(n, np.uint64)
    words[n // 2] = 1
    vals = np.zeros(64 * n)
    vals[32 * n] = 5
    hidden = sj.array(Storage(Format.parse("(b)", 1), (64 * n,), np.float64(0), ((words,),), vals))
    assert "{..., ..., ...}" in repr(hidden) and "nnz=1" in repr(hidden)


def test_what_is_printed():
    A = sj.array(np.diag([1.5, 2, 3]), format="csr")
    assert repr(A) == (
        "Array({(0, 0): 1.5, (1, 1): 2., (2, 2): 3.},\n"
        "      shape=(3, 3), dtype=float64, format=csr, nnz=3, density=0.333, bytes=68)"
    )
    v = sj.array(np.arange(9), format="coo")
    assert repr(v).startswith("Array({1: 1, 2: 2, 3: 3, ..., 6: 6, 7: 7, 8: 8},")
    assert repr(sj.numpy.zeros((2, 2), format="csr")).startswith("Array({}, shape=(2, 2)")
    assert repr(sj.array(np.zeros(2000))) == "Array([0., 0., 0., ..., 0., 0., 0.], shape=(2000,), dtype=float64)"
    assert "fill_value=inf" in repr(sj.array(np.eye(2), format="csr", fill_value=np.inf))
    assert repr(sj.array([[True, False]], format="coo")).startswith("Array({(0, 0): True},")
    wide = sj.array(np.full(7, 1 / 3 + 1j / 3), format="csf")
    assert repr(wide).count("\n") == 2
