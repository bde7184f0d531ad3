"""The operations of the benchmark table on real matrices and tensors, equal to SciPy and NumPy.

Skipped, with a message, where the data folder is absent.
"""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import datasets

MATRICES = [
    "karate", "lpi_galenet", "lpi_itest6", "GD98_a", "lp_afiro", "GD99_cc", "GD97_b", "west0067", "ash219", "fidapm05",
    "lp_share1b", "arc130", "celegansneural", "Erdos971", "lp_e226", "bcsstk04", "olm1000", "bcspwr07", "orsirr_2", "G51",
    "qc324", "pyamg_bar", "sherman3", "Franz6_id1959_aug", "pyamg_helmholtz_2D", "cage10", "as-22july06", "p2p-Gnutella08",
    "facebook-combined", "cora",
]  # fmt: skip
TENSORS = ["nations", "kinship", "fb15k-237"]
FORMATS = ("csr", "csc", "coo", "dcsr", "dcsc")
LARGEST_PRODUCT = 2e7

pytestmark = pytest.mark.skipif(datasets.folder() is None, reason="no data folder; set SPARSEJAX_DATA")


def close(ours, theirs):
    theirs = theirs.toarray() if sp.issparse(theirs) else np.asarray(theirs)
    scale = np.abs(theirs).max(initial=1.0)
    np.testing.assert_allclose(ours.todense(), theirs, rtol=1e-10, atol=1e-10 * scale)


def same_entries(ours, theirs):
    ours, theirs = sp.csr_array(ours.to_scipy()), sp.csr_array(theirs)
    gap = abs(ours - theirs)
    assert gap.nnz == 0 or gap.max() <= 1e-10 * max(1.0, abs(theirs).max())


@pytest.fixture(params=MATRICES)
def matrix(request):
    return datasets.matrix(request.param)


def test_products_with_dense_operands(matrix):
    rng = np.random.default_rng(0)
    x, H = rng.standard_normal(matrix.shape[1]), rng.standard_normal((matrix.shape[1], 9))
    for name in FORMATS:
        A = sj.array(matrix, format=name)
        close(A @ x, matrix @ x)
        close(A @ H, matrix @ H)


def test_sddmm(matrix):
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((matrix.shape[0], 8)), rng.standard_normal((matrix.shape[1], 8))
    coo = matrix.tocoo()
    want = sp.csr_array((coo.data * np.einsum("ek,ek->e", U[coo.row], V[coo.col]), (coo.row, coo.col)), matrix.shape)
    for name in ("csr", "coo", "dcsc"):
        A = sj.array(matrix, format=name)
        same_entries(sj.einsum("ij,ik,jk->ij", A, U, V), want)
        same_entries(sj.jit(lambda A, U, V: A * (U @ V.T))(A, U, V), want)


def test_sparse_sums_and_products(matrix):
    other = sp.csr_array(matrix * 2)
    other.data[::2] = 0
    other.eliminate_zeros()
    for first, second in (("csr", "csr"), ("csr", "csc"), ("coo", "dcsr"), ("dcsc", "coo")):
        A, B = sj.array(matrix, format=first), sj.array(other, format=second)
        same_entries(A + B, matrix + other)
        same_entries(A * B, matrix.multiply(other))


def flops(A):
    return (
        float(np.dot(np.bincount(A.indices, minlength=A.shape[1]), np.diff(A.indptr)))
        if A.shape[0] == A.shape[1]
        else 0
    )


def test_sparse_matrix_products(matrix):
    right = matrix if matrix.shape[0] == matrix.shape[1] else sp.csr_array(matrix.T)
    if flops(matrix) > LARGEST_PRODUCT:
        pytest.skip("the product has too many terms for this test")
    want = matrix @ right
    for first, second in (("csr", "csr"), ("csc", "csc"), ("csr", "csc"), ("coo", "dcsr")):
        same_entries(sj.array(matrix, format=first) @ sj.array(right, format=second), want)


def test_triangles(matrix):
    if matrix.shape[0] != matrix.shape[1] or flops(matrix) > LARGEST_PRODUCT:
        pytest.skip("triangles need a square matrix of moderate products")
    P = sp.csr_array((abs(matrix) + abs(matrix.T) > 0).astype(np.float64))
    P.setdiag(0)
    P.eliminate_zeros()
    count = sj.jit(lambda A: (A * (A @ A)).sum() / 6)
    assert float(count(sj.array(P))) == pytest.approx(P.multiply(P @ P).sum() / 6)


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("form", ["csf", "coo", "(d,c,c)@(0,1,2)", "csf-permuted"])
def test_tensor_operations(name, form):
    coords, values, shape = datasets.tensor(name)
    form = "(c,c,c)@(2,0,1)" if form == "csf-permuted" else form
    T = sj.array((values, coords), shape=shape, format=form)
    i, j, k = coords
    rng = np.random.default_rng(0)
    B, C = rng.standard_normal((shape[1], 5)), rng.standard_normal((shape[2], 5))
    want = np.zeros((shape[0], 5))
    np.add.at(want, i, values[:, None] * B[j] * C[k])
    close(sj.einsum("ijk,jr,kr->ir", T, B, C), want)
    product = sj.einsum("ijk,kr->ijr", T, C)
    flat = sp.csr_array((values, (i * shape[1] + j, k)), (shape[0] * shape[1], shape[2])) @ sp.csr_array(C)
    np.testing.assert_allclose(product.sum(axis=(0, 1)).todense(), flat.sum(axis=0), rtol=1e-9, atol=1e-8)
    got = sj.lax.reshape(product, (shape[0] * shape[1], 5), format="csr")
    same_entries(got, flat)
