"""Products of two dense arrays that one function of NumPy's computes, against `numpy.einsum`."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

SUBSCRIPTS = (
    "i,i->",
    "i,->i",
    ",i->i",
    ",->",
    "i,j->ij",
    "i,j->ji",
    "ij,i->ij",
    "ij,j->ji",
    "i,kij->jik",
    "ij,ij->ji",
    "ij,ji->ij",
    "ij,jk->ki",
)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
@pytest.mark.parametrize("dtype", ["f8", "f4", "c16", "i4", "?"])
def test_products(subscripts, dtype):
    rng = np.random.default_rng(5)
    for extents in ({"i": 3, "j": 4, "k": 2}, {"i": 1, "j": 5, "k": 1}, {"i": 0, "j": 2, "k": 3}):
        left, right = (
            np.asarray(rng.integers(-3, 4, tuple(extents[x] for x in labels))).astype(dtype)
            for labels in subscripts.split("->")[0].split(",")
        )
        want = np.einsum(subscripts, left, right)
        for a, b in (
            (left, right),
            (left.copy(order="F"), right),
            (left, right.astype("f8" if dtype == "f4" else dtype)),
        ):
            for run in (snp.einsum, sj.jit(snp.einsum, static_argnums=0)):
                got = run(subscripts, a, b)
                assert got.shape == want.shape and got.dtype == np.einsum(subscripts, a, b).dtype
                np.testing.assert_allclose(got.todense(), want, rtol=1e-6)
