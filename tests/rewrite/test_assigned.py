"""Results whose memory is not cleared: every element is assigned, whatever stood there."""

import functools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, lax

FORMATS = ["csr", "csc", "coo", "dcsr", "lil", "ell", "groupcoo:2", "(d,b)", "(d,r)", "dense", "bsr:2x3"]
FUNCTIONS = {
    "product": lambda m, A, B, x: A @ x,
    "rows": lambda m, A, B, x: A.sum(axis=1),
    "columns": lambda m, A, B, x: A.sum(axis=0),
    "mapped": lambda m, A, B, x: m.exp(A @ x) + 1,
    "matrix": lambda m, A, B, x: A @ m.stack([x, x * 2, x + 1], axis=1),
    "tile": lambda m, A, B, x: A @ (x[:, None] * m.arange(40.0)),
    "both": lambda m, A, B, x: (A @ x) * (B @ x),
    "mapping": lambda m, A, B, x: m.exp(x) * x,
    "masked": lambda m, A, B, x: m.where(x > 0, x, 0) + A[0],
    "largest": lambda m, A, B, x: A.max(axis=1),
    "added": lambda m, A, B, x: (A + B) @ x,
    "outer": lambda m, A, B, x: (A @ x)[:, None] * x,
    "diagonal": lambda m, A, B, x: m.diag(A[:, :7]) * x[:7],
}


def operands(form, rng, rows=7, cols=11):
    matrices = []
    for other in (form, "csr"):
        dense = np.where(rng.random((rows, cols)) < 0.3, rng.integers(1, 5, (rows, cols)), 0).astype(float)
        dense[2] = 0
        matrices.append(sj.array(dense, format=other))
    return (*matrices, sj.array(rng.integers(-3, 4, cols).astype(float)))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("form", FORMATS)
def test_results_in_used_memory(form, name):
    """Memory that nobody clears is poisoned (`tests.poison`)."""
    args = operands(form, np.random.default_rng(3))
    made = sj.jit(functools.partial(FUNCTIONS[name], snp))(*args)
    np.testing.assert_allclose(made.todense(), FUNCTIONS[name](np, *(a.todense() for a in args)))


NOTHING = {
    "loop": lambda x: lax.while_loop(lambda c: c[1] < 0, lambda c: (c[0] + 1, c[1] + 1), (snp.zeros_like(x), 0))[0],
    "constant": lambda x: snp.zeros_like(x) + x.sum() * 0,
    "product": lambda x: (snp.diag(x).asformat("csr") * 0) @ x,
    "minima": lambda x: snp.minimum(x, snp.full_like(x, -np.inf)).min() + snp.zeros_like(x),
}


@pytest.mark.parametrize("chunks", ["each", "two", "usual"])
@pytest.mark.parametrize("name", NOTHING)
def test_zeros_are_written_too(name, chunks):
    """Where nothing is exhausted, kernels assign zeros to what nobody clears."""
    x = sj.array(np.arange(1.0, 5.0))
    expected = np.full(4, -np.inf) if name == "minima" else np.zeros(4)
    with config.using(choose=f"shapes=symbolic,donation=kept,chunks={chunks}", skip={"exhaust"}):
        np.testing.assert_array_equal(sj.jit(NOTHING[name])(x).todense(), expected)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("block", "rows", "columns", "stored"),
    [
        ("8x8", 256, 128, 0.3),
        ("8x8", 252, 128, 0.3),
        ("4x2", 200, 97, 0.5),
        ("32x32", 256, 128, 0.2),
        ("8x8", 256, 128, 0.0),
    ],
)
def test_rows_that_blocks_are_added_to_are_cleared_where_they_are_added(block, rows, columns, stored, threads):
    """Into poisoned memory, some rows of blocks being empty; where the last blocks stick out of the result, all of it is cleared before."""
    rng, height = np.random.default_rng(4), int(block.split("x")[0])
    kept = np.kron(rng.random((-(-rows // height), -(-rows // height))) < stored, np.ones((height, height)))
    kept[:height] = 0
    dense = np.where(kept[:rows, :rows] > 0, rng.integers(1, 5, (rows, rows)), 0).astype("f4")
    x = rng.integers(-3, 4, (rows, columns)).astype("f4")
    A = sj.array(dense, format=f"bsr:{block}")
    product = sj.jit(lambda A, x: A @ x)
    for fill in ("sums=block", "auto"):
        with sj.config.using(num_threads=threads, parallel_work=1, choose=fill):
            np.testing.assert_array_equal(product(A, x).todense(), dense @ x)


@pytest.mark.parametrize(
    ("form", "whole"), [("csr", True), ("coo", False), ("dcsr", False), ("csc", False), ("ell", True), ("(d,b)", True)]
)
def test_what_is_not_cleared(form, whole):
    """Rows that are counted are assigned one by one; where something sparse leads them, or columns come first, the rest is cleared."""
    A, _, x = operands(form, np.random.default_rng(3), 300, 11)
    product = sj.jit(lambda A, x: A @ x)
    product(A, x)
    runner = product._last.kernel
    assert (runner.plan(runner.observe([A.storage, x.storage])).binding._content is None) == whole
