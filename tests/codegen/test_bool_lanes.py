"""Booleans in SIMD lanes: what vector loops read and write as bytes, in every width and rest; results are written in the order of
their storage."""

import re

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

PROGRAMS = [
    lambda xp, x, b, c: x < 0.5,
    lambda xp, x, b, c: xp.where(b, x, -x),
    lambda xp, x, b, c: xp.where(b, c, x > 0.3),
    lambda xp, x, b, c: ~(b ^ c) & (x < 0.7),
    lambda xp, x, b, c: xp.equal(b, c),
    lambda xp, x, b, c: b.astype("f8") + c,
    lambda xp, x, b, c: b * x,
    lambda xp, x, b, c: (x * 3).astype("i2").astype("?"),
    lambda xp, x, b, c: xp.where(b[0], c, x),
    lambda xp, x, b, c: (b | c).any(axis=1),
    lambda xp, x, b, c: (b * x).sum(axis=0),
    lambda xp, x, b, c: b.sum(axis=1),
]


@pytest.mark.parametrize("extent", [1, 7, 33, 130])
def test_booleans(extent):
    rng = np.random.default_rng(extent)
    x, b, c = rng.random((3, extent)), rng.random((3, extent)) < 0.5, rng.random((3, extent)) < 0.5
    made = sj.jit(lambda *given: [f(snp, *given) for f in PROGRAMS])(x, b, c)
    for got, function in zip(made, PROGRAMS, strict=True):
        want = function(np, x, b, c)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.todense(), want, rtol=1e-13)


def test_stored_booleans():
    rng = np.random.default_rng(0)
    d = rng.random((6, 90)) * (rng.random((6, 90)) < 0.4)
    for form in ("csr", "coo", "bitmap", "bsr:2x9"):
        a = sj.array(d, format=form)
        for function in (lambda a: a > 0.5, lambda a: (a > 0.5) & (a < 0.7), lambda a: (a > 0.5).astype("f4")):
            np.testing.assert_array_equal(sj.jit(function)(a).todense(), function(d))


def test_lanes_are_used():
    x, b = np.random.default_rng(0).random((200, 40)), np.ones((200, 40), bool)
    for function in (lambda x, b: x < 0.5, lambda x, b: snp.where(b, x, 0.0), lambda x, b: b.astype("f4")):
        assert "forall j (vector)" in sj.jit(function).lower(x, b).as_text("cin")


def test_outer_sums_are_written_in_the_order_of_storage():
    for n, m in ((300, 8), (8, 300)):
        text = sj.jit(lambda u, v: snp.sin(u[:, None] + v)).lower(np.ones(n), np.ones(m)).as_text("cin")
        assert re.match(r"forall i .*\n  forall j \(vector\)", text), text
