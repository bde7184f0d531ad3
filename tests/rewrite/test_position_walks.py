"""Which loops over levels that share positions are one loop, and where that pays (`rewrite/position_walks`)."""

import numpy as np
import pytest

from sparsejax import config
from sparsejax.formats import Format
from sparsejax.jit import pipeline
from sparsejax.jit.cost import statistics
from sparsejax.jit.ir import cin, nest
from sparsejax.jit.rewrite import iteration
from sparsejax.jit.schedule import search

I, J, K = (cin.IndexVar(name) for name in "ijk")
ROWS = 4096


def access(name, form, *indices, dtype="f8"):
    shape = (ROWS,) * len(indices)
    return cin.Access(cin.Tensor(name, shape, np.dtype(dtype), Format.parse(form, len(indices)), 0.0), indices)


def planned(result, factors, counts, choose="auto"):
    """How the loops of a sum of products run, where `A` has so many positions on each level."""
    product = factors[0]
    for factor in factors[1:]:
        product = cin.Call("multiply", (product, factor), product.dtype)
    kernel = nest.of_definition(result.tensor, cin.Definition(result.indices, "add", product))
    facts = statistics.Facts({a.tensor.name: counts if a.tensor.name == "A" else (float(ROWS),) for a in factors})
    with config.using(machine="granite_rapids", num_threads=1, choose=choose):
        return str(iteration.planned(pipeline.program_of(kernel, search.choose(kernel, facts), facts)))


def product(mean, rows=ROWS, dtype="f8", form="coo", choose="auto"):
    A, x, y = (
        access("A", form, I, J, dtype=dtype),
        access("x", "dense", J, dtype=dtype),
        access("y", "dense", I, dtype=dtype),
    )
    return planned(y, (A, x), (float(rows), float(rows * mean)), choose)


BEFORE = """
forall i   # A[i,j]: entries, prefetch
  where y_t: scalar float64
    forall j   # A[i,j]: entries, prefetch
      y_t[] += multiply(A[i,j], x[j])
  then
    y[i] = y_t[]
"""
AFTER = """
forall i   # A[i,j]: {} over i, j
  where y_t: scalar float64
    forall j
      y_t[] += multiply(A[i,j], x[j])
  then
    y[i] = y_t[]
"""


def test_before_and_after(processor):
    processor(True, True)
    assert product(4, choose="loop_shape=entries") == BEFORE.strip()
    assert product(4) == AFTER.format("segmented").strip()
    assert product(4, choose="loop_shape=positions") == AFTER.format("positions").strip()


@pytest.mark.parametrize("gathers", [False, True])
def test_short_segments_are_walked_as_one_loop(processor, gathers):
    """Scans pay where processors gather fast, of longer segments where nobody remembers their lengths; sums in place only of short ones."""
    processor(True, gathers)

    def shape(mean, rows):
        return product(mean, rows).split("# A[i,j]: ")[1].split()[0].rstrip(",")

    assert shape(2, 1024) == ("segmented" if gathers else "positions")
    assert shape(16, 1024) == ("segmented" if gathers else "entries")
    assert shape(64, 256) == "entries"
    assert shape(64, 4096) == ("segmented" if gathers else "entries")
    assert shape(256, 4096) == "entries"


def test_sums_of_float32_have_more_digits_than_the_result(processor):
    """Accumulated in place they would not; in registers they do."""
    processor(True, False)
    assert "positions" not in product(2, dtype="f4")
    assert "positions" not in product(2, dtype="f4", choose="loop_shape=positions")
    processor(True, True)
    assert "segmented" in product(2, dtype="f4")


@pytest.mark.parametrize("form", ["csr", "dcsr", "(d,h)", "ell"])
def test_other_levels_share_no_positions(processor, form):
    processor(True, True)
    for shape in ("positions", "segmented"):
        assert shape not in product(2, form=form, choose=f"loop_shape={shape}")


