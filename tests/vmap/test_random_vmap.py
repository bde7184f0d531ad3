"""Random programs under vmap, in all formats and along all axes."""

import pytest

from tests.fuzz import engine, forced
from tests.vmap import programs

PLAIN, DIFFERENTIABLE, BATCH = 162, 99, 3


@pytest.mark.rotating(27)
@pytest.mark.parametrize("start", range(0, PLAIN, 2 * BATCH))
def test_programs(start):
    with engine.quick():
        faults = [f for f in (forced.half(programs.check_plain)(seed) for seed in range(start, start + 2 * BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(33)
@pytest.mark.parametrize("start", range(0, DIFFERENTIABLE, BATCH))
def test_programs_with_masks_and_gradients(start):
    with engine.quick():
        faults = [
            f for f in (forced.half(programs.check_differentiable)(seed) for seed in range(start, start + BATCH)) if f
        ]
    assert not faults, "\n\n".join(faults)


def test_the_checks_can_fail(monkeypatch):
    stacked = programs.stacked
    monkeypatch.setattr(programs, "stacked", lambda parts, axis: stacked(parts[::-1], axis))
    assert any(programs.check_plain(seed) for seed in range(3))
    assert any(programs.check_differentiable(seed) for seed in range(3))
