"""Transformations in all orders, of functions with sparse carries, branches, solvers and rules of their own, in every kind of batch.

The oracle is a loop over the elements, whose derivatives other sweeps compare with differences.
"""

from __future__ import annotations

import itertools

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax, nn
from sparsejax.lax import pattern
from sparsejax.scipy.sparse import linalg
from tests.autodiff.checks import array, dense
from tests.vmap.programs import element

N, SIZE = 4, 3


@sj.custom_vjp
def _scaled(C, w):
    return snp.sin(C) * w


_scaled.defvjp(
    lambda C, w: (_scaled(C, w), (C, w)),
    lambda r, ct: (ct * (snp.cos(r[0]) * r[1]), (ct * snp.sin(r[0])).sum()),
)


@sj.custom_jvp
def _squashed(C):
    return snp.tanh(C)


_squashed.defjvps(lambda t, out, C: t * (1 - snp.tanh(C) ** 2))

FUNCTIONS = {
    "product": lambda A, x: snp.sin(A @ x),
    "spgemm": lambda A, x: (A @ A.T) * (A * x),
    "softmax": lambda A, x: nn.softmax(A * x, 1) @ x,
    "segments": lambda A, x: nn.segment_sum(A * x, np.array([1, 0, 1, 1]), 2),
    "indexing": lambda A, x: (A.at[1:3].add(A[:2] * x))[np.array([2, 0, 2])],
    "growing scan": lambda A, x: lax.scan(lambda C, w: ((C @ A) * w + C, snp.sum(C) * w), A, x)[0],
    "scan of rows": lambda A, x: lax.scan(lambda c, row: (snp.tanh(c + row * c), snp.sum(row)), x, A)[0],
    "scan with rules": lambda A, x: lax.scan(lambda C, w: (_squashed(C) * w, C.sum()), A, x)[1],
    "scan with vjp": lambda A, x: lax.scan(lambda C, w: (_scaled(C, w), C.sum()), A, x)[1],
    "checkpoint": lambda A, x: lax.scan(sj.checkpoint(lambda C, w: (snp.sin(C @ A) * w, C.sum())), A, x)[0],
    "fori": lambda A, x: lax.fori_loop(0, 2, lambda i, C: (C @ A) * 0.5 + A * x, A),
    "cond": lambda A, x: lax.cond(snp.sum(x) > 0.2, lambda C: C @ C, lambda C: snp.sin(C) * x, A),
    "switch": lambda A, x: lax.switch(
        snp.argmax(x) % 3, [lambda C: C * 2.0, lambda C: C @ (C * x), lambda C: snp.sin(C)], A
    ),
    "map": lambda A, x: lax.map(lambda row: snp.sin(row * x), A),
    "spsolve": lambda A, x: linalg.spsolve(A * 0.1 + sj.array(4 * np.eye(N), format="csr"), x),
    "cg": lambda A, x: linalg.cg((A @ A.T) * 0.1 + sj.array(4 * np.eye(N), format="csr"), x, tol=1e-13)[0],
    "while": lambda A, x: lax.while_loop(lambda C: snp.abs(C).sum() < 9.0, lambda C: C * 1.5 + C @ C * 0.1, A * x),
}
FORWARD = ("while",)
"""Without reverse mode, as in JAX."""
NOT_FORWARD = ("scan with vjp",)

KINDS = {"x": (None, 0), "shared": (0, None), "ragged": (0, 0), "both": (0, 1), "dense": (0, 0)}
FORMS = {"x": "csr", "shared": "(d,c,d)@(1,2,0)", "ragged": "(d,d,c)", "both": "(d,c,d)@(1,2,0)", "dense": "dense"}


def _loss(f):
    return lambda A, x: snp.sum(snp.sin(f(A, x)))


def _along(A, x):
    """A direction for every element."""
    return snp.cos(A) * pattern(A, float), snp.cos(x)


def _second(loss):
    """The derivative of gradients along a direction."""

    def made(A, x):
        t = _along(sj.stop_gradient(A), sj.stop_gradient(x))
        return sj.jvp(sj.grad(loss, (0, 1)), (A, x), t)[1]

    return made


def _reverse_twice(loss):
    def made(A, x):
        t = _along(sj.stop_gradient(A), sj.stop_gradient(x))
        inner = sj.grad(loss, (0, 1))
        return sj.grad(lambda A, x: sum(snp.sum(g * d) for g, d in zip(inner(A, x), t)), (0, 1))(A, x)

    return made


def _pulled(loss):
    return lambda A, x: sj.vjp(lambda A, x: loss(A, x) * 1.0, A, x)[1](2.0)