def test_a_second_sparse_operand_leads_too(processor):
    processor(True, True)
    A, B, y = access("A", "coo", I, J), access("B", "dcsr", I, J), access("y", "dense", I)
    counts = (float(ROWS), 2.0 * ROWS)
    for shape in ("positions", "segmented"):
        kernel = nest.of_definition(y.tensor, cin.Definition((I,), "add", cin.Call("multiply", (A, B), A.dtype)))
        facts = statistics.Facts({"A": counts, "B": counts})
        with config.using(machine="granite_rapids", num_threads=1, choose=f"loop_shape={shape}"):
            text = str(iteration.planned(pipeline.program_of(kernel, search.choose(kernel, facts), facts)))
        assert shape not in text


def test_coordinates_of_a_segment(processor):
    """What is outside of a sum tells its segments: of three levels the first, or the first two."""
    processor(True, True)
    A, x, y = access("A", "coo", I, J, K), access("x", "dense", K), access("y", "dense", J)
    counts = (0.5 * ROWS, ROWS, 4.0 * ROWS)
    assert "# A[i,j,k]: segmented over i, j, k" in planned(access("z", "dense", I), (A, y, x), counts)
    rows = planned(access("Z", "dense", I, J), (A, x), counts)
    assert "# A[i,j,k]: segmented over i, j, k" in rows
    assert "    where Z_t" in rows


TILED = """
forall i   # A[i,k]: entries, prefetch
  forall j (tile)
    where Y_t: scalar float64
      forall k   # A[i,k]: entries
        Y_t[] += multiply(A[i,k], X[k,j])
    then
      Y[i,j] += Y_t[]
"""


@pytest.mark.parametrize("masks", [False, True])
@pytest.mark.parametrize(
    ("columns", "mean", "flat"),
    [(2, 2, True), (4, 2, True), (8, 2, True), (8, 32, False), (12, 2, False), (64, 2, False)],
)
def test_narrow_rows_are_added_position_by_position(processor, columns, mean, flat, masks):
    processor(masks, True)
    flat = flat and (masks or columns == 8)
    A, one = access("A", "coo", I, K), Format.parse("dense", 2)
    X = cin.Access(cin.Tensor("X", (ROWS, columns), np.dtype("f8"), one, 0.0), (K, J))
    Y = cin.Access(cin.Tensor("Y", (ROWS, columns), np.dtype("f8"), one, 0.0), (I, J))
    kernel = nest.of_definition(Y.tensor, cin.Definition((I, J), "add", cin.Call("multiply", (A, X), A.dtype)))
    facts = statistics.Facts({"A": (float(ROWS), float(ROWS * mean)), "X": (float(ROWS), float(ROWS * columns))})

    def planned(choose):
        with config.using(machine="granite_rapids", num_threads=1, choose=choose):
            return str(iteration.planned(pipeline.program_of(kernel, search.choose(kernel, facts), facts)))

    assert columns != 8 or not masks or planned("loop_shape=entries").replace(" (parallel)", "") == TILED.strip()
    assert "# A[i,k]: positions over i, k" in planned("loop_shape=positions")
    assert ("# A[i,k]: positions over i, k" in planned("auto")) == flat


@pytest.mark.parametrize("columns", [2, 4])
def test_rows_of_a_part_of_a_vector_have_no_mask(processor, columns):
    """What is stored under a mask is not there for the load of the next entry."""
    processor(True, True)
    A, one = access("A", "coo", I, K), Format.parse("dense", 2)
    X = cin.Access(cin.Tensor("X", (ROWS, columns), np.dtype("f8"), one, 0.0), (K, J))
    out = cin.Tensor("Y", (ROWS, columns), np.dtype("f8"), one, 0.0)
    kernel = nest.of_definition(out, cin.Definition((I, J), "add", cin.Call("multiply", (A, X), A.dtype)))
    facts = statistics.Facts({"A": (float(ROWS), 2.0 * ROWS), "X": (float(ROWS), float(ROWS * columns))})
    with config.using(machine="granite_rapids", num_threads=1):
        text = pipeline.text_of(pipeline.program_of(kernel, search.choose(kernel, facts), facts))
    assert f"store <{columns} x double>" in text
    assert "llvm.masked" not in text
