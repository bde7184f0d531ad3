"""Random index-notation programs, and their dense NumPy meaning.

A case is one definition `out[o] op= rhs` over 1 to 5 operands and up to 4 index variables, with random formats, mode
orders, dtypes, fills (infinite ones too), extents (0 and 1 among them, some long), stored zeros, literals, diagonals and fixed
coordinates; the output has 0 to 4 dimensions and a random format too. It runs under the chosen loop order or a random one,
with a random workspace policy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sparsejax import config
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Var
from sparsejax.formats import Format, convert, validate
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.graph import fuse
from sparsejax.jit.ir import blocks, choices, cin, nest, operators, policies, simplify, units
from sparsejax.jit.rewrite import in_place, legalize
from sparsejax.jit.runtime import binding, kernels
from sparsejax.jit.schedule import schedules
from tests import interpret
from tests.formats.sloppy import relabelled, sloppy
from tests.fuzz.levels import INPUTS, OUTPUTS, random_format

DTYPES = ("f8", "f8", "f8", "f4", "i8", "i4", "u1", "?", "c16", "c8")
REDUCTIONS = {"b": ("logical_or", "logical_and"), "c": ("add",)}
CALLS = {
    "b": ("logical_and", "logical_or", "logical_xor", "add", "multiply"),
    "c": ("add", "subtract", "multiply"),
}
REAL_CALLS = ("add", "add", "subtract", "multiply", "multiply", "multiply", "maximum", "minimum")
REAL_REDUCTIONS = ("add", "add", "add", "maximum", "minimum", "multiply")
TROPICAL = ("add", "maximum", "minimum", "subtract")
"""Without products, whose annihilator an unstored zero keeps even beside infinity: with fills that are not finite."""
LONG = {1: (9, 19, 70, 130, 4200, 270_000), 2: (9, 19, 70, 130, 4200), 3: (9, 19, 70, 130), 4: (9, 19)}
"""Extents, by the number of variables, that reach vector loops and every level of a bitmap."""
LOGICAL = ("logical_and", "logical_or", "logical_xor")
TESTS = ("less", "greater_equal", "equal", "not_equal")
INTERPRETED = 4096
"""Points of an iteration space that the interpreter may visit."""


@dataclass
class Case:
    seed: int
    definition: cin.Definition
    output: cin.Tensor
    arrays: dict[str, np.ndarray]
    storages: dict[str, object]
    extents: dict[cin.IndexVar, int]
    order: tuple[cin.IndexVar, ...] | None
    workspace: str = "auto"

    def __str__(self) -> str:
        inputs = ", ".join(f"{n}:{s.dtype}{list(s.shape)} {s.format}" for n, s in self.storages.items())
        order = "chosen" if self.order is None else ",".join(v.name for v in self.order)
        return (
            f"seed {self.seed}: {self.definition} -> {self.output.dtype} {self.output.format} order {order} "
            f"workspace {self.workspace}; {inputs}"
        )


def stored(rng: random.Random, shape: tuple[int, ...], dtype: np.dtype, form: Format, fill: object, density: float):
    """(storage, dense): a random pattern of small values, stored zeros among them; a dense format has fill 0, and one that may
    hold duplicates has some."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    values = nrng.integers(0, 4, shape)
    if dtype.kind in "ifc":
        values = values - 1
    values = values.astype(dtype)
    if dtype.kind == "c":
        values = values + 1j * nrng.integers(-1, 2, shape)
    if dtype.kind == "f":
        values = values * dtype.type(0.5)
    values = np.asarray(values, dtype)
    return pack(rng, values, np.asarray(nrng.random(shape) < density), form, fill)


def pack(rng: random.Random, values: np.ndarray, mask: np.ndarray, form: Format, fill: object):
    """(storage, dense): `values` where the mask holds, in `form`; duplicates where it may hold some."""
    shape, dtype = values.shape, values.dtype
    dense = np.where(mask, values, dtype.type(fill)).astype(dtype)
    if form.is_dense:
        return convert.from_dense(dense, form, 0), dense
    coords = np.array(np.nonzero(mask), np.int64).reshape(len(shape), -1)
    entries = values[mask].reshape(-1)
    if not all(level.unique for level in form.levels):
        part = entries[::2] if dtype.kind == "b" else np.ones_like(entries[::2])
        rest = entries[::2] if dtype.kind == "b" else entries[::2] - part
        entries = np.concatenate([entries, part])
        entries[: 2 * len(part) : 2] = rest
        coords = np.hstack([coords, coords[:, ::2]])
        place = np.lexsort(form.split(coords)[::-1])
        coords, entries = coords[:, place], entries[place]
        return convert.from_coords(coords, entries, shape, form, fill, canonical=True), dense
    made = sloppy(form, rng.getrandbits(32)) if rng.random() < 0.3 else form
    return relabelled(convert.from_coords(coords, entries, shape, made, fill), form), dense


