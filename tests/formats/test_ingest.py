"""What comes in: whose memory it is, which fills are values, and every SciPy class, sound or damaged."""

import random

import numpy as np
import pytest
import scipy.sparse as sp

from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest, scipy_io, validate

# ---------------------------------------------------------------------------------------------------------- ownership


def unchanged_by(storage, source):
    """Whether writing to `source` leaves the array as it was (because writing fails, or does not reach it)."""
    before = np.array(convert.to_dense(storage))
    try:
        source.flat[0] = 77
    except ValueError as error:
        assert "read-only" in str(error)
    return np.array_equal(convert.to_dense(storage), before)


def as_array_of(array):
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return array

    return Wrapped()


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(6.0),
        lambda: np.arange(6.0).reshape(2, 3),  # a view: its base is frozen with it
        lambda: np.arange(6.0).reshape(2, 3).T,
        lambda: np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        lambda: np.arange(24.0).reshape(2, 3, 4).transpose(0, 2, 1),
        lambda: np.arange(6.0)[::-1],
        lambda: np.arange(6.0)[::2],
        lambda: np.arange(6.0)[1:3],
        lambda: np.array(5.0),
        lambda: np.matrix([[1.0, 2.0]]),
        lambda: np.frombuffer(bytearray(32)),
        lambda: np.arange(3, dtype=">i8"),
        lambda: np.zeros((0, 3)),
    ],
)
def test_numpy_sources_cannot_change_the_array(make, copy):
    source = make()
    storage = ingest.as_storage(source, copy=copy)
    validate.validate(storage)
    np.testing.assert_array_equal(convert.to_dense(storage), source)
    if source.size:
        assert unchanged_by(storage, source)


def test_memory_of_other_owners_is_copied(tmp_path):
    mapped = np.memmap(tmp_path / "x", float, "w+", shape=(4,))
    assert unchanged_by(ingest.as_storage(mapped), mapped)
    inner = np.arange(3.0)
    assert unchanged_by(ingest.as_storage(as_array_of(inner)), inner)
    inner[1] = 5  # and it stays writeable


def test_a_part_is_copied_and_the_whole_stays_writeable():
    whole = np.zeros((3, 3))
    row = ingest.as_storage(whole[0])
    whole[0] = 1
    assert not convert.to_dense(row).any()
    part = whole[1]
    assert np.shares_memory(ingest.as_storage(part, copy=False).vals, whole)
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 2


def test_whole_sources_are_shared():
    for source in (np.arange(6.0), np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 3)))):
        storage = ingest.as_storage(source)
        assert np.shares_memory(storage.vals, source)
        assert not source.flags.writeable
        assert np.shares_memory(ingest.as_storage(source, copy=False).vals, source)
        assert not np.shares_memory(ingest.as_storage(source, copy=True).vals, source)


def test_scipy_buffers_that_are_parts_or_views():
    for data in (np.arange(1.0, 9)[:3], np.arange(1.0, 4).reshape(3, 1).reshape(3)):
        for form in ("csr", "csc", "coo"):
            made = sp.eye_array(3, format=form)
            made.data = data.copy()[:3]
            assert unchanged_by(ingest.as_storage(made), made.data)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ([1, 2], {}),
        (3.0, {}),
        (np.arange(8.0)[::2], {}),
        (np.arange(3), {"dtype": "f4"}),
        (np.eye(2), {"format": "csr"}),
        (np.asfortranarray(np.ones((2, 3))), {"format": "dense"}),
        (sp.csr_array(np.eye(2)), {"format": "csc"}),
        (sp.bsr_array((np.ones((2, 1, 1)), np.array([1, 0]), np.array([0, 2])), shape=(1, 2)), {}),
        (sp.dok_array(np.eye(2)), {}),
        (sp.csr_array((np.ones(2), np.array([1, 0], np.int32), np.array([0, 2])), shape=(1, 2)), {}),
        ((np.ones(2), np.array([[1, 0]], np.int32)), {}),
        ((np.ones(2), [[0, 1]]), {}),
    ],
)
def test_copy_false_refuses_what_needs_a_copy(source, options):
    with pytest.raises(ValueError, match="copy=None"):
        ingest.as_storage(source, copy=False, **options)


def test_copy_false_shares_scipy_arrays():
    for form in ("csr", "csc", "coo"):
        made = sp.random_array((20, 30), density=0.2, format=form)
        made.sum_duplicates()
        storage = ingest.as_storage(made, copy=False)
        assert np.shares_memory(storage.vals, made.data)


def test_masked_arrays_are_refused():
    with pytest.raises(FormatError, match="filled"):
        ingest.as_storage(np.ma.masked_array([1.0, 2.0], [True, False]))


