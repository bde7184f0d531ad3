"""Random loops and branches over random bodies, carries in random formats, against plain Python loops over NumPy arrays."""

from __future__ import annotations

import random

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from tests.fuzz import functions
from tests.fuzz.levels import OUTPUTS, random_format

N = functions.N
KINDS = ("fori", "while", "scan", "reverse", "map", "cond", "switch")


def matrix(rng: random.Random, shape):
    """(ours, dense): small multiples of 1/2 in any format."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    dense = nrng.integers(0, 3, shape) * (nrng.random(shape) < rng.choice((0.2, 0.5, 1.0))) * 0.5
    return sj.array(dense, format=random_format(rng, len(shape), OUTPUTS), copy=True), dense


class Body:
    """A random function of a carry, other matrices and a vector; its results are bounded."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.steps = functions.program(rng, count)
        ranks = self._ranks(count)
        self.next = rng.choice([k for k, r in enumerate(ranks) if r == 2][-3:])
        self.y = rng.randrange(len(ranks))

    def _ranks(self, count):
        made = functions.run(np, self.steps, [np.ones((N, N))] * count)
        return [np.ndim(v) for v in made]

    def __call__(self, xp, *values):
        made = functions.run(xp, self.steps, values)
        carry = xp.minimum(xp.absolute(made[self.next] * 1.0), 4.0).astype("f8")
        if xp is snp and carry.fill_value != 0:
            carry = carry.asformat("dense")
        return carry, made[self.y] * 1.0


def check(seed: int) -> str | None:
    """None when the loop agrees with Python's, else what is wrong."""
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    inputs = [matrix(rng, (N, N)) for _ in range(rng.randint(1, 3))]
    body, other = Body(rng, len(inputs)), Body(rng, len(inputs))
    rounds = rng.choice((0, 1, 3, 40)) if kind in ("fori", "while") else 3
    xs, dense_xs = matrix(rng, (rounds, N, N))
    eager = rng.random() < 0.2
    length = rounds

    def ours(xs, *values):
        carry, *rest = values
        match kind:
            case "fori":
                return lax.fori_loop(0, length, lambda i, c: body(snp, c, *rest)[0], carry)
            case "while":
                n = snp.sum(carry * 0).astype("i8") + length
                return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, body(snp, s[1], *rest)[0]), (0, carry))[
                    1
                ]
            case "scan" | "reverse":
                step = lambda c, x: body(snp, c, *[x, *rest][: len(rest)])  # noqa: E731
                return lax.scan(step, carry, xs, reverse=kind == "reverse")
            case "map":
                size = (None, 1, 2, 4)[seed % 4]  # of blocks
                return lax.map(lambda x: body(snp, x, *rest)[1], xs, batch_size=size)
            case "cond":
                return lax.cond(snp.sum(carry) > 4, lambda c: body(snp, c, *rest)[0], lambda c: c * 2, carry)
            case "switch":
                k = (snp.sum(carry) * 2).astype("i8") % 4 - 1
                branches = [lambda c: c * 1.0, lambda c: body(snp, c, *rest)[0], lambda c: other(snp, c, *rest)[0]]
                return lax.switch(k, branches, carry)

    def theirs(xs, *values):
        carry, *rest = values
        match kind:
            case "fori" | "while":
                for _ in range(length):
                    carry = body(np, carry, *rest)[0]
                return carry
            case "scan" | "reverse":
                ys = []
                order = range(len(xs))[:: -1 if kind == "reverse" else 1]
                for k in order:
                    carry, y = body(np, carry, *[xs[k], *rest][: len(rest)])
                    ys.append(y)
                return carry, np.stack(ys[:: -1 if kind == "reverse" else 1])
            case "map":
                return np.stack([body(np, x, *rest)[1] for x in xs])
            case "cond":
                return body(np, carry, *rest)[0] if carry.sum() > 4 else carry * 2
            case "switch":
                k = min(max(int(carry.sum() * 2) % 4 - 1, 0), 2)
                return [lambda c: c * 1.0, lambda c: body(np, c, *rest)[0], lambda c: other(np, c, *rest)[0]][k](carry)

    with np.errstate(all="ignore"):
        want = theirs(dense_xs, *(d for _, d in inputs))
    text = f"seed {seed}: {kind} of {body.steps}, carry {body.next}, y {body.y}; inputs {[str(a.format) for a, _ in inputs]}"
    got = (ours if eager else sj.jit(ours))(xs, *(a for a, _ in inputs))
    pairs = list(zip(got, want, strict=True)) if isinstance(got, tuple) else [(got, want)]
    for k, (x, y) in enumerate(pairs):
        if x.shape != np.shape(y) or not np.allclose(x.todense(), y, rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"{text}\nresult {k}: expected\n{y}\ngot\n{x.todense()}"
    if kind in ("fori", "while", "scan", "reverse") and pairs[0][0].format != inputs[0][0].format:
        return f"{text}\nthe carry comes back as {pairs[0][0].format}"
    return None
