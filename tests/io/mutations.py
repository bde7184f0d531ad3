"""Files that lie: bytes, text and content of sound files are changed at random, and every reader gives an error of its kind or a sound array.

python -m tests.io.mutations 10000 [kind ...]      how many of each outcome, the slowest file, and memory
"""

import importlib.util
import io
import json
import os
import resource
import signal
import sys
import time
import warnings
import zipfile
from collections import Counter

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
from sparsejax.errors import FormatError
from sparsejax.formats.validate import validate
from tests.formats.strategies import NAMED
from tests.io.support import random_matrix

LIMIT = 1 << 26
SECONDS = 20
HAS = {name: importlib.util.find_spec(name) is not None for name in ("h5py", "zarr")}
WILD = [0, 1, -1, 2, 3, 5, 7, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**62, 2**63 - 1, -(2**63), 10**6, 10**9]
WORDS = [
    b"-1",
    b"0",
    b"1",
    b"9",
    b"nan",
    b"inf",
    b"1e400",
    b"99999999999",
    b"9223372036854775807",
    b"1e5",
    b"x",
    b"",
    b"\n",
    b"%",
    b"#",
]
WORDS += [
    b"symmetric",
    b"general",
    b"array",
    b"coordinate",
    b"complex",
    b"pattern",
    b"hermitian",
    b"-9223372036854775808",
    b"\x00",
    b"\r",
]
SPELLED = [*NAMED, "(d,c,d)@(0,2,1)"]


def matrix(rng, dtype="f8"):
    return random_matrix(rng, tuple(rng.integers(1, 7, 2)), dtype)


# ------------------------------------------------------------------------------------------------- changes to bytes


def bytes_changed(rng, data):
    """Some bytes replaced, removed, repeated or cut off."""
    data = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        if not data:
            break
        at = int(rng.integers(len(data)))
        match int(rng.integers(6)):
            case 0:
                data[at] = int(rng.integers(256))
            case 1:
                data[at] ^= 1 << int(rng.integers(8))
            case 2:
                del data[at : at + int(rng.integers(1, 9))]
            case 3:
                data[at:at] = data[at : at + int(rng.integers(1, 30))]
            case 4:
                data[at : at + 8] = int(rng.choice(np.array(WILD))).to_bytes(8, "little", signed=True)
            case _ if rng.random() < 0.2:
                del data[at:]
    return bytes(data)


def text_changed(rng, data):
    """Words and lines replaced by others."""
    if rng.random() < 0.3:
        return bytes_changed(rng, data)
    lines = data.split(b"\n")
    for _ in range(int(rng.integers(1, 4))):
        k = int(rng.integers(len(lines)))
        words = lines[k].split(b" ")
        match int(rng.integers(4)):
            case 0 | 1:
                words[int(rng.integers(len(words)))] = WORDS[int(rng.integers(len(WORDS)))]
            case 2:
                words.insert(int(rng.integers(len(words) + 1)), WORDS[int(rng.integers(len(WORDS)))])
            case _:
                lines.insert(k, lines[int(rng.integers(len(lines)))])
        lines[k] = b" ".join(words)
    return b"\n".join(lines)


# ----------------------------------------------------------------------------------------------- changes to content


def array_changed(rng, array):
    """Another array: wild numbers in it, another length, dtype or number of dimensions."""
    array = np.array(array)
    match int(rng.integers(8)):
        case 0 | 1 | 2 if array.size and array.dtype.kind in "iufcb":
            flat = array.reshape(-1).copy()
            with np.errstate(all="ignore"):
                flat[int(rng.integers(len(flat)))] = np.array(WILD)[int(rng.integers(len(WILD)))].astype(array.dtype)
            return flat.reshape(array.shape)
        case 3 if array.ndim:
            return array[: int(rng.integers(len(array) + 1))]
        case 4 if array.ndim:
            return np.concatenate([array, array])
        case 5 if array.dtype.kind in "biufc":
            kinds = ["i1", "i4", "i8", "u1", "u8", "f4", "f8", "?", "c16", "f2", "S3", ">i8", ">f8", "U2"]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return array.astype(rng.choice(kinds))
        case 6:
            return array.reshape(1, -1) if rng.random() < 0.5 else array.reshape(-1)[:0].copy()
        case 7 if array.ndim:
            return rng.permutation(array)
    return array


