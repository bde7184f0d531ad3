"""What C allows: products of real matrices with 128 columns by hand-written code that walks the same arrays, beside SciPy, torch and ours.

    python -m benchmarks.native_walk [--names cora,4elt] [--seconds 1]

The C code is what one would write for `csr` with 128 float32 columns: strips of eight vectors of eight columns in registers, rows of the dense
operand fetched 0, 8 or 16 entries ahead, results stored as usual or past the caches (processors with AVX). All of them are compiled by the C compiler of
the system (`cc -O3 -march=native`); without one nothing is measured, and a line says so. Everybody runs once a round, in a random order; results are
compared first; the result of the C code has memory that was used before. A cell is the median, over rounds, of the best peer's time over this one's, in
processor time of one thread; of the C code the best variant counts, matrix by matrix. The last line has the least and the geometric mean of both: what the
same walk, written by hand, gains here.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import shutil
import statistics
import subprocess
import tempfile
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
from benchmarks import datasets, indirect

COLUMNS = indirect.COLUMNS
SOURCE = r"""
#ifdef __AVX__
#include <immintrin.h>
#endif
typedef float V __attribute__((vector_size(32), aligned(4)));
enum { N = 128 };
static inline __attribute__((always_inline)) void product(
    long rows, const long *pos, const int *crd, const float *vals, const float *B, float *C, long ahead, int past) {
  long last = pos[rows];
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < N; j += 64) {
      V a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, a4 = {0}, a5 = {0}, a6 = {0}, a7 = {0};
      for (long p = pos[i]; p < pos[i + 1]; p++) {
        const V *b = (const V *)(B + (long)crd[p] * N + j);
        if (ahead && j == 0) {
          const float *next = B + (long)crd[p + ahead < last ? p + ahead : last - 1] * N;
          for (int line = 0; line < 8; line++) __builtin_prefetch(next + 16 * line);
        }
        float x = vals[p];
        a0 += x * b[0]; a1 += x * b[1]; a2 += x * b[2]; a3 += x * b[3];
        a4 += x * b[4]; a5 += x * b[5]; a6 += x * b[6]; a7 += x * b[7];
      }
      V *c = (V *)(C + i * N + j);
#ifdef __AVX__
      if (past) {
        float *d = (float *)c;
        _mm256_stream_ps(d, (__m256)a0); _mm256_stream_ps(d + 8, (__m256)a1);
        _mm256_stream_ps(d + 16, (__m256)a2); _mm256_stream_ps(d + 24, (__m256)a3);
        _mm256_stream_ps(d + 32, (__m256)a4); _mm256_stream_ps(d + 40, (__m256)a5);
        _mm256_stream_ps(d + 48, (__m256)a6); _mm256_stream_ps(d + 56, (__m256)a7);
        continue;
      }
#endif
      c[0] = a0; c[1] = a1; c[2] = a2; c[3] = a3; c[4] = a4; c[5] = a5; c[6] = a6; c[7] = a7;
    }
}
#define WALK(NAME, AHEAD, PAST) void NAME(long rows, const long *pos, const int *crd, const float *vals, \
    const float *B, float *C) { product(rows, pos, crd, vals, B, C, AHEAD, PAST); }
