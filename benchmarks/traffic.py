"""Traffic of tiled products: how exact the model is, what tiles save, beside the numbers of the D2T2 paper (docs/measurements/traffic.md).

    python -m benchmarks.traffic               C = A A^T in the order i,k,j, on the real matrices: tiles by every method
    python -m benchmarks.traffic --ijk         the same in the order i,j,k, where results stay
    python -m benchmarks.traffic --buffer 32   a buffer that holds a dense tile of 32 x 32 (default 128)
    python -m benchmarks.traffic --errors      predicted against simulated traffic over the reorder factor RF
    python -m benchmarks.traffic --regret      the chosen tiles against a scan of extents, simulated; with --full also all candidates of the full search
    python -m benchmarks.traffic --tensors     TTM and MTTKRP of the real tensors
    python -m benchmarks.traffic --named       matrices of the paper: those at hand, others rebuilt from their descriptions
    python -m benchmarks.traffic --two         a buffer of 2,115 words inside one of 33,027
    python -m benchmarks.traffic --time        what statistics and searches take, beside the product itself
    python -m benchmarks.traffic --corrs       the rule that a sum of Corrs below 1.6 calls for outer products
    python -m benchmarks.traffic --cpu         column panels of B on this machine: what a cache makes of tiles
    python -m benchmarks.traffic --plot DIR    figures of --errors and --corrs, into a folder (needs matplotlib)

`--largest` limits multiplications (6e7), `--only` names matrices. Words are counted exactly here, by simulation.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import datasets, paper_matrices
from sparsejax.core.array import Array
from sparsejax.dataflow import cells, contraction, drawn, methods
from sparsejax.dataflow.analysis import chosen
from sparsejax.dataflow.model import Model
from sparsejax.dataflow.nest import Nest
from sparsejax.dataflow.pattern import words_of_dense
from sparsejax.dataflow.progress import Progress
from sparsejax.dataflow.report import Candidate
from sparsejax.dataflow.simulate import Simulator
from sparsejax.formats import Format, convert

METHODS = ("conservative", "prescient", "tailors", "paper", "counted")
SHOWN = (*METHODS[:-1], "strict", "least")
MARKERS = {"conservative": "s", "prescient": "^", "tailors": "D", "paper": "o", "counted": "*"}


def square(A: Any) -> Any:
    """The product that everything is measured on."""
    return A @ A.T


def ones(matrix: sp.csr_array) -> sp.csr_array:
    return sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)


def matrices(largest: float, buffer: int, only: Sequence[str]) -> Iterator[tuple[str, sp.csr_array]]:
    """Real matrices and graphs whose product is not too large, and which do not fit into the buffer."""
    for name in only or datasets.matrix_names():
        A = ones(datasets.matrix(name))
        work = (np.bincount(A.indices, minlength=A.shape[1]).astype(float) ** 2).sum()
        rows = int((np.diff(A.indptr) > 0).sum())
        if only or (work <= largest and 2 * A.nnz + 2 * rows + 3 > buffer):
            yield name, A


def simulator(A: Any, order: str, function: Any = square, work: int = drawn.WORK) -> Simulator:
    found = contraction.of(function, A if isinstance(A, tuple) else (sj.array(A),), {})
    return Simulator(found, tuple(order), work)


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values)))) if len(values) else math.nan


def choose(s: Simulator, buffer: int, method: str, full: bool = False) -> dict[str, int]:
    with Progress(method) as progress:
        return chosen(s, buffer, method, full, progress).tiles


def compare(options: Any, buffer: int, order: str) -> None:
    """Every method on every matrix: simulated words, in proportion to those of `counted`.

    `least` are the words of A, A^T and C, uncut, moved once: a bound for all tiles, as every tile of A meets its own transpose, and cutting a
    matrix only adds rows and tiles."""
    rows, violations = [], 0
    print(f"{'matrix':36} {'entries':>8} " + " ".join(f"{m:>12}" for m in SHOWN) + "  counted: tiles, words")
    for name, A in matrices(options.largest, buffer, options.only):
        s = simulator(A, order)
        words: dict[str, float] = {}
        for method in METHODS:
            tiles = choose(s, buffer, method, options.full)
            nest = Nest(s.order, tiles)
            found = s.words(nest, exact=True)
            words[method] = sum(found)
            if method == "tailors":
                words["strict"] = sum(s.strict_words(nest, buffer)) + found[-1]
            elif max(s.largest(nest)) > buffer:
                violations += 1
        ratios = {m: words[m] / words["counted"] for m in words}
        nest = Nest(s.order, {v: max(n, 1) for v, n in s.contraction.extents.items()})
        ratios["least"] = sum(s.words(nest, exact=True)) / words["counted"]
        rows.append((A.nnz, ratios))
        print(
            f"{name:36} {A.nnz:8} " + " ".join(f"{ratios[m]:12.3f}" for m in SHOWN) + f"  {tiles} {words['counted']:,}",
            flush=True,
        )
    for least in (0, 100_000):
        part = [r for n, r in rows if n >= least]
        means = " ".join(f"{mean([r[m] for r in part]):12.3f}" for m in SHOWN)
        print(f"{f'geometric means ({len(part)}, from {least} entries)':45} {means}")
        bounds = " ".join(f"{mean([r[m] / r['least'] for r in part]):12.3f}" for m in SHOWN)
        print(f"{'  in proportion to the least':45} {bounds}")
    lows = " ".join(f"{min(r[m] for _, r in rows):12.3f}" for m in SHOWN)
    print(f"{'smallest':45} {lows}")
    print(f"tiles of operands beyond the buffer, all methods but tailors: {violations}")


def errors(options: Any, buffer: int, order: str) -> dict[str, list[float]]:
    """Predicted over simulated, for shapes of equal area."""
    found: dict[str, list[float]] = {
        k: [] for k in ("total", "output", "inputs", "paper", "paper inputs", "paper output", "words")
    }
    for name, A in matrices(options.largest, buffer, options.only):
        s = simulator(A, order, work=drawn.FINE)
        model = Model(s.contraction, s.order, options.buffer)
        line = []
        for rf in methods.FACTORS:
            nest = Nest(s.order, methods.shape(s, options.buffer, rf))
            true, ours, theirs = s.words(nest, True), s.words(nest, False), model.words(nest)
            pairs = {
                "total": (sum(ours), sum(true)),
                "output": (ours[-1], true[-1]),
                "inputs": (sum(ours[:-1]), sum(true[:-1])),
                "paper": (sum(theirs), sum(true)),
                "paper inputs": (sum(theirs[:-1]), sum(true[:-1])),
                "paper output": (theirs[-1], true[-1]),
            }
            for key, (predicted, simulated) in pairs.items():
                found[key].append(predicted / simulated)
            found["words"].append(sum(true))
            line.append(f"{found['total'][-1]:.3f}/{found['paper'][-1]:.2f}")
        print(f"{name:36} {' '.join(line)}", flush=True)
    for key in ("total", "output", "inputs", "paper", "paper inputs", "paper output"):
        wrong = np.abs(np.array(found[key]) - 1)
        print(f"{key:14} median {np.median(wrong):.2%}  p90 {np.quantile(wrong, 0.9):.2%}  max {wrong.max():.2%}")
    return found


def regret(options: Any, buffer: int, order: str) -> None:
    """Chosen tiles over the best of a scan of extents of k (and of all candidates of the full search, with --full), all of them simulated."""
    quick, whole = [], []
    for name, A in matrices(options.largest, buffer, options.only):
        s = simulator(A, order)
        tiles = choose(s, buffer, "counted")
        near = scanned(s, buffer, tiles["k"])
        if options.full:
            with Progress("full search") as progress:
                full = chosen(s, buffer, "counted", True, progress)
            near += sorted(full.candidates, key=lambda c: c.total)[:6]
        mine = sum(s.words(Nest(s.order, tiles), True))
        best = min(mine, *(sum(s.words(Nest(s.order, c.tiles), True)) for c in near))
        quick.append(mine / best)
        line = f"{name:36} search {quick[-1]:.3f}"
        if options.full:
            whole.append(sum(s.words(Nest(s.order, full.tiles), True)) / best)
            line += f", full search {whole[-1]:.3f}"
        print(f"{line}  {tiles}", flush=True)
    for what, values in (("search", quick), ("full search", whole)):
        if values:
            found = f"mean {mean(values):.4f}, p90 {np.quantile(values, 0.9):.3f}, max {max(values):.3f}"
            print(f"{what:12} regret: {found}")


def scanned(s: Simulator, buffer: int, k_tile: int) -> list[Candidate]:
    """The best of eighty extents of k between a quarter and four times this one, and of all that cut it into up to forty equal tiles; each with the
    longest tiles of the other variables that fit."""
    with Progress("scan") as progress:
        search = cells.prepared(s, buffer, progress)
        assert search is not None
        extents = {int(k_tile * x) for x in np.geomspace(0.25, 4, 80)}
        for extent in sorted(extents | {-(-search.extent // n) for n in range(1, 41)}):
            if 1 <= extent <= search.extent:
                search.at(extent, fine=True)
    return sorted(search.candidates, key=lambda c: c.total)[:3]


def timing(options: Any, buffer: int, order: str) -> None:
    """Processor seconds of statistics, searches and products, second calls."""
    product = sj.jit(lambda A, B: A @ B)
    totals = np.zeros(4)
    for name, A in matrices(options.largest, buffer, options.only):
        a, b = sj.array(A), sj.array(sp.csr_array(A.T))
        search = sj.tile_sizes(square, buffer, order=order)
        whole = sj.tile_sizes(square, buffer, order=order, full=True)
        works = [(product, (a, b)), (sj.stats, (a,)), (search, (a,)), (whole if options.full else len, (a,))]
        runs = []
        for _ in range(3):
            times = []
            for work, args in works:
                started = time.process_time()
                work(*args)
                times.append(time.process_time() - started)
            runs.append(times)
        spent = np.median(runs[1:], axis=0)
        totals += spent
        print(
            f"{name:36} product {spent[0] * 1e3:8.1f} ms, statistics {spent[1] * 1e3:7.1f}, search {spent[2] * 1e3:8.1f}, full {spent[3] * 1e3:8.1f}",
            flush=True,
        )
    print(
        f"sums: product {totals[0]:.2f} s; of it statistics {totals[1] / totals[0]:.3f}, search {totals[2] / totals[0]:.2f}, "
        f"full search {totals[3] / totals[0]:.2f}"
    )


def factor(rows: int, columns: int, density: float, seed: int) -> sp.csr_array:
    return ones(sp.csr_array(sp.random_array((rows, columns), density=density, rng=np.random.default_rng(seed))))


def tensors(options: Any, buffer: int) -> None:
    """TTM X_ijk = C_ijl B_kl and MTTKRP D_ij = A_ikl B_jk C_jl with random factors, as in the paper's table 4."""
    ratios: dict[str, list[float]] = {"TTM": [], "MTTKRP": []}
    for name in options.only or datasets.tensor_names():
        coords, _, shape = datasets.tensor(name)
        T = Array(convert.from_coords(coords, np.ones(coords.shape[1]), shape, Format.parse("csf", 3), 0.0))
        density = 0.001 if max(shape) > 10_000 else 0.01
        a, b, c = shape
        kernels = {
            "TTM": (
                lambda C, B: sj.einsum("ijl,kl->ijk", C, B),
                (T, sj.array(factor(max(a, b), c, density, 1))),
                "ijlk",
            ),
            "MTTKRP": (
                lambda A, B, C: sj.einsum("ikl,jk,jl->ij", A, B, C, optimize=False),
                (T, sj.array(factor(a, b, density, 2)), sj.array(factor(a, c, density, 3))),
                "iklj",
            ),
        }
        for kernel, (function, operands, order) in kernels.items():
            s = simulator(operands, order, function)
            words = {}
            for method in ("conservative", "prescient", "paper", "counted"):
                tiles = choose(s, buffer, method)
                nest = Nest(s.order, tiles)
                words[method] = sum(s.words(nest, True))
                assert max(s.largest(nest)) <= buffer, (name, kernel, method)
            ratios[kernel].append(words["conservative"] / words["counted"])
            shown = ", ".join(f"{m} / counted {words[m] / words['counted']:.3f}" for m in words if m != "counted")
            print(f"{name:16} {kernel:7} {shown}  {tiles} {words['counted']:,}", flush=True)
    for kernel, values in ratios.items():
        print(f"{kernel}: Conservative / counted, geometric mean {mean(values):.2f}, arithmetic {np.mean(values):.2f}")


