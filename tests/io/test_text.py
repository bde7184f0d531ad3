"""Text files: Matrix Market against SciPy, .tns and edge lists against readers of three lines, and networkx."""

import bz2
import gzip
import io
import lzma

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings

import sparsejax as sj
from sparsejax.errors import FormatError
from sparsejax.io import lines, mmread, mmwrite, read_edgelist, read_tns, write_edgelist, write_tns
from tests import rotation
from tests.io.support import random_matrix, same_values, sparse_arrays

READERS = (mmread, read_tns, read_edgelist)
SAMPLES = {
    mmread: b"%%MatrixMarket matrix coordinate real general\n% a comment\n3 4 2\n1 2 0.5\n3 4 -2e300\n",
    read_tns: b"# shape: 3 4\n1 2 0.5\n3 4 -2e300\n",
    read_edgelist: b"# a comment\n0 1 0.5\n2 3 -2e300\n",
}


def through(write, read, x, **how):
    file = io.BytesIO()
    write(file, x)
    file.seek(0)
    return read(file, **how)


# ----------------------------------------------------------------------------------------------------- Matrix Market


@given(sparse_arrays(min_ndim=2, max_ndim=2, fills=(0,)).filter(lambda x: min(x.shape) > 0))
@settings(max_examples=rotation.examples(80), deadline=None)
def test_matrix_market_round_trip(x):
    back = through(mmwrite, mmread, x, dtype=x.dtype)
    same_values(back, x)
    assert back.format == sj.formats.Format.parse("dense" if x.format.is_dense else "coo", 2) or x.format.is_dense
    if not x.format.is_dense:
        assert back.nnz == x.nnz


@pytest.mark.parametrize("field", ["real", "integer", "complex", "pattern"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric", "hermitian"])
@pytest.mark.parametrize("kind", ["coordinate", "array"])
def test_matrix_market_as_scipy_writes_it(field, symmetry, kind):
    rng = np.random.default_rng(7)
    dense = random_matrix(rng, (5, 5), "c16" if field == "complex" else "f8" if field == "real" else "i8")
    other = {"general": dense * 0, "symmetric": dense.T, "skew-symmetric": -dense.T, "hermitian": dense.conj().T}[
        symmetry
    ]
    dense = dense + other
    if field == "pattern":
        dense = (dense != 0).astype("f8")
    if (kind == "array" and field == "pattern") or (symmetry == "hermitian" and field != "complex"):
        return
    if symmetry == "skew-symmetric" and field == "pattern":
        return
    file = io.BytesIO()
    scipy.io.mmwrite(file, dense if kind == "array" else sp.coo_array(dense), field=field, symmetry=symmetry)
    file.seek(0)
    same_values(mmread(file), dense)


@pytest.mark.parametrize("claim", ["9 9 1000000000000", "9 9 -1", "9999999999999999999 9 1", "9 9", "a b c", ""])
def test_headers_are_not_believed(claim):
    with pytest.raises(FormatError):
        mmread(io.BytesIO(f"%%MatrixMarket matrix coordinate real general\n{claim}\n1 1 1.0\n".encode()))


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
def test_headers_of_dense_files_are_not_believed(symmetry):
    with pytest.raises(FormatError, match="cannot hold"):
        mmread(io.BytesIO(f"%%MatrixMarket matrix array real {symmetry}\n1000000 1000000\n1.0\n2.0\n".encode()))


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_shortest_files_are_read(symmetry, n):
    """The least bytes that the header's claim allows are enough."""
    rows = range(1, n + 1)
    first = {"general": 1, "symmetric": None, "skew-symmetric": None}[symmetry]
    places = [(i, j) for j in rows for i in rows if first or i > j or (i == j and symmetry == "symmetric")]
    text = f"%%MatrixMarket matrix array integer {symmetry}\n{n} {n}\n" + "\n".join("1" for _ in places)
    assert mmread(io.BytesIO(text.encode())).shape == (n, n)
    text = f"%%MatrixMarket matrix coordinate pattern {symmetry}\n{n} {n} {len(places)}\n" + "\n".join(
        f"{i} {j}" for i, j in places
    )
    if symmetry != "skew-symmetric":
        assert mmread(io.BytesIO(text.encode())).shape == (n, n)


# ----------------------------------------------------------------------------------------------------------- FROSTT


@given(sparse_arrays(min_ndim=1, fills=(0,)).filter(lambda x: x.dtype.kind != "c"))
@settings(max_examples=rotation.examples(100), deadline=None)
def test_tns_round_trip(x):
    back = through(write_tns, read_tns, x, format=x.format)
    assert (back.shape, back.dtype, back.format) == (x.shape, x.dtype, x.format)
    same_values(back, x)


def test_tns_without_comments_of_ours():
    text = b"# a comment\n\n 2 1 3   1.5\r\n1\t1 1 -2 \n2 1 3 1\n"
    dense = np.zeros((2, 1, 3))
    dense[1, 0, 2], dense[0, 0, 0] = 2.5, -2
    same_values(read_tns(io.BytesIO(text)), dense)
    same_values(read_tns(io.BytesIO(text), dtype="f4").astype("f8"), dense)
    assert read_tns(io.BytesIO(text), shape=(5, 6, 7)).shape == (5, 6, 7)
    big = read_tns(io.BytesIO(b"1 9007199254740993\n"), dtype="i8")
    assert big.todense()[0] == 2**53 + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "pass shape="),
        (b"1 2 x\n", "could not convert"),
        (b"1 2 3\n1 2\n", "requires 3 columns"),
        (b"0 1 1\n", "negative"),
        (b"-9223372036854775808 1 1\n", "negative"),
        (b"9223372036854775808 1 1\n", "could not convert"),
        (b"7\n", "1 to 64"),
        (b"# shape: 2 2\n3 1 1\n", "out of bounds"),
        (b"# shape: 2\n1 1 1\n", "2 coordinates"),
        (b"# shape: a\n1 1\n", "invalid literal"),
        (b"# dtype: object\n1 1\n", "'object'"),
        (b"# dtype: complex64\n1 1\n", "complex"),
        (b"\xff\xfe\x00 1 1\n", "could not convert"),
    ],
)
def test_tns_faults_are_named(text, message):
    with pytest.raises(FormatError, match=message):
        read_tns(io.BytesIO(text))


