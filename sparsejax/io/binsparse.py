"""Binsparse files: levels of sparse and dense arrays in HDF5 or zarr, with a descriptor in JSON.

By the "Binary Sparse Format Specification", version 0.1. Its levels are ours: "dense" of rank r is r dense levels; "sparse" of rank 1 is a
compressed level, of a higher rank a run of coordinate levels. Its other level types being none, an array in a format with others (bitmap, ELL,
runs, blocks) is written as csr or coo would be. Beside the descriptor, under the key "sparsejax", stands the format that the array had, so that we read
again what we wrote.

    levels of csr       dense 1, sparse 1, element       pointers_to_1  indices_1  values
    levels of coo       sparse 2, element                indices_0  indices_1  values
"""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Compressed, Coordinate, Dense, Format, convert, passes
from sparsejax.formats.ingest import fill_scalar
from sparsejax.formats.levels import segments
from sparsejax.formats.levels.level import Level
from sparsejax.formats.levels.segments import Array as Buffer
from sparsejax.formats.ownership import copied
from sparsejax.formats.storage import Storage
from sparsejax.formats.structural import refill, same_bits
from sparsejax.formats.validate import validate
from sparsejax.io.reading import Budget, check_fits, finished, reading, shape_of, size_of, written
from sparsejax.io.stores import Group, opened

VERSION = "0.1.0"
_TREES = {
    "DVEC": "d", "DMAT": "dd", "DMATR": "dd", "DMATC": "dd", "CVEC": "c", "CSR": "dc", "CSC": "dc", "DCSR": "cc", "DCSC": "cc",
    "COO": "qq", "COOR": "qq", "COOC": "qq",
}  # fmt: skip
_TURNED = {"DMATC", "CSC", "DCSC", "COOC"}
_NAMES = {"d": "DVEC", "dd": "DMAT", "c": "CVEC", "q": "CVEC", "dc": "CS", "cc": "DCS", "qq": "COO"}
_STRUCTURES = [f"{kind}_{part}" for kind in ("symmetric", "hermitian", "skew_symmetric") for part in ("lower", "upper")]
_MAX_DESCRIPTOR = 1 << 20

Tree = list[tuple[str, int]]
"""("dense" or "sparse", rank) of every level, outermost first."""


def read_binsparse(
    source: Any,
    *,
    group: str | None = None,
    format: str | Format | None = None,
    dtype: Any = None,
    max_bytes: int | None = None,
) -> Array:
    """The array of a binsparse file: a path to an HDF5 file or a zarr folder, or an open h5py or zarr group; in it, the group `group`.

    Matrices of which one triangle is stored (symmetric, Hermitian, skew-symmetric) give all entries. `max_bytes` bounds the memory that is taken
    (the machine's, unless given). Needs h5py or zarr: `sparsejax[files]`.

    FormatError for anything that is no such file, or breaks the rules of its format. O(entries).

    >>> import h5py, sparsejax as sj
    >>> file = h5py.File("any name", "w", driver="core", backing_store=False)
    >>> write_binsparse(file, sj.array([[0, 2], [3, 0]], format="csc"))
    >>> read_binsparse(file).format
    Format('csc')
    """
    budget = Budget(max_bytes)
    if dtype is not None:
        dtype = dtypes.canonical(dtype)
    with reading(source), opened(source, "r", budget) as root:
        here = root if group is None else root.below(group)
        text = here.attribute("binsparse")
        told = _descriptor(text)
        storage = _read(here, told["binsparse"], budget)
        own = told.get("sparsejax")
        if isinstance(own, dict) and isinstance(own.get("format"), str):
            form = Format.parse(own["format"], storage.ndim)
            if form != storage.format:
                check_fits(form, storage.shape, storage.nnz, storage.dtype.itemsize, budget)
                storage = convert.convert(storage, form)
        return finished(storage, format, dtype, budget)


