"""Loops over long and uneven segments, many operands, bands and runs, against dense NumPy."""

import os

import pytest

from tests.fuzz import engine, forced, shapes

CASES = 1200
BATCH = 25


@pytest.mark.rotating(48)
@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_random_loops(start):
    with engine.quick():
        faults = [f for f in (forced.half(shapes.check)(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.slow
def test_long_run():
    """SPARSEJAX_FUZZ=first:last chooses the seeds (default: twenty thousand)."""
    first, last = map(int, os.environ.get("SPARSEJAX_FUZZ", "0:20000").split(":"))
    with engine.quick():
        faults = [f for f in map(shapes.check, range(first, last)) if f]
    assert not faults, "\n\n".join(faults[:10])
