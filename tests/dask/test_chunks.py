"""Our arrays as chunks of `dask.array`: one contract, against NumPy, on the threaded, the multi-process and the distributed scheduler."""

import concurrent.futures
import multiprocessing
import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax.core.digest import digest
from tests import objects, rotation
from tests.dask import clusters

da = pytest.importorskip("dask.array", reason="dask is not installed: pip install 'sparsejax[dask]'")
dask = pytest.importorskip("dask")
tokenize = pytest.importorskip("dask.base").tokenize
sizeof = pytest.importorskip("dask.sizeof").sizeof

rng = np.random.default_rng(0)
S = sp.random_array((60, 40), density=0.2, format="csr", rng=rng)
D = S.toarray()
A = sj.array(S)
X = rng.normal(size=(40, 8))
SOME = D.sum(1) > 4


def chunked(x=A, chunks=(20, 10)):
    return da.from_array(x, chunks=chunks)


def double(block):
    return block * 2


def narrow(block):
    return block.astype("f4")


def row_sums(x, axis=-1):
    return x.sum(axis=axis)


def sum_of(x, axis=None, keepdims=False):
    return x.sum(axis=axis, keepdims=keepdims)


def assigned(x, key, value):
    made = x.copy()
    made[key] = value
    return made


def dense_X():
    return da.from_array(X, chunks=(10, 4))


