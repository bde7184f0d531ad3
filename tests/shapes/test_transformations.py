"""Transformations of programs over named extents: what is printed names them, and one trace serves all."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax


def powers(A, x):
    return lax.fori_loop(0, 3, lambda k, y: y + A @ x, A @ x)


def counted(A, x):
    """As many rounds as there are columns."""
    return lax.fori_loop(0, A.shape[1], lambda k, y: y + A @ x, A @ x)


def running(A, x):
    return lax.scan(lambda y, row: (y + row.sum(), y * 2), 0.0, (A @ x)[:, None])[1]


def doubled(A, x):
    return lax.while_loop(lambda y: y.sum() < 100, lambda y: y * 2 + 1, abs(A @ x))


def chosen(A, x):
    return lax.cond(x.sum() > 0, lambda y: y, lambda y: -y, A @ x)


def derived(A, x):
    return sj.grad(lambda x: ((A @ x) ** 2).sum())(x)


def moved(A, x):
    return sj.jvp(lambda x: snp.sin(A @ x), (x,), (x,))[1]


def mapped(A, x):
    return sj.vmap(lambda row: (row * x).sum())(A)


def nested(A, x):
    return sj.jit(lambda x: A @ x + A.shape[0])(x)


def folded(A, x):
    """The gradient of a loop over rows."""
    return sj.grad(lambda x: lax.scan(lambda y, row: (y * 0.5 + (row * x).sum(), None), 0.0, A)[0])(x)


def repeated(A, x):
    """The gradient of a loop of as many rounds as there are columns."""
    return sj.grad(lambda x: lax.fori_loop(0, A.shape[1], lambda k, y: y * 0.5 + (A @ x).sum(), 0.0))(x)


def rows(A, x):
    """A loop over each row."""
    return sj.vmap(lambda row: lax.scan(lambda y, a: (y * 0.5 + a, None), 0.0, row * x)[0])(A)


def backwards(A, x):
    return lax.scan(lambda y, row: (y + row.sum(), y), 0.0, A, reverse=True)[1]


PROGRAMS = {
    f.__name__: f
    for f in (
        *(powers, counted, running, doubled, chosen, derived, moved),
        *(mapped, nested, folded, repeated, rows, backwards),
    )
}
RESULTS = {
    "powers": lambda A, x: 4 * (A @ x),
    "counted": lambda A, x: (1 + len(x)) * (A @ x),
    "running": lambda A, x: 2 * np.concatenate([[0.0], np.cumsum(A @ x)[:-1]]),
    "derived": lambda A, x: 2 * A.T @ (A @ x),
    "moved": lambda A, x: np.cos(A @ x) * (A @ x),
    "mapped": lambda A, x: A @ x,
    "nested": lambda A, x: A @ x + len(A),
    "chosen": lambda A, x: A @ x if x.sum() > 0 else -(A @ x),
}


def doubling(A, x):
    y = abs(A @ x)
    while y.sum() < 100:
        y = y * 2 + 1
    return y


def halved(values):
    """The sum of values, of which each has half of the weight of the next one."""
    return sum(value * 0.5 ** (len(values) - 1 - k) for k, value in enumerate(values))


RESULTS |= {
    "doubled": doubling,
    "folded": lambda A, x: halved(A),
    "repeated": lambda A, x: halved(np.repeat(A.sum(axis=0)[None], len(x), 0)),
    "rows": lambda A, x: halved((A * x).T),
    "backwards": lambda A, x: A.sum() - np.cumsum(A.sum(axis=1)),
}
WIDTH = dict.fromkeys(("derived", "folded", "repeated"), "m")
"""The extent of results, where it is not that of rows."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_types_that_name_extents_are_printed(name):
    A, x = sj.ShapeDtypeStruct(("n", "m"), "f8", format="csr"), sj.ShapeDtypeStruct(("m",), "f8")
    extent, program = WIDTH.get(name, "n"), PROGRAMS[name]
    jaxpr = str(sj.make_jaxpr(program)(A, x))
    assert "f64[n:d,m:c]" in jaxpr
    assert f"f64[{extent}:d]" in jaxpr
    assert str(sj.eval_shape(program, A, x).shape) == f"({extent},)"
    assert f"f64[{extent}:d]" in sj.jit(program).lower(A, x).as_text("jaxpr")


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_trace_serves_all_extents(name):
    traced, rng = 0, np.random.default_rng(0)

    def program(A, x):
        nonlocal traced
        traced += 1
        return PROGRAMS[name](A, x)

    run = sj.jit(program, dynamic={"A": ("n", "m"), "x": ("m",)})
    for n, m in [(5, 4), (9, 7), (30, 11), (6, 40)]:
        dense, x = rng.standard_normal((n, m)) * (rng.random((n, m)) < 0.5), rng.standard_normal(m)
        found = run(sj.array(dense, format="csr"), x)
        np.testing.assert_allclose(found.todense(), RESULTS[name](dense, x), rtol=1e-12, atol=1e-12)
    assert traced == 1
