"""Matrices whose rows are cut, picked, searched and surrounded as they are stored, against NumPy and the road by coordinates."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.formats import Format, LooseCompressed, convert, selection
from sparsejax.formats.levels import ell
from sparsejax.formats.parts import taken
from sparsejax.formats.storage import Storage
from sparsejax.formats.validate import validate
from tests.formats.test_parts import PASSES, random_key

pytestmark = pytest.mark.rotating(16)

NAMES = (
    "ell", "dia", "banded", "lil", "rle", "groupcoo:2", "hash", "bitmap", "dcsr",
    "bsr:2x2", "bsr:2x3", "bsr:1x2", "bsr:3x1", "blockgroupcoo:2x2:2", "blockgroupcoo:3x2:1",
)  # fmt: skip
FORMATS = [Format.parse(name, 2) for name in NAMES]
FORMATS += [form.transposed((1, 0)) for form in FORMATS]


def drawn(rng, form, shape=None):
    nrng = np.random.default_rng(rng.getrandbits(32))
    shape = shape or tuple(rng.choice((1, 2, 3, 5, 9, 70)) for _ in range(2))
    values = nrng.integers(1, 4, shape) * (nrng.random(shape) < rng.choice((0.0, 0.1, 0.5, 1.0)))
    if rng.random() < 0.3:
        values[nrng.random(shape[0]) < 0.5] = 0
    made = convert.from_dense(values.astype(rng.choice(("f8", "i4", "c16", "?"))), form, rng.choice((0, 0, 3)))
    return loosened(rng, made) if isinstance(form.levels[-1], LooseCompressed) and rng.random() < 0.5 else made


def loosened(rng, storage):
    """Lists of which the segments stand in another order, with positions of nobody between them."""
    (lo, hi, crd), count = storage.buffers[1], len(storage.buffers[1][0])
    begin, end, at = np.zeros_like(lo), np.zeros_like(hi), 0
    found = np.zeros(len(crd) + count, crd.dtype), np.full(len(crd) + count, storage.fill_value, storage.dtype)
    for row in rng.sample(range(count), count):
        begin[row], end[row] = at, at + hi[row] - lo[row]
        for made, given in zip(found, (crd, storage.vals), strict=True):
            made[at : end[row]] = given[lo[row] : hi[row]]
        at = end[row] + rng.randint(0, 1)
    buffers = ((), (begin, end, found[0]))
    made = Storage(storage.format, storage.shape, storage.fill_value, buffers, found[1])
    validate(made)
    return made


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_taken(form, seed, choose):
    rng = random.Random(seed)
    storage = drawn(rng, form)
    keys = [random_key(rng, n) for n in storage.shape]
    if rng.random() < 0.5:
        keys[1 - form.order[0]] = None
    axes = tuple(d for d, k in enumerate(keys) if isinstance(k, range) and len(k) == 1 and rng.random() < 0.7)
    made_form = selection.without(storage.format, axes)
    lists = [np.arange(n) if k is None else np.asarray(k, np.int64) for k, n in zip(keys, storage.shape, strict=True)]
    expected = convert.to_dense(storage)[np.ix_(*lists)]
    expected = expected.reshape([n for d, n in enumerate(expected.shape) if d not in axes])
    with config.using(choose=choose):
        made = taken.taken(storage, keys, axes, made_form)
    plain = taken.by_coordinates(storage, keys, axes, made_form)
    validate(made)
    assert made.format == made_form and not made.vals.flags.writeable
    np.testing.assert_array_equal(convert.to_dense(made), expected, strict=True)
    if not any(level.fills for level in form.levels) and not form.blocked:
        loose = any(
            isinstance(level, LooseCompressed) for level in form.levels
        )  # of empty rows, which may end anywhere
        for ours, theirs in () if loose else zip(made.buffers, plain.buffers, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a, b, strict=True)
        if not loose:
            np.testing.assert_array_equal(made.vals, plain.vals)


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_converted_from_rows(form, seed, choose, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(ell, "SLOTS", rng.choice((8, ell.SLOTS)))
    rows = drawn(rng, Format(Format.parse("csr", 2).levels, tuple(dict.fromkeys(form.order))))
    coords, vals = convert.to_coords(rows)
    plain = convert.from_coords(coords, vals, rows.shape, form, rows.fill_value)
    with config.using(choose=choose):
        made = convert.convert(rows, form)
    validate(made)
    for ours, theirs in zip(made.buffers, plain.buffers, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
    np.testing.assert_array_equal(made.vals, plain.vals, strict=True)


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_read_as_rows(form, seed, choose):
    rng = random.Random(seed)
    storage = drawn(rng, form)
    rows = convert.plain_formats(form)[0]
    columns, vals = storage.expand()
    plain = convert.from_coords(columns, vals, storage.shape, rows, storage.fill_value)
    with config.using(choose=choose):
        made = convert.convert(storage, rows)
    validate(made)
    for a, b in zip((*made.buffers[1], made.vals), (*plain.buffers[1], plain.vals), strict=True):
        np.testing.assert_array_equal(a, b, strict=True)


def _numpy_diagonal(a, b):
    made = np.zeros((a.shape[0] + b.shape[0], a.shape[1] + b.shape[1]), a.dtype)
    made[: a.shape[0], : a.shape[1]], made[a.shape[0] :, a.shape[1] :] = a, b
    return made


def moves(rng, shape):
    """Names, what is done to two matrices of ours, and to NumPy's."""
    n, m = shape
    widths = [[rng.choice((0, 0, 1, 2, 5)) for _ in range(2)] for _ in range(2)]
    shift, rows, columns = rng.randint(-2 * n * m, 2 * n * m), rng.randint(-n, n), rng.randint(-m, m)
    other = rng.choice(("csr", "csc", "coo", "ell", "bsr:2x2"))
    yield "hstack", lambda A, B: snp.hstack([A, B, A]), lambda a, b: np.hstack([a, b, a])
    yield "vstack", lambda A, B: snp.vstack([A, B, A]), lambda a, b: np.vstack([a, b, a])
    yield "block", lambda A, B: snp.block([[A, B], [B, A]]), lambda a, b: np.block([[a, b], [b, a]])
    yield "roll flat", lambda A, B: snp.roll(A, shift), lambda a, b: np.roll(a, shift)
    yield "roll rows", lambda A, B: snp.roll(A, rows, axis=0), lambda a, b: np.roll(a, rows, axis=0)
    yield "roll columns", lambda A, B: snp.roll(A, columns, axis=1), lambda a, b: np.roll(a, columns, axis=1)
    yield "repeat rows", lambda A, B: snp.repeat(A, 2, axis=0), lambda a, b: np.repeat(a, 2, axis=0)
    yield "repeat columns", lambda A, B: snp.repeat(A, 2, axis=1), lambda a, b: np.repeat(a, 2, axis=1)
    yield (
        "pad",
        lambda A, B: snp.pad(A, widths, constant_values=A.fill_value.item()),
        lambda a, b: np.pad(a, widths, constant_values=b.fill),
    )
    yield "diagonal", lambda A, B: sj.block_diag([A, B], format=A.format), _numpy_diagonal
    yield "diagonal, other", lambda A, B: sj.block_diag([A, B], format=other), _numpy_diagonal


