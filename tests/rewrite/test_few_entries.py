"""How rows of few entries are summed: with two running sums, or in vectors that gather."""

import numpy as np
import pytest

from sparsejax import config
from sparsejax.formats import Format
from sparsejax.jit import pipeline
from sparsejax.jit.backend import host
from sparsejax.jit.cost import statistics
from sparsejax.jit.ir import cin, nest
from sparsejax.jit.rewrite import iteration
from sparsejax.jit.schedule import search

I, J = cin.IndexVar("i"), cin.IndexVar("j")


def shape_of_rows(rows, each):
    """The shape of the walk over a row of a matrix with this many entries in each, which is multiplied with a vector."""

    def access(name, form, *indices):
        return cin.Access(
            cin.Tensor(name, (rows,) * len(indices), np.dtype("f8"), Format.parse(form, len(indices)), 0.0), indices
        )

    A, x, y = access("A", "csr", I, J), access("x", "dense", J), access("y", "dense", I)
    kernel = nest.of_definition(y.tensor, cin.Definition((I,), "add", cin.Call("multiply", (A, x), A.dtype)))
    facts = statistics.Facts({"A": (float(rows), float(rows * each)), "x": (float(rows),)})
    with config.using(machine="granite_rapids", num_threads=1):
        program = iteration.planned(pipeline.program_of(kernel, search.choose(kernel, facts), facts))
    (line,) = (line for line in str(program).splitlines() if "# A[i,j]: " in line)
    return line.split("# A[i,j]: ")[1].split(",")[0]


@pytest.mark.parametrize("gathers", [False, True])
def test_rows_whose_lengths_nobody_remembers_are_gathered(monkeypatch, gathers):
    monkeypatch.setattr(host, "has_masks", lambda: True)
    monkeypatch.setattr(host, "has_gathers", lambda: gathers)
    assert shape_of_rows(1024, 10) == "pairs"
    assert shape_of_rows(8192, 10) == ("gathered" if gathers else "pairs")
    assert shape_of_rows(8192, 16) == ("gathered" if gathers else "unrolled")
    assert shape_of_rows(8192, 1) == "entries"
