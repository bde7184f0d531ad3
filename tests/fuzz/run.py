"""Run a random generator over many seeds, and go on where a run was stopped.

    python -m tests.fuzz.run programs 0:20000 --log programs.json

Generators: see CASES and CHECKS. Kernels are compiled without optimisation, `--optimise` with the shipped pipeline. `--choose random` takes any
legal alternative at every choice of the compiler, and skips passes (`forced`).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests import poison
from tests.autodiff import programs as derivatives
from tests.control import programs as control
from tests.enumeration import pairwise
from tests.fuzz import (
    alike,
    calls,
    definitions,
    engine,
    forced,
    functions,
    lengths,
    metamorphic,
    pipelines,
    rows,
    scalars,
    semirings,
    shapes,
    sums,
)
from tests.fuzz.tally import Tally, follow, run_cases
from tests.vmap import programs as batches

CASES: dict[str, Callable[[int], definitions.Case]] = {
    "definitions": definitions.make,
    "blocks": partial(definitions.make, blocked=True),
    "shapes": shapes.make,
}
"""Single kernels: a case per seed."""


def _once(check: Callable[[int], str | None]) -> Callable[[int], tuple[int, str | None]]:
    return lambda seed: (1, check(seed))


CHECKS: dict[str, Callable[[int], tuple[int, str | None]]] = {
    "programs": metamorphic.check,
    "semirings": _once(lambda seed: semirings.check(seed, compiled=seed % 2 == 0)),
    "orders": _once(semirings.check_order),
    "functions": _once(functions.check),
    "pipelines": _once(pipelines.check),
    "rows": _once(rows.check),
    "alike": _once(alike.check),
    "sums": _once(sums.check),
    "lengths": _once(lengths.check),
    "gradients of lengths": _once(lengths.check_gradient),
    "large lengths": _once(partial(lengths.check, large=True)),
    "scalars": _once(scalars.check),
    "calls": _once(calls.check),
    "derivatives": _once(derivatives.check),
    "second derivatives": _once(partial(derivatives.check, second=True)),
    "batches": _once(batches.check_plain),
    "batched derivatives": _once(batches.check_differentiable),
    "control": _once(control.check),
}
"""Whole functions: how many were compiled for a seed, and what is wrong."""

FAMILIES: dict[str, Callable[[int], set[str]]] = {
    "derivatives": derivatives.families_of,
    "second derivatives": derivatives.families_of,
    "batched derivatives": batches.families_of,
}
"""The families of rules that a seed needs."""

PAIRWISE = {"pairwise": False, "pairwise blocks": True}
"""Covering arrays of random templates, with or without blocks."""

GENERATORS = (*CASES, *CHECKS, *PAIRWISE)


def run(generator: str, last: int, tally: Tally, optimise: bool = False, drawn: bool = False) -> Iterator[Tally]:
    """Run the seeds from `tally.next` up to `last`; yields the tally after each step."""
    with contextlib.nullcontext() if optimise else engine.quick(), engine.garbage_by_hand() as collect:
        while tally.next < last:
            with tally.timed():
                _step(generator, last, tally, drawn)
                engine.forget()
                collect()
            yield tally


def _step(generator: str, last: int, tally: Tally, drawn: bool) -> None:
    seed, under = tally.next, forced.alternatives if drawn else None
    if generator in CHECKS:
        tally.next += 1
        with tally.guard(f"seed {seed}"):
            count, fault = (forced.every(CHECKS[generator]) if drawn else CHECKS[generator])(seed)
            tally.run += count
            tally.mismatches += [fault] if fault else []
            if generator in FAMILIES:
                tally.count(FAMILIES[generator](seed))
        return
    with engine.batched():
        if generator in PAIRWISE:
            text = pairwise.template(seed)
            tally.next += 1
            made = pairwise.cases(text, seed, PAIRWISE[generator])
            while named := [(f"{text} of seed {seed}", case) for case in itertools.islice(made, engine.TOGETHER)]:
                run_cases(named, tally, under)
            return
        tally.next = min(last, seed + engine.TOGETHER)
        run_cases(((str(s), CASES[generator](s)) for s in range(seed, tally.next)), tally, under)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generator", choices=GENERATORS)
    parser.add_argument("seeds", help="first:last")
    parser.add_argument("--log", type=Path, help="a file that holds progress and faults")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--optimise", action="store_true", help="compile with the shipped pipeline")
    parser.add_argument("--choose", choices=("auto", "random"), default="auto", help="which alternatives are taken")
    args = parser.parse_args()
    poison.install()
    first, last = map(int, args.seeds.split(":"))
    tally = Tally.of(args.log)
    tally.next = max(first, tally.next)
    steps = run(args.generator, last, tally, args.optimise, args.choose == "random")
    return bool(follow(steps, args.log, f"{args.generator} {args.seeds}", args.seconds).faults)


if __name__ == "__main__":
    raise SystemExit(main())