def members_changed(rng, members):
    """Some arrays of a file changed, left out or exchanged; the text that names the format, another."""
    members = dict(members)
    names = sorted(members)
    for _ in range(int(rng.integers(1, 3))):
        name = names[int(rng.integers(len(names)))]
        match int(rng.integers(10)):
            case 0:
                members.pop(name, None)
            case 1:
                members[name] = members.get(names[int(rng.integers(len(names)))], 0)
            case 2 if "sparsejax_format" in members:
                members["sparsejax_format"] = np.array(SPELLED[int(rng.integers(len(SPELLED)))])
            case 3 if "format" in members:
                members["format"] = np.array([b"csr", b"csc", b"coo", b"bsr", b"dia"][int(rng.integers(5))])
            case 4 if "shape" in members:
                members["shape"] = np.array(
                    [WILD[k] for k in rng.integers(len(WILD), size=np.size(members["shape"]))], "i8"
                )
            case _ if name in members:
                members[name] = array_changed(rng, members[name])
    return members


def text_of_json_changed(rng, told):
    """Some value in a tree of JSON replaced."""
    told = json.loads(json.dumps(told))
    node = told
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = keys[int(rng.integers(len(keys)))]
        if isinstance(node[key], dict | list) and len(node[key]) and rng.random() < 0.8:
            node = node[key]
            continue
        names = [
            "CSR",
            "CSC",
            "COO",
            "DMAT",
            "CVEC",
            "DCSR",
            "custom",
            "iso[float64]",
            "complex[float64]",
            "int8",
            "bint8",
            "symmetric_lower",
        ]
        wild = [*WILD, *names, None, True, [], {}, [1, 0], 1.5, 10**30, "x" * 50]
        node[key] = wild[int(rng.integers(len(wild)))]
        return told


# -------------------------------------------------------------------------------------------------------- file kinds


def written(write, *args):
    file = io.BytesIO()
    write(file, *args)
    return file.getvalue()


def mtx(rng):
    data = written(sj.io.mmwrite, sj.array(matrix(rng), format="dense" if rng.random() < 0.2 else "coo"))
    return lambda: sj.io.mmread(io.BytesIO(text_changed(rng, data)), max_bytes=LIMIT)


def tns(rng):
    dense = random_matrix(rng, tuple(rng.integers(1, 5, int(rng.integers(1, 4)))), "f8")
    data = written(sj.io.write_tns, sj.array(dense, format="coo"))
    return lambda: sj.io.read_tns(io.BytesIO(text_changed(rng, data)), max_bytes=LIMIT)


def edges(rng):
    data = written(sj.io.write_edgelist, sj.array(matrix(rng), format="coo"))
    form = rng.choice(["coo", "csr"])
    return lambda: sj.io.read_edgelist(io.BytesIO(text_changed(rng, data)), format=form, max_bytes=LIMIT)


def npz_ours(rng):
    form = SPELLED[int(rng.integers(len(SPELLED)))]
    dense = random_matrix(rng, (3, 4, 5) if form.count(",") > 2 else tuple(rng.integers(1, 7, 2)), "f8")
    x = sj.array(dense, format=form, fill_value=None if form == "dense" else 1.0)
    return archive(rng, written(sj.save_npz, x))


def npz_scipy(rng):
    made = sp.coo_array(matrix(rng)).asformat(rng.choice(["csr", "csc", "coo", "bsr", "dia"]))
    return archive(rng, written(sp.save_npz, made) if rng.random() < 0.5 else written(sj.save_npz, made))


def archive(rng, data):
    if rng.random() < 0.2:
        return lambda: sj.load_npz(io.BytesIO(bytes_changed(rng, data)), max_bytes=LIMIT)
    with np.load(io.BytesIO(data)) as loaded:
        members = dict(loaded)
    if rng.random() < 0.2:  # a sound archive of members whose bytes are changed, headers too
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as z, zipfile.ZipFile(io.BytesIO(data)) as source:
            victim = int(rng.integers(len(source.namelist())))
            for k, name in enumerate(source.namelist()):
                content = source.read(name)
                z.writestr(name, bytes_changed(rng, content) if k == victim else content)
        return lambda: sj.load_npz(io.BytesIO(file.getvalue()), max_bytes=LIMIT)
    file = io.BytesIO()
    np.savez(file, **members_changed(rng, members))
    return lambda: sj.load_npz(io.BytesIO(file.getvalue()), max_bytes=LIMIT)


