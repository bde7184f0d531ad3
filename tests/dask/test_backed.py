"""Blocks of files: let go of and read again, never written by Dask."""

import gc
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")
from distributed.protocol import deserialize, serialize
from distributed.spill import SpillBuffer

from sparsejax.dask import backed

A = sj.array(sp.random_array((40, 30), density=0.2, format="csr", rng=np.random.default_rng(0)))


def written(folder, store):
    path = folder / f"A.{store}"
    sj.save_npz(path, A) if store == "npz" else sj.io.write_binsparse(path, A)
    return path


@pytest.mark.parametrize("format", ["csr", "csc"])
@pytest.mark.parametrize("store", ["npz", "zarr", "h5"])
def test_spilled_and_read_again(tmp_path, store, format):
    buffer = SpillBuffer(str(tmp_path / "spill"), target=1_000_000)
    buffer["k"] = backed.read(str(written(tmp_path, store)), format)
    buffer.evict()
    gc.collect()
    assert buffer.spilled_total.disk < 1000 < A.nbytes
    back = buffer["k"]
    assert str(back.format) == format
    np.testing.assert_array_equal(back.todense(), A.todense())
    buffer.evict()  # what was read again is of the file as well
    assert buffer.spilled_total.disk < 1000


def test_what_is_no_files_is_written(tmp_path):
    buffer = SpillBuffer(str(tmp_path / "spill"), target=1_000_000)
    buffer["k"] = backed.read(str(written(tmp_path, "npz")), "csr") * 2
    buffer.evict()
    gc.collect()
    assert buffer.spilled_total.disk > A.nbytes / 2
    np.testing.assert_array_equal(buffer["k"].todense(), 2 * A.todense())


def test_what_travels_needs_no_file(tmp_path):
    path = written(tmp_path, "npz")
    made = backed.read(str(path), "csr")
    header, frames = serialize(made, context={"recipient": "tcp://elsewhere"})
    text = pickle.dumps(made)
    path.unlink()
    for back in (deserialize(header, frames), pickle.loads(text)):
        np.testing.assert_array_equal(back.todense(), A.todense())


def test_a_file_that_was_changed(tmp_path):
    path = written(tmp_path, "npz")
    header, frames = serialize(backed.read(str(path), "csr"))
    sj.save_npz(path, A[:5])
    with pytest.raises(RuntimeError, match=r"A.npz was changed while a program read it; run the program again"):
        deserialize(header, frames)
