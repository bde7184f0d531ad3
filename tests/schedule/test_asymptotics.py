"""Chosen loop orders are never asymptotically wrong: iterations are counted, nothing is timed. The whole family, and the
table for Algorithm 1, come from `python -m benchmarks.asymptotics`."""

import pytest

from benchmarks import asymptotics, cases

pytestmark = pytest.mark.rotating(8)

FAMILY = list(cases.family())


def test_the_family_is_large():
    assert len(FAMILY) == len(set(map(str, FAMILY))) >= 200
    assert len({c.family for c in FAMILY}) >= 30


@pytest.mark.parametrize("case", FAMILY[::37], ids=str)
def test_no_order_beats_the_chosen_one(case):
    judged = asymptotics.judge(case)
    assert judged.passes("cost"), (
        f"{case}: {judged.chosen['cost']} is x{judged.ratio('cost'):.2f} of {judged.best}, "
        f"slopes {judged.slope(judged.chosen['cost']):.2f} and {judged.slope(judged.best):.2f}"
    )


@pytest.mark.parametrize("data", ["falling", "rising"])
def test_operands_of_different_density(data):
    """Stored sparsely on the outside, the second operand is copied so that its rows can be located."""
    case = cases.Case("spgemm", "ij,jk->ik", ("dcsr", "dcsr"), data)
    judged = asymptotics.judge(case, (512, 2048))
    assert judged.passes("cost")


def test_the_judge_finds_a_bad_order():
    """The inner product, which Algorithm 1 takes for csr times csc, costs n^2."""
    judged = asymptotics.judge(cases.Case("spgemm", "ij,jk->ik", ("csr", "csc"), "uniform"), (512, 2048))
    assert judged.passes("cost")
    assert not judged.passes("scorch")
    assert judged.ratio("scorch") > 4
