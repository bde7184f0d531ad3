"""Extents that no array has are refused by name, at once and traced, also where a shape is computed from that of an operand."""

import warnings

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax, nn
from sparsejax.core.avals import Aval
from sparsejax.errors import FormatError
from sparsejax.formats import Format
from sparsejax.lax import names

A = sj.array(np.eye(3), format="csr")
X, IDS = np.arange(4.0), np.arange(4) % 2
MADE = {
    "zeros": lambda n: snp.zeros((2, n)),
    "full": lambda n: snp.full(n, 2.0),
    "lax.full": lambda n: lax.full((n,), 2.0),
    "empty csr": lambda n: snp.zeros((n, 3), format="csr"),
    "full of a vector": lambda n: snp.full((n, 4), X),
    "broadcast_to": lambda n: snp.broadcast_to(X, (n, 4)),
    "broadcast_to of a csr": lambda n: snp.broadcast_to(A, (n, 3, 3)),
    "full_like": lambda n: snp.full_like(A, 1.0, shape=(n, 3)),
    "segment_sum": lambda n: nn.segment_sum(X, IDS, n),
    "segment_max": lambda n: nn.segment_max(X, IDS, n),
    "segment_sum of a csr": lambda n: nn.segment_sum(A, IDS[:3], n),
    "one_hot": lambda n: nn.one_hot(IDS, n),
    "iota": lambda n: lax.iota(np.int64, n),
    "broadcasted_iota": lambda n: lax.broadcasted_iota(np.int64, (n, 3), 0),
    "uniform": lambda n: sj.random.uniform(sj.random.key(0), (n,)),
    "tri": lambda n: snp.tri(n, 3),
    "eye": lambda n: snp.eye(3, n),
    "random.bits": lambda n: sj.random.bits(sj.random.key(0), (n,)),
    "random.sparse": lambda n: sj.random.sparse(sj.random.key(0), (n, 3), 0.1),
}


@pytest.mark.parametrize("name", MADE)
def test_negative_extents(name):
    make = MADE[name]
    with pytest.raises(FormatError, match="extent"):
        make(-2)
    with pytest.raises(FormatError, match="extent"):
        sj.jit(lambda x: make(-2) + x)(1.0)
    with pytest.raises(FormatError, match="extent"):
        sj.vmap(lambda x: make(-2).sum() + x)(X)
    assert 0 in make(0).shape


@pytest.mark.parametrize("extent", [-1, 2**63])
@pytest.mark.parametrize(
    "make",
    [
        lambda shape: snp.zeros(shape),
        lambda shape: snp.zeros(list(shape), format="csr"),
        lambda shape: sj.array(([1.0], ([0], [0])), shape=shape),
        lambda shape: sj.Builder(shape),
        lambda shape: sj.ShapeDtypeStruct(shape, float),
        lambda shape: Aval(shape, float, Format.parse("dense", 2)),
    ],
)
def test_extents_are_refused_in_one_sentence(make, extent):
    """Types refuse them, too: what forgets to look at a shape makes no array of it."""
    said = rf"axis 1 of shape=\(2, {extent}\) has extent {extent}; extents are from 0 to 2\^63 - 1"
    with pytest.raises(FormatError, match=said):
        make((2, extent))


@pytest.mark.parametrize(
    "make",
    [
        lambda x, n: snp.zeros(n),
        lambda x, n: snp.broadcast_to(x.sum(), (n, 2)),
        lambda x, n: lax.full((n,), x[0]),
        lambda x, n: nn.segment_sum(x, snp.arange(x.shape[0]), n),
    ],
)
def test_negative_extents_of_later_shapes(make):
    f = sj.jit(lambda x: make(x, x.shape[0] - 5) + 1)
    for n in (10, 9, 8, 5, 7, 12):
        assert f(np.ones(n)).shape[0] == n - 5
    for n in (4, 3):
        with pytest.raises(FormatError, match="extent"):
            f(np.ones(n))
    assert f(np.ones(6)).shape[0] == 1


@pytest.mark.parametrize("operand", [X, A], ids=["dense", "csr"])
@pytest.mark.parametrize(
    ("start", "limit", "stride", "said"),
    [
        (-1, 3, 1, "dimension 0"),
        (0, 9, 1, "dimension 0"),
        (2, 1, 1, "dimension 0"),
        (0, 3, 0, "stride"),
        (0, 3, -1, "stride"),
    ],
)
def test_windows_that_reach_out(operand, start, limit, stride, said):
    rest = np.ndim(operand) - 1 if operand is X else 1
    args = (start, *[0] * rest), (limit, *[3] * rest), (stride, *[1] * rest)
    with pytest.raises(ValueError, match=said):
        names.slice(operand, *args)
    with pytest.raises(ValueError, match=said):
        sj.jit(lambda x: names.slice(x, *args) * 2)(operand)


def test_windows_of_another_number_of_dimensions():
    with pytest.raises(ValueError, match="one per dimension"):
        lax.slice(X, (0, 0), (4,))
    np.testing.assert_array_equal(lax.slice(A, (1, 0), (3, 3), (1, 2)).todense(), np.eye(3)[1:3, 0:3:2])


@pytest.mark.parametrize("operand", [np.arange(12.0).reshape(3, 4), A], ids=["dense", "csr"])
@pytest.mark.parametrize("name", ["split", "array_split", "hsplit", "vsplit"])
@pytest.mark.parametrize("where", [1, 2, 3, [1], [0, 2], [2, 1], [1, 7], np.array([1, 2]), sj.array(np.array([1, 2]))])
def test_splits_are_numpys(operand, name, where):
    dense = operand if isinstance(operand, np.ndarray) else operand.todense()
    cuts = where.todense() if isinstance(where, sj.Array) else where
    try:
        expected = getattr(np, name)(dense, cuts)
    except ValueError:
        with pytest.raises(ValueError, match="equal division"):
            getattr(snp, name)(operand, where)
        return
    made = getattr(snp, name)(operand, where)
    assert len(made) == len(expected)
    for a, b in zip(made, expected, strict=True):
        np.testing.assert_array_equal(a.todense(), b)


@pytest.mark.parametrize("name", ["split", "array_split", "hsplit", "vsplit"])
def test_no_sections(name):
    with pytest.raises(ValueError, match="indices_or_sections=0"):
        getattr(snp, name)(A, 0)


@pytest.mark.parametrize("count", [2**63, 2**40, 2**24 + 1])
def test_more_sections_than_memory_holds(count):
    for cut in (snp.array_split, sj.jit(lambda A, count=count: snp.array_split(A, count))):
        with pytest.raises(ValueError, match=f"indices_or_sections={count} asks"):
            cut(A, *[count][: cut is snp.array_split])
    assert len(snp.array_split(A, 5)) == 5


@pytest.mark.parametrize("k", [2**63 - 1, -(2**63), 10**30])
@pytest.mark.parametrize("name", ["diag", "diagflat"])
def test_diagonals_too_far_away(name, k):
    with pytest.raises(FormatError, match="extents are from 0"):
        getattr(snp, name)(sj.array(np.arange(6.0)), k)


def test_infinities_that_meet_are_no_news():
    given = np.array([np.inf, -np.inf]), (np.array([0, 0]), np.array([0, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = sj.array(given, shape=(2, 2), format="csr")
    assert np.isnan(made.todense()[0, 0]) and made.nnz == 1
