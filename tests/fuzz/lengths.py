"""Random reductions over matrices whose rows have any lengths, with infinities, NaN and fills, against NumPy; as on processors with and without
masked lanes and fast gathers, in blocks of rows or not, on several threads, with passes of the compiler left out.

    before     E = (A + 1) * x        a matrix, element by element: NumPy's, but that absent entries annihilate in products
    reduced    r = max(E, axis=1)     NumPy's
    after      E / (1 + abs(r))       or r itself, or a function of it

Most cases are small, where levels are taken for ones of many entries; `large` ones have up to 60,000 rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.alternatives import PASSES
from sparsejax.core.array import Array
from sparsejax.formats import Format, convert
from sparsejax.jit.backend import host
from sparsejax.jit.cost import statistics
from sparsejax.jit.rewrite import loop_shapes
from tests.fuzz import engine

ROWS = (1, 40, 64, 130, 130, 300, 300, 700, 700, 2100)
LARGE = (3000, 9000, 20_000, 60_000)
COLUMNS, FEW_COLUMNS = (3, 5, 17, 33, 70, 200), (5, 17, 33, 50)
DTYPES = ("f8",) * 6 + ("f4", "f4", "i4", "i8", "c16", "c8", "u1")
FORMATS = ("csr",) * 14 + (
    "csc", "coo", "dcsr", "ell", "groupcoo:2", "groupcoo:4", "bitmap", "hash", "rle", "banded", "dia", "(d,l)", "(d,q)", "bsr:2x4", "(c,d)", "dense",
)  # fmt: skip
SKIPPED = {"split_fills": 0.5}
"""How often a pass is left out that leaves others little to do."""
SPECIAL = (np.inf, -np.inf, np.nan)
LENGTHS = (
    "alike",
    "ragged",
    "ragged",
    "ragged",
    "power-law",
    "half-empty",
    "banded",
    "one long",
    "nearly empty",
    "empty",
    "full",
)


def lengths(kind: str, rows: int, columns: int, mean: float, rng: np.random.Generator) -> np.ndarray:
    """How many entries every row has."""
    made = {
        "alike": lambda: np.full(rows, round(mean)),
        "banded": lambda: np.full(rows, max(1, round(mean))),
        "ragged": lambda: rng.poisson(mean, rows) * rng.integers(0, 3, rows),
        "power-law": lambda: np.minimum(mean * (rng.pareto(1.2, rows) + 0.2), columns).astype(int),
        "half-empty": lambda: rng.poisson(mean, rows) * (np.arange(rows) < rows // 2),
        "one long": lambda: rng.integers(0, 3, rows) + columns * (rng.random(rows) < 2 / rows),
        "nearly empty": lambda: (rng.random(rows) < 0.02).astype(int) * round(1 + mean),
        "empty": lambda: np.zeros(rows, int),
        "full": lambda: np.full(rows, columns),
    }[kind]()
    return np.minimum(made, columns)


def pattern(kind: str, rows: int, columns: int, mean: float, rng: np.random.Generator) -> np.ndarray:
    """Which entries are stored."""
    counts = lengths(kind, rows, columns, mean, rng)
    places = np.broadcast_to(np.arange(columns), (rows, columns))
    if kind == "banded":
        first = np.arange(rows) * max(1, columns - counts[0]) // max(1, rows)
        return (places >= first[:, None]) & (places < first[:, None] + counts[:, None])
    return rng.permuted(places, axis=1) < counts[:, None]


@dataclass(frozen=True)
class Family:
    """A matrix of values: a function of a module of array functions, two matrices, a row and a column; the factors that annihilate it where
    they are zero because the matrices of these names store nothing; and the kinds of dtypes that it takes."""

    value: Callable[..., Any]
    factors: tuple[tuple[str, Callable[..., Any]], ...] = ()
    kinds: str = "fciu"
    sum: Callable[..., Any] | None = None
    """The sum of every row by another name."""


OWN = (("A", lambda A, B: A),)
FAMILIES = {
    "itself": Family(lambda xp, A, B, x, y: A),
    "times a row": Family(lambda xp, A, B, x, y: A * x, OWN, sum=lambda A, B, x, y: A @ x),
    "one more": Family(
        lambda xp, A, B, x, y: (A + 1) * x, (("A", lambda A, B: A + 1),), sum=lambda A, B, x, y: (A + 1) @ x
    ),
    "times both": Family(
        lambda xp, A, B, x, y: A * x * y, OWN, sum=lambda A, B, x, y: sj.einsum("ij,j,i->i", A, x, y[:, 0])
    ),
    "difference": Family(lambda xp, A, B, x, y: A - x),
    "squared": Family(lambda xp, A, B, x, y: (A - x) * (A - x)),
    "distance": Family(lambda xp, A, B, x, y: xp.absolute(A - x), kinds="fi"),
    "shifted": Family(lambda xp, A, B, x, y: A + y),
    "exponential": Family(lambda xp, A, B, x, y: xp.exp(A * 0.25) * x, kinds="f"),
    "exponential less one": Family(lambda xp, A, B, x, y: xp.expm1(A * 0.25), kinds="f"),
    "larger": Family(lambda xp, A, B, x, y: xp.maximum(A, x), kinds="fiu"),
    "smaller": Family(lambda xp, A, B, x, y: xp.minimum(A * 2, y), kinds="fiu"),
    "chosen": Family(lambda xp, A, B, x, y: xp.where(A > 0, x, A), kinds="fiu"),
    "above": Family(lambda xp, A, B, x, y: x < A, kinds="fiu"),
    "zero": Family(lambda xp, A, B, x, y: A == 0),
    "product": Family(lambda xp, A, B, x, y: A * B, (*OWN, ("B", lambda A, B: B))),
    "sum of two": Family(lambda xp, A, B, x, y: A + B),
    "difference of two": Family(lambda xp, A, B, x, y: A - B),
    "product and one": Family(lambda xp, A, B, x, y: A * y + A, OWN),
    "weighted": Family(lambda xp, A, B, x, y: (A - B) * x, (("AB", lambda A, B: A - B),)),
    "of one sign": Family(lambda xp, A, B, x, y: A * A + B * B),
}
REDUCTIONS = (
    "sum",
    "sum",
    "sum",
    "max",
    "min",
    "prod",
    "any",
    "all",
    "mean",
    "argmax",
    "argmin",
    "count_nonzero",
    "norm",
)
ORDERED = ("max", "min", "argmax", "argmin")


@dataclass
class Case:
    """Operands as ours and dense, and what is computed of them."""

    text: str
    family: Family
    reduction: str
    axis: int | None
    after: str
    named: bool
    operands: list[tuple[list[Any], list[np.ndarray], list[np.ndarray]]]
    """For every call: what is passed, dense matrices and vectors, and which entries of the two matrices are not stored."""

    def program(self, A: Any, B: Any, x: Any, y: Any) -> Any:
        if self.named and self.family.sum is not None:
            return self.family.sum(A, B, x, y)
        values = self.family.value(snp, A, B, x, y)
        return finished(snp, values, reduced(snp, self.reduction, values, self.axis, self.after), self.after)

    def expected(
        self, ours: list[Any], arrays: list[np.ndarray], gone: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The dense result, where it depends on the order of a product that overflows, and the size of what was added up and may have cancelled."""
        values = np.asarray(self.family.value(np, *arrays))
        for names, factor in self.family.factors:
            if sj.eval_shape(factor, *ours[:2]).format.is_dense:
                continue  # its zeros are numbers
            absent = np.logical_and.reduce([gone["AB".index(name)] for name in names])
            values = np.where(absent & (factor(*arrays[:2]) == 0), values.dtype.type(0), values)
        if self.named and self.family.sum is not None:
            return values.sum(axis=1, dtype=values.dtype), np.zeros((), bool), np.zeros(())
        total = reduced(np, self.reduction, values, self.axis, self.after)
        unsure = np.zeros((), bool)
        if self.reduction == "prod" and values.dtype.kind in "fc":
            sizes, keep = np.absolute(values.astype("c16")), self.after == "back"
            spread = np.sum(np.absolute(np.log2(np.where(sizes > 0, sizes, 1))), axis=self.axis, keepdims=keep)
            unsure = np.broadcast_to(~(spread < 100), np.shape(finished(np, values, total, self.after)))
        keep = self.after == "back"
        size = (
            np.sum(np.absolute(values), axis=self.axis, keepdims=keep)
            if self.reduction in ("sum", "mean") and values.dtype.kind in "fc"
            else np.zeros(())
        )
        size = size * np.absolute(values) if keep and size.ndim else size
        return np.asarray(finished(np, values, total, self.after)), unsure, np.where(np.isfinite(size), size, 0)


