"""Random sums over operands with any fill, in any format: products of several, and other terms, jitted, against NumPy on dense arrays."""

from __future__ import annotations

import random

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.array import Array
from sparsejax.formats import convert
from sparsejax.jit.graph import split_fills
from tests.fuzz.levels import INPUTS, random_format

EXTENTS = {"i": 4, "j": 3, "k": 5, "l": 2}
SUBSCRIPTS = (
    "ik,k->i", "ki,k->i", "ik,kj->ij", "ik,jk->ij", "ik,kj,j->i", "ik,ik->i", "ik,ik->k", "ik,k->", "ik->i", "ik,kl->",
    "ikl,kl->i", "ikl,kj->ijl", "ikl,ik,l->k", "ik,kj->j", "ik,i,k->", "ik,ki->i", "kk,k->k", "ik,kj,jl->il",
)  # fmt: skip
DTYPES = ("f8", "f8", "f8", "f4", "i8", "i4", "u1", "c16", "?")
FILLS = (0, 1, 1, 2)
SPECIAL = (np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-300)
CHANGES = {
    "itself": lambda xp, x: x,
    "plus one": lambda xp, x: x + 1,
    "doubled": lambda xp, x: x * 2,
    "bounded": lambda xp, x: xp.minimum(x, 1),
    "exp": lambda xp, x: xp.exp(x * 0.5),
    "not": lambda xp, x: x == 0,
}
PAIRS = {
    "distance": lambda xp, x, y: xp.absolute(x * 1 - y * 1),
    "product": lambda xp, x, y: x * y,
    "larger": lambda xp, x, y: xp.maximum(x, y),
    "chosen": lambda xp, x, y: xp.where(x > 1, y, x),
}


def operand(rng: random.Random, labels: str, dtype: str, special: bool) -> tuple[Array, np.ndarray]:
    """A random array over `labels`: ours, and dense."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    shape = tuple(EXTENTS[c] for c in labels)
    dense = nrng.integers(0, 4, shape).astype(dtype)
    if special:
        odd = nrng.random(shape) < 0.3
        dense[odd] = nrng.choice(SPECIAL, int(odd.sum()))
    sizes = [rng.choice((1, 2, 3)) for _ in shape] if rng.random() < 0.2 else None
    form = random_format(rng, len(shape), INPUTS, sizes)
    if form.is_dense or rng.random() < 0.2:
        return sj.array(dense, copy=True), dense
    fill = dense.dtype.type(rng.choice(FILLS))
    stored = nrng.random(shape) < rng.choice((0.1, 0.4, 1.0))
    dense[~stored] = fill
    coords = np.array(np.nonzero(stored)).reshape(len(shape), -1)
    return Array(convert.from_coords(coords, dense[stored], shape, form, fill)), dense


def _program(rng: random.Random, special: bool):
    """A function of a module of array functions and of operands, pairs of operands (ours, dense), and what it is. With `size`, the
    function adds up absolute values."""
    dtype = "f8" if special else rng.choice(DTYPES)
    subscripts = rng.choice(SUBSCRIPTS)
    left, _, _ = subscripts.partition("->")
    terms = left.split(",")
    pairs = [operand(rng, t, dtype, special) for t in terms]
    changes = [rng.choice(list(CHANGES)) for _ in terms]
    pair, axis, largest = rng.choice(list(PAIRS)), rng.randrange(2), rng.random() < 0.3
    wide = rng.random() < 0.3 and len(terms) == 2 and terms[0] == "ik" and terms[1] in ("ik", "k") and dtype != "?"
    largest = largest and not special and np.dtype(dtype).kind not in "cb"

    def function(xp, *xs, size=False):
        made = [CHANGES[c](xp, x) for c, x in zip(changes, xs, strict=True)]
        if wide:
            term = PAIRS[pair](xp, *made)
            return xp.sum(xp.absolute(term) if size else term, axis=axis)
        total = xp.einsum(subscripts, *(map(xp.absolute, made) if size else made))
        return xp.maximum(total, 1) if largest else total

    return function, pairs, f"{pair if wide else subscripts} of {changes}, {dtype}, {[str(a.aval) for a, _ in pairs]}"


def check(seed: int) -> str | None:
    """None when the jitted sum agrees with NumPy, else what is wrong."""
    function, pairs, text = _program(random.Random(seed), False)
    with np.errstate(all="ignore"):
        want = np.asarray(function(np, *(d for _, d in pairs)))
    got = sj.jit(lambda *xs: function(snp, *xs))(*(a for a, _ in pairs))
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"seed {seed}: {text}: type {got.aval} instead of {want.dtype}{want.shape}"
    ours, single = np.asarray(got.todense()), np.finfo("f4").eps
    rtol = 100 * single if want.dtype == "f4" else 1e-12
    return None if np.allclose(ours, want, rtol, 1e-12) else f"seed {seed}: {text}\nexpected\n{want}\ngot\n{ours}"


def check_special(seed: int) -> str | None:
    """The same for operands that hold infinities, NaN, and numbers that absorb others: sums apart against plain ones, which are the same
    where these are not finite, and as good as the proven bound elsewhere."""
    function, pairs, text = _program(random.Random(seed), True)
    arrays = [a for a, _ in pairs]
    got = sj.jit(lambda *xs: function(snp, *xs))(*arrays).todense() * 1.0
    share, split_fills.SHARE = split_fills.SHARE, 0.0
    try:
        plain = [sj.jit(lambda *xs, s=s: function(snp, *xs, size=s))(*arrays) for s in (False, True)]
    finally:
        split_fills.SHARE = share
    want, size = (x.todense() * 1.0 for x in plain)
    with np.errstate(all="ignore"):
        error = np.where(got == want, 0.0, np.abs(got - want))
        good = np.where(np.isfinite(want), error <= 64 * split_fills.RATIO * np.finfo("f8").eps * size, same(got, want))
    return None if np.all(good) else f"seed {seed}: {text}\nexpected\n{want}\ngot\n{got}\nsizes\n{size}"


def same(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where two arrays are equal, NaN being equal to NaN."""
    return (x == y) | (np.isnan(x) & np.isnan(y))
