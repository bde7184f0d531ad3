"""Nothing as large as a gathered operand is allocated: the peak of the resident set in calls with a million indices and 128 columns."""

import ctypes
import gc
import sys
from pathlib import Path

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.runtime.system import allocator

ENTRIES, ROWS, COLUMNS, GROUP = 1_000_000, 20_000, 128, 8
MOST = 48e6
"""Bytes beyond operands and result; what is gathered is 512 MB."""


def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(f"{field}:")))


def grown(run):
    """What a call adds to the resident set, at most, and its result."""
    gc.collect()
    allocator.drop()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    made = run()
    return status("VmHWM") - before, made


def scattered(text):
    return lambda R, K, V, B: sj.insum(text, C=snp.zeros((ROWS, COLUMNS), np.float32), R=R, K=K, V=V, B=B)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.rotating(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", ["pairs", "groups", "scores"])
def test_gathered_operands_are_not_made(case, threads):
    rng = np.random.default_rng(0)
    B = sj.array(rng.random((ROWS, COLUMNS), np.float32))

    def names(*shape):
        return sj.array(rng.integers(0, ROWS, shape))

    def operands():
        if case == "pairs":
            return names(ENTRIES), names(ENTRIES), sj.array(rng.random(ENTRIES, np.float32)), B
        if case == "groups":
            groups = ENTRIES // GROUP
            return names(groups), names(groups, GROUP), sj.array(rng.random((groups, GROUP), np.float32)), B
        return names(ENTRIES), names(ENTRIES), B

    function = sj.jit(
        {
            "pairs": scattered("C[R[p],n] += V[p] * B[K[p],n]"),
            "groups": scattered("C[R[p],n] += V[p,q] * B[K[p,q],n]"),
            "scores": lambda R, K, B: sj.insum("D[p] = B[R[p],n] * B[K[p],n]", R=R, K=K, B=B),
        }[case]
    )
    with sj.config.using(num_threads=threads):
        function(*operands())  # compiled; the next call sorts other index arrays
        given = operands()
        peak, made = grown(lambda: function(*given))
    assert peak - made.nbytes < MOST, f"{(peak - made.nbytes) / 1e6:.1f} MB"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("op", ["add", "set"])
def test_updates_at_slices_have_no_array_of_every_value(op):
    """A million rows of 32 columns: their values are read where they lie."""
    rng = np.random.default_rng(0)
    x = sj.array(rng.random((ROWS, COLUMNS), np.float32))
    ids, values = sj.array(rng.integers(0, ROWS, ENTRIES)), sj.array(rng.random((ENTRIES, 32), np.float32))
    function = sj.jit(lambda x, ids, values: getattr(x.at[ids, 2:34], op)(values))
    with sj.config.using(num_threads=1):
        function(x, ids, values)
        again = sj.array(rng.integers(0, ROWS, ENTRIES))
        peak, made = grown(lambda: function(x, again, values))
    assert peak - made.nbytes < MOST, f"{(peak - made.nbytes) / 1e6:.1f} MB"
