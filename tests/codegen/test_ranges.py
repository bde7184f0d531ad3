"""Coordinates that repeat: where the entries of a row end in a list of triplets, for rows of many lengths."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj

NEAR = 16

LENGTHS = (1, 2, NEAR - 1, NEAR, NEAR + 1, NEAR + 2, 2 * NEAR, 5 * NEAR)


def stairs(last, rng):
    """A matrix with rows of all these lengths, empty ones between them, and one of `last` entries at the end."""
    lengths = np.array([n for length in (*rng.permutation(LENGTHS), last) for n in (length, 0)][:-1])
    columns = [rng.choice(8 * NEAR, n, replace=False) for n in lengths]
    rows = np.repeat(np.arange(len(lengths)), lengths)
    found = sp.coo_array((rng.standard_normal(len(rows)), (rows, np.concatenate(columns))), (len(lengths), 8 * NEAR))
    found.sum_duplicates()
    return found


@pytest.mark.parametrize("last", LENGTHS)
def test_rows_of_triplets_end_where_the_coordinate_changes(last):
    rng = np.random.default_rng(last)
    A, B = stairs(last, rng), stairs(last, rng)
    x, a, b = rng.standard_normal(A.shape[1]), sj.array(A), sj.array(B)
    np.testing.assert_allclose((a @ x).todense(), A @ x)
    np.testing.assert_allclose(a.sum(axis=1).todense(), A.sum(axis=1))
    np.testing.assert_allclose((a + b).todense(), (A + B).toarray())
    np.testing.assert_allclose((a * b).todense(), A.tocsr().multiply(B.tocsr()).toarray())
