"""Accesses whose indices are entries of arrays: how much is expected of their loops and results, compared with how much there is."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import counting
from sparsejax.formats import Format, convert
from sparsejax.jit.cost import statistics
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import counted, search

PLACES, ROWS, COLS = 200, 600, 500
I, J = map(cin.IndexVar, "ij")


@pytest.fixture(scope="module")
def B():
    return sp.random_array((ROWS, COLS), density=0.05, format="csr", rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(1).integers(0, ROWS, PLACES)


def within(expected, real, most=2.0):
    assert real / most <= expected <= real * most, (expected, real)


def tensor(name, shape, form, dtype=float):
    return cin.Tensor(name, shape, np.dtype(dtype), Format.parse(form, len(shape)), np.dtype(dtype).type(0))


def model(access, counts):
    out = tensor("out", (PLACES, COLS), "csr")
    return search.Model(Nest(out, (I, J), (), access), statistics.Facts(counts))


@pytest.mark.parametrize("form", ["csr", "coo", "dcsr", "dense"])
@pytest.mark.parametrize("empty", [0, 500])
def test_counted_loops(form, empty, rows, B):
    """out[i,j] = B[A[i],j],  also where most rows are empty, as counted while it runs."""
    B = B.copy()
    B.data[: B.indptr[empty]] = 0
    B.eliminate_zeros()
    read = cin.Access(tensor("B", B.shape, form), (cin.Access(tensor("A", rows.shape, "dense", int), (I,)), J))
    nest = Nest(tensor("out", (PLACES, COLS), "dense" if form == "dense" else "csr"), (I, J), (), read)
    inputs = [sj.array(x, format=f).storage for x, f in ((rows, "dense"), (B, form))]
    known = statistics.of(nest, inputs)
    made, ran = counting.run(nest, search.schedule_of(nest, known, (I, J)), inputs)
    want = B.toarray()[rows]
    np.testing.assert_array_equal(convert.to_dense(made), want)
    points = want.size if form == "dense" else np.count_nonzero(want)
    for_rows, along = counted.loops(nest, known, (I, J))
    assert for_rows.iterations == PLACES
    within(along.iterations, points)
    searched = (
        0 if form in ("csr", "dense") else PLACES * np.log2(known["B"][0])
    )  # by halves, for the rows that are stored
    within(for_rows.iterations + along.iterations + searched, ran.iterations)
    within(search.level_counts(nest, known)[-1], points)


def test_rows_that_are_looked_up():
    """A row that is named is stored as often as rows are; then it is any of these."""
    A = cin.Access(tensor("A", (PLACES,), "dense", int), (I,))
    stored = {"A": (PLACES,), "B": (60.0, 1200.0)}
    found = model(cin.Access(tensor("B", (ROWS, COLS), "dcsr"), (A, J)), stored)
    assert found.walk((I,)).survivors == pytest.approx(PLACES * 60 / ROWS)
    assert found.walk((I, J)).survivors == pytest.approx(PLACES * 1200 / ROWS)
    assert found.walk((J, I)).survivors == pytest.approx(PLACES * 1200 / ROWS, rel=0.01)


def test_places_that_are_looked_up():
    """B[A[i],C[i]]: one place of all for each i."""
    A, C = (cin.Access(tensor(name, (PLACES,), "dense", int), (I,)) for name in "AC")
    nest = Nest(tensor("out", (PLACES,), "(c)"), (I,), (), cin.Access(tensor("B", (ROWS, COLS), "csr"), (A, C)))
    facts = statistics.Facts({"A": (PLACES,), "C": (PLACES,), "B": (ROWS, 15_000.0)})
    assert search.level_counts(nest, facts) == (pytest.approx(PLACES * 15_000 / (ROWS * COLS)),)


def test_rows_of_rows(rows):
    """B[A[C[i]],j]."""
    C = cin.Access(tensor("C", (PLACES,), "dense", int), (I,))
    A = cin.Access(tensor("A", (80,), "dense", int), (C,))
    found = model(
        cin.Access(tensor("B", (ROWS, COLS), "csr"), (A, J)), {"C": (PLACES,), "A": (80.0,), "B": (ROWS, 15_000.0)}
    )
    assert found.walk((I, J)).survivors == pytest.approx(PLACES * 25)


def innermost(function, *operands):
    """The iterations of the innermost loop of the last kernel that is expected, and its result's entries, expected and made."""
    found = sj.explain(function)(*operands).kernels[-1]
    return found.loops[-1].iterations, found.entries


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr"])
def test_indexing(form, rows, B):
    points = B[rows].nnz
    iterations, (expected, made) = innermost(lambda A, k: A[k], sj.array(B, format=form), rows)
    assert made == points
    within(iterations, points)
    within(expected, points)


