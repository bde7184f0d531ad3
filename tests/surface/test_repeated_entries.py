"""Functions of arrays in whose last level coordinates repeat (`n`): of the sums of what repeats, as NumPy's of the dense array."""

import numpy as np
import pytest
import scipy.special

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from tests import rotation

FUNCTIONS = {
    "var": (lambda p, x: p.var(x), lambda p, x: p.var(x, axis=0)),
    "std": (lambda p, x: p.std(x), lambda p, x: p.std(x, axis=-1)),
    "prod": (lambda p, x: p.prod(x), lambda p, x: p.prod(x, axis=0)),
    "min": (lambda p, x: p.min(x), lambda p, x: p.max(-abs(x)), lambda p, x: p.max(x, axis=-1)),
    "ptp": (lambda p, x: p.ptp(x),),
    "all": (lambda p, x: p.all(x), lambda p, x: p.any(x, axis=0)),
    "digitize": (lambda p, x: p.digitize(x, [0.5, 2.5, 4]),),
    "isin": (lambda p, x: p.isin(x, [1, 3, 4]), lambda p, x: p.isin(x, [0, 2], invert=True)),
    "interp": (lambda p, x: p.interp(x, [0.0, 3.0, 6.0], [1.0, 2.0, 9.0]),),
    "entrywise": (lambda p, x: p.exp(x) + x * x, lambda p, x: x**3 > 2, lambda p, x: p.where(x > 2, x, -1)),
    "unique": (lambda p, x: p.unique(x), lambda p, x: p.count_nonzero(x)),
    "places": (lambda p, x: p.argmax(x), lambda p, x: p.argmin(x), lambda p, x: p.histogram(x, bins=4)[0]),
    "order": (lambda p, x: p.sort(x), lambda p, x: p.argmax(x), lambda p, x: p.median(x), lambda p, x: p.cumsum(x)),
    "norm": (lambda p, x: p.linalg.norm(x), lambda p, x: abs(x).sum(axis=0)),
}


def repeated(rng, shape):
    """An array whose entries repeat, small integers, and a dense copy."""
    rows, columns = (1, *shape)[-2:]
    count = int(rng.integers(0, 2 * rows * columns + 1))
    row, column = np.sort(rng.integers(0, rows, count)), rng.integers(0, columns, count)
    order = np.lexsort((column, row))
    row, column, vals = row[order], column[order].astype(np.int32), rng.integers(-2, 4, count).astype(float)
    pos = np.searchsorted(row, np.arange(rows + 1))
    form = Format.parse("(d,n)" if len(shape) == 2 else "(n)", len(shape))
    dense = np.zeros((rows, columns))
    np.add.at(dense, (row, column), vals)
    buffers = ((), (pos, column)) if len(shape) == 2 else ((pos, column),)
    return sj.array(Storage(form, shape, np.float64(0), buffers, vals)), dense.reshape(shape)


def check(made, expected):
    made = made.todense() if isinstance(made, sj.Array) else made
    np.testing.assert_allclose(made, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(rotation.examples(3)))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_beside_numpy(name, seed):
    rng = np.random.default_rng([seed, *name.encode()])
    for shape in [(4, 5), (3, 2), (6,), (1,)]:
        x, dense = repeated(rng, shape)
        for function in FUNCTIONS[name]:
            check(function(snp, x), function(np, dense))
    check(
        sj.jit(lambda x, f=FUNCTIONS[name][0]: f(snp, x))(x) if name != "unique" else x,
        FUNCTIONS[name][0](np, dense) if name != "unique" else dense,
    )


@pytest.mark.parametrize("seed", range(rotation.examples(6)))
def test_what_numpy_has_not(seed):
    rng = np.random.default_rng(seed)
    for shape in [(4, 5), (6,)]:
        x, dense = repeated(rng, shape)
        k = int(rng.integers(0, shape[-1] + 1))
        values, places = sj.lax.top_k(x, k)
        check(values, -np.sort(-dense, axis=-1)[..., :k])
        check(np.take_along_axis(dense, places.todense().astype(int), -1), values.todense())
        check(sj.lax.pattern(x), sj.lax.pattern(x).todense() != 0)
        check(sj.lax.lgamma(abs(x) + 1), scipy.special.gammaln(abs(dense) + 1))
        check(sj.lax.erfc(x), scipy.special.erfc(dense))
        once = x.sum_duplicates()
        check(once, dense)
        assert once.nnz == np.count_nonzero(sj.lax.pattern(x).todense())
        check(sj.grad(lambda x: snp.var(x))(x), sj.grad(lambda x: snp.var(x))(once).todense())


def test_an_array_without_repeats_is_its_own_sum():
    x = sj.array(np.eye(3), format="csr")
    assert x.sum_duplicates() is x
