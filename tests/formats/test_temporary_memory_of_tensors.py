"""What operations on arrays of three and four dimensions take beside their results, in the resident set: at most as much as the result."""

import numpy as np
import pytest

import sparsejax as sj
from tests.formats.test_temporary_memory import SLACK, beside, pytestmark  # noqa: F401

ENTRIES = 1_000_000
SHAPES = {"long": (300, 4000, 5000), "short": (1_000_000, 30, 40), "four": (500, 40, 3000, 200)}
"""Few long rows and many short ones, and of four dimensions."""

WRITES = {
    "set": lambda A, d: A.at[d["places"]].set(3.0),
    "set one": lambda A, d: A.at[(3,) * A.ndim].set(3.0),
    "set box": lambda A, d: A.at[3:5, 2:9].set(0.0),
    "add": lambda A, d: A.at[d["places"]].add(3.0),
}


def tensor(named, form):
    """The array and what it is indexed with."""
    rng, shape = np.random.default_rng(0), SHAPES[named]
    coords = tuple(rng.integers(0, n, ENTRIES) for n in shape)
    A = sj.array((rng.random(ENTRIES), coords), shape=shape, format="coo").asformat(form)
    return A, {"places": tuple(rng.integers(0, n, 1000) for n in shape)}


def at_most_the_result(run, A, given):
    with sj.config.using(free_memory=0, num_threads=1):
        taken, size = beside(lambda: run(A, given))
    assert taken <= size + SLACK, f"{taken / 1e6:.1f} MB beside {size / 1e6:.1f}"


@pytest.mark.rotating(6)
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("form", ["coo", "csf"])
@pytest.mark.parametrize("shape", SHAPES)
def test_writes_take_no_more_than_the_result(shape, form, name):
    A, given = tensor(shape, form)
    at_most_the_result(WRITES[name], A, given)
