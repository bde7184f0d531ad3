"""When copies of operands are worth it: what calls lose adds up, unless results have far more entries than expected."""

import math
from types import SimpleNamespace

import pytest

import sparsejax as sj
from sparsejax.formats import Format
from sparsejax.jit import pipeline
from sparsejax.jit.cost import machine
from sparsejax.jit.graph import fuse
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.schedule import replan, search
from tests.golden import kernels


def account(gain, most=None):
    return replan.Account(replan.Later(("k", "i"), gain, most, ()))


def made(entries):
    return SimpleNamespace(vals=range(entries))


def test_losses_add_up():
    kept = account(machine.current().compile / 4)
    assert [kept.pays([]) for _ in range(5)] == [False, False, False, True, True]
    assert account(math.inf).pays([])


@pytest.mark.parametrize(
    ("most", "entries", "pays"), [(10.0, 10, True), (10.0, 11, False), (4.0, 4, True), (4.0, 5, False)]
)
def test_surprises(most, entries, pays):
    kept = account(math.inf, most)
    assert not kept.pays([])  # nothing was made yet
    kept.made(made(entries))
    kept.made(made(1))
    assert kept.pays([]) == pays


def test_how_many_entries_are_no_surprise():
    """Of operands of three dimensions that meet in few entries: what takes a fourth of the gain to write. Of those that meet nowhere, nothing is gained."""
    T = kernels.of(2000, 2000, 2000, form="csf")
    (step,) = fuse.fuse(pipeline.cleaned(sj.jit(lambda A, B: A * B).trace(T, T).jaxpr.jaxpr))
    runner, found = KernelRunner.of(step), {}
    with sj.config.using(machine="ice_lake", num_threads=1):
        for amount in (0.5, 500):
            facts = kernels.observed(runner, amount)
            chosen, known = runner.planner.schedule(facts)[0], runner.planner.known(facts)
            later = replan.later(chosen, runner.planner.plain, runner.planner.plain, known)
            found[amount] = chosen, later, search.level_counts(runner.planner.plain, known)[-1]
    assert found[0.5][1] is None
    chosen, later, expected = found[500]
    assert later.order != tuple(map(str, chosen.order)) and len(later.copied) == 2
    assert later.most > replan.SURPRISE * expected
    each = chosen.remembered.cost.output / expected
    assert later.most * each * replan.SURPRISE == pytest.approx(later.gain)


def test_what_gains_as_much_as_its_account_costs_is_kept(monkeypatch):
    (step,) = kernels.steps("product of tensors")
    runner = KernelRunner.of(step)
    with sj.config.using(machine="ice_lake", num_threads=1):
        facts = kernels.observed(runner, 500)
        chosen, known = runner.planner.schedule(facts)[0], runner.planner.known(facts)
        gain = chosen.cost.running - chosen.remembered.cost.running
        for account, kept in ((gain, True), (gain * 1.001, False)):
            monkeypatch.setattr(replan, "ACCOUNT", account)
            assert (replan.later(chosen, runner.planner.plain, runner.planner.plain, known) is not None) == kept
        monkeypatch.setattr(replan, "ACCOUNT", gain)
        later = replan.later(chosen, runner.planner.plain, runner.planner.plain, known)
    assert later.gain == gain and later == replan.Later.decoded(later.encoded())
    assert [k for k, *_ in later.copied] == [0, 1]
    assert all(0 < again < first for *_, first, again in later.copied)  # values alone, where the pattern is known


def test_written_down():
    later = replan.Later(("k", "i"), 3.0, 5.0, ((1, Format.parse("csc", 2), 7.0, 9.0),))
    assert replan.Later.decoded(later.encoded()) == later
