"""Functions with random dtypes, shapes, formats, axes and options are NumPy's."""

import pytest

import sparsejax.numpy as snp
from tests.fuzz import calls, engine


def faults(count):
    with engine.quick():
        found = [f for f in map(calls.check, range(count)) if f]
        engine.forget()
    return "\n".join(found)


def test_calls():
    assert not faults(50)


@pytest.mark.slow
def test_many_calls():
    assert not faults(3000)


def test_the_check_can_fail(monkeypatch):
    right = snp.max
    monkeypatch.setattr(calls, "AXES", ("max",))
    monkeypatch.setattr(snp, "max", lambda x, **options: right(x, **options).astype("f8"))
    assert "max(" in faults(20)
