"""Random differentiable programs over matrices and tensors in random formats: forward mode against central differences, reverse mode
against forward mode, second derivatives by nesting; everything jitted."""

from __future__ import annotations

import random

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from tests.autodiff.checks import EPS, array, dense, direction, moved, same_buffers, stored
from tests.fuzz.levels import INPUTS, OUTPUTS, random_format

EXTENTS = {"a": 3, "b": 4, "c": 2}
UNARY = ("sin", "tanh", "logistic", "square", "negative", "exp", "arctan", "absolute", "expm1")
BINARY = ("add", "subtract", "multiply", "multiply", "maximum", "minimum")
REDUCTIONS = ("sum", "sum", "mean", "max", "min", "prod")


def program(rng: random.Random, labels: list[str]):
    """Steps over numbered values with named axes; the first values are the inputs."""
    axes, steps = list(labels), []
    for _ in range(rng.randint(1, 4)):
        k = len(axes) - 1 if rng.random() < 0.6 else rng.randrange(len(axes))
        kind = rng.choice(
            ("unary", "binary", "binary", "einsum", "einsum", "masked", "reduce", "where", "format", "scalar", "flat")
        )
        if kind in ("einsum", "masked"):
            args = [k, *rng.choices(range(len(axes)), k=rng.randint(0, 2))]
            letters = sorted(set("".join(axes[n] for n in args)))
            out = "".join(rng.sample(letters, rng.randint(0, len(letters))))
            mask = None
            if kind == "masked":
                fitting = [n for n, x in enumerate(axes) if x == out and x]
                mask = (rng.choice(fitting), rng.random() < 0.3) if fitting else None
            steps.append(("einsum", tuple(args), f"{','.join(axes[n] for n in args)}->{out}", mask))
            axes.append(out)
            continue
        if kind == "reduce" and axes[k]:
            gone = rng.randrange(len(axes[k]))
            steps.append((kind, k, rng.choice(REDUCTIONS), gone))
            axes.append(axes[k][:gone] + axes[k][gone + 1 :])
            continue
        suffixes = [n for n, x in enumerate(axes) if axes[k].endswith(x)]
        if kind == "binary":
            steps.append((kind, rng.choice(BINARY), k, rng.choice(suffixes)))
        elif kind == "where":
            steps.append((kind, rng.choice(suffixes), k, rng.choice(suffixes)))
        elif kind == "format" and axes[k]:
            steps.append((kind, k, random_format(rng, len(axes[k]), OUTPUTS)))
        elif kind == "scalar":
            steps.append((kind, rng.choice(BINARY), k, rng.choice((0.5, 2, -1.0))))
        elif kind == "flat":
            steps.append((kind, k))
        else:
            steps.append(("unary", rng.choice(UNARY), k))
        axes.append(axes[k])
    return steps


def run(steps, inputs):
    """The last value, which is bounded."""
    values = list(inputs)
    for kind, *args in steps:
        match kind:
            case "unary":
                made = getattr(snp, args[0])(values[args[1]])
            case "binary":
                made = getattr(snp, args[0])(values[args[1]], values[args[2]])
            case "scalar":
                made = getattr(snp, args[0])(values[args[1]], args[2])
            case "einsum":
                operands, subscripts, mask = args
                extra = {} if mask is None else {"mask": values[mask[0]], "complement": mask[1]}
                if mask is not None and values[mask[0]].format.is_dense:
                    extra["mask"] = values[mask[0]] > 0
                made = sj.einsum(subscripts, *(values[n] for n in operands), **extra)
            case "reduce":
                made = getattr(snp, args[1])(values[args[0]], axis=args[2])
            case "where":
                made = snp.where(values[args[0]] > 0.5, values[args[1]], values[args[2]])
            case "format":
                made = values[args[0]].asformat(args[1])
            case "flat":
                made = snp.reshape(snp.transpose(snp.ravel(values[args[0]]) * 2), values[args[0]].shape)
        values.append(made * 0.5 if kind == "einsum" else made)
    return values[-1]


def check(seed: int, second: bool = False) -> str | None:
    """None when all derivatives agree, else what is wrong."""
    rng, nrng = random.Random(seed), np.random.default_rng(seed)
    labels = ["".join(rng.sample("abc", rng.choice((1, 2, 2, 2, 3)))) for _ in range(rng.randint(1, 3))]
    inputs = []
    for ls in labels:
        form = random_format(rng, len(ls), INPUTS)
        form = "dense" if form.is_dense or any(level.letter == "r" for level in form.levels) else str(form)
        inputs.append(array(nrng, [EXTENTS[c] for c in ls], form, density=rng.choice((0.3, 0.6, 1.0))))
    steps = program(rng, labels)
    f = lambda *xs: run(steps, xs)  # noqa: E731
    if second:
        weights = direction(nrng, f(*inputs))
        first = f
        f = lambda *xs: sj.vjp(first, *xs)[1](weights)[0]  # noqa: E731
    ts = [direction(nrng, x) for x in inputs]
    text = f"seed {seed}: {steps}; inputs {[(ls, str(x.format)) for ls, x in zip(labels, inputs, strict=True)]}"
    value = sj.jit(f)
    out, tangent = sj.jit(lambda xs, ts: sj.jvp(f, xs, ts))(tuple(inputs), tuple(ts))
    up, mid, down = (
        stored(value(*(moved(x, t, step) for x, t in zip(inputs, ts, strict=True)))) for step in (EPS, 0, -EPS)
    )
    smooth = np.abs(up - 2 * mid + down) < 1e-4 * EPS * (1 + np.abs(mid))
    slope = (up - down) / (2 * EPS)
    scale = 1 + float(np.abs(slope).max(initial=0)) + float(np.abs(mid).max(initial=0))
    if not np.allclose(np.where(smooth, dense(tangent), 0), np.where(smooth, slope, 0), rtol=1e-4, atol=1e-5 * scale):
        return f"{text}\nforward: expected\n{slope}\ngot\n{dense(tangent)}"
    ct = direction(nrng, out)
    cts = sj.jit(lambda ct, *xs: sj.vjp(f, *xs)[1](ct))(ct, *inputs)
    left = (dense(ct) * dense(tangent)).sum()
    right = sum((dense(c) * dense(t)).sum() for c, t in zip(cts, ts, strict=True))
    if not np.isclose(left, right, rtol=1e-8, atol=1e-9 * scale):
        return f"{text}\nreverse: {left} is not {right}"
    for c, x in zip(cts, inputs, strict=True):
        if c.format != x.format or not (x.format.is_dense or same_buffers(c, x)):
            return f"{text}\nthe cotangent of {x.aval} is {c.aval} over other buffers"
    return None
