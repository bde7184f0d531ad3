"""Random programs with up to five operands: against NumPy, and against themselves after changes that must not matter."""

import os
import random

import numpy as np
import pytest

from sparsejax.jit.rewrite import iteration
from tests.fuzz import engine, forced, metamorphic, programs

BATCHES, BATCH = 48, 5


def faults_of(seeds):
    count, faults = 0, []
    with engine.quick():
        for seed in seeds:
            made, fault = forced.half(metamorphic.check)(seed)
            count += made
            faults += [fault] if fault else []
            engine.forget()
    return count, faults


@pytest.mark.rotating(48)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_relations(batch):
    count, faults = faults_of(range(batch * BATCH, (batch + 1) * BATCH))
    assert count >= BATCH
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize("seed", [50018, 60026, 80684])
def test_blocks_between_statements(seed):
    """A result in blocks that stays between the statements of a kernel, where nothing that is read or written has any."""
    assert faults_of([seed])[1] == []


@pytest.mark.slow
def test_long_run():
    """SPARSEJAX_FUZZ=first:last chooses the seeds (default: ten thousand)."""
    first, last = map(int, os.environ.get("SPARSEJAX_FUZZ", "0:10000").split(":"))
    _, faults = faults_of(range(first, last))
    assert not faults, "\n\n".join(faults[:10])


def test_programs_are_varied():
    made = [programs.program(seed) for seed in range(300)]
    assert {len(p.inputs) for p in made} == {1, 2, 3, 4, 5}
    assert {len(p.result.labels) for p in made} == {0, 1, 2, 3, 4}
    assert {x.fill for p in made for x in p.inputs} == {-1, 0, 1}
    ops = {v.op for p in made for v in nodes(p.result)}
    assert ops == {"input", "transpose", "einsum", "semiring", "unary", "binary", "scalar", "where", "reduce", "format"}
    details = {v.detail for p in made for v in nodes(p.result) if v.op in ("binary", "unary")}
    assert details >= {"logical_and", "logical_or", "logical_xor", "logical_not", "maximum", "greater"}
    contractions = [v for p in made for v in nodes(p.result) if v.op in ("einsum", "semiring")]
    assert {len(v.args) for v in contractions} >= {1, 2, 3, 5}
    semirings = {v.detail[:2] for v in contractions if v.op == "semiring"}
    assert {name for name, _ in semirings} == set(programs.SEMIRINGS)
    assert {rule for _, rule in semirings} == {None, "mask", "complement"}
    formats = [x.format for p in made for x in p.inputs]
    formats += [f for v in contractions if (f := v.detail if v.op == "einsum" else v.detail[2]) is not None]
    assert sum(f.blocked for f in formats) > 100


def nodes(value):
    yield value
    for arg in value.args:
        yield from nodes(arg)


@pytest.mark.parametrize("name", metamorphic.RELATIONS)
def test_relations_change_the_program(name):
    changed = 0
    for seed in range(40):
        made = programs.program(seed)
        other, turn = metamorphic.RELATIONS[name](random.Random(seed), made)
        same_inputs = all(
            x.format == y.format and np.array_equal(x.dense, y.dense) and np.array_equal(x.stored, y.stored)
            for x, y in zip(made.inputs, other.inputs, strict=True)
        )
        changed += not same_inputs or other.result != made.result
        with np.errstate(all="ignore"):
            want, got = (programs.evaluate(np, p.result, [x.dense for x in p.inputs]) for p in (made, other))
        np.testing.assert_allclose(got, turn(np.asarray(want)), rtol=1e-5, atol=1e-5)
    assert changed > 10


def test_split_concatenates_and_adds():
    found = [metamorphic.split_axis(programs.program(seed)) for seed in range(300)]
    assert sum(f is not None and f[1] for f in found) > 10
    assert sum(f is not None and not f[1] for f in found) > 30


def test_the_check_can_fail(monkeypatch):
    real = iteration.find_cases
    monkeypatch.setattr(iteration, "find_cases", lambda body, leaders: dict(list(real(body, leaders).items())[:1]))
    assert any(faults_of([seed])[1] for seed in (4, *range(30)))


@pytest.mark.parametrize("name", [*metamorphic.RELATIONS, "split"])
def test_every_relation_can_fail(monkeypatch, name):
    """A compiler that is wrong from its second program on."""
    calls = []

    def wrong(made):
        calls.append(made)
        dense = [x.dense for x in made.inputs]
        return [np.asarray(programs.evaluate(np, v, dense)) + (len(calls) > 1) for v in (made.result, *made.also)]

    monkeypatch.setattr(metamorphic, "compiled", wrong)
    kept = {} if name == "split" else {name: metamorphic.RELATIONS[name]}
    monkeypatch.setattr(metamorphic, "RELATIONS", kept)
    made = "concatenated or added"
    for seed in range(40):
        calls.clear()
        made = metamorphic.check(seed)[1] or made
    assert f", {name}:" in made
