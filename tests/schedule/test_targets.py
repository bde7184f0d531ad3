"""What is known of results that other statements of a kernel read, and of operands in panels of rows."""

import functools
import itertools
import math

import pytest

import sparsejax as sj
from sparsejax.formats import Format
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest, Producer
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.schedule import row_panels, search
from tests.golden import kernels
from tests.schedule.test_regions import access

ENTRIES = 3


def planned(name):
    """The only kernel of a program, and what it would know of operands with so many entries a row."""
    (step,) = kernels.steps(name)
    runner = KernelRunner.of(step)
    return runner.planner.plain, runner.planner.known(kernels.observed(runner, ENTRIES))


@pytest.mark.parametrize("name", ["softmax", "attention", "triangles"])
def test_results_in_registers_are_read_as_dense_arrays(name):
    """Others have the entries that are expected of them."""
    nest, known = planned(name)
    tensors = [p.target.tensor for p in nest.producers]
    sparse = [t.name for t in tensors if t.lacks]
    for kept in itertools.chain.from_iterable(itertools.combinations(sparse, n) for n in range(len(sparse) + 1)):
        counts = search.with_targets(nest, known, kept)
        assert set(counts.counts) == {*known.counts, *(t.name for t in tensors)}
        for t in tensors:
            whole = math.prod(map(float, t.shape))
            found = counts[t.name]
            assert len(found) == max(1, len(t.shape))
            assert list(found) == sorted(found)
            if t.lacks and t.name not in kept:
                assert 0 < found[-1] < whole / 100
            else:
                assert found[-1] == whole


def test_operands_in_panels_have_all_panels_and_columns():
    """Below its columns a panel has all entries, at all of its levels."""
    form = Format.parse("(d,d,q,q)@(0,1,0,2)/(1024,1,1)", 3)
    assert row_panels._counts(form, (4096, 27, 5000), (4096.0, 7.0, 60000.0)) == (4.0, 4 * 27.0, 60000.0, 60000.0)
    form = Format.parse("(d,d,c)@(0,1,0)/(512,1)", 2)
    assert row_panels._counts(form, (1025, 9), (1025.0, 4000.0)) == (3.0, 27.0, 4000.0)


N, X, W = access("A[i,l]", "csr"), access("B[l,c]"), access("W[l,c,j]")
OUT, SECOND = access("C[i,j]"), access("D[i,c]")
PANELS = {
    "rows that share matrices": (OUT, (N, SECOND, W), "(d,d,c)@(0,1,0)/(16,1)"),
    "rows by columns": (OUT, (access("A[i,l]", "csc"), SECOND, W), "(d,d,c)@(0,1,0)/(16,1)"),
    "tensors": (OUT, (access("A[i,l,k]", "csf"), access("B[k,c]"), W), "(d,d,q,q)@(0,1,0,2)/(16,1,1)"),
    "two sparse ones": (OUT, (N, access("D[i,c]", "csr"), W), "2 sparse operands"),
    "none": (OUT, (access("A[i,l]"), SECOND, W), "no sparse operands"),
    "a sparse result": (access("C[i,j]", "csr"), (N, SECOND, W), "the result is sparse"),
    "blocks": (OUT, (access("A[i,l]", "bsr:2x2"), SECOND, W), "operands are stored in blocks"),
    "vectors": (OUT, (access("A[l]", "coo"), SECOND, W), "A[l] is no array over two or three variables"),
    "diagonals": (OUT, (access("A[i,i]", "csr"), SECOND, W), "A[i,i] is no array over two or three variables"),
    "duplicates": (OUT, (access("A[i,l]", "(d,n)"), SECOND, W), "A may hold duplicates"),
    "no row": (access("C[c,j]"), (N, SECOND, W), "A[i,l] has no axis in the result"),
    "two rows": (access("C[i,l,j]"), (N, SECOND, W), "A[i,l] has several axes in the result"),
    "a row twice": (OUT, (N, access("D[i,i,c]"), W), "i is no axis that can be cut everywhere"),
    "nothing that is shared": (OUT, (N, X, access("V[c,j]")), "entries of one l share no matrix"),
    "matrices of every row": (OUT, (N, access("V[i,l,c,j]")), "entries of one l share no matrix"),
    "what is shared has no columns": (access("C[i]"), (N, access("V[l,c]")), "entries of one l share no matrix"),
}


@pytest.mark.parametrize("name", PANELS)
def test_which_operand_is_read_in_panels(name):
    out, reads, wanted = PANELS[name]
    product = functools.reduce(lambda a, b: cin.Call("multiply", (a, b), a.dtype), reads)
    nest = Nest(out.tensor, out.indices, (Producer(out, "add", product),), out)
    with sj.config.using(machine="granite_rapids"):
        found = row_panels.considered(nest)
    if wanted.startswith("("):
        assert found == ("A", Format.parse(wanted, len(reads[0].indices))) == row_panels.find(nest)
    else:
        assert isinstance(found, str) and found.startswith(wanted), found
        assert row_panels.find(nest) is None


@pytest.mark.parametrize(
    ("rows", "columns", "panel"),
    [
        (7, 30, None),
        (8, 30, 4),
        (15, 30, 4),
        (60, 30, 16),
        (1 << 20, 64, 1 << 10),
        (1 << 20, 8, 1 << 13),
        (1 << 20, 2, 1 << 13),
    ],
)
def test_rows_of_a_panel(rows, columns, panel):
    """Two panels at least, of a quarter of the second cache at most, and no more than are counted in 13 bits."""
    shapes = {"A": (rows, 50), "D": (rows, 40), "W": (50, 40, columns), "C": (rows, columns)}
    moved = [cin.Access(a.tensor._replace(shape=shapes[a.tensor.name]), a.indices) for a in (OUT, N, SECOND, W)]
    out, *reads = moved
    product = functools.reduce(lambda a, b: cin.Call("multiply", (a, b), a.dtype), reads)
    with sj.config.using(machine="granite_rapids"):
        found = row_panels.considered(Nest(out.tensor, out.indices, (Producer(out, "add", product),), out))
    if panel is None:
        assert found == f"i has {rows} coordinates only"
    else:
        assert found[1].blocks == (panel, 1), found
