"""A smoke run of what every computer must get right, on one thread and on two, against NumPy and SciPy. Needs no pytest.

python -m tests.platforms.programs                     what it ran, and what of this computer it used
SPARSEJAX_SKIP=loader python -m tests.platforms.programs
"""

from __future__ import annotations

import platform
import sys

import numpy as np
import scipy.sparse as sp
from scipy.special import log_softmax

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, lax, nn
from sparsejax.jit.backend import compiler, entry, loader
from sparsejax.jit.runtime import donation
from sparsejax.jit.runtime.system import allocator, pool, reuse

PROGRAMS, SERIAL = [], []
"""What is run by one thread and by two, and what by one alone: whose loops are those of others."""
SIZE = 60


def program(function):
    PROGRAMS.append(function)
    return function


def serial(function):
    SERIAL.append(function)
    return function


def matrix(n=SIZE, m=SIZE, density=0.1, seed=0, dtype="f8"):
    """A random matrix with an empty row and a full one, as SciPy has it."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random((n, m)) < density, rng.standard_normal((n, m)), 0).astype(dtype)
    x[0], x[1] = 0, 1
    return sp.csr_array(x)


def close(found, expected, tolerance=1e-10):
    np.testing.assert_allclose(dense(found), expected, rtol=tolerance, atol=tolerance)


def dense(x):
    return x.todense() if isinstance(x, sj.Array) else np.asarray(x)


@program
def spmv():
    for form in ("csr", "csc", "coo", "dcsr", "bsr:4x4", "ell", "groupcoo:2"):
        m, x = matrix(), np.arange(SIZE) / SIZE
        close(sj.array(m, format=form) @ x, m @ x)
    m, x = matrix(dtype="f4"), np.arange(SIZE, dtype="f4") / SIZE
    close(sj.jit(lambda A, x: A @ x * 2 + x)(sj.array(m), x), 2 * (m @ x) + x, 1e-4)


@program
def long_rows():
    m, x = matrix(400, 300, 0.4), np.arange(300) / 300
    close(sj.array(m) @ x, m @ x)
    close(snp.max(sj.array(m) * x, axis=1), (m.todense() * x).max(axis=1))


@program
def spmm():
    for width in (1, 3, 16, 37):
        m, x = matrix(), np.random.default_rng(width).random((SIZE, width))
        close(sj.array(m) @ x, m @ x)
        close(sj.array(m).T @ x, m.T @ x)


@program
def spgemm():
    a, b = matrix(), matrix(seed=1)
    for form in ("csr", "csc", "coo"):
        close(sj.array(a, format=form) @ sj.array(b, format=form), (a @ b).todense())
    for policy in ("bitmap", "marks", "hash", "coordinate", "bucket"):
        with config.using(workspace=policy):
            close(sj.array(a) @ sj.array(b), (a @ b).todense())


@program
def results_that_grow():
    f = sj.jit(lambda A, B: (A @ B) * 2)
    for n in (3, 50, 400, 50):
        for density in (0.02, 0.5):
            m = matrix(n, n, density)
            close(f(sj.array(m), sj.array(m)), 2 * (m @ m).todense(), 1e-9)


@program
def sums_with_all_digits():
    x = np.array([1.0, 1e100, 1.0, -1e100] * 100)
    assert sj.jit(lambda x: x.sum())(x).item() == 200
    assert sj.array(x.reshape(20, 20), format="csr").sum().item() == 200


@program
def results_that_stay():
    """Results of many sizes, small and large, sparse and dense, while others are given back."""
    kept = []
    for k in range(12):
        n = (50, 200, 500)[k % 3]
        m = matrix(n, n, 0.05, seed=k)
        A, x = sj.array(m), np.ones((n, 80))
        kept += [(A + A, (m + m).todense()), (A @ x, m @ x)]
        while len(kept) > 4 + k % 3 or (k == 11 and kept):
            close(*kept.pop(0))


@program
def sddmm():
    m, rng = matrix(), np.random.default_rng(1)
    u, v = rng.random((SIZE, 8)), rng.random((SIZE, 8))
    found = sj.einsum("ij,ik,jk->ij", sj.array(m), u, v)
    assert found.nnz == m.nnz
    close(found, m.todense() * (u @ v.T))


@program
def arithmetic():
    a, b = matrix(), matrix(seed=1, density=0.3)
    x, y = a.todense(), b.todense()
    for forms in (("csr", "csr"), ("coo", "csc"), ("dcsr", "bitmap"), ("hash", "csr")):
        A, B = (sj.array(m, format=form) for m, form in zip((a, b), forms, strict=True))
        close(A + B, x + y)
        close(A * B, x * y)
        close(sj.jit(lambda A, B: snp.maximum(A * 2 - B, A))(A, B), np.maximum(2 * x - y, x))


@serial
def dtypes():
    for dtype in ("f4", "i4", "i8", "u1", "c8", "c16", "?"):
        x = (matrix(20, 20, 0.3).todense() * 4).astype(dtype)
        A = sj.array(x, format="csr")
        close(A @ A, x @ x, 1e-3)
        close(A + A, x + x, 1e-3)
        close(snp.sum(A, axis=0), x.sum(axis=0), 1e-3)


@serial
def functions():
    x = np.abs(matrix().todense())
    for name in ("exp", "log1p", "tanh", "sqrt", "sin", "arctan", "cbrt", "expm1", "cosh", "arcsinh"):
        close(getattr(snp, name)(sj.array(x, format="csr")), getattr(np, name)(x))
    z = (x * (1 + 2j)).astype("c16")
    for name in ("exp", "sqrt", "tanh", "abs", "sin"):
        close(getattr(snp, name)(sj.array(z, format="csr")), getattr(np, name)(z))
    close(snp.arctan2(sj.array(x, format="csr"), 2.0), np.arctan2(x, 2))


@program
def gradients():
    m, w = matrix(), np.random.default_rng(2).random((SIZE, 5))

    def loss(A, w):
        return snp.sum(snp.tanh(A @ w) ** 2)

    A, y = sj.array(m), np.tanh(m @ w)
    dA, dw = sj.jit(sj.grad(loss, argnums=(0, 1)))(A, w)
    back = 2 * y * (1 - y**2)
    close(dw, m.T @ back)
    close(dA, np.where(m.todense() != 0, back @ w.T, 0))


@serial
def softmax():
    m = matrix()
    x = m.todense()
    grown = np.where(x != 0, np.exp(x), 0)
    sums = grown.sum(axis=1, keepdims=True)
    close(nn.softmax(sj.array(m)), grown / np.where(sums == 0, 1, sums))
    close(nn.log_softmax(x), log_softmax(x, axis=1))


@serial
def conversions():
    m = matrix(300, 200, 0.15)
    x = m.todense()
    forms = ("csr", "csc", "coo", "dcsr", "dcsc", "bsr:4x4", "ell", "groupcoo:2", "bitmap", "hash", "lil", "dense")
    for source in forms:
        A = sj.array(m, format=source)
        for target in forms:
            close(A.asformat(target), x)
    close(sj.array(m).T.asformat("csr"), x.T)
    close(sj.array(m).reshape(600, 100), x.reshape(600, 100))


@program
def control_flow():
    m = matrix()
    m = m / np.abs(m).sum()
    A, x = sj.array(m), np.ones(SIZE)

    @sj.jit
    def power(A, x):
        return lax.fori_loop(0, 10, lambda _, v: A @ v + 1, x)

    for _ in range(10):
        x = m @ x + 1
    close(power(A, np.ones(SIZE)), x)

    @sj.jit
    def until(A, x):
        return lax.while_loop(lambda v: snp.sum(v) < 1000.0, lambda v: v + A @ v + 1, x)

    x = np.zeros(SIZE)
    while x.sum() < 1000:
        x = x + m @ x + 1
    close(until(A, np.zeros(SIZE)), x)
    chosen = sj.jit(lambda p, A: lax.cond(p, lambda A: A * 2, lambda A: A - A, A))
    close(chosen(True, A), 2 * m.todense())


@program
def semirings_and_reductions():
    m = matrix()
    x = m.todense()
    close(snp.min(sj.array(m), axis=0), x.min(axis=0))
    close(snp.prod(sj.array(m) + 1, axis=1), (x + 1).prod(axis=1))
    assert (dense(snp.argmax(sj.array(m), axis=1)) == x.argmax(axis=1)).all()
    far, y = np.where(x != 0, x, np.inf), np.arange(float(SIZE))
    near = sj.einsum("ij,j->i", sj.array(far, format="csr", fill_value=np.inf), y, semiring="min_plus")
    close(near, (far + y).min(axis=1))


@program
def batches():
    m, xs = matrix(), np.random.default_rng(3).random((7, SIZE))
    close(sj.vmap(lambda A, x: A @ x, in_axes=(None, 0))(sj.array(m), xs), (m @ xs.T).T)


@program
def donation_and_reuse():
    f = sj.jit(lambda x, g: x - 0.5 * g, donate_argnums=0)
    for n in (10, 3000, 100_000):
        x, g = sj.array(np.ones(n), copy=True) + 1, np.arange(float(n))
        for k in range(4):
            x = f(x, g)
            close(x, 2 - 0.5 * (k + 1) * g)


def watched():
    """What of the computer is used from now on, by the names of `config.SKIPPABLE`, in a set that grows."""
    used = set()

    def watch(owner, name, key, counts=lambda *args: True):
        plain = getattr(owner, name)

        def watching(*args, **kwargs):
            if counts(*args):
                used.add(key)
            return plain(*args, **kwargs)

        setattr(owner, name, watching)

    watch(loader, "load", "loader")
    watch(entry, "_bind", "entry")
    watch(pool.Pool, "__init__", "futex")
    watch(allocator, "array", "mremap")
    watch(reuse.Recycled, "again", "recycling")
    watch(reuse.Own, "take", "recycling")
    watch(donation, "_references", "recycling")
    watch(compiler, "compile_text", "masks", lambda text, *_: "llvm.masked.store" in text or "llvm.masked.load" in text)
    watch(compiler, "compile_text", "gathers", lambda text, *_: "llvm.masked.gather" in text)
    watch(compiler, "compile_text", "fma", lambda text, *_: "llvm.arithmetic.fence" in text)
    return used


def main(names: list[str]) -> None:
    used, count = watched(), 0
    for threads, programs in ((1, PROGRAMS + SERIAL), (2, PROGRAMS)):
        config.update("num_threads", threads)
        config.update("parallel_work", 0 if threads > 1 else 1 << 17)
        for function in programs:
            if not names or function.__name__ in names:
                print(f"{function.__name__}, threads: {threads}", file=sys.stderr)
                function()
                count += 1
    print(f"{count} programs are right on {platform.system()} {platform.machine()}, with", *sorted(used))


if __name__ == "__main__":
    main(sys.argv[1:])
