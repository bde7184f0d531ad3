"""Run the enumeration, all of it or a part, and go on where a run was stopped.

    python -m tests.enumeration.run                           everything
    python -m tests.enumeration.run 0:20000                   the first cases
    python -m tests.enumeration.run all --slice 3/8           every eighth case, from the third: one of eight processes
    python -m tests.enumeration.run all --log run.json        resumable: the log holds how many cases have run, and every fault
    python -m tests.enumeration.run all --diagonals without   the cases in which no operand repeats a variable
    python -m tests.enumeration.run all --diagonals only --shuffle 1    the others, in random order

`--optimise` compiles with the shipped pipeline. The last line counts cases, mismatches and unsupported cases (any exception).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.enumeration import cases
from tests.fuzz import definitions, engine

PIECE = 256
"""Cases of a block that stay together when the enumeration is shuffled: they share operands and kernels."""
SAVE_EVERY = 20.0
"""Seconds between two notes of the progress."""


@dataclass
class Tally:
    """What a run found."""

    run: int = 0
    mismatches: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @contextlib.contextmanager
    def guard(self, name: str, case: definitions.Case) -> Iterator[None]:
        """An exception inside the block makes the case an unsupported one."""
        try:
            yield
        except Exception as error:
            self.unsupported.append(f"case {name}: {case}\n{type(error).__name__}: {error}")

    @property
    def faults(self) -> list[str]:
        return [*self.mismatches, *self.unsupported]

    def __str__(self) -> str:
        return (
            f"{self.run} cases in {self.seconds:.0f} s of processor time: {len(self.mismatches)} mismatches, "
            f"{len(self.unsupported)} unsupported"
        )


def run_cases(named: Iterable[tuple[str, definitions.Case]], tally: Tally) -> None:
    """Plan all cases, then run and compare them one by one."""
    planned = []
    for name, case in named:
        tally.run += 1
        with tally.guard(name, case):
            planned.append((name, case, definitions.planned(case)))
    for name, case, call in planned:
        with tally.guard(name, case):
            fault = definitions.fault_of(case, call())
            if fault is not None:
                tally.mismatches.append(f"case {name}: {fault}")


def run(numbers: Iterable[int], tally: Tally | None = None, optimise: bool = False) -> Iterator[Tally]:
    """Run the cases with these numbers; yields the tally after each batch."""
    tally = Tally() if tally is None else tally
    numbers = iter(numbers)
    with (
        contextlib.nullcontext() if optimise else engine.quick(),
        engine.batched(),
        engine.garbage_by_hand() as collect,
    ):
        while batch := list(itertools.islice(numbers, engine.TOGETHER)):
            started = time.process_time()
            run_cases(((str(n), cases.case(n)) for n in batch), tally)
            collect()
            tally.seconds += time.process_time() - started
            yield tally


def bounds(text: str) -> tuple[int, int]:
    """ "first:last" or "all" as two numbers."""
    if text == "all":
        return 0, cases.count()
    first, _, last = text.partition(":")
    return int(first or 0), min(int(last or cases.count()), cases.count())


def chosen(first: int, last: int, diagonals: str = "with", shuffle: int | None = None) -> Iterator[int]:
    """The numbers of a run in order: block by block, or in pieces that are shuffled by a seed."""
    parts = [range(max(first, r.start), min(last, r.stop)) for r in cases.numbers(diagonals)]
    if shuffle is not None:
        parts = [r[k : k + PIECE] for r in parts for k in range(0, len(r), PIECE)]
        random.Random(shuffle).shuffle(parts)
    return itertools.chain.from_iterable(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", default="all", help="first:last, or all")
    parser.add_argument(
        "--diagonals", choices=("with", "without", "only"), default="with", help="words that repeat a letter"
    )
    parser.add_argument("--shuffle", type=int, help="a seed: pieces of blocks in random order")
    parser.add_argument("--slice", default="0/1", help="k/n: every n-th case, from the k-th")
    parser.add_argument("--log", type=Path, help="a file that holds progress and faults")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--optimise", action="store_true", help="compile with the shipped pipeline")
    args = parser.parse_args()
    offset, stride = map(int, args.slice.split("/"))
    numbers = list(chosen(*bounds(args.cases), args.diagonals, args.shuffle))[offset::stride]
    tally = Tally()
    if args.log and args.log.exists():
        tally = Tally(**json.loads(args.log.read_text()))
    started = saved = time.perf_counter()
    for _ in run(numbers[tally.run :], tally, args.optimise):
        now = time.perf_counter()
        if now - saved > SAVE_EVERY:
            saved = now
            _save(args.log, tally)
            print(f"{tally} of {len(numbers)} cases", flush=True)
        if now - started > args.seconds:
            break
    _save(args.log, tally)
    for fault in tally.faults[:20]:
        print(fault, end="\n\n")
    print(f"{cases.count()} cases in all, {len(numbers)} of them chosen: {tally}")
    return bool(tally.faults)


def _save(path: Path | None, tally: Tally) -> None:
    if path is not None:
        fresh = path.with_suffix(".part")
        fresh.write_text(json.dumps(asdict(tally)))
        fresh.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