def random_storage(
    rng: random.Random, shape: tuple[int, ...], dtype: np.dtype, fill: object = 0, blocks: list[int] | None = None
):
    """`stored` in a random format with a random density."""
    form = random_format(rng, len(shape), INPUTS, blocks)
    return stored(rng, shape, dtype, form, fill, rng.choice((0.0, 0.2, 0.5, 1.0)))


def output_of(definition: cin.Definition, shape: tuple[int, ...], dtype: np.dtype, form: Format) -> cin.Tensor:
    """The output of a definition in `form`, with the fill that its type rule gives (0 where that is not one constant)."""
    fill: object = 0
    if not form.is_dense and definition.op is not None:
        fill = operators.get(definition.op).identity(dtype)
    elif not form.is_dense:
        sparse = [a for a in cin.accesses(definition.rhs) if not a.tensor.format.is_dense]
        value = simplify.exhaust(definition.rhs, sparse)
        fill = value.value if isinstance(value, cin.Literal) else 0
    return cin.Tensor("out", shape, dtype, form, dtype.type(fill))


def make(seed: int, blocked: bool = False) -> Case:
    """The case of a seed; with blocks, variables have block sizes on which most tensors agree."""
    rng = random.Random(seed)
    dtype = np.dtype(rng.choice(DTYPES))
    count = rng.randint(1, 4)
    extents = {cin.IndexVar("abcd"[k]): rng.choice((0, 1, 2, 3, 3, 4, 5)) for k in range(count)}
    variables = list(extents)
    if rng.random() < 0.15:
        extents[rng.choice(variables)] = rng.choice(LONG[count]) if not blocked else rng.choice((9, 19, 70))
    calls, fills = CALLS.get(dtype.kind, REAL_CALLS), (0, 0, 0, 1, 2)
    if dtype.kind == "f" and rng.random() < 0.15:
        calls, fills = TROPICAL, (0, np.inf, -np.inf, np.nan)
    sizes = {v: rng.choice((1, 2, 2, 3, 7)) for v in variables} if blocked else {}
    arrays: dict[str, np.ndarray] = {}
    storages: dict[str, object] = {}

    def leaf() -> cin.Expr:
        if rng.random() < 0.1:
            return simplify.literal(rng.choice((0, 1, 2)), dtype)
        if arrays and rng.random() < 0.1:
            name = rng.choice(list(arrays))
            return cin.Access(tensor(name), random_indices(arrays[name].shape))
        ndim = rng.randint(0, min(3, len(variables) + 1))
        picked: list[cin.Index] = rng.sample(variables, min(ndim, len(variables)))
        if picked and rng.random() < 0.1 and max(extents[v] for v in picked) < 1000:
            picked.append(rng.choice(picked))
        if rng.random() < 0.1:
            picked.insert(rng.randint(0, len(picked)), 0)
        shape = tuple(1 if isinstance(ix, int) else extents[ix] for ix in picked)
        plain = rng.random() < 0.8 or dtype.kind == "b" or calls is TROPICAL
        own = dtype if plain else np.dtype(rng.choice(("f4", "i4", "?")))
        name = f"X{len(arrays)}"
        fill = rng.choice(fills)
        storages[name], arrays[name] = random_storage(rng, shape, own, fill, sizes_of(picked))
        return cast(cin.Access(tensor(name), tuple(picked)))

    def sizes_of(indices: Sequence[cin.Index]) -> list[int] | None:
        if not blocked or rng.random() < 0.3:
            return None
        return [sizes.get(ix, 1) if rng.random() < 0.95 else rng.choice((1, 2, 3)) for ix in indices]

    def tensor(name: str) -> cin.Tensor:
        s = storages[name]
        return cin.Tensor(name, s.shape, s.dtype, s.format, s.fill_value)

    def cast(expr: cin.Expr) -> cin.Expr:
        return expr if expr.dtype == dtype else cin.Call("cast", (expr,), dtype)

    def random_indices(shape: tuple[int, ...]) -> tuple[cin.Index, ...]:
        chosen: list[cin.Index] = []
        for n in shape:
            fitting = [v for v in variables if extents[v] == n]
            chosen.append(rng.choice(fitting) if fitting else 0)
        return tuple(chosen)

    def tree(operands: int) -> cin.Expr:
        if operands == 1:
            expr = leaf()
            if dtype.kind in "fi" and rng.random() < 0.15:
                expr = cin.Call(rng.choice(("negative", "absolute", "square")), (cast(expr),), dtype)
            return cast(expr)
        left = rng.randint(1, operands - 1)
        x, y = tree(left), tree(operands - left)
        if dtype.kind in "fiub" and rng.random() < 0.15:
            return choice(x, y, operands)
        return cin.Call(rng.choice(calls), (x, y), dtype)

    def choice(x: cin.Expr, y: cin.Expr, operands: int) -> cin.Expr:
        """A test or logical operation of x and y as a number, or `where` with an own condition."""
        test = cin.Call(rng.choice((*TESTS, *LOGICAL)), (x, y), np.dtype(bool))
        if rng.random() < 0.4:
            return cast(test)
        return cin.Call("where", (truth(leaf()) if operands < 5 and rng.random() < 0.7 else test, x, y), dtype)

    def truth(expr: cin.Expr) -> cin.Expr:
        return cin.Call("cast", (expr,), np.dtype(bool)) if expr.dtype.kind != "b" else expr

    rhs = tree(rng.choice((1, 2, 2, 3, 3, 4, 5)))
    used = [v for v in variables if v in cin.variables(rhs)]
    kept = [v for v in used if rng.random() < 0.6]
    kept += [v for v in variables if v not in used and rng.random() < 0.3]
    rng.shuffle(kept)
    reduced = [v for v in used if v not in kept]
    op = rng.choice(REDUCTIONS.get(dtype.kind, REAL_REDUCTIONS)) if reduced else None
    definition = cin.Definition(tuple(kept), op, rhs)
    shape = tuple(extents[v] for v in kept)
    output = output_of(definition, shape, dtype, random_format(rng, len(kept), OUTPUTS, sizes_of(kept)))
    order = None
    if rng.random() < 0.5:
        every = list(dict.fromkeys((*kept, *cin.variables(rhs))))
        rng.shuffle(every)
        order = tuple(every)
    workspace = rng.choice(("auto", *policies.SPARSE))
    return Case(seed, definition, output, arrays, storages, extents, order, workspace)


