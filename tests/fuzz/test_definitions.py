"""Compiled kernels against dense NumPy, over random definitions, formats and loop orders."""

import os

import pytest

from tests.fuzz import definitions, forced

CASES = 2400
BATCH = 25


@pytest.mark.rotating(48)
@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_random_definitions(start):
    faults = [f for f in (forced.half(definitions.check)(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(48)
@pytest.mark.parametrize("start", range(0, 1200, BATCH))
def test_random_definitions_in_blocks(start):
    faults = [
        f for f in (forced.half(definitions.check)(seed, blocked=True) for seed in range(start, start + BATCH)) if f
    ]
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(12)
@pytest.mark.parametrize("start", range(0, 300, BATCH))
def test_interpreter_agrees_with_the_definition(start):
    faults = [f for f in (definitions.check_interpreted(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.slow
def test_long_run():
    """SPARSEJAX_FUZZ=first:last chooses the seeds (default: fifty thousand)."""
    first, last = map(int, os.environ.get("SPARSEJAX_FUZZ", "0:50000").split(":"))
    faults = [f for f in map(definitions.check, range(first, last)) if f]
    assert not faults, "\n\n".join(faults[:10])
