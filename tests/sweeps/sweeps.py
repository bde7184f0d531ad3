"""One cell of each sweep: an operation under a transformation, in a format and a dtype, against what it should be; AssertionError."""

from __future__ import annotations

import numpy as np

import sparsejax as sj
from tests.autodiff.checks import array, dense, direction, directional
from tests.sweeps.more_operations import OPERATIONS  # the table with all of its lines
from tests.vmap.programs import element

SIZE = 3
DENSE, SHARED, RAGGED = ("dense",), ("(d,c,d)@(1,2,0)", "(d,b,d)@(1,2,0)"), ("(d,d,c)", "(c,c,c)", "coo", "(d,d,e)")
BATCHES = (*DENSE, *SHARED, *RAGGED)


def operands(name, forms, dtype="f8", seed=5, shapes=None):
    """The operands of an operation in the given formats."""
    op = OPERATIONS[name]
    rng = np.random.default_rng(seed)
    made = []
    for k, form in enumerate(forms):
        shape = op.shape if shapes is None else shapes[k]
        if op.kind == "i":
            x = array(rng, shape, form, low=1, high=6, signed=op.signed).astype("i8")
        else:
            x = array(rng, shape, form, dtype, low=op.low, high=op.high, signed=op.signed)
        made.append(x)
    return made


def leaves(result):
    return sj.tree_util.tree_leaves(result)


def batch(name, forms, axes, out=0, dtype="f8"):
    """vmap of an operation against the stacked loop."""
    op = OPERATIONS[name]
    shapes = []
    for axis in axes:
        shape = list(op.shape)
        if axis is not None:
            shape.insert(axis, SIZE)
        shapes.append(tuple(shape))
    with np.errstate(all="ignore"):
        args = operands(name, forms, dtype, shapes=shapes)
        got = leaves(sj.vmap(op.function, in_axes=tuple(axes), out_axes=out)(*args))
        parts = [leaves(op.function(*(element(x, a, k) for x, a in zip(args, axes)))) for k in range(SIZE)]
    assert len(got) == len(parts[0])
    for n, g in enumerate(got):
        want = np.stack([dense(p[n]) for p in parts], out)
        assert (g.shape, g.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(dense(g), want, rtol=1e-9, atol=1e-9)


def flat(f):
    """The first leaf of the result of `f`."""
    return lambda *xs: leaves(f(*xs))[0]


def derivatives(name, forms, dtype="f8", second=True):
    """Derivatives of an operation against central differences, forward against reverse mode, and the same of its gradient."""
    op = OPERATIONS[name]
    rng = np.random.default_rng(7)
    with np.errstate(all="ignore"):
        args = operands(name, forms, dtype)
        _derivative(rng, flat(op.function), args, second and op.twice)


def _derivative(rng, f, args, second, tol=1e-6):
    ts = [direction(rng, x) for x in args]
    primal, pull = sj.vjp(f, *args)
    ct = direction(rng, primal)
    cts = pull(ct)
    for x, c in zip(args, cts):
        assert (c.format, c.dtype, c.shape, c.fill_value) == (x.format, x.dtype, x.shape, 0), (
            f"type {c.aval} of {x.aval}"
        )
    wanted = np.where(np.isfinite(dense(primal)), directional(f, args, ts), 0)  # nothing moves what is infinite
    finite = np.isfinite(wanted)
    scale = max(1.0, float(np.abs(wanted[finite]).max(initial=0)))
    right = sum((dense(c) * dense(t)).sum() for c, t in zip(cts, ts))
    try:
        out, tangent = sj.jvp(f, args, ts)
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        left = (dense(ct) * wanted).sum()
        np.testing.assert_allclose(np.real(left), np.real(right), rtol=1e-4, atol=1e-4 * scale, err_msg="reverse")
        return
    assert tangent.format == out.format and tangent.dtype == out.dtype and tangent.fill_value == 0
    np.testing.assert_allclose(dense(tangent), wanted, rtol=tol * 50, atol=tol * scale, err_msg="forward")
    left = (dense(ct) * dense(tangent)).sum()
    np.testing.assert_allclose(np.real(left), np.real(right), rtol=1e-9, atol=1e-9 * scale, err_msg="reverse")
    if second:
        _derivative(rng, lambda *xs: sum_of(sj.vjp(f, *xs)[1](ct), ts), args, False, tol * 10)


def sum_of(cts, ts):
    """The real derivative along `ts`, from cotangents."""
    total = 0.0
    for c, t in zip(cts, ts):
        total = total + (c * t).sum()
    return total


def narrow(name, forms, dtype):
    """Derivatives in single precision against double precision."""
    op = OPERATIONS[name]
    wide = {"f4": "f8", "c8": "c16"}[dtype]
    rng = np.random.default_rng(7)
    f = flat(op.function)
    with np.errstate(all="ignore"):
        small = operands(name, forms, dtype)
        large = [x.astype(wide) for x in small]
        primal, pull = sj.vjp(f, *small)
        ct = direction(rng, primal)
        reference, wide_pull = sj.vjp(f, *large)
        got, want = pull(ct), wide_pull(ct.astype(reference.dtype))
    for x, c, w in zip(small, got, want):
        assert (c.format, c.dtype, c.shape, c.fill_value) == (x.format, x.dtype, x.shape, 0), (
            f"type {c.aval} of {x.aval}"
        )
        np.testing.assert_allclose(dense(c), dense(w), rtol=2e-4, atol=2e-4)
