"""Kernels over one pattern: arrays over the same index buffers are read and written by position.

Arrays that share a pattern (an array and its sine, its gradient, what was masked with it) share its index buffers. A kernel that reads several
of them walks the first, and reads the values of the others where that one is stored; a result that stores an entry exactly where an
operand does takes over its buffers, and nothing but values is written. Where nothing else depends on coordinates, neither are walked:

before:  out[i,j] = A[i,j] * B[i,j] * x[j],  B and out stored as A       after:  out'[@A] = A[i,j] * B'[@A] * x[j]
before:  out[i,j] = A[i,j] * B[i,j],         B and out stored as A       after:  out'[p] = A'[p] * B'[p]

B' holds the values of B: a dense array, whose first dimension runs over the positions of the last sparse level and whose others are the dense
levels below. `@A` (`cin.Position`) is where A[i,j] is stored. In place, a result may be accumulated in any loop order.

Which arrays share buffers is observed at every call (comparing addresses), and a kernel is planned for every case that occurs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Var
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import statistics
from sparsejax.jit.graph import partition
from sparsejax.jit.ir import cin, operators, simplify
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.ir.nest import Nest, Producer

Families = tuple[tuple[int, ...], ...]
"""Operands, by number, that are stored over the same buffers."""


@dataclass(frozen=True)
class Patterns:
    """What can be computed by position: groups of operands that may share a pattern, and whether an operand alone may be, since the result
    is stored like it or depends on no coordinates."""

    groups: tuple[tuple[int, ...], ...]
    alone: bool


@dataclass(frozen=True)
class Positional:
    """How a kernel by position is called: the operands that it reads, and which of them as arrays of values; and the operand over whose
    buffers the result is."""

    reads: tuple[tuple[int, bool], ...]
    like: int | None
    fill_value: Any
    families: Families = ()
    sizes: tuple[int, ...] = ()
    """What it was made for: operands that share patterns, and how many entries each has."""

    def inputs(self, inputs: Sequence[Storage]) -> list[Storage]:
        """The operands of the step."""
        return [values_of(inputs[k]) if flat else inputs[k] for k, flat in self.reads]

    def origins(self, inputs: Sequence[Storage]) -> list[Storage]:
        """The arrays that these are, or hold the values of."""
        return [inputs[k] for k, _ in self.reads]


Made = tuple[partition.KernelStep, Positional]
"""A kernel by position: its step, and how it is called."""

_VECTOR = Format.parse("dense", 1)


def values_of(storage: Storage) -> Storage:
    """The values of `storage` as a dense array: positions of the last sparse level, then the dense levels below."""
    known: Storage | None = storage.cache.get("values")
    if known is None:
        form = storage.format
        inner, vals = _inner(form, storage.shape), storage.vals
        if inner:
            shape = (len(vals) // max(1, math.prod(inner)), *inner)
            made = Storage(Format.parse("dense", len(shape)), shape, storage.fill_value, ((),) * len(shape), vals)
        else:  # on the shortest road: every new array comes by
            made = Storage.of_frozen(_VECTOR, (len(vals),), storage.fill_value, ((),), vals)
        known = storage.cache["values"] = made
    return known


def _last(form: Format) -> int:
    """The last sparse level."""
    return form.sparse[-1]


def _inner(form: Format, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[d] for d in form.order[_last(form) + 1 :])


# ------------------------------------------------------------------------------------------------------- before a call


def patterns(step: partition.KernelStep) -> Patterns | None:
    """What of a kernel can be computed by position, if anything."""
    nest = step.nest
    if any(t.format.blocked for t in (nest.output, *nest.inputs)):
        return None
    if nest.has_constant:
        return None  # what it holds is known by coordinates, and stands in the code (`static_constants`)
    accesses = list(dict.fromkeys(cin.accesses(nest.composite)))
    if any(a.entries for a in (*accesses, cin.Access(nest.output, nest.indices))):
        return None  # coordinates are read from arrays over all coordinates
    numbers = {t.name: k for k, t in enumerate(nest.inputs)}
    groups: dict[Any, list[int]] = {}
    for a in accesses:
        if _walkable(a):
            groups.setdefault((a.indices, a.tensor.format, a.tensor.shape), []).append(numbers[a.tensor.name])
    many = tuple(tuple(sorted(g)) for g in groups.values() if len(g) > 1)
    if nest.nested:
        return Patterns(many, False) if many else None
    alone = any(_stored_like(step, a) for a in accesses if _walkable(a))
    alone = alone or _flat(nest, {a: a for a in accesses}, None) is not None
    return Patterns(many, alone) if many or alone else None


def _walkable(access: cin.Access) -> bool:
    """Whether `access` is walked as it is stored, one entry at every position."""
    levels, form = access.indices, access.tensor.format
    if form.is_dense or len(set(levels)) < len(levels) or not cin.are_variables(levels):
        return False
    return all(level.ordered and level.unique and not level.shared for level in form.levels)


def _stored_like(step: partition.KernelStep, access: cin.Access) -> bool:
    """Whether the result is in the format of an operand that it is indexed like."""
    nest, aval = step.nest, step.output.aval
    if access.indices != nest.indices or access.tensor.format != aval.format or 0 in nest.output.shape:
        return False
    start = nest.output.fill_value if nest.op is None else operators.get(nest.op).identity(aval.dtype)
    return aval.format.packed or cin.same_value(start, nest.output.fill_value)


# ----------------------------------------------------------------------------------------------------------- the pass


def positional(step: partition.KernelStep, families: Families, inputs: Sequence[Storage]) -> Made | None:
    """`step` by position, where the operands of a family share their pattern; None where that changes nothing."""
    sizes = [2 if s.format.is_dense else max(2, int(statistics.positions(s)[_last(s.format)])) for s in inputs]
    if step.nest.bounded:
        sizes = [Bounded.named(f"p{k}", size) for k, size in enumerate(sizes)]
    return of_sizes(step, families, tuple(sizes))


def of_sizes(step: partition.KernelStep, families: Families, sizes: tuple[int, ...]) -> Made | None:
    """As `positional`, for operands of so many entries (2: a dense one)."""
    made = _positional(step, families, sizes)
    return None if made is None else (made[0], replace(made[1], families=families, sizes=sizes))


def _positional(step: partition.KernelStep, families: Families, sizes: Sequence[int]) -> Made | None:
    nest = step.nest
    accesses = {a.tensor.name: a for a in cin.accesses(nest.composite)}
    ordered = [accesses[t.name] for t in nest.inputs]
    if nest.nested and not families:
        return None
    head = {a: a for a in ordered}
    head |= {ordered[k]: ordered[family[0]] for family in families for k in family}
    own = next((a for a in ordered if head[a] == a and _walkable(a) and _over(step, a, head)), None)
    flat = None if nest.nested else _flat(nest, head, own)  # sums of rows ask for these
    if flat is not None:
        return _flattened(step, flat, {a for a in ordered if head[a] == flat}, own, sizes)
    if not families and (own is None or (own.tensor.format.packed and not nest.producers)):
        return None  # where one operand is walked alone, `given` shares its buffers too, and computes in lanes
    moved: dict[cin.Access, cin.Expr] = {
        a: _beside(a, head[a], cin.position_of(head[a]), sizes[k]) for k, a in enumerate(ordered) if head[a] != a
    }
    nest = _rewritten(nest, head, moved)
    if own is not None:
        nest = _onto(nest, cin.position_of(own), own, sizes[ordered.index(own)])
    return _made(step, nest, moved, None if own is None else ordered.index(own))


def _over(step: partition.KernelStep, own: cin.Access, head: dict[cin.Access, cin.Access]) -> bool:
    """Whether the result of `step` stores an entry exactly where `own` does.

    Nothing is left without it, and where it is there nothing else can be missing (or the step may store what `own` stores).
    """
    nest = step.nest
    if not _stored_like(step, own):
        return False
    family = {a for a in head if head[a] == own}
    left = simplify.exhaust(nest.composite, family)
    if not isinstance(left, cin.Literal) or not cin.same_value(left.value, nest.output.fill_value):
        return False
    if step.filled and nest.direct:
        return True
    if any(a.tensor.lacks and a not in family for a in head):
        return False
    extents = {ix: n for a in head for ix, n in zip(a.indices, a.tensor.shape, strict=True)}
    if any(n == 0 for n in extents.values()):
        return False  # a sum over nothing has no entries
    return all(_stored_in(c, family) for c in simplify.conditions(cin.Assign(own, None, nest.composite)))


def _stored_in(condition: cin.Expr, family: set[cin.Access]) -> bool:
    return isinstance(condition, cin.Call) and condition.op == "stored" and condition.args[0] in family


def _flat(nest: Nest, head: dict[cin.Access, cin.Access], own: cin.Access | None) -> cin.Access | None:
    """The head of the only sparse operands of a kernel that depends on no coordinates of their sparse levels, and computes either one number
    per position or one reduction of values at these."""
    heads = {h for h in head.values() if h.tensor.lacks}
    if len(heads) != 1:
        return None
    (only,) = heads
    form = only.tensor.format
    if not _walkable(only) or not form.packed:
        return None
    coordinates = {only.level_index(level) for level in range(_last(form) + 1)}
    if any(coordinates & set(a.indices) for a in head if head[a] != only):
        return None
    if own == only:
        return only
    if coordinates & set(nest.indices) or (nest.op is None and not nest.producers):
        return None
    family = {a for a in head if head[a] == only}
    for p, there in zip(nest.producers, _rewritten(nest, dict.fromkeys(family, only), {}, True).producers, strict=True):
        left = simplify.exhaust(p.rhs, family)
        nothing = None if p.op is None else operators.get(p.op).identity(p.target.dtype)
        if nothing is None or not isinstance(left, cin.Literal) or not cin.same_value(left.value, nothing):
            return None
        if family.isdisjoint(cin.accesses(there.rhs)):
            return None  # the same is reduced at every entry: without their values, nothing says how many there are
    return only


def _flattened(
    step: partition.KernelStep, only: cin.Access, family: set[cin.Access], own: cin.Access | None, sizes: Sequence[int]
) -> Made:
    """`step` over the positions of one pattern."""
    nest, at = step.nest, cin.IndexVar("p")
    accesses = {a.tensor.name: a for a in cin.accesses(nest.composite)}
    ordered = [accesses[t.name] for t in nest.inputs]
    moved: dict[cin.Access, cin.Expr] = {a: _beside(a, only, at, sizes[ordered.index(only)], None) for a in family}
    nest = _rewritten(nest, dict.fromkeys(family, only), moved, True)
    if own is not None:
        nest = _onto(nest, at, only, sizes[ordered.index(only)])
    return _made(step, nest, moved, None if own is None else ordered.index(only))


def beside(nest: Nest) -> tuple[tuple[int, int], ...]:
    """The inputs that are values beside another, with the numbers of these."""
    numbers = {t.name: k for k, t in enumerate(nest.inputs)}
    found = ((a, ix.access) for a in cin.accesses(nest.composite) for ix in a.indices if isinstance(ix, cin.Position))
    return tuple(dict.fromkeys((numbers[a.tensor.name], numbers[head.tensor.name]) for a, head in found))


def _beside(access: cin.Access, head: cin.Access, at: cin.Index, size: int, result: Format | None = None) -> cin.Access:
    """The values of `access`, stored like `head`, as a dense array whose first index is `at`."""
    tensor, form = access.tensor, access.tensor.format
    below = form.order[_last(form) + 1 :]
    shape = (size, *(tensor.shape[d] for d in below))
    lacking = form if isinstance(at, cin.Position) else result
    made = tensor.reshaped(shape, Format.parse("dense", len(shape)))._replace(result=lacking)
    return cin.Access(made, (at, *(head.indices[d] for d in below)))


def _rewritten(
    nest: Nest, head: dict[cin.Access, cin.Access], moved: dict[cin.Access, cin.Expr], flat: bool = False
) -> Nest:
    """`nest` reading the accesses `moved`; what asks for the pattern of one asks for that of its head, or knows the answer."""

    def change(expr: cin.Expr) -> cin.Expr:
        match expr:
            case cin.Call("stored", (cin.Access() as access,), dtype) if access in head:
                return simplify.literal(True, dtype) if flat else cin.Call("stored", (head[access],), dtype)
            case cin.Call(op, args, dtype):
                return cin.Call(op, tuple(map(change, args)), dtype)
            case cin.Access():
                return moved.get(expr, expr)
        return expr

    producers = tuple(Producer(p.target, p.op, simplify.simplify(change(p.rhs))) for p in nest.producers)
    return replace(nest, producers=producers, value=simplify.simplify(change(nest.value)))


def _onto(nest: Nest, at: cin.Index, own: cin.Access, size: int) -> Nest:
    """`nest` with the values of its result as a dense array."""
    out = _beside(cin.Access(nest.output, own.indices), own, at, size)
    indices = out.indices
    if isinstance(at, cin.Position):
        return replace(nest, output=out.tensor._replace(result=None), indices=indices)
    targets: dict[cin.Access, cin.Expr] = {}
    for p in nest.producers:
        below = own.tensor.format.order[_last(own.tensor.format) + 1 :]
        shape = (size, *(own.tensor.shape[d] for d in below))
        targets[p.target] = cin.Access(p.target.tensor.reshaped(shape, Format.parse("dense", len(shape))), indices)
    return replace(nest.substituted(targets), output=out.tensor._replace(result=None), indices=indices)


def _made(step: partition.KernelStep, nest: Nest, moved: dict[cin.Access, cin.Expr], like: int | None) -> Made:
    numbers = {t.name: k for k, t in enumerate(step.nest.inputs)}
    flat = {a.tensor.name for a in moved}
    reads = tuple((numbers[t.name], t.name in flat) for t in nest.inputs)
    out = step.output
    if like is not None:
        out = Var(Aval(nest.output.shape, nest.output.dtype, nest.output.format, 0))
    arguments = tuple(step.arguments[k] for k, _ in reads)
    made = replace(step, nest=nest, arguments=arguments, output=out)
    return made, Positional(reads, like, step.output.aval.fill_value)