def named(options: Any) -> None:
    """Matrices of the paper's tables: Conservative and Prescient over counted."""
    for name, (build, edge, theirs) in paper_matrices.MATRICES.items():
        if options.only and name not in options.only:
            continue
        A = ones(build())
        buffer = words_of_dense([edge, edge])
        s = simulator(A, "ikj")
        words = {m: sum(s.words(Nest(s.order, choose(s, buffer, m)), True)) for m in METHODS}
        ratios = ", ".join(f"{m} {words[m] / words['counted']:.2f}" for m in METHODS[:-1])
        print(
            f"{name:18} {A.shape} {A.nnz} entries, buffer {edge} x {edge}: {ratios} times counted; paper: {theirs}",
            flush=True,
        )


def two(options: Any) -> None:
    """Words of both levels for tiles by several methods."""
    buffers = (words_of_dense([128, 128]), words_of_dense([32, 32]))
    rows = []
    for name, A in matrices(min(options.largest, 3e6), buffers[0], options.only):
        a = sj.array(A)
        told = {
            m: sj.tile_sizes(square, buffers, method=m)(a).predicted for m in ("conservative", "prescient", "counted")
        }
        ratios = [
            told[m].levels[k].total / told["counted"].levels[k].total
            for m in ("conservative", "prescient")
            for k in (0, 1)
        ]
        rows.append(ratios)
        levels = told["counted"].levels
        print(
            f"{name:36} " + " ".join(f"{r:7.2f}" for r in ratios) + f"  {levels[0].tiles} {levels[1].tiles}", flush=True
        )
    print(
        "Conservative / counted, outer and inner; Prescient / counted, outer and inner: "
        + " ".join(f"{mean(c):.2f}" for c in zip(*rows, strict=True))
    )


