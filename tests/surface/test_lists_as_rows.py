"""Arrays that list all coordinates (coo) are selected from and written to by their rows, and masks that are sparse select where they hold."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.formats import convert, passes
from sparsejax.formats.parts import lines, unlisted
from sparsejax.formats.validate import validate
from tests.fuzz.levels import OUTPUTS, random_format

pytestmark = pytest.mark.rotating(8)

PASSES = ("passes=numpy", "passes=compiled")
FORMATS = ("coo", "csr", "csc", "(q,q)@(1,0)", "dcsr", "csf")


def drawn(rng, shape, dtype=float):
    return (rng.integers(1, 9, shape) * (rng.random(shape) < 0.4)).astype(dtype)


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(12))
def test_sparse_masks_select_where_they_hold(seed, choose):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 40)), int(rng.integers(1, 40)))
    x, other = drawn(rng, shape), drawn(rng, shape)
    with config.using(choose=choose):
        for form in FORMATS:
            A = sj.array(x).asformat(form)
            assert np.array_equal(A[A > 3].todense(), x[x > 3])
            assert np.array_equal(A[A != 0].todense(), x[x != 0])
            for mask_form in FORMATS:
                mask = sj.array(other).asformat(mask_form) > 4
                found = A[mask]
                assert np.array_equal(found.todense(), x[other > 4])
                assert (str(found.format), found.dtype) == ("coo", x.dtype)
                validate(found.storage)


@pytest.mark.parametrize("seed", range(40))
def test_masks_of_any_format(seed):
    """Blocks and diagonals keep entries that do not hold."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 14, rng.integers(1, 4)))
    x, other = drawn(rng, shape), drawn(rng, shape)
    A, B = (
        sj.array(d).asformat(random_format(random.Random(2 * seed + k), len(shape), OUTPUTS))
        for k, d in enumerate((x, other))
    )
    for mask, dense in ((A > 3, x > 3), (B > 4, other > 4), (B.asformat("coo") > 4, other > 4)):
        found = A[mask]
        assert np.array_equal(found.todense(), x[dense])
        validate(found._storage)


@pytest.mark.parametrize("ndim", [1, 3])
def test_sparse_masks_of_other_ranks(ndim):
    rng = np.random.default_rng(ndim)
    x = drawn(rng, (5, 6, 7)[:ndim])
    A = sj.array(x).asformat("coo")
    B = sj.array(drawn(rng, x.shape)).asformat("coo")
    assert np.array_equal(A[A > 3].todense(), x[x > 3])
    assert np.array_equal(A[B > 3].todense(), x[B.todense() > 3])
    with pytest.raises(IndexError):
        A[sj.array(np.ones(9, bool)).asformat("coo")]


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(12))
def test_values_are_written_by_rows(seed, choose):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 30)), int(rng.integers(1, 30)))
    x = drawn(rng, shape)
    count = int(rng.integers(1, 20))
    at = tuple(rng.integers(0, n, count) for n in shape)
    values = rng.random(count)
    replaced, summed, one, box = x.copy(), x.copy(), x.copy(), x.copy()
    replaced[at] = values
    np.add.at(summed, at, values)
    one[-1, 0] = 5
    box[shape[0] // 3 :, ::2] = 7
    with config.using(choose=choose):
        for form in FORMATS:
            A = sj.array(x).asformat(form)
            for found, wanted in (
                (A.at[at].set(values), replaced),
                (A.at[at].add(values), summed),
                (A.at[-1, 0].set(5), one),
                (A.at[shape[0] // 3 :, ::2].set(7), box),
            ):
                assert np.allclose(found.todense(), wanted)
                assert found.format == A.format
                validate(found.storage)


@pytest.mark.parametrize("seed", range(40))
def test_rows_and_back(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 8, rng.integers(1, 4)))
    form = random_format(random.Random(seed), len(shape), OUTPUTS, [1] * len(shape))
    storage = convert.from_dense(drawn(rng, shape), form, 0)
    rows = unlisted.as_rows(storage)
    if rows is not None:
        validate(rows)
        back = unlisted.as_list(rows, storage.format)
        validate(back)
        assert np.array_equal(convert.to_dense(rows), convert.to_dense(storage))
        assert np.array_equal(convert.to_dense(back), convert.to_dense(storage))
        assert all(
            np.array_equal(a, b)
            for p, q in zip(back.buffers, storage.buffers, strict=True)
            for a, b in zip(p, q, strict=True)
        )


def test_lists_with_more_rows_than_entries_stay_lists():
    A = sj.array((np.ones(2), (np.array([5, 10**12]), np.array([1, 2]))), shape=(10**12 + 1, 3), format="coo")
    assert unlisted.as_rows(A.storage) is None
    assert A[::-1].data.shape == (2,)
    assert A.at[np.array([7, 5]), np.array([0, 1])].set(2.0).nnz == 3


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(24))
def test_first_places_without_an_entry(seed, choose):
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 4)))
    x = np.asarray(rng.random(shape) < rng.choice([0.2, 0.6, 0.95, 1.0]), float)
    with config.using(choose=choose):
        for form in ("coo", "csf") if len(shape) != 2 else (*FORMATS, "rle", "csr"):
            A = sj.array(x).asformat(form)
            for axis in range(len(shape)):
                missing = np.moveaxis(x == 0, axis, -1)
                wanted = np.where(missing.any(-1), missing.argmax(-1), shape[axis])
                assert np.array_equal(lines.first_absent(A.storage, axis), wanted)
                assert np.array_equal(snp.argmax(-A, axis=axis).todense(), np.argmax(-x, axis=axis))


@pytest.mark.parametrize("form", ["csc", "dcsc", "(q,q)@(1,0)", "csr", "(d,c,c)@(2,1,0)", "(d,c,c)@(0,2,1)"])
def test_triangles_of_columns_that_list_their_rows(form, monkeypatch):
    rng = np.random.default_rng(0)
    x = drawn(rng, (3, 6, 5) if form.startswith("(d") else (7, 5))
    A = sj.array(x).asformat(form)
    for few in (1 << 12, 0):
        monkeypatch.setattr(passes, "MANY", few)
        for k in (-8, -1, 0, 2, 8):
            for name in ("tril", "triu"):
                wanted, run = getattr(np, name)(x, k), getattr(snp, name)
                for found in (run(A, k), sj.jit(lambda A, run=run, k=k: run(A, k))(A)):
                    assert np.array_equal(found.todense(), wanted)
                    assert found.format == A.format
                slope = sj.grad(lambda A, run=run, k=k: (run(A, k) ** 2).sum())(A)
                assert np.array_equal(slope.todense(), 2 * wanted)


@pytest.mark.parametrize("choose", PASSES)
@pytest.mark.parametrize("seed", range(12))
def test_lists_are_joined_by_rows(seed, choose):
    rng = np.random.default_rng(seed)
    ndim = 2 + seed % 2
    axis = int(rng.integers(ndim))
    shapes = [list(map(int, rng.integers(1, 9, ndim)))]
    for _ in range(int(rng.integers(1, 4))):
        shapes.append([*shapes[0][:axis], int(rng.integers(0, 9)), *shapes[0][axis + 1 :]])
    parts = [drawn(rng, shape) for shape in shapes]
    with config.using(choose=choose):
        for form in FORMATS if ndim == 2 else ("coo", "(q,q,q)@(2,0,1)", "csf"):
            found = snp.concatenate([sj.array(part).asformat(form) for part in parts], axis)
            assert np.array_equal(found.todense(), np.concatenate(parts, axis))
            assert found.format == sj.array(parts[0]).asformat(form).format
            validate(found.storage)
