"""What a product of two sparse matrices takes in C: the rows of `A @ A` in blocks, as `dask_scaling` cuts them, by programs that know nothing but this product.

    python -m benchmarks.spgemm_bound                          # NotreDame_www, nanoseconds of a multiplication; needs gcc
    python -m benchmarks.spgemm_bound --data ca-CondMat --shards 1

    list            SciPy's two passes, of which the first counts: a linked list of the columns of a row, which come out without order
    dense           one pass: values, marks and a list of new columns; without order
    dense, sorted   the same, with the list sorted: insertion up to 24 columns, bits where they are near each other, else radix
    hash            open addressing, a table of twice the multiplications of a row; without order
    read            the multiplications alone, added to one number

Memory of results in C is the same in every round, and was written before. The least of some rounds, processor time, in turns with ours (columns in order) and
SciPy's, whose columns come as they are met.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import datasets

SOURCE = r"""
#include <stdint.h>
#include <string.h>
typedef int32_t I;
#define ARGS I a, I b, I n, const I *ip, const I *ix, const double *dx, I *op, I *oi, double *od, I *mark, double *sums
#define EACH_ENTRY for (I k = ip[i]; k < ip[i + 1]; k++)
#define EACH_PRODUCT for (I r = ix[k], j = ip[r]; j < ip[r + 1]; j++)

I list(ARGS) {
  I q = 0, total = 0;
  memset(mark, 0xff, sizeof(I) * n);
  for (I i = a; i < b; i++) EACH_ENTRY EACH_PRODUCT if (mark[ix[j]] != i) { mark[ix[j]] = i; total++; }
  memset(mark, 0xff, sizeof(I) * n);
  for (I i = a; i < b; i++) {
    I head = -2, length = 0;
    EACH_ENTRY EACH_PRODUCT {
      I c = ix[j];
      sums[c] += dx[k] * dx[j];
      if (mark[c] == -1) { mark[c] = head; head = c; length++; }
    }
    while (length--) {
      I next = mark[head];
      oi[q] = head; od[q++] = sums[head]; mark[head] = -1; sums[head] = 0; head = next;
    }
    op[i - a + 1] = q;
  }
  memset(mark, 0, sizeof(I) * n);
  return q == total ? q : -1;
}

static I other[1 << 20];
static uint64_t bits[1 << 15];

static void sort(I *x, I m) {
  if (m < 24) {
    for (I p = 1; p < m; p++) { I v = x[p], q = p; while (q && x[q - 1] > v) { x[q] = x[q - 1]; q--; } x[q] = v; }
    return;
  }
  I low = x[0], high = x[0], *from = x, *to = other;
  for (I p = 1; p < m; p++) { if (x[p] < low) low = x[p]; if (x[p] > high) high = x[p]; }
  uint32_t range = high - low;
  if (range < 64u * m && range < 64u << 15) {
    I words = (range >> 6) + 1, q = 0;
    memset(bits, 0, 8 * words);
    for (I p = 0; p < m; p++) bits[(uint32_t)(x[p] - low) >> 6] |= 1ull << ((x[p] - low) & 63);
    for (I w = 0; w < words; w++) for (uint64_t y = bits[w]; y; y &= y - 1) x[q++] = low + (w << 6) + __builtin_ctzll(y);
    return;
  }
  for (int shift = 0; shift < 32 && range >> shift; shift += 8) {
    I counts[257] = {0};
    for (I p = 0; p < m; p++) counts[((uint32_t)(from[p] - low) >> shift & 255) + 1]++;
    for (int d = 0; d < 256; d++) counts[d + 1] += counts[d];
    for (I p = 0; p < m; p++) to[counts[(uint32_t)(from[p] - low) >> shift & 255]++] = from[p];
    I *kept = from; from = to; to = kept;
  }
  if (from != x) memcpy(x, from, sizeof(I) * m);
}

static inline I one_pass(ARGS, int sorted) {
  uint8_t *seen = (uint8_t *)mark;
  I q = 0;
  for (I i = a; i < b; i++) {
    I *own = oi + q, length = 0;
    EACH_ENTRY {
      if (k + 8 < ip[n]) { I r = ix[k + 8]; __builtin_prefetch(ix + ip[r]); __builtin_prefetch(dx + ip[r]); }
      EACH_PRODUCT { I c = ix[j]; own[length] = c; length += !seen[c]; seen[c] = 1; sums[c] += dx[k] * dx[j]; }
    }
    if (sorted) sort(own, length);
    for (I p = 0; p < length; p++) { I c = own[p]; od[q + p] = sums[c]; sums[c] = 0; seen[c] = 0; }
    op[i - a + 1] = q += length;
  }
  return q;
}
I dense(ARGS) { return one_pass(a, b, n, ip, ix, dx, op, oi, od, mark, sums, 0); }
I dense_sorted(ARGS) { return one_pass(a, b, n, ip, ix, dx, op, oi, od, mark, sums, 1); }

