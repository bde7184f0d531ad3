"""Arrays of three and four dimensions, in lists of all coordinates, level by level, and other levels, beside NumPy: selections, writes and concatenations."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import validate
from sparsejax.formats.parts import blocks

FORMATS = {
    3: (
        "coo",
        "csf",
        "(d,c,c)",
        "(d,d,c)",
        "(c,q,q)",
        "(d,q,q)",
        "(c,d,c)",
        "(c,c,d)",
        "(q,q,q)@(2,0,1)",
        "(c,c,c)@(1,2,0)",
        "(q,q,c)",
        "(h,c,c)",
        "(c,b,c)",
    ),
    4: (
        "coo",
        "csf",
        "(d,c,c,c)",
        "(d,q,q,c)",
        "(q,q,c,c)",
        "(d,d,q,q)",
        "(c,q,q,c)",
        "(c,d,d,c)",
        "(c,c,c,c)@(3,1,0,2)",
    ),
}
SHAPES = ((5, 4, 6), (1, 3, 7), (4, 1, 1), (9, 2, 3), (3, 4, 2, 5), (2, 1, 3, 4))
DTYPES = (np.float64, np.float32, np.int64, np.int8, np.bool_, np.complex128)


def keys(rng, shape):
    """Keys that select, of NumPy's."""
    ends = [sorted(rng.integers(0, n + 1, 2)) for n in shape]
    made = []
    for d, (lo, hi) in enumerate(ends):
        front = (slice(None),) * d
        made += [(*front, slice(lo, hi)), (*front, slice(None, None, -1)), (*front, slice(None, None, 2))]
        made += [(*front, slice(hi, None, -2)), (*front, int(rng.integers(shape[d])))]
        made += [(*front, rng.integers(0, shape[d], 5)), (*front, rng.permutation(shape[d]))]
        made += [(*front, rng.random(shape[d]) < 0.5), (*front, np.array([], int))]
    made.append(tuple(slice(lo, hi) for lo, hi in ends))
    made.append(tuple(slice(None, None, -1) for _ in shape))
    made.append((int(rng.integers(shape[0])), slice(None), int(rng.integers(shape[2]))))
    made.append((slice(None), slice(1, None), int(rng.integers(shape[2]))))
    return made