# -------------------------------------------------------------------------------------------------------------- fills


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("i8", 1.5),
        ("i8", np.nan),
        ("u1", -1),
        ("i1", 300),
        ("f8", 1j),
        ("f4", 1e300),
        ("?", 2),
        ("f8", "a"),
        ("f8", [0]),
    ],
)
def test_fills_that_are_no_values(dtype, fill):
    with pytest.raises(FormatError, match="fill_value"):
        ingest.as_storage(sp.csr_array(np.eye(2, dtype=dtype)), fill_value=fill)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("i8", True),
        ("i8", 2.0),
        ("f4", 0.1),
        ("f8", np.inf),
        ("f4", np.nan),
        ("c8", 1j),
        ("c16", np.nan),
        ("f8", 2 + 0j),
    ],
)
def test_fills_that_are(dtype, fill):
    storage = ingest.as_storage(np.eye(2, dtype=dtype), format="csr", fill_value=fill)
    validate.validate(storage)
    np.testing.assert_array_equal(convert.to_dense(storage), np.eye(2, dtype=dtype))


# -------------------------------------------------------------------------------------------------------------- SciPy

CLASSES = ("csr", "csc", "coo", "bsr", "dia", "dok", "lil")


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_and_dtype(name, dtype):
    rng = np.random.default_rng(0)
    dense = (rng.integers(0, 5, (6, 8)) * (rng.random((6, 8)) < 0.4)).astype(dtype)
    for shape in ((6, 8), (0, 8), (6, 0), (1, 1)):
        part = dense[: shape[0], : shape[1]]
        for kind in (sp.coo_array, sp.coo_matrix):
            if name == "bsr" and 0 in shape:
                continue
            storage = ingest.as_storage(kind(part).asformat(name))
            validate.validate(storage)
            assert storage.dtype == part.dtype
            np.testing.assert_array_equal(convert.to_dense(storage), part)


def test_vectors_and_more_dimensions():
    x = np.array([0.0, 1, 0, 2])
    for made in (sp.csr_array(x), sp.coo_array(x), sp.dok_array(x)):
        np.testing.assert_array_equal(convert.to_dense(ingest.as_storage(made)), x)
    cube = np.arange(24).reshape(2, 3, 4) % 3
    storage = ingest.as_storage(sp.coo_array(cube))
    np.testing.assert_array_equal(convert.to_dense(storage), cube)
    np.testing.assert_array_equal(scipy_io.to_scipy(storage).toarray(), cube)


def changed(name, **buffers):
    made = sp.csr_array(np.array([[1.0, 0, 2], [0, 0, 3], [4, 5, 0]])).asformat(name)
    for attribute, value in buffers.items():
        setattr(made, attribute, value)
    return made


def edited(name, edit):
    made = changed(name)
    edit(made)
    return made


def vector(**buffers):
    made = sp.csr_array(np.array([0.0, 1, 0, 2]))
    for attribute, value in buffers.items():
        setattr(made, attribute, value)
    return made


