"""Random indirect einsums: texts of one to three lines with operands of every format, for `tests/insum_interpreter`.

Indices are variables, integers, and accesses of integer arrays to any depth; extents are small, 0 and 1 among them; coordinates are negative,
too. All numbers are small integers or halves, so that sums are exact in any order. Operands in `blocks` have up to four dimensions, some of them in
blocks, their levels in any order, and most of their indices are accesses.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

import sparsejax as sj
from sparsejax.formats import Format
from tests.fuzz import definitions
from tests.fuzz.levels import INPUTS, random_format

DTYPES = ("f8", "f8", "f8", "f4", "i8", "i4")
SMOOTH = tuple(level for level in INPUTS if level.unique)
"""Levels of operands that have derivatives: one value for every place."""
UNARY = ("square", "absolute", "negative", "abs", "sign")
BINARY = ("maximum", "minimum")


@dataclass
class Case:
    """A text with its operands, as ours and as NumPy's; `stored` has the patterns of sparse index arrays."""

    seed: int
    text: str = ""
    operands: dict[str, object] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    stored: dict[str, np.ndarray] = field(default_factory=dict)
    dtypes: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        shapes = ", ".join(
            f"{n}:{x.dtype}{list(x.shape)} {x.format} fill {x.fill_value}" for n, x in self.operands.items()
        )
        return f"seed {self.seed}: {self.text!r} {shapes}"


