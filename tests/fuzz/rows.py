"""Random programs of reductions and what is computed from them: the jitted program, whose kernels are merged, against the same
operations one by one."""

from __future__ import annotations

import itertools
import random
from unittest import mock

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import nn
from sparsejax.core.array import Array
from sparsejax.formats import convert
from tests.fuzz import engine
from tests.fuzz.levels import OUTPUTS, random_format
from tests.prices import priced

UNARY = ("exp", "expm1", "log1p", "sqrt", "absolute", "negative", "square")
BINARY = ("add", "subtract", "multiply", "multiply", "divide", "maximum", "minimum")
REDUCTIONS = ("sum", "sum", "max", "min", "mean", "any", "prod")
KINDS = ("unary", "binary", "binary", "reduce", "reduce", "matmul", "scale", "sampled", "softmax", "largest")
EXTENTS = {"n": 5, "m": 4, "k": 3}


def operand(rng: random.Random, axes: str):
    """A random array over named axes, values in [0.5, 2): no operation below leaves the numbers."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    shape = tuple(EXTENTS[a] for a in axes)
    values = nrng.uniform(0.5, 2, shape)
    if rng.random() < 0.3:
        return sj.array(values)
    stored = np.nonzero(nrng.random(shape) < rng.choice((0.2, 0.6)))
    form = random_format(rng, len(axes), OUTPUTS)
    return Array(convert.from_coords(np.array(stored), values[stored], shape, form, 0))


def program(rng: random.Random, axes: list[str]):
    """Steps (name, arguments) over values with named axes; what a reduction loses comes back by broadcasting."""
    steps, known = [], list(axes)
    for _ in range(rng.randint(2, 7)):
        kind = rng.choice(KINDS)
        a = rng.choice([len(known) - 1, rng.randrange(len(known))])
        if kind == "unary":
            steps.append((kind, rng.choice(UNARY), a))
            known.append(known[a])
        elif kind == "binary":
            b = rng.choice([k for k, x in enumerate(known) if set(x) <= set(known[a]) or set(known[a]) <= set(x)])
            steps.append((kind, rng.choice(BINARY), a, b, known[a], known[b]))
            known.append(max(known[a], known[b], key=len))
        elif kind == "reduce" and known[a]:
            axis = rng.randrange(len(known[a]))
            steps.append((kind, rng.choice(REDUCTIONS), a, axis))
            known.append(known[a].replace(known[a][axis], ""))
        elif kind == "sampled":
            triples = [
                (m, x, y)
                for m, x, y in itertools.product(range(len(known)), repeat=3)
                if len(known[m]) == len(known[x]) == len(known[y]) == 2
                and known[x][0] == known[m][0]
                and known[y][0] == known[m][1]
                and known[x][1] == known[y][1]
            ]
            if triples:
                steps.append((kind, *rng.choice(triples)))
                known.append(known[steps[-1][1]])
        elif kind == "softmax" and known[a]:
            steps.append((kind, a, rng.randrange(len(known[a]))))
            known.append(known[a])
        elif kind == "largest" and known[a]:
            axis = rng.randrange(len(known[a]))
            steps.append((kind, a, axis))
            known.append(known[a].replace(known[a][axis], ""))
        elif kind == "matmul":
            pairs = [(x, y) for x in range(len(known)) for y in range(len(known)) if _joined(known[x], known[y])]
            if pairs:
                x, y = rng.choice(pairs)
                steps.append((kind, x, y))
                known.append(_joined(known[x], known[y]))
        else:
            steps.append(("scale", a, rng.choice((2.0, 0.5, 0))))
            known.append(known[a])
    return steps, known


def _joined(left: str, right: str) -> str:
    """The axes of a matrix product; none where there is none."""
    fits = len(left) == 2 and right and left[1] == right[0] and len(right) <= 2
    return left[0] + right[1:] if fits and left[0] not in right[1:] else ""


def spread(x, own: str, wanted: str):
    """`x` with axes of extent one where it lacks some of `wanted`, both in the order of EXTENTS or not."""
    order = sorted(range(len(own)), key=lambda k: wanted.index(own[k]))
    x = snp.transpose(x, order)
    return snp.reshape(x, [EXTENTS[a] if a in own else 1 for a in wanted])


def run(steps, values):
    """All values of a program."""
    values = list(values)
    for kind, *args in steps:
        if kind == "unary":
            x = values[args[1]]
            made = getattr(snp, args[0])(
                snp.minimum(snp.absolute(x), 3.0) if args[0] not in ("absolute", "negative") else x
            )
        elif kind == "binary":
            name, a, b, left, right = args
            wanted = max(left, right, key=len)
            x = values[a] if left == wanted else spread(values[a], left, wanted)
            y = values[b] if right == wanted else spread(values[b], right, wanted)
            made = getattr(snp, name)(x, y)
        elif kind == "reduce":
            made = getattr(snp, args[0])(values[args[1]], axis=args[2]) * 1.0
        elif kind == "sampled":
            mask, x, y = (values[k] for k in args)
            made = sj.einsum("ij,kj->ik", x, y, mask=mask)
        elif kind == "softmax":
            made = nn.softmax(snp.minimum(values[args[0]], 3.0), axis=args[1])
        elif kind == "largest":  # of what is stored
            x = values[args[0]]
            stored = x if x.format.is_dense else sj.lax.refill(x, -np.inf)
            made = snp.maximum(snp.max(stored, axis=args[1]), 0.25)
        elif kind == "matmul":
            made = values[args[0]] @ values[args[1]]
        else:
            made = values[args[0]] * args[1]
        values.append(made)
    return values


def check(seed: int) -> str | None:
    """None when the jitted program agrees with its operations run one by one, else what is wrong. Every eighth seed has enough rows for a
    block of them."""
    with mock.patch.dict(EXTENTS, n=70 if seed % 8 == 1 else EXTENTS["n"]):
        return _check(seed)


@engine.crowded
def _check(seed: int) -> str | None:
    rng = random.Random(seed)
    axes = [rng.choice(("nm", "nm", "mk", "n", "m", "nk")) for _ in range(rng.randint(1, 3))]
    inputs = [operand(rng, a) for a in axes]
    steps, _ = program(rng, axes)
    last = [len(axes) + len(steps) - 1]
    if rng.random() < 0.3:
        last.insert(0, rng.randrange(len(axes) + len(steps)))
    with np.errstate(all="ignore"):
        want = run(steps, inputs)
        forced = {"call": 1e9} if seed % 2 == 0 else {}  # whatever can be one kernel is
        with priced(**forced, **({"scatter": 0.0} if seed % 3 == 0 else {})):
            got = sj.jit(lambda *args: [run(steps, args)[k] for k in last])(*inputs)
    for k, ours in zip(last, got, strict=True):
        text = f"seed {seed} value {k} of {steps}; inputs {[str(a.format) for a in inputs]}"
        if ours.aval != want[k].aval:
            return f"{text}: type {ours.aval} instead of {want[k].aval}"
        if not np.allclose(ours.todense(), want[k].todense(), rtol=1e-9, atol=1e-12, equal_nan=True):
            return f"{text}\nexpected\n{want[k].todense()}\ngot\n{ours.todense()}"
        if not ours.format.is_dense and ours.nnz != want[k].nnz:
            return f"{text}: {ours.nnz} entries instead of {want[k].nnz}"
    return None
