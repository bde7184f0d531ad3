"""Sums over variables of their own in one kernel are priced, and run, one beside the other."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp


def cost(function, *args):
    text = str(sj.explain(sj.jit(function))(*args))
    (line,) = [row for row in text.splitlines() if row.strip().startswith("* ")]
    return float(line.split(":")[1].split("=")[0])


@pytest.mark.parametrize("entries", [300, 5000])
def test_two_sums_cost_what_both_do(entries):
    x = np.zeros(3 * entries)
    x[:entries] = np.random.default_rng(0).random(entries)
    p = sj.array(x, format="coo")

    def count(p):
        return sj.einsum("i,->", p, 1.0, semiring="plus_second")

    def total(p):
        return sj.einsum("i,->", p, 1.0, semiring="plus_first")

    both = cost(lambda p: total(p) / snp.maximum(count(p), 1), p)
    assert both < 2 * (cost(count, p) + cost(total, p))
    made = sj.jit(lambda p: total(p) / snp.maximum(count(p), 1))(p)
    np.testing.assert_allclose(made.item(), x.sum() / entries, rtol=1e-12)
