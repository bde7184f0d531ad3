"""Nothing malformed gets in, and nothing crashes: mutated buffers, mutated SciPy arrays."""

import random

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax.errors import FormatError
from sparsejax.formats import Dense, Format, convert, validate
from sparsejax.formats.storage import Storage
from tests.formats import strategies


def mutated(rng, storage):
    """A copy with one buffer damaged, or None when there is nothing to damage."""
    buffers = [[np.array(b) for b in level] for level in storage.buffers]
    places = [(lv, k) for lv, level in enumerate(buffers) for k in range(len(level))]
    if not places:
        return None
    level, k = rng.choice(places)
    old = buffers[level][k]
    kind = rng.choice(["shift", "negative", "huge", "short", "long", "dtype", "swap"])
    if kind == "short" and len(old):
        new = old[:-1].copy()
    elif kind == "long":
        new = np.append(old, old[-1:] if len(old) else [0]).astype(old.dtype)
    elif kind == "dtype":
        new = old.astype(np.float64)
    elif kind == "negative" and old.dtype == np.uint64:
        new = ~old
    elif len(old) == 0:
        return None
    else:
        new = old.copy()
        at = rng.randrange(len(old))
        new[at] = {"shift": new[at] + 1, "negative": -1, "huge": 2**30, "swap": new[-1 - at]}.get(kind, new[at] + 1)
    buffers[level][k] = new
    return Storage(storage.format, storage.shape, storage.fill_value, tuple(map(tuple, buffers)), storage.vals)


def test_damaged_buffers_are_found_or_harmless():
    rng = random.Random(0)
    nrng = np.random.default_rng(0)
    found = tried = 0
    while tried < 3000:
        shape = tuple(nrng.integers(1, 5, rng.randint(1, 4)))
        array = nrng.integers(0, 3, shape).astype(float)
        order = list(range(len(shape)))
        rng.shuffle(order)
        places = range(len(shape))
        levels = [rng.choice([lv for lv in strategies.LEVELS if strategies.allowed(lv, k, len(shape))]) for k in places]
        bad = mutated(rng, convert.from_dense(array, Format(levels, order), 0.0))
        if bad is None:
            continue
        tried += 1
        try:
            validate.validate(bad)
        except FormatError as error:
            found += 1
            assert any(word in str(error) for word in ("level", "vals")), error
        else:
            convert.to_dense(bad)  # what passes is a valid array
    assert found > 2000


ZERO = np.float64(0)


def csr(pos=(0, 2, 3, 3), crd=(1, 3, 0), vals=(1.0, 2.0, 3.0), shape=(3, 4), fill=ZERO):
    buffers = ((), (np.asarray(pos, np.int64), np.asarray(crd, np.int32)))
    return Storage(Format.parse("csr", 2), shape, fill, buffers, np.asarray(vals))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (csr(pos=(0, 2**63 - 1, -2, 3)), "decreases"),  # differences that wrap around look like growth
        (csr(pos=(0, 2, 3, 2**62)), "ends at"),
        (csr(crd=(1, -(2**31), 0)), "negative at position 1"),
        (csr(crd=(3, 1, 0)), "not sorted at position 1"),
        (csr(crd=(1, 1, 0)), "repeats a coordinate at position 1"),
        (csr(vals=(1.0, 2.0)), "vals has 2 entries"),
        (csr(vals=np.ones(6)[::2]), "not contiguous"),
        (csr(vals=np.ones((3, 1))), "one-dimensional"),
        (csr(vals=np.array([1, 2, None])), "dtype object"),
        (csr(vals=np.ones(3, "f2")), "dtype float16"),
        (csr(vals=np.ones(3, ">f8")), "dtype >f8"),
        (csr(fill=0), "the fill is 0"),
        (csr(fill=np.zeros(2)), "the fill is"),
        (csr(shape=(3, -4)), "extent -4"),
        (csr(shape=(3, 2**70)), "2\\^63"),
        (csr(shape=(3, 4.0)), "integers"),
        (csr(shape=(3,)), "1 dimensions"),
    ],
)
def test_each_fault_is_named(bad, message):
    with pytest.raises(FormatError, match=message):
        validate.validate(bad)


