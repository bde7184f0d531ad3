"""Arrays with axes of extent 0: every operation gives what NumPy gives, indices out of bounds are errors although nothing is read."""

import numpy as np
import pytest

import sparsejax as sj

FORMATS = [
    "dense",
    "csr",
    "csc",
    "coo",
    "(c,c)",
    "(c,c)@(1,0)",
    "(d,b)",
    "ell",
    "dia",
    "lil",
    "(d,d)@(1,0)",
    "groupcoo:2",
]
SHAPES = [(4, 0), (0, 4), (0, 0)]
OPERATIONS = {
    "sum": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    "of rows": lambda a, b: (a + b).sum(axis=0),
    "of columns": lambda a, b: (a * b).sum(axis=1),
    "matrices": lambda a, b: a @ b.T,
    "of rows by columns": lambda a, b: a.T @ b,
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("jitted", [False, True])
def test_two_operands(name, jitted):
    f = OPERATIONS[name]
    for shape in SHAPES:
        zeros = np.zeros(shape)
        want = f(zeros, zeros)
        for first in FORMATS:
            for second in FORMATS[:: 1 if first == "(c,c)@(1,0)" else 6]:
                a, b = sj.array(zeros, format=first), sj.array(zeros, format=second)
                got = (sj.jit(f, dynamic=False) if jitted else f)(a, b)
                assert got.shape == want.shape, (shape, first, second)
                assert np.array_equal(got.todense(), want), (shape, first, second)


READS = {
    "rows": lambda x, i: x[i],
    "columns": lambda x, i: x.T[:, i],
    "beside": lambda x, i: x[i, :, None],
    "added": lambda x, i: x.at[i].add(1.0),
    "set": lambda x, i: x.at[i].set(1.0),
    "largest": lambda x, i: x.at[i].max(1.0),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("format", FORMATS[:6])
def test_indices_where_nothing_is_read(name, format, dynamic):
    f = READS[name]
    x = sj.array(np.zeros((3, 0)), format=format)
    jitted = sj.jit(f, dynamic=dynamic)
    for call in (f, jitted):
        for good in ([0, -3, 2], [1], []):
            index = np.array(good, int)
            want = np.zeros((3, 0)) if name in ("added", "set", "largest") else READS[name](np.zeros((3, 0)), index)
            assert call(x, index).shape == want.shape
        for bad in (3, -4, 1 << 40):
            with pytest.raises(IndexError, match=rf"index {bad} is out of bounds"):
                call(x, np.array([0, bad]))
    if not dynamic:
        for bad in (3, -4):
            with pytest.raises(IndexError, match=rf"index {bad} is out of bounds"):
                jitted(x, bad)
