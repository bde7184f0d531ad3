"""Kernels that are planned for operands that nobody has: of any extents and number of entries. Nothing is stored, compiled or run.

    python -m tests.golden.kernels            writes the texts anew (tests/schedule/golden), for a look at the difference

What a plan depends on is the types of a kernel and the facts of its operands; both are written down here, so that small and large data, rows of a
few entries and of many, one thread and several cost the same milliseconds.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import scorch
from sparsejax import config
from sparsejax.errors import ScheduleError
from sparsejax.jit import pipeline
from sparsejax.jit.backend import host
from sparsejax.jit.cost import statistics
from sparsejax.jit.graph import expected, fuse, fuse_reductions
from sparsejax.jit.graph.partition import KernelStep
from sparsejax.jit.ir import blocks, choices, infer_formats
from sparsejax.jit.ir.program import Program
from sparsejax.jit.rewrite import in_place, iteration
from sparsejax.jit.runtime import kernels
from sparsejax.jit.runtime.runnable import Observed
from sparsejax.jit.schedule import counted, replan, schedules, statements
from tests.fuzz import definitions

GOLDEN = Path(__file__).parents[1] / "schedule" / "golden"
N = 40_000


def of(*shape: int, form: str = "dense", dtype: str = "f8", fill: Any = 0) -> sj.ShapeDtypeStruct:
    return sj.ShapeDtypeStruct(shape, dtype, format=form, fill_value=fill)


def matrix(form: str = "csr", rows: int = N, cols: int = N, **options: Any) -> sj.ShapeDtypeStruct:
    return of(rows, cols, form=form, **options)


csr, csc, coo, dcsr = map(matrix, ("csr", "csc", "coo", "dcsr"))
H, W, V, T = of(N, 32), of(32, 16), of(N), of(400, 300, 200, form="csf")


def softmax(A):
    E = snp.exp(A - snp.max(A, axis=1, keepdims=True))
    return E / snp.sum(E, axis=1, keepdims=True)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[sj.ShapeDtypeStruct, ...]]] = {
    "spmv": (lambda A, x: A @ x, (csr, V)),
    "spmv by columns": (lambda A, x: A @ x, (csc, V)),
    "transposed spmv": (lambda A, x: x @ A, (csr, V)),
    "spmv of float32": (lambda A, x: A @ x, (matrix(dtype="f4"), of(N, dtype="f4"))),
    "spmv of integers": (lambda A, x: A @ x, (matrix(dtype="i8"), of(N, dtype="i8"))),
    "spmv of coordinates": (lambda A, x: A @ x, (coo, V)),
    "spmv of few rows": (lambda A, x: A @ x, (dcsr, V)),
    "spmm": (lambda A, H: A @ H, (csr, H)),
    "spmm of one row": (lambda A, H: A @ H, (csr, of(N, 3))),
    "spmm by columns": (lambda A, H: A @ H, (csc, H)),
    "spmm of blocks": (lambda A, H: A @ H, (matrix("bsr:4x4"), H)),
    "spmm of diagonals": (lambda A, H: A @ H, (matrix("dia"), H)),
    "spmm of a band": (lambda A, x: A @ x, (matrix("banded"), V)),
    "spmm of rows of one length": (lambda A, H: A @ H, (matrix("ell"), H)),
    "spmm of bitmaps": (lambda A, H: A @ H, (matrix("bitmap"), H)),
    "spmm of runs": (lambda A, x: A @ x, (matrix("rle"), V)),
    "dense times sparse": (lambda X, A: X @ A, (of(16, N), csr)),
    "batched spmm": (sj.vmap(lambda A, H: A @ H), (of(8, N, N, form="(d,c,d)@(1,2,0)"), of(8, N, 8))),
    "spgemm": (lambda A, B: A @ B, (csr, csr)),
    "spgemm by columns": (lambda A, B: A @ B, (csc, csc)),
    "spgemm of rows and columns": (lambda A, B: A @ B, (csr, csc)),
    "spgemm of columns and rows": (lambda A, B: A @ B, (csc, csr)),
    "spgemm of few rows": (lambda A, B: A @ B, (dcsr, dcsr)),
    "spgemm to columns": (lambda A, B: sj.einsum("ij,jk->ik", A, B, out_format="csc"), (csr, csr)),
    "spgemm to coordinates": (lambda A, B: sj.einsum("ij,jk->ik", A, B, out_format="coo"), (csr, csr)),
    "spgemm to dense": (lambda A, B: sj.einsum("ij,jk->ik", A, B, out_format="dense"), (matrix(rows=999, cols=N), csr)),
    "gram": (lambda A: A.T @ A, (csr,)),
    "outer gram": (lambda A: A @ A.T, (csr,)),
    "sddmm": (lambda A, U, V: sj.einsum("ij,ik,jk->ij", A, U, V), (csr, H, H)),
    "sddmm and its sum": (lambda A, U, V: (A * (U @ V.T)).sum(), (csr, H, H)),
    "sddmm of columns": (lambda A, U, V: sj.einsum("ij,ki,kj->ij", A, U, V), (csc, of(8, N), of(8, N))),
    "attention": (lambda A, U, V: softmax(A * (U @ V.T)) @ V, (csr, H, H)),
    "triangles": (lambda A: (A * (A @ A)).sum(), (csr,)),
    "masked product": (lambda A, B: (A @ B.T) * A, (csr, csr)),
    "masked product by columns": (lambda A, B: (A @ B) * A, (csr, csc)),
    "product under a mask by columns": (lambda A, B, C: (A @ B) * C, (csr, csr, csc)),
    "layer": (lambda A, H, W: snp.maximum(A @ (H @ W), 0), (csr, H, W)),
    "layer the other way": (lambda A, H, W: snp.maximum((A @ H) @ W, 0), (csr, H, W)),
    "two products": (lambda A, B, x: A @ (B @ x), (csr, csr, V)),
    "normal equations": (lambda A, x: A.T @ (A @ x), (csr, V)),
    "quadratic form": (lambda A, x: x @ (A @ x), (csr, V)),
    "softmax": (sj.nn.softmax, (csr,)),
    "softmax by columns": (lambda A: sj.nn.softmax(A, axis=0), (csr,)),
    "own softmax": (softmax, (csr,)),
    "row sums": (lambda A: A.sum(axis=1), (csr,)),
    "column sums": (lambda A: A.sum(axis=0), (csr,)),
    "all of it": (lambda A: A.sum(), (csr,)),
    "largest of rows": (lambda A: snp.max(A, axis=1), (csr,)),
    "sum of squares": (lambda A: (A * A).sum(axis=1), (csr,)),
    "sum of bytes": (lambda A: A.sum(axis=1), (matrix(dtype="u1"),)),
    "any of rows": (lambda A: snp.any(A, axis=1), (matrix(dtype="?"),)),
    "mean and variance": (lambda A: (A.mean(axis=1), A.var(axis=1)), (csr,)),
    "normalised rows": (lambda A: A / snp.sqrt((A * A).sum(axis=1, keepdims=True)), (csr,)),
    "normalised columns": (lambda A: A / snp.abs(A).sum(axis=0, keepdims=True), (csr,)),
    "sum": (lambda A, B: A + B, (csr, csr)),
    "sum of rows and columns": (lambda A, B: A + B, (csr, csc)),
    "sum of three": (lambda A, B, C: A + B - C, (csr, csr, csr)),
    "sums of a sum": (lambda A, B: (A + B).sum(axis=1), (csr, csr)),
    "sums of integers": (lambda A, B: (A + B).sum(axis=1), (matrix(dtype="i8"), matrix(dtype="i8"))),
    "column sums of a sum": (lambda A, B: (A + B).sum(axis=0), (csr, csr)),
    "product": (lambda A, B: A * B, (csr, csr)),
    "product of rows and columns": (lambda A, B: A * B, (csr, csc)),
    "product of three": (lambda A, B, C: A * B * C, (csr, csr, csr)),
    "inner product": (lambda A, B: (A * B).sum(), (csr, csr)),
    "with a dense matrix": (lambda A, D: A * D, (csr, of(N, N))),
    "added to a dense matrix": (lambda A, D: A + D, (matrix(rows=900, cols=900), of(900, 900))),
    "largest of a dense matrix": (
        lambda A, D: snp.maximum(A, D).sum(axis=1),
        (matrix(rows=900, cols=900), of(900, 900)),
    ),
    "scaled rows": (lambda A, x: A * x[:, None], (csr, V)),
    "scaled columns": (lambda A, x: A * x, (csr, V)),
    "scaled both ways": (lambda A, x, y: x[:, None] * A * y, (csr, V, V)),
    "functions": (lambda A: snp.expm1(snp.sqrt(A)) * 2, (csr,)),
    "functions of a sum": (lambda A, B: snp.tanh(A + B), (csr, csr)),
    "choice": (lambda A, B: snp.where(A > 0, A, B), (csr, csr)),
    "bounds": (lambda A: snp.clip(A, -1, 1), (csr,)),
    "filled": (lambda A, x: A @ x, (matrix(fill=1), V)),
    "filled sums": (lambda A: A.sum(axis=1), (matrix(fill=2),)),
    "diagonal": (lambda A: sj.einsum("ii->i", A), (csr,)),
    "trace of a product": (lambda A, B: sj.einsum("ij,ji->", A, B), (csr, csr)),
    "transposed": (lambda A: A.T * 2.0, (csr,)),
    "to columns": (lambda A: A.asformat("csc"), (csr,)),
    "to rows": (lambda A: A.asformat("csr"), (coo,)),
    "to dense": (lambda A: A.asformat("dense") * 1.0, (matrix(rows=900, cols=900),)),
    "mttkrp": (lambda T, B, C: sj.einsum("ijk,jr,kr->ir", T, B, C), (T, of(300, 16), of(200, 16))),
    "mttkrp of the last": (lambda T, B, C: sj.einsum("ijk,ir,jr->kr", T, B, C), (T, of(400, 16), of(300, 16))),
    "ttm": (lambda T, C: sj.einsum("ijk,kr->ijr", T, C), (T, of(200, 16))),
    "ttv": (lambda T, x: sj.einsum("ijk,k->ij", T, x), (T, of(200))),
    "sum of fibers": (lambda T: T.sum(axis=1), (T,)),
    "product of tensors": (lambda T, S: T * S, (T, T)),
    "product of tensors and sum": (lambda T, S: sj.einsum("ijk,ijl->kl", T, S), (T, T)),
    "gathered rows": (lambda A, k: A[k], (csr, of(100, dtype="i8"))),
    "gathered products": (lambda A, B, i, j: (A[i] * B[j]).sum(1), (H, H, of(99, dtype="i8"), of(99, dtype="i8"))),
    "tall": (lambda x, y: x @ y, (of(N, 24), of(24, 16))),
    "dense sums": (lambda x: x.sum(axis=1) * 1.0, (of(N, 24),)),
    "dense column sums": (lambda x: x.sum(axis=0) * 1.0, (of(N, 24),)),
    "dense sum": (lambda x, y: snp.sum(x * y), (V, V)),
    "dense": (lambda x, y: snp.exp(x) + y, (V, V)),
    "weighted three ways": (lambda A, B, C: sj.einsum("ij,ik,jk->ij", A, B, C), (csr, csr, csc)),
    "chain of sparse": (lambda A, B, C: A @ B @ C, (csr, csr, csr)),
    "square": (lambda A: snp.sqrt(A @ A).sum(axis=0), (csr,)),
    "shortest paths": (
        lambda A, B: sj.einsum("ij,jk->ik", A, B, semiring="min_plus"),
        (matrix(fill=np.inf), matrix(fill=np.inf)),
    ),
    "reached": (
        lambda A, x: sj.einsum("ij,j->i", A, x, semiring="or_and"),
        (matrix(dtype="?"), of(N, dtype="?", form="(c)")),
    ),
    "sparse vectors": (lambda A, x: A @ x, (csr, of(N, form="(c)"))),
    "sparse vector by columns": (lambda A, x: A @ x, (csc, of(N, form="(c)"))),
    "complex": (lambda A, H: A @ H, (matrix(dtype="c16"), of(N, 8, dtype="c16"))),
    "gradient": (sj.grad(lambda x, A: snp.sum(snp.tanh(A @ x) ** 2)), (V, csr)),
    "gradient of a factor": (sj.grad(lambda U, A, V: snp.sum((A - A * (U @ V.T)) ** 2)), (H, csr, H)),
    "sums beside a vector": (lambda A, x: (A + x).sum(axis=1), (matrix(rows=900, cols=900), of(900))),
    "terms over one operand": (lambda A, B: (A * A + A + B).sum(axis=1), (matrix(dtype="i8"), matrix(dtype="i8"))),
    "products of rows": (lambda A, x: snp.prod(A * x, axis=1), (csr, V)),
    "sums to a sparse vector": (lambda A, B: sj.einsum("ij,ij->i", A, B, out_format="(c)"), (csr, csr)),
    "sum of four": (lambda A, B, C, D: A + B + C + D, (csr, csr, csr, csr)),
    "sums of five": (lambda A, B, C, D, E: (A + B + C - D - E).sum(axis=1), (csr, csr, csr, csr, csr)),
    "largest of four": (lambda *terms: functools.reduce(snp.maximum, terms), (csr, csr, csr, csr)),
    "fills that are not finite": (lambda A, B: snp.minimum(A, B), (matrix(fill=np.inf), matrix(fill=0))),
    "quotient": (lambda A, B: A / B, (csr, matrix(fill=1))),
    "masked by a dense product": (lambda A, H: (A * (H @ H.T)).sum(axis=1), (csr, H)),
    "columns of a sampled product": (lambda A, U, V: (A * (U @ V.T)).sum(axis=0), (csr, H, H)),
    "sum of rows of coordinates": (lambda A: A.sum(axis=1), (coo,)),
    "sum with coordinates": (lambda A, B: A + B, (csr, coo)),
    "product with coordinates": (lambda A, B: A * B, (coo, coo)),
    "product of bitmaps": (lambda A, B: A * B, (matrix("bitmap", 900, 900), matrix(rows=900, cols=900))),
    "product of hash tables": (lambda A, B: (A * B).sum(axis=1), (matrix("hash"), csr)),
    "sum of bands": (lambda A, B: A + B, (matrix("banded"), matrix("banded"))),
    "product of diagonals": (lambda A, B: A * B, (matrix("dia"), csr)),
    "runs and rows": (lambda A, B: (A * B).sum(axis=1), (matrix("rle"), matrix("rle"))),
    "lists of lists": (lambda A, x: A @ x, (matrix("lil"), V)),
    "blocks of blocks": (lambda A, B: A @ B, (matrix("bsr:4x4"), matrix("bsr:4x4"))),
    "sum of blocks": (lambda A, B: A + B, (matrix("bsr:2x2"), matrix("bsr:2x2"))),
    "softmax of blocks": (sj.nn.softmax, (matrix("bsr:2x2"),)),
    "sampled in blocks": (lambda A, U, V: sj.einsum("ij,ik,jk->ij", A, U, V), (matrix("bsr:4x4"), H, H)),
    "dense chain": (lambda x, y, z: snp.tanh(x @ y) @ z, (of(N, 24), of(24, 16), of(16, 8))),
    "two panels": (lambda x, y: snp.maximum(x @ y, 0), (of(128, 24), of(24, 16))),
    "less than two panels": (lambda x, y: snp.maximum(x @ y, 0), (of(127, 24), of(24, 16))),
    "product of tensors over two": (lambda T, S: sj.einsum("ijk,ljk->il", T, S), (T, of(100, 300, 200, form="csf"))),
    "tensor of few fibers": (
        lambda T, B: sj.einsum("ijk,kr->ijr", T, B),
        (of(400, 300, 200, form="(d,c,d)"), of(200, 8)),
    ),
    "sum over a tensor": (lambda T: T.sum(axis=(0, 2)), (T,)),
    "power iteration": (lambda A, x: (A @ x) / snp.sqrt(((A @ x) ** 2).sum()), (csr, V)),
    "degrees on both sides": (lambda A: A / snp.sqrt(A.sum(axis=1)[:, None] * A.sum(axis=0)), (csr,)),
    "layer norm": (lambda X: (X - X.mean(axis=1, keepdims=True)) / snp.std(X, axis=1, keepdims=True), (H,)),
    "covariance": (lambda A: (A.T @ A) / N - A.mean(axis=0)[:, None] * A.mean(axis=0), (matrix(cols=99),)),
    "places of the largest": (lambda A: snp.argmax(A, axis=1), (csr,)),
}
"""A function and the types of its operands."""
AMOUNTS = (0.01, 3.0, 60.0)
"""Entries per row of every sparse operand."""


@functools.cache
def steps(name: str) -> tuple[KernelStep, ...]:
    """The kernels of a program."""
    function, operands = PROGRAMS[name]
    jaxpr = pipeline.cleaned(sj.jit(function).trace(*operands).jaxpr.jaxpr)
    made = fuse_reductions.merged(fuse.fuse(jaxpr), jaxpr, expected.Known())
    return tuple(step for step in made if isinstance(step, KernelStep))


def observed(
    runner: kernels.KernelRunner, amount: float, coupling: float = 1.0, met: float = 1.5, other: float = 1.0
) -> Observed:
    """What a kernel would observe of operands with `amount` entries per row, every second of them with `other` times as many."""
    found: list[tuple[Any, ...]] = [
        statistics.expected(t.format, t.shape, amount * max(t.shape, default=1) * (other if k % 2 else 1.0))
        for k, t in enumerate(runner.planner.step.nest.inputs)
    ]
    if runner.runnable.joins:
        found.append((coupling,) * len(runner.runnable.joins))
    if runner.runnable.lookups:
        found.append((statistics.EVEN,) * len(runner.runnable.lookups))
    if runner.runnable.meeting is not None:
        found.append((None, met))
    return tuple(found)


def described(schedule: schedules.Schedule, program: Program, loops: Sequence[schedules.Loop]) -> str:
    """A plan, without prices, as a reader would check it: of every loop, how often it starts and iterates, and who leads it."""
    names = (("workspace", schedule.workspace), ("scattered", " ".join(map(str, schedule.scattered))))
    told = [f"loops {' '.join(map(str, schedule.order))}", *(f"{name} {value}" for name, value in names if value)]
    told += [f"{tensor} to {form}" for tensor, form in schedule.conversions]
    if schedule.remembered is not None:
        told.append(f"later {' '.join(map(str, schedule.remembered.order))}")
    if program.given is not None:
        told.append(f"positions of {program.given.access}")
    counts = [f"{x.var} {x.starts:.2g} {x.iterations:.2g} {' '.join(x.leaders)}".strip() for x in loops]
    return f"{', '.join(told)}\n{'; '.join(counts)}\n{program.chunking}\n{program}\n"


def text(name: str) -> str:
    """How the kernels of a program are planned, on four threads of a processor without masked lanes, for every number of entries per row."""
    with config.using(machine="ice_lake", skip={"masks", "gathers"}, num_threads=4):
        return "\n".join(_texts(name))


def _texts(name: str) -> Iterator[str]:
    for step in steps(name):
        runner = kernels.KernelRunner.of(step)
        found: dict[str, list[str]] = {}
        for amount in AMOUNTS:
            facts = observed(runner, amount)
            schedule, program = runner.planner.schedule(facts)
            loops = statements.loops(runner.planner.plain, runner.planner.known(facts), schedule)
            found.setdefault(described(schedule, program, loops), []).append(f"{amount:g}")
        published = (
            ""
            if runner.planner.plain.nested
            else f", in Scorch's order {' '.join(map(str, scorch.order(runner.planner.plain)))}"
        )
        yield f"{step.nest.value} -> {step.nest.output.format}{published}\n"
        for plan, amounts in found.items():
            yield f"{' or '.join(amounts)} entries per row: {plan}"


def file_of(name: str) -> Path:
    return GOLDEN / f"{name.replace(' ', '_')}.txt"


# --------------------------------------------------------------------------------------------- everything, as hashes

SETTINGS: tuple[dict[str, Any], ...] = (
    {"num_threads": 1},
    {"num_threads": 4, "skip": {"masks", "gathers"}, "workspace": "hash"},
    *({"num_threads": 4, "choose": f"random:{seed}"} for seed in range(2)),
)
"""Under which programs are planned for `hashes`; processors have masked lanes and fast gathers in every second of them."""
_SET = re.compile(r"frozenset\(\{([^{}]*)\}\)")
DEFINED = 120
"""Random definitions (`tests.fuzz.definitions`) that are planned for `hashes`."""


def hashes() -> Iterator[tuple[str, str]]:
    """By name, all that is known of the plans of programs and of random definitions, and of the formats of their results."""
    for number, found in ((0, _formats), (1, _defined), (3, _defined)):
        for seed in range(0, DEFINED, 8):
            yield _hashed(f"definitions {number} {seed}", (x for k in range(8) for x in found(seed + k)), number)
    for number, name in itertools.product(reversed(range(len(SETTINGS))), PROGRAMS):
        yield _hashed(f"{number} {name}", _everything(name, number), number)


def _hashed(name: str, found: Iterator[object], number: int) -> tuple[str, str]:
    with config.using(machine="ice_lake", **SETTINGS[number]), processor(number % 2 == 0):
        return name, hashlib.sha256("\n".join(map(_in_order, map(repr, found))).encode()).hexdigest()


def _in_order(text: str) -> str:
    """A repr with what sets hold sorted, innermost sets first: these are printed in another order in every process."""
    count = 1
    while count:
        text, count = _SET.subn(lambda found: f"set[{', '.join(sorted(found[1].split(', ')))}]", text)
    return text


@contextmanager
def processor(masks: bool) -> Iterator[None]:
    """Inside the block, plans are for a processor with masked lanes and fast gathers, or without."""
    with mock.patch.object(host, "has_masks", lambda: masks), mock.patch.object(host, "has_gathers", lambda: masks):
        yield


def _everything(name: str, number: int) -> Iterator[object]:
    for step in steps(name):
        runner = kernels.KernelRunner.of(step)
        for amount in AMOUNTS if number == 0 else AMOUNTS[1:2]:
            facts = observed(runner, amount, *((2.0, 1.0, 0.02) if number % 2 else ()))
            yield from _plan(runner, facts)


def _plan(runner: kernels.KernelRunner, facts: Observed) -> Iterator[object]:
    nest, known = runner.planner.step.nest, runner.planner.known(facts)
    try:
        with choices.drawing("kernel", nest):
            schedule, program = runner.planner.schedule(facts)
            yield schedule, program, str(program), program.shared
            yield (
                counted.output_sizes(runner.planner.plain, known),
                replan.later(schedule, nest, runner.planner.plain, known),
            )
            yield (
                statements.loops(runner.planner.plain, known, schedule),
                statements.candidates(runner.planner.plain, known)[:3],
            )
            if not known.couplings:
                yield pipeline.text_of(program)
    except ScheduleError as error:
        yield str(error)


@functools.cache
def _case(seed: int) -> definitions.Case:
    return definitions.make(seed, blocked=seed % 3 == 0)


def _defined(seed: int) -> Iterator[object]:
    """Plans of a random definition: in its own order, or in any, for as many entries as it has and for many."""
    case = _case(seed)
    step, inputs, order, _ = definitions.step_of(case)
    runner = kernels.KernelRunner.of(step)
    if order is None:
        yield from _plan(runner, runner.observe(inputs))
        yield from _plan(runner, observed(runner, 1e5))
        return
    made = blocks.adapted(step.nest)
    parted = definitions.parted(order, blocks.parts_of_nest(made), random.Random(case.seed))
    schedule = schedules.unpriced(parted, None if case.workspace == "auto" else case.workspace)
    with choices.drawing("given", step.nest):
        program = in_place.settled(pipeline.in_order(blocks.split(pipeline.readable(made, schedule)), schedule))
        yield str(iteration.planned(program)), program.shared


def _formats(seed: int) -> Iterator[object]:
    """What is inferred of the result of a random definition, and why."""
    case = _case(seed)
    given = case.definition, case.output.shape, case.output.dtype
    yield infer_formats.infer(*given), infer_formats.reasons(*given)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True, parents=True)
    for each in PROGRAMS:
        file_of(each).write_text(text(each))
