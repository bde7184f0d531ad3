"""Reductions over rows of any lengths, on every kind of processor."""

import types

import pytest

from sparsejax.jit.ir import simplify
from sparsejax.jit.rewrite import row_bodies
from tests.fuzz import engine, lengths
from tests.rotation import slice_number

SLICE, BATCHES = 24, 2
"""Cases of a slice that rotates with the commit, and the tests that share them."""


def assert_right(seeds, large=False):
    faults = [fault for seed in seeds if (fault := lengths.check(seed, large)) is not None]
    engine.forget()
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_rotating_slice(batch):
    first = slice_number() % 10_000 * SLICE
    assert_right(range(first + batch, first + SLICE, BATCHES))


def test_large_matrices():
    first = slice_number() % 10_000
    assert_right(range(first, first + 1), large=True)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 5000, 500))
def test_many(start):
    assert_right(range(start, start + 500))


@pytest.mark.slow
def test_many_large():
    assert_right(range(500), large=True)


def test_the_check_can_fail(monkeypatch):
    """Rows in blocks take reductions to which entries count that are not stored."""
    blind = types.SimpleNamespace(**{**vars(simplify), "exhaust_stmt": lambda stmt, gone: None})
    monkeypatch.setattr(row_bodies, "simplify", blind)
    assert any(lengths.check(seed) for seed in (44, 102, 122, 235))