def terms_of(case: Case) -> tuple[np.ndarray, tuple[int, ...]]:
    """The right-hand side over the whole iteration space, every operand laid out over it, and the axes that are reduced."""
    space = list(dict.fromkeys((*case.definition.indices, *cin.variables(case.definition.rhs))))
    shape = tuple(case.extents[v] for v in space)

    def value(expr: cin.Expr) -> np.ndarray:
        match expr:
            case cin.Literal(v, dtype):
                return np.full(shape, v, dtype)
            case cin.Access(tensor, indices):
                grid = np.indices(shape) if shape else []
                place = tuple(np.zeros(shape, int) if isinstance(ix, int) else grid[space.index(ix)] for ix in indices)
                return case.arrays[tensor.name][place] if indices else np.full(shape, case.arrays[tensor.name])
            case cin.Call("cast", (x,), dtype):
                return value(x).astype(dtype)
            case cin.Call(op, args, dtype):
                return np.asarray(operators.get(op).numpy(*(value(a) for a in args))).astype(dtype)
        raise TypeError(expr)

    full = value(case.definition.rhs)
    return full, tuple(k for k, v in enumerate(space) if v not in case.definition.indices)


def expected(case: Case) -> np.ndarray:
    """The dense meaning."""
    full, axes = terms_of(case)
    if case.definition.op is not None:
        op = operators.get(case.definition.op)
        full = op.numpy.reduce(full, axis=axes, initial=op.identity(full.dtype), dtype=full.dtype)
    return np.asarray(full)


def overflows(case: Case) -> np.ndarray:
    """Where a product of many numbers leaves the range of floats in some order, but meets a zero before in another one."""
    full, axes = terms_of(case)
    if case.definition.op != "multiply" or full.dtype.kind != "f":
        return np.zeros((), bool)
    return ~np.isfinite(np.multiply.reduce(np.maximum(np.abs(full), 1), axis=axes, dtype=full.dtype))


def step_of(case: Case):
    """The case as a kernel step, with its input storages."""
    names = {name: Var(Aval(s.shape, s.dtype, s.format, s.fill_value)) for name, s in case.storages.items()}
    target = Aval(case.output.shape, case.output.dtype, case.output.format, case.output.fill_value)
    output = legalize.assembled(case.output)
    made = nest.of_definition(output, case.definition)
    made = nest.Nest(made.output, made.indices, made.producers, simplify.simplify(made.value))
    step = fuse.canonical(made, Var(target), names)
    back = {var: name for name, var in names.items()}
    inputs = [case.storages[back[v]] for v in step.arguments]
    rename = dict(zip(made.variables, step.nest.variables, strict=False))
    order = None if case.order is None else tuple(rename[v] for v in case.order if v in rename)
    return step, inputs, order, [back[v] for v in step.arguments]


def run(case: Case):
    """The compiled result, as storage."""
    return planned(case)()


