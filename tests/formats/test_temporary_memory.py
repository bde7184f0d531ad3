"""What operations between products take beside their results, in the resident set: at most as much as the result, in every format of the lists."""

import ctypes
import gc
import sys
from pathlib import Path

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.runtime.system import allocator

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")

ROWS, ENTRIES = 300_000, 1_000_000
SLACK = 3 << 20
"""Bytes that allocators keep, and code that is loaded."""


def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{field}:")))


def beside(run):
    """Bytes that a call adds to the resident set, at most, beside its result; and those of that."""
    for _ in range(2):
        made = run()
        del made
    gc.collect()
    allocator.drop()
    ctypes.CDLL(None).malloc_trim(0)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    made = run()
    size = made.nbytes
    return status("VmHWM") - before - size, size


@pytest.fixture(scope="module")
def entries():
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, ROWS, (2, ENTRIES))
    return rng, sj.array((rng.random(ENTRIES), (rows, columns)), shape=(ROWS, ROWS), format="csr")


SELECTIONS = {
    "hstack": lambda A, d: snp.hstack([A, A]),
    "tril": lambda A, d: snp.tril(A),
    "prune(keep=2, axis=0)": lambda A, d: sj.prune(A, keep=2, axis=0),
    "prune(keep=1, axis=0)": lambda A, d: sj.prune(A, keep=1, axis=0),
    "prune(keep=2)": lambda A, d: sj.prune(A, keep=2),
    "A[A > t]": lambda A, d: A[A > 0.3],
    "A[B > t]": lambda A, d: A[d["B"] > 0.3],
    "A[::-1]": lambda A, d: A[::-1],
    "A[half]": lambda A, d: A[d["half"]],
    "A[mask]": lambda A, d: A[d["mask"]],
    "A[perm]": lambda A, d: A[d["perm"]],
    "A[:, perm]": lambda A, d: A[:, d["perm"]],
    "A[:, k:]": lambda A, d: A[:, ROWS // 3 :],
    "set": lambda A, d: A.at[d["at"], d["at"]].set(3.0),
    "add": lambda A, d: A.at[d["at"], d["at"]].add(3.0),
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_temporaries_are_no_larger_than_the_result(entries, form, name):
    rng, whole = entries
    given = {
        "half": np.sort(rng.choice(ROWS, ROWS // 2, replace=False)),
        "mask": rng.random(ROWS) < 0.5,
        "perm": rng.permutation(ROWS),
        "at": np.unique(rng.integers(0, ROWS, 1000)),
        "B": snp.abs(whole.asformat(form)),
    }
    A = whole.asformat(form)
    with sj.config.using(free_memory=0, num_threads=1):
        taken, size = beside(lambda: SELECTIONS[name](A, given))
    assert taken <= size + SLACK, f"{taken / 1e6:.1f} MB beside {size / 1e6:.1f}"


LINES = 1_500_000
EXTREMES = {
    "max(axis=0)": lambda A: A.max(axis=0),
    "max(axis=1)": lambda A: A.max(axis=1),
    "argmax(axis=0)": lambda A: snp.argmax(A, axis=0),
    "argmin(axis=1)": lambda A: snp.argmin(A, axis=1),
    "relu": lambda A: snp.maximum(A.sum(axis=0), 0.5),
}
"""Results that are dense vectors, of operands with a few entries in every line."""


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_extremes_of_lines_take_no_more_than_two_vectors(form, name):
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, LINES, (2, LINES))
    A = sj.array((rng.random(LINES), (rows, columns)), shape=(LINES, LINES), format="csr").asformat(form)
    with sj.config.using(free_memory=0, num_threads=1):
        taken, size = beside(lambda: EXTREMES[name](A))
    assert size == 8 * LINES
    assert taken <= size + 2 * SLACK, f"{taken / 1e6:.1f} MB beside {size / 1e6:.1f}"
