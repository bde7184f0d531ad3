"""Principal components of centred single cells without a dense copy, beside scikit-learn: time and peak memory of each.

    python examples/centred_pca.py [--cells 60000 --genes 4000 --density 0.05 --components 50] [--quick]

The centred matrix `A - mu` is dense: 60,000 x 4,000 numbers take 1.9 GB. Here it is an operator, which multiplies as `A @ x` less
`mu @ x`; ARPACK asks for nothing else. Every method runs in a process of its own, so that its peak memory is its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse
from sklearn.decomposition import PCA

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.scipy.sparse import linalg


def counts(cells, genes, density):
    """Counts of cells of five kinds, as logarithms, in csr."""
    rng = np.random.default_rng(0)
    A = sj.random.sparse(sj.random.key(0), (cells, genes), density).to_scipy(copy=True)
    kinds = rng.integers(0, 5, cells)
    means = rng.gamma(0.3, 4.0, (5, genes))
    rows = np.repeat(np.arange(cells), np.diff(A.indptr))
    A.data = np.log1p(rng.poisson(1 + means[kinds[rows], A.indices])).astype(np.float64)
    return A


def ours(A, components):
    A = sj.asarray(A)
    mu = snp.mean(A, axis=0).asformat("dense")
    u, s, _ = linalg.svds(linalg.aslinearoperator(A) - mu, components)
    return (u * s).todense(), s.todense()[::-1]


def scikit_learn(A, components):
    made = PCA(components, svd_solver="arpack").fit(A)
    return made.transform(A), made.singular_values_


def dense(A, components):
    made = PCA(components, svd_solver="randomized", random_state=0)
    return made.fit_transform(A.toarray()), made.singular_values_


METHODS = {"sparsejax": ours, "scikit-learn, sparse": scikit_learn, "scikit-learn, dense copy": dense}


def peak():
    """The most memory that this process had, in MiB: Linux keeps it per program, getrusage takes over that of the parent."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(name, arguments):
    """One method: seconds, peak memory of its process in MiB, singular values."""
    A = scipy.sparse.load_npz(arguments.data)
    start = time.perf_counter()
    _, s = METHODS[name](A, arguments.components)
    return {"seconds": time.perf_counter() - start, "MiB": peak(), "values": s.tolist()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=60_000)
    parser.add_argument("--genes", type=int, default=4_000)
    parser.add_argument("--density", type=float, default=0.05)
    parser.add_argument("--components", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="3,000 cells of 400 genes")
    parser.add_argument("--method", choices=METHODS, help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.cells, options.genes, options.components = 3_000, 400, 10
    if options.method:
        print(json.dumps(measured(options.method, options)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/counts.npz"
        scipy.sparse.save_npz(data, counts(options.cells, options.genes, options.density), compressed=False)
        compared(data, options.components)
    return 0


def compared(data, components):
    first = None
    for name in METHODS:
        command = [sys.executable, __file__, "--data", data, "--components", str(components), "--method", name]
        made = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        first = first or made["values"]
        error = np.abs(np.array(made["values"]) / np.array(first) - 1).max()
        print(
            f"{name:26} {made['seconds']:7.2f} s {made['MiB']:8.0f} MiB at most   singular values differ by {error:.1e}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
