"""The exact simulator against a dense brute force, to the word."""

import numpy as np
import pytest

import sparsejax as sj
from tests.dataflow import brute_force

pytestmark = pytest.mark.rotating(8)

EXPRESSIONS = [
    "ik,kj->ij",
    "ik,jk->ij",
    "ki,kj->ji",
    "ijl,kl->ijk",
    "ikl,jk,jl->ij",
    "ikl,jl,jk->ji",
    "bik,bkj->bij",
    "ikl,klj->ij",
    "ik,k->i",
    "ij,ij->ij",
    "ij,ij->i",
    "ikl,kj->ijl",
    "i,j->ij",
    "ij,k->jki",
    "ik,kj->ikj",
    "i,i->",
    "ij,ij->",
]
MATRICES = ["csr", "csc", "coo", "dense", "bsr:2x2", "ell", "groupcoo:2", "(c,c)"]
TENSORS = ["coo", "csf", "(d,c,c)@(2,0,1)"]


def case(rng, expression):
    """A function, its operands, the same as dense arrays, variables per operand and of the output as they are named, order and tiles."""
    terms, output = expression.split("->")
    terms = terms.split(",")
    extents = {v: int(rng.integers(1, 8)) for v in sorted(set("".join(terms)))}
    operands, arrays = [], []
    for term in terms:
        a = (rng.random([extents[v] for v in term]) < rng.choice([0.0, 0.1, 0.3, 0.6])).astype(float)
        chosen = str(rng.choice({2: MATRICES, 3: TENSORS}.get(a.ndim, ["coo", "dense"])))
        operands.append(sj.array(a, format=chosen))
        coords = operands[-1].storage.expand()[0]
        stored = np.zeros(a.shape)
        stored[tuple(coords)] = 1  # padding of blocks and zeros of dense arrays are stored
        arrays.append(stored)
    letters = iter("ijklmnop")
    names = {v: next(letters) for v in dict.fromkeys(output + "".join(terms))}
    inputs = [[names[v] for v in term] for term in terms]
    variables = list(names.values())
    if len(terms) == 3:
        (own,) = set(inputs[1]) - set(inputs[0])
        order = [v for v in variables if v != own]
        rng.shuffle(order)
        order.append(own)
    else:
        order = list(variables)
        rng.shuffle(order)
    inner = {v: int(rng.integers(1, 4)) for v in variables}
    outer = {v: t * int(rng.integers(1, 4)) for v, t in inner.items()}
    levels = [outer, inner] if rng.random() < 0.5 else [inner]
    return (
        lambda *xs: sj.einsum(expression, *xs, optimize=False),
        operands,
        arrays,
        inputs,
        [names[v] for v in output],
        order,
        levels,
    )


@pytest.mark.parametrize("seed", range(20))
def test_words_equal_a_brute_force(seed):
    rng = np.random.default_rng(seed)
    for _ in range(12):
        function, operands, arrays, inputs, output, order, levels = case(
            rng, EXPRESSIONS[rng.integers(len(EXPRESSIONS))]
        )
        wanted = brute_force.traffic(arrays, inputs, output, order, levels)
        buffers = [10_000] * len(levels)
        told = sj.traffic(function, levels if len(levels) > 1 else levels[0], buffers, order, exact=True)(*operands)
        assert [list(level.words) for level in told.levels] == wanted
        estimated = sj.traffic(function, levels if len(levels) > 1 else levels[0], buffers, order)(*operands)
        assert [level.words[:-1] for level in estimated.levels] == [level.words[:-1] for level in told.levels]
        for level, tiles in zip(told.levels, levels, strict=True):
            for largest, a, variables in zip(level.largest, arrays, inputs, strict=True):
                stored = [v for v in order if v in variables]
                a = a.transpose([variables.index(v) for v in stored])
                assert largest == max(
                    brute_force.csf_words(b) for b in brute_force.blocks(a, [tiles[v] for v in stored])
                )


@pytest.mark.parametrize("order", ["ikj", "ijk", "kij", "jki"])
@pytest.mark.parametrize("tiles", [(16, 9, 13), (64, 64, 64), (1, 1, 1), (16, 200, 16)])
def test_matrices_that_take_the_fast_paths(order, tiles):
    rng = np.random.default_rng(1)
    a, b = (rng.random((80, 50)) < 0.2).astype(float), (rng.random((50, 60)) < 0.2).astype(float)
    at = dict(zip("ikj", tiles, strict=True))
    if tiles == (1, 1, 1):
        a, b = a[:12, :9], b[:9, :10]
    told = sj.traffic(lambda A, B: A @ B, at, order=order, exact=True)(
        sj.array(a, format="csr"), sj.array(b, format="csc")
    )
    assert [list(told.words)] == brute_force.traffic([a, b], ["ik", "kj"], "ij", order, [at])


def test_large_grids_are_counted_by_sorting():
    rng = np.random.default_rng(2)
    where = [np.unique(rng.integers(0, 10**6, (60, 2)), axis=0).T for _ in range(2)]
    operands = [sj.array(sj.formats.Storage(**kept(c))) for c in where]
    told = sj.traffic(lambda A, B: A @ B, {"i": 10, "k": 1000, "j": 10}, exact=True)(*operands)
    a, b = ({(int(x), int(y)) for x, y in c.T} for c in where)
    rows, columns = {(i // 10, k // 1000) for i, k in a}, {(k // 1000, j // 10) for k, j in b}
    loaded = sum(1 for k, _ in columns for _, other in rows if other == k)
    assert told.words[1] == 7 * loaded
    assert told.words[0] == 7 * sum(1 for _, k in rows if any(other == k for other, _ in columns))


def kept(coords):
    form = sj.formats.Format.parse("coo", 2)
    made = sj.formats.convert.from_coords(coords, np.ones(coords.shape[1]), (10**6, 10**6), form, 0.0)
    return {f: getattr(made, f) for f in ("format", "shape", "fill_value", "buffers", "vals")}
