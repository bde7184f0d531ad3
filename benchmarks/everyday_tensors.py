"""What operations on sparse arrays of three and four dimensions take beside their results, and how long: `python -m benchmarks.everyday_tensors
[--shapes long,short,four] [--formats coo,csf,...] [--only roll] [--entries 1000000]`.

Every row is run in the formats of tensors and, where it has one, in its analog of two dimensions: a matrix of as many entries in csr (coo for coo), whose
rows are the first coordinate and whose columns are all others. `temporary` is the peak of the resident set less what is resident while the result is
there, beside the result's size; milliseconds are the median of processor times; `/2-D` is the time beside that of the analog. Needs Linux.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import everyday_memory
from sparsejax.formats import Format

SHAPES = {"long": (300, 4000, 5000), "short": (1_000_000, 30, 40), "four": (500, 40, 3000, 200)}
FORMATS = {3: ("coo", "csf", "(d,c,c)", "(d,d,c)"), 4: ("coo", "csf", "(d,c,c,c)", "(d,q,q,q)")}
MIB = float(1 << 20)
Data = dict[str, Any]


def operands(shape: tuple[int, ...], form: str, entries: int) -> Data:
    """An array of that many random entries, and what it is indexed and written with."""
    rng = np.random.default_rng(0)
    coords = [rng.integers(0, n, entries) for n in shape]
    A = sj.array((rng.random(entries), tuple(coords)), shape=shape, format="coo")
    A = A.asformat(form)
    d: Data = {"A": A, "n": shape, "B": snp.abs(A), "coords": tuple(coords), "vals": rng.random(entries), "form": form}
    for k, n in enumerate(shape):
        d[f"half{k}"] = np.sort(rng.choice(n, max(1, n // 2), replace=False))
        d[f"perm{k}"] = rng.permutation(n)
        d[f"mask{k}"] = rng.random(n) < 0.5
    d["places"] = tuple(rng.integers(0, n, 1000) for n in shape)
    d["there"] = tuple(c[:1000] for c in coords)
    return d


def _last(n: tuple[int, ...]) -> int:
    return len(n) - 1


ROWS: dict[str, Callable[[Data], Any]] = {
    "A[::-1]": lambda d: d["A"][::-1],
    "A[:, ::-1]": lambda d: d["A"][:, ::-1],
    "A[..., ::-1]": lambda d: d["A"][..., ::-1],
    "A[lo:hi]": lambda d: d["A"][d["n"][0] // 4 : d["n"][0] // 2],
    "A[:, lo:hi]": lambda d: d["A"][:, d["n"][1] // 4 : d["n"][1] // 2],
    "A[..., lo:hi]": lambda d: d["A"][..., d["n"][-1] // 4 : d["n"][-1] // 2],
    "A[::2]": lambda d: d["A"][::2],
    "A[..., ::2]": lambda d: d["A"][..., ::2],
    "A[i]": lambda d: d["A"][d["n"][0] // 2],
    "A[:, j]": lambda d: d["A"][:, 7],
    "A[..., k]": lambda d: d["A"][..., 7],
    "A[half]": lambda d: d["A"][d["half0"]],
    "A[perm]": lambda d: d["A"][d["perm0"]],
    "A[mask]": lambda d: d["A"][d["mask0"]],
    "A[:, perm]": lambda d: d["A"][:, d["perm1"]],
    "A[:, half]": lambda d: d["A"][:, d["half1"]],
    "A[..., perm]": lambda d: d["A"][..., d[f"perm{_last(d['n'])}"]],
    "A[I, J, K]": lambda d: d["A"][d["coords"]],
    "A[A > t]": lambda d: d["A"][d["A"] > 0.3],
    "A > t": lambda d: d["A"] > 0.3,
    "set": lambda d: d["A"].at[d["places"]].set(3.0),
    "set there": lambda d: d["A"].at[d["there"]].set(3.0),
    "set one": lambda d: d["A"].at[(3,) * len(d["n"])].set(3.0),
    "add": lambda d: d["A"].at[d["places"]].add(3.0),
    "set box": lambda d: d["A"].at[3:5, 2:9].set(0.0),
    "pad": lambda d: snp.pad(d["A"], 2),
    "roll 0": lambda d: snp.roll(d["A"], 5, axis=0),
    "roll 1": lambda d: snp.roll(d["A"], 5, axis=1),
    "roll -1": lambda d: snp.roll(d["A"], 5, axis=-1),
    "concat 0": lambda d: snp.concatenate([d["A"], d["B"]], axis=0),
    "concat 1": lambda d: snp.concatenate([d["A"], d["B"]], axis=1),
    "concat -1": lambda d: snp.concatenate([d["A"], d["B"]], axis=-1),
    "stack": lambda d: snp.stack([d["A"], d["B"]]),
    "repeat 0": lambda d: snp.repeat(d["A"], 2, axis=0),
    "repeat -1": lambda d: snp.repeat(d["A"], 2, axis=-1),
    "tile": lambda d: snp.tile(d["A"], (2,) + (1,) * _last(d["n"])),
    "reversed axes": lambda d: snp.transpose(d["A"]).asformat(d["form"]),
    "moved axis": lambda d: snp.moveaxis(d["A"], 0, -1).asformat(d["form"]),
    "swapped axes": lambda d: snp.swapaxes(d["A"], 0, 1).asformat(d["form"]),
    "inner axes": lambda d: snp.swapaxes(d["A"], -1, -2).asformat(d["form"]),
    "to coo": lambda d: d["A"].asformat("coo"),
    "to csf": lambda d: d["A"].asformat("csf"),
    "to d,c,c": lambda d: d["A"].asformat(FORMATS[len(d["n"])][2]),
    "as matrix": lambda d: snp.reshape(d["A"], (d["n"][0], -1)),
    "made": lambda d: sj.array((d["vals"], d["coords"]), shape=d["n"], format=d["form"]),
    "nonzero": lambda d: snp.nonzero(d["A"]),
    "tril": lambda d: snp.tril(d["A"]),
    "prune": lambda d: sj.prune(d["A"], keep=2),
    "maximum": lambda d: snp.maximum(d["A"], d["B"]),
    "where": lambda d: snp.where(d["A"] > 0.5, d["A"], 0.0),
    "sum -1": lambda d: d["A"].sum(axis=-1),
    "sum 0": lambda d: d["A"].sum(axis=0),
    "max -1": lambda d: d["A"].max(axis=-1),
}


def timed(run: Callable[[Data], Any], data: Data, seconds: float = 0.3) -> float:
    """The median processor time of a call."""
    times: list[float] = []
    while len(times) < 3 or (sum(times) < seconds and len(times) < 25):
        start = time.process_time()
        made = run(data)
        times.append(time.process_time() - start)
        del made
    return float(np.median(times))


def measured(run: Callable[[Data], Any], data: Data) -> tuple[int, int, float]:
    """(bytes beside the result, bytes of the result, seconds)."""
    taken, own = everyday_memory.temporary(run, data)
    return taken, own, timed(run, data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--formats", default="", help="formats, with semicolons between them")
    parser.add_argument("--only", default="", help="names of rows, with semicolons between them")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--untimed", action="store_true", help="memory alone")
    options = parser.parse_args()
    rows = [name for name in ROWS if not options.only or name in options.only.split(";")]
    for named in options.shapes.split(","):
        shape = SHAPES[named]
        forms = options.formats.split(";") if options.formats else FORMATS[len(shape)]
        for form in forms:
            if form == "(d,d,c)" and shape[0] * shape[1] > 50_000_000:
                continue
            flat = operands((shape[0], int(np.prod(shape[1:]))), "coo" if form == "coo" else "csr", options.entries)
            data = operands(shape, form, options.entries)
            tell(f"{named} {Format.parse(form, len(shape))}", rows, data, flat, options.untimed)


def tell(title: str, rows: list[str], data: Data, flat: Data, untimed: bool) -> None:
    """Print the table of one format."""
    print(
        f"{title:24}{'result':>9} {'temp.':>9} {'ratio':>7} {'ms':>9} {'2-D ms':>9} {'/2-D':>7} {'2-D ratio':>9}",
        flush=True,
    )
    for name in rows:
        run = ROWS[name]
        try:
            taken, own, took = measured(run, data) if not untimed else (*everyday_memory.temporary(run, data), 0.0)
        except Exception as error:  # the table goes on
            print(f"{name:24}{type(error).__name__}: {str(error)[:100]}", flush=True)
            continue
        if own < MIB / 8:
            own = own or 1
        try:
            other, their, theirs = measured(run, flat) if not untimed else (0, 1, 0.0)
        except Exception:
            other, their, theirs = 0, 1, 0.0
        mark = " <" if taken > own + everyday_memory.SLACK else ""
        mark += " SLOW" if theirs and took > 3 * theirs and took > 0.002 else ""
        line = f"{name:24}{own / MIB:9.1f} {taken / MIB:9.1f} {taken / own:7.2f} {1e3 * took:9.2f}"
        if theirs:
            line += f" {1e3 * theirs:9.2f} {took / theirs:7.2f} {other / max(their, 1):9.2f}"
        print(line + mark, flush=True)


if __name__ == "__main__":
    main()