# -------------------------------------------------------------------------------------------------------- edge lists


@given(sparse_arrays(min_ndim=2, max_ndim=2, fills=(0,)).filter(lambda x: x.dtype.kind != "c"))
@settings(max_examples=rotation.examples(60), deadline=None)
def test_edge_list_round_trip(x):
    back = through(write_edgelist, read_edgelist, x, shape=x.shape, dtype=x.dtype)
    same_values(back, x)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_edge_lists_as_networkx_writes_them(symmetric, weighted):
    nx = pytest.importorskip("networkx")
    graph = nx.gnp_random_graph(20, 0.2, seed=3, directed=not symmetric)
    graph.add_edge(19, 19)
    for k, (_, _, data) in enumerate(graph.edges(data=True)):
        data["weight"] = k / 7 if weighted else 1
    file = io.BytesIO()
    (nx.write_weighted_edgelist if weighted else nx.write_edgelist)(
        graph, file, **({} if weighted else {"data": False})
    )
    file.seek(0)
    back = read_edgelist(file, shape=(20, 20), symmetric=symmetric, format="csr")
    np.testing.assert_array_equal(back.todense(), nx.to_numpy_array(graph, nodelist=range(20)))


def test_edge_lists_with_other_columns_and_bases():
    same_values(
        read_edgelist(io.BytesIO(b"% x\n1,2,5\n3,1,7\n"), delimiter=",", base=1, dtype="i4"),
        np.array([[0, 5, 0], [0, 0, 0], [7, 0, 0]]),
    )
    assert read_edgelist(io.BytesIO(b"")).shape == (0, 0)
    assert read_edgelist(io.BytesIO(b"0 1\n0 1\n")).todense()[0, 1] == 2
    for text, message in [
        (b"0\n", "1 columns"),
        (b"0 1 2 3\n", "4 columns"),
        (b"-1 0\n", "nodes are"),
        (b"0 1\n1 2 3\n", "columns"),
    ]:
        with pytest.raises(FormatError, match=message):
            read_edgelist(io.BytesIO(text))
    with pytest.raises(FormatError, match="square"):
        read_edgelist(io.BytesIO(b"0 1\n"), shape=(2, 3), symmetric=True)


