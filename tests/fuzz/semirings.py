"""Random contractions over semirings under masks, and their meaning, computed one scalar at a time.

A case has 1 to 5 operands in random formats, blocked ones too, and fills, labels that repeat or are broadcast, a named semiring or one of lambdas,
a structural, dense or complemented mask or none, and a chosen or a random result format. The oracle sees stored coordinates
and values only: a term exists where every sparse operand stores its entry.
"""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import replace

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.array import Array
from sparsejax.formats import (
    Compressed,
    Coordinate,
    convert,
    validate,
)
from sparsejax.jit.ir import cin, policies
from sparsejax.lax import semiring
from sparsejax.lax.contract import contract_p as contract
from tests.fuzz import definitions
from tests.fuzz.definitions import stored
from tests.fuzz.levels import ENUMERATED, INPUTS, random_format

INF = np.inf
MULTIPLICATIONS = {
    "times": np.multiply,
    "plus": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "first": lambda x, y: x,
    "second": lambda x, y: y,
    "pair": lambda x, y: np.ones_like(x),
}
ADDITIONS = {"plus": (np.add, 0), "min": (np.minimum, INF), "max": (np.maximum, -INF)}
LAMBDAS = {  # ours, NumPy's addition and multiplication, zero
    "distance": (("minimum", lambda x, y: abs(x - y)), (np.minimum, lambda x, y: np.abs(x - y)), INF),
    "left": (("add", lambda x, y: x * y + x), (np.add, lambda x, y: x * y + x), 0),
    "probably": ((lambda x, y: x + y + x * y, "times"), (lambda x, y: x + y + x * y, np.multiply), 0),
    "larger": ((lambda x, y: snp.where(x > y, x, y), "plus"), (np.maximum, np.add), -INF),
    "constants": (("max", lambda x, y: 2 * x + y + 1), (np.maximum, lambda x, y: 2 * x + y + 1), -INF),
    "unusual zero": (("max", "times", 0), (np.maximum, np.multiply), 0),
}
DTYPES = ("f8", "f8", "f4", "i8", "i4", "u1", "?")
LABELS = "ijkl"
LEVELS = (*ENUMERATED, *INPUTS)


def random_semiring(rng: random.Random):
    """(name or Semiring, addition, multiplication, zero, whether it is logical)"""
    choice = rng.random()
    if choice < 0.1:
        return "or_and", np.logical_or, np.logical_and, False, True
    if choice < 0.2:
        return "any_pair", np.maximum, MULTIPLICATIONS["pair"], 0, False
    if choice < 0.65:
        add, mul = rng.choice(list(ADDITIONS)), rng.choice(list(MULTIPLICATIONS))
        return f"{add}_{mul}", ADDITIONS[add][0], MULTIPLICATIONS[mul], ADDITIONS[add][1], False
    ours, theirs, zero = LAMBDAS[rng.choice(list(LAMBDAS))]
    return sj.Semiring(ours[0], ours[1], zero), *theirs, zero, False


class Operand:
    """An array of ours with the dictionary of what it stores."""

    def __init__(self, rng: random.Random, shape, dtype, sizes, least=-np.inf):
        fill = rng.choice((0, 0, 1)) if dtype.kind != "b" else 0
        form = random_format(rng, len(shape), LEVELS, sizes)
        storage, _ = stored(rng, shape, dtype, form, fill, rng.choice((0.0, 0.2, 0.5, 1.0)))
        storage = replace(storage, vals=np.maximum(storage.vals, dtype.type(0)) if least == 0 else storage.vals)
        self.array = Array(storage)
        coords, vals = convert.to_coords(storage)
        self.stored = {}
        for c, v in zip(coords.T, vals, strict=True):  # duplicates are summed
            place = tuple(map(int, c))
            self.stored[place] = self.stored[place] + v if place in self.stored else v
        self.dense = storage.format.is_dense
        if self.dense:
            values = convert.to_dense(storage)
            self.stored = {place: values[place] for place in np.ndindex(*shape)}


