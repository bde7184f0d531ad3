"""Random whole functions over named axes: up to five operands of 1 to 4 dimensions in any format, blocked ones too, with any fill;
contractions of up to five factors, over semirings, under masks, into chosen formats; elementwise operations with broadcasting,
reductions, `where`, logical operations, conversions; results of 0 to 4 dimensions.

Axes have names, so a program has a meaning whatever way its operands are split, permuted or transposed (`metamorphic`).
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.formats import Format, Level, convert
from tests.fuzz.levels import INPUTS, OUTPUTS, random_format

EXTENTS = {"a": 2, "b": 3, "c": 4, "d": 3}
BLOCKS = {"a": 2, "b": 2, "c": 3, "d": 2}
"""Block sizes on which most formats agree."""
SEMIRINGS = {
    "min_plus": (np.minimum, np.add, np.inf),
    "max_plus": (np.maximum, np.add, -np.inf),
    "max_min": (np.maximum, np.minimum, -np.inf),
    "min_max": (np.minimum, np.maximum, np.inf),
    "min_times": (np.minimum, np.multiply, np.inf),
    "or_and": (np.logical_or, np.logical_and, False),
    "plus_times": (np.add, np.multiply, 0),
}
"""Addition, multiplication and zero, which annihilates: what is not stored has that value, so that a program means the same on dense
arrays. The semirings in which patterns count are those of `semirings`."""
HUGE = 1e30
BINARY = ("add", "subtract", "multiply", "multiply", "maximum", "minimum")
COMMUTATIVE = (
    "add",
    "multiply",
    "maximum",
    "minimum",
    "logical_and",
    "logical_or",
    "logical_xor",
    "not_equal",
    "equal",
)
TESTS = ("greater", "less_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_xor")
UNARY = ("negative", "absolute", "sign", "square", "exp", "logical_not", "isfinite")
REDUCTIONS = ("sum", "sum", "max", "min", "any", "all")


@dataclass(frozen=True)
class Value:
    """One value of a program; `labels` names its axes, `detail` holds the parameters of `op`."""

    op: str
    labels: str
    args: tuple[Value, ...] = ()
    detail: Any = None

    def __str__(self) -> str:
        parts = [*map(str, self.args), *([] if self.detail is None else [str(self.detail)])]
        return f"{self.op}({', '.join(parts)})" if self.op != "input" else f"x{self.detail}[{self.labels}]"


@dataclass(frozen=True)
class Operand:
    """An input: dense values, which entries are stored, the fill of the others, and the format."""

    labels: str
    dense: np.ndarray = field(repr=False)
    stored: np.ndarray = field(repr=False)
    fill: float
    format: Format

    def array(self) -> Array:
        if self.format.is_dense:
            return Array(convert.from_dense(np.ascontiguousarray(self.dense), self.format, 0))
        coords = np.array(np.nonzero(self.stored), np.int64).reshape(self.dense.ndim, -1)
        values = self.dense[self.stored].reshape(-1)
        return Array(
            convert.from_coords(coords, values, self.dense.shape, self.format, self.dense.dtype.type(self.fill))
        )


@dataclass(frozen=True)
class Program:
    """Inputs, one result over them, and values on the way that are returned too. The last `captured` inputs are constants of
    the function instead of arguments."""

    inputs: tuple[Operand, ...]
    result: Value
    also: tuple[Value, ...] = ()
    captured: int = 0

    def __str__(self) -> str:
        inputs = ", ".join(
            f"x{k}:{x.dense.dtype}[{x.labels}] {x.format} fill {x.fill}" for k, x in enumerate(self.inputs)
        )
        return f"{'; '.join(map(str, (self.result, *self.also)))}; {inputs}; {self.captured} captured"


def some_format(rng: random.Random, labels: str, levels: Sequence[Level]) -> Format:
    """A random format of an array over `labels`, in blocks now and then."""
    sizes = None
    if rng.random() < 0.25:
        sizes = [BLOCKS[c] if rng.random() < 0.9 else rng.choice((1, 3)) for c in labels]
    return random_format(rng, len(labels), levels, sizes)


def operand(rng: random.Random, labels: str) -> Operand:
    """A random operand over `labels`."""
    nrng = np.random.default_rng(rng.getrandbits(32))
    shape = tuple(EXTENTS[c] for c in labels)
    dtype = np.dtype(rng.choice(("f8", "f8", "f8", "f4", "i8")))
    form = some_format(rng, labels, INPUTS)
    fill = 0 if form.is_dense else rng.choice((0, 0, 0, 1, -1))
    mask = np.asarray(nrng.random(shape) < rng.choice((0.0, 0.2, 0.5, 1.0)))
    dense = np.where(mask, nrng.integers(-1, 3, shape), fill).astype(dtype)
    return Operand(labels, dense, mask, fill, form)


def program(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    count = rng.randint(1, 5)
    letters = "".join(EXTENTS)
    inputs = tuple(operand(rng, "".join(rng.sample(letters, rng.choice((1, 2, 2, 2, 3, 3, 4))))) for _ in range(count))
    pool = [Value("input", x.labels, detail=k) for k, x in enumerate(inputs)]
    for _ in range(rng.randint(count, count + 3)):
        made = step(rng, pool)
        if made is not None:
            pool.append(made)
    also = tuple(rng.choices(pool, k=rng.choice((0, 0, 1, 2))))
    return Program(inputs, pool[-1], also, rng.choice((0, 0, 0, 1)))


def step(rng: random.Random, pool: list[Value]) -> Value | None:
    """One more value over those of `pool`, the latest by preference."""
    x = pool[-1] if rng.random() < 0.7 else rng.choice(pool)
    kind = rng.choice(
        (
            "binary",
            "binary",
            "binary",
            "einsum",
            "einsum",
            "semiring",
            "chain",
            "reduce",
            "unary",
            "scalar",
            "where",
            "format",
        )
    )
    if kind == "chain":
        return chain(rng, x, *rng.choices(pool, k=rng.randint(2, 4)))
    if kind in ("einsum", "semiring"):
        args = (x, *rng.choices(pool, k=rng.choice((0, 1, 1, 1, 2, 4))))
        labels = sorted(set("".join(a.labels for a in args)))
        output = "".join(rng.sample(labels, rng.randint(0, len(labels))))
        if kind == "einsum":
            return Value("einsum", output, args, out_format(rng, output))
        return over_semiring(rng, pool, args, output)
    if kind == "unary":
        return Value("unary", x.labels, (x,), rng.choice(UNARY))
    if kind == "scalar":
        return Value("scalar", x.labels, (x,), (rng.choice(BINARY), rng.choice((0, 1, 2, -0.5))))
    if kind == "reduce" and x.labels:
        gone = rng.choice(x.labels)
        return Value("reduce", x.labels.replace(gone, ""), (x,), (rng.choice(REDUCTIONS), gone))
    if kind == "format" and x.labels:
        return Value("format", x.labels, (x,), some_format(rng, x.labels, OUTPUTS))
    fitting = [v for v in pool if set(v.labels) <= set(x.labels)]
    y = rng.choice(fitting)
    if kind == "where":
        c = rng.choice([v for v in fitting if set(v.labels) <= set(y.labels) or set(y.labels) <= set(v.labels)])
        short, long = sorted((y, c), key=lambda v: len(v.labels))
        tail = "".join(k for k in long.labels if k not in short.labels) + short.labels
        labels = "".join(k for k in x.labels if k not in tail) + tail
        return Value("where", labels, (_arranged(c, tail), _arranged(x, labels), _arranged(y, tail)))
    name = rng.choice(BINARY if rng.random() < 0.75 else TESTS)
    labels = "".join(k for k in x.labels if k not in y.labels) + y.labels
    args = [_arranged(x, labels), y]
    if rng.random() < 0.5:
        args.reverse()
    return Value("binary", labels, tuple(args), name)


def chain(rng: random.Random, *factors: Value) -> Value:
    """A product of several factors, contracted two at a time: each contraction keeps what the factors that are left have, and some more."""
    ring = rng.choice((None, *SEMIRINGS))
    left = list(factors)
    while True:
        k = rng.randrange(len(left) - 1)
        x, y = left[k : k + 2]
        others = set("".join(v.labels for v in (*left[:k], *left[k + 2 :])))
        kept = [c for c in sorted({*x.labels, *y.labels}) if c in others or rng.random() < 0.3]
        labels = "".join(rng.sample(kept, len(kept)))
        pinned = out_format(rng, labels) if len(left) == 2 else None
        detail = pinned if ring is None else (ring, None, pinned)
        left[k : k + 2] = [Value("einsum" if ring is None else "semiring", labels, (x, y), detail)]
        if len(left) == 1:
            return left[0]


def out_format(rng: random.Random, labels: str) -> Format | None:
    """What `out_format` pins a contraction to, if anything."""
    return some_format(rng, labels, OUTPUTS) if labels and rng.random() < 0.3 else None


def over_semiring(rng: random.Random, pool: list[Value], args: tuple[Value, ...], output: str) -> Value:
    """A contraction over a semiring, often under a mask, which is the last argument then."""
    masks = [v for v in pool if set(v.labels) <= set(output)]
    rule = rng.choice((None, "mask", "complement")) if masks else None
    if rule is not None:
        mask = rng.choice(masks)
        output = "".join(k for k in output if k not in mask.labels) + mask.labels
        args = (*args, mask)
    return Value("semiring", output, args, (rng.choice(list(SEMIRINGS)), rule, out_format(rng, output)))


def _arranged(value: Value, labels: str) -> Value:
    """`value` with its axes in the order they have in `labels`."""
    order = "".join(k for k in labels if k in value.labels)
    return value if order == value.labels else Value("transpose", order, (value,))


def evaluate(xp: Any, value: Value, inputs: Any, known: dict[Value, Any] | None = None) -> Any:
    """The value with `xp` = numpy or sparsejax.numpy."""
    known = {} if known is None else known
    if value in known:
        return known[value]
    args = [evaluate(xp, a, inputs, known) for a in value.args]
    made = known[value] = _apply(xp, value, args, inputs)
    return made


def _apply(xp: Any, value: Value, args: list[Any], inputs: Any) -> Any:
    x = args[0] if args else None
    match value.op:
        case "input":
            return inputs[value.detail]
        case "transpose":
            return xp.transpose(x, [value.args[0].labels.index(k) for k in value.labels])
        case "einsum":
            pinned = {} if xp is np or value.detail is None else {"out_format": value.detail}
            return xp.einsum(f"{','.join(a.labels for a in value.args)}->{value.labels}", *args, **pinned)
        case "semiring":
            return _contract(xp, value, args)
        case "unary" if value.detail == "exp":
            return xp.exp(xp.minimum(xp.absolute(x), 2.0))
        case "unary":
            return getattr(xp, value.detail)(x) * 1.0
        case "binary":
            return getattr(xp, value.detail)(*args) * 1.0
        case "scalar":
            return getattr(xp, value.detail[0])(x, value.detail[1])
        case "where":
            return xp.where(args[0] > 0.5, args[1], args[2])
        case "reduce":
            kind, gone = value.detail
            return getattr(xp, kind)(x, axis=value.args[0].labels.index(gone)) * 1.0
        case "format":
            return x if xp is np else x.asformat(value.detail)
    raise ValueError(value.op)


def _contract(xp: Any, value: Value, args: list[Any]) -> Any:
    """A contraction over a semiring, with numbers in place of its zero."""
    name, rule, pinned = value.detail
    zero = SEMIRINGS[name][2]
    if name == "or_and":
        *factors, mask = [x > 0.5 for x in args] + [None] * (rule is None)
    else:
        mask = None if rule is None else args[-1] > 0.5
        factors = args if rule is None else args[:-1]
        factors = factors if name == "plus_times" else [xp.where(x > 0.5, x * 1.0, zero) for x in factors]
    words = [a.labels for a in value.args[: len(factors)]]
    if xp is np:
        made = _contracted(name, words, value.labels, factors)
        if rule is not None:
            made = np.where(mask == (rule == "mask"), made, zero)
    else:
        options: dict[str, Any] = {} if rule is None else {"mask": mask.asformat("dense"), "complement": rule != "mask"}
        if name != "plus_times":
            options["semiring"] = name
            factors = [x if x.format.is_dense or x.fill_value == zero else x.asformat("dense") for x in factors]
        made = xp.einsum(f"{','.join(words)}->{value.labels}", *factors, **options, out_format=pinned)
    return made * 1.0 if name in ("or_and", "plus_times") else xp.where(xp.absolute(made) < HUGE, made, 0.0)


def _contracted(name: str, words: list[str], output: str, factors: list[np.ndarray]) -> np.ndarray:
    """The contraction with NumPy: all factors laid out over all axes, then reduced."""
    add, multiply, zero = SEMIRINGS[name]
    inner = "".join(sorted(set("".join(words)) - set(output)))
    every = output + inner
    laid = []
    for word, x in zip(words, factors, strict=True):
        order = "".join(k for k in every if k in word)
        laid.append(
            np.expand_dims(
                np.transpose(x, [word.index(k) for k in order]), [n for n, k in enumerate(every) if k not in word]
            )
        )
    full = functools.reduce(multiply, laid)
    axes = tuple(range(len(output), len(every)))
    return np.asarray(add.reduce(full, axis=axes, initial=zero) if axes else full)
