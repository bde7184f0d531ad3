"""Predicted entries of A @ A and A @ A.T on the real matrices, against the truth.

    python -m benchmarks.fillin                 the table, and medians of the q-error max(predicted/true, true/predicted)
    python -m benchmarks.fillin --largest 1e7   only products of at most so many multiplications (default 3e8)

model     what schedules go by: entries and extents alone, spread uniformly (`autoschedule.level_counts`, exact facts)
sampled   what `explain` forecasts by: the pattern of a sample of rows (`sampling.entries`)
skew      the second moment of the degrees over that of equal degrees: power-law matrices have a large one
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import cases, datasets
from sparsejax.jit import autoschedule, facts, sampling


def q_error(predicted: float, true: float) -> float:
    return max(predicted / true, true / predicted) if predicted > 0 and true > 0 else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=3e8, help="multiplications of the largest product")
    options = parser.parse_args()
    errors, skews = [], []
    print(f"{'matrix':36} {'product':7} {'entries':>10} {'model':>7} {'sampled':>7} {'skew':>7} {'ms':>6}")
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
            known = facts.of(nest, inputs, exact=True)
            model = autoschedule.level_counts(nest, known)[-1]
            started = time.thread_time()
            sampled = sampling.entries(nest, inputs)
            took = 1e3 * (time.thread_time() - started)
            skew = len(columns) * float(columns @ columns) / A.nnz**2
            errors.append((q_error(model, true), q_error(sampled or 0.0, true)))
            skews.append(skew)
            print(f"{name:36} {what:7} {true:10} {errors[-1][0]:7.2f} {errors[-1][1]:7.2f} {skew:7.1f} {took:6.1f}")
    if not errors:
        print("no matrices: set SPARSEJAX_DATA")
        return
    table, heavy = np.array(errors), np.array(skews) > 3
    for label, part in (("all", table), ("skew > 3", table[heavy])):
        median, tail, worst = np.median(part, 0), np.quantile(part, 0.9, axis=0), part.max(0)
        print(f"{label}: {len(part)} products; q-error of the model: median {median[0]:.3f}, 90 % {tail[0]:.2f}, worst")
        print(f"  {worst[0]:.2f}; of the sample: median {median[1]:.3f}, 90 % {tail[1]:.3f}, worst {worst[1]:.2f}")


if __name__ == "__main__":
    main()
