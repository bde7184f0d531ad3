"""`x[key]` and `x.at[key]` against NumPy, at once and under `jit`: random keys with index arrays, every format and dtype, fills, infinities."""

import random

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import Format, passes, validate
from tests import bounds
from tests.fuzz import definitions, engine
from tests.fuzz.levels import INPUTS, random_format

BATCH = 25


def _array(rng, numbers, shape, dtype):
    """A random array as ours and as NumPy's; infinities and negative zeros among floats."""
    values = numbers.integers(-2, 4, shape).astype(dtype)
    if dtype.kind in "fc":
        values = np.where(numbers.random(shape) < 0.1, np.inf, values).astype(dtype)
    if dtype.kind == "c":
        values = values + np.where(numbers.random(shape) < 0.1, complex(0, np.inf), 0)
    form = random_format(rng, len(shape), INPUTS)
    if len(shape) == 2 and rng.random() < 0.3:
        form = Format.parse(rng.choice(("csr", "csc", "coo", "dcsr", "bsr:2x2")), 2)
    if rng.random() < 0.3:
        form = Format.parse("dense", len(shape))
    if dtype.kind in "fc" and all(level.unique for level in form.levels):  # parts of entries may add up to 0.0
        values = np.where(numbers.random(shape) < 0.2, dtype.type(-0.0), values)
    fill = 0 if form.is_dense else rng.choice((0, 0, 1))
    storage, dense = definitions.pack(rng, values, numbers.random(shape) < 0.5, form, fill)
    return sj.Array(storage), dense


def _key(rng, numbers, shape, stretched):
    """A key with at least one index array, most often; arrays are broadcast where `stretched`."""
    together = [rng.randint(0, 4) for _ in range(rng.choice((1, 1, 2)))]
    key = []
    for n in shape:
        kind = rng.random()
        if kind < 0.55:
            own = list(together)
            if stretched and rng.random() < 0.3:
                own = own[rng.randint(0, len(own) - 1) :]
            if stretched and rng.random() < 0.2:
                own[rng.randrange(len(own))] = 1
            key.append(numbers.integers(-n, n, own).astype(rng.choice(("i8", "i4"))))
        elif kind < 0.8:
            key.append(slice(None))
        elif kind < 0.9:
            key.append(slice(rng.randint(0, n), None, rng.choice((1, 2))))
        else:
            key.append(rng.randint(-n, n - 1))
    if stretched and rng.random() < 0.1:
        key.insert(rng.randint(0, len(key)), None)
    return tuple(key)


def _filled(key, arrays):
    given = iter(arrays)
    return tuple(next(given) if isinstance(k, np.ndarray) else k for k in key)


def _signs(x):
    """Which parts of numbers are negative, zeros too."""
    return np.signbit([x.real, x.imag])


def _told(seed, x, key, made, want, signs=False):
    """What is wrong with results at once and under `jit`, or None; with `signs`, of zeros too."""
    at_once, jitted = made
    for result in made:
        validate.validate(result.storage)
        dense = result.todense()
        same = dense.dtype == want.dtype and np.array_equal(dense, want, equal_nan=want.dtype.kind in "fc")
        if not same or (signs and want.dtype.kind in "fc" and not np.array_equal(_signs(dense), _signs(want))):
            return f"seed {seed}: {x.aval} at {key}: expected\n{want}\ngot\n{dense}"
    if at_once.aval != jitted.aval:
        return f"seed {seed}: {x.aval} at {key}: {at_once.aval} at once, {jitted.aval} under jit"
    return None


