"""Random differentiable programs over matrices and tensors in random formats: forward mode against central differences, reverse mode
against forward mode, second derivatives by nesting; everything jitted. Every seed draws one step of `KINDS[seed % len(KINDS)]`, and
others; `families` says whose rules a program needs."""

from __future__ import annotations

import random

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax, nn
from sparsejax.scipy.sparse import linalg
from tests.autodiff.checks import EPS, array, dense, direction, moved, same_buffers, stored
from tests.fuzz import engine
from tests.fuzz.levels import INPUTS, OUTPUTS, random_format

EXTENTS = {"a": 3, "b": 4, "c": 2}
UNARY = ("sin", "tanh", "logistic", "square", "negative", "exp", "arctan", "absolute", "expm1")
BINARY = ("add", "subtract", "multiply", "multiply", "maximum", "minimum")
REDUCTIONS = ("sum", "sum", "mean", "max", "min", "prod")
SEMIRINGS = ("min_plus", "max_plus", "max_times", "min_max", "plus_min")
INDEXING = ("roll", "flip", "take", "first", "sort", "pad", "interleave")
LOOPS = ("fori", "scan", "cond", "map")
SOLVERS = ("spsolve", "cg", "gmres")
NETWORKS = ("softmax", "logsumexp", "relu", "gelu", "silu", "softplus", "segment_sum", "segment_max", "segment_softmax")
KINDS = ("einsum", "masked", "reduce", "format", "flat", "semiring", "index", "loop", "solve", "nn")
USUAL = ("unary", "binary", "binary", "einsum", "einsum", "masked", "reduce", "where", "format", "scalar", "flat")
"""What is drawn besides."""


def program(rng: random.Random, labels: list[str], kind: str | None = None):
    """Steps over numbered values with named axes; the first values are the inputs. One of them is of the given kind, if any."""
    axes, steps = list(labels), []
    kinds = [rng.choice(USUAL) for _ in range(rng.randint(0 if kind else 1, 3))]
    if kind is not None:
        kinds.insert(rng.randint(0, len(kinds)), kind)
    for kind in kinds:
        _draw(rng, kind, axes, steps)
    return steps


def _draw(rng: random.Random, kind: str, axes: list[str], steps: list[tuple]) -> None:
    """Add a step of the given kind, or another where that does not fit, and the axes of its value."""
    k = len(axes) - 1 if rng.random() < 0.85 else rng.randrange(len(axes))
    if kind in ("index", "loop", "solve", "nn", "reduce", "format") and not axes[k]:
        k = 0
    own, made = axes[k], axes[k]
    suffixes = [n for n, x in enumerate(axes) if own.endswith(x)]
    match kind:
        case "einsum" | "masked" | "semiring":
            args = [k, *rng.choices(range(len(axes)), k=rng.randint(0 if kind == "masked" else 1, 2))]
            letters = sorted(set("".join(axes[n] for n in args)))
            made = "".join(rng.sample(letters, rng.randint(0, len(letters))))
            extra = None
            if kind == "masked":
                fitting = [n for n, x in enumerate(axes) if x and set(x) <= set(letters)]
                if fitting:
                    extra = (rng.choice(fitting), rng.random() < 0.3)
                    made = axes[extra[0]]
            elif kind == "semiring":
                extra = rng.choice(SEMIRINGS)
            step = ("semiring" if kind == "semiring" else "einsum", tuple(args), _subscripts(axes, args, made), extra)
        case "reduce":
            gone = rng.randrange(len(own))
            made = own[:gone] + own[gone + 1 :]
            step = (kind, (k,), rng.choice(REDUCTIONS), gone)
        case "binary":
            step = (kind, (k, rng.choice(suffixes)), rng.choice(BINARY))
        case "where":
            step = (kind, (rng.choice(suffixes), k, rng.choice(suffixes)))
        case "format":
            step = (kind, (k,), random_format(rng, len(own), OUTPUTS))
        case "scalar":
            step = (kind, (k,), rng.choice(BINARY), rng.choice((0.5, 2, -1.0)))
        case "flat":
            step = (kind, (k,))
        case "index":
            how, axis = rng.choice(INDEXING), rng.randrange(len(own))
            made = own[:axis] + own[axis + 1 :] if how == "first" else own
            step = (kind, (k,), how, axis)
        case "loop":
            step = (kind, (k, rng.randrange(len(axes))), rng.choice(LOOPS))
        case "solve":
            made = own[:1]
            step = (kind, (k,), rng.choice(SOLVERS))
        case "nn":
            how, axis = rng.choice(NETWORKS), rng.randrange(len(own))
            made = own[:axis] + own[axis + 1 :] if how == "logsumexp" else own
            step = (kind, (k,), how, axis)
        case _:
            step = ("unary", (k,), rng.choice(UNARY))
    steps.append(step)
    axes.append(made)


