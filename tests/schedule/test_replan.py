"""When copies of operands are worth it: what calls lose adds up, unless results have far more entries than expected."""

import math
from types import SimpleNamespace

import pytest

from sparsejax.formats import Format
from sparsejax.jit.cost import machine
from sparsejax.jit.schedule import replan
from sparsejax.jit.schedule.replan import SURPRISE


def account(gain, entries=None):
    return replan.Account(replan.Later(("k", "i"), gain, entries, ()))


def made(entries):
    return SimpleNamespace(vals=range(entries))


def test_losses_add_up():
    kept = account(machine.current().compile / 4)
    assert [kept.pays([]) for _ in range(5)] == [False, False, False, True, True]
    assert account(math.inf).pays([])


@pytest.mark.parametrize(
    ("expected", "entries", "pays"),
    [(10, 10 * SURPRISE, True), (10, 10 * SURPRISE + 1, False), (0, SURPRISE, True), (0, SURPRISE + 1, False)],
)
def test_surprises(expected, entries, pays):
    kept = account(math.inf, expected)
    assert not kept.pays([])  # nothing was made yet
    kept.made(made(entries))
    kept.made(made(1))
    assert kept.pays([]) == pays


def test_written_down():
    later = replan.Later(("k", "i"), 3.0, 5.0, ((1, Format.parse("csc", 2), 7.0, 9.0),))
    assert replan.Later.decoded(later.encoded()) == later
