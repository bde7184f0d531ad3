"""Products of small blocks by index arrays: short loops that are written out in register tiles, and which walk is chosen for their targets."""

import re

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

ROWS = "C[R[p],i,n] += V[p,i,j] * B[K[p],j,n]"
GROUPS = "C[R[p],i,n] += V[p,q,i,j] * B[K[p,q],j,n]"
BEHIND = "+ 512)"
"""How many float32 values of blocks lie between what is read and what is fetched of them, in addresses."""
EPS = np.finfo(np.float32).eps


def _given(rng, count, slots, size, inner, columns, places):
    beside = () if slots is None else (slots,)
    return {
        "R": np.sort(rng.integers(0, places, count)),
        "K": rng.integers(-places, places, (count, *beside)),
        "V": rng.standard_normal((count, *beside, size, inner)).astype("f4"),
        "B": rng.standard_normal((places, inner, columns)).astype("f4"),
    }


def _expected(given, places):
    """The sum in double precision, and that of the absolute terms."""
    V, read = given["V"].astype(float), given["B"].astype(float)[given["K"]]
    sums, bounds = np.zeros((2, places, V.shape[-2], read.shape[-1]))
    for made, (a, b) in ((sums, (V, read)), (bounds, (abs(V), abs(read)))):
        terms = np.einsum("pij,pjn->pin" if V.ndim == 3 else "pqij,pqjn->pin", a, b)
        np.add.at(made, given["R"], terms)
    return sums, bounds


@pytest.mark.parametrize("choose", ["auto", "columns=packed", "targets=pairs", "sums=block", "sums=walk"])
@pytest.mark.parametrize("text", [ROWS, GROUPS], ids=["rows", "groups"])
def test_blocks_of_any_size_by_one_function(text, choose):
    """Extents from 1 to 10 in turns, of one function: those that are written out, and longer ones; rows that are no multiple of a tile."""
    rng = np.random.default_rng(5)
    run = sj.jit(lambda C, given: sj.insum(text, C=C, **given))
    for _ in range(12):
        size, inner, slots = rng.integers(1, 11, 3)
        columns, places, count = int(rng.choice([3, 24, 40])), int(rng.integers(1, 6)), int(rng.integers(1, 30))
        given = _given(rng, count, None if text == ROWS else slots, size, inner, columns, places)
        with sj.config.using(choose=choose):
            made = np.asarray(run(np.zeros((places, size, columns), "f4"), given))
        sums, bounds = _expected(given, places)
        assert (abs(made - sums) <= (count * slots * inner + 2) * EPS * bounds).all(), (size, inner, slots, columns)


@pytest.mark.parametrize("sums", ["walk", "block"])
def test_rows_that_a_later_block_meets_are_fetched(sums, processor):
    """Of entries by target and by what they read: rows at the coordinate of a later entry of the walk that picks them, not of this one."""
    processor(True)
    given = _given(np.random.default_rng(6), 60, None, 32, 32, 128, 8)
    run = sj.jit(lambda C, given: sj.insum(ROWS, C=C, **given))
    start = np.zeros((8, 32, 128), "f4")
    with sj.config.using(choose=f"targets=pairs,sums={sums},prefetch=ahead"):
        sums_of, bounds = _expected(given, 8)
        assert (abs(np.asarray(run(start, given)) - sums_of) <= 60 * 34 * EPS * bounds).all()
        text = run.lower(start, given).as_text("loops")
    lines = [line for line in text.splitlines() if BEHIND not in line]
    fetched = {m for line in lines if "prefetch" in line for m in re.findall(r"vals \+ \(+(\w+) \*", line)}
    read = {
        m for line in lines if ":" in line and "prefetch" not in line for m in re.findall(r"\.vals\[\(+(\w+) \*", line)
    }
    assert not fetched & read
    assert fetched or sums == "walk"


