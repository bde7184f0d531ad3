"""Metamorphic relations over random programs: what must not change a result, or change it in a known way.

oracle      the jitted program is what NumPy computes on dense arrays
commute     operands of commutative operations and factors of contractions in another order: the same result
formats     operands in other formats, every conversion inside to another format: the same result
transpose   operands stored with their axes in another order and transposed back inside, result transposed: its transpose
split       all operands cut in two along an axis that nothing reduces: the results concatenated; along an axis that only
            the last step sums over: the results added
zeros       entries equal to the fill stored explicitly: the same result
permute     coordinates of one axis renumbered everywhere: the result renumbered
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz import engine
from tests.fuzz.levels import INPUTS, OUTPUTS
from tests.fuzz.programs import (
    COMMUTATIVE,
    EXTENTS,
    Operand,
    Program,
    Value,
    evaluate,
    out_format,
    program,
    some_format,
)

Case = tuple[Program, Callable[[np.ndarray], np.ndarray]]
"""A changed program, and what turns the result of the original into its result."""


def compiled(made: Program) -> list[np.ndarray]:
    """The dense result of the jitted program, and the values that it returns besides."""
    arrays = [x.array() for x in made.inputs]
    count = len(arrays) - made.captured

    def function(*arguments: object) -> list[object]:
        known: dict[Value, object] = {}
        return [evaluate(snp, v, [*arguments, *arrays[count:]], known) for v in (made.result, *made.also)]

    return [np.asarray(r.todense()) for r in sj.jit(function)(*arrays[:count])]


def same(result: np.ndarray) -> np.ndarray:
    return result


def rebuilt(value: Value, change: Callable[[Value], Value]) -> Value:
    """`value` with `change` applied to every node, arguments first."""
    return change(replace(value, args=tuple(rebuilt(a, change) for a in value.args)))


def commute(rng: random.Random, made: Program) -> Case:
    def swap(value: Value) -> Value:
        if value.op == "einsum" or (value.op == "binary" and value.detail in COMMUTATIVE):
            return replace(value, args=tuple(rng.sample(value.args, len(value.args))))
        if value.op == "semiring":  # all of these multiplications are commutative
            factors = value.args if value.detail[1] is None else value.args[:-1]
            return replace(value, args=(*rng.sample(factors, len(factors)), *value.args[len(factors) :]))
        return value

    return replace(made, result=rebuilt(made.result, swap)), same


def formats(rng: random.Random, made: Program) -> Case:
    def other(value: Value) -> Value:
        if value.op == "format":
            return replace(value, detail=some_format(rng, value.labels, OUTPUTS))
        if value.op == "einsum":
            return replace(value, detail=out_format(rng, value.labels))
        if value.op == "semiring":
            return replace(value, detail=(*value.detail[:2], out_format(rng, value.labels)))
        return value

    def restored(x: Operand) -> Operand:
        return replace(x, format=some_format(rng, x.labels, INPUTS))

    result = rebuilt(made.result, other)
    if result.labels and rng.random() < 0.7:
        result = Value("format", result.labels, (result,), some_format(rng, result.labels, OUTPUTS))
    return replace(made, inputs=tuple(map(restored, made.inputs)), result=result, also=()), same


def transpose(rng: random.Random, made: Program) -> Case:
    inputs = []
    for x in made.inputs:
        axes = rng.sample(range(len(x.labels)), len(x.labels))
        labels = "".join(x.labels[k] for k in axes)
        form = x.format.transposed(axes) if rng.random() < 0.5 else some_format(rng, labels, INPUTS)
        inputs.append(Operand(labels, x.dense.transpose(axes), x.stored.transpose(axes), x.fill, form))

    def back(value: Value) -> Value:
        if value.op != "input" or value.labels == inputs[value.detail].labels:
            return value
        return Value("transpose", value.labels, (replace(value, labels=inputs[value.detail].labels),))

    result = rebuilt(made.result, back)
    axes = rng.sample(range(len(result.labels)), len(result.labels))
    turned = Value("transpose", "".join(result.labels[k] for k in axes), (result,))
    return replace(made, inputs=tuple(inputs), result=turned, also=()), lambda r: r.transpose(axes)


def zeros(rng: random.Random, made: Program) -> Case:
    nrng = np.random.default_rng(rng.getrandbits(32))
    inputs = [replace(x, stored=x.stored | (nrng.random(x.stored.shape) < 0.4)) for x in made.inputs]
    return replace(made, inputs=tuple(inputs)), same


def permute(rng: random.Random, made: Program) -> Case:
    label = rng.choice(list(EXTENTS))
    order = rng.sample(range(EXTENTS[label]), EXTENTS[label])
    inputs = tuple(_taken(x, label, order) for x in made.inputs)
    axis = made.result.labels.find(label)
    return replace(made, inputs=inputs, also=()), lambda r: r if axis < 0 else r.take(order, axis)


RELATIONS = {f.__name__: f for f in (commute, formats, transpose, zeros, permute)}


def _taken(x: Operand, label: str, coordinates: list[int]) -> Operand:
    axis = x.labels.find(label)
    if axis < 0:
        return x
    return replace(x, dense=x.dense.take(coordinates, axis), stored=x.stored.take(coordinates, axis))


def _carried(value: Value, label: str) -> bool:
    """Whether nothing inside `value` reduces `label`."""
    if any(label in a.labels for a in value.args) and label not in value.labels:
        return False
    return all(_carried(a, label) for a in value.args)


def split_axis(made: Program) -> tuple[str, bool] | None:
    """An axis that may be cut, and whether the results are added instead of concatenated."""
    result = made.result
    for label in EXTENTS:
        if label in result.labels and _carried(result, label):
            return label, False
        summed = result.op == "einsum" or (result.op == "reduce" and result.detail[0] == "sum")
        if not summed or label in result.labels or not any(label in a.labels for a in result.args):
            continue
        if all(_carried(a, label) for a in result.args):
            return label, True
    return None


def split(rng: random.Random, made: Program) -> Iterator[tuple[Program, list[int]]]:
    """The two halves of a program, with the coordinates that each covers; nothing where no axis may be cut."""
    found = split_axis(made)
    if found is None:
        return
    label, _ = found
    cut = rng.randint(0, EXTENTS[label])
    for part in (list(range(cut)), list(range(cut, EXTENTS[label]))):
        if part or _allows_empty(made.result):
            yield replace(made, inputs=tuple(_taken(x, label, part) for x in made.inputs), also=()), part


def _allows_empty(value: Value) -> bool:
    """Whether no maximum or minimum inside would be one of nothing."""
    return not (value.op == "reduce" and value.detail[0] in ("max", "min")) and all(map(_allows_empty, value.args))


@engine.crowded
def check(seed: int) -> tuple[int, str | None]:
    """(number of programs compiled, what is wrong or None)."""
    rng = random.Random(seed)
    made = program(seed)
    with engine.associated() if seed % 2 else contextlib.nullcontext():
        results = compiled(made)
    count, fault = 1, None
    with np.errstate(all="ignore"):
        for value, got in zip((made.result, *made.also), results, strict=True):
            want = np.asarray(evaluate(np, value, [x.dense for x in made.inputs]))
            fault = fault or _difference(f"oracle of {value}", seed, made, want, got)
    result = results[0]
    for name in rng.sample(list(RELATIONS), min(2, len(RELATIONS))):
        if fault is not None:
            break
        changed, turn = RELATIONS[name](rng, made)
        count += 1
        fault = _difference(name, seed, changed, turn(result), compiled(changed)[0])
    parts = list(split(rng, made)) if fault is None else []
    if parts:
        count += len(parts)
        found = split_axis(made)
        assert found is not None
        results = [compiled(p)[0] for p, _ in parts]
        joined = sum(results) if found[1] else np.concatenate(results, made.result.labels.index(found[0]))
        fault = _difference("split", seed, parts[0][0], result, np.asarray(joined))
    return count, fault


def _difference(relation: str, seed: int, made: Program, want: np.ndarray, got: np.ndarray) -> str | None:
    if want.shape == got.shape and np.allclose(got, want, rtol=1e-4, atol=1e-4, equal_nan=True):
        return None
    return f"seed {seed}, {relation}: {made}\nexpected\n{want}\ngot\n{got}"
