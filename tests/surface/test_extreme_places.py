"""Where extremes along an axis are first, beside NumPy: ties, NaN, lines without entries and full ones, fills above and below all entries."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

FORMATS = ("csr", "csc", "coo", "dcsr", "dcsc", "bsr:2x2", "dia", "ell", "lil", "bitmap")
DTYPES = ("float64", "float32", "int64", "int8", "uint8", "bool", "complex128")
NAMES = ("argmax", "argmin")


def values(rng, dtype, count):
    if dtype == "bool":
        return rng.random(count) < 0.5
    made = rng.integers(0 if dtype.startswith("u") else -2, 3, count).astype(dtype)
    if dtype.startswith(("float", "complex")):
        made[rng.random(count) < 0.1] = np.nan
        made[rng.random(count) < 0.1] = -np.inf
    return made if not dtype.startswith("complex") else made + 1j * rng.integers(-1, 2, count)


def drawn(rng, dtype, shape, fill):
    """A dense array and where its entries are, some of which hold the fill: some lines have none, some all."""
    stored = rng.random(shape) < rng.choice([0.1, 0.4, 0.9])
    stored[rng.random(shape[0]) < 0.2] = False
    stored[rng.random(shape[0]) < 0.2] = True
    stored[:, rng.random(shape[1]) < 0.2] = True
    stored[:, rng.random(shape[1]) < 0.1] = False
    whole = np.full(shape, fill, dtype)
    whole[stored] = values(rng, dtype, int(stored.sum()))
    return whole, stored


def entered(whole, stored, fill, form):
    """The array that stores these entries."""
    ours = sj.array((whole[stored], np.nonzero(stored)), shape=whole.shape, format="coo", fill_value=fill)
    return ours.asformat(form)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMATS)
def test_places_of_extremes_are_numpys(form, dtype):
    rng = np.random.default_rng([FORMATS.index(form), DTYPES.index(dtype)])
    fills = {"bool": (False, True), "uint8": (0, 1, 255)}.get(dtype, (0, 1, -5, 7))
    fills += (np.nan, -np.inf, np.inf) if dtype.startswith("float") else ()
    for fill in fills:
        if fill != 0 and form == "dia":
            continue
        whole, stored = drawn(rng, dtype, (9, 7), fill)
        A = entered(whole, stored, fill, form)
        for name in NAMES:
            for axis in (0, 1, -1):
                wanted = getattr(np, name)(whole, axis=axis)
                assert np.array_equal(getattr(snp, name)(A, axis=axis).todense(), wanted), (fill, name, axis)
                found = sj.jit(lambda A, name=name, axis=axis: getattr(snp, name)(A, axis=axis, keepdims=True))(A)
                assert np.array_equal(found.todense(), np.expand_dims(wanted, axis)), (fill, name, axis)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_places_of_extremes_of_three_dimensions(axis, name):
    rng = np.random.default_rng(axis)
    for fill in (0.0, 2.0, -9.0, np.nan):
        whole, stored = drawn(rng, "float64", (6, 20), fill)
        whole, stored = whole.reshape(6, 4, 5), stored.reshape(6, 4, 5)
        A = entered(whole, stored, fill, "coo")
        wanted = getattr(np, name)(whole, axis=axis)
        for form in ("coo", "csf"):
            assert np.array_equal(getattr(snp, name)(A.asformat(form), axis=axis).todense(), wanted)


@pytest.mark.parametrize(
    "way", ["fusion=apart", "fusion=together", "fusion=again", "depth=innermost", "depth=outermost"]
)
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_places_of_extremes_by_other_plans(form, way):
    rng = np.random.default_rng(7)
    for fill in (0.0, 1.0, np.nan):
        whole, stored = drawn(rng, "float64", (9, 7), fill)
        A = entered(whole, stored, fill, form)
        with sj.config.using(choose=way):
            for axis in (0, 1):
                found = sj.jit(lambda A, axis=axis: snp.argmax(A, axis=axis))(A)
                assert np.array_equal(found.todense(), np.argmax(whole, axis=axis))


@pytest.mark.parametrize("name", NAMES)
def test_new_shapes_of_places_of_extremes(name):
    rng = np.random.default_rng(3)
    step = sj.jit(lambda A: getattr(snp, name)(A, axis=0) + getattr(snp, name)(A, axis=1).sum())
    for k in range(12):
        whole, stored = drawn(rng, "float64", (3 + k, 4 + 2 * k), 0.0)
        wanted = getattr(np, name)(whole, axis=0) + getattr(np, name)(whole, axis=1).sum()
        assert np.array_equal(step(entered(whole, stored, 0.0, "csr")).todense(), wanted)


@pytest.mark.parametrize("axis", [0, 1])
def test_places_of_extremes_along_long_axes(axis):
    shape = (3, 2**40) if axis else (2**40, 3)
    at = np.array([[0, 0, 1, 1], [5, 2**39, 0, 2**40 - 1]])[:: 1 if axis else -1]
    A = sj.array((np.array([1.0, 2.0, -3.0, -3.0]), tuple(at)), shape=shape, format="coo")
    assert np.array_equal(snp.argmax(A, axis=axis).todense(), [2**39, 1, 0])
    assert np.array_equal(snp.argmin(A, axis=axis).todense(), [0, 0, 0])


def test_lines_of_any_length_after_short_ones():
    """A program for many extents lists no coordinates of a line that is too long for it: it guards what it makes."""
    rng = np.random.default_rng(0)
    for extent in (100, 1000, 700, 2**31 - 1, 2**40, 900):
        rows, columns = np.unique([rng.integers(0, 20, 200), rng.integers(0, extent, 200)], axis=1)
        values = rng.random(len(rows))
        A = sj.array((values, (rows, columns)), shape=(20, extent), format="coo")
        expected = np.zeros(20, np.int64)
        for row in range(20):
            here = np.flatnonzero(rows == row)
            if len(here):
                expected[row] = columns[here[values[here].argmax()]]
        np.testing.assert_array_equal(snp.argmax(A, axis=1).todense(), expected)