def gather_fault(seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    shape = [rng.randint(1, 5) for _ in range(rng.randint(1, 3))]
    x, dense = _array(rng, numbers, shape, np.dtype(rng.choice(("f8", "f4", "i8", "c16", "?"))))
    key = _key(rng, numbers, shape, True)
    try:
        want = dense[key]
    except IndexError:  # the arrays do not broadcast
        return None
    arrays = [k for k in key if isinstance(k, np.ndarray)]
    made = x[key], sj.jit(lambda x, arrays: x[_filled(key, arrays)])(x, arrays)
    return _told(seed, x, key, made, want, signs=True)


def update_fault(seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
    dtype = np.dtype(rng.choice(("f8", "f8", "f4", "i8", "c16", "?")))
    x, dense = _array(rng, numbers, shape, dtype)
    key = _key(rng, numbers, shape, False)
    values = numbers.integers(-2, 4, dense[key].shape).astype(dtype)
    if rng.random() < 0.2:
        values = dtype.type(3)
    elif rng.random() < 0.3 and values.ndim and values.shape[0]:
        values = values[:1]
    op = rng.choice(("set", "add") if dtype.kind == "c" else ("set", "set", "add", "min", "max"))
    want = dense.copy()
    with np.errstate(invalid="ignore"):
        if op == "set":
            want[key] = values
        else:
            add = np.logical_or if dtype.kind == "b" else np.add
            {"add": add, "min": np.minimum, "max": np.maximum}[op].at(want, key, values)
    given = sj.array(values, format="coo") if np.ndim(values) and rng.random() < 0.25 else values

    def update(x, values, arrays):
        return getattr(x.at[_filled(key, arrays)], op)(values)

    arrays = [k for k in key if isinstance(k, np.ndarray)]
    return _told(seed, x, (op, key), (update(x, given, arrays), sj.jit(update)(x, given, arrays)), want)


@pytest.mark.rotating(48)
@pytest.mark.parametrize("start", range(0, 600, BATCH))
@pytest.mark.parametrize("fault", [gather_fault, update_fault])
def test_keys(start, fault):
    faults = [f for f in map(fault, range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


def test_many_places_are_looked_up_by_a_kernel():
    """From so many on, at once too: searches in every level, of which those for runs of equal coordinates are done once."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((9, 8, 7)) < 0.2, rng.integers(1, 9, (9, 8, 7)), 0)
    keys = [np.sort(rng.integers(-n, n, passes.MANY + 3)) for n in dense.shape]
    for form in ("csf", "coo", "dense"):
        x = sj.array(dense, format=form)
        np.testing.assert_array_equal(x[tuple(keys)].todense(), dense[tuple(keys)])
        np.testing.assert_array_equal(x[keys[0], :, keys[2]].todense(), dense[keys[0], :, keys[2]])
    vector = sj.array(dense[:, 0, 0], format="coo")
    np.testing.assert_array_equal(vector[keys[0]].todense(), dense[keys[0], 0, 0])
    assert keys[0].flags.writeable


def test_what_is_gathered_is_copied_bit_by_bit():
    """No product: infinite parts of complex numbers, and signs of zeros, are kept."""
    values = np.array([complex(np.inf, 1), complex(-0.0, np.inf), complex(np.nan, -0.0)])
    for x in (values, sj.array(values, format="coo")):
        got = sj.jit(lambda x, i: x[i])(x, np.array([1, 0, 2, 1])).todense()
        assert got.tobytes() == values[[1, 0, 2, 1]].tobytes()
    table = sj.array(np.array([[np.inf, 0.0], [0.0, -1.0]]), format="csr")
    np.testing.assert_array_equal(sj.nn.embed(table, np.array([[1, 0], [2, -1]])).todense()[0], [[0, -1], [np.inf, 0]])


LABELS = np.array([0, 3, -1, 0, 7, 3])
BY_LABEL = {
    "segment_sum": lambda x, ids: sj.nn.segment_sum(x, ids, 5),
    "segment_max": lambda x, ids: sj.nn.segment_max(x, ids, 5),
    "segment_min": lambda x, ids: sj.nn.segment_min(x, ids, 5),
    "segment_mean": lambda x, ids: sj.nn.segment_mean(x, ids, 5),
    "embed": sj.nn.embed,
    "one_hot": lambda x, ids: sj.nn.one_hot(ids, 6) @ x,
    "one_hot turned": lambda x, ids: sj.nn.one_hot(ids, 5).T @ x,
}
FORMATS = (
    "csr",
    "csc",
    "coo",
    "dcsr",
    "bsr:2x2",
    "hash",
    "ell",
    "dia",
    "groupcoo:2",
    "(b,d)@(0,1)",
    "(d,r)@(0,1)",
    "(d,s)@(0,1)",
)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("format", FORMATS)
def test_sparse_rows_by_label_are_those_of_dense_ones(format):
    """Segments, embeddings and products with one-hot labels, at once, under `jit` and for many labels: as of dense rows, without a selection."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((6, 4)) < 0.5, -rng.random((6, 4)), 0)
    x, many = sj.array(dense, format=format), np.stack([LABELS, LABELS[::-1]])
    for name, function in BY_LABEL.items():
        want = function(dense, LABELS).todense()
        assert "select[" not in str(sj.make_jaxpr(function)(x, LABELS))
        for got in (function(x, LABELS), sj.jit(function)(x, LABELS)):
            np.testing.assert_allclose(got.todense(), want)
        both = sj.jit(sj.vmap(lambda ids, function=function: function(x, ids)))(many)
        np.testing.assert_allclose(both.todense()[0], want)
        if name not in ("segment_max", "segment_min"):
            slope = sj.jit(sj.grad(lambda x, function=function: (function(x, LABELS) * 2).sum()))
            np.testing.assert_allclose(slope(x).todense()[dense != 0], slope(dense).todense()[dense != 0])


def test_segments_of_complex_rows():
    rng = np.random.default_rng(0)
    dense, ids = np.where(rng.random((6, 4)) < 0.5, -rng.random((6, 4)), 0), LABELS
    with pytest.raises(TypeError, match="not ordered"):
        sj.nn.segment_max(dense + 0j, ids, 5)
    np.testing.assert_allclose(
        sj.nn.segment_sum(dense + 1j, ids, 5).todense().real, sj.nn.segment_sum(dense, ids, 5).todense()
    )


BESIDE = {
    "rows and a slice": (slice(None), slice(2, 5)),
    "rows and steps": (slice(None), slice(5, 1, -1)),
    "a slice and columns": (slice(1, 6, 2), slice(None)),
    "an integer": (slice(None), 3),
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("format", ["dense", "csr", "csc", "coo", "hash"])
def test_slices_beside_index_arrays_build_no_selection(name, format):
    """Updates at index arrays beside slices and integers, against NumPy's: of repeated places, `set` keeps the last; no matrix of selections."""
    rng = np.random.default_rng(0)
    dense, ids, beside = (
        np.where(rng.random((6, 7)) < 0.5, rng.random((6, 7)), 0),
        np.array([4, 0, 4, -1]),
        BESIDE[name],
    )
    place = 0 if beside[0] == slice(None) else 1
    key = tuple(ids if d == place else k for d, k in enumerate(beside))
    values, x = rng.random(dense[key].shape), sj.array(dense, format=format)
    for op, ufunc in {"set": None, "add": np.add, "max": np.maximum, "min": np.minimum}.items():
        want = dense.copy()
        if ufunc is None:
            want[key] = values
        else:
            ufunc.at(want, key, values)

        def update(x, values, ids, op=op):
            return getattr(x.at[tuple(ids if d == place else k for d, k in enumerate(beside))], op)(values)

        assert "select[" not in str(sj.make_jaxpr(update)(x, values, ids))
        for made in (update(x, values, ids), sj.jit(update)(x, values, ids)):
            np.testing.assert_allclose(made.todense(), want, rtol=1e-14)


@pytest.mark.parametrize("threads", [1, 2])
def test_sorted_and_unsorted_index_arrays_give_the_bits_of_entries_one_by_one(threads):
    """Segments whose entries are side by side are walked as ranges, others entry by entry; whichever it is, terms are added in order."""
    rng = np.random.default_rng(11)
    for text, axes in (
        ("C[R[p],n] += V[p]*B[K[p],n]", 0),
        ("C[R[p],n] += V[p,q]*B[K[p,q],n]", 1),
        ("C[R[p],n] += V[p,q,r]*B[K[p,q,r],n]", 2),
        ("C[R[p],n] += V[p]*B[p,n]", 0),
        ("C[R[p],n] += V[p,q]*W[q]*B[K[p],n]", 1),
        ("C[R[p],n] += B[p,n]", 0),
        ("C[R[p],n] += D[p,p]*B[K[p],n]", 0),
    ):
        for columns in (8, 33, 300):
            p, rows = int(rng.integers(1, 60)), int(rng.integers(1, 20))
            R = rng.integers(0, rows, p)
            if columns != 33:
                R[: p // columns * 8 or p] = np.sort(R)[: p // columns * 8 or p]
            shape = (p, *rng.integers(0 if columns == 8 else 1, 4, axes))
            given = {
                "R": R,
                "V": rng.standard_normal(shape).astype("f4"),
                "B": rng.standard_normal((p, columns)).astype("f4"),
            }
            given["D"] = rng.standard_normal((p, p)).astype("f4")
            given["K"] = rng.integers(-p, p, shape if "K[p,q" in text or axes == 0 else (p,))
            given["W"] = rng.standard_normal(shape[1:2] or (1,)).astype("f4")
            given = {k: v for k, v in given.items() if f"{k}[" in text}
            found = []
            for shapes in ("consecutive,prefetch=ahead", "consecutive,prefetch=none", "entries"):
                with engine.quick(), sj.config.using(choose=f"loop_shape={shapes},chunks=each", num_threads=threads):
                    f = sj.jit(lambda C, given, text=text: sj.insum(text, C=C, **given))
                    found.append(np.asarray(f(np.zeros((rows, columns), "f4"), given)))
            for other in found[1:]:
                np.testing.assert_array_equal(found[0].view("i4"), other.view("i4"))
            exact, terms = np.zeros((2, rows, columns))
            for k in range(p):
                for at in np.ndindex(*shape[1:]):
                    row = given["B"][k] if "K" not in given else given["B"][given["K"][(k, *at)[: given["K"].ndim]]]
                    factor = given["V"][(k, *at)] if "V" in given else given["D"][k, k] if "D" in given else 1
                    term = float(factor) * float(given["W"][at[0]] if "W" in given else 1) * row.astype(float)
                    exact[R[k]] += term
                    terms[R[k]] += np.abs(term)
            bounds.check(found[0], exact, terms)


@pytest.mark.parametrize("form", ["csr", "bitmap", "coo", "ell"])
def test_no_places_of_several_axes_are_no_grid(form):
    """An index array of no entries along the first axis is one of `numpy.ix_` only if its other extents are one."""
    x = np.arange(15).reshape(5, 3) % 4
    A, columns = sj.array(x, format=form), np.array([[2, -2, 2]])
    for rows, kept in ((np.zeros((0, 3), int), "coo"), (np.zeros((0, 1), int), form)):
        made = A[rows, columns]
        traced = sj.jit(lambda A, i, j: A[i, j])(A, rows, columns)
        assert made.shape == x[rows, columns].shape
        assert made.format == traced.format == Format.parse(kept, 2)
