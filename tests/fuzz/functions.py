"""Random whole functions over the public surface: elementwise operations, contractions, reductions, reshapes and views, jitted as
one program, against NumPy on dense arrays. Exercises tracing, typing, fusion and the plan between kernels."""

from __future__ import annotations

import random

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz import engine
from tests.fuzz.levels import OUTPUTS, random_format

BINARY = ("add", "subtract", "multiply", "multiply", "maximum", "minimum", "greater", "not_equal")
UNARY = ("negative", "absolute", "exp", "square", "sqrt", "sign")
REDUCE = ("sum", "max", "min", "any", "mean", "prod")
N = 4


def random_array(rng: random.Random, shape: tuple[int, ...]):
    """(ours, dense): float64 in a random format."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    dense = nrng.integers(0, 3, shape) * (nrng.random(shape) < rng.choice((0.2, 0.5, 1.0))) * 0.5
    sizes = [rng.choice((1, 2, 3)) for _ in shape] if rng.random() < 0.2 else None
    form = random_format(rng, len(shape), OUTPUTS, sizes)
    return sj.array(dense, format=form, copy=True), dense


def program(rng: random.Random, count: int):
    """A list of steps (name, arguments) over numbered values; the first `count` values are the inputs (matrices)."""
    steps, ranks = [], [2] * count
    for _ in range(rng.randint(1, 5)):
        kind = rng.choice(
            ("unary", "binary", "binary", "matmul", "transpose", "reduce", "scalar", "where", "reshape", "astype")
            + ("all", "spread", "repeat", "unit", "arg")
        )
        a = rng.randrange(len(ranks))
        same = [k for k, r in enumerate(ranks) if r == ranks[a]]
        b = rng.choice(same)
        if kind == "unary":
            steps.append((kind, rng.choice(UNARY), a))
        elif kind == "binary":
            b = rng.choice([k for k, r in enumerate(ranks) if r in (ranks[a], 1, 0)])
            steps.append((kind, rng.choice(BINARY), a, b))
        elif kind == "matmul" and ranks[a] == 2:
            b = rng.choice([k for k, r in enumerate(ranks) if r in (1, 2)])
            steps.append((kind, a, b))
            ranks.append(ranks[b])
            continue
        elif kind == "transpose":
            steps.append((kind, a))
        elif kind == "reduce" and ranks[a]:
            steps.append((kind, rng.choice(REDUCE), a, rng.randrange(ranks[a])))
            ranks.append(ranks[a] - 1)
            continue
        elif kind == "all":
            steps.append((kind, rng.choice(REDUCE), a))
            ranks.append(0)
            continue
        elif kind == "spread" and ranks[a] < 2:
            steps.append((kind, a))
            ranks.append(ranks[a] + 1)
            continue
        elif kind in ("repeat", "unit"):
            steps.append((kind, rng.choice(REDUCE), a))
        elif kind == "arg":
            axis = rng.choice((None, *range(ranks[a])))
            steps.append((kind, rng.choice(("argmin", "argmax")), a, axis))
            ranks.append(0 if axis is None else ranks[a] - 1)
            continue
        elif kind == "where":
            steps.append((kind, a, b, rng.choice(same)))
        elif kind == "reshape":
            steps.append((kind, a))
        elif kind == "astype":
            steps.append((kind, a, rng.choice(("f4", "i8", "f8"))))
        else:
            steps.append(("scalar", rng.choice(("add", "multiply", "maximum")), a, rng.choice((0, 1, 2.5))))
        ranks.append(ranks[a])
    return steps


def run(xp, steps, values):
    """All values of a program with `xp` = numpy or sparsejax.numpy."""
    values = list(values)
    for kind, *args in steps:
        if kind == "unary":
            x = values[args[1]]
            made = getattr(xp, args[0])(
                xp.minimum(xp.absolute(x), 3.0) if args[0] in ("exp", "sqrt", "square") else x * 1.0
            )
        elif kind == "binary":
            made = getattr(xp, args[0])(values[args[1]] * 1, values[args[2]] * 1.0)
        elif kind == "matmul":
            made = xp.matmul(values[args[0]] * 1.0, values[args[1]] * 1.0)
        elif kind == "transpose":
            made = xp.transpose(values[args[0]])
        elif kind == "reduce":
            made = getattr(xp, args[0])(values[args[1]] * 1.0, axis=args[2])
        elif kind == "all":
            made = getattr(xp, args[0])(values[args[1]] * 0.5)
        elif kind == "spread":  # broadcast axes
            made = xp.broadcast_to(values[args[0]], (N, *values[args[0]].shape))
        elif kind == "repeat":  # reduced again
            x = values[args[1]] * 0.5
            made = getattr(xp, args[0])(xp.broadcast_to(x, (3, *x.shape)), axis=0)
        elif kind == "unit":
            made = getattr(xp, args[0])(xp.expand_dims(values[args[1]] * 0.5, 0), axis=0)
        elif kind == "arg":
            made = getattr(xp, args[0])(values[args[1]] * 2.0, axis=args[2])
        elif kind == "where":
            made = xp.where(values[args[0]] > 0.5, values[args[1]], values[args[2]])
        elif kind == "reshape":
            x = values[args[0]]
            made = xp.reshape(xp.reshape(x, (-1,)), x.shape)
        elif kind == "astype":
            made = xp.minimum(xp.absolute(values[args[0]]), 100).astype(args[1])
        else:
            made = getattr(xp, args[0])(values[args[1]], args[2])
        values.append(made)
    return values


def clear(steps, values):
    """Of which values of a program of NumPy no comparison, rounding to integers or place of an extreme depends on the rounding of others: those are
    exact in any order, multiples of 2**-20, or do not ask."""
    made, count = [], len(values) - len(steps)
    for k in range(len(values)):
        if k < count:
            made.append(True)
            continue
        kind, *args = steps[k - count]
        from_named = {
            "unary": args[1:],
            "binary": args[1:],
            "reduce": args[1:2],
            "all": args[1:],
            "repeat": args[1:],
            "unit": args[1:],
        }
        read = from_named.get(kind) or {"arg": args[1:2], "astype": args[:1], "scalar": args[1:2]}.get(kind, args)
        asks = kind in ("where", "arg") or args[0] in ("greater", "not_equal", "sign", "any") or args[-1] == "i8"
        sure = all(made[a] for a in read)
        if asks:
            with np.errstate(all="ignore"):
                scaled = [np.asarray(values[a], "f8") * 2.0**20 for a in read[: 1 if kind == "where" else None]]
                sure &= all(np.all((x == np.rint(x)) & (np.abs(x) < 2.0**50)) for x in scaled)
        made.append(sure)
    return made


@engine.crowded
def check(seed: int) -> str | None:
    """None when the jitted program agrees with NumPy, else what is wrong."""
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    inputs = [random_array(rng, (N, N)) for _ in range(count)]
    steps = program(rng, count)
    last = rng.sample(range(count + len(steps)), min(2, count + len(steps))) + [count + len(steps) - 1]
    with np.errstate(all="ignore"):
        want = run(np, steps, [d for _, d in inputs])
    function = lambda *args: [run(snp, steps, args)[k] for k in last]  # noqa: E731
    got = sj.jit(function)(*(a for a, _ in inputs))
    sure = clear(steps, want)
    for k, ours in zip(last, got, strict=True):
        theirs = np.asarray(want[k])
        text = f"seed {seed} value {k} of {steps}; inputs {[str(a.format) for a, _ in inputs]}"
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            return f"{text}: type {ours.aval} instead of {theirs.dtype}{theirs.shape}"
        if sure[k] and not np.allclose(ours.todense(), theirs, rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"{text}\nexpected\n{theirs}\ngot\n{ours.todense()}"
    return None
