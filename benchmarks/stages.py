"""What every stage of compiling takes, in milliseconds of processor time: the Scorch paper's Table I for this compiler.

    python -m benchmarks.stages                      medians of 15 compiles of each operation
    python -m benchmarks.stages --rounds 51

trace     Python to jaxpr, formats inferred, and what is fused
observe   facts about the operands: positions, joins, collisions
schedule  loop order, workspaces, tiling, chunks
lower     statements to loops to LLVM text
LLVM      text to machine code; load: into memory
Every compile is of a new function, in a process that has compiled each before. Nothing is read from or written to disk.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import sparsejax as sj
from benchmarks.first_calls import NAMES, programs
from sparsejax import config
from sparsejax.jit.backend import compiler, engine
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.graph import partition
from sparsejax.jit.runtime import kernels, plans

OURS = ("trace", "observe", "schedule", "lower")
STAGES = (*OURS, "LLVM", "load")
AIM = 5.0
"""Milliseconds that the stages which are ours may take."""


def compiled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, float]:
    """Milliseconds of every stage of one compile, summed over the kernels of the function."""
    took = dict.fromkeys(STAGES, 0.0)

    def timed(stage: str, run: Callable[[], Any]) -> Any:
        started = time.thread_time()
        made = run()
        took[stage] += 1e3 * (time.thread_time() - started)
        return made

    fresh = sj.jit(lambda *args: function(*args))
    storages = [a._storage for a in arguments]
    plan = timed("trace", lambda: plans.planned(fresh.trace(*arguments).jaxpr, storages))
    registers = plan.registers(storages)
    for number, step in enumerate(plan.steps):
        if isinstance(step, kernels.KernelRunner):
            inputs = [registers[k] for k in plan.reads[number]]
            observed = timed("observe", lambda s=step, given=inputs: s.observe(given))
            _, program = timed("schedule", lambda s=step, facts=observed: s.planner.schedule(facts))
            text = timed("lower", lambda p=program: lower.lower(p, LLVMBuilder()))
            image = timed("LLVM", lambda t=text: engine.engine().object(t))
            timed("load", lambda i=image: compiler.place(i))
        else:
            assert isinstance(step, partition.CallStep)
        plan.step(number, registers)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    config.update("cache_dir", "off")
    print("| " + " | ".join(["", *STAGES, "ours", "aim"]) + " |")
    print("|---" * (len(STAGES) + 3) + "|")
    known = programs()
    for name in NAMES:
        runs = [compiled(*known[name]) for _ in range(options.rounds + 1)][1:]
        cells = [f"{statistics.median(r[s] for r in runs):.2f}" for s in STAGES]
        ours = statistics.median(sum(r[s] for s in OURS) for r in runs)
        print(f"| {name} | {' | '.join(cells)} | {ours:.2f} | {AIM:.0f} |", flush=True)


if __name__ == "__main__":
    main()
