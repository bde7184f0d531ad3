"""SciPy's csr and csc arrays that are stored in another format: converted from where they are, which stays as it is, and shared by nothing."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj

FORMATS = ["csr", "csc", "coo", "dcsr", "ell", "lil", "dense", "bsr:2x2", "dia", "bitmap", "hash", "rle"]


def matrix(rng, kind, dtype, case):
    rows, columns = (int(n) for n in rng.integers(0, 9, 2))
    count = int(rng.integers(0, rows * columns + 1))
    places = rng.permutation(rows * columns)[:count]  # not in order
    values = rng.integers(-3, 4, count).astype(dtype)
    pairs = values, (places // max(columns, 1), places % max(columns, 1))
    made = sp.coo_array(pairs, shape=(rows, columns)).asformat(kind)
    if case % 3 == 0:
        made.indices, made.indptr = made.indices.astype(np.int64), made.indptr.astype(np.int64)
    if case % 4 == 0 and count > 1:  # entries twice, or in another order
        made.indices[-1] = made.indices[0]
    return made


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_as_the_copy_converted(kind, form):
    rng = np.random.default_rng(len(form))
    for case in range(24):
        for dtype in ("f8", "i1", "c16", "?"):
            given = matrix(rng, kind, dtype, case)
            own = given.indptr, given.indices, given.data
            before, dense = [a.copy() for a in own], sj.array(given).todense()
            made = sj.array(given, format=form)
            assert (made.dtype, str(made.format)) == (given.dtype, str(sj.array(given).asformat(form).format))
            storage = made._storage
            for buffer in (storage.vals, *(b for level in storage.buffers for b in level)):
                assert not buffer.flags.writeable
                assert not any(a.size and buffer.size and np.may_share_memory(a, buffer) for a in own)
            for now, then in zip(own, before, strict=True):
                assert now.flags.writeable
                np.testing.assert_array_equal(now, then)
            given.data[:] = 1
            given.indices[:] = 0
            np.testing.assert_array_equal(made.todense(), dense)


@pytest.mark.parametrize("form", ["csc", "coo", "ell"])
def test_what_is_wrong_is_named(form):
    for change in ("indices", "indptr"):
        given = sp.csr_array(np.eye(4))
        getattr(given, change)[2] = 9
        with pytest.raises(sj.errors.FormatError, match=f"{change}"):
            sj.array(given, format=form)
