"""Paths of contractions: one serves shapes of about the same extents, and results do not depend on that."""

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.lax import path


def test_new_shapes_find_their_path():
    rng = np.random.default_rng(0)

    def run(n, m):
        dense = [np.where(rng.random(s) < 0.2, rng.random(s), 0) for s in ((n, m), (m, n), (n, m))]
        made = snp.einsum("ij,jk,kl->il", *[sj.array(d, format="csr") for d in dense])
        np.testing.assert_allclose(made.todense(), dense[0] @ dense[1] @ dense[2], rtol=1e-12)

    run(60, 40)
    found = path.plan.cache_info().misses
    for n, m in [(59, 41), (33, 64), (64, 33), (50, 50)]:
        run(n, m)
    assert path.plan.cache_info().misses == found


def test_extents_of_one_and_none_are_told_apart():
    for n, m in [(0, 3), (1, 3), (3, 1), (2, 2), (3, 0)]:
        a, b = np.ones((n, m)), np.ones((m, n))
        made = snp.einsum("ij,jk->ik", sj.array(a, format="csr"), sj.array(b, format="csc"))
        np.testing.assert_array_equal(made.todense(), a @ b)


def test_blocks_beside_other_formats():
    """What has blocks keeps its extents while a path is typed, and what it meets keeps them, too."""
    rng = np.random.default_rng(0)
    x, y, z = (rng.normal(size=shape).round() for shape in ((30, 44), (44, 53), (53, 3)))
    for forms in (("bsr:2x2", "csr", "coo"), ("csr", "bsr:2x2", "csr"), ("dense", "csr", "bsr:2x2")):
        given = [sj.array(a, format=form) for a, form in zip((x, y, z), forms, strict=True)]
        for run in (snp.einsum, sj.jit(snp.einsum, static_argnums=0)):
            np.testing.assert_allclose(run("ij,jk,kl->il", *given).todense(), x @ y @ z)
