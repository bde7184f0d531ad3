"""What C allows: products of block-sparse matrices by hand-written code, beside ours and the peers of `benchmarks.run --table indirect --ops blocks`.

    python -m benchmarks.native_blocks [--seconds 1] [--stored 0.5,0.2,0.05] [--quick]

The C code is what one would write for `bsr` with float32 blocks where there are 32 registers of a line each: tiles of eight rows and two or three
lines, whose sums are held over the walk (`h`) or over a block alone (`b`); in panels of some strips of columns, packed one strip after the other, or
over all columns as they lie (`0`); what meets the blocks 0, 2 or 4 further on is fetched, with these values two kilobytes further on. All are
compiled by the C compiler of the system; without one nothing is measured, and a line says so. Results are compared first. The best C program is found
beforehand and takes part alone: several that share operands would leave these in the caches for each other. Everybody runs once a round, in a random
order. A cell is the median, over rounds, of the best peer's time over this one's, in processor time of one thread.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# before NumPy is imported: its threads would spin beside what runs next, as its time
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import indirect
from benchmarks.native_walk import aligned, compiled

SOURCE = r"""
typedef float V __attribute__((vector_size(64), aligned(4)));
#define INLINE static inline __attribute__((always_inline))
enum { L = 16, R = 8 };
/* the tile of rows r.. of one block: t += x (n values a row) * b (rows ld apart) */
INLINE void product(V t[R][3], int lines, const float *x, int n, const float *b, long ld) {
  for (int k = 0; k < n; k++) {
    V w[3];
    for (int v = 0; v < lines; v++) w[v] = *(const V *)(b + k * ld + L * v);
    for (int r = 0; r < R; r++) for (int v = 0; v < lines; v++) t[r][v] += x[r * n + k] * w[v];
  }
}
INLINE void fetch(const float *b, int n, int lines, long ld) {
  for (int k = 0; k < n; k++) for (int v = 0; v < lines; v++) __builtin_prefetch(b + k * ld + L * v);
}
/* values of later blocks: the processor does not look past the end of a page */
INLINE void behind(const float *x, int n) {
  for (int k = 0; k < R * n; k += L) __builtin_prefetch(x + k + 512);
}
/* a strip of `lines` lines of a row of blocks */
INLINE void strip(long lo, long hi, long last, const int *crd, const float *vals, const float *B, long ld, float *C, long m,
                  int n, int lines, int ahead, int held) {
  V t[R][3];
  if (held) {
    for (int r0 = 0; r0 < n; r0 += R) {
      for (int r = 0; r < R; r++) for (int v = 0; v < lines; v++) t[r][v] = (V){0};
      for (long p = lo; p < hi; p++) {
        if (ahead && !r0) fetch(B + (long)crd[p + ahead < last ? p + ahead : last - 1] * n * ld, n, lines, ld);
        if (ahead) behind(vals + p * n * n + r0 * n, n);
        product(t, lines, vals + p * n * n + r0 * n, n, B + (long)crd[p] * n * ld, ld);
      }
      for (int r = 0; r < R; r++) for (int v = 0; v < lines; v++) *(V *)(C + (r0 + r) * m + L * v) = t[r][v];
    }
    return;
  }
  for (int r = 0; r < n; r++) for (int v = 0; v < lines; v++) *(V *)(C + r * m + L * v) = (V){0};
  for (long p = lo; p < hi; p++)
    for (int r0 = 0; r0 < n; r0 += R) {
      if (ahead) fetch(B + ((long)crd[p + ahead < last ? p + ahead : last - 1] * n + r0) * ld, R, lines, ld);
      for (int r = 0; r < R; r++) for (int v = 0; v < lines; v++) t[r][v] = *(const V *)(C + (r0 + r) * m + L * v);
      if (ahead) behind(vals + p * n * n + r0 * n, n);
      product(t, lines, vals + p * n * n + r0 * n, n, B + (long)crd[p] * n * ld, ld);
      for (int r = 0; r < R; r++) for (int v = 0; v < lines; v++) *(V *)(C + (r0 + r) * m + L * v) = t[r][v];
    }
}
INLINE void panels(long rows, const int *pos, const int *crd, const float *vals, const float *B, float *C, float *P,
                   long m, long depth, int n, int lines, int strips, int ahead, int held) {
  long last = pos[rows], w = L * lines, wide = strips ? strips * w : m;
  for (long j0 = 0; j0 < m; j0 += wide) {
    long j1 = j0 + wide < m ? j0 + wide : m;
    for (long j = j0; strips && j < j1; j += w)
      for (long k = 0; k < depth; k++)
        for (long v = 0; v < lines && j + L * v < m; v++)
          *(V *)(P + (j - j0) * depth + k * w + L * v) = *(const V *)(B + k * m + j + L * v);
    for (long i = 0; i < rows; i++)
      for (long j = j0; j < j1; j += w) {
        const float *b = strips ? P + (j - j0) * depth : B + j;
        float *c = C + i * n * m + j;
        if (m - j >= w) strip(pos[i], pos[i + 1], last, crd, vals, b, strips ? w : m, c, m, n, lines, ahead, held);
        else strip(pos[i], pos[i + 1], last, crd, vals, b, strips ? w : m, c, m, n, 2, ahead, held); /* two lines are left */
      }
  }
}
#define MAKE(NAME, N, LINES, STRIPS, AHEAD, HELD) \
  void NAME(long rows, const int *pos, const int *crd, const float *vals, const float *B, float *C, float *P, long m, long depth) { \
    panels(rows, pos, crd, vals, B, C, P, m, depth, N, LINES, STRIPS, AHEAD, HELD); }
