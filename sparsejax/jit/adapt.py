"""What kernels read and write directly, where that is less than what formats can say.

before:  out:bitmap[i,j] = A:hash[i,j] + B:csr-with-duplicates[i,j]
after:   out:csr[i,j] = A:csr[i,j] + B:csr[i,j],   A and B converted before, out after; the plan says so

Read: every level type, but duplicates are combined first, and an unordered level is only looked up: where nothing else
restricts its variable to the coordinates of ordered levels, it is read as a compressed one. Written: dense, compressed and
coordinate levels; others are assembled compressed and converted. Conversions are linear in the entries.
"""

from __future__ import annotations

from sparsejax.formats import Compressed, Coordinate, Dense, Format, Level
from sparsejax.jit import cin, simplify
from sparsejax.jit.nest import Nest


def assembled(form: Format) -> Format:
    """The format in which a kernel writes a result of format `form`."""
    levels = [lv if isinstance(lv, Dense | Coordinate) or lv == Compressed() else Compressed() for lv in form.levels]
    return form if tuple(levels) == form.levels else Format(levels, form.order)


def readable(nest: Nest, tensor: cin.Tensor) -> Format:
    """The format in which the kernel of `nest` reads its input `tensor`."""
    form = tensor.format
    if all(level.unique and level.ordered for level in form.levels):
        return form
    access = next(a for a in cin.accesses(nest.composite) if a.tensor == tensor)
    levels: list[Level] = []
    for number, level in enumerate(form.levels):
        walked = not level.ordered and not _restricted(nest, access, access.level_index(number))
        levels.append(Compressed() if walked or not level.unique else level)
    return Format(levels, form.order)


def _restricted(nest: Nest, access: cin.Access, index: cin.Index) -> bool:
    """Whether nothing is to be done where the other operands with an ordered sparse level at `index` are absent."""
    others = set()
    for other in cin.accesses(nest.composite):
        if (
            index in other.indices and other != access
        ):  # the outermost of its levels at `index` is the one that is walked
            level = next(lv for k, lv in enumerate(other.tensor.format.levels) if other.level_index(k) == index)
            if level.ordered and not level.full:
                others.add(other)
    if any(a == access for a in cin.accesses(nest.value)):
        return not nest.producers and _is(simplify.exhaust(nest.value, others), nest.output.fill_value)
    gone = set()
    for producer in nest.producers:
        if _is(simplify.exhaust(producer.rhs, others), simplify.nothing(producer.target.tensor, producer.op)):
            gone.add(producer.target)
        elif access in set(cin.accesses(producer.rhs)):
            return False
    # a loop over a variable of the result also assigns what is left without the reductions
    return (
        index not in nest.indices
        or nest.direct
        or _is(simplify.exhaust(nest.value, others | gone), nest.output.fill_value)
    )


def _is(expr: cin.Expr, value: object) -> bool:
    return isinstance(expr, cin.Literal) and cin.same_value(expr.value, value)
