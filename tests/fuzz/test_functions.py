"""Whole jitted functions against NumPy, over random programs and formats."""

import pytest

from tests.fuzz import functions

CASES = 600
BATCH = 100


@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_random_functions(start):
    faults = [f for f in (functions.check(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


def test_the_check_can_fail(monkeypatch):
    monkeypatch.setattr(functions.snp, "minimum", functions.snp.maximum)
    assert any(functions.check(seed) for seed in range(40))
