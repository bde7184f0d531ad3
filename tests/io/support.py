"""Random arrays for round trips, and what must be the same after them."""

import numpy as np
from hypothesis import strategies as st

import sparsejax as sj
from sparsejax.formats import convert, structural
from sparsejax.formats.validate import validate
from tests.formats.strategies import arrays, formats

FILLS = (0, 0, 1, -0.0, float("inf"), float("nan"))


@st.composite
def sparse_arrays(draw, min_ndim=0, max_ndim=4, fills=FILLS):
    """Arrays of ours of any format, dtype, fill and number of dimensions; some entries are stored zeros, NaN or infinite."""
    array = draw(arrays(max_ndim).filter(lambda a: a.ndim >= min_ndim))
    if array.dtype.kind in "fc" and array.size:
        wild = draw(st.sampled_from([None, np.nan, np.inf, -0.0]))
        if wild is not None:
            array.flat[draw(st.integers(0, array.size - 1))] = wild
    fill = draw(st.sampled_from(fills))
    if array.dtype.kind not in "fc":
        fill = 1 if fill == 1 and 1 in fills else 0
    form = draw(formats(array.ndim))
    storage = convert.from_dense(array, form, 0 if form.is_dense else fill)
    if draw(st.booleans()):
        storage = structural.pattern(storage, storage.dtype)
        storage = storage if form.is_dense else structural.refill(storage, storage.dtype.type(fill))
    return sj.array(storage)


def random_matrix(rng, shape, dtype, density=0.4):
    values = rng.integers(1, 100, shape).astype(dtype)
    if np.dtype(dtype).kind in "fc":
        values = (values / 7).astype(dtype)
    return np.where(rng.random(shape) < density, values, np.zeros((), dtype)).astype(dtype)


def same_values(a, b):
    """Whether two arrays hold the same numbers: NaN equals NaN, and zeros have signs."""
    assert a.shape == b.shape
    x, y = (s.todense() if hasattr(s, "todense") else np.asarray(s) for s in (a, b))
    np.testing.assert_array_equal(x, y)


def same(a, b):
    """The same numbers in the same format over the same fill, in sound storage."""
    assert (a.shape, a.dtype, a.format) == (b.shape, b.dtype, b.format)
    assert structural.same_bits(a.fill_value, b.fill_value) or (
        a.fill_value != a.fill_value and b.fill_value != b.fill_value
    )
    validate(a.storage)
    validate(b.storage)
    assert a.nnz == b.nnz
    same_values(a, b)