def planned(case: Case) -> Callable[[], Storage]:
    """The case scheduled and lowered: a call runs it."""
    step, inputs, order, _ = step_of(case)
    if order is None:
        runner = kernels.KernelRunner.of(step)
        with config.using(workspace=case.workspace):
            runner.plan(runner.observe(inputs))

        def call() -> Storage:
            with config.using(workspace=case.workspace):
                return runner.run(inputs)

        return call
    with choices.drawing("given", step.nest, order):
        return _given(case, step, inputs, order)


def _given(case: Case, step, inputs: Sequence[Storage], order: tuple[cin.IndexVar, ...]) -> Callable[[], Storage]:
    workspace = None if case.workspace == "auto" else case.workspace
    made = blocks.adapted(step.nest)
    left = units.dropped(made).variables
    order = parted([v for v in order if v in left], blocks.parts_of_nest(made), random.Random(case.seed))
    schedule = schedules.unpriced(order, workspace)
    reading = pipeline.readable(made, schedule)
    program = in_place.settled(pipeline.in_order(blocks.split(reading), schedule))
    converted = [convert.convert(s, t.stored) for s, t in zip(inputs, program.inputs, strict=True)]
    kernel = compiler.compile_text(lower.lower(program, LLVMBuilder()))
    bound = binding.Binding(kernel, made.output, step.nest.op, shared=program.shared, whole=program.whole)
    return lambda: legalize.finished(bound.run(converted), step.output.aval)


def parted(order: Sequence[cin.IndexVar], parts: blocks.Parts, rng: random.Random) -> tuple[cin.IndexVar, ...]:
    """A loop order over the parts of split variables: every inner one anywhere behind its outer one."""
    made = [parts[v][0] if v in parts else v for v in order]
    for v in order:
        if v in parts:
            made.insert(rng.randint(made.index(parts[v][0]) + 1, len(made)), parts[v][1])
    return tuple(made)


def extents_of(kernel: nest.Nest) -> dict[cin.IndexVar, int]:
    """The extent of every variable of a kernel."""
    every = (*cin.accesses(kernel.composite), cin.Access(kernel.output, kernel.indices))
    pairs = ((ix, n) for a in every for ix, n in zip(a.indices, a.tensor.shape, strict=True))
    return {ix: n for ix, n in pairs if isinstance(ix, cin.IndexVar)}


def check_interpreted(seed: int) -> str | None:
    """None when the CIN interpreter agrees with the definition under the case's loop order; cases with long extents are left
    to the compiled check (the interpreter takes microseconds for every point)."""
    case = make(seed)
    if math.prod(case.extents.values()) > INTERPRETED:
        return None
    step, inputs, order, names = step_of(case)
    if order is None:
        runner = kernels.KernelRunner.of(step)
        _, program = runner.planner.schedule(runner.observe(inputs))
    else:
        workspace = None if case.workspace == "auto" else case.workspace
        program = pipeline.in_order(step.nest, schedules.unpriced(order, workspace))
    if program.stmt is not None:
        cin.check(program.stmt)
    arrays = {t.name: case.arrays[name] for t, name in zip(step.nest.inputs, names, strict=True)}
    op = case.definition.op if step.nest.direct else None
    extents = extents_of(step.nest)
    with np.errstate(all="ignore"):
        want, got = expected(case), interpret.interpret(program.stmt, arrays, program.output, op, extents)
    return None if np.allclose(got, want, rtol=1e-5, equal_nan=True) else f"{case}\nexpected\n{want}\ngot\n{got}"


def check(seed: int, blocked: bool = False) -> str | None:
    """None when the case of a seed is right, else what is wrong."""
    return check_case(make(seed, blocked))


def check_case(case: Case) -> str | None:
    """None when the compiled kernel agrees with the dense meaning, else what is wrong."""
    return fault_of(case, run(case))


def fault_of(case: Case, got: Storage) -> str | None:
    """None when `got` is canonical and agrees with the dense meaning of the case, else what is wrong."""
    with np.errstate(all="ignore"):
        want = expected(case)
    return compare(case, got, want)


def compare(case: Case, got: Storage, want: np.ndarray) -> str | None:
    """None when a result is valid and agrees with the dense meaning, else what is wrong."""
    validate.validate(got)
    dense = convert.to_dense(got)
    if dense.shape == want.shape and np.array_equal(dense, want):
        return None
    tolerance = 1e-5 if case.output.dtype in (np.float32, np.complex64) else 1e-12
    if dense.shape == want.shape:
        with np.errstate(all="ignore"):
            alike = np.isclose(dense, want, rtol=tolerance, atol=tolerance, equal_nan=True) | overflows(case)
        if alike.all():
            return None
    return f"{case}\nexpected\n{want}\ngot\n{dense}"
