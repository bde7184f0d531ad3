"""Contractions over random semirings, formats and masks against a scalar oracle."""

import os

import pytest

import sparsejax as sj
from tests.fuzz import forced, semirings

CASES, ORDERED, BATCH = 600, 300, 50


@pytest.mark.rotating(24)
@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_random_contractions(start):
    faults = [
        f
        for f in (forced.half(semirings.check)(seed, compiled=seed % 2 == 0) for seed in range(start, start + BATCH))
        if f
    ]
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(12)
@pytest.mark.parametrize("start", range(0, ORDERED, BATCH))
def test_random_loop_orders(start):
    faults = [f for f in map(forced.half(semirings.check_order), range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.slow
def test_long_run():
    """SPARSEJAX_FUZZ=first:last chooses the seeds (default: twenty thousand)."""
    first, last = map(int, os.environ.get("SPARSEJAX_FUZZ", "0:20000").split(":"))
    faults = [f for s in range(first, last) for f in (semirings.check(s), semirings.check_order(s)) if f]
    assert not faults, "\n\n".join(faults[:10])


def broken(**changes):
    """einsum with some options changed."""

    def einsum(text, *operands, _einsum=sj.einsum, **options):
        return _einsum(text, *operands, **{k: changes.get(k, v) for k, v in options.items()})

    return einsum


@pytest.mark.parametrize(
    "changes", [{"mask": None, "complement": False}, {"semiring": "plus_times"}], ids=["mask", "semiring"]
)
def test_the_check_can_fail(monkeypatch, changes):
    monkeypatch.setattr(semirings.sj, "einsum", broken(**changes))
    assert any(semirings.check(seed) for seed in range(40))
