"""Changed files give an error of the documented class, or a sound array: a slice of the campaign, and all of it where asked for."""

import os

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.errors import FormatError
from tests.io.mutations import FORKED, KINDS, LIMIT, campaign, forked_campaign, hdf5_of, tenx_tree
from tests.io.support import same


@pytest.mark.rotating(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_slice(kind):
    counts, _, grown = campaign(kind, 80)
    assert counts["error"] > 8 and counts["array"] > 3
    assert grown < 8 * LIMIT


@pytest.mark.skipif(not FORKED, reason="h5py is not installed")
def test_a_slice_of_changed_structure():
    """What HDF5's library does with a file of which it cannot be told what to check. Whatever it is, `isolated` stands it."""
    counts = forked_campaign("h5_bytes_anndata", 40)
    assert counts["array"] > 3 and counts["error"] > 3 and not counts["fault"]


def test_isolated_readers(tmp_path):
    pytest.importorskip("h5py")
    rng = np.random.default_rng(3)
    path = tmp_path / "a.h5"
    path.write_bytes(hdf5_of(tenx_tree(rng)[0]))
    here = sj.io.read_10x_h5(path, format="csc")
    read = sj.io.isolated(sj.io.read_10x_h5, path, format="csc")
    assert read[1:] == here[1:]
    same(read.counts, here.counts)
    with pytest.raises(FormatError, match="no member X"):
        sj.io.isolated(sj.io.read_anndata, path)
    os.mkfifo(tmp_path / "endless")
    with pytest.raises(FormatError, match="was ended"):
        sj.io.isolated(sj.io.read_tns, tmp_path / "endless", seconds=0.5)
    with pytest.raises(TypeError, match="one of"):
        sj.io.isolated(print, path)


@pytest.mark.slow
@pytest.mark.skipif(not FORKED, reason="h5py is not installed")
@pytest.mark.parametrize("kind", FORKED)
def test_ten_thousand_files_of_changed_structure(kind):
    counts = forked_campaign(kind, 10_000, first=1000)
    assert sum(counts.values()) == 10_000 and not counts["fault"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_files(kind):
    counts, _, grown = campaign(kind, 10_000, first=1000)
    assert sum(counts.values()) == 10_000
    assert grown < 8 * LIMIT