def _subscripts(axes: list[str], args: list[int], out: str) -> str:
    return f"{','.join(axes[n] for n in args)}->{out}"


def run(steps, inputs, seen=None):
    """The last value, which is bounded. `seen` takes the families of every step."""
    values = list(inputs)
    for kind, places, *how in steps:
        args = [values[n] for n in places]
        if seen is not None:
            seen.append(_families(kind, how, args))
        values.append(_step(kind, how, args, values))
    return values[-1]


def _step(kind, how, args, values):
    x = args[0]
    match kind:
        case "unary":
            return getattr(snp, how[0])(x)
        case "binary":
            return getattr(snp, how[0])(*args)
        case "scalar":
            return getattr(snp, how[0])(x, how[1])
        case "einsum":
            subscripts, mask = how
            extra = {} if mask is None else {"mask": values[mask[0]], "complement": mask[1]}
            if mask is not None and values[mask[0]].format.is_dense:
                extra["mask"] = values[mask[0]] > 0
            return sj.einsum(subscripts, *args, **extra) * 0.5
        case "semiring":
            return _finite(sj.einsum(how[0], *args, semiring=how[1])) * 0.5
        case "reduce":
            return getattr(snp, how[0])(x, axis=how[1])
        case "where":
            return snp.where(x > 0.5, *args[1:])
        case "format":
            return x.asformat(how[0])
        case "flat":
            return snp.reshape(snp.transpose(snp.ravel(x) * 2), x.shape)
        case "index":
            return _indexed(x, *how)
        case "loop":
            return _looped(how[0], *args)
        case "solve":
            return _solved(how[0], x)
        case "nn":
            return _network(x, *how)


def _finite(x):
    """Values where something contributes, zero elsewhere."""
    return snp.where(snp.isfinite(x), x, 0.0)


def _indexed(x, how, axis):
    before = (slice(None),) * axis
    match how:
        case "roll":
            return snp.concatenate([x[(*before, slice(1, None))], x[(*before, slice(0, 1))]], axis=axis)
        case "flip":
            return snp.flip(x, axis)
        case "take":
            return snp.take(x, np.roll(np.arange(x.shape[axis])[::-1], 1), axis)
        case "sort":
            return snp.sort(x, axis)
        case "first":
            return x[(*before, 0)]
        case "pad":
            widths = [(int(d == axis), 0) for d in range(x.ndim)]
            return snp.pad(x[(*before, slice(None, None, -1))], widths)[(*before, slice(1, None))] * x
        case "interleave":
            return snp.concatenate([x[(*before, slice(1, None, 2))], x[(*before, slice(None, None, 2))]], axis=axis)


def _over_zero(x):
    """`x` dense where its fill is not zero, or is minus zero: a carry keeps its fill."""
    return x if x.fill_value == 0 and not np.signbit(x.fill_value) else x.asformat("dense")


def _looped(how, x, y):
    scale = snp.tanh(snp.sum(y)) + 1.5
    match how:
        case "fori":
            start = _over_zero(x)
            return lax.fori_loop(0, 3, lambda i, c: snp.sin(c) * scale, start)
        case "scan":
            return lax.scan(lambda c, row: (snp.tanh(c * 0.5 + snp.sum(row)), snp.sin(row) * c), scale, x)[1]
        case "cond":
            start = _over_zero(x)
            return lax.cond(snp.sum(start) > 0.3, lambda c: snp.sin(c) * scale, lambda c: c * 2.0, start)
        case "map":
            return lax.map(lambda row: snp.tanh(row) * scale, x)


def _solved(how, x):
    """The solution of (3 + X X') y = b, X the tanh of `x` with all its later axes as one, b the sums of its rows."""
    rows = snp.tanh(snp.reshape(x, (x.shape[0], -1)))
    system = sj.einsum("ij,kj->ik", rows, rows) + sj.array(3 * np.eye(x.shape[0]), format="csr")
    right = snp.sum(rows, axis=1).asformat("dense")
    return linalg.spsolve(system, right) if how == "spsolve" else getattr(linalg, how)(system, right, tol=1e-13)[0]


def _network(x, how, axis):
    match how:
        case "softmax":
            return nn.softmax(x, axis)
        case "logsumexp":
            return _finite(nn.logsumexp(x, axis))
        case "segment_sum" | "segment_max":
            ids = np.arange(x.shape[0]) % 2
            return _finite(getattr(nn, how)(x, ids, 2))[ids]
        case "segment_softmax":
            return nn.segment_softmax(x, np.arange(x.shape[0]) % 2, 2)
    return getattr(nn, how)(x)


