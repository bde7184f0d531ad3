"""HDF5 and zarr: binsparse against its reference implementation, sparse groups against anndata and a 10x file made by hand."""

import itertools
import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings

import sparsejax as sj
from sparsejax.errors import FormatError
from sparsejax.io import read_10x_h5, read_anndata, read_binsparse, write_anndata, write_binsparse
from tests import rotation
from tests.formats.strategies import NAMED
from tests.io.support import random_matrix, same, same_values, sparse_arrays

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")


_numbers = itertools.count()


def memory():
    """An HDF5 file that is nowhere. Each has a name of its own: one that an exception still refers to is open."""
    return h5py.File(f"nowhere {next(_numbers)}", "w", driver="core", backing_store=False)


def zarr_group(version=3):
    return zarr.group(store=zarr.storage.MemoryStore(), zarr_format=version)


def with_content(text, **arrays):
    file = memory()
    file.attrs["binsparse"] = json.dumps(text)
    for name, array in arrays.items():
        file.create_dataset(name, data=array)
    return file


# ---------------------------------------------------------------------------------------------------------- binsparse


@given(sparse_arrays(min_ndim=1))
@settings(max_examples=rotation.examples(120), deadline=None)
def test_every_array_comes_back(x):
    with memory() as file:
        write_binsparse(file, x)
        back = read_binsparse(file)
    assert (back.shape, back.dtype, back.format) == (x.shape, x.dtype, x.format)
    same_values(back, x)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("kind", ["a.h5", "a.zarr"])
def test_paths_and_groups_in_them(name, kind, tmp_path):
    x = sj.array(random_matrix(np.random.default_rng(1), (4, 6), "f4"), format=name)
    path = tmp_path / kind
    write_binsparse(path, x)
    same(read_binsparse(path), x)
    write_binsparse(path, x.T, group="below/here", compressed=True)
    same_values(read_binsparse(path, group="below/here"), x.T)
    same_values(read_binsparse(path, format="csc", dtype="f8"), x.todense().astype("f8"))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f4", "f8", "c8", "c16"])
def test_zarr_of_both_versions(version, dtype):
    x = sj.array(random_matrix(np.random.default_rng(1), (4, 6), dtype), format="csr")
    group = zarr_group(version)
    write_binsparse(group, x)
    same(read_binsparse(group), x)


REFERENCE = {
    "DMATR": "dense", "DMATC": "(d,d)@(1,0)", "CSR": "csr", "CSC": "csc", "DCSR": "dcsr", "DCSC": "dcsc", "COOR": "coo",
    "COOC": "(q,q)@(1,0)",
}  # fmt: skip


@pytest.mark.parametrize("fill", [0, 2])
@pytest.mark.parametrize("dtype", ["?", "i4", "f8", "c16"])
@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_reads_ours(name, dtype, fill, tmp_path):
    reference = pytest.importorskip("binsparse")
    dense = random_matrix(np.random.default_rng(2), (5, 4), dtype)
    fill = 0 if name.startswith("DMAT") else fill
    x = sj.array(dense, format=REFERENCE[name], fill_value=np.dtype(dtype).type(fill))
    path = tmp_path / "a.h5"
    write_binsparse(path, x)
    read = reference.load_binsparse(path)
    assert type(read).__name__.removesuffix("Matrix") == name
    assert read.shape == (5, 4) and read.number_of_stored_values == (20 if name.startswith("DMAT") else x.nnz)
    assert (read.fill_value or 0) == np.dtype(dtype).type(fill)
    np.testing.assert_array_equal(read.values, x.storage.vals)
    if hasattr(read, "pointers_to_1"):
        np.testing.assert_array_equal(read.pointers_to_1, x.storage.buffers[1][0])
    for level in range(2):
        if hasattr(read, f"indices_{level}"):
            np.testing.assert_array_equal(getattr(read, f"indices_{level}"), x.storage.buffers[level][-1])


