"""Tiles whose lanes are stored one by one, in a result that lies against them (`tile=strided`), against NumPy."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.jit.ir import choices
from tests.fuzz import engine

PROGRAMS = {
    "columns beside columns": ("ki,kj->ij", "(d,c)@(1,0)"),
    "of stored columns": ("ki,kj->ij", "(c,c)@(1,0)"),
    "three dense indices": ("kli,kj->lij", "(d,c)@(1,0)"),
    "rows of tiles": ("kli,kj->ijl", "(d,c)@(1,0)"),
    "scaled": ("ki,kj,i->ij", "(d,c)@(1,0)"),
    "of blocks": ("ki,kj->ij", "(d,c,d,d)@(1,0,1,0)/(2,3)"),
}
CHOOSE = "tile=strided,results=straight,association=first"


def operands(rng, subscripts, form, dtype, extents):
    made = []
    for names in subscripts.split("->")[0].split(","):
        values = rng.integers(-3, 4, [extents[x] for x in names]).astype(dtype)
        if np.dtype(dtype).kind == "c":
            values = values + 1j * rng.integers(-3, 4, values.shape)
        if names == "kj":
            values = values * (rng.random(values.shape) < 0.3)
            made.append((sj.array(values.astype(dtype), format=form), values))
        else:
            made.append((sj.array(values.astype(dtype)), values))
    return made


def product(subscripts, given):
    return sj.einsum(subscripts, *(a for a, _ in given), optimize=False)


@pytest.mark.rotating(4)
@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "i8", "c16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_numbers_are_exact(name, dtype, masks, processor):
    """Every width of strip, with lanes that are left over; nothing is rounded."""
    processor(masks)
    subscripts, form = PROGRAMS[name]
    rng = np.random.default_rng(7)
    for i in (1, 2, 3, 4, 8, 15, 16, 40):
        extents = {"i": i, "j": int(rng.integers(1, 12)), "k": int(rng.integers(1, 12)), "l": int(rng.integers(1, 6))}
        given = operands(rng, subscripts, form, dtype, extents)
        with engine.quick(), config.using(choose=CHOOSE):
            made = product(subscripts, given)
        np.testing.assert_array_equal(made.todense(), np.einsum(subscripts, *(d for _, d in given)))


def test_small_programs_are_tiled_so():
    choices.TAKEN.clear()
    rng = np.random.default_rng(0)
    extents = {"i": 16, "j": 40, "k": 30}
    for name in ("columns beside columns", "scaled"):
        subscripts, form = PROGRAMS[name]
        given = operands(rng, subscripts, form, "f8", extents)
        with config.using(choose=CHOOSE):
            before = choices.TAKEN["tile", "strided"]
            made = product(subscripts, given)
        assert choices.TAKEN["tile", "strided"] > before
        np.testing.assert_array_equal(made.todense(), np.einsum(subscripts, *(d for _, d in given)))


def test_a_result_against_its_operand_is_written_directly():
    """Eight columns, whose lines the first cache holds until their next elements come."""
    rng = np.random.default_rng(0)
    A = sj.array((rng.random((3000, 3001)) < 0.002) * 1.0, format="csr")
    f = sj.jit(lambda X, A: X.T @ A)
    X = sj.array(rng.random((3000, 8)))
    text = f.lower(X, A).as_text("cin")
    assert "(tile)" in text and "convert_format" not in text, text
    np.testing.assert_allclose(f(X, A).todense(), X.todense().T @ A.todense(), rtol=1e-12)


def test_tiles_of_sums_that_are_added_to_a_result():
    """The result is read before it is stored: what was there stays in lanes that are left over."""
    rng = np.random.default_rng(1)
    A = rng.integers(-3, 4, (9, 7, 6)) * (rng.random((9, 7, 6)) < 0.4) * 1.0
    X = rng.integers(-3, 4, (9, 6, 5)) * 1.0
    with engine.quick(), config.using(choose=CHOOSE):
        for form in ("(d,d,c)@(1,0,2)", "(c,c,c)@(1,0,2)", "(d,c,c)@(0,1,2)"):
            made = sj.einsum("pjk,pki->ij", sj.array(A, format=form), sj.array(X), optimize=False)
            np.testing.assert_array_equal(made.todense(), np.einsum("pjk,pki->ij", A, X))
