"""What loops wait for memory (`schedule/waiting`): by what they touch, how far away that lies, and what else lies there."""

import itertools

import pytest

import sparsejax as sj
from sparsejax.jit import pipeline
from sparsejax.jit.cost import machine, memory
from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.graph import fuse
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.schedule import regions, search, statements, waiting
from tests.golden import kernels

ENTRIES = 4  # of a row


@pytest.fixture(autouse=True)
def processor():
    with sj.config.using(machine="granite_rapids", num_threads=1):
        yield


def planned(f, *types, amount=ENTRIES):
    """The only kernel of a program, before it is scheduled, and what it would know of operands with so many entries a row."""
    (step,) = fuse.fuse(pipeline.cleaned(sj.jit(f).trace(*types).jaxpr.jaxpr))
    runner = KernelRunner.of(step)
    return runner.planner.plain, runner.planner.known(kernels.observed(runner, amount))


def waits(f, *types, amount=ENTRIES):
    """What the loops of a kernel wait for, its accesses by name, and its loop variables by name."""
    nest, known = planned(f, *types, amount=amount)
    found = search.model(nest, known).waiting
    return found, {a.tensor.name: a for a in found.layouts}, {str(v): v for v in nest.variables}


def product(rows, columns):
    return waits(lambda A, B: A @ B, kernels.matrix("csr", rows, rows), kernels.of(rows, columns))


def order(variables, names):
    return tuple(variables[name] for name in names)


def test_bytes_are_those_of_entries_and_coordinates():
    found, arrays, _ = product(2000, 128)
    entries = search.model(*planned(lambda A: A * 2, kernels.matrix("csr", 2000, 2000))).waiting.layouts
    ((each, fanout),) = {x for a, x in entries.items() if a.tensor.name == "A"}
    assert each == 12 and found.layouts[arrays["A"]] == (each, fanout)
    dense = 2000 * 128 * 8
    assert found.bytes == pytest.approx(2 * dense + 2000 * ENTRIES * 12, rel=0.05)
    assert found.drained() > 0
    (once,) = found.copied(arrays["A"])
    assert once.number * LINE == pytest.approx(2000 * ENTRIES * 12, rel=0.05)
    assert (once.among, once.anywhere) == (found.bytes, 0.0)


def test_rows_of_the_operand_and_of_the_result_are_touched_for_every_entry():
    found, _, loops = product(2048, 128)
    rows = 2 * 2048 * ENTRIES * 128 * 8
    assert found.touched(order(loops, "ikj")) == pytest.approx(rows + 2048 * ENTRIES * 12)
    assert found.touched(order(loops, "kij")) == pytest.approx(rows + 2048 * ENTRIES * 12)
    # column by column, a line for every number of B
    assert found.touched(order(loops, "ijk")) > 2048 * ENTRIES * 128 * LINE


def test_walking_rows_is_waited_for_less_than_walking_columns():
    found, _, loops = product(2048, 128)
    waited = [found.total(order(loops, names)) for names in ("ikj", "kij", "ijk", "jik", "kji")]
    assert waited == sorted(waited) and waited[0] > 0 and waited[-1] > 30 * waited[0]
    assert found.total(()) == 0.0
    # the entries are waited for before what they lead to
    assert 0 < found.total(order(loops, "ik")) < 0.2 * waited[0]


def test_arrays_crowd_each_other_out_of_the_second_cache():
    """B and C have two thirds of it each."""
    second = machine.current().caches[1]
    rows = int(second * 2 / 3 / (64 * 8))
    types = kernels.matrix("csr", rows, rows), kernels.of(rows, 64), kernels.of(rows, 64)
    found, arrays, loops = waits(lambda A, B, C: sj.einsum("ik,kj,kj->ij", A, B, C), *types)
    inside, B, C = order(loops, "ikj"), arrays["B"], arrays["C"]
    assert found.crowded([], inside, 0.1) == 0.0
    assert found.crowded([B], inside, 1.0) == pytest.approx(0.0, abs=1e-6)
    both, half = found.crowded([B, C], inside, 1.0), found.crowded([B, C], inside, 0.5)
    assert both > 0
    assert half > both
    alone = [found.crowded([B], inside, share) for share in (1.0, 0.5, 0.25)]
    assert alone == sorted(alone) and alone[2] > alone[1] > 0
    assert found.crowded([B, C], inside, 0.5) > 2 * alone[1]


