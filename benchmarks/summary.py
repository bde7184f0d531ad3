"""Tables of measured rows: beside SciPy, beside the best library of every row, and beside hand-written loops.

    python -m benchmarks.summary results.json              geometric means per operation, dtype and number of threads; rows that lose
    python -m benchmarks.summary results.json --rows       every row as well
    python -m benchmarks.summary results.json --threads 2 --dtype f8 --ops spmm,sddmm

The best library is the fastest in each row, SciPy included, hand-written loops not: no single library is the best in all.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Sequence

from benchmarks.libraries import REFERENCES
from benchmarks.store import Row, Store

BARS = {
    "spmm": 2.0,
    "sddmm": 3.0,
    "spgemm_sorted": 1.7,
    "spmv": 1.15,
    "softmax": 2.0,
    "gcn": 1.2,
    "mttkrp": 10.0,
    "ttm": 1.5,
    "mul": 1.5,
    "nd_mul": 1.5,
    "tocsc": 1.5,
    "coo2csr": 1.5,
    "add": 1.2,
}
"""Geometric means over the best library that are aimed at, by operation without the extent of its dense dimension."""


def geometric_mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def best(row: Row, references: bool = False) -> tuple[str, float] | None:
    """The fastest library of a row (or hand-written loops), and its seconds; None where there is none."""
    found = {
        name: seconds
        for name, seconds in row["seconds"].items()
        if name != "sparsejax" and (name in REFERENCES) == references
    }
    return min(found.items(), key=lambda pair: pair[1], default=None)


def ratios(row: Row) -> dict[str, float]:
    """How many times faster sparsejax is than SciPy, than the best library, and than hand-written loops."""
    ours, made = row["seconds"].get("sparsejax"), {}
    if ours is None:
        return {}
    if "scipy" in row["seconds"]:
        made["scipy"] = row["seconds"]["scipy"] / ours
    for name, fastest in (("library", best(row)), ("reference", best(row, references=True))):
        if fastest is not None:
            made[name] = fastest[1] / ours
    return made


def tables(rows: Sequence[Row], every: bool = False) -> str:
    """Means per operation, dtype and number of threads; and the rows that lose, or all."""
    lines = [
        "| operation | dtype | threads | rows | SciPy | best library | slowest row | hand-written | aim |",
        "|---" * 9 + "|",
    ]
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["operation"], row["dtype"], row["threads"]), []).append(row)
    for (operation, dtype, threads), group in groups.items():
        found = [r for r in map(ratios, group) if r]
        columns = {name: [r[name] for r in found if name in r] for name in ("scipy", "library", "reference")}
        cells = {name: f"{geometric_mean(v):.2f}" if v else "" for name, v in columns.items()}
        slowest = f"{min(columns['library']):.2f}" if columns["library"] else ""
        aim = BARS.get(operation.rstrip("0123456789"), 1.0)
        lines.append(
            f"| {operation} | {dtype} | {threads} | {len(found)} | {cells['scipy']} | {cells['library']} | {slowest} "
            f"| {cells['reference']} | {aim:g} |"
        )
    shown = [row for row in rows if every or ratios(row).get("library", math.inf) < 1]
    lines += ["", "Every row" if every else "Rows where a library is faster", ""]
    lines += ["| operation | matrix | dtype | threads | ms | best library | ratio | hand-written |", "|---" * 8 + "|"]
    for row in shown:
        made, fastest = ratios(row), best(row)
        if made and fastest is not None:
            reference = f"{made['reference']:.2f}" if "reference" in made else ""
            lines.append(
                f"| {row['operation']} | {row['matrix']} | {row['dtype']} | {row['threads']} "
                f"| {1e3 * row['seconds']['sparsejax']:.4g} | {fastest[0]} | {made['library']:.2f} | {reference} |"
            )
    wrong = [f"{name}, {row['operation']} on {row['matrix']}: {t}" for row in rows for name, t in row["faults"].items()]
    return "\n".join([*lines, "", *dict.fromkeys(wrong)])


def chosen(rows: Iterable[Row], operations: str = "", dtype: str = "", threads: int = 0) -> list[Row]:
    """The rows of some operations (with or without the extent of their dense dimension), a dtype, a number of threads."""
    wanted = {name for name in operations.split(",") if name}
    return [
        row
        for row in rows
        if (not wanted or {row["operation"], row["operation"].rstrip("0123456789")} & wanted)
        and dtype in ("", row["dtype"])
        and threads in (0, row["threads"])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="what benchmarks.run --json wrote")
    parser.add_argument("--rows", action="store_true", help="every row")
    parser.add_argument("--ops", default="", help="comma-separated operations")
    parser.add_argument("--dtype", default="", help="f4 or f8")
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    store = Store(options.file)
    for environment in store.environments:
        print(", ".join(f"{k} {v}" for k, v in environment["versions"].items()), f"on {environment['cores']} cores")
    print()
    print(tables(chosen(store.rows(), options.ops, options.dtype, options.threads), options.rows))


if __name__ == "__main__":
    main()
