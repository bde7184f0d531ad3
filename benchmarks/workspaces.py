"""Workspace policy against policy: time of one kernel over collision rate, output size and expression.

    python -m benchmarks.workspaces [--quick] [--out table.md] [--plot figure.png]

Expressions: insertions alone (t[i,j] += X[p,i,j], with n insertions into m places), SpGEMM row by row and by outer products,
SpMTTKRP and SpTTM with compressed results, on generated operands and on the tensors of the data folder where there is
one. Every column is one policy, in milliseconds, best of several runs; `chosen` is what the cost model takes for the observed
sizes, and `loss` its time over the best policy's. Results are compared between policies. The comparison is that of
"Compilation of Modular and General Sparse Workspaces", figures 15 to 18 and 22.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsejax.formats import Compressed, Coordinate, Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit import autoschedule, binding, cin, concretize, facts, lower, runtime
from sparsejax.jit.llvm import LLVMBuilder
from sparsejax.jit.nest import Nest, of_definition
from sparsejax.jit.workspaces import policies

REPEATS = 3
SLOW = 1.0  # seconds after which a policy is timed once
LARGEST = 2**27  # positions of a bitmap that is tried


@dataclass
class Point:
    """One row: a kernel with its loop order and operands."""

    name: str
    nest: Nest
    order: tuple[cin.IndexVar, ...]
    inputs: list[Storage]


def kernel(name: str, subscripts: str, order: str, out: Format, operands: list[Storage]) -> Point:
    """The point of an einsum of all operands under a loop order."""
    sources, target = subscripts.split("->")
    var = {letter: cin.IndexVar(letter) for letter in order}
    expr: cin.Expr | None = None
    extents = {}
    for k, (letters, storage) in enumerate(zip(sources.split(","), operands, strict=True)):
        extents.update(zip(letters, storage.shape, strict=True))
        tensor = cin.Tensor(f"A{k}", storage.shape, storage.dtype, storage.format, storage.fill_value)
        access = cin.Access(tensor, tuple(var[c] for c in letters))
        expr = access if expr is None else cin.Call("multiply", (expr, access), storage.dtype)
    assert expr is not None
    indices = tuple(var[c] for c in target)
    output = cin.Tensor("out", tuple(extents[c] for c in target), expr.dtype, out, expr.dtype.type(0))
    nest = of_definition(output, cin.Definition(indices, "add", expr))
    return Point(name, nest, tuple(var[c] for c in order), operands)


def scattered(shape: tuple[int, ...], entries: int, form: Format, seed: int) -> Storage:
    """`entries` random coordinates, with values that sum exactly."""
    rng = np.random.default_rng(seed)
    coords = np.stack([rng.integers(0, n, entries) for n in shape])
    return convert.from_coords(coords, rng.integers(1, 9, entries).astype(np.float64), shape, form, 0.0, np.maximum)


def coo(ndim: int) -> Format:
    return Format((Coordinate(),) * ndim)


def csf(ndim: int) -> Format:
    return Format((Compressed(),) * ndim)


def insertions(n: int, m: int, extent: int) -> Point:
    """n insertions into m places of an extent x extent matrix."""
    rng = np.random.default_rng(1)
    places = rng.integers(0, extent, (2, m))
    picked = places[:, rng.integers(0, m, n)]
    form = Format((Compressed(), Coordinate(), Coordinate()))
    stored = convert.from_coords(
        np.concatenate([np.arange(n)[None], picked]), np.ones(n), (n, extent, extent), form, 0.0
    )
    return kernel(f"insert {n} into {m} of {extent}^2", "pij->ij", "pij", coo(2), [stored])


def points(quick: bool) -> list[Point]:
    """All rows."""
    made = []
    n = 50_000 if quick else 1_000_000
    for extent in (1000, 100_000, 2**31):
        for rate in (1, 4, 32):
            made.append(insertions(n, n // rate, extent))
    csr, csc = Format.parse("csr", 2), Format.parse("csc", 2)
    for size, degree in ((2_000, 8), (2_000, 64)) if quick else ((20_000, 4), (20_000, 30), (2_000, 200), (200_000, 4)):
        a, b = scattered((size, size), size * degree, csr, 2), scattered((size, size), size * degree, csr, 3)
        made.append(kernel(f"SpGEMM rows {size} degree {degree}", "ik,kj->ij", "ikj", csr, [a, b]))
        flipped = convert.convert(a, csc)
        made.append(kernel(f"SpGEMM outer {size} degree {degree}", "ik,kj->ij", "kij", csr, [flipped, b]))
    size = 200 if quick else 1000
    tensor = scattered((size, size, size), 20 * size, Format((Compressed(),) * 3), 4)
    made += tensor_points(f"random {size}^3", tensor)
    folder = Path(os.environ.get("SPARSEJAX_DATA", "../shared/data")) / "tensors"
    for path in sorted(folder.glob("*.tns.gz")):
        made += tensor_points(path.name.split(".")[0], read_tns(path))
    return made


def tensor_points(name: str, tensor: Storage) -> list[Point]:
    """SpMTTKRP and SpTTM of a tensor of three dimensions with sparse factors."""
    rank = 16
    factors = [scattered((n, rank), 4 * n, csf(2), 5 + k) for k, n in enumerate(tensor.shape)]
    found = []
    for form in (csf(2), coo(2)):
        found.append(kernel(f"SpMTTKRP {name} {form}", "ijk,jr,kr->ir", "ijkr", form, [tensor, *factors[1:]]))
    turned = convert.convert(tensor, Format((Compressed(),) * 3, (2, 0, 1)))
    for form in (csf(3), coo(3)):
        found.append(kernel(f"SpTTM {name} {form}", "ijk,kr->ijr", "kijr", form, [turned, factors[2]]))
    return found


def read_tns(path: Path) -> Storage:
    """A FROSTT tensor of three dimensions."""
    with gzip.open(path, "rt") as file:
        rows = np.loadtxt((line for line in file if not line.startswith("#")), ndmin=2)
    coords = rows[:, :-1].T.astype(np.int64) - 1
    shape = tuple(int(n) for n in coords.max(1) + 1)
    return convert.from_coords(coords, rows[:, -1], shape, csf(len(shape)), 0.0, np.add)


def measure(point: Point, policy: str) -> tuple[float, Storage]:
    """Seconds of one call, and the result."""
    program = concretize.concretize(point.nest, point.order, policy)
    compiled = runtime.compile_text(lower.lower(program, LLVMBuilder()))
    run = binding.Binding(compiled, program.output, "add").run
    best, made = float("inf"), None
    for _ in range(REPEATS):
        started = time.thread_time()  # kernels run in one thread; waiting for a busy processor does not count
        made = run(point.inputs)
        best = min(best, time.thread_time() - started)
        if best > SLOW:
            break
    assert made is not None
    return best, made


def chosen(point: Point) -> policies.Choice | None:
    """What the cost model takes under the point's loop order."""
    observed = {t.name: facts.positions(s) for t, s in zip(point.nest.inputs, point.inputs, strict=True)}
    return autoschedule.workspace(point.nest, observed, point.order)


