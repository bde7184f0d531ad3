"""Run the enumeration, all of it or a part, and go on where a run was stopped.

    python -m tests.enumeration.run                           everything
    python -m tests.enumeration.run 0:20000                   the first cases
    python -m tests.enumeration.run all --slice 3/8           every eighth case, from the third: one of eight processes
    python -m tests.enumeration.run all --log run.json        resumable: the log holds the next case and every fault

`--optimise` compiles with the shipped pipeline. The last line counts cases, mismatches and unsupported cases (any exception).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.enumeration import cases
from tests.fuzz import definitions, engine


@dataclass
class Tally:
    """What a run found."""

    run: int = 0
    mismatches: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    next: int = 0
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        return [*self.mismatches, *self.unsupported]

    def __str__(self) -> str:
        return (
            f"{self.run} cases in {self.seconds:.0f} s: {len(self.mismatches)} mismatches, "
            f"{len(self.unsupported)} unsupported"
        )


def run_case(case: definitions.Case, name: str, tally: Tally) -> None:
    """Compile, run and compare one case."""
    tally.run += 1
    try:
        fault = definitions.check_case(case)
    except Exception as error:
        tally.unsupported.append(f"case {name}: {case}\n{type(error).__name__}: {error}")
        return
    if fault is not None:
        tally.mismatches.append(f"case {name}: {fault}")


def run(numbers: Iterable[int], tally: Tally | None = None, optimise: bool = False) -> Iterator[Tally]:
    """Run the cases with these numbers; yields the tally after each."""
    tally = Tally() if tally is None else tally
    with contextlib.nullcontext() if optimise else engine.quick():
        for n in numbers:
            started = time.perf_counter()
            run_case(cases.case(n), str(n), tally)
            engine.forget()
            tally.seconds += time.perf_counter() - started
            tally.next = n + 1
            yield tally


def bounds(text: str) -> tuple[int, int]:
    """ "first:last" or "all" as two numbers."""
    if text == "all":
        return 0, cases.count()
    first, _, last = text.partition(":")
    return int(first or 0), min(int(last or cases.count()), cases.count())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", default="all", help="first:last, or all")
    parser.add_argument("--slice", default="0/1", help="k/n: every n-th case, from the k-th")
    parser.add_argument("--log", type=Path, help="a file that holds progress and faults")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--optimise", action="store_true", help="compile with the shipped pipeline")
    args = parser.parse_args()
    first, last = bounds(args.cases)
    offset, stride = map(int, args.slice.split("/"))
    tally = Tally()
    if args.log and args.log.exists():
        tally = Tally(**json.loads(args.log.read_text()))
    numbers = [n for n in range(first + offset, last, stride) if n >= tally.next]
    started = time.perf_counter()
    for _ in run(numbers, tally, args.optimise):
        if tally.run % 1000 == 0:
            _save(args.log, tally)
            print(f"next case {tally.next} of {last}: {tally}", flush=True)
        if time.perf_counter() - started > args.seconds:
            break
    _save(args.log, tally)
    for fault in tally.faults[:20]:
        print(fault, end="\n\n")
    print(f"{cases.count()} cases in all; slice {args.slice} of {first}:{last}, next {tally.next}: {tally}")
    return bool(tally.faults)


def _save(path: Path | None, tally: Tally) -> None:
    if path is not None:
        fresh = path.with_suffix(".part")
        fresh.write_text(json.dumps(asdict(tally)))
        fresh.replace(path)


if __name__ == "__main__":
    raise SystemExit(main())
