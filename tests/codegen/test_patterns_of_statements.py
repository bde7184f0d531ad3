"""Kernels of several statements whose operands share a pattern read them by position: as they would by coordinates, in every format."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.graph import shared_patterns
from tests import rotation

N = 12
FORMS = [
    "csr",
    "csc",
    "coo",
    "dcsr",
    "(c,d)",
    "(d,c,d)@(0,1,2)",
    "csf",
    "bitmap",
    "ell",
    "hash",
    "rle",
    "(d,b)",
    "(d,h)",
]
V = 0.5 + np.random.default_rng(1).random(N)

PROGRAMS = {
    "scaled by both sums": lambda A, B, C: (A * B).sum(1)[:, None] * C * (B * C).sum(1)[:, None],
    "softmax": lambda A, B, C: snp.exp(A - B) * B / (1 + (snp.exp(A - B) * B).sum(axis=1))[:, None] * C,
    "of another's sums": lambda A, B, C: A / (1 + (B * C).sum(1))[:, None] + B,
    "columns": lambda A, B, C: A * (B * (C * V).sum(1)[:, None]).sum(0),
    "twice": lambda A, B, C: (A * (A * B).sum(1)[:, None] * (A * B * C).sum(1)[:, None]).sum(1),
    "largest": lambda A, B, C: (A * B) * (C * (A * C).max(axis=1)[:, None]).max(axis=1)[:, None],
    "union": lambda A, B, C: (A + B) * (A - C).sum(1)[:, None] + C,
    "one number": lambda A, B, C: (A * C.sum(1)[:, None] * B).sum() * A * B,
}


def operands(form, seed):
    rng = np.random.default_rng(seed)
    ndim = 3 if form in ("csf", "(d,c,d)@(0,1,2)") else 2
    shape = (N,) * ndim
    dense = np.where(rng.random(shape) < 0.3, 0.25 + rng.random(shape), 0.0)
    A = sj.array(dense, format=form)
    return A, dense


@pytest.mark.parametrize(
    ("form", "name", "choose"), rotation.share(list(itertools.product(FORMS, PROGRAMS, range(6))), 11)
)
def test_statements(form, name, choose):
    """Of arrays that share buffers, or some of them, and of others over the same entries; with other plans chosen too."""
    A, a = operands(form, choose)
    over, b, c = snp.sin(A), np.sin(a), a * a
    apart = sj.array(c, format=form)
    if A.ndim == 3:
        program = lambda A, B, C: (A * B).sum(2)[:, :, None] * C * (B * C).sum((1, 2))[:, None, None]  # noqa: E731
    else:
        program = PROGRAMS[name]
    whole = program(*map(sj.array, (a, b, c)))
    jitted = sj.jit(program)
    with sj.config.using(choose="auto" if choose < 2 else f"random:{choose}"):
        for B, C in ((over, A * A), (over, apart), (sj.array(b, format=form), apart), (over, A * A)):
            made = jitted(A, B, C)
            np.testing.assert_allclose(made.todense(), whole.todense(), rtol=1e-10, atol=1e-13)


def test_read_by_position():
    """The sums of rows and what is made of them are one kernel, which walks one array."""
    A, _ = operands("csr", 0)
    B, C = snp.sin(A), A * A
    program = sj.jit(lambda A, B, C: A * (B * C).sum(1)[:, None] * B)
    seen = []
    known = shared_patterns.of_sizes

    def noted(step, families, sizes):
        made = known(step, families, sizes)
        seen.append((step.nest.nested, families, made))
        return made

    shared_patterns.of_sizes = noted
    try:
        made = program(A, B, C)
    finally:
        shared_patterns.of_sizes = known
    assert any(nested and families and made for nested, families, made in seen), seen
    a, b, c = (x.todense() for x in (A, B, C))
    np.testing.assert_allclose(made.todense(), a * (b * c).sum(1)[:, None] * b, rtol=1e-12)
