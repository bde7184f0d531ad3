"""Masks that are tested where marks are drained, against those that are tested at every insertion and a dense reference."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from examples import graphs
from sparsejax.jit.ir import choices

WAYS = "inserted", "drained"
SEMIRINGS = {"or_pair": "bool", "any_pair": "float32", "max_pair": "int32", "min_pair": "float64"}
MASKS = "bool", "int8", "uint16", "int32", "int64", "float32", "float64"
SIZES = 1, 5, 63, 64, 65, 128, 300, 1000


def _matrix(rng, shape, density):
    made = sp.random_array(shape, density=density, format="csr", rng=rng)
    return sp.csr_array((np.ones(made.nnz), made.indices, made.indptr), shape)


def _mask(rng, shape, dtype):
    """With negative numbers, numbers that only a wide type holds, and NaNs, which let through as all that is not zero does."""
    least = rng.choice([0.1, 0.5, 0.9, 0.0, 1.0])
    mask = (rng.random(shape) < least).astype(dtype)
    numbers = {"f": [1.0, -0.5, np.nan, np.inf, -0.0], "i": [1, -1, -128], "u": [1, 256], "b": [True]}[mask.dtype.kind]
    return np.where(mask, rng.choice(np.array(numbers, dtype), shape), mask)


def _forced(way, function, *arguments, more="", threads=1):
    before = choices.TAKEN["mask_tests", way]
    wish = f"mask_tests={way},chunks={'two' if threads > 1 else 'whole'}{more}"
    with sj.config.using(choose=wish, workspace="marks", num_threads=threads, parallel_work=0):
        made = sj.jit(function)(*arguments)
    return made, choices.TAKEN["mask_tests", way] > before


@pytest.mark.rotating(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("complement", [False, True])
@pytest.mark.parametrize("semiring", SEMIRINGS)
@pytest.mark.parametrize("dtype", MASKS)
def test_drained_as_inserted(dtype, semiring, complement, threads):
    rng = np.random.default_rng([len(dtype), len(semiring), complement, threads])

    def step(x, A, mask):
        return sj.einsum("i,ij->j", x, A, semiring=semiring, mask=mask, complement=complement, out_format="coo")

    for n in rng.choice(SIZES, 3, replace=False):
        A = _matrix(rng, (int(rng.choice(SIZES)), int(n)), rng.choice([0.05, 0.3]))
        x = rng.random(A.shape[0]) < rng.choice([0.0, 0.1, 1.0])
        mask = _mask(rng, n, dtype)
        operands = sj.array(x).asformat("coo").astype(SEMIRINGS[semiring]), sj.array(A), mask
        made = {}
        for way in WAYS:
            made[way], taken = _forced(way, step, *operands, threads=threads)
            assert taken
        met = ((x.astype(int) @ A.astype(int)) > 0) & (np.asarray(mask, bool) ^ complement)
        for found in made.values():
            fill = found.fill_value
            assert found.nnz == met.sum()
            assert np.array_equal(np.asarray(found.todense()), np.where(met, 1, fill).astype(found.dtype))


@pytest.mark.parametrize("meeting", ["merged", "scattered"])
@pytest.mark.parametrize("seed", range(4))
def test_entries_that_another_operand_lacks_are_not_inserted(seed, meeting):
    rng = np.random.default_rng([seed, 7])
    n = int(rng.choice(SIZES))
    A, y = _matrix(rng, (40, n), 0.3), rng.random(n) < 0.4
    x, mask = rng.random(40) < 0.5, _mask(rng, n, "int32")

    def step(x, A, y, mask):
        return sj.einsum("i,ij,j->j", x, A, y, semiring="or_pair", mask=mask, out_format="coo")

    operands = sj.array(x).asformat("coo"), sj.array(A), sj.array(y).asformat("coo"), mask
    met = ((x.astype(int) @ A.astype(int)) > 0) & y & mask.astype(bool)
    for way in WAYS:
        made, _ = _forced(way, step, *operands, more=f",meeting={meeting}")
        assert made.nnz == met.sum()
        assert np.array_equal(np.asarray(made.todense()), met)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_searches_over_many_rounds(seed, way, threads):
    rng = np.random.default_rng([seed, 11])
    n = int(rng.choice([5, 64, 130, 700]))
    A = _matrix(rng, (n, n), rng.choice([0.5, 1.5, 4.0]) / n)
    source = int(rng.integers(n))
    made, taken = _forced(way, graphs.bfs.__wrapped__, sj.array(A), source, threads=threads)
    assert taken
    assert np.array_equal(np.asarray(made.todense()), graphs.levels_reference(A, source))


@pytest.mark.parametrize("way", WAYS)
def test_marks_are_clean_for_the_next_row(way):
    """Every row of a product uses the same workspace; a vector is the mask of all of them."""
    rng = np.random.default_rng(3)
    A, B, mask = _matrix(rng, (50, 70), 0.1), _matrix(rng, (70, 130), 0.1), _mask(rng, 130, "float32")

    def product(A, B, mask):
        return sj.einsum(
            "ik,kj->ij", A, B, semiring="or_pair", mask=snp.broadcast_to(mask, (50, 130)), out_format="csr"
        )

    made, _ = _forced(way, product, sj.array(A), sj.array(B), mask)
    assert np.array_equal(np.asarray(made.todense()), ((A @ B).toarray() > 0) & mask.astype(bool))


def test_only_what_is_legal_is_drained():
    rng = np.random.default_rng(5)
    A, x = sj.array(_matrix(rng, (90, 90), 0.2)), sj.array(rng.random(90) < 0.5).asformat("coo")
    mask = _mask(rng, 90, "float64")
    masks = {"sparse": sj.array(mask).asformat("coo"), "complex": mask + 0j, "dense": mask}
    legal = set()
    for (name, given), semiring in itertools.product(masks.items(), ("or_pair", "plus_pair", "max_second")):

        def step(x, A, given, semiring=semiring):
            return sj.einsum("i,ij->j", x, A, semiring=semiring, mask=given, out_format="coo")

        drained, taken = _forced("drained", step, x, A, given)
        inserted, _ = _forced("inserted", step, x, A, given)
        assert np.array_equal(np.asarray(drained.todense()), np.asarray(inserted.todense()))
        assert drained.nnz == inserted.nnz
        legal |= {(name, semiring)} if taken else set()
    assert legal == {("dense", "or_pair")}


def test_values_that_are_kept_are_not_inserted_in_vain():
    rng = np.random.default_rng(6)
    A, x, mask = _matrix(rng, (90, 90), 0.2), rng.random(90) < 0.5, _mask(rng, 90, "int32")

    def step(x, A, mask):
        return sj.einsum("i,ij->j", x, A, semiring="or_pair", mask=mask, out_format="coo")

    made, _ = _forced("drained", step, sj.array(x).asformat("coo"), sj.array(A), mask, more=",entries=kept")
    assert np.array_equal(np.asarray(made.todense()), ((x.astype(int) @ A.astype(int)) > 0) & mask.astype(bool))
