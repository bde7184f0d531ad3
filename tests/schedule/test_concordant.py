"""In which format an operand is copied for loops in another order."""

import numpy as np
import pytest

from sparsejax.formats import Format
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import cin
from sparsejax.jit.schedule import concordant

CASES = {
    # shape, format, entries, loops, what becomes of it
    "rows by columns": ((50, 60), "csr", 20, "ji", "(d,c)@(1,0)"),
    "columns by rows": ((50, 60), "csc", 20, "ij", "(d,c)@(0,1)"),
    "as it is": ((50, 60), "csr", 20, "ij", "(d,c)@(0,1)"),
    "as many coordinates as are few": ((50, 1024), "csr", 1, "ji", "(d,c)@(1,0)"),
    "one more": ((50, 1025), "csr", 1, "ji", "(c,c)@(1,0)"),
    "in proportion to the entries": ((50, 2000), "csr", 500, "ji", "(d,c)@(1,0)"),
    "out of proportion": ((50, 2000), "csr", 499, "ji", "(c,c)@(1,0)"),
    "coordinates": ((5000, 50), "coo", 20, "ij", "(c,c)@(0,1)"),
    "rows that are whole stay so": ((5000, 8), "(c,d)", 20, "ij", "(c,d)@(0,1)"),
    "below a few columns": ((5000, 8), "(c,d)", 20, "ji", "(d,c)@(1,0)"),
    "fibers of a tensor": ((5, 6, 7), "(d,c,d)", 20, "jik", "(d,c,d)@(1,0,2)"),
    "in the middle of it": ((5, 6, 7), "(d,c,d)", 20, "jki", "(d,c,c)@(1,2,0)"),
    "three that are walked": ((5, 6, 7), "csf", 20, "kji", "(d,c,c)@(2,1,0)"),
    "loops over others around": ((5, 6), "csr", 20, "zji", "(d,c)@(1,0)"),
}


@pytest.mark.parametrize("name", CASES)
def test_format(name):
    shape, form, entries, loops, wanted = CASES[name]
    ndim = len(shape)
    tensor = cin.Tensor("A", shape, np.dtype("f8"), Format.parse(form, ndim), 0.0)
    access = cin.Access(tensor, tuple(map(cin.IndexVar, "ijk"[:ndim])))
    found = concordant.concordant_format(
        access, tuple(map(cin.IndexVar, loops)), Facts({"A": (float(entries),) * ndim})
    )
    assert found == Format.parse(wanted, ndim), found
