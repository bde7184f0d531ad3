"""Random kernels that scatter, under a forced loop order and workspace policy, and their dense NumPy meaning.

A case has one or two reductions over 1 to 4 operands and applies an operation to them or not; the output has 1 to 4
variables in a random format and mode order. `stretched` spreads the coordinates of a case over huge extents: the same
entries at other places.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from sparsejax.formats import Compressed, Coordinate, Dense, Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.ir import cin, operators, simplify
from sparsejax.jit.ir.nest import Nest, Producer
from sparsejax.jit.runtime import binding
from sparsejax.jit.schedule import schedules
from tests import interpret

DTYPES = ("f8", "f8", "f4", "i8", "i4", "u1", "?", "c16", "c8")
REDUCTIONS = {"b": ("logical_or", "logical_and"), "c": ("add", "multiply")}
REAL = ("add", "add", "maximum", "minimum", "multiply")


@dataclass
class Case:
    nest: Nest
    order: tuple[cin.IndexVar, ...]
    storages: dict[str, Storage]
    arrays: dict[str, np.ndarray]
    extents: dict[cin.IndexVar, int]

    def __str__(self) -> str:
        inputs = ", ".join(f"{n}:{s.dtype}{list(s.shape)} {s.format}" for n, s in self.storages.items())
        made = "; ".join(f"{p.target} {p.op}= {p.rhs}" for p in self.nest.producers)
        out = self.nest.output
        order = ",".join(v.name for v in self.order)
        return f"{made}; out[{','.join(map(str, self.nest.indices))}] = {self.nest.value} -> {out.dtype} {out.format} order {order}; {inputs}"


def random_levels(rng: random.Random, ndim: int, dense: bool = True) -> Format:
    choices = (Dense(), Compressed(), Coordinate()) if dense else (Compressed(), Coordinate())
    order = list(range(ndim))
    rng.shuffle(order)
    return Format([rng.choice(choices) for _ in range(ndim)], order)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, density: float):
    """(pattern, dense array): small values that sum and multiply without rounding."""
    values = rng.integers(0, 3, shape)
    if dtype.kind in "if":
        values = values - 1
    made = values.astype(dtype)
    if dtype.kind == "c":
        made = made + dtype.type(1j) * rng.integers(-1, 2, shape)
    mask = rng.random(shape) < density
    return mask, np.where(mask, made, dtype.type(0)).astype(dtype)


def make(seed: int, large: bool = False, dense: bool = True) -> Case:
    """The case of a seed; `large` ones insert tens of thousands of times; with `dense=False` no loop runs over a whole
    extent: nothing is stored densely, the loops follow the operands, and only sums of products that hold every output
    variable are reduced."""
    rng = random.Random(seed)
    nrng = np.random.default_rng(seed)
    dtype = np.dtype(rng.choice(DTYPES))
    variables = [cin.IndexVar(n) for n in "abcdef"[: rng.randint(2, 3 if large else 5)]]
    sizes = (30, 40, 50) if large else (0, 1, 2, 3, 3, 4, 5)
    extents = {v: rng.choice(sizes) for v in variables}
    storages: dict[str, Storage] = {}
    arrays: dict[str, np.ndarray] = {}
    ranks = rng.sample(range(len(variables)), len(variables))

    def operand(indices: list[cin.IndexVar]) -> cin.Access:
        name = f"X{len(storages)}"
        shape = tuple(extents[v] for v in indices)
        mask, array = random_array(nrng, shape, dtype, rng.choice((0.3, 0.5) if large else (0.0, 0.2, 0.5, 0.9)))
        form = random_levels(rng, len(shape), dense)
        if not dense:
            form = Format(form.levels, sorted(range(len(shape)), key=lambda d: ranks[variables.index(indices[d])]))
        if form.is_dense:
            storages[name] = convert.from_dense(array, form, 0)
        else:
            coords = np.array(np.nonzero(mask), np.int64).reshape(len(shape), -1)
            storages[name] = convert.from_coords(coords, array[mask].reshape(-1), shape, form, 0)
        arrays[name] = array
        return cin.Access(cin.Tensor(name, shape, dtype, form, dtype.type(0)), tuple(indices))

    def product(count: int, must: list[cin.IndexVar]) -> cin.Expr:
        expr: cin.Expr | None = None
        for k in range(count):
            picked = rng.sample(variables, rng.randint(1, min(3, len(variables))))
            if k == 0:
                picked += [v for v in must if v not in picked]
                picked = picked[:6]
                rng.shuffle(picked)
            factor = operand(picked)
            call = "logical_and" if dtype.kind == "b" else "multiply"
            if dense and dtype.kind != "b" and rng.random() < 0.2:
                call = "add"
            expr = factor if expr is None else cin.Call(call, (expr, factor), dtype)
        assert expr is not None
        return expr

    kept = rng.sample(variables, rng.randint(1, min(4, len(variables))))
    reductions = REDUCTIONS.get(dtype.kind, REAL) if dense else ("logical_or" if dtype.kind == "b" else "add",)
    producers = []
    shape = tuple(extents[v] for v in kept)
    for k in range(rng.choice((1, 1, 1, 2))):
        op = rng.choice(reductions)
        if dtype.kind in "iu" and op == "multiply":
            op = "add"
        identity = operators.get(op).identity(dtype)
        target = cin.Access(cin.Tensor(f"t{k}", shape, dtype, Format((Dense(),) * len(kept)), identity), tuple(kept))
        producers.append(
            Producer(target, op, simplify.simplify(product(rng.randint(1, 4), kept if k or not dense else kept[:1])))
        )
    value: cin.Expr = producers[0].target
    if len(producers) == 2:
        value = cin.Call("logical_or" if dtype.kind == "b" else "add", (value, producers[1].target), dtype)
    if rng.random() < 0.3 and dtype.kind in "fi":
        value = cin.Call(rng.choice(("negative", "absolute", "square")), (value,), dtype)
    if rng.random() < 0.2 and dtype.kind != "b":
        value = cin.Call("multiply", (value, operand(list(kept))), dtype)
    if rng.random() < 0.15:
        producers, value = [], producers[0].rhs
        kept = list(cin.variables(value))[:4]
        value = operand(rng.sample(kept, len(kept)))
        rng.shuffle(kept)
        shape = tuple(extents[v] for v in kept)
        storages = {n: s for n, s in storages.items() if n in {a.tensor.name for a in cin.accesses(value)}}
    form = random_levels(rng, len(kept), dense)
    reads = [a for p in producers for a in cin.accesses(p.rhs)] + [p.target for p in producers]
    absent = simplify.exhaust(value, [*reads, *cin.accesses(value)])
    fill = absent.value if isinstance(absent, cin.Literal) else dtype.type(0)
    output = cin.Tensor("out", shape, dtype, form, dtype.type(0) if form.is_dense else fill)
    nest = Nest(output, tuple(kept), tuple(producers), value)
    order = list(nest.variables)
    rng.shuffle(order)
    if not dense:
        order.sort(key=lambda v: ranks[variables.index(v)])
    return Case(nest, tuple(order), storages, arrays, extents)


def expected(case: Case) -> np.ndarray:
    """The dense meaning: every expression over its whole iteration space, reduced with NumPy."""
    known: dict[cin.Access, np.ndarray] = {}

    def value(expr: cin.Expr, space: list[cin.IndexVar]) -> np.ndarray:
        shape = tuple(case.extents[v] for v in space)
        match expr:
            case cin.Literal(v, dtype):
                return np.full(shape, v, dtype)
            case cin.Access(tensor, indices):
                array = known[expr] if expr in known else case.arrays[tensor.name]
                axes = sorted(range(len(indices)), key=lambda k: space.index(indices[k]))
                sizes = [case.extents[v] if v in indices else 1 for v in space]
                return np.broadcast_to(array.transpose(axes).reshape(sizes), shape)
            case cin.Call(op, args, dtype):
                return np.asarray(operators.get(op).numpy(*(value(a, space) for a in args))).astype(dtype)
        raise TypeError(expr)

    kept = list(case.nest.indices)
    for producer in case.nest.producers:
        reduced = [v for v in cin.variables(producer.rhs) if v not in kept]
        full, operator = value(producer.rhs, kept + reduced), operators.get(producer.op)
        axes = tuple(range(len(kept), full.ndim))
        known[producer.target] = operator.numpy.reduce(
            full, axis=axes, initial=operator.identity(full.dtype), dtype=full.dtype
        )
    return value(case.nest.value, kept)


def run(case: Case, policy: str) -> Storage:
    """The compiled result."""
    program = pipeline.in_order(case.nest, schedules.unpriced(case.order, policy))
    kernel = compiler.compile_text(lower.lower(program, LLVMBuilder()))
    op = case.nest.op
    return binding.Binding(kernel, program.output, op).run([case.storages[t.name] for t in case.nest.inputs])


def interpreted(case: Case, policy: str) -> np.ndarray:
    """What the interpreter of CIN makes of the same statement."""
    program = pipeline.in_order(case.nest, schedules.unpriced(case.order, policy))
    if program.stmt is not None:
        cin.check(program.stmt)
    op = case.nest.op
    return interpret.interpret(program.stmt, case.arrays, program.output, op)


def stretched(case: Case, seed: int) -> tuple[Case, dict[cin.IndexVar, np.ndarray]]:
    """The case with every variable's coordinates spread over a huge extent, and where each coordinate went."""
    rng = np.random.default_rng(seed)
    sizes = {v: int(rng.choice([2**20, 2**33, 2**40, 2**62])) for v in case.nest.variables}
    places = {v: np.sort(rng.choice(2**20, case.extents[v], replace=False)) * (sizes[v] >> 20) for v in sizes}

    def tensor(old: cin.Tensor, indices: tuple[cin.Index, ...]) -> cin.Tensor:
        return old._replace(shape=tuple(sizes[v] for v in indices))  # type: ignore[index]

    moved: dict[cin.Access, cin.Expr] = {}
    storages = {}
    every = [a for p in case.nest.producers for a in cin.accesses(p.rhs)] + list(cin.accesses(case.nest.value))
    targets = {p.target for p in case.nest.producers}
    for access in every:
        moved[access] = cin.Access(tensor(access.tensor, access.indices), access.indices)
        if access in targets:
            continue
        old = case.storages[access.tensor.name]
        coords, vals = convert.to_coords(old)
        spread = np.stack([places[v][c] for v, c in zip(access.indices, coords, strict=True)])
        shape = tuple(sizes[v] for v in access.indices)
        storages[access.tensor.name] = convert.from_coords(spread, vals, shape, old.format, old.fill_value)
    nest = case.nest
    made = Nest(
        tensor(nest.output, nest.indices),
        nest.indices,
        tuple(Producer(moved[p.target], p.op, cin.substitute(p.rhs, moved)) for p in nest.producers),
        cin.substitute(nest.value, moved),
    )
    return Case(made, case.order, storages, {}, sizes), places
