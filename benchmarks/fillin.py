"""Predicted entries of A @ A and A @ A.T on the real matrices, against the truth.

    python -m benchmarks.fillin                 the table, and medians of the q-error max(predicted/true, true/predicted)
    python -m benchmarks.fillin --largest 1e7   only products of at most so many multiplications (default 3e8)
    python -m benchmarks.fillin --time          what observing collisions takes, beside the product itself

even      entries and degrees alone: points meet by chance
model     what schedules go by (`search.level_counts`): exact facts, with collisions where these are worth observing
rounded   the same by the facts that schedules see, which are powers of two
sampled   what `explain` forecasts by: the pattern of a sample of rows (`sampling.entries`)
skew      the second moment of the degrees over that of equal degrees: power-law matrices have a large one
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import cases, counting, datasets
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import collisions, sampling, statistics
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import search


def q_error(predicted: float, true: float) -> float:
    return max(predicted / true, true / predicted) if predicted > 0 and true > 0 else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=3e8, help="multiplications of the largest product")
    parser.add_argument("--time", action="store_true", help="time observations and products")
    options = parser.parse_args()
    errors, skews, shares = [], [], []
    print(
        f"{'matrix':36} {'product':7} {'entries':>10} {'even':>7} {'model':>7} {'rounded':>7} {'sampled':>7} {'skew':>7} {'ms':>6}"
    )
    for name in datasets.matrix_names():
        A = datasets.matrix(name)
        A = sp.csr_array((np.ones(A.nnz), A.indices, A.indptr), shape=A.shape)
        for what, expression in (("A@A", "ij,jk->ik"), ("A@A.T", "ij,kj->ik")):
            B = A if what == "A@A" else A.T.tocsr()
            columns, rows = np.bincount(A.indices, minlength=A.shape[1]).astype(float), np.diff(B.indptr).astype(float)
            if A.shape[1] != B.shape[0] or columns @ rows > options.largest:
                continue
            true = (A @ B).nnz
            case = cases.Case("fill-in", expression, ("csr", "csr"), name)
            nest, inputs = cases.kernel(case, [sj.array(A), sj.array(A)])
            known = statistics.of(nest, inputs, exact=True)
            model = search.level_counts(nest, known)[-1]
            seen = search.level_counts(nest, statistics.of(nest, inputs))[-1]
            even = search.level_counts(nest, replace(known, collisions=None))[-1]
            spent = share(nest, inputs) if options.time and known.collisions is not None else None
            shares += [] if spent is None else [spent]
            started = time.thread_time()
            sampled = sampling.entries(nest, inputs)
            took = 1e3 * (time.thread_time() - started)
            skew = len(columns) * float(columns @ columns) / A.nnz**2
            errors.append(tuple(q_error(x or 0.0, true) for x in (even, model, seen, sampled)))
            skews.append((skew, known.collisions is not None))
            cells = " ".join(f"{x:7.2f}" for x in (*errors[-1], skew))
            print(
                f"{name:36} {what:7} {true:10} {cells} {took:6.1f}" + ("" if spent is None else f" {spent:.2%}"),
                flush=True,
            )
    if not errors:
        print("no matrices: set SPARSEJAX_DATA")
        return
    table, heavy, known = np.array(errors), np.array(skews)[:, 0] > 3, np.array(skews)[:, 1] > 0
    print(f"{'':16}" + "".join(f"{n:>26}" for n in ("even", "model", "rounded", "sampled")))
    for label, part in (
        ("all", table),
        ("skew > 3", table[heavy]),
        ("observed", table[known]),
        ("rest", table[~known]),
    ):
        found = zip(np.median(part, 0), np.quantile(part, 0.9, axis=0), part.max(0), strict=True)
        print(f"{label:9} {len(part):4}  " + "".join("{:10.3f} {:7.2f} {:7.2f}".format(*three) for three in found))
    if shares:
        print(f"observing over product: median {np.median(shares):.2%}, worst {max(shares):.2%}, of {len(shares)}")


def share(nest: Nest, inputs: list[Storage], rounds: int = 7) -> float:
    """Processor time of observing collisions over that of the product, medians."""
    how = collisions.plan(nest)
    assert how is not None
    known, exact = statistics.of(nest, inputs), statistics.of(nest, inputs, exact=True)
    named = dict(zip((t.name for t in nest.inputs), inputs, strict=True))
    run = counting.plain(nest, search.choose(nest, known), known)
    took: tuple[list[float], list[float]] = [], []
    for _ in range(rounds):
        for s in inputs:
            s.cache.pop("collisions", None)
        for times, call in zip(
            took, (lambda: collisions.observed(how, named, exact.couplings), lambda: run(inputs)), strict=True
        ):
            started = time.thread_time()
            call()
            times.append(time.thread_time() - started)
    return float(np.median(took[0]) / np.median(took[1]))


if __name__ == "__main__":
    main()
