"""Random trees of additions and subtractions of huge and tiny numbers that nearly cancel, and their sums: jitted, they are as exact as they are
written."""

from __future__ import annotations

import math
import random

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.array import Array
from sparsejax.formats import convert
from tests.fuzz.levels import INPUTS, random_format

SHAPES = [(40,), (5, 30), (30, 5), (3, 4, 6)]
EPS = {"f8": 2.0**-53, "f4": 2.0**-24, "c16": 2.0**-51, "c8": 2.0**-22}


def operand(rng, shape, dtype, like):
    """A random array with huge and tiny numbers: many where another one, `like`, has nearly the same. Ours, and dense."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    top = 1e30 if dtype in ("f4", "c8") else 1e300
    dense = nrng.standard_normal(shape) * nrng.choice([1, 1, 1e8, top], shape)
    if like is not None:
        dense = np.where(nrng.random(shape) < 0.7, like * nrng.choice([1, 1, 1 + 1e-7, -1], shape), dense)
    dense = np.clip(dense.real, -3 * top, 3 * top).astype(dtype)
    form = random_format(rng, len(shape), INPUTS)
    if form.is_dense:
        return sj.array(dense, copy=True), dense
    stored = nrng.random(shape) < rng.choice((0.3, 0.7, 1.0))
    dense = np.where(stored, dense, 0).astype(dtype)
    coords = np.array(np.nonzero(stored)).reshape(len(shape), -1)
    return Array(convert.from_coords(coords, dense[stored], shape, form, 0)), dense


def tree(rng, leaves):
    """A random tree of additions and subtractions over leaves, as a function of the operands."""
    if len(leaves) == 1:
        (leaf,) = leaves
        return rng.choice((lambda xs: xs[leaf], lambda xs: xs[leaf], lambda xs: -xs[leaf], lambda xs: xs[leaf] * 2))
    cut = len(leaves) - 1 if rng.random() < 0.5 else rng.randint(1, len(leaves) - 1)
    left, right = tree(rng, leaves[:cut]), tree(rng, leaves[cut:])
    return rng.choice(
        (lambda xs: left(xs) - right(xs), lambda xs: left(xs) - right(xs), lambda xs: left(xs) + right(xs))
    )


def check(seed: int) -> str | None:
    """None when a random sum, or a sum over random axes of it, is within a few roundings of the elements as written, else what is wrong."""
    rng = random.Random(seed)
    shape, dtype = rng.choice(SHAPES), rng.choice(("f8", "f8", "f8", "f4", "c16", "c8"))
    count = rng.choice((2, 2, 2, 3, 3, 4, 5, 6))
    arrays: list = []
    for _ in range(count):
        arrays.append(operand(rng, shape, dtype, rng.choice(arrays)[1].real.astype("f8") if arrays else None))
    leaves = [*range(count), *(rng.randrange(count) for _ in range(rng.choice((0, 0, 1))))]
    written = tree(rng, leaves)
    axes = tuple(sorted(rng.sample(range(len(shape)), rng.choice((0, 1, 1, len(shape))))))
    program = (lambda xs: snp.sum(written(xs), axis=axes)) if axes else written
    got = sj.jit(lambda *xs: program(xs))(*(a for a, _ in arrays)).todense()
    with np.errstate(all="ignore"):
        elements = np.asarray(written([d for _, d in arrays]))
        text = f"seed {seed}: {dtype} {[str(a.aval) for a, _ in arrays]} axes {axes}"
        if not axes:
            return (
                None if np.array_equal(got, elements, equal_nan=True) else f"{text}\nexpected\n{elements}\ngot\n{got}"
            )
        sums, sizes = exactly(elements, axes)
        good = np.abs(got - sums) <= 4 * EPS[dtype] * sizes * (1 if dtype in ("f4", "c8") else elements.size)
        good |= (np.isnan(got) & np.isnan(sums)) | (got == sums) | ~np.isfinite(sizes)
    return None if np.all(good) else f"{text}\nexpected\n{sums}\ngot\n{got}\nsizes\n{sizes}"


def exactly(elements, axes):
    """The sums of elements, and of their absolute values, rounded once."""
    moved = np.moveaxis(elements, axes, range(-len(axes), 0))
    moved = moved.reshape(*moved.shape[: moved.ndim - len(axes)], -1).astype("c16")
    sums, sizes = np.empty(moved.shape[:-1], "c16"), np.empty(moved.shape[:-1])
    for place in np.ndindex(sums.shape):
        row = moved[place]
        if np.isfinite(row).all():
            sums[place] = complex(math.fsum(row.real), math.fsum(row.imag))
        else:
            sums[place] = row.sum()
        sizes[place] = np.abs(row).sum()
    return sums if elements.dtype.kind == "c" else sums.real, sizes