@pytest.mark.parametrize("form", ["csf", "coo", "(d,c,c)@(2,0,1)", "(c,d,d)@(1,2,0)", "(d,q,q)@(0,1,2)"])
def test_the_reference_reads_and_writes_custom_formats(form, tmp_path):
    reference = pytest.importorskip("binsparse")
    dense = np.where(np.random.default_rng(3).random((3, 4, 5)) < 0.4, 1.5, 0.0)
    x = sj.array(dense, format=form)
    write_binsparse(tmp_path / "a.h5", x)
    read = reference.load_binsparse(tmp_path / "a.h5", alias=False)
    reference.save_binsparse(read, tmp_path / "b.h5")
    with h5py.File(tmp_path / "b.h5") as file:  # as it comes from there, without what we add
        assert "sparsejax" not in file.attrs["binsparse"]
        same(read_binsparse(file), x)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_we_read_what_the_reference_makes_of_scipys(kind, tmp_path):
    pytest.importorskip("binsparse")
    conversions = pytest.importorskip("binsparse.conversions.scipy")
    import binsparse

    dense = random_matrix(np.random.default_rng(4), (5, 7), "f4")
    make = next(
        getattr(conversions, n) for n in dir(conversions) if n.startswith("from_scipy") or n == "binsparse_from_scipy"
    )
    tensor = make(getattr(sp, f"{kind}_array")(dense))
    for suffix in ("h5", "zarr"):
        binsparse.save_binsparse(tensor, tmp_path / f"a.{suffix}")
        read = read_binsparse(tmp_path / f"a.{suffix}")
        same_values(read, dense)
        assert str(read.format) == kind


def test_two_runs_of_coordinates_become_one():
    dense = np.where(np.random.default_rng(3).random((2, 3, 2, 3)) < 0.5, 1.5, 0.0)
    pairs = sorted({(i, j) for i, j, _, _ in np.argwhere(dense)})
    below = [np.argwhere(dense[i, j]) for i, j in pairs]
    nest = {"level_desc": "sparse", "rank": 2, "level": {"level_desc": "element"}}
    arrays = {
        "indices_0": np.array([i for i, _ in pairs]),
        "indices_1": np.array([j for _, j in pairs]),
        "pointers_to_2": np.cumsum([0, *map(len, below)]),
        "indices_2": np.concatenate(below)[:, 0],
        "indices_3": np.concatenate(below)[:, 1],
        "values": dense[dense != 0],
    }
    text = {
        "binsparse": {
            "version": "0.1", "format": "custom", "custom": {"level": {"level_desc": "sparse", "rank": 2, "level": nest}},
            "shape": [2, 3, 2, 3], "number_of_stored_values": len(arrays["values"]),
            "data_types": {k: v.dtype.name for k, v in arrays.items()},
        }
    }  # fmt: skip
    read = read_binsparse(with_content(text, **arrays))
    assert str(read.format) == "coo"
    same_values(read, dense)
    arrays["pointers_to_2"] = arrays["pointers_to_2"][::-1].copy()
    with pytest.raises(FormatError):
        read_binsparse(with_content(text, **arrays))


CSR = {
    "version": "0.1", "format": "CSR", "shape": [3, 4], "number_of_stored_values": 3,
    "data_types": {"pointers_to_1": "uint64", "indices_1": "uint8", "values": "float64"},
}  # fmt: skip
ARRAYS = {
    "pointers_to_1": np.array([0, 1, 1, 3], "u8"),
    "indices_1": np.array([2, 0, 1], "u1"),
    "values": np.array([1.0, 2, 3]),
}


def changed(what=None, **arrays):
    return with_content({"binsparse": {**CSR, **(what or {})}}, **{**ARRAYS, **arrays})


def test_the_extras_of_the_specification():
    dense = np.array([[0, 0, 1.0, 0], [0, 0, 0, 0], [2, 3, 0, 0]])
    same_values(read_binsparse(changed()), dense)
    iso = {"data_types": {**CSR["data_types"], "values": "iso[float64]"}}
    same_values(read_binsparse(changed(iso, values=np.array([7.0]))), 7 * (dense != 0))
    one = {"index_base": 1}
    same_values(
        read_binsparse(changed(one, pointers_to_1=ARRAYS["pointers_to_1"] + 1, indices_1=ARRAYS["indices_1"] + 1)),
        dense,
    )
    true = {"data_types": {**CSR["data_types"], "values": "bint8"}}
    assert read_binsparse(changed(true, values=np.array([1, 0, 1], "u1"))).todense().dtype == bool
    pairs = {"data_types": {**CSR["data_types"], "values": "complex[float64]"}}
    same_values(read_binsparse(changed(pairs, values=np.array([1, 1, 2, 2, 3, 3.0]))), dense * (1 + 1j))
    fill = {"fill": True, "data_types": {**CSR["data_types"], "fill_value": "float64"}}
    assert read_binsparse(changed(fill, fill_value=np.array([np.inf]))).fill_value == np.inf


