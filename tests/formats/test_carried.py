"""Values of one array at the entries of another, in every format whose levels are searched, beside what their dense forms say."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import Format, convert
from sparsejax.formats.parts import carried

NAMES = {
    2: ["csr", "csc", "dcsr", "dcsc", "coo", "(c,d)"],
    3: ["csf", "coo", "(d,d,c)", "(d,c,c)", "(c,d,c)", "(c,d,d)", "(c,c,d)", "(d,c,d)"],
    1: ["coo"],
}
CASES = [(ndim, name) for ndim, names in NAMES.items() for name in names]
pytestmark = pytest.mark.rotating(2)


def parsed(name, ndim):
    try:
        return Format.parse(name, ndim)
    except Exception:
        pytest.skip(f"{name} is no format of {ndim} dimensions")


@pytest.mark.parametrize("choose", ["auto", "passes=compiled", "passes=numpy"])
@pytest.mark.parametrize(("ndim", "name"), CASES)
def test_values_at_entries_of_another(ndim, name, choose):
    rng = np.random.default_rng(ndim)
    form, shape = parsed(name, ndim), (9, 7, 5)[:ndim]
    served = 0
    for share, other in itertools.product([0.0, 0.1, 0.5, 1.0], repeat=2):
        own, there = rng.random(shape) < share, rng.random(shape) < other
        for inside in (own & there, own):
            dense = np.where(inside, rng.integers(1, 9, shape), 0).astype(float)
            x, like = (convert.from_dense(a, form, 0.0) for a in (dense, there.astype(float)))
            with sj.config.using(choose=choose):
                made = carried.carried(x, like)
            if made is None:
                assert inside is own
                continue
            served += 1
            found = convert.to_dense(like.with_values(made, 0.0))
            np.testing.assert_array_equal(found, np.where(convert.to_dense(like) != 0, dense, found))
            np.testing.assert_array_equal(found[there], dense[there])
    assert served >= 16
