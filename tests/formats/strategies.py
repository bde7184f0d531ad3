"""Random formats and storages for property tests."""

import numpy as np
from hypothesis import strategies as st

from sparsejax.formats import (
    Format,
    convert,
)
from tests.fuzz.levels import OUTPUTS

DTYPES = ("?", "i1", "i4", "i8", "u1", "u8", "f4", "f8", "c8", "c16")

LEVELS = OUTPUTS

NAMED = [
    "dense",
    "csr",
    "csc",
    "coo",
    "dcsr",
    "dcsc",
    "csf",
    "ell",
    "groupcoo:2",
    "blockgroupcoo:2x2:2",
    "dia",
    "banded",
    "bitmap",
    "hash",
    "rle",
    "lil",
    "bsr:2x3",
]
"""Formats of matrices that have names."""


def allowed(level, place, ndim):
    """Whether `level` makes sense at `place` of a format of `ndim` levels."""
    return not (level.relative and place == 0) and not (level.shared and place < ndim - 1)


@st.composite
def formats(draw, ndim, levels=LEVELS, blocks=(1, 1, 2, 3, 5)):
    """Any levels in any order; dimensions in blocks of one of the sizes `blocks`."""
    sizes = [draw(st.sampled_from(blocks)) for _ in range(ndim)] if any(b > 1 for b in blocks) else [1] * ndim
    order = draw(st.permutations([*range(ndim), *(d for d, b in enumerate(sizes) if b > 1)]))
    count = len(order)
    drawn = [draw(st.sampled_from([lv for lv in levels if allowed(lv, k, count)])) for k in range(count)]
    return Format(drawn, order, sizes)


@st.composite
def arrays(draw, max_ndim=5):
    ndim = draw(st.integers(0, max_ndim))
    shape = tuple(draw(st.integers(0, 4)) for _ in range(ndim))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    return np.asarray(rng.integers(0, 4, shape) * (rng.random(shape) < 0.5)).astype(dtype)


@st.composite
def storages(draw, max_ndim=5):
    array = draw(arrays(max_ndim))
    form = draw(formats(array.ndim))
    return convert.from_dense(array, form, 0), array
