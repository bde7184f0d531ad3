"""Products in panels of columns, for which dense operands are packed, against NumPy: forced where they do not pay, and chosen where they do."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.schedule import regions
from tests.fuzz import engine

PACKED = "columns=packed"
FORMS = ("bsr", "blockgroupcoo")


def drawn(rng, dtype, block):
    """A matrix in blocks whose last ones stick out or not, and a dense one of some panels and a part of one."""
    rows, inner = (int(n * rng.integers(2, 9) - rng.integers(0, n)) for n in block)
    unit = regions.strip_bytes() // np.dtype(dtype).itemsize
    kept = rng.random((-(-rows // block[0]), -(-inner // block[1]))) < rng.choice((0.2, 0.6, 1.0))
    left = np.kron(kept, np.ones(block, int))[:rows, :inner] * rng.integers(-3, 4, (rows, inner))
    right = rng.integers(-3, 4, (inner, int(rng.integers(unit + 1, 5 * unit))))
    return left.astype(dtype), right.astype(dtype)


def named(form, block):
    text = f"{form}:{block[0]}x{block[1]}"
    return text if form == "bsr" else f"{text}:2"


@pytest.mark.rotating(4)
@pytest.mark.parametrize("sums", ["walk", "block"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "c16"])
@pytest.mark.parametrize("form", FORMS)
def test_products_in_panels(form, dtype, sums):
    rng = np.random.default_rng([len(form), len(sums), ord(dtype[0]), int(dtype[1])])
    packed = 0
    for block in ((8, 8), (2, 3), (3, 2), (5, 7), (12, 9), (4, 16)):
        left, right = drawn(rng, dtype, block)
        A = sj.array(left, format=named(form, block))
        with engine.quick(), sj.config.using(choose=f"{PACKED},sums={sums}"):
            f = sj.jit(lambda A, B: A @ B)
            made = f(A, right)
            text = f.lower(A, right).as_text("cin")
        np.testing.assert_array_equal(made.todense(), left @ right, err_msg=f"{block}, {left.shape}, {right.shape}")
        packed += "where B_p: dense" in text
    assert packed >= 2  # other orders are cheaper where few blocks are stored


@pytest.mark.rotating(4)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "c16"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr", "dense"])
def test_products_of_entries_in_panels(form, dtype):
    rng = np.random.default_rng([len(form), ord(form[0]), ord(dtype[0])])
    packed = 0
    for block in ((1, 1), (3, 2), (5, 7)):
        left, right = drawn(rng, dtype, block)
        A = sj.array(left, format=form)
        for turned in (False, True):
            other = np.concatenate([right] * 9)[: left.shape[0]] if turned else right
            with engine.quick(), sj.config.using(choose=PACKED):
                f = sj.jit(lambda A, B, turned=turned: (A.T if turned else A) @ B)
                made = f(A, other)
                text = f.lower(A, other).as_text("cin")
            expected = (left.T if turned else left) @ other
            np.testing.assert_array_equal(
                made.todense(), expected, err_msg=f"{block}, {turned}, {left.shape}, {right.shape}"
            )
            packed += "B_p: dense" in text
    assert packed or form in ("coo", "dense")


@pytest.mark.parametrize("semiring", [None, "min_plus"])
def test_tensors_times_matrices_in_panels(semiring):
    """What several loops read again is packed once for all of them."""
    rng = np.random.default_rng(3)
    T = rng.integers(0, 3, (5, 6, 7)) * (rng.random((5, 6, 7)) < 0.4)
    B, C = rng.integers(-3, 4, (6, 71)).astype("f8"), rng.integers(-3, 4, (7, 71)).astype("f8")
    A = sj.array(T.astype("f8"), format="csf")

    def f(A, B, C):
        return sj.einsum("ikl,kr,lr->ir", A, B, C, semiring=semiring)

    with engine.quick():
        plain = sj.jit(f)(A, B, C).todense()
        with sj.config.using(choose=PACKED):
            made = sj.jit(f)(A, B, C)
            text = sj.jit(f).lower(A, B, C).as_text("cin")
    np.testing.assert_array_equal(made.todense(), plain)
    assert semiring or ("B_p: dense" in text and "C_p: dense" in text)


@pytest.mark.parametrize(
    ("columns", "each", "packs"), [(512, 100, True), (128, 100, True), (32, 100, False), (512, 3, False)]
)
def test_rows_of_many_entries_are_multiplied_in_panels(columns, each, packs):
    rng = np.random.default_rng(1)
    A = sj.array(sp.random_array((1000, 1000), density=each / 1000, format="csr", rng=rng))
    with sj.config.using(machine="sapphire_rapids"):
        text = sj.jit(lambda A, B: A @ B).lower(A, np.ones((1000, columns))).as_text("cin")
    assert ("where B_p: dense" in text) == packs, text


def test_panels_are_chunks():
    """What is packed once for each is no memory that chunks clear."""
    A = sj.array(sp.random_array((1806, 1806), density=0.02, format="csr", rng=np.random.default_rng(1)))
    with sj.config.using(choose=PACKED, machine="sapphire_rapids"):
        text = str(sj.explain(lambda A, B: A @ B)(A, np.ones((1806, 512))))
    assert "chunks" in text and "cut along jo" in text, text


def test_panels_of_several_operands_and_maxima():
    rng = np.random.default_rng(5)
    left, right = drawn(rng, "f8", (4, 3))
    other = rng.integers(-3, 4, right.shape).astype("f8")
    A = sj.array(left, format="bsr:4x3")
    with engine.quick(), sj.config.using(choose=PACKED):
        f = sj.jit(lambda A, B, C: sj.einsum("ij,jk,jk->ik", A, B, C))
        made = f(A, right, other)
    np.testing.assert_array_equal(made.todense(), left @ (right * other))


def test_bits_in_panels_are_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(7)
    kept = np.kron(rng.random((20, 25)) < 0.4, np.ones((8, 8)))
    A = sj.array((kept * rng.standard_normal(kept.shape)).astype("f4"), format="bsr:8x8")
    B = rng.standard_normal((200, 131)).astype("f4")
    found = []
    for threads in (1, 2):
        with engine.quick(), sj.config.using(choose=f"{PACKED},chunks=each", num_threads=threads):
            found.append(sj.jit(lambda A, B: A @ B)(A, B).todense())
    np.testing.assert_array_equal(*found)
    wide = A.todense().astype("f8")
    terms = np.abs(wide) @ np.abs(B.astype("f8"))
    assert (np.abs(found[0] - wide @ B.astype("f8")) <= 200 * np.finfo("f4").eps * terms).all()


def test_derivatives_in_panels():
    rng = np.random.default_rng(9)
    left, right = drawn(rng, "f8", (3, 4))
    A = sj.array(left, format="bsr:3x4")
    with engine.quick(), sj.config.using(choose=PACKED):
        made = sj.jit(sj.grad(lambda B: snp.sum((A @ B) ** 2)))(right)
    np.testing.assert_array_equal(made.todense(), 2 * left.T @ (left @ right))


@pytest.mark.parametrize("machine", ["zen4", "granite_rapids"])
@pytest.mark.parametrize(("block", "packs"), [(8, True), (32, False)])
def test_small_blocks_of_operands_that_no_cache_holds_are_packed(block, packs, machine, processor):
    """Rows of large blocks are read in order, once for many rows of the result."""
    processor(True)
    size = 4096
    rng = np.random.default_rng(0)
    kept = rng.random((size // block, size // block)) < 0.1
    entries = np.nonzero(np.kron(kept, np.ones((block, block), bool)))
    A = sj.array((np.ones(len(entries[0]), "f4"), entries), shape=(size, size)).asformat(f"bsr:{block}x{block}")
    with sj.config.using(machine=machine):
        text = sj.jit(lambda A, B: A @ B).lower(A, np.ones((size, 512), "f4")).as_text("cin")
    assert ("where B_p: dense" in text) == packs, text


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("columns", [48, 49, 64, 80, 95, 96, 112, 150])
@pytest.mark.parametrize("block", [(8, 8), (4, 3), (12, 5), (2, 2)])
@pytest.mark.rotating(4)
def test_strips_of_three_registers_leave_no_column_out(block, columns, masks, processor):
    """Whatever is left behind them, and nothing is written twice."""
    processor(masks)
    rng = np.random.default_rng(columns)
    kept = np.kron(rng.random((3, 4)) < 0.7, np.ones(block, int))
    left = kept * rng.integers(-3, 4, kept.shape)
    right = rng.integers(-3, 4, (kept.shape[1], columns)).astype("f4")
    A = sj.array(left.astype("f4"), format=named("bsr", block))
    for sums in ("walk", "block"):
        with engine.quick(), sj.config.using(choose=f"{PACKED},sums={sums}"):
            made = sj.jit(lambda A, B: A @ B)(A, right)
        np.testing.assert_array_equal(made.todense(), left @ right)


@pytest.mark.parametrize(("rows", "sums", "width"), [(8, 24, 48), (4, 12, 48), (2, None, None)])
def test_panels_of_blocks_are_one_strip_of_three_registers_a_row(rows, sums, width, processor):
    """Blocks of fewer rows than a tile has are in wider panels, of strips of one row."""
    processor(True)
    rng = np.random.default_rng(0)
    kept = rng.random((2048 // rows, 2048 // rows)) < 0.1
    entries = np.nonzero(np.kron(kept, np.ones((rows, rows), bool)))
    A = sj.array((np.ones(len(entries[0]), "f4"), entries), shape=(2048, 2048)).asformat(f"bsr:{rows}x{rows}")
    with sj.config.using(machine="granite_rapids", choose=PACKED):
        text = sj.jit(lambda A, B: A @ B).lower(A, np.ones((2048, 512), "f4")).as_text("loops")
    assert ("(jo * 48)" in text) == (width == 48), text
    if sums is not None:
        assert f"out_t{sums - 1} = " in text and f"out_t{sums} = " not in text, text