def make(seed: int):
    """The case of a seed: our result, and the expected entries, as a function of nothing."""
    rng = random.Random(seed)
    chosen, add, mul, zero, logical = random_semiring(rng)
    dtype = np.dtype(rng.choice(DTYPES))
    labels = LABELS[: rng.randint(1, 4)]
    extents = {x: rng.choice((0, 1, 2, 3, 3, 4)) for x in labels}
    operands: list[Operand] = []
    terms: list[str] = []
    blocks = {x: rng.choice((1, 2, 2, 3)) for x in labels} if rng.random() < 0.3 else {}

    def sizes(word):
        return [blocks.get(x, 1) if rng.random() < 0.9 else 2 for x in word] if blocks and rng.random() < 0.8 else None

    for _ in range(rng.choice((1, 2, 2, 2, 3, 3, 4, 5))):
        term = "".join(rng.sample(labels, rng.randint(0, min(3, len(labels)))))
        if term and rng.random() < 0.15:
            term += rng.choice(term)
        shape = tuple(1 if rng.random() < 0.05 else extents[x] for x in term)
        own = dtype if rng.random() < 0.8 else np.dtype(rng.choice(("f4", "i4")))
        # zero is the identity of the maximum of what is not negative
        operands.append(Operand(rng, shape, own, sizes(term), least=0 if add is np.maximum and zero == 0 else -np.inf))
        terms.append(term)
    for x in labels:  # an axis that every operand has with extent one
        seen = [
            n for o, t in zip(operands, terms, strict=True) for n, y in zip(o.array.shape, t, strict=True) if x == y
        ]
        extents[x] = next((n for n in seen if n != 1), 1) if seen else extents[x]
    used = [x for x in labels if any(x in t for t in terms)]
    output = [x for x in used if rng.random() < 0.6]
    rng.shuffle(output)
    shape = tuple(extents[x] for x in output)
    options = {"semiring": chosen}
    allowed = set(np.ndindex(*shape))
    if rng.random() < 0.5:
        kind = rng.choice(("sparse", "dense"))
        mask = Operand(rng, shape, np.dtype("?" if kind == "dense" else rng.choice(("f8", "?"))), sizes(output))
        options["mask"] = mask.array
        inside = {c for c, v in mask.stored.items() if not mask.dense or v}
        options["complement"] = rng.random() < 0.4
        allowed = allowed - inside if options["complement"] else inside
    if rng.random() < 0.3:
        options["out_format"] = random_format(rng, len(output), blocks=sizes(output))
    if logical:
        compute = np.dtype(bool)
    else:
        compute = np.result_type(*(o.array.dtype for o in operands))
        compute = np.dtype(np.int64) if compute.kind == "b" and chosen != "plus_times" else compute
        if chosen == "plus_times" and compute.kind == "b":
            add, mul = np.logical_or, np.logical_and
    return operands, terms, "".join(output), extents, options, (add, mul, zero), compute, allowed


def constant(value, dtype):
    """A semiring's zero in a dtype."""
    if dtype.kind in "iu" and np.isinf(value):
        return dtype.type(np.iinfo(dtype).max if value > 0 else np.iinfo(dtype).min)
    return dtype.type(value)


def expected(operands, terms, output, extents, algebra, dtype, allowed):
    """(dense result, the coordinates that have terms), one scalar at a time."""
    add, mul, given = algebra
    zero = constant(given, dtype)
    absorbs = [False, False]
    if dtype.kind in "iu" and np.isinf(given):
        absorbs = [mul(np.float64(given), 2.0) == given, mul(2.0, np.float64(given)) == given]
    used = [x for x in LABELS if any(x in t for t in terms)]
    result = np.full([extents[x] for x in output], zero, dtype)
    present = set()

    def times(x, y):
        if (absorbs[0] and x == zero) or (absorbs[1] and y == zero):
            return zero
        return np.asarray(mul(x, y)).astype(dtype)[()]

    for point in itertools.product(*(range(extents[x]) for x in used)):
        at = dict(zip(used, point, strict=True))
        place = tuple(at[x] for x in output)
        factors = []
        for operand, term in zip(operands, terms, strict=True):
            where = tuple(at[x] if n != 1 else 0 for x, n in zip(term, operand.array.shape, strict=True))
            factors.append(operand.stored.get(where))
        if place in allowed and all(f is not None for f in factors):
            value = functools.reduce(times, [np.asarray(f).astype(dtype)[()] for f in factors])
            result[place] = np.asarray(add(result[place], value)).astype(dtype)
            present.add(place)
    return result, present


