"""Rows and columns of entries as diagonals: the kernels against passes one by one."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, validate
from sparsejax.jit.runtime.passes.between import diagonal_conversions
from sparsejax.jit.runtime.system import threads
from tests.formats.test_block_conversions import same

DIA = ("dia", "(d,o)@(1,0)")


def stored(rng, shape, density, dtype, name, fill=0):
    """Some diagonals, with entries here and there, and a few elsewhere; what is stored may be the fill."""
    near = np.add.outer(-np.arange(shape[0]), np.arange(shape[1]))
    there = rng.random(shape) < np.where(np.isin(near, (-1, 0, 3)), 0.8, density)
    coords = np.stack(np.nonzero(there))
    vals = rng.integers(0, 3, coords.shape[1]).astype(dtype)
    return convert.from_coords(coords, vals, shape, Format.parse(name, 2), np.dtype(dtype).type(fill))


def both_ways(storage, name):
    form = Format.parse(name, 2)
    with config.using(choose="conversion=passes"):
        wanted = convert.convert(storage, form)
    with config.using(choose="conversion=kernel"):
        made = convert.convert(storage, form)
    validate.validate(made)
    return made, wanted


@pytest.fixture
def ran(monkeypatch):
    """What the kernels gave, in order."""
    found, into = [], diagonal_conversions._into

    def noted(storage, format):
        found.append(into(storage, format))
        return found[-1]

    monkeypatch.setattr(diagonal_conversions, "_into", noted)
    return found


@pytest.mark.rotating(6)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8", "c16"])
@pytest.mark.parametrize("target", DIA)
@pytest.mark.parametrize("source", ["csr", "csc", "coo", "(q,q)@(1,0)", "(d,q)"])
def test_every_listed_format_becomes_diagonals(source, target, dtype, parts, ran, monkeypatch):
    monkeypatch.setattr(diagonal_conversions, "FAR", 0)
    monkeypatch.setattr(threads, "count", lambda: parts)
    rng = np.random.default_rng(3)
    for shape in ((1, 1), (5, 9), (9, 5), (40, 40), (2, 60), (60, 2)):
        for density in (0, 0.2):
            for fill in (0, -0.0, 1):
                A = stored(rng, shape, density, dtype, source, fill)
                ran.clear()
                same(*both_ways(A, target))
                assert len(ran) == (sum(shape) <= diagonal_conversions.SPREAD * len(A.vals))


def test_many_entries_become_diagonals_by_kernels(ran):
    n = 3000
    lines = [np.arange(n - 1.0), np.ones(n), np.ones(n - 5)]
    A = sj.numpy.diags(lines, [-1, 0, 5], format="csr")
    made = A.todia()
    assert len(ran) == 1
    np.testing.assert_array_equal(made.storage.buffers[1][1], [-1, 0, 5])
    np.testing.assert_array_equal(made.todense(), A.todense())


def test_of_few_entries_in_a_large_shape_no_mark_is_made(ran):
    A = sj.array((np.ones(3), ([0, 5, 10**9], [1, 10**9, 7])), shape=(10**9 + 1, 10**9 + 1), format="coo")
    with config.using(choose="conversion=kernel"), pytest.raises(FormatError, match="positions"):
        A.asformat("dia")
    assert not ran


def test_diagonals_out_of_proportion_are_refused():
    rng = np.random.default_rng(0)
    n = 40_000
    A = sj.array((np.ones(5000), (rng.integers(0, n, 5000), rng.integers(0, n, 5000))), shape=(n, n), format="csr")
    with pytest.raises(FormatError, match=r"more than .* times"):
        A.todia()
