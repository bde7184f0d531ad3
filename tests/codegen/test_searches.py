"""Searches in rows: of no entry, of as many as a vector holds and of one more, of many; of what is there and what is not."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config

LENGTHS = (0, 1, 2, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33, 100)
WIDE = 2**33
"""More columns than 32 bits count: coordinates have 64."""


def rows(extent, seed):
    """Rows of all lengths, of which every second one stores its diagonal: first, last or between others; and where it is stored."""
    rng = np.random.default_rng(seed)
    count = 6 * len(LENGTHS)
    listed, lengths = [], np.repeat(rng.permutation(LENGTHS), 6)
    for i, length in enumerate(lengths):
        low = (0, i + 1, max(0, i - length))[i % 3]
        others = rng.choice(np.arange(low, low + 4 * length + 8), length, replace=False)
        others = others[others != i]
        own = [i] if length and i % 2 else []
        listed.append(np.sort(np.concatenate((others[: length - len(own)], own)).astype(np.int64)))
    pos = np.concatenate(([0], np.cumsum([len(found) for found in listed])))
    crd = np.concatenate(listed)
    vals = rng.integers(1, 100, len(crd)).astype(float)
    return sp.csr_array((vals, crd, pos), shape=(count, extent)), lengths


@pytest.mark.parametrize("skip", [frozenset(), frozenset({"masks", "gathers"})], ids=["as it is", "without masks"])
@pytest.mark.parametrize("seed", range(4))
def test_traces_find_diagonals_in_rows_of_any_length(seed, skip):
    matrix, lengths = rows(1000, seed)
    square = sp.csr_array(matrix[:, : len(lengths)])
    expected = square.diagonal().sum()
    assert expected
    with config.using(skip=skip):
        assert float(snp.trace(sj.array(square))) == expected
        assert float(sj.jit(lambda A: snp.trace(A))(sj.array(square))) == expected


@pytest.mark.parametrize("extent", [1000, WIDE])
@pytest.mark.parametrize("skip", [frozenset(), frozenset({"masks", "gathers"})], ids=["as it is", "without masks"])
def test_columns_that_an_array_names_are_found(extent, skip):
    matrix, lengths = rows(extent, 5)
    A, rng = sj.array(matrix), np.random.default_rng(6)
    stored = (
        matrix.toarray()
        if extent == 1000
        else sp.csr_array((matrix.data, matrix.indices, matrix.indptr), (len(lengths), 1000)).toarray()
    )
    for k in range(3):
        named = np.arange(len(lengths)) + k if k < 2 else rng.integers(0, 1000, len(lengths))
        with config.using(skip=skip):
            found = sj.insum("y[i] = A[i, X[i]]", A=A, X=named)
        np.testing.assert_array_equal(sj.asarray(found).todense(), stored[np.arange(len(lengths)), named])


def test_columns_beyond_32_bits_are_not_taken_for_others():
    matrix = sp.csr_array(
        (np.array([1.0, 2.0, 4.0]), np.array([3, 7, 2**32 + 3]), np.array([0, 1, 3])), shape=(2, WIDE)
    )
    found = sj.insum("y[i] = A[i, X[i]]", A=sj.array(matrix), X=np.array([2**32 + 3, 2**32 + 3]))
    np.testing.assert_array_equal(sj.asarray(found).todense(), [0.0, 4.0])
