"""Arrays that are put together from values and coordinates, or from vectors: of ours, of traced values, of columns of tables."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

I, J = np.array([0, 0, 1, 2, 2]), np.array([1, 1, 0, 2, 0])
V = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
POS = [0, 2, 3, 5]
WANT = sp.coo_array((V, (I, J)), shape=(3, 3)).toarray()


class Column:
    """What NumPy makes an array of, as a column of a table."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


MADE = {
    "coo": lambda v: sj.coo_array((v, (I, J)), shape=(3, 3)),
    "known shape": lambda v: sj.array((v, (I, J))),
    "matrix of coordinates": lambda v: sj.array((v, np.stack([I, J])), shape=(3, 3), format="dcsr"),
    "our coordinates": lambda v: sj.csr_array((v, (sj.array(I), sj.array(J)))),
    "csr": lambda v: sj.csr_array((v, J, POS), shape=(3, 3)),
    "csc": lambda v: sj.csc_array((v, J, POS)).T,
    "columns": lambda v: sj.array((v, (Column(I), Column(J)))),
}


@pytest.mark.parametrize("name", MADE)
def test_values_at_coordinates(name):
    make = MADE[name]
    for values in (V, sj.array(V)):
        np.testing.assert_array_equal(make(values).todense(), WANT)
    traced = sj.jit(make)(V)
    assert traced.format == make(V).format
    np.testing.assert_array_equal(traced.todense(), WANT)
    got = sj.grad(lambda v: snp.sum(make(v) ** 2))(V)
    np.testing.assert_allclose(got, 2 * WANT[I, J])


def test_traced_coordinates_and_fills():
    make = sj.jit(lambda v, i, j: sj.coo_array((v, (i, j)), shape=(3, 3)))
    np.testing.assert_array_equal(make(V, I, J).todense(), WANT)
    make = sj.jit(lambda v: sj.array((v, (I, J)), fill_value=7.0, dtype="f4"))
    made = make(V)
    assert made.dtype == "f4"
    np.testing.assert_array_equal(made.todense(), np.where(WANT, WANT, 7))
    with pytest.raises(TypeError, match="shape must be given"):
        sj.jit(lambda i: sj.array((V, (i, J))))(I)
    with pytest.raises(TypeError, match="indptr of csr_array is traced"):
        sj.jit(lambda pos: sj.csr_array((V, J, pos), shape=(3, 3)))(np.array(POS))


@pytest.mark.parametrize(
    "form", ["dense", "coo", "csr", "dia", "banded", "ell", "rle", "bsr:2x2", "blockgroupcoo:2x2:2"]
)
def test_traced_values_over_a_fill_in_every_format(form):
    """Formats that store places beside the entries have the fill there, too."""

    def make(v):
        return sj.array((v, (I, J)), shape=(3, 3), format=form, fill_value=7.0)

    made = sj.jit(make)(V)
    assert made.aval == make(V).aval
    np.testing.assert_array_equal(made.todense(), np.where(WANT, WANT, 7))
    np.testing.assert_allclose(sj.jit(sj.grad(lambda v: snp.sum(make(v) ** 2)))(V), 2 * WANT[I, J])


def test_two_vectors_are_rows():
    """As with NumPy's arrays: coordinates are a tuple, a list, or a matrix of vectors."""
    x, y = sj.array(V), sj.array(I)
    np.testing.assert_array_equal(sj.array((x, y)), np.array((V, I)))
    np.testing.assert_array_equal(sj.jit(lambda x, y: sj.array((x, y)))(x, y), np.array((V, I)))
