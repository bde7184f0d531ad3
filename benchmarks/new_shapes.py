"""What a shape costs that was never seen before: `python -m benchmarks.new_shapes`; of every row of `benchmarks.everyday`: `... --everyday [--only set ...]`.

Operands of random shapes, each used until it has a plan of its own (`roads.FEW`) and is warm: the first call is one of a new shape ("new"), the second
is served as that ("again"), the dearest of the others makes the plan ("plan"), the last is warm, with everything that it touches in the caches.
Then a call on arrays that were never used, of a shape that is warm ("array"): their addresses and facts are found, and nothing else is new; what
"new" takes beyond that is the shape's. And a warm call on an array that was used some shapes ago ("cold"), after operands were made as before the new one:
the caches hold as much of it as of a new shape, so that "new" beside "cold" is what a new shape costs, and "cold" beside "warm" what caches do.
"in a row" is the same without anything in between: fresh operands of other shapes one after the other, and beside them as many that are kept and have plans
of their own, in turns. "hot" is a new shape whose operands were made of SciPy's just before, after the same call on another one; beside it a warm call
that has just run.

Microseconds of the thread, medians; SciPy's call beside it, and how many kernels were scheduled after the first forty shapes.

The everyday rows run at once on matrices of 100 to 400 rows, each a few times larger or smaller than the one before; their operands are there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import everyday
from sparsejax.core import roads
from sparsejax.jit import pipeline

SHAPES, KNOWN = 200, 40
CALLS = roads.FEW + 7
AGO = 20
"""So many shapes ago an array was used last whose warm call finds the caches as a new shape does."""
ROWS = -1
"""In place of columns: a vector with an element for every row of the matrix."""


def operands(rng: np.random.Generator, columns: int) -> tuple[Any, ...]:
    n, m = (int(x) for x in rng.integers(40, 240, 2))
    matrix = sp.random_array((n, m), density=0.1, format="csr", rng=rng)
    other = rng.standard_normal(n if columns == ROWS else (m, columns) if columns else m)
    return matrix, other


PROGRAMS: dict[str, tuple[int, Callable[..., Any], Callable[..., Any]]] = {
    "A @ x": (0, lambda A, x: A @ x, lambda A, x: A @ x),
    "A @ X": (8, lambda A, X: A @ X, lambda A, X: A @ X),
    "A * 2": (0, lambda A, x: A * 2, lambda A, x: A * 2),
    "sum": (0, lambda A, x: A.sum(axis=1), lambda A, x: A.sum(axis=1)),
    "A.T @ A": (0, lambda A, x: A.T @ A, lambda A, x: A.T @ A),
    "A.T": (0, lambda A, x: A.T, lambda A, x: A.T),
    "A.T @ x": (ROWS, lambda A, x: A.T @ x, lambda A, x: A.T @ x),
    "A[3:]": (0, lambda A, x: A[3:], lambda A, x: A[3:]),
}


def timed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    started = time.thread_time()
    function(*arguments)
    return 1e6 * (time.thread_time() - started)


def measured(name: str, jitted: bool) -> str:
    columns, function, plain = PROGRAMS[name]
    rng, scheduled, original = np.random.default_rng(0), 0, pipeline.schedule_of

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal scheduled
        scheduled += 1
        return original(*args, **kwargs)

    pipeline.schedule_of = counted  # type: ignore[assignment]
    run = sj.jit(function) if jitted else function
    rows: list[tuple[float, ...]] = []
    kept: list[tuple[Any, ...]] = []
    late = 0
    for number in range(SHAPES):
        matrix, other = operands(rng, columns)
        ours = sj.array(matrix), sj.array(other)
        before = scheduled
        first, again, *others, warm = (timed(run, ours) for _ in range(CALLS))
        fresh = sj.array(matrix), sj.array(other)
        array, scipy = timed(run, fresh), timed(plain, (matrix, other))
        kept.append(ours)
        _ = [sj.array(x) for x in operands(rng, columns)]
        cold = timed(run, kept[-AGO] if number >= AGO else ours)
        row = first, again, max(others), warm, array, scipy, cold
        if number >= KNOWN:
            rows.append(row)
            late += scheduled - before
    pipeline.schedule_of = original
    new, again, plan, warm, array, scipy, cold = np.median(np.array(rows), axis=0)
    apart, round_ = in_a_row(run, columns, kept)
    how = "jit" if jitted else "at once"
    costs = f"new {new:6.1f}  cold {cold:6.1f}  {new / cold:4.2f}   array {array:6.1f}   again {again:6.1f}   plan {plan:6.1f}"
    begun, run_ = hot(run, columns, ours)
    row_ = f"in a row: new {apart:6.1f}  warm {round_:6.1f}  {apart / round_:4.2f}"
    hot_ = f"hot: new {begun:6.1f}  warm {run_:6.1f}  {begun / run_:4.2f}"
    return f"{name:8} {how:8} {costs}   warm {warm:6.1f}   {row_}   {hot_}   SciPy {scipy:6.1f}   scheduled {late}"


def in_a_row(run: Callable[..., Any], columns: int, kept: Sequence[tuple[Any, ...]]) -> tuple[float, float]:
    """What a call takes on operands of new shapes, one after the other, and on those that are kept, in turns."""
    rng = np.random.default_rng(1)
    fresh = [tuple(sj.array(x) for x in operands(rng, columns)) for _ in kept]
    turns = [timed(run, arguments) for _ in range(3) for arguments in kept]
    return float(np.median([timed(run, arguments) for arguments in fresh])), float(np.median(turns[len(kept) :]))


def hot(run: Callable[..., Any], columns: int, known: tuple[Any, ...]) -> tuple[float, float]:
    """What a call takes on operands of a new shape that were made just before, and on operands that are known, where the same call has just run."""
    rng, new, warm = np.random.default_rng(2), [], []
    given = [operands(rng, columns) for _ in range(SHAPES)]
    for one, other in zip(given[::2], given[1::2], strict=True):
        before, fresh = tuple(map(sj.array, one)), tuple(map(sj.array, other))
        run(*before)
        new.append(timed(run, fresh))
        run(*known)
        warm.append(timed(run, known))
    return float(np.median(new)), float(np.median(warm))


def rows(only: Sequence[str]) -> None:
    """The table of everyday rows, dearest first."""
    rng, found = np.random.default_rng(5), []
    sizes = 2 * rng.permutation(np.arange(50, 200))[: 2 * KNOWN]
    data = [tuple(side.all() for side in everyday.operands(int(n))) for n in sizes]
    for row in [row for row in everyday.ROWS if not only or row.name in only]:
        times = [(timed(row.ours, (ours,)), timed(row.scipy, (theirs,))) for ours, theirs in data]
        new, scipy = np.median(np.array(times[KNOWN:]), axis=0)
        again = [timed(row.ours, data[-1][:1]) for _ in range(2 * KNOWN)]
        found.append((new, float(np.median(again[KNOWN:])), scipy, row.name))
    for new, warm, scipy, name in sorted(found, reverse=True):
        print(f"{name:20} new {new:6.1f}   warm {warm:6.1f}  {new / warm:5.2f}   SciPy {scipy:6.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--everyday", action="store_true", help="every row of benchmarks.everyday")
    parser.add_argument("--only", nargs="*", default=[], help="names of these")
    options = parser.parse_args()
    if options.everyday:
        rows(options.only)
        return
    for name in PROGRAMS:
        for jitted in (True, False):
            print(measured(name, jitted), flush=True)


if __name__ == "__main__":
    main()
