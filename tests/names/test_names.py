"""The standard's names are all there, and names that users type do not go away."""

import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.scipy.sparse import linalg
from tests.names import table

TYPED = {
    "Array": (
        sj.Array,
        "data indices indptr coords eliminate_zeros prune sum_duplicates sort_indices getnnz getrow getcol setdiag tolil tobsr todia H mT "
        "block_until_ready device to_device itemsize matvec rmatvec matmat flags to_scipy __array_namespace__ __dlpack__ __dlpack_device__",
    ),
    "sj": (
        sj,
        "tree debug disable_jit pure_callback block_until_ready device_put clear_caches from_dlpack coo_array csr_array csc_array eye diags "
        "block_diag asarray save_npz load_npz __version__ interop",
    ),
    "snp": (
        snp,
        "block block_diag percentile quantile diff bincount histogram isin searchsorted atleast_1d atleast_2d interp digitize cov average "
        "cumprod argpartition partition meshgrid pad empty empty_like finfo nanstd nanprod nanquantile nanpercentile fft linalg",
    ),
    "lax": (
        sj.lax,
        "associative_scan select dynamic_slice dynamic_update_slice cumsum dot sort clamp iota custom_root custom_linear_solve rsqrt lgamma",
    ),
    "nn": (sj.nn, "layer_norm batch_norm initializers swish log_sigmoid"),
    "random": (sj.random, "PRNGKey choice categorical exponential gamma poisson gumbel truncated_normal sparse"),
    "linalg": (
        linalg,
        "bicgstab minres eigsh svds lobpcg splu spilu factorized spsolve_triangular expm_multiply lsqr onenormest norm LinearOperator",
    ),
}


@pytest.mark.parametrize("where", TYPED)
def test_names_that_users_type(where):
    module, names = TYPED[where]
    assert not [n for n in names.split() if not hasattr(module, n)]


def test_the_standard_is_complete():
    for part, module in (("main", snp), ("linalg", snp.linalg), ("fft", snp.fft)):
        assert not [n for n in table.STANDARD[part] if not hasattr(module, n)]


def test_members_have_docstrings():
    public = [n for n in dir(sj.Array) if not n.startswith("_")]
    assert not [n for n in public if not getattr(getattr(sj.Array, n), "__doc__", None)]
