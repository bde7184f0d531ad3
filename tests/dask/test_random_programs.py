"""Random programs in shards against the same on one machine: types, formats and values; and the same bits on any of Dask's schedulers."""

import random

import numpy as np
import pytest

import sparsejax as sj

dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'sparsejax[dask]'")
pytest.importorskip("dask.array")

import sparsejax.dask as sd  # noqa: E402
from sparsejax.dask import emit, plan  # noqa: E402
from tests.dask.random_programs import Program  # noqa: E402

FOUND = (56, 113, 173)
"""Seeds of programs that were wrong: loops of no rounds, blocks of bsr that were divided."""


def any_cuts(monkeypatch, seed):
    """Cuts are drawn, those that cut and those that scatter first."""
    draws = random.Random(seed)
    monkeypatch.setattr(emit, "_plans", {})

    def pick(choices):
        cut = [c for c in choices if c.split]
        scattered = [c for c in cut if c.scatter]
        if scattered and draws.random() < 0.5:
            return draws.choice(scattered)
        return draws.choice(cut if cut and draws.random() < 0.85 else choices)

    monkeypatch.setattr(plan.Plan, "pick", staticmethod(pick))


def compare(seed):
    program = Program(seed)
    one = sj.jit(program.function)(*program.arguments)
    with sj.config.using(choose=("auto", "sharded_loops=rounds", "sharded_loops=together")[seed % 3]):
        lazy = sd.jit(program.function)(*program.sharded())
    found = dask.compute(*lazy, scheduler="sync")
    again = dask.compute(*lazy, scheduler="threads")
    for a, b, c in zip(one, found, again, strict=True):
        assert (a.shape, a.dtype, a.format) == (b.shape, b.dtype, b.format)
        np.testing.assert_allclose(b.todense(), a.todense(), rtol=1e-7, atol=1e-9)
        assert b.todense().tobytes() == c.todense().tobytes()


@pytest.mark.rotating(16)
@pytest.mark.parametrize("seed", [*range(64), *(s for s in FOUND if s >= 64)])
def test_programs(seed, monkeypatch):
    if seed % 4:
        any_cuts(monkeypatch, seed)
    compare(seed)


@pytest.mark.rotating(8)
@pytest.mark.parametrize("seed", range(32))
def test_stages_know_what_they_wait_for(seed, monkeypatch):
    """What stages keep while equations join them is what their equations and inputs say: partial results, rules, and the stages before them."""
    any_cuts(monkeypatch, seed)
    made, place = [], plan.Plan._sorted

    def ordered(self):
        made.append(self)
        return place(self)

    monkeypatch.setattr(plan.Plan, "_sorted", ordered)
    program = Program(seed)
    sd.jit(program.function)(*program.sharded())
    for known in made:
        done, live = set(), sum(s.bit for s in known.stages)
        for stage in known.order:
            sources = known.sources(stage)
            assert done.issuperset(sources) and stage not in sources
            waits = 0
            for source in sources:
                waits |= source.bit | source.before
            assert waits & live == stage.before & live
            assert stage.ruled == all(c.rule is not None for c in stage.choices)
            assert list(stage.partial) == [v for c in stage.choices if c.partial for v in c.eqn.outputs]
            inside = {v for c in stage.choices for v in c.eqn.outputs} & known.values.keys()
            assert all(known.values[v].stage is stage for v in inside)
            done.add(stage)
        assert done == set(known.stages)


def test_blocks_are_not_divided():
    """Which zeros are stored depends on where blocks begin, and so do operations on stored entries."""
    rng = np.random.default_rng(0)
    A = sj.array(rng.random((24, 24)) * (rng.random((24, 24)) < 0.2)).asformat("bsr:2x3")
    made = sd.shard(A, rows=5, cols=4)
    assert all(b % n == 0 for cut, n in zip(made.cuts, (2, 3), strict=True) for b in cut)
    np.testing.assert_array_equal(made.compute(scheduler="sync").todense(), A.todense())
    softmax = sd.jit(lambda A, v: sj.nn.softmax(A, axis=1) * v)
    found = softmax(made, sd.shard(np.ones(24), rows=(0, 1, 5, 24))).compute(scheduler="sync")
    np.testing.assert_allclose(found.todense(), sj.nn.softmax(A, axis=1).todense())
    with pytest.raises(
        ValueError, match=r"axis 1 must be multiples of 3, as format bsr:2x3 has blocks of 3 along it; or convert"
    ):
        sd.shard(A, cols=(0, 4, 24))


def test_blocks_of_dask_and_of_files(tmp_path):
    da = pytest.importorskip("dask.array")
    A = sj.array(np.eye(6)).asformat("bsr:2x2")
    with pytest.raises(ValueError, match=r"divide the blocks of its format bsr:2x2; call its rechunk"):
        sd.shard(da.from_array(A, chunks=(3, 6)))
    for k in range(2):
        sj.save_npz(tmp_path / f"{k}.npz", sj.array(np.eye(3, 6)).asformat("bsr:2x2"))
    with pytest.raises(ValueError, match=r"blocks of 2 rows, which two files would share; pass another format"):
        sd.open_files([tmp_path / "0.npz", tmp_path / "1.npz"])
    assert sd.open_files([tmp_path / "0.npz", tmp_path / "1.npz"], format="csr").shape == (6, 6)
