"""`Builder`: what it makes against NumPy's arrays, in every format and dtype, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import sparsejax as sj
from sparsejax.formats.validate import validate
from sparsejax.numpy import builder
from tests import rotation
from tests.sweeps.operations import FORMATS

SHAPE = (4, 5)
PLACES = st.tuples(st.integers(0, 3), st.integers(0, 4))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), PLACES, st.integers(0, 9)),
        st.tuples(st.just("add"), PLACES, st.integers(0, 9)),
        st.tuples(st.just("append"), st.lists(PLACES, max_size=4), st.integers(0, 9)),
        st.tuples(st.just("row"), st.integers(0, 3), st.lists(st.integers(0, 4), max_size=4)),
        st.tuples(st.just("finish"), st.sampled_from(FORMATS), st.just(0)),
    ),
    max_size=30,
)


def same(made, want, form):
    assert made.format == sj.formats.Format.parse(form, want.ndim) and made.dtype == want.dtype
    validate(made.storage)
    assert_array_equal(made.todense(), want)


@settings(max_examples=rotation.examples(150), deadline=None)
@given(STEPS, st.sampled_from(["f8", "f4", "i4", "c16"]), st.sampled_from(FORMATS), st.sampled_from([1, 3, 10**4]))
def test_any_sequence_of_writes(steps, dtype, form, waiting):
    before, builder.WAITING = builder.WAITING, waiting
    try:
        b, want, last = sj.Builder(SHAPE, dtype, format=form), np.zeros(SHAPE, dtype), np.zeros(SHAPE, dtype)
        for kind, where, what in steps:
            if kind == "set":
                b[where] = what
                want[where] = last[where] = what
            elif kind == "add":
                b[where] += what
                want[where] += what
                last[where] = what
            elif kind == "append":
                values = np.arange(what, what + len(where))
                b.append(values, np.array(where, int).reshape(-1, 2).T)
                for place, v in zip(where, values):
                    want[place] += v
                    last[place] = v
            elif kind == "row":
                b.append_row(where, what, 2)
                for j in what:
                    want[where, j] += 2
                    last[where, j] = 2
            else:
                same(b.finish(where), want, where)
        same(b.finish(), want, form)
        same(b.finish(duplicates="last"), last, form)
    finally:
        builder.WAITING = before


@pytest.mark.parametrize("form", ["coo", "csf", "(d,c,d)", "dense"])
def test_more_dimensions(form):
    rng = np.random.default_rng(0)
    coords, values = rng.integers(0, 6, (3, 500)), rng.integers(1, 5, 500).astype(float)
    b = sj.Builder((6, 6, 6), format=form)
    for k in range(0, 500, 60):
        b.append(sj.array(values[k : k + 60]), coords[:, k : k + 60])
    b[5, 5, -1] = 7
    want = np.zeros((6, 6, 6))
    np.add.at(want, tuple(coords), values)
    want[5, 5, 5] = 7
    same(b.finish(), want, form)
    line = sj.Builder(9, "i8", format="coo")
    line[3], line[np.array([1, -1])] = 2, 5
    line[3] += 1
    assert_array_equal(line.finish().todense(), [0, 5, 0, 3, 0, 0, 0, 0, 5])


def test_many_entries():
    rng = np.random.default_rng(0)
    I, J, V = rng.integers(0, 300, 40000), rng.integers(0, 200, 40000), rng.integers(0, 100, 40000)
    b, want = sj.Builder((300, 200), "i8"), np.zeros((300, 200), "i8")
    for i, j, v in zip(I.tolist(), J.tolist(), V.tolist()):
        b[i, j] += v
    np.add.at(want, (I, J), V)
    assert b.records == 40000
    same(b.finish(), want, "csr")
    b.append(V, (I, J))
    same(b.finish("csc"), 2 * want, "csc")
    b[I, J] = 3
    same(b.finish(), np.where(np.isin(np.arange(60000), I * 200 + J).reshape(300, 200), 3, 0), "csr")


def test_what_was_finished_stays():
    b = sj.Builder((2, 3))
    data = np.array([1.0, 2.0])
    b.append(data, ([0, 1], [1, 2]))
    first = b.finish()
    data[:] = 9
    b[0, 1] = 5.0
    assert_array_equal(first.todense(), [[0, 1, 0], [0, 0, 2]])
    assert_array_equal(b.finish().todense(), [[0, 5, 0], [0, 0, 2]])
    assert "records=3" in repr(b) and b.shape == (2, 3) and b.dtype == np.float64 and str(b.format) == "csr"
    b[0, 1] = 0.0
    assert b.finish().nnz == 2 and sj.prune(b.finish()).nnz == 1
    assert sj.Builder((2, 3)).finish().nnz == 0


def test_bools():
    b = sj.Builder((2, 2), bool, format="coo")
    b[0, 0] = b[1, 1] = True
    b[0, 0] += True
    b[1, 1] = False
    assert_array_equal(b.finish().todense(), [[True, False], [False, False]])
    b[1, 1], b[0, 1] = 2, 0.5
    b.append([0, 3], ([1, 1], [0, 1]))
    b[0, 0] = np.int8(0)
    assert_array_equal(b.finish().todense(), [[False, True], [False, True]])


@pytest.mark.parametrize(
    ("error", "text", "write"),
    [
        (IndexError, "coords 5 at position 1 .* axis 1 with size 3", lambda b: b.append([1, 2], ([0, 1], [0, 5]))),
        (IndexError, "coords -1 at position 0 .* axis 0", lambda b: b.append([1], ([-1], [0]))),
        (IndexError, "i=2 .* axis 0 with size 2", lambda b: b.append_row(2, [0], [1])),
        (IndexError, "columns 3 at position 0 .* axis 1", lambda b: b.append_row(0, [3], [1])),
        (IndexError, "key 3 .* axis 1", lambda b: b.__setitem__((0, 3), 1)),
        (IndexError, "key -3 .* axis 0", lambda b: b.__setitem__((-3, 0), 1)),
        (IndexError, "1 coordinates", lambda b: b.__setitem__(0, 1)),
        (IndexError, "broadcast", lambda b: b.__setitem__(([0, 1], [0, 1, 2]), 1)),
        (TypeError, "slice", lambda b: b.__setitem__((0, slice(None)), 1)),
        (TypeError, "axis 1", lambda b: b.__setitem__((0, 1.5), 1)),
        (TypeError, "same_kind", lambda b: b.append([1.5], ([0], [0]))),
        (TypeError, "same_kind", lambda b: b.__setitem__((0, 0), 1.5)),
        (TypeError, "same_kind", lambda b: b.append(["a"], ([0], [0]))),
        (OverflowError, "out of bounds", lambda b: b.__setitem__((0, 0), 300)),
        (ValueError, "values has shape", lambda b: b.append([1, 2, 3], ([0, 1], [0, 1]))),
        (ValueError, "axis 0, but 1 for axis 1", lambda b: b.append([1, 2], ([0, 1], [0]))),
        (ValueError, "one vector per axis", lambda b: b.append([1, 2], [[0, 1]])),
        (ValueError, "must be a vector", lambda b: b.append_row(0, 1, 1)),
        (TypeError, "integers", lambda b: b.append([1], ([0.5], [0]))),
        (ValueError, "values of shape", lambda b: b.__setitem__(([0, 1], [0, 1]), [1, 2, 3])),
        (TypeError, "cannot be read", lambda b: b.__setitem__((0, 0), b[0, 1].__iadd__(1))),
        (ValueError, "duplicates", lambda b: b.finish(duplicates="mean")),
        (sj.FormatError, "1 dimensions|2", lambda b: b.finish("(d,c,d)")),
    ],
)
def test_errors_leave_the_builder_as_it_was(error, text, write):
    b = sj.Builder((2, 3), "i1")
    b[1, 1] = 4
    with pytest.raises(error, match=text):
        write(b)
    assert b.records == 1
    assert_array_equal(b.finish().todense(), [[0, 0, 0], [0, 4, 0]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.float64])
def test_lists_of_integers_that_do_not_fit(dtype):
    wrong = [10**400] if dtype is np.float64 else [int(np.iinfo(dtype).max) + 1, int(np.iinfo(dtype).min) - 1]
    writes = [
        lambda b, v: b.append([1, v], ([0, 0], [0, 1])),
        lambda b, v: b.append((1, v), ([0, 0], [0, 1])),
        lambda b, v: b.append(v, ([0, 0], [0, 1])),
        lambda b, v: b.append_row(0, [0, 1], [1, v]),
        lambda b, v: b.append_row(0, np.array([0, 1]), [v, 1]),
        lambda b, v: b.append_row(0, [1], [v]),
        lambda b, v: b.append_row(0, [0, 1], v),
        lambda b, v: b.__setitem__((0, [0, 1]), [v, 1]),
        lambda b, v: b.__setitem__(([[0], [1]], [[0, 1]]), [[v, 1], [1, 1]]),
    ]
    for write in writes:
        b = sj.Builder((2, 2), dtype)
        b[1, 1] = 3
        for v in wrong:
            with pytest.raises(OverflowError):
                write(b, v)
        np.testing.assert_array_equal(b.finish().todense(), [[0, 0], [0, 3]])
        fits = 7 if dtype is np.float64 else int(np.iinfo(dtype).max)
        write(b, fits)
        assert int(b.finish().todense().max()) == int(dtype(fits))


def test_arrays_of_wider_integers_are_cast():
    b = sj.Builder((1, 2), np.int8)
    b.append_row(0, [0, 1], np.array([300, 1]))
    np.testing.assert_array_equal(b.finish().todense(), [[44, 1]])


def test_other_errors():
    with pytest.raises(ValueError, match="one dimension"):
        sj.Builder(())
    with pytest.raises(ValueError, match="matrices"):
        sj.Builder((2, 2, 2), format="coo").append_row(0, [0], [1])
    with pytest.raises(OverflowError):
        sj.Builder((2, 2))[0, 0] = 10**400
    with pytest.raises(sj.TracerArrayConversionError, match="outside jit"):
        sj.jit(lambda v: sj.Builder((2, 2)).append(v, ([0], [1])))(np.ones(1))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.complex128, np.bool_])
def test_random_keys_with_lists_that_may_be_empty(dtype):
    """As NumPy writes them, which has nothing to write where a list is empty."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        rows, columns = int(rng.integers(1, 5)), int(rng.integers(1, 9))
        b, wanted = sj.Builder((rows, columns), dtype), np.zeros((rows, columns), dtype)
        for _ in range(6):
            i, across = int(rng.integers(-rows, rows)), rng.integers(-columns, columns, rng.integers(0, 4)).tolist()
            values = np.ones(len(across), dtype) if rng.random() < 0.5 else dtype(1)
            key = ([i] * len(across), across) if rng.random() < 0.5 else (i, across)
            b[key] = values
            wanted[key] = values
        np.testing.assert_array_equal(b.finish().todense(), wanted)
    for key in ((0, np.zeros(0)), (0, [1.5]), (0, [True]), ([[]], "")):
        with pytest.raises(TypeError, match="must be an integer"):
            b[key] = 1