WALK(plain, 0, 0) WALK(ahead8, 8, 0) WALK(ahead16, 16, 0) WALK(past8, 8, 1)
"""
WALKS = ("plain", "ahead8", "ahead16", "past8")


def compiled(folder: Path, text: str = SOURCE) -> ctypes.CDLL | None:
    """C code as a library; None, and a line that says why, where nothing can compile it."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        print("skipped: there is no C compiler (cc, gcc, clang)")
        return None
    source, library = folder / "walk.c", folder / "walk.so"
    source.write_text(text)
    flags = ["-O3", "-march=native", "-shared", "-fPIC", "-w"]
    made = subprocess.run(
        [compiler, *flags, str(source), "-o", str(library)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        print(f"skipped: {compiler} cannot compile the code: {made.stderr.strip().splitlines()[-1:]}")
        return None
    return ctypes.CDLL(str(library))


def aligned(shape: tuple[int, int]) -> np.ndarray:
    """Memory that begins with a line."""
    size = math.prod(shape)
    room = np.empty(size + 16, np.float32)
    first = -room.ctypes.data // 4 % 16
    return room[first : first + size].reshape(shape)


def walks_of(library: ctypes.CDLL, theirs: sp.csr_array, made: np.ndarray, out: np.ndarray) -> indirect.Runs:
    """The C code by name: the product of a matrix and a dense operand of `COLUMNS` columns, written to `out`."""
    pos, crd, vals = theirs.indptr.astype(np.int64), theirs.indices.astype(np.int32), theirs.data
    given = [ctypes.c_void_p(x.ctypes.data) for x in (pos, crd, vals, made, out)]

    def walk(name: str) -> Callable[[], Any]:
        def run(keep: Any = (pos, crd, vals, made)) -> np.ndarray:
            getattr(library, name)(ctypes.c_long(theirs.shape[0]), *given)
            return out

        return run

    return {name: walk(name) for name in WALKS}


def case_of(name: str, library: ctypes.CDLL) -> tuple[indirect.Case, tuple[str, ...]]:
    """A matrix, and which of its runs are C."""
    theirs = sp.csr_array(datasets.matrix(name).astype(np.float32))
    made = aligned((theirs.shape[1], COLUMNS))
    made[:] = np.random.default_rng(0).standard_normal(made.shape, np.float32)
    out = aligned((theirs.shape[0], COLUMNS))
    A, B, product = sj.array(theirs), sj.array(made), sj.jit(lambda A, B: A @ B)
    ours: indirect.Runs = {"ours": lambda: product(A, B), **walks_of(library, theirs, made, out)}
    peers: indirect.Runs = {"scipy": lambda: theirs @ made}
    torch = indirect.torch_or_none()
    if torch is not None:
        parts = (torch.tensor(x) for x in (theirs.indptr, theirs.indices, theirs.data))
        left, right = torch.sparse_csr_tensor(*parts, size=theirs.shape), torch.tensor(made)
        peers["torch csr"] = lambda: left @ right
    return indirect.Case("graphs", name, ours, peers, theirs @ made), WALKS


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--names", default="", help="matrices, separated by commas (default: all of 50,000 entries and more, and cora)"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="about how long a matrix is measured")
    options = parser.parse_args()
    if datasets.folder() is None:
        print("skipped: there are no matrices (SPARSEJAX_DATA)")
        return 0
    with tempfile.TemporaryDirectory() as folder, sj.config.using(num_threads=1):
        library = compiled(Path(folder))
        return 0 if library is None else table(library, [n for n in options.names.split(",") if n], options.seconds)


def table(library: ctypes.CDLL, names: list[str], seconds: float) -> int:
    """Print a line for every matrix, and the least and the mean; 1 where a result was wrong."""
    print("| matrix | best peer | ms | ours | C | which |\n|---|---|---|---|---|---|")
    ours, theirs, failed = list[float](), list[float](), False
    for name in names or datasets.matrix_names():
        matrix = datasets.matrix(name)
        if matrix.dtype.kind == "c" or (not names and matrix.nnz < 50_000 and name != "cora"):
            continue
        case, walks = case_of(name, library)
        wrong = indirect.compared(case)
        failed |= bool(wrong)
        times = indirect.measured(case, seconds)
        peers = {n: statistics.median(t) for n, t in times.items() if n in case.peers}
        best = min(peers, key=lambda n: peers[n])
        ratio = {n: statistics.median(t / o for t, o in zip(times[best], times[n], strict=True)) for n in case.ours}
        c = max(walks, key=lambda n: ratio[n])
        ours.append(ratio["ours"])
        theirs.append(ratio[c])
        notes = f" wrong: {wrong}" if wrong else ""
        print(
            f"| {name} | {best} | {1e3 * peers[best]:.2f} | {ratio['ours']:.2f} | {ratio[c]:.2f} | {c}{notes} |",
            flush=True,
        )
    for title, of in (("least", min), ("geometric mean", lambda c: math.exp(statistics.mean(map(math.log, c))))):
        if ours:
            print(f"| **{title}** | | | {of(ours):.2f} | {of(theirs):.2f} | |")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
