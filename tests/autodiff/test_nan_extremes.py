"""Gradients of extremes beside a NaN: the first NaN is the extreme, as `argmax` says, whatever the format."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp


def _values(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    made = np.round(rng.normal(size=(5, 7)) * 2) * (rng.random((5, 7)) < 0.6)
    made[rng.random((5, 7)) < 0.15] = np.nan
    return made


def _expected(x: np.ndarray, kind: str, axis: int | None) -> np.ndarray:
    """1 at the first extreme of each line where that is NaN."""
    first = (np.argmax if kind == "max" else np.argmin)(x, axis=axis)
    made = np.zeros_like(x)
    if axis is None:
        made.flat[first] = 1
    else:
        np.put_along_axis(made, np.expand_dims(first, axis), 1.0, axis)
    return made


@pytest.mark.parametrize("format", ["dense", "csr", "csc", "coo", "dcsr"])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_reductions(format: str, kind: str, axis: int | None) -> None:
    reduced = getattr(snp, kind)

    def total(x: object) -> object:
        return reduced(x, axis=axis).sum()

    for seed in range(4):
        x = _values(seed)
        sick = np.isnan(getattr(np, kind)(x, axis=axis, keepdims=True)) & np.ones(x.shape, bool)
        assert sick.any()
        for grad in (sj.grad(total), sj.jit(sj.grad(total))):
            got = np.asarray(grad(sj.array(x, format=format)).todense())
            np.testing.assert_array_equal(got[sick], _expected(x, kind, axis)[sick])


@pytest.mark.parametrize("semiring", ["max_plus", "min_plus"])
def test_semirings(semiring: str) -> None:
    a, b = np.array([[1.0, np.nan, 2.0], [3.0, 1.0, 2.0]]), np.zeros((3, 1))
    got = sj.grad(lambda a: snp.matmul(a, sj.array(b), semiring=semiring).sum())(sj.array(a))
    healthy = [1.0, 0.0, 0.0] if semiring == "max_plus" else [0.0, 1.0, 0.0]
    np.testing.assert_array_equal(got, [[0.0, 1.0, 0.0], healthy])


@pytest.mark.parametrize("function", [snp.maximum, snp.minimum])
def test_elementwise(function: object) -> None:
    x = np.array([np.nan, 3.0, 1.0, 1.0, np.nan, np.inf])
    y = np.array([2.0, 2.0, 2.0, np.nan, np.nan, np.nan])
    left, right = sj.grad(lambda x, y: function(x, y).sum(), argnums=(0, 1))(sj.array(x), sj.array(y))
    expected = [1.0, *([1.0, 0.0] if function is snp.maximum else [0.0, 1.0]), 0.0, 1.0, 0.0]
    np.testing.assert_array_equal(left, expected)
    np.testing.assert_array_equal(right, 1 - np.array(expected))
    numbers = sj.grad(lambda x, y: function(x, y), argnums=(0, 1))(1.0, np.nan)
    np.testing.assert_array_equal(numbers, [0.0, 1.0])
