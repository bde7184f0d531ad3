"""Loops with sparse carries, whose entries come and go, under `grad` and `vmap`: against the same over dense arrays, round by round and as a whole."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, lax
from tests.fuzz import engine

CASES, BATCH = 72, 6
N = 7


def random_loop(rng: random.Random):
    """A function of a sparse carry, a matrix and numbers, by a loop; `sparse` says whether values are stored as such and thinned."""
    kind, vector = rng.choice(("fori", "scan", "while")), rng.random() < 0.6
    rounds, shape, unread = rng.randrange(1, 13), rng.randrange(4), rng.random() < 0.3
    form = "coo" if vector else rng.choice(("csr", "csc"))

    def made(sparse: bool):
        def thin(x, tol):
            return sj.prune(x, tol=tol) if sparse else snp.where(abs(x) > tol, x, 0)

        def step(x, A, w, k):
            y = sj.einsum("i,ij->j" if vector else "ij,jk->ik", x, A, out_format=form if sparse else "dense")
            if shape == 0:
                return thin(y * 0.5, 0.05)
            if shape == 1:
                return thin(snp.where(y > 0.1 * w, y, 0) * 0.7, 0)
            if shape == 2:
                return thin(snp.where(abs(y) < w + 1.0, y, y * 0.3), 0.02)
            z = thin(y, 0.1)
            return (z * w + x * 0.2).asformat(form) if sparse else z * w + x * 0.2

        def ours(x, A, w):
            if kind == "scan":
                last, seen = lax.scan(
                    lambda x, k: ((new := step(x, A, w, k)), snp.sum(new)), x, np.arange(rounds) * 1.0
                )
                return snp.sum(last * last) + snp.sum(seen)
            if kind == "fori":
                last = lax.fori_loop(0, rounds, lambda k, x: step(x, A, w, k), x)
                return snp.sum(last * last) + snp.sum(last)

            def body(s):
                return step(s[0], A, w, s[1]), s[1] + 1, s[2] * 0.5 + snp.sum(s[0])

            last = lax.while_loop(lambda s: (s[1] < rounds) & (snp.sum(abs(s[0])) > 0.3), body, (x, 0, w * 0))
            return snp.sum(last[0] * last[0]) + (0 if unread else last[2])

        return ours

    return made, kind, form, vector


def check(seed: int) -> str | None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    made, kind, form, vector = random_loop(rng)
    a = np.where(numbers.random((N, N)) < 0.4, numbers.normal(size=(N, N)), 0)
    x = np.where(numbers.random(N if vector else (N, N)) < 0.4, numbers.normal(size=N if vector else (N, N)), 0)
    A, X, w = sj.array(a, format=rng.choice(("csr", "csc"))), sj.array(x, format=form), 0.8
    sparse, dense = made(True), made(False)
    many = numbers.random(3) + 0.5
    programs = [("value", lambda f: f), ("vmap", lambda f: sj.vmap(f, in_axes=(None, None, 0)))]
    if kind != "while":  # whose gradients are an error
        programs.append(("grad by the number", lambda f: sj.grad(f, argnums=2)))
        programs.append(("grad by the matrix", lambda f: sj.grad(f, argnums=1)))
        programs.append(("vmap of grad", lambda f: sj.vmap(sj.grad(f, argnums=2), in_axes=(None, None, 0))))
    for name, change in programs:
        number = many if "vmap" in name else w
        want = np.asarray(snp.asarray(sj.jit(change(dense))(x, a, number)).todense())
        for way in ("table", "apart"):
            with config.using(choose=f"rounds={way}"):
                for _ in range(2):
                    got = np.asarray(
                        snp.asarray(sj.jit(lambda *args, c=change: c(sparse)(*args))(X, A, number)).todense()
                    )
                    if name == "grad by the matrix":  # known where something is stored
                        got, want = np.where(a != 0, got, 0), np.where(a != 0, want, 0)
                    if not np.allclose(got, want, rtol=1e-8, atol=1e-10):
                        return f"seed {seed}, {kind} {name}, rounds={way}: {got} is not {want}"
    return None


@pytest.mark.rotating(12)
@pytest.mark.parametrize("start", range(0, CASES, BATCH))
def test_random_loops_transformed(start):
    with engine.quick():
        faults = [f for f in map(check, range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)