def test_what_lies_among_a_part_of_the_bytes_is_nearer():
    far, arrays, loops = product(100_000, 64)
    inside = order(loops, "ikj")
    gains = [far.nearer([arrays["B"]], inside, share) for share in (1.0, 0.5, 0.1, 0.01)]
    assert gains[0] == pytest.approx(0.0, abs=1e-6)
    assert gains == sorted(gains) and gains[-1] > gains[1] > 0
    assert gains[-1] <= far.total(inside)
    # what the second cache holds anyway is no nearer
    near, arrays, loops = product(1000, 64)
    assert near.nearer([arrays["B"]], order(loops, "ikj"), 0.1) == pytest.approx(0.0, abs=1e-6)


def test_vectors_across_lines_cost_a_quarter_in_the_first_cache():
    """Of what they cost in the second, and nothing farther away, where they are waited for anyway."""
    split, each = machine.current().split, []
    for size in (1 << 12, 1 << 14, 1 << 17, 1 << 19, 1 << 22, 1 << 28):
        found, arrays, loops = product(size // (32 * 8), 32)
        lines = size / (32 * 8) * ENTRIES * 32 * 8 / LINE
        each.append(found.across(arrays["B"], order(loops, "ikj")) / lines)
        assert found.across(arrays["A"], order(loops, "ik")) >= 0
    assert each[:2] == [pytest.approx(split / 4)] * 2
    assert split / 4 < each[2] < each[3] and each[3] == pytest.approx(split, rel=0.1)
    assert each[3] > each[4] > each[5] and each[5] < split / 100


def test_entries_that_are_rows_of_tiles_read_what_they_share_once():
    """Eight entries of a row of A are rows of a tile, which reads C[k] once."""
    types = kernels.matrix("csr", 64, 64), kernels.of(64, 32), kernels.of(64, 32, 64)
    found, arrays, loops = waits(lambda A, B, C: sj.einsum("ki,il,klj->ij", A, B, C), *types)
    inside, steps, split = order(loops, "kilj"), 64 * ENTRIES * 32, machine.current().split
    lines = steps * 64 * 8 / LINE
    assert found.across(arrays["C"], inside) == pytest.approx(split * lines / regions.ROWS / 4)
    assert found.across(arrays["out"], inside) == pytest.approx(split * lines / 4)
    own = 64 * ENTRIES * 12 + steps * 8
    assert found.touched(inside) == pytest.approx(LINE * lines * (1 + 1 / regions.ROWS) + own)
    # other loops walk no entries of one row side by side
    assert found.touched(order(loops, "klij")) == pytest.approx(LINE * lines * 2 + own, rel=0.1)


def test_what_a_later_statement_reads_in_the_same_run_is_waited_for_once():
    """The rows of softmax: the largest entry, the exponentials and their sum are of the same ones."""
    (step,) = kernels.steps("softmax")
    runner = KernelRunner.of(step)
    pricing = statements._Pricing(
        runner.planner.plain, runner.planner.known(kernels.observed(runner, ENTRIES)), frozenset()
    )
    row, entry = next(p.target.indices for p in runner.planner.plain.producers if len(p.target.indices) == 2)
    again = {
        (number, len(shared)): sorted(a.tensor.name for a in pricing.again(number, shared))
        for number, shared in itertools.product(range(len(pricing.models)), ((), (row,), (row, entry)))
    }
    assert {place: names for place, names in again.items() if names} == {(0, 1): ["B"], (2, 1): ["w1"], (2, 2): ["w1"]}


def test_a_run_of_shared_loops_stalls_where_no_cache_holds_what_it_reads():
    stalls = []
    for rows in (64, 4096, 1 << 18):
        found, _, loops = product(rows, 128)
        beside = waiting.Shared(memory.Beside(1, 0.0, 0.0))
        stalls.append(found.stalls(order(loops, "ikj"), beside))
    assert stalls == sorted(stalls) and stalls[0] == 0.0 < stalls[1] < stalls[2] <= 1.0
