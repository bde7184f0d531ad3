"""Workspaces between two parts of a kernel start from zero unless their producer assigns all that is read of them: a sum over what is stored is not
assigned where nothing is, and the element would be that of the row before."""

import functools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

PROGRAMS = {
    "var": lambda xp, x, axis: xp.var(x, axis=axis, keepdims=True),
    "centred": lambda xp, x, axis: x - xp.sum(x, axis=axis, keepdims=True) / 4,
    "shares": lambda xp, x, axis: x / (1 + abs(xp.sum(x, axis=axis, keepdims=True))),
    "products": lambda xp, x, axis: xp.sum(xp.sum(x, axis=axis, keepdims=True) * (x + 1), axis=0),
    "largest": lambda xp, x, axis: x * 2 - xp.max(x, axis=axis, keepdims=True),
}
FORMATS = ["csf", "(c,c,c)@(0,2,1)", "(c,c,c)@(2,1,0)", "(d,c,c)@(1,2,0)", "coo"]


@pytest.mark.rotating(1)
@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_where_nothing_is_stored_sums_are_zero(name, form, axis):
    rng, function = np.random.default_rng(len(name) + 10 * axis), PROGRAMS[name]
    shape = (6, 5, 4)
    x = rng.integers(-3, 4, shape) * (rng.random(shape) < 0.4) * 1.0
    for d in range(3):  # some lines are empty, and their neighbours are not
        x[(slice(None),) * d + (rng.integers(shape[d]),)] *= rng.random(x.shape[:d] + x.shape[d + 1 :]) < 0.5
    A = sj.array(x, format=form)
    want = function(np, x, axis)
    np.testing.assert_allclose(
        np.asarray(sj.jit(lambda A: function(snp, A, axis))(A).todense()), want, rtol=1e-12, atol=1e-12
    )
    for batch in {0, 1, 2} - {axis}:
        kept = axis - (batch < axis)
        made = sj.vmap(functools.partial(function, snp, axis=kept), in_axes=batch)(A)
        want = np.stack([function(np, np.take(x, k, batch), kept) for k in range(shape[batch])])
        np.testing.assert_allclose(np.asarray(made.todense()), want, rtol=1e-12, atol=1e-12)
