"""Arrays that are transposed at once have the types and entries that a program gives, whatever the shapes were before."""

import itertools

import numpy as np
import pytest

import sparsejax as sj

FORMATS = ["dense", "(d,d)@(1,0)", "csr", "csc", "coo", "dcsr", "ell", "bsr:2x3", "dia"]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "?", "c16"])
@pytest.mark.parametrize("form", FORMATS)
def test_types_are_those_of_a_program(form, dtype):
    rng = np.random.default_rng(1)
    for shape in ((4, 6), (6, 4), (4, 6), (0, 3), (1, 1), (5, 2)):
        dense = (rng.random(shape) < 0.5).astype(dtype)
        x = sj.array(dense, format=form)
        made = x.T
        assert made.aval == sj.eval_shape(lambda x: x.T, x).aval and made.aval == sj.jit(lambda x: x.T)(x).aval
        assert made.aval.kind == sj.array(dense.T, format=made.format).aval.kind
        np.testing.assert_array_equal(made.todense(), dense.T)
        assert not any(b.flags.writeable for level in made.storage.buffers for b in level)
        assert made.T.aval == x.aval and made.T.T.aval == made.aval


def test_axes_are_told_apart():
    rng = np.random.default_rng(2)
    for shape in ((2, 3, 4), (4, 2, 3), (3, 3, 2)):
        dense = rng.random(shape)
        for form in "dense", "csf", "(d,c,c)@(1,2,0)":
            x = sj.array(dense, format=form)
            for axes in itertools.permutations(range(3)):
                made = sj.numpy.transpose(x, axes)
                assert made.aval == sj.eval_shape(lambda x, axes=axes: sj.numpy.transpose(x, axes), x).aval
                np.testing.assert_array_equal(made.todense(), dense.transpose(axes))
    with pytest.raises(ValueError, match="permutation"):
        sj.numpy.transpose(x, (0, 0, 1))


def test_fills_are_told_apart():
    for fill in 0.0, -0.0, 2.0, np.nan:
        x = sj.numpy.full((3, 4), fill).asformat("csr")
        assert x.T.aval == sj.eval_shape(lambda x: x.T, x).aval
        np.testing.assert_array_equal(x.T.todense(), np.full((4, 3), fill))


def test_the_array_of_the_caller_is_not_kept():
    """NumPy's arrays are viewed for one call, and stay writable."""
    values = np.arange(6.0).reshape(2, 3)
    made = sj.numpy.transpose(values)
    values[0, 0] = 7
    assert values.flags.writeable and made.todense()[0, 0] == 0
