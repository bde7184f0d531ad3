"""Run the enumeration, all of it or a part, and go on where a run was stopped.

    python -m tests.enumeration.run                           everything
    python -m tests.enumeration.run 0:20000                   the first cases
    python -m tests.enumeration.run all --slice 3/8           every eighth case, from the third: one of eight processes
    python -m tests.enumeration.run all --log run.json        resumable: the log holds how many cases have run, and every fault
    python -m tests.enumeration.run all --diagonals without   the cases in which no operand repeats a variable
    python -m tests.enumeration.run all --diagonals only --shuffle 1    the others, in random order

`--optimise` compiles with the shipped pipeline, `--choose random` takes any legal alternative at every choice of
the compiler. The last line counts cases, mismatches and unsupported cases (any exception).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.enumeration import cases
from tests.fuzz import engine, forced
from tests.fuzz.tally import Tally, follow, run_cases

PIECE = 256
"""Cases of a block that stay together when the enumeration is shuffled: they share operands and kernels."""


def run(
    numbers: Iterable[int],
    tally: Tally | None = None,
    optimise: bool = False,
    under: Callable[[int], AbstractContextManager[None]] | None = None,
) -> Iterator[Tally]:
    """Run the cases with these numbers, `under` settings that are made of them, if given; yields the tally after each batch."""
    tally = Tally() if tally is None else tally
    numbers = iter(numbers)
    with (
        contextlib.nullcontext() if optimise else engine.quick(),
        engine.batched(),
        engine.garbage_by_hand() as collect,
    ):
        while batch := list(itertools.islice(numbers, engine.TOGETHER)):
            with tally.timed():
                run_cases(((str(n), cases.case(n)) for n in batch), tally, under)
                collect()
            tally.next += len(batch)
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
    parser.add_argument("--choose", choices=("auto", "random"), default="auto", help="which alternatives are taken")
    args = parser.parse_args()
    offset, stride = map(int, args.slice.split("/"))
    numbers = list(chosen(*bounds(args.cases), args.diagonals, args.shuffle))[offset::stride]
    tally = Tally.of(args.log)
    what = f"{len(numbers)} of {cases.count()} cases"
    under = forced.alternatives if args.choose == "random" else None
    return bool(follow(run(numbers[tally.next :], tally, args.optimise, under), args.log, what, args.seconds).faults)


if __name__ == "__main__":
    raise SystemExit(main())
