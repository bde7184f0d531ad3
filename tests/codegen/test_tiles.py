"""Tiles of registers over one and two dense variables (`tile`, `register_tiles`), against NumPy."""

import random
import re

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.backend import host
from tests import bounds
from tests.fuzz import engine
from tests.prices import priced

SUBSCRIPTS = (
    "ijb,jk->ibk",
    "ijb,jk->bik",
    "ijb,jkb->ikb",
    "ijb,bjk->bik",
    "ij,jkb->ibk",
    "ijb,ik,jk->ijb",
    "ijb,ijb,jk->ikb",
    "ijb,jkc->ibkc",
)
EXTENTS = {"b": (1, 3, 4, 5, 9), "k": (1, 2, 7, 16, 37), "c": (1, 6)}


def operands(rng, subscripts, dtype):
    """The first operand with values under one pattern, the others dense, in any order."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    sizes = {"i": 5, "j": 6} | {x: rng.choice(ns) for x, ns in EXTENTS.items()}
    pattern = nrng.random((5, 6)) < 0.5
    made = []
    for ls in subscripts.split("->")[0].split(","):
        values = nrng.standard_normal([sizes[x] for x in ls]).astype(dtype)
        if "i" in ls and "j" in ls:
            kept = values * pattern.reshape(*pattern.shape, *(1 for _ in ls[2:]))
            made.append((snp.asarray(kept).asformat(f"(d,c{',d' * (len(ls) - 2)})"), kept))
        else:
            order = rng.sample(range(len(ls)), len(ls))
            form = f"({','.join('d' * len(ls))})@({','.join(map(str, order))})"
            made.append((snp.asarray(values).asformat(form), values))
    return made


@pytest.mark.rotating(2)
@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_random_extents_and_orders(subscripts):
    rng = random.Random(subscripts)
    with engine.quick():
        for _ in range(8):
            dtype = rng.choice(("f8", "f4"))
            given = operands(rng, subscripts, dtype)
            made = sj.einsum(subscripts, *(a for a, _ in given), optimize=False)
            exact, terms = (np.einsum(subscripts, *(f(bounds.wide(d)) for _, d in given)) for f in (np.asarray, np.abs))
            bounds.check(made.todense(), exact, terms)


def loops(subscripts, sizes):
    rng = np.random.default_rng(0)
    pattern = rng.random((sizes["i"], sizes["j"])) < 8 / sizes["j"]
    inputs, out = subscripts.split("->")
    first, second = inputs.split(",")
    values = rng.random([sizes[x] for x in first]) * pattern.reshape(*pattern.shape, *(1 for _ in first[2:]))
    A = snp.asarray(values).asformat(f"(d,c{',d' * (len(first) - 2)})")
    form = f"({','.join('d' * len(out))})"
    f = sj.jit(lambda A, X: sj.einsum(subscripts, A, X, out_format=form))
    return f.lower(A, rng.random([sizes[x] for x in second])).as_text("cin")


@pytest.mark.parametrize(
    ("subscripts", "tiles"), [("ijb,jk->ibk", 2), ("ijb,jk->bik", 2), ("ijb,bjk->bik", 2), ("ij,jk->ik", 1)]
)
def test_dense_variables_inside_reductions_are_tiled(subscripts, tiles):
    text = loops(subscripts, {"i": 500, "j": 500, "b": 16, "k": 16})
    assert text.count("(tile)") == tiles, text


def test_a_variable_above_a_sparse_level_is_not_tiled():
    """The batch of patterns of their own."""
    rng = np.random.default_rng(0)
    values = rng.random((6, 50, 50)) * (rng.random((6, 50, 50)) < 0.1)
    A, X = snp.asarray(values).asformat("(d,d,c)"), rng.random((50, 16))
    f = sj.jit(lambda A, X: sj.einsum("bij,jk->bik", A, X))
    assert f.lower(A, X).as_text("cin").count("(tile)") == 1
    np.testing.assert_allclose(f(A, X).todense(), values @ X)


def test_masks_of_stored_entries_let_dense_levels_below_run_in_lanes():
    """The gradient of a product by values under one pattern."""
    rng = np.random.default_rng(1)
    values = rng.random((300, 400, 16)) * (rng.random((300, 400, 1)) < 0.02)
    V, X = snp.asarray(values).asformat("(d,c,d)@(0,1,2)"), rng.random((400, 16))
    f = sj.jit(sj.vmap(sj.grad(lambda A, X: ((A @ X) ** 2).sum() / 2), in_axes=(2, None), out_axes=2))
    text = f.lower(V, X).as_text("cin")
    inside = text[: text.index("masked(stored(A[i,j,k])")].rpartition("forall j")[2]
    assert "(tile)" in inside or "(vector)" in inside, text
    kept = values != 0
    wanted = np.stack([(v @ X) @ X.T for v in np.moveaxis(values, 2, 0)], axis=2) * kept
    np.testing.assert_allclose(f(V, X).todense(), wanted, rtol=1e-12)


def test_what_is_stored_in_other_orders_is_not_read_in_lanes():
    """Values of a masked operand whose innermost level is another variable."""
    rng = np.random.default_rng(2)
    values, b = rng.standard_normal((4, 2, 3)), rng.standard_normal((2, 3))
    A, B = snp.asarray(values).asformat("(c,d,d)@(2,0,1)"), snp.asarray(b).asformat("(q,d)@(1,0)")
    made = sj.einsum("bca,ca->cb", A, B, semiring="max_plus")
    np.testing.assert_allclose(made.todense(), (values + b).max(axis=2).T)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4"])
@pytest.mark.parametrize("columns", [127, 128, 129, 256, 300])
def test_rows_of_many_vectors(columns, dtype):
    rng = np.random.default_rng(columns)
    A = (rng.integers(-3, 4, (7, 9)) * (rng.random((7, 9)) < 0.4)).astype(dtype)
    H = rng.integers(-3, 4, (9, columns)).astype(dtype)
    with engine.quick():
        made = sj.jit(lambda A, H: A @ H)(sj.array(A, format="csr"), H)
    np.testing.assert_array_equal(made.todense(), A @ H)


def test_long_rows_are_tiled_widely_where_registers_are_plenty():
    def texts(columns):
        return (
            sj.jit(lambda A, H: A @ H).lower(sj.array(np.eye(5), format="csr"), np.ones((5, columns))).as_text("loops")
        )

    assert "step 128" not in texts(127)
    assert ("step 128" in texts(128)) == host.has_masks()


def block_products():
    """Random products of arrays in blocks with dense ones: blocks that stick out, few and many columns."""
    rng = np.random.default_rng(20)
    for block in ((2, 2), (3, 5), (8, 4), (8, 8), (5, 1)):
        rows, inner = (int(n) for n in rng.integers(1, 30, 2))
        for columns in (1, 3, 16, 37):
            kept = rng.random((-(-rows // block[0]), -(-inner // block[1]))) < 0.5
            dense = rng.integers(-3, 4, (rows, inner)) * np.kron(kept, np.ones(block))[:rows, :inner]
            dtype = rng.choice(["f4", "f8", "i8"])
            yield block, dense.astype(dtype), rng.integers(-3, 4, (inner, columns)).astype(dtype)


@pytest.mark.parametrize("sums", ["walk", "block"])
@pytest.mark.parametrize("form", ["bsr:{}x{}", "blockgroupcoo:{}x{}:2"])
def test_blocks_are_tiled_over_and_inside_walks(sums, form):
    with engine.quick(), sj.config.using(choose=f"sums={sums}"):
        for block, dense, B in block_products():
            A = sj.array(dense, format=form.format(*block))
            np.testing.assert_array_equal(sj.jit(lambda A, B: A @ B)(A, B).todense(), dense @ B)


def test_tiles_of_large_blocks_are_inside_the_walk():
    A, B = sj.array(np.eye(128, dtype="f4"), format="bsr:32x32"), np.ones((128, 64), "f4")
    loops = sj.jit(lambda A, B: A @ B).lower(A, B).as_text("cin").split("\n")
    walk = next(k for k, line in enumerate(loops) if "A[io,ko,ii,ki]: " in line)
    assert [line.strip() for line in loops[walk + 1 : walk + 3]] == ["forall ii (tile)", "forall j (tile)"]


def convolution(rng, rows, offsets, channels, dtype):
    """A map of neighbours and the operands of a convolution, and what it is."""
    stored = rng.random((rows, offsets)) < 0.6
    names = rng.integers(0, rows, (rows, offsets)).astype(rng.choice(["i4", "i8"]))
    In = rng.integers(-3, 4, (rows, channels[0])).astype(dtype)
    W = rng.integers(-3, 4, (offsets, *channels)).astype(dtype)
    x, z = np.nonzero(stored)
    expected = np.zeros((rows, channels[1]), dtype)
    np.add.at(expected, x, np.einsum("pc,pcm->pm", In[names[x, z]], W[z]))
    return sj.array((names[x, z], (x, z)), shape=stored.shape), In, W, expected


TEXT = "Out[x,m] = In[N[x,z],c] * W[z,c,m]"


@pytest.mark.parametrize("form", ["coo", "csr", "(d,d,c)@(0,1,0)/(8,1)", "(d,c,c)@(0,1,0)/(8,1)"])
def test_gathered_rows_of_a_product_are_rows_of_tiles(form):
    rng = np.random.default_rng(7)
    for dtype in ("f4", "f8", "i8", "c8"):
        N, In, W, expected = convolution(
            rng, int(rng.integers(1, 40)), 3, (int(rng.integers(1, 6)), int(rng.integers(1, 40))), dtype
        )
        N = N.asformat(form)
        for shape in ("row_tiles", "entries"):
            with engine.quick(), sj.config.using(choose=f"loop_shape={shape}"):
                made = sj.jit(lambda N, In, W: sj.insum(TEXT, N=N, In=In, W=W))(N, In, W)
            np.testing.assert_array_equal(made.todense(), expected)


def test_bits_of_row_tiles_are_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(8)
    N, _, _, _ = convolution(rng, 300, 5, (4, 20), "f4")
    In, W = rng.standard_normal((300, 4)).astype("f4"), rng.standard_normal((5, 4, 20)).astype("f4")
    N = N.asformat("(d,d,c)@(0,1,0)/(64,1)")
    found = {}
    for shape in ("row_tiles", "entries"):
        for threads in (1, 2):
            with sj.config.using(choose=f"chunks=each,loop_shape={shape}", num_threads=threads):
                f = sj.jit(lambda N, In, W: sj.insum(TEXT, N=N, In=In, W=W))
                assert ("row_tiles" in f.lower(N, In, W).as_text("cin")) == (shape == "row_tiles")
                found[shape, threads] = f(N, In, W).todense()
        np.testing.assert_array_equal(found[shape, 1], found[shape, 2])
    np.testing.assert_allclose(found["row_tiles", 1], found["entries", 1], rtol=1e-4, atol=1e-4)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("form", ["coo", "csr", "groupcoo:2", "(d,d,c)@(0,1,0)/(8,1)"])
@pytest.mark.parametrize("masks", [False, True], ids=["plain", "masks"])
def test_row_tiles_fetch_ahead_up_to_the_last_entry(form, masks, processor):
    """Tiles of few and many entries, behind the last of which nothing lies, and rows that are longer or shorter than those of the result."""
    processor(masks)
    rng = np.random.default_rng(10)
    for rows, inner, columns in ((1, 1, 1), (14, 5, 40), (30, 70, 3), (40, 3, 130)):
        for dtype in ("f4", "f8", "c8"):
            N, In, W, expected = convolution(rng, rows, 3, (inner, columns), dtype)
            for choice in ("ahead", "none"):
                with engine.quick(), sj.config.using(choose=f"loop_shape=row_tiles,prefetch={choice}"):
                    f = sj.jit(lambda N, In, W: sj.insum(TEXT, N=N, In=In, W=W))
                    made = f(N.asformat(form), In, W)
                    lowered = f.lower(N.asformat(form), In, W)
                    tiles, text = "row_tiles" in lowered.as_text("cin"), lowered.as_text("llvm")
                np.testing.assert_array_equal(made.todense(), expected)
                assert not tiles or ("call void @llvm.prefetch" in text) == (choice == "ahead")


@pytest.mark.parametrize(("cache", "shared"), [(1 << 10, True), (1 << 16, False)])
def test_row_tiles_fetch_what_rows_share_beyond_the_first_cache(cache, shared, processor):
    """Sixteen rows of 32 numbers, 2 KiB: one prefetch more in the innermost loop."""
    processor(False)
    N, In, W, _ = convolution(np.random.default_rng(11), 40, 3, (16, 32), "f4")
    with priced(caches=(cache, 1 << 20, 1 << 22)), sj.config.using(choose="loop_shape=row_tiles,prefetch=ahead"):
        f = sj.jit(lambda N, In, W: sj.insum(TEXT, N=N, In=In, W=W))
        text = f.lower(N.asformat("(d,d,c)@(0,1,0)/(8,1)"), In, W).as_text("llvm")
    assert text.count("call void @llvm.prefetch") == 6 + 6 + shared


def test_index_arrays_of_long_integers_leave_strips_their_lanes():
    N, In, W, _ = convolution(np.random.default_rng(9), 40, 3, (4, 32), "f4")
    f = sj.jit(lambda N, In, W: sj.insum(TEXT, N=N.astype("i8"), In=In, W=W))
    assert ": +16]" in f.lower(N, In, W).as_text("loops")


@pytest.mark.parametrize("strips", ["inside", "outside"])
@pytest.mark.parametrize("sums", ["walk", "block"])
def test_strips_are_inside_and_outside_of_rows(sums, strips):
    """Whichever is outside, all rows and columns are computed: of blocks that stick out too, and in six, four or single rows."""
    with engine.quick(), sj.config.using(choose=f"sums={sums},strips={strips}"):
        for block, dense, B in (*block_products(), ((32, 32), np.eye(80, 70), np.ones((70, 40)))):
            A = sj.array(dense, format="bsr:{}x{}".format(*block))
            f = sj.jit(lambda A, B: A @ B)
            np.testing.assert_array_equal(f(A, B).todense(), dense @ B)
        assert ("(rows)" in f.lower(A, B).as_text("cin")) == (strips == "outside")
        text = f.lower(A, B).as_text("loops")
    # the last of each: rows may be cleared before
    strip, rows = ([m.start() for m in re.finditer(rf"for {v}(_\d)? in ", text)][-1] for v in ("j", "ii"))
    assert (strip < rows) == (strips == "outside")


@pytest.mark.parametrize(("cache", "outside"), [(2 << 10, True), (16 << 10, False)])
def test_strips_are_outside_of_rows_whose_operand_is_larger_than_the_first_cache(cache, outside):
    """What the rows of a block share: 32 rows of 40 numbers, 10 KiB."""
    A, B = sj.array(np.eye(64), format="bsr:32x32"), np.ones((64, 40))
    with engine.quick(), priced(caches=(cache, 1 << 20, 1 << 22)), sj.config.using(choose="sums=block"):
        text = sj.jit(lambda A, B: A @ B).lower(A, B).as_text("cin")
    assert ("forall ii (rows)" in text) == outside


@pytest.mark.parametrize("form", ["csr", "groupcoo:2", "dcsr", "coo"])
@pytest.mark.parametrize("masks", [False, True], ids=["plain", "masks"])
def test_strips_fetch_rows_ahead(form, masks, processor):
    """Of few and many entries, up to the last one of all, behind which nothing lies."""
    processor(masks)
    rng = np.random.default_rng(4)
    with engine.quick(), sj.config.using(choose="prefetch=ahead"):
        for rows, inner, columns in ((1, 1, 64), (30, 7, 130), (5, 40, 64), (40, 40, 300)):
            for dtype in ("f4", "f8"):
                dense = rng.integers(-3, 4, (rows, inner)) * (rng.random((rows, inner)) < 0.4)
                A, B = dense.astype(dtype), rng.integers(-3, 4, (inner, columns)).astype(dtype)
                made = sj.jit(lambda A, B: A @ B)(sj.array(A, format=form), B)
                np.testing.assert_array_equal(made.todense(), A @ B)


@pytest.mark.parametrize(("cache", "ahead"), [(4 << 10, True), (64 << 10, False)])
def test_strips_fetch_rows_that_the_second_cache_does_not_hold(cache, ahead, processor):
    """Forty rows of 64 numbers, 10 KiB."""
    processor(False)
    A, B = sj.array(np.ones((50, 40), "f4"), format="csr"), np.ones((40, 64), "f4")
    with priced(caches=(1 << 10, cache, 1 << 22)):
        lowered = sj.jit(lambda A, B: A @ B).lower(A, B)
        assert ("prefetch" in lowered.as_text("cin")) == ahead
        assert ("llvm.prefetch" in lowered.as_text("llvm")) == ahead


def test_short_walks_stay_outside_of_strips():
    """How many entries a walk has does not make strips pay."""
    text = loops("ijb,jk->ibk", {"i": 500, "j": 500, "b": 16, "k": 64})
    assert "(rows)" not in text


@pytest.mark.rotating(2)
@pytest.mark.parametrize("form", ["csr", "dcsr", "bsr:2x3", "groupcoo:2", "coo"])
@pytest.mark.parametrize("masks", [False, True], ids=["plain", "masks"])
def test_strips_store_past_the_caches(form, masks, processor):
    """The same bits as through them: rows of whole lines, of which some, or none, begin where a strip does; several threads; memory of others."""
    processor(masks)
    rng = np.random.default_rng(12)
    with engine.quick():
        for columns, dtype in ((8, "f8"), (16, "f4"), (112, "f4"), (128, "i4"), (40, "f8"), (36, "f4")):
            dense = (rng.integers(-3, 4, (42, 15)) * (rng.random((42, 15)) < 0.4)).astype(dtype)
            A, B = sj.array(dense, format=form), rng.integers(-3, 4, (15, columns)).astype(dtype)
            made = {}
            for way in ("cached", "past"):
                with sj.config.using(choose=f"stores={way}", num_threads=2, parallel_work=0):
                    f = sj.jit(lambda A, B: A @ B)
                    np.testing.assert_array_equal(f(A, B).todense(), dense @ B)
                    made[way] = f.lower(A, B).as_text("llvm")
            assert "nontemporal" not in made["cached"]
            if form == "csr" and columns != 36:
                assert "nontemporal" in made["past"]


@pytest.mark.parametrize(("caches", "past"), [((4 << 10, 16 << 10), True), ((256 << 10, 1 << 20), False)])
def test_results_that_no_cache_holds_are_stored_past_the_caches(caches, past):
    """Two hundred rows of 64 numbers, 50 KiB, that are assigned once."""
    A, B = sj.array(np.eye(200, dtype="f4"), format="csr"), np.ones((200, 64), "f4")
    with priced(caches=(1 << 10, *caches)):
        f = sj.jit(lambda A, B: A @ B).lower(A, B)
        assert ("# out: stored past the caches" in f.as_text("cin")) == past
        assert ("fence seq_cst" in f.as_text("llvm")) == past


LAYERS = {
    "of a cheap number": lambda A, H, V: snp.maximum(A @ H, 0) @ V,
    "of a cheap number of several": lambda A, H, V: (2 * snp.maximum(A @ H, 0) - 1) @ V,
    "of what is dear": lambda A, H, V: snp.exp(A @ H) @ V,
    "of truth values": lambda A, H, V: snp.where(A @ H > 1, V[0, 0], 0) @ V,
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("columns", [1, 8, 70])
def test_layers_in_one_kernel(name, columns):
    """What every row of a layer is multiplied by is computed once, in strips of its own, where it is dear, or once for a strip: sums stay in registers."""
    rng = np.random.default_rng(13)
    dense = rng.integers(-3, 4, (40, 30)) * (rng.random((40, 30)) < 0.3)
    H, V = rng.integers(-1, 2, (30, 9)).astype("f8"), rng.integers(-3, 4, (9, columns)).astype("f8")
    f = sj.jit(LAYERS[name])
    with sj.config.using(choose="fusion=together,products=kernel"), engine.quick():
        made, text = f(sj.array(dense, format="csr"), H, V), f.lower(sj.array(dense, format="csr"), H, V).as_text("cin")
    numpy = {
        "of a cheap number": lambda x: np.maximum(x, 0),
        "of a cheap number of several": lambda x: 2 * np.maximum(x, 0) - 1,
        "of what is dear": np.exp,
        "of truth values": lambda x: np.where(x > 1, V[0, 0], 0),
    }[name]
    np.testing.assert_allclose(made.todense(), numpy(dense @ H) @ V, rtol=1e-12, atol=1e-9)
    if columns > 1:
        assert text.count("forall i") == 1
        assert text.count("(tile)") == 2, text
