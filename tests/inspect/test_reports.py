"""Ahead-of-time reports: cost_analysis, memory_analysis, and why a call traced anew."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config

RNG = np.random.default_rng(0)
M, N, K = 60, 50, 12
A = sp.random_array((M, N), density=0.1, format="csr", random_state=RNG)
B = sp.random_array((N, M), density=0.1, format="csr", random_state=RNG)
X = RNG.random((N, K))


def lowered(function, *args):
    return sj.jit(function).lower(*args)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr"])
def test_operations_of_products_are_exact(form):
    a = sj.array(A, format=form, copy=True)
    assert lowered(lambda a, x: a @ x, a, X).cost_analysis()["flops"] == 2 * A.nnz * K
    assert lowered(lambda a, x: a @ x, a, X[:, 0]).cost_analysis()["flops"] == 2 * A.nnz


def test_operations_of_elementwise_functions():
    assert lowered(lambda x: snp.maximum(x * 2, 1), X).cost_analysis()["flops"] == 2 * X.size
    a = sj.array(A, copy=True)
    y = RNG.random((M, N))
    assert lowered(lambda a, y: a * 2 * y, a, y).cost_analysis()["flops"] == 2 * A.nnz


def test_operations_of_dense_products_and_of_consumers():
    y = RNG.random((K, 7))
    assert lowered(lambda x, y: x @ y, X, y).cost_analysis()["flops"] == 2 * N * K * 7
    a = sj.array(A, copy=True)
    layer = lowered(lambda a, x, y: snp.maximum(a @ (x @ y), 0), a, X, y).cost_analysis()
    assert layer["flops"] == 2 * N * K * 7 + 2 * A.nnz * 7 + M * 7
    assert layer["entries"] == M * 7


def test_sampled_products_follow_the_mask():
    u, v = RNG.random((M, K)), RNG.random((N, K))
    found = lowered(lambda a, u, v: a * (u @ v.T), sj.array(A, copy=True), u, v).cost_analysis()
    assert A.nnz * 2 * K <= found["flops"] <= A.nnz * (2 * K + 2)
    assert found["entries"] == A.nnz


def test_sparse_products_are_forecast():
    a, b = sj.array(A, copy=True), sj.array(B, copy=True)
    found = lowered(lambda a, b: a @ b, a, b).cost_analysis()
    products = float((np.bincount(A.indices, minlength=N) * np.diff(B.indptr)).sum())
    entries = (a @ b).nnz
    assert 0.7 * entries <= found["entries"] <= 1.4 * entries
    assert 0.7 * 2 * products <= found["flops"] <= 1.4 * 2 * products


def test_bytes_of_a_product():
    a = sj.array(A, format="csr", copy=True)
    work = lowered(lambda a, x: a @ x, a, X)
    inputs, output = a.storage.nbytes + X.nbytes, M * K * 8
    assert work.cost_analysis()["bytes accessed"] == inputs + output
    compiled = work.compile()
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == inputs and memory.output_size_in_bytes == output
    assert memory.peak_memory_in_bytes == inputs + output + memory.temp_size_in_bytes
    assert memory.temp_size_in_bytes <= 8 * K
    assert compiled.cost_analysis() == work.cost_analysis()


def test_intermediates_and_workspaces_are_temporary():
    a, y = sj.array(A, copy=True), RNG.random((K, 7))
    memory = lowered(lambda a, x, y: a @ (x @ y), a, X, y).compile().memory_analysis()
    assert N * 7 * 8 <= memory.temp_size_in_bytes <= N * 7 * 8 + 8 * 7  # x @ y, and at most a row
    b = sj.array(B, copy=True)
    found = lowered(lambda a, b: a @ b, a, b).compile().memory_analysis().temp_size_in_bytes
    explained = sj.explain(lambda a, b: a @ b)(a, b).kernels[0].memory
    assert explained.workspaces > 0 and found == explained.workspaces + explained.conversions


def test_views_cost_nothing():
    found = lowered(lambda a: a.T, sj.array(A, copy=True))
    assert found.cost_analysis()["flops"] == found.cost_analysis()["bytes accessed"] == 0
    assert found.compile().memory_analysis().temp_size_in_bytes == 0


def test_types_have_no_costs():
    work = lowered(lambda a, x: a @ x, sj.ShapeDtypeStruct((M, N), "f8", format="csr"), X)
    with pytest.raises(ValueError, match="lower with arrays"):
        work.cost_analysis()
    with pytest.raises(ValueError, match="arrays instead of types"):
        work.compile().memory_analysis()


@pytest.fixture
def explained(caplog):
    config.update("explain_cache_misses", True)

    def last(function, *args, **kwargs):
        caplog.clear()
        function(*args, **kwargs)
        return [r.message for r in caplog.records]

    yield last
    config.update("explain_cache_misses", False)


def test_misses_name_argument_and_part(explained):
    @sj.jit
    def scaled(a, x):
        return a * x

    a = sj.array(A, format="csr", copy=True)
    x = np.ones(N)
    assert explained(scaled, a, x) == ["scaled is traced for the first time"]
    assert explained(scaled, a, x) == []
    (message,) = explained(scaled, a, x.astype("f4"))
    assert "traced anew: argument 1 is f32[50:d] instead of f64[50:d] (dtype)" in message
    (message,) = explained(scaled, a.asformat("csc"), x)
    assert "argument 0 is" in message and "(format)" in message and "argument 1" not in message
    (message,) = explained(scaled, sj.array(A[:9], format="csr", copy=True), x)
    assert "(shape)" in message
    (message,) = explained(scaled, a, 2.0)
    assert "argument 1" in message and "weak type" in message


def test_misses_of_structures_and_static_arguments(explained):
    f = sj.jit(lambda tree, n, k=1: tree["x"] * n * k, static_argnums=1, static_argnames="k")
    x = np.ones(3)
    explained(f, {"x": x}, 2)
    (message,) = explained(f, {"x": x}, 3)
    assert "static argument 1 is 3 instead of 2" in message
    (message,) = explained(f, {"x": x}, 2, k=5)
    assert "static argument 'k'" in message
    (message,) = explained(f, {"x": np.ones(4)}, 2)
    assert "argument 0['x'] is f64[4:d] instead of f64[3:d] (shape)" in message
    (message,) = explained(f, {"x": x, "y": x}, 2)
    assert "there are 2 arrays instead of 1" in message


def test_misses_are_compared_with_the_closest_signature(explained):
    f = sj.jit(lambda x, y: x * y)
    explained(f, np.ones(3), np.ones(3))
    explained(f, np.ones(4, "f4"), np.ones(4, "f4"))
    (message,) = explained(f, np.ones(3), np.ones(3, "f4"))
    assert "argument 1 is f32[3:d] instead of f64[3:d] (dtype)" in message and "argument 0" not in message
    assert "2 signatures" in message


def test_nothing_is_logged_without_the_flag(caplog):
    sj.jit(lambda x: x + 1)(np.ones(3))
    assert not caplog.records
