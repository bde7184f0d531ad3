"""Peak memory of indirect einsums, in a process of its own: nothing as large as a gathered operand is made."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
import sparsejax as sj

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

def run(text, n, groups=None):
    rng, rows = np.random.default_rng(0), 20_000
    shape = n if groups is None else (n // groups, groups)
    B = sj.array(rng.random((rows, 128), np.float32))
    R = sj.array(rng.integers(0, rows, n if groups is None else n // groups))
    K, V = sj.array(rng.integers(0, rows, shape)), sj.array(rng.random(shape, np.float32))
    C = sj.array(np.zeros((rows, 128), np.float32))
    given = {k: v for k, v in {"B": B, "R": R, "K": K, "V": V, "C": C}.items() if k + "[" in text}
    before = peak()
    made = sj.insum(text, **given)
    return peak() - before - made.nbytes // 2**20

TEXTS = (
    ("C[R[p],n] += V[p] * B[K[p],n]", None),
    ("C[R[p],n] += V[p,q] * B[K[p,q],n]", 4),
    ("D[p] = B[R[p],n] * B[K[p],n]", None),
)
for text, groups in TEXTS:
    run(text, 40_000, groups)  # the compiler is there
    print(run(text, 1_000_000, groups))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB there")
def test_nothing_is_gathered():
    """A million indices into rows of 128 numbers of four bytes: 488 MiB if they were gathered, at most 48 beyond operands and results."""
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=300)
    grown = [int(n) for n in told.stdout.split()]
    assert len(grown) == 3 and max(grown) <= 48, grown
