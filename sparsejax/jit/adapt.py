"""What kernels read and write directly, where that is less than what formats can say.

before:  out:bitmap[i,j] = A:hash[i,j] + B:csr-with-duplicates[i,j]
after:   out:csr[i,j] = A:csr[i,j] + B:csr[i,j],   A and B converted before, out after; the plan says so

Read: every level type, but duplicates are combined first, and an unordered level is only looked up: where nothing else
restricts its variable to the coordinates of ordered levels, it is read as a compressed one. Written: dense, compressed and
coordinate levels; others are assembled compressed and converted. Conversions are linear in the entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.formats import Compressed, Coordinate, Dense, Format, Level
from sparsejax.jit import cin, simplify
from sparsejax.jit.nest import Nest


def assembled(form: Format) -> Format:
    """The format in which a kernel writes a result of format `form`."""
    levels = [lv if isinstance(lv, Dense | Coordinate) or lv == Compressed() else Compressed() for lv in form.levels]
    return form if tuple(levels) == form.levels else Format(levels, form.order)


def readable(nest: Nest, order: Sequence[cin.IndexVar], tensor: cin.Tensor) -> Format:
    """The format in which the kernel of `nest`, with its loops in `order`, reads its input `tensor`."""
    form = tensor.format
    if all(level.unique and level.ordered for level in form.levels):
        return form
    access = next(a for a in cin.accesses(nest.composite) if a.tensor == tensor)
    levels: list[Level] = []
    for number, level in enumerate(form.levels):
        walked = not level.ordered and _leads(access, number, order) and not _restricted(nest, order, access, number)
        levels.append(Compressed() if walked or not level.unique else level)
    return Format(levels, form.order)


def _leads(access: cin.Access, number: int, order: Sequence[cin.IndexVar]) -> bool:
    """Whether level `number` is the next one when the loop over its variable starts, all levels above being bound."""
    index = access.level_index(number)
    if not isinstance(index, cin.IndexVar):
        return False
    bound = order[: list(order).index(index)]
    above = [access.level_index(k) for k in range(number)]
    return all(ix in bound for ix in above if isinstance(ix, cin.IndexVar))


def _restricted(nest: Nest, order: Sequence[cin.IndexVar], access: cin.Access, number: int) -> bool:
    """Whether nothing is to be done where the other operands that lead the loop of a level are absent."""
    index = access.level_index(number)
    others = set()
    for other in cin.accesses(nest.composite):
        for k, level in enumerate(other.tensor.format.levels):
            if (
                other.level_index(k) == index
                and other != access
                and level.ordered
                and not level.full
                and _leads(other, k, order)
            ):
                others.add(other)
    if any(a == access for a in cin.accesses(nest.value)):
        return not nest.producers and _is(simplify.exhaust(nest.value, others), nest.output.fill_value)
    gone = set()
    for producer in nest.producers:
        if _is(simplify.exhaust(producer.rhs, others), simplify.nothing(producer.target.tensor, producer.op)):
            gone.add(producer.target)
        elif access in set(cin.accesses(producer.rhs)):
            return False
    # the loop over a variable of the result also assigns what is left without the reductions
    if index not in nest.indices or nest.direct:
        return True
    return _is(simplify.exhaust(nest.value, others | gone), nest.output.fill_value)


def _is(expr: cin.Expr, value: object) -> bool:
    return isinstance(expr, cin.Literal) and cin.same_value(expr.value, value)
