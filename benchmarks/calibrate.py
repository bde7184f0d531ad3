"""Measures the constants of the cost model (`search`) on real matrices, in iterations of a scalar loop.

    python -m benchmarks.calibrate                    medians over matrices of the data folder (else generated ones)
    python -m benchmarks.calibrate --names cora,cage10

An iteration is one of the row sums of a csr matrix, rows and entries counted alike. VECTOR and STRIDED are times per lane of
an innermost dense loop, contiguous and not. Conversions between formats of two dimensions are measured on the same matrices; the
constants of their cost (`conversion_price`) are fitted by least squares of relative errors. Processor times, minimum of five.
The prices of workspaces are measured by benchmarks/workspaces.py.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import scipy.optimize
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import cases, datasets, matrices
from sparsejax.formats import Coordinate, Format, convert
from sparsejax.jit.cost import conversion_price, statistics
from sparsejax.jit.inspect import counting
from sparsejax.jit.ir import cin
from sparsejax.jit.schedule import search

NAMES = (
    "cora",
    "bcsstk16",
    "Wiki-Vote",
    "ca-CondMat",
    "cage10",
    "brack2",
    "soc-slashdot0902-directed",
    "NotreDame_www",
    "karate",
    "bfw782b",
    "p2p-Gnutella08",
)
FORMATS = ("csr", "csc", "coo", "dcsr", "dcsc")
WIDTH = 32


def best(call: Callable[[], object], rounds: int = 5) -> float:
    """Seconds of processor time, the least of several runs."""
    took = []
    for _ in range(rounds):
        started = time.thread_time()
        call()
        took.append(time.thread_time() - started)
    return min(took)


def kernel_seconds(expression: str, formats: tuple[str, ...], order: str, operands: list[sj.Array]) -> float:
    """The time of one kernel under a given loop order."""
    nest, inputs = cases.kernel(cases.Case("calibration", expression, formats, "given"), operands)
    known = statistics.of(nest, inputs)
    loops = tuple(cin.IndexVar(x) for x in order)
    run = counting.plain(nest, search.schedule_of(nest, known, loops), known)
    return best(lambda: run(inputs))


def constants(A: sp.csr_array) -> dict[str, float]:
    """Every constant on one matrix, in iterations."""
    given = sj.array(A, format="csr")
    unit = kernel_seconds("ij->i", ("csr",), "ij", [given]) / (A.shape[0] + A.nnz)
    found = {"ns": 1e9 * unit}
    rng = np.random.default_rng(0)
    H = sj.array(rng.random((A.shape[1], WIDTH)))
    for name, array in (("VECTOR", H), ("STRIDED", H.asformat("(d,d)@(1,0)"))):
        formats = ("csr", str(array.format))
        lanes = (A.nnz + A.shape[0]) * WIDTH
        found[name] = kernel_seconds("ij,jk->ik", formats, "ikj", [given, array]) / lanes / unit
    return found


def conversions(A: sp.csr_array) -> Iterator[tuple[dict[str, float], float]]:
    """The terms of every conversion of one matrix, and the nanoseconds that it takes."""
    for before, after in itertools.permutations((Format.parse(name, 2) for name in FORMATS), 2):
        if not isinstance(after.levels[0], Coordinate):
            storage = sj.array(A, format=str(before)).storage
            took = best(lambda s=storage, f=after: convert.convert(s, f))
            yield conversion_price.terms(before, after, storage.shape, float(storage.nnz)), 1e9 * took


def fitted(measured: Sequence[tuple[dict[str, float], float]]) -> dict[str, float]:
    """The constants of `conversion_price`, none negative, with the least squares of relative errors."""
    names = list(conversion_price.NANOSECONDS)
    matrix = np.array([[terms.get(n, 0.0) / took for n in names] for terms, took in measured])
    solved, _ = scipy.optimize.nnls(matrix, np.ones(len(measured)))
    return {n: float(f"{x:.3g}") for n, x in zip(names, solved, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default=",".join(NAMES), help="comma-separated matrices of the data folder")
    options = parser.parse_args()
    present = set(datasets.matrix_names())
    given = {n: datasets.matrix(n).astype(float) for n in options.names.split(",") if n in present}
    if not given:
        print("no matrices in the data folder; generated ones instead")
        given = {n: matrices.MATRICES[n]() for n in ("uniform", "rmat16", "cora")}
    names = ("ns", "VECTOR", "STRIDED")
    print(f"{'matrix':28}" + "".join(f"{n:>9}" for n in names))
    rows = []
    for name, A in given.items():
        made = constants(sp.csr_array(abs(A)))
        rows.append([made[n] for n in names])
        print(f"{name:28}" + "".join(f"{x:9.2f}" for x in rows[-1]))
    print(f"{'median':28}" + "".join(f"{x:9.2f}" for x in np.median(rows, axis=0)))
    used = [None, *(getattr(search, n) for n in names[1:])]
    print(f"{'in use':28}" + "".join(f"{x:9.2f}" if x is not None else " " * 9 for x in used))
    print("conversions, fitted:", fitted([pair for A in given.values() for pair in conversions(sp.csr_array(abs(A)))]))
    print("conversions, in use:", conversion_price.NANOSECONDS)


if __name__ == "__main__":
    main()
