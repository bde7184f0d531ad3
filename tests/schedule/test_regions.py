"""Parts of loop orders, of operands and results that nobody stores: which loops become tiles, and which entries are rows of these."""

import dataclasses

import numpy as np
import pytest

from sparsejax.formats import Format
from sparsejax.jit.cost import machine
from sparsejax.jit.ir import cin
from sparsejax.jit.schedule import regions
from tests.prices import priced

EXTENTS = {"i": 60, "l": 50, "c": 40, "j": 30, "k": 20}


def access(text, form=None, dtype="f8"):
    """An operand by its text, as `A[i,j]`; dense, or in a format."""
    name, _, names = text.rstrip("]").partition("[")
    indices = tuple(map(cin.IndexVar, names.split(","))) if names else ()
    shape = tuple(EXTENTS[v.name] for v in indices)
    form = Format.parse(form or f"({','.join('d' * len(shape))})", len(shape)) if shape else Format(())
    return cin.Access(cin.Tensor(name, shape, np.dtype(dtype), form, 0.0), indices)


def variables(text):
    return tuple(map(cin.IndexVar, text))


A, B, W = access("A[i,l]", "coo"), access("B[l,c]"), access("W[c,j]")
ENTRIES = {
    "rows and what is reduced": ("ilcj", access("C[i,j]"), (A, B, W), True),
    "a matrix of every row as well": ("ilckj", access("C[i,j]"), (A, B, access("W[c,k,j]")), True),
    "another order of the result": ("ilcj", access("C[j,i]"), (A, B, W), True),
    "nothing reduced inside": ("ilj", access("C[i,j]"), (A, access("w[j]")), False),
    "no row of the result": ("ilcj", access("C[j]"), (A, B, W), False),
    "an entry of the result": ("ilcj", access("C[i,l,j]"), (A, B, W), False),
    "rows are found first": ("ilcj", access("C[i,j]"), (access("A[i,l]", "csr"), B, W), False),
    "in another order": ("licj", access("C[l,j]"), (A, access("B[i,c]"), W), False),
    "two that are walked": ("ilcj", access("C[i,j]"), (A, access("D[i,l]", "coo"), B, W), False),
    "another sparse one": ("ilcj", access("C[i,j]"), (A, access("B[l,c]", "csr"), W), False),
    "a sparse result": ("ilcj", access("C[i,j]", "csr"), (A, B, W), False),
    "what is inside is of the result": ("ilcj", access("C[i,c,j]"), (A, B, W), False),
    "one of two inside is": ("ilckj", access("C[i,k,j]"), (A, B, access("W[c,k,j]")), False),
    "rows share a factor alone": ("ilcj", access("C[i,j]"), (A, access("B[l,c,j]"), access("w[c]")), False),
    "rows share nothing": ("ilcj", access("C[i,j]"), (A, access("B[l,c,j]"), access("W[i,c,j]")), False),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_entries_are_rows(name):
    order, out, reads, wanted = ENTRIES[name]
    assert regions.entries_are_rows(variables(order), out, reads) == wanted


RUNS = {
    "coordinates": ("il", (A, B), A),
    "the same one twice": ("il", (A, A), A),
    "other loops": ("li", (A, B), None),
    "one of the loops": ("ij", (A, B), None),
    "two of them": ("il", (A, access("D[i,l]", "coo")), None),
    "a level of its own": ("il", (access("A[i,l]", "dcsr"), B), None),
    "blocks": ("il", (access("A[i,l]", "blockgroupcoo:2x2:2"), B), None),
    "the last of three": ("lj", (access("T[i,l,j]", "(d,q,q)"),), access("T[i,l,j]", "(d,q,q)")),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_below_coordinates(name):
    pair, reads, wanted = RUNS[name]
    assert regions.run_below(*variables(pair), reads) == wanted


REGIONS = {
    "columns of a product": ("ikj", access("C[i,j]"), (access("A[i,k]", "csr"), access("B[k,j]")), 1),
    "dense rows as well": ("kij", access("C[i,j]"), (access("A[i,k]"), access("B[k,j]")), 0),
    "all columns of a dense one": ("ikj", access("C[i,j]"), (access("A[i,k]"), access("B[k,j]")), 1),
    "the last loop is reduced": ("ijk", access("C[i,j]"), (access("A[i,k]", "csr"), access("B[k,j]")), None),
    "nothing is reduced": ("ij", access("C[i,j]"), (access("A[i,j]"),), None),
    "rows below a sparse level": ("kij", access("C[i,j]"), (access("A[i,k]", "csc"), access("B[k,j]")), None),
    "a batch around": ("cikj", access("C[c,i,j]"), (access("A[i,k]", "csr"), access("B[c,k,j]")), 2),
    "a batch inside": ("ikcj", access("C[c,i,j]"), (access("A[i,k]", "csr"), access("B[c,k,j]")), 1),
    "entries that are rows": ("kilcj", access("C[i,j]"), (access("A[i,l]", "coo"), B, access("W[k,c,j]")), 3),
}


@pytest.mark.parametrize("name", REGIONS)
def test_where_tiles_begin(name):
    order, out, reads, wanted = REGIONS[name]
    assert regions.region(variables(order), out, reads) == wanted


BLOCKS = {
    "rows and sums of a block": (
        "ilckj",
        access("C[i,c,j]"),
        (access("A[i,l,c,k]", "(d,c,d,d)"), access("B[l,k,j]")),
        2,
    ),
    "sums alone": ("ilkj", access("C[i,j]"), (access("A[i,l,k]", "(d,c,d)"), access("B[l,k,j]")), None),
    "rows alone": ("ilcj", access("C[i,c,j]"), (access("A[i,l,c]", "(d,c,d)"), access("B[l,j]")), None),
    "no walk": ("ilckj", access("C[i,c,j]"), (access("A[i,l,c,k]"), access("B[l,k,j]")), None),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_inside_walks(name):
    order, out, reads, wanted = BLOCKS[name]
    assert regions.block(variables(order), 1, out, reads) == wanted


def test_walks_over_rows_of_the_result_are_around_no_block():
    order, out, B = variables("ilckj"), access("C[i,c,j]"), access("B[l,k,j]")
    assert regions.block(order, 0, out, (access("A[i,l,c,k]", "(c,c,d,d)"), B)) is None
    assert regions.block(order[1:], 0, out, (access("A[i,l,c,k]", "(c,c,d,d)"), B)) == 1


ROWS = {
    "rows of the result": ("ikcj", 2, access("C[k,j]"), (access("N[i,k]", "csr"), access("In[k,c]"), W), True),
    "several leaders": ("ikcj", 2, access("C[k,j]"), (access("N[i,k]", "csr"), access("M[i,k]", "csr"), W), False),
    "no loop around": ("cj", 0, access("C[j]"), (access("N[i,k]", "csr"), W), False),
    "reduced entries": ("ikcj", 2, access("C[i,j]"), (access("N[i,k]", "csr"), access("In[k,c]"), W), False),
    "sums that the result has": ("ikcj", 2, access("C[k,c,j]"), (access("N[i,k]", "csr"), access("In[k,c]"), W), False),
    "a sparse operand": ("ikcj", 2, access("C[k,j]"), (access("N[i,k]", "csr"), access("In[k,c]", "csr"), W), False),
    "a sparse result": ("ikcj", 2, access("C[k,j]", "csr"), (access("N[i,k]", "csr"), access("In[k,c]"), W), False),
    "nothing shared": ("ikcj", 2, access("C[k,j]"), (access("N[i,k]", "csr"), access("W[k,c,j]")), False),
    "entries of two coordinates": ("ilcj", 2, access("C[i,j]"), (A, B, W), True),
}


@pytest.mark.parametrize("name", ROWS)
def test_entries_that_are_rows_of_tiles(name):
    order, first, out, reads, wanted = ROWS[name]
    leaders = [a for a in reads if not a.tensor.format.is_dense and a.tensor.name != "In"]
    assert regions.entry_rows(variables(order), first, out, reads, leaders) == wanted


DEPTHS = {
    "read for every row": ("ikj", access("B[k,j]", "csr"), "j", 2),
    "at the end": ("ij", access("B[i,j]", "csr"), "j", 1),
    "outermost": ("ki", access("B[k,j]", "csr"), "j", 1),
    "read once": ("k", access("B[k,j]", "csr"), "j", None),
    "all of it": ("ik", access("b[j]", "(c)"), "j", None),
    "a loop that is not there": ("ij", access("B[k,j]", "csr"), "j", None),
    "a diagonal": ("ik", access("B[j,j]", "csr"), "j", None),
    "inside of both loops": ("ki", access("T[i,k,j]", "(d,d,c)"), "j", None),
    "and outside of another": ("kilj", access("T[i,k,j]", "(d,d,c)"), "j", 2),
    "one of two loops": ("il", access("T[i,k,j]", "(d,d,c)"), "j", None),
    "a diagonal of rows": ("ki", access("T[k,j,j]", "(d,d,c)"), "j", None),
    "its columns are listed, not its rows": ("ikj", access("B[k,j]", "(c,d)"), "j", None),
}


@pytest.mark.parametrize("name", DEPTHS)
def test_inside_how_many_loops_fibers_are_scattered(name):
    order, read, var, wanted = DEPTHS[name]
    assert regions.depth(read, cin.IndexVar(var), variables(order)) == wanted


def test_variables_of_sparse_levels_and_above_are_not_dense():
    rows = access("A[i,j]", "csr")
    for var, reads, wanted in (
        ("i", (rows,), False),
        ("j", (rows,), False),
        ("k", (rows,), True),
        ("i", (access("A[i,j]"), access("B[i]")), True),
        ("i", (access("A[i,j]"), rows), False),
        ("j", (access("A[i,j]", "(c,d)"),), True),
        ("i", (access("A[i,i]"),), False),
    ):
        assert regions.is_dense(cin.IndexVar(var), reads) == wanted, (var, reads)


def strip(rows, inner):
    """Tiles over `rows` around a strip, with a loop over `c` inside: out[i,j] += A[i,c] * B[c,j]."""
    register = cin.Access(cin.Tensor("t", (), np.dtype("f8"), Format(()), 0.0, "scalar"), ())
    term = cin.Call("multiply", inner, np.dtype("f8"))
    body = cin.Where(
        cin.Assign(access("C[i,j]"), "add", register),
        cin.Forall(cin.IndexVar("c"), cin.Assign(register, "add", term)),
    )
    return cin.IndexVar(rows), cin.Forall(cin.IndexVar("j"), body, "tile")


@pytest.mark.parametrize(
    ("cache", "outside"), [(1 << 20, False), (10_110, False), (10_060, True), (1850, True), (1750, False), (64, False)]
)
def test_strips_are_outside_where_the_first_cache_loses_what_rows_share(cache, outside):
    """Fifteen tiles of four rows read the 9,600 bytes of `B` again inside, 1.875 strips the 19,200 of `A` outside. Of what is read, 10,880 bytes are
    to stay in the cache inside, 24,320 outside, and 6,400 for what tiles read of a strip."""
    rows, inner = strip("i", (access("A[i,c]"), access("B[c,j]")))
    with priced(caches=(cache, 1 << 20, 1 << 22)):
        assert regions.strips_pay(rows, inner, machine.current()) == outside


def test_what_rows_do_not_share_makes_no_strips_pay():
    rows, inner = strip("i", (access("A[i,c,j]"), access("B[c]")))
    with priced(caches=(4096, 1 << 20, 1 << 22)):
        assert not regions.strips_pay(rows, inner, machine.current())


@pytest.mark.parametrize(("masks", "size"), [(True, 192), (False, 96)])
def test_strips_of_rows_in_panels_of_columns(masks, size, processor):
    processor(masks)
    assert regions.strip_bytes() == size


@pytest.mark.parametrize(("lane", "line", "least"), [(1.0, 1.0, 32), (0.5, 1.0, 16), (1.0, 4.0, 8)])
def test_blocks_pay_where_they_have_many_sums(lane, line, least):
    """Each adds eight bytes at a time to its rows; else every tile of four rows reads a line of what rows share for every sum."""
    order, here = variables("ckj"), dataclasses.replace(machine.current(), lane=lane, line=(line, 9.0, 9.0))
    for sums in (1, least, least + 1):
        extents = {v: EXTENTS[v.name] for v in order} | {cin.IndexVar("k"): sums}
        assert regions.blocks_pay(order, access("C[i,c,j]"), extents, here) == (sums > least)
