"""Archives: every array comes back as it was; SciPy reads ours, and we read SciPy's."""

import io
import pickle
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

import sparsejax as sj
from sparsejax.errors import FormatError
from sparsejax.io.npz import outline_npz
from tests import rotation
from tests.formats.sloppy import relabelled, sloppy
from tests.formats.strategies import NAMED
from tests.io.support import random_matrix, same, same_values, sparse_arrays


def saved(x, **how):
    file = io.BytesIO()
    sj.save_npz(file, x, **how)
    file.seek(0)
    return file


@given(sparse_arrays())
@settings(max_examples=rotation.examples(150), deadline=None)
def test_every_array_comes_back(x):
    same(x, sj.load_npz(saved(x, compressed=False)))


@given(sparse_arrays())
@settings(max_examples=rotation.examples(60), deadline=None)
def test_headers_say_the_type(x):
    """What they do not say is read: of formats whose positions are not entries."""
    file = saved(x)
    back, found = sj.load_npz(file), None
    file.seek(0)
    found = outline_npz(file)
    assert found is None or (repr(found[0]), found[1]) == (repr(back.aval), back.nnz)
    assert found is not None or not x.format.packed or x.format.pads(x.shape) or str(x.format).split(":")[0] in NAMED


def test_headers_of_common_formats():
    dense = random_matrix(np.random.default_rng(3), (6, 9), "f4")
    for name in ("csr", "csc", "csf", "dcsr", "dense"):
        x = sj.array(dense, format=name)
        assert outline_npz(saved(x)) == (x.aval, x.nnz)
    file = io.BytesIO()
    sp.save_npz(file, sp.csr_array(dense))
    file.seek(0)
    assert outline_npz(file) is None  # nothing says that its columns are in order
    file = saved(sj.array(dense, format="csr"))
    with pytest.raises(FormatError):
        outline_npz(io.BytesIO(file.getvalue()[:100]))


@given(sparse_arrays(min_ndim=1))
@settings(max_examples=rotation.examples(60), deadline=None)
def test_buffers_that_users_bring_come_back_as_they_are(x):
    if x.format.is_dense:
        return
    form = sloppy(x.format, 5)
    loose = sj.formats.convert.convert(x.storage, form)
    loose = sj.array(relabelled(loose, x.format))
    back = sj.load_npz(saved(loose))
    same(loose, back)


@pytest.mark.parametrize("name", ["csr", "csc", "coo", "bsr:2x3", "dia"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "?", "c16"])
def test_scipy_reads_ours(name, dtype, tmp_path):
    dense = random_matrix(np.random.default_rng(3), (6, 9), dtype)
    path = tmp_path / "a.npz"
    sj.save_npz(path, sj.array(dense, format=name))
    read = sp.load_npz(path)
    assert isinstance(read, sp.sparray) and read.format == name.split(":")[0] and read.dtype == dense.dtype
    np.testing.assert_array_equal(read.toarray(), dense)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("matrix", [False, True])
def test_we_read_scipys(kind, matrix):
    dense = random_matrix(np.random.default_rng(4), (6, 8), "f8")
    more = {"blocksize": (2, 4)} if kind == "bsr" else {}
    theirs = getattr(sp, f"{kind}_{'matrix' if matrix else 'array'}")(dense, **more)
    file = io.BytesIO()
    sp.save_npz(file, theirs)
    file.seek(0)
    ours = sj.load_npz(file)
    same_values(ours, dense)
    assert str(ours.format).split(":")[0] == kind


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (2, 2, 2, 3)])
def test_we_read_scipys_coo_of_any_rank(shape):
    dense = random_matrix(np.random.default_rng(4), shape, "i4")
    file = io.BytesIO()
    sp.save_npz(file, sp.coo_array(dense))
    file.seek(0)
    same_values(sj.load_npz(file), dense)


def test_diagonals_of_scipy_may_be_short_long_unsorted_and_outside():
    data = np.arange(1.0, 21).reshape(4, 5)
    for shape in [(4, 7), (7, 4), (3, 3), (40, 2)]:
        theirs = sp.dia_array((data, [2, -1, 0, 3]), shape=shape)
        file = io.BytesIO()
        np.savez(file, format=b"dia", shape=shape, data=data, offsets=np.array([2, -1, 0, 3]))
        file.seek(0)
        same_values(sj.load_npz(file), theirs.toarray())


@pytest.mark.parametrize("name", NAMED)
def test_a_format_can_be_asked_for(name):
    dense = random_matrix(np.random.default_rng(5), (6, 6), "f8")
    back = sj.load_npz(saved(sj.array(dense, format="csr")), format=name, dtype="f4")
    assert back.format == sj.formats.Format.parse(name, 2) and back.dtype == np.float32
    same_values(back, dense.astype("f4"))


def test_scipy_is_told_that_other_layouts_are_not_its_own():
    with pytest.raises(ValueError, match="does not contain a sparse"):
        sp.load_npz(saved(sj.array(np.eye(3), format="csr", fill_value=1)))


def test_equal_arrays_make_equal_members():
    x = sj.array(np.eye(3), format="dcsr")
    names = zipfile.ZipFile(saved(x)).namelist()
    assert names == [
        "shape.npy", "fill_value.npy", "vals.npy", "level0_pos.npy", "level0_crd.npy", "level1_pos.npy", "level1_crd.npy",
        "sparsejax_version.npy", "sparsejax_format.npy",
    ]  # fmt: skip


# --------------------------------------------------------------------------------------------------------- bad files