DAMAGED = {
    "csr data of two dimensions": (lambda: changed("csr", data=np.ones((5, 1))), "one-dimensional"),
    "csr data missing": (lambda: changed("csr", data=None), "one-dimensional"),
    "csr indices missing": (lambda: changed("csr", indices=None), "integer"),
    "csr beyond 2^63": (lambda: changed("csr", indices=np.array([0, 2**63 + 1, 0, 0, 0], np.uint64)), "position 1"),
    "csc decreasing": (lambda: changed("csc", indptr=np.array([0, 3, 2, 5])), "decreases at position 2"),
    "coo axis missing": (lambda: changed("coo", coords=(np.zeros(5, int),)), "1 axes"),
    "coo short": (lambda: changed("coo", data=np.ones(3)), "5 entries, but data has 3"),
    "dia data short": (lambda: changed("dia", data=np.ones((1, 3))), "one per offset"),
    "dia data flat": (lambda: changed("dia", data=np.ones(3)), "one per offset"),
    "dia repeated": (lambda: changed("dia", offsets=np.zeros(5, np.int32)), "repeats"),
    "dia floats": (lambda: changed("dia", offsets=np.arange(5.0)), "integers"),
    "lil negative": (lambda: edited("lil", lambda m: m.rows[0].__setitem__(0, -1)), "negative"),
    "lil out of bounds": (lambda: edited("lil", lambda m: m.rows[0].__setitem__(0, 9)), "out of bounds"),
    "lil long row": (lambda: edited("lil", lambda m: m.rows[0].append(1)), "row 0 .* 3 columns, but 2 values"),
    "lil no list": (lambda: edited("lil", lambda m: m.rows.__setitem__(1, 5)), r"rows\[1\]"),
    "lil rows missing": (lambda: edited("lil", lambda m: setattr(m, "rows", m.rows[:2])), "3 lists"),
    "lil text": (lambda: edited("lil", lambda m: m.data[0].__setitem__(0, "x")), "dtype float64"),
    "lil float column": (lambda: edited("lil", lambda m: m.rows[0].__setitem__(0, 0.5)), "integers"),
    "dok out of bounds": (lambda: edited("dok", lambda m: m._dict.__setitem__((9, 9), 1.0)), "out of bounds"),
    "dok negative": (lambda: edited("dok", lambda m: m._dict.__setitem__((-1, 0), 1.0)), "negative"),
    "dok key": (lambda: edited("dok", lambda m: m._dict.__setitem__(5, 1.0)), "key"),
    "dok text": (lambda: edited("dok", lambda m: m._dict.__setitem__((1, 1), "x")), "dtype float64"),
    "vector out of bounds": (lambda: vector(indices=np.array([1, 9 * 10**8], np.int32)), "out of bounds"),
    "vector past the end": (lambda: vector(indptr=np.array([0, 9 * 10**8], np.int32)), "past the 2 entries"),
    "bsr flat": (lambda: changed("bsr", data=np.ones(3)), "blocks"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_scipy_arrays_are_named(name):
    make, message = DAMAGED[name]
    with pytest.raises(FormatError, match=message):
        ingest.as_storage(make())


def test_dia_offsets_that_lie_outside_hold_nothing():
    made = changed("dia")
    far = np.array([-(2**31) + 1, -100, 0, 100, 2**31 - 1], np.int32)
    made.offsets = far
    np.testing.assert_array_equal(convert.to_dense(ingest.as_storage(made)), np.diag(made.data[2]))


def test_random_damage_is_found_or_harmless():
    """Numbers changed anywhere in any class: FormatError, or a sound array."""
    rng, found = random.Random(2), 0
    for _ in range(600):
        name = rng.choice(["csr", "csc", "coo", "bsr", "dia"])
        made = sp.random_array((6, 8), density=0.4, format=name, random_state=np.random.default_rng(rng.randrange(100)))
        if name == "coo":
            buffers = [np.array(c) for c in made.coords]
            made.coords = tuple(buffers)
        else:
            attribute = rng.choice(["indices", "indptr", "data"] if name != "dia" else ["offsets", "data"])
            buffers = [np.array(getattr(made, attribute))]
            if attribute == "data":
                buffers = [buffers[0][: rng.randrange(len(buffers[0]))]]
            setattr(made, attribute, buffers[0])
        for buffer in buffers:
            if buffer.dtype.kind == "i":
                buffer[rng.randrange(len(buffer))] = rng.choice([-1, 3, 2**31 - 1, -(2**31), 10**6])
        try:
            storage = ingest.as_storage(made, copy=True)
        except FormatError as error:
            found += 1
            assert name in str(error) or "coords" in str(error) or "data" in str(error)
        else:
            validate.validate(storage)
            convert.to_dense(storage)
    assert found > 300


# -------------------------------------------------------------------------------------------------------- coordinates


@pytest.mark.parametrize(
    ("pair", "shape", "message"),
    [
        ((np.ones(2), [[0, -1]]), None, "negative at position 1"),
        ((np.ones(2), [[0, 5]]), (3,), "out of bounds at position 1"),
        ((np.ones(2), [[0.5, 1.0]]), None, "integer"),
        ((np.ones(3), [[0, 1]]), None, "2 entries, but data has 3"),
        ((np.ones(1), [[0]]), (2, 2), "1 axes"),
        ((np.ones(0), np.empty((2, 0), int)), (-1, 2), "extent -1"),
        ((np.ones(1), [[0]]), (2**70,), "2\\^63"),
        ((np.ones(1), [[0]]), (1.5,), "integers"),
    ],
)
def test_bad_pairs(pair, shape, message):
    with pytest.raises(FormatError, match=message):
        ingest.as_storage(pair, shape=shape)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u4", "i8", "u8"])
def test_pairs_with_any_integers(dtype):
    coords = np.array([[2, 0, 2, 1], [3, 1, 3, 0]], dtype)
    storage = ingest.as_storage((np.array([1.0, 2, 3, 4]), coords), format="csr")
    np.testing.assert_array_equal(convert.to_dense(storage), [[0, 2, 0, 0], [4, 0, 0, 0], [0, 0, 0, 4]])


def test_duplicates_are_summed_in_the_dtype_asked_for():
    storage = ingest.as_storage((np.array([200, 100], np.uint8), [[0, 0]]), dtype=np.int32)
    assert storage.vals.tolist() == [300]


def test_huge_matrices_leave_for_scipy_as_coo():
    made = convert.from_coords(np.array([[5], [2**40 - 1]]), np.ones(1), (2**40, 2**40), Format.parse("dcsr", 2), 0.0)
    out = scipy_io.to_scipy(made)
    assert out.format == "coo"
    assert [int(c[0]) for c in out.coords] == [5, 2**40 - 1]
    back = ingest.as_storage(out)
    assert back.nbytes < 200
    assert scipy_io.to_scipy(back).shape == (2**40, 2**40)


@pytest.mark.parametrize("name", ["csr", "csc", "coo"])
def test_scipy_views_cannot_be_thawed(name):
    storage = ingest.as_storage(np.eye(3), format=name)
    out = scipy_io.to_scipy(storage)
    assert np.shares_memory(out.data, storage.vals)
    with pytest.raises(ValueError, match="WRITEABLE"):
        out.data.flags.writeable = True
