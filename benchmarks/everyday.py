"""What people do between products, beside SciPy: `python -m benchmarks.everyday [--sizes 50,5000,200000,4000000] [--only slices "A @ x" ...]`.

Every row is one expression of NumPy's language, run at once on a csr array (n rows, `PER_ROW` entries in each) and on SciPy's; results are
compared first. The two are timed in turns; the ratio is the median of the rounds' ratios (SciPy's time over ours, more is better). Rows of
which one run takes as long as a row may take are timed in `--rounds` rounds. `--part 2/3` runs the second third of the rows, and `--into FILE`
appends what it finds, so that `--summary FILE` tells the means of all the parts.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# before NumPy is imported: SciPy's norm alone would run on several threads, of whose time `--processor` sees a part
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Coordinate, Format

PER_ROW = 5
SIZES = (50, 5_000, 200_000, 4_000_000)
BY_COLUMNS = Format((Coordinate(), Coordinate()), (1, 0))
"""Triplets in the order of columns, which SciPy's csc matrices become; ours called "coo" are in the order of rows."""
Data = dict[str, Any]
Side = Callable[[Data], Any]


@dataclass(frozen=True)
class Row:
    """`ours` and `scipy` on the operands of each; `group` selects rows on the command line; `largest` bounds n where a row would take minutes."""

    name: str
    group: str
    ours: Side
    scipy: Side
    largest: int = 4_000_000


def both(name: str, group: str, run: Side, largest: int = 4_000_000) -> Row:
    """A row that both libraries write in the same words."""
    return Row(name, group, run, run, largest)


def _triplets(d: Data) -> tuple[Any, Any]:
    return d["V"], (d["I"], d["J"])