# name: (of a Dask array over our chunks, of NumPy's array)
CONTRACT = {
    "from_array": (lambda a: a, D),
    "map_blocks": (lambda a: a.map_blocks(double), D * 2),
    "map_blocks dtype": (lambda a: a.map_blocks(narrow, dtype="f4"), D.astype("f4")),
    "map_overlap": (lambda a: a.map_overlap(double, depth=1, boundary="none"), D * 2),
    "slice": (lambda a: a[5:33, 3:], D[5:33, 3:]),
    "slice with steps": (lambda a: a[::3, ::-1], D[::3, ::-1]),
    "row": (lambda a: a[7], D[7]),
    "entry": (lambda a: a[7, 3], D[7, 3]),
    "newaxis": (lambda a: a[:, None], D[:, None]),
    "arithmetic": (lambda a: a * 2 + a - a / 3, D * 2 + D - D / 3),
    "exp": (lambda a: da.exp(a), np.exp(D)),
    "sin of NumPy's": (lambda a: np.sin(a), np.sin(D)),
    "comparison": (lambda a: a > 0.5, D > 0.5),
    "astype": (lambda a: a.astype("f4"), D.astype("f4")),
    "add dtype=": (lambda a: da.add(a, a, dtype="f4"), np.add(D, D, dtype="f4")),
    "sqrt dtype=": (lambda a: da.sqrt(abs(a), dtype="f4"), np.sqrt(abs(D), dtype="f4")),
    "clip": (lambda a: da.clip(a, 0.2, 0.5), np.clip(D, 0.2, 0.5)),
    "isnan": (lambda a: da.isnan(a), np.isnan(D)),
    "broadcast": (lambda a: a * X[:, 0], D * X[:, 0]),
    "reflected": (lambda a: X[:, 0] * a, D * X[:, 0]),
    "with ours": (lambda a: a + A, D + D),
    "ours with": (lambda a: A + a, D + D),
    "centred": (lambda a: a - a.mean(axis=0), D - D.mean(0)),
    "normalised": (lambda a: a / (a.sum(axis=1, keepdims=True) + 1), D / (D.sum(1, keepdims=True) + 1)),
    "sum": (lambda a: a.sum(), D.sum()),
    "sum axis": (lambda a: a.sum(axis=0), D.sum(0)),
    "sum dtype": (lambda a: a.sum(axis=1, dtype="f4", keepdims=True), D.sum(1, dtype="f4", keepdims=True)),
    "mean": (lambda a: a.mean(axis=0), D.mean(0)),
    "std": (lambda a: a.std(axis=1), D.std(1)),
    "var": (lambda a: a.var(), D.var()),
    "max": (lambda a: a.max(axis=1), D.max(1)),
    "min": (lambda a: a.min(), D.min()),
    "prod": (lambda a: (a[:, :2] + 1).prod(axis=0), (D[:, :2] + 1).prod(0)),
    "any": (lambda a: (a > 0.9).any(axis=1), (D > 0.9).any(1)),
    "all": (lambda a: (a >= 0).all(axis=1), (D >= 0).all(1)),
    "nansum": (lambda a: da.nansum(a, axis=0), np.nansum(D, axis=0)),
    "nanmean": (lambda a: da.nanmean(a, axis=0), np.nanmean(D, axis=0)),
    "count_nonzero": (lambda a: da.count_nonzero(a), np.count_nonzero(D)),
    "norm": (lambda a: da.linalg.norm(a), np.linalg.norm(D)),
    "reduction": (lambda a: da.reduction(a, sum_of, sum_of, axis=0, dtype="f8"), D.sum(0)),
    "argmax": (lambda a: a.argmax(axis=1), D.argmax(1)),
    "argmin": (lambda a: da.argmin(a, axis=0), D.argmin(0)),
    "argmax of all": (lambda a: a.argmax(), D.argmax()),
    "argmax of a vector": (lambda a: a.sum(axis=0).argmax(), D.sum(0).argmax()),
    "cumsum": (lambda a: a.cumsum(axis=0), D.cumsum(0)),
    "cumsum blelloch": (lambda a: da.cumsum(a, axis=1, method="blelloch"), D.cumsum(1)),
    "cumprod": (lambda a: da.cumprod(a + 1, axis=0), (D + 1).cumprod(0)),
    "topk": (lambda a: da.topk(a, 3, axis=1), -np.sort(-D, axis=1)[:, :3]),
    "topk smallest": (lambda a: da.topk(a, -3, axis=0), np.sort(D, axis=0)[:3]),
    "argtopk": (lambda a: da.argtopk(a, 1, axis=1), D.argmax(1)[:, None]),
    "matmul": (lambda a: a @ X, D @ X),
    "matmul of Dask's": (lambda a: a @ dense_X(), D @ X),
    "matvec": (lambda a: a @ X[:, 0], D @ X[:, 0]),
    "matmul sparse": (lambda a: a @ a.T, D @ D.T),
    "matmul ours": (lambda a: a @ A.T, D @ D.T),
    "matmul left": (lambda a: X.T @ a.T, X.T @ D.T),
    "dot": (lambda a: a.dot(X), D @ X),
    "tensordot": (lambda a: da.tensordot(a, a, axes=((0,), (0,))), np.tensordot(D, D, axes=((0,), (0,)))),
    "tensordot all": (lambda a: da.tensordot(a, a, axes=((0, 1), (0, 1))), np.tensordot(D, D)),
    "tensordot dense": (lambda a: da.tensordot(a, dense_X(), axes=1), D @ X),
    "einsum": (lambda a: da.einsum("ij,jk->ik", a, dense_X()), D @ X),
    "einsum rows": (lambda a: da.einsum("ij,ij->i", a, a), (D * D).sum(1)),
    "einsum transposed": (lambda a: da.einsum("ij->ji", a), D.T),
    "einsum dtype=": (lambda a: da.einsum("ij,ik->jk", a, a, dtype="f4"), (D.T @ D).astype("f4")),
    "outer": (lambda a: da.outer(a[0], a[1]), np.outer(D[0], D[1])),
    "concatenate": (lambda a: da.concatenate([a, a], axis=0), np.concatenate([D, D])),
    "concatenate columns": (lambda a: da.concatenate([a, a[:, :3]], axis=1), np.concatenate([D, D[:, :3]], 1)),
    "stack": (lambda a: da.stack([a, a], axis=2), np.stack([D, D], 2)),
    "block": (lambda a: da.block([[a, a], [a, a]]), np.block([[D, D], [D, D]])),
    "three dimensions": (lambda a: da.stack([a, a]).sum(axis=(0, 2)), np.stack([D, D]).sum((0, 2))),
    "reshape": (lambda a: a.reshape((3, 20, 40)), D.reshape(3, 20, 40)),
    "ravel": (lambda a: a.ravel(), D.ravel()),
    "transpose": (lambda a: a.T, D.T),
    "swapaxes": (lambda a: a.swapaxes(0, 1), D.T),
    "squeeze": (lambda a: a[:, :1].squeeze(), D[:, 0]),
    "where": (lambda a: da.where(a > 0.5, a, 0), np.where(D > 0.5, D, 0)),
    "where of two": (lambda a: da.where(a > 0.5, a, -a), np.where(D > 0.5, D, -D)),
    "boolean rows": (lambda a: a[SOME], D[SOME]),
    "boolean rows of Dask's": (lambda a: a[da.from_array(SOME, chunks=20)], D[SOME]),
    "boolean entries": (lambda a: a[a > 0.5], D[D > 0.5]),
    "fancy rows": (lambda a: a[[3, 50, 1, 1]], D[[3, 50, 1, 1]]),
    "fancy columns": (lambda a: a[:, [3, 30, 1, 1]], D[:, [3, 30, 1, 1]]),
    "fancy of Dask's": (lambda a: a[da.from_array(np.array([3, 50, 1]), chunks=2)], D[[3, 50, 1]]),
    "take": (lambda a: da.take(a, [3, 5], axis=1), D[:, [3, 5]]),
    "points": (lambda a: a.vindex[[1, 50, 3], [2, 3, 39]], D[[1, 50, 3], [2, 3, 39]]),
    "compress": (lambda a: da.compress(SOME, a, axis=0), D[SOME]),
    "assignment": (lambda a: assigned(a, 3, 0), assigned(D, 3, 0)),
    "assignment fancy": (lambda a: assigned(a, [1, 30], 2.0), assigned(D, [1, 30], 2.0)),
    "roll": (lambda a: da.roll(a, 3, axis=0), np.roll(D, 3, axis=0)),
    "flip": (lambda a: da.flip(a, 0), np.flip(D, 0)),
    "repeat": (lambda a: da.repeat(a, 2, axis=0), np.repeat(D, 2, axis=0)),
    "tile": (lambda a: da.tile(a, (2, 1)), np.tile(D, (2, 1))),
    "tril": (lambda a: da.tril(a), np.tril(D)),
    "diag": (lambda a: da.diag(a[:40].rechunk((10, 10))), np.diag(D[:40])),
    "gufunc": (
        lambda a: da.apply_gufunc(row_sums, "(i)->()", a.rechunk((20, 40)), output_dtypes="f8"),
        D.sum(1),
    ),
    "rechunk": (lambda a: a.rechunk((60, 7)), D),
    "rechunk both": (lambda a: a.rechunk((13, 17)), D),
    "blocks": (lambda a: a.blocks[1, 2], D[20:40, 20:30]),
    "svd_compressed": (
        lambda a: da.linalg.svd_compressed(a, 5, n_power_iter=2, seed=0)[1],
        da.linalg.svd_compressed(da.from_array(D, chunks=(20, 10)), 5, n_power_iter=2, seed=0)[1].compute(),
    ),
    "svd": (lambda a: da.linalg.svd(a.rechunk((20, 40)))[1], np.linalg.svd(D)[1]),
    "cov": (lambda a: da.cov(a.T), np.cov(D.T)),
}