@pytest.mark.parametrize("part", ["lower", "upper"])
@pytest.mark.parametrize("kind", ["symmetric", "hermitian", "skew_symmetric"])
@pytest.mark.parametrize("name", ["CSR", "COO", "DMAT"])
def test_triangles_are_mirrored(name, kind, part):
    rng = np.random.default_rng(5)
    whole = random_matrix(rng, (4, 4), "c16") * (1 + 2j)
    whole = {"symmetric": whole + whole.T, "hermitian": whole + whole.conj().T, "skew_symmetric": whole - whole.T}[kind]
    triangle = np.tril(whole) if part == "lower" else np.triu(whole)
    file = memory()
    write_binsparse(file, sj.array(triangle, format={"CSR": "csr", "COO": "coo", "DMAT": "dense"}[name]))
    text = json.loads(file.attrs["binsparse"])
    text["binsparse"]["structure"] = f"{kind}_{part}"
    file.attrs["binsparse"] = json.dumps(text)
    same_values(read_binsparse(file), whole)
    if name != "DMAT" and np.count_nonzero(whole):
        text["binsparse"]["structure"] = f"{kind}_{'upper' if part == 'lower' else 'lower'}"
        file.attrs["binsparse"] = json.dumps(text)
        with pytest.raises(FormatError, match="other triangle"):
            read_binsparse(file)


@pytest.mark.parametrize(
    ("what", "arrays", "message"),
    [
        ({"version": "1.0"}, {}, "version"),
        ({"format": "BSR"}, {}, "'BSR'"),
        ({"format": "CVEC"}, {}, "other dimensions"),
        ({"shape": [3, -4]}, {}, "whole number"),
        ({"shape": [3, 2]}, {}, "out of bounds"),
        ({"shape": [4, 4]}, {}, "must have 5"),
        ({"shape": [1] * 65}, {}, "65 dimensions"),
        ({"shape": 7}, {}, "iterable"),
        ({"number_of_stored_values": 4}, {}, "number_of_stored_values"),
        ({"number_of_stored_values": True}, {}, "whole number"),
        ({"data_types": {}}, {}, "data_types has no"),
        ({"data_types": {**CSR["data_types"], "values": "float128"}}, {}, "unknown"),
        ({"data_types": {**CSR["data_types"], "values": "float32"}}, {}, "float64"),
        ({"data_types": {**CSR["data_types"], "values": "iso[float64"}}, {}, "unknown"),
        (
            {"data_types": {**CSR["data_types"], "values": "iso[float64]"}, "number_of_stored_values": 10**15},
            {"values": np.ones(1)},
            "max_bytes",
        ),
        ({"structure": "symmetric_lower"}, {}, "square"),
        ({"structure": "round"}, {}, "'round'"),
        ({"index_base": 1}, {}, "starts at -1|out of bounds|negative|not in"),
        ({"format": "custom", "custom": {"level": {"level_desc": "dense", "rank": 10**18}}}, {}, "more dimensions"),
        ({"format": "custom", "custom": {"level": {"level_desc": "element"}}}, {}, "other dimensions"),
        ({"format": "custom", "custom": 3}, {}, "format 'custom'"),
        ({}, {"pointers_to_1": np.array([0, 2, 1, 3])}, "decreases"),
        ({}, {"pointers_to_1": np.array([0, 1, 1, 2**64 - 1], "u8")}, "out of bounds"),
        ({}, {"indices_1": np.array([2, 1, 0])}, "not sorted"),
        ({}, {"indices_1": np.array([2.0, 0, 1])}, "hold numbers"),
        ({}, {"values": np.array(["a", "b", "c"], "S1")}, "hold numbers"),
        ({}, {"values": np.ones((3, 1))}, "dimensions"),
    ],
)
def test_binsparse_faults_are_named(what, arrays, message):
    with pytest.raises(FormatError, match=message):
        read_binsparse(changed(what, **arrays))