def operations(rng, shape):
    """Names, and functions of the module and an array."""
    ndim, size = len(shape), int(np.prod(shape))
    where = tuple(rng.integers(0, n, 6) for n in shape)
    for d, n in enumerate(shape):
        shift = int(rng.integers(-n, 2 * n))
        yield f"flip {d}", lambda m, x, d=d: m.flip(x, d)
        yield f"roll {d}", lambda m, x, d=d, shift=shift: m.roll(x, shift, d)
        yield f"concatenate {d}", lambda m, x, d=d: m.concatenate([x, x[(slice(None),) * d + (slice(0, 1),)], x], d)
        yield f"of nothing {d}", lambda m, x, d=d: m.concatenate([x[:0] if not d else x * 0, x], d)
        yield f"repeat {d}", lambda m, x, d=d: m.repeat(x, 2, d)
        yield f"stack {d}", lambda m, x, d=d: m.stack([x, x], d)
    yield "pad", lambda m, x: m.pad(x, 1)
    diagonal = int(rng.integers(-max(shape), max(shape)))
    yield "lower", lambda m, x: m.tril(x, diagonal)
    yield "upper", lambda m, x: m.triu(x, diagonal)
    yield "pad some", lambda m, x: m.pad(x, [(0, 2)] + [(1, 0)] * (ndim - 1))
    yield "reversed", lambda m, x: m.transpose(x)
    yield "moved", lambda m, x: m.moveaxis(x, 0, -1)
    yield "swapped", lambda m, x: m.swapaxes(x, 0, 1)
    yield "points", lambda m, x: x[where]
    yield "two lists", lambda m, x: x[:, where[1], where[2]]
    yield "tile", lambda m, x: m.tile(x, (2,) + (1,) * (ndim - 2) + (3,))
    yield "matrix", lambda m, x: m.reshape(x, (shape[0], size // shape[0]))
    yield "diagonal", lambda m, x: m.diagonal(x, 0, 0, 2)


def array(rng, shape, dtype, density):
    found = rng.integers(1, 9, shape) * (rng.random(shape) < density)
    return (found + 1j * found if np.dtype(dtype).kind == "c" else found).astype(dtype)


def same(made, wanted, what):
    if isinstance(made, sj.Array):
        validate.validate(made.storage)
        assert made.dtype == wanted.dtype, what
        made = made.todense()
    np.testing.assert_array_equal(np.asarray(made), wanted, err_msg=str(what))


CASES = [(shape, form) for shape in SHAPES for form in FORMATS[len(shape)]]


@pytest.fixture(params=["auto", "passes=numpy", "passes=compiled"])
def chosen(request):
    with sj.config.using(choose=request.param):
        yield request.param


@pytest.mark.rotating(12)
@pytest.mark.parametrize("density", [0.0, 0.05, 0.4, 1.0])
@pytest.mark.parametrize(("shape", "form"), CASES)
def test_selections(shape, form, density, chosen):
    rng = np.random.default_rng([len(form), *shape])
    for dtype in rng.permutation(len(DTYPES))[:2]:
        x = array(rng, shape, DTYPES[dtype], density)
        A = sj.array(x).asformat(form)
        for key in keys(rng, shape):
            same(A[key], x[key], key)
        for name, function in operations(rng, shape):
            same(function(snp, A), function(np, x), name)
        for keep in (0, 1, 2) if x.dtype.kind in "if" else ():
            size = np.abs(x.astype(np.float64))
            rank = np.argsort(np.argsort(-size, axis=-1, kind="stable"), axis=-1)
            same(sj.prune(A, keep=keep), np.where(rank < keep, x, x.dtype.type(0)), ("prune", keep))
        mask = x != x.flat[0]
        same(snp.where(x.flat[0] != A, A, x.dtype.type(0)), np.where(mask, x, x.dtype.type(0)), "where")
    key = keys(rng, shape)[int(rng.integers(9 * len(shape)))]
    if not any(isinstance(k, np.ndarray) and k.dtype == bool for k in key):
        same(sj.jit(lambda A: A[key])(A), x[key], key)


@pytest.mark.rotating(3)
@pytest.mark.parametrize(
    "shape", [(3, 0, 3), (0, 4, 2), (2, 3, 0), (3, 3, 0, 4), (3, 0, 4, 0), (2, 3, 4, 0), (0, 2, 3, 2)]
)
def test_extents_of_nothing(shape, chosen):
    x = np.zeros(shape)
    for form in FORMATS[len(shape)]:
        A = sj.array(x, format=form)
        for d in range(len(shape)):
            front = (slice(None),) * d
            for key in (slice(1, None), slice(None, None, -1), slice(None, None, 2), np.array([], int)):
                same(A[(*front, key)], x[(*front, key)], (form, d, key))
            width = [(0, 0)] * len(shape)
            width[d] = (1, 2)
            same(snp.pad(A, width), np.pad(x, width), (form, "pad", d))
            for name, run in (
                ("three", lambda m, x, d=d: m.concatenate([x, x, x], d)),
                ("roll", lambda m, x, d=d: m.roll(x, 1, d)),
                ("repeat", lambda m, x, d=d: m.repeat(x, 2, d)),
                ("stack", lambda m, x, d=d: m.stack([x, x], d)),
            ):
                same(run(snp, A), run(np, x), (form, name, d))
        same(snp.pad(A, 1), np.pad(x, 1), (form, "pad"))
        same(snp.tril(A), np.tril(x), (form, "tril"))
        twice = (2,) * len(shape)
        same(snp.tile(A, twice), np.tile(x, twice), (form, "tile"))


def traced(A, places, vals, plus):
    return sj.jit(lambda A, v: A.at[places].add(v) if plus else A.at[places].set(v))(A, vals)


@pytest.mark.rotating(12)
@pytest.mark.parametrize("density", [0.0, 0.05, 0.4, 1.0])
@pytest.mark.parametrize(("shape", "form"), CASES)
def test_writes(shape, form, density, chosen):
    rng = np.random.default_rng([len(form), *shape])
    for dtype in rng.permutation(len(DTYPES))[:3]:
        x = array(rng, shape, DTYPES[dtype], density)
        A = sj.array(x).asformat(form)
        for count in (1, 2, 7, 40):
            places = tuple(rng.integers(0, n, count) for n in shape)
            vals = array(rng, (count,), x.dtype, 1.0)
            for plus in (False, True):
                wanted = x.copy()
                np.add.at(wanted, places, vals) if plus else wanted.__setitem__(places, vals)
                at = A.at[places]
                made = at.add(vals) if plus else at.set(vals)
                same(made, wanted, (count, plus))
                assert made.format == A.format
                if count == 7:
                    same(traced(A, places, vals, plus), wanted, "jit")
        lo, hi = sorted(rng.integers(0, shape[1] + 1, 2))
        for key in (
            (0, slice(lo, hi)),
            (slice(None), slice(lo, hi), 0),
            (Ellipsis, -1),
            tuple(int(n) - 1 for n in shape),
        ):
            wanted = x.copy()
            wanted[key] = 3
            same(A.at[key].set(x.dtype.type(3)), wanted, key)
            wanted[key] = (x + np.asarray(3, x.dtype))[key]
            same(A.at[key].add(x.dtype.type(3)), wanted, key)


@pytest.mark.parametrize("form", ["coo", "csf", "(c,q,q)", "(q,q,q)@(2,0,1)", "(c,c,c)@(1,2,0)"])
@pytest.mark.parametrize(
    "extents", [(2**33, 2**34, 2**20), (2**40, 2**40, 2**40), (3, 2**62, 2**31 - 1), (2**62, 5, 7)]
)
def test_extents_beyond_numbers(extents, form):
    """Beside dictionaries of places."""
    rng = np.random.default_rng([extents[0] % 97, len(form)])
    places = {tuple(int(rng.choice([0, 1, n // 2, n - 2, n - 1])) for n in extents) for _ in range(25)}
    stored = {place: float(k + 1) for k, place in enumerate(sorted(places))}
    coords = np.array(list(stored)).T
    A = sj.array((np.array(list(stored.values())), tuple(coords)), shape=extents, format="coo").asformat(form)

    def told(made):
        validate.validate(made.storage)
        columns, vals = made.storage.expand()
        return {tuple(int(c[k]) for c in columns): float(vals[k]) for k in range(len(vals))}

    assert told(A) == stored
    for d, n in enumerate(extents):
        front = (slice(None),) * d
        flipped = {(*p[:d], n - 1 - p[d], *p[d + 1 :]): v for p, v in stored.items()}
        assert told(snp.flip(A, d)) == flipped
        rolled = {(*p[:d], (p[d] + 1) % n, *p[d + 1 :]): v for p, v in stored.items()}
        assert told(snp.roll(A, 1, d)) == rolled
        later = {(*p[:d], p[d] - n // 2, *p[d + 1 :]): v for p, v in stored.items() if p[d] >= n // 2}
        assert told(A[(*front, slice(n // 2, None))]) == later
        if 2 * n < 2**63:
            twice = stored | {(*p[:d], p[d] + n, *p[d + 1 :]): v for p, v in stored.items()}
            assert told(snp.concatenate([A, A], d)) == twice
        moved = {(*p[:d], p[d] + 1, *p[d + 1 :]): v for p, v in stored.items()}
        if n < 2**62:
            assert told(snp.pad(A, [(1, 1) if k == d else (0, 0) for k in range(3)])) == moved
    there = [*list(stored)[:3], (0, 1, 1), (extents[0] - 1, 0, 3), (1, extents[1] - 1, 0)]
    index = tuple(np.array(there).T)
    written = stored | {p: float(k) - 9 for k, p in enumerate(there)}
    assert told(A.at[index].set(np.arange(6.0) - 9)) == written
    summed = dict(stored)
    for k, p in enumerate(there):
        summed[p] = summed.get(p, 0.0) + k + 1
    assert told(A.at[index].add(np.arange(6.0) + 1)) == summed


@pytest.mark.parametrize("form", ["coo", "csf"])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_concatenations_in_blocks(size, form, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", size)
    rng = np.random.default_rng(size)
    for _ in range(30):
        shape = rng.integers(1, 6, rng.integers(2, 5))
        axis = int(rng.integers(len(shape)))
        given = []
        for _ in range(int(rng.integers(2, 5))):
            own = [int(rng.integers(1, 5)) if d == axis else int(n) for d, n in enumerate(shape)]
            given.append(array(rng, own, np.float64, rng.random()))
        made = snp.concatenate([sj.array(x).asformat(form) for x in given], axis)
        same(made, np.concatenate(given, axis), (shape, axis))