@pytest.mark.parametrize("form", ["csr", "coo", "dense"])
def test_scattered_products(form, rows, B):
    rng = np.random.default_rng(2)
    R, V = rng.integers(0, 40, PLACES), rng.random(PLACES)
    stored = B.toarray() if form == "dense" else sj.array(B, format=form)
    points = PLACES * COLS if form == "dense" else B[rows].nnz
    C = np.zeros((40, COLS))

    def product(C, R, V, B, K):
        return sj.insum("C[R[p],n] += V[p] * B[K[p],n]", C=C, R=R, V=V, B=B, K=K)

    iterations, _ = innermost(product, C, R, V, stored, rows)
    within(iterations, points)


@pytest.mark.parametrize("form", ["csr", "dcsr", "dense"])
def test_convolutions(form, B):
    rng = np.random.default_rng(3)
    N, W = rng.integers(0, ROWS, (50, 5)), rng.random((5, COLS, 6))
    stored = B.toarray() if form == "dense" else sj.array(B, format=form)
    points = 6 * (N.size * COLS if form == "dense" else B[N.ravel()].nnz)

    def convolved(In, N, W):
        return sj.insum("Out[x,m] += In[N[x,z],c] * W[z,c,m]", In=In, N=N, W=W)

    iterations, _ = innermost(convolved, stored, N, W)
    within(iterations, points)


def test_rows_far_apart_are_waited_for():
    """A dense array that no cache holds costs more to gather from than one that the first holds."""
    costs = []
    for rows in (100, 1_000_000):
        A = cin.Access(tensor("A", (PLACES,), "dense", int), (I,))
        H = cin.Access(tensor("H", (rows, 8), "dense"), (A, J))
        nest = Nest(tensor("out", (PLACES, 8), "dense"), (I, J), (), H)
        facts = statistics.Facts({"A": (PLACES,), "H": (rows, 8.0 * rows)})
        costs.append(search.schedule_of(nest, facts, (I, J)).cost)
    assert costs[0].loops == costs[1].loops and costs[0].memory < 1e3 < costs[1].memory


def test_searches():
    """Rows among those that are stored, and columns in a row where the loop over columns is around, are searched by halves."""
    A = cin.Access(tensor("A", (PLACES,), "dense", int), (I,))
    stored = {"A": (PLACES,), "B": (63.0, 63 * 15.0)}
    none, i, j = frozenset(), frozenset([I]), frozenset([J])
    listed = cin.Access(tensor("B", (ROWS, COLS), "dcsr"), (A, J))
    found = model(listed, stored)
    assert found.searched(listed, I, none) == pytest.approx(6)  # the row; a loop walks its columns
    assert found.searched(listed, J, i) == found.searched(listed, J, none) == 0
    assert found.searched(listed, I, j) == pytest.approx(6 + 4)
    rows = cin.Access(tensor("B", (ROWS, COLS), "csr"), (A, J))
    found = model(rows, stored | {"B": (ROWS, ROWS * 15.0)})
    assert found.searched(rows, I, none) == 0 and found.searched(rows, I, j) == pytest.approx(4)
    assert found.searched(A, I, none) == 0


def test_no_loop_over_columns_is_outside_that_over_the_rows_that_are_looked_up():
    """14 times as slow, where z is inside c: each entry is searched."""
    rng = np.random.default_rng(3)
    In = sp.random_array((500, 16), density=0.2, format="csr", rng=rng)
    N, W = rng.integers(0, 500, (300, 27)), rng.random((27, 16, 8))

    def convolved(In, N, W):
        return sj.insum("Out[x,m] += In[N[x,z],c] * W[z,c,m]", In=In, N=N, W=W)

    order = sj.explain(convolved)(sj.array(In, format="csr"), N, W).kernels[-1].order
    assert order.index("k") < order.index("l")  # x, m, z, c are i, j, k, l
