"""How full levels are, as plans for many shapes see it, against a count level by level."""

import math

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.jit.cost import statistics


def counted(storage):
    rates, above = [], 1.0
    for level, count in zip(storage.format.levels, statistics.exact_positions(storage), strict=False):
        share = max(count, 1.0) / max(above, 1.0)
        rates.append(0.0 if level.full else 4.0 ** round(math.log(share, 4)))
        above = count
    return tuple(rates)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "bsr:2x3", "(d,c)@(1,0)", "(b,d)", "ell"])
@pytest.mark.parametrize("density", [0.0, 0.1, 0.9])
def test_rates(form, density):
    rng = np.random.default_rng(3)
    dense = rng.standard_normal((21, 34)) * (rng.random((21, 34)) < density)
    storage = sj.array(dense, format=form).storage
    assert statistics.rates(storage) == counted(storage)
