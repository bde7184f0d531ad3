"""What is known of results that other statements of a kernel read, and of operands in panels of rows."""

import itertools
import math

import pytest

from sparsejax.formats import Format
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.schedule import row_panels, search
from tests.golden import kernels

ENTRIES = 3


def planned(name):
    """The only kernel of a program, and what it would know of operands with so many entries a row."""
    (step,) = kernels.steps(name)
    runner = KernelRunner(step)
    return runner.plain, runner.known(kernels.observed(runner, ENTRIES))


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
