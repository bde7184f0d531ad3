"""Eager and jitted programs agree on what zeros, infinities and NaN do."""

import pytest

from sparsejax.core import primitive
from sparsejax.jit.ir import cin, simplify
from tests.fuzz import alike, engine, forced

CASES, BATCH = 300, 12


@pytest.mark.rotating(25)
@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_eager_and_jit_agree(start):
    with engine.quick():
        faults = [f for f in map(forced.half(alike.check), range(start, start + BATCH)) if f]
        engine.forget()
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("start", range(0, 40, 10))
def test_chains_agree(start):
    """However they are associated."""
    with engine.quick():
        faults = [f for seed in range(start, start + 10) if (f := alike.check(seed, alike.chain))]
        engine.forget()
    assert not faults, "\n\n".join(faults)


def test_the_check_can_fail(monkeypatch):
    """Zeros that are written annihilate too: eager calls take most of them as run-time numbers, jit as constants."""

    def any_literal(expr, value=simplify._ANY):
        return isinstance(expr, cin.Literal) and (value is simplify._ANY or bool(expr.value == value))

    monkeypatch.setattr(simplify, "_is_absent", any_literal)
    monkeypatch.setattr(primitive, "_eager", {})  # nothing of this is remembered
    monkeypatch.setattr(primitive, "_lifts", {})
    with engine.quick():
        assert any(alike.check(seed) for seed in range(60))
