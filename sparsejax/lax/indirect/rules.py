"""Derivatives and batches of indirect einsums, which are indirect einsums.

    C[R[p],n] += V[p] * B[K[p],n]
    tC[R[p],n] += tV[p] * B[K[p],n] + V[p] * tB[K[p],n]          the tangent
    dB[K[p],n] += dC[R[p],n] * V[p]                              a gather's cotangent is a scatter-add over the same index array

A sum of what is no product, quotient or sum of what moves, and `max=`, `min=` and `*=`, are differentiated as they are computed step by step
(`stepwise`): gathers, elementwise operations, a reduction. Products are running products of those factors that have one place.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched, batched_format
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.core.primitive import asarray
from sparsejax.core.tangents import Linear
from sparsejax.formats import Format
from sparsejax.jit.ir import operators
from sparsejax.lax.contract import contract
from sparsejax.lax.elementwise import UNARY, convert_element_type, elementwise, unary_p, where
from sparsejax.lax.indexing import select
from sparsejax.lax.indirect import statements
from sparsejax.lax.indirect.kernels import BOOL, Label, Names, insum, insum_p
from sparsejax.lax.indirect.rows import accumulated, gathered
from sparsejax.lax.indirect.statements import Apply, Expr, Index, Number, Ref, Statement
from sparsejax.lax.library.recurrences import recurrence
from sparsejax.lax.linear import as_dtype, refilled, sample
from sparsejax.lax.rules.batching import faithful
from sparsejax.lax.rules.elementwise_rules import added
from sparsejax.lax.semiring import Semiring
from sparsejax.lax.sorting import argsort
from sparsejax.lax.structural import broadcast_to, convert_format, reshape
from sparsejax.transforms.staging import trace_to_jaxpr

# --------------------------------------------------------------------------------------------------------- derivatives


def _native(statement: Statement, moving: Sequence[int]) -> bool:
    """Whether derivatives are statements."""
    return statement.op == "add" and statements.is_rational(statement.value, moving)


def _jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    out: Any,
    statement: Statement,
    avals: tuple[Aval, ...],
    names: Names,
    target: str,
) -> Any:
    if statement.dtype.kind not in "fc":
        return None
    count = len(primals)
    moving = [k for k, t in enumerate(tangents) if t is not None]
    numbers = {k: count + n for n, k in enumerate(moving)}
    value = statements.tangent(statement.value, numbers)
    if value is None:
        return None
    arrays = [*primals, *(tangents[k] for k in moving)]
    called = [*names, *(names[k] for k in moving)]
    return insum(arrays, statement.with_(value=value), called, target)


def _transpose(
    ct: Any, *operands: Any, statement: Statement, avals: tuple[Aval, ...], names: Names, target: str
) -> list[Any]:
    linear = [k for k, x in enumerate(operands) if isinstance(x, Linear)]
    arrays = [*(None if isinstance(x, Linear) else x for x in operands), ct]
    seed: Expr = Ref(len(operands), statement.target)
    if ct.dtype != statement.dtype:
        seed = Apply("cast", (seed,), statement.dtype)
    dtypes = [a.dtype for a in avals]
    made: list[Any] = [None] * len(operands)
    for ref, value in statements.pulled(statement.value, seed, linear, dtypes):
        if ref.array in linear:
            found = _pulled(operands[ref.array], ref, value, arrays, statement, [*names, Label(target)])
            made[ref.array] = added(made[ref.array], found)
    return made


def _pulled(
    to: Linear, ref: Ref, value: Expr, arrays: Sequence[Any], statement: Statement, names: Sequence[Any]
) -> Any:
    """The cotangent of an operand from one of its accesses: accumulated where it was read."""
    arrays, names, indices = [*arrays], [*names], list[Index]()

    def add(array: Any, name: str) -> int:
        arrays.append(asarray(array))
        names.append(Label(name))
        return len(arrays) - 1

    for index in ref.indices:
        if isinstance(index, str) and index in indices:
            indices.append(Ref(add(np.arange(statement.variables[index]), index), (index,)))
        elif isinstance(index, int) and to.is_sparse:
            indices.append(Ref(add(np.asarray(index), str(index)), ()))
        else:
            indices.append(index)
    like = add(to.pattern, "the pattern") if to.is_sparse else None
    form = to.format if to.is_sparse else None
    changed = statement.with_(
        op="add",
        target=tuple(indices),
        shape=to.shape,
        value=value,
        dtype=to.dtype,
        format=form,
        like=like,
        kept=False,
        once=False,
    )
    return as_dtype(insum(arrays, changed, names, names[ref.array].name), to.dtype)


def _factored(
    moving: Sequence[bool], *operands: Aval, statement: Statement, avals: tuple[Aval, ...], names: Names, target: str
) -> ClosedJaxpr | None:
    """The steps of a statement whose derivative is no statement."""
    if statement.dtype.kind not in "fc" or _native(statement, [k for k, m in enumerate(moving) if m]):
        return None
    made = insum_p.typing(*avals, statement=statement, avals=avals, names=names, target=target)
    return trace_to_jaxpr(
        lambda *xs: [_typed(xs, stepwise(xs, statement, names, target), made, statement, names, target)], avals
    )


def _typed(arrays: Sequence[Any], values: Any, made: Aval, s: Statement, names: Names, target: str) -> Any:
    """Values of the whole target as the statement gives them: in that format, at the places that the statement reaches, over that fill.
    What samples a loose level makes a compressed one."""
    if made.is_dense:
        return convert_format(values, made.format)
    value = Number(np.bool_(True), BOOL)
    reached = s.with_(op="logical_or", value=value, dtype=BOOL, format=made.format, kept=False)
    pattern = convert_element_type(insum(arrays, reached, names, target), s.dtype)
    entries = convert_format(sample(refilled(values), pattern), made.format)
    return refilled(entries, made.fill_value)


# ------------------------------------------------------------------------------------------------------------- steps


def stepwise(arrays: Sequence[Any], statement: Statement, names: Names, target: str) -> Any:
    """The result of a statement in steps: operands are gathered over their variables, the value is computed for every combination of these, and
    then reduced. Every step has derivatives. Memory: what is gathered."""
    s = statement
    own = statements.variables_in(s.value)
    space = tuple(v for v in s.variables if v in own or (s.op != "add" and v in statements.variables_of(*s.target)))
    whole = _values(arrays, s, space, names)
    if s.op == "add":
        changed = s.with_(value=Ref(len(arrays), space))
        return insum([*arrays, whole], changed, [*names, Label("the value")], target)
    return _reduced(arrays, s, space, whole, names, target)


def _values(arrays: Sequence[Any], s: Statement, space: tuple[str, ...], names: Names) -> Any:
    """The value for every combination of the variables in `space`."""
    shape = [s.variables[v] for v in space]

    def over(variables: Sequence[str]) -> list[int]:
        return [s.variables[v] if v in variables else 1 for v in space]

    @functools.cache
    def value(expr: Expr) -> Any:
        match expr:
            case Ref():
                known = set(statements.variables_of(expr))
                variables = tuple(v for v in space if v in known)
                made = _gathered(arrays, s, expr, variables, names)
                return reshape(made, over(variables))
            case Number(number, dtype):
                return number.item()
            case Apply("cast", (x,), dtype):
                return convert_element_type(value(x), dtype)
            case Apply(op, (x,), dtype) if op not in UNARY:
                inner = asarray(value(x))
                return unary_p.bind(inner, op=op, compute=inner.dtype, dtype=dtype)
            case Apply("where", (c, x, y), dtype):
                return convert_element_type(where(value(c), value(x), value(y)), dtype)
            case Apply(op, args, dtype):
                return convert_element_type(elementwise(op, *map(value, args)), dtype)

    return convert_element_type(broadcast_to(convert_format(asarray(value(s.value)), "dense"), shape), s.dtype)


def _gathered(arrays: Sequence[Any], s: Statement, ref: Ref, variables: tuple[str, ...], names: Names) -> Any:
    """The entries of one operand over its variables."""
    inside = {*statements.inner(ref.indices)}
    stored = tuple(r for r in s.stored if r in inside)
    extents = tuple((v, n) for v, n in s.extents if v in variables)
    shape = tuple(s.variables[v] for v in variables)
    form = Format.parse("dense", len(shape))
    made = Statement("add", variables, shape, ref, stored, extents, arrays[ref.array].dtype, form, None, s.drop)
    return insum(arrays, made, names, names[ref.array].name)


def _reduced(arrays: Sequence[Any], s: Statement, space: tuple[str, ...], whole: Any, names: Names, target: str) -> Any:
    """Products, maxima or minima of values at the target."""
    nothing = operators.get(s.op).identity(s.dtype)
    if s.stored:
        shape = tuple(s.variables[v] for v in space)
        asked = Statement("add", space, shape, Number(np.bool_(True), BOOL), s.stored, s.extents, BOOL, None)
        inside = insum(arrays, asked.with_(op="logical_or"), names, "the mask")
        whole = where(convert_format(inside, "dense"), whole, s.dtype.type(nothing))
    if s.op == "multiply":
        return _product(arrays, s, space, whole, names, target)
    labels = {v: k for k, v in enumerate(space)}
    operands, inputs, output = list[Any](), list[tuple[int, ...]](), list[int]()
    for axis, index in enumerate(s.target):
        if isinstance(index, str):
            output.append(labels[index])
            continue
        label = len(space) + axis
        chosen = asarray(np.asarray(index)) if isinstance(index, int) else _index_array(arrays, s, index, names)
        own = () if isinstance(index, int) else tuple(labels[v] for v in statements.variables_of(index))
        operands.append(select(chosen, s.shape[axis], s.dtype, s.drop))
        inputs.append((*own, label))
        output.append(label)
    semiring = Semiring(s.op, "second")
    return contract([*operands, whole], [*inputs, tuple(labels.values())], output, "dense", s.dtype, semiring)


def _index_array(arrays: Sequence[Any], s: Statement, ref: Ref, names: Names) -> Any:
    """An index of the target over its variables; 0 where it is not stored, and nothing comes from there."""
    variables = statements.variables_of(ref)
    return _gathered(arrays, s, ref, variables, names)


def _product(arrays: Sequence[Any], s: Statement, space: tuple[str, ...], whole: Any, names: Names, target: str) -> Any:
    """Products of values at the target: those of one place side by side, and running products of these. No quotients: the derivative has
    the products of those before and behind each, any of which may be zero."""
    places, size = _places(arrays, s, space, names, target), math.prod(s.shape)
    count = math.prod(whole.shape)
    flat, values = reshape(places, (count,)), reshape(whole, (count,))
    order = argsort(flat)
    place, x = gathered(flat, {0: order}), gathered(values, {0: order})
    numbers = np.arange(count)
    before = gathered(place, {0: asarray(np.maximum(numbers - 1, 0))})
    begins = elementwise("logical_or", elementwise("not_equal", place, before), numbers == 0)
    running = recurrence(x, where(begins, x, s.dtype.type(0)), begins)
    last = accumulated("maximum", asarray(numbers), {0: place}, (size,))
    ref = Ref(1, ("t",))
    there = Apply("greater_equal", (ref, Number(np.int64(0), np.dtype(np.int64))), BOOL)
    value = Apply("where", (there, Ref(0, (ref,)), Number(s.dtype.type(1), s.dtype)), s.dtype)
    ends = Statement("add", ("t",), (size,), value, (), (("t", size),), s.dtype, drop=True)
    return reshape(insum([running, last], ends, [Label(""), Label("")], target), s.shape)


def _places(arrays: Sequence[Any], s: Statement, space: tuple[str, ...], names: Names, target: str) -> Any:
    """The number of the place in the target, in row-major order, for every combination of the variables in `space`."""
    arrays, names, int64 = [*arrays], (*names,), np.dtype(np.int64)
    value: Expr | None = None
    for d, (index, n) in enumerate(zip(s.target, s.shape, strict=True)):
        arrays.append(asarray(np.arange(n) * math.prod(s.shape[d + 1 :])))
        names = (*names, Label(target, "", (d,)))
        read = Ref(len(arrays) - 1, (index,))
        value = read if value is None else Apply("add", (value, read), int64)
    value = value or Number(np.int64(0), int64)
    shape = tuple(s.variables[v] for v in space)
    extents = tuple((v, s.variables[v]) for v in space)
    form = Format.parse("dense", len(space))
    return insum(arrays, Statement("add", space, shape, value, s.stored, extents, int64, form), names, target)


# ------------------------------------------------------------------------------------------------------------ batches

BATCH = "batch'"


def _batch(size: int, *operands: Any, statement: Statement, avals: tuple[Aval, ...], names: Names, target: str) -> Any:
    """The batch is one more variable, the last axis of every operand that has one, and of the target."""
    var = next(v for v in (f"{BATCH}{k}" for k in itertools.count()) if v not in statement.variables)
    moving = {k for k, x in enumerate(operands) if isinstance(x, Batched)}
    values = [faithful(x).value if isinstance(x, Batched) else x for x in operands]

    def change(ref: Ref) -> Ref:
        return Ref(ref.array, (*ref.indices, var)) if ref.array in moving else ref

    s = statement.mapped(change)
    form = None if s.format is None else batched_format(s.format, not s.format.is_dense)
    changed = s.with_(target=(*s.target, var), shape=(*s.shape, size), extents=(*s.extents, (var, size)), format=form)
    return insum(values, changed, names, target)


Rule = Callable[..., Any]
insum_p.jvp = _jvp
insum_p.transpose = _transpose
insum_p.factored = _factored
insum_p.batch = _batch
