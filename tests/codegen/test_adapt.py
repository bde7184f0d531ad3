"""Unordered levels are looked up only where nothing is left to do without what is walked."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp


def arrays():
    rng = np.random.default_rng(0)
    return [rng.random((5, 5)) * (rng.random((5, 5)) < 0.5) for _ in range(2)]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            lambda h, s: snp.exp((h * s).sum(axis=1)),
            lambda h, s: np.exp((h * s).sum(axis=1)),
        ),  # 1 where both are absent
        (lambda h, s: (h * s).max(axis=1), lambda h, s: (h * s).max(axis=1)),
        (lambda h, s: sj.einsum("ij,ij->i", h, s, semiring="min_plus"), lambda h, s: _least(h, s)),
    ],
    ids=["exp", "max", "min_plus"],
)
def test_a_hashed_operand_beside_a_reduction(ours, theirs):
    H, S = arrays()
    made = sj.jit(ours)(sj.array(H, format="(h,c)"), sj.array(S, format="dcsr"))
    np.testing.assert_allclose(made.todense(), theirs(H, S))


def _least(h, s):
    return np.where((h != 0) & (s != 0), h + s, np.inf).min(axis=1)


def test_a_diagonal_is_walked_by_its_outermost_level():
    H, S = arrays()
    text = "i,ii->"
    made = sj.einsum(text, sj.array(H[0], format="(h)"), sj.array(S, format="(d,c)", copy=True), semiring="plus_times")
    np.testing.assert_allclose(made.todense(), (H[0] * np.diag(S)).sum())
