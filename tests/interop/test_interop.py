"""Round trips against the libraries themselves, and what they cannot hold."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sparsejax as sj
from sparsejax import interop
from sparsejax.errors import FormatError
from tests import rotation
from tests.formats.strategies import NAMED
from tests.io.support import random_matrix, same_values, sparse_arrays

pytestmark = pytest.mark.rotating(8)

ZERO = (0,)


def sparse_ones(**how):
    return sparse_arrays(fills=ZERO, **how).filter(lambda x: x.dtype != np.uint64)


def shares(a, b):
    return np.shares_memory(np.asarray(a), np.asarray(b))


# ------------------------------------------------------------------------------------------------------------- torch


@given(sparse_ones(), st.sampled_from([None, True, False]))
@settings(max_examples=rotation.examples(80), deadline=None)
def test_torch_round_trip(x, copy):
    pytest.importorskip("torch")
    tensor = interop.to_torch(x, copy=copy)
    dense = tensor.to_dense() if tensor.layout != 0 else tensor
    if (
        np.isfinite(x.todense()).all() or x.dtype.kind != "c"
    ):  # torch makes infinities NaN where it fills a complex array
        np.testing.assert_array_equal(dense.numpy(), x.todense())
    back = interop.from_torch(tensor, format=x.format)
    same_values(back, x)
    assert back.dtype == x.dtype


@pytest.mark.parametrize("name", NAMED)
def test_torch_layouts(name):
    torch = pytest.importorskip("torch")
    dense = random_matrix(np.random.default_rng(0), (6, 9), "f4")
    tensor = interop.to_torch(sj.array(dense, format=name))
    layouts = {"csr": torch.sparse_csr, "csc": torch.sparse_csc, "bsr:2x3": torch.sparse_bsr, "dense": torch.strided}
    assert tensor.layout == layouts.get(name, torch.sparse_coo)
    np.testing.assert_array_equal(tensor.to_dense().numpy(), dense)
    (tensor @ torch.ones(9, 2)) if name not in ("bsr:2x3",) else None  # a tensor that works
    back = interop.from_torch(tensor)
    same_values(back, dense)
    assert str(back.format) == (name if name in layouts else "coo")


def test_torch_own_tensors():
    torch = pytest.importorskip("torch")
    dense = torch.tensor(random_matrix(np.random.default_rng(1), (4, 6), "f8"))
    for tensor in (
        dense.to_sparse_csr(),
        dense.to_sparse_csc(),
        dense.to_sparse_coo(),
        dense.to_sparse_bsr((2, 3)),
        dense.to_sparse_bsc((2, 3)),
    ):
        same_values(interop.from_torch(tensor), dense.numpy())
        same_values(interop.from_torch(tensor, format="dcsr"), dense.numpy())
    doubled = torch.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [1.0, 2.0, 3.0], (2, 3), requires_grad=True)
    assert interop.from_torch(doubled).todense()[1, 2] == 4
    hybrid = torch.sparse_coo_tensor([[2, 0, 2]], torch.arange(6.0).reshape(3, 2), (3, 2))
    for copy in (None, True):
        made = interop.from_torch(hybrid, copy=copy)
        assert str(made.format) == "(q,d)@(0,1)"
        same_values(made, hybrid.to_dense().numpy())
    with pytest.raises(ValueError, match="copy=None"):
        interop.from_torch(hybrid, copy=False)
    assert interop.to_torch(made).dense_dim() == 1
    view = dense.T[::2]
    same_values(interop.from_torch(view), view.numpy())


def test_torch_memory():
    torch = pytest.importorskip("torch")
    A = sj.array(np.diag([1.0, 2.0, 3.0]), format="csr")
    assert shares(interop.to_torch(A, copy=False).values(), A.storage.vals)
    for copy in (None, True):
        tensor = interop.to_torch(A, copy=copy)
        tensor.values()[0] = 7
        assert A.todense()[0, 0] == 1
        B = interop.from_torch(tensor, copy=copy)
        tensor.values()[0] = 8
        assert B.todense()[0, 0] == 7
    assert shares(interop.from_torch(tensor, copy=False).storage.vals, tensor.values())
    dense = torch.ones(3, 4)
    assert shares(interop.from_torch(dense, copy=False).storage.vals, dense)


def test_what_torch_cannot_hold():
    torch = pytest.importorskip("torch")
    with pytest.raises(FormatError, match="fill 1"):
        interop.to_torch(sj.array(np.eye(2), format="csr", fill_value=1))
    with pytest.raises(FormatError, match=r"\.float\(\)"):
        interop.from_torch(torch.ones(2, dtype=torch.bfloat16))
    with pytest.raises(FormatError, match="batches"):
        interop.from_torch(torch.ones(2, 3, 4).to_sparse_csr())


# --------------------------------------------------------------------------------------------------------------- jax


@given(sparse_arrays(fills=ZERO))
@settings(max_examples=rotation.examples(60), deadline=None)
def test_jax_round_trip(x):
    jax = pytest.importorskip("jax")
    with jax.experimental.enable_x64() if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(True):
        made = interop.to_jax(x)
        counted = (
            made.astype("int8") if x.dtype == np.bool_ and hasattr(made, "todense") else made
        )  # JAX adds no booleans
        dense = counted.todense() if hasattr(made, "todense") else made
        np.testing.assert_array_equal(np.asarray(dense), x.todense())
        back = interop.from_jax(made, format=x.format)
    same_values(back, x)
    assert back.dtype == x.dtype


def test_jax_own_arrays():
    pytest.importorskip("jax")
    from jax.experimental import sparse

    dense = random_matrix(np.random.default_rng(1), (4, 6), "f4")
    padded = sparse.BCOO.fromdense(dense, nse=30)
    same_values(interop.from_jax(padded), dense)
    same_values(interop.from_jax(sparse.BCSR.from_bcoo(padded)), dense)
    hybrid = sparse.BCOO.fromdense(dense, n_dense=1)
    made = interop.from_jax(hybrid)
    assert str(made.format) == "(q,d)@(0,1)" and interop.to_jax(made).n_dense == 1
    same_values(made, dense)
    same_values(
        interop.from_jax(
            sparse.BCOO(hybrid._bufs if hasattr(hybrid, "_bufs") else (hybrid.data, hybrid.indices), shape=hybrid.shape)
        ),
        dense,
    )
    with pytest.raises(FormatError, match="n_batch=0"):
        interop.from_jax(sparse.BCOO.fromdense(dense, n_batch=1))


def test_jax_memory_and_what_it_cannot_hold():
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(8.0)
    same_values(interop.from_jax(x), np.arange(8, dtype="f4"))
    assert shares(interop.from_jax(x).storage.vals, x) and not shares(interop.from_jax(x, copy=True).storage.vals, x)
    if not jax.config.jax_enable_x64:
        with pytest.raises(FormatError, match="jax_enable_x64"):
            interop.to_jax(sj.array(np.eye(2), format="csr"))
        with pytest.raises(FormatError, match="64 bits"):
            interop.to_jax(sj.array(([1.0], [[5]]), shape=(2**40,), dtype="f4"))
    with pytest.raises(FormatError, match="fill 1"):
        interop.to_jax(sj.array(np.eye(2, dtype="f4"), format="csr", fill_value=1))


# ------------------------------------------------------------------------------------------------------ pydata/sparse


@given(sparse_arrays(), st.sampled_from([None, True, False]))
@settings(max_examples=rotation.examples(60), deadline=None)
def test_pydata_round_trip(x, copy):
    pytest.importorskip("sparse")
    made = interop.to_pydata(x, copy=copy)
    np.testing.assert_array_equal(made.todense(), x.todense())
    back = interop.from_pydata(made, format=x.format)
    same_values(back, x)
    assert back.dtype == x.dtype and (x.format.is_dense or str(back.fill_value) == str(x.fill_value))


def test_pydata_own_arrays():
    sparse = pytest.importorskip("sparse")
    dense = random_matrix(np.random.default_rng(2), (3, 4, 5), "f8")
    for array in (sparse.COO.from_numpy(dense), sparse.GCXS.from_numpy(dense), sparse.DOK.from_numpy(dense)):
        same_values(interop.from_pydata(array), dense)
    for axis, name in ((0, "csr"), (1, "csc")):
        array = sparse.GCXS.from_numpy(dense[0], compressed_axes=(axis,))
        made = interop.from_pydata(array, copy=False)
        assert str(made.format) == name and shares(made.storage.vals, array.data)
        assert isinstance(interop.to_pydata(made), sparse.GCXS)
    with pytest.raises(TypeError, match="COO"):
        interop.from_pydata(dense)


# --------------------------------------------------------------------------------------------------------- graphblas


@given(sparse_arrays(max_ndim=2, fills=ZERO).filter(lambda x: min(x.shape, default=1) > 0 and x.dtype != np.complex64))
@settings(max_examples=rotation.examples(60), deadline=None)
def test_graphblas_round_trip(x):
    graphblas = pytest.importorskip("graphblas")
    made = interop.to_graphblas(x)
    assert x.format.is_dense or made.nvals == x.nnz
    if x.ndim:
        np.testing.assert_array_equal(made.to_dense(fill_value=0), x.todense())
    assert isinstance(made, (graphblas.Scalar, graphblas.Vector, graphblas.Matrix)[x.ndim])
    back = interop.from_graphblas(made, format=x.format)
    same_values(back, x)
    assert back.dtype == x.dtype


def test_graphblas_fills_and_shapes():
    graphblas = pytest.importorskip("graphblas")
    roads = sj.array(np.where(np.eye(3, k=1), 2.5, np.inf), format="csr", fill_value=np.inf)
    with pytest.raises(FormatError, match="fill inf"):
        interop.to_graphblas(roads)
    made = interop.to_graphblas(roads, drop_fill=True)
    assert made.nvals == 2
    same_values(interop.from_graphblas(made, fill_value=np.inf), roads)
    huge = graphblas.Matrix.from_coo([2**50], [3], [1.5], nrows=2**55, ncols=2**55)
    assert interop.from_graphblas(huge).nnz == 1
    with pytest.raises(FormatError, match="3 dimensions"):
        interop.to_graphblas(np.zeros((2, 2, 2)))
    assert str(interop.from_graphblas(interop.to_graphblas(sj.array(np.eye(3), format="csc"))).format) == "csc"


# ---------------------------------------------------------------------------------------------------------- networkx


@given(
    sparse_arrays(min_ndim=2, max_ndim=2, fills=ZERO).filter(lambda x: x.shape[0] == x.shape[1] and x.dtype != np.bool_)
)
@settings(max_examples=rotation.examples(40), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_networkx_round_trip(x):
    networkx = pytest.importorskip("networkx")
    graph = interop.to_networkx(x)
    assert graph.number_of_nodes() == x.shape[0]
    if x.shape[0]:
        np.testing.assert_array_equal(networkx.to_numpy_array(graph, dtype=x.dtype), x.todense())
    same_values(interop.from_networkx(graph, dtype=x.dtype, format=x.format), x)


def test_networkx_own_graphs():
    networkx = pytest.importorskip("networkx")
    graph = networkx.karate_club_graph()
    A = interop.from_networkx(graph)
    np.testing.assert_array_equal(A.todense(), networkx.to_numpy_array(graph))
    assert (interop.from_networkx(graph, weight=None).todense() == (A.todense() != 0)).all()
    order = list(graph)[::-1]
    np.testing.assert_array_equal(interop.from_networkx(graph, nodelist=order).todense(), A.todense()[::-1, ::-1])
    back = interop.to_networkx(A, create_using=networkx.Graph)
    assert networkx.is_isomorphic(back, networkx.Graph(graph.edges))
    for x, message in [(np.zeros((2, 3)), "square"), (sj.array(np.eye(2), format="csr", fill_value=1), "fill 1")]:
        with pytest.raises(FormatError, match=message):
            interop.to_networkx(x)


# ------------------------------------------------------------------------------------------------------------ pandas


@given(sparse_arrays(min_ndim=1, max_ndim=2).filter(lambda x: x.dtype.kind != "c" and min(x.shape) > 0))
@settings(max_examples=rotation.examples(60), deadline=None)
def test_pandas_round_trip(x):
    pandas = pytest.importorskip("pandas")
    table = interop.to_pandas(x)
    assert isinstance(table, (pandas.Series, pandas.DataFrame)[x.ndim - 1])
    np.testing.assert_array_equal(np.asarray(table), x.todense())
    back = interop.from_pandas(table, format=x.format)
    same_values(back, x)
    assert back.dtype == x.dtype


def test_long_tables():
    pandas = pytest.importorskip("pandas")
    dense = random_matrix(np.random.default_rng(3), (3, 4, 5), "f8")
    table = interop.to_pandas(sj.array(dense, format="csf"))
    assert list(table.columns) == ["dim_0", "dim_1", "dim_2", "value"]
    back = interop.from_pandas(
        table.sample(frac=1, random_state=0),
        coords=["dim_0", "dim_1", "dim_2"],
        values="value",
        shape=(3, 4, 5),
        format="csf",
    )
    same_values(back, dense)
    with pytest.raises(FormatError, match="both"):
        interop.from_pandas(table, coords=["dim_0"])
    with pytest.raises(FormatError, match="fill 1"):
        interop.to_pandas(sj.array(np.ones((2, 2, 2)), format="csf", fill_value=1))
    with pytest.raises(FormatError, match="zero dimensions"):
        interop.to_pandas(np.float64(1))
    mixed = pandas.DataFrame(
        {"a": pandas.arrays.SparseArray([0.0, 1]), "b": pandas.arrays.SparseArray([1.0, 2], fill_value=1.0)}
    )
    with pytest.raises(FormatError, match="different fills"):
        interop.from_pandas(mixed)
    blocks = pandas.DataFrame(
        {"a": pandas.arrays.SparseArray([0.0, 1, 2, 0], kind="block"), "b": pandas.arrays.SparseArray([0.0, 0, 0, 3])}
    )
    same_values(interop.from_pandas(blocks), blocks.to_numpy())


def test_libraries_that_are_missing_are_named(monkeypatch):
    import importlib

    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"sparsejax\[interop\]"):
        interop.to_torch(np.eye(2))
    with pytest.raises(ImportError, match=r"sparsejax\[files\]"):
        sj.io.read_binsparse("a.h5")
