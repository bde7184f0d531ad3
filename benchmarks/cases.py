"""A family of expressions over formats and data, each one kernel: what loop orders are judged on.

A case is index notation (an einsum, or the sum of two operands), a format per operand, and a kind of data. Operands whose
format is "dense" are dense. Variables i j k l run over n, r over a fixed small rank.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import sparsejax as sj
from benchmarks import datasets
from sparsejax.core.array import Array
from sparsejax.formats import Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.runtime import kernels, plans

RANK, DEGREE = 8, 4
MATRIX = ("csr", "csc", "coo", "dcsr", "dcsc")
UNIFORM, POWER, HYPER, FALLING, RISING = "uniform", "power", "hyper", "falling", "rising"
"""Data: `DEGREE` entries per row, spread uniformly or with power-law degrees; one entry per 8 rows ("hyper"); operands
of different density, sqrt(n) entries per row in the first and one in the others ("falling"), or in the last ("rising")."""


@dataclass(frozen=True)
class Case:
    """`expression` is an einsum ("ij,jk->ik") or a sum ("ij+ji->ij"); one format per operand."""

    family: str
    expression: str
    formats: tuple[str, ...]
    data: str
    out_format: str | None = None

    def __str__(self) -> str:
        out = "" if self.out_format is None else f" -> {self.out_format}"
        return f"{self.family} {self.expression} [{' '.join(self.formats)}{out}] {self.data}"

    @property
    def terms(self) -> list[str]:
        return self.expression.split("->")[0].replace("+", ",").split(",")

    @property
    def variables(self) -> int:
        return len(set("".join(self.terms)))

    def function(self, *operands: Array) -> Array:
        if "+" in self.expression:
            out = self.expression.split("->")[1]
            aligned = [x if t == out else x.T for x, t in zip(operands, self.terms, strict=True)]
            return aligned[0] + aligned[1]
        return sj.einsum(self.expression, *operands, out_format=self.out_format, optimize=False)

    def operands(self, n: int) -> list[Array]:
        """Operands of size n, the same for the same case and size."""
        rng = np.random.default_rng(zlib.crc32(f"{self}{n}".encode()))
        made = []
        last = max(k for k, f in enumerate(self.formats) if not f.startswith("dense"))
        for k, (term, form) in enumerate(zip(self.terms, self.formats, strict=True)):
            shape = tuple(RANK if x == "r" else n for x in term)
            if form.startswith("dense"):
                array = sj.array(rng.random(shape) + 0.5)
                made.append(array if form == "dense" else array.asformat("(d,d)@(1,0)"))
            else:
                many = {FALLING: k == 0, RISING: k == last}.get(self.data)
                degree = DEGREE if many is None else np.sqrt(n) if many else 1
                count = max(shape) // 8 if self.data == HYPER else int(degree * max(shape))
                made.append(sparse(shape, count, self.data == POWER, form, rng))
        return made


def sparse(shape: tuple[int, ...], count: int, skewed: bool, form: str, rng: np.random.Generator) -> Array:
    """A random sparse array of about `count` entries, coordinates uniform or of power-law degrees."""
    picked = []
    for extent in shape:
        if skewed:
            # ranks with probability ~ rank^-0.75: degrees fall off with exponent 1 + 1/0.75, as in many real graphs
            ranks = np.minimum(extent - 1, (extent * rng.random(count) ** 4).astype(np.int64))
            picked.append(rng.permutation(extent)[ranks])
        else:
            picked.append(rng.integers(0, extent, count))
    coords = np.unique(np.stack(picked), axis=1)
    vals = rng.random(coords.shape[1]) + 0.5
    return Array(convert.from_coords(coords, vals, shape, Format.parse(form, len(shape)), 0.0))


def kernel(case: Case, operands: Sequence[Array]) -> tuple[Nest, list[Storage]]:
    """The nest of a case and the storages of its inputs. ValueError when it is not one kernel."""
    traced = sj.jit(case.function).trace(*operands)
    plan = plans.planned(traced.jaxpr)
    registers = plan.registers([x.storage for x in (*traced.jaxpr.consts, *traced._leaves)])
    found = []
    for number, step in enumerate(plan.steps):
        inputs = plan.step(number, registers)
        if isinstance(step, kernels.KernelRunner):
            found.append((step.planner.step.nest, inputs))
    if len(found) != 1:
        raise ValueError(f"{case} is {len(found)} kernels")
    return found[0]


def family() -> Iterator[Case]:
    """Every case."""
    both = (UNIFORM, POWER)
    pairs = list(itertools.product(MATRIX, repeat=2))
    for data, f in itertools.product(both, MATRIX):
        yield Case("spmv", "ij,j->i", (f, "dense"), data)
        yield Case("spmv-t", "ij,i->j", (f, "dense"), data)
        yield Case("spmm", "ij,jr->ir", (f, "dense"), data)
        yield Case("spmm-col", "ij,jr->ir", (f, "dense-col"), data)
        yield Case("dense-sparse", "ri,ij->rj", ("dense", f), data)
        yield Case("sddmm", "ij,ir,jr->ij", (f, "dense", "dense"), data)
        yield Case("row-sum", "ij->i", (f,), data)
        yield Case("col-sum", "ij->j", (f,), data)
        yield Case("scale-rows", "ij,i->ij", (f, "dense"), data)
        yield Case("scale-cols", "ij,j->ij", (f, "dense"), data)
    for data, (f, g) in itertools.product(both, pairs):
        yield Case("spgemm", "ij,jk->ik", (f, g), data)
    for f, g in pairs:
        yield Case("add", "ij+ij->ij", (f, g), UNIFORM)
        yield Case("multiply", "ij,ij->ij", (f, g), UNIFORM)
        yield Case("inner", "ij,ij->", (f, g), POWER)
        yield Case("row-dot", "ij,ij->i", (f, g), UNIFORM)
    for data, (f, g) in itertools.product(both, itertools.product(("csr", "csc"), repeat=2)):
        yield Case("add-t", "ij+ji->ij", (f, g), data)
        yield Case("spgemm-csc", "ij,jk->ik", (f, g), data, "csc")
        yield Case("masked", "ik,ij,jk->ik", ("csr", f, g), data)
        yield Case("masked-coo", "ik,ij,jk->ik", ("coo", f, g), data)
        yield Case("triangles", "ij,jk,ik->", (f, g, "csr"), data)
        yield Case("chain", "ij,jk,kl->il", (f, g, "csr"), data)
        yield Case("chain-vector", "ij,jk,k->i", (f, g, "dense"), data)
    for data, f in itertools.product(both, ("csf", "coo", "(d,c,c)", "(c,c,c)@(2,1,0)")):
        yield Case("mttkrp", "ijk,jr,kr->ir", (f, "dense", "dense"), data)
        yield Case("ttm", "ijk,kr->ijr", (f, "dense"), data)
        yield Case("ttv", "ijk,k->ij", (f, "dense"), data)
        yield Case("tensor-sum", "ijk->k", (f,), data)
        yield Case("tensor-matrix", "ijk,kl->ijl", (f, "csr"), data)

    for data, (f, g) in itertools.product(
        (HYPER, FALLING, RISING), itertools.product(("csr", "csc", "dcsr"), repeat=2)
    ):
        yield Case("spgemm", "ij,jk->ik", (f, g), data)
        yield Case("masked", "ik,ij,jk->ik", ("csr", f, g), data)
        yield Case("triangles", "ij,jk,ik->", (f, g, "csr"), data)
        yield Case("chain", "ij,jk,kl->il", ("csr", f, g), data)
        yield Case("inner", "ij,ij->", (f, g), data)
    for data, f in itertools.product((UNIFORM, POWER, HYPER), ("csr", "csc", "dcsr")):
        yield Case("vectors", "i,ij,j->", ("coo", f, "coo"), data)
        yield Case("spmspv", "ij,j->i", (f, "coo"), data)
        yield Case("spmspv-t", "ij,i->j", (f, "coo"), data)
        yield Case("bilinear", "i,ij,j->", ("dense", f, "dense"), data)
        yield Case("hadamard-product", "ij,ij,jk->ik", (f, "csr", "csr"), data)
        yield Case("gram", "ji,jk->ik", (f, "csr"), data)
        yield Case("outer", "i,j->ij", ("coo", "coo"), data) if f == "csr" else Case("cosine", "ij,kj->i", (f, f), data)
    for data, f in itertools.product((UNIFORM, POWER), ("csf", "coo", "(c,c,c)@(2,1,0)", "(c,c,c)@(1,2,0)")):
        yield Case("mttkrp-sparse", "ijk,jr,kr->ir", (f, "csr", "csr"), data)
        yield Case("tensor-inner", "ijk,ijk->", (f, "csf"), data)
        yield Case("tensor-mask", "ijk,ij->ijk", (f, "csr"), data)
        yield Case("tensor-tensor", "ijk,ijl->kl", (f, "csf"), data)


def real() -> Iterator[tuple[str, Case, list[Array]]]:
    """SpGEMM, masked product and triangles on the real graphs, power-law ones among them; nothing when they are absent."""
    names = ("cora", "Wiki-Vote", "p2p-Gnutella08", "as-caida20071105", "facebook-combined", "celegansneural")
    for name in (x for x in names if x in datasets.matrix_names()):
        A = abs(datasets.matrix(name).astype(float))
        for case in (
            Case("spgemm", "ij,jk->ik", ("csr", "csr"), name),
            Case("spgemm", "ij,jk->ik", ("csr", "csc"), name),
            Case("spgemm", "ij,jk->ik", ("csc", "csr"), name),
            Case("spgemm-t", "ij,kj->ik", ("csr", "csr"), name),
            Case("masked", "ik,ij,jk->ik", ("csr", "csr", "csr"), name),
            Case("triangles", "ij,jk,ik->", ("csr", "csr", "csr"), name),
            Case("triangles", "ij,jk,ik->", ("csr", "csc", "csr"), name),
        ):
            yield name, case, [sj.array(A, format=f) for f in case.formats]
