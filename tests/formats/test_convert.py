import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ordering, passes, selection, structural, validate
from sparsejax.jit.runtime.passes import conversion_passes, conversions
from tests import rotation
from tests.formats import strategies

pytestmark = pytest.mark.rotating(20)


@settings(max_examples=rotation.examples(400), deadline=None)
@given(st.data())
def test_any_format_to_any_other(data):
    storage, array = data.draw(strategies.storages())
    other = data.draw(strategies.formats(array.ndim))
    made = convert.convert(storage, other)
    for s in (storage, made):
        validate.validate(s)
        np.testing.assert_array_equal(convert.to_dense(s), array)


@settings(max_examples=rotation.examples(200), deadline=None)
@given(st.data())
def test_stored_zeros_and_duplicates(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    n = data.draw(st.integers(0, 20))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    coords = np.stack([rng.integers(0, k, n) for k in shape])
    vals = rng.integers(-2, 3, n).astype(float)
    form = data.draw(strategies.formats(len(shape)))
    made = convert.from_coords(coords, vals, shape, form, 0)
    validate.validate(made)
    want = np.zeros(shape)
    np.add.at(want, tuple(coords), vals)
    np.testing.assert_array_equal(convert.to_dense(made), want)


@settings(max_examples=rotation.examples(200), deadline=None)
@given(st.data())
def test_reshape_and_transpose(data):
    storage, array = data.draw(strategies.storages(4))
    axes = data.draw(st.permutations(range(array.ndim)))
    turned = structural.transpose(storage, axes)
    validate.validate(turned)
    np.testing.assert_array_equal(convert.to_dense(turned), array.transpose(axes))
    flat = structural.reshape(storage, (array.size,), Format.parse("coo", 1))
    validate.validate(flat)
    np.testing.assert_array_equal(convert.to_dense(flat), array.reshape(-1))
    back = structural.reshape(flat, array.shape, data.draw(strategies.formats(array.ndim)))
    np.testing.assert_array_equal(convert.to_dense(back), array)


def test_huge_extents_cost_nothing():
    n = 2**40
    coords = np.array([[5, 1, n - 1], [n - 1, 7, 0]])
    made = convert.from_coords(coords, np.ones(3), (n, n), Format.parse("dcsr", 2), 0)
    validate.validate(made)
    turned = convert.convert(made, Format.parse("dcsc", 2))
    validate.validate(turned)
    assert turned.nbytes < 1000
    with pytest.raises(FormatError, match="positions"):
        convert.convert(made, Format.parse("csr", 2))


def test_nan_fill_counts_as_fill():
    made = convert.from_dense(np.array([np.nan, 1.0, np.nan]), Format.parse("coo", 1), np.nan)
    assert made.nnz == 1


@pytest.mark.rotating(6)
@pytest.mark.parametrize("fill", [0.0, -1.0, np.nan])
@pytest.mark.parametrize("layout", ["C", "F", "strided"])
@pytest.mark.parametrize(
    "name",
    ["csr", "csc", "coo", "(q,q)@(1,0)", "(d,q)", "(d,n)", "dcsr", "(d,d,c)", "(d,d,c)@(2,0,1)", "(d,c,c)", "(q,q,q)"],
)
def test_dense_arrays_in_any_layout_are_listed(name, layout, fill):
    """Few elements and many; what is stored is what differs, in order, with the same bits."""
    rng = np.random.default_rng(1)
    form = Format.parse(name, name.split("@")[0].count(",") + 1 if "(" in name else 2)
    ndim = form.ndim
    for shape in ((5, 7, 3)[:ndim], (90, 80, 3)[:ndim], (0, 4, 2)[:ndim], (1, 5000, 1)[:ndim]):
        x = rng.choice([0.0, -0.0, -1.0, np.nan, 2.5], shape)
        x = np.asfortranarray(x) if layout == "F" else np.repeat(x, 2, axis=0)[::2] if layout == "strided" else x
        made = convert.from_dense(x, form, fill)
        validate.validate(made)
        places = np.nonzero(~np.isnan(x) if np.isnan(fill) else x != fill)
        expected = convert.from_coords(np.stack(places), x[places], shape, form, fill)
        assert made.vals.tobytes() == expected.vals.tobytes()
        for ours, theirs in zip(made.buffers, expected.buffers, strict=True):
            for own, other in zip(ours, theirs, strict=True):
                assert own.dtype == other.dtype
                np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("name", ["dense", "csr", "csc", "coo", "dcsr", "dcsc", "(d,q)@(1,0)", "(c,n)@(0,1)"])
def test_names_round_trip(name):
    assert Format.parse(str(Format.parse(name, 2)), 2) == Format.parse(name, 2)


@pytest.mark.parametrize(
    ("text", "ndim", "message"),
    [
        ("csr", 3, "for matrices"),
        ("nope", 2, "unknown format"),
        ("(d,z)", 2, "cannot read"),
        ("(d,c)@(0,0)", 2, "permutation"),
    ],
)
def test_bad_names(text, ndim, message):
    with pytest.raises(FormatError, match=message):
        Format.parse(text, ndim)


@settings(max_examples=rotation.examples(200), deadline=None)
@given(st.data())
def test_every_road_through_the_counting_passes(data):
    """Small arrays on the roads of large ones: compiled passes, digits, heads looked at first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "MANY", data.draw(st.sampled_from([0, 4096])))
        patch.setattr(conversion_passes, "SPREAD", data.draw(st.sampled_from([0, 4])))
        patch.setattr(ordering, "HEAD", data.draw(st.sampled_from([1, 4096])))
        patch.setattr(convert, "_planned", data.draw(st.sampled_from([None, conversions.converted])))
        storage, array = data.draw(strategies.storages(4))
        for _ in range(2):
            storage = convert.convert(storage, data.draw(strategies.formats(array.ndim)))
            validate.validate(storage)
            np.testing.assert_array_equal(convert.to_dense(storage), array)
        if array.ndim:
            axis, form = data.draw(st.integers(0, array.ndim - 1)), data.draw(strategies.formats(array.ndim))
            joined = selection.concatenate([storage] * 3, axis, form)
            validate.validate(joined)
            np.testing.assert_array_equal(convert.to_dense(joined), np.concatenate([array] * 3, axis))


@pytest.mark.parametrize("extents", [(300, 200), (2**40, 5), (7, 2**33, 2**20), (70_000, 3)])
@pytest.mark.parametrize("size", [0, 1, 1000, 50_000])
def test_sort_order_is_the_stable_order(extents, size):
    rng = np.random.default_rng(0)
    keys = [rng.choice(rng.integers(0, n, 500), size) if size else np.zeros(0, np.int64) for n in extents]
    order = ordering.sort_order(keys, extents)
    if order is None:
        assert ordering.is_sorted(keys)
    else:
        np.testing.assert_array_equal(order, np.lexsort(keys[::-1]))
    ordered = keys if order is None else [k[order] for k in keys]
    assert ordering.is_sorted(ordered) and ordering.sort_order(ordered, extents) is None


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f4", "c16"])
def test_large_matrices_turn(dtype):
    rng = np.random.default_rng(0)
    coords = np.stack([rng.integers(0, 3000, 60_000), rng.integers(0, 2000, 60_000)])
    csr = convert.from_coords(coords, np.ones(60_000, dtype), (3000, 2000), Format.parse("csr", 2), 0)
    csc = convert.convert(csr, Format.parse("csc", 2))
    for storage in (csr, csc):
        validate.validate(storage)
    np.testing.assert_array_equal(convert.to_dense(csc), convert.to_dense(csr))
    back = convert.convert(csc, csr.format)
    np.testing.assert_array_equal(back.buffers[1][1], csr.buffers[1][1])
    assert back.vals.dtype == csr.vals.dtype


def test_results_never_share_the_values_given():
    vals = np.ones(2)
    made = convert.from_coords(np.array([[0, 1]]), vals, (2,), Format.parse("coo", 1), 0)
    assert not np.shares_memory(made.vals, vals) and vals.flags.writeable


@pytest.mark.parametrize("combine", [np.maximum, np.multiply, np.logical_or])
def test_duplicates_are_combined_as_asked(combine):
    coords = np.array([[1, 0, 1, 1], [0, 2, 0, 0]])
    made = convert.from_coords(coords, np.array([2, 7, 5, 3]), (2, 3), Format.parse("csr", 2), 0, combine)
    assert made.vals.tolist() == [combine.reduce([7]), combine.reduce([2, 5, 3])]
    scalar = convert.from_coords(np.empty((0, 3), int), np.array([2, 5, 3]), (), Format(()), 0, combine)
    assert scalar.vals.tolist() == [combine.reduce([2, 5, 3])]