def same(found, expected, lazy):
    dense = found.todense() if isinstance(found, sj.Array) else np.asarray(found)
    assert dense.shape == np.shape(expected)
    assert dense.dtype == lazy.dtype
    np.testing.assert_allclose(dense, expected, rtol=1e-5 if dense.dtype == np.float32 else 1e-9, atol=1e-12)


@pytest.mark.parametrize("name", CONTRACT)
def test_threads(name):
    program, expected = CONTRACT[name]
    lazy = program(chunked())
    with dask.config.set(scheduler="threads", num_workers=2):
        same(lazy.compute(), expected, lazy)


SHARES = 4
"""One of so many shares of the contract runs in processes, which compile all they need, and another one on a cluster."""


def check_all(names, compute):
    lazy = [CONTRACT[name][0](chunked()) for name in names]
    for name, found, array in zip(names, compute(lazy), lazy, strict=True):
        try:
            same(found, CONTRACT[name][1], array)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def test_processes():
    context = multiprocessing.get_context("spawn")
    with (
        concurrent.futures.ProcessPoolExecutor(2, context, objects.install_elsewhere, (objects.plain(),)) as pool,
        dask.config.set(scheduler="processes", pool=pool),
    ):
        check_all(rotation.share(list(CONTRACT), SHARES), lambda lazy: dask.compute(*lazy))


