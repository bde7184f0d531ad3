"""What the compiler chose against every alternative of every choice, on the benchmark rows: where would another one have been faster?

    python -m benchmarks.alternatives                         every row and choice; those where another alternative is 1.15 times as fast
    python -m benchmarks.alternatives --ops spmm --choices tile,rows,fusion
    python -m benchmarks.alternatives --more                  rows of `more_rows`, for choices that those of the peer table do not reach
    python -m benchmarks.alternatives --quick --rounds 3 --table screen.txt --seconds 600

The last is a first look: few rounds, rows of few matrices, and every ratio into a table. A run that its seconds end, or anything else, goes on where
it was: rows that the table has to their end are left out. What is found so is repeated alone, with more rounds.

An alternative counts where it changes the machine code of the row. It is run in turns with what was chosen, on one thread; medians of processor times.
Results are not compared here: `tests/fuzz` does that for all alternatives. Alternatives that take ten times as long in the first run are not timed, nor those
for which there is no memory (`ulimit -v`: dense products of all nodes of a graph are alternatives too).
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sparsejax as sj
from benchmarks import harness, more_rows
from sparsejax.alternatives import CHOICES
from sparsejax.errors import FormatError, ScheduleError
from sparsejax.jit.backend import compiler

FASTER, HOPELESS = 1.15, 10.0
FINISHED = "finished"
NOT_HERE = ("sharded_loops", "sharded_tasks", "chunks", "alone", "conversion", "passes", "memory", "donation", "copies")
"""Choices that make no difference to one thread's machine code, or between calls only."""


@contextmanager
def recorded() -> Iterator[set[str]]:
    """The texts of kernels that are compiled inside the block; not those of the allocator and the pool, which every process compiles once."""
    texts: set[str] = set()
    compiled = compiler.compile_text

    def compile_text(text: str, plain: bool = False) -> compiler.Kernel:
        if not plain:
            texts.add(text)
        return compiled(text, plain)

    compiler.compile_text = compile_text
    try:
        yield texts
    finally:
        compiler.compile_text = compiled


def seconds(run: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Processor time of one run."""
    started = time.thread_time()
    run(*arguments)
    return time.thread_time() - started


def faster(
    function: Callable[..., Any], arguments: tuple[Any, ...], choices: list[str], rounds: int
) -> Iterator[tuple[str, float]]:
    """The alternatives that make other machine code, and how many times as fast as what was chosen they are."""
    with recorded() as own:
        chosen = sj.jit(function)
        chosen(*arguments)
    least = min(seconds(chosen, arguments) for _ in range(3))
    for choice in choices:
        for alternative in CHOICES[choice]:
            with sj.config.using(choose=f"{choice}={alternative}"):
                try:
                    with recorded() as texts:
                        other = sj.jit(function)
                        other(*arguments)
                except (FormatError, ScheduleError, MemoryError):
                    continue
                if texts == own or seconds(other, arguments) > HOPELESS * least:
                    continue
                other(*arguments)
            ratios = []
            for _ in range(rounds):
                mine = seconds(chosen, arguments)
                with sj.config.using(choose=f"{choice}={alternative}"):
                    ratios.append(mine / seconds(other, arguments))
            yield f"{choice}={alternative}", statistics.median(ratios)


def finished(table: Path) -> set[str]:
    """The rows that a table of an earlier run has to their end."""
    lines = table.read_text().splitlines() if table.is_file() else []
    return {line.removesuffix(FINISHED).rstrip() for line in lines if line.endswith(FINISHED)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="comma-separated operations (default: all)")
    parser.add_argument("--matrices", default="", help="comma-separated names")
    parser.add_argument("--choices", default="", help="comma-separated choices (default: all that change machine code)")
    parser.add_argument("--more", action="store_true", help="other rows than those of the peer table")
    parser.add_argument("--quick", action="store_true", help="rows of few matrices")
    parser.add_argument("--table", type=Path, default=Path(os.devnull), help="where to append every ratio")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no row after so long")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    choices = options.choices.split(",") if options.choices else [c for c in CHOICES if c not in NOT_HERE]
    compared, found, started = 0, [], time.monotonic()
    known = finished(options.table)
    with sj.config.using(num_threads=1), options.table.open("a") as table:
        given = Namespace(ops=options.ops, matrices=options.matrices, quick=options.quick)
        for name, function, arguments in more_rows.programs() if options.more else harness.programs(given):
            if name in known:
                continue
            if time.monotonic() - started > options.seconds:
                print(f"not begun: {name} and what follows")
                break
            for alternative, ratio in faster(function, arguments, choices, options.rounds):
                compared += 1
                line = f"{name:28} {alternative:32} {ratio:6.2f}"
                print(line, file=table, flush=True)
                if ratio > FASTER:
                    found.append(name)
                    print(line, flush=True)
            print(f"{name:28} {FINISHED}", file=table, flush=True)
    rows = set(found)
    print(
        f"{compared} alternatives that change a row; {len(found)} of them, on {len(rows)} rows, are {FASTER} times as fast or more"
    )


if __name__ == "__main__":
    main()
