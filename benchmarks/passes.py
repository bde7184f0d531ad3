"""What every pass and every alternative of the compiler is worth: how much slower which rows are without it.

    python -m benchmarks.passes                                     all groups of rows
    python -m benchmarks.passes --groups products --part spmm       those of some operations; in other groups, those whose name has this in it
    python -m benchmarks.passes --only row_blocking,loop_shape      these passes and choices

Groups: `products` (`benchmarks.run`), `everyday`, `insum` (`benchmarks.indirect` and `equivariant`), `graphs`.

A pass is left out by `skip`. An alternative is taken away where it was chosen: the next one that is legal is taken. Both count where they change the
machine code of a row, which then runs with and without, in turns, on one thread: medians of ratios of processor times. Not here are passes that
change no machine code of one thread, or matter between calls only, and orders of loops, of which the next one is any other. Rows of less than 20
microseconds are left out: they are calls more than work.
"""

from __future__ import annotations

import argparse
import statistics
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import sparsejax as sj
from benchmarks import datasets, equivariant, everyday, graphs, harness, indirect
from benchmarks.alternatives import NOT_HERE, recorded
from examples.graphs import read
from sparsejax import config
from sparsejax.alternatives import CHOICES, PASSES
from sparsejax.errors import FormatError, ScheduleError
from sparsejax.jit.ir import choices

Run = Callable[[], object]
LEAST, SAMPLE, HOPELESS = 20e-6, 1e-3, 10.0
"""Seconds of the shortest row, and of a sample; how many times slower a row must be that it is run once alone."""
MOVED = 1.05
"""What counts: a row is slower by a twentieth."""
LEFT_OUT = {*NOT_HERE, "rounds", "shapes", "symbolic_shapes", "parallelize", "loop_order", "depth"}
AS_CHOSEN = "rounds=table"
"""What the compiler takes anyway: calls under settings take another road, which both sides are to take."""


def products(part: str) -> Iterator[tuple[str, Run]]:
    """The rows of the peer table, for some operations."""
    for name, function, arguments in harness.programs(Namespace(ops=part, matrices="", quick=False)):
        jitted = sj.jit(function)
        yield name, lambda jitted=jitted, arguments=arguments: jitted(*arguments)


def daily(part: str) -> Iterator[tuple[str, Run]]:
    """What people do between products, on arrays of two sizes."""
    for n in (5_000, 200_000):
        ours, _ = everyday.operands(n)
        for row in everyday.ROWS:
            if part in row.name and n <= row.largest:
                yield f"{row.name}, {n}", lambda row=row, ours=ours: row.ours(ours)


def statements(part: str) -> Iterator[tuple[str, Run]]:
    """Indirect einsums."""
    for made in (indirect.blocks, indirect.graphs, indirect.points):
        for case in made(True):
            for name, run in case.ours.items():
                if part in f"{case.name}, {name}":
                    yield f"{case.name}, {name}", run
    for shared in (True, False):
        for name, run in equivariant.Case(2, 32, 2000, shared).ours().items():
            if part in name:
                yield f"equivariant, {'shared' if shared else 'samples'}, {name}", run


def searches(part: str) -> Iterator[tuple[str, Run]]:
    """Graph algorithms, on some real graphs."""
    folder = datasets.folder()
    for path in sorted((folder / "graphs").iterdir())[:3] if folder is not None else ():
        for name, run, _, _ in graphs.rows(read(str(path))):
            if part in name:
                yield f"{name}, {path.name}", run


GROUPS: dict[str, Callable[[str], Iterator[tuple[str, Run]]]] = {
    "products": products,
    "everyday": daily,
    "insum": statements,
    "graphs": searches,
}


def lacking(choice: str, legal: Sequence[str] | Callable[[], Sequence[str]], cheapest: str) -> str:
    """As `choices.pick`, where `config.choose` names what is taken away."""
    taken = _pick(choice, legal, cheapest)
    if choices.free() and config.choose() != AS_CHOSEN and config.choosing()[1].get(choice) == cheapest:
        others = [way for way in (legal() if callable(legal) else legal) if way != cheapest]
        return others[0] if others else cheapest
    return taken


_pick = choices.pick


@contextmanager
def kernels() -> Iterator[set[str]]:
    """The texts of the kernels that are compiled inside the block."""
    with mock.patch.object(choices, "pick", lacking), recorded() as texts:
        yield texts


def seconds(run: Run, repeats: int = 1) -> float:
    """Processor time of one run, of so many in a row behind one that finds its plan."""
    run()
    started = time.thread_time()
    for _ in range(repeats):
        run()
    return (time.thread_time() - started) / repeats


def without(run: Run, only: Sequence[str], rounds: int) -> Iterator[tuple[str, float]]:
    """The passes and alternatives that change the machine code of a row, and how many times slower it is without them."""
    before = choices.TAKEN.copy()
    with kernels() as own, config.using(choose=AS_CHOSEN):
        run()
        least = seconds(run)
    if least < LEAST or not own:  # short, or the same program as another row
        return
    taken = [way for way, count in choices.TAKEN.items() if count > before[way]]
    repeats = max(1, int(SAMPLE / least))
    trials = {name: {"skip": name, "choose": AS_CHOSEN} for name in PASSES}
    trials |= {f"{choice}={way}": {"choose": f"{choice}={way}"} for choice, way in taken}
    for name, setting in trials.items():
        about = name.partition("=")[0]
        if about in LEFT_OUT or (only and about not in only and name not in only):
            continue
        with kernels() as texts, config.using(**setting):
            try:
                run()
            except (FormatError, ScheduleError, MemoryError):  # not legal here, or hopeless
                continue
            if texts <= own:
                continue
            first = seconds(run)
        if first > HOPELESS * least:
            yield name, first / least
            continue
        ratios = []
        with kernels():
            for _ in range(rounds):
                with config.using(choose=AS_CHOSEN):
                    mine = seconds(run, repeats)
                with config.using(**setting):
                    ratios.append(seconds(run, repeats) / mine)
        yield name, statistics.median(ratios)


def table(found: dict[str, list[tuple[float, str]]], only: Sequence[str]) -> Iterator[str]:
    """What was found, one pass or alternative in a line; also those that no row takes."""
    yield "| without | rows it changes | slower by 5 % | most | faster by 5 % | most |\n|---|---|---|---|---|---|"
    names = [*PASSES, *(f"{choice}={way}" for choice, ways in CHOICES.items() for way in ways)]
    for name in names:
        about = name.partition("=")[0]
        if about in LEFT_OUT or (only and about not in only and name not in only):
            continue
        rows = sorted(found.get(name, []))
        slower, faster = [r for r in rows if r[0] > MOVED], [r for r in rows if r[0] < 1 / MOVED]
        most = [f"{ratio:.2f} {row}" for ratio, row in (*slower[-1:], *faster[:1])]
        yield (
            f"| {name} | {len(rows)} | {len(slower)} | {most[0] if slower else ''} "
            f"| {len(faster)} | {most[-1] if faster else ''} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--part", default="", help="a part of the name of a row")
    parser.add_argument("--only", default="", help="comma-separated passes, choices and alternatives")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    only = [name for name in options.only.split(",") if name]
    found: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    with config.using(num_threads=1):
        for group in harness.chosen(options.groups, list(GROUPS), "groups"):
            for row, run in GROUPS[group](options.part):
                for name, ratio in without(run, only, options.rounds):
                    found[name].append((ratio, row))
                    print(f"{group:10} {row:44} {name:32} {ratio:6.2f}", flush=True)
    print("\n" + "\n".join(table(found, only)))


if __name__ == "__main__":
    main()
