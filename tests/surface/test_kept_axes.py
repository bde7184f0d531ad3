"""Reductions that keep their axes, traced, beside NumPy's: results begin at the identity of the operator, whatever axes of extent one they have."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

KINDS = ("sum", "prod", "min", "max", "any", "all")
X = np.arange(1.0, 25.0).reshape(3, 4, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_every_operator(kind):
    for form, axis in itertools.product(("dense", "csf", "(c,d,c)@(2,0,1)"), (0, 1, 2, (0, 2), None)):
        a = sj.array(X, format=form, fill_value=None if form == "dense" else 1.0)
        made = sj.jit(lambda a, axis=axis: getattr(snp, kind)(a, axis=axis, keepdims=True))(a)
        np.testing.assert_array_equal(
            made.todense(), getattr(np, kind)(X, axis=axis, keepdims=True), err_msg=f"{form} {axis}"
        )


@pytest.mark.parametrize("kind", KINDS)
def test_new_axes_of_extent_one(kind):
    """Before, between and behind, of rows that are reduced."""
    for place in (0, 1, 2):
        made = sj.jit(lambda a, place=place: snp.expand_dims(getattr(snp, kind)(a, axis=1), place))(X)
        np.testing.assert_array_equal(made.todense(), np.expand_dims(getattr(np, kind)(X, axis=1), place))


@pytest.mark.parametrize("kind", ["sum", "prod", "min", "max"])
def test_methods_begin_where_they_are_told(kind):
    for form in ("dense", "csf"):
        a = sj.array(X, format=form)
        wanted = getattr(X, kind)(axis=1, initial=3.0, where=X > 5)
        np.testing.assert_allclose(getattr(a, kind)(axis=1, initial=3.0, where=a > 5).todense(), wanted, rtol=1e-12)
        np.testing.assert_allclose(getattr(a, kind)(initial=30.0).todense(), getattr(X, kind)(initial=30.0), rtol=1e-12)
    with pytest.raises(TypeError, match="other"):
        getattr(sj.array(X), kind)(other=1)