class _Maker:
    def __init__(self, seed: int, smooth: bool = False, blocks: bool = False) -> None:
        self.blocks = blocks
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.case = Case(seed)
        self.smooth = smooth
        self.dtype = np.dtype("f8" if smooth else self.rng.choice(DTYPES))
        empty = self.rng.random() < 0.05
        self.extents = {v: self.rng.choice((1, 2, 2, 3, 3, 4)) for v in "ijk"[: self.rng.randint(1, 3)]}
        if empty and not smooth:
            self.extents[self.rng.choice(list(self.extents))] = 0
        self.seen: set[str] = set()
        self.count = 0

    def make(self) -> Case:
        lines = []
        for number in range(self.rng.choice((1, 1, 1, 2, 3))):
            lines.append(self.line("CDE"[number]))
        self.case.text = "\n".join(lines)
        return self.case

    def line(self, name: str) -> str:
        rng, case = self.rng, self.case
        self.seen = set()
        value = self.expr(rng.choice((1, 2, 2, 3)))
        if not any(f"A{k}" in value for k in range(self.count)):
            value = f"{value} * {self.access()}"  # so that the dtype is known
        op = rng.choice(("=", "=", "+=", "+=", "+=", "max=", "min=", "*="))
        given = rng.random() < 0.6
        if given:
            indices, shape = self.indices(rng.randint(0, 3), True)
            sparse = rng.random() < 0.3
            self.operand(name, shape, self.dtype, sparse)
        else:
            free = [v for v in self.extents if v in self.seen]
            rng.shuffle(free)
            indices = free[: rng.randint(0, len(free))]
            case.dtypes[name] = self.dtype
        for v in set(self.extents) - self.seen:
            if v in indices and not given:
                indices.remove(v)
        target = f"{name}[{','.join(indices)}]" if indices else name
        return f"{target} {op} {value}"

    def expr(self, leaves: int) -> str:
        rng = self.rng
        if leaves == 1:
            kind = rng.random()
            if kind < 0.08:
                return str(rng.choice((2, 3))) if self.dtype.kind == "i" else rng.choice(("0.5", "2.0"))
            if kind < 0.14 and self.seen and self.dtype in (np.float64, np.int64):
                return rng.choice(sorted(self.seen))
            made = self.access()
            if not self.smooth and rng.random() < 0.12:
                return f"{rng.choice(UNARY)}({made})"
            return f"-{made}" if rng.random() < 0.08 else made
        left = rng.randint(1, leaves - 1)
        x, y = self.expr(left), self.expr(leaves - left)
        if not self.smooth and rng.random() < 0.08:
            return f"{rng.choice(BINARY)}({x}, {y})"
        op = rng.choice("***+-")
        return f"({x}) * ({y})" if op == "*" else f"({x} {op} {y})"

    def access(self) -> str:
        rng = self.rng
        name = f"A{self.count}"
        self.count += 1
        sizes = (2, 3, 3, 3, 4) if self.blocks else (0, 1, 1, 2, 2, 3)
        indices, shape = self.indices(rng.choice(sizes), False)
        self.operand(name, shape, self.dtype, rng.random() < (0.8 if self.blocks else 0.45))
        return f"{name}[{','.join(indices)}]" if indices else name

    def indices(self, count: int, target: bool, depth: int = 0) -> tuple[list[str], list[int]]:
        """Some indices, and the shape of the array that they index."""
        rng = self.rng
        indices, shape = [], []
        for _ in range(count):
            kind = rng.random()
            if self.blocks and depth == 0 and rng.random() < 0.4:
                kind = 1.0
            if kind < (0.55 if depth == 0 else 0.8):
                v = rng.choice(list(self.extents))
                self.seen.add(v)
                indices.append(v)
                shape.append(self.extents[v])
            elif kind < 0.65 or depth > 1:
                n = rng.randint(1, 4)
                indices.append(str(rng.randint(-n, n - 1)))
                shape.append(n)
            else:
                n = rng.randint(1, 5)
                indices.append(self.index_array(n, depth))
                shape.append(n)
        return indices, shape

    def index_array(self, extent: int, depth: int) -> str:
        rng, case = self.rng, self.case
        name = f"X{self.count}"
        self.count += 1
        indices, shape = self.indices(rng.choice((1, 1, 1, 2)), False, depth + 1)
        dtype = np.dtype(rng.choice(("i8", "i8", "i4", "u1")))
        low = 0 if dtype.kind == "u" or rng.random() < 0.5 else -extent
        values = np.asarray(self.numbers.integers(low, extent, shape)).astype(dtype)
        if rng.random() < 0.75:
            case.operands[name], case.arrays[name] = sj.array(values), values
        else:
            mask = self.numbers.random(shape) < rng.choice((0.3, 0.7))
            form = random_format(rng, len(shape), [lv for lv in INPUTS if lv.unique])
            storage, dense = definitions.pack(rng, values, np.asarray(mask), form, 0)
            case.operands[name] = sj.Array(storage)
            case.arrays[name] = dense
            if not form.is_dense:
                case.stored[name] = _pattern(storage)
        return f"{name}[{','.join(indices)}]"

    def operand(self, name: str, shape: list[int], dtype: np.dtype, sparse: bool) -> None:
        case, rng = self.case, self.rng
        values = np.asarray(self.numbers.integers(-2, 4, shape)).astype(dtype)
        if self.smooth:
            values = np.asarray(self.numbers.random(shape)) + 0.5
        levels = SMOOTH if self.smooth else INPUTS
        sizes = [rng.choice((1, 1, 2, 3)) for _ in shape] if self.blocks else None
        form = random_format(rng, len(shape), levels, sizes) if sparse and shape else Format.parse("dense", len(shape))
        fill = 0 if self.smooth else rng.choice((0, 0, 0, 1))
        storage, dense = definitions.pack(
            rng, values, np.asarray(self.numbers.random(shape) < 0.6), form, fill if sparse else 0
        )
        if form.is_dense:
            storage, dense = sj.array(values).storage, values
        case.operands[name], case.arrays[name] = sj.Array(storage), dense


def _pattern(storage) -> np.ndarray:
    columns, _ = storage.expand()
    mask = np.zeros(storage.shape, bool)
    mask[tuple(columns)] = True
    return mask


def make(seed: int, smooth: bool = False, blocks: bool = False) -> Case:
    """The case of a seed; a smooth one has floats, and no function that is not differentiable; one in `blocks` most operands in blocks."""
    return _Maker(seed, smooth, blocks).make()