def check(seed: int, compiled: bool = False) -> str | None:
    """None when the case is right, else what is wrong."""
    operands, terms, output, extents, options, algebra, dtype, allowed = make(seed)
    text = f"{','.join(terms)}->{output}"
    arrays = [o.array for o in operands]

    def run(*args):
        return sj.einsum(text, *args[: len(arrays)], **{**options, **({"mask": args[-1]} if "mask" in options else {})})

    with np.errstate(all="ignore"):
        want, present = expected(operands, terms, output, extents, algebra, dtype, allowed)
        got = (sj.jit(run) if compiled else run)(*arrays, *([options["mask"]] if "mask" in options else []))
    validate.validate(got.storage)
    case = f"seed {seed}: {text} {options} of {[str(o.array.aval) for o in operands]} -> {got.aval}"
    if got.dtype != dtype or got.shape != want.shape:
        return f"{case}: expected {dtype}{want.shape}"
    loose = 1e-5 if dtype == np.float32 else 1e-12
    if not np.allclose(got.todense(), want, rtol=loose, atol=loose, equal_nan=True):
        return f"{case}\nexpected\n{want}\ngot\n{got.todense()}"
    levels = got.format.levels
    if levels and isinstance(levels[-1], Compressed | Coordinate):
        stored = set(map(tuple, convert.to_coords(got.storage)[0].T.tolist()))
        if stored != present:
            return f"{case}\nstores\n{sorted(stored)}\nbut there are terms at\n{sorted(present)}"
    if not got.format.is_dense and got.fill_value != constant(algebra[2], dtype):
        return f"{case}: fill {got.fill_value}"
    return None


def check_order(seed: int) -> str | None:
    """The same contraction as one kernel under a random loop order, with a random workspace and a result in any format; None
    when right."""
    operands, terms, output, extents, options, algebra, dtype, allowed = make(seed)
    rng = random.Random(-seed)
    storages = {f"X{k}": o.array.storage for k, o in enumerate(operands)}
    if "mask" in options:
        storages["M"] = options["mask"].storage
    tensors = [cin.Tensor(n, s.shape, s.dtype, s.format, s.fill_value) for n, s in storages.items()]
    labels = tuple(tuple(map(ord, t)) for t in terms)
    ring = semiring.ring_of(semiring.semiring_of(options["semiring"]), dtype)
    mask = None if "mask" not in options else "complement" if options["complement"] else "mask"
    definition = contract.notation(
        *tensors, inputs=labels, output=tuple(map(ord, output)), dtype=dtype, out_format=None, ring=ring, mask=mask
    )
    shape = tuple(extents[x] for x in output)
    form = random_format(rng, len(output))
    zero = constant(algebra[2], dtype)
    # without a reduction a dense result is assigned where there are entries, and starts at its fill
    fill = dtype.type(0) if form.is_dense and definition.op is not None else zero
    target = cin.Tensor("out", shape, dtype, form, fill)
    every = list(dict.fromkeys((*definition.indices, *cin.variables(definition.rhs))))
    rng.shuffle(every)
    sizes = {v: extents[chr(int(v.name[1:]))] for v in every}
    workspace = rng.choice(("auto", *policies.SPARSE))
    case = definitions.Case(seed, definition, target, {}, storages, sizes, tuple(every), workspace)
    with np.errstate(all="ignore"):
        want, _ = expected(operands, terms, output, extents, algebra, dtype, allowed)
    got = definitions.run(case)
    validate.validate(got)
    loose = 1e-5 if dtype == np.float32 else 1e-12
    dense = convert.to_dense(got)
    if not np.allclose(dense, want, rtol=loose, atol=loose, equal_nan=True):
        return f"{case} {options}\nexpected\n{want}\ngot\n{dense}"
    return None