NAMES = {
    "masked": "masked contractions",
    "semiring": "semirings",
    "reduce": "reductions",
    "format": "conversions",
    "flat": "reshapes",
    "index": "indexing",
    "loop": "control flow",
    "solve": "linear solvers",
    "nn": "nn",
}


def _families(kind, how, args) -> set[str]:
    """The families of rules that a step needs."""
    sparse = [x for x in args if not x.format.is_dense]
    found = {NAMES[kind]} if kind in NAMES else set()
    if kind == "einsum":
        found = {"contractions"} if how[1] is None else {"masked contractions"}
        inputs, out = how[0].split("->")
        read = [set(ls) - set(out) for ls, x in zip(inputs.split(","), args, strict=True) if not x.format.is_dense]
        if any(a & b for n, a in enumerate(read) for b in read[:n]):
            found.add("SpGEMM")
    if kind in ("unary", "binary", "scalar", "where"):
        found.add("elementwise")
        if len(sparse) > 1 or any(x.fill_value != 0 for x in sparse) or (kind == "scalar" and sparse):
            found.add("unions and fills")
    if how and how[0] in ("max", "min", "maximum", "minimum"):
        found.add("min and max")
    return found


def families(steps, inputs) -> set[str]:
    """The families of rules that the derivatives of a program need: those of the steps that its last value depends on."""
    seen: list[set[str]] = []
    sj.make_jaxpr(lambda *xs: run(steps, xs, seen))(*inputs)
    needed, found = {len(inputs) + len(steps) - 1}, set()
    for n in reversed(range(len(steps))):
        if len(inputs) + n in needed:
            needed.update(steps[n][1])
            found |= seen[n]
    return found


def case(seed: int):
    """The steps and the inputs of a seed."""
    rng, nrng = random.Random(seed), np.random.default_rng(seed)
    labels = ["".join(rng.sample("abc", rng.choice((1, 2, 2, 2, 3)))) for _ in range(rng.randint(1, 3))]
    inputs = []
    for ls in labels:
        form = random_format(rng, len(ls), INPUTS)
        form = "dense" if form.is_dense or any(level.letter == "r" for level in form.levels) else str(form)
        inputs.append(array(nrng, [EXTENTS[c] for c in ls], form, density=rng.choice((0.3, 0.6, 1.0))))
    return program(rng, labels, KINDS[seed % len(KINDS)]), inputs, labels, nrng


def families_of(seed: int) -> set[str]:
    """The families of rules that the program of a seed needs."""
    steps, inputs, *_ = case(seed)
    return families(steps, inputs)


@engine.crowded
def check(seed: int, second: bool = False) -> str | None:
    """None when all derivatives agree, else what is wrong."""
    steps, inputs, labels, nrng = case(seed)
    f = lambda *xs: run(steps, xs)  # noqa: E731
    if second:
        weights = direction(nrng, f(*inputs))
        first = f
        f = lambda *xs: sj.vjp(first, *xs)[1](weights)[0]  # noqa: E731
    ts = [direction(nrng, x) for x in inputs]
    text = f"seed {seed}: {steps}; inputs {[(ls, str(x.format)) for ls, x in zip(labels, inputs, strict=True)]}"
    value = sj.jit(f)
    out, tangent = sj.jit(lambda xs, ts: sj.jvp(f, xs, ts))(tuple(inputs), tuple(ts))
    up, mid, down = (
        stored(value(*(moved(x, t, step) for x, t in zip(inputs, ts, strict=True)))) for step in (EPS, 0, -EPS)
    )
    smooth = np.abs(up - 2 * mid + down) < 1e-4 * EPS * (1 + np.abs(mid))
    slope = (up - down) / (2 * EPS)
    scale = 1 + float(np.abs(slope).max(initial=0)) + float(np.abs(mid).max(initial=0))
    if not np.allclose(np.where(smooth, dense(tangent), 0), np.where(smooth, slope, 0), rtol=1e-4, atol=1e-5 * scale):
        return f"{text}\nforward: expected\n{slope}\ngot\n{dense(tangent)}"
    ct = direction(nrng, out)
    cts = sj.jit(lambda ct, *xs: sj.vjp(f, *xs)[1](ct))(ct, *inputs)
    left = (dense(ct) * dense(tangent)).sum()
    right = sum((dense(c) * dense(t)).sum() for c, t in zip(cts, ts, strict=True))
    if not np.isclose(left, right, rtol=1e-8, atol=1e-9 * scale):
        return f"{text}\nreverse: {left} is not {right}"
    for c, x in zip(cts, inputs, strict=True):
        if c.format != x.format or not (x.format.is_dense or same_buffers(c, x)):
            return f"{text}\nthe cotangent of {x.aval} is {c.aval} over other buffers"
    return None
