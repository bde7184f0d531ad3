"""Reshape, transpose, refill and pattern where the ordinary cases end: huge groups, bad axes, other fills."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, structural, validate
from tests import rotation
from tests.formats import strategies

pytestmark = pytest.mark.rotating(20)


def moved(coords, old, new):
    """Coordinates under another shape, in Python integers."""
    out = []
    for entry in zip(*coords, strict=True):
        flat = 0
        for c, n in zip(entry, old, strict=True):
            flat = flat * n + int(c)
        digits = []
        for n in reversed(new):
            flat, digit = divmod(flat, n)
            digits.append(digit)
        out.append(tuple(reversed(digits)))
    return sorted(out)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((2**40, 2**40), (2**20, 2**60)),
        ((3**20, 2**40), (2**40, 3**20)),
        ((2**40, 2**40), (2**10, 2**30, 2**40)),
        ((2**62, 2, 2), (2, 2, 2**62)),
        ((2**31, 2**31), (2**62,)),
        ((7, 2**60, 5), (35, 2**60)),
    ],
)
def test_reshape_beyond_64_bits(old, new):
    rng = np.random.default_rng(0)
    coords = np.stack([rng.integers(0, n, 20) for n in old])
    coo = convert.from_coords(coords, np.arange(20.0) + 1, old, Format.parse("coo", len(old)), 0.0)
    made = structural.reshape(coo, new, Format.parse("csf", len(new)))
    validate.validate(made)
    found = sorted(map(tuple, convert.to_coords(made)[0].T.tolist()))
    assert found == moved(convert.to_coords(coo)[0], old, new)
    assert made.nbytes < 2000
    back = structural.reshape(made, old, coo.format)
    np.testing.assert_array_equal(convert.to_coords(back)[0], convert.to_coords(coo)[0])
    np.testing.assert_array_equal(back.vals, coo.vals)


def test_reshape_errors():
    made = convert.from_coords(np.array([[5], [7]]), np.ones(1), (2**40, 2**40), Format.parse("coo", 2), 0.0)
    with pytest.raises(FormatError, match="2\\^63"):
        structural.reshape(made, (2**80,), Format.parse("coo", 1))
    with pytest.raises(FormatError, match="sizes differ"):
        structural.reshape(made, (3,), Format.parse("coo", 1))
    with pytest.raises(FormatError, match="extent -1"):
        structural.reshape(made, (-1, -(2**80)), Format.parse("coo", 2))


@settings(max_examples=rotation.examples(100), deadline=None)
@given(st.data())
def test_groups_are_the_smallest(data):
    shape = data.draw(st.lists(st.integers(1, 6), max_size=5))
    other = data.draw(st.permutations(shape))
    for left, right in structural.groups(shape, other):
        assert math.prod(shape[k] for k in left) == math.prod(other[k] for k in right)
    covered = [k for left, _ in structural.groups(shape, other) for k in left]
    assert covered == list(range(len(shape)))


@pytest.mark.parametrize("axes", [(0, 0), (0,), (1, 2), (-1, 0)])
def test_transpose_wants_a_permutation(axes):
    made = convert.from_dense(np.eye(2), Format.parse("csr", 2), 0.0)
    with pytest.raises(FormatError, match="permutation"):
        structural.transpose(made, axes)


@settings(max_examples=rotation.examples(100), deadline=None)
@given(st.data())
def test_refill_and_pattern(data):
    storage, array = data.draw(strategies.storages(4))
    coords, _ = convert.to_coords(storage)
    stored = np.zeros(array.shape, bool)
    stored[tuple(coords)] = True
    fill = storage.dtype.type(1)
    np.testing.assert_array_equal(convert.to_dense(structural.refill(storage, fill)), np.where(stored, array, fill))
    ones = structural.pattern(storage, np.float32)
    validate.validate(ones)
    assert ones.dtype == np.float32
    np.testing.assert_array_equal(convert.to_dense(ones), stored)


SHAPES = [
    *(((24, 5), "csr"), ((24, 5), "coo"), ((6, 20), "csr"), ((6, 20), "(d,d)"), ((3, 2, 4, 5), "(d,d,d,c)")),
    *(((2, 3, 2, 2, 5), "(d,d,d,d,c)"), ((1, 24, 1, 5), "(d,d,d,c)"), ((6, 4, 5, 1), "(d,d,c,d)")),
    *(((6, 4, 1, 5), "(d,c,d,d)"), ((6, 1, 20), "(c,d,d)"), ((24, 5), "(d,c)@(1,0)"), ((12, 2, 5), "(d,d,c)")),
]


@pytest.mark.parametrize("name", ["(d,d,c)", "(d,c,d)", "(d,c,c)", "csf", "coo", "(c,d,d)", "(d,c,d)@(1,0,2)"])
def test_reshapes_of_dense_levels_share_buffers(name):
    """Where dense levels alone merge and split, nothing is moved; elsewhere the same entries are found."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random((6, 4, 5)) < 0.4, rng.random((6, 4, 5)), 0)
    given, kept = convert.from_dense(x, Format.parse(name, 3), 0.0), []
    for shape, form in SHAPES:
        made = structural.reshape(given, shape, Format.parse(form, len(shape)))
        validate.validate(made)
        np.testing.assert_array_equal(convert.to_dense(made), x.reshape(shape))
        if made.buffers[-1] and made.buffers[-1] is given.buffers[-1]:
            kept.append((shape, form))
    if name == "(d,d,c)":
        assert kept == [SHAPES[k] for k in (0, 4, 5, 11)]
