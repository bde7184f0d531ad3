"""Peak memory of whole programs, each in a process of its own: what is not needed as a whole is never made as a whole."""

import subprocess
import sys

import pytest

SDDMM = """
n, k = 20_000, 64
M, U, V = pattern(n, 2), rng.random((n, k)), rng.random((n, k))
run = sj.jit(lambda M, U, V: M * (U @ V.T))
"""
PROGRAM = """
import resource
import numpy as np
import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.array import Array
from sparsejax.formats import Format, convert

rng = np.random.default_rng(0)

def pattern(n, each):
    rows, columns = np.repeat(np.arange(n), each), rng.integers(0, n, n * each)
    coords = np.unique(np.stack([rows, columns]), axis=1)
    return Array(convert.from_coords(coords, np.ones(coords.shape[1]), (n, n), Format.parse("csr", 2), 0))

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
"""
LAYER = """
n, k = 200_000, 64
M, U, V = pattern(n, 2), rng.random((n, k)), rng.random((k, k))
run = sj.jit(lambda M, U, V: snp.maximum(M @ (U @ V), 0))
"""
REPORT = """
before = peak()
run(M, U, V)
print(peak(), peak() - before)
"""


def measured(program):
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM + program + REPORT], capture_output=True, text=True, check=True, timeout=300
    )
    return map(int, told.stdout.split())


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB there")
def test_sampled_products_are_computed_entry_by_entry():
    """n = 20,000 at density 1e-4: the dense product would take 3.2 GB. The compiler is part of what grows."""
    _, grown = measured(SDDMM)
    assert grown < 100


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB there")
def test_a_layer_stores_nothing_but_its_result():
    """Of 200,000 rows of 64 numbers, 98 MiB; as much again would be U @ V. The compiler is part of what grows."""
    _, grown = measured(LAYER)
    assert grown < 98 + 60
