"""`.at[key].set` and `.at[key].add` at once, on arrays that are there, against loops over the places; and `Builder` by rows."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import passes

FORMATS = ["csr", "csc", "coo", "(d,q)", "(c,c)", "bsr:2x2", "bitmap", "lil", "hash", "ell"]


def after(dense, places, values, add):
    """The matrix after the updates, one place at a time; sums of what is added to a place are rounded once."""
    made = dense.copy()
    sums = {}
    for (i, j), v in zip(places, values, strict=True):
        sums.setdefault((i, j), []).append(v)
    for place, found in sums.items():
        if not add:
            made[place] = found[-1]
        elif dense.dtype.kind in "fc":
            made[place] += np.sum(np.array(found, np.result_type(dense.dtype, np.float64))).astype(dense.dtype)
        else:
            made[place] += np.add.reduce(np.array(found, dense.dtype), dtype=dense.dtype)
    return made


def stored(A):
    return set(zip(*(c.tolist() for c in A.coords), strict=True))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.complex128, np.bool_])
@pytest.mark.parametrize("form", FORMATS)
def test_places_of_every_kind(form, dtype):
    rng = np.random.default_rng([len(form), np.dtype(dtype).itemsize])
    for shape, fill in (((5, 6), 0), ((7, 3), 2), ((1, 9), 0), ((40, 40), 0), ((6, 500), 0)):
        if form == "bsr:2x2" and (shape[0] % 2 or shape[1] % 2):
            shape = (6, 8)
        dense = np.where(rng.random(shape) < 0.3, rng.integers(1, 9, shape), fill).astype(dtype)
        A = sj.array(dense, format=form, fill_value=dtype(fill))
        for count in (0, 1, 2, 9, 60):
            rows, columns = rng.integers(0, shape[0], count), rng.integers(0, shape[1], count)
            values = rng.integers(0, 5, count).astype(dtype)
            places = list(zip(rows.tolist(), columns.tolist(), strict=True))
            for add in (False, True):
                made = A.at[rows - shape[0], columns].add(values) if add else A.at[rows - shape[0], columns].set(values)
                assert made.format == A.format and made.dtype == dtype and made.fill_value == A.fill_value
                np.testing.assert_array_equal(made.todense(), after(dense, places, values, add))
                if form in ("csr", "csc", "coo"):
                    assert stored(made) == stored(A) | set(places)
                    assert made.nnz == len(stored(made))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_rows_and_parts_of_them(form):
    rng = np.random.default_rng(len(form))
    dense = (rng.integers(1, 9, (12, 30)) * (rng.random((12, 30)) < 0.2)).astype(float)
    A = sj.array(dense, format=form)
    row, few = rng.integers(1, 9, 30).astype(float), rng.choice(30, 7, replace=False)
    for key, values in (
        ((3,), row),
        ((3, few), row[:7]),
        ((slice(2, 9, 3), few), row[:7]),
        ((np.array([4, 0, 4]),), np.stack([row, 2 * row, 3 * row])),
        ((slice(None), 5), 2.0),
        ((-1, -1), 3.0),
        ((slice(3, 3), 5), 2.0),
    ):
        wanted = dense.copy()
        wanted[key] = values
        np.testing.assert_array_equal(A.at[key].set(values).todense(), wanted)
        wanted = dense.copy()
        np.add.at(wanted, key, values)
        np.testing.assert_array_equal(A.at[key].add(values).todense(), wanted)
        traced = sj.jit(lambda A, v, key=key: A.at[key].add(v))(A, values)
        assert traced.aval == A.at[key].add(values).aval
        np.testing.assert_array_equal(traced.todense(), wanted)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("form", ["csr", "csc"])
def test_places_of_many_entries(form, add):
    """From `MANY` entries on, by machine code: none, some or all of the places are stored."""
    rng = np.random.default_rng(5)
    dense = np.where(rng.random((150, 90)) < 0.5, rng.integers(1, 9, (150, 90)), 2).astype(np.float32)
    A = sj.array(dense, format=form, fill_value=np.float32(2))
    assert A.nnz > passes.MANY
    there, free = np.nonzero(dense != 2), np.nonzero(dense == 2)
    for found in (1, 0, 40):
        for missing in (0, 1, 40):
            chosen = [rng.choice(len(k[0]), n) for k, n in ((there, found), (free, missing))]
            rows, columns = (np.append(t[chosen[0]], f[chosen[1]]) for t, f in zip(there, free, strict=True))
            values = rng.integers(1, 5, len(rows)).astype(np.float32)
            made = A.at[rows, columns].add(values) if add else A.at[rows, columns].set(values)
            places = list(zip(rows.tolist(), columns.tolist(), strict=True))
            np.testing.assert_array_equal(made.todense(), after(dense, places, values, add))
            assert stored(made) == stored(A) | set(places)
            assert (made.indptr.dtype, made.indices.dtype) == (A.indptr.dtype, A.indices.dtype)


def test_what_is_added_in_single_precision_is_summed_in_double():
    A = sj.array(np.zeros((2, 3), np.float32), format="csr")
    values = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    assert A.at[np.zeros(4, int), np.ones(4, int)].add(values)[0, 1] == 2.0


def test_sparse_values_add_what_they_store():
    A = sj.array(np.eye(4), format="csr")
    made = A.at[1].add(sj.array(np.array([0.0, 0.0, 2.0, 0.0]), format="coo"))
    assert made.nnz == 5 and made[1, 2] == 2.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, np.complex128, np.bool_])
def test_rows_of_a_builder_in_every_way(dtype):
    """Short and long rows, lists and vectors, added and replaced, in the order of the calls."""
    rng = np.random.default_rng(np.dtype(dtype).itemsize)
    b, wanted = sj.Builder((20, 200), dtype), np.zeros((20, 200), dtype)
    for number in range(400):
        i, count = int(rng.integers(20)), int(rng.choice([0, 1, 3, 31, 33, 90]))
        columns = rng.choice(200, count, replace=False)
        values = rng.integers(0, 3, count).astype(dtype)
        as_lists = number % 3 == 0
        given = (
            (columns.tolist(), values.tolist())
            if as_lists
            else (columns.astype(rng.choice(["i4", "i8", "u2"])), values)
        )
        way = number % 4
        if way == 0:
            b.append_row(i, *given)
        elif way == 1 and not as_lists:
            b[i, given[0].astype(np.int64) - (200 if number % 8 == 1 else 0)] += given[1]
        elif way == 2 and not as_lists:
            b[i, given[0]] = given[1]
            wanted[i, columns] = 0
        elif way == 3:
            b[i, 7] = values[0].item() if count else 1
            wanted[i, 7] = values[0] if count else 1
            continue
        else:
            b.append_row(i, *given)
        with np.errstate(over="ignore"):
            wanted[i, columns] += values
    np.testing.assert_array_equal(b.finish().todense(), wanted)


@pytest.mark.parametrize("as_lists", [False, True])
@pytest.mark.parametrize("columns", [[0, 200], [-1, 3], [-201, 0]])
def test_columns_outside_leave_the_builder_as_it_was(columns, as_lists):
    b = sj.Builder((20, 200))
    b.append_row(1, [5], [1.0])
    given = columns if as_lists else np.array(columns)
    with pytest.raises(IndexError, match=r"columns .* axis 1 with size 200"):
        b.append_row(3, given, [1.0, 2.0] if as_lists else np.ones(2))
    assert b.records == 1


def test_values_that_do_not_fit_leave_the_builder_as_it_was():
    b = sj.Builder((4, 5), np.int8)
    with pytest.raises(TypeError, match="same_kind"):
        b.append_row(0, [1, 2], [5, 3.5])
    with pytest.raises(ValueError, match="shape"):
        b.append_row(0, np.array([1, 2]), np.ones(3, np.int8))
    floats = sj.Builder((4, 5))
    with pytest.raises((OverflowError, TypeError)):
        floats.append_row(0, [1, 2], [5.0, 10**400])
    assert b.records == floats.records == 0 and not b.finish().nnz


def test_what_a_row_was_made_of_may_change_afterwards():
    b, columns, values = sj.Builder((2, 3)), np.array([0, 2]), np.array([1.0, 2.0])
    b.append_row(0, columns, values)
    columns[:], values[:] = 1, 9
    np.testing.assert_array_equal(b.finish().todense(), [[1, 0, 2], [0, 0, 0]])
