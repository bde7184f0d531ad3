"""What operations between products take beside their results: `python -m benchmarks.everyday_memory [--rows 1000000] [--only slices]`.

The rows are those of `benchmarks.everyday` that select, put together, make and convert. Each is run once before; then free blocks are given up, the peak
of the resident set is reset, and it is run again. `temporary` is the peak less what is resident while the result is there; at most the result's
own size is allowed, and SLACK for what an allocator keeps; of two operations in a row, the result of the first is no temporary memory. SciPy's
beside it. Needs Linux.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import memory
from benchmarks.everyday import ROWS, Data, operands

BETWEEN: dict[str, Callable[[Data], Any]] = {"A[perm][:, perm]": lambda d: d["A"][d["perm"]]}
"""What a row that is two operations makes in between: a result of the first, which the second needs until it is done."""
GROUPS = ("slices", "gathers", "lines", "putting together", "made", "formats")
SLACK = 1 << 20


def size(result: Any) -> int:
    """Bytes of a result."""
    if isinstance(result, tuple | list):
        return sum(map(size, result))
    if isinstance(result, sj.Array):
        return result.nbytes
    if sp.issparse(result):
        arrays = (getattr(result, name, None) for name in ("data", "indices", "indptr", "row", "col", "offsets"))
        return sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))
    return int(np.asarray(result).nbytes)


def temporary(run: Callable[[Data], Any], data: Data) -> tuple[int, int]:
    """Bytes that a run takes at most beside its result, and the size of that."""
    run(data)
    memory.settle()
    result = run(data)
    peak = memory.status("VmHWM")
    memory.settle()
    return max(0, peak - memory.status("VmRSS")), size(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="a group or the name of a row")
    options = parser.parse_args()
    ours, theirs = operands(options.rows)
    print(f"{'':18}{'result':>10} {'temporary':>10} {'ratio':>7} {'SciPy':>7}   MiB, of {options.rows} rows")
    for row in ROWS:
        if row.group not in GROUPS or options.only not in ("", row.group, row.name) or options.rows > row.largest:
            continue
        (taken, own), (other, their_own) = temporary(row.ours, ours), temporary(row.scipy, theirs)
        if row.name in BETWEEN:
            taken, other = taken - size(BETWEEN[row.name](ours)), other - size(BETWEEN[row.name](theirs))
        mark = " <" if taken > own + SLACK else ""
        ratio, scipy = taken / max(own, 1), other / max(their_own, 1)
        print(f"{row.name:18}{own / 2**20:10.1f} {taken / 2**20:10.1f} {ratio:7.2f} {scipy:7.2f}{mark}", flush=True)


if __name__ == "__main__":
    main()
