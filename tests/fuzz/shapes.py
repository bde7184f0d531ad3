"""Random loops over long segments: what the small extents of `definitions` do not reach.

A case has one to six operands over a short and a long variable, in all level types and sometimes in blocks, with densities from almost nothing to
everything, so that segments are of very different lengths; patterns are scattered, banded or in runs of equal values. Expressions
are chains of one operator, sums of products, or anything, of as many terms as one kernel may hold (`jit/graph/limits`).
"""

from __future__ import annotations

import random

import numpy as np

from sparsejax.formats import Compressed, Dense, Level
from sparsejax.jit.graph import limits
from sparsejax.jit.ir import cin, simplify
from tests.fuzz import definitions
from tests.fuzz.levels import INPUTS, OUTPUTS, random_format

DTYPES = ("f8", "f8", "f4", "i8", "u1", "?", "c16")
CHAINS = {"b": ("logical_or", "logical_and", "logical_xor"), "c": ("add", "multiply")}
REAL_CHAINS = ("add", "add", "maximum", "minimum", "multiply")
SHORT, LONG = (1, 2, 5), (3, 17, 64, 150, 400)
PIECES = 4 * limits.PIECES
"""Pieces of code that a case makes at most, roughly: kernels of programs are held to a quarter of it, whole minutes are what it takes to compile 34 MB."""
DENSITIES = (0.0, 0.01, 0.05, 0.3, 1.0)


def pattern(rng: random.Random, shape: tuple[int, ...]) -> np.ndarray:
    """Where something is stored: scattered entries, or one range along the last axis."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    if rng.random() < 0.6 or not shape:
        return np.asarray(nrng.random(shape) < rng.choice(DENSITIES))
    ends = np.sort(nrng.integers(0, shape[-1] + 1, (*shape[:-1], 2)), axis=-1)
    place = np.arange(shape[-1])
    return (ends[..., :1] <= place) & (place < ends[..., 1:])


def operand(
    rng: random.Random,
    shape: tuple[int, ...],
    dtype: np.dtype,
    fill: object,
    levels: tuple[Level, ...],
    blocks: list[int] | None = None,
):
    """(storage, dense) of small values, often the same along the last axis."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    values = nrng.integers(0, 3, shape)
    if shape and rng.random() < 0.5:
        values = np.repeat(values, rng.choice((2, 9, 200)), axis=-1)[..., : shape[-1]]
    if dtype.kind in "if":
        values = values - 1
    made = np.asarray(values, dtype)
    if dtype.kind == "c":
        made = made + dtype.type(1j) * nrng.integers(-1, 2, shape)
    return definitions.pack(
        rng, np.asarray(made, dtype), pattern(rng, shape), random_format(rng, len(shape), levels, blocks), fill
    )


def make(seed: int) -> definitions.Case:
    """The case of a seed."""
    rng = random.Random(seed)
    dtype = np.dtype(rng.choice(DTYPES))
    i, j = cin.IndexVar("i"), cin.IndexVar("j")
    extents = {i: rng.choice(SHORT), j: rng.choice(LONG)}
    fills = (0,) if rng.random() < 0.6 else (0, 0, 0, 1, 2)
    # often few level types, so that operands of one type meet
    levels = INPUTS if rng.random() < 0.5 else (rng.choice(INPUTS), rng.choice((Dense(), Compressed())))
    sizes = {i: rng.choice((1, 2)), j: rng.choice((2, 4, 8, 13))} if rng.random() < 0.2 else {}
    arrays: dict[str, np.ndarray] = {}
    storages: dict[str, object] = {}

    def blocks(indices: tuple[cin.IndexVar, ...]) -> list[int] | None:
        return [sizes[v] for v in indices] if sizes and rng.random() < 0.8 else None

    def leaf() -> cin.Expr:
        indices = rng.choice(((j,), (j,), (i, j), (i, j), (j, i), (i,), (j, j)))
        name = f"X{len(arrays)}"
        made, arrays[name] = operand(
            rng, tuple(extents[v] for v in indices), dtype, rng.choice(fills), levels, blocks(indices)
        )
        storages[name] = made
        return cin.Access(cin.Tensor(name, made.shape, made.dtype, made.format, made.fill_value), indices)

    def term() -> cin.Expr:
        made = leaf()
        if rng.random() < 0.3:
            made = cin.Call(rng.choice(chains), (made, leaf()), dtype)
        if rng.random() < 0.1:
            made = cin.Call(rng.choice(chains), (made, simplify.literal(rng.choice((0, 1, 2)), dtype)), dtype)
        return made

    def tree(terms: list[cin.Expr]) -> cin.Expr:
        if len(terms) == 1:
            return terms[0]
        cut = rng.randint(1, len(terms) - 1)
        op = chain if rng.random() < 0.9 else rng.choice(chains)
        return cin.Call(op, (tree(terms[:cut]), tree(terms[cut:])), dtype)

    chains = CHAINS.get(dtype.kind, REAL_CHAINS)
    chain = rng.choice(chains)
    terms = [term() for _ in range(rng.choice((1, 2, 2, 3, 4, 6)))]
    rhs = tree(terms)
    while limits.pieces(simplify.simplify(rhs)) > PIECES:
        terms.pop()
        rhs = tree(terms)
    read = {a.tensor.name for a in cin.accesses(rhs)}
    arrays, storages = ({k: x for k, x in held.items() if k in read} for held in (arrays, storages))
    used = [v for v in extents if v in cin.variables(rhs)]
    kept = [v for v in used if rng.random() < 0.5]
    rng.shuffle(kept)
    reductions = definitions.REDUCTIONS.get(dtype.kind, ("add", "add", "maximum", "minimum", "multiply"))
    op = None if len(kept) == len(used) else chain if chain in reductions else rng.choice(reductions)
    definition = cin.Definition(tuple(kept), op, rhs)
    shape = tuple(extents[v] for v in kept)
    form = random_format(rng, len(kept), OUTPUTS, blocks(tuple(kept)))
    output = definitions.output_of(definition, shape, dtype, form)
    order = tuple(rng.sample(used, len(used))) if rng.random() < 0.5 else None
    return definitions.Case(seed, definition, output, arrays, storages, extents, order, "auto")


def check(seed: int) -> str | None:
    """None when the case of a seed is right, else what is wrong."""
    return definitions.check_case(make(seed))
