"""The points at which workspace policies are compared: a kernel, its loop order and its operands.

Constants are fitted on the points of `fitted` and judged on those of `held_out`, which have other sizes, seeds and structures.

    insertions      t[i,j] += X[p,i,j]: n insertions into m places, over collision rate n / m and extent
    SpGEMM          row by row (a workspace per row) and by outer products (one workspace over the matrix): uniform, R-MAT, banded,
                    hypersparse and real matrices; a tenth of k with entries, with more and more rows (figures 15 and 16)
    SpMTTKRP, SpTTM with results in csf and coo, over the number of columns of the factors (table 3): random and real tensors
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from benchmarks import datasets, matrices
from sparsejax.formats import Compressed, Coordinate, Format, convert, ingest
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest, of_definition

CSR, CSC, DCSR, DCSC = (Format.parse(name, 2) for name in ("csr", "csc", "dcsr", "dcsc"))


@dataclass(frozen=True)
class Point:
    """A kernel with its loop order and operands."""

    name: str
    nest: Nest
    order: tuple[cin.IndexVar, ...]
    inputs: list[Storage]


def kernel(name: str, subscripts: str, order: str, out: Format, operands: list[Storage]) -> Point:
    """The point of an einsum of all operands under a loop order."""
    sources, target = subscripts.split("->")
    var = {letter: cin.IndexVar(letter) for letter in order}
    expr: cin.Expr | None = None
    extents = {}
    for k, (letters, storage) in enumerate(zip(sources.split(","), operands, strict=True)):
        extents.update(zip(letters, storage.shape, strict=True))
        tensor = cin.Tensor(f"A{k}", storage.shape, storage.dtype, storage.format, storage.fill_value)
        access = cin.Access(tensor, tuple(var[c] for c in letters))
        expr = access if expr is None else cin.Call("multiply", (expr, access), storage.dtype)
    assert expr is not None
    indices = tuple(var[c] for c in target)
    output = cin.Tensor("out", tuple(extents[c] for c in target), expr.dtype, out, expr.dtype.type(0))
    nest = of_definition(output, cin.Definition(indices, "add", expr))
    return Point(name, nest, tuple(var[c] for c in order), operands)


def coo(ndim: int) -> Format:
    return Format((Coordinate(),) * ndim)


def csf(ndim: int) -> Format:
    return Format((Compressed(),) * ndim)


def scattered(shape: tuple[int, ...], entries: int, form: Format, seed: int) -> Storage:
    """`entries` random coordinates, with values that sum exactly."""
    rng = np.random.default_rng(seed)
    coords = np.stack([rng.integers(0, n, entries) for n in shape])
    return convert.from_coords(coords, rng.integers(1, 9, entries).astype(np.float64), shape, form, 0.0, np.maximum)


def insertions(n: int, m: int, extent: int, seed: int = 1) -> Point:
    """n insertions into m places of an extent x extent matrix."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, extent, (2, m))
    picked = places[:, rng.integers(0, m, n)]
    form = Format((Compressed(), Coordinate(), Coordinate()))
    coords = np.concatenate([np.arange(n)[None], picked])
    stored = convert.from_coords(coords, np.ones(n), (n, extent, extent), form, 0.0)
    return kernel(f"insert {n} into {m} of {extent}^2", "pij->ij", "pij", coo(2), [stored])


def products(name: str, a: Storage, b: Storage, huge: bool = False) -> Iterator[Point]:
    """SpGEMM by rows and by outer products."""
    rows, columns = (DCSR, DCSC) if huge else (CSR, CSC)
    a, b = convert.convert(a, rows), convert.convert(b, rows)
    yield kernel(f"SpGEMM rows {name}", "ik,kj->ij", "ikj", rows, [a, b])
    yield kernel(f"SpGEMM outer {name}", "ik,kj->ij", "kij", rows, [convert.convert(a, columns), b])


def of_scipy(matrix: sp.csr_array) -> Storage:
    """Storage with small whole values, that sum exactly."""
    made = sp.csr_array(matrix).astype(np.float64)
    made.data = np.arange(made.nnz) % 7 + 1.0
    return ingest.as_storage(made)


def uniform(n: int, degree: float, seed: int) -> Iterator[Point]:
    entries = int(n * degree)
    square = scattered((n, n), entries, CSR, seed), scattered((n, n), entries, CSR, seed + 1)
    return products(f"uniform {n} degree {degree}", *square)


