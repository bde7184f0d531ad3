"""`x.at[key]` keeps the format of `x`, whatever it is, at once and under `jit`."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

FORMATS = [
    "dense",
    "coo",
    "csf",
    "csr",
    "csc",
    "dcsr",
    "dcsc",
    "ell",
    "dia",
    "banded",
    "bitmap",
    "hash",
    "rle",
    "lil",
    "bsr:2x3",
    "groupcoo:4",
    "blockgroupcoo:2x3:2",
    "(c,d)",
    "(d,b)@(1,0)",
    "(d,c)@(1,0)",
]
KEYS = {
    "place": (1, 2),
    "row": 2,
    "column": (slice(None), 3),
    "slices": (slice(1, 4), slice(2, 8, 2)),
    "rows": np.array([0, 3, 3]),
    "places": (np.array([0, 3]), np.array([1, 8])),
    "all": True,
    "last": (-1, slice(None)),
}

OPERATIONS = (
    ("set", None, 5.0),
    ("add", np.add, 5.0),
    ("max", np.maximum, 5.0),
    ("min", np.minimum, -5.0),
    ("subtract", np.subtract, 2.0),
    ("multiply", np.multiply, 3.0),
    ("divide", np.divide, 4.0),
)


@pytest.mark.rotating(4)
@pytest.mark.filterwarnings("ignore::sparsejax.errors.SparseEfficiencyWarning")
@pytest.mark.parametrize("name", [*KEYS, "mask"])
@pytest.mark.parametrize("format", FORMATS)
def test_the_format_stays(format, name):
    rng = np.random.default_rng(3)
    dense = np.where(rng.random((6, 9)) < 0.3, rng.standard_normal((6, 9)), 0)
    A = sj.array(dense, format=format)
    key = KEYS.get(name, dense > 0.5)
    for op, ufunc, value in OPERATIONS:

        def update(A, op=op, value=value):
            return getattr(A.at[key], op)(value)

        wanted = dense.copy()
        if ufunc is None:
            wanted[key] = value
        elif key is True:
            wanted = ufunc(dense, value)
        else:
            ufunc.at(wanted, key, value)
        for f in (update, sj.jit(update)):
            made = f(A)
            assert made.format == A.format
            np.testing.assert_allclose(made.todense(), wanted)


@pytest.mark.parametrize("format", ["coo", "dcsr"])
def test_extremes_of_arrays_of_huge_shape(format):
    """No array as long as an axis is made."""
    n = 2**31
    A = sj.array(([1.0, 2.0, 3.0], ([2, n - 1, 3], [0, 1, 1])), shape=(n, n), format=format)
    for f in (snp.argmax, sj.jit(snp.argmax)):
        assert int(f(A)) == 3 * n + 1
    assert int(snp.argmin(A)) == 0
