"""Products of many sparse operands: one intersection, entries only where all are stored."""

import numpy as np
import pytest

import sparsejax as sj


@pytest.mark.parametrize("count", [3, 4, 6])
@pytest.mark.parametrize("fill", [0.0, np.inf])
def test_products_of_many_operands_are_intersections(count, fill):
    rng = np.random.default_rng(0)
    masks = [rng.random((6, 7)) < 0.7 for _ in range(count)]
    dense = [np.where(m, rng.random((6, 7)) + 1, 0.0) for m in masks]
    arrays = [sj.array(d, format="csr") for d in dense]
    arrays[1:2] = [sj.lax.refill(arrays[1], fill)]  # what it lacks is annihilated by the others

    def product(*xs):
        made = xs[0]
        for x in xs[1:]:
            made = made * x
        return made

    made = sj.jit(product)(*arrays)
    stored = np.logical_and.reduce([m for k, m in enumerate(masks) if k != 1 or fill == 0])
    assert made.nnz == stored.sum() and str(made.format) == "csr"
    both = masks[1] & stored
    np.testing.assert_allclose(made.todense()[both], np.prod(dense, axis=0)[both])
