"""Blocks of sparse matrices put together at once, against those of NumPy."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

pytestmark = pytest.mark.rotating(8)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c16", "?"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("seed", range(8))
def test_blocks_of_any_heights_and_widths(seed, form, dtype):
    rng = np.random.default_rng(seed)
    most = 200 if seed == 7 else 7
    heights, widths = (rng.integers(0, most, rng.integers(1, 4)) for _ in range(2))
    rows = [[(rng.integers(-3, 4, (h, w)) * (rng.random((h, w)) < 0.4)).astype(dtype) for w in widths] for h in heights]
    made = snp.block([[sj.array(x, format=form) for x in row] for row in rows])
    np.testing.assert_array_equal(made.todense(), np.block(rows))
    assert made.dtype == dtype


def test_blocks_that_do_not_fit_are_refused():
    A, B = sj.array(np.eye(3), format="csr"), sj.array(np.ones((2, 3)), format="csr")
    with pytest.raises(ValueError, match="shape"):
        snp.block([[A, A], [B, A]])
    with pytest.raises(ValueError, match="shape"):
        snp.block([[A, A], [A]])
