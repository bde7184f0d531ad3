"""Operations that are one function of NumPy's, at once and under `jit`, on shapes that change from call to call: results are right, and stay so."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

DTYPES = ["f8", "f4", "c16", "i8", "bool"]
PROGRAMS = {
    "product": (lambda xp, A, B, x: A @ B, "ab,bc"),
    "transposed left": (lambda xp, A, B, x: A.T @ B, "ba,bc"),
    "transposed right": (lambda xp, A, B, x: A @ B.T, "ab,cb"),
    "both transposed": (lambda xp, A, B, x: A.T @ B.T, "ba,cb"),
    "vector": (lambda xp, A, B, x: A @ x, "ab,bc"),
    "vector first": (lambda xp, A, B, x: x @ B, "ab,bc"),
    "dot": (lambda xp, A, B, x: x @ x, "ab,bc"),
    "outer": (lambda xp, A, B, x: xp.outer(x, x), "ab,bc"),
    "part": (lambda xp, A, B, x: A[:, 1:3], "ab,bc"),
    "several": (lambda xp, A, B, x: (A @ B) @ (B.T @ x), "ab,bc"),
}


def operands(rng, dtype, labels, sizes):
    made = []
    for term in labels.split(","):
        shape = tuple(sizes[n] for n in term)
        values = rng.integers(-3, 4, shape) + (1j * rng.integers(-3, 4, shape) if dtype == "c16" else 0)
        made.append(values.astype(dtype))
    x = rng.integers(-3, 4, sizes["b"]).astype(dtype)
    return (*made, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_that_change(name, dtype):
    program, labels = PROGRAMS[name]
    compiled, rng, held = sj.jit(lambda A, B, x: program(snp, A, B, x)), np.random.default_rng(0), []
    for k in range(14):
        # tiny results, those that have blocks of their own, and those beyond
        low, high = ((3, 9), (30, 90), (200, 300))[k % 3]
        sizes = {n: int(rng.integers(low, high)) for n in "abc"}
        given = operands(rng, dtype, labels, sizes)
        expected = program(np, *given)
        turned = [np.asfortranarray(a) for a in given] if k % 4 == 3 else list(given)
        arrays = [sj.array(a) for a in turned]
        for found in (program(snp, *arrays), compiled(*arrays), compiled(*turned)):
            held.append((found, np.array(expected)))
        for a in turned:
            a[...] = 0  # nobody reads operands of a call after it
        held = held[-int(rng.integers(1, 13)) :]
        for found, wanted in held:
            assert found.shape == wanted.shape and found.dtype == wanted.dtype
            np.testing.assert_array_equal(found.todense(), wanted)