def row(point: Point) -> dict[str, float | str]:
    """The times of every policy in milliseconds, the choice, and what it loses."""
    times: dict[str, float] = {}
    reference = None
    _, p = concretize.assembly(point.nest.output, point.nest.storage_indices, point.order)
    sizes = [point.nest.output.shape[point.nest.indices.index(v)] for v in point.nest.storage_indices[p:]]
    for policy in policies.POLICIES:
        if policy == "bitmap" and np.prod([float(s) for s in sizes]) > LARGEST:
            continue
        times[policy], made = measure(point, policy)
        coords, vals = convert.to_coords(made)
        if reference is None:
            reference = coords, vals
        assert np.array_equal(coords, reference[0]) and np.allclose(vals, reference[1]), (
            f"{point.name}: {policy} differs"
        )
    choice = chosen(point)
    assert choice is not None
    loss = times.get(choice.policy, float("nan")) / min(times.values())
    listed: dict[str, float | str] = {name: 1e3 * seconds for name, seconds in times.items()}
    return {"kernel": point.name, **listed, "chosen": choice.policy, "loss": loss}


def table(rows: list[dict[str, float | str]]) -> str:
    """The rows as a Markdown table."""
    columns = ["kernel", *policies.POLICIES, "chosen", "loss"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for entry in rows:
        cells = [entry.get(c, "-") for c in columns]
        lines.append("| " + " | ".join(c if isinstance(c, str) else f"{c:.3g}" for c in cells) + " |")
    losses = [float(entry["loss"]) for entry in rows]
    good = sum(loss <= 1.2 for loss in losses)
    return "\n".join([*lines, "", f"the choice is within 1.2 of the best policy on {good} of {len(rows)} rows"])


def plot(rows: list[dict[str, float | str]], path: str) -> None:
    """Bars per row, one per policy."""
    try:
        import matplotlib
    except ImportError:
        print("matplotlib is not installed: no plot")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 0.4 * len(rows) + 2))
    places = np.arange(len(rows))
    for k, policy in enumerate(policies.POLICIES):
        axes.barh(places + 0.16 * k, [float(r.get(policy, 0)) for r in rows], 0.15, label=policy)
    axes.set_yticks(places + 0.3, [str(r["kernel"]) for r in rows], fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds")
    axes.invert_yaxis()
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small operands")
    parser.add_argument("--out", help="write the table here")
    parser.add_argument("--plot", help="draw the table here")
    options = parser.parse_args()
    rows = []
    for point in points(options.quick):
        rows.append(row(point))
        print(rows[-1], flush=True)
    text = table(rows)
    print(text)
    if options.out:
        Path(options.out).write_text(text + "\n")
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
