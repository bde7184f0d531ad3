"""Arrays with one diagonal or without entries, in every format, against those made of coordinates."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.errors import FormatError
from sparsejax.formats import Format, Storage, convert, counting, structural
from sparsejax.formats.parts import diagonals, located

FORMATS = (
    "csr",
    "csc",
    "coo",
    "dcsr",
    "dcsc",
    "csf",
    "lil",
    "ell",
    "dia",
    "bitmap",
    "hash",
    "rle",
    "bsr:2x2",
    "dense",
    "(q,q)@(1,0)",
    "groupcoo:4",
)


def same(made, wanted):
    assert (made.format, made.shape, made.dtype) == (wanted.format, wanted.shape, wanted.dtype)
    assert made.fill_value.tobytes() == wanted.fill_value.tobytes()
    for found, expected in zip(made.buffers, wanted.buffers, strict=True):
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(convert.to_dense(made), convert.to_dense(wanted))


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", [(4, 4), (4, 6), (6, 2), (2, 2)])
def test_one_diagonal(name, shape):
    form = Format.parse(name, 2)
    for k in range(-shape[0] - 1, shape[1] + 2):
        first = max(0, -k), max(0, k)
        count = max(0, min(n - f for n, f in zip(shape, first, strict=True)))
        values = np.arange(1.0, count + 1)
        made = diagonals.on_diagonal(values, shape, k, form)
        coords = np.stack([np.arange(f, f + count) for f in first])
        same(made, convert.from_coords(coords, values, shape, form, np.float64(0)))
        np.testing.assert_array_equal(snp.eye(*shape, k, format=name).todense(), np.eye(*shape, k))


@pytest.mark.parametrize("count", [5_000, 40_000, counting.KEPT - 1, counting.KEPT + 1])
@pytest.mark.parametrize("name", ["csr", "coo"])
def test_long_diagonals(name, count):
    """They share the numbers that they begin with, as far as these are kept, and are made in passes beyond."""
    form = Format.parse(name, 2)
    for columns, k in ((count, 0), (count + 3, 2), (count + 3, 3)):
        rows, inner = np.arange(count, dtype=np.int32), np.arange(k, k + count, dtype=np.int32)
        wanted = [np.arange(count + 1), inner] if name == "csr" else [np.array([0, count]), rows, inner]
        for value in (1.0, -0.0, 0.0, np.float32(2), True):
            values = np.full(count, value)
            made = diagonals.on_diagonal(values[:1], (count, columns), k, form)
            found = [buffer for level in made.buffers for buffer in level]
            for a, b in zip(found, wanted, strict=True):
                assert a.dtype == b.dtype and not a.flags.writeable
                np.testing.assert_array_equal(a, b)
            assert made.vals.dtype == values.dtype and made.vals.tobytes() == values.tobytes()
        if name == "csr" and count < counting.KEPT - 3:
            again = diagonals.on_diagonal(values, (count, columns), k, form)
            assert all(a is b for a, b in zip(made.buffers[1], again.buffers[1], strict=True))


@pytest.mark.parametrize("name", FORMATS)
def test_no_entries(name):
    form = Format.parse(name, 2)
    for shape in ((4, 6), (2, 2), (0, 4), (4, 0), (5000, 2)):
        if form.is_dense and not np.prod(shape):
            continue
        for fill in (np.float32(0), np.float32(-0.0), np.float32(np.nan)):
            coords = np.empty((2, 0), np.int64)
            try:
                wanted = convert.from_coords(coords, np.empty(0, np.float32), shape, form, fill, canonical=True)
            except FormatError as error:
                with pytest.raises(FormatError, match=str(error)[:20]):
                    diagonals.without_entries(shape, np.dtype(np.float32), form, fill)
                continue
            made = diagonals.without_entries(shape, np.dtype(np.float32), form, fill)
            same(made, wanted)
            assert np.signbit(made.fill_value) == np.signbit(fill)


def test_of_any_rank():
    for name, shape in (
        ("csf", (3, 4, 5)),
        ("coo", (3,)),
        ("(d,d,c)", (2, 3, 4)),
        ("(d,c,d)@(0,2,1)", (2, 3, 4)),
        ("(d,c,c)", (2, 3, 4)),
    ):
        made = snp.zeros(shape, format=name)
        assert made.nnz == 0 and made.shape == shape
        np.testing.assert_array_equal((made + 1.0).todense(), np.ones(shape))
        same(
            made.storage,
            convert.from_coords(
                np.empty((len(shape), 0), int),
                np.empty(0),
                shape,
                Format.parse(name, len(shape)),
                np.float64(0),
                canonical=True,
            ),
        )


def test_the_kept_ones_survive_donation():
    x = snp.zeros((3, 3), format="csr")
    sj.jit(lambda x: x * 2, donate_argnums=0)(x)
    assert snp.zeros((3, 3), format="csr").nnz == 0


def test_diag_of_vectors():
    x = np.array([1.0, 0.0, 3.0])
    for k in (-2, 0, 1):
        for given in (x, sj.array(x), sj.array(x, format="coo")):
            np.testing.assert_array_equal(snp.diag(given, k).todense(), np.diag(x, k))
    made = snp.diag(x)
    x[:] = 7
    np.testing.assert_array_equal(made.todense(), np.diag([1.0, 0.0, 3.0]))
    np.testing.assert_array_equal(sj.jit(snp.diag)(sj.array(x)).todense(), np.diag(x))
    np.testing.assert_array_equal(sj.grad(lambda v: snp.sum(snp.diag(v) ** 2))(x).todense(), 2 * x)


@pytest.mark.parametrize("kept", ["few", "all"])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_diagonals_of_many_rows_are_kept_where_they_are_short(monkeypatch, kept, form):
    monkeypatch.setattr(located, "BLOCK", 7)
    rng, n = np.random.default_rng(5), 33
    dense = rng.random((n, n - 4)) * (rng.random((n, n - 4)) < 0.4)
    for k in (-3, 0, 2):
        ends = max(0, -k), min(n, n - 4 - k)
        place = np.arange(*ends)
        dense[place, place + k] = 1.0 if kept == "all" else 0.0
        dense[place[:1], place[:1] + k] = dense[place[-1:], place[-1:] + k] = 2.0
    if kept == "all":
        dense[dense < 1] = 0.0
    storage = convert.from_dense(dense, Format.parse(form, 2), 0.0)
    for k in (-3, 0, 2):
        for _ in range(4):
            made = structural.diagonal(storage, k, 0, 1, Format.parse("coo", 1))
            assert np.array_equal(convert.to_dense(made), np.diagonal(dense, k))
        assert bool(storage.cache["lines"][k, 0, 1]) == (kept == "few")
        changed = Storage(storage.format, storage.shape, storage.fill_value, storage.buffers, -storage.vals)
        changed.cache.update(storage.cache)
        made = structural.diagonal(changed, k, 0, 1, Format.parse("coo", 1))
        assert np.array_equal(convert.to_dense(made), -np.diagonal(dense, k))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 2)])
def test_no_entries_become_diagonals_by_any_way(shape):
    for choose in ("conversion=kernel", "conversion=passes", "passes=compiled"):
        with config.using(choose=choose):
            made = sj.array(np.zeros(shape), format="csr").asformat("dia")
            assert (made.shape, made.nnz, str(made.format)) == (shape, 0, "dia")
