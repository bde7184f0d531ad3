"""What loops wait for that become register tiles (`schedule/tile_waits`): what a tile reads once, what each strip reads again, and what lies between two
visits of the result."""

import pytest

import sparsejax as sj
from sparsejax.jit.cost import statistics
from sparsejax.jit.cost.memory import LINE, Lines
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest, Producer
from sparsejax.jit.schedule import regions, row_blocking, search, tile_waits, tiled_loops
from tests.golden import kernels
from tests.schedule.test_regions import access, variables
from tests.schedule.test_waiting import order, planned

ROWS, INNER, COLUMNS = 64, 32, 128
ROW = COLUMNS * 8


@pytest.fixture(autouse=True)
def here(processor):
    processor(True)
    with sj.config.using(machine="granite_rapids", num_threads=1):
        yield


def tiled(f, types, names, amount=4, **other):
    """What the tiles of a kernel wait for, under loops by name, or the cheapest ones; its arrays by name."""
    nest, known = planned(f, *types, amount=amount)
    model = search.model(nest, known)
    loops = {str(v): v for v in nest.variables}
    found = tiled_loops.tiles(model, order(loops, names.split()))
    return tile_waits.Waits(model, found._replace(**other)), {a.tensor.name: a for a in model.waiting.layouts}


def dense(names):
    types = kernels.of(ROWS, INNER), kernels.of(INNER, COLUMNS)
    return tiled(lambda A, B: sj.einsum("ik,kj->ij", A, B, semiring="min_plus"), types, names)


def test_a_tile_of_rows_reads_once_what_they_share():
    (row, arrays), (tile, others) = dense("i k j"), dense("k i j")
    whole = INNER * ROW
    every = ROWS * whole / LINE  # all of B for every row
    assert row.lines(arrays["B"]) == [
        Lines(every, whole, 0.0),
        Lines(whole / LINE, row.model.waiting.bytes, 0.0),
    ]
    again, once = tile.lines(others["B"])
    assert (again.number, again.among, once.number) == (every / regions.MANY_ROWS, whole, whole / LINE)
    # what has rows is read once, and so is the result written
    for waits, a in ((row, arrays["A"]), (tile, others["A"])):
        assert waits.lines(a) == [Lines(ROWS * INNER * 8 / LINE, waits.model.waiting.bytes, 0.0)]
    for waits, a in ((row, arrays["out"]), (tile, others["out"])):
        assert waits.lines(a) == [Lines(ROWS * ROW / LINE, waits.model.waiting.bytes, 0.0)]


def test_what_an_iteration_touches():
    """Of all operands but the result: in a loop over tiles, in a step of the reduction, in one of the strip."""
    waits, _ = dense("k i j")
    tile = regions.MANY_ROWS * INNER * 8 + INNER * ROW
    assert [waits._meanwhile(depth) for depth in range(3)] == [tile, INNER * 8 + ROW, 8 + 8]


def test_sums_that_blocks_are_added_to_are_visited_again_among_what_lies_between():
    types = kernels.of(64, 64, form="bsr:8x8"), kernels.of(64, COLUMNS)
    waits, arrays = tiled(lambda A, B: A @ B, types, "io ko ii ki j")
    block, rows = 8 * 8 * 8, 8 * ROW
    again, once = waits.lines(arrays["out"])
    assert again.number / once.number == pytest.approx(8.0)  # blocks in a row of blocks
    assert again.among == pytest.approx(rows + block + rows)  # its rows, a block of A and rows of B
    assert once == Lines(64 * ROW / LINE, waits.model.waiting.bytes, 0.0)


@pytest.mark.parametrize(("entries", "strips", "apart"), [(64, 2, True), (64, 1, False), (4, 2, False)])
def test_strips_of_long_walks_are_walks_of_their_own(entries, strips, apart):
    """Where nobody remembers at which place of a row of B the last strip was."""
    types = kernels.matrix("csr", 4096, 4096), kernels.of(4096, COLUMNS)
    waits, arrays = tiled(lambda A, B: A @ B, types, "i k j", entries, strips=strips)
    assert waits.apart == apart
    assert ("outer" in {how for _, how in waits.loops(arrays["B"]).all}) == apart
    first = waits.lines(arrays["B"])[0]
    assert first.number == 4096 * entries * ROW / LINE
    assert first.anywhere == 4096 * entries * (2 if apart else 1)


def test_entries_of_two_coordinates_are_rows_of_tiles():
    """`rows` says which loops walk them, though they are the outermost two."""
    A, B, W, out = access("A[i,l]", "coo"), access("B[l,c]"), access("W[c,j]"), access("C[i,j]")
    product = cin.Call("multiply", (A, cin.Call("multiply", (B, W), B.dtype)), B.dtype)
    nest = Nest(out.tensor, out.indices, (Producer(out, "add", product),), out)
    counts = {"A": (60.0, 240.0), "B": (50.0, 2000.0), "W": (40.0, 1200.0)}
    model, walked = search.model(nest, statistics.Facts(counts)), variables("ilcj")
    assert tiled_loops.first(model, walked) == 2
    assert tiled_loops.rows(model, walked, 2) == variables("il")
    assert tiled_loops.rows(model, walked, 0) is None and tiled_loops.rows(model, walked, None) is None
    assert tiled_loops.tiles(model, walked) is None  # others than those of two dense loops


@pytest.mark.parametrize(
    ("reads", "gains"),
    [
        (("B[l,c]", "W[c,j]"), False),  # nothing of a row
        (("A[i,l]", "B[l,j]"), True),
        (("A[i,l]", "T[i,l,j]"), False),  # nothing that rows share
        (("A[i,l,j]", "B[l,j]"), True),  # one that they share, beside one that they do not
    ],
)
def test_panels_of_rows_gain_where_rows_share_an_operand(reads, gains):
    out, (left, right) = access("C[i,j]"), map(access, reads)
    product = cin.Call("multiply", (left, right), left.dtype)
    loops = variables("ilj") if gains or "i" in reads[0] else variables("lcj")
    nest = Nest(out.tensor, out.indices, (Producer(out, "add", product),), out)
    assert row_blocking._gains(nest, 0, loops) == gains