@pytest.fixture(scope="module")
def client(shared_cluster):
    distributed = pytest.importorskip(
        "distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'"
    )
    with distributed.Client(shared_cluster) as client:
        clusters.as_here(client)
        yield client


def test_distributed(client):
    names = rotation.share(list(CONTRACT), SHARES, after=SHARES // 2)
    check_all(names, lambda lazy: client.gather(client.compute(lazy)))


def test_persist(client):
    kept = (chunked() * 2).persist()
    np.testing.assert_allclose((kept + 1).compute().todense(), D * 2 + 1)
    there = client.who_has(kept)
    assert len({worker for workers in there.values() for worker in workers}) == 2


def test_chunks_are_ours(client):
    """No step on the way makes a sparse array dense."""
    for lazy in (chunked() * 2, chunked() @ chunked().T, chunked()[3:50], chunked().rechunk((7, 40)), chunked().T):
        found = lazy.compute()
        assert isinstance(found, sj.Array)
        assert not found.format.is_dense
        assert isinstance(lazy._meta, sj.Array)
        assert lazy._meta.format.is_dense == found.format.is_dense


FORMATS = ("csr", "csc", "coo", "dense", "bitmap", "lil", "groupcoo:2", "bsr:2x2", "dia", "rle", "dcsr", "hash", "ell")
KEPT = (
    "from_array",
    "map_blocks",
    "slice",
    "fancy rows",
    "boolean rows",
    "rechunk",
    "assignment",
    "concatenate",
    "astype",
)


SAID = (
    "row",
    "entry",
    "slice with steps",
    "newaxis",
    "max",
    "min",
    "cumsum",
    "cumsum blelloch",
    "cumprod",
    "boolean entries",
)
"""What has another format than its operand, which `meta` has too."""


@pytest.mark.rotating(4)
@pytest.mark.parametrize("form", FORMATS)
def test_formats(form):
    """The whole list in every format, small enough for all; what only moves entries keeps the format, and says so. Computed entries have the format
    that they have without Dask: csr of lil."""
    a = da.from_array(A.asformat(form), chunks=(20, 10))
    computed = {"map_blocks": (A.asformat(form) * 2).format, "astype": A.asformat(form).astype("f4").format}
    for name, (program, expected) in CONTRACT.items():
        lazy = program(a)
        found = lazy.compute(scheduler="sync")
        try:
            same(found, expected, lazy)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        if name in KEPT:
            assert found.format == lazy._meta.format == computed.get(name, a._meta.format), name
        if name in SAID:
            assert isinstance(lazy._meta, sj.Array) and lazy._meta.ndim == lazy.ndim, name
            assert found.format == lazy._meta.format, name


def test_meta():
    lazy = chunked()
    assert isinstance(lazy._meta, sj.Array)
    assert str(lazy._meta.format) == "csr"
    assert lazy._meta.shape == (0, 0)
    assert isinstance((lazy.sum(axis=0))._meta, sj.Array)
    assert "sparsejax.Array" in repr(lazy)


@pytest.mark.parametrize("form", ["csr", "coo", "csc", "dense", "bitmap", "lil", "groupcoo:2", "bsr:4x5", "dia", "rle"])
def test_tokens(form):
    x, y = sj.array(D, format=form), sj.array(D, format=form)
    assert tokenize(x) == tokenize(y) == tokenize(pickle.loads(pickle.dumps(x)))
    assert tokenize(x) != tokenize(sj.array(D * 2, format=form))
    other = D.copy()
    other[3, 4] += 1
    assert tokenize(x) != tokenize(sj.array(other, format=form))
    assert tokenize(x) != tokenize(x.astype("f4"))
    assert chunked(x).name == chunked(y).name


def test_tokens_differ_by_fill_shape_and_format():
    one = sj.array(np.ones((4, 4)), format="csr")
    assert len({tokenize(x) for x in (one, one.reshape((2, 8)), one.asformat("csc"), sj.lax.refill(one, 1))}) == 4


def test_tokens_are_kept():
    x = sj.array(S)
    tokenize(x)
    assert x._storage.cache["digest"] == digest(x._storage)
    scaled = x * 2  # over the same index buffers
    tokenize(scaled)
    x = sj.Array(x._storage.with_values(x._storage.vals, x.fill_value))
    tokenize(x)
    assert "digest" in x._storage.cache["pattern"]


def test_tokens_agree_between_processes(client):
    assert client.submit(tokenize, A).result() == tokenize(A)


@pytest.mark.parametrize("form", ["csr", "coo", "dense", "bsr:4x5", "hash", "lil"])
def test_sizes_are_exact(form):
    x = sj.array(D, format=form)
    chunked(x)
    assert sizeof(x) == x.nbytes == sum(b.nbytes for level in x.storage.buffers for b in level) + x.storage.vals.nbytes


@pytest.mark.parametrize("form", ["csr", "coo", "csc", "dense", "bsr:4x5"])
def test_pickles_copy_nothing(form):
    x = sj.array(D, format=form)
    buffers = []
    text = pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    assert len(text) < 1000
    assert sum(b.raw().nbytes for b in buffers) == x.nbytes
    for there in (x, pickle.loads(text, buffers=buffers)):
        assert np.shares_memory(there.storage.vals, np.frombuffer(buffers[-1].raw(), x.dtype))
    back = pickle.loads(text, buffers=buffers)
    assert not back.storage.vals.flags.writeable
    np.testing.assert_array_equal(back.todense(), D)


def test_messages_that_begin_anywhere():
    """A message's buffers need not begin at whole words."""
    buffers = []
    text = pickle.dumps(A, protocol=5, buffer_callback=buffers.append)
    moved = []
    for buffer in buffers:
        whole = bytearray(b"x") + bytearray(buffer.raw())
        moved.append(memoryview(whole)[1:])
    back = pickle.loads(text, buffers=moved)
    assert all(b.flags.aligned for level in back.storage.buffers for b in level)
    np.testing.assert_allclose((back @ X).todense(), D @ X)


def test_messages_of_distributed():
    protocol = pytest.importorskip("distributed.protocol")
    header, frames = protocol.serialize(A)
    assert sum(memoryview(f).nbytes for f in frames[1:]) == A.nbytes
    assert any(np.shares_memory(np.frombuffer(f, np.uint8), A.storage.vals.view(np.uint8)) for f in frames[1:])
    np.testing.assert_array_equal(protocol.deserialize(header, frames).todense(), D)


ORDERS = {
    "ours first": "import sparsejax as sj, dask.array as da",
    "Dask first": "import dask.array as da, sparsejax as sj",
    "by name": "import sparsejax.dask, sparsejax as sj, dask.array as da",
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_imports(order):
    program = f"""{ORDERS[order]}
import numpy as np
x = sj.array(np.eye(4), format="csr")
a = da.from_array(x, chunks=2)
assert (a + x).compute().format == x.format
assert int(a.argmax().compute()) == 0
from dask.array.dispatch import concatenate_lookup, tensordot_lookup, einsum_lookup
assert all("sparsejax" in f.dispatch(sj.Array).__module__ for f in (concatenate_lookup, tensordot_lookup, einsum_lookup))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_dask_is_not_imported():
    program = "import sys, sparsejax; assert not any(m.split('.')[0] in ('dask', 'distributed') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_numpy_chunks_are_as_before():
    """What is put in front of Dask's functions passes on what is not ours."""
    d = da.from_array(D, chunks=(20, 10))
    chunked()
    np.testing.assert_array_equal(assigned(d, [1, 30], 2.0).compute(), assigned(D, [1, 30], 2.0))
    assert d.argmax().compute() == D.argmax()
    np.testing.assert_array_equal(d.vindex[[1, 50, 3], [2, 3, 39]].compute(), D[[1, 50, 3], [2, 3, 39]])


def test_refused():
    with pytest.raises(TypeError, match="not turned into a dense NumPy array"):
        da.percentile(chunked()[:, 0].rechunk(60), [50]).compute(scheduler="sync")