# ------------------------------------------------------------------------------------------------------------ anndata


@given(sparse_arrays(min_ndim=2, max_ndim=2, fills=(0,)))
@settings(max_examples=rotation.examples(40), deadline=None)
def test_sparse_groups_come_back(x):
    with memory() as file:
        write_anndata(file, x, "layers/counts")
        back = read_anndata(file, "layers/counts")
    same_values(back, x)
    assert str(back.format) == ("csc" if str(x.format) == "csc" else "csr")


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_we_read_what_anndata_writes(kind, suffix, tmp_path):
    anndata = pytest.importorskip("anndata")
    dense = random_matrix(np.random.default_rng(6), (5, 7), "f4")
    data = anndata.AnnData(getattr(sp, f"{kind}_matrix")(dense), layers={"log": dense})
    path = tmp_path / f"a.{suffix}"
    (data.write_h5ad if suffix == "h5ad" else data.write_zarr)(path)
    back = read_anndata(path)
    assert str(back.format) == kind
    same_values(back, dense)
    same_values(read_anndata(path, "layers/log", format="csr"), dense)


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("suffix", ["h5", "zarr"])
def test_anndata_reads_ours(kind, suffix, tmp_path):
    anndata = pytest.importorskip("anndata")
    dense = random_matrix(np.random.default_rng(6), (5, 7), "f4")
    path = tmp_path / f"a.{suffix}"
    write_anndata(path, sj.array(dense, format=kind), compressed=True)
    with pytest.raises(ValueError, match="there already"):
        write_anndata(path, dense)
    group = (h5py.File(path) if suffix == "h5" else zarr.open_group(path))["X"]
    read = anndata.io.read_elem(group)
    assert read.format == kind
    np.testing.assert_array_equal(read.toarray(), dense)


def test_groups_of_old_anndata():
    file = memory()
    write_anndata(file, np.eye(3))
    group = file["X"]
    group.attrs["h5sparse_format"], group.attrs["h5sparse_shape"] = "csr", group.attrs["shape"]
    del group.attrs["encoding-type"], group.attrs["shape"]
    same_values(read_anndata(file), np.eye(3))


def tenx(version, dense):
    file = memory()
    group = file.create_group("matrix" if version == 3 else "GRCh38")
    theirs = sp.csc_array(dense)
    for name in ("data", "indices", "indptr"):
        group[name] = getattr(theirs, name)
    group["shape"] = np.array(dense.shape, "i4")
    group["barcodes"] = np.array([f"CELL-{k}".encode() for k in range(dense.shape[1])])
    names = np.array([f"GENE{k}".encode() for k in range(dense.shape[0])])
    if version == 3:
        group.create_group("features")["name"] = names
    else:
        group["gene_names"] = names
    return file


@pytest.mark.parametrize("version", [2, 3])
def test_counts_of_10x(version):
    dense = random_matrix(np.random.default_rng(7), (6, 4), "i4")
    counts, cells, features = read_10x_h5(tenx(version, dense))
    assert str(counts.format) == "csr" and cells[3] == "CELL-3" and features[5] == "GENE5"
    same_values(counts, dense.T)
    file = tenx(version, dense)
    group = file["matrix" if version == 3 else "GRCh38"]
    del group["barcodes"]
    group["barcodes"] = np.array([b"x"])
    with pytest.raises(FormatError, match="1 barcodes"):
        read_10x_h5(file)
    if version == 2:
        file.create_group("mm10")
        with pytest.raises(FormatError, match="genome="):
            read_10x_h5(file)
        with pytest.raises(FormatError, match="no member"):
            read_10x_h5(file, genome="mm10")


# --------------------------------------------------------------------------------------------------------- bad files


def group_of(change):
    file = memory()
    write_anndata(file, np.diag([1.0, 2.0, 3.0]))
    change(file["X"])
    return file


