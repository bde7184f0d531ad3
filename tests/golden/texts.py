"""Every kernel of a fixed set of programs, as a hash of its LLVM text, and how it was planned: what a change to the compiler changes.

    python -m tests.golden.texts before.txt
    ... edit ...
    python -m tests.golden.texts after.txt && diff before.txt after.txt

A change that only moves code leaves the file as it is. `--host` chooses the processor that is compiled for: `here`, `plain` (vectors have no
masks), `masks` (masked vectors) or `gathers` (masked vectors, and fast gathers). Kernels are compiled for this machine either way, so that
later kernels of a program see results; `--programs` takes some of the generators only.

A line per program, `name | loop orders and prices | hashes`, in the order of a fixed list: cases of the enumeration, random programs of every
generator of `tests/fuzz`, `tests/autodiff`, `tests/vmap` and `tests/control`, and the operations of `benchmarks`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sparsejax as sj
from benchmarks import libraries, matrices, operations
from sparsejax.jit.backend import compiler, host
from sparsejax.jit.runtime import kernel_planner
from tests.enumeration import cases
from tests.fuzz import engine
from tests.fuzz.run import CASES, CHECKS
from tests.fuzz.tally import Tally, run_cases

HOSTS = {"here": None, "plain": (False, False), "masks": (True, False), "gathers": (True, True)}
ENUMERATED, DEFINED, CHECKED = 300, 40, 24
"""Cases of the enumeration, cases of every generator of single kernels, and seeds of every generator of programs."""


class Record:
    """What was planned and lowered since the last `take`."""

    def __init__(self) -> None:
        self.plans: list[str] = []
        self.texts: list[str] = []

    def take(self) -> str:
        """A line of it, and nothing is left."""
        line = f"{' ; '.join(self.plans)} | {' '.join(self.texts)}"
        self.plans, self.texts = [], []
        return line


@contextmanager
def recorded() -> Iterator[Record]:
    """Record every kernel that is planned, and every text that is compiled, inside the block."""
    record, compiled, scheduled = Record(), compiler.compile_text, kernel_planner.KernelPlanner.schedule

    def compile_text(text: str, plain: bool = False) -> compiler.Kernel:
        record.texts.append(hashlib.sha256(text.encode()).hexdigest()[:12])
        return compiled(text, plain)

    def schedule(self, observed, order=()):
        found = scheduled(self, observed, order)
        chosen = found[0]
        order, moves = ",".join(map(str, chosen.order)), ",".join(f"{n}->{f}" for n, f in chosen.conversions)
        record.plans.append(f"{order} {chosen.workspace} {moves} {chosen.scattered} {chosen.cost.total:.4g}")
        return found

    compiler.compile_text, kernel_planner.KernelPlanner.schedule = compile_text, schedule
    try:
        yield record
    finally:
        compiler.compile_text, kernel_planner.KernelPlanner.schedule = compiled, scheduled


def one_case(name: str, case: object) -> None:
    tally = Tally()
    run_cases([(name, case)], tally)
    assert not tally.faults, tally.faults


def one_check(generator: str, seed: int) -> None:
    fault = CHECKS[generator](seed)[1]
    assert not fault, fault


def one_operation(operation: operations.Operation, matrix: object) -> None:
    function, arguments = libraries.program(operation.stem, operations.operands(operation, matrix))
    sj.jit(function)(*arguments)


def benchmarked() -> Iterator[tuple[str, Callable[[], None]]]:
    """The operations of the benchmarks, on a few small matrices."""
    made = {
        "tiny": lambda: matrices.uniform(50, 50, 100),
        "rmat13": lambda: matrices.rmat(13, 1 << 16),
        "uniform": lambda: matrices.uniform(60_000, 60_000, 200_000),
        "t3u": lambda: matrices.random_tensor((300, 200, 100), 30_000, 1.0),
    }
    for operation, name in itertools.product(operations.OPERATIONS, made):
        if (operation.kind == "tensor") != (name == "t3u") or (operation.kind == "square" and name == "uniform"):
            continue
        yield f"{operation.name} of {name}", lambda o=operation, n=name: one_operation(o, made[n]())


def programs() -> Iterator[tuple[str, Callable[[], None]]]:
    """Every program, by name."""
    stride = cases.count() // ENUMERATED
    for number in range(7, cases.count(), stride):
        yield f"enumeration {number}", lambda n=number: one_case(str(n), cases.case(n))
    for name, make in CASES.items():
        for seed in range(DEFINED):
            yield f"{name} {seed}", lambda n=name, m=make, s=seed: one_case(f"{n} {s}", m(s))
    for name in CHECKS:
        for seed in range(CHECKED):
            yield f"{name} {seed}", lambda n=name, s=seed: one_check(n, s)
    yield from benchmarked()


def lines(host_name: str = "here", prefixes: tuple[str, ...] = ("",)) -> Iterator[str]:
    """The line of every program whose name has one of the prefixes."""
    flags = HOSTS[host_name]
    kept = host.has_masks, host.has_gathers
    if flags is not None:
        host.has_masks, host.has_gathers = (lambda: flags[0]), (lambda: flags[1])
    try:
        with engine.quick(), recorded() as record:
            for name, run in programs():
                if name.startswith(prefixes):
                    try:
                        run()
                    except Exception as error:  # a program that fails is a line too
                        record.texts.append(f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")
                    engine.forget()
                    yield f"{name} | {record.take()}"
    finally:
        host.has_masks, host.has_gathers = kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="where the lines go")
    parser.add_argument("--host", choices=HOSTS, default="here")
    parser.add_argument("--programs", default="", help="prefixes of names, with commas")
    options = parser.parse_args()
    with options.file.open("w") as file:
        for line in lines(options.host, tuple(options.programs.split(","))):
            file.write(f"{line}\n")


if __name__ == "__main__":
    main()
