"""Random programs with infinities, NaN, zeros of every origin (stored, not stored, written, computed) and fills: run at once
and jitted, they give the same values, formats and fills, since fusion changes nothing."""

from __future__ import annotations

import random

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz import engine
from tests.fuzz.levels import OUTPUTS, random_format

BINARY = (
    "add",
    "subtract",
    "multiply",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "maximum",
    "greater",
    "power",
)
UNARY = ("negative", "absolute", "sqrt", "exp", "isnan", "sign")
NUMBERS = (0, 0.0, 1, 2.5, np.nan, np.inf)
N = 3


def operand(rng: random.Random, ndim: int):
    """An array with special values in a random format, with a random fill if it is sparse."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    shape = (N,) * ndim
    values = nrng.choice([0.0, -0.0, 1.0, 2.0, np.nan, np.inf, -np.inf], shape, p=[0.2, 0.1, 0.3, 0.2, 0.1, 0.05, 0.05])
    form = random_format(rng, ndim, OUTPUTS, [rng.choice((1, 2)) for _ in shape] if rng.random() < 0.15 else None)
    if form.is_dense:
        return sj.array(values, format=form, copy=True)
    kept = nrng.random(shape) < rng.choice((0.0, 0.3, 0.7))
    fill = rng.choice((0, 0, 0, 1, np.nan, np.inf))
    return sj.array((values[kept], np.array(np.nonzero(kept))), shape=shape, format=form, fill_value=fill)


def program(rng: random.Random):
    """Operands, and steps (name, numbers of values) over them."""
    inputs = [operand(rng, rng.choice((1, 2, 2))) for _ in range(rng.randint(1, 3))]
    ranks, steps = [a.ndim for a in inputs], []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(("unary", "binary", "binary", "scalar", "scalar", "matmul", "sum", "outer"))
        a = rng.randrange(len(ranks)) if rng.random() < 0.5 else len(ranks) - 1
        if kind == "outer" and ranks[a] == 1:
            b = rng.randrange(len(ranks))
            steps.append((kind, rng.choice(("add", "maximum", "multiply")), a, b))
            ranks.append(2)
            continue
        if kind == "unary":
            steps.append((kind, rng.choice(UNARY), a))
        elif kind == "binary":
            b = rng.randrange(len(ranks))
            steps.append((kind, rng.choice(BINARY), a, b))
            ranks.append(max(ranks[a], ranks[b]))
            continue
        elif kind == "matmul" and ranks[a] == 2:
            b = rng.choice([k for k, r in enumerate(ranks) if r])
            steps.append((kind, a, b))
            ranks.append(ranks[b])
            continue
        elif kind == "sum" and ranks[a]:
            steps.append((kind, a, rng.randrange(ranks[a])))
            ranks.append(ranks[a] - 1)
            continue
        else:
            steps.append(("scalar", rng.choice(BINARY), a, rng.choice(NUMBERS), rng.random() < 0.5))
        ranks.append(ranks[a])
    return inputs, steps


def chain(rng: random.Random):
    """Three operands, and a function of a product of all."""
    inputs = [operand(rng, 2), operand(rng, 2), operand(rng, rng.choice((1, 2)))]
    return inputs, [("chain", 0, 1, 2, rng.random() < 0.5), ("unary", rng.choice(("absolute", "sign")), 3)]


def run(steps, values):
    """The last value. Values are cast, not multiplied by 1.0: a product with a run-time number may lose the sign of absent zeros."""
    values = list(values)
    for kind, *args in steps:
        if kind == "unary":
            made = getattr(snp, args[0])(values[args[1]].astype("f8"))
        elif kind == "binary":
            made = getattr(snp, args[0])(values[args[1]].astype("f8"), values[args[2]].astype("f8"))
        elif kind == "scalar":
            op, x, number, left = args
            pair = (number, values[x].astype("f8")) if left else (values[x].astype("f8"), number)
            made = getattr(snp, op)(*pair)
        elif kind == "matmul":
            made = values[args[0]].astype("f8") @ values[args[1]].astype("f8")
        elif kind == "chain":
            a, b, c = (values[k] for k in args[:3])
            made = (a @ b) @ c if args[3] else a @ (b @ c)
        elif kind == "outer":
            made = getattr(snp, args[0])(snp.expand_dims(values[args[1]], 1).astype("f8"), values[args[2]].astype("f8"))
        else:
            made = values[args[0]].astype("f8").sum(axis=args[1])
        values.append(made)
    return values[-1]


def check(seed: int, make=program) -> str | None:
    """None when both give the same, else what differs (but for signs of zeros)."""
    inputs, steps = make(random.Random(seed))
    with np.errstate(all="ignore"):
        eager = run(steps, inputs)
    with engine.associated():
        compiled = sj.jit(lambda *values: run(steps, values))(*inputs)
    text = f"seed {seed}: {steps}; inputs {[str(a.aval) for a in inputs]}"
    same = all(getattr(eager, name) == getattr(compiled, name) for name in ("shape", "dtype", "format"))
    if not same or not np.array_equal(eager.fill_value, compiled.fill_value, equal_nan=True):
        return f"{text}: {eager.aval} at once, {compiled.aval} jitted"
    if not np.allclose(eager.todense(), compiled.todense(), rtol=1e-9, atol=1e-12, equal_nan=True):
        return f"{text}\nat once\n{eager.todense()}\njitted\n{compiled.todense()}"
    return None
