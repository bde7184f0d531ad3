"""What a long run of cases found, kept in a file so that a run can go on where it was stopped."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from tests.fuzz import definitions, forced

SAVE_EVERY = 20.0
"""Seconds between two notes of the progress."""


@dataclass
class Tally:
    """Counts and faults: `next` is what comes first when the run goes on, `run` how many kernels or programs have been compared,
    `families` how many of them need which rules, `seconds` processor time."""

    run: int = 0
    next: int = 0
    mismatches: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    families: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @classmethod
    def of(cls, path: Path | None) -> Tally:
        """What a file holds; a new one where there is none."""
        return cls(**json.loads(path.read_text())) if path is not None and path.exists() else cls()

    def save(self, path: Path | None) -> None:
        if path is not None:
            fresh = path.with_suffix(".part")
            fresh.write_text(json.dumps(asdict(self)))
            fresh.replace(path)

    def count(self, families: Iterable[str]) -> None:
        """Note a program that needs the rules of some families."""
        for name in families:
            self.families[name] = self.families.get(name, 0) + 1

    @property
    def faults(self) -> list[str]:
        return [*self.mismatches, *self.unsupported]

    def __str__(self) -> str:
        families = "".join(f"\n{number:7} {name}" for name, number in sorted(self.families.items()))
        return (
            f"{self.run} cases in {self.seconds:.0f} s of processor time: {len(self.mismatches)} mismatches, "
            f"{len(self.unsupported)} unsupported{families}"
        )

    @contextlib.contextmanager
    def guard(self, name: object) -> Iterator[None]:
        """An exception inside the block makes the case an unsupported one."""
        try:
            yield
        except Exception as error:
            self.unsupported.append(f"case {name}\n{type(error).__name__}: {error}")

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """The processor time of the block is that of cases."""
        started = time.process_time()
        yield
        self.seconds += time.process_time() - started


def run_cases(
    named: Iterable[tuple[str, definitions.Case]],
    tally: Tally,
    under: Callable[[int], AbstractContextManager[None]] | None = None,
) -> None:
    """Plan all cases, then run and compare them one by one; `under` settings that are made of the last number in their names, if given."""
    planned = []
    for name, case in named:
        tally.run += 1
        setting = partial(under, int(re.findall(r"\d+", name)[-1])) if under else contextlib.nullcontext
        with setting(), tally.guard(f"{name}: {case}{forced.settings()}"):
            planned.append((name, setting, case, definitions.planned(case)))
    for name, setting, case, call in planned:
        with setting(), tally.guard(f"{name}: {case}{forced.settings()}"):
            fault = definitions.fault_of(case, call())
            if fault is not None:
                tally.mismatches.append(f"case {name}: {fault}{forced.settings()}")


def follow(steps: Iterable[Tally], path: Path | None, what: str, seconds: float = float("inf")) -> Tally:
    """Take the steps of a run, note its progress now and then, stop after so many seconds; all that it found."""
    started = saved = time.perf_counter()
    tally = Tally.of(path)
    for tally in steps:
        now = time.perf_counter()
        if now - saved > SAVE_EVERY:
            saved = now
            tally.save(path)
            print(f"{what}, next {tally.next}: {tally}", flush=True)
        if now - started > seconds:
            break
    tally.save(path)
    for fault in tally.faults[:20]:
        print(fault, end="\n\n")
    print(f"{what}, next {tally.next}: {tally}")
    return tally
