"""Derivatives against central differences on stored values, and forward against reverse mode."""

from __future__ import annotations

import numpy as np

import sparsejax as sj
from sparsejax.core.array import Array
from sparsejax.formats import convert
from sparsejax.formats.storage import Storage
from sparsejax.lax import pattern

EPS = 1e-6


def array(rng, shape, form="dense", dtype="f8", density=0.5, low=0.3, high=1.7, signed=True, fill=0):
    """Random values away from zero: distinct ones, in random places where `form` is sparse."""
    values = rng.uniform(low, high, shape) * (rng.choice([-1, 1], shape) if signed else 1)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.uniform(low, high, shape)
    values = values.astype(dtype)
    if form == "dense":
        return sj.array(values)
    coords = np.array(np.nonzero(rng.random(shape) < density)).reshape(len(shape), -1)
    form = sj.formats.Format.parse(form, len(shape))
    made = Array(convert.from_coords(coords, values[tuple(coords)], shape, form, values.dtype.type(fill)))
    vals = made.storage.vals.copy()  # a dense level below a sparse one stores everything: no two entries shall tie
    own = pattern(made, bool).storage.vals & (vals == fill)
    vals[own] = rng.uniform(low, high, own.sum())
    return with_values(made, vals)


def with_values(x, vals):
    s = x.storage
    return Array(Storage(s.format, s.shape, s.fill_value, s.buffers, np.ascontiguousarray(vals, s.dtype)))


def direction(rng, x):
    """A random tangent of `x`: random stored values over fill 0."""
    ones = pattern(x, x.dtype).storage
    vals = rng.uniform(-1, 1, ones.vals.shape) * ones.vals
    if x.dtype.kind == "c":
        vals = vals + 1j * rng.uniform(-1, 1, ones.vals.shape) * ones.vals
    return with_values(Array(ones), vals)


def moved(x, t, step):
    """`x + step * t` over the buffers of `x`; positions that are not used keep the fill."""
    vals = x.storage.vals + step * t.storage.vals
    return with_values(x, vals)


def dense(x):
    return x.todense() if isinstance(x, Array) else np.asarray(x)


def stored(x):
    """The values at stored entries; zero at others (the fill is constant)."""
    return x.todense() if x.format.is_dense else np.where(pattern(x, bool).todense(), x.todense(), 0)


def directional(f, args, ts):
    """The derivative of dense results along `ts`, by central differences. Entries that are not stored do not move."""
    up = f(*(moved(x, t, EPS) for x, t in zip(args, ts, strict=True)))
    down = f(*(moved(x, t, -EPS) for x, t in zip(args, ts, strict=True)))
    with np.errstate(invalid="ignore"):
        made = (stored(up) - stored(down)) / (2 * EPS)
    return made


def same_buffers(x, y):
    """Whether two arrays are over the same index buffers."""
    pairs = zip(x.storage.buffers, y.storage.buffers, strict=True)
    return all(np.shares_memory(a, b) or a.size == 0 for xs, ys in pairs for a, b in zip(xs, ys, strict=True))


def check(rng, f, *args, second=False, tol=1e-6):
    """Forward mode against differences, reverse mode against forward mode, types of results; second derivatives by nesting."""
    ts = [direction(rng, x) for x in args]
    out, tangent = sj.jvp(f, args, ts)
    np.testing.assert_allclose(dense(out), dense(f(*args)), rtol=1e-12, equal_nan=True)
    assert tangent.format == out.format and tangent.dtype == out.dtype and tangent.fill_value == 0
    wanted = directional(f, args, ts)
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(dense(tangent), wanted, rtol=tol * 50, atol=tol * scale)
    primal, pull = sj.vjp(f, *args)
    ct = direction(rng, primal)
    cts = pull(ct)
    left = (dense(ct) * dense(tangent)).sum()
    right = sum((dense(c) * dense(t)).sum() for c, t in zip(cts, ts, strict=True))
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9 * scale)
    for x, c in zip(args, cts, strict=True):
        assert c.format == x.format and c.dtype == x.dtype and c.shape == x.shape and c.fill_value == 0
        assert x.format.is_dense or same_buffers(x, c)
    if second:
        staged = sj.jit(lambda ct, *xs: sj.vjp(f, *xs)[1](ct))(ct, *args)
        for c, s in zip(cts, staged, strict=True):
            np.testing.assert_allclose(dense(s), dense(c), rtol=1e-10, atol=1e-12 * scale)
        _, linear = sj.linearize(f, *args)
        np.testing.assert_allclose(dense(linear(*ts)), dense(tangent), rtol=1e-12, atol=1e-14 * scale)
        for k in range(len(args)):
            check(rng, lambda *xs, k=k: sj.vjp(f, *xs)[1](ct)[k], *args, tol=tol * 10)