def replace(name, make):
    def change(group):
        del group[name]
        make(group)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.attrs.__setitem__("encoding-type", "dict"), "'dict'"),
        (lambda g: g.attrs.__setitem__("shape", [3, 2]), "out of bounds"),
        (lambda g: g.attrs.__setitem__("shape", [2**40, 3]), "the file holds"),
        (lambda g: g.attrs.__setitem__("shape", np.zeros(2**10)), "dimensions|integers"),
        (lambda g: g.__delitem__("indptr"), "no member indptr"),
        (replace("data", lambda g: g.create_dataset("data", (10**13,), "f8", chunks=(1000,))), "the file holds"),
        (replace("data", lambda g: g.create_dataset("data", data=np.array([b"x"] * 3))), "hold numbers"),
        (replace("data", lambda g: g.create_dataset("data", data=np.ones((3, 1)))), "dimensions"),
        (replace("data", lambda g: g.__setitem__("data", h5py.ExternalLink("/etc/passwd", "/x"))), "link|no member"),
        (replace("data", lambda g: g.create_dataset("data", (3,), "f8", external="/dev/zero")), "another file"),
    ],
)
def test_group_faults_are_named(change, message):
    with pytest.raises(FormatError, match=message):
        read_anndata(group_of(change))


@pytest.mark.parametrize("filters", [{}, {"chunks": (1000,)}, {"chunks": (1000,), "compression": "gzip"}])
def test_arrays_that_were_never_written_take_no_memory(filters):
    def change(group):
        for name in ("data", "indices"):
            del group[name]
            group.create_dataset(name, (10**9,), "i8", **filters)
        del group["indptr"]
        group.create_dataset("indptr", data=np.array([0, 10**9, 10**9, 10**9]))

    with pytest.raises(FormatError, match="cannot hold"):
        read_anndata(group_of(change))


def test_virtual_arrays_are_refused(tmp_path):
    with h5py.File(tmp_path / "secret.h5", "w") as other:
        other["x"] = np.ones(3)
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(tmp_path / "secret.h5", "x", (3,))
    with pytest.raises(FormatError, match="another file"):
        read_anndata(group_of(replace("data", lambda g: g.create_virtual_dataset("data", layout))))


def test_codecs_of_zarr_that_execute_are_refused():
    numcodecs = pytest.importorskip("numcodecs")
    group = zarr_group(2)
    write_anndata(group, np.eye(3))
    del group["X/data"]
    group["X"].create_array(
        "data", shape=(3,), chunks=(3,), dtype="f8", filters=[numcodecs.PackBits()], compressors=None
    )
    with pytest.raises(FormatError, match="packbits"):
        read_anndata(group)


@pytest.mark.parametrize("chunk", [10**3, 10**12])
def test_zarr_arrays_that_were_never_written_take_no_memory(chunk):
    group = zarr_group()
    write_anndata(group, np.eye(3))
    group["X"].attrs["shape"] = [3, 3]
    for name in ("data", "indices"):
        del group[f"X/{name}"]
        group["X"].create_array(name, shape=(10**12,), chunks=(chunk,), dtype="i8")
    with pytest.raises(FormatError, match="cannot hold"):
        read_anndata(group)


def test_zarr_arrays_of_many_chunks_that_are_not_there():
    group = zarr_group()
    write_anndata(group, np.eye(3))
    del group["X/indptr"]
    group["X"].attrs["shape"] = [10**6 - 1, 3]
    group["X"].create_array("indptr", shape=(10**6,), chunks=(1,), dtype="i8")
    with pytest.raises(FormatError, match="1000000 chunks, which"):
        read_anndata(group)


def test_what_groups_cannot_hold(tmp_path):
    for x, message in [(np.ones(3), "2 dimensions"), (sj.array(np.eye(2), format="csr", fill_value=1), "fill 1")]:
        with pytest.raises(FormatError, match=message):
            write_anndata(memory(), x)
    with pytest.raises(FormatError, match="one dimension"):
        write_binsparse(memory(), np.float64(1))
    for read in (read_binsparse, read_anndata, read_10x_h5):
        for name in ("no.h5", "no.zarr"):
            with pytest.raises(FileNotFoundError):
                read(tmp_path / name)
        (tmp_path / "text.h5").write_text("no HDF5 file")
        with pytest.raises(FormatError):
            read(tmp_path / "text.h5")
