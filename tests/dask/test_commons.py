"""Memory that all members of a gang have: a place is used again where all are past it, nobody writes to what is held, and bits are those of tasks apart."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj

distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")

import sparsejax.dask as sd  # noqa: E402
from sparsejax.dask import commons, lending  # noqa: E402
from sparsejax.dask.members import Step  # noqa: E402

rng = np.random.default_rng(0)
N, WIDE = 3000, 24
S = sp.random_array((N, N), density=0.004, format="csr", rng=rng)
A, X = sj.array(S / 10), rng.random((N, WIDE))


@dataclass(frozen=True)
class Node:
    dependencies: tuple


def loop(rounds, parts, alike=True):
    """The steps of a loop in which every part reads what all have made in the round before, or only the first two rounds."""
    steps = [[] for _ in range(parts)]
    for k in range(rounds):
        for part in range(parts):
            reads = [("y", k - 1, p) for p in range(parts)] if k and (alike or part) else []
            steps[part].append(Step(("y", k, part), Node(tuple(reads))))
    return steps


def wholes(rounds, parts, rows=1 << 16):
    cut = tuple(rows * k // parts for k in range(parts + 1))
    return [
        commons.Whole(tuple(("y", k, p) for p in range(parts)), (parts,), (rows,), "<f8", cut) for k in range(rounds)
    ]


@pytest.mark.parametrize("parts", [2, 3])
def test_places(parts):
    """Two places are enough for rounds that wait for each other; small arrays, wanted ones and those that a member does not read have none."""
    made = commons.planned(wholes(10, parts), loop(10, parts), [("y", 9, p) for p in range(parts)])
    assert [c.at for c in made] == [0, 1 << 19] * 4 + [0]
    assert commons.room(made) == 1 << 20
    assert not commons.planned(wholes(10, parts, 100), loop(10, parts), [])
    assert not commons.planned(wholes(10, parts), loop(10, parts, alike=False), [])
    kept = commons.planned(wholes(10, parts), loop(10, parts), [("y", 3, 0)])
    assert len(kept) == 8


def test_places_are_few():
    """Where nobody knows that others are past them."""
    steps = [[Step(("y", k, p), Node(())) for k in range(20)] for p in range(2)]
    for p in range(2):
        steps[p] += [Step(("z", k, p), Node((("y", k, 0), ("y", k, 1)))) for k in range(20)]
    made = commons.planned(wholes(20, 2), steps, [])
    assert [c.at for c in made] == [k << 19 for k in range(commons.PLACES)]


def test_blocks_of_no_rows():
    """Take no room, and are there."""
    whole = commons.Whole((0, 1, 2), (3,), (8192, 2), "<f8", (0, 4000, 4000, 8192))
    common = commons.Common(whole, 0)
    own, other = commons.Commons([common]), commons.Commons([common])
    own.created()
    own.ready = True
    values = rng.random((8192, 2))
    for n in range(3):
        assert own.write(n, sj.array(values[whole.cut[n] : whole.cut[n + 1]]))
    ((_, found),) = own.whole([0, 1, 2])
    np.testing.assert_array_equal(found.todense(), values)
    assert not other.write(0, sj.array(values[:4000]))
    assert own.done({1: None}) is False and own.clean
    assert own.done({}) is True and not own.clean  # found is held
    assert not own.write(0, sj.array(values[:4000]))
    own.close()
    np.testing.assert_array_equal(found.todense(), values)


kept = []
plain = {}


def watched(holding):
    """Count what is put into memory, and hold all that is read of it, or not."""
    from tests.dask import test_commons as here

    write, array = (here.plain.setdefault(n, getattr(commons.Commons, n)) for n in ("write", "_array"))
    here.plain["count"] = 0
    here.kept.clear()

    def counted(self, key, block):
        made = write(self, key, block)
        here.plain["count"] += made
        return made

    def held(self, common, low, high):
        made = array(self, common, low, high)
        if holding:
            here.kept.append((made, made.todense().copy()))
        return made

    commons.Commons.write, commons.Commons._array = counted, held


def seen():
    from tests.dask import test_commons as here

    return here.plain["count"], all(bool((x.todense() == then).all()) for x, then in here.kept)


@pytest.mark.skipif(not lending.Post().place, reason="the system has no files in memory, or no names of sockets")
@pytest.mark.parametrize("rows", [2, 5])
@pytest.mark.parametrize("holding", [False, True])
def test_bits(client, rows, holding):
    """Of a loop whose carry is in memory that both have, until somebody holds what was there."""
    rounds = 12
    program = sd.jit(lambda A, X: sj.lax.fori_loop(0, rounds, lambda k, Y: 0.5 * (A @ Y) + X, X))
    graph = sd.shard(A, rows=rows)
    given = graph, sd.shard(X, rows=graph.cuts[0])
    with sj.config.using(choose="sharded_loops=rounds,sharded_tasks=apart"):
        wanted = program(*given).compute().todense()

    def counted():
        client.run(watched, holding)
        with sj.config.using(choose="sharded_loops=rounds,sharded_tasks=gang"):
            lazy = program(*given)
            assert lazy.gang() is not None
            found = lazy.compute().todense()
        counts, unharmed = zip(*client.run(seen).values(), strict=True)
        client.run(watched, False)
        assert found.tobytes() == wanted.tobytes() and all(unharmed)
        return sum(counts)

    whole = (rounds - 1) * rows
    if holding:
        assert 0 < counted() < whole
    else:  # a task that a busy machine stops for a moment may hold what it has read when the next one is written, but not in every run
        assert any(counted() == whole for _ in range(5))