@pytest.mark.parametrize("slots", [2, 3, 4, 8])
def test_slots_of_groups_fetch_what_the_second_next_meets(slots, processor):
    """Of groups whose slots are walked one by one: the rows at the slot two places later, in this group or in the next one."""
    processor(True)
    given = _given(np.random.default_rng(7), 20, slots, 32, 32, 128, 8)
    run = sj.jit(lambda C, given: sj.insum(GROUPS, C=C, **given))
    start = np.zeros((8, 32, 128), "f4")
    with sj.config.using(choose="sums=block,prefetch=ahead"):
        sums_of, bounds = _expected(given, 8)
        assert (abs(np.asarray(run(start, given)) - sums_of) <= 20 * slots * 34 * EPS * bounds).all()
        text = run.lower(start, given).as_text("loops")
    lines = [line for line in text.splitlines() if BEHIND not in line]
    led = {m for line in lines if "prefetch" in line for m in re.findall(r"vals \+ \(+(\w+) \*", line)}
    places = [line.split("vals[")[1] for line in lines if any(f"{name} = " in line for name in led)]
    assert places
    parts = {name for place in places for name in re.findall(r"part\w*", place)}
    whole = [place for place in places if "part" not in place]
    whole += [line for line in lines if any(f"{name} = " in line for name in parts)]
    assert whole
    assert all("+ 2)" in place and "?" in place for place in whole)


@pytest.mark.parametrize("choose", ["columns=packed,prefetch=ahead", "sums=block,prefetch=ahead", "prefetch=none"])
@pytest.mark.parametrize("form", ["bsr:8x8", "bsr:32x32", "blockgroupcoo:8x8:4"])
def test_values_of_later_blocks_are_fetched(form, choose, processor):
    """Wherever tiles fetch what later blocks meet, as many lines of values as a tile reads of a block, or a part of them by each of its strips."""
    processor(True)
    rng = np.random.default_rng(8)
    dense = np.kron(rng.random((6, 6)) < 0.4, np.ones((32, 32))) * rng.standard_normal((192, 192))
    A, B = sj.array(dense.astype("f4")).asformat(form), rng.standard_normal((192, 96)).astype("f4")
    product = sj.jit(lambda A, B: A @ B)
    with sj.config.using(choose=choose):
        np.testing.assert_allclose(np.asarray(product(A, B)), dense.astype("f4") @ B, rtol=1e-4, atol=1e-4)
        text = product.lower(A, B).as_text("loops")
    fetched = [line for line in text.splitlines() if "A.vals" in line and "prefetch" in line and BEHIND in line]
    assert bool(fetched) == ("ahead" in choose)


def test_segments_whose_places_are_coordinates_fetch_as_walks_do(processor):
    """Rows that are sorted: the loop over places fetches rows at a later place and values, as that over entries beside it."""
    processor(True)
    given = _given(np.random.default_rng(9), 60, None, 8, 8, 96, 8)
    run = sj.jit(lambda C, given: sj.insum(ROWS, C=C, **given))
    start = np.zeros((8, 8, 96), "f4")
    with sj.config.using(choose="targets=rows,sums=walk,prefetch=ahead"):
        sums, bounds = _expected(given, 8)
        assert (abs(np.asarray(run(start, given)) - sums) <= 60 * 10 * EPS * bounds).all()
        text = run.lower(start, given).as_text("loops")
    places = text.split("for q in")
    assert len(places) > 1
    for part in places[1:]:
        before = part.split("for ")[0]  # up to the next loop
        assert "prefetch" in before
        assert BEHIND in before


def test_targets_of_blocks_are_rows_and_those_of_vectors_pairs():
    """Entries that share a matrix with rows of their own are not sorted by it; entries of one row each are, where enough name the same."""
    rng = np.random.default_rng(5)
    blocks = _given(rng, 400, None, 8, 8, 32, 4)

    def product(given):
        return sj.insum(ROWS, C=snp.zeros((4, 8, 32), np.float32), **given)

    def convolution(X, Y, Z, In, W):
        return sj.insum(
            "Out[X[p],m] += In[Y[p],c] * W[Z[p],c,m]", Out=snp.zeros((40, 32), np.float32), X=X, Y=Y, Z=Z, In=In, W=W
        )

    X, Y, Z = rng.integers(0, 40, 400), rng.integers(0, 40, 400), rng.integers(0, 4, 400)
    In, W = rng.standard_normal((40, 16)).astype("f4"), rng.standard_normal((4, 16, 32)).astype("f4")
    assert "pairs" not in str(sj.explain(product)(blocks))
    assert "pairs" in str(sj.explain(convolution)(X, Y, Z, In, W))
