"""Dense arrays outside `jit`: parts that are written, and elements that are moved, as NumPy does it; memory is never shared with what may change."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core import again

RNG = np.random.default_rng(3)
KEYS = [
    2,
    -1,
    slice(1, None),
    slice(None, None, -2),
    slice(4, 1),
    ...,
    (1, 2),
    (-1, slice(None)),
    (slice(None), 0),
    (slice(0, 3, 2), slice(1, 4)),
    (..., 1),
    (0, ..., slice(None, None, 3)),
]


def sample(dtype, shape=(5, 6)):
    made = (RNG.normal(size=shape) * 10).astype(dtype)
    return made if made.dtype.kind != "c" else made + 1j


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "?", "c16"])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_parts(key, dtype, order):
    given = np.asarray(sample(dtype), order=order)
    x = sj.array(given)
    part = given[key]
    for values in (given.dtype.type(3), 1, sample(dtype, part.shape), sample("i4", part.shape[-1:]) % 2 > 0):
        for method, change in (("set", lambda old, new: new), ("add", lambda old, new: old + new)):
            new = np.asarray(values).astype(dtype)
            expected = given.copy()
            expected[key] = change(expected[key], new)
            for there in (values, snp.asarray(values) if isinstance(values, np.ndarray) else values):
                found = getattr(x.at[key], method)(there)
                assert found.dtype == dtype and found.format == x.format
                np.testing.assert_array_equal(found.todense(), expected)
                traced = sj.jit(lambda x, v, k=key, m=method: getattr(x.at[k], m)(v))(x, there)
                np.testing.assert_array_equal(traced.todense(), expected)
    np.testing.assert_array_equal(x.todense(), given)


def test_what_is_written_shares_no_memory():
    given, values = sample("f8"), sample("f8", (6,))
    x = sj.array(given)
    row = sj.array(values)
    found = x.at[1].set(row)
    for other in (x, row):
        assert not np.may_share_memory(found.data, other.data)
    assert not found.data.flags.writeable
    held = [x.at[k, 0].set(float(k)) for k in range(5)]
    for k, made in enumerate(held):
        expected = given.copy()
        expected[k, 0] = k
        np.testing.assert_array_equal(made.todense(), expected)
    itself = x.at[1:].set(x[:-1])
    np.testing.assert_array_equal(itself.todense(), np.vstack([given[:1], given[:-1]]))


def test_zeros_elsewhere_keep_their_sign():
    x = sj.array(np.array([-0.0, -0.0, 1.0]))
    found = x.at[2].add(1.0).todense()
    assert np.signbit(found).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("key", "values", "error"),
    [
        (9, 1.0, IndexError),
        ((0, 9), 1.0, IndexError),
        (0, np.ones(4), ValueError),
        (slice(None), 1j, TypeError),
        ((0, 0, 0), 1.0, IndexError),
    ],
)
def test_refused(key, values, error):
    x = sj.array(sample("f8"))
    with pytest.raises(error):
        x.at[key].set(values)
    with pytest.raises(OverflowError):
        sj.array(np.zeros(3, np.int8)).at[0].set(300)


MOVED = {
    "roll": lambda np, x: np.roll(x, 2),
    "roll along an axis": lambda np, x: np.roll(x, -7, 1),
    "roll along both": lambda np, x: np.roll(x, (1, 2), (0, 1)),
    "roll twice along one": lambda np, x: np.roll(x, (1, 2), (0, 0)),
    "repeat": lambda np, x: np.repeat(x, 3),
    "repeat rows": lambda np, x: np.repeat(x, 2, 0),
    "repeat never": lambda np, x: np.repeat(x, 0, 1),
    "tile": lambda np, x: np.tile(x, 2),
    "tile twice": lambda np, x: np.tile(x, (2, 1, 3)),
    "tile once": lambda np, x: np.tile(x, 1),
    "tile never": lambda np, x: np.tile(x, (0, 2)),
    "concatenate": lambda np, x: np.concatenate([x, x[:2], x]),
    "beside": lambda np, x: np.concatenate([x, x[:, :0], x[:, 1:3]], 1),
    "stack": lambda np, x: np.stack([x, x * 2], -1),
    "vstack": lambda np, x: np.vstack([x[0], x]),
    "hstack": lambda np, x: np.hstack([x[0], x[-1]]),
    "column_stack": lambda np, x: np.column_stack([x, x[:, 0]]),
    "diff": lambda np, x: np.diff(x, 2, 0),
    "clip": lambda np, x: np.clip(x, 1, 4),
}


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", MOVED)
def test_moved(name, order, dtype):
    if dtype == "?" and name in ("clip", "stack", "diff"):
        pytest.skip("NumPy's result has another dtype than its operands")
    function = MOVED[name]
    for shape in ((5, 6), (2, 3), (1, 8), (3, 0)):
        if 0 in shape and name in ("vstack", "hstack", "column_stack", "beside"):
            continue
        given = np.asarray(sample(dtype, shape), order=order)
        x = sj.array(given)
        expected, found = function(np, given), function(snp, x)
        assert found.dtype == expected.dtype and (found is x or found.format == sj.array(expected.copy()).format)
        np.testing.assert_array_equal(found.todense(), expected)
        assert not found.data.flags.writeable
        np.testing.assert_array_equal(sj.jit(lambda x: function(snp, x))(x).todense(), expected)
        np.testing.assert_array_equal(x.todense(), given)


def test_moved_without_dimensions():
    x = sj.array(3.0)
    for found in (snp.tile(x, ()), snp.roll(x, (), ()), sj.jit(lambda x: snp.tile(x, ()))(x)):
        assert found.shape == () and found.item() == 3
    assert snp.repeat(x, 2).shape == snp.tile(x, 2).shape == (2,)


@pytest.mark.parametrize("count", [2**62, 2**70, 10**30])
def test_more_copies_than_there_is_room_for(count):
    x = sj.array(np.arange(6).reshape(2, 3))
    for function in (snp.repeat, snp.tile):
        with pytest.raises((ValueError, TypeError, MemoryError)) as found:
            function(x, count)
        assert "negative dimensions" not in str(found.value)


@pytest.mark.parametrize("method", ["set", "add", "subtract", "multiply", "divide", "min", "max"])
def test_index_arrays_where_programs_are_not_kept(method):
    """Where plans are forced, `jit` is off, or another thread learns a call, programs are what they are written as."""
    x, index, values = sj.array(np.arange(1, 5.0)), np.array([1, 2]), np.array([2.0, 4.0])
    expected = getattr(x.at[index], method)(values).todense()
    ways = [
        sj.config.using(choose="passes=numpy"),
        sj.config.using(choose="passes=compiled"),
        sj.config.using(skip={"symbolic_shapes"}),
        sj.disable_jit(),
    ]
    for way in ways:
        with way:
            np.testing.assert_array_equal(getattr(x.at[index], method)(values).todense(), expected)
    again._learning.append(None)
    try:
        np.testing.assert_array_equal(getattr(x.at[index], method)(values).todense(), expected)
    finally:
        again._learning.pop()
