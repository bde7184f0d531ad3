"""Complex arithmetic in SIMD lanes: real and imaginary parts in a vector each. What is computed is what NumPy computes, at every extent."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz import engine

DTYPES = ["c8", "c16"]
EXTENTS = [1, 3, 4, 21, 70]
"""One lane, a narrow vector, a vector, a strip with all rests, several strips."""


@pytest.fixture(scope="module", autouse=True)
def quick():
    with engine.quick():
        yield


def numbers(rng, shape, dtype):
    parts = rng.standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]).astype(dtype)


def sparse(rng, shape, dtype, form):
    dense = numbers(rng, shape, dtype) * (rng.random(shape) < 0.4)
    return sj.array(dense, format=form), dense


def check(function, plain, *operands):
    made = sj.jit(function)(*(a for a, _ in operands))
    expected = plain(*(x for _, x in operands))
    made = made.todense() if isinstance(made, sj.Array) else made
    assert made.dtype == expected.dtype
    single = expected.dtype.itemsize <= 8
    np.testing.assert_allclose(made, expected, rtol=1e-5 if single else 1e-12, atol=1e-4 if single else 1e-11)


@pytest.mark.parametrize("k", EXTENTS)
@pytest.mark.parametrize(("left", "right"), [("c16", "f8"), ("f8", "c16"), ("c16", "c16"), ("c8", "f4"), ("c8", "c8")])
def test_products_with_dense_matrices(left, right, k):
    rng = np.random.default_rng(k)
    A, H = sparse(rng, (9, 8), left, "csr"), numbers(rng, (8, k), right)
    check(lambda A, H: A @ H, lambda a, h: a @ h, A, (H, H))
    C = sparse(rng, (8, 9), left, "csc")
    check(lambda A, H: A.T @ H, lambda a, h: a.T @ h, C, (H, H))


@pytest.mark.parametrize("k", EXTENTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_chains(dtype, k):
    rng = np.random.default_rng(k)
    x, y = numbers(rng, (3, k), dtype), numbers(rng, (3, k), dtype)

    def chain(x, y):
        return snp.where(x.real > 0, x * snp.conj(y) - x / (y + 3), -x) + y.imag * 2

    def plain(x, y):
        return np.where(x.real > 0, x * np.conj(y) - x / (y + 3), -x) + y.imag * np.array(2, y.real.dtype)

    check(chain, plain, (x, x), (y, y))
    check(lambda x, y: (x * y).sum(axis=1), lambda x, y: (x * y).sum(axis=1), (x, x), (y, y))
    check(lambda x, y: snp.prod(x + y, axis=1), lambda x, y: (x + y).prod(axis=1), (x, x), (y, y))
    check(lambda x, y: snp.max(x, axis=1) == snp.min(y, axis=1), lambda x, y: x.max(1) == y.min(1), (x, x), (y, y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_calls_of_the_c_library_stay_single(dtype):
    rng = np.random.default_rng(0)
    x = numbers(rng, (2, 21), dtype)
    check(lambda x: snp.exp(x) * abs(x) + snp.sqrt(x), lambda x: np.exp(x) * abs(x) + np.sqrt(x), (x, x))


@pytest.mark.parametrize("form", ["csr", "coo", "dcsr", "csf"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_stored_values_side_by_side(dtype, form):
    rng = np.random.default_rng(1)
    shape = (4, 5, 30) if form == "csf" else (5, 60)
    A = sparse(rng, shape, dtype, form)
    check(lambda A: A * (2 + 1j) - A.conj(), lambda a: (a * (2 + 1j) - a.conj()).astype(dtype), A)


@pytest.mark.parametrize("dtype", DTYPES)
def test_partial_outputs_are_combined(dtype):
    rng = np.random.default_rng(2)
    A, H = sparse(rng, (40, 7), dtype, "csr"), numbers(rng, (40, 9), dtype)
    with sj.config.using(parallel_work=0):
        check(lambda A, H: A.T @ H, lambda a, h: a.T @ h, A, (H, H))


@pytest.mark.parametrize(("dtype", "scalar", "lanes"), [("c16", "double", 4), ("c8", "float", 8)])
def test_kernels_have_lanes(dtype, scalar, lanes):
    A, H = sj.array(np.eye(4, dtype=dtype), format="csr"), np.ones((4, 32), dtype)
    text = sj.jit(lambda A, H: A @ H).lower(A, H).as_text("llvm")
    assert f"fmul contract <{lanes} x {scalar}>" in text or f"fmul reassoc contract <{lanes} x {scalar}>" in text
    assert f"load <{2 * lanes} x {scalar}>" in text
