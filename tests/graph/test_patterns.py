"""What is stored depends on what the operands store: not on conversions, loop orders or library calls on the way."""

import random

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.core.array import Array
from sparsejax.formats import Dense, Format, convert
from sparsejax.jit.ir import cin
from sparsejax.jit.schedule import concordant
from tests.fuzz import definitions, engine, semirings
from tests.fuzz.levels import INPUTS, OUTPUTS, random_format


def trailing(form):
    """The dimensions stored below all sparse levels alone."""
    last = max((k for k, level in enumerate(form.levels) if not isinstance(level, Dense)), default=-1)
    return {d for d in form.order[last + 1 :] if d not in form.order[: last + 1]}


@pytest.mark.parametrize("seed", range(100))
def test_entries_survive_the_loss_of_blocks(seed):
    rng = random.Random(seed)
    form = random_format(rng, 3, OUTPUTS, [rng.choice((1, 2, 3)) for _ in range(3)])
    nrng = np.random.default_rng(seed)
    coords = np.array(np.nonzero(nrng.random((3, 4, 5)) < 0.3))
    given = convert.from_coords(coords, nrng.random(coords.shape[1]), (3, 4, 5), form, 0.0)
    made = convert.convert(given, form.unblocked())
    assert not made.format.blocked
    before, after = (set(zip(*convert.to_coords(s)[0].tolist(), strict=True)) for s in (given, made))
    assert before == after


def test_copies_that_the_scheduler_asks_for_store_nothing_else():
    for seed in range(600):
        rng = random.Random(seed)
        variables = tuple(map(cin.IndexVar, "ijk"))[: rng.randint(1, 3)]
        form = random_format(rng, len(variables), INPUTS)
        if form.is_dense:
            continue
        shape = (5,) * len(variables)
        access = cin.Access(cin.Tensor("A", shape, np.dtype("f8"), form, 0.0), variables)
        copy = concordant.concordant_format(access, rng.sample(variables, len(variables)), {"A": (5.0,) * len(shape)})
        assert trailing(copy) <= trailing(form), f"{form} becomes {copy}"


def test_transposition_by_einsum_is_a_kernel():
    n = 1 << 40
    coords = np.array([[3, n - 1, 7], [n - 2, 0, 7]])
    given = Array(convert.from_coords(coords, np.array([1.0, 0.0, 2.0]), (n, n), Format.parse("dcsr", 2), 0.0))
    made = sj.jit(lambda x: sj.einsum("ij->ji", x, out_format="dcsr"))(given)
    found, values = convert.to_coords(made.storage)
    assert found.tolist() == [[0, 7, n - 2], [n - 1, 7, 3]]
    assert values.tolist() == [0.0, 2.0, 1.0]


@pytest.mark.parametrize("form", ["csf", "coo"])
@pytest.mark.parametrize("text", ["kl->k", "lk->k", "kl,l->k", "k,kl,m->mk"])
def test_sums_over_nothing_store_nothing(text, form):
    sizes = {"k": 2, "l": 0, "m": 3}
    operands = [np.ones([sizes[c] for c in word]) for word in text.partition("->")[0].split(",")]
    made = sj.einsum(text, *operands, semiring="max_times", out_format=form)
    assert made.nnz == 0
    assert np.all(made.todense() == -np.inf)


def test_a_fixed_coordinate_in_a_blocked_dimension():
    dense = np.arange(6.0).reshape(3, 1, 2)
    given = sj.array(dense, format="(d,c,d,c)@(1,2,0,1)/(1,2,1)")
    other = sj.array(np.ones((3, 4, 2)), format="coo")
    made = sj.jit(lambda x, y: x * y)(given, other)  # the axis of extent one is read at 0
    np.testing.assert_array_equal(made.todense(), dense * np.ones((3, 4, 2)))
    with engine.quick():
        assert definitions.check(1004981, blocked=True) is None


@pytest.mark.parametrize("seed", [1001121, 1001646, 1003177, 1006369])
def test_masks_and_operands_in_blocks_that_do_not_fit(seed):
    with engine.quick():
        assert semirings.check_order(seed) is None