def corrs(options: Any, buffer: int, order: str) -> list[tuple[float, float]]:
    """The sum of Corrs of B over k against the best reorder factor of equal area, by simulation."""
    points, right = [], 0
    for name, A in matrices(options.largest, buffer, options.only):
        s = simulator(A, order)
        total = sj.stats(sj.array(sp.csr_array(A.T)), options.buffer).corrs_sum[0]
        words = {rf: sum(s.words(Nest(s.order, methods.shape(s, options.buffer, rf)), True)) for rf in methods.FACTORS}
        best = min(words, key=lambda rf: words[rf])
        points.append((total, best))
        agrees = (total < 1.6) == (best >= 8)
        right += agrees
        print(
            f"{name:36} sum of Corrs {total:7.3f}, best RF {best:6g}, {'as' if agrees else 'not as'} the rule says",
            flush=True,
        )
    print(f"the rule (below 1.6: RF of 8 or more) holds for {right} of {len(points)}")
    return points


def cpu(options: Any) -> None:
    """A product as it is, against the same product in column panels of B whose rows stay in a cache."""
    product = sj.jit(lambda A, B: A @ B)
    for name, A in matrices(options.largest, words_of_dense([128, 128]), options.only):
        B = sp.csr_array(A.T)
        a, b = sj.array(A), sj.array(B)
        line = []
        for panels in (1, 2, 4, 8):
            cuts = [sj.array(sp.csr_array(p)) for p in _panels(B, panels)]
            for p in cuts:
                product(a, p)
            line.append(cuts)
        times: list[list[float]] = [[] for _ in line]
        for _ in range(7):
            for k, cuts in enumerate(line):
                started = time.perf_counter()
                for p in cuts:
                    product(a, p)
                times[k].append(time.perf_counter() - started)
        del b
        base = np.median(times[0])
        print(
            f"{name:36} {base * 1e3:8.2f} ms; times as fast in 2, 4, 8 panels: "
            + " ".join(f"{base / np.median(t):.2f}" for t in times[1:]),
            flush=True,
        )