def test_nodes_with_large_numbers_do_not_take_memory():
    text = b"0 9223372036854775806\n"
    assert read_edgelist(io.BytesIO(text)).nnz == 1
    with pytest.raises(FormatError, match="max_bytes"):
        read_edgelist(io.BytesIO(text), format="csr")
    with pytest.raises(FormatError):
        read_edgelist(io.BytesIO(b"0 9223372036854775807\n"))


# --------------------------------------------------------------------------------------------------------------- all


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_are_known_by_their_first_bytes(read, pack, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(pack(SAMPLES[read]))
    here = read(str(path))
    assert here.nnz == 2 and here.todense()[2, 3] == -2e300
    with pytest.raises(FormatError):
        path.write_bytes(pack(SAMPLES[read])[:-9] + b"garbage")
        read(path)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize("pair", [(mmwrite, mmread), (write_tns, read_tns), (write_edgelist, read_edgelist)])
def test_written_files_are_packed_as_their_names_say(pair, suffix, tmp_path):
    write, read = pair
    x = sj.array(np.diag([1.0, 2.5]), format="csr")
    paths = [tmp_path / f"{k}.txt{suffix}" for k in range(2)]
    for path in paths:
        write(path, x)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert any(paths[0].read_bytes().startswith(magic) for magic in lines._MAGIC) == bool(suffix)
    same_values(read(paths[0]), x)


@pytest.mark.parametrize("read", READERS)
def test_bombs_are_refused(read):
    bomb = gzip.compress(SAMPLES[read] + b"#" * 10**6 + b"\n" * 10**7)
    with pytest.raises(FormatError):
        read(io.BytesIO(bomb), max_bytes=10**5)
    lengthy = io.BytesIO(SAMPLES[read] + b"1" * (2 * lines.BLOCK + 5))
    with pytest.raises(FormatError):
        read(lengthy)


@pytest.mark.parametrize("read", READERS)
def test_many_entries_are_refused_by_a_small_budget(read):
    assert read(io.BytesIO(SAMPLES[read]), max_bytes=1000).nnz == 2
    with pytest.raises(FormatError, match="max_bytes=50"):
        read(io.BytesIO(SAMPLES[read]), max_bytes=50)


@pytest.mark.parametrize(
    ("write", "x", "message"),
    [
        (mmwrite, np.zeros((2, 2, 2)), "2 dimensions"),
        (mmwrite, sj.array(np.ones((2, 2)), format="csr", fill_value=1), "fill 1"),
        (write_tns, np.ones(2) * 1j, "real"),
        (write_tns, np.float64(3), "one dimension"),
        (write_tns, sj.array(np.ones((2, 2)), format="csr", fill_value=1), "fill 1"),
        (write_edgelist, np.ones(2), "2 dimensions"),
        (write_edgelist, np.ones((2, 2)) * 1j, "real"),
    ],
)
def test_what_a_file_cannot_hold(write, x, message):
    with pytest.raises(FormatError, match=message):
        write(io.BytesIO(), x)


def test_blocks_do_not_depend_on_where_the_text_is_cut(monkeypatch):
    rng = np.random.default_rng(2)
    x = sj.array(random_matrix(rng, (30, 30), "f8"), format="coo")
    file = io.BytesIO()
    write_tns(file, x)
    monkeypatch.setattr(lines, "BLOCK", 101)
    for _ in range(3):
        file.seek(0)
        same_values(read_tns(file), x)
        monkeypatch.setattr(lines, "BLOCK", lines.BLOCK * 3 + 1)
    bad = file.getvalue() + b"1 2\n"
    with pytest.raises(FormatError, match="counted from entry"):
        read_tns(io.BytesIO(bad))


def test_progress_is_shown_from_many_lines_on(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    text = b"".join(b"%d %d\n" % (k, k + 1) for k in range(2000))
    monkeypatch.setattr(lines, "BLOCK", 1000)
    monkeypatch.setattr(lines, "MANY_LINES", 500)
    read_edgelist(io.BytesIO(text))
    assert "100%" in capsys.readouterr().err
    read_edgelist(io.BytesIO(text), progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(lines, "MANY_LINES", 10**6)
    read_edgelist(io.BytesIO(text))
    assert capsys.readouterr().err == ""
    read_edgelist(io.BytesIO(text), progress=True)
    assert "100%" in capsys.readouterr().err