class Filled(np.ndarray):
    """A matrix of NumPy's that knows the fill of ours."""


@pytest.mark.parametrize("choose", ["auto", *PASSES])
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("form", [*FORMATS, *(Format.parse(name, 2) for name in ("csr", "csc", "coo"))], ids=str)
def test_moves(form, seed, choose):
    rng = random.Random(seed)
    one = drawn(rng, form)
    other = convert.from_dense(
        np.random.default_rng(seed).permuted(convert.to_dense(one), axis=rng.randint(0, 1)), form, one.fill_value
    )
    A, B = sj.Array(one), sj.Array(other)
    a, b = convert.to_dense(one), convert.to_dense(other).view(Filled)
    b.fill = one.fill_value
    for name, ours, theirs in moves(rng, one.shape):
        if "diagonal" in name and one.fill_value:
            continue
        with config.using(choose=choose):
            made = ours(A, B)
        validate(made.storage)
        if name != "diagonal, other":
            assert made.format == form, name
        np.testing.assert_array_equal(made.todense(), np.asarray(theirs(a, b)), strict=True, err_msg=name)


@pytest.mark.parametrize("choose", ["auto", *PASSES])
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_lookups(form, seed, choose):
    rng = random.Random(seed)
    storage = drawn(rng, form)
    A, a = sj.Array(storage), convert.to_dense(storage)
    n, m = a.shape
    count = rng.choice((1, 3, 20, 200))
    R, C = np.random.default_rng(seed).integers(0, (n, m), (count, 2)).T
    i, j, k, low = rng.randrange(n), rng.randrange(m), rng.randint(-n, m), rng.randint(0, n)
    with config.using(choose=choose):
        for ours, theirs in (
            (A[R, C], a[R, C]),
            (A[i, j], a[i, j]),
            (A[i], a[i]),
            (A[:, j], a[:, j]),
            (A[low:, j], a[low:, j]),
            (A[i, j // 2 :], a[i, j // 2 :]),
            (A.diagonal(k), a.diagonal(k)),
        ):
            validate(ours.storage)
            np.testing.assert_array_equal(ours.todense(), theirs, strict=True)
