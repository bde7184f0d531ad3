"""Derivatives of random programs."""

import pytest

import sparsejax as sj
from tests.autodiff import programs
from tests.fuzz import engine, forced

FIRST, SECOND, BATCH = 200, 60, 5


@pytest.mark.rotating(40)
@pytest.mark.parametrize("start", range(0, FIRST, BATCH))
def test_first_derivatives(start):
    with engine.quick():
        faults = [f for f in (forced.half(programs.check)(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(12)
@pytest.mark.parametrize("start", range(1000, 1000 + SECOND, BATCH))
def test_second_derivatives(start):
    with engine.quick():
        faults = [
            f for f in (forced.half(programs.check)(seed, second=True) for seed in range(start, start + BATCH)) if f
        ]
    assert not faults, "\n\n".join(faults)


def test_a_loop_of_kernels_in_chunks_on_one_thread():
    """Conjugate gradients over a product that is cut into chunks, which adds to a cleared result: the slots that tell the chunks follow those of the
    result."""
    with engine.quick(), sj.config.using(num_threads=1):
        faults = [f for f in (forced.half(programs.check)(seed, second=True) for seed in range(1055, 1060)) if f]
    assert not faults, "\n\n".join(faults)


def test_the_check_can_fail(monkeypatch):
    run, calls = programs.run, []

    def unsteady(steps, inputs):
        """Another function in every trace."""
        calls.append(1)
        return run(steps, inputs) * (1.0 + len(calls))

    monkeypatch.setattr(programs, "run", unsteady)
    assert any(programs.check(seed) for seed in range(5))


def test_every_family_of_rules_is_drawn():
    found = set().union(*(programs.families_of(seed) for seed in range(4 * len(programs.KINDS))))
    assert found == {
        *programs.NAMES.values(),
        "contractions",
        "SpGEMM",
        "elementwise",
        "unions and fills",
        "min and max",
    }


def test_cotangents_of_loops_that_were_negated():
    """Over fill -0.0."""
    assert programs.check(1002087) is None
