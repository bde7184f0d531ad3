"""Random programs under vmap against a loop over the elements of the batch."""

from __future__ import annotations

import random

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.batching import element_format
from sparsejax.lax.indexing import window
from tests.autodiff import programs as differentiable
from tests.autodiff.checks import array, dense
from tests.fuzz import functions as plain
from tests.fuzz.levels import INPUTS, random_format

SIZE = 3


def element(x, axis, k):
    """The element `k` of a batch along `axis`: its entries as they are stored."""
    if axis is None:
        return x
    form = element_format(x.format, axis)
    ranges = [range(k, k + 1) if d == axis else range(n) for d, n in enumerate(x.shape)]
    flat = x if x.format.is_dense else x.asformat("coo")
    return window(flat, ranges, (axis,)).asformat(form)


def stacked(parts, axis):
    return np.stack([np.asarray(p) for p in parts], axis)


def agree(ours, theirs, text, tol=1e-9):
    """None, or what is wrong."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{text}: type {ours.aval} instead of {theirs.dtype}{theirs.shape}"
    if not np.allclose(dense(ours), theirs, rtol=tol, atol=tol, equal_nan=True):
        return f"{text}\nexpected\n{theirs}\ngot\n{dense(ours)}"
    return None


def check_plain(seed: int) -> str | None:
    """Programs of `tests.fuzz.functions` against NumPy."""
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    axes = [rng.choice((None, 0, 1, 2, -1)) for _ in range(count)]
    axes[0] = rng.randrange(3)
    shapes = []
    for a in axes:
        shape = [plain.N, plain.N]
        if a is not None:
            shape.insert(a % 3, SIZE)
        shapes.append(tuple(shape))
    inputs = [plain.random_array(rng, s) for s in shapes]
    steps = plain.program(rng, count)
    last = [rng.randrange(count + len(steps)), count + len(steps) - 1]
    text = f"seed {seed}: {steps}; axes {axes}; formats {[str(a.format) for a, _ in inputs]}"
    out = rng.choice((0, -1))
    function = lambda *args: [plain.run(snp, steps, args)[k] for k in last]  # noqa: E731
    with np.errstate(all="ignore"):
        parts = [
            plain.run(np, steps, [d if a is None else np.take(d, k, a) for (_, d), a in zip(inputs, axes, strict=True)])
            for k in range(SIZE)
        ]
    mapped = sj.vmap(function, in_axes=tuple(axes), out_axes=out)
    got = (sj.jit(mapped) if rng.random() < 0.5 else mapped)(*(a for a, _ in inputs))
    for k, ours in zip(last, got, strict=True):
        fault = agree(ours, stacked([p[k] for p in parts], out), f"{text} value {k}", 1e-4)
        if fault:
            return fault
    return None


def inputs_of(rng, nrng):
    """Labels of the elements, axes of the batch, and arrays in random formats."""
    labels = ["".join(rng.sample("abc", rng.choice((1, 2, 2, 2, 3)))) for _ in range(rng.randint(1, 3))]
    axes = [rng.choice((None, *range(len(ls) + 1))) for ls in labels]
    axes[0] = rng.randint(0, len(labels[0]))
    arrays = []
    for ls, axis in zip(labels, axes, strict=True):
        shape = [differentiable.EXTENTS[c] for c in ls]
        if axis is not None:
            shape.insert(axis, SIZE)
        form = random_format(rng, len(shape), INPUTS)
        form = "dense" if form.is_dense or any(level.letter == "r" for level in form.levels) else str(form)
        arrays.append(array(nrng, shape, form, density=rng.choice((0.3, 0.6, 1.0))))
    return labels, axes, arrays


def differentiable_case(seed: int):
    """The steps and the inputs of a seed."""
    rng, nrng = random.Random(seed), np.random.default_rng(seed)
    labels, axes, arrays = inputs_of(rng, nrng)
    kinds = differentiable.KINDS
    return rng, differentiable.program(rng, labels, kinds[seed // 2 % len(kinds)]), labels, axes, arrays


def families_of(seed: int) -> set[str]:
    """The families of rules that the program of a seed needs."""
    _, steps, _, axes, arrays = differentiable_case(seed)
    return differentiable.families(steps, [element(x, a, 0) for x, a in zip(arrays, axes, strict=True)])


def check_differentiable(seed: int) -> str | None:
    """Programs of `tests.autodiff.programs` (masks, formats), and their gradients, against the same on every element."""
    rng, steps, labels, axes, arrays = differentiable_case(seed)
    f = lambda *xs: differentiable.run(steps, xs)  # noqa: E731
    text = f"seed {seed}: {steps}; axes {axes}; inputs {[(ls, str(x.format)) for ls, x in zip(labels, arrays, strict=True)]}"
    g = f if seed % 2 else lambda *xs: (f(*xs), *sj.grad(lambda *ys: f(*ys).sum(), range(len(xs)))(*xs))
    parts = [sj.jit(g)(*(element(x, a, k) for x, a in zip(arrays, axes, strict=True))) for k in range(SIZE)]
    out = rng.choice((0, -1))
    got = sj.jit(sj.vmap(g, in_axes=tuple(axes), out_axes=out))(*arrays)
    if seed % 2:
        got, parts = (got,), [(p,) for p in parts]
    for n, ours in enumerate(got):
        fault = agree(ours, stacked([dense(p[n]) for p in parts], out), f"{text} result {n}")
        if fault:
            return fault
    return None
