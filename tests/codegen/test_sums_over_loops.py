"""Sums over several loops to one number: lanes that all rounds share keep what rounding loses, in every shape of loop, for any number of threads."""

import itertools
import math

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config

rng = np.random.default_rng(0)
PROGRAMS = ("ij,ik,jk->", "ij,ik->", "ij,j->", "ik,jk->", "ikj,k->", "ij->")


def operands(spec, dtype, form, width):
    extent = {"i": 37, "j": 29, "k": width}
    made = []
    for number, labels in enumerate(spec.split("->")[0].split(",")):
        shape = tuple(extent[x] for x in labels)
        x = rng.normal(size=shape) * 10.0 ** rng.integers(-4, 5, shape)
        if dtype == "c16":
            x = x + 1j * rng.normal(size=shape)
        made.append(
            np.where(rng.random(shape) < 0.3, x, 0).astype(dtype)
            if number == 0 and form != "dense"
            else x.astype(dtype)
        )
    return made


def exact(spec, arrays):
    """The sum with one rounding, and that of sizes."""
    labels = spec.split("->")[0]
    terms = np.einsum(f"{labels}->{''.join(sorted(set(labels) - {','}))}", *arrays).reshape(-1)
    parts = [math.fsum(terms.real), math.fsum(terms.imag) if terms.dtype.kind == "c" else 0.0]
    return complex(*parts), float(np.abs(terms).sum())


@pytest.mark.parametrize(
    "choose", ["auto", "tail=scalar", "chunks=each,alone=chunked", "range=steps", "loop_order=dearest"]
)
@pytest.mark.parametrize("spec", PROGRAMS)
def test_exact(spec, choose):
    for dtype, form, width in itertools.product(
        ("f8", "c16"), ("dense", "csr" if spec[:3] != "ikj" else "csf"), (3, 8, 70)
    ):
        if spec == "ij,j->" and dtype == "c16":
            continue
        arrays = operands(spec, dtype, form, width)
        given = [sj.array(arrays[0], format=form), *arrays[1:]]
        with config.using(choose=choose, num_threads=2, parallel_work=0):
            found = complex(sj.jit(lambda *xs: sj.einsum(spec, *xs))(*given).item())
        wanted, size = exact(spec, arrays)
        # products are rounded, their sum is not: none of the roundings of 10,000 additions shows
        assert abs(found - wanted) <= 4e-16 * size, (dtype, form, width)


def test_two_loops_share_lanes():
    """A number that several loops add to, read twice."""
    x, y = rng.normal(size=(40, 70)), rng.normal(size=(50, 33))

    def program(x, y):
        total = (x * x).sum() + (y * y).sum()
        return total, total * total

    one, other = sj.jit(program)(x, y)
    wanted = math.fsum((x * x).reshape(-1)) + math.fsum((y * y).reshape(-1))
    np.testing.assert_allclose([one.item(), other.item()], [wanted, wanted**2], rtol=1e-15)


def test_threads_do_not_matter():
    x = sj.array(np.where(rng.random((300, 200)) < 0.2, rng.normal(size=(300, 200)), 0), format="csr")
    u, v = rng.normal(size=(300, 8)), rng.normal(size=(200, 8))
    found = set()
    for threads in (1, 2, 3):
        with config.using(num_threads=threads, parallel_work=1):
            found.add(sj.jit(lambda x, u, v: sj.einsum("ij,ik,jk->", x, u, v))(x, u, v).item())
    assert len(found) == 1