def hypersparse(n: int, entries: int, seed: int) -> Iterator[Point]:
    """Few rows and columns hold all entries of a huge matrix, so that products meet."""
    rng = np.random.default_rng(seed)
    used = np.sort(
        rng.choice(min(n, 2**40), entries // 4 or 1, replace=False) if n < 2**24 else rng.integers(0, n, entries // 4)
    )
    made = []
    for _ in range(2):
        coords = used[rng.integers(0, len(used), (2, entries))]
        made.append(convert.from_coords(coords, np.ones(entries), (n, n), DCSR, 0.0, np.maximum))
    return products(f"hypersparse {n} entries {entries}", *made, huge=True)


def banded(n: int, width: int) -> Iterator[Point]:
    band = of_scipy(sp.diags_array([np.ones(n)] * width, offsets=range(width), shape=(n, n), format="csr"))
    return products(f"banded {n} width {width}", band, band)


def swept(rows: int, inner: int, each: int, used: int, seed: int) -> Iterator[Point]:
    """`used` of `inner` columns of A hold `each` entries; B is its transpose (figures 15 and 16 sweep rows and columns)."""
    rng = np.random.default_rng(seed)
    columns = np.repeat(rng.choice(inner, used, replace=False), each)
    coords = np.stack([rng.integers(0, rows, used * each), columns])
    a = convert.from_coords(coords, np.ones(used * each), (rows, inner), CSR, 0.0, np.maximum)
    b = convert.from_coords(coords[::-1], np.ones(used * each), (inner, rows), CSR, 0.0, np.maximum)
    return products(f"{used} of {inner} columns with {each} of {rows} rows", a, b)


def tensor_points(name: str, tensor: Storage, rank: int, density: float, seed: int) -> Iterator[Point]:
    """SpMTTKRP and SpTTM of a tensor of three dimensions, with sparse factors of `rank` columns."""
    entries = [max(1, round(n * rank * density)) for n in tensor.shape]
    factors = [
        scattered((n, rank), e, csf(2), seed + k) for k, (n, e) in enumerate(zip(tensor.shape, entries, strict=True))
    ]
    by_k, by_jk = (convert.convert(tensor, Format((Compressed(),) * 3, order)) for order in ((2, 0, 1), (1, 2, 0)))
    name = f"{name} rank {rank}"
    yield kernel(f"SpMTTKRP rows {name}", "ijk,jr,kr->ir", "ijkr", csf(2), [tensor, *factors[1:]])
    yield kernel(f"SpMTTKRP {name}", "ijk,jr,kr->ir", "jkir", coo(2), [by_jk, *factors[1:]])
    for label, form in (("csf", csf(3)), ("coo", coo(3))):
        yield kernel(f"SpTTM {name} {label}", "ijk,kr->ijr", "kijr", form, [by_k, factors[2]])


def random_tensor(size: int, entries: int, seed: int) -> Storage:
    return scattered((size, size, size), entries, csf(3), seed)


def real_tensor(name: str) -> Storage:
    coords, vals, shape = datasets.tensor(name)
    return convert.from_coords(coords, np.rint(vals), shape, csf(len(shape)), 0.0, np.maximum)


def fitted(quick: bool) -> Iterator[Callable[[], Iterator[Point]]]:
    """What constants are fitted on."""
    for extent in (1000, 100_000, 2**31):
        for n in (30_000,) if quick else (30_000, 600_000):
            for rate in (1, 4, 32):
                yield lambda n=n, rate=rate, extent=extent: iter([insertions(n, n // rate, extent)])
    sizes = (
        ((500, 4), (2_000, 8), (1_000, 1))
        if quick
        else (
            (500, 4),
            (2_000, 8),
            (2_000, 64),
            (20_000, 4),
            (20_000, 16),
            (200_000, 3),
            (1_000, 1),
            (50_000, 0.25),
            (10_000, 10),
            (500, 100),
        )
    )
    for n, degree in sizes:
        yield lambda n=n, degree=degree: uniform(n, degree, 2)
    for n, entries in ((2**22, 20_000), (2**40, 100_000)):
        yield lambda n=n, entries=entries: hypersparse(n, entries, 5)
    yield lambda: banded(1000, 1)  # the identity
    yield lambda: banded(3000, 5)
    yield lambda: products("R-MAT 2^10", *(of_scipy(matrices.rmat(10, 8 << 10, seed)) for seed in (7, 8)))
    for size, entries, rank in ((200, 4_000, 8), (1000, 20_000, 32)):
        yield lambda size=size, entries=entries, rank=rank: tensor_points(
            f"random {size}^3", random_tensor(size, entries, 4), rank, 0.1, 5
        )


def held_out(quick: bool) -> Iterator[Callable[[], Iterator[Point]]]:
    """What they are judged on."""
    for extent in (5000, 2**20, 2**40):
        for rate in (2, 16):
            yield lambda rate=rate, extent=extent: iter(
                [insertions(10_000 if quick else 150_000, 10_000 // rate if quick else 150_000 // rate, extent, 7)]
            )
    for n, degree in ((1_000, 20), (3_000, 0.5)) if quick else ((5_000, 20), (60_000, 6), (3_000, 0.5), (300, 2)):
        yield lambda n=n, degree=degree: uniform(n, degree, 12)
    yield lambda: banded(2_000 if quick else 20_000, 9)
    yield lambda: banded(300, 1)
    yield lambda: hypersparse(10**6, 10_000 if quick else 200_000, 15)
    yield lambda: hypersparse(2**40, 5_000 if quick else 30_000, 16)
    scale = 8 if quick else 12
    yield lambda: products(
        f"R-MAT 2^{scale}", of_scipy(matrices.rmat(scale, 8 << scale)), of_scipy(matrices.rmat(scale, 8 << scale, 1))
    )
    if not quick:
        for rows in (2_500, 10_000, 40_000):
            yield lambda rows=rows: swept(rows, 1_000, 100, 100, 21)
        for used in (50, 200):
            yield lambda used=used: swept(10_000, 1_000, 100, used, 22)
    known = set(datasets.matrix_names())
    for name in (
        ("cora",)
        if quick
        else (
            "cora",
            "bcsstk14",
            "ca-CondMat",
            "cage10",
            "p2p-Gnutella31",
            "copter2",
            "teko_jacobian_modified",
            "hammond_mesh",
        )
    ):
        if name in known:
            yield lambda name=name: products(name, *[of_scipy(datasets.matrix(name))] * 2)
    for name in datasets.tensor_names():
        for rank in (16,) if quick else (4, 32, 256):
            yield lambda name=name, rank=rank: tensor_points(
                name, real_tensor(name), rank, 0.1 if rank < 256 else 0.02, 31
            )
