"""Rows in groups: sizes, the arrays of indirect einsums, and what padding must never do."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.errors import ConcretizationTypeError, FormatError
from sparsejax.formats import Format, Grouped, convert, group_size, to_groupcoo, validate
from sparsejax.formats.format import block_sparse

FORMS = ("dense", "csr", "csc", "coo", "dcsr", "ell", "bitmap", "hash", "rle", "groupcoo:4", "(d,n)", "(d,g2)@(1,0)")


def ragged(seed, rows=30, columns=17):
    """Rows of every length from none on, most of them short."""
    rng = np.random.default_rng(seed)
    lengths = np.minimum(rng.geometric(0.25, rows) - 1, columns)
    made = np.zeros((rows, columns))
    for row, length in enumerate(lengths):
        made[row, rng.choice(columns, length, replace=False)] = rng.integers(1, 9, length)
    return made


def touched(lengths, g):
    """What groups cost, one by one: four for every slot, and one for the row."""
    count = 0
    for length in lengths:
        left = length
        while left > 0:
            count += 4 * g + 1
            left -= g
    return count


def by_hand(dense, g):
    """(R, K, V), entry by entry."""
    made = []
    for row, values in enumerate(dense):
        found = [(int(c), values[c]) for c in np.flatnonzero(values)]
        for first in range(0, len(found), g):
            part = found[first : first + g]
            part += [(part[-1][0], 0)] * (g - len(part))
            made.append((row, [c for c, _ in part], [v for _, v in part]))
    return tuple(map(list, zip(*made, strict=True))) if made else ([], [], [])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(4))
def test_sizes_are_the_best_powers_of_two(form, seed):
    dense = ragged(seed)
    lengths = np.count_nonzero(dense, axis=1).tolist()
    costs = {2**k: touched(lengths, 2**k) for k in range(8)}
    A = sj.array(dense, format=form)
    found = group_size(A)
    assert costs[found] == min(costs.values())
    made = A.asformat("groupcoo")
    assert str(made.format) == f"groupcoo:{found}"
    np.testing.assert_array_equal(made.todense(), dense)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 16, 17])
def test_rows_of_one_length(length):
    """Empty rows say nothing; a power of two that is the length of all rows is the best one."""
    dense = np.zeros((40, 20))
    dense[::5, :length] = 1
    found = group_size(dense)
    assert touched([length] * 8, found) == min(touched([length] * 8, 2**k) for k in range(8))
    if length & (length - 1) == 0:
        assert found == length
    assert group_size(sp.csr_array(dense)) == group_size(np.concatenate([dense, 0 * dense])) == found


def test_sizes_of_nothing_and_of_much():
    assert group_size(np.zeros((3, 4))) == group_size(np.zeros((0, 4))) == 1
    assert group_size(np.ones((1, 65536 * 2))) == 65536
    hyper = sj.array((np.ones(3), np.array([[0, 2**40, 2**40], [1, 5, 9]])), shape=(2**41, 10))
    assert group_size(hyper) in (1, 2)
    with pytest.raises(FormatError, match="must be a matrix"):
        group_size(np.zeros((2, 2, 2)))


@pytest.mark.parametrize("form", ["bsr:2x3", "(d,l,d,d)@(0,1,0,1)/(2,3)", "blockgroupcoo:2x3:4", "csr"])
def test_sizes_of_blocks(form):
    dense = ragged(5, 31, 19)
    A = sj.array(dense, format=form)
    blocks = np.zeros((16, 7), bool)
    for i, j in zip(*np.nonzero(dense), strict=True):
        blocks[i // 2, j // 3] = True
    lengths = blocks.sum(axis=1).tolist()
    made = A.asformat("blockgroupcoo:2x3")
    g = made.format.levels[1].g
    assert touched(lengths, g) == min(touched(lengths, 2**k) for k in range(8))
    assert made.format == block_sparse(2, 3, level=Grouped(g))
    if form != "csr":
        assert group_size(A) == g
    np.testing.assert_array_equal(made.todense(), dense)


def test_types_do_not_depend_on_data():
    A = sj.array(ragged(0), format="csr")
    for traced in (
        sj.jit(lambda A: A.asformat("groupcoo")),
        sj.jit(lambda A: A.asformat("blockgroupcoo:2x2")),
        lambda A: sj.vmap(lambda x: x.asformat("groupcoo"))(snp.stack([A, A])),
        lambda A: sj.grad(lambda x: x.asformat("groupcoo").sum())(A),
        lambda A: sj.array(A, format="groupcoo"),
    ):
        with pytest.raises(FormatError, match=r"group_size\(A\)"):
            traced(A)
    for named in (group_size, to_groupcoo):
        with pytest.raises(ConcretizationTypeError):
            sj.jit(lambda A, named=named: named(A))(A)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("g", [1, 2, 4, 7])
def test_arrays_of_groups(form, g):
    dense = ragged(g)
    R, K, V = to_groupcoo(sj.array(dense, format=form), g)
    rows, columns, values = by_hand(dense, g)
    assert R.tolist() == rows and K.tolist() == columns and V.tolist() == values
    assert not any(x.flags.writeable for x in (R, K, V))
    B = np.random.default_rng(1).normal(size=(17, 5))
    statement = "C[R[p],n] += V[p,q] * B[K[p,q],n]"
    C = sj.insum(statement, C=np.zeros((30, 5)), R=R, K=K, V=V, B=B)
    np.testing.assert_allclose(C, sj.array(dense, format=f"groupcoo:{g}") @ B, rtol=1e-13, atol=1e-13)
    C = sj.jit(lambda R, K, V, B: sj.insum(statement, C=np.zeros((30, 5)), R=R, K=K, V=V, B=B))(R, K, V, B)
    np.testing.assert_allclose(C, dense @ B, rtol=1e-13, atol=1e-13)


def test_arrays_of_groups_of_blocks():
    dense = ragged(3, 31, 19)
    A = sj.array(dense, format="blockgroupcoo:4x2:2")
    R, K, V = to_groupcoo(A)
    assert V.shape == (len(R), 2, 4, 2) and np.shares_memory(V, A.storage.vals) and K.shape == (len(R), 2)
    B = np.random.default_rng(1).normal(size=(10, 2, 5))
    C = sj.insum("C[R[p],a,n] += V[p,q,a,b] * B[K[p,q],b,n]", C=np.zeros((8, 4, 5)), R=R, K=K, V=V, B=np.asarray(B))
    wide = np.zeros((32, 20))
    wide[:31, :19] = dense
    np.testing.assert_allclose(np.asarray(C).reshape(32, 5), wide @ B.reshape(20, 5), rtol=1e-13, atol=1e-13)
    with pytest.raises(FormatError, match="fill 1"):
        to_groupcoo(snp.exp(A))


@pytest.mark.parametrize("form", ["groupcoo:2", "groupcoo:4", "blockgroupcoo:2x2:2", "(d,g4)@(1,0)", "(g2,g4)"])
def test_padding_is_no_entry(form):
    """Not counted, not compared, not multiplied: an infinity in the column that padding repeats stays where it belongs."""
    dense = np.zeros((4, 6))
    dense[0, 5], dense[1, [0, 1, 5]], dense[3] = 2, [1, -2, -3], -1
    A = sj.array(dense, format=form)
    validate.validate(A.storage)
    want = sj.array(dense, format=form.replace("blockgroupcoo", "bsr").removesuffix(":2") if "block" in form else "csr")
    assert A.nnz == want.nnz and (form.startswith("(g2") or A.storage.vals.size > A.nnz)
    wide = np.full((6, 3), 1.0)
    wide[5, 0], wide[5, 1] = np.inf, np.nan
    for f in (
        lambda A: A @ wide,
        lambda A: A @ wide[:, 0],
        lambda A: A @ np.pad(wide, ((0, 0), (0, 130)), constant_values=-np.inf),
        lambda A: snp.max(A, axis=1),
        lambda A: snp.min(A, axis=0),
        lambda A: (A * wide[:, 0]).sum(axis=1),
        lambda A: snp.max(A * -1.0),
        lambda A: sj.einsum("ij,jk->ik", A, np.nan_to_num(wide), semiring="max_plus"),
        lambda A: snp.exp(A).sum(),
        lambda A: snp.prod(A, axis=1),
    ):
        for run in (f, sj.jit(f)):
            np.testing.assert_allclose(np.asarray(run(A)), np.asarray(run(want)), rtol=1e-13)


@pytest.mark.parametrize("form", ["groupcoo:2", "groupcoo:4", "blockgroupcoo:2x2:2"])
def test_threads_give_the_same_bits(form):
    dense = np.concatenate([ragged(seed) for seed in range(60)])
    A, B = sj.array(dense, format=form), np.random.default_rng(0).normal(size=(17, 128)).astype("f4")
    made = []
    for threads in (1, 2):
        with sj.config.using(num_threads=threads, parallel_work=0):
            made.append([np.asarray(x) for x in sj.jit(lambda A, B: (A @ B, A @ B[:, 0], A.sum(axis=0)))(A, B)])
    for one, two in zip(*made, strict=True):
        assert one.tobytes() == two.tobytes()
    np.testing.assert_allclose(made[0][0], dense @ B.astype("f8"), rtol=1e-5, atol=1e-3)


def test_shapes_that_change():
    """One trace and one plan serve arrays of many extents in groups."""
    f = sj.jit(lambda A, B: (A * 2 + A) @ B / A.shape[0])
    for rows in (30, 41, 57, 33, 60):
        dense = ragged(rows, rows)
        B = np.random.default_rng(rows).normal(size=(17, 3))
        np.testing.assert_allclose(
            f(sj.array(dense, format="groupcoo:4"), B), dense * 3 @ B / rows, rtol=1e-12, atol=1e-12
        )


def test_conversions_keep_groups_canonical():
    """What any format becomes is the same as what entries become."""
    dense = ragged(7)
    want = convert.from_dense(dense, Format.parse("groupcoo:4", 2), 0.0)
    for form in FORMS:
        made = sj.jit(lambda A: A.asformat("groupcoo:4"))(sj.array(dense, format=form)).storage
        if form == "dense":
            made = sj.array(dense).asformat("groupcoo:4").storage
        if made.nnz == want.nnz:
            for one, two in zip((*made.buffers[1], made.vals), (*want.buffers[1], want.vals), strict=True):
                np.testing.assert_array_equal(one, two)
        validate.validate(made)
        np.testing.assert_array_equal(convert.to_dense(made), dense)
