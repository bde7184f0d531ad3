"""Times sparsejax beside SciPy and other libraries, interleaved, and prints one table.

    python -m benchmarks.run                          every operation on the synthetic matrices of the peer table
    python -m benchmarks.run --matrices real          on every real matrix of the data folder
    python -m benchmarks.run --ops spmv,spgemm --matrices uniform,cora --peers torch,jax,sparse

Each round runs every library once, so that drift of the machine hits all alike; medians are compared. Figures are speeds
relative to SciPy (or to the NumPy composition where SciPy has no such operation): above one is faster than SciPy.
"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    """Parse the command line before NumPy is imported, since the number of BLAS threads is fixed then."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="comma-separated operations (default: all)")
    parser.add_argument("--matrices", default="", help="comma-separated names, or 'real' for every real matrix")
    parser.add_argument("--peers", default="", help="comma-separated: torch, jax, sparse")
    parser.add_argument("--threads", type=int, default=1, help="threads of the peers (sparsejax uses one)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time per row and library, about")
    parser.add_argument("--json", default="", help="also write all medians, in seconds, to this file")
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    if options.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    from benchmarks import harness

    return harness.run(options)


if __name__ == "__main__":
    sys.exit(main())