class Tree:
    """Arrays and attributes of a group, to be changed and put into a container."""

    def __init__(self):
        self.groups, self.attrs = {}, {}

    def changed(self, rng):
        made = Tree()
        made.groups = {name: dict(arrays) for name, arrays in self.groups.items()}
        made.attrs = {name: dict(attrs) for name, attrs in self.attrs.items()}
        name = list(made.groups)[int(rng.integers(len(made.groups)))]
        if rng.random() < 0.6 and made.groups[name]:
            made.groups[name] = members_changed(rng, made.groups[name])
            return made
        attrs = made.attrs[name]
        if attrs:
            key = list(attrs)[int(rng.integers(len(attrs)))]
            if isinstance(attrs[key], dict):
                attrs[key] = text_of_json_changed(rng, attrs[key])
            elif rng.random() < 0.2:
                attrs.pop(key)
            else:
                attrs[key] = array_changed(rng, attrs[key]) if isinstance(attrs[key], np.ndarray) else "csc_matrix"
        return made


def binsparse_tree(rng):
    form = rng.choice(["csr", "csc", "coo", "dcsr", "dense", "ell", "groupcoo:2", "csf"])
    dense = random_matrix(
        rng, (2, 3, 4) if form == "csf" else tuple(rng.integers(1, 7, 2)), rng.choice(["f8", "i4", "?", "c16"])
    )
    told, arrays = sj.io.binsparse._described(sj.array(dense, format=form if form != "ell" else "csr").storage)
    tree = Tree()
    tree.groups[""] = arrays
    tree.attrs[""] = {"binsparse": {"binsparse": told, "sparsejax": {"format": str(form)}}}
    return tree, sj.io.read_binsparse


def anndata_tree(rng):
    made = sp.coo_array(matrix(rng)).asformat(rng.choice(["csr", "csc"]))
    tree = Tree()
    tree.groups["X"] = {name: getattr(made, name) for name in ("data", "indices", "indptr")}
    tree.attrs["X"] = {
        "encoding-type": f"{made.format}_matrix",
        "encoding-version": "0.1.0",
        "shape": np.array(made.shape),
    }
    return tree, sj.io.read_anndata


def tenx_tree(rng):
    made = sp.csc_array(matrix(rng, "i4"))
    tree = Tree()
    tree.groups["matrix"] = {name: getattr(made, name) for name in ("data", "indices", "indptr")}
    tree.groups["matrix"] |= {"shape": np.array(made.shape), "barcodes": np.array([b"cell"] * made.shape[1])}
    tree.groups["matrix/features"] = {"name": np.array([b"gene"] * made.shape[0])}
    tree.attrs = {"matrix": {}, "matrix/features": {}}
    return tree, lambda *args, **how: sj.io.read_10x_h5(*args, **how).counts


def hdf5_of(tree):
    import h5py

    file = io.BytesIO()
    with h5py.File(file, "w") as out:
        for name, arrays in tree.groups.items():
            group = out.require_group(name) if name else out
            for key, value in tree.attrs[name].items():
                value = json.dumps(value) if isinstance(value, dict) else value
                group.attrs[key] = (
                    value.astype("S") if isinstance(value, np.ndarray) and value.dtype.kind == "U" else value
                )
            for key, array in arrays.items():
                array = np.asarray(array)
                array = array.astype("S") if array.dtype.kind == "U" else array
                packed = {"compression": "gzip"} if array.size > 2 and array.ndim else {}
                group.create_dataset(key, data=array, **packed)
    return file.getvalue()


def zarr_of(tree):
    import zarr

    store = zarr.storage.MemoryStore()
    root = zarr.open_group(store, mode="w")
    for name, arrays in tree.groups.items():
        group = root.require_group(name) if name else root
        for key, value in tree.attrs[name].items():
            if isinstance(value, np.ndarray):
                value = value.tolist() if value.dtype.kind in "biuf" else str(value)
            group.attrs[key] = value
        for key, array in arrays.items():
            array = np.asarray(array)
            if array.dtype.kind in "biufc":
                group.create_array(key, data=array)
    return store


def hdf5(make):
    def one(rng):
        tree, read = make(rng)
        data = hdf5_of(tree.changed(rng))
        return lambda: read(io.BytesIO(data), max_bytes=LIMIT)

    return one


