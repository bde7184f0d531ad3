"""Products with an array that never changes: what code for its entries alone computes, and in which steps.

    out[b,k,w] += C[p,i,j,k] * X[b,i,u] * Y[b,j] * W[p,u,w]        C a constant of few entries, the others dense

The variables of the constant (p, i, j, k) are *fixed*: code is written out for every value that they take. The others (b, u, w) stay loops. Factors
are contracted in up to three steps, each a sum over terms of products, in which fixed variables have values:

    before      H(p,k)[b,u] = W(p)[u,w] * G(k)[b,w]        two factors, summed over loops that no other factor has
    scaled      Z(p,k)[b,u] = c * X(i)[b,u] * Y(j)[b]      with the values c of the constant, for each of its entries
    after       out(k)[b,w] = Z(p,k)[b,u] * W(p)[u,w]      one factor more

What is scaled comes always, the other two where they save multiplications (`steps`): a derivative with respect to X has the first, the product
above the last. Entries that share a matrix may take other steps than the rest (`parts`): of the product above those of a path p take the first where
fewer i than k belong to it, since each row of X is multiplied by W[p] once, whatever number of results it is scaled for. Everything here follows from
types and the constant; `rewrite/straight_line` makes a statement of it.

Source of the scheme: contraction trees over the pattern of a constant; "CG x y of some samples for one path at a time, then times W".
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparsejax.cached import cached_property
from sparsejax.formats import Dense, Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin, indices
from sparsejax.jit.ir.nest import Nest, of_definition

MOST = 1024
"""Entries of a constant, at most."""
LANES = 8
"""Multiplications that one instruction does, about: a bound for `lacking`, which traces depend on (`lax/contract`), so that no machine is asked."""

ONCE, EACH = 20_000, 200
"""Multiplications that one call must save for code to be written out, and for each entry of the constant: a thousand calls pay for its
compilation (20 ms, and 0.2 ms for a line). Instructions are taken for a nanosecond each."""

WORTH = 0.95
"""Entries take different steps where these take so many of the multiplications: a choice, not measured, as parts add to the same result in turns."""

Values = tuple[int, ...]
"""Values of fixed variables."""


@dataclass(frozen=True)
class Factor:
    """A dense operand of the product, read as `dtype`, with its fixed variables and its loops."""

    access: cin.Access
    dtype: np.dtype[Any]
    fixed: tuple[cin.IndexVar, ...]
    loops: tuple[cin.IndexVar, ...]


@dataclass(frozen=True)
class Product:
    """`out += constant * factors`: the values of the fixed variables at every entry, and the coefficients there."""

    out: cin.Access
    constant: cin.Access
    factors: tuple[Factor, ...]
    fixed: tuple[cin.IndexVar, ...]
    entries: tuple[Values, ...]
    coefficients: tuple[Any, ...]
    dtype: np.dtype[Any]

    @cached_property
    def extents(self) -> dict[cin.IndexVar, int]:
        """The extent of every variable."""
        return cin.extents((self.out, self.constant, *(f.access for f in self.factors)))

    def only(self, numbers: Sequence[int]) -> Product:
        """The same with some of the entries."""
        return Product(
            self.out,
            self.constant,
            self.factors,
            self.fixed,
            tuple(self.entries[n] for n in numbers),
            tuple(self.coefficients[n] for n in numbers),
            self.dtype,
        )


class Steps(NamedTuple):
    """How the factors, by number, are contracted: two of them `before` they are scaled, one `after`."""

    before: tuple[int, int] | None = None
    after: int | None = None


class Part(NamedTuple):
    """Some entries of a constant, by number, and the steps in which they are contracted."""

    steps: Steps
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """One step: a product of its children; what is left of it has fixed variables and loops."""

    children: tuple[Factor | Step, ...]
    scaled: bool
    fixed: tuple[cin.IndexVar, ...]
    loops: tuple[cin.IndexVar, ...]

    @cached_property
    def summed(self) -> tuple[cin.IndexVar, ...]:
        """The loops over which it is summed."""
        found = dict.fromkeys(v for c in self.children for v in c.loops)
        return tuple(v for v in found if v not in self.loops)


class Term(NamedTuple):
    """One product of a sum: its coefficient (None: one), and the values of the fixed variables of every child."""

    coefficient: Any
    children: tuple[Values, ...]


# ------------------------------------------------------------------------------------------------------------- products


def product_of(nest: Nest) -> Product | None:
    """The product that a kernel is; None where it is something else, or none of its operands is a constant."""
    if not nest.direct or nest.op != "add" or len(nest.producers) != 1:
        return None
    out, rhs = cin.Access(nest.output, nest.indices), nest.producers[0].rhs
    dtype = rhs.dtype
    if dtype.kind not in "iufc" or nest.output.dtype != dtype or nest.producers[0].target.dtype != dtype:
        return None
    parts = _factors(rhs, dtype)
    if parts is None:
        return None
    read = [(p, _access(p)) for p in parts]
    constants = [a for _, a in read if a is not None and a.tensor.constant is not None]
    if len(constants) != 1:
        return None
    (constant,) = constants
    others = [(p, a) for p, a in read if a is not constant]
    if not others or not all(a is None or _is_plain(a) for _, a in others) or not _is_plain(out):
        return None
    if constant.computed or len(set(nest.indices)) < len(nest.indices) or not cin.are_variables(nest.indices):
        return None
    fixed = tuple(dict.fromkeys(cin.followed(constant.indices)))
    factors = tuple(_factor(a, p.dtype if p is a else dtype, fixed) for p, a in others if a is not None)
    if not factors or any(len(set(f.loops)) < len(f.loops) for f in factors):
        return None
    scale = [p.value for p, a in others if a is None and isinstance(p, cin.Literal)]
    entries, values = _entries(constant, fixed, dtype, scale)
    if not entries or not _agree((out, constant, *(f.access for f in factors))):
        return None
    known = {v for f in factors for v in (*f.loops, *f.fixed)} | set(fixed)
    return Product(out, constant, factors, fixed, entries, values, dtype) if set(nest.indices) <= known else None


def _factors(expr: cin.Expr, dtype: np.dtype[Any]) -> list[cin.Expr] | None:
    """The factors of a product, all of one dtype; None of anything else."""
    match expr:
        case cin.Call("multiply", args, own) if own == dtype:
            found = [_factors(a, dtype) for a in args]
            return None if None in found else [f for part in found for f in part or ()]
        case cin.Access() | cin.Literal() if expr.dtype == dtype:
            return [expr]
        case cin.Call("cast", (cin.Access(),), own) if own == dtype:
            return [expr]
    return None


def _access(expr: cin.Expr) -> cin.Access | None:
    """What a factor reads."""
    if isinstance(expr, cin.Call):
        (expr,) = expr.args
    return expr if isinstance(expr, cin.Access) else None


def _factor(access: cin.Access, dtype: np.dtype[Any], fixed: Sequence[cin.IndexVar]) -> Factor:
    own = cin.followed(access.indices)
    return Factor(
        access,
        dtype,
        tuple(dict.fromkeys(v for v in own if v in fixed)),
        tuple(v for v in own if v not in fixed),
    )


def _is_plain(access: cin.Access) -> bool:
    """Whether an operand has dense levels alone, and no coordinates that are computed."""
    return access.tensor.format.full and not access.computed


def _agree(accesses: Sequence[cin.Access]) -> bool:
    """Whether every variable has one extent, so that what the constant stores is in every operand."""
    found: dict[cin.IndexVar, int] = {}
    for access in accesses:
        for size, index in zip(access.tensor.shape, access.indices, strict=True):
            var = indices.follows(index)
            if var is not None and found.setdefault(var, size) != size:
                return False
    return True


def _entries(
    access: cin.Access, fixed: Sequence[cin.IndexVar], dtype: np.dtype[Any], scale: Sequence[Any]
) -> tuple[tuple[Values, ...], tuple[Any, ...]]:
    """The values of the fixed variables at the entries of a constant, and its values times some numbers."""
    held = access.tensor.constant
    assert held is not None
    values = np.frombuffer(held.values, access.dtype).astype(dtype)
    with np.errstate(all="ignore"):
        for number in scale:
            values = values * dtype.type(number)
    found: dict[Values, Any] = {}
    for coordinates, value in zip(held.coordinates, values, strict=True):
        bound: dict[cin.IndexVar, int] = {}
        for index, at in zip(access.indices, coordinates, strict=True):
            if (index if isinstance(index, int) else bound.setdefault(index, at)) != at:  # type: ignore[arg-type]
                break
        else:
            found[tuple(bound[v] for v in fixed)] = value
    ordered = sorted(found)
    return tuple(ordered), tuple(found[e] for e in ordered)


# ---------------------------------------------------------------------------------------------------------------- steps


def step_of(product: Product, steps: Steps) -> Step:
    """The last of the steps, with those before it among its children."""
    inside: list[Factor | Step] = [
        f for k, f in enumerate(product.factors) if k != steps.after and k not in (steps.before or ())
    ]
    last = None if steps.after is None else product.factors[steps.after]
    own = cin.followed(product.out.indices)
    fixed, loops = tuple(v for v in own if v in product.fixed), tuple(v for v in own if v not in product.fixed)
    if steps.before is not None:
        pair = tuple(product.factors[k] for k in steps.before)
        needed = {*loops, *(v for f in (*inside, *([last] if last else [])) for v in f.loops)}
        found = tuple(dict.fromkeys(v for f in pair for v in f.loops if v in needed))
        inside.append(Step(pair, False, tuple(v for v in product.fixed if any(v in f.fixed for f in pair)), found))
    if last is None:
        return Step(tuple(inside), True, fixed, loops)
    kept = tuple(v for v in product.fixed if v in fixed or v in last.fixed)
    needed = {*loops, *last.loops}
    found = tuple(dict.fromkeys(v for c in inside for v in c.loops if v in needed))
    return Step((Step(tuple(inside), True, kept, found), last), False, fixed, loops)


def terms_of(product: Product, step: Step) -> dict[Values, list[Term]]:
    """The sum that each value of a step is, by the values of its fixed variables. O(entries)."""
    own = _own(step)
    key = _picked(own, product.fixed)
    sums: dict[Values, Any] = {}
    for entry, coefficient in zip(product.entries, product.coefficients, strict=True):
        at = key(entry)
        sums[at] = sums[at] + coefficient if at in sums and step.scaled else coefficient
    target, children = _picked(step.fixed, own), [_picked(c.fixed, own) for c in step.children]
    made: dict[Values, list[Term]] = {}
    for at, coefficient in sums.items():
        term = Term(coefficient if step.scaled else None, tuple(child(at) for child in children))
        made.setdefault(target(at), []).append(term)
    return made


def _own(step: Step) -> tuple[cin.IndexVar, ...]:
    """The fixed variables of a step and of its children: each of their values is a term."""
    return tuple(dict.fromkeys((*step.fixed, *(v for c in step.children for v in c.fixed))))


def _picked(some: Sequence[cin.IndexVar], every: Sequence[cin.IndexVar]) -> Callable[[Values], Values]:
    """The values of some variables, out of those of all."""
    places = [every.index(v) for v in some]
    if len(places) > 1:
        return operator.itemgetter(*places)
    return (lambda values: (values[places[0]],)) if places else lambda values: ()


def inner_steps(step: Step) -> Iterator[Step]:
    """The steps below a step, those that are needed first before the others."""
    for child in step.children:
        if isinstance(child, Step):
            yield from inner_steps(child)
            yield child


def outer_of(product: Product, last: Step) -> cin.IndexVar | None:
    """The loop around all steps: the longest that everything between them has, one along which no operand lies before others; None where there
    is none."""
    inner = list(inner_steps(last))
    common = [v for v in (inner[0].loops if inner else last.loops) if all(v in s.loops for s in inner)]
    lane = next(iter(cin.followed(product.out.indices)[-1:]), None)
    common = [v for v in common if v != lane] or common
    ends = {f.access.level_index(len(f.access.indices) - 1) for f in product.factors if f.access.indices}
    longest = max(common, key=lambda v: (v not in ends, product.extents[v]), default=None)
    return longest if inner or len(common) > 1 else None


def multiplications(product: Product, steps: Steps, *, every: bool = False) -> float:
    """How many terms the steps add up, times two where sums run along lanes; with `every`, each as often as it multiplies."""
    last, total = step_of(product, steps), 0.0
    for step in (*inner_steps(last), last):
        if every:
            count = sum(_times(t) for found in terms_of(product, step).values() for t in found)
        else:
            count = len(set(map(_picked(_own(step), product.fixed), product.entries)))
        space = math.prod(float(product.extents[v]) for v in (*step.loops, *step.summed))
        along = step.summed and not any(v in c.loops for v in step.loops[-1:] for c in step.children)
        total += count * space * (2.0 if along else 1.0)
    return total


def _times(term: Term) -> int:
    """How often a term multiplies; one that only adds counts once."""
    return max(1, len(term.children) - 1 + (term.coefficient is not None and abs(term.coefficient) != 1))


def _ways(product: Product) -> Iterator[Steps]:
    count = len(product.factors)
    own = set(product.out.indices)
    for before in (None, *itertools.combinations(range(count), 2)):
        rest = [k for k in range(count) if k not in (before or ())]
        if before is not None:
            others = {*own, *(v for k in rest for v in product.factors[k].loops)}
            pair = [product.factors[k] for k in before]
            if not any(v in pair[1].loops and v not in others for v in pair[0].loops):
                continue  # nothing is summed
        for after in (None, *rest):
            if after is None or len(rest) > 1 or before is not None:
                yield Steps(before, after)


@functools.lru_cache(maxsize=256)
def steps(product: Product) -> Steps:
    """The steps that take the fewest multiplications. O(factors cubed, times entries)."""
    return min(_ways(product), key=lambda way: (multiplications(product, way), sum(x is not None for x in way)))


def whole(product: Product) -> tuple[Part, ...]:
    """All entries in the same steps."""
    return (Part(steps(product), tuple(range(len(product.entries)))),)


@functools.lru_cache(maxsize=256)
def parts(product: Product) -> tuple[Part, ...]:
    """The entries by the steps that take the fewest multiplications for those that meet the same values of a factor: one of those that are
    contracted before or after the others. All in the same steps where that takes as few. O(steps times entries)."""
    best = steps(product)
    outer = outer_of(product, step_of(product, best))
    ways = [way for way in _ways(product) if outer_of(product, step_of(product, way)) == outer]
    all_alike = multiplications(product, best)
    least, made = all_alike, whole(product)
    for factor in (*(best.before or ()), *([] if best.after is None else [best.after])):
        place = _picked(product.factors[factor].fixed, product.fixed)
        groups: dict[Values, list[int]] = {}
        for number, entry in enumerate(product.entries):
            groups.setdefault(place(entry), []).append(number)
        if len(groups) < 2:
            continue
        total, by = 0.0, dict[Steps, list[int]]()
        for own in groups.values():
            some = product.only(own)
            costs = {way: multiplications(some, way) for way in ways}
            way = min(costs, key=lambda w: (costs[w], w != best))
            total += costs[way]
            by.setdefault(way, []).extend(own)
        if total < least and total < WORTH * all_alike:
            least, made = total, tuple(Part(way, tuple(sorted(own))) for way, own in by.items())
    return made


def lacking(product: Product) -> str | None:
    """Why code that is written out for the entries does not pay: one nest of loops multiplies every entry by each factor, for every combination
    of loops, in lanes where the result lies along one of these. Code multiplies by no coefficient of 1 or -1, and for a sum once."""
    space = math.prod(float(n) for v, n in product.extents.items() if v not in product.fixed)
    lanes = LANES if product.out.indices[-1:] and product.out.indices[-1] not in product.fixed else 1  # of those loops
    walked = len(product.factors) * len(product.entries) * space / lanes
    saved = walked - multiplications(product, steps(product), every=True) / LANES
    least = ONCE + EACH * len(product.entries)
    return (
        None
        if saved > least
        else f"saves {max(0.0, saved):,.0f} multiplications a call, which are fewer than {least:,}"
    )


def described(product: Product) -> str:
    """The steps in words, operands by name."""

    def name(child: Factor | Step) -> str:
        return child.access.tensor.name if isinstance(child, Factor) else f"({text(child)})"

    def text(step: Step) -> str:
        own = [product.constant.tensor.name] if step.scaled else []
        return " * ".join([*own, *map(name, step.children)])

    found = parts(product)
    told = [text(step_of(product, part.steps)) for part in found]
    if len(found) > 1:
        told = [f"{words} for {len(part.numbers)}" for words, part in zip(told, found, strict=True)]
    return f"{len(product.entries)} entries of {product.constant.tensor} are written out: {', '.join(told)}"


def refusal(storage: Storage) -> str | None:
    """Why no code is written for the entries of a sparse array, whatever it is multiplied with."""
    if storage.ndim == 0 or storage.vals.dtype.kind not in "iufc":
        return f"holds {storage.vals.dtype}"
    if len(storage.vals) > 64 * MOST or storage.nnz > MOST:
        return f"stores more than {MOST:,} entries"
    return None if storage.fill_value == 0 else f"has the fill {storage.fill_value}"


def constant_of(storage: Storage) -> cin.Constant | None:
    """What a sparse array of few entries holds; None of others. O(entries), once per array."""
    if storage.format.is_dense or refusal(storage) is not None:
        return None
    known: cin.Constant | None = storage.cache.get("constant")
    if known is None:
        coordinates, values = convert.to_coords(storage)
        places = tuple(map(tuple, np.asarray(coordinates).T.tolist()))
        known = storage.cache["constant"] = cin.Constant(places, np.ascontiguousarray(values).tobytes())
    return known


def found(output: cin.Tensor, made: cin.Definition, constants: Mapping[str, cin.Constant]) -> cin.Definition | None:
    """A definition of `output` with what its operands hold, by name, where it is a product with a constant; else None."""
    if made.op != "add":
        return None
    held: dict[cin.Access, cin.Expr] = {
        a: cin.Access(a.tensor._replace(constant=constants[a.tensor.name]), a.indices)
        for a in cin.accesses(made.rhs)
        if a.tensor.name in constants
    }
    changed = cin.Definition(made.indices, made.op, cin.substitute(made.rhs, held))
    return changed if held and product_of(of_definition(output, changed)) is not None else None


def worth(made: cin.Definition, shape: Sequence[int], arrays: Mapping[str, Storage]) -> bool:
    """Whether a definition of a dense result of this shape is a product with one of some arrays that never change, by name, and code that is
    written out for its entries pays."""
    held = {name: constant for name, s in arrays.items() if (constant := constant_of(s)) is not None}
    dtype = made.rhs.dtype
    output = cin.Tensor("out", tuple(shape), dtype, Format((Dense(),) * len(shape)), dtype.type(0))
    changed = found(output, made, held) if held else None
    product = None if changed is None else product_of(of_definition(output, changed))
    return product is not None and lacking(product) is None