def reduced(xp: Any, name: str, values: Any, axis: int | None, after: str) -> Any:
    keep = {"keepdims": True} if after == "back" else {}
    if name == "norm":
        return xp.sqrt(xp.sum(xp.absolute(values * 1.0) ** 2, axis=axis, **keep))
    return getattr(xp, name)(values, axis=axis, **keep)


def finished(xp: Any, values: Any, total: Any, after: str) -> Any:
    if after == "itself":
        return total
    if after == "more":
        return total * 2 + 1
    return values / (1 + xp.absolute(total))


def matrix(
    rng: random.Random, shape: tuple[int, int], dtype: np.dtype[Any], special: bool, units: bool, form: str, fill: float
):
    """A random matrix: ours, dense, where nothing is stored, and what it is."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    kind, mean = rng.choice(LENGTHS), rng.choice((0.3, 1, 2, 3, 6, 12, 30))
    stored = pattern(kind, *shape, mean, nrng)
    pool = (
        (1, -1, 0.5, 2) if units and dtype.kind in "fc" else (1, -1, 2, 3, -4, 0) if dtype.kind != "u" else (1, 2, 3, 0)
    )
    values = nrng.choice(pool, shape).astype(dtype)
    if special and rng.random() < 0.5:
        odd = nrng.random(shape) < 0.01
        values[odd] = nrng.choice(SPECIAL, int(odd.sum()))
    dense = np.where(stored, values, dtype.type(fill))
    text = f"{form} {kind} of {mean} fill {fill}"
    if form == "dense":
        return sj.array(dense, copy=True), dense, np.zeros(shape, bool), text
    coords = np.array(np.nonzero(stored), np.int64)
    ours = Array(convert.from_coords(coords, dense[stored], shape, Format.parse(form, 2), dtype.type(fill)))
    columns, _ = ours.storage.expand()
    absent = np.ones(shape, bool)
    absent[tuple(columns)] = False  # dense blocks, rows and bands hold more than was given
    return ours, dense, absent, text


def make(seed: int, large: bool) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    dtype = np.dtype(rng.choice(DTYPES))
    shape = (rng.choice(LARGE), rng.choice(FEW_COLUMNS)) if large else (rng.choice(ROWS), rng.choice(COLUMNS))
    name = rng.choice([k for k, f in FAMILIES.items() if dtype.kind in f.kinds])
    family = FAMILIES[name]
    reductions = [r for r in REDUCTIONS if not (r in ORDERED and dtype.kind == "c" and name != "zero")]
    if name.startswith("exponential"):  # of a stored number and of the same as a fill it may differ by a rounding
        reductions = [r for r in reductions if not r.startswith("arg")]
    reduction, axis = rng.choice(reductions), rng.choice((1,) * 6 + (0, None))
    special = dtype.kind == "f" and reduction not in ("prod", "norm") and rng.random() < 0.4
    after = rng.choice(("itself", "itself", "itself", "more", "more" if special else "back"))
    after = "itself" if reduction in ("argmax", "argmin") else after
    named = reduction == "sum" and axis == 1 and after == "itself" and rng.random() < 0.7 and family.sum is not None
    forms, operands, texts = [rng.choice(FORMATS), rng.choice(FORMATS)], [], []
    forms = ["csr" if large and form == "dia" else form for form in forms]  # tall matrices have too many diagonals
    fills = [0 if form == "dense" else rng.choice((0, 0, 0, 1, 2, -1, np.inf)) for form in forms]
    fills = [1 if (dtype.kind == "u" and fill == -1) or (fill == np.inf and not special) else fill for fill in fills]
    units = reduction == "prod"
    shared = rng.random() < 0.15
    for _ in range(2):
        ours, dense, gone = [], [], []
        for form, fill in zip(forms, fills, strict=True):
            one, values, absent, text = matrix(rng, shape, dtype, special, units, form, fill)
            if ours and shared and ours[0].storage.packed:  # the second over the pattern of the first
                storage = ours[0].storage
                one = Array(storage.with_values(np.roll(storage.vals, 1), storage.fill_value))
                values, absent, text = convert.to_dense(one.storage), gone[0], "the same pattern"
            ours, dense, gone = [*ours, one], [*dense, values], [*gone, absent]
            texts.append(text)
        nrng = np.random.default_rng(rng.getrandbits(32))
        pool = (1, -1, 2) if units else (1, 2, 3, 4, -2) if dtype.kind != "u" else (1, 2, 3)
        for extent in ((shape[1],), (shape[0], 1)):
            vector = nrng.choice(pool, extent).astype(dtype)
            if special and rng.random() < 0.6:
                vector[nrng.integers(0, extent[0], 2)] = rng.choice(SPECIAL)
            ours, dense = [*ours, sj.array(vector, copy=True)], [*dense, vector]
        operands.append((ours, dense, gone))
    what = f"seed {seed}{' large' if large else ''}: {name} {reduction} axis {axis} {after} {named=} {dtype}{list(shape)} {texts}"
    return Case(what, family, reduction, axis, after, named, operands)


@contextmanager
def machine(seed: int, large: bool) -> Iterator[str]:
    """A random computer, and random choices of the compiler; what they are."""
    rng = random.Random(f"machine {seed}")
    kind = rng.choice(("scalar", "masks", "masks", "masks", "gathers"))
    offered = {"scalar": (), "masks": ("masks",), "gathers": ("masks", "gathers")}[kind]
    offers = host._offers
    many = statistics.MANY if large or rng.random() < 0.25 else 1
    few = rng.choice((loop_shapes.FEW, loop_shapes.FEW, 0.0))
    block = rng.choice((64, 64, statistics.BLOCK))
    threads = rng.choice((1, 1, 2, 3))
    skip = {name for name in PASSES if rng.random() < SKIPPED.get(name, 0.06)}
    before = config.num_threads(), config.parallel_work()
    with (
        mock.patch.object(
            host, "_offers", lambda name: name in offered if name in ("masks", "gathers") else offers(name)
        ),
        mock.patch.object(statistics, "MANY", many),
        mock.patch.object(statistics, "BLOCK", statistics.BLOCK if large else block),
        mock.patch.object(loop_shapes, "FEW", few),
        config.using(skip=skip, choose=rng.choice(("auto", f"random:{seed}"))),
        engine.quick(),
    ):
        config.update("num_threads", threads)
        if threads > 1:
            config.update("parallel_work", 0)
        try:
            yield f"{kind}, many {many} in blocks of {block}, pairs below {few}, {threads} threads, without {sorted(skip)}, {config.choose()}"
        finally:
            config.update("num_threads", before[0])
            config.update("parallel_work", before[1])


def check(seed: int, large: bool = False) -> str | None:
    """None when the jitted reduction agrees with NumPy, for two matrices of one type, else what is wrong."""
    case = make(seed, large)
    with machine(seed, large) as where, np.errstate(all="ignore"):
        jitted = sj.jit(case.program)
        for number, (ours, dense, gone) in enumerate(case.operands):
            got = np.asarray(jitted(*ours).todense())
            want, unsure, size = case.expected(ours, dense, gone)
            text = f"{case.text}; {where}; call {number}"
            if got.shape != want.shape or got.dtype.kind != want.dtype.kind:
                return f"{text}: {got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
            single = got.dtype.itemsize <= (8 if got.dtype.kind == "c" else 4) or want.dtype.itemsize <= 4
            rounded = 1e-9 + 64 * np.finfo("f4" if single else "f8").eps * size
            good = np.isclose(got, want, rtol=1e-4 if single else 1e-10, atol=rounded, equal_nan=True) | unsure
            if got.dtype.kind == "c":
                good |= ~np.isfinite(want) & ~np.isfinite(got)
            if not np.all(good):
                where_bad = tuple(np.argwhere(~good)[0]) if good.ndim else ()
                return f"{text}: {int(np.sum(~good))} of {good.size} wrong, at {where_bad} {got[where_bad]} for {want[where_bad]}"
    return None


SMOOTH = ("sum", "sum", "mean", "max", "min", "norm")


def check_gradient(seed: int) -> str | None:
    """None when gradients on a random computer, with random choices of the compiler, are those of a plain one with all passes left out."""
    rng = random.Random(f"gradient {seed}")
    case = make(seed, False)
    if case.operands[0][1][0].dtype.kind != "f":
        return None
    if case.reduction not in SMOOTH:
        case.reduction = rng.choice(SMOOTH)
    function = sj.grad(lambda A, B, x, y: snp.sum(case.program(A, B, x, y) * 1.0), argnums=(0, 2, 3))
    with machine(seed, False) as where, np.errstate(all="ignore"):
        jitted = sj.jit(function)
        found = [jitted(*ours) for ours, _, _ in case.operands]
    with config.using(skip={*PASSES, "masks", "gathers"}), engine.quick(), np.errstate(all="ignore"):
        plain = sj.jit(function)
        for number, (ours, _, _) in enumerate(case.operands):
            for argument, got, want in zip("Axy", found[number], plain(*ours), strict=True):
                single = want.dtype.itemsize <= 4
                want = want.todense()
                largest = np.abs(want).max(
                    initial=1, where=np.isfinite(want)
                )  # of whose like terms the others are sums
                rounded = (1e-5 if single else 1e-12) * largest
                good = np.isclose(got.todense(), want, 1e-4 if single else 1e-9, 1e-6 + rounded, equal_nan=True)
                if not np.all(good):
                    text = f"{case.text}; {where}; call {number}; gradient of {case.reduction} for {argument}"
                    return f"{text}: {int(np.sum(~good))} of {good.size} wrong"
    return None
