"""Fixed blocks: two levels per blocked dimension, edge blocks that stick out of the shape, SciPy's bsr without a copy."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsejax as sj
from sparsejax.errors import FormatError
from sparsejax.formats import Bitmap, Dense, Format, convert, entries, ingest, scipy_io, structural, validate
from sparsejax.formats.storage import Storage
from tests import rotation
from tests.formats import strategies

pytestmark = pytest.mark.rotating(16)


def test_buffers_by_hand():
    x = np.array([[1.0, 2, 0, 0, 0], [3, 4, 0, 0, 0], [0, 0, 0, 0, 5]])
    made = convert.from_dense(x, Format.parse("bsr:2x2", 2), 0.0)
    pos, crd = made.buffers[1]
    assert pos.tolist() == [0, 1, 2] and crd.tolist() == [0, 2] and crd.dtype == np.int32
    assert made.vals.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
    assert made.nnz == 5 and made.counts == [2, 2, 3, 5]  # of the second block, one row and one column are inside
    np.testing.assert_array_equal(convert.to_coords(made)[0], [[0, 0, 1, 1, 2], [0, 1, 0, 1, 4]])
    assert entries.used(made.format, made.shape, made.buffers).tolist() == [0, 1, 2, 3, 4]


@settings(max_examples=rotation.examples(300), deadline=None)
@given(st.data())
def test_positions_outside_the_shape_hold_the_fill(data):
    ndim = data.draw(st.integers(1, 3))
    form = data.draw(strategies.formats(ndim, blocks=(1, 2, 3, 4)))
    shape = tuple(data.draw(st.integers(1, 7)) for _ in range(ndim))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x = np.where(rng.random(shape) < 0.5, rng.integers(0, 4, shape), 1).astype(float)
    made = convert.from_dense(x, form, 1.0)
    validate.validate(made)
    coords, vals = convert.to_coords(made)
    assert len(vals) == made.nnz and (coords < np.array(shape)[:, None]).all() and (coords >= 0).all()
    np.testing.assert_array_equal(x[tuple(coords)], vals)
    fresh = structural.refill(made, 2.0)
    validate.validate(fresh)
    outside = np.ones(len(made.vals), bool)
    used = entries.used(form, shape, made.buffers)
    outside[slice(None) if used is None else used] = False
    assert (
        (made.vals[outside] == 1).all() and (fresh.vals[outside] == (0 if form.is_dense else 2)).all()
    ) or form.is_dense
    stored = convert.to_dense(structural.pattern(made, bool))
    np.testing.assert_array_equal(convert.to_dense(fresh), np.where(stored, x, 2.0))


def test_validation_of_edge_blocks():
    made = convert.from_dense(np.ones((3, 3)), Format.parse("bsr:2x2", 2), 0.0)
    vals = made.vals.copy()
    vals[-1] = 7.0
    with pytest.raises(FormatError, match=r"position 15, which is unused"):
        validate.validate(Storage(made.format, made.shape, made.fill_value, made.buffers, vals))
    bits = Format((Dense(), Bitmap()), (0, 0), (4,))
    words = np.array([15, 15], np.uint64)
    with pytest.raises(FormatError, match=r"level 1 .* holds 2 coordinates outside the shape \(6,\)"):
        validate.validate(Storage(bits, (6,), np.float64(0), ((), (words,)), np.zeros(8)))
    validate.validate(Storage(bits, (8,), np.float64(0), ((), (words,)), np.zeros(8)))


@pytest.mark.parametrize("blocks", [(2, 3), (4, 4), (1, 3), (6, 1), (1, 1)])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "?", "c16"])
def test_scipy_bsr_is_shared_both_ways(blocks, dtype):
    rng = np.random.default_rng(0)
    x = (rng.integers(1, 5, (12, 12)) * (rng.random((12, 12)) < 0.2)).astype(dtype)
    given_ = sp.bsr_array(x, blocksize=blocks)
    given_.sort_indices()
    storage = scipy_io.from_scipy(given_, copy=False)
    validate.validate(storage)
    assert str(storage.format) == ("csr" if blocks == (1, 1) else f"bsr:{blocks[0]}x{blocks[1]}")
    assert np.shares_memory(storage.vals, given_.data) and np.shares_memory(storage.buffers[1][1], given_.indices)
    np.testing.assert_array_equal(convert.to_dense(storage), x)
    back = scipy_io.to_scipy(storage)
    assert back.format == ("csr" if blocks == (1, 1) else "bsr") and np.shares_memory(back.data, storage.vals)
    assert np.shares_memory(back.indices, storage.buffers[1][1])
    np.testing.assert_array_equal(back.toarray(), x)
    if blocks != (1, 1):
        assert back.blocksize == blocks and not back.data.flags.writeable


def test_scipy_bsr_unsorted_and_duplicate_blocks():
    data = np.arange(1.0, 13).reshape(3, 2, 2)
    made = sp.bsr_array((data, np.array([1, 0, 1]), np.array([0, 3])), shape=(2, 4))
    storage = ingest.as_storage(made)
    validate.validate(storage)
    assert str(storage.format) == "bsr:2x2" and storage.nnz == 8
    np.testing.assert_array_equal(convert.to_dense(storage), made.toarray())
    with pytest.raises(ValueError, match="copy=None"):
        ingest.as_storage(made, copy=False)


def test_blocks_that_do_not_tile_become_csr_in_scipy():
    x = np.arange(15.0).reshape(3, 5)
    made = sj.array(x, format="bsr:2x2").to_scipy()
    assert made.format == "csr"
    np.testing.assert_array_equal(made.toarray(), x)


def test_arrays_show_their_blocks_and_pickle():
    A = sj.array(sp.bsr_array(np.eye(6), blocksize=(2, 3)))
    assert str(A.aval) == "f64[6:d/2d,6:c/3d]" and "format=bsr:2x3" in repr(A)
    assert str(A.T.aval) == "f64[6:c1/3d3,6:d0/2d2]"
    twin = pickle.loads(pickle.dumps(A))
    assert twin.format == A.format
    np.testing.assert_array_equal(twin.todense(), np.eye(6))
