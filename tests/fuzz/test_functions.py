"""Whole functions against NumPy, over random programs and formats: `functions`, jitted, and `pipelines`, also eager and batched."""

import pytest

from tests.fuzz import forced, functions, pipelines

CASES = {functions: 600, pipelines: 500}
BATCH = 10


@pytest.mark.rotating(55)
@pytest.mark.parametrize("programs, start", [(m, k) for m, count in CASES.items() for k in range(0, count, BATCH)])
def test_random_functions(programs, start):
    faults = [f for f in (forced.half(programs.check)(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize(
    "programs, seed, broken, by", [(functions, 11, "minimum", "maximum"), (pipelines, 136, "sum", "max")]
)
def test_the_check_can_fail(monkeypatch, programs, seed, broken, by):
    """At a program that is known to; at one of two hundred where programs are drawn in another way by now."""
    monkeypatch.setattr(programs.snp, broken, getattr(programs.snp, by))
    assert any(programs.check(seed) for seed in (seed, *range(200)))
