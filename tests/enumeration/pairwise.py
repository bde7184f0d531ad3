"""Kernels over up to four operands and four variables, all level types: by pairwise covering arrays.

A template fixes the index words. For each, a covering array runs over the level type of every storage level of every operand and of
the output, every mode order, the fill of every operand, the operators, how they associate, the reduction, and the workspace policy.
With blocks, it also runs over which dimensions of every tensor are blocked, the level type inside blocks, and where those levels stand.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax.formats import Dense, Format, Level
from sparsejax.jit.ir import cin, policies
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


_possible: dict[tuple[int, ...], bool] = {}
"""By the levels that `INPUTS` and `OUTPUTS` hold, as objects: comparing them by value takes most of a covering array's time."""


def possible_levels(chosen: tuple[Level | None, ...]) -> bool:
    """Whether some format has these levels (None: any): a dense level fits wherever any does."""
    key = tuple(map(id, chosen))
    found = _possible.get(key)
    if found is None:
        found = _possible[key] = fits([level or Dense() for level in chosen])
    return found


class Space:
    """The factors of a template, and what a row of values means."""

    def __init__(self, text: str, blocked: bool = False) -> None:
        left, _, out = text.partition("->")
        self._known: dict[tuple[int, tuple[int | None, ...]], bool] = {}
        self.words = (*left.split(","), out)
        self.operands = len(self.words) - 1
        self.factors: list[Factor] = []
        for tensor, word in enumerate(self.words):
            is_output = tensor == self.operands
            for level in range(len(word)):
                self.factors.append(Factor("level", tensor, level, OUTPUTS if is_output else INPUTS))
            if len(word) > 1:
                self.factors.append(Factor("order", tensor, 0, tuple(itertools.permutations(range(len(word))))))
            if word and blocked:
                kept: tuple[object, ...] = OUTPUTS if is_output else INPUTS
                every = tuple(range(len(word)))
                self.factors.append(Factor("blocks", tensor, 0, tuple({(): 0, every[:1]: 0, every[-1:]: 0, every: 0})))
                self.factors.append(Factor("inside", tensor, 0, kept))
                self.factors.append(Factor("innermost", tensor, 0, (True, False)))
            if not is_output:
                self.factors.append(Factor("fill", tensor, 0, FILLS))
        for k in range(self.operands - 1):
            self.factors.append(Factor("operator", k, 0, OPERATORS))
        if self.operands > 2:
            self.factors.append(Factor("left", 0, 0, (True, False)))
        if set("".join(self.words[:-1])) - set(out):
            self.factors.append(Factor("reduction", 0, 0, REDUCTIONS))
        self.factors.append(Factor("workspace", 0, 0, ("auto", *policies.SPARSE)))

    def possible(self, partial: Mapping[int, int]) -> bool:
        return all(self._fits(tensor, tuple(map(partial.get, own))) for tensor, own in enumerate(self._own))

    @functools.cached_property
    def _own(self) -> list[list[int]]:
        """The factors of every tensor that decide whether it has a format."""
        kinds = ("level", "order", "blocks", "inside", "innermost")
        factors = list(enumerate(self.factors))
        return [[k for k, f in factors if f.tensor == t and f.what in kinds] for t in range(len(self.words))]

    def _fits(self, tensor: int, values: tuple[int | None, ...]) -> bool:
        """Whether these values of its own factors (None: any) leave a format to a tensor."""
        key = (tensor, values)
        if key not in self._known:
            pairs = zip(self._own[tensor], values, strict=True)
            chosen = self._chosen({k: v for k, v in pairs if v is not None})
            levels = tuple(chosen.get(("level", tensor, k)) for k in range(len(self.words[tensor])))
            inside = chosen.get(("inside", tensor, 0))
            self._known[key] = any(
                possible_levels(_arranged(levels, order, dims, inside, innermost)[0])
                for dims in self._choices(chosen, "blocks", tensor)
                for innermost in self._choices(chosen, "innermost", tensor)
                for order in self._choices(chosen, "order", tensor)[: None if dims and not innermost else 1]
            )
        return self._known[key]

    def _chosen(self, values: Mapping[int, int]) -> dict[tuple[str, int, int], object]:
        """What values of factors mean."""
        factors = [(self.factors[k], v) for k, v in values.items()]
        return {(f.what, f.tensor, f.level): f.values[v] for f, v in factors}

    def _choices(self, chosen: Mapping[tuple[str, int, int], object], what: str, tensor: int) -> Sequence[Any]:
        """The chosen value of a factor of a tensor, or all of them."""
        if (what, tensor, 0) in chosen:
            return (chosen[what, tensor, 0],)
        known = {"blocks": ((),), "innermost": (True,), "order": (tuple(range(len(self.words[tensor]))),)}[what]
        return next((f.values for f in self.factors if (f.what, f.tensor) == (what, tensor)), known)

    def rows(self, seed: int) -> list[tuple[int, ...]]:
        return covering_array([len(f.values) for f in self.factors], seed, self.possible)

    def case(self, row: Sequence[int], seed: int) -> definitions.Case:
        """The case of a row; extents and entries are drawn from `seed`."""
        rng = random.Random(seed)
        chosen = self._chosen(dict(enumerate(row)))
        sizes = {c: rng.choice((2, 2, 3)) for c in LETTERS}
        extents = dict(zip((cin.IndexVar(c) for c in LETTERS), rng.sample((1, 2, 3, 4), 4), strict=True))
        arrays, storages, accesses = {}, {}, []
        for tensor, word in enumerate(self.words[:-1]):
            form, name = self._format(tensor, chosen, sizes), f"X{tensor}"
            indices = tuple(cin.IndexVar(c) for c in word)
            shape = tuple(extents[v] for v in indices)
            fill = 0 if form.is_dense else chosen["fill", tensor, 0]
            storages[name], arrays[name] = definitions.stored(rng, shape, DTYPE, form, fill, rng.choice((0.3, 0.6)))
            accesses.append(cin.Access(cin.Tensor(name, shape, DTYPE, form, DTYPE.type(fill)), indices))
        rhs = self._tree(accesses, chosen)
        indices = tuple(cin.IndexVar(c) for c in self.words[-1])
        definition = cin.Definition(indices, chosen.get(("reduction", 0, 0)), rhs)
        shape = tuple(extents[v] for v in indices)
        output = definitions.output_of(definition, shape, DTYPE, self._format(self.operands, chosen, sizes))
        used = {v: n for v, n in extents.items() if v in (*indices, *cin.variables(rhs))}
        workspace = str(chosen["workspace", 0, 0])
        return definitions.Case(seed, definition, output, arrays, storages, used, None, workspace)

    def _format(self, tensor: int, chosen: Mapping[tuple[str, int, int], Any], sizes: Mapping[str, int]) -> Format:
        word = self.words[tensor]
        dims = chosen.get(("blocks", tensor, 0), ())
        levels, order = _arranged(
            tuple(chosen["level", tensor, lv] for lv in range(len(word))),
            chosen.get(("order", tensor, 0), tuple(range(len(word)))),
            dims,
            chosen.get(("inside", tensor, 0)),
            chosen.get(("innermost", tensor, 0), True),
        )
        return Format(levels, order, [sizes[c] if d in dims else 1 for d, c in enumerate(word)] if dims else None)

    def _tree(self, accesses: list[cin.Access], chosen: Mapping[tuple[str, int, int], object]) -> cin.Expr:
        left = chosen.get(("left", 0, 0), True)
        exprs: list[cin.Expr] = list(accesses)
        names = [chosen["operator", k, 0] for k in range(len(exprs) - 1)]
        while names:
            at = 0 if left else len(names) - 1
            exprs[at : at + 2] = [_apply(names.pop(at), exprs[at], exprs[at + 1])]
        return exprs[0]


def _arranged(
    levels: tuple[Level | None, ...],
    order: tuple[int, ...],
    dims: tuple[int, ...],
    inside: Level | None,
    innermost: bool,
) -> tuple[tuple[Level | None, ...], tuple[int, ...]]:
    """The levels and dimensions of a format in storage order: those inside blocks come last, or each below its outer one."""
    pairs = list(zip(levels, order, strict=True))
    if innermost:
        pairs += [(inside, d) for d in order if d in dims]
    else:
        pairs = [p for level, d in pairs for p in ((level, d), (inside, d))[: 2 if d in dims else 1]]
    return tuple(level for level, _ in pairs), tuple(d for _, d in pairs)


def _apply(name: str, x: cin.Expr, y: cin.Expr) -> cin.Expr:
    if name == "greater":
        return cin.Call("cast", (cin.Call(name, (x, y), np.dtype(bool)),), DTYPE)
    return cin.Call(name, (x, y), DTYPE)


def cases(text: str, seed: int, blocked: bool = False) -> Iterator[definitions.Case]:
    """The cases of a template."""
    space = Space(text, blocked)
    for number, row in enumerate(space.rows(seed)):
        yield space.case(row, 1000 * seed + number)
