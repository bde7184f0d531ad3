"""Plans that were measured against plans that were priced, on the benchmark rows: `python -m benchmarks.tuned [--ops spmm] [--matrices real] [--any]`.

Every row is a jitted function with `autotune`; what it finds is told by itself (`jit/runtime/tuning`): the median of ratios of runs in turns, twice.
Rows where another alternative gains more than `WORTH` are marked: there the model of costs is wrong, or does not know what happens.
"""

from __future__ import annotations

import argparse
from argparse import Namespace

import sparsejax as sj
from benchmarks import harness

WORTH = 1.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="comma-separated operations (default: all)")
    parser.add_argument("--matrices", default="", help='comma-separated names, or "real"')
    parser.add_argument("--any", action="store_true", help="alternatives that round otherwise take part")
    options = parser.parse_args()
    gains = []
    with sj.config.using(num_threads=1, cache_dir="off"):
        for name, function, arguments in harness.programs(
            Namespace(ops=options.ops, matrices=options.matrices, quick=False)
        ):
            compiled = sj.jit(function, autotune="any" if options.any else True)
            compiled(*arguments)
            (found,) = compiled.tuned()
            gains.append(found.gain)
            print(
                f"{name:32} {found.gain:6.2f} {found.timed:3} timed   {found.choose}{'   <' if found.gain > WORTH else ''}",
                flush=True,
            )
    print(f"{len(gains)} rows, {sum(g > 1 for g in gains)} tuned, {sum(g > WORTH for g in gains)} by more than {WORTH}")


if __name__ == "__main__":
    main()
