"""What operations on arrays of three and four dimensions take beside their results, in the resident set: at most as much as the result."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.formats.test_temporary_memory import SLACK, beside, pytestmark  # noqa: F401

ENTRIES = 1_000_000
SHAPES = {"long": (300, 4000, 5000), "short": (1_000_000, 30, 40), "four": (500, 40, 3000, 200)}
"""Few long rows and many short ones, and of four dimensions."""

WRITES = {
    "set": lambda A, d: A.at[d["places"]].set(3.0),
    "set one": lambda A, d: A.at[(3,) * A.ndim].set(3.0),
    "set box": lambda A, d: A.at[(slice(3, 5), slice(2, 9)) + (0,) * (A.ndim - 3)].set(0.0),
    "add": lambda A, d: A.at[d["places"]].add(3.0),
}

SELECTIONS = {
    "A[::-1]": lambda A, d: A[::-1],
    "A[:, ::-1]": lambda A, d: A[:, ::-1],
    "A[..., ::-1]": lambda A, d: A[..., ::-1],
    "A[lo:hi]": lambda A, d: A[A.shape[0] // 4 : A.shape[0] // 2],
    "A[:, lo:hi]": lambda A, d: A[:, A.shape[1] // 4 : A.shape[1] // 2],
    "A[..., lo:hi]": lambda A, d: A[..., A.shape[-1] // 4 : A.shape[-1] // 2],
    "A[::2]": lambda A, d: A[::2],
    "A[..., ::2]": lambda A, d: A[..., ::2],
    "A[half]": lambda A, d: A[d["half", 0]],
    "A[perm]": lambda A, d: A[d["perm", 0]],
    "A[mask]": lambda A, d: A[d["mask", 0]],
    "A[:, half]": lambda A, d: A[:, d["half", 1]],
    "A[:, perm]": lambda A, d: A[:, d["perm", 1]],
    "A[..., perm]": lambda A, d: A[..., d["perm", A.ndim - 1]],
    "A[A > t]": lambda A, d: A[A > 0.3],
    "tril": lambda A, d: snp.tril(A),
    "prune": lambda A, d: sj.prune(A, keep=2),
}
TOGETHER = {
    "concatenate, 0": lambda A, d: snp.concatenate([A, A], 0),
    "concatenate, 1": lambda A, d: snp.concatenate([A, A], 1),
    "concatenate, -1": lambda A, d: snp.concatenate([A, A], -1),
    "roll, 0": lambda A, d: snp.roll(A, 5, 0),
    "roll, 1": lambda A, d: snp.roll(A, 5, 1),
    "roll, -1": lambda A, d: snp.roll(A, 5, -1),
    "pad": lambda A, d: snp.pad(A, 2),
    "stack": lambda A, d: snp.stack([A, A]),
    "tile": lambda A, d: snp.tile(A, (2,) + (1,) * (A.ndim - 1)),
}

MISSED = {
    "A[..., lo:hi]": ["short-csf"],
    "A[..., ::-1]": ["four-coo"],
}
"""What takes more than its result, 1.5 and 1.1 times."""


def cases(operations):
    every = [(f"{shape}-{form}", name) for shape in SHAPES for form in ("coo", "csf") for name in operations]
    return [(*kind.split("-"), name) for kind, name in every if kind not in MISSED.get(name, ())]


def tensor(named, form):
    """The array and what it is indexed with."""
    rng, shape = np.random.default_rng(0), SHAPES[named]
    coords = tuple(rng.integers(0, n, ENTRIES) for n in shape)
    A = sj.array((rng.random(ENTRIES), coords), shape=shape, format="coo").asformat(form)
    given = {"places": tuple(rng.integers(0, n, 1000) for n in shape)}
    for d, n in enumerate(shape):
        given["half", d] = np.sort(rng.choice(n, max(1, n // 2), replace=False))
        given["perm", d], given["mask", d] = rng.permutation(n), rng.random(n) < 0.5
    return A, given


def at_most_the_result(run, A, given):
    with sj.config.using(free_memory=0, num_threads=1):
        taken, size = beside(lambda: run(A, given))
    assert taken <= size + SLACK, f"{taken / 1e6:.1f} MB beside {size / 1e6:.1f}"


@pytest.mark.rotating(6)
@pytest.mark.parametrize(("shape", "form", "name"), cases(WRITES))
def test_writes_take_no_more_than_the_result(shape, form, name):
    A, given = tensor(shape, form)
    at_most_the_result(WRITES[name], A, given)


@pytest.mark.rotating(6)
@pytest.mark.parametrize(("shape", "form", "name"), cases(SELECTIONS))
def test_selections_take_no_more_than_the_result(shape, form, name):
    A, given = tensor(shape, form)
    at_most_the_result(SELECTIONS[name], A, given)


@pytest.mark.rotating(6)
@pytest.mark.parametrize(("shape", "form", "name"), cases(TOGETHER))
def test_concatenations_take_no_more_than_the_result(shape, form, name):
    A, given = tensor(shape, form)
    at_most_the_result(TOGETHER[name], A, given)