ROWS = (
    both("A[lo:hi]", "slices", lambda d: d["A"][d["lo"] : d["hi"]]),
    both("A[3:]", "slices", lambda d: d["A"][3:]),
    both("A[::2]", "slices", lambda d: d["A"][::2]),
    both("A[:, lo:hi]", "slices", lambda d: d["A"][:, d["lo"] : d["hi"]]),
    both("A[lo:hi, lo:hi]", "slices", lambda d: d["A"][d["lo"] : d["hi"], d["lo"] : d["hi"]]),
    both("A[idx]", "gathers", lambda d: d["A"][d["idx"]]),
    both("A[perm]", "gathers", lambda d: d["A"][d["perm"]]),
    both("A[mask]", "gathers", lambda d: d["A"][d["mask"]]),
    both("A[:, idx]", "gathers", lambda d: d["A"][:, d["idx"]]),
    both("A[perm][:, perm]", "gathers", lambda d: d["A"][d["perm"]][:, d["perm"]]),
    both("A[R, C]", "gathers", lambda d: d["A"][d["R"], d["C"]]),
    both("A[i, j]", "gathers", lambda d: d["A"][d["i"], d["j"]]),
    both("A[i]", "lines", lambda d: d["A"][d["i"]]),
    both("A[:, j]", "lines", lambda d: d["A"][:, d["j"]]),
    both("A[[i]]", "lines", lambda d: d["A"][[d["i"]]]),
    both("A[i, lo:hi]", "lines", lambda d: d["A"][d["i"], d["lo"] : d["hi"]]),
    both("diagonal(1)", "lines", lambda d: d["A"].diagonal(1)),
    Row("nonzero", "lines", lambda d: snp.nonzero(d["A"]), lambda d: d["A"].nonzero()),
    both("diagonal", "lines", lambda d: d["A"].diagonal()),
    Row("vstack", "putting together", lambda d: snp.vstack([d["A"], d["B"]]), lambda d: sp.vstack([d["A"], d["B"]])),
    Row(
        "hstack",
        "putting together",
        lambda d: snp.hstack([d["A"], d["B"]]),
        lambda d: sp.hstack([d["A"], d["B"]], "csr"),
    ),
    Row(
        "block",
        "putting together",
        lambda d: snp.block([[d["A"], d["B"]], [d["B"], d["A"]]]),
        lambda d: sp.block_array([[d["A"], d["B"]], [d["B"], d["A"]]], format="csr"),
    ),
    Row("kron(A, E)", "putting together", lambda d: snp.kron(d["A"], d["E"]), lambda d: sp.kron(d["A"], d["E"], "csr")),
    Row(
        "block_diag",
        "putting together",
        lambda d: sj.block_diag([d["A"], d["B"]]).asformat("csr"),
        lambda d: sp.block_diag([d["A"], d["B"]], format="csr"),
    ),
    Row("kron(E, A)", "putting together", lambda d: snp.kron(d["E"], d["A"]), lambda d: sp.kron(d["E"], d["A"], "csr")),
    Row(
        "vstack of 20",
        "putting together",
        lambda d: snp.vstack([d["A"]] * 20),
        lambda d: sp.vstack([d["A"]] * 20),
        200_000,
    ),
    Row("eye", "made", lambda d: snp.eye(d["n"], format="csr"), lambda d: sp.eye_array(d["n"], format="csr")),
    Row("zeros", "made", lambda d: snp.zeros((d["n"], d["n"]), format="csr"), lambda d: sp.csr_array((d["n"], d["n"]))),
    Row("diags", "made", lambda d: snp.diag(d["x"]), lambda d: sp.diags_array(d["x"], format="csr")),
    Row(
        "triplets",
        "made",
        lambda d: sj.array(_triplets(d), shape=d["A"].shape, format="csr"),
        lambda d: sp.csr_array(_triplets(d), shape=d["A"].shape),
    ),
    Row(
        "diags(3)",
        "made",
        lambda d: snp.diags([d["x"][1:], d["x"], d["x"][1:]], [-1, 0, 1], format="csr"),
        lambda d: sp.diags_array([d["x"][1:], d["x"], d["x"][1:]], offsets=[-1, 0, 1], format="csr"),
    ),
    Row(
        "coo, in order",
        "made",
        lambda d: sj.array(_triplets(d), shape=d["A"].shape, format="coo"),
        lambda d: _in_order(sp.coo_array(_triplets(d), shape=d["A"].shape)),
    ),
    Row("of SciPy's csr", "made", lambda d: sj.array(d["own"]), lambda d: _checked(sp.csr_array(d["own"], copy=True))),
    Row(
        "of SciPy's csc", "made", lambda d: sj.array(d["owns"]), lambda d: _checked(sp.csc_array(d["owns"], copy=True))
    ),
    Row("of SciPy's coo", "made", lambda d: sj.array(d["list"]), lambda d: sp.coo_array(d["list"], copy=True)),
    Row("csr of SciPy's coo", "made", lambda d: sj.array(d["list"], format="csr"), lambda d: sp.csr_array(d["list"])),
    Row(
        "triplets in order",
        "made",
        lambda d: sj.array((d["list"].data, d["list"].coords), shape=d["A"].shape, format="csr"),
        lambda d: sp.csr_array((d["list"].data, d["list"].coords), shape=d["A"].shape),
    ),
    Row("copy", "formats", lambda d: d["A"].copy(), lambda d: d["A"].copy()),
    Row("tocsc", "formats", lambda d: d["A"].asformat("csc"), lambda d: d["A"].tocsc()),
    Row("tocoo", "formats", lambda d: d["A"].asformat("coo"), lambda d: d["A"].tocoo()),
    Row("coo to csr", "formats", lambda d: d["coo"].asformat("csr"), lambda d: d["coo"].tocsr()),
    Row("csc to csr", "formats", lambda d: d["csc"].asformat("csr"), lambda d: d["csc"].tocsr()),
    Row("todense", "formats", lambda d: d["A"].todense(), lambda d: d["A"].toarray(), 5_000),
    both("A.T", "formats", lambda d: d["A"].T),
    both("astype", "formats", lambda d: d["A"].astype(np.float32)),
    both("reshape", "formats", lambda d: d["A"].reshape((d["n"] // 2, 2 * d["n"]))),
    Row("tril", "formats", lambda d: snp.tril(d["A"]), lambda d: sp.tril(d["A"], format="csr")),
    Row("triu", "formats", lambda d: snp.triu(d["A"]), lambda d: sp.triu(d["A"], format="csr")),
    Row("tobsr", "formats", lambda d: d["A"].asformat("bsr:2x2"), lambda d: d["A"].tobsr(blocksize=(2, 2))),
    Row("bsr to csr", "formats", lambda d: d["bsr"].asformat("csr"), lambda d: d["bsr"].tocsr()),
    Row("todia", "formats", lambda d: d["tri"].todia(), lambda d: d["tri"].todia()),
    Row("dia to csr", "formats", lambda d: d["dia"].asformat("csr"), lambda d: d["dia"].tocsr()),
    Row("dense to csr", "formats", lambda d: sj.array(d["X"], format="csr"), lambda d: sp.csr_array(d["X"])),
    Row("csc to coo", "formats", lambda d: d["csc"].asformat(BY_COLUMNS), lambda d: d["csc"].tocoo()),
    Row("csc to coo, rows", "formats", lambda d: d["csc"].asformat("coo"), lambda d: d["csc"].tocsr().tocoo()),
    both("A.T.tocsr()", "formats", lambda d: d["A"].T.tocsr()),
    both("astype(bool)", "formats", lambda d: d["A"].astype(bool)),
    both("reshape(-1)", "formats", lambda d: d["A"].reshape((d["n"] * d["n"],)), 5_000),
    both("A * 2", "elementwise", lambda d: d["A"] * 2),
    both("-A", "elementwise", lambda d: -d["A"]),
    both("abs(A)", "elementwise", lambda d: abs(d["A"])),
    both("A ** 2", "elementwise", lambda d: d["A"].power(2) if sp.issparse(d["A"]) else d["A"] ** 2),
    Row("sqrt", "elementwise", lambda d: snp.sqrt(d["P"]), lambda d: d["P"].sqrt()),
    both("A > 0.5", "elementwise", lambda d: d["A"] > 0.5),
    both("A + B", "elementwise", lambda d: d["A"] + d["B"]),
    both("A - B", "elementwise", lambda d: d["A"] - d["B"]),
    Row("A * B", "elementwise", lambda d: d["A"] * d["B"], lambda d: d["A"].multiply(d["B"])),
    Row("maximum", "elementwise", lambda d: snp.maximum(d["A"], d["B"]), lambda d: d["A"].maximum(d["B"])),
    Row("minimum", "elementwise", lambda d: snp.minimum(d["A"], d["B"]), lambda d: d["A"].minimum(d["B"])),
    both("A / 2", "elementwise", lambda d: d["A"] / 2),
    both("A > B", "elementwise", lambda d: d["A"] > d["B"]),
    both("A < B", "elementwise", lambda d: d["A"] < d["B"]),
    both("A != B", "elementwise", lambda d: d["A"] != d["B"]),
    both("A != 0", "elementwise", lambda d: d["A"] != 0),
    both("A < -0.5", "elementwise", lambda d: d["A"] < -0.5),
    *[
        Row(
            name,
            "elementwise",
            lambda d, name=name: getattr(snp, name)(d["A"]),
            lambda d, name=name: getattr(d["A"], name)(),
        )
        for name in ("sign", "floor", "rint", "expm1", "sin", "tan", "tanh", "sinh", "arctan", "arcsinh", "deg2rad")
    ],
    Row("arcsin", "elementwise", lambda d: snp.arcsin(d["U"]), lambda d: d["U"].arcsin()),
    Row("arctanh", "elementwise", lambda d: snp.arctanh(d["U"]), lambda d: d["U"].arctanh()),
    Row("log1p", "elementwise", lambda d: snp.log1p(d["P"]), lambda d: d["P"].log1p()),
    both("conj", "elementwise", lambda d: d["A"].conj()),
    both("A.real", "elementwise", lambda d: d["A"].real),
    Row("A * X", "elementwise", lambda d: d["A"] * d["D"], lambda d: d["A"].multiply(d["D"]).tocsr(), 5_000),
    Row("A / column", "elementwise", lambda d: d["A"] / d["x"][:, None], lambda d: (d["A"] / d["x"][:, None]).tocsr()),
    Row("csc + csc", "elementwise", lambda d: d["csc"] + d["csc2"], lambda d: d["csc"] + d["csc2"]),
    Row("A + csc", "elementwise", lambda d: d["A"] + d["csc2"], lambda d: d["A"] + d["csc2"]),
    Row("A * row", "elementwise", lambda d: d["A"] * d["x"], lambda d: d["A"].multiply(d["x"]).tocsr()),
    Row(
        "A * column",
        "elementwise",
        lambda d: d["A"] * d["x"][:, None],
        lambda d: d["A"].multiply(d["x"][:, None]).tocsr(),
    ),
    both("sum", "reductions", lambda d: d["A"].sum()),
    both("sum(0)", "reductions", lambda d: d["A"].sum(axis=0)),
    both("sum(1)", "reductions", lambda d: d["A"].sum(axis=1)),
    both("mean(1)", "reductions", lambda d: d["A"].mean(axis=1)),
    both("max", "reductions", lambda d: d["A"].max()),
    both("max(0)", "reductions", lambda d: d["A"].max(axis=0)),
    both("max(1)", "reductions", lambda d: d["A"].max(axis=1)),
    both("argmax(1)", "reductions", lambda d: d["A"].argmax(axis=1), 200_000),
    both("trace", "reductions", lambda d: d["A"].trace()),
    Row(
        "count_nonzero(1)",
        "reductions",
        lambda d: snp.count_nonzero(d["A"], axis=1),
        lambda d: d["A"].count_nonzero(axis=1),
    ),
    Row("norm", "reductions", lambda d: snp.linalg.norm(d["A"]), lambda d: sp.linalg.norm(d["A"])),
    both("mean", "reductions", lambda d: d["A"].mean()),
    both("mean(0)", "reductions", lambda d: d["A"].mean(axis=0)),
    both("min", "reductions", lambda d: d["A"].min()),
    both("min(0)", "reductions", lambda d: d["A"].min(axis=0)),
    both("min(1)", "reductions", lambda d: d["A"].min(axis=1)),
    both("argmin(1)", "reductions", lambda d: d["A"].argmin(axis=1), 5_000),
    both("argmax(0)", "reductions", lambda d: d["A"].argmax(axis=0), 5_000),
    both("argmax", "reductions", lambda d: d["A"].argmax()),
    Row("count_nonzero", "reductions", lambda d: snp.count_nonzero(d["A"]), lambda d: d["A"].count_nonzero()),
    Row(
        "count_nonzero(0)",
        "reductions",
        lambda d: snp.count_nonzero(d["A"], axis=0),
        lambda d: d["A"].count_nonzero(axis=0),
    ),
    Row("nanmax(1)", "reductions", lambda d: snp.nanmax(d["A"], axis=1), lambda d: d["A"].nanmax(axis=1)),
    Row("norm(1)", "reductions", lambda d: snp.linalg.norm(d["A"], axis=1), lambda d: sp.linalg.norm(d["A"], axis=1)),
    Row("norm, ord=1", "reductions", lambda d: snp.linalg.norm(d["A"], 1), lambda d: sp.linalg.norm(d["A"], 1)),
    Row(
        "norm, ord=inf",
        "reductions",
        lambda d: snp.linalg.norm(d["A"], np.inf),
        lambda d: sp.linalg.norm(d["A"], np.inf),
    ),
    both("A @ x", "products", lambda d: d["A"] @ d["x"]),
    both("A @ X", "products", lambda d: d["A"] @ d["X"]),
    both("A.T @ x", "products", lambda d: d["A"].T @ d["x"]),
    both("x @ A", "products", lambda d: d["x"] @ d["A"]),
    both("A @ B", "products", lambda d: d["A"] @ d["B"]),
    both("X.T @ A", "products", lambda d: d["X"].T @ d["A"]),
    both("A.T @ X", "products", lambda d: d["A"].T @ d["X"]),
    both("csc @ x", "products", lambda d: d["csc"] @ d["x"]),
    both("coo @ x", "products", lambda d: d["coo"] @ d["x"]),
    both("A.dot(x)", "products", lambda d: d["A"].dot(d["x"])),
    Row(
        "A @ A @ A",
        "products",
        lambda d: snp.linalg.matrix_power(d["A"], 3),
        lambda d: sp.linalg.matrix_power(d["A"], 3),
        5_000,
    ),
    Row("setdiag", "updates", lambda d: d["A"].setdiag(d["x"]), lambda d: _with_diagonal(d["A"], d["x"])),
    Row("prune", "thinning", lambda d: sj.prune(d["Z"]), lambda d: _pruned(d["Z"])),
    Row("set", "updates", lambda d: d["A"].at[d["i"], d["j"]].set(2.0), lambda d: _written(d["A"], d["i"], d["j"])),
)


def _in_order(matrix: Any) -> Any:
    """A coo matrix as ours always is: entries in order, each place once. SciPy keeps what it is given until somebody asks for this."""
    matrix.sum_duplicates()
    return matrix


def _checked(matrix: Any) -> Any:
    """A copy in SciPy of which is seen what ours sees of every array that comes in: pointers, bounds, and that each place comes once, in order."""
    matrix.check_format(full_check=True)
    matrix.sum_duplicates()
    return matrix


def _pruned(matrix: Any) -> Any:
    made = matrix.copy()
    made.eliminate_zeros()
    return made


def _with_diagonal(matrix: Any, values: Any) -> Any:
    made = matrix.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.setdiag(values)
    return made


def _written(matrix: Any, i: int, j: int) -> Any:
    made = matrix.copy()
    made[i, j] = 2.0
    return made


def matrix(rng: np.random.Generator, n: int) -> Any:
    """A csr matrix with `PER_ROW` distinct columns in each of its n rows (a few rows have fewer)."""
    columns = rng.integers(0, n, (n, PER_ROW)).astype(np.int32)
    found = sp.csr_array(
        (rng.standard_normal(n * PER_ROW), columns.ravel(), np.arange(0, n * PER_ROW + 1, PER_ROW, dtype=np.int32)),
        shape=(n, n),
    )
    found.sum_duplicates()
    return found


Maker = Callable[["Operands", np.random.Generator], Any]


class Operands(dict[str, Any]):
    """The operands of one side, each made when a row first asks for it: of 4,000,000 rows all of them take minutes and most of the memory."""

    def __init__(self, n: int, theirs: Operands | None = None) -> None:
        super().__init__(n=n)
        self.theirs = theirs

    def __missing__(self, name: str) -> Any:
        if self.theirs is None:
            made = MADE[name](self, np.random.default_rng(list(name.encode())))
        else:
            found = self.theirs[name]
            made = found if name in SHARED else sj.array(found)
        self[name] = made
        return made

    def all(self) -> Operands:
        """These with every operand made."""
        for name in MADE:
            if name != "D" or self["n"] <= 5_000:
                self[name]
        return self


def _columns(d: Operands, rng: np.random.Generator) -> Any:
    """Columns beside `R`: every other one is that of an entry."""
    n, A = d["n"], d["A"]
    found = rng.integers(0, n, n)
    found[: n // 2] = A.indices[A.indptr[d["R"][: n // 2]]]
    return found


def _thinned(d: Operands, rng: np.random.Generator) -> Any:
    found = d["A"].copy()
    found.data[rng.random(found.nnz) < 0.5] = 0
    return found


def _diagonals(d: Operands, rng: np.random.Generator) -> Any:
    n = d["n"]
    lines = [rng.standard_normal(n - 1), rng.standard_normal(n), rng.standard_normal(n - 1)]
    return sp.diags_array(lines, offsets=[-1, 0, 1], format="csr")


SHARED: dict[str, Maker] = {
    "lo": lambda d, rng: d["n"] // 4,
    "hi": lambda d, rng: 3 * d["n"] // 4,
    "i": lambda d, rng: d["n"] // 3,
    "j": lambda d, rng: int(d["A"].indices[d["A"].indptr[d["i"]]]),
    "idx": lambda d, rng: rng.integers(0, d["n"], max(1, d["n"] // 10)),
    "perm": lambda d, rng: rng.permutation(d["n"]),
    "mask": lambda d, rng: rng.random(d["n"]) < 0.5,
    "R": lambda d, rng: rng.integers(0, d["n"], d["n"]),
    "C": _columns,
    "order": lambda d, rng: rng.permutation(d["A"].nnz),
    "own": lambda d, rng: d["A"].copy(),
    "owns": lambda d, rng: d["A"].tocsc(),
    "list": lambda d, rng: d["A"].tocoo(),
    "I": lambda d, rng: d["coo"].row[d["order"]],
    "J": lambda d, rng: d["coo"].col[d["order"]],
    "V": lambda d, rng: d["A"].data[d["order"]],
}
"""What both sides get as it is."""

MADE: dict[str, Maker] = SHARED | {
    "A": lambda d, rng: matrix(rng, d["n"]),
    "B": lambda d, rng: matrix(rng, d["n"]),
    "Z": _thinned,
    "P": lambda d, rng: abs(d["A"]),
    "U": lambda d, rng: d["A"].tanh(),
    "E": lambda d, rng: sp.csr_array(np.array([[1.0, 2.0], [0.0, 3.0]])),
    "csc": lambda d, rng: d["A"].tocsc(),
    "csc2": lambda d, rng: d["B"].tocsc(),
    "bsr": lambda d, rng: d["A"].tobsr(blocksize=(2, 2)),
    "tri": _diagonals,
    "coo": lambda d, rng: d["A"].tocoo(),
    "dia": lambda d, rng: d["tri"].todia(),
    "x": lambda d, rng: rng.standard_normal(d["n"]),
    "X": lambda d, rng: rng.standard_normal((d["n"], 8)),
    "D": lambda d, rng: rng.standard_normal((d["n"], d["n"])),
}
"""How SciPy's side gets each operand; ours is an array of it."""


def operands(n: int) -> tuple[Operands, Operands]:
    """The operands of ours and of SciPy."""
    theirs = Operands(n)
    return Operands(n, theirs), theirs


def plain(result: Any) -> Any:
    """A result as triplets in order or as a NumPy array."""
    if isinstance(result, tuple):
        return [np.asarray(plain(part)) for part in result]
    if isinstance(result, sj.Array):
        result = result.todense() if result.format.is_dense or result.ndim == 1 else result.to_scipy()
    if sp.issparse(result):
        if result.ndim == 1:
            return result.toarray()
        found = sp.csr_array(result, copy=True)
        found.sum_duplicates()
        found.eliminate_zeros()
        return [found.indptr, found.indices, found.data]
    return np.asarray(result)


def agree(ours: Any, theirs: Any) -> bool:
    a, b = plain(ours), plain(theirs)
    if not isinstance(a, list):
        a, b = [a], [b]
    return all(
        np.shape(np.ravel(p)) == np.shape(np.ravel(q)) and np.allclose(np.ravel(p), np.ravel(q))
        for p, q in zip(a, b, strict=True)
    )


def ratio(
    row: Row, ours: Data, theirs: Data, seconds: float, clock: Callable[[], float] = time.perf_counter, least: int = 3
) -> tuple[float, float, float]:
    """Microseconds of ours, of SciPy's, and the median of the ratios of rounds, of which there are at least `least`."""

    def timed(run: Side, data: Data, repeats: int) -> float:
        started = clock()
        for _ in range(repeats):
            run(data)
        return (clock() - started) / repeats

    pairs = (row.ours, ours), (row.scipy, theirs)
    first = [timed(run, data, 1) for run, data in pairs]
    if sum(first) < seconds:
        first = [min(t, timed(run, data, 1), timed(run, data, 1)) for t, (run, data) in zip(first, pairs, strict=True)]
    repeats = [max(1, int(5e-4 / t)) for t in first]
    rounds = max(least, min(60, int(seconds / sum(t * r for t, r in zip(first, repeats, strict=True)))))
    found = np.array(
        [[timed(run, data, r) for (run, data), r in zip(pairs, repeats, strict=True)] for _ in range(rounds)]
    )
    a, b = np.median(found, axis=0)
    return 1e6 * a, 1e6 * b, float(np.median(found[:, 1] / found[:, 0]))


def chosen(n: int, only: list[str], part: tuple[int, int] = (1, 1)) -> list[Row]:
    """The rows at n that groups and names select, and of these the `part`: `(2, 3)` is the second third."""
    rows = [row for row in ROWS if (not only or row.group in only or row.name in only) and n <= row.largest]
    which, parts = part
    return rows[(which - 1) * len(rows) // parts : which * len(rows) // parts]


def table(
    sizes: list[int],
    only: list[str],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    part: tuple[int, int] = (1, 1),
    least: int = 3,
) -> Iterator[tuple[int, Row, tuple[float, float, float] | str]]:
    """Every row at every size: microseconds and ratio, or what went wrong."""
    for n in sizes:
        ours, theirs = operands(n)
        for row in chosen(n, only, part):
            gc.collect()
            try:
                right = agree(row.ours(ours), row.scipy(theirs))
            except Exception as error:  # a cell of the table, not its end
                yield n, row, f"{type(error).__name__}: {error}"
                continue
            yield n, row, ratio(row, ours, theirs, seconds, clock, least) if right else "results differ"


def session() -> None:
    """Fifty operations on operands of fifty shapes, each once, as in an interactive session: the time of all of them."""
    rng = np.random.default_rng(0)
    rows = [row for row in ROWS if row.name != "todense"][:50]
    data = [operands(2 * int(n)) for n in rng.integers(15, 150, len(rows))]
    for sides in data:
        for side in sides:
            side.all()
    slowest = []
    started = time.perf_counter()
    for row, (ours, _) in zip(rows, data, strict=True):
        before = time.perf_counter()
        row.ours(ours)
        slowest.append((1e3 * (time.perf_counter() - before), row.name))
    middle = time.perf_counter()
    for row, (_, theirs) in zip(rows, data, strict=True):
        row.scipy(theirs)
    ended = time.perf_counter()
    print(
        f"{len(rows)} operations on {len(rows)} shapes: {1e3 * (middle - started):.1f} ms, SciPy {1e3 * (ended - middle):.1f} ms"
    )
    print("slowest:", ", ".join(f"{name} {ms:.1f}" for ms, name in sorted(slowest, reverse=True)[:6]))


def third(text: str) -> tuple[int, int]:
    """`2/3` as numbers."""
    which, parts = map(int, text.split("/"))
    if not 1 <= which <= parts:
        raise argparse.ArgumentTypeError(f"{text}: the part is a number from 1 to {parts}")
    return which, parts


def summary(found: dict[int, dict[str, float]]) -> None:
    """Per size: how many rows, their geometric mean, and those below 0.9."""
    for n, ratios in found.items():
        mean = float(np.exp(np.mean(np.log(list(ratios.values())))))
        below = ", ".join(f"{name} {r:.2f}" for name, r in ratios.items() if r < 0.9) or "none"
        lowest = min(ratios.values())
        print(f"n = {n}: {len(ratios)} rows, geometric mean {mean:.2f}, lowest {lowest:.2f}, below 0.9: {below}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", nargs="*", default=[], help="groups, or names of rows; their operands alone are made")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a row at a size")
    parser.add_argument("--processor", action="store_true", help="time of this thread's processor, on a busy machine")
    parser.add_argument(
        "--session",
        action="store_true",
        help="instead: fifty operations on fifty shapes, once each, in a fresh process",
    )
    parser.add_argument("--part", type=third, default=(1, 1), help="the second third of the rows: 2/3")
    parser.add_argument("--rounds", type=int, default=3, help="of a row of which one run takes --seconds")
    parser.add_argument("--into", type=Path, help="append what is found to this file, a JSON list a line")
    parser.add_argument(
        "--summary", type=Path, help="instead: the means of what is in such a file, the last of each row"
    )
    names = {row.name for row in ROWS}
    options = parser.parse_args([f" {word}" if word in names else word for word in sys.argv[1:]])  # `-A` is a name
    if options.session:
        return session()
    collected: dict[int, dict[str, float]] = {}
    if options.summary:
        for n, name, times in map(json.loads, options.summary.read_text().splitlines()):
            collected.setdefault(n, {})[name] = times
        return summary(collected)
    clock = time.thread_time if options.processor else time.perf_counter
    sizes, only = [int(s) for s in options.sizes.split(",")], [name.strip() for name in options.only]
    for n, row, found in table(sizes, only, options.seconds, clock, options.part, options.rounds):
        if isinstance(found, str):
            print(f"{n:>8} {row.group:17} {row.name:17} {found}", flush=True)
            continue
        ours, theirs, times = found
        collected.setdefault(n, {})[row.name] = times
        mark = "" if times >= 0.9 else " <"
        print(f"{n:>8} {row.group:17} {row.name:17} {ours:11.1f} us {theirs:11.1f} us {times:7.2f}{mark}", flush=True)
        if options.into:
            with options.into.open("a") as file:
                print(json.dumps([n, row.name, times]), file=file)
    summary(collected)


if __name__ == "__main__":
    main()
