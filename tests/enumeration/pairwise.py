"""Kernels over up to four operands and four variables, all level types: by pairwise covering arrays.

A template fixes the index words. For each, a covering array runs over the level type of every storage level of every operand and of
the output, every mode order, the fill of every operand, the operators, how they associate, the reduction, and the workspace policy.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sparsejax.formats import Format, Level
from sparsejax.jit import cin
from sparsejax.jit.workspaces import policies
from tests.enumeration.covering import covering_array
from tests.fuzz import definitions
from tests.fuzz.levels import INPUTS, OUTPUTS, fits

OPERATORS = ("add", "multiply", "maximum", "subtract", "minimum", "greater")
REDUCTIONS = ("add", "maximum", "minimum")
FILLS = (0, 1)
LETTERS = "ijkl"
DTYPE = np.dtype("f8")

TEMPLATES = (
    "ij->ij",
    "ijk->ki",
    "ijkl->lj",
    "iji->i",
    "ij,jk->ik",
    "ijk,kl->ijl",
    "ijk,jki->kij",
    "iij,jik->jk",
    "ij,k->kji",
    "ijk,jl,kl->il",
    "ij,ik,jk->ij",
    "ij,jk,kl->il",
    "ijk,kji,jik->ijk",
    "ij,ji,ii->ji",
    "i,ij,j->",
    ",ij,jk->ki",
    "ij,j,i->jki",
    "ijkl,kl,ij->lk",
    "ij,jk,kl,li->jl",
)


def template(number: int) -> str:
    """A random template of three operands."""
    rng = random.Random(number)
    words = ["".join(rng.choices(LETTERS[: rng.choice((2, 3, 4))], k=rng.choice((0, 1, 2, 2, 3, 3)))) for _ in range(3)]
    out = rng.sample(LETTERS[:3], rng.randint(0, 3))
    return f"{','.join(words)}->{''.join(out)}"


@dataclass(frozen=True)
class Factor:
    """One choice of a row: what it is, of which tensor, at which level; and its values."""

    what: str
    tensor: int
    level: int
    values: tuple[object, ...]


@functools.cache
def possible_levels(chosen: tuple[Level | None, ...], output: bool) -> bool:
    """Whether some format has these levels (None: any)."""
    free = OUTPUTS if output else INPUTS
    return any(fits(levels) for levels in itertools.product(*(free if c is None else (c,) for c in chosen)))


class Space:
    """The factors of a template, and what a row of values means."""

    def __init__(self, text: str) -> None:
        left, _, out = text.partition("->")
        self.words = (*left.split(","), out)
        self.operands = len(self.words) - 1
        self.factors: list[Factor] = []
        for tensor, word in enumerate(self.words):
            is_output = tensor == self.operands
            for level in range(len(word)):
                self.factors.append(Factor("level", tensor, level, OUTPUTS if is_output else INPUTS))
            if len(word) > 1:
                self.factors.append(Factor("order", tensor, 0, tuple(itertools.permutations(range(len(word))))))
            if not is_output:
                self.factors.append(Factor("fill", tensor, 0, FILLS))
        for k in range(self.operands - 1):
            self.factors.append(Factor("operator", k, 0, OPERATORS))
        if self.operands > 2:
            self.factors.append(Factor("left", 0, 0, (True, False)))
        if set("".join(self.words[:-1])) - set(out):
            self.factors.append(Factor("reduction", 0, 0, REDUCTIONS))
        self.factors.append(Factor("workspace", 0, 0, ("auto", *policies.POLICIES)))

    def possible(self, partial: Mapping[int, int]) -> bool:
        chosen = [[None] * len(word) for word in self.words]
        for k, value in partial.items():
            factor = self.factors[k]
            if factor.what == "level":
                chosen[factor.tensor][factor.level] = factor.values[value]
        return all(possible_levels(tuple(c), t == self.operands) for t, c in enumerate(chosen))

    def rows(self, seed: int) -> list[tuple[int, ...]]:
        return covering_array([len(f.values) for f in self.factors], seed, self.possible)

    def case(self, row: Sequence[int], seed: int) -> definitions.Case:
        """The case of a row; extents and entries are drawn from `seed`."""
        rng = random.Random(seed)
        chosen = {(f.what, f.tensor, f.level): f.values[v] for f, v in zip(self.factors, row, strict=True)}
        extents = dict(zip((cin.IndexVar(c) for c in LETTERS), rng.sample((1, 2, 3, 4), 4), strict=True))
        arrays, storages, accesses = {}, {}, []
        for tensor, word in enumerate(self.words[:-1]):
            form, name = self._format(tensor, chosen), f"X{tensor}"
            indices = tuple(cin.IndexVar(c) for c in word)
            shape = tuple(extents[v] for v in indices)
            fill = 0 if form.is_dense else chosen["fill", tensor, 0]
            storages[name], arrays[name] = definitions.stored(rng, shape, DTYPE, form, fill, rng.choice((0.3, 0.6)))
            accesses.append(cin.Access(cin.Tensor(name, shape, DTYPE, form, DTYPE.type(fill)), indices))
        rhs = self._tree(accesses, chosen)
        indices = tuple(cin.IndexVar(c) for c in self.words[-1])
        definition = cin.Definition(indices, chosen.get(("reduction", 0, 0)), rhs)
        shape = tuple(extents[v] for v in indices)
        output = definitions.output_of(definition, shape, DTYPE, self._format(self.operands, chosen))
        used = {v: n for v, n in extents.items() if v in (*indices, *cin.variables(rhs))}
        workspace = str(chosen["workspace", 0, 0])
        return definitions.Case(seed, definition, output, arrays, storages, used, None, workspace)

    def _format(self, tensor: int, chosen: Mapping[tuple[str, int, int], object]) -> Format:
        ndim = len(self.words[tensor])
        return Format([chosen["level", tensor, lv] for lv in range(ndim)], chosen.get(("order", tensor, 0)))

    def _tree(self, accesses: list[cin.Access], chosen: Mapping[tuple[str, int, int], object]) -> cin.Expr:
        left = chosen.get(("left", 0, 0), True)
        exprs: list[cin.Expr] = list(accesses)
        names = [chosen["operator", k, 0] for k in range(len(exprs) - 1)]
        while names:
            at = 0 if left else len(names) - 1
            exprs[at : at + 2] = [_apply(names.pop(at), exprs[at], exprs[at + 1])]
        return exprs[0]


def _apply(name: str, x: cin.Expr, y: cin.Expr) -> cin.Expr:
    if name == "greater":
        return cin.Call("cast", (cin.Call(name, (x, y), np.dtype(bool)),), DTYPE)
    return cin.Call(name, (x, y), DTYPE)


def cases(text: str, seed: int) -> Iterator[definitions.Case]:
    """The cases of a template."""
    space = Space(text)
    for number, row in enumerate(space.rows(seed)):
        yield space.case(row, 1000 * seed + number)
