"""Resident memory while distinct functions are traced, planned, compiled and dropped: it should not grow with their number.

    python -m benchmarks.compile_memory              5,000 compiles; a line for every 500
    python -m benchmarks.compile_memory --count 1000

Every function has numbers and shapes of its own, so that nothing is served from a cache; each runs once. The first part of a run fills
caches to their bounds (1,024 loaded kernels, 2,048 operations that ran at once), the rest should stay where these are full.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.jit.backend import compiler

PROGRAMS = (
    lambda A, x, c: (A * c) @ x,
    lambda A, x, c: snp.maximum(A + A, c).sum(axis=1) * x,
    lambda A, x, c: sj.einsum("ij,i,j->ij", A, x, x + c),
    lambda A, x, c: (A @ A) * c,
)


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def grown(count: int, every: int) -> Iterator[tuple[int, int, int]]:
    """(functions compiled, kernels compiled, resident bytes), every so many functions."""
    config.update("cache_dir", "off")
    dense = np.eye(20) + np.eye(20, k=3)
    A, x = sj.array(dense, format="csr"), sj.array(np.ones(20))
    for k in range(1, count + 1):
        program, number = PROGRAMS[k % len(PROGRAMS)], 2.0 + k / 7
        sj.jit(lambda A, x, program=program, number=number: program(A, x, number))(A, x)
        if k % every == 0:
            gc.collect()
            yield k, compiler.compile_count(), resident()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000, help="functions")
    parser.add_argument("--every", type=int, default=500, help="functions between two lines")
    options = parser.parse_args()
    for functions, kernels, size in grown(options.count, options.every):
        print(f"{functions:6} functions  {kernels:6} kernels  {size / 2**20:7.1f} MB", flush=True)


if __name__ == "__main__":
    main()
