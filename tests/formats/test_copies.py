"""Copies of arrays over one pattern (`formats/copies`) are what conversion makes of each."""

import random

import numpy as np
import pytest

from sparsejax.formats import Format, convert, copies, validate
from tests.fuzz.definitions import stored
from tests.fuzz.levels import INPUTS, random_format

SHAPES = [(7,), (4, 6), (5, 4), (4, 3, 5), (4, 4, 6)]


def fault(seed):
    """What is wrong with the copies of a random array, and of others over its pattern, in a random format."""
    rng, nrng = random.Random(seed), np.random.default_rng(seed)
    shape, fill = rng.choice(SHAPES), rng.choice((0, 0, 1, -2))
    source, target = (
        random_format(rng, len(shape), INPUTS, [rng.choice((1, 2, 2)) for _ in shape] if rng.random() < 0.5 else None)
        for _ in range(2)
    )
    storage, _ = stored(
        rng, shape, np.dtype("f8"), source, 0 if source.is_dense else fill, rng.choice((0.0, 0.2, 0.7, 1.0))
    )
    storage.cache.setdefault("pattern", {})
    for _ in range(3):
        made, want = copies.converted(storage, target), convert.convert(storage, target)
        text = f"seed {seed}: {source} -> {target}, fill {fill}"
        if made.format != target or not np.array_equal(convert.to_dense(made), convert.to_dense(want)):
            return text
        if not all(map(np.array_equal, (made.vals, made.fill_value), (want.vals, want.fill_value))):
            return f"{text}: {made.vals} for {want.vals}"
        validate.validate(made)
        if not storage.packed:
            break  # unused positions hold the fill
        storage = storage.with_values(nrng.integers(1, 9, len(storage.vals)).astype("f8"), storage.fill_value)
    return None


def test_random_copies():
    faults = list(filter(None, map(fault, range(150))))
    assert not faults, "\n".join(faults[:10])


@pytest.mark.slow
def test_many_random_copies():
    faults = list(filter(None, map(fault, range(1000, 21000))))
    assert not faults, "\n".join(faults[:10])


@pytest.mark.parametrize("target", ["bsr:2x3", "(d,d)", "(d,s)", "dense"])
def test_positions_that_hold_no_entry_hold_the_fill(target):
    dense = np.array([[0.0, 5, 0], [0, 0, 7], [0, 0, 0], [8, 0, 9]])
    first = convert.from_dense(dense, Format.parse("csr", 2), 0.0)
    other = first.with_values(first.vals + 10, 0.0)
    form = Format.parse(target, 2)
    for storage in (first, other):
        made = copies.converted(storage, form)
        np.testing.assert_array_equal(convert.to_dense(made), convert.to_dense(storage))
