"""Random pipelines over the whole surface: every step is an operation of the NumPy interface that fits the shapes at hand, the same text for
NumPy and for us, eagerly or jitted as one program.

Values are multiples of 1/2 as long as only exact operations have made them; comparisons and positions are asked of such values only.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from tests.fuzz import engine
from tests.fuzz.levels import OUTPUTS, random_format

REDUCE = ("sum", "prod", "max", "min", "mean", "any", "all")
EXACT = ("sum", "prod", "max", "min", "any", "all")
PAIRS = ("add", "subtract", "multiply", "multiply", "maximum", "minimum", "fmax", "hypot", "copysign", "less", "equal")
EINSUM = (
    ("ij,ij->i", 2), ("ij,ij->", 2), ("ij->j", 1), ("ij,kj->ik", 2), ("ij,ij->ij", 2), ("ij,ik->jk", 2), ("ij->ji", 1),
    ("ij,ij,ij->j", 3), ("ij,kj,ij->ik", 3), ("ij,j->i", 2), ("i,ij->ij", 2), ("ii->i", 1), ("ii", 1), ("ii,ij->j", 2),
    ("i,j->ij", 2), ("i,i", 2), ("ijk->ik", 1), ("ijk,k->ij", 2), ("ijk,ijk->j", 2), ("i,ij,j->", 3),
)  # fmt: skip
LARGEST, MOST = 400, 2.0**20
Step = Callable[..., Any]


@dataclass
class Value:
    """What a step made, for NumPy; whether rounding has nothing to do with it."""

    array: Any
    exact: bool


@dataclass(frozen=True)
class Choice:
    """A step: what it is called, a function of `xp` and its operands, which these are, and whether it is exact."""

    text: str
    step: Step
    operands: tuple[int, ...]
    exact: bool = True


def _axis(rng: random.Random, ndim: int) -> Any:
    """An axis, some, or all."""
    kind = rng.random()
    if kind < 0.25 or not ndim:
        return None
    if kind < 0.8:
        return rng.randrange(-ndim, ndim)
    return tuple(sorted(rng.sample(range(ndim), rng.randint(1, ndim))))


def choices(rng: random.Random, values: list[Value]) -> Iterator[Choice]:
    """Steps that fit, at random, for ever."""
    while True:
        a = rng.randrange(len(values))
        x, sure = values[a].array, values[a].exact
        made = rng.choice(KINDS)(rng, values, a, x, sure)
        if made is not None:
            yield made


def _unary(rng, values, a, x, sure):
    kinds = {
        "negative": lambda xp, x: xp.negative(x),
        "absolute": lambda xp, x: xp.absolute(x),
        "square": lambda xp, x: xp.square(x),
        "shifted": lambda xp, x: x + 0.5,
        "halved": lambda xp, x: x * 0.5,
        "clip": lambda xp, x: xp.clip(x, -0.5, 1.0),
        "f4": lambda xp, x: x.astype("f4"),
        "nan_to_num": lambda xp, x: xp.nan_to_num(x),
    }
    rounded = {
        "sqrt": lambda xp, x: xp.sqrt(xp.absolute(x)),
        "exp": lambda xp, x: xp.exp(xp.minimum(x, 2.0)),
        "tanh": lambda xp, x: xp.tanh(x),
        "thirds": lambda xp, x: x / 3.0,
        "reciprocal": lambda xp, x: 1.0 / (xp.absolute(x) + 1.0),
    }
    sharp = {
        "sign": lambda xp, x: xp.sign(x),
        "greater": lambda xp, x: x > 0.25,
        "floor": lambda xp, x: xp.floor(x),
        "relu": lambda xp, x: xp.where(x > 0.25, x, 0.0),
        "i8": lambda xp, x: x.astype("i8"),
        "bool": lambda xp, x: x.astype("bool"),
        "isnan": lambda xp, x: xp.isnan(x),
    }
    name = rng.choice([*kinds, *rounded, *(sharp if sure else ())])
    step = (kinds | rounded | sharp)[name]
    return Choice(name, lambda xp, x: step(xp, x if x.dtype.kind == "f" else x * 1.0), (a,), name not in rounded)


def _pair(rng, values, a, x, sure):
    name = rng.choice(PAIRS)
    fitting = [k for k, v in enumerate(values) if _broadcast(x.shape, v.array.shape)]
    b = rng.choice(fitting)
    if name in ("less", "equal", "copysign") and not (sure and values[b].exact):
        return None
    if name == "copysign" and any(np.any(values[k].array == 0) for k in (a, b)):  # zeros that are absent have no sign
        return None
    return Choice(name, lambda xp, x, y: getattr(xp, name)(x * 1.0, y * 1.0), (a, b), name != "hypot")


def _broadcast(*shapes):
    try:
        return math.prod(np.broadcast_shapes(*shapes)) <= LARGEST
    except ValueError:
        return False


def _where(rng, values, a, x, sure):
    fitting = [k for k, v in enumerate(values) if _broadcast(x.shape, v.array.shape)]
    b, c = rng.choice(fitting), rng.choice(fitting)
    if not sure or not _broadcast(x.shape, values[b].array.shape, values[c].array.shape):
        return None
    return Choice("where", lambda xp, x, y, z: xp.where(x > 0.25, y * 1.0, z * 1.0), (a, b, c))


def _matmul(rng, values, a, x, sure):
    fitting = [k for k, v in enumerate(values) if x.ndim and v.array.ndim and _multiplies(x, v.array)]
    if not fitting:
        return None
    return Choice("matmul", lambda xp, x, y: xp.matmul(x * 1.0, y * 1.0), (a, rng.choice(fitting)))


def _multiplies(x, y):
    inner = y.shape[-2] if y.ndim > 1 else y.shape[0]
    return x.shape[-1] == inner and _broadcast(x.shape[:-2], y.shape[:-2]) and x.size * y.size <= LARGEST * 8


def _einsum(rng, values, a, x, sure):
    text, count = rng.choice(EINSUM)
    operands = (a, *(rng.randrange(len(values)) for _ in range(count - 1)))
    extents: dict[str, int] = {}
    for labels, k in zip(text.split("->")[0].split(","), operands, strict=True):
        shape = values[k].array.shape
        if len(labels) != len(shape) or any(extents.setdefault(v, n) != n for v, n in zip(labels, shape, strict=True)):
            return None
    return Choice(f"einsum {text}", lambda xp, *xs: xp.einsum(text, *(x * 1.0 for x in xs)), operands)


def _reduce(rng, values, a, x, sure):
    name, axis, keep = rng.choice(REDUCE), _axis(rng, x.ndim), rng.random() < 0.3
    if name in ("max", "min") and not x.size:
        return None
    if name in ("any", "all") and not sure:
        return None
    step = lambda xp, x: getattr(xp, name)(x * 1.0, axis=axis, keepdims=keep)  # noqa: E731
    return Choice(f"{name} {axis} {keep}", step, (a,), name in EXACT)


def _count(rng, values, a, x, sure):
    if not sure or not x.size:
        return None
    axis = rng.choice((None, *range(x.ndim)))
    name = rng.choice(("argmax", "argmin", "count_nonzero", "median", "var", "std"))
    if name == "count_nonzero" and axis is not None and not x.ndim:
        return None
    exact = name in ("argmax", "argmin", "count_nonzero")
    return Choice(f"{name} {axis}", lambda xp, x: getattr(xp, name)(x * 1.0, axis=axis), (a,), exact)


def _cumulative(rng, values, a, x, sure):
    if not x.ndim:
        return None
    axis = rng.randrange(x.ndim)
    name = rng.choice(("cumsum", "sort", "flip"))
    return Choice(f"{name} {axis}", lambda xp, x: getattr(xp, name)(x * 1.0, axis=axis), (a,))


def _shape(rng, values, a, x, sure):
    """Other axes, or another order of axes."""
    ndim = x.ndim
    kinds: dict[str, Step] = {"ravel": lambda xp, x: xp.reshape(x, (-1,))}
    if ndim < 3:
        at = rng.randrange(ndim + 1)
        kinds["expand"] = lambda xp, x: xp.expand_dims(x, at)
        n = rng.choice((1, 2, 3))
        kinds["broadcast"] = lambda xp, x: xp.broadcast_to(x, (n, *x.shape))
    if 1 in x.shape:
        kinds["squeeze"] = lambda xp, x: xp.squeeze(x)
        wide = tuple(rng.choice((2, 3)) if n == 1 else n for n in x.shape)
        kinds["widen"] = lambda xp, x: xp.broadcast_to(x, wide)
    if ndim > 1:
        order = rng.sample(range(ndim), ndim)
        kinds["transpose"] = lambda xp, x: xp.transpose(x, order)
        kinds["swap"] = lambda xp, x: xp.swapaxes(x, 0, -1)
    ways = [(d, x.size // d) for d in range(1, x.size + 1) if x.size % d == 0]
    if ways:
        shape = rng.choice(ways)
        kinds["reshape"] = lambda xp, x: xp.reshape(x, shape)
    name = rng.choice(list(kinds))
    return Choice(name, kinds[name], (a,))


def _select(rng, values, a, x, sure):
    """Some of the entries, each once or several times."""
    if not x.ndim:
        return None
    axis = rng.randrange(x.ndim)
    n, around = x.shape[axis], (slice(None),) * axis
    picked = [rng.randrange(n) for _ in range(rng.randint(1, 4))] if n else []
    cut = slice(*sorted(rng.randint(0, n) for _ in range(2)), rng.choice((None, 1, 2)))
    shift, times = rng.randint(-3, 3), rng.randint(1, 2)
    kinds: dict[str, Step] = {
        "slice": lambda xp, x: x[(*around, cut)],
        "reverse": lambda xp, x: x[(*around, slice(None, None, -1))],
        "roll": lambda xp, x: xp.roll(x, shift, axis=axis),
        "repeat": lambda xp, x: xp.repeat(x, times, axis=axis),
        "tile": lambda xp, x: xp.tile(x, (times,) * x.ndim),
    }
    if picked:
        kinds["take"] = lambda xp, x: xp.take(x, np.array(picked), axis=axis)
        kinds["fancy"] = lambda xp, x: x[(*around, np.array(picked))]
        kinds["item"] = lambda xp, x: x[(*around, picked[0])]
    name = rng.choice(list(kinds))
    return Choice(f"{name} axis {axis} {cut} {picked} {shift} {times}", kinds[name], (a,))


def _square(rng, values, a, x, sure):
    """What is made of matrices, and of vectors."""
    k = rng.randint(-1, 1)
    if x.ndim == 2:
        kinds: dict[str, Step] = {
            "tril": lambda xp, x: xp.tril(x, k),
            "triu": lambda xp, x: xp.triu(x, k),
            "diagonal": lambda xp, x: xp.diagonal(x),
            "trace": lambda xp, x: xp.trace(x * 1.0),
            "rot90": lambda xp, x: xp.rot90(x),
        }
    elif x.ndim == 1:
        kinds = {"diag": lambda xp, x: xp.diag(x), "outer": lambda xp, x: xp.outer(x * 1.0, x * 1.0)}
    else:
        return None
    name = rng.choice(list(kinds))
    return Choice(f"{name} {k}", kinds[name], (a,))


def _join(rng, values, a, x, sure):
    if not x.ndim:
        return None
    axis, name = rng.randrange(x.ndim), rng.choice(("concatenate", "stack"))

    def fits(y):
        same = x.shape == y.shape
        apart = [k for k in range(x.ndim) if y.ndim == x.ndim and x.shape[k] != y.shape[k]]
        return same if name == "stack" else y.ndim == x.ndim and set(apart) <= {axis}

    b = rng.choice([k for k, v in enumerate(values) if fits(v.array)])
    if name == "stack" and x.ndim > 2:
        return None
    return Choice(f"{name} {axis}", lambda xp, x, y: getattr(xp, name)([x * 1.0, y * 1.0], axis=axis), (a, b))


def _convert(rng, values, a, x, sure):
    """Another format, which NumPy knows nothing of."""
    if not x.ndim:
        return None
    form = random_format(rng, x.ndim, OUTPUTS, None)
    return Choice(f"as {form}", lambda xp, x: x if xp is np else xp.asformat(x, form), (a,))


def _several(rng, values, a, x, sure):
    """Operations of one or two arrays that make others of other shapes."""
    b = rng.randrange(len(values))
    y = values[b].array
    kinds: dict[str, Step] = {}
    if 0 < x.ndim < 3 and x.ndim == y.ndim and x.size * y.size <= LARGEST:
        kinds["kron"] = lambda xp, x, y: xp.kron(x * 1.0, y * 1.0)
    if x.ndim and y.ndim and x.shape[-1] == y.shape[0]:
        kinds["tensordot"] = lambda xp, x, y: xp.tensordot(x * 1.0, y * 1.0, axes=1)
        kinds["dot"] = lambda xp, x, y: xp.dot(x * 1.0, y * 1.0) if y.ndim < 3 else xp.tensordot(x * 1.0, y * 1.0, 1)
    if x.ndim and y.ndim and x.shape[-1] == y.shape[-1]:
        kinds["inner"] = lambda xp, x, y: xp.inner(x * 1.0, y * 1.0)
        kinds["gram"] = lambda xp, x, y: (
            xp.einsum("...k,...k->...", x * 1.0, y[..., :] * 1.0) if x.shape == y.shape else xp.inner(x * 1.0, y * 1.0)
        )
    if x.ndim == 2:
        kinds["aat"] = lambda xp, x, y: (x * 1.0) @ (x * 1.0).T
        kinds["ata"] = lambda xp, x, y: (x * 1.0).T @ (x * 1.0)
        kinds["normal"] = lambda xp, x, y: x / (xp.sum(xp.absolute(x * 1.0), axis=1, keepdims=True) + 1.0)
        kinds["center"] = lambda xp, x, y: x - xp.mean(x * 1.0, axis=0)
    if not kinds:
        return None
    name = rng.choice(list(kinds))
    return Choice(name, kinds[name], (a, b), name not in ("normal", "center"))


KINDS = (
    _convert, _convert, _several, _several, _unary, _unary, _pair, _pair, _pair, _where, _matmul, _matmul, _einsum, _einsum, _einsum,
    _reduce, _reduce, _reduce, _count, _cumulative, _shape, _shape, _shape, _select, _select, _square, _join,
)  # fmt: skip


def inputs(rng: random.Random) -> list[tuple[Any, Any]]:
    """(ours, dense): arrays in random formats."""
    n, m = rng.choice((1, 3, 4)), rng.choice((2, 4, 4))
    found = []
    for _ in range(rng.randint(1, 3)):
        shape = rng.choice(((n, m), (n, m), (m, n), (n, n), (n,), (m,), (), (2, n, m)))
        nrng = np.random.default_rng(rng.getrandbits(32))
        dense = nrng.integers(-2, 4, shape) * (nrng.random(shape) < rng.choice((0.2, 0.5, 1.0))) * 0.5
        if not shape or rng.random() < 0.2:
            found.append((sj.array(np.asarray(dense), copy=True), np.asarray(dense)))
            continue
        sizes = [rng.choice((1, 2, 3)) for _ in shape] if rng.random() < 0.15 else None
        form = random_format(rng, len(shape), OUTPUTS, sizes)
        found.append((sj.array(dense, format=form, copy=True), dense))
    return found


def make(seed: int) -> tuple[list[tuple[Any, Any]], list[Choice], list[Value]]:
    """A program, its inputs, and what NumPy makes of them."""
    rng = random.Random(seed)
    given = inputs(rng)
    values = [Value(d, True) for _, d in given]
    steps: list[Choice] = []
    wanted = rng.randint(1, 6)
    for choice in choices(rng, values):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = np.asarray(choice.step(np, *(values[k].array for k in choice.operands)))
        if made.size > LARGEST or made.ndim > 3:
            continue
        if made.dtype.kind == "f" and made.size and not np.all(np.abs(made.astype("f8")) <= MOST):
            continue
        exact = choice.exact and all(values[k].exact for k in choice.operands) and made.dtype != np.float32
        steps.append(choice)
        values.append(Value(made, exact))
        if len(steps) == wanted:
            return given, steps, values
    raise AssertionError("choices never end")


@engine.crowded
def check(seed: int) -> str | None:
    """None when a program agrees with NumPy, else what is wrong."""
    given, steps, values = make(seed)
    rng = random.Random(-1 - seed)
    count = len(given)
    last = sorted({*rng.sample(range(count, len(values)), min(2, len(steps))), len(values) - 1})

    def run(*arrays: Any) -> list[Any]:
        made = list(arrays)
        for choice in steps:
            made.append(choice.step(snp, *(made[k] for k in choice.operands)))
        return [made[k] for k in last]

    text = f"seed {seed}: {[(s.text, s.operands) for s in steps]}; inputs {[f'{a.aval}' for a, _ in given]}"
    arrays = [a for a, _ in given]
    floats = [v.array[np.isfinite(v.array)] for v in values if v.array.dtype.kind == "f"]
    largest = max((float(np.abs(x).max(initial=1.0)) for x in floats), default=1.0)  # may have cancelled
    try:
        if seed % 5 == 0:
            got = run(*arrays)
        elif seed % 5 == 1:  # a batch of two that are the same
            both = sj.jit(sj.vmap(run))(*(snp.stack([a, a]) for a in arrays))
            got = [x[seed % 2] for x in both]
        else:
            got = sj.jit(run)(*arrays)
    except Exception as error:  # what NumPy can do, this can
        return f"{text}: {type(error).__name__}: {error}"
    for k, ours in zip(last, got, strict=True):
        theirs = values[k].array
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"{text}\nvalue {k}: {ours.aval} instead of {theirs.dtype}{theirs.shape}"
        if not np.allclose(ours.todense(), theirs, rtol=2e-4, atol=2e-5 * largest, equal_nan=True):
            return f"{text}\nvalue {k}: expected\n{theirs}\ngot\n{np.asarray(ours.todense())}"
    return None
