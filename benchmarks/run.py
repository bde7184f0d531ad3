"""Times sparsejax beside SciPy and other libraries, interleaved, and prints one table.

    python -m benchmarks.run                          every operation on the synthetic matrices of the peer table
    python -m benchmarks.run --matrices real          on every real matrix of the data folder
    python -m benchmarks.run --quick                  a first look in under a minute
    python -m benchmarks.run --ops spmv,spgemm --matrices uniform,cora --peers torch,jax,sparse,sparse_dot_mkl,graphblas,numba
    python -m benchmarks.run --threads 2 --dtype f4 --json results.json     rows that results.json has are not measured again

    python -m benchmarks.run --table indirect --ops blocks,graphs,points    indirect einsums and block-sparse products (`benchmarks.indirect`)

Every result is compared with SciPy's before anything is timed. Each round runs every library once, so that drift of the machine
hits all alike; medians are compared. Figures are speeds relative to SciPy (or to the NumPy composition where SciPy has no such
operation): above one is faster than SciPy. Run it on an idle machine: a busy neighbour core can change a ratio by a factor.
"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    """Parse the command line before NumPy is imported, since the number of BLAS threads is fixed then."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="comma-separated operations (default: all)")
    parser.add_argument("--table", choices=("operations", "indirect"), default="operations", help="which rows")
    parser.add_argument("--matrices", default="", help="comma-separated names, or 'real' for every real matrix")
    parser.add_argument(
        "--peers", default="", help="comma-separated: torch, jax, sparse, sparse_dot_mkl, graphblas, numba"
    )
    parser.add_argument("--dtype", choices=("f8", "f4"), default="f8", help="precision of all operands")
    parser.add_argument("--threads", type=int, default=1, help="threads of every library")
    parser.add_argument("--seconds", type=float, default=None, help="time per row and library, about (1; --quick: 0.1)")
    parser.add_argument("--quick", action="store_true", help="small matrices and few rounds")
    parser.add_argument(
        "--json", default="", help="keep all medians in this file, and measure only what it does not have"
    )
    parser.add_argument("--again", action="store_true", help="measure also what the file has")
    options = parser.parse_args()
    if options.seconds is None:
        options.seconds = 0.1 if options.quick else 1.0
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "SPARSEJAX_NUM_THREADS",
    ):
        os.environ[name] = str(options.threads)
    os.environ["KMP_BLOCKTIME"] = (
        "1"  # milliseconds that MKL's threads spin; otherwise 200, on the cores of the next library
    )
    if options.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    from benchmarks import harness, indirect

    if options.table == "indirect":
        return indirect.run(options)
    return harness.run(options)


if __name__ == "__main__":
    sys.exit(main())