I hash(ARGS) { /* mark: columns + 1 */
  I q = 0;
  for (I i = a; i < b; i++) {
    I *own = oi + q, length = 0, capacity = 16;
    long most = 0;
    EACH_ENTRY most += ip[ix[k] + 1] - ip[ix[k]];
    while (capacity < 2 * most && 2 * capacity <= n) capacity *= 2;
    EACH_ENTRY EACH_PRODUCT {
      I c = ix[j], h = (uint32_t)c * 2654435769u >> 7 & (capacity - 1);
      while (mark[h] && mark[h] != c + 1) h = (h + 1) & (capacity - 1);
      if (!mark[h]) { mark[h] = c + 1; own[length] = c; other[length++] = h; sums[h] = dx[k] * dx[j]; }
      else sums[h] += dx[k] * dx[j];
    }
    for (I p = 0; p < length; p++) { od[q + p] = sums[other[p]]; sums[other[p]] = 0; mark[other[p]] = 0; }
    op[i - a + 1] = q += length;
  }
  return q;
}

I read_only(ARGS) {
  double sum = 0;
  I names = 0;
  for (I i = a; i < b; i++) EACH_ENTRY EACH_PRODUCT { sum += dx[k] * dx[j]; names += ix[j]; }
  od[0] = sum + names;
  return 0;
}
"""
WAYS = {
    "list": "list",
    "dense": "dense",
    "dense, sorted": "dense_sorted",
    "hash": "hash",
    "read": "read_only",
}


def built(folder: Path) -> ctypes.CDLL:
    (folder / "bound.c").write_text(SOURCE)
    command = [
        "gcc",
        "-O3",
        "-march=native",
        "-shared",
        "-fPIC",
        "-o",
        str(folder / "bound.so"),
        str(folder / "bound.c"),
    ]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "bound.so"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="NotreDame_www")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    import sparsejax.dask as sd

    A = sp.csr_array(datasets.matrix(args.data), dtype=np.float64)
    n, rows = A.shape[0], sd.shard(A, rows=args.shards).cuts[0]
    ip, ix, dx = A.indptr.astype(np.int32), A.indices.astype(np.int32), A.data
    lengths = np.diff(ip)
    made = A @ A
    most = made.nnz + int(lengths.max()) ** 2 + 64
    starts, columns, values = np.zeros(n + 1, np.int32), np.ones(most, np.int32), np.ones(most)
    mark, sums = np.zeros(n, np.int32), np.zeros(n)
    multiplications = int(lengths[ix].sum())
    print(
        f"{args.data}: {n:,} rows, {A.nnz:,} entries, {multiplications:,} multiplications, {made.nnz:,} entries of the product"
    )

    with tempfile.TemporaryDirectory() as folder:
        library = built(Path(folder))

        def by_c(name: str) -> Callable[[], Any]:
            function = getattr(library, name)
            given = [ctypes.c_void_p(x.ctypes.data) for x in (ip, ix, dx)]
            kept = [ctypes.c_void_p(x.ctypes.data) for x in (mark, sums)]

            def run() -> Any:
                count, parts = 0, []
                for a, b in itertools.pairwise(rows):
                    at = [x.ctypes.data + x.itemsize * count for x in (columns, values)]
                    own = function(
                        a, b, n, *given, ctypes.c_void_p(starts.ctypes.data), *map(ctypes.c_void_p, at), *kept
                    )
                    assert own >= 0
                    parts.append(starts[1 : b - a + 1] + count)
                    count += own
                return np.concatenate([[0], *parts]), count

            return run

        product = sj.jit(lambda X, Y: X @ Y)
        blocks, whole = [sj.array(A[a:b]) for a, b in itertools.pairwise(rows)], sj.array(A)
        theirs = [A[a:b] for a, b in itertools.pairwise(rows)]
        programs = {name: by_c(function) for name, function in WAYS.items()}
        programs["ours, sorted"] = lambda: [product(x, whole) for x in blocks]
        programs["SciPy"] = lambda: [x @ A for x in theirs]
        spent = dict.fromkeys(programs, np.inf)
        with sj.config.using(num_threads=1):
            for turn in range(args.rounds):
                for name, run in programs.items():
                    start = time.process_time()
                    found = run()
                    spent[name] = min(spent[name], time.process_time() - start)
                    if turn == 0 and name in WAYS and name != "read":
                        own = sp.csr_array((values[: found[1]], columns[: found[1]], found[0]), shape=A.shape)
                        assert abs(own - made).max() <= 1e-12 * abs(made).max(), name
    print("| program | ms | ns per multiplication | SciPy / it |\n|---|---|---|---|")
    for name, seconds in spent.items():
        print(
            f"| {name} | {seconds * 1e3:.1f} | {seconds * 1e9 / multiplications:.2f} | {spent['SciPy'] / seconds:.2f} |"
        )


if __name__ == "__main__":
    main()
