"""Programs as users type them. `mypy` (strict) reads this file with the package, `pyright` in test_typed.py; it runs, too."""

from typing import Any, assert_type

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import nn
from sparsejax.jit.function import JitFunction


def arrays() -> None:
    A = sj.array(sp.random_array((4, 4), density=0.5, format="csr"))
    x = np.ones(4)
    assert_type(A, sj.Array)
    assert_type(A @ x, sj.Array)
    assert_type(A @ A, sj.Array)
    assert_type(sj.asarray(x) @ A, sj.Array)
    assert_type(A + 1, sj.Array)
    assert_type(2 * A - A / 3, sj.Array)
    assert_type(-A, sj.Array)
    assert_type(abs(A), sj.Array)
    assert_type(A**2, sj.Array)
    assert_type(A > 1, sj.Array)
    assert_type(A == A, sj.Array)
    assert_type(A.T, sj.Array)
    assert_type(A[0], sj.Array)
    assert_type(A[1:, [0, 2]], sj.Array)
    assert_type(A.sum(axis=0), sj.Array)
    assert_type(A.asformat("csc"), sj.Array)
    assert_type(A.tocoo().astype("float32"), sj.Array)
    assert_type(A.todense(), NDArray[Any])
    assert_type(A.shape, tuple[int, ...])
    assert_type(A.nnz, int)
    assert_type(float(A.sum()), float)
    assert_type(A.at[0, 0].set(1.0), sj.Array)
    assert_type(list(A), list[sj.Array])


def functions() -> None:
    A = sj.eye(3, format="csr")
    assert_type(snp.exp(A), sj.Array)
    assert_type(snp.maximum(A, 0), sj.Array)
    assert_type(snp.sum(A, axis=1), sj.Array)
    assert_type(snp.where(A > 0, A, 1.0), sj.Array)
    assert_type(snp.linalg.norm(A), sj.Array)
    assert_type(snp.matmul(A, A, semiring="min_plus"), sj.Array)
    assert_type(sj.einsum("ij,jk->ik", A, A), sj.Array)
    assert_type(nn.softmax(A, axis=1), sj.Array)
    assert_type(sj.random.normal(sj.random.key(0), (3,)), sj.Array)
    assert_type(sj.prune(A, tol=0.1), sj.Array)


@sj.jit
def layer(A: sj.Array, H: sj.Array, W: sj.Array) -> sj.Array:
    return snp.maximum(A @ (H @ W), 0)


@sj.jit(static_argnames="n")
def power(A: sj.Array, n: int) -> sj.Array:
    for _ in range(n):
        A = A @ A
    return A


def loss(weights: dict[str, sj.Array], A: sj.Array) -> sj.Array:
    return snp.square(A @ weights["W"]).sum()


def times(x: sj.Array) -> sj.Array:
    return sj.eye(3, format="csr") @ x


def transformed() -> None:
    A = sj.eye(3, format="csr")
    assert_type(layer, JitFunction[sj.Array])
    assert_type(layer(A, np.ones((3, 2)), np.ones((2, 1))), sj.Array)  # arguments of NumPy's are welcome
    assert_type(power(A, n=2), sj.Array)
    value, slopes = sj.value_and_grad(loss)({"W": sj.asarray(np.ones((3, 2)))}, A)
    assert value.shape == () and slopes["W"].shape == (3, 2)
    assert_type(sj.vmap(times)(np.ones((5, 3))), sj.Array)
    text: str = layer.lower(A, np.ones((3, 2)), np.ones((2, 1))).as_text("loops")
    assert text


def main() -> None:
    arrays()
    functions()
    transformed()


if __name__ == "__main__":
    main()
