"""Loops and branches against plain Python loops, over random programs and formats."""

import pytest

from tests.control import programs
from tests.fuzz import engine, forced

CASES, BATCH = 160, 10


@pytest.mark.rotating(32)
@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_random_loops(start):
    with engine.quick():
        faults = [f for f in (forced.half(programs.check)(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


def test_the_check_can_fail(monkeypatch):
    monkeypatch.setattr(programs.snp, "minimum", programs.snp.maximum)
    with engine.quick():
        assert any(programs.check(seed) for seed in range(20))
