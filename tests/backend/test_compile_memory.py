"""Memory does not grow with the number of functions that were compiled and dropped."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_five_thousand_compiles_end_where_half_of_them_did():
    """Caches of loaded kernels are full after 1,024; what is compiled later replaces something."""
    command = [sys.executable, "-m", "benchmarks.compile_memory", "--count", "5000", "--every", "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, env=os.environ, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    kernels, sizes = [int(line[2]) for line in lines], [float(line[4]) for line in lines]
    assert kernels[-1] >= 5000 and len(sizes) == 10
    assert sizes[-1] < sizes[4] + 10  # megabytes