"""
VARIANTS = {
    8: (
        (2, 2, 0, 1),
        (2, 2, 2, 1),
        (2, 2, 4, 1),
        (3, 1, 0, 1),
        (3, 1, 2, 1),
        (3, 1, 4, 1),
        (3, 2, 2, 1),
        (2, 0, 2, 1),
        (3, 0, 2, 1),
    ),
    32: ((2, 2, 0, 0), (2, 1, 2, 0), (3, 1, 2, 0), (2, 0, 0, 0), (2, 0, 2, 0), (3, 0, 2, 0), (2, 2, 0, 1)),
}
"""Of each size of block: lines, strips of a panel (0: no panels), blocks ahead, and whether sums are held over the walk."""


def name_of(block: int, lines: int, strips: int, ahead: int, held: int) -> str:
    return f"{'bh'[held]}{block}_{lines}x{strips}_{ahead}"


def source() -> str:
    """The code, with a function for every variant."""
    made = (f"MAKE({name_of(n, *v)}, {n}, {', '.join(map(str, v))})\n" for n, each in VARIANTS.items() for v in each)
    return SOURCE + "".join(made)


def blocks_of(library: ctypes.CDLL, theirs: sp.bsr_array, given: np.ndarray) -> indirect.Runs:
    """The C code by name: the product of a matrix in blocks and a dense operand of a multiple of 32 columns."""
    pos, crd, vals = theirs.indptr.astype(np.int32), theirs.indices.astype(np.int32), theirs.data
    made, out = aligned(given.shape), aligned((theirs.shape[0], given.shape[1]))
    made[:] = given
    room = aligned((given.shape[0], 96))
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (pos, crd, vals, made, out, room)]
    sizes = [ctypes.c_long(n) for n in (given.shape[1], given.shape[0])]

    def run_of(name: str) -> Callable[[], Any]:
        def run(keep: Any = (pos, crd, vals, made, room)) -> np.ndarray:
            getattr(library, name)(ctypes.c_long(len(pos) - 1), *pointers, *sizes)
            return out

        return run

    block = theirs.blocksize[0]
    return {name: run_of(name) for name in (name_of(block, *v) for v in VARIANTS[block])}


def fastest(walks: indirect.Runs, rounds: int = 7) -> str:
    """The program of the least median of processor times, all in turns."""
    times: dict[str, list[float]] = {name: [] for name in walks}
    for _ in range(rounds):
        for name, run in walks.items():
            started = time.process_time()
            run()
            times[name].append(time.process_time() - started)
    return min(walks, key=lambda name: statistics.median(times[name]))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long a row is measured")
    parser.add_argument("--stored", default="0.5,0.2,0.05", help="shares of blocks that are stored")
    parser.add_argument("--quick", action="store_true", help="matrices of 512 rows")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sj.config.using(num_threads=1):
        library = compiled(Path(folder), source())
        return 0 if library is None else table(library, options)


def table(library: ctypes.CDLL, options: argparse.Namespace) -> int:
    """Print a line for every row, and the least and the mean; 1 where a result was wrong."""
    columns, failed = dict[str, list[float]](), False
    shares = tuple(float(share) for share in options.stored.split(","))
    for case in indirect.blocks(options.quick, shares):
        walks = blocks_of(library, *case.given)
        wrong = indirect.compared(
            indirect.Case(case.part, case.name, {**case.ours, **walks}, case.peers, case.expected)
        )
        failed |= bool(wrong)
        native = fastest(walks)
        whole = indirect.Case(case.part, case.name, {**case.ours, native: walks[native]}, case.peers, case.expected)
        times = indirect.measured(whole, options.seconds)
        best = min((n for n in times if n in case.peers), key=lambda n: statistics.median(times[n]))
        ratio = {n: statistics.median(t / o for t, o in zip(times[best], times[n], strict=True)) for n in whole.ours}
        found = {**{n: ratio[n] for n in case.ours}, "C": ratio[native]}
        if not columns:
            print(f"| case | best peer | ms | {' | '.join(found)} | which |\n|{'---|' * (len(found) + 4)}")
        for name, value in found.items():
            columns.setdefault(name, []).append(value)
        cells = " | ".join(f"{value:.2f}" for value in found.values())
        notes = f" wrong: {wrong}" if wrong else ""
        took = 1e3 * statistics.median(times[best])
        print(f"| {case.name} | {best} | {took:.2f} | {cells} | {native}{notes} |", flush=True)
    for title, of in (("least", min), ("geometric mean", lambda c: math.exp(statistics.mean(map(math.log, c))))):
        print(f"| **{title}** | | | {' | '.join(f'{of(c):.2f}' for c in columns.values())} | |")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
