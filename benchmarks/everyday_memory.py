"""What operations between products take beside their results: `python -m benchmarks.everyday_memory [--rows 1000000] [--only slices] [--formats csr,coo]`.

The rows are those of `benchmarks.everyday` that select, put together, make and convert, and some `MORE`, of the matrices in each
of the formats (SciPy's in csr): of random entries, or, in formats that these would make far larger, of
`DIAGONALS`. Each is run once before; then free blocks are given up, the peak
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
import sparsejax.numpy as snp
from benchmarks import memory
from benchmarks.everyday import ROWS, Data, Row, both, operands

DIAGONALS = (-2, -1, 0, 1, 2)
"""Offsets of the matrices in formats that store all of a diagonal, or of a row between its ends."""
NARROW = ("dia", "banded", "(d,o)", "(d,s)")


def _diagonals(n: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    lines = [rng.standard_normal(n - abs(k)) for k in DIAGONALS]
    return sp.csr_array(sp.diags_array(lines, offsets=DIAGONALS, shape=(n, n)))


BETWEEN: dict[str, Callable[[Data], Any]] = {"A[perm][:, perm]": lambda d: d["A"][d["perm"]]}
"""What a row that is two operations makes in between: a result of the first, which the second needs until it is done."""
MORE = (
    both("A[A > t]", "more", lambda d: d["A"][d["A"] > 0.5]),
    both("A[::-1]", "more", lambda d: d["A"][::-1]),
    Row("at[R, C].set", "more", lambda d: d["A"].at[d["R"], d["C"]].set(3.0), lambda d: None),
    Row("tril", "more", lambda d: snp.tril(d["A"]), lambda d: sp.tril(d["A"])),
    Row("prune(keep=2)", "more", lambda d: sj.prune(d["A"], keep=2), lambda d: None),
    Row("prune, axis=0", "more", lambda d: sj.prune(d["A"], keep=2, axis=0), lambda d: None),
    Row("repeat", "more", lambda d: snp.repeat(d["A"], 2, axis=0), lambda d: None),
    Row("repeat, axis=1", "more", lambda d: snp.repeat(d["A"], 2, axis=1), lambda d: None),
    Row("A, another format", "more", lambda d: snp.hstack([d["A"], d["other"]]), lambda d: None),
    Row("tile", "more", lambda d: snp.tile(d["A"], (2, 1)), lambda d: None),
    Row("pad", "more", lambda d: snp.pad(d["A"], ((3, 5), (7, 1))), lambda d: None),
    Row("pad, rows", "more", lambda d: snp.pad(d["A"], ((4, 8), (0, 0))), lambda d: None),
    Row("roll, flat", "more", lambda d: snp.roll(d["A"], 5), lambda d: None),
    Row("roll, axis=0", "more", lambda d: snp.roll(d["A"], 5, axis=0), lambda d: None),
    Row("A[lo + 1 : hi - 2]", "more", lambda d: d["A"][d["lo"] + 1 : d["hi"] - 2], lambda d: None),
    Row("A[:, lo:hi], off", "more", lambda d: d["A"][:, d["lo"] + 1 : d["hi"] - 2], lambda d: None),
    Row("block_diag, same", "more", lambda d: sj.block_diag([d["A"], d["B"]], format=d["A"].format), lambda d: None),
    Row("to csr", "more", lambda d: d["A"].asformat("csr"), lambda d: None),
    Row("to coo", "more", lambda d: d["A"].asformat("coo"), lambda d: None),
    Row("of csr", "more", lambda d: d["csr"].asformat(d["A"].format), lambda d: None),
    Row("A.T, this format", "more", lambda d: d["A"].T.asformat(d["A"].format), lambda d: None),
    Row("roll", "more", lambda d: snp.roll(d["A"], 5, axis=1), lambda d: None),
    Row(
        "duplicates",
        "more",
        lambda d: sj.array((d["V"], d["crowded"]), shape=d["A"].shape, format=d["A"].format),
        lambda d: None,
    ),
    Row("argmax, axis=0", "more", lambda d: snp.argmax(d["A"], axis=0), lambda d: d["A"].argmax(axis=0)),
    Row("argmax, axis=1", "more", lambda d: snp.argmax(d["A"], axis=1), lambda d: d["A"].argmax(axis=1)),
)
"""Rows that the table of times has not, or has in another form; SciPy's side, where it has the operation."""
GROUPS = ("slices", "gathers", "lines", "putting together", "made", "formats", "more")
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
    parser.add_argument("--formats", default="csr", help="formats of the matrix, with commas between them")
    options = parser.parse_args()
    for form in options.formats.split(","):
        ours, theirs = operands(options.rows)
        if form in NARROW:
            theirs |= {name: _diagonals(options.rows, seed) for seed, name in enumerate("AB")}
        ours["csr"] = ours["A"]
        ours |= {name: ours[name].asformat(form) for name in ("A", "B")}
        # triplets of which some have the same place
        ours["crowded"] = tuple(ours[name] // 64 * 64 % options.rows for name in "IJ")
        ours["other"] = ours["B"].asformat("csr" if form == "csc" else "csc")
        print(f"{form:18}{'result':>10} {'temporary':>10} {'ratio':>7} {'SciPy':>7}   MiB, of {options.rows} rows")
        for row in (*ROWS, *MORE):
            if row.group in GROUPS and options.only in ("", row.group, row.name) and options.rows <= row.largest:
                tell(row, ours, theirs)


def tell(row: Row, ours: Data, theirs: Data) -> None:
    """Print the line of a row."""
    try:
        taken, own = temporary(row.ours, ours)
    except sj.errors.FormatError as error:  # of which the format stores far more than there is
        print(f"{row.name:18} {str(error)[:90]}", flush=True)
        return
    other, their_own = temporary(row.scipy, theirs)
    if row.name in BETWEEN:
        taken, other = taken - size(BETWEEN[row.name](ours)), other - size(BETWEEN[row.name](theirs))
    mark = " <" if taken > own + SLACK else ""
    ratio, scipy = taken / max(own, 1), other / max(their_own, 1)
    print(f"{row.name:18}{own / 2**20:10.1f} {taken / 2**20:10.1f} {ratio:7.2f} {scipy:7.2f}{mark}", flush=True)


if __name__ == "__main__":
    main()