def hdf5_bytes(make):
    """Files whose structure is changed, which is HDF5's library's business: not for a process that must go on."""

    def one(rng):
        tree, read = make(rng)
        data = bytes_changed(rng, hdf5_of(tree))
        return lambda: read(io.BytesIO(data), max_bytes=LIMIT)

    return one


def zarrs(make):
    def one(rng):
        import zarr
        from zarr.core.buffer import default_buffer_prototype

        tree, read = make(rng)
        if rng.random() < 0.4:
            store = zarr_of(tree)
            held = store._store_dict
            victim = sorted(held)[int(rng.integers(len(held)))]
            content = held[victim].to_bytes()
            if victim.endswith("json") and rng.random() < 0.6:
                content = json.dumps(text_of_json_changed(rng, json.loads(content))).encode()
            else:
                content = bytes_changed(rng, content)
            held[victim] = default_buffer_prototype().buffer.from_bytes(content)
        else:
            store = zarr_of(tree.changed(rng))

        def load():
            try:
                group = zarr.open_group(store, mode="r")
            except Exception as error:  # zarr's own doors: we are not inside yet
                raise FormatError(str(error)) from None
            return read(group, max_bytes=LIMIT)

        return load

    return one


KINDS = {"mtx": mtx, "tns": tns, "edges": edges, "npz_ours": npz_ours, "npz_scipy": npz_scipy}
if HAS["h5py"]:
    KINDS |= {"h5_binsparse": hdf5(binsparse_tree), "h5_anndata": hdf5(anndata_tree), "h5_10x": hdf5(tenx_tree)}
if HAS["zarr"]:
    KINDS |= {"zarr_binsparse": zarrs(binsparse_tree), "zarr_anndata": zarrs(anndata_tree)}


FORKED = {}
if HAS["h5py"]:
    FORKED = {"h5_bytes_binsparse": hdf5_bytes(binsparse_tree), "h5_bytes_anndata": hdf5_bytes(anndata_tree)}


# --------------------------------------------------------------------------------------------------------- campaign


class Hang(BaseException):
    """A reader that takes too long."""


def outcome(kind, seed):
    """What becomes of one changed file: "array" or "error"; everything else is raised."""
    made = KINDS | FORKED
    load = made[kind](np.random.default_rng([seed, sorted(made).index(kind)]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = load()
    except FormatError:
        return "error"
    assert isinstance(made, sj.Array)
    validate(made.storage)
    repr(made)
    if np.prod([float(max(1, n)) for n in made.shape]) < 10**5:
        assert made.todense().shape == made.shape
    return "array"


def campaign(kind, count, first=0):
    """Outcomes of `count` files, the slowest in seconds, and how much resident memory grew in bytes."""

    def ring(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    counts, slowest = Counter(), 0.0
    outcome(kind, first)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        for seed in range(first, first + count):
            signal.alarm(SECONDS)
            start = time.perf_counter()
            try:
                counts[outcome(kind, seed)] += 1
            except BaseException as error:
                error.add_note(f"kind {kind}, seed {seed}")
                raise
            slowest = max(slowest, time.perf_counter() - start)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return counts, slowest, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory)


def forked_outcome(kind, seed):
    """As `outcome`, in a process of its own: also "crash" and "hang"."""
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (3, 3))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            os._exit(0 if outcome(kind, seed) == "array" else 1)
        except BaseException:
            os._exit(2)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else "crash"
    return ("array", "error", "fault")[os.WEXITSTATUS(status)]


def forked_campaign(kind, count, first=0):
    """Outcomes of `count` files."""
    return Counter(forked_outcome(kind, seed) for seed in range(first, first + count))


if __name__ == "__main__":
    for kind in sys.argv[2:] or [*KINDS, *FORKED]:
        if kind in FORKED:
            print(
                f"{kind:15} {dict(forked_campaign(kind, int(sys.argv[1])))}, each in a process of its own", flush=True
            )
            continue
        start = time.perf_counter()
        counts, slowest, grown = campaign(kind, int(sys.argv[1]))
        spent = time.perf_counter() - start
        print(
            f"{kind:15} {dict(counts)} slowest {slowest:.2f} s, memory +{grown >> 20} MiB, {spent:.0f} s in all",
            flush=True,
        )
