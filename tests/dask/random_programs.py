"""Random programs over arrays in shards, for `test_random_programs`: steps of a list on values of a few shapes, drawn by a seed.

program = Program(seed)
program.function(*program.arguments)                   on one machine
sparsejax.dask.jit(program.function)(*program.sharded())   in shards
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

PARTS = (1, 2, 3, 5)
FORMATS = (
    "csr",
    "csr",
    "csr",
    "csc",
    "coo",
    "dcsr",
    "dense",
    "csr-dense",
    "bsr:2x2",
    "dia",
    "hash",
    "bitmap",
    "rle",
    "groupcoo:4",
)
WIDTH = 4


def square(a: Any) -> bool:
    return a.ndim == 2 and a.shape[0] == a.shape[1]


def matrix(a: Any) -> bool:
    return a.ndim == 2


def vector(a: Any) -> bool:
    return a.ndim == 1


def array(a: Any) -> bool:
    return a.ndim > 0


def real(a: Any) -> Any:
    """Values of moderate size, so that programs of many steps neither overflow nor lose what they are compared by."""
    return snp.tanh(a) if a.dtype.kind == "f" else a


def index(rng: random.Random, extent: int, count: int) -> Any:
    return np.array([rng.randrange(extent) for _ in range(count)] if extent else [], dtype=np.int64)


def unary(rng: random.Random, a: Any) -> Callable[..., Any]:
    return rng.choice(
        [
            snp.sin,
            snp.abs,
            snp.sign,
            snp.negative,
            lambda a: a * 2,
            lambda a: a + 1,
            lambda a: snp.maximum(a, 0),
            lambda a: a**2,
            lambda a: snp.clip(a, -0.5, 0.5),
            lambda a: snp.where(a > 0.1, a, 0),
            lambda a: snp.exp(-snp.abs(a)),
            lambda a: a.astype("f4").astype("f8"),
            lambda a: sj.prune(a, tol=0.2),
            lambda a: snp.isfinite(a) * a,
            lambda a: snp.expm1(a),
            lambda a: snp.sqrt(snp.abs(a)),
        ]
    )


def along(rng: random.Random, a: Any) -> Callable[..., Any]:
    axis = rng.choice([0, -1])
    return rng.choice(
        [
            lambda a: snp.cumsum(a, axis=axis),
            lambda a: snp.sort(a, axis=axis),
            lambda a: snp.argsort(a, axis=axis).astype("f8"),
            lambda a: a - a.mean(axis=axis, keepdims=True),
            lambda a: snp.flip(a, axis=axis),
            lambda a: snp.roll(a, 2, axis=axis),
            lambda a: a / (1 + abs(a).sum(axis=axis, keepdims=True)),
            lambda a: sj.nn.softmax(a, axis=axis),
            lambda a: snp.diff(a, axis=axis, append=a.max()),
            lambda a: snp.cumulative_prod(a * 0.5, axis=axis) if hasattr(snp, "cumulative_prod") else a,
        ]
    )


def reduced(rng: random.Random, a: Any) -> Callable[..., Any]:
    axis = rng.choice([None, 0, -1, -1])
    name = rng.choice(["sum", "mean", "max", "min", "std", "argmax", "any", "count", "prod", "logsumexp"])
    if name == "count":
        return lambda a: snp.count_nonzero(a, axis=axis).astype("f8") * 0.01
    if name == "logsumexp":
        return lambda a: sj.nn.logsumexp(a, axis=axis)
    return lambda a: getattr(a, name)(axis=axis).astype("f8") * 0.1


def cut(rng: random.Random, a: Any) -> Callable[..., Any]:
    n = a.shape[0]
    low = rng.randrange(n + 1)
    high = rng.randrange(low, n + 1)
    step, many = rng.choice([1, 1, 2, 3]), index(rng, n, rng.choice([0, 1, 5]))
    one = rng.randrange(n) if n else 0
    return rng.choice(
        [
            lambda a: a[low:high:step],
            lambda a: a[many],
            lambda a: a[::-1],
            lambda a: snp.concatenate([a, a[low:high]]),
            lambda a: a.at[many].add(1.0),
            lambda a: a[one] if n else a,
            lambda a: snp.stack([a, a * 2]),
            lambda a: a.reshape(-1),
            lambda a: a[None],
            lambda a: snp.take(a, many, axis=0),
            lambda a: a.at[low:high].set(0.5),
            lambda a: snp.pad(a, [(1, 2)] + [(0, 0)] * (a.ndim - 1)),
            lambda a: sj.grad(lambda b: (snp.sin(b[low:high:step]) * 2).sum() + snp.sin(b[..., 0]).sum())(a),
            lambda a: snp.repeat(a, 2, axis=0),
            lambda a: snp.tile(a, (2,) + (1,) * (a.ndim - 1)),
        ]
    )


def looped(rng: random.Random, a: Any) -> Callable[..., Any]:
    count = rng.randrange(4)
    return rng.choice(
        [
            lambda a: sj.lax.fori_loop(0, count, lambda k, c: c * 0.5 + a, a),
            lambda a: sj.lax.while_loop(lambda c: c[1] < count, lambda c: (real(c[0] * 1.5), c[1] + 1), (a, 0))[0],
            lambda a: sj.lax.cond(abs(a).sum() > 1.0, lambda: a * 2, lambda: a * 3),
            lambda a: sj.lax.scan(lambda c, r: (c + r.sum(), r * 2), 0.0, a.asformat("dense"))[1],
            lambda a: sj.grad(lambda b: (snp.sin(b) * b).sum())(a),
            lambda a: sj.jvp(lambda b: snp.sin(b) * 2, (a,), (a,))[1],
            lambda a: sj.vmap(lambda r: r * r.sum())(a),
            lambda a: sj.vmap(lambda r: snp.maximum(r, 0) - r.max(), in_axes=-1, out_axes=-1)(a) if a.shape[-1] else a,
        ]
    )


def squared(rng: random.Random, a: Any) -> Callable[..., Any]:
    return rng.choice(
        [
            lambda a: a @ a,
            lambda a: a.T @ a,
            lambda a: a * a.T,
            lambda a: snp.tril(a),
            lambda a: snp.diagonal(a),
            lambda a: snp.trace(a),
            lambda a: sj.einsum("ij,ji->i", a, a),
            lambda a: snp.triu(a, 1) @ a,
            lambda a: sj.einsum("ij,jk->ik", abs(a), abs(a), semiring="max_times"),
            lambda a: a + a.T,
            lambda a: sj.grad(lambda b: ((b @ b) ** 2).sum())(a),
            lambda a: snp.linalg.solve(a.asformat("dense") * 0.1 + snp.eye(a.shape[0]), a.asformat("dense")),
        ]
    )


def two(rng: random.Random, a: Any, b: Any) -> Callable[..., Any] | None:
    """A step on two values that fit; None where none is known."""
    made: list[Callable[..., Any]] = []
    if a.shape == b.shape:
        made += [
            lambda a, b: a + b,
            lambda a, b: a * b,
            lambda a, b: a - b,
            snp.maximum,
            lambda a, b: snp.where(a > b, a, b),
            lambda a, b: snp.concatenate([a, b], axis=-1),
            lambda a, b: a / (1 + abs(b)),
            lambda a, b: (a != 0) * b,
            lambda a, b: snp.hypot(a, b),
        ]
    if a.ndim == 2 and b.ndim >= 1 and a.shape[1] == b.shape[0]:
        made += [lambda a, b: a @ b] * 4
        if b.ndim == 1:
            made += [
                lambda a, b: a * b,
                lambda a, b: snp.maximum(a @ b, 0),
                lambda a, b: sj.grad(lambda b: ((a @ b) ** 2).sum())(b),
                lambda a, b: sj.grad(lambda a: ((a @ b) ** 2).sum())(a),
                lambda a, b: sj.vmap(lambda r: r @ b)(a),
            ]
    if a.ndim == 2 and b.ndim >= 1 and a.shape[0] == b.shape[0]:
        made += [lambda a, b: a.T @ b, lambda a, b: b.T @ a]
        if b.ndim == 2 and square(a):
            made += [
                lambda a, b: sj.einsum("ij,ik,jk->ij", a, b, b),
                lambda a, b: snp.maximum(a @ b, 0),
                lambda a, b: sj.nn.softmax(a, axis=1) @ b,
            ]
        if b.ndim == 1:
            made += [lambda a, b: a * b[:, None], lambda a, b: snp.where(b[:, None] > 0, a, 0)]
    if a.ndim == 1 and b.ndim == 1 and 0 < len(a) * len(b) < 2000:
        made += [
            lambda a, b: snp.outer(a, b),
            lambda a, b: snp.searchsorted(snp.sort(a), b).astype("f8"),
            lambda a, b: a[None, :] - b[:, None],
        ]
    return rng.choice(made) if made else None


ONE = [
    (unary, array),
    (unary, array),
    (along, array),
    (reduced, array),
    (cut, array),
    (looped, array),
    (squared, square),
    (squared, square),
]


class Program:
    """Arguments, steps, and how the arguments are cut, all drawn by a seed."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        n = rng.choice([0, 1, 2, 7, 12, 24, 24, 40])
        draws = np.random.default_rng(seed)

        def sparse(rows: int, columns: int) -> Any:
            made = sp.random_array((rows, columns), density=rng.choice([0.0, 0.1, 0.3]), format="csr", rng=draws)
            if rows and rng.random() < 0.3:
                made = sp.csr_array(
                    sp.diags_array((np.arange(rows) >= rows // 2) * 1.0) @ made
                )  # the first shards are empty
            form = rng.choice(FORMATS)
            if form.startswith("bsr") and (rows % 2 or columns % 2 or not rows):
                form = "csr"
            x = sj.array(made)
            return sj.array(made.toarray()) if form == "dense" else x.asformat(form) if form != "csr-dense" else x

        self.arguments = (
            sparse(n, n),
            sparse(n, n),
            draws.normal(size=(n, WIDTH)),
            draws.normal(size=n),
            sparse(n, rng.choice([1, 3, 9])),
        )
        self.steps: list[tuple[Callable[..., Any], tuple[int, ...], str]] = []
        values = [sj.asarray(a) for a in self.arguments]
        while len(self.steps) < rng.randrange(2, 9):
            a = rng.randrange(len(values))
            if rng.random() < 0.45:
                b = rng.randrange(len(values))
                step, places = two(rng, values[a], values[b]), (a, b)
                name = "two"
            else:
                make, fits = rng.choice(ONE)
                step, places = (make(rng, values[a]) if fits(values[a]) else None), (a,)
                name = make.__name__
            if step is None:
                continue
            try:
                value = real(step(*(values[p] for p in places)))
            except (ValueError, TypeError, IndexError, NotImplementedError, np.linalg.LinAlgError):
                continue  # of extents 0, and formats that an operation does not take
            if value.size > 20_000 or value.ndim > 3:
                continue
            self.steps.append((step, places, name))
            values.append(value)
        self.results = sorted({len(values) - 1, *rng.sample(range(len(self.arguments), len(values)), 1)})

    def function(self, *arguments: Any) -> Any:
        """The program."""
        values = list(arguments)
        for step, places, _ in self.steps:
            values.append(real(step(*(values[p] for p in places))))
        return [values[k] for k in self.results]

    def cut(self, extent: int, block: int = 1) -> Any:
        """Parts, boundaries of any kind, or none."""
        rng = self.rng
        if extent < 2 * block or rng.random() < 0.6:
            return rng.choice(PARTS)
        inner = sorted(rng.sample(range(block, extent, block), min(rng.choice(PARTS), (extent - 1) // block)))
        return (0, *inner, extent)

    def sharded(self) -> list[Any]:
        """The arguments, most of them in shards."""
        import sparsejax.dask as sd

        made = []
        for a in self.arguments:
            chosen = self.rng.random()
            if chosen < 0.2:
                made.append(a)
            else:
                blocks = a.format.blocks if isinstance(a, sj.Array) else (1,) * a.ndim
                axes = [
                    self.cut(n, b) if self.rng.random() < 0.7 else None for n, b in zip(a.shape, blocks, strict=True)
                ]
                made.append(sd.shard(a, axes=axes))
        return made
