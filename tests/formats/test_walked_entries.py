"""The coordinates and values of entries as a kernel finds them, against the walk in NumPy: over random formats, blocks, extents and dtypes."""

import random

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import convert, entries
from sparsejax.formats.storage import Storage
from sparsejax.jit.runtime.passes.between import walked_entries
from tests.fuzz.levels import INPUTS, random_format

pytestmark = pytest.mark.rotating(8)


def agrees(storage):
    columns, position = entries.expand(storage.format, storage.shape, storage.buffers)
    vals = storage.vals if position is None else storage.vals[position]
    with sj.config.using(choose="conversion=kernel"):
        made = walked_entries.walked(storage)
    assert made is not None
    for ours, theirs, extent in zip(made[0], columns, storage.shape, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == convert.crd_dtype(extent)
    assert made[1].dtype == storage.dtype
    np.testing.assert_array_equal(made[1], vals)


@pytest.mark.parametrize("seed", range(160))
def test_random_formats(seed):
    rng = random.Random(seed)
    nrng = np.random.default_rng(seed)
    ndim = rng.randint(1, 4)
    shape = tuple(rng.choice((0, 1, 2, 3, 5, 9, 70)[: 7 if ndim < 3 else 6]) for _ in range(ndim))
    values = nrng.integers(1, 4, shape) * (nrng.random(shape) < rng.choice((0.1, 0.5, 1.0)))
    form = random_format(rng, ndim, INPUTS, [rng.choice((1, 1, 2, 3)) for _ in range(ndim)])
    if form.is_dense:
        return
    storage = convert.from_dense(values.astype(rng.choice(("f8", "i4", "c16", "?", "f4"))), form, 0)
    agrees(storage)


@pytest.mark.parametrize("form", ["ell", "lil", "hash", "dcsr", "coo"])
def test_wide_coordinates(form):
    coords = np.array([[0, 5, 5], [2**40, 3, 2**33]])
    name = {"ell": "(c,e)", "lil": "(c,l)", "hash": "(c,h)"}.get(form, form)
    storage = convert.from_coords(coords, np.array([1.0, 2, 3]), (7, 2**41), sj.formats.Format.parse(name, 2), 0.0)
    agrees(storage)
    assert isinstance(storage, Storage)
