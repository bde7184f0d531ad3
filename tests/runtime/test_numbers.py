"""Numbers that change from call to call: one kernel, and no memory that grows."""

import operator

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core import primitive
from sparsejax.jit.backend import compiler

pytestmark = pytest.mark.rotating(16)

OPERATIONS = {
    "add": operator.add,
    "radd": lambda a, t: t + a,
    "subtract": operator.sub,
    "greater": operator.gt,
    "power": operator.pow,
    "maximum": snp.maximum,
    "where": lambda a, t: snp.where(a, t, a),
}


def dense(a):
    return a.todense() if isinstance(a, sj.Array) else a


@pytest.mark.parametrize("form", ["csr", "coo", "dense"])
@pytest.mark.parametrize("name", list(OPERATIONS))
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64])
def test_one_kernel_for_all_numbers(form, name, dtype, monkeypatch):
    monkeypatch.setattr(
        primitive, "REMEMBERED", 1 << 20
    )  # a full cache drops its oldest, at any of the calls that are counted
    if name in ("greater", "maximum") and dtype == np.complex128:
        pytest.skip("no order")
    x = np.array([[0, 1.5, 0, 4], [2, 0, 0, -3]]).astype(dtype)
    a = sj.array(x, format=form)
    operation = OPERATIONS[name]
    numpy = {"maximum": np.maximum, "where": lambda a, t: np.where(a, np.asarray(t, dtype), a)}.get(name, operation)
    start = 0
    for k in range(2, 9):
        t = k if dtype == np.int64 else k + 0.125
        got = operation(a, t)
        with np.errstate(all="ignore"):
            want = numpy(x, t)
        np.testing.assert_allclose(dense(got), want, rtol=1e-6)
        np.testing.assert_allclose(dense(got + got), want + want, rtol=1e-6)
        if k == 5:  # powers up to the fourth are multiplications, each a kernel of its own
            start = compiler.compile_count()
    assert compiler.compile_count() == start


def test_caches_are_bounded(monkeypatch):
    monkeypatch.setattr(primitive, "REMEMBERED", 40)
    a = sj.array(np.eye(3), format="csr")
    before = compiler.compile_count()
    for k in range(100):
        b = a + (k + 0.25)
        assert float(b.fill_value) == k + 0.25
        assert float((b * 2.5).todense()[0, 0]) == 2.5 * (k + 1.25)
    assert len(primitive._eager) <= 41 and len(primitive._lifts) <= 41
    assert compiler.compile_count() <= before + 4


def test_kernels_are_forgotten(monkeypatch):
    monkeypatch.setattr(compiler, "_KEPT", 3)
    a = sj.array(np.arange(4.0))
    for k in range(2, 8):
        got = sj.jit(lambda x, k=k: x * float(k) + 0.5)(a)
        np.testing.assert_array_equal(got, np.arange(4.0) * k + 0.5)
    assert len(compiler._recent) <= 3


@pytest.mark.parametrize("form", ["csr", "coo", "banded", "bitmap", "hash", "rle", "ell", "groupcoo:2", "dia", "lil"])
def test_whole_reductions_count_entries_without_a_kernel(form):
    x = np.array([[0, -2.0, 0], [-3, -4, 0], [0, 0, -7]])
    for data in (x, np.full((3, 3), -1.5), np.eye(3) * 0):
        a = sj.array(data, format=form)
        for reduced, want in ((a.max(), data.max()), (a.min(), data.min()), (a.prod(), data.prod())):
            assert reduced.todense() == want
        jaxpr = sj.make_jaxpr(lambda a: a.max())(a).jaxpr
        names = [eqn.primitive.name for eqn in jaxpr.eqns]
        assert "entries" in names and "pattern" not in names