def _panels(B: sp.csr_array, count: int) -> list[sp.csr_array]:
    width = -(-B.shape[1] // count)
    columns = B.tocsc()
    return [sp.csr_array(columns[:, k * width : (k + 1) * width]) for k in range(count) if k * width < B.shape[1]]


def plot(options: Any, buffer: int, order: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib import ticker

    target = Path(options.plot)
    target.mkdir(parents=True, exist_ok=True)  # before the minutes that it takes
    found = errors(options, buffer, order)
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
    words = np.array(found["words"])
    left.loglog(words, words * np.array(found["paper"]), ".", color="#e09f3e", label="model of the paper")
    left.loglog(words, words * np.array(found["total"]), ".", color="#2a6f97", label="counted")
    left.plot([words.min(), words.max()], [words.min(), words.max()], "k-", lw=0.5)
    left.set(xlabel="simulated words", ylabel="predicted words", title="Predicted against simulated traffic")
    left.legend()
    shown = options.only[:5] or ["p2p-Gnutella31", "brack2", "bcsstk16", "email-Enron", "qc324"]
    for color, (name, A) in zip(plt.rcParams["axes.prop_cycle"], matrices(options.largest, 0, shown), strict=False):
        s = simulator(A, order)
        by_rf = [sum(s.words(Nest(s.order, methods.shape(s, options.buffer, rf)), True)) for rf in methods.FACTORS]
        middle.loglog(methods.FACTORS, by_rf, "-", label=name, **color)
        for method, marker in MARKERS.items():
            tiles = choose(s, buffer, method)
            rf = math.sqrt(tiles["i"] / tiles["k"])
            middle.loglog([rf], [sum(s.words(Nest(s.order, tiles), True))], marker, fillstyle="none", **color)
    for method, marker in MARKERS.items():
        middle.plot([], [], marker, fillstyle="none", color="k", label=f"chosen: {method}")
    middle.set(
        xlabel="RF, the root of Ti over Tk", ylabel="words", title="Shapes of equal area, and what methods choose"
    )
    middle.set_ylim(top=8 * middle.get_ylim()[1])  # room for the legend
    middle.legend(fontsize=8, ncols=2, loc="upper center")
    points = corrs(options, buffer, order)
    right.semilogy([x for x, _ in points], [y for _, y in points], ".", base=2, color="#2a6f97")
    right.axvline(1.6, color="k", lw=0.5)
    right.set(xlabel="sum of Corrs of B over k", ylabel="best RF", xscale="log", title="The rule of 1.6")
    right.set_xticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    right.xaxis.set_minor_formatter(ticker.NullFormatter())
    figure.savefig(target / "traffic.png", dpi=110)
    print(json.dumps({"figure": str(target / "traffic.png")}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buffer", type=int, default=128, help="edge of the dense tile that the buffer holds")
    parser.add_argument("--largest", type=float, default=6e7, help="multiplications of the largest product")
    parser.add_argument("--only", nargs="*", default=[], help="names of matrices")
    parser.add_argument("--plot", default="", help="a folder for figures")
    for flag in ("ijk", "tensors", "named", "two", "time", "errors", "regret", "corrs", "cpu", "full"):
        parser.add_argument(f"--{flag}", action="store_true")
    options = parser.parse_args()
    if datasets.folder() is None and not options.named:
        print("the data folder is absent; set SPARSEJAX_DATA")
        return
    buffer, order = words_of_dense([options.buffer] * 2), "ijk" if options.ijk else "ikj"
    if options.plot:
        plot(options, buffer, order)
    elif options.tensors:
        tensors(options, buffer)
    elif options.named:
        named(options)
    elif options.two:
        two(options)
    elif options.cpu:
        cpu(options)
    else:
        work = next((f for flag, f in WORKS.items() if getattr(options, flag)), compare)
        work(options, buffer, order)


WORKS = {"time": timing, "errors": errors, "regret": regret, "corrs": corrs}

if __name__ == "__main__":
    main()
