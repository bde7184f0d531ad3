"""Up to four operands over all level types, by pairwise covering arrays, against dense NumPy: a part that rotates with the
commit, all templates with the marker `slow`."""

import itertools
import os
import random

import numpy as np
import pytest

from sparsejax.formats import Compressed, Dense, Format, convert
from tests.enumeration import pairwise
from tests.enumeration.covering import covering_array, pairs, pairs_of
from tests.fuzz import definitions, engine, forced
from tests.fuzz.levels import INPUTS, OUTPUTS, fits
from tests.fuzz.tally import Tally, run_cases
from tests.rotation import share, slice_number

PARTS, RANDOM_TEMPLATES, CASES = 24, 1, 32
"""CASES: at most so many of a template run for a commit, every n-th of a covering array that is drawn by the commit."""


def assert_right(text, seed, blocked=False, under=None, at_most=None):
    tally = Tally()
    with engine.quick(), engine.batched():
        every = pairwise.cases(text, seed, blocked)
        named = [(f"{text} of seed {seed}, {k}", case) for k, case in enumerate(every)]
        run_cases(share(named, -(-len(named) // at_most)) if at_most else named, tally, under)
    assert tally.run
    assert not tally.faults, f"{text}: {tally}\n\n" + "\n\n".join(tally.faults[:10])


@pytest.mark.parametrize("number", range(slice_number() % PARTS, len(pairwise.TEMPLATES), PARTS))
def test_rotating_template(number):
    """Every second one under alternatives that are drawn."""
    under = forced.alternatives if number // PARTS % 2 else None
    assert_right(pairwise.TEMPLATES[number], slice_number() % 10**9, under=under, at_most=CASES)


def test_rotating_template_in_blocks():
    number = slice_number() % 10**9
    assert_right(pairwise.TEMPLATES[number % len(pairwise.TEMPLATES)], number, blocked=True, at_most=CASES)


@pytest.mark.slow
def test_all_templates():
    """SPARSEJAX_FUZZ=first:last chooses the random templates that run besides (default: a hundred)."""
    first, last = map(int, os.environ.get("SPARSEJAX_FUZZ", "0:100").split(":"))
    for text in pairwise.TEMPLATES:
        assert_right(text, 0)
        assert_right(text, 0, blocked=True)
    for seed in range(first, last):
        assert_right(pairwise.template(seed), seed)


@pytest.mark.parametrize("number", range(RANDOM_TEMPLATES))
def test_rotating_random_template(number):
    seed = RANDOM_TEMPLATES * (slice_number() % 10**9) + number
    assert_right(pairwise.template(seed), seed, at_most=CASES)


# --------------------------------------------------------------------------------------------- the arrays themselves


@pytest.mark.parametrize("seed", range(10))
def test_every_pair_is_covered(seed):
    sizes = random.Random(seed).choices(range(1, 6), k=seed)
    rows = covering_array(sizes, seed)
    assert all(len(row) == len(sizes) for row in rows)
    assert set().union(*map(pairs_of, rows)) == pairs(sizes)
    assert len(rows) < 4 * max([1, *(a * b for a, b in itertools.combinations(sizes, 2))])


def test_rows_obey_the_constraint_and_cover_what_it_allows():
    space = pairwise.Space("ijk,ij->kj")
    sizes = [len(f.values) for f in space.factors]
    rows = space.rows(0)
    assert all(space.possible(dict(enumerate(row))) for row in rows)
    wanted = pairs(sizes, space.possible)
    assert set().union(*map(pairs_of, rows)) == wanted
    assert wanted < pairs(sizes)  # levels with duplicates stand last


def test_every_level_type_stands_inside_blocks():
    space = pairwise.Space("ij,jk->ik", blocked=True)
    made = [space.case(row, n) for n, row in enumerate(space.rows(0))]
    formats = [[s.format for s in case.storages.values()] for case in made]
    for tensor in range(2):
        blocked = [f[tensor] for f in formats if f[tensor].blocked]
        inside = {level for f in blocked for k, level in enumerate(f.levels) if f.is_inner(k)}
        assert inside == set(INPUTS)
        assert {tuple(b > 1 for b in f.blocks) for f in blocked} == {(True, False), (False, True), (True, True)}
    assert {
        lv for case in made for k, lv in enumerate(case.output.format.levels) if case.output.format.is_inner(k)
    } == set(OUTPUTS)


def test_every_level_type_meets_every_other():
    space = pairwise.Space("ijk,jl,kl->il")
    cases = [space.case(row, n) for n, row in enumerate(space.rows(0))]
    seen = {(c.storages["X0"].format.levels[2], c.storages["X1"].format.levels[0]) for c in cases}
    assert seen == {(x, y) for x in INPUTS for y in INPUTS if fits((Dense(), x)) and fits((y, Dense()))}
    assert {lv for c in cases for lv in c.output.format.levels} == set(OUTPUTS)


def test_duplicates_are_there():
    form = Format((Dense(), Compressed(unique=False)))
    storage, dense = definitions.stored(random.Random(0), (4, 5), np.dtype("f8"), form, 0, 1.0)
    assert len(storage.vals) == 30
    np.testing.assert_array_equal(convert.to_dense(storage), dense)