def write_binsparse(target: Any, x: Any, *, group: str | None = None, compressed: bool = False) -> None:
    """Write an array of any format, fill and number of dimensions from one on.

    `target` is a path, a new HDF5 file or zarr store (".zarr"), or an open h5py or zarr group; with `group`, the array goes into a new group of that
    name, and a file that exists keeps what else it has. `compressed` packs HDF5 arrays; zarr packs its own in any case.
    Needs h5py or zarr: `sparsejax[files]`. FormatError for arrays of no dimensions.
    """
    storage = written(x, "a binsparse file", zero_fill=False)
    if not storage.ndim:
        raise FormatError("a binsparse file holds arrays of one dimension or more; use save_npz")
    own = storage.format
    storage = convert.convert(storage, _nearest(own))
    with opened(target, "w" if group is None else "a") as root:
        here = root if group is None else Group(root.group.create_group(group))
        told, arrays = _described(storage)
        text = {"binsparse": told, "sparsejax": {"format": str(own)}}
        here.set("binsparse", text if here.is_zarr else json.dumps(text, indent=2))
        for name, array in arrays.items():
            here.write(name, array, compressed)


# ------------------------------------------------------------------------------------------------------------ writing


def _nearest(form: Format) -> Format:
    """The format itself where all levels have a counterpart, else csr in the order of its dimensions, or coo."""
    if not form.blocked and all(isinstance(lv, Dense | Coordinate) or lv == Compressed() for lv in form.levels):
        return form
    form = form.unblocked()
    levels: tuple[Level, ...] = (Coordinate(),) * form.ndim
    if form.ndim == 2 and isinstance(form.levels[0], Dense):
        levels = (Dense(), Compressed())
    return Format(levels, form.order)


def _described(storage: Storage) -> tuple[dict[str, Any], dict[str, Buffer]]:
    """The descriptor, and the arrays by their names."""
    form = storage.format
    arrays: dict[str, Buffer] = {}
    tree: Tree = []
    for first, stop in form.runs:
        if isinstance(form.levels[first], Dense):
            tree.append(("dense", 1))
            continue
        tree.append(("sparse", stop - first))
        if first:
            arrays[f"pointers_to_{first}"] = storage.buffers[first][0]
        for level in range(first, stop):
            arrays[f"indices_{level}"] = storage.buffers[level][-1]
    arrays["values"] = storage.vals
    told: dict[str, Any] = {"version": VERSION}
    turned = form.order != tuple(range(form.ndim))
    name = _NAMES.get("".join(level.letter for level in form.levels))
    if name is not None:
        told["format"] = name + ("" if name.endswith("VEC") else _order(name, turned))
    else:
        told["format"] = "custom"
        told["custom"] = {"level": _nested(tree)} | ({"transpose": list(form.order)} if turned else {})
    told |= {"shape": list(storage.shape), "number_of_stored_values": len(storage.vals)}
    if not same_bits(storage.fill_value, storage.dtype.type(0)):
        told["fill"] = True
        arrays["fill_value"] = np.array([storage.fill_value], storage.dtype)
    told["data_types"] = {key: _type_of(array) for key, array in arrays.items()}
    return told, {key: _encoded(array) for key, array in arrays.items()}


def _order(name: str, turned: bool) -> str:
    if name in ("CS", "DCS"):
        return "C" if turned else "R"
    return ("C" if turned else "R") if name in ("DMAT", "COO") else ""


def _nested(tree: Tree) -> dict[str, Any]:
    made: dict[str, Any] = {"level_desc": "element"}
    for kind, rank in reversed(tree):
        made = {"level_desc": kind, "rank": rank, "level": made}
    return made


def _type_of(array: Buffer) -> str:
    if array.dtype.kind == "c":
        return f"complex[float{array.dtype.itemsize * 4}]"
    return "bint8" if array.dtype == np.bool_ else array.dtype.name


def _encoded(array: Buffer) -> Buffer:
    if array.dtype.kind == "c":
        return array.view(f"f{array.dtype.itemsize // 2}")
    return array.view(np.uint8) if array.dtype == np.bool_ else array


# ------------------------------------------------------------------------------------------------------------ reading


def _descriptor(text: Any) -> dict[str, Any]:
    """The descriptor as a dictionary: HDF5 holds its text, zarr the thing itself."""
    if isinstance(text, str):
        if len(text) > _MAX_DESCRIPTOR:
            raise FormatError("the descriptor is too long")
        text = json.loads(text)
    made: Any = text
    if not isinstance(made, dict) or not isinstance(made.get("binsparse"), dict):
        raise FormatError("the group has no attribute binsparse that describes an array")
    version = made["binsparse"].get("version")
    if not isinstance(version, str) or re.fullmatch(r"0(\.\d+)*", version) is None:
        raise FormatError(f"the file has version {version!r} of binsparse; {VERSION} is read")
    return made