def archive(**members):
    file = io.BytesIO()
    np.savez(file, **members)
    file.seek(0)
    return file


CSR = {
    "format": b"csr", "shape": np.array([2, 3]), "data": np.ones(2), "indices": np.array([0, 2]), "indptr": np.array([0, 1, 2]),
}  # fmt: skip
OURS = {
    "sparsejax_version": np.int64(1), "sparsejax_format": np.array("dcsr"), "shape": np.array([2, 3]), "fill_value": np.float64(0),
    "vals": np.ones(1), "level0_pos": np.array([0, 1]), "level0_crd": np.array([1], "i4"), "level1_pos": np.array([0, 1]),
    "level1_crd": np.array([2], "i4"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("base", "change", "message"),
    [
        (CSR, {"indices": np.array([0, 3])}, "out of bounds"),
        (CSR, {"indptr": np.array([0, 2, 1])}, "decreases"),
        (CSR, {"indptr": np.array([0, 2])}, "must have 3"),
        (CSR, {"indices": np.array([0.0, 2])}, "dtype float64"),
        (CSR, {"data": np.array(["a", "b"])}, "no array has"),
        (CSR, {"format": b"lil"}, "'lil'"),
        (CSR, {"shape": np.array([2, -3])}, "extent -3"),
        (CSR, {"shape": np.arange(65)}, "65 dimensions"),
        (CSR, {"shape": np.array([2**61, 3])}, "must have"),
        (CSR, {"sparsejax_format": np.array("nonsense")}, "unknown format"),
        (CSR, {"format": b"dia", "offsets": np.array([0, 0])}, "data has shape"),
        (OURS, {"sparsejax_version": np.int64(2)}, "version 2"),
        (OURS, {"level1_crd": np.array([3], "i4")}, "out of bounds"),
        (OURS, {"level1_crd": np.array([2], "i8")}, "must be int32"),
        (OURS, {"level1_pos": np.array([0, -1])}, "decreases"),
        (OURS, {"fill_value": np.zeros(2)}, "one number"),
        (OURS, {"fill_value": np.float32(0)}, "scalar of the dtype"),
        (OURS, {"sparsejax_format": np.array("csr")}, "must have 3"),
        (OURS, {"vals": np.ones(2)}, "2 entries"),
        (OURS, {"vals": np.ones((1, 1))}, "one-dimensional"),
        (OURS, {"vals": np.ones(1, "f2")}, "not supported"),
        (OURS, {"vals": np.ones(1, "g")}, "not supported|dtype"),
        (OURS, {"sparsejax_format": np.array("x" * 5000)}, "no array has"),
    ],
)
def test_faults_are_named(base, change, message):
    assert isinstance(sj.load_npz(archive(**base)), sj.Array)
    with pytest.raises(FormatError, match=message):
        sj.load_npz(archive(**{**base, **change}))


@pytest.mark.parametrize("member", sorted(OURS))
def test_missing_members_are_named(member):
    with pytest.raises(FormatError, match=member.replace("sparsejax_version", "neither")):
        sj.load_npz(archive(**{k: v for k, v in OURS.items() if k != member}))


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def test_nothing_is_unpickled(capsys):
    with pytest.raises(FormatError, match="never objects"):
        sj.load_npz(archive(**{**CSR, "data": np.array([Evil(), 1], object)}))
    with pytest.raises(FormatError):
        sj.load_npz(io.BytesIO(pickle.dumps(Evil())))
    assert capsys.readouterr().out == ""


def test_claims_are_compared_with_what_is_there():
    """A header of many zeros in a short member; a member that unpacks to more than it may take."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as z:
        for name, array in CSR.items():
            with z.open(f"{name}.npy", "w") as member:
                if name == "data":
                    np.lib.format.write_array_header_1_0(
                        member, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
                    )
                else:
                    np.lib.format.write_array(member, np.asanyarray(array))
    file.seek(0)
    with pytest.raises(FormatError, match="not as many bytes"):
        sj.load_npz(file)
    file = io.BytesIO()
    np.savez_compressed(file, **{**CSR, "data": np.zeros(10**6)})
    file.seek(0)
    with pytest.raises(FormatError, match="max_bytes=1000000"):
        sj.load_npz(file, max_bytes=10**6)


def test_formats_without_room_are_refused_before_they_are_made():
    big = {
        **CSR,
        "format": b"coo",
        "shape": np.array([10**12, 3]),
        "row": np.array([0, 10**11]),
        "col": np.array([0, 1]),
    }
    assert sj.load_npz(archive(**big)).nnz == 2
    with pytest.raises(FormatError, match="max_bytes"):
        sj.load_npz(archive(**big), format="csr")
    nothing = {"sparsejax_format": np.array("(d,o)@(0,1)"), "shape": np.array([10**12, 3]), "vals": np.ones(0)}
    with pytest.raises(FormatError, match="max_bytes"):
        sj.load_npz(archive(**{**OURS, **nothing, "level1_count": np.array([0]), "level1_off": np.zeros(0, int)}))
    wide = {"format": b"dia", "shape": np.array([10**12, 10**12]), "data": np.zeros((1, 0)), "offsets": np.array([0])}
    with pytest.raises(FormatError, match="max_bytes"):
        sj.load_npz(archive(**wide))


def test_what_is_no_file():
    with pytest.raises(FileNotFoundError):
        sj.load_npz("no such file.npz")
    with pytest.raises(TypeError, match="path or an open binary file"):
        sj.load_npz(3)
    with pytest.raises(FormatError, match="neither SciPy's nor ours"):
        sj.load_npz(archive(x=np.ones(3)))
