"""Random pipelines of operations of the NumPy interface, eager, jitted and batched, against NumPy."""

import pytest

from tests.fuzz import pipelines

CASES = 500
BATCH = 100


@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_random_pipelines(start):
    faults = [f for f in (pipelines.check(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


def test_the_check_can_fail(monkeypatch):
    monkeypatch.setattr(pipelines.snp, "sum", pipelines.snp.max)
    assert any(pipelines.check(seed) for seed in range(100))
