"""Are chosen loop orders ever asymptotically wrong? Runs every order of every case of `cases`, counting iterations.

    python -m benchmarks.asymptotics                      every case; a summary and the cases that lose
    python -m benchmarks.asymptotics --family spgemm      one family
    python -m benchmarks.asymptotics --every 4            every fourth case
    python -m benchmarks.asymptotics --seconds 600        what can be judged in so much time, cases of all families alike
    python -m benchmarks.asymptotics --table              one line per case
    python -m benchmarks.asymptotics --real               the real graphs of the data folder
    python -m benchmarks.asymptotics --time               measured times as well (run it on an idle machine)

Work is iterations of instrumented kernels plus visits of the entries that are converted before
(`counting.Count`). An order
passes when, at the largest size, its work is within 2x of the best order's, and the slope of log work over log n between
the last two sizes is at most 0.15 above the best order's. All orders are run, up to 24 (beyond, those of a fixed random sample and the chosen);
an order more than 20 times worse than the best at one size is not run at larger ones.

Times are processor times of plain kernels with conversions (never cached): medians, chosen order against the
fastest of the orders whose work is within 8x of the least.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks import cases, counting, scorch
from sparsejax.core.array import Array
from sparsejax.jit.cost import statistics
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import search

SIZES = {1: (256, 1024, 4096), 2: (256, 1024, 4096), 3: (128, 512, 2048), 4: (64, 256, 1024)}
HOPELESS, FACTOR, SLOPE = 20, 2.0, 0.15
Order = tuple[cin.IndexVar, ...]


@dataclass
class Judged:
    """The work of every order at every size, and the order of every scheduler at the largest size."""

    case: cases.Case
    sizes: tuple[int, ...]
    work: dict[Order, list[int]]
    chosen: dict[str, Order]
    times: dict[Order, float] = field(default_factory=dict)

    @property
    def finalists(self) -> dict[Order, list[int]]:
        return {o: w for o, w in self.work.items() if len(w) == len(self.sizes)}

    @property
    def best(self) -> Order:
        return min(self.finalists, key=lambda o: self.work[o][-1])

    def ratio(self, scheduler: str) -> float:
        """Work of the chosen order over that of the best one, at the largest size (at the last size it was run)."""
        own = self.work[self.chosen[scheduler]]
        return own[-1] / max(1, min(w[len(own) - 1] for w in self.work.values() if len(w) >= len(own)))

    def slope(self, order: Order) -> float:
        own = self.work[order]
        if len(own) < 2:
            return math.nan
        return math.log(max(1, own[-1]) / max(1, own[-2])) / math.log(
            self.sizes[len(own) - 1] / self.sizes[len(own) - 2]
        )

    def passes(self, scheduler: str) -> bool:
        if self.chosen[scheduler] not in self.finalists or self.ratio(scheduler) > FACTOR:
            return False
        return len(self.sizes) == 1 or self.slope(self.chosen[scheduler]) <= self.slope(self.best) + SLOPE

    def slowdown(self, scheduler: str) -> float:
        """Time of the chosen order over that of the fastest."""
        return self.times.get(self.chosen[scheduler], math.inf) / min(self.times.values())


def default_sizes(case: cases.Case) -> tuple[int, ...]:
    """Three sizes by the number of variables; hypersparse operands are larger for the same entries."""
    grown = 16 if case.data == cases.HYPER else 1
    return tuple(grown * n for n in SIZES[case.variables - ("r" in case.expression)])


def orders(nest: Nest, always: Iterable[Order], limit: int = 24) -> list[Order]:
    """Loop orders that run as one kernel: all, or a fixed sample with those in `always`."""
    found = list(itertools.permutations(nest.variables))
    if len(found) > limit:
        found = list(dict.fromkeys([*always, *random.Random(0).sample(found, limit)]))
    return found


def _cheapest(nest: Nest, data: statistics.Facts) -> Order | None:
    made = search.choose(nest, data)
    return None if made is None else made.order


def _published(nest: Nest, data: statistics.Facts) -> Order | None:
    order = scorch.order(nest)
    return order if math.isfinite(search.schedule_of(nest, data, order).cost.total) else None


SCHEDULERS = {"cost": _cheapest, "scorch": _published}


def judge(case: cases.Case, sizes: tuple[int, ...] | None = None, given: list[Array] | None = None) -> Judged:
    """Count the work of every order of `case` at every size (or on given operands)."""
    sizes = (0,) if given is not None else sizes or default_sizes(case)
    work: dict[Order, list[int]] = {}
    chosen: dict[str, Order] = {}
    for step, n in enumerate(sizes):
        nest, inputs = cases.kernel(case, case.operands(n) if given is None else given)
        data = statistics.of(nest, inputs)
        chosen = {name: order for name, f in SCHEDULERS.items() if (order := f(nest, data)) is not None}
        candidates = orders(nest, chosen.values())
        if step:
            least = min(w[-1] for w in work.values() if len(w) == step)
            candidates = [o for o in candidates if len(work.get(o, ())) == step and work[o][-1] <= HOPELESS * least]
        for order in candidates:
            schedule = search.schedule_of(nest, data, order)
            if math.isfinite(schedule.cost.total):
                _, count = counting.run(nest, schedule, inputs)
                work.setdefault(order, []).append(count.work)
    return Judged(case, sizes, work, chosen)


def measure(judged: Judged, given: list[Array] | None = None, rounds: int = 5) -> None:
    """Time the orders within 8x of the least work at the largest size, interleaved."""
    case = judged.case
    nest, inputs = cases.kernel(case, case.operands(judged.sizes[-1]) if given is None else given)
    data = statistics.of(nest, inputs)
    least = judged.work[judged.best][-1]
    run = {}
    for order in {o for o, w in judged.finalists.items() if w[-1] <= 8 * least} | set(judged.chosen.values()):
        run[order] = counting.plain(nest, search.schedule_of(nest, data, order), data)
    took: dict[Order, list[float]] = {o: [] for o in run}
    for n in range(rounds + 1):
        for order, call in run.items():
            for s in inputs:
                s.cache.pop("converted", None)
            started = time.thread_time()
            call(inputs)
            if n:
                took[order].append(time.thread_time() - started)
    judged.times = {o: median(t) for o, t in took.items()}


def report(found: Sequence[Judged], timed: bool, table: bool) -> None:
    """A line per case that loses (or per case), and the summary."""
    for name in SCHEDULERS:
        print(f"\nscheduler {name}")
        passed: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for j in found:
            total[j.case.family] += 1
            passed[j.case.family] += j.passes(name)
            if table or not j.passes(name):
                own, best = j.chosen[name], j.best
                slopes = f"slope {j.slope(own):.2f} against {j.slope(best):.2f}" if len(j.sizes) > 1 else ""
                verdict = "ok  " if j.passes(name) else "LOSS"
                print(
                    f"  {verdict} {j.case}: {_name(own)} x{j.ratio(name):.2f} of {_name(best)} ({j.work[best][-1]}) {slopes}"
                )
            if timed and j.slowdown(name) > 1.3:
                fast = min(j.times, key=lambda o: j.times[o])
                print(
                    f"  SLOW {j.case}: {_name(j.chosen[name])} takes x{j.slowdown(name):.2f} of {_name(fast)} "
                    f"({1e3 * j.times[fast]:.3f} ms)"
                )
        print("  " + ", ".join(f"{f} {passed[f]}/{total[f]}" for f in total))
        print(f"  never asymptotically wrong: {sum(passed.values())} of {len(found)} cases")
        ratios = sorted(j.ratio(name) for j in found)
        print(f"  work over best: median {median(ratios):.3f}, worst {ratios[-1]:.3g}")
        if timed:
            slow = sorted(j.slowdown(name) for j in found)
            within = sum(s <= 1.3 for s in slow)
            print(
                f"  time within 1.3x of the fastest order: {within} of {len(slow)} ({100 * within / len(slow):.1f} %)"
            )
            print(f"  time over fastest: median {median(slow):.3f}, worst {slow[-1]:.3g}")


def _name(order: Order) -> str:
    return ",".join(map(str, order)) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", default="", help="comma-separated families (default: all)")
    parser.add_argument("--real", action="store_true", help="real graphs instead of generated operands")
    parser.add_argument("--time", action="store_true", help="measure times too")
    parser.add_argument("--every", type=int, default=1, help="only every n-th case")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so much time")
    parser.add_argument("--table", action="store_true", help="print every case")
    options = parser.parse_args()
    wanted = set(options.family.split(",")) - {""}
    found = []
    if options.real:
        chosen = [(case, given) for _, case, given in cases.real() if not wanted or case.family in wanted]
    else:
        chosen = [(case, None) for case in cases.family() if not wanted or case.family in wanted]
    started = time.perf_counter()
    chosen = chosen[:: options.every]
    if math.isfinite(options.seconds):
        random.Random(0).shuffle(chosen)
    for case, given in chosen:
        if time.perf_counter() - started > options.seconds:
            break
        judged = judge(case, given=given)
        if options.time:
            measure(judged, given)
        found.append(judged)
    print(f"{len(found)} cases, {sum(len(j.work) for j in found)} orders")
    report(found, options.time, options.table)


if __name__ == "__main__":
    main()