def broken_csr(**changes):
    made = sp.csr_array(np.array([[1.0, 0, 2], [0, 0, 3], [4, 5, 0]]))
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": np.array([0, 2, 9, 0, 1], np.int32)}, "out of bounds at position 2"),
        ({"indices": np.array([0, -2, 2, 0, 1], np.int32)}, "negative at position 1"),
        ({"indptr": np.array([0, 3, 2, 5], np.int32)}, "decreases at position 2"),
        ({"indptr": np.array([0, 2, 3, 50], np.int32)}, "past the 5 entries"),
        ({"indptr": np.array([1, 2, 3, 5], np.int32)}, "starts at 1"),
        ({"indptr": np.array([0, 2, 5], np.int32)}, "has 3 entries; it must have 4"),
        ({"indices": np.array([0.0, 1, 2, 0, 1])}, "integer arrays"),
    ],
)
def test_malformed_scipy_is_named(changes, message):
    with pytest.raises(FormatError, match=message):
        sj.array(broken_csr(**changes))


def test_unsorted_and_duplicate_scipy_is_canonicalised():
    made = sp.csr_array((np.arange(1.0, 6), np.array([2, 0, 0, 1, 1]), np.array([0, 3, 5])), shape=(2, 3))
    want = made.toarray()
    ours = sj.array(made)
    assert ours.nnz == 3
    np.testing.assert_array_equal(ours.todense(), want)


def test_random_scipy_damage_never_crashes():
    rng = random.Random(1)
    for _ in range(500):
        made = sp.random_array((6, 7), density=0.4, format=rng.choice(["csr", "csc", "coo", "bsr"]))
        name = rng.choice([n for n in ("indices", "indptr", "row", "col", "data") if hasattr(made, n)])
        if name in ("row", "col"):
            made.coords = tuple(np.array(c) for c in made.coords)
            made.coords[0][rng.randrange(len(made.coords[0]))] = rng.choice([-1, 10**6, 3])
        else:
            value = np.array(getattr(made, name))
            if name == "data":
                made.data = value[:-1]
            else:
                value[rng.randrange(len(value))] = rng.choice([-5, 10**8, 2])
                setattr(made, name, value)
        try:
            array = sj.array(made)
        except FormatError:
            continue
        validate.validate(array.storage)
        assert isinstance(array.format.levels[0], Dense) or array.nnz >= 0


def test_every_scipy_class_and_zero_copy():
    A = sp.random_array((6, 8), density=0.4, format="csr", random_state=np.random.default_rng(0))
    for name in ("csr", "csc", "coo", "bsr", "dia", "dok", "lil"):
        np.testing.assert_array_equal(sj.array(A.asformat(name)).todense(), A.toarray())
        np.testing.assert_array_equal(sj.array(sp.csr_matrix(A).asformat(name)).todense(), A.toarray())
    ours = sj.asarray(A)
    assert np.shares_memory(ours.storage.vals, A.data)
    assert np.shares_memory(ours.to_scipy().data, A.data)
    np.testing.assert_array_equal(ours.to_scipy().toarray(), A.toarray())


def test_sources_are_frozen_or_copied():
    x = np.arange(4.0)
    borrowed = sj.numpy.asarray(x)
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 9
    y = np.arange(4.0)
    copied = sj.array(y)
    y[0] = 9
    assert copied.todense()[0] == 0 and borrowed.todense()[0] == 0
    with pytest.raises(ValueError, match="copy"):
        sj.array(np.arange(8.0)[::2], copy=False)
    with pytest.raises(ValueError, match="read-only"):
        borrowed.todense()[0] = 1


def test_operands_of_a_call_are_not_frozen():
    x = np.arange(3.0)
    A = sj.array(np.eye(3), format="csr")
    assert (A @ x).todense().tolist() == [0, 1, 2]
    same = sj.jit(lambda x: x)(x)
    x[0] = 5
    assert same.todense()[0] == 0