def _whole(number: Any, what: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
        raise FormatError(f"{what} is {number!r}; it must be a whole number")
    return number


def _tree_of(told: dict[str, Any], ndim: int) -> tuple[Tree, tuple[int, ...]]:
    """Levels and the order of dimensions that a descriptor gives."""
    name: Any = told.get("format")
    custom = told.get("custom")
    if isinstance(name, dict) and "custom" in name:
        name, custom = "custom", name["custom"]
    if isinstance(name, str) and name in _TREES:
        letters = _TREES[name]
        tree: Tree = [("sparse", 2)] if letters == "qq" else [("dense" if c == "d" else "sparse", 1) for c in letters]
        order = (1, 0) if name in _TURNED else tuple(range(len(letters)))
    elif name == "custom" and isinstance(custom, dict):
        tree, level = [], custom.get("level")
        while isinstance(level, dict) and level.get("level_desc") in ("dense", "sparse"):
            tree.append((level["level_desc"], max(1, _whole(level.get("rank"), "the rank of a level"))))
            level = level.get("level")
            if sum(rank for _, rank in tree) > ndim:
                raise FormatError(f"levels have more dimensions than the shape, {ndim}")
        if not isinstance(level, dict) or level.get("level_desc") != "element":
            raise FormatError("levels must be dense or sparse, and the innermost one an element")
        given = custom.get("transpose", list(range(ndim)))
        order = tuple(_whole(n, "a dimension of transpose") for n in given)
    else:
        raise FormatError(f"the file has format {name!r}; {', '.join(_TREES)} and custom are known")
    if sum(rank for _, rank in tree) != ndim or sorted(order) != list(range(ndim)):
        raise FormatError(f"format {name} has other dimensions than the shape, {ndim}")
    return tree, order


def _read(here: Group, told: dict[str, Any], budget: Budget) -> Storage:
    shape = shape_of(_whole(n, "an extent") for n in told.get("shape", ()))
    tree, order = _tree_of(told, len(shape))
    types = told.get("data_types")
    if not isinstance(types, dict):
        raise FormatError("the descriptor has no data_types")
    base = _whole(told.get("index_base", 0), "index_base")
    entries = _whole(told.get("number_of_stored_values"), "number_of_stored_values")
    extents = [shape[d] for d in order]
    levels: list[Level] = []
    buffers: list[tuple[Buffer, ...]] = []
    depth, positions = 0, 1
    for kind, rank in tree:
        if kind == "dense":
            levels += [Dense()] * rank
            buffers += [()] * rank
            positions *= size_of(extents[depth : depth + rank])
        else:
            crds = [_numbers(here, types, f"indices_{depth + k}", base, extents[depth + k]) for k in range(rank)]
            if depth:
                pos = _numbers(here, types, f"pointers_to_{depth}", base, None)
            else:
                pos = np.array([0, len(crds[0])], np.int64)
            if levels and isinstance(levels[-1], Coordinate):  # two runs of coordinates in a row are one of ours
                if rank == 1:
                    levels.append(Compressed())
                    buffers.append((pos, crds[0]))
                else:
                    _join_runs(levels, buffers, pos, crds)
            else:
                levels += [Compressed()] if rank == 1 else [Coordinate()] * rank
                buffers += [(pos, crds[0]), *((crd,) for crd in crds[1:])]
            positions = len(crds[0])
        depth += rank
    vals = _values(here, types, "values", entries, budget)
    if len(vals) != positions:
        raise FormatError(
            f"values has {len(vals)} entries, but the levels hold {positions} positions; give one value each"
        )
    form = Format(levels, order)
    fill: Any = 0
    if told.get("fill") is True:
        (fill,) = _values(here, types, "fill_value", 1, budget)
    storage = Storage(form, shape, fill_scalar(fill, vals.dtype), tuple(buffers), vals)
    validate(storage)
    if form.is_dense:
        storage = refill(storage, 0)
    return _mirrored(storage, told.get("structure"))


def _join_runs(levels: list[Level], buffers: list[tuple[Buffer, ...]], pos: Buffer, crds: list[Buffer]) -> None:
    """One run of coordinate levels of the one that is there and of `crds`, whose segments `pos` lie below its positions."""
    first = len(levels) - 1
    while first and isinstance(levels[first - 1], Coordinate):
        first -= 1
    above = [level[-1] for level in buffers[first:]]
    segments.check_pos(pos, len(above[0]), len(crds[0]), f"pointers_to_{len(levels)}")
    segments.check_pos(buffers[first][0], len(buffers[first][0]) - 1, len(above[0]), f"pointers_to_{first}")
    owner = passes.over(max(len(pos), len(crds[0]))).owners(pos)
    joined = [np.take(crd, owner) for crd in above] + crds
    ends = np.take(pos, buffers[first][0])
    levels += [Coordinate()] * len(crds)
    buffers[first:] = [(ends, joined[0]), *((crd,) for crd in joined[1:])]


def _numbers(here: Group, types: dict[str, Any], name: str, base: int, extent: int | None) -> Buffer:
    """Coordinates below `extent`, or (None) positions, in the dtype that our levels have."""
    if name not in types:
        raise FormatError(f"data_types has no {name}")
    found = here.read(name, "iu")
    want = np.dtype(np.int64) if extent is None else convert.crd_dtype(extent)
    if len(found) and found.dtype.kind == "u" and int(found.max()) - base > np.iinfo(want).max:
        raise FormatError(f"{name} holds {int(found.max())}, which is out of bounds")
    if extent is not None:
        segments.check_bounds(found, extent + base, name)
    made = found.astype(np.int64, copy=False) - base if base else found
    return copied(made, want)


def _values(here: Group, types: dict[str, Any], name: str, count: int, budget: Budget) -> Buffer:
    """`count` values, decoded as `data_types` says."""
    told = types.get(name)
    if not isinstance(told, str):
        raise FormatError(f"data_types has no {name}")
    inner = re.fullmatch(r"(iso\[)?(complex\[)?([a-z0-9]+)\]{0,2}", told)
    if (
        inner is None
        or told.count("[") != told.count("]")
        or (inner[3] not in dtypes.SHORT_NAMES and inner[3] != "bint8")
    ):
        raise FormatError(f"{name} has the type {told!r}, which is unknown")
    found = here.read(name)
    if inner[3] == "bint8":
        found = found.astype(np.bool_, copy=False)
    elif found.dtype.name != inner[3]:
        raise FormatError(f"{name} has dtype {found.dtype}, but data_types says {told}")
    if inner[2]:
        if found.dtype.kind != "f" or len(found) % 2:
            raise FormatError(f"{name} is {told}, but holds {len(found)} numbers of dtype {found.dtype}")
        found = found.view(f"c{found.dtype.itemsize * 2}")
    dtypes.canonical(found.dtype)
    if inner[1]:
        if len(found) != 1:
            raise FormatError(f"{name} is {told}, but has {len(found)} values; it must have one")
        budget.take(count * found.dtype.itemsize, f"{count} values")
        return np.full(count, found[0])
    if len(found) != count:
        raise FormatError(f"{name} has {len(found)} values, but number_of_stored_values says {count}")
    return found


def _mirrored(storage: Storage, structure: Any) -> Storage:
    """All entries of a matrix of which one triangle is stored."""
    if structure is None:
        return storage
    if structure not in _STRUCTURES:
        raise FormatError(f"the file has the structure {structure!r}; {', '.join(_STRUCTURES)} are known")
    if storage.ndim != 2 or storage.shape[0] != storage.shape[1]:
        raise FormatError(f"the structure {structure} is of square matrices, but the shape is {storage.shape}")
    (row, col), vals = storage.expand()
    kind, part = structure.rsplit("_", 1)
    if storage.format.is_dense:  # of a dense matrix, everything is stored; one triangle counts
        kept = row >= col if part == "lower" else row <= col
        row, col, vals = row[kept], col[kept], vals[kept]
    if ((row < col) if part == "lower" else (row > col)).any():
        raise FormatError(f"the structure is {structure}, but the other triangle has entries too")
    if kind == "hermitian" and vals.dtype.kind != "c":
        raise FormatError(f"the structure is {structure}, but values are {vals.dtype}")
    turn = row != col
    other = vals[turn]
    other = other.conj() if kind == "hermitian" else -other if kind == "skew_symmetric" else other
    coords = (np.concatenate([row, col[turn]]), np.concatenate([col, row[turn]]))
    return convert.from_coords(coords, np.concatenate([vals, other]), storage.shape, storage.format, storage.fill_value)
