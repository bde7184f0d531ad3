"""The operations of the benchmark table on real matrices and tensors, equal to SciPy and NumPy.

Skipped, with a message, where the data folder is absent.
"""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import datasets
from sparsejax.formats import validate

pytestmark = pytest.mark.rotating(24)

MATRICES = [
    "karate", "lpi_galenet", "lpi_itest6", "GD98_a", "lp_afiro", "GD99_cc", "GD97_b", "west0067", "ash219", "fidapm05",
    "lp_share1b", "arc130", "celegansneural", "Erdos971", "lp_e226", "bcsstk04", "olm1000", "bcspwr07", "orsirr_2", "G51",
    "qc324", "pyamg_bar", "sherman3", "Franz6_id1959_aug", "pyamg_helmholtz_2D", "cage10", "as-22july06", "p2p-Gnutella08",
    "facebook-combined", "cora",
]  # fmt: skip
TENSORS = ["nations", "kinship", "fb15k-237"]
FORMATS = ("csr", "csc", "coo", "dcsr", "dcsc")
LARGEST_PRODUCT = 2e7

if datasets.folder() is None:
    pytest.skip("no real data: set SPARSEJAX_DATA to its folder", allow_module_level=True)


TOLERANCE = 1e-12  # times the sum of the magnitudes of an entry's terms; the longest sums here have about 10,000 terms


def mapped(function, operand):
    """`function` of the values of an array, stored zeros included."""
    if not sp.issparse(operand):
        return function(operand)
    return sp.csr_array((function(operand.data), operand.indices, operand.indptr), shape=operand.shape)


def check(ours, compute, *operands):
    """`ours` equals `compute(*operands)`, which is written in SciPy and NumPy.

    Every entry is as near as rounding allows: the limit is TOLERANCE times the same computation on absolute values, so that the
    small entries of a badly scaled matrix are checked as strictly as the large ones. A sparse result must also be a valid array
    that stores exactly the entries that have terms, which the same computation on ones finds.
    """
    theirs, magnitudes = compute(*operands), compute(*(mapped(np.abs, operand) for operand in operands))
    assert ours.shape == theirs.shape
    if not sp.issparse(theirs):
        gap = np.abs(ours.todense() - theirs)
        assert (gap <= TOLERANCE * magnitudes).all(), f"off by {gap.max()}"
        return
    validate.validate(ours.storage)
    assert not ours.format.is_dense, "a dense result where SciPy's is sparse does not fit in memory for large matrices"
    stored = sp.csr_array(ours.asformat("csr").to_scipy())
    # the difference of two sparse arrays leaves no entry where they are equal, and max() counts entries that are not stored as 0
    assert not np.isnan(stored.data).any()
    excess = abs(stored - sp.csr_array(theirs)) - TOLERANCE * sp.csr_array(magnitudes)
    assert excess.max() <= 0, f"off by {abs(stored - theirs).max()}"
    pattern = sp.csr_array(compute(*(mapped(np.ones_like, operand) for operand in operands)))
    assert stored.nnz == pattern.nnz
    assert not (mapped(np.ones_like, stored) != mapped(np.ones_like, pattern)).nnz


@pytest.fixture(params=MATRICES)
def matrix(request):
    return datasets.matrix(request.param)


@pytest.mark.parametrize("form", FORMATS)
def test_products_with_dense_operands(matrix, form):
    rng = np.random.default_rng(0)
    x, H = rng.standard_normal(matrix.shape[1]), rng.standard_normal((matrix.shape[1], 9))
    A = sj.array(matrix, format=form)
    check(A @ x, lambda A, x: A @ x, matrix, x)
    check(A @ H, lambda A, H: A @ H, matrix, H)


@pytest.mark.parametrize("form", ["csr", "coo", "dcsc"])
def test_sddmm(matrix, form):
    def sddmm(A, U, V):
        coo = A.tocoo()
        return sp.csr_array((coo.data * np.einsum("ek,ek->e", U[coo.row], V[coo.col]), (coo.row, coo.col)), A.shape)

    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((matrix.shape[0], 8)), rng.standard_normal((matrix.shape[1], 8))
    A = sj.array(matrix, format=form)
    check(sj.einsum("ij,ik,jk->ij", A, U, V), sddmm, matrix, U, V)
    check(sj.jit(lambda A, U, V: A * (U @ V.T))(A, U, V), sddmm, matrix, U, V)


@pytest.mark.parametrize(("first", "second"), [("csr", "csr"), ("csr", "csc"), ("coo", "dcsr"), ("dcsc", "coo")])
def test_sparse_sums_and_products(matrix, first, second):
    kept = np.arange(matrix.nnz) % 2 == 1
    coo = matrix.tocoo()
    other = sp.csr_array(
        (2 * coo.data[kept], (coo.col[kept] % matrix.shape[0], coo.row[kept] % matrix.shape[1])), matrix.shape
    )
    A, B = sj.array(matrix, format=first), sj.array(other, format=second)
    check(A + B, lambda A, B: A + B, matrix, other)
    check(A * B, lambda A, B: A.multiply(B), matrix, other)


def flops(A, B):
    """Multiplications in A @ B."""
    return float(np.dot(np.bincount(A.indices, minlength=A.shape[1]), np.diff(B.indptr)))


@pytest.mark.parametrize(("first", "second"), [("csr", "csr"), ("csc", "csc"), ("csr", "csc"), ("coo", "dcsr")])
def test_sparse_matrix_products(matrix, first, second):
    right = matrix if matrix.shape[0] == matrix.shape[1] else sp.csr_array(matrix.T)
    if flops(matrix, right) > LARGEST_PRODUCT:
        pytest.skip("the product has too many terms for this test")
    check(sj.array(matrix, format=first) @ sj.array(right, format=second), lambda A, B: A @ B, matrix, right)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_triangles(matrix, form):
    if matrix.shape[0] != matrix.shape[1] or flops(matrix, matrix) > LARGEST_PRODUCT:
        pytest.skip("triangles need a square matrix of moderate products")
    P = sp.csr_array((abs(matrix) + abs(matrix.T) > 0).astype(np.float64))
    P.setdiag(0)
    P.eliminate_zeros()
    count = sj.jit(lambda A: (A * (A @ A)).sum() / 6)
    assert float(count(sj.array(P, format=form))) == P.multiply(P @ P).sum() / 6  # sums of small integers: exact


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("form", ["csf", "coo", "(d,c,c)@(0,1,2)", "(c,c,c)@(2,0,1)"])
def test_tensor_operations(name, form):
    coords, values, shape = datasets.tensor(name)
    T = sj.array((values, coords), shape=shape, format=form)
    i, j, k = coords
    rng = np.random.default_rng(0)
    B, C = rng.standard_normal((shape[1], 5)), rng.standard_normal((shape[2], 5))

    def mttkrp(values, B, C):
        made = np.zeros((shape[0], 5))
        np.add.at(made, i, values[:, None] * B[j] * C[k])
        return made

    def ttm(values, C):
        """One row per (i, j)."""
        return sp.csr_array((values, (i * shape[1] + j, k)), (shape[0] * shape[1], shape[2])) @ sp.csr_array(C)

    check(sj.einsum("ijk,jr,kr->ir", T, B, C), mttkrp, values, B, C)
    product = sj.einsum("ijk,kr->ijr", T, C)
    assert not product.format.is_dense
    check(sj.lax.reshape(product, (shape[0] * shape[1], 5), format="csr"), ttm, values, C)