def _summed(batched):
    return lambda A, x: snp.sum(batched(A, x))


def _first(loss):
    return sj.grad(loss, (0, 1))


def _forward(loss):
    return lambda A, x: sj.jvp(loss, (A, x), _along(A, x))[1]


# every word: what is computed of the batch, and what of one element
WORDS = {
    "vmap": (lambda f, v: v(f), lambda f: f, 1),
    "jit vmap": (lambda f, v: sj.jit(v(f)), lambda f: f, 1),
    "vmap jit": (lambda f, v: v(sj.jit(f)), lambda f: f, 1),
    "vmap jvp": (lambda f, v: v(_forward(_loss(f))), lambda f: _forward(_loss(f)), 1),
    "jit vmap jvp": (lambda f, v: sj.jit(v(_forward(_loss(f)))), lambda f: _forward(_loss(f)), 1),
    "vmap grad": (lambda f, v: v(_first(_loss(f))), lambda f: _first(_loss(f)), 2),
    "jit vmap grad": (lambda f, v: sj.jit(v(_first(_loss(f)))), lambda f: _first(_loss(f)), 2),
    "vmap jit grad": (lambda f, v: v(sj.jit(_first(_loss(f)))), lambda f: _first(_loss(f)), 2),
    "vmap grad jit": (lambda f, v: v(_first(sj.jit(_loss(f)))), lambda f: _first(_loss(f)), 2),
    "grad vmap": (lambda f, v: _first(_summed(v(_loss(f)))), lambda f: _first(_loss(f)), "sum"),
    "jit grad vmap": (lambda f, v: sj.jit(_first(_summed(v(_loss(f))))), lambda f: _first(_loss(f)), "sum"),
    "grad jit vmap": (lambda f, v: _first(_summed(sj.jit(v(_loss(f))))), lambda f: _first(_loss(f)), "sum"),
    "grad vmap jit": (lambda f, v: _first(_summed(v(sj.jit(_loss(f))))), lambda f: _first(_loss(f)), "sum"),
    "vmap vjp": (lambda f, v: v(_pulled(_loss(f))), lambda f: _pulled(_loss(f)), 2),
    "vmap jvp grad": (lambda f, v: v(_second(_loss(f))), lambda f: _second(_loss(f)), 2),
    "jvp grad vmap": (lambda f, v: _second(_summed(v(_loss(f)))), lambda f: _second(_loss(f)), "sum"),
    "vmap grad grad": (lambda f, v: v(_reverse_twice(_loss(f))), lambda f: _second(_loss(f)), 2),
    "jit grad grad vmap": (
        lambda f, v: sj.jit(_reverse_twice(_summed(v(_loss(f))))),
        lambda f: _second(_loss(f)),
        "sum",
    ),
}


def grid():
    """All words of all functions in all kinds of batches, but those without a meaning."""
    for name, kind, word in itertools.product(FUNCTIONS, KINDS, WORDS):
        forward_only = name in FORWARD and ("grad" in word or "vjp" in word)
        reverse_only = name in NOT_FORWARD and ("jvp" in word or "grad grad" in word)
        summed_shared = "jvp grad vmap" in word and None in KINDS[kind]
        if not (forward_only or reverse_only or summed_shared):
            yield name, kind, word


def check(name, kind, word):
    """One word of one function in one kind of batch."""
    f, axes = FUNCTIONS[name], KINDS[kind]
    rng = np.random.default_rng(11)
    A = array(rng, (N, N) if axes[0] is None else (SIZE, N, N), FORMS[kind], density=0.6, high=1.0)
    x = array(rng, {None: (N,), 0: (SIZE, N), 1: (N, SIZE)}[axes[1]], high=1.0)
    whole, single, results = WORDS[word]
    outs = results == "sum"
    batched = whole(f, lambda g: sj.vmap(g, in_axes=axes))
    got = sj.tree_util.tree_leaves(batched(A, x))
    parts = []
    for k in range(SIZE):
        own, y = (z if a is None else element(z, a, k) for z, a in zip((A, x), axes))
        parts.append([dense(m) for m in sj.tree_util.tree_leaves(single(f)(own, y))])
    for k, g in enumerate(got):
        pieces = [p[k] for p in parts]
        axis = axes[k] if outs else 0
        want = np.sum(pieces, 0) if axis is None else np.stack(pieces, axis)
        np.testing.assert_allclose(dense(g), want, rtol=1e-7, atol=1e-8)
        if outs:
            assert g.format == (A, x)[k].format
