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
    size = sum(x.nbytes for x in made) if isinstance(made, tuple) else made.nbytes
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


OTHERS = {
    "A[half]": ("dcsr",),
    "A[:, perm]": ("dcsr",),
    "A[::-1]": ("dcsr",),
    "hstack": ("dcsr", "csf"),
    "set": ("dcsr", "csf"),
    "repeat": ("csr", "csc", "coo"),
    "tile": ("csr", "csc"),
    "to csr": ("dcsr", "ell", "dia", "banded", "lil"),
    "to coo": ("dcsr", "ell", "dia", "banded", "rle"),
    "to lil": ("dcsr", "ell", "dia", "csr"),
    "to ell": ("csr", "coo"),
    "to dia": ("csr", "coo", "dcsr"),
}
"""What is done to a matrix with five diagonals, and the formats of which as much as the result stands beside it at most."""


@pytest.mark.rotating(8)
@pytest.mark.parametrize(("name", "form"), [(name, form) for name, forms in OTHERS.items() for form in forms])
def test_other_formats_hold_no_more_than_the_result(name, form):
    rows = ENTRIES // 5
    rng = np.random.default_rng(0)
    A = sj.diags([1.0, 2.0, 3.0, 4.0, 5.0], [-2, -1, 0, 1, 2], shape=(rows, rows)).asformat(form)
    given = {
        "half": np.sort(rng.choice(rows, rows // 2, replace=False)),
        "perm": rng.permutation(rows),
        "at": np.unique(rng.integers(0, rows, 1000)),
    }
    run = SELECTIONS.get(name) or {
        "repeat": lambda A, d: snp.repeat(A, 2, axis=0),
        "tile": lambda A, d: snp.tile(A, (2, 2)),
    }.get(name, lambda A, d: A.asformat(name.removeprefix("to ")))
    with sj.config.using(free_memory=0, num_threads=1):
        taken, size = beside(lambda: run(A, given))
    assert taken <= size + SLACK, f"{taken / 1e6:.1f} MB beside {size / 1e6:.1f}"


LISTS = {
    "A[idx]": lambda A, d: A[d["idx"]],
    "A[few]": lambda A, d: A[d["few"]],
    "A[i]": lambda A, d: A[ROWS // 2],
    "A[:, j]": lambda A, d: A[:, 5],
    "A[i, lo:hi]": lambda A, d: A[ROWS // 2, 100:-100],
    "A[:, idx]": lambda A, d: A[:, d["idx"]],
    "A[:, once]": lambda A, d: A[:, d["once"]],
    "A[R, C]": lambda A, d: A[d["R"], d["C"]],
    "A[few, few]": lambda A, d: A[d["few"], d["few"]],
    "diagonal": lambda A, d: snp.diagonal(A),
}
"""Parts of a matrix of more rows than what is asked has entries."""


@pytest.mark.rotating(2)
@pytest.mark.parametrize("form", ["coo", "csr", "csc", "(q,q)@(1,0)", "dcsr"])
def test_places_of_nonzeros_take_no_more_than_they_are(entries, form):
    A = entries[1].asformat(form)
    with sj.config.using(free_memory=0, num_threads=1):
        taken, size = beside(lambda: snp.nonzero(A))
    assert taken <= size + SLACK, f"{taken / 1e6:.1f} MB beside {size / 1e6:.1f}"


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_as_long_as_an_axis_stands_beside_parts_of_lists(name, threads):
    """Of many rows with few entries, so that what has an element for each of them would be seen."""
    rng, rows = np.random.default_rng(2), 1_500_000
    place = np.sort(rng.integers(0, rows, 2 * rows))
    columns = rng.integers(0, rows, 2 * rows)
    A = sj.array((rng.random(2 * rows), (place, columns)), shape=(rows, rows), format="csr").asformat("coo")
    given = {"idx": rng.integers(0, rows, rows // 3), "few": rng.integers(0, rows, 500)}
    given["once"] = rng.permutation(rows)[: rows // 3]
    given |= {"R": place[::4].copy(), "C": columns[::4].copy()}
    with sj.config.using(free_memory=0, num_threads=threads):
        taken, size = beside(lambda: LISTS[name](A, given))
    assert taken <= size + (SLACK if size > SLACK else SLACK // 2), f"{taken / 1e6:.1f} MB beside {size / 1e6:.1f}"


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
    most = 2 if name.startswith("arg") else 1  # the extremes, and the first places without an entry
    assert size == 8 * LINES
    assert taken <= most * size + SLACK, f"{taken / 1e6:.1f} MB beside {size / 1e6:.1f}"


@pytest.mark.rotating(4)
@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_triplets_stand_once_in_order(form, share):
    """A share of the places is different: all triplets are moved to their rows, where duplicates are summed; beside that there are ends of rows and what
    ordering takes, at most half of the result."""
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, ROWS, (2, ENTRIES))
    kept = rng.permutation(ENTRIES) if share == 1 else rng.integers(0, ENTRIES, ENTRIES)
    rows, columns, values = rows[kept], columns[kept], rng.random(ENTRIES)
    with sj.config.using(free_memory=0, num_threads=1):
        taken, size = beside(lambda: sj.array((values, (rows, columns)), shape=(ROWS, ROWS), format=form))
    triplets = 12 * ENTRIES + 8 * ROWS
    assert taken + size <= triplets + 0.5 * size + SLACK, f"{taken / 1e6:.1f} MB beside {size / 1e6:.1f}"
